//! The tables of the simulation: two clustering columns (one descending), a static, two regular columns and a
//! map.

use std::collections::BTreeMap;
use std::rc::Rc;

use model::clustering::{Position, append_component};
use model::deletion::Liveness;
use model::mutation::MutationBuilder;
use model::row::{CellKind, CellView};
use model::schema::{DroppedColumn, TableDefinition, TableOptions};
use model::token::murmur3_token;
use model::{Column, ColumnId, ColumnKind, CqlType, DeletionTime, RowBuilder, Table, TableId, Token};

/// Column ids.
pub const STATIC: ColumnId = ColumnId(3);
/// The regular columns of one cell; the second may have been dropped and made again.
pub fn regulars(table: &Table) -> [ColumnId; 2] {
    ["a", "b"].map(|name| table.column(name).expect("a column of the table").id)
}

/// The second regular column as it was dropped last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// How often that happened.
    pub times: u16,
    /// Timestamp of the last time.
    pub at: i64,
}

/// The column that has a cell for each element of a map.
pub const MAP: ColumnId = ColumnId(6);

/// A clustering: ascending by the first, descending by the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row {
    /// First clustering column.
    pub outer: u8,
    /// Second clustering column, descending.
    pub inner: u8,
}

impl Row {
    /// What sorts rows as the table does.
    pub fn rank(self) -> (i16, i16) {
        (i16::from(self.outer), -i16::from(self.inner))
    }
}

/// A bound between rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// First component, if any.
    pub outer: Option<u8>,
    /// Second component, only with a first.
    pub inner: Option<u8>,
    /// Behind what starts with the components, or before it.
    pub behind: bool,
}

impl Bound {
    /// Whether the row stands behind the bound.
    pub fn is_before(self, row: Row) -> bool {
        let Some(outer) = self.outer else { return !self.behind };
        if row.outer != outer {
            return row.outer > outer;
        }
        let Some(inner) = self.inner else { return !self.behind };
        // Descending: the smaller value comes later.
        if row.inner == inner { !self.behind } else { row.inner < inner }
    }

    /// As storage knows it.
    pub fn prefix(self) -> Vec<u8> {
        let mut prefix = Vec::new();
        if let Some(outer) = self.outer {
            append_component(&mut prefix, Some(&i32::from(outer).to_be_bytes()));
            if let Some(inner) = self.inner {
                append_component(&mut prefix, Some(&i32::from(inner).to_be_bytes()));
            }
        }
        prefix
    }

    /// The position of the bound over its `prefix`.
    pub fn position(self, prefix: &[u8]) -> Position<'_> {
        if self.behind { Position::after(prefix) } else { Position::before(prefix) }
    }
}

/// Bytes of a clustering.
pub fn clustering(row: Row) -> Vec<u8> {
    Bound { outer: Some(row.outer), inner: Some(row.inner), behind: false }.prefix()
}

/// A clustering from its bytes.
pub fn parse_clustering(bytes: &[u8]) -> Row {
    let mut parts = model::Clustering(bytes).components().map(|part| {
        let part = part.expect("no component is null");
        u8::try_from(i32::from_be_bytes(part.try_into().expect("four bytes"))).expect("a small number")
    });
    Row { outer: parts.next().expect("two components"), inner: parts.next().expect("two components") }
}

/// Partition key bytes.
pub fn key_bytes(key: u8) -> Vec<u8> {
    vec![b'k', key]
}

/// Token of a partition.
pub fn token(key: u8) -> Token {
    murmur3_token(&key_bytes(key))
}

/// A value: distinct for each write.
pub fn value(write: u32) -> Vec<u8> {
    let mut value = write.to_be_bytes().to_vec();
    // Some are long enough to fill chunks, and some for more than a segment of the commit log.
    let bytes = match write as usize {
        write if write.is_multiple_of(60) => write * 7919 % 90_000,
        write if write.is_multiple_of(50) => write * 37 % 9000,
        write => write * 37 % 60,
    };
    value.resize(4 + bytes, b'v');
    value
}

