//! The table of benches that write table files: a key of eight bytes, one value, and no two rows alike.

use std::collections::BTreeMap;

use model::deletion::{DeletionTime, Liveness, NO_LOCAL_TIME};
use model::mutation::MutationBuilder;
use model::partition_key::DecoratedKey;
use model::row::{CellKind, CellView, RowBuilder};
use model::schema::{Column, ColumnId, ColumnKind, TableDefinition, TableId, TableOptions};
use model::types::CqlType;

/// The keyspace of the table.
pub(super) const KEYSPACE: &str = "ks";
/// The id of the table.
pub(super) const TABLE: TableId = TableId([7; 16]);
/// The column of the value.
pub(super) const VALUE: ColumnId = ColumnId(1);

/// `ks.cf (key blob PRIMARY KEY, value blob)`, one tablet.
pub(super) fn definition() -> TableDefinition {
    let column = |id, name: &str, kind| Column {
        id,
        name: name.to_owned(),
        ty: CqlType::Blob,
        kind,
        position: 0,
        reversed: false,
    };
    TableDefinition {
        id: TABLE,
        keyspace: KEYSPACE.to_owned(),
        name: "cf".to_owned(),
        columns: vec![
            column(ColumnId(0), "key", ColumnKind::PartitionKey),
            column(VALUE, "value", ColumnKind::Regular),
        ],
        dropped: BTreeMap::new(),
        options: TableOptions::default(),
        next_column_id: 2,
        tablets_log2: 0,
        revision: 0,
    }
}

/// The partition key with this number.
pub(super) fn key(number: u64) -> DecoratedKey {
    DecoratedKey::new(number.to_be_bytes().to_vec())
}

/// Appends the row of key `number`, written at `timestamp`: one half of its value is noise, the other is
/// constant.
pub(super) fn append_row(out: &mut Vec<u8>, number: u64, timestamp: i64, value: &mut [u8]) {
    let mut noise = number ^ timestamp as u64;
    let (random, plain) = value.split_at_mut(value.len() / 2);
    for byte in random {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (noise >> 56) as u8;
    }
    plain.fill(b'v');
    let liveness = Liveness { timestamp, ttl: 0, expires_at: NO_LOCAL_TIME };
    let mut builder = RowBuilder::new(out, liveness, DeletionTime::LIVE);
    builder.cell(CellView { column: VALUE, timestamp, path: None, kind: CellKind::Live(value) });
    builder.finish();
}

/// Replaces `out` by the mutation that writes that row.
pub(super) fn mutation(out: &mut Vec<u8>, number: u64, timestamp: i64, value: &mut [u8]) {
    out.clear();
    let key = key(number);
    let mut rows = MutationBuilder::new(out, TABLE, key.token, &key.key, DeletionTime::LIVE, |_| {}).rows();
    rows.row(&[], |out| append_row(out, number, timestamp, value));
    rows.finish();
}
