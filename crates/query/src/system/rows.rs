//! Rows of a virtual table, made for one read: takes values by column name, gives flat rows in the table's
//! order.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::collection::{CollectionBuilder, append_element};
use model::partition_key::compare_decorated;
use model::row::{CellKind, CellView};
use model::{Column, ColumnId, ColumnKind, CqlType, DeletionTime, Liveness, RowBuilder, Table, Token};
use model::{clustering, partition_key, token};

/// Timestamp of every cell: a virtual row was never written.
const TIMESTAMP: i64 = 0;

/// Rows of one table, by partition and clustering.
pub(super) struct Rows<'t> {
    table: &'t Table,
    partitions: Vec<Partition>,
}

/// One partition.
pub(super) struct Partition {
    pub(super) token: Token,
    pub(super) key: Vec<u8>,
    /// Clustering and flat row of each row; `Rows::finish` sorts them.
    pub(super) rows: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A row under construction. Values are checked against the column's type, so tests notice if a definition
/// and the code that fills it diverge.
pub(super) struct RowDraft<'t> {
    table: &'t Table,
    values: BTreeMap<ColumnId, Value>,
}

enum Value {
    One(Vec<u8>),
    /// Cells of a collection: path and value, sorted by path.
    Cells(BTreeMap<Vec<u8>, Vec<u8>>),
}

impl<'t> Rows<'t> {
    pub(super) fn new(table: &'t Table) -> Self {
        Self { table, partitions: Vec::new() }
    }

    /// Whether the table has a column of this name.
    pub(super) fn has_column(&self, name: &str) -> bool {
        self.table.column(name).is_some()
    }

    /// Adds the row that `fill` describes.
    pub(super) fn row(&mut self, fill: impl FnOnce(&mut RowDraft<'t>)) {
        let mut draft = RowDraft { table: self.table, values: BTreeMap::new() };
        fill(&mut draft);
        let (key, clustering, row) = draft.finish();
        let same = self.partitions.last_mut().filter(|partition| partition.key == key);
        match same {
            Some(partition) => partition.rows.push((clustering, row)),
            None => self.partitions.push(Partition {
                token: token::murmur3_token(&key),
                key,
                rows: vec![(clustering, row)],
            }),
        }
    }

    /// All rows: partitions sorted by token, rows by clustering.
    pub(super) fn finish(mut self) -> Vec<Partition> {
        self.partitions.sort_by(|a, b| compare_decorated((a.token, &a.key), (b.token, &b.key)));
        let mut merged: Vec<Partition> = Vec::with_capacity(self.partitions.len());
        for mut partition in self.partitions {
            match merged.last_mut().filter(|last| last.key == partition.key) {
                Some(last) => last.rows.append(&mut partition.rows),
                None => merged.push(partition),
            }
        }
        let orders = self.table.clustering_orders();
        for partition in &mut merged {
            partition.rows.sort_by(|(a, _), (b, _)| clustering::compare_clusterings(orders, a, b));
        }
        merged
    }
}

impl RowDraft<'_> {
    fn column(&self, name: &str) -> &Column {
        let table = self.table;
        let column = table.column(name);
        column.unwrap_or_else(|| panic!("{}.{} has no column {name}", table.keyspace(), table.name()))
    }

    fn put(&mut self, name: &str, value: Vec<u8>, is_type: impl FnOnce(&CqlType) -> bool) {
        let column = self.column(name);
        assert!(is_type(&column.ty), "{name} is of type {}", column.ty);
        let id = column.id;
        self.values.insert(id, Value::One(value));
    }

    pub(super) fn text(&mut self, name: &str, value: &str) {
        self.put(name, value.as_bytes().to_vec(), |ty| *ty == CqlType::Text);
    }

    pub(super) fn int(&mut self, name: &str, value: i32) {
        self.put(name, value.to_be_bytes().to_vec(), |ty| *ty == CqlType::Int);
    }

    pub(super) fn bigint(&mut self, name: &str, value: i64) {
        self.put(name, value.to_be_bytes().to_vec(), |ty| *ty == CqlType::Bigint);
    }

    pub(super) fn timeuuid(&mut self, name: &str, value: [u8; 16]) {
        self.put(name, value.to_vec(), |ty| *ty == CqlType::Timeuuid);
    }

    pub(super) fn double(&mut self, name: &str, value: f64) {
        self.put(name, value.to_be_bytes().to_vec(), |ty| *ty == CqlType::Double);
    }

    pub(super) fn boolean(&mut self, name: &str, value: bool) {
        self.put(name, vec![u8::from(value)], |ty| *ty == CqlType::Boolean);
    }

    pub(super) fn blob(&mut self, name: &str, value: &[u8]) {
        self.put(name, value.to_vec(), |ty| *ty == CqlType::Blob);
    }

