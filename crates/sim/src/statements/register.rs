//! What compare-and-set on a register must look like.
//!
//! No value is written twice, so the writes that happened make one chain from null: each value has one before
//! it and at most one behind it. A read stands at its value's place in the chain. Where one operation ended
//! before another began, the other may not stand before it.

use std::collections::{BTreeMap, BTreeSet};

/// A value of a register.
pub(super) type Value = Option<u32>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It was answered that it happened.
    Done,
    /// No answer came.
    Doubt,
    /// It did not happen, and said what was there instead.
    Refused(Value),
}

#[derive(Debug, Clone, Copy)]
struct Swap {
    key: usize,
    old: Value,
    new: u32,
    began: u64,
    ended: u64,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    key: usize,
    value: Value,
    began: u64,
    ended: u64,
}

/// All that was done to the registers.
#[derive(Debug, Default)]
pub(super) struct Registers {
    swaps: Vec<Swap>,
    reads: Vec<Seen>,
}

impl Registers {
    /// A write that begins; the number and the new value are returned.
    pub(super) fn begin(&mut self, key: usize, old: Value, now: u64) -> (usize, u32) {
        let new = u32::try_from(self.swaps.len() + 1).expect("few writes");
        self.swaps.push(Swap { key, old, new, began: now, ended: u64::MAX, outcome: Outcome::Doubt });
        (self.swaps.len() - 1, new)
    }

    /// Its answer: done, or what was there instead.
    pub(super) fn end(&mut self, number: usize, refused: Option<Value>, now: u64) {
        let swap = &mut self.swaps[number];
        swap.ended = now;
        swap.outcome = refused.map_or(Outcome::Done, Outcome::Refused);
    }

    /// A read and its answer.
    pub(super) fn read(&mut self, key: usize, value: Value, began: u64, ended: u64) {
        self.reads.push(Seen { key, value, began, ended });
    }

    /// Writes that were answered, that were refused, and that are in doubt.
    pub(super) fn counts(&self) -> [usize; 3] {
        let count = |is: fn(Outcome) -> bool| self.swaps.iter().filter(|swap| is(swap.outcome)).count();
        [
            count(|outcome| outcome == Outcome::Done),
            count(|outcome| matches!(outcome, Outcome::Refused(_))),
            count(|outcome| outcome == Outcome::Doubt),
        ]
    }

    /// Whether there is an order that explains all answers.
    ///
    /// # Errors
    /// What contradicts it.
    pub(super) fn check(&self) -> Result<(), String> {
        let keys: BTreeSet<usize> = self.swaps.iter().map(|swap| swap.key).collect();
        keys.into_iter().try_for_each(|key| self.check_key(key))
    }

    fn check_key(&self, key: usize) -> Result<(), String> {
        let swaps: Vec<&Swap> = self.swaps.iter().filter(|swap| swap.key == key).collect();
        let by_new: BTreeMap<u32, &Swap> = swaps
            .iter()
            .filter(|swap| !matches!(swap.outcome, Outcome::Refused(_)))
            .map(|swap| (swap.new, *swap))
            .collect();
        // What was seen, and by whom: (value, began, ended, wrote)
        let mut events: Vec<(Value, u64, u64, bool)> = Vec::new();
        for swap in &swaps {
            match swap.outcome {
                Outcome::Done => events.push((Some(swap.new), swap.began, swap.ended, true)),
                Outcome::Refused(there) => {
                    if there == swap.old {
                        return Err(format!(
                            "register {key}: refused although {there:?} was there: {swap:?}"
                        ));
                    }
                    events.push((there, swap.began, swap.ended, false));
                }
                Outcome::Doubt => {}
            }
        }
        let reads = self.reads.iter().filter(|read| read.key == key);
        events.extend(reads.map(|read| (read.value, read.began, read.ended, false)));

        // The writes that must have happened: those answered, those whose value was seen, and all before
        // them.
        let mut behind: BTreeMap<Value, u32> = BTreeMap::new();
        for (value, ..) in &events {
            let mut at = *value;
            while let Some(value) = at {
                let swap =
                    by_new.get(&value).ok_or(format!("register {key}: nobody wrote {value}, it was seen"))?;
                match behind.insert(swap.old, value) {
                    Some(same) if same == value => break,
                    Some(other) => {
                        return Err(format!(
                            "register {key}: both {other} and {value} were set where {:?} was",
                            swap.old
                        ));
                    }
                    None => at = swap.old,
                }
            }
        }
        let mut places: BTreeMap<Value, usize> = BTreeMap::from([(None, 0)]);
        let mut at = None;
        while let Some(next) = behind.get(&at) {
            at = Some(*next);
            if places.insert(at, places.len()).is_some() {
                return Err(format!("register {key}: {next} stands behind itself"));
            }
        }
        for swap in &swaps {
            // One in doubt that happened has a begin and no end.
            if swap.outcome == Outcome::Doubt && places.contains_key(&Some(swap.new)) {
                events.push((Some(swap.new), swap.began, u64::MAX, true));
            }
        }
        let mut by_begin: Vec<(u64, usize, usize, u64)> = Vec::new();
        for (value, began, ended, wrote) in events {
            let place = *places.get(&value).ok_or(format!("register {key}: {value:?} has no place"))?;
            by_begin.push((began, place - usize::from(wrote), place, ended));
        }
        for (began, from, ..) in &by_begin {
            let before = by_begin.iter().filter(|(.., ended)| ended < began).map(|(_, _, to, _)| *to).max();
            if before.is_some_and(|before| before > *from) {
                return Err(format!(
                    "register {key}: what began at {began} saw place {from}, after place {before:?} had been seen"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Registers;

    fn chain() -> Registers {
        let mut registers = Registers::default();
        for (old, time) in [(None, 1), (Some(1), 3)] {
            let (number, _) = registers.begin(0, old, time);
            registers.end(number, None, time + 1);
        }
        registers
    }

    #[test]
    fn a_chain_is_right_and_a_stale_read_is_not() {
        let mut registers = chain();
        registers.read(0, Some(2), 5, 6);
        assert_eq!(registers.check(), Ok(()));
        registers.read(0, Some(1), 7, 8);
        assert!(registers.check().unwrap_err().contains("saw place 1"));
    }

    #[test]
    fn two_winners_are_wrong() {
        let mut registers = chain();
        let (number, _) = registers.begin(0, Some(1), 3);
        registers.end(number, None, 9);
        assert!(registers.check().unwrap_err().contains("both"));
    }

    #[test]
    fn one_in_doubt_may_have_happened_or_not_and_what_nobody_wrote_may_not() {
        let mut registers = chain();
        let (_, new) = registers.begin(0, Some(2), 5);
        assert_eq!(registers.check(), Ok(()));
        registers.read(0, Some(new), 6, 7);
        assert_eq!(registers.check(), Ok(()));
        registers.read(0, Some(99), 8, 9);
        assert!(registers.check().unwrap_err().contains("nobody wrote 99"));
    }

    #[test]
    fn a_refusal_that_saw_what_was_expected_is_wrong() {
        let mut registers = chain();
        let (number, _) = registers.begin(0, Some(2), 5);
        registers.end(number, Some(Some(2)), 6);
        assert!(registers.check().unwrap_err().contains("refused"));
    }
}