/// The definition of the table in slot `slot` with identity `id`, whose second regular column is as `dropped`
/// says.
pub fn definition(slot: usize, id: u128, dropped: Option<Dropped>) -> TableDefinition {
    let column = |id: u16, name: &str, ty, kind, position, reversed| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        ty,
        kind,
        position,
        reversed,
    };
    let times = dropped.map_or(0, |dropped| dropped.times);
    let second = |times: u16| {
        let id = if times == 0 { 5 } else { MAP.0 + times };
        column(id, "b", CqlType::Blob, ColumnKind::Regular, 0, false)
    };
    let before = dropped.map(|dropped| {
        let column = second(times - 1);
        ("b".to_owned(), DroppedColumn { column, dropped_at_us: dropped.at })
    });
    let mut options = TableOptions::default();
    if forgets(slot) {
        options.gc_grace_seconds = 0;
    }
    if slot == 2 {
        options.compression.clear();
    }
    options.compaction = compaction(id);
    TableDefinition {
        id: TableId(id.to_be_bytes()),
        keyspace: "sim".to_owned(),
        name: format!("t{slot}"),
        columns: vec![
            column(0, "pk", CqlType::Blob, ColumnKind::PartitionKey, 0, false),
            column(1, "outer", CqlType::Int, ColumnKind::Clustering, 0, false),
            column(2, "inner", CqlType::Int, ColumnKind::Clustering, 1, true),
            column(3, "s", CqlType::Blob, ColumnKind::Static, 0, false),
            column(4, "a", CqlType::Blob, ColumnKind::Regular, 0, false),
            second(times),
            column(6, "m", map(), ColumnKind::Regular, 0, false),
        ],
        dropped: before.into_iter().collect(),
        options,
        next_column_id: MAP.0 + 1 + times,
        tablets_log2: 2,
        revision: u64::from(times),
    }
}

