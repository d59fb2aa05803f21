//! The replica's half: requests of coordinators on other nodes.
//!
//! What arrives is parsed and never trusted. Before a request is begun its time must not be over, and this
//! shard must be a replica of the tablet by its own routing, since the command that the coordinator names; a
//! state that the coordinator knows and this shard does not is waited for. Invariant: a replica that has not
//! the tablet answers that the request is stale, never as if it had an empty one.

use std::rc::Rc;

use cluster::maps::Routing;
use cluster::net::{BODY_BYTES_MAX, Network, Request};
use model::tablet::TabletId;
use model::{Table, TableId};
use reactor::Deadline;
use storage::{ApplyAs, Storage};
use wire::node::NodeError;
use wire::node::fault::{Fault, FaultKind};
use wire::node::frame::Verb;
use wire::node::mutate::{self, Entry};
use wire::node::read::Read;

use crate::error::ReplicaFailure;
use crate::peers::{NetworkPeers, NoPeers};
use crate::read;
use crate::replicator::Replicator;
use crate::write::{late, send};

/// Serves this shard's requests of other nodes.
fn register(network: &Rc<Network>, replicator: &Replicator) {
    let late = [Verb::Hint, Verb::BatchLog, Verb::BatchDone];
    let of_rounds = [Verb::Prepare, Verb::Accept, Verb::Learn];
    let plain = [Verb::Mutate, Verb::Read, Verb::Digest, Verb::Count];
    for verb in plain.into_iter().chain(late).chain(of_rounds) {
        let serving = replicator.downgrade();
        network.register(verb, move |request: Request| {
            let serving = serving.get();
            async move {
                let ended = || Fault::new(FaultKind::NotServed, "the shard is stopping");
                serving.ok_or_else(ended)?.serve(request.verb, &request.body, request.deadline).await
            }
        });
    }
}

impl Replicator {
    /// The replicator of this shard, on a node of `data_center`; other shards' calls find it from now on. If
    /// this shard has a network, other nodes' requests are served from now on.
    pub fn new(storage: Storage, data_center: impl Into<String>) -> Self {
        read::repair::register();
        late::register();
        let Ok(network) = Network::here() else {
            return Self::with_peers(storage, data_center, Rc::new(NoPeers));
        };
        let peers = Rc::new(NetworkPeers::new(Rc::clone(&network)));
        let replicator = Self::with_peers(storage, data_center, peers);
        register(&network, &replicator);
        replicator
    }

    /// Serves a request of a coordinator on another node; returns the body of the answer.
    ///
    /// # Errors
    /// The [`Fault`] for the coordinator.
    pub async fn serve(&self, verb: Verb, body: &[u8], deadline: Deadline) -> Result<Vec<u8>, Fault> {
        if deadline.is_past() {
            return Err(Fault::new(FaultKind::TimedOut, "the request came too late"));
        }
        match verb {
            Verb::Mutate | Verb::Hint => self.serve_writes(verb, body, deadline).await,
            Verb::BatchLog => self.serve_batch(body, deadline).await,
            Verb::BatchDone => self.serve_batch_done(body).await,
            Verb::Read | Verb::Digest => {
                let read = Read::decode(body).map_err(invalid)?;
                let answer = read::serve(self, verb, &read, deadline).await;
                let answer = answer.map_err(ReplicaFailure::into_fault)?;
                if answer.len() > BODY_BYTES_MAX {
                    let (bytes, most) = (answer.len(), BODY_BYTES_MAX);
                    let reason = format!("an answer of {bytes} bytes, of one row: nodes send at most {most}");
                    return Err(Fault::new(FaultKind::Failed, reason));
                }
                Ok(answer)
            }
            Verb::Count => self.serve_count(body, deadline).await,
            Verb::Prepare | Verb::Accept | Verb::Learn => self.serve_round(verb, body, deadline).await,
            verb => Err(Fault::new(FaultKind::NotServed, format!("{verb:?} is no request for a replica"))),
        }
    }

