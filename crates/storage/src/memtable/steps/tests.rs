//! Mutations in steps beside the same ones in one go.

use std::collections::BTreeMap;
use std::rc::Rc;

use memory::Budget;
use model::clustering::{Slice, append_component};
use model::mutation::MutationBuilder;
use model::row::CellKind;
use model::schema::{TableDefinition, TableOptions};
use model::{
    CellView, Column, ColumnId, ColumnKind, CqlType, DeletionTime, Liveness, RowBuilder, TableId, Token,
    Unfiltered,
};
use proptest::prelude::*;
use reactor::Event;

use super::*;
use crate::memtable::{PartitionRef, Pin, Shape, VersionCursor};

const TABLE: TableId = TableId([7; 16]);

fn table() -> Rc<Table> {
    let column = |id, name: &str, kind| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        ty: CqlType::Blob,
        kind,
        position: 0,
        reversed: false,
    };
    let columns = vec![
        column(0, "k", ColumnKind::PartitionKey),
        column(1, "c", ColumnKind::Clustering),
        column(2, "s", ColumnKind::Static),
        column(3, "v", ColumnKind::Regular),
    ];
    Rc::new(Table::new(TableDefinition {
        id: TABLE,
        keyspace: "ks".to_owned(),
        name: "t".to_owned(),
        columns,
        dropped: [].into(),
        options: TableOptions::default(),
        next_column_id: 4,
        tablets_log2: 0,
        revision: 0,
    }))
}

/// A mutation of one partition.
#[derive(Debug, Clone)]
struct Written {
    key: u8,
    timestamp: i64,
    rows: Vec<u8>,
    has_static: bool,
    deletes: bool,
}

fn row(out: &mut Vec<u8>, column: u16, timestamp: i64) {
    let mut row = RowBuilder::new(out, Liveness::NONE, DeletionTime::LIVE);
    let value = timestamp.to_be_bytes();
    row.cell(CellView { column: ColumnId(column), timestamp, path: None, kind: CellKind::Live(&value) });
    row.finish();
}

impl Written {
    fn bytes(&self) -> Vec<u8> {
        let deletion = DeletionTime { timestamp: self.timestamp - 1, local_time: 1 };
        let deletion = if self.deletes { deletion } else { DeletionTime::LIVE };
        let (mut out, token) = (Vec::new(), Token(i64::from(self.key)));
        let builder = MutationBuilder::new(&mut out, TABLE, token, &[self.key], deletion, |out| {
            if self.has_static {
                row(out, 2, self.timestamp);
            }
        });
        let mut rows = builder.rows();
        for at in &self.rows {
            let mut clustering = Vec::new();
            append_component(&mut clustering, Some(&[*at]));
            rows.row(&clustering, |out| row(out, 3, self.timestamp));
        }
        rows.finish();
        out
    }
}

/// All that some versions of a partition say: the deletion, and the latest value of the static row and of
/// each row.
type Said = (DeletionTime, BTreeMap<Option<Vec<u8>>, i64>);

fn said(memtable: &Memtable, table: &Table, at: PartitionRef, versions: &[u32]) -> Said {
    let contents = memtable.contents();
    let mut said: Said = (DeletionTime::LIVE, BTreeMap::new());
    let slices = [Slice::all()];
    let shape = Shape { orders: table.clustering_orders(), slices: &slices, reversed: false };
    let value = |row: model::RowView<'_>| row.cells().next().expect("a cell").timestamp;
    for version in versions {
        let (deletion, static_row) = contents.head(at, *version);
        said.0 = said.0.max(deletion);
        if let Some(row) = static_row {
            let latest = said.1.entry(None).or_insert(0);
            *latest = value(row).max(*latest);
        }
        let mut cursor = VersionCursor::new(at, *version);
        while let Some(Unfiltered::Row { clustering, row }) = cursor.next(&contents, shape) {
            let latest = said.1.entry(Some(clustering.to_vec())).or_insert(0);
            *latest = value(row).max(*latest);
        }
    }
    said
}

fn find(memtable: &Memtable, key: u8) -> Option<PartitionRef> {
    memtable.contents().find(Token(i64::from(key)), &[key])
}

fn versions(memtable: &Memtable, at: PartitionRef) -> Vec<u32> {
    memtable.contents().versions(at).to_vec()
}

fn written() -> impl Strategy<Value = Written> {
    // A few rows, or more than are moved in one go.
    let rows = (any::<bool>(), proptest::collection::vec(0u8..9, 0..4))
        .prop_map(|(many, few)| if many { (0..=255).collect() } else { few });
    (0u8..3, 2i64..20, rows, any::<bool>(), prop::bool::weighted(0.2)).prop_map(
        |(key, timestamp, rows, has_static, deletes)| Written { key, timestamp, rows, has_static, deletes },
    )
}

proptest! {
    /// Readers that stay see the same for as long as they stay; everybody else sees what a memtable has that
    /// took the same mutations in one go. When the readers have gone, one version is left.
    #[test]
    fn steps_and_one_go_say_the_same(ops in proptest::collection::vec((0u8..4, written()), 1..40)) {
        let (budget, table) = (Budget::new(1 << 30), table());
        let new = |budget: &Budget| Rc::new(Memtable::new(budget, &Rc::new(Event::new())));
        let (subject, plain) = (new(&budget), new(&Budget::new(1 << 30)));
        let mut readers: Vec<(Vec<Pin>, PartitionRef, Vec<u32>, Said)> = Vec::new();
        let leave = |readers: &mut Vec<(Vec<Pin>, PartitionRef, Vec<u32>, Said)>, at: usize| {
            let (pins, partition, versions, seen) = readers.swap_remove(at);
            assert_eq!(said(&subject, &table, partition, &versions), seen);
            drop(pins);
        };
        for (op, written) in &ops {
            let bytes = written.bytes();
            let mutation = MutationView::parse(&bytes).expect("a mutation");
            match (op, find(&subject, written.key)) {
                (0, Some(at)) => {
                    let versions = versions(&subject, at);
                    let pins = versions.iter().map(|version| Pin::new(&subject, &table, at, *version)).collect();
                    let seen = said(&subject, &table, at, &versions);
                    readers.push((pins, at, versions, seen));
                }
                (1, _) if !readers.is_empty() => {
                    let at = usize::from(written.key) % readers.len();
                    leave(&mut readers, at);
                }
                (3, _) => {
                    subject.apply(&table, &mutation, None);
                    plain.apply(&table, &mutation, None);
                }
                _ => {
                    subject.apply_in_steps(&table, &mutation, None);
                    plain.apply(&table, &mutation, None);
                }
            }
        }
        while !readers.is_empty() {
            leave(&mut readers, 0);
        }
        prop_assert_eq!(subject.partition_count(), plain.partition_count());
        for key in 0..3 {
            let (Some(at), Some(beside)) = (find(&subject, key), find(&plain, key)) else { continue };
            // Each pin that goes moves a few hundred rows.
            for _ in 0..ops.len() * 2 {
                let version = versions(&subject, at)[0];
                drop(Pin::new(&subject, &table, at, version));
            }
            let left = versions(&subject, at);
            prop_assert_eq!(left.len(), 1);
            let expected = said(&plain, &table, beside, &versions(&plain, beside));
            prop_assert_eq!(said(&subject, &table, at, &left), expected);
        }
        drop(subject);
        prop_assert_eq!(budget.used(), 0);
    }
}
