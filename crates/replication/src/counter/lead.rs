//! The leader's part of a counter update: it counts in its own share, and has the other replicas take over
//! the context.
//!
//! Between reading and writing no other update counts in the partition: the update holds the partition's turn
//! until its write is applied. Where there are other replicas the write is durable before anybody sees it.
//! Invariant: a context that has left this node is never lost here, or this node would give its clock to
//! another sum after a loss of power.

use std::rc::Rc;

use model::clustering::{Slice, compare_clusterings};
use model::counter;
use model::deletion::LocalSeconds;
use model::mutation::MutationView;
use model::partition_key::DecoratedKey;
use model::row::CellKind;
use model::tablet::Replica;
use model::{RowView, Table};
use reactor::{Deadline, Group};
use storage::{ApplyAs, PartitionRange, ReadCommand, Slices};
use wire::error::FailureReason as WireReason;
use wire::node::count::{self, Count, Counted, Failure};
use wire::node::fault::{Fault, FaultKind};

use super::Uncounted;
use super::context::Share;
use crate::consistency::Consistency;
use crate::error::{Endpoint, FailureReason, ReplicaFailure, ReplicationError};
use crate::lwt::{Current, Taker};
use crate::plan::Plan;
use crate::replicator::Replicator;
use crate::serve::invalid;
use crate::tally::Ended;
use crate::write::collect;

/// An update at its leader.
pub(super) struct Lead {
    pub(super) deltas: Vec<u8>,
    /// This node's.
    pub(super) host_id: [u8; 16],
    pub(super) level: Consistency,
    pub(super) deadline: Deadline,
}

impl Replicator {
    /// Serves COUNT of a coordinator on another node.
    ///
    /// # Errors
    /// A [`Fault`] whose kind says whether the update may have been counted.
    pub(crate) async fn serve_count(&self, body: &[u8], deadline: Deadline) -> Result<Vec<u8>, Fault> {
        let Count { level, entry, .. } = count::decode(body).map_err(invalid)?;
        self.check_count(&entry, deadline).await.map_err(ReplicaFailure::into_fault)?;
        let unknown = || Fault::new(FaultKind::NotServed, "the node does not know its own host id yet");
        let host_id = self.host_id_of(self.own().node).ok_or_else(unknown)?;
        let deltas = entry.mutation.as_bytes().to_vec();
        let lead = Lead { deltas, host_id, level: level.into(), deadline };
        let counted = match self.lead(&lead).await {
            Ok(()) => Counted::Done,
            Err(Uncounted::Refused(failure)) => return Err(failure.into_fault()),
            Err(Uncounted::Ended(error)) => answer_of(error),
        };
        let mut out = Vec::new();
        counted.encode(&mut out);
        Ok(out)
    }

