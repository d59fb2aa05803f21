//! Figures of hints, under the names of ScyllaDB's documentation where it has them.

use std::rc::Rc;

use reactor::metrics::{self, Counter, Gauge};

/// Figures of one shard's hints.
pub(super) struct HintsMetrics {
    /// Hints that were written to files.
    pub(super) written: Rc<Counter>,
    /// Hints that were lost because a file could not be written.
    pub(super) errors: Rc<Counter>,
    /// Hints that were not kept: no room.
    pub(super) dropped: Rc<Counter>,
    /// Hints that were delivered.
    pub(super) sent: Rc<Counter>,
    /// Bytes of them.
    pub(super) sent_bytes: Rc<Counter>,
    /// Hints that were given up: too old, of a table that is gone, or refused too often.
    pub(super) discarded: Rc<Counter>,
    /// Deliveries that failed.
    pub(super) send_errors: Rc<Counter>,
    /// Files with damage, which were kept aside.
    pub(super) corrupted_files: Rc<Counter>,
    /// Bytes in memory, not written yet.
    pub(super) in_progress: Rc<Gauge>,
    /// Bytes in files.
    pub(super) file_bytes: Rc<Gauge>,
}

impl HintsMetrics {
    pub(super) fn new() -> Self {
        let counter = |name: &str, help: &str| metrics::counter(name, help, &[]);
        Self {
            written: counter("scylla_hints_manager_written", "Hints written to files."),
            errors: counter("scylla_hints_manager_errors", "Hints lost because a file could not be written."),
            dropped: counter("scylla_hints_manager_dropped", "Hints not kept, for want of room."),
            sent: counter("scylla_hints_manager_sent_total", "Hints delivered."),
            sent_bytes: counter("scylla_hints_manager_sent_bytes_total", "Bytes of delivered hints."),
            discarded: counter(
                "scylla_hints_manager_discarded",
                "Hints given up: too old, of a table that is gone, or refused too often.",
            ),
            send_errors: counter("scylla_hints_manager_send_errors", "Deliveries of hints that failed."),
            corrupted_files: counter(
                "scylla_hints_manager_corrupted_files",
                "Files of hints that were found damaged and kept aside.",
            ),
            in_progress: metrics::gauge(
                "scylla_hints_manager_size_of_hints_in_progress",
                "Bytes of hints in memory, not written yet.",
                &[],
            ),
            file_bytes: metrics::gauge("ceto_hints_file_bytes", "Bytes of files of hints.", &[]),
        }
    }
}
