//! Counts answered requests by kind, under ScyllaDB's name.
//!
//! Those of EXECUTE are what is left of all when the others are taken away, and are counted when the metrics
//! are read: the many prepared requests pay nothing.

use std::rc::Rc;

use reactor::metrics::{self, Counter};
use wire::frame::Opcode;

/// One shard's counters.
pub(super) struct Kinds {
    query: Rc<Counter>,
    prepare: Rc<Counter>,
    batch: Rc<Counter>,
    execute: Rc<Counter>,
}

impl Kinds {
    pub(super) fn new() -> Self {
        let of = |kind| {
            let help = "Requests answered, by kind.";
            metrics::counter("scylla_transport_cql_requests_count", help, &[("kind", kind)])
        };
        Self { query: of("QUERY"), prepare: of("PREPARE"), batch: of("BATCH"), execute: of("EXECUTE") }
    }

    /// Counts a request that was answered and is counted in all served ones.
    pub(super) fn count(&self, opcode: Opcode) {
        match opcode {
            Opcode::Query => self.query.inc(),
            Opcode::Prepare => self.prepare.inc(),
            Opcode::Batch => self.batch.inc(),
            _ => {}
        }
    }

    /// Counts requests to execute, given how many were served of all kinds.
    pub(super) fn settle(&self, served: u64) {
        let counted = [&self.query, &self.prepare, &self.batch, &self.execute].map(|kind| kind.get());
        self.execute.add(served.saturating_sub(counted.iter().sum()));
    }
}
