//! Random writes of every kind to one wide table, with timestamps in any order, so that what shadows comes
//! before what is shadowed as often as behind it, and equal timestamps are frequent.
#![allow(clippy::disallowed_types, reason = "proptest's macros name Arc")]

use std::collections::BTreeMap;

use model::clustering::{OwnedPosition, append_component};
use model::deletion::{LocalSeconds, NO_LOCAL_TIME};
use model::mutation::MutationBuilder;
use model::partition_key::DecoratedKey;
use model::row::{CellKind, CellView};
use model::schema::{KeyspaceOptions, SchemaChange, TableDefinition, TableOptions};
use model::{Column, ColumnId, ColumnKind, CqlType, DeletionTime, Liveness, RowBuilder, Table, TableId};
use proptest::prelude::*;

pub(crate) const KEYS: u8 = 3;
pub(crate) const FIRST: i32 = 3;
pub(crate) const SECOND: i32 = 3;

/// Local times lie behind the clock of a test, so that no compaction purges or expires anything.
pub(crate) const BASE: LocalSeconds = 2_000_000_000;
/// Seconds behind `BASE` in which data expires.
pub(crate) const SPAN: u32 = 20;

/// An end of a range: before (−1) or behind (1) the rows that start with one or two column values.
pub(crate) type Bound = (i32, Option<i32>, i8);

#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) key: u8,
    pub(crate) timestamp: i64,
    /// Local time of deletions, or of expiry, counted from `base`.
    pub(crate) local: u32,
    pub(crate) base: LocalSeconds,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// Marker and value of a row, with a TTL or without.
    Insert(i32, i32, u8, bool),
    Value(i32, i32, Option<u8>, bool),
    Put(i32, i32, u8, Option<u8>),
    Replace(i32, i32, Vec<u8>),
    DeleteRow(i32, i32),
    DeleteRange(Bound, Bound),
    Static(Option<u8>, bool),
    DeletePartition,
}

pub(crate) fn bound() -> impl Strategy<Value = Bound> {
    (-1..=FIRST, proptest::option::of(-1..=SECOND), prop_oneof![Just(-1i8), Just(1i8)])
}

fn kind() -> impl Strategy<Value = Kind> {
    let row = || (0..FIRST, 0..SECOND);
    prop_oneof![
        6 => (row(), any::<u8>(), any::<bool>()).prop_map(|((a, b), v, ttl)| Kind::Insert(a, b, v, ttl)),
        5 => (row(), any::<Option<u8>>(), any::<bool>()).prop_map(|((a, b), v, ttl)| Kind::Value(a, b, v, ttl)),
        4 => (row(), 0..3u8, any::<Option<u8>>()).prop_map(|((a, b), k, v)| Kind::Put(a, b, k, v)),
        2 => (row(), proptest::collection::vec(0..3u8, 0..3)).prop_map(|((a, b), e)| Kind::Replace(a, b, e)),
        2 => row().prop_map(|(a, b)| Kind::DeleteRow(a, b)),
        4 => (bound(), bound()).prop_map(|(from, to)| Kind::DeleteRange(from, to)),
        2 => (any::<Option<u8>>(), any::<bool>()).prop_map(|(v, ttl)| Kind::Static(v, ttl)),
        1 => Just(Kind::DeletePartition),
    ]
}

pub(crate) fn write() -> impl Strategy<Value = Write> {
    // Half the deletions of a partition come early, or little would be left to see.
    (0..KEYS, 1..30i64, 0..SPAN, kind()).prop_map(|(key, timestamp, local, kind)| {
        let early = matches!(kind, Kind::DeletePartition) && local % 2 == 0;
        Write { key, timestamp: if early { timestamp / 6 } else { timestamp }, local, base: BASE, kind }
    })
}

/// Writes without deletions and expiring data, whose files a scan reads on a road of its own.
pub(crate) fn value() -> impl Strategy<Value = Write> {
    let row = || (0..FIRST, 0..SECOND);
    let kind = prop_oneof![
        4 => (row(), any::<u8>()).prop_map(|((a, b), v)| Kind::Insert(a, b, v, false)),
        2 => (row(), any::<u8>()).prop_map(|((a, b), v)| Kind::Value(a, b, Some(v), false)),
        2 => (row(), 0..3u8, any::<u8>()).prop_map(|((a, b), k, v)| Kind::Put(a, b, k, Some(v))),
        1 => any::<u8>().prop_map(|v| Kind::Static(Some(v), false)),
    ];
    (0..KEYS, 1..30i64, kind).prop_map(|(key, timestamp, kind)| Write {
        key,
        timestamp,
        local: 0,
        base: BASE,
        kind,
    })
}

pub(crate) fn prefix(a: i32, b: Option<i32>) -> Vec<u8> {
    let mut bytes = Vec::new();
    append_component(&mut bytes, Some(&a.to_be_bytes()));
    if let Some(b) = b {
        append_component(&mut bytes, Some(&b.to_be_bytes()));
    }
    bytes
}

pub(crate) fn position((a, b, weight): &Bound) -> OwnedPosition {
    OwnedPosition { prefix: prefix(*a, *b), weight: *weight }
}

