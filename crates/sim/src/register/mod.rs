//! The rule of compare-and-set on registers: for each register there is one order of what was done to it that
//! explains all answers and keeps to the clock (linearizability).
//!
//! The search is Wing and Gong's with Lowe's memory of what was tried: from null on it takes one operation
//! after the other, each of which may come next only if none that is left ended before it began. Reads that
//! fit are taken at once, since they change nothing; only writes are tried one by one. No value is written
//! twice, so that few of them fit. Invariant: a write in doubt may come at any time after it began, or never;
//! one that was answered as not made has no place.

use std::collections::BTreeSet;
use std::fmt;

#[cfg(test)]
mod tests;

/// A value of a register; `None` for a register that is not there.
pub(crate) type Value = Option<u32>;

/// Most states of a search. Histories of some hundred operations have far fewer, unless very many are in
/// doubt.
const STATES_MAX: usize = 1 << 18;
/// Operations of a contradiction that are shown.
const SHOWN_MAX: usize = 80;

/// The condition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// The register has this value.
    Is(Value),
    /// The register has a value.
    Exists,
}

impl Condition {
    fn holds(self, value: Value) -> bool {
        match self {
            Self::Is(expected) => value == expected,
            Self::Exists => value.is_some(),
        }
    }
}

/// The outcome of an operation, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It was answered that it happened.
    Done,
    /// No answer tells.
    Doubt,
    /// A read, or a write that did not happen because this was there.
    Saw(Value),
    /// It was answered that it did not happen.
    Never,
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    key: usize,
    /// The condition and the new value of a write.
    write: Option<(Condition, Value)>,
    began: u64,
    ended: u64,
    outcome: Outcome,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { write, began, ended, outcome, .. } = self;
        match ended {
            &u64::MAX => write!(f, "{began}..: ")?,
            ended => write!(f, "{began}..{ended}: ")?,
        }
        match write {
            Some((condition, new)) => write!(f, "{condition:?} -> {new:?}, {outcome:?}"),
            None => write!(f, "read, {outcome:?}"),
        }
    }
}

/// All that was done to the registers.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    operations: Vec<Operation>,
    values: u32,
}

impl Registers {
    /// A write of a new value begins, which asks for `old`; the number and the new value are returned.
    pub(crate) fn begin(&mut self, key: usize, old: Value, now: u64) -> (usize, u32) {
        self.values += 1;
        let new = self.values;
        (self.add(key, Some((Condition::Is(old), Some(new))), now, Outcome::Doubt), new)
    }

    /// A deletion begins; its number.
    pub(crate) fn erase(&mut self, key: usize, condition: Condition, now: u64) -> usize {
        self.add(key, Some((condition, None)), now, Outcome::Doubt)
    }

    fn add(&mut self, key: usize, write: Option<(Condition, Value)>, began: u64, outcome: Outcome) -> usize {
        self.operations.push(Operation { key, write, began, ended: u64::MAX, outcome });
        self.operations.len() - 1
    }

    /// The answer of a write: done, or what was there instead.
    pub(crate) fn end(&mut self, number: usize, refused: Option<Value>, now: u64) {
        let operation = &mut self.operations[number];
        operation.ended = now;
        operation.outcome = refused.map_or(Outcome::Done, Outcome::Saw);
    }

    /// A write was answered as not made, for another reason than its condition.
    pub(crate) fn never(&mut self, number: usize) {
        self.operations[number].outcome = Outcome::Never;
    }

    /// A read and its answer.
    pub(crate) fn read(&mut self, key: usize, value: Value, began: u64, ended: u64) {
        let number = self.add(key, None, began, Outcome::Saw(value));
        self.operations[number].ended = ended;
    }

    /// Writes that were answered, that were refused, and that are in doubt.
    pub(crate) fn counts(&self) -> [usize; 3] {
        let writes = || self.operations.iter().filter(|operation| operation.write.is_some());
        let count = |is: fn(Outcome) -> bool| writes().filter(|write| is(write.outcome)).count();
        [
            count(|outcome| outcome == Outcome::Done),
            count(|outcome| matches!(outcome, Outcome::Saw(_))),
            count(|outcome| outcome == Outcome::Doubt),
        ]
    }

    /// Operations of a register, and how many of them are in doubt.
    pub(crate) fn load(&self, key: usize) -> (usize, usize) {
        let of_key = || self.operations.iter().filter(|operation| operation.key == key);
        (of_key().count(), of_key().filter(|operation| operation.outcome == Outcome::Doubt).count())
    }

    /// Whether there is an order that explains all answers.
    ///
    /// # Errors
    /// The register without one, and how far an order came.
    pub(crate) fn check(&self) -> Result<(), String> {
        let keys: BTreeSet<usize> = self.operations.iter().map(|operation| operation.key).collect();
        keys.into_iter().try_for_each(|key| self.check_key(key))
    }

