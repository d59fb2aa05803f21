//! The definition of the table of promises, and its bytes.
//!
//! The table belongs to the node and not to the agreed schema: every shard opens it at each start, clients do
//! not see it, and it has no agreed map. Its partition key is the partition key of the clients' table, so
//! that both have the same token: the state of a tablet is a range of tokens. The table's id and
//! the version that truncated it last are its clustering. Invariant: the number of its tablets is the same at
//! every start, whatever the number of shards.

use std::collections::BTreeMap;
use std::rc::Rc;

use model::clustering::append_component;
use model::deletion::{EXPIRATION_MAX, LocalSeconds};
use model::mutation::append_one_row;
use model::row::{CellKind, CellView};
use model::schema::{TableDefinition, TableOptions};
use model::{Column, ColumnId, ColumnKind, CqlType, DeletionTime, Liveness, RowBuilder, RowView, Table};
use model::{TableId, Token};

use super::{PaxosCell, PaxosChange, PaxosState, PaxosTable};

/// The id of the table.
pub(crate) const TABLE: TableId = TableId(*b"ceto paxos state");
/// Power of two of its tablets: one for each shard of most machines.
const TABLETS_LOG2: u8 = 4;

/// Number of the column of a cell.
const fn column_of(cell: PaxosCell) -> ColumnId {
    ColumnId(match cell {
        PaxosCell::Promised => 2,
        PaxosCell::Accepted => 3,
        PaxosCell::Committed => 4,
    })
}

/// The table.
pub(crate) fn table() -> Rc<Table> {
    let column = |id: u16, name: &str, ty, kind| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        ty,
        kind,
        position: 0,
        reversed: false,
    };
    Rc::new(Table::new(TableDefinition {
        id: TABLE,
        keyspace: "system".to_owned(),
        name: "paxos".to_owned(),
        columns: vec![
            column(0, "row_key", CqlType::Blob, ColumnKind::PartitionKey),
            column(1, "cf_id", CqlType::Uuid, ColumnKind::Clustering),
            Column { position: 1, ..column(5, "truncated", CqlType::Bigint, ColumnKind::Clustering) },
            column(2, "promised", CqlType::Blob, ColumnKind::Regular),
            column(3, "accepted", CqlType::Blob, ColumnKind::Regular),
            column(4, "committed", CqlType::Blob, ColumnKind::Regular),
        ],
        dropped: BTreeMap::new(),
        // What it forgets nobody else has: its tombstones hide nothing behind a compaction.
        options: TableOptions { gc_grace_seconds: 0, ..TableOptions::default() },
        next_column_id: 6,
        tablets_log2: TABLETS_LOG2,
        revision: 0,
    }))
}

/// The clustering of a table's row.
pub(super) fn clustering(table: PaxosTable) -> Vec<u8> {
    let mut clustering = Vec::new();
    append_component(&mut clustering, Some(&table.id.0));
    append_component(&mut clustering, Some(&table.truncated.to_be_bytes()));
    clustering
}

/// The mutation that makes a change.
pub(super) fn mutation(
    (table, token, key): (PaxosTable, Token, &[u8]),
    change: &PaxosChange,
    now: LocalSeconds,
) -> Vec<u8> {
    let mut mutation = Vec::new();
    append_one_row(&mut mutation, TABLE, token, key, &clustering(table), |out| {
        let mut row = RowBuilder::new(out, Liveness::NONE, DeletionTime::LIVE);
        for (cell, value) in &change.cells {
            let expires_at = now.saturating_add(change.keep_seconds).min(EXPIRATION_MAX);
            let kind = match value {
                Some(value) => CellKind::Expiring { value, ttl: change.keep_seconds, expires_at },
                None => CellKind::Tombstone { local_time: now },
            };
            let column = column_of(*cell);
            row.cell(CellView { column, timestamp: change.timestamp, path: None, kind });
        }
        row.finish();
    });
    mutation
}

/// The state in a row.
pub(super) fn state_of(row: RowView<'_>) -> PaxosState {
    let value = |cell| row.cell(column_of(cell)).and_then(|cell| cell.value().map(<[u8]>::to_vec));
    PaxosState {
        promised: value(PaxosCell::Promised),
        accepted: value(PaxosCell::Accepted),
        committed: value(PaxosCell::Committed),
    }
}
