//! Counters: deltas are added to this node's share of the counter, on the shard that has the partition.
//!
//! The leader of an update (here the only replica, on the shard that has the partition) reads its own share
//! of each counter and writes it with a later clock and the new sum, as Cassandra's `CounterMutation`.
//! Between the two no other update counts in the partition: the update holds the partition's turn until the
//! write is applied.

use model::clustering::Slice;
use model::counter::{self, CounterShard, ShardKind};
use model::deletion::LocalSeconds;
use model::mutation::{MutationBuilder, MutationView};
use model::partition_key::DecoratedKey;
use model::row::CellKind;
use model::{CellView, ColumnId, Position, RowBuilder, RowView, Table};
use reactor::{Deadline, Group};
use storage::{PartitionRange, ReadCommand, Slices, call_and_note};

use crate::consistency::Consistency;
use crate::error::{NotYet, ReplicaFailure, ReplicationError};
use crate::lwt::{Current, Taker};
use crate::replicator::{Replicator, here};

impl Replicator {
    /// Applies a mutation of `table` whose counter cells are deltas; deletions in it are applied as they are.
    ///
    /// `node` is this node's identity in counter contexts, which never changes.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`] and [`ReplicationError::NotYet`], where the partition has other
    /// replicas than one of this node, before anything is done; [`ReplicationError::TimedOut`] if the
    /// counters may or may not have changed: a retry may count twice.
    pub async fn count(
        &self,
        table: &Table,
        mutation: &[u8],
        node: [u8; 16],
        consistency: Consistency,
        deadline: Deadline,
    ) -> Result<(), ReplicationError> {
        let view = MutationView::trusted(mutation);
        let token = view.map_err(|error| ReplicaFailure::from(error).here(1))?.token;
        // Bounded by the deadline. A shard that has not the tablet any more has counted nothing.
        loop {
            let version = self.view().with_routing(table, |routing| routing.version());
            let shard = self.only_shard_of(table, token, NotYet::Counters)?;
            let required = self.require(table, token, consistency)?;
            let mutation = mutation.to_vec();
            // A task of its own even on this shard: the turn must outlive a client that goes away.
            let call = call_and_note(shard, Group::STATEMENT, move || async move {
                let replicator = here().ok_or_else(ReplicaFailure::starting)?;
                replicator.lead(&mutation, node, deadline).await
            });
            let Ok(answer) = reactor::timeout(deadline, call).await else {
                return Err(ReplicationError::timed_out(0, required));
            };
            let failure: ReplicaFailure = match answer {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(failure)) => failure,
                Err(error) => error.into(),
            };
            if !failure.asks_for_a_later_plan() || deadline.is_past() {
                return Err(failure.at(self.own_shard(shard), required));
            }
            self.wait_for_later_plan(table, version, deadline).await;
        }
    }

    /// The leader's part.
    async fn lead(&self, deltas: &[u8], node: [u8; 16], deadline: Deadline) -> Result<(), ReplicaFailure> {
        let view = MutationView::parse(deltas)?;
        let table = self.storage().schema().table_by_id(view.table).cloned();
        let table = table.ok_or(ReplicaFailure::TableGone(view.table))?;
        if self.replica_of(&table, view.token) != self.own() {
            return Err(ReplicaFailure::Stale("counters change on their tablet's shard".to_owned()));
        }
        let acceptor = self.acceptor();
        let turn = acceptor.turn(view.table, view.key, deadline).await?;
        let slices: Slices = {
            let mut clusterings: Vec<&[u8]> = view.rows().map(|(clustering, _)| clustering).collect();
            clusterings
                .sort_by(|a, b| model::clustering::compare_clusterings(table.clustering_orders(), a, b));
            clusterings.dedup();
            clusterings.into_iter().map(Slice::prefix).collect()
        };
        let command = ReadCommand {
            table: table.clone(),
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
        let counted = Leader { table: &table, current: &current, node }.count(&view);
        acceptor.accept(self.storage(), turn, counted, deadline).await
    }
}

/// One update at work.
struct Leader<'u> {
    table: &'u Table,
    current: &'u Current,
    node: [u8; 16],
}

impl Leader<'_> {
    /// The mutation to be written.
    fn count(&self, deltas: &MutationView<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut builder =
            MutationBuilder::new(&mut out, deltas.table, deltas.token, deltas.key, deltas.deletion, |out| {
                if let Some(row) = deltas.static_row() {
                    self.row(row, self.current.static_row(), out);
                }
            });
        for (start, end, deletion) in deltas.tombstones() {
            let position = |position: Position<'_>| position.to_owned();
            builder.range_tombstone(position(start).as_ref(), position(end).as_ref(), deletion);
        }
        // A row may occur more than once: its deltas are added together.
        let mut rows: Vec<(&[u8], Vec<u8>)> = Vec::with_capacity(deltas.row_count());
        for (clustering, row) in deltas.rows() {
            match rows.iter_mut().find(|(at, _)| *at == clustering) {
                None => rows.push((clustering, row.as_bytes().to_vec())),
                Some((_, sum)) => {
                    let mut merged = Vec::new();
                    model::reconcile::merge_rows(self.table, RowView::trusted(sum), row, &mut merged);
                    *sum = merged;
                }
            }
        }
        let mut written = builder.rows();
        for (clustering, row) in rows {
            let row = RowView::trusted(&row);
            written.row(clustering, |out| self.row(row, self.current.row(clustering), out));
        }
        written.finish();
        out
    }

    /// Appends a row of deltas as this node's shards.
    fn row(&self, deltas: RowView<'_>, current: Option<RowView<'_>>, out: &mut Vec<u8>) {
        let mut builder = RowBuilder::new(out, deltas.liveness(), deltas.deletion());
        let mut context = Vec::new();
        for cell in deltas.cells() {
            let delta = match cell.kind {
                CellKind::Counter(delta) => counter::delta(delta),
                _ => None,
            };
            let Some(delta) = delta else {
                builder.cell(cell);
                continue;
            };
            let before = self.shard(current, cell.column);
            let shard = CounterShard {
                id: self.node,
                clock: reactor::wall_clock_us().max(before.clock.saturating_add(1)),
                count: before.count.wrapping_add(delta),
                kind: ShardKind::Global,
            };
            context.clear();
            counter::append(&[shard], &mut context);
            builder.cell(CellView { kind: CellKind::Counter(&context), ..cell });
        }
        builder.finish();
    }

    /// This node's share of the counter so far.
    fn shard(&self, current: Option<RowView<'_>>, column: ColumnId) -> CounterShard {
        let none = CounterShard { id: self.node, clock: 0, count: 0, kind: ShardKind::Global };
        let cell = current.and_then(|row| row.cell(column));
        match cell.map(|cell| cell.kind) {
            Some(CellKind::Counter(context)) => counter::shard_of(context, &self.node).unwrap_or(none),
            _ => none,
        }
    }
}
