//! Counters that clients of all nodes count up and down.
//!
//! An update that was acknowledged by `w` copies counts in every read of `r` copies with `w + r > COPIES`
//! that begins later: a leader's share holds all that it has counted. Any other update that has begun
//! counts once or not at all, unless it was refused. The ids under which leaders count play no part here:
//! a node keeps its share over faults of its disk, since it is synced before anybody sees it, and no fault
//! of this world takes a disk away. A counter with many updates in doubt is left alone, so that the last
//! check can tell their sums apart.

use wire::consistency::Consistency;

use super::client::{Client, copies, read_level, write_level};
use super::{COPIES, Fate, below};
use crate::answer::bigint;

/// Counters in use at once.
const IN_USE: usize = 3;
/// Updates of a counter in doubt before another takes its place.
const DOUBTS_MAX: usize = 10;
/// Largest step up or down.
const STEP_MAX: u64 = 1_000;

#[derive(Debug, Clone, Copy)]
struct Update {
    by: i64,
    fate: Fate,
    copies: usize,
}

/// All counters.
#[derive(Debug, Default)]
pub(super) struct Counters {
    counters: Vec<Vec<Update>>,
    in_use: Vec<usize>,
}

/// A read that has begun.
#[derive(Debug)]
pub(super) struct Expected {
    counter: usize,
    /// For each update before, whether it must count.
    counts: Vec<bool>,
}

impl Counters {
    fn pick(&mut self, place: usize) -> usize {
        while self.in_use.len() <= place {
            self.in_use.push(self.counters.len());
            self.counters.push(Vec::new());
        }
        let updates = &self.counters[self.in_use[place]];
        if updates.iter().filter(|update| update.fate == Fate::Doubt).count() >= DOUBTS_MAX {
            self.in_use[place] = self.counters.len();
            self.counters.push(Vec::new());
        }
        self.in_use[place]
    }

    /// An update begins; its number.
    fn begin(&mut self, counter: usize, by: i64) -> usize {
        self.counters[counter].push(Update { by, fate: Fate::Doubt, copies: 0 });
        self.counters[counter].len() - 1
    }

    fn end(&mut self, counter: usize, number: usize, fate: Fate, copies: usize) {
        let update = &mut self.counters[counter][number];
        update.fate = fate;
        update.copies = if fate == Fate::Done { copies } else { 0 };
    }

    /// A read of `copies` begins.
    fn expect(&self, counter: usize, copies: usize) -> Expected {
        let counts = self.counters[counter].iter().map(|update| update.copies + copies > COPIES);
        Expected { counter, counts: counts.collect() }
    }

    /// Checks what a read showed.
    ///
    /// # Errors
    /// The totals that it could have shown.
    fn check(&self, expected: &Expected, shown: i64) -> Result<(), String> {
        let updates = &self.counters[expected.counter];
        let (mut least, mut most) = (0, 0);
        let mut open = Vec::new();
        for (at, update) in updates.iter().enumerate() {
            if expected.counts.get(at) == Some(&true) {
                least += update.by;
                most += update.by;
            } else if update.fate != Fate::Refused {
                least += update.by.min(0);
                most += update.by.max(0);
                open.push(update.by);
            }
        }
        let is_reached = || {
            let rest = shown - (most - open.iter().map(|by| (*by).max(0)).sum::<i64>());
            // More of them than a counter may have in doubt are only under way.
            open.len() > 2 * DOUBTS_MAX || sums_to(&open, rest)
        };
        if (least..=most).contains(&shown) && is_reached() {
            return Ok(());
        }
        let counter = expected.counter;
        Err(format!("counter {counter} is {shown}; {least} to {most} are possible, open are {open:?}"))
    }

    fn all(&self) -> std::ops::Range<usize> {
        0..self.counters.len()
    }

    /// How many counters there are.
    pub(super) fn len(&self) -> usize {
        self.counters.len()
    }
}

/// Whether some of the numbers add up to a sum.
fn sums_to(numbers: &[i64], sum: i64) -> bool {
    let mut sums = std::collections::BTreeSet::from([0]);
    for number in numbers {
        let more: Vec<i64> = sums.iter().map(|sum| sum + number).collect();
        sums.extend(more);
    }
    sums.contains(&sum)
}

