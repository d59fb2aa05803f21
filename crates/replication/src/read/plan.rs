//! Which replicas a read goes to, in which order.

use std::rc::Rc;

use cluster::maps::{Routing, Run};
use model::Token;
use storage::{PartitionBound, PartitionRange, ReadCommand};

use crate::replicator::Replicator;

/// The replicas of one read.
#[derive(Debug, Clone)]
pub(super) struct ReadPlan {
    routing: Rc<Routing>,
    /// First and last token of the partitions that are read.
    tokens: (Token, Token),
    /// Answers to wait for.
    pub(super) required: u32,
}

impl ReadPlan {
    pub(super) fn new(replicator: &Replicator, command: &ReadCommand, required: u32) -> Self {
        let tokens = match &command.range {
            PartitionRange::Key(key) => (key.token, key.token),
            PartitionRange::Between { from, to } => (from.token, to.token),
        };
        Self { routing: replicator.routing(&command.table), tokens, required }
    }

    /// The parts of the read, each of one replica, in token order.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.routing.runs(self.tokens.0, self.tokens.1)
    }
}

/// The part of a read that lies in a run; `None` if that is all of it.
pub(super) fn within(command: &ReadCommand, run: &Run) -> Option<ReadCommand> {
    let PartitionRange::Between { from, to } = &command.range else { return None };
    let (first, last) = run.tokens;
    if from.token >= first && to.token <= last {
        return None;
    }
    let bound = |token| PartitionBound { token, key: None, inclusive: true };
    let from = if from.token < first { bound(first) } else { from.clone() };
    let to = if to.token > last { bound(last) } else { to.clone() };
    Some(ReadCommand { range: PartitionRange::Between { from, to }, ..command.clone() })
}