/// Each strategy in its turn, with sizes so small that runs, levels and parts have several files.
fn compaction(id: u128) -> BTreeMap<String, String> {
    let options: &[(&str, &str)] = match id % 7 {
        0 => &[("class", "LeveledCompactionStrategy"), ("sstable_size_in_mb", "0.004"), ("fanout_size", "2")],
        1 => &[
            ("class", "IncrementalCompactionStrategy"),
            ("sstable_size_in_mb", "0.004"),
            ("min_threshold", "2"),
        ],
        2 => &[
            ("class", "UnifiedCompactionStrategy"),
            ("scaling_parameters", "L3, N"),
            ("target_sstable_size", "4KiB"),
            ("min_sstable_size", "0B"),
        ],
        3 => &[("class", "TimeWindowCompactionStrategy"), ("compaction_window_unit", "MINUTES")],
        4 => &[
            ("class", "IncrementalCompactionStrategy"),
            ("sstable_size_in_mb", "0.004"),
            ("min_sstable_size", "0"),
            ("space_amplification_goal", "1.2"),
        ],
        5 => &[
            ("class", "SizeTieredCompactionStrategy"),
            ("min_threshold", "2"),
            ("tombstone_compaction_interval", "1"),
            ("unchecked_tombstone_compaction", "true"),
            ("tombstone_threshold", "0.01"),
        ],
        _ => &[("class", "SizeTieredCompactionStrategy")],
    };
    options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn map() -> CqlType {
    CqlType::Map { key: Box::new(CqlType::Int), value: Box::new(CqlType::Blob), frozen: false }
}

/// Whether the table in a slot forgets tombstones at once; its writes then come in the order of their
/// timestamps.
pub fn forgets(slot: usize) -> bool {
    slot == 1
}

/// One part of a mutation.
#[derive(Debug, Clone)]
pub enum Change {
    /// The partition goes.
    DeletePartition,
    /// Rows between two bounds go.
    DeleteRange(Bound, Bound),
    /// A row goes.
    DeleteRow(Row),
    /// The static cell; `None` deletes it.
    Static {
        /// The value.
        written: Option<u32>,
        /// Time to live and when it ends.
        ttl: Option<(u32, u32)>,
    },
    /// Elements of a row's map.
    Map {
        /// Which row.
        row: Row,
        /// Whether what was in it before goes first.
        clears: bool,
        /// Elements by key, each once; `None` removes one.
        elements: Vec<(u8, Option<u32>)>,
    },
    /// A row's cells in the order of [`regulars`]; `None` deletes one.
    Cells {
        /// Which row.
        row: Row,
        /// Whether it is an INSERT.
        marker: bool,
        /// Cells.
        cells: [Option<Option<u32>>; 2],
        /// Time to live and when it ends.
        ttl: Option<(u32, u32)>,
    },
}

impl Change {
    /// Whether both cannot stand in one mutation.
    pub fn collides(&self, other: &Change) -> bool {
        matches!((self, other), (Self::Static { .. }, Self::Static { .. }))
    }
}

/// Mutation bytes of changes to one partition at one timestamp.
pub fn mutation(table: &Rc<Table>, key: u8, timestamp: i64, now: u32, changes: &[Change]) -> Vec<u8> {
    let deletion = DeletionTime { timestamp, local_time: now };
    let whole = changes.iter().any(|change| matches!(change, Change::DeletePartition));
    let written = changes.iter().find_map(|change| match change {
        Change::Static { written, ttl } => Some((*written, *ttl)),
        _ => None,
    });
    let mut out = Vec::new();
    let bytes = key_bytes(key);
    let mut builder = MutationBuilder::new(
        &mut out,
        table.id(),
        token(key),
        &bytes,
        if whole { deletion } else { DeletionTime::LIVE },
        |out| {
            if let Some((written, ttl)) = written {
                let value = written.map(value);
                let mut row = RowBuilder::new(out, Liveness::NONE, DeletionTime::LIVE);
                row.cell(cell(STATIC, timestamp, now, value.as_deref(), ttl));
                row.finish();
            }
        },
    );
    for change in changes {
        if let Change::DeleteRange(start, end) = change {
            let (from, to) = (start.prefix(), end.prefix());
            builder.range_tombstone(start.position(&from), end.position(&to), deletion);
        }
    }
    let mut rows = builder.rows();
    for change in changes {
        match change {
            Change::DeleteRow(row) => rows.row(&clustering(*row), |out| {
                RowBuilder::new(out, Liveness::NONE, deletion).finish();
            }),
            Change::Cells { row, marker, cells, ttl } => rows.row(&clustering(*row), |out| {
                let (ttl_seconds, expires_at) = ttl.unwrap_or((0, model::deletion::NO_LOCAL_TIME));
                let liveness = Liveness { timestamp, ttl: ttl_seconds, expires_at };
                let liveness = if *marker { liveness } else { Liveness::NONE };
                let mut row = RowBuilder::new(out, liveness, DeletionTime::LIVE);
                for (column, written) in regulars(table).iter().zip(cells) {
                    if let Some(written) = written {
                        let value = written.map(value);
                        row.cell(cell(*column, timestamp, now, value.as_deref(), *ttl));
                    }
                }
                row.finish();
            }),
            Change::Map { row, clears, elements } => rows.row(&clustering(*row), |out| {
                let mut row = RowBuilder::new(out, Liveness::NONE, DeletionTime::LIVE);
                if *clears {
                    // Just before what comes with it, as for a map that is set.
                    let kind = CellKind::CollectionDeletion { local_time: now };
                    row.cell(CellView { column: MAP, timestamp: timestamp - 1, path: None, kind });
                }
                for (element, written) in elements {
                    let (path, value) = (i32::from(*element).to_be_bytes(), written.map(value));
                    let plain = cell(MAP, timestamp, now, value.as_deref(), None);
                    row.cell(CellView { path: Some(&path), ..plain });
                }
                row.finish();
            }),
            Change::DeletePartition | Change::DeleteRange(..) | Change::Static { .. } => {}
        }
    }
    rows.finish();
    out
}

fn cell<'v>(
    column: ColumnId,
    timestamp: i64,
    now: u32,
    value: Option<&'v [u8]>,
    ttl: Option<(u32, u32)>,
) -> CellView<'v> {
    let kind = match (value, ttl) {
        (None, _) => CellKind::Tombstone { local_time: now },
        (Some(value), None) => CellKind::Live(value),
        (Some(value), Some((ttl, expires_at))) => CellKind::Expiring { value, ttl, expires_at },
    };
    CellView { column, timestamp, path: None, kind }
}
