//! The leader's share of each counter after an update, as Cassandra's `CounterMutation` counts: a later clock
//! and the new sum.

use model::counter::{self, CounterShard, ShardKind};
use model::mutation::{MutationBuilder, MutationView};
use model::row::CellKind;
use model::{CellView, ColumnId, Position, RowBuilder, RowView, Table};

use crate::lwt::Current;

/// The share of one leader in the counters of a partition.
pub(super) struct Share<'u> {
    pub(super) table: &'u Table,
    /// The rows that are changed.
    pub(super) current: &'u Current,
    /// The id under which the leader counts.
    pub(super) id: [u8; 16],
}

impl Share<'_> {
    /// The mutation to be written.
    pub(super) fn count(&self, deltas: &MutationView<'_>) -> Vec<u8> {
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

    /// Appends a row of deltas as the leader's shards.
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
                id: self.id,
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

    /// The leader's share of a counter so far.
    fn shard(&self, current: Option<RowView<'_>>, column: ColumnId) -> CounterShard {
        let none = CounterShard { id: self.id, clock: 0, count: 0, kind: ShardKind::Global };
        let cell = current.and_then(|row| row.cell(column));
        match cell.map(|cell| cell.kind) {
            Some(CellKind::Counter(context)) => counter::shard_of(context, &self.id).unwrap_or(none),
            _ => none,
        }
    }
}
