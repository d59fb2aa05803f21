//! Counts errors by what they tell of replicas, under ScyllaDB's names where it has the thing.

use std::rc::Rc;

use query::QueryError;
use reactor::metrics::{self, Counter};

/// One shard's counters of errors that clients were sent.
pub(in crate::native) struct Counters {
    all: Rc<Counter>,
    unavailable: Rc<Counter>,
    read_timeouts: Rc<Counter>,
    write_timeouts: Rc<Counter>,
    cas_timeouts: Rc<Counter>,
    cas_unknown: Rc<Counter>,
    read_failures: Rc<Counter>,
    write_failures: Rc<Counter>,
}

impl Counters {
    pub(in crate::native) fn new() -> Self {
        let counter = |name: &str, help: &str| metrics::counter(name, help, &[]);
        let proxy =
            |name: &str, help: &str| counter(&format!("scylla_storage_proxy_coordinator_{name}"), help);
        Self {
            all: counter("scylla_transport_cql_errors_total", "CQL requests answered with ERROR"),
            unavailable: counter(
                "ceto_coordinator_unavailable",
                "Requests refused because too few replicas were alive for their level",
            ),
            read_timeouts: proxy("read_timeouts", "Reads that too few replicas answered in time"),
            write_timeouts: proxy("write_timeouts", "Writes that too few replicas answered in time"),
            cas_timeouts: proxy("cas_write_timeouts", "Conditional statements that were not done in time"),
            cas_unknown: proxy(
                "cas_write_timeout_due_to_uncertainty",
                "Conditional writes that were proposed and not known to be accepted in time",
            ),
            read_failures: counter("ceto_coordinator_read_failures", "Reads that replicas failed"),
            write_failures: counter("ceto_coordinator_write_failures", "Writes that replicas failed"),
        }
    }

    /// Counts an error.
    #[cold]
    pub(in crate::native) fn count(&self, error: &QueryError) {
        self.all.inc();
        match error {
            QueryError::Unavailable { .. } => self.unavailable.inc(),
            QueryError::ReadTimeout { .. } => self.read_timeouts.inc(),
            QueryError::WriteTimeout { .. } => self.write_timeouts.inc(),
            QueryError::CasTimeout { .. } => self.cas_timeouts.inc(),
            QueryError::CasUnknown { .. } => self.cas_unknown.inc(),
            QueryError::ReadFailure { .. } => self.read_failures.inc(),
            QueryError::WriteFailure { .. } => self.write_failures.inc(),
            _ => {}
        }
    }
}
