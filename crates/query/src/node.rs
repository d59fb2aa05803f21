//! Opens a node below its listeners: storage, replicas and statements on each shard.
//!
//! The server, the simulation, tests and benches open their nodes here, so that all of them run the same
//! layers in the same order: every shard opens its storage, which waits for the others where the start needs
//! them; then each makes its layers, and shard 0 creates the stored system tables that are missing.
//! Invariant: once [`all_opened`] has returned, every shard answers calls of every layer.

use std::cell::Cell;
use std::rc::Rc;

use cluster::ClusterOptions;
use cluster::nodes::OwnFacts;
use reactor::{Event, Group, mesh};
use replication::Replicator;
use storage::StorageConfig;

use crate::engine::{Engine, EngineConfig};
use crate::system::SystemTables;
use crate::{QueryError, agreement};

/// The number of shards that have opened, on shard 0.
#[derive(Default)]
struct Opened {
    shards: Cell<usize>,
    changed: Event,
}

impl Opened {
    fn here() -> Rc<Self> {
        reactor::local::<Self>().unwrap_or_else(|| {
            let opened = Rc::new(Self::default());
            reactor::set_local(Rc::clone(&opened));
            opened
        })
    }
}

/// As [`open_in`], of a node that is alone.
///
/// # Errors
/// As [`open_in`].
pub async fn open(storage: StorageConfig, engine: EngineConfig) -> Result<Engine, QueryError> {
    open_in(storage, engine, None).await
}

/// Opens this shard's part of a node and returns its engine. Call it on every shard: each waits for the
/// others. With `options` the node takes part in a cluster, and waits until it is in one.
///
/// # Errors
/// [`QueryError::Storage`] if the data cannot be opened or the system tables cannot be made durable;
/// [`QueryError::Internal`] if shard 0 has ended.
pub async fn open_in(
    storage: StorageConfig,
    engine: EngineConfig,
    options: Option<ClusterOptions>,
) -> Result<Engine, QueryError> {
    let (shard, shards) = (reactor::shard_id(), reactor::shard_count());
    let storage = cluster::open_node(storage, facts(&engine, shards), options, shard).await?;
    if shard == 0 {
        agreement::take_part();
        agreement::make_system_tables().await?;
    }
    let replicator = Replicator::new(storage.clone(), engine.data_center.clone());
    if let Some(hints) = &engine.hints {
        let started = replicator.start_late(hints.clone()).await;
        started.map_err(|error| QueryError::Internal(format!("hints cannot be opened: {error}")))?;
    }
    let tables = SystemTables::new().await?;
    let engine = Engine::new(engine, storage, replicator, Rc::new(tables));
    let told = mesh::call(0, Group::ADMIN, || async {
        let opened = Opened::here();
        opened.shards.set(opened.shards.get() + 1);
        opened.changed.notify_all();
    });
    told.await.map_err(|error| QueryError::Internal(format!("shard 0 was not told of a start: {error}")))?;
    Ok(engine)
}

/// What the node says of itself to its cluster.
fn facts(engine: &EngineConfig, shards: usize) -> OwnFacts {
    OwnFacts {
        host_id: engine.host_id,
        data_center: engine.data_center.clone(),
        rack: engine.rack.clone(),
        listen: engine.listen_address,
        native: engine.native_address,
        shards: u16::try_from(shards).expect("a node has fewer than 2^16 shards"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        generation: 0,
    }
}

/// Waits until all shards have opened. Call it on shard 0.
pub async fn all_opened() {
    assert_eq!(reactor::shard_id(), 0, "shard 0 counts the shards that have opened");
    let opened = Opened::here();
    opened.changed.wait_until(|| opened.shards.get() >= reactor::shard_count()).await;
}