    /// Milliseconds since the epoch.
    pub(super) fn timestamp(&mut self, name: &str, value: i64) {
        self.put(name, value.to_be_bytes().to_vec(), |ty| *ty == CqlType::Timestamp);
    }

    pub(super) fn uuid(&mut self, name: &str, value: [u8; 16]) {
        self.put(name, value.to_vec(), |ty| *ty == CqlType::Uuid);
    }

    pub(super) fn inet(&mut self, name: &str, value: IpAddr) {
        let bytes = match value {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        self.put(name, bytes, |ty| *ty == CqlType::Inet);
    }

    /// A frozen map of texts; the entries must be sorted by key.
    pub(super) fn map<'v>(&mut self, name: &str, entries: impl IntoIterator<Item = (&'v str, &'v [u8])>) {
        let mut value = Vec::new();
        let mut builder = CollectionBuilder::begin(&mut value);
        for (key, entry) in entries {
            builder.push(key.as_bytes());
            builder.push(entry);
        }
        builder.finish_map();
        self.put(name, value, |ty| matches!(ty, CqlType::Map { frozen: true, .. }));
    }

    /// A frozen set or list of texts; the elements of a set must be sorted.
    pub(super) fn texts<'v>(&mut self, name: &str, elements: impl IntoIterator<Item = &'v str>) {
        let mut value = Vec::new();
        let mut builder = CollectionBuilder::begin(&mut value);
        for element in elements {
            builder.push(element.as_bytes());
        }
        builder.finish();
        self.put(name, value, |ty| {
            matches!(ty, CqlType::Set { frozen: true, .. } | CqlType::List { frozen: true, .. })
        });
    }

    /// A frozen list of replicas, each a host's id and a shard.
    pub(super) fn replicas(&mut self, name: &str, replicas: impl IntoIterator<Item = ([u8; 16], usize)>) {
        let mut value = Vec::new();
        let mut builder = CollectionBuilder::begin(&mut value);
        for (host, shard) in replicas {
            let mut replica = Vec::new();
            append_element(&mut replica, Some(&host));
            let shard = i32::try_from(shard).unwrap_or(i32::MAX);
            append_element(&mut replica, Some(&shard.to_be_bytes()));
            builder.push(&replica);
        }
        builder.finish();
        self.put(name, value, |ty| matches!(ty, CqlType::List { frozen: true, .. }));
    }

    /// A set of texts that is not frozen.
    pub(super) fn cells_of_set(&mut self, name: &str, elements: impl IntoIterator<Item = String>) {
        let column = self.column(name);
        assert!(matches!(column.ty, CqlType::Set { frozen: false, .. }), "{name} is of type {}", column.ty);
        let id = column.id;
        let cells = elements.into_iter().map(|element| (element.into_bytes(), Vec::new())).collect();
        self.values.insert(id, Value::Cells(cells));
    }

    /// A map from int to bigint that is not frozen.
    pub(super) fn cells_of_counts(&mut self, name: &str, entries: impl IntoIterator<Item = (i32, i64)>) {
        let column = self.column(name);
        assert!(matches!(column.ty, CqlType::Map { frozen: false, .. }), "{name} is of type {}", column.ty);
        let id = column.id;
        let cells = entries
            .into_iter()
            .map(|(number, count)| (number.to_be_bytes().to_vec(), count.to_be_bytes().to_vec()))
            .collect();
        self.values.insert(id, Value::Cells(cells));
    }

    fn finish(self) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let one = |column: &Column| match self.values.get(&column.id) {
            Some(Value::One(value)) => value.as_slice(),
            _ => panic!("a made-up row has no {}", column.name),
        };
        let mut key = Vec::new();
        let parts = self.table.partition_key();
        for column in parts {
            partition_key::append_component(&mut key, parts.len(), one(column))
                .expect("names and addresses fit a key");
        }
        let mut clustering = Vec::new();
        for column in self.table.clustering() {
            clustering::append_component(&mut clustering, Some(one(column)));
        }
        let liveness = Liveness { timestamp: TIMESTAMP, ..Liveness::NONE };
        let mut row = Vec::new();
        let mut builder = RowBuilder::new(&mut row, liveness, DeletionTime::LIVE);
        for (id, value) in &self.values {
            let column = self.table.column_by_id(*id).expect("put by the column's own id");
            if column.kind != ColumnKind::Regular {
                continue;
            }
            let cell = |path, value| CellView {
                column: *id,
                timestamp: TIMESTAMP,
                path,
                kind: CellKind::Live(value),
            };
            match value {
                Value::One(value) => builder.cell(cell(None, value)),
                Value::Cells(cells) => {
                    for (path, value) in cells {
                        builder.cell(cell(Some(path), value));
                    }
                }
            }
        }
        builder.finish();
        (key, clustering, row)
    }
}
