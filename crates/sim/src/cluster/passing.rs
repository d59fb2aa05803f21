//! Elements of a table that is truncated now and then.
//!
//! A truncation that was answered has removed every element whose insert was answered before the truncation
//! began, and none whose insert began after its answer: no read that begins later shows the former, and reads
//! show the latter as those of `elements`. Elements in between may be there or not. A truncation that failed
//! may still be agreed upon for some time ([`DOUBT_LASTS`]).

use std::time::Duration;

use query::QueryError;
use wire::consistency::Consistency;

use super::client::{Client, copies, read_level, write_level};
use super::sets::{Sets, pairs};
use super::{COPIES, Fate, SETS, below};
use crate::answer::Sending;

/// One in so many operations truncates.
const RARITY: u64 = 12;
/// The time that a truncation is given, in the words of its statement: shorter than that of any request.
const TIMEOUT: &str = "15s";
/// How long after its begin a truncation of unknown outcome may still be agreed upon. Its proposal ends
/// with its timeout; what a leader has in its log by then is agreed upon or overwritten once the leader is
/// part of a majority again, and no fault of the network lasts longer than the nemesis lets it.
const DOUBT_LASTS: Duration = Duration::from_secs(40);

#[derive(Debug, Clone, Copy)]
struct Element {
    partition: u32,
    began: u64,
    began_at: Duration,
    /// When it was answered, whatever the answer.
    ended: Option<u64>,
    fate: Fate,
    copies: usize,
}

#[derive(Debug, Clone, Copy)]
struct Truncation {
    began: u64,
    began_at: Duration,
    ended: u64,
    fate: Fate,
}

impl Truncation {
    /// Whether it may remove an element, or may have.
    fn may_remove(&self, element: &Element) -> bool {
        match self.fate {
            Fate::Refused => false,
            Fate::Done => self.ended > element.began,
            Fate::Doubt => element.began_at < self.began_at + DOUBT_LASTS,
        }
    }

    /// Whether it has removed an element before an event.
    fn has_removed(&self, element: &Element, event: u64) -> bool {
        self.fate == Fate::Done && self.ended < event && element.ended.is_some_and(|ended| ended < self.began)
    }
}

/// All elements and truncations.
#[derive(Debug, Default)]
pub(super) struct Passing {
    events: u64,
    elements: Vec<Element>,
    truncations: Vec<Truncation>,
}

/// A read that has begun.
#[derive(Debug)]
struct Reading {
    event: u64,
    copies: usize,
    /// Elements that are on enough copies to be shown, unless they were removed.
    due: Vec<u32>,
}

impl Passing {
    fn event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    fn insert(&mut self, partition: u32, now: Duration) -> u32 {
        let began = self.event();
        let fate = Fate::Doubt;
        self.elements.push(Element { partition, began, began_at: now, ended: None, fate, copies: 0 });
        self.elements.len() as u32 - 1
    }

    fn inserted(&mut self, element: u32, fate: Fate, copies: usize) {
        let event = self.event();
        let known = &mut self.elements[element as usize];
        known.ended = Some(event);
        known.fate = fate;
        if fate == Fate::Done {
            known.copies = known.copies.max(copies);
        }
    }

    fn truncate(&mut self, now: Duration) -> usize {
        let began = self.event();
        self.truncations.push(Truncation { began, began_at: now, ended: u64::MAX, fate: Fate::Doubt });
        self.truncations.len() - 1
    }

    fn truncated(&mut self, number: usize, fate: Fate) {
        let event = self.event();
        let truncation = &mut self.truncations[number];
        (truncation.ended, truncation.fate) = (event, fate);
    }

    fn read(&mut self, copies: usize, sets: Sets) -> Reading {
        let event = self.event();
        let is_due = |(at, element): &(u32, &Element)| {
            element.copies + copies > COPIES && sets.covers(element.partition, *at)
        };
        let due = (0..).zip(&self.elements).filter(is_due).map(|(at, _)| at).collect();
        Reading { event, copies, due }
    }

    /// Checks the pairs of partition and element that a read showed.
    ///
    /// # Errors
    /// The contradiction.
    fn check(&mut self, reading: &Reading, shown: &[(u32, u32)]) -> Result<(), String> {
        for at in &reading.due {
            let element = &self.elements[*at as usize];
            let is_shown = shown.contains(&(element.partition, *at));
            if !is_shown && !self.truncations.iter().any(|truncation| truncation.may_remove(element)) {
                return Err(format!("element {at} is missing: {element:?}"));
            }
        }
        for (partition, at) in shown {
            let Some(element) = self.elements.get_mut(*at as usize) else {
                return Err(format!("nobody inserted element {at}"));
            };
            if element.partition != *partition || element.fate == Fate::Refused {
                return Err(format!("element {at} is shown in partition {partition}: {element:?}"));
            }
            let removed = |truncation: &&Truncation| truncation.has_removed(element, reading.event);
            if let Some(truncation) = self.truncations.iter().find(removed) {
                return Err(format!("element {at} was removed by {truncation:?}: {element:?}"));
            }
            element.copies = element.copies.max(reading.copies);
        }
        Ok(())
    }
}

