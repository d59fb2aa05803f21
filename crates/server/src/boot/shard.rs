//! One shard of a node: its layers, how it opens and how it closes.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;

use cluster::ClusterOptions;
use cluster::net::InternodeCompression;
use query::guardrails::{Guardrails, Threshold, WriteGuardrails};
use query::{EngineConfig, QueryError};
use replication::{HintsConfig, Replicator};
use storage::{
    CommitlogSync, Identity, PartitionGuards, PartitionLimit, Storage, StorageConfig, StorageError,
};

use super::{BootError, memory};
use crate::config::{self, Config};
use crate::native::Native;

/// The future of a closing phase.
pub(crate) type Closing = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// All layers of one shard; found with `reactor::local`.
pub(crate) struct Shard {
    pub(crate) native: Rc<Native>,
    replicator: Replicator,
    storage: Storage,
    /// The shard's part of the node's memory, in bytes.
    memory_bytes: u64,
}

impl Shard {
    /// Recovers this shard's data and builds the layers on it.
    pub(crate) async fn open(config: &Config, identity: &Identity) -> Result<Self, BootError> {
        let shards = reactor::shard_count();
        let storage = storage_config(config, shards);
        let mut engine = engine_config(config, identity);
        engine.hints = Some(hints_config(config, &storage));
        let options = cluster_options(config, &storage);
        let opened = query::node::open_in(storage, engine, options).await;
        let engine = opened.map_err(|error| match error {
            QueryError::Storage(error) => BootError::from(error),
            error => BootError::Schema(error),
        })?;
        let (storage, replicator) = (engine.storage().clone(), engine.replicator().clone());
        let shard_bytes = memory::node_bytes(config.memory_bytes) / shards as u64;
        engine.answers().share(query::answer_room::own_bytes_for(shard_bytes), storage.charge_work());
        storage.set_describer(Rc::new(crate::admin::describe::table));
        engine.start_row_expiry(config.row_expiry_period);
        let native = Native::new(config, engine);
        Ok(Self { native, replicator, storage, memory_bytes: shard_bytes })
    }

    /// The storage of this shard.
    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The shard's way to replicas.
    pub(crate) fn replicator(&self) -> &Replicator {
        &self.replicator
    }

    /// Bytes of memory that this shard may use.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Ends writing: memtables are flushed and the commit log is closed. Reads continue.
    pub(crate) async fn drain(&self) -> Result<(), StorageError> {
        self.replicator.stop().await;
        self.replicator.stop_late().await;
        self.storage.drain().await
    }

    /// Lets requests in flight end and closes connections.
    pub(crate) fn close_connections(self: Rc<Self>) -> Closing {
        Box::pin(async move {
            self.native.close().await;
            Ok(())
        })
    }

    /// Takes leave of the other nodes: another one leads, and connections with them end.
    pub(crate) fn leave(self: Rc<Self>) -> Closing {
        Box::pin(async move {
            cluster::leave().await;
            Ok(())
        })
    }

    /// Ends queued writes, flushes memtables and closes the files.
    pub(crate) fn close_storage(self: Rc<Self>) -> Closing {
        Box::pin(async move { self.drain().await.map_err(|error| error.to_string()) })
    }
}

/// Directories, accepted losses and the memory for memtables from the configuration; defaults for all else.
pub(super) fn places(config: &Config, memtable_bytes: u64) -> StorageConfig {
    let mut places = StorageConfig::new(&config.workdir, memtable_bytes as usize);
    if let Some(data_dir) = &config.data_dir {
        places.data_dir.clone_from(data_dir);
    }
    if let Some(commitlog_dir) = &config.commitlog_dir {
        places.commitlog_dir.clone_from(commitlog_dir);
    }
    if let Some(hints_dir) = &config.hints.folder {
        places.hints_dir.clone_from(hints_dir);
    }
    places.accept_missing.clone_from(&config.accept_missing);
    places
}

/// How the node takes part in a cluster; `None` for one that is configured to be alone.
fn cluster_options(config: &Config, storage: &StorageConfig) -> Option<ClusterOptions> {
    let seeds = config.seeds();
    if seeds.is_empty() && !config.topology.founds {
        return None;
    }
    Some(ClusterOptions {
        cluster_name: config.cluster_name.clone(),
        seeds,
        founds: config.topology.founds,
        bind: Some(SocketAddr::new(config.bind_address(), config.storage_port)),
        compression: match config.topology.compression {
            config::InternodeCompression::None => InternodeCompression::None,
            config::InternodeCompression::DataCenters => InternodeCompression::Dc,
            config::InternodeCompression::All => InternodeCompression::All,
        },
        folder: storage.schema_dir.clone(),
    })
}

/// Hints as configured, in this node's folder of them.
fn hints_config(config: &Config, storage: &StorageConfig) -> HintsConfig {
    let hints = config.hints.clone();
    HintsConfig {
        folder: storage.hints_dir.clone(),
        is_on: hints.is_on,
        data_centers_without: hints.data_centers_without,
        window: hints.window,
        host_bytes_max: hints.host_bytes_max,
        file_bytes_max: hints.file_bytes_max,
        sync_every: hints.sync_every,
        bytes_per_second: hints.bytes_per_second,
        hosts_at_once: hints.hosts_at_once,
        batch_bytes_per_second: hints.batch_bytes_per_second,
        batch_patience: config.write_timeout.saturating_mul(2),
    }
}

