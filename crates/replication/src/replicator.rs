//! The shard's way to replicas: one per shard, found by other shards through the shard-local registry.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};

use cluster::View;
use cluster::maps::Routing;
use model::tablet::{NodeNumber, Replica, TabletId};
use model::{Table, Token};
use reactor::Semaphore;
use storage::Storage;

use crate::admission::RateLimiter;
use crate::consistency::Consistency;
use crate::error::ReplicationError;
use crate::lwt::Acceptor;
use crate::partition_line::PartitionLines;
use crate::peers::{Peers, Speeds};
use crate::replica_counts::{KnownReplicaCounts, ReplicaCounts};
use crate::speculation::Speculation;

/// Bytes of writes on their way to replicas whose client has its answer; beyond it a client waits for all of
/// its replicas.
const LATE_BYTES_MAX: usize = 8 << 20;
/// Bytes that a write on its way to one replica takes beside its mutation: its frame, its call and its task.
const LATE_SEND_BYTES: usize = 1 << 10;

/// Writes to and reads from replicas.
#[derive(Clone)]
pub struct Replicator(Rc<Inner>);

/// A replicator that does not keep itself alive: for those that it outlives.
#[derive(Clone)]
pub(crate) struct WeakReplicator(Weak<Inner>);

impl WeakReplicator {
    pub(crate) fn get(&self) -> Option<Replicator> {
        self.0.upgrade().map(Replicator)
    }
}

struct Inner {
    storage: Storage,
    /// This shard.
    own: Replica,
    data_center: String,
    replica_counts: RefCell<KnownReplicaCounts>,
    /// The nodes and routings of the agreed state.
    view: Rc<View>,
    peers: Rc<dyn Peers>,
    speeds: Rc<Speeds>,
    speculation: Speculation,
    late_bytes: Semaphore,
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
    /// The replicator of this shard, on a node of `data_center`, with its way to other nodes; other shards'
    /// calls find it from now on. It serves no other nodes: see [`Replicator::new`].
    pub fn with_peers(storage: Storage, data_center: impl Into<String>, peers: Rc<dyn Peers>) -> Self {
        let view = View::here();
        let inner = Inner {
            storage,
            own: view.own(),
            view,
            data_center: data_center.into(),
            peers,
            speeds: Rc::default(),
            speculation: Speculation::new(),
            late_bytes: Semaphore::new(LATE_BYTES_MAX),
            replica_counts: RefCell::new(KnownReplicaCounts::default()),
            retries: Rc::default(),
            limiter: RateLimiter::default(),
            acceptor: Acceptor::new(Rc::new(PartitionLines::default())),
        };
        let replicator = Self(Rc::new(inner));
        reactor::set_local(Rc::new(replicator.clone()));
        replicator
    }

    /// Whether another node is expected to answer.
    pub fn is_up(&self, node: NodeNumber) -> bool {
        self.0.peers.is_up(Replica { node, shard: 0 })
    }

    pub(crate) fn downgrade(&self) -> WeakReplicator {
        WeakReplicator(Rc::downgrade(&self.0))
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
    /// For another node's replica.
    #[inline]
    pub fn shard_of(&self, replica: Replica) -> usize {
        assert_eq!(replica.node, self.0.own.node, "a replica of this node");
        usize::from(replica.shard)
    }

    /// This node's data center.
    pub(crate) fn data_center(&self) -> &str {
        &self.0.data_center
    }

    /// The way to other nodes.
    pub(crate) fn peers(&self) -> &dyn Peers {
        &*self.0.peers
    }

    /// How fast other nodes answered this shard's reads.
    pub(crate) fn speeds(&self) -> &Rc<Speeds> {
        &self.0.speeds
    }

    /// When reads that this shard coordinates ask one replica more.
    pub(crate) fn speculation(&self) -> &Speculation {
        &self.0.speculation
    }

    /// Takes all the room for writes that go on behind their answers: for tests.
    #[doc(hidden)]
    pub fn take_late_room(&self) -> Option<reactor::Permit> {
        self.0.late_bytes.try_acquire(LATE_BYTES_MAX)
    }

    /// Room for so many writes of a mutation that go on behind the client's answer; `None` if it has to wait.
    pub(crate) fn late_room(&self, mutation_bytes: usize, writes: usize) -> Option<reactor::Permit> {
        let bytes = mutation_bytes.saturating_add(LATE_SEND_BYTES).saturating_mul(writes);
        self.0.late_bytes.try_acquire(bytes)
    }

    /// Whether this node has the only replicas of a table.
    pub fn is_only_here(&self, table: &Table) -> bool {
        let own = self.0.own.node;
        !self.0.view.is_shared()
            || self.0.view.with_routing(table, |routing| {
                routing
                    .tablets()
                    .tablets()
                    .all(|tablet| matches!(routing.replicas(tablet), [replica] if replica.node == own))
            })
    }

    /// The first replica of a token's tablet.
    #[inline]
    pub fn replica_of(&self, table: &Table, token: Token) -> Replica {
        self.0.view.with_routing(table, |routing| routing.replica_of(token))
    }

    /// The tablets of `table` that this shard has whole, by token.
    pub fn own_tablets(&self, table: &Table) -> impl Iterator<Item = TabletId> {
        let (own, routing) = (self.own(), self.routing(table));
        table.tablets().tablets().filter(move |tablet| routing.whole(*tablet).contains(&own))
    }

    /// Looks at the replica counts of the keyspace of `table`.
    #[inline]
    pub(crate) fn with_counts<T>(&self, table: &Table, look: impl FnOnce(&ReplicaCounts) -> T) -> T {
        let schema = self.0.storage.borrow_schema();
        let mut replica_counts = self.0.replica_counts.borrow_mut();
        look(replica_counts.of_table(&schema, table, &self.0.data_center))
    }

    /// How many answers a level waits for in a keyspace. Whether they can be had is the matter of each
    /// partition where there are other nodes.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`] where this node is alone and its replica is too few.
    #[inline]
    pub fn required(&self, keyspace: &str, consistency: Consistency) -> Result<u32, ReplicationError> {
        let schema = self.0.storage.borrow_schema();
        let mut replica_counts = self.0.replica_counts.borrow_mut();
        let counts = replica_counts.of(&schema, keyspace, &self.0.data_center);
        if self.0.view.is_shared() {
            return Ok(consistency.required(counts));
        }
        check_alone(counts, consistency)
    }

    /// As [`Replicator::required`] in the keyspace of `table`, for a node that is alone.
    ///
    /// # Errors
    /// As [`Replicator::required`].
    #[inline]
    pub(crate) fn required_alone(
        &self,
        table: &Table,
        consistency: Consistency,
    ) -> Result<u32, ReplicationError> {
        self.with_counts(table, |counts| check_alone(counts, consistency))
    }

    /// A shard of this node, as a replica.
    pub(crate) fn own_shard(&self, shard: usize) -> Replica {
        Replica { node: self.own().node, shard: shard as u16 }
    }
}

/// The number of answers to wait for where this node is alone.
#[inline]
fn check_alone(counts: &ReplicaCounts, consistency: Consistency) -> Result<u32, ReplicationError> {
    consistency.check_available(counts, counts.alone()).or_else(|error| {
        let fitting = counts.fitting_alone().ok_or(error)?;
        consistency.check_available(&fitting, fitting.alone())
    })
}

/// The replicator of the shard this runs on.
pub(crate) fn here() -> Option<Rc<Replicator>> {
    reactor::local::<Replicator>()
}