impl Client {
    /// Inserts an element, reads some, or truncates.
    ///
    /// # Errors
    /// An answer that is wrong.
    pub(super) async fn use_passing(&self) -> Result<(), String> {
        if below(RARITY) == 0 {
            return self.truncate().await;
        }
        if below(3) == 0 {
            let read = self.show_passing(Sets::random(), read_level(), None).await?;
            self.shared.count(if read.is_some() { "passing read" } else { "passing not read" });
            return Ok(());
        }
        let (partition, level) = (below(SETS.into()) as u32, write_level());
        let element = self.shared.passing.borrow_mut().insert(partition, self.shared.now.get());
        let text = format!("INSERT INTO sim.passing (p, e) VALUES ({partition}, {element})");
        let fate = self.write(&text, level).await?;
        self.shared.count(if fate == Fate::Done { "passing inserted" } else { "passing not inserted" });
        self.shared.passing.borrow_mut().inserted(element, fate, copies(level));
        Ok(())
    }

    async fn truncate(&self) -> Result<(), String> {
        let number = self.shared.passing.borrow_mut().truncate(self.shared.now.get());
        let text = format!("TRUNCATE sim.passing USING TIMEOUT {TIMEOUT}");
        let fate = match self.send(&text, Sending::at(Consistency::Quorum)).await {
            Ok(_) => Fate::Done,
            // Nodes are down, before anything is done.
            Err(QueryError::Truncate(text)) if text.contains("level ALL") => Fate::Refused,
            Err(QueryError::Truncate(_)) => Fate::Doubt,
            Err(error) => self.fate(&error).ok_or_else(|| format!("{text}: {error:?}"))?,
        };
        self.shared.count(match fate {
            Fate::Done => "truncated",
            Fate::Refused => "truncation refused",
            Fate::Doubt => "truncation in doubt",
        });
        self.shared.passing.borrow_mut().truncated(number, fate);
        Ok(())
    }

    async fn show_passing(
        &self,
        sets: Sets,
        level: Consistency,
        page: Option<u32>,
    ) -> Result<Option<Vec<(u32, u32)>>, String> {
        let text = format!("SELECT p, e FROM sim.passing{}", sets.text());
        let reading = self.shared.passing.borrow_mut().read(copies(level), sets);
        let Some(rows) = self.read(&text, level, page).await? else { return Ok(None) };
        let shown = pairs(&rows)?;
        let checked = self.shared.passing.borrow_mut().check(&reading, &shown);
        checked.map_err(|wrong| format!("{text} at {level}: {wrong}"))?;
        Ok(Some(shown))
    }

    /// Reads all elements in the end, which must be right.
    ///
    /// # Errors
    /// The contradiction.
    pub(super) async fn show_all_passing(&self, level: Consistency) -> Result<Vec<(u32, u32)>, String> {
        let mut shown = self.settle(async || self.show_passing(Sets::All, level, Some(5)).await).await?;
        shown.sort_unstable();
        Ok(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows(passing: &mut Passing, shown: &[(u32, u32)]) -> Result<(), String> {
        let reading = passing.read(2, Sets::All);
        passing.check(&reading, shown)
    }

    fn inserted(passing: &mut Passing, at: u64) -> u32 {
        let element = passing.insert(1, Duration::from_secs(at));
        passing.inserted(element, Fate::Done, 2);
        element
    }

    #[test]
    fn a_truncation_removes_what_was_before_it_and_nothing_behind() {
        let mut passing = Passing::default();
        let before = inserted(&mut passing, 0);
        let beside = passing.insert(1, Duration::from_secs(1));
        shows(&mut passing, &[(1, before)]).expect("it is there");
        let early = passing.read(2, Sets::All);
        let number = passing.truncate(Duration::from_secs(2));
        shows(&mut passing, &[]).expect("the truncation is under way");
        shows(&mut passing, &[(1, before)]).expect("so it is");
        passing.truncated(number, Fate::Done);
        passing.inserted(beside, Fate::Done, 2);
        let behind = inserted(&mut passing, 3);
        shows(&mut passing, &[(1, behind)]).expect("both may be");
        shows(&mut passing, &[(1, behind), (1, beside)]).expect("both may be");
        assert!(shows(&mut passing, &[(1, behind), (1, before)]).unwrap_err().contains("was removed"));
        assert!(shows(&mut passing, &[(1, beside)]).unwrap_err().contains("missing"));
        passing.check(&early, &[(1, before)]).expect("the read began before");
    }

    #[test]
    fn one_in_doubt_removes_for_some_time_and_one_that_was_refused_never() {
        let mut passing = Passing::default();
        let first = inserted(&mut passing, 0);
        let refused = passing.truncate(Duration::ZERO);
        passing.truncated(refused, Fate::Refused);
        assert!(shows(&mut passing, &[]).is_err());
        passing.truncate(Duration::from_secs(1));
        shows(&mut passing, &[]).expect("it may be gone");
        shows(&mut passing, &[(1, first)]).expect("it may be there");
        let later = inserted(&mut passing, 1 + DOUBT_LASTS.as_secs());
        assert!(shows(&mut passing, &[(1, first)]).is_err());
        shows(&mut passing, &[(1, later)]).expect("it is there");
    }

    #[test]
    fn what_was_refused_or_never_inserted_or_elsewhere_is_not_shown() {
        let mut passing = Passing::default();
        let element = passing.insert(1, Duration::ZERO);
        assert!(shows(&mut passing, &[(2, element)]).is_err() && shows(&mut passing, &[(1, 9)]).is_err());
        passing.inserted(element, Fate::Refused, 0);
        assert!(shows(&mut passing, &[(1, element)]).is_err());
    }
}
