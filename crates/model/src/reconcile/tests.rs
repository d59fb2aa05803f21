//! The laws of merging: order, grouping and repetition do not matter.

use proptest::prelude::*;

use super::*;
use crate::schema::{Column, ColumnId, ColumnKind, TableDefinition, TableId, TableOptions};
use crate::types::CqlType;

pub(super) fn table() -> Table {
    let column_of = |kind, id: u16, ty: CqlType| Column {
        id: ColumnId(id),
        name: format!("c{id}"),
        ty,
        kind,
        position: 0,
        reversed: false,
    };
    let column = |id, ty| column_of(ColumnKind::Regular, id, ty);
    let map = CqlType::Map { key: Box::new(CqlType::Blob), value: Box::new(CqlType::Blob), frozen: false };
    Table::new(TableDefinition {
        id: TableId([1; 16]),
        keyspace: "ks".into(),
        name: "t".into(),
        columns: vec![
            column(0, CqlType::Blob),
            column(1, map),
            column(2, CqlType::Blob),
            // Rows have no cells of it; partitions are sorted by it.
            column_of(ColumnKind::Clustering, 3, CqlType::Blob),
        ],
        dropped: Default::default(),
        options: TableOptions::default(),
        next_column_id: 4,
        tablets_log2: 0,
        revision: 0,
    })
}

#[derive(Debug, Clone)]
struct OwnedCell {
    column: u16,
    path: Option<u8>,
    timestamp: i64,
    kind: u8,
    time: u32,
    ttl: u32,
    value: u8,
}

fn cells() -> impl Strategy<Value = Vec<OwnedCell>> {
    let cell = (0u16..3, 0u8..3, 0i64..3, 0u8..3, 1u32..4, 1u32..3, 0u8..2).prop_map(
        |(column, path, timestamp, kind, time, ttl, value)| OwnedCell {
            column,
            // Path 0 of the map means the deletion of the whole map.
            path: (column == 1 && path > 0).then_some(path),
            timestamp,
            kind: if column == 1 && path == 0 { 3 } else { kind },
            time,
            ttl,
            value,
        },
    );
    proptest::collection::vec(cell, 0..6).prop_map(|mut cells| {
        cells.sort_by_key(|cell| (cell.column, cell.path));
        cells.dedup_by_key(|cell| (cell.column, cell.path));
        cells
    })
}

pub(super) fn rows() -> impl Strategy<Value = Vec<u8>> {
    let liveness = proptest::option::of((0i64..3, 0u32..2, 1u32..4));
    let deletion = proptest::option::of((0i64..3, 0u32..3));
    (liveness, deletion, cells()).prop_map(|(liveness, deletion, cells)| {
        let liveness = liveness.map_or(Liveness::NONE, |(timestamp, ttl, expires_at)| Liveness {
            timestamp,
            ttl,
            expires_at: if ttl == 0 { crate::deletion::NO_LOCAL_TIME } else { expires_at },
        });
        let deletion = deletion
            .map_or(DeletionTime::LIVE, |(timestamp, local_time)| DeletionTime { timestamp, local_time });
        let mut out = Vec::new();
        let mut builder = RowBuilder::new(&mut out, liveness, deletion);
        for cell in &cells {
            let (value, path) = ([cell.value], cell.path.map(|path| [path]));
            let kind = match cell.kind {
                0 => CellKind::Live(&value),
                1 => CellKind::Expiring { value: &value, ttl: cell.ttl, expires_at: cell.time },
                2 => CellKind::Tombstone { local_time: cell.time },
                _ => CellKind::CollectionDeletion { local_time: cell.time },
            };
            builder.cell(CellView {
                column: ColumnId(cell.column),
                timestamp: cell.timestamp,
                path: path.as_ref().map(|path| path.as_slice()),
                kind,
            });
        }
        builder.finish();
        // Like every row in the system, without data shadowed by its own deletions.
        merged(&table(), &out, &out)
    })
}

fn merged(table: &Table, a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    merge_rows(table, RowView::parse(a).unwrap(), RowView::parse(b).unwrap(), &mut out);
    RowView::parse(&out).unwrap();
    out
}

/// The same row, with its marker and its cells written so much later.
fn rewritten(row: &[u8], later: i64) -> Vec<u8> {
    let row = RowView::parse(row).unwrap();
    let mut marker = row.liveness();
    if !marker.is_none() {
        marker.timestamp += later;
    }
    let mut out = Vec::new();
    let mut builder = RowBuilder::new(&mut out, marker, row.deletion());
    row.cells().for_each(|cell| builder.cell(CellView { timestamp: cell.timestamp + later, ..cell }));
    builder.finish();
    out
}

