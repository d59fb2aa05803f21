//! One table: its columns by role and by id.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use minicbor::{Decode, Encode};

use super::{CompactShape, TableOptions, codec};
use crate::clustering::ClusteringOrder;
use crate::compare::compare;
use crate::tablet::TabletMap;
use crate::types::CqlType;

/// Identity of a table, for ever: a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub [u8; 16]);

impl std::fmt::Display for TableId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        uuid::Uuid::from_bytes(self.0).fmt(f)
    }
}

/// Number of a column within its table; given once, never again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct ColumnId(#[n(0)] pub u16);

/// The role of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum ColumnKind {
    /// Part of the partition key.
    #[n(0)]
    PartitionKey,
    /// Part of the clustering key.
    #[n(1)]
    Clustering,
    /// One value for the whole partition.
    #[n(2)]
    Static,
    /// One value for each row.
    #[n(3)]
    Regular,
}

/// One column.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Column {
    /// Identity within the table.
    #[n(0)]
    pub id: ColumnId,
    /// Name, case as stored.
    #[n(1)]
    pub name: String,
    /// Type.
    #[n(2)]
    #[cbor(with = "codec::cql_type")]
    pub ty: CqlType,
    /// Role.
    #[n(3)]
    pub kind: ColumnKind,
    /// Index among the columns of the partition key or of the clustering key; 0 for other columns.
    #[n(4)]
    pub position: u16,
    /// Whether a clustering column is kept descending.
    #[n(5)]
    pub reversed: bool,
}

/// A column that was dropped: older cells with its id or name are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct DroppedColumn {
    /// The column as it was.
    #[n(0)]
    pub column: Column,
    /// Cells with a timestamp at or before this are gone, in microseconds.
    #[n(1)]
    pub dropped_at_us: i64,
}

/// The stored definition of a table; [`Table`] adds data derived from it.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct TableDefinition {
    /// Identity.
    #[n(0)]
    #[cbor(with = "codec::table_id")]
    pub id: TableId,
    /// Keyspace it is in.
    #[n(1)]
    pub keyspace: String,
    /// Name, case as stored.
    #[n(2)]
    pub name: String,
    /// Columns in any order.
    #[n(3)]
    pub columns: Vec<Column>,
    /// Columns it once had, by name.
    #[n(4)]
    pub dropped: BTreeMap<String, DroppedColumn>,
    /// Everything after WITH.
    #[n(5)]
    pub options: TableOptions,
    /// The id the next column gets.
    #[n(6)]
    pub next_column_id: u16,
    /// Power of two of its tablets.
    #[n(7)]
    pub tablets_log2: u8,
    /// Grows with each alteration.
    #[n(8)]
    pub revision: u64,
}

/// A table at one revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    definition: TableDefinition,
    partition_key: Vec<Column>,
    clustering: Vec<Column>,
    orders: Vec<ClusteringOrder>,
    statics: Vec<Column>,
    regulars: Vec<Column>,
    by_name: BTreeMap<String, (ColumnKind, usize)>,
    by_id: Vec<Option<(ColumnKind, usize)>>,
}

impl Table {
    /// Derives lookups from a definition. Static and regular columns are put in Cassandra's order: those of
    /// one cell before those of several, each by name. `SELECT *` and table files use it.
    pub fn new(definition: TableDefinition) -> Self {
        let of = |kind| {
            let mut columns: Vec<Column> =
                definition.columns.iter().filter(|column| column.kind == kind).cloned().collect();
            match kind {
                ColumnKind::PartitionKey | ColumnKind::Clustering => columns.sort_by_key(|c| c.position),
                ColumnKind::Static | ColumnKind::Regular => columns.sort_by(|a, b| {
                    a.ty.is_multi_cell().cmp(&b.ty.is_multi_cell()).then_with(|| a.name.cmp(&b.name))
                }),
            }
            columns
        };
        let mut table = Self {
            partition_key: of(ColumnKind::PartitionKey),
            clustering: of(ColumnKind::Clustering),
            statics: of(ColumnKind::Static),
            regulars: of(ColumnKind::Regular),
            orders: Vec::new(),
            by_name: BTreeMap::new(),
            by_id: vec![None; usize::from(definition.next_column_id)],
            definition,
        };
        table.orders = table
            .clustering
            .iter()
            .map(|column| ClusteringOrder { ty: column.ty.clone(), reversed: column.reversed })
            .collect();
        for kind in
            [ColumnKind::PartitionKey, ColumnKind::Clustering, ColumnKind::Static, ColumnKind::Regular]
        {
            let entries: Vec<_> = table.columns_of(kind).iter().map(|c| (c.name.clone(), c.id)).collect();
            for (at, (name, id)) in entries.into_iter().enumerate() {
                table.by_name.insert(name, (kind, at));
                let slot = usize::from(id.0);
                if slot >= table.by_id.len() {
                    table.by_id.resize(slot + 1, None);
                }
                table.by_id[slot] = Some((kind, at));
            }
        }
        table
    }