impl Client {
    /// Counts, or reads a counter.
    ///
    /// # Errors
    /// An answer that is wrong.
    pub(super) async fn use_counters(&self) -> Result<(), String> {
        let counter = self.shared.counters.borrow_mut().pick(below(IN_USE as u64) as usize);
        if below(3) == 0 {
            let read = self.read_counter(counter, read_level()).await?;
            self.shared.count(if read.is_some() { "counter read" } else { "counter not read" });
            return Ok(());
        }
        let (step, level) = (1 + below(STEP_MAX) as i64, write_level());
        let (sign, by) = if below(3) == 0 { ('-', -step) } else { ('+', step) };
        let number = self.shared.counters.borrow_mut().begin(counter, by);
        let text = format!("UPDATE sim.counters SET n = n {sign} {step} WHERE k = {counter}");
        let fate = self.write(&text, level).await?;
        self.shared.count(match fate {
            Fate::Done => "counted",
            Fate::Refused => "count refused",
            Fate::Doubt => "count in doubt",
        });
        self.shared.counters.borrow_mut().end(counter, number, fate, copies(level));
        Ok(())
    }

    async fn read_counter(&self, counter: usize, level: Consistency) -> Result<Option<i64>, String> {
        let text = format!("SELECT n FROM sim.counters WHERE k = {counter}");
        let expected = self.shared.counters.borrow().expect(counter, copies(level));
        let Some(rows) = self.read(&text, level, None).await? else { return Ok(None) };
        let shown = rows.first().and_then(|row| bigint(row.first())).unwrap_or(0) as i64;
        let checked = self.shared.counters.borrow().check(&expected, shown);
        checked.map_err(|wrong| format!("{text} at {level}: {wrong}"))?;
        Ok(Some(shown))
    }

    /// Reads all counters in the end.
    ///
    /// # Errors
    /// An answer that is wrong.
    pub(super) async fn show_counters(&self, level: Consistency) -> Result<Vec<i64>, String> {
        let mut shown = Vec::new();
        let all = self.shared.counters.borrow().all();
        for counter in all {
            shown.push(self.settle(async || self.read_counter(counter, level).await).await?);
        }
        Ok(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows(counters: &Counters, copies: usize, shown: i64) -> bool {
        counters.check(&counters.expect(0, copies), shown).is_ok()
    }

    #[test]
    fn what_was_acknowledged_counts_once_and_what_is_open_once_or_not_at_all() {
        let mut counters = Counters::default();
        counters.pick(0);
        let done = counters.begin(0, 5);
        assert!(shows(&counters, 3, 0) && shows(&counters, 3, 5) && !shows(&counters, 3, 4));
        counters.end(0, done, Fate::Done, 2);
        assert!(shows(&counters, 2, 5) && !shows(&counters, 2, 0) && !shows(&counters, 2, 10));
        assert!(shows(&counters, 1, 0), "one copy may lack it");
        let refused = counters.begin(0, 100);
        counters.end(0, refused, Fate::Refused, 0);
        let doubt = counters.begin(0, -7);
        counters.end(0, doubt, Fate::Doubt, 0);
        assert!(shows(&counters, 2, 5) && shows(&counters, 2, -2));
        assert!(!shows(&counters, 2, 105) && !shows(&counters, 2, -9) && !shows(&counters, 2, 3));
    }

    #[test]
    fn an_update_that_began_during_a_read_may_count() {
        let mut counters = Counters::default();
        counters.pick(0);
        let expected = counters.expect(0, 2);
        let late = counters.begin(0, 3);
        counters.end(0, late, Fate::Done, 3);
        assert!(counters.check(&expected, 0).is_ok() && counters.check(&expected, 3).is_ok());
        assert!(!shows(&counters, 2, 0));
    }

    #[test]
    fn a_counter_with_many_in_doubt_is_left_alone() {
        let mut counters = Counters::default();
        let first = counters.pick(0);
        for _ in 0..DOUBTS_MAX {
            counters.begin(first, 1);
        }
        assert_ne!(counters.pick(0), first);
        assert_eq!(counters.len(), 2);
    }
}
