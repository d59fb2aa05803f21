//! Logged batches: each inserts an element of its own into several partitions, all of them or none.
//!
//! While batches are under way a reader may see some of their elements: a batch is atomic, not isolated. For
//! each partition the model of `elements` holds. In the end, once those who keep batches of silent
//! coordinators have had their time, each batch is everywhere or nowhere, and those that were acknowledged,
//! or of which an error said that they will happen, are everywhere.

use std::cell::RefCell;
use std::fmt::Write;

use query::QueryError;
use wire::consistency::Consistency;
use wire::error::WriteType;

use super::client::{Client, copies, read_level, write_level};
use super::elements::Elements;
use super::sets::{Set, Sets};
use super::{Fate, SETS, below};
use crate::answer::Sending;

/// Partitions of a batch.
const PARTITIONS_MAX: u64 = 3;

#[derive(Debug)]
struct Batch {
    elements: Vec<u32>,
    /// Whether it must be everywhere in the end.
    happens: bool,
}

/// All batches.
#[derive(Debug, Default)]
pub(super) struct Batches {
    elements: RefCell<Elements>,
    batches: RefCell<Vec<Batch>>,
}

impl Batches {
    /// The elements of all batches, one for each partition of each.
    pub(super) fn set(&self) -> Set<'_> {
        Set { table: "batched", elements: &self.elements }
    }

    /// A batch into some partitions begins; its number and its elements.
    fn begin(&self, partitions: &[u32]) -> (usize, Vec<u32>) {
        let mut model = self.elements.borrow_mut();
        let elements: Vec<u32> = partitions.iter().map(|partition| model.begin(*partition)).collect();
        let mut batches = self.batches.borrow_mut();
        batches.push(Batch { elements: elements.clone(), happens: false });
        (batches.len() - 1, elements)
    }

    /// Its answer: what is known of its elements, and whether it must happen.
    fn end(&self, number: usize, fate: Fate, copies: usize, happens: bool) -> Result<(), String> {
        let mut batches = self.batches.borrow_mut();
        batches[number].happens = happens;
        let mut model = self.elements.borrow_mut();
        batches[number].elements.iter().try_for_each(|element| model.end(*element, fate, copies))
    }

    /// Checks in the end that each batch is everywhere or nowhere.
    ///
    /// # Errors
    /// One that is not.
    fn check(&self, shown: &[(u32, u32)]) -> Result<(), String> {
        for (number, batch) in self.batches.borrow().iter().enumerate() {
            let is_there = |element: &&u32| shown.iter().any(|(_, shown)| shown == *element);
            let there: Vec<u32> = batch.elements.iter().filter(is_there).copied().collect();
            if there.len() != batch.elements.len() && (batch.happens || !there.is_empty()) {
                return Err(format!("of batch {number}, {batch:?}, there are elements {there:?}"));
            }
        }
        Ok(())
    }
}

impl Client {
    /// Writes a batch, or reads what batches have written.
    ///
    /// # Errors
    /// An answer that is wrong.
    pub(super) async fn use_batches(&self) -> Result<(), String> {
        if below(3) == 0 {
            let set = self.shared.batches.set();
            let page = (below(2) == 0).then(|| 1 + below(20) as u32);
            let read = self.show_sets(set, Sets::random(), read_level(), page).await?;
            self.shared.count(if read.is_some() { "batches read" } else { "batches not read" });
            return Ok(());
        }
        let (count, first) = (2 + below(PARTITIONS_MAX - 1) as u32, below(SETS.into()) as u32);
        let partitions: Vec<u32> = (first..first + count).map(|partition| partition % SETS).collect();
        let (number, elements) = self.shared.batches.begin(&partitions);
        let mut text = "BEGIN BATCH ".to_owned();
        for (partition, element) in partitions.iter().zip(elements) {
            write!(text, "INSERT INTO sim.batched (p, e) VALUES ({partition}, {element}); ")
                .expect("a string takes all text");
        }
        text.push_str("APPLY BATCH");
        let level = write_level();
        let (fate, happens) = match self.send(&text, Sending::at(level)).await {
            Ok(_) => (Fate::Done, true),
            // The batch is in the batch log, and its writes are late.
            Err(
                QueryError::WriteTimeout { write_type: WriteType::Batch, .. }
                | QueryError::WriteFailure { write_type: WriteType::Batch, .. },
            ) => (Fate::Doubt, true),
            Err(error) => (self.fate(&error).ok_or_else(|| format!("{text}: {error:?}"))?, false),
        };
        self.shared.count(match fate {
            Fate::Done => "batch written",
            Fate::Refused => "batch refused",
            Fate::Doubt => "batch in doubt",
        });
        self.shared.batches.end(number, fate, copies(level), happens)
    }

    /// Reads all elements of batches in the end, and checks them.
    ///
    /// # Errors
    /// The contradiction.
    pub(super) async fn show_batches(&self, level: Consistency) -> Result<Vec<(u32, u32)>, String> {
        let shown = self.show_all(self.shared.batches.set(), level).await?;
        self.shared.batches.check(&shown).map_err(|wrong| format!("at {level}: {wrong}"))?;
        Ok(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_everywhere_or_nowhere_and_one_that_was_acknowledged_is_there() {
        let batches = Batches::default();
        let (number, elements) = batches.begin(&[4, 2]);
        let whole = [(4, elements[0]), (2, elements[1])];
        assert!(batches.check(&[]).is_ok() && batches.check(&whole).is_ok());
        assert!(batches.check(&whole[..1]).is_err() && batches.check(&whole[1..]).is_err());
        batches.end(number, Fate::Doubt, 0, true).expect("nothing was shown");
        assert!(batches.check(&[]).is_err() && batches.check(&whole).is_ok());
    }
}