fn has_paths(row: RowView<'_>) -> bool {
    row.cells().any(|cell| cell.path.is_some())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn merging_commutes(a in rows(), b in rows()) {
        let table = table();
        prop_assert_eq!(merged(&table, &a, &b), merged(&table, &b, &a));
    }

    #[test]
    fn a_row_that_is_rewritten_is_what_merging_cell_by_cell_gives(a in rows(), b in rows(), later in 0i64..4) {
        // Most pairs have different columns, so the same row, written later, is tested as well.
        let again = rewritten(&a, later);
        let table = table();
        for newer in [&b, &again] {
            let (old, new) = (RowView::parse(&a).unwrap(), RowView::parse(newer).unwrap());
            let mut merged = Vec::new();
            merge_cells(&table, old, new, &mut merged);
            if old.is_rewritten_by(new) {
                prop_assert_eq!(&merged, newer);
            }
            prop_assert!(newer != &again || later == 0 || !old.is_plain() || has_paths(old)
                || old.is_rewritten_by(new));
        }
    }

    #[test]
    fn merging_associates(a in rows(), b in rows(), c in rows()) {
        let table = table();
        let left = merged(&table, &merged(&table, &a, &b), &c);
        let right = merged(&table, &a, &merged(&table, &b, &c));
        prop_assert_eq!(left, right);
    }

    #[test]
    fn merging_again_changes_nothing(a in rows(), b in rows()) {
        let table = table();
        let once = merged(&table, &a, &b);
        prop_assert_eq!(merged(&table, &once, &b), once.clone());
        prop_assert_eq!(merged(&table, &once, &once), once);
    }

    /// The visible contents do not depend on whether older parts were compacted before they were merged.
    #[test]
    fn compacting_without_purging_loses_nothing(a in rows(), b in rows(), now in 1u32..5) {
        let table = table();
        let seen = |row: &[u8]| {
            let mut out = Vec::new();
            compact_row(RowView::parse(row).unwrap(), DeletionTime::LIVE, &Purge::everything(now), &mut out);
            out
        };
        let mut compacted = Vec::new();
        if !compact_row(RowView::parse(&a).unwrap(), DeletionTime::LIVE, &Purge::nothing(), &mut compacted) {
            RowBuilder::new(&mut compacted, Liveness::NONE, DeletionTime::LIVE).finish();
        }
        prop_assert_eq!(seen(&merged(&table, &compacted, &b)), seen(&merged(&table, &a, &b)));
    }
}

#[test]
fn counters_of_a_row_are_counted_together_and_do_not_come_back() {
    let table = table();
    let shard = |node: u8, clock, count| {
        let mut out = Vec::new();
        let kind = counter::ShardKind::Global;
        counter::append(&[counter::CounterShard { id: [node; 16], clock, count, kind }], &mut out);
        out
    };
    let row = |timestamp, kind: CellKind<'_>, deleted_at: i64| {
        let mut out = Vec::new();
        let deletion = match deleted_at {
            0 => DeletionTime::LIVE,
            timestamp => DeletionTime { timestamp, local_time: 1 },
        };
        let mut builder = RowBuilder::new(&mut out, Liveness::NONE, deletion);
        builder.cell(CellView { column: ColumnId(0), timestamp, path: None, kind });
        builder.finish();
        out
    };
    let (one, two) = (shard(1, 5, 10), shard(2, 9, -3));
    let later = shard(1, 6, 11);
    let check = |left: &[u8], right: &[u8], expected: Option<i64>| {
        for (left, right) in [(left, right), (right, left)] {
            let mut out = Vec::new();
            merge_rows(&table, RowView::trusted(left), RowView::trusted(right), &mut out);
            let cell = RowView::parse(&out).unwrap().cell(ColumnId(0));
            let total = cell.and_then(|cell| match cell.kind {
                CellKind::Counter(context) => Some(counter::total(context)),
                _ => None,
            });
            assert_eq!(total, expected);
        }
    };
    check(&row(1, CellKind::Counter(&one), 0), &row(2, CellKind::Counter(&two), 0), Some(7));
    check(&row(1, CellKind::Counter(&one), 0), &row(2, CellKind::Counter(&later), 0), Some(11));
    // Deleted on its own, whenever that was.
    check(&row(9, CellKind::Counter(&one), 0), &row(2, CellKind::Tombstone { local_time: 1 }, 0), None);
    // Deleted with its row: earlier counts are gone, later ones stay.
    check(&row(3, CellKind::Counter(&one), 0), &row(7, CellKind::Counter(&two), 5), Some(-3));
    check(&row(3, CellKind::Counter(&one), 0), &row(4, CellKind::Counter(&two), 5), None);
}
