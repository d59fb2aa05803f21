//! Compactions that run on this shard, with their progress, and those that have ended: listed, stopped and
//! counted from here.
//!
//! Kinds are named as in Cassandra's `OperationType`, so that tools show the names they know. Metrics have
//! the field's public names, `scylla_compaction_manager_*`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use model::TableId;
use reactor::Event;
use reactor::metrics::{self, Counter, Gauge};

use super::throughput::Throughput;
use crate::config::StorageConfig;

/// Compactions kept in the history of a shard.
pub const HISTORY_MAX: usize = 1024;

/// The purpose of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CompactionKind {
    /// The strategy asked for it.
    Compaction,
    /// An operator asked for all files of a table, or for some.
    Major,
    /// A single file has many tombstones that may be purged.
    Tombstones,
    /// Removes partitions that do not belong to their tablet.
    Cleanup,
    /// Rewrites the readable part of a file.
    Scrub,
    /// Reads a file and reports whether it is damaged.
    Verify,
    /// Rewrites files of older versions in the present one.
    Upgrade,
    /// Removes deleted data.
    GarbageCollect,
}

impl CompactionKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Compaction,
        Self::Major,
        Self::Tombstones,
        Self::Cleanup,
        Self::Scrub,
        Self::Verify,
        Self::Upgrade,
        Self::GarbageCollect,
    ];

    /// The name that tools show.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compaction => "Compaction",
            Self::Major => "Major compaction",
            Self::Tombstones => "Tombstone Compaction",
            Self::Cleanup => "Cleanup",
            Self::Scrub => "Scrub",
            Self::Verify => "Verify",
            Self::Upgrade => "Upgrade sstables",
            Self::GarbageCollect => "Remove deleted data",
        }
    }

    /// Reads the name that `nodetool stop` takes: `COMPACTION`, `CLEANUP`, `SCRUB`, …
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.to_uppercase();
        Some(match name.as_str() {
            "COMPACTION" => Self::Compaction,
            "MAJOR_COMPACTION" | "MAJOR" => Self::Major,
            "TOMBSTONE_COMPACTION" => Self::Tombstones,
            "CLEANUP" => Self::Cleanup,
            "SCRUB" => Self::Scrub,
            "VERIFY" => Self::Verify,
            "UPGRADE_SSTABLES" | "UPGRADE" => Self::Upgrade,
            "GARBAGE_COLLECT" => Self::GarbageCollect,
            _ => return None,
        })
    }
}

/// A running compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionStats {
    /// Its identity, a UUID.
    pub id: [u8; 16],
    /// Its purpose.
    pub kind: CompactionKind,
    /// The table.
    pub table: TableId,
    /// Keyspace of the table.
    pub keyspace: String,
    /// Name of the table.
    pub table_name: String,
    /// Bytes of input read so far, roughly, before compression.
    pub completed: u64,
    /// Bytes of input in all.
    pub total: u64,
    /// Number of input files.
    pub files: usize,
}

/// A compaction that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionRecord {
    /// Its identity, a UUID of version 1.
    pub id: [u8; 16],
    /// Its purpose.
    pub kind: CompactionKind,
    /// Keyspace of the table.
    pub keyspace: String,
    /// Name of the table.
    pub table_name: String,
    /// When it ended, microseconds since 1970.
    pub compacted_at_us: i64,
    /// Bytes of the files it read, on the disk.
    pub bytes_in: u64,
    /// Bytes of the files it wrote, on the disk.
    pub bytes_out: u64,
    /// Number of partitions by the number of files they came from.
    pub partitions_merged: BTreeMap<u32, u64>,
}

/// Which compactions to stop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactionFilter {
    /// Of this kind only.
    pub kind: Option<CompactionKind>,
    /// Of this table only.
    pub table: Option<TableId>,
    /// This one only.
    pub id: Option<[u8; 16]>,
}

