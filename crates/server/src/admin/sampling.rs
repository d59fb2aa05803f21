//! Sampling on all shards of the partitions that are read and written most.
//!
//! Each shard counts the partitions it owns (`storage::sampling`), so the lists of the shards only have to be
//! concatenated.
//! Invariant: a sampling begun on any shard is ended on all shards, even if a shard fails or the client goes
//! away.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use model::{Schema, TableId};
use query::partition_key_text;
use reactor::{Deadline, Group, Semaphore};
use storage::{SampledLoad, TopPartitions};

use super::error::ApiError;
use super::node::{NodeState, TableName, on_each, schema};
use crate::boot::Shard;

/// Most samplings at a time: each takes up to 4 MiB of a shard's memory while it runs.
const SAMPLINGS_MAX: usize = 2;

/// The samplings of the node.
pub(super) struct Samplings {
    free: Semaphore,
    begun: Cell<u64>,
}

impl Default for Samplings {
    fn default() -> Self {
        Self { free: Semaphore::new(SAMPLINGS_MAX), begun: Cell::new(0) }
    }
}

/// A request for the most used partitions.
#[derive(Debug, Clone)]
pub(super) struct SamplingRequest {
    /// The tables to sample; `None` for all.
    pub(super) tables: Option<Vec<TableName>>,
    pub(super) duration: Duration,
    /// Keys that each shard keeps, for reads and for writes.
    pub(super) capacity: usize,
    /// Most partitions in the result.
    pub(super) list_size: usize,
}

/// A partition of the result.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) keyspace: String,
    pub(super) table: String,
    pub(super) key: String,
    pub(super) count: u64,
    pub(super) error: u64,
}

/// The most used partitions of reads, or of writes.
#[derive(Debug)]
pub(super) struct Top {
    /// Different partitions that were counted; the shards' capacity limits it.
    pub(super) cardinality: usize,
    /// In descending order of counts.
    pub(super) partitions: Vec<Partition>,
}

/// Samples for the duration of `request`, or until `gone` completes. Returns reads, then writes. Call on
/// shard 0.
///
/// # Errors
/// [`ApiError::unavailable`] if [`SAMPLINGS_MAX`] samplings run, and the errors of shards.
pub(super) async fn sample(
    request: SamplingRequest,
    gone: impl Future<Output = ()>,
) -> Result<(Top, Top), ApiError> {
    let node = NodeState::here()?;
    let samplings = &node.samplings;
    let Some(_place) = samplings.free.try_acquire(1) else {
        let busy = format!("{SAMPLINGS_MAX} samplings are at work: wait for one to end");
        return Err(ApiError::unavailable(busy));
    };
    let id = samplings.begun.get();
    samplings.begun.set(id + 1);
    let SamplingRequest { tables, duration, capacity, list_size } = request;
    let tables: Option<Vec<TableId>> = tables.map(|tables| tables.iter().map(|table| table.id).collect());
    let begun = on_each(Group::ADMIN, move |shard: Rc<Shard>| async move {
        shard.storage().begin_sampling(id, tables, capacity);
        Ok(())
    });
    let begun = begun.await;
    if begun.is_ok() {
        // The sampling is over in either case.
        let _ = reactor::timeout(Deadline::after(duration), gone).await;
    }
    let ended = on_each(Group::ADMIN, move |shard: Rc<Shard>| async move {
        Ok(shard.storage().end_sampling(id, list_size).unwrap_or_default())
    });
    let ended = ended.await;
    begun?;
    let (reads, writes) = ended?.into_iter().map(|SampledLoad { reads, writes }| (reads, writes)).unzip();
    let schema = schema()?;
    Ok((told(reads, list_size, &schema), told(writes, list_size, &schema)))
}

/// Merges the lists of the shards.
fn told(shards: Vec<TopPartitions>, list_size: usize, schema: &Schema) -> Top {
    let cardinality = shards.iter().map(|shard| shard.cardinality).sum();
    let mut all: Vec<_> = shards.into_iter().flat_map(|shard| shard.top).collect();
    all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| (a.table, &a.key).cmp(&(b.table, &b.key))));
    let partitions = all.into_iter().filter_map(|one| {
        // Tables dropped meanwhile are left out: without its table a key cannot be printed.
        let table = schema.table_by_id(one.table)?;
        Some(Partition {
            keyspace: table.keyspace().to_owned(),
            table: table.name().to_owned(),
            key: partition_key_text::print(table, &one.key),
            count: one.count,
            error: one.error,
        })
    });
    Top { cardinality, partitions: partitions.take(list_size).collect() }
}
