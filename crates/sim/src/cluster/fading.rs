//! Rows that expire: they are shown before, as those of `elements`, and never after.
//!
//! The coordinator of a write fixes the second at which its row expires, by its own clock, and that of a
//! read the second at which it looks, by its own. Both are known here but for a step of a clock within a
//! request, so that rows must be gone at every node exactly by that node's clock. That a row must still be
//! shown is said with more tolerance: a replica may make a tombstone of it as soon as its own clock says
//! that it has expired, and clocks differ by as much as the nemesis has made them. Invariant: an element
//! is inserted once.

use std::time::Duration;

use wire::consistency::Consistency;

use super::client::{Client, copies, read_level, write_level};
use super::sets::{Sets, pairs};
use super::{COPIES, Fate, SETS, below};

/// The shortest and the longest time to live.
const TTL_MIN: u64 = 2;
const TTL_MAX: u64 = 25;
/// How long a node may stand still between the begin of a request and the moment at which it looks at its
/// clock.
const PAUSE_SECONDS: i64 = 20;
/// How far a step moves a clock, at most, rounded up.
const STEP_SECONDS: i64 = 5;

/// A look at a node's clock, in whole seconds, and how many steps clocks have made until then.
#[derive(Debug, Clone, Copy)]
struct Look {
    seconds: i64,
    steps: u64,
}

impl Look {
    /// The seconds between which the clock was looked at from this look to a later one.
    fn until(self, later: Self) -> (i64, i64) {
        let slack = STEP_SECONDS * (later.steps - self.steps) as i64;
        (self.seconds.min(later.seconds) - slack, self.seconds.max(later.seconds) + slack)
    }
}

#[derive(Debug, Clone, Copy)]
struct Element {
    partition: u32,
    ttl: i64,
    /// The seconds between which it expires.
    expires: (i64, i64),
    fate: Fate,
    copies: usize,
}

/// All elements.
#[derive(Debug, Default)]
pub(super) struct Fading(Vec<Element>);

impl Fading {
    fn begin(&mut self, partition: u32, ttl: u64, look: Look) -> u32 {
        let (ttl, fate) = (ttl as i64, Fate::Doubt);
        let least = look.seconds + ttl - STEP_SECONDS;
        let expires = (least, least + 2 * STEP_SECONDS + PAUSE_SECONDS);
        self.0.push(Element { partition, ttl, expires, fate, copies: 0 });
        self.0.len() as u32 - 1
    }

    fn end(&mut self, element: u32, fate: Fate, copies: usize, (from, to): (i64, i64)) {
        let known = &mut self.0[element as usize];
        known.expires = (from + known.ttl, to + known.ttl);
        known.fate = fate;
        known.copies = if fate == Fate::Done { copies } else { 0 };
    }

    /// Elements that a read of `copies` has to show if they have not expired.
    fn due(&self, copies: usize, sets: Sets) -> Vec<u32> {
        let is_due = |(at, element): &(u32, &Element)| {
            element.copies + copies > COPIES && sets.covers(element.partition, *at)
        };
        (0..).zip(&self.0).filter(is_due).map(|(at, _)| at).collect()
    }

    /// Checks what a read showed that looked at its clock between two seconds, while clocks differed from the
    /// right time by no more than `wrong` seconds.
    ///
    /// # Errors
    /// The contradiction.
    fn check(
        &self,
        due: &[u32],
        (from, to): (i64, i64),
        wrong: i64,
        shown: &[(u32, u32)],
    ) -> Result<(), String> {
        for at in due {
            let element = &self.0[*at as usize];
            let is_shown = shown.contains(&(element.partition, *at));
            // Any clock is at most so far ahead of the reader's.
            if !is_shown && to + 2 * wrong < element.expires.0 {
                return Err(format!("element {at} is missing from {from} to {to}, by {wrong}: {element:?}"));
            }
        }
        for (partition, at) in shown {
            let Some(element) = self.0.get(*at as usize) else {
                return Err(format!("nobody inserted element {at}"));
            };
            let is_over = from >= element.expires.1;
            if element.partition != *partition || element.fate == Fate::Refused || is_over {
                return Err(format!(
                    "element {at} is shown in partition {partition} from {from} to {to}: {element:?}"
                ));
            }
        }
        Ok(())
    }

    /// The second by which all have expired.
    fn end_of_all(&self) -> i64 {
        self.0.iter().map(|element| element.expires.1).max().unwrap_or(i64::MIN)
    }
}

