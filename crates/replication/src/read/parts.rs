//! Cuts a read into parts: what lies in one run of tablets with the same replicas.

use cluster::maps::{Routing, Run};
use model::Token;
use storage::{PartitionBound, PartitionRange, ReadCommand};

use super::rest::Rest;

/// First and last token of a range.
fn tokens(range: &PartitionRange) -> (Token, Token) {
    match range {
        PartitionRange::Key(key) => (key.token, key.token),
        PartitionRange::Between { from, to } => (from.token, to.token),
    }
}

/// The first run of tablets that a range touches; `None` if it touches none.
pub(super) fn first_run(routing: &Routing, range: &PartitionRange) -> Option<Run> {
    let (from, to) = tokens(range);
    routing.runs(from, to).next()
}

/// The part of what is left of a read that lies in a run.
pub(super) fn within(command: &ReadCommand, rest: &Rest, run: &Run) -> ReadCommand {
    let range = match &rest.range {
        PartitionRange::Key(key) => PartitionRange::Key(key.clone()),
        PartitionRange::Between { from, to } => {
            let (first, last) = run.tokens;
            let bound = |token| PartitionBound { token, key: None, inclusive: true };
            let from = if from.token < first { bound(first) } else { from.clone() };
            let to = if to.token > last { bound(last) } else { to.clone() };
            PartitionRange::Between { from, to }
        }
    };
    ReadCommand {
        table: command.table.clone(),
        range,
        slices: rest.slices.clone(),
        reversed: command.reversed,
        now: command.now,
        bypass_cache: command.bypass_cache,
    }
}

/// The part of a range behind a run; `None` if there is none.
pub(super) fn behind_run(range: &PartitionRange, run: &Run) -> Option<PartitionRange> {
    let PartitionRange::Between { to, .. } = range else { return None };
    let Token(last) = run.tokens.1;
    if to.token.0 <= last {
        return None;
    }
    let from = PartitionBound { token: Token(last + 1), key: None, inclusive: true };
    Some(PartitionRange::Between { from, to: to.clone() })
}