    /// The stored definition.
    pub fn definition(&self) -> &TableDefinition {
        &self.definition
    }

    /// Identity.
    pub fn id(&self) -> TableId {
        self.definition.id
    }

    /// Keyspace it is in.
    pub fn keyspace(&self) -> &str {
        &self.definition.keyspace
    }

    /// Name, case as stored.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Everything after WITH.
    pub fn options(&self) -> &TableOptions {
        &self.definition.options
    }

    /// How its token ring is cut.
    pub fn tablets(&self) -> TabletMap {
        TabletMap::new(self.definition.tablets_log2)
    }

    /// Columns of one role: keys by position; other columns with those of one cell first, then by name.
    pub fn columns_of(&self, kind: ColumnKind) -> &[Column] {
        match kind {
            ColumnKind::PartitionKey => &self.partition_key,
            ColumnKind::Clustering => &self.clustering,
            ColumnKind::Static => &self.statics,
            ColumnKind::Regular => &self.regulars,
        }
    }

    /// Columns of the partition key, in order.
    pub fn partition_key(&self) -> &[Column] {
        &self.partition_key
    }

    /// Columns of the clustering key, in order.
    pub fn clustering(&self) -> &[Column] {
        &self.clustering
    }

    /// Types and directions of the clustering key.
    pub fn clustering_orders(&self) -> &[ClusteringOrder] {
        &self.orders
    }

    /// Static columns, those of one cell first, then by name.
    pub fn statics(&self) -> &[Column] {
        &self.statics
    }

    /// Regular columns, those of one cell first, then by name.
    pub fn regulars(&self) -> &[Column] {
        &self.regulars
    }

    /// All columns in the order of `SELECT *`: partition key, clustering, static, regular.
    pub fn columns(&self) -> impl Iterator<Item = &Column> {
        self.partition_key.iter().chain(&self.clustering).chain(&self.statics).chain(&self.regulars)
    }

    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        let (kind, at) = *self.by_name.get(name)?;
        Some(&self.columns_of(kind)[at])
    }

    /// The column with that id; `None` if it was dropped.
    #[inline]
    pub fn column_by_id(&self, id: ColumnId) -> Option<&Column> {
        let (kind, at) = (*self.by_id.get(usize::from(id.0))?)?;
        Some(&self.columns_of(kind)[at])
    }

    /// Whether the table has COMPACT STORAGE, and how.
    #[inline]
    pub fn compact(&self) -> Option<CompactShape> {
        self.definition.options.compact
    }

    /// Whether the column is hidden from statements: COMPACT STORAGE adds such columns.
    #[inline]
    pub fn hides(&self, column: &Column) -> bool {
        match self.definition.options.compact {
            None => false,
            Some(CompactShape::Static) => {
                matches!(column.kind, ColumnKind::Clustering | ColumnKind::Regular)
            }
            Some(CompactShape::Dense) => column.kind == ColumnKind::Regular && column.ty == CqlType::Empty,
        }
    }

    /// Whether any column holds counters.
    pub fn is_counter(&self) -> bool {
        // Counters and other columns never share a table, so one column decides; every read calls this.
        self.regulars.first().or(self.statics.first()).is_some_and(|column| column.ty.is_counter())
    }

    /// Order of two paths within a non-frozen column: list time UUIDs, set elements, map keys, field indexes.
    pub fn compare_paths(&self, column: ColumnId, a: &[u8], b: &[u8]) -> Ordering {
        match self.column_by_id(column).and_then(|column| column.ty.cell_path_type()) {
            Some(ty) => compare(ty, a, b),
            None => a.cmp(b),
        }
    }
}