impl Client {
    fn look_at_clock(&self) -> Look {
        Look { seconds: reactor::wall_clock_us() / 1_000_000, steps: self.shared.clock_steps.get() }
    }

    /// Inserts an element that expires, or reads some.
    ///
    /// # Errors
    /// An answer that is wrong.
    pub(super) async fn use_fading(&self) -> Result<(), String> {
        if below(2) == 0 {
            let page = (below(2) == 0).then(|| 1 + below(10) as u32);
            let read = self.show_fading(Sets::random(), read_level(), page).await?;
            self.shared.count(if read.is_some() { "fading read" } else { "fading not read" });
            return Ok(());
        }
        let (partition, level) = (below(SETS.into()) as u32, write_level());
        let (ttl, began) = (TTL_MIN + below(TTL_MAX - TTL_MIN + 1), self.look_at_clock());
        let element = self.shared.fading.borrow_mut().begin(partition, ttl, began);
        let text = format!("INSERT INTO sim.fading (p, e) VALUES ({partition}, {element}) USING TTL {ttl}");
        let fate = self.write(&text, level).await?;
        let seconds = began.until(self.look_at_clock());
        self.shared.count(if fate == Fate::Done { "fading inserted" } else { "fading not inserted" });
        self.shared.fading.borrow_mut().end(element, fate, copies(level), seconds);
        Ok(())
    }

    async fn show_fading(
        &self,
        sets: Sets,
        level: Consistency,
        page: Option<u32>,
    ) -> Result<Option<Vec<(u32, u32)>>, String> {
        let text = format!("SELECT p, e FROM sim.fading{}", sets.text());
        let due = self.shared.fading.borrow().due(copies(level), sets);
        let began = self.look_at_clock();
        let Some(rows) = self.read(&text, level, page).await? else { return Ok(None) };
        let seconds = began.until(self.look_at_clock());
        let shown = pairs(&rows)?;
        let wrong = self.shared.clocks_wrong_us.get().div_euclid(1_000_000) + 1;
        let checked = self.shared.fading.borrow().check(&due, seconds, wrong, &shown);
        checked.map_err(|wrong| format!("{text} at {level}: {wrong}"))?;
        if !shown.is_empty() {
            self.shared.count("fading shown");
        }
        Ok(Some(shown))
    }

    /// Waits in the end until all have expired at this node; the clocks of all nodes are right by now.
    pub(super) async fn wait_for_expiry(&self) {
        let end = self.shared.fading.borrow().end_of_all();
        while reactor::wall_clock_us() / 1_000_000 <= end {
            reactor::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Reads all elements in the end: there are none.
    ///
    /// # Errors
    /// One that is there.
    pub(super) async fn check_faded(&self, level: Consistency) -> Result<(), String> {
        let shown = self.settle(async || self.show_fading(Sets::All, level, None).await).await?;
        if shown.is_empty() {
            Ok(())
        } else {
            Err(format!("at {level} there are {shown:?}, and all expired"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(seconds: i64, steps: u64) -> Look {
        Look { seconds, steps }
    }

    fn check(fading: &Fading, at: i64, wrong: i64, shown: &[(u32, u32)]) -> bool {
        fading.check(&fading.due(2, Sets::All), (at, at), wrong, shown).is_ok()
    }

    #[test]
    fn a_row_is_shown_until_it_expires_and_not_behind() {
        let mut fading = Fading::default();
        let element = fading.begin(3, 10, look(100, 0));
        assert!(check(&fading, 100, 1, &[]), "it is not acknowledged yet");
        fading.end(element, Fate::Done, 2, look(100, 0).until(look(101, 0)));
        assert!(check(&fading, 105, 1, &[(3, element)]) && !check(&fading, 105, 1, &[]));
        assert!(check(&fading, 110, 1, &[(3, element)]) && check(&fading, 110, 1, &[]));
        assert!(!check(&fading, 111, 1, &[(3, element)]) && check(&fading, 111, 1, &[]));
        assert!(check(&fading, 105, 6, &[]), "the clock of a replica may be ahead");
        assert!(!check(&fading, 105, 1, &[(2, element)]), "another partition");
        assert_eq!(fading.end_of_all(), 111);
    }

    #[test]
    fn a_step_within_a_request_leaves_room() {
        assert_eq!(look(100, 3).until(look(97, 4)), (92, 105));
        assert_eq!(look(100, 3).until(look(101, 3)), (100, 101));
    }
}