fn definition(id: TableId) -> TableDefinition {
    let column = |id: u16, name: &str, ty, kind, position, reversed| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        ty,
        kind,
        position,
        reversed,
    };
    let map = CqlType::Map { key: Box::new(CqlType::Blob), value: Box::new(CqlType::Blob), frozen: false };
    TableDefinition {
        id,
        keyspace: "k".to_owned(),
        name: format!("t{}", id.0[0]),
        columns: vec![
            column(0, "p", CqlType::Blob, ColumnKind::PartitionKey, 0, false),
            column(1, "a", CqlType::Int, ColumnKind::Clustering, 0, false),
            column(2, "b", CqlType::Int, ColumnKind::Clustering, 1, true),
            column(3, "s", CqlType::Blob, ColumnKind::Static, 0, false),
            column(4, "v", CqlType::Blob, ColumnKind::Regular, 0, false),
            column(5, "m", map, ColumnKind::Regular, 0, false),
        ],
        dropped: BTreeMap::new(),
        // Compactions forget whatever they may.
        options: TableOptions { gc_grace_seconds: 0, ..TableOptions::default() },
        next_column_id: 6,
        tablets_log2: 1,
        revision: 0,
    }
}

/// A keyspace with a table for each id.
pub(crate) fn changes(ids: &[TableId]) -> Vec<SchemaChange> {
    let options = KeyspaceOptions { replication: BTreeMap::new(), durable_writes: true, tablets: None };
    let mut changes = vec![SchemaChange::CreateKeyspace { name: "k".to_owned(), options }];
    changes.extend(ids.iter().map(|id| SchemaChange::CreateTable(Box::new(definition(*id)))));
    changes
}

impl Write {
    fn cell(&self, row: &mut RowBuilder<'_>, column: u16, path: Option<&[u8]>, value: Option<u8>, ttl: bool) {
        let bytes = value.map(|value| vec![value; usize::from(value % 5)]);
        let local_time = self.base + self.local;
        let kind = match &bytes {
            Some(value) if ttl => CellKind::Expiring { value, ttl: 7, expires_at: local_time },
            Some(value) => CellKind::Live(value),
            None => CellKind::Tombstone { local_time },
        };
        row.cell(CellView { column: ColumnId(column), timestamp: self.timestamp, path, kind });
    }

    fn fill(&self, row: &mut RowBuilder<'_>) {
        match &self.kind {
            Kind::Insert(_, _, value, ttl) => self.cell(row, 4, None, Some(*value), *ttl),
            Kind::Value(_, _, value, ttl) => self.cell(row, 4, None, *value, *ttl),
            Kind::Put(_, _, path, value) => self.cell(row, 5, Some(&[*path]), *value, false),
            Kind::Replace(_, _, entries) => {
                let timestamp = self.timestamp - 1;
                let kind = CellKind::CollectionDeletion { local_time: self.base + self.local };
                row.cell(CellView { column: ColumnId(5), timestamp, path: None, kind });
                let mut paths = entries.clone();
                paths.sort_unstable();
                paths.dedup();
                paths.iter().for_each(|path| self.cell(row, 5, Some(&[*path]), Some(*path), false));
            }
            Kind::Static(value, ttl) => self.cell(row, 3, None, *value, *ttl),
            Kind::DeleteRow(..) | Kind::DeleteRange(..) | Kind::DeletePartition => {}
        }
    }

    /// The bytes of the write to one of the tables.
    pub(crate) fn mutation(&self, table: &Table) -> Vec<u8> {
        let key = DecoratedKey::new(vec![self.key]);
        let (timestamp, local_time) = (self.timestamp, self.base + self.local);
        let (deletion, live) = (DeletionTime { timestamp, local_time }, DeletionTime::LIVE);
        let whole = if matches!(self.kind, Kind::DeletePartition) { deletion } else { live };
        let mut out = Vec::new();
        let mut builder = MutationBuilder::new(&mut out, table.id(), key.token, &key.key, whole, |out| {
            if matches!(self.kind, Kind::Static(..)) {
                let mut row = RowBuilder::new(out, Liveness::NONE, live);
                self.fill(&mut row);
                row.finish();
            }
        });
        if let Kind::DeleteRange(from, to) = &self.kind {
            let (from, to) = (position(from), position(to));
            if from.as_ref().compare(to.as_ref(), table.clustering_orders()).is_lt() {
                builder.range_tombstone(from.as_ref(), to.as_ref(), deletion);
            }
        }
        let mut rows = builder.rows();
        if let Kind::Insert(a, b, ..)
        | Kind::Value(a, b, ..)
        | Kind::Put(a, b, ..)
        | Kind::Replace(a, b, ..)
        | Kind::DeleteRow(a, b) = &self.kind
        {
            rows.row(&prefix(*a, Some(*b)), |out| {
                let marker = match self.kind {
                    Kind::Insert(.., true) => Liveness { timestamp, ttl: 7, expires_at: local_time },
                    Kind::Insert(.., false) => Liveness { timestamp, ttl: 0, expires_at: NO_LOCAL_TIME },
                    _ => Liveness::NONE,
                };
                let of_row = if matches!(self.kind, Kind::DeleteRow(..)) { deletion } else { live };
                let mut row = RowBuilder::new(out, marker, of_row);
                self.fill(&mut row);
                row.finish();
            });
        }
        rows.finish();
        out
    }
}