    async fn serve_writes(&self, verb: Verb, body: &[u8], deadline: Deadline) -> Result<Vec<u8>, Fault> {
        let message = mutate::decode(body).map_err(invalid)?;
        if !message.forward.is_empty() {
            return Err(Fault::new(FaultKind::NotServed, "writes are not passed on to other replicas yet"));
        }
        for entry in &message.entries {
            let taken = self.take((verb, message.born_us), entry, deadline).await;
            taken.map_err(ReplicaFailure::into_fault)?;
        }
        Ok(Vec::new())
    }

    /// Applies a mutation that another node began at `born_us`, unless it comes too late.
    async fn take(
        &self,
        (verb, born_us): (Verb, i64),
        entry: &Entry<'_>,
        deadline: Deadline,
    ) -> Result<(), ReplicaFailure> {
        let Entry { version, since, mutation } = entry;
        let table = self.table_at(mutation.table, *version, deadline).await?;
        // Held until the write has ended: those who take the tablet away wait for it.
        let was_kept = verb == Verb::Hint;
        // A write that was kept was counted when it was made, whichever replicas count now.
        let planned = (*since, if was_kept { u64::MAX } else { *version });
        let _routing = self.check_replica(&table, table.tablets().tablet_of(mutation.token), planned)?;
        mutation.check(&table)?;
        self.storage().check_mutation_size(mutation.as_bytes())?;
        let is_dropped = if was_kept { late::is_too_late } else { late::is_lost_on_the_way };
        if is_dropped(self, &table, born_us) {
            late::note_dropped(&table, born_us);
            // The sender of a write that was kept has to know no more than that it is done with it.
            let failed = ReplicaFailure::Failed("the write is older than deletions are kept".to_owned());
            return if was_kept { Ok(()) } else { Err(failed) };
        }
        if !was_kept {
            send::check_rate(self, mutation)?;
        }
        let how = ApplyAs { since: Some(*since), synced: false };
        self.storage().apply_as(mutation, how, deadline).await.map_err(ReplicaFailure::from)
    }

    /// The table, once this shard's routing of it is as late as the coordinator's.
    pub(crate) async fn table_at(
        &self,
        table: TableId,
        version: u64,
        deadline: Deadline,
    ) -> Result<Rc<Table>, ReplicaFailure> {
        if version == 0 {
            return Err(ReplicaFailure::Failed(format!("table {table} is each node's own")));
        }
        if !self.view().wait_for_version(table, version, deadline).await {
            return Err(ReplicaFailure::Stale(format!("routing {version} of table {table} is not known")));
        }
        self.storage().borrow_schema().table_by_id(table).cloned().ok_or(ReplicaFailure::TableGone(table))
    }

    /// Checks that this shard has been a replica of a tablet since a command, by its routing and by its
    /// storage, and that the same replicas count as in the version that the request was planned with; returns
    /// that routing. While a truncation takes effect the routing is ahead: what is planned
    /// with it must not meet rows of before.
    pub(crate) fn check_replica(
        &self,
        table: &Table,
        tablet: TabletId,
        (since, version): (u64, u64),
    ) -> Result<Rc<Routing>, ReplicaFailure> {
        self.storage().check_tenancy(table.id(), tablet, since)?;
        self.view().with_routing(table, |routing| {
            if version < routing.fence() {
                return Err(ReplicaFailure::Stale(format!(
                    "routing {version} of table {} is not what its replicas count by since command {}",
                    table.id(),
                    routing.fence()
                )));
            }
            let replicas = routing.replicas(tablet).iter().zip(routing.since(tablet));
            let own = replicas.into_iter().find(|(replica, _)| **replica == self.own());
            if own.is_some_and(|(_, own_since)| *own_since == since) {
                return Ok(Rc::clone(routing));
            }
            Err(ReplicaFailure::Stale(format!(
                "tablet {} of table {} has not been here since command {since}, by routing {}",
                tablet.0,
                table.id(),
                routing.version()
            )))
        })
    }
}

pub(crate) fn invalid(error: NodeError) -> Fault {
    Fault::new(FaultKind::Invalid, error.to_string())
}