    /// Checks an update of another node, before anything is done.
    async fn check_count(
        &self,
        entry: &wire::node::mutate::Entry<'_>,
        deadline: Deadline,
    ) -> Result<(), ReplicaFailure> {
        let mutation = &entry.mutation;
        let table = self.table_at(mutation.table, entry.version, deadline).await?;
        self.check_replica(&table, table.tablets().tablet_of(mutation.token), (entry.since, entry.version))?;
        if !table.is_counter() {
            return Err(ReplicaFailure::Misfit(mutation.table));
        }
        mutation.check(&table)?;
        self.storage().check_mutation_size(mutation.as_bytes())?;
        let has_deltas = |row: RowView<'_>| {
            row.cells().all(|cell| match cell.kind {
                CellKind::Counter(delta) => counter::delta(delta).is_some(),
                _ => true,
            })
        };
        if !mutation.static_row().is_none_or(has_deltas) || !mutation.rows().all(|(_, row)| has_deltas(row)) {
            return Err(ReplicaFailure::Misfit(mutation.table));
        }
        Ok(())
    }

    /// Counts, and has the other replicas take over the result.
    pub(super) async fn lead(&self, lead: &Lead) -> Result<(), Uncounted> {
        let view = MutationView::parse(&lead.deltas).map_err(ReplicaFailure::from)?;
        let table = self.storage().schema().table_by_id(view.table).cloned();
        let table = table.ok_or(ReplicaFailure::TableGone(view.table))?;
        let stale = || ReplicaFailure::Stale("counters change on a replica of their tablet".to_owned());
        if !self.view().is_shared() {
            if self.replica_of(&table, view.token) != self.own() {
                return Err(stale().into());
            }
            self.count_here(&table, &view, (lead.host_id, ApplyAs::default()), lead.deadline).await?;
            return Ok(());
        }
        let plan = self.plan_write(&table, view.token, lead.level).map_err(Uncounted::Ended)?;
        let own = plan.replicas.iter().find(|planned| planned.replica == self.own()).ok_or_else(stale)?;
        let tablets = table.tablets();
        let tablet = (tablets.log2(), tablets.tablet_of(view.token).0);
        let id = counter::shard_id(lead.host_id, table.id().0, tablet, own.since);
        let how = ApplyAs { since: Some(own.since), synced: plan.replicas.len() > 1 };
        let context = self.count_here(&table, &view, (id, how), lead.deadline).await?;
        if plan.replicas.len() == 1 {
            return Ok(());
        }
        self.spread(&table, plan, &context, lead).await.map_err(Uncounted::Ended)
    }

    /// Adds deltas to the share of `id`, in the partition's turn; returns what was written.
    async fn count_here(
        &self,
        table: &Rc<Table>,
        view: &MutationView<'_>,
        (id, how): ([u8; 16], ApplyAs),
        deadline: Deadline,
    ) -> Result<Rc<[u8]>, ReplicaFailure> {
        let turn = self.acceptor().turn(view.table, view.key, deadline).await?;
        let current = self.current_of(table, view, deadline).await?;
        let counted: Rc<[u8]> = Share { table, current: &current, id }.count(view).into();
        self.storage().check_mutation_size(&counted)?;
        let inside = self.acceptor().enter()?;
        let (storage, mutation) = (self.storage().clone(), Rc::clone(&counted));
        // In a task of its own: the write ends before the turn passes on, also if nobody waits for it.
        let applied = reactor::spawn(Group::STATEMENT, async move {
            let view = MutationView::trusted(&mutation)?;
            let applied = storage.apply_as(&view, how, deadline).await;
            drop((turn, inside));
            applied.map_err(ReplicaFailure::from)
        });
        // A panic of the write is this request's failure; the reactor has logged it.
        applied.await.map_err(|_| ReplicaFailure::TimedOut)??;
        Ok(counted)
    }

    /// The rows that an update changes, as they are.
    async fn current_of(
        &self,
        table: &Rc<Table>,
        view: &MutationView<'_>,
        deadline: Deadline,
    ) -> Result<Current, ReplicaFailure> {
        let mut clusterings: Vec<&[u8]> = view.rows().map(|(clustering, _)| clustering).collect();
        clusterings.sort_by(|a, b| compare_clusterings(table.clustering_orders(), a, b));
        clusterings.dedup();
        let slices: Slices = clusterings.into_iter().map(Slice::prefix).collect();
        let command = ReadCommand {
            table: Rc::clone(table),
            range: PartitionRange::Key(DecoratedKey { token: view.token, key: view.key.to_vec() }),
            slices,
            reversed: false,
            now: LocalSeconds::try_from(reactor::wall_clock_us() / 1_000_000).unwrap_or(0),
            bypass_cache: false,
        };
        let mut current = Current::default();
        let mut taker = Taker::new(&mut current, usize::MAX, None);
        let done = reactor::timeout(deadline, self.storage().read(&command, &mut taker)).await;
        done.map_err(|_| ReplicaFailure::TimedOut)??;
        Ok(current)
    }

    /// Sends a context that is counted here to the other replicas; it may be sent as often as it takes.
    async fn spread(
        &self,
        table: &Table,
        mut plan: Plan,
        context: &[u8],
        lead: &Lead,
    ) -> Result<(), ReplicationError> {
        let (own, planned, deadline) = (self.own(), plan.version(), lead.deadline);
        let token =
            MutationView::trusted(context).map_err(|error| ReplicaFailure::from(error).here(1))?.token;
        // Bounded by the deadline.
        loop {
            let required = plan.required;
            match collect::collect(self, &plan, (context, Some(own)), deadline, None).await {
                Ok(()) => return Ok(()),
                Err(Ended::Again(_)) if !deadline.is_past() => {}
                Err(Ended::Again(error) | Ended::Failed(error)) => return Err(perhaps(error, own, required)),
            }
            self.wait_for_later_plan(table, plan.version(), deadline).await;
            // If the table was truncated after this was counted, the context went with all that it adds up.
            if self.routing(table).truncated() > planned {
                return Ok(());
            }
            plan =
                self.plan_write(table, token, lead.level).map_err(|error| perhaps(error, own, required))?;
        }
    }
}