fn storage_config(config: &Config, shards: usize) -> StorageConfig {
    let node_bytes = memory::node_bytes(config.memory_bytes);
    let shard_bytes = node_bytes / shards as u64;
    if shard_bytes < memory::SHARD_BYTES_MIN && reactor::shard_id() == 0 {
        reactor::warn!(
            "{} MiB of memory for each shard are few: give --memory or take fewer shards with --smp",
            shard_bytes >> 20
        );
    }
    let memtable_bytes = config.memtable_bytes.map_or(shard_bytes / 2, |bytes| bytes / shards as u64);
    let mut storage = places(config, memtable_bytes);
    if let Some(bytes) = config.commitlog_bytes_max {
        storage.commitlog_bytes_max = bytes / shards as u64;
    }
    storage.compaction_bytes_per_second = config.compaction_bytes_per_second.div_ceil(shards as u64);
    storage.compaction_static_shares = config.compaction_static_shares;
    if let Some(compactors) = config.concurrent_compactors {
        storage.concurrent_compactors = compactors;
    }
    if let Some(saved_caches_dir) = &config.saved_caches_dir {
        storage.saved_caches_dir.clone_from(saved_caches_dir);
    }
    storage.cache_save_period = config.cache_save_period;
    storage.cache_keys_to_save = config.cache_keys_to_save;
    storage.commitlog_sync = if config.commitlog_batch {
        CommitlogSync::Batch
    } else {
        CommitlogSync::Periodic { period: config.commitlog_sync_period }
    };
    storage.segment_bytes = config.commitlog_segment_bytes as usize;
    storage.mutation_bytes_max = config.mutation_bytes_max.map(|bytes| bytes as usize);
    if let Some(wanted) = storage.mutation_bytes_max
        && storage.mutation_bytes_max() < wanted
        && reactor::shard_id() == 0
    {
        reactor::warn!("max_mutation_size is more than a shard's commit log or memtables have room for: less is taken";
            bytes = storage.mutation_bytes_max());
    }
    storage.summary_ratio = config.sstable_summary_ratio;
    storage.components_share = config.components_share;
    storage.column_index_bytes = config.column_index_bytes;
    storage.commitlog_replay_ignore_errors = config.commitlog_replay_ignore_errors;
    storage.auto_snapshot = config.admin.auto_snapshot;
    storage.disk_failure_policy = config.admin.disk_failure_policy;
    storage.takeover_keeps_files = config.admin.takeover_keeps_files;
    storage.disk_marks = super::disks::marks(config, &storage);
    storage.partition_guards = partition_guards(&config.guardrails);
    storage.large_limits = config.large_limits;
    storage
}

fn partition_guards(guardrails: &Guardrails) -> Option<PartitionGuards> {
    let limit = |threshold: Threshold| PartitionLimit { warn: threshold.warn, fail: threshold.fail };
    let (bytes, tombstones) = (limit(guardrails.partition_bytes), limit(guardrails.partition_tombstones));
    let writes = guardrails.writes.as_deref();
    let of_writes = |of: fn(&WriteGuardrails) -> Threshold| limit(writes.map(of).unwrap_or_default());
    let guards = PartitionGuards {
        bytes,
        tombstones,
        collection_bytes: of_writes(|writes| writes.collection_bytes),
        collection_items: of_writes(|writes| writes.items_per_collection),
        key_text: query::execute::consistency::key_text,
        row_text: query::execute::consistency::row_text,
    };
    let limits = [bytes, tombstones, guards.collection_bytes, guards.collection_items];
    limits.into_iter().any(PartitionLimit::is_on).then_some(guards)
}

/// A shard's prepared statements take at most this fraction of its memory.
const PREPARED_PART: u64 = 32;

fn engine_config(config: &Config, identity: &Identity) -> EngineConfig {
    let shard_bytes = memory::node_bytes(config.memory_bytes) / reactor::shard_count() as u64;
    let defaults = EngineConfig::new(identity.host_id, reactor::shard_count());
    EngineConfig {
        cluster_name: config.cluster_name.clone(),
        data_center: config.data_center.clone(),
        rack: config.rack.clone(),
        listen_address: SocketAddr::new(config.own_address(), config.storage_port),
        bind_address: config.bind_address(),
        native_address: SocketAddr::new(
            config.broadcast_rpc_address.unwrap_or(config.rpc_address),
            config.native_port,
        ),
        shard_aware_port: config.shard_aware_port,
        read_timeout: config.read_timeout,
        range_timeout: config.range_timeout,
        write_timeout: config.write_timeout,
        cas_contention_timeout: config.cas_contention_timeout,
        truncate_timeout: config.truncate_timeout,
        slow_query_log_timeout: config.admin.slow_query_log_timeout,
        user_functions: config.user_functions,
        user_function_times: config.user_function_times,
        markers: config.markers,
        guardrails: config.guardrails.clone(),
        answers_bytes_max: query::answer_room::bytes_max_for(shard_bytes),
        settings: crate::config::settings::list(config),
        prepared_bytes_max: defaults.prepared_bytes_max.min((shard_bytes / PREPARED_PART) as usize),
        ..defaults
    }
}