/// Bytes that compactions and flushes of a shard have read and written since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionTotals {
    /// Bytes of flushed files, on the disk.
    pub flushed: u64,
    /// Bytes of table files read by compactions that ended, on the disk.
    pub read: u64,
    /// Bytes of table files written by compactions.
    pub written: u64,
    /// Most bytes that the files of one tablet took at once, those being written included.
    pub tablet_bytes_max: u64,
}

/// A running compaction, with its own counters.
pub(super) struct Running {
    pub(super) id: [u8; 16],
    pub(super) kind: CompactionKind,
    pub(super) table: TableId,
    pub(super) keyspace: String,
    pub(super) table_name: String,
    pub(super) completed: Cell<u64>,
    pub(super) total: u64,
    pub(super) files: usize,
    stopped: Cell<bool>,
}

impl Running {
    /// Whether the compaction was asked to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.get()
    }
}

/// The state of a shard's compactions that does not belong to one tablet.
pub(crate) struct Compactions {
    running: RefCell<Vec<Rc<Running>>>,
    history: RefCell<VecDeque<CompactionRecord>>,
    pub(super) throughput: Throughput,
    pub(super) static_shares: Cell<u32>,
    /// Average of the bytes that recent flushes wrote.
    pub(super) flush_bytes: Cell<u64>,
    flushed: Cell<u64>,
    tablet_bytes_max: Cell<u64>,
    /// Number of workers that wait because nothing is due.
    pub(super) idle: Cell<usize>,
    /// Notified when a worker begins to wait.
    pub(super) rested: Event,
    pub(super) metrics: Metrics,
}

/// Counters and gauges of compactions.
pub(super) struct Metrics {
    compactions: Rc<Gauge>,
    pub(super) pending: Rc<Gauge>,
    pub(super) backlog: Rc<Gauge>,
    pub(super) normalized_backlog: Rc<Gauge>,
    pub(super) completed: Rc<Counter>,
    pub(super) failed: Rc<Counter>,
    pub(super) bytes_read: Rc<Counter>,
    pub(super) bytes_written: Rc<Counter>,
    pub(super) shares: Rc<Gauge>,
}

impl Metrics {
    fn new() -> Self {
        let gauge =
            |name: &str, help: &str| metrics::gauge(&format!("scylla_compaction_manager_{name}"), help, &[]);
        let counter = |name: &str, help: &str| {
            metrics::counter(&format!("scylla_compaction_manager_{name}"), help, &[])
        };
        Self {
            compactions: gauge("compactions", "Compactions at work."),
            pending: gauge("pending_compactions", "Compactions that are due, about."),
            backlog: gauge("backlog", "Bytes that compactions have still to rewrite."),
            normalized_backlog: gauge(
                "normalized_backlog",
                "Bytes that compactions have still to rewrite, by the bytes of memory, in thousandths.",
            ),
            completed: counter("completed_compactions", "Compactions that have ended well."),
            failed: counter("failed_compactions", "Compactions that have failed."),
            bytes_read: counter(
                "bytes_read",
                "Bytes of table files that compactions have read, on the disk.",
            ),
            bytes_written: counter("bytes_written", "Bytes of table files that compactions have written."),
            shares: gauge("shares", "Shares of the compaction group."),
        }
    }
}

impl Compactions {
    pub(crate) fn new(config: &StorageConfig) -> Self {
        Self {
            running: RefCell::new(Vec::new()),
            history: RefCell::new(VecDeque::new()),
            throughput: Throughput::new(config.compaction_bytes_per_second),
            static_shares: Cell::new(config.compaction_static_shares),
            flush_bytes: Cell::new(0),
            flushed: Cell::new(0),
            tablet_bytes_max: Cell::new(0),
            idle: Cell::new(0),
            rested: Event::new(),
            metrics: Metrics::new(),
        }
    }

    /// Notes the bytes a flush wrote; each flush moves the average by a quarter of the difference.
    pub(crate) fn note_flush(&self, bytes: u64) {
        self.flushed.set(self.flushed.get() + bytes);
        let before = self.flush_bytes.get();
        self.flush_bytes.set(if before == 0 { bytes } else { (before * 3 + bytes) / 4 });
    }