/// The error of an update that is counted on this shard, and waits for `required` answers: never one that
/// says that nothing was done.
fn perhaps(error: ReplicationError, own: Replica, required: u32) -> ReplicationError {
    let received = required.saturating_sub(1).min(1);
    match error {
        error @ (ReplicationError::TimedOut { .. } | ReplicationError::Failed { .. }) => error,
        ReplicationError::Unavailable { .. } => ReplicationError::timed_out(received, required),
        other => ReplicationError::Failed {
            endpoint: own.into(),
            reason: other.to_string(),
            received,
            required,
            failures: vec![(own.into(), FailureReason::Unknown)],
            data_present: false,
        },
    }
}

/// The end of an update for its coordinator on another node.
fn answer_of(error: ReplicationError) -> Counted {
    match error {
        ReplicationError::Unavailable { required, alive } => Counted::Unavailable { required, alive },
        ReplicationError::TimedOut { received, required, .. } => Counted::TimedOut { received, required },
        ReplicationError::Failed { reason, received, required, failures, .. } => {
            let failures = failures.iter().map(|(endpoint, reason)| Failure {
                node: endpoint.node,
                shard: endpoint.shard,
                reason: code_of(*reason) as u8,
            });
            Counted::Failed { received, required, failures: failures.collect(), reason }
        }
        other => {
            Counted::Failed { received: 0, required: 1, failures: Vec::new(), reason: other.to_string() }
        }
    }
}

/// The end of an update that another node led.
///
/// # Errors
/// The update's.
pub(super) fn end_of(counted: Counted, leader: Replica) -> Result<(), ReplicationError> {
    match counted {
        Counted::Done => Ok(()),
        Counted::Unavailable { required, alive } => Err(ReplicationError::Unavailable { required, alive }),
        Counted::TimedOut { received, required } => Err(ReplicationError::timed_out(received, required)),
        Counted::Failed { received, required, failures, reason } => {
            let failures: Vec<(Endpoint, FailureReason)> = failures
                .iter()
                .map(|failure| {
                    let endpoint = Endpoint { node: failure.node, shard: failure.shard };
                    (endpoint, reason_of(failure.reason))
                })
                .collect();
            let endpoint = failures.last().map_or(leader.into(), |(endpoint, _)| *endpoint);
            Err(ReplicationError::Failed {
                endpoint,
                reason,
                received,
                required,
                failures,
                data_present: false,
            })
        }
    }
}

fn code_of(reason: FailureReason) -> WireReason {
    match reason {
        FailureReason::Unknown => WireReason::Unknown,
        FailureReason::Timeout => WireReason::Timeout,
        FailureReason::IncompatibleSchema => WireReason::IncompatibleSchema,
        FailureReason::NodeDown => WireReason::NodeDown,
    }
}

/// The reason with a code; one that a later version has is unknown here.
fn reason_of(code: u8) -> FailureReason {
    use FailureReason::{IncompatibleSchema, NodeDown, Timeout, Unknown};
    let known = [Timeout, IncompatibleSchema, NodeDown].into_iter();
    known.into_iter().find(|reason| code_of(*reason) as u16 == u16::from(code)).unwrap_or(Unknown)
}