    fn check_key(&self, key: usize) -> Result<(), String> {
        let of_key = self.operations.iter().filter(|operation| operation.key == key);
        let mut operations: Vec<Operation> = of_key.copied().collect();
        operations.sort_by_key(|operation| operation.began);
        let written = |value: Value| {
            let may_be_made = |outcome| matches!(outcome, Outcome::Done | Outcome::Doubt);
            let writes = operations.iter().filter(|operation| may_be_made(operation.outcome));
            value.is_none() || writes.filter_map(|operation| operation.write).any(|(_, new)| new == value)
        };
        for operation in &operations {
            let Outcome::Saw(value) = operation.outcome else { continue };
            if operation.write.is_some_and(|(condition, _)| condition.holds(value)) {
                return Err(format!("register {key}: refused although its condition held: {operation}"));
            }
            if !written(value) {
                return Err(format!("register {key}: nobody wrote what was seen: {operation}"));
            }
        }
        Search { operations: &operations, tried: BTreeSet::new() }
            .run()
            .map_err(|stuck| format!("register {key}: {}", stuck.text(&operations)))
    }
}

/// A beginning of an order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    /// A bit for each operation that is in it.
    taken: Vec<u64>,
    value: Value,
}

impl State {
    fn has(&self, at: usize) -> bool {
        self.taken[at / 64] & (1 << (at % 64)) != 0
    }

    fn take(&mut self, at: usize) {
        self.taken[at / 64] |= 1 << (at % 64);
    }

    fn len(&self) -> u32 {
        self.taken.iter().map(|bits| bits.count_ones()).sum()
    }
}

/// The end of a search that found no order.
enum Stuck {
    /// None is left to be tried; the longest beginning.
    Contradiction(State),
    /// Too many were tried.
    TooLong,
}

impl Stuck {
    fn text(&self, operations: &[Operation]) -> String {
        let Self::Contradiction(longest) = self else {
            return format!("whether there is an order was not found out in {STATES_MAX} states");
        };
        let left = operations.iter().enumerate().filter(|(at, _)| !longest.has(*at));
        let left: Vec<String> =
            left.take(SHOWN_MAX).map(|(_, operation)| format!("\n  {operation}")).collect();
        let all: Vec<String> =
            operations.iter().take(SHOWN_MAX).map(|operation| format!("\n  {operation}")).collect();
        format!(
            "no order explains the answers; the longest comes to {:?} and lacks{}\nof all{}",
            longest.value,
            left.concat(),
            all.concat()
        )
    }
}

struct Search<'o> {
    /// By their begins.
    operations: &'o [Operation],
    tried: BTreeSet<State>,
}

impl Search<'_> {
    fn run(mut self) -> Result<(), Stuck> {
        let taken = vec![0; self.operations.len().div_ceil(64)];
        let mut longest = State { taken, value: None };
        let mut open = vec![longest.clone()];
        while let Some(mut state) = open.pop() {
            let Some(horizon) = self.take_reads(&mut state) else { return Ok(()) };
            if state.len() > longest.len() {
                longest = state.clone();
            }
            if !self.tried.insert(state.clone()) {
                continue;
            }
            if self.tried.len() > STATES_MAX {
                return Err(Stuck::TooLong);
            }
            // Those whose answers are known are tried first: the last one pushed is.
            for doubt in [true, false] {
                for (at, operation) in self.next(&state, horizon) {
                    let Some((condition, new)) = operation.write else { continue };
                    let changes = match operation.outcome {
                        Outcome::Done => !doubt,
                        Outcome::Doubt => doubt,
                        Outcome::Saw(_) | Outcome::Never => false,
                    };
                    if changes && condition.holds(state.value) {
                        let mut next = state.clone();
                        next.take(at);
                        next.value = new;
                        open.push(next);
                    }
                }
            }
        }
        Err(Stuck::Contradiction(longest))
    }

    /// Operations that are left and began before `horizon`.
    fn next<'s>(
        &'s self,
        state: &'s State,
        horizon: u64,
    ) -> impl Iterator<Item = (usize, &'s Operation)> + 's {
        let begun = self.operations.iter().enumerate().take_while(move |(_, left)| left.began <= horizon);
        begun.filter(|(at, _)| !state.has(*at))
    }

    /// Takes what saw the value that is there; returns the earliest end of what is left and has to be taken.
    /// `None` if nothing is.
    fn take_reads(&self, state: &mut State) -> Option<u64> {
        loop {
            let left = self.operations.iter().enumerate().filter(|(at, _)| !state.has(*at));
            let due = left.filter(|(_, left)| matches!(left.outcome, Outcome::Done | Outcome::Saw(_)));
            let horizon = due.map(|(_, left)| left.ended).min()?;
            let fits = |left: &Operation| left.outcome == Outcome::Saw(state.value);
            let fitting: Vec<usize> =
                self.next(state, horizon).filter(|(_, left)| fits(left)).map(|(at, _)| at).collect();
            if fitting.is_empty() {
                return Some(horizon);
            }
            fitting.into_iter().for_each(|at| state.take(at));
        }
    }
}
