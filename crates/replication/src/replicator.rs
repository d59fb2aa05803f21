//! The shard's way to replicas: one per shard, found by other shards through the shard-local registry.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use cluster::View;
use cluster::maps::Routing;
use model::tablet::{NodeNumber, Replica, TabletId};
use model::{Table, Token};
use storage::Storage;

use crate::admission::RateLimiter;
use crate::consistency::Consistency;
use crate::error::ReplicationError;
use crate::lwt::Acceptor;
use crate::partition_line::PartitionLines;
use crate::replica_counts::KnownReplicaCounts;

/// Writes to and reads from replicas.
#[derive(Clone)]
pub struct Replicator(Rc<Inner>);

struct Inner {
    storage: Storage,
    /// This shard.
    own: Replica,
    data_center: String,
    replica_counts: RefCell<KnownReplicaCounts>,
    /// The nodes and routings of the agreed state.
    view: Rc<View>,
    acceptor: Acceptor,
    limiter: RateLimiter,
    /// Logged batches that are being tried again.
    retries: Rc<Cell<u32>>,
}

/// A place among the batches that are tried again.
pub(crate) struct Retry(Rc<Cell<u32>>);

impl Drop for Retry {
    fn drop(&mut self) {
        assert!(self.0.get() > 0, "a batch stops being tried again that was not counted");
        self.0.set(self.0.get() - 1);
    }
}

impl fmt::Debug for Replicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicator").field("data_center", &self.0.data_center).finish_non_exhaustive()
    }
}

impl Replicator {
    /// The replicator of this shard, on a node of `data_center`; other shards' calls find it from now on.
    pub fn new(storage: Storage, data_center: impl Into<String>) -> Self {
        let view = View::here();
        let inner = Inner {
            storage,
            own: view.own(),
            view,
            data_center: data_center.into(),
            replica_counts: RefCell::new(KnownReplicaCounts::default()),
            retries: Rc::default(),
            limiter: RateLimiter::default(),
            acceptor: Acceptor::new(Rc::new(PartitionLines::default())),
        };
        let replicator = Self(Rc::new(inner));
        reactor::set_local(Rc::new(replicator.clone()));
        replicator
    }

    /// The shard's own storage.
    pub fn storage(&self) -> &Storage {
        &self.0.storage
    }

    /// A place among at most `most` batches that are tried again.
    pub(crate) fn begin_retry(&self, most: u32) -> Option<Retry> {
        let retries = &self.0.retries;
        (retries.get() < most).then(|| {
            retries.set(retries.get() + 1);
            Retry(Rc::clone(retries))
        })
    }

    /// Counts how often this shard's partitions are used.
    pub(crate) fn limiter(&self) -> &RateLimiter {
        &self.0.limiter
    }

    /// The shard's part in conditional writes.
    pub(crate) fn acceptor(&self) -> &Acceptor {
        &self.0.acceptor
    }

    /// This shard, as a replica.
    #[inline]
    pub fn own(&self) -> Replica {
        self.0.own
    }

    /// The routing of a table at its present version.
    #[inline]
    pub fn routing(&self, table: &Table) -> Rc<Routing> {
        self.0.view.with_routing(table, Rc::clone)
    }

    /// The nodes and routings of the agreed state.
    pub fn view(&self) -> &View {
        &self.0.view
    }

    /// The host id of a node; `None` for a node that nothing is agreed about yet, which is this one.
    pub fn host_id_of(&self, node: NodeNumber) -> Option<[u8; 16]> {
        self.0.view.nodes().get(&node).map(|node| node.host_id)
    }

    /// The shard of this node that is a replica.
    ///
    /// # Panics
    /// For another node's replica: nothing reaches other nodes yet, and no routing names one.
    #[inline]
    pub fn shard_of(&self, replica: Replica) -> usize {
        assert_eq!(replica.node, self.0.own.node, "a replica of this node");
        usize::from(replica.shard)
    }

    /// The replica that requests for a token go to.
    #[inline]
    pub fn replica_of(&self, table: &Table, token: Token) -> Replica {
        self.0.view.with_routing(table, |routing| routing.replica_of(token))
    }

    /// The tablets of `table` that this shard has, by token.
    pub fn own_tablets(&self, table: &Table) -> impl Iterator<Item = TabletId> {
        let (own, routing) = (self.own(), self.routing(table));
        table.tablets().tablets().filter(move |tablet| routing.replicas(*tablet).contains(&own))
    }

    /// Refuses data of a keyspace that has replicas, or should have some, on other nodes: none is sent there
    /// yet, and a write that this node alone has would be missing on the others.
    #[inline]
    pub(crate) fn check_alone(&self, keyspace: &str) -> Result<(), ReplicationError> {
        if self.0.view.is_shared() { self.check_local(keyspace) } else { Ok(()) }
    }

    #[cold]
    fn check_local(&self, keyspace: &str) -> Result<(), ReplicationError> {
        let schema = self.0.storage.borrow_schema();
        let is_local = schema
            .keyspace(keyspace)
            .is_none_or(|keyspace| cluster::maps::placement::is_local(&keyspace.options.replication));
        if is_local { Ok(()) } else { Err(ReplicationError::SeveralNodes { keyspace: keyspace.to_owned() }) }
    }

    /// How many answers a level waits for in a keyspace.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`] where fewer replicas are alive; [`ReplicationError::SeveralNodes`].
    #[inline]
    pub fn required(&self, keyspace: &str, consistency: Consistency) -> Result<u32, ReplicationError> {
        self.check_alone(keyspace)?;
        let schema = self.0.storage.borrow_schema();
        let mut replica_counts = self.0.replica_counts.borrow_mut();
        consistency.check_available(replica_counts.of(&schema, keyspace, &self.0.data_center))
    }

    /// As [`Replicator::required`], in the keyspace of `table`.
    ///
    /// # Errors
    /// As [`Replicator::required`].
    #[inline]
    pub(crate) fn required_of(
        &self,
        table: &Table,
        consistency: Consistency,
    ) -> Result<u32, ReplicationError> {
        self.check_alone(table.keyspace())?;
        let schema = self.0.storage.borrow_schema();
        let mut replica_counts = self.0.replica_counts.borrow_mut();
        consistency.check_available(replica_counts.of_table(&schema, table, &self.0.data_center))
    }
}

/// The replicator of the shard this runs on.
pub(crate) fn here() -> Option<Rc<Replicator>> {
    reactor::local::<Replicator>()
}
