//! Samples which partitions of this shard are read and written most, while somebody asks.
//!
//! Reads of one partition and mutations are counted where the partition lives, so that no two shards count
//! the same one. Nothing is counted while no sampling is at work: reads and writes then look at one flag.
//! `server/admin/sampling` begins and ends samplings on all shards, and bounds how many there are.

mod top_keys;

use std::cell::{Cell, RefCell};

use model::TableId;

use crate::shard::Storage;
use top_keys::TopKeys;

/// Most keys that a sampling may keep of reads and of writes.
pub const SAMPLING_CAPACITY_MAX: usize = 8192;

/// A partition that was sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledPartition {
    /// Its table.
    pub table: TableId,
    /// Its key as it is stored.
    pub key: Vec<u8>,
    /// How often it was asked for, at most.
    pub count: u64,
    /// By how much that may be too many.
    pub error: u64,
}

/// Partitions that were asked for most.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopPartitions {
    /// Partitions that the sampling has kept: how many different ones there were, up to its capacity.
    pub cardinality: usize,
    /// Those with the greatest counts, in descending order.
    pub top: Vec<SampledPartition>,
}

/// Outcome of a sampling.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SampledLoad {
    /// Reads of one partition; scans are not among them.
    pub reads: TopPartitions,
    /// Mutations.
    pub writes: TopPartitions,
}

/// Samplings of a shard.
#[derive(Default)]
pub(crate) struct Samplings {
    /// Whether there are any.
    at_work: Cell<bool>,
    list: RefCell<Vec<Sampling>>,
}

struct Sampling {
    id: u64,
    /// Ascending; `None` for all tables.
    tables: Option<Vec<TableId>>,
    reads: TopKeys,
    writes: TopKeys,
}

/// Kinds of requests that are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sampled {
    Read,
    Write,
}

impl Samplings {
    /// A partition is read or written.
    #[inline]
    pub(crate) fn note(&self, kind: Sampled, table: TableId, key: &[u8]) {
        if self.at_work.get() {
            self.count(kind, table, key);
        }
    }

    #[cold]
    fn count(&self, kind: Sampled, table: TableId, key: &[u8]) {
        for sampling in &mut *self.list.borrow_mut() {
            if sampling.tables.as_ref().is_some_and(|tables| tables.binary_search(&table).is_err()) {
                continue;
            }
            match kind {
                Sampled::Read => sampling.reads.count(table, key),
                Sampled::Write => sampling.writes.count(table, key),
            }
        }
    }
}

impl Storage {
    /// Begins to count reads and writes of partitions of `tables` (`None` for all) on this shard, until
    /// [`Storage::end_sampling`] is called with the same `id`, which no other sampling at work has.
    ///
    /// Of reads and of writes `capacity` keys are kept, between one and [`SAMPLING_CAPACITY_MAX`], and fewer
    /// where keys are long. The caller bounds how many samplings there are.
    pub fn begin_sampling(&self, id: u64, tables: Option<Vec<TableId>>, capacity: usize) {
        let capacity = capacity.clamp(1, SAMPLING_CAPACITY_MAX);
        let tables = tables.map(|mut tables| {
            tables.sort_unstable();
            tables
        });
        let samplings = &self.0.samplings;
        let sampling = Sampling { id, tables, reads: TopKeys::new(capacity), writes: TopKeys::new(capacity) };
        samplings.list.borrow_mut().push(sampling);
        samplings.at_work.set(true);
    }

    /// Ends a sampling; of reads and of writes the first `most` partitions. `None` where no sampling has the
    /// `id`.
    pub fn end_sampling(&self, id: u64, most: usize) -> Option<SampledLoad> {
        let samplings = &self.0.samplings;
        let mut list = samplings.list.borrow_mut();
        let at = list.iter().position(|sampling| sampling.id == id)?;
        let ended = list.swap_remove(at);
        samplings.at_work.set(!list.is_empty());
        Some(SampledLoad { reads: ended.reads.most_counted(most), writes: ended.writes.most_counted(most) })
    }

    /// Notes for samplings that [`Storage::read_from_memory`] has answered a read. That is for its caller to
    /// say, who may have to begin anew with [`Storage::read`], which notes by itself.
    #[inline]
    pub fn note_read(&self, table: TableId, key: &[u8]) {
        self.0.samplings.note(Sampled::Read, table, key);
    }
}
