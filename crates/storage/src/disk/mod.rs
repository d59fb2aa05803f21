//! Disks that fill up or fail: writes are refused below a mark of free space; errors are counted and reported
//! to the node, which decides what to do about them.
//!
//! `space` measures free space on shard 0 and reports it to every shard. A shard refuses writes in
//! `Storage::apply` and goes on with reads, truncations, drops, flushes and compactions, so that space can be
//! freed. It takes writes again when there is space. Invariant: the check costs the write path one read of
//! one cell.

mod space;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use reactor::metrics::{self, Counter, Gauge};
use reactor::{Deadline, Event};

use crate::error::StorageError;
use crate::shard::Storage;

pub use space::DiskMark;

/// The reaction of the node to a failed disk, by the values of `disk_failure_policy` and
/// `commit_failure_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The process ends.
    Die,
    /// As `Stop`, and also for a corrupt table file.
    StopParanoid,
    /// Client connections are closed; administration goes on.
    Stop,
    /// Writes end, reads go on.
    StopCommit,
    /// Reads go on without a file that the disk cannot read; failing requests fail, the rest goes on.
    BestEffort,
    /// Failing requests fail, the rest goes on.
    Ignore,
}

/// A fault of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// A table file cannot be read or written.
    Data {
        /// The storage error's text, which names the file.
        reason: String,
    },
    /// The contents of a table file do not match its checksums.
    Corrupt {
        /// The storage error's text, which names the file.
        reason: String,
    },
    /// The commit log cannot be written.
    Commitlog {
        /// The storage error's text, which names the file.
        reason: String,
    },
}

/// Free space and errors, as seen by one shard.
pub(crate) struct DiskWatch {
    /// The disk that has too little space, with the bytes that are free and the bytes that should be.
    full: RefCell<Option<(PathBuf, u64, u64)>>,
    is_full: Cell<bool>,
    /// Bytes that compactions may fill of the disk of table files: as last measured, less the bytes this
    /// shard's compactions have written since.
    pub(crate) room: Cell<u64>,
    /// When a draining shard stops waiting for room in its log.
    pub(crate) drain_until: Cell<Option<Deadline>>,
    trouble: RefCell<Option<Trouble>>,
    troubled: Event,
    read_errors: Rc<Counter>,
    corrupt: Rc<Counter>,
    write_errors: Rc<Counter>,
    refused: Rc<Counter>,
    full_gauge: Rc<Gauge>,
}

impl DiskWatch {
    pub(crate) fn new() -> Self {
        let counter = |name, help| metrics::counter(name, help, &[]);
        Self {
            full: RefCell::new(None),
            is_full: Cell::new(false),
            room: Cell::new(u64::MAX),
            drain_until: Cell::new(None),
            trouble: RefCell::new(None),
            troubled: Event::new(),
            read_errors: counter(
                "scylla_database_total_reads_failed_disk",
                "Reads that failed for an error of the disk.",
            ),
            corrupt: counter(
                "scylla_sstables_malformed_sstable_errors",
                "Reads that failed for a corrupt table file.",
            ),
            write_errors: counter(
                "scylla_database_total_writes_failed_disk",
                "Writes and flushes that failed for an error of the disk.",
            ),
            refused: counter(
                "scylla_database_total_writes_rejected_due_to_out_of_space_prevention",
                "Writes refused because the disk is nearly full.",
            ),
            full_gauge: metrics::gauge(
                "scylla_database_critical_disk_utilization",
                "1 while writes are refused because the disk is nearly full.",
                &[],
            ),
        }
    }

    /// Whether writes are refused.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.get()
    }

    fn set_full(&self, full: Option<(PathBuf, u64, u64)>) {
        self.is_full.set(full.is_some());
        self.full_gauge.set(i64::from(full.is_some()));
        *self.full.borrow_mut() = full;
    }

    /// Counts a refused write and returns its error.
    #[cold]
    pub(crate) fn refusal(&self) -> StorageError {
        self.refused.inc();
        match &*self.full.borrow() {
            Some((path, free, free_min)) => StorageError::DiskNearlyFull {
                path: path.clone(),
                free_bytes: *free,
                free_bytes_min: *free_min,
            },
            None => StorageError::DiskFull { path: PathBuf::new() },
        }
    }

    fn tell(&self, trouble: Trouble) {
        let mut told = self.trouble.borrow_mut();
        // The first trouble is kept: the node is notified once for all that come before it reacts.
        if told.is_none() {
            *told = Some(trouble);
            drop(told);
            self.troubled.notify_all();
        }
    }
}

/// Whether the process lacked descriptors or memory: the request fails, but the disk is not at fault.
pub(crate) fn is_shortage(error: &std::io::Error) -> bool {
    /// The system's numbers of ENOMEM, ENFILE and EMFILE.
    const SHORTAGES: [i32; 3] = [12, 23, 24];
    error.raw_os_error().is_some_and(|code| SHORTAGES.contains(&code))
}

impl Storage {
    /// Ends writes on this shard until a restart; reads and flushes go on.
    pub fn stop_writes(&self) {
        self.0.log.stop_for_good();
    }

    /// Waits for the next trouble with a disk on this shard.
    pub async fn next_trouble(&self) -> Trouble {
        let watch = &self.0.disk;
        loop {
            watch.troubled.wait_until(|| watch.trouble.borrow().is_some()).await;
            if let Some(trouble) = watch.trouble.borrow_mut().take() {
                return trouble;
            }
        }
    }

    /// Counts a read's error, and reports it to the node.
    #[cold]
    pub(crate) fn note_read_error(&self, error: &StorageError) {
        let watch = &self.0.disk;
        match error {
            StorageError::Io { source, .. } => {
                watch.read_errors.inc();
                reactor::error_limited!("a table file cannot be read"; error = error);
                if is_shortage(source) {
                    return;
                }
                watch.tell(Trouble::Data { reason: error.to_string() });
            }
            StorageError::TableFileCorrupt { .. } => {
                watch.corrupt.inc();
                watch.tell(Trouble::Corrupt { reason: error.to_string() });
            }
            _ => {}
        }
    }

    /// Counts the error of a compaction, which reads and writes table files, and reports it.
    #[cold]
    pub(crate) fn note_compaction_error(&self, error: &StorageError) {
        match error {
            StorageError::Io { action: "use", .. } | StorageError::TableFileCorrupt { .. } => {
                self.note_read_error(error);
            }
            other => self.note_write_error(other, false),
        }
    }

    /// Counts the error of a write, to the commit log or, in a flush, to a table file.
    #[cold]
    pub(crate) fn note_write_error(&self, error: &StorageError, to_log: bool) {
        let watch = &self.0.disk;
        match error {
            StorageError::Io { source, .. } if is_shortage(source) => watch.write_errors.inc(),
            StorageError::Io { .. } | StorageError::CommitlogDead { .. } => {
                watch.write_errors.inc();
                let reason = error.to_string();
                watch.tell(if to_log { Trouble::Commitlog { reason } } else { Trouble::Data { reason } });
            }
            StorageError::DiskFull { .. } => watch.write_errors.inc(),
            _ => {}
        }
    }
}