    /// Lists a compaction for as long as the guard lives.
    pub(super) fn enter(
        self: &Rc<Self>,
        kind: CompactionKind,
        table: &model::Table,
        total: u64,
        files: usize,
    ) -> RunningGuard {
        let running = Rc::new(Running {
            id: identity(),
            kind,
            table: table.id(),
            keyspace: table.keyspace().to_owned(),
            table_name: table.name().to_owned(),
            completed: Cell::new(0),
            total,
            files,
            stopped: Cell::new(false),
        });
        self.running.borrow_mut().push(Rc::clone(&running));
        self.metrics.compactions.add(1);
        RunningGuard { of: Rc::clone(self), running }
    }

    /// Notes the bytes of a tablet's files just before an exchange, when they are greatest.
    pub(super) fn note_space(&self, bytes: u64) {
        self.tablet_bytes_max.set(self.tablet_bytes_max.get().max(bytes));
    }

    pub(super) fn totals(&self) -> CompactionTotals {
        CompactionTotals {
            flushed: self.flushed.get(),
            read: self.metrics.bytes_read.get(),
            written: self.metrics.bytes_written.get(),
            tablet_bytes_max: self.tablet_bytes_max.get(),
        }
    }

    pub(super) fn list(&self) -> Vec<CompactionStats> {
        let stats = |running: &Rc<Running>| CompactionStats {
            id: running.id,
            kind: running.kind,
            table: running.table,
            keyspace: running.keyspace.clone(),
            table_name: running.table_name.clone(),
            completed: running.completed.get().min(running.total),
            total: running.total,
            files: running.files,
        };
        self.running.borrow().iter().map(stats).collect()
    }

    pub(super) fn stop(&self, filter: &CompactionFilter) -> usize {
        let running = self.running.borrow();
        let meant = running.iter().filter(|running| {
            filter.kind.is_none_or(|kind| kind == running.kind)
                && filter.table.is_none_or(|table| table == running.table)
                && filter.id.is_none_or(|id| id == running.id)
        });
        meant.map(|running| running.stopped.set(true)).count()
    }

    pub(super) fn record(&self, record: CompactionRecord) {
        reactor::info_limited!("table files were compacted";
            kind = record.kind.name(), keyspace = record.keyspace, table = record.table_name,
            bytes_in = record.bytes_in, bytes_out = record.bytes_out,
            partitions = record.partitions_merged.values().sum::<u64>());
        let mut history = self.history.borrow_mut();
        if history.len() >= HISTORY_MAX {
            history.pop_front();
        }
        history.push_back(record);
    }

    pub(super) fn history(&self) -> Vec<CompactionRecord> {
        self.history.borrow().iter().cloned().collect()
    }
}

/// Removes a compaction from the list when dropped.
pub(super) struct RunningGuard {
    of: Rc<Compactions>,
    pub(super) running: Rc<Running>,
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.of.running.borrow_mut().retain(|running| !Rc::ptr_eq(running, &self.running));
        self.of.metrics.compactions.add(-1);
    }
}

/// A UUID of version 1, of now, with a random node.
fn identity() -> [u8; 16] {
    /// From the begin of the Gregorian calendar to 1970, in tenths of microseconds.
    const EPOCH: i64 = 122_192_928_000_000_000;
    let ticks = (reactor::wall_clock_us() * 10 + EPOCH) as u64;
    let chance = reactor::random_u64().to_be_bytes();
    let mut id = [0; 16];
    id[..4].copy_from_slice(&(ticks as u32).to_be_bytes());
    id[4..6].copy_from_slice(&((ticks >> 32) as u16).to_be_bytes());
    id[6..8].copy_from_slice(&((ticks >> 48) as u16 & 0x0fff | 0x1000).to_be_bytes());
    id[8..].copy_from_slice(&chance);
    id[8] = id[8] & 0x3f | 0x80;
    // A random node has the multicast bit, so that it is no host's address.
    id[10] |= 1;
    id
}
