//! Counters: deltas are added to one replica's share of the counter, the leader's.
//!
//! The coordinator chooses one replica that is up as the leader, the nearest, and sends it the deltas: over
//! the mesh, or as COUNT to another node. `lead` is the leader's part: it reads its own share, writes it with
//! a later clock and the new sum (`context`), and sends that context to the other replicas as a plain write.
//! Invariant: deltas are sent to another leader only if the one before has said that it did nothing with
//! them; nothing is sent a second time that may have been counted.

mod context;
mod lead;

use model::mutation::MutationView;
use model::tablet::Replica;
use model::{Table, Token};
use reactor::{Deadline, Group};
use storage::call_and_note;
use wire::node::count::{self, Count, Counted};
use wire::node::frame::{Verb, WorkGroup};
use wire::node::mutate::Entry;

use crate::consistency::Consistency;
use crate::error::{ReplicaFailure, ReplicationError};
use crate::peers::PeerCall;
use crate::plan::Planned;
use crate::replicator::{Replicator, here};
use crate::tally::NO_SHARE;

use lead::Lead;

/// Why an update did not end well.
#[derive(Debug)]
enum Uncounted {
    /// The leader did its part no further: a later plan may succeed where the failure asks for one, since
    /// nothing is counted then.
    Refused(ReplicaFailure),
    /// The update is over.
    Ended(ReplicationError),
}

impl From<ReplicaFailure> for Uncounted {
    fn from(failure: ReplicaFailure) -> Self {
        Self::Refused(failure)
    }
}

/// The way of an update to its leader.
struct Way {
    leader: Replica,
    /// The command that made the leader a replica.
    since: u64,
    /// The version of the routing it was found in.
    version: u64,
    /// Answers that the level waits for.
    required: u32,
}

impl Replicator {
    /// Applies a mutation of `table` whose counter cells are deltas; deletions in it are applied as they are.
    ///
    /// `node` is the host id of this node, which never changes.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`] and [`ReplicationError::TooLarge`] before anything is done;
    /// [`ReplicationError::TimedOut`] and [`ReplicationError::Failed`] if the counters may or may not have
    /// changed: a retry may count twice.
    pub async fn count(
        &self,
        table: &Table,
        mutation: &[u8],
        node: [u8; 16],
        consistency: Consistency,
        deadline: Deadline,
    ) -> Result<(), ReplicationError> {
        self.check_size(mutation)?;
        let view = MutationView::trusted(mutation).map_err(|error| ReplicaFailure::from(error).here(1))?;
        // Bounded by the deadline.
        loop {
            let way = self.way_to_leader(table, view.token, consistency)?;
            let counted = if way.leader.node == self.own().node {
                let lead = Lead { deltas: mutation.to_vec(), host_id: node, level: consistency, deadline };
                self.count_on_shard(&way, lead).await
            } else {
                self.count_on_node(&way, view, consistency, deadline).await
            };
            let failure = match counted {
                Ok(()) => return Ok(()),
                Err(Uncounted::Ended(error)) => return Err(error),
                Err(Uncounted::Refused(failure)) => failure,
            };
            if !failure.asks_for_a_later_plan() || deadline.is_past() {
                return Err(failure.at(way.leader, way.required));
            }
            self.wait_for_later_plan(table, way.version, deadline).await;
        }
    }

    /// Chooses the leader of an update: the nearest replica that is up and counts for the level.
    fn way_to_leader(
        &self,
        table: &Table,
        token: Token,
        level: Consistency,
    ) -> Result<Way, ReplicationError> {
        if !self.view().is_shared() {
            let required = self.required_alone(table, level)?;
            return Ok(self.view().with_routing(table, |routing| {
                let leader = routing.replica_of(token);
                Way { leader, since: 0, version: routing.version(), required }
            }));
        }
        let plan = self.plan(table, token, level)?;
        let counts = |planned: &&Planned| planned.is_up && planned.share != NO_SHARE;
        let none = ReplicationError::Unavailable { required: plan.required, alive: 0 };
        let leader = plan.replicas.iter().find(counts).ok_or(none)?;
        let (since, version) = (leader.since, plan.version());
        Ok(Way { leader: leader.replica, since, version, required: plan.required })
    }

    /// Has a shard of this node lead.
    async fn count_on_shard(&self, way: &Way, lead: Lead) -> Result<(), Uncounted> {
        let deadline = lead.deadline;
        // A task of its own even on this shard: the turn must outlive a client that goes away.
        let call = call_and_note(self.shard_of(way.leader), Group::STATEMENT, move || async move {
            here().ok_or_else(ReplicaFailure::starting)?.lead(&lead).await
        });
        let timed_out = || Uncounted::Ended(ReplicationError::timed_out(0, way.required));
        let answer = reactor::timeout(deadline, call).await.map_err(|_| timed_out())?;
        answer.unwrap_or_else(|error| Err(ReplicaFailure::from(error).into()))
    }

    /// Has another node lead.
    async fn count_on_node(
        &self,
        way: &Way,
        mutation: MutationView<'_>,
        level: Consistency,
        deadline: Deadline,
    ) -> Result<(), Uncounted> {
        let entry = Entry { version: way.version, since: way.since, mutation };
        let message = Count { born_us: reactor::wall_clock_us(), level: level.into(), entry };
        let mut body = Vec::with_capacity(mutation.as_bytes().len() + 64);
        count::encode(&message, &mut body);
        let (verb, group) = (Verb::Count, WorkGroup::Statement);
        let answer = self.peers().call(PeerCall { to: way.leader, verb, group, deadline, body }).await;
        let answer = answer.map_err(ReplicaFailure::of_peer)?;
        let counted = Counted::decode(&answer).map_err(|error| ReplicaFailure::Failed(error.to_string()))?;
        lead::end_of(counted, way.leader).map_err(Uncounted::Ended)
    }
}
