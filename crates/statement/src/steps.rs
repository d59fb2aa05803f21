//! Steps of long loops that are too short to look at the clock in each.

use std::cell::Cell;

use cql::ast::{AssignmentOperation, Modification, Term};

/// Gives way at every few steps: for steps so short that a look at the clock would take longer.
#[derive(Debug, Default)]
pub struct ShortSteps(Cell<u32>);

impl ShortSteps {
    /// Another step begins.
    #[inline]
    pub fn step(&self) {
        const AT_ONCE: u32 = 32;
        self.0.set(self.0.get().wrapping_add(1));
        if self.0.get().is_multiple_of(AT_ONCE) {
            reactor::give_way();
        }
    }
}

/// Drops a modification whose values may have many parts: the destructors of a hundred thousand terms take
/// milliseconds.
pub(crate) fn drop_values(modification: Modification) {
    let steps = ShortSteps::default();
    match modification {
        Modification::Insert(insert) => insert.values.into_iter().for_each(|term| drop_term(term, &steps)),
        Modification::Update(update) => {
            for assignment in update.assignments {
                match assignment.operation {
                    AssignmentOperation::Set(term)
                    | AssignmentOperation::Prepend(term)
                    | AssignmentOperation::Add(term)
                    | AssignmentOperation::Subtract(term) => drop_term(term, &steps),
                    other => drop(other),
                }
                steps.step();
            }
        }
        other => drop(other),
    }
}

fn drop_term(term: Term, steps: &ShortSteps) {
    steps.step();
    match term {
        Term::List(parts) | Term::Set(parts) | Term::Tuple(parts) => {
            parts.into_iter().for_each(|part| drop_term(part, steps));
        }
        Term::Map(entries) => entries.into_iter().for_each(|(key, value)| {
            drop_term(key, steps);
            drop_term(value, steps);
        }),
        Term::UserType(fields) => fields.into_iter().for_each(|(_, value)| drop_term(value, steps)),
        other => drop(other),
    }
}
