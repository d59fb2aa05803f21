//! Removes rows whose TTL column says that they have expired, some time after (see
//! [`statement::ddl::row_expiry`]).
//!
//! From time to time every shard scans its own tablets of the tables with such a column, in the background
//! group and page by page. A row is checked again when it is deleted, in one step with the deletion: a
//! client's write in between stays. (CQL: cql-extensions.md "Per-row TTL".)

use std::rc::Rc;
use std::time::Duration;

use model::{Column, Table};
use reactor::metrics::Counter;
use reactor::{Group, metrics};
use statement::ddl::plan::quote;
use statement::ddl::row_expiry::{column, unit_ms};
use wire::client::{ResponseBody, Rows, decode};
use wire::consistency::Consistency;
use wire::extensions::Extensions;
use wire::frame::{Flags, FrameHeader, Opcode};
use wire::protocol_error::ProtocolError;
use wire::request::QueryParameters;
use wire::values::Values;
use wire::version::ProtocolVersion;
use wire::writer::{append_bytes, append_short_length};

use crate::{ClientState, Engine, QueryError, Response};

/// Rows of one page.
const PAGE_ROWS: u32 = 1000;
const VERSION: ProtocolVersion = ProtocolVersion::LATEST;

/// Counters of a shard's passes.
struct Counters {
    passes: Rc<Counter>,
    deleted: Rc<Counter>,
}

impl Counters {
    fn new() -> Self {
        Self {
            passes: metrics::counter(
                "scylla_expiration_scan_passes",
                "Times all tables with a TTL column were gone through",
                &[],
            ),
            deleted: metrics::counter(
                "scylla_expiration_items_deleted",
                "Rows deleted because their TTL column said so",
                &[],
            ),
        }
    }
}

impl Engine {
    /// Removes expired rows of this shard every `period`, until it drains; never if the period is zero.
    pub fn start_row_expiry(&self, period: Duration) {
        if period.is_zero() {
            return;
        }
        let engine = self.clone();
        drop(reactor::spawn(Group::BACKGROUND, async move {
            while engine.storage().wait_unless_draining(period).await {
                let Some(hold) = engine.storage().enter() else { return };
                engine.expire_rows().await;
                drop(hold);
            }
        }));
    }

    /// Scans this shard's part of the tables with a TTL column once, and removes expired rows. A table that
    /// cannot be scanned is left for the next time, with a line in the log.
    pub async fn expire_rows(&self) {
        let counters = Counters::new();
        let schema = self.storage().schema();
        let tables = schema.tables().filter(|table| column(table.options()).is_some());
        let tables: Vec<_> = tables.cloned().collect();
        for table in tables {
            if let Err(error) = expire(self, &table, &counters).await {
                let name = format!("{}.{}", table.keyspace(), table.name());
                reactor::warn_limited!("expired rows of a table stay for now"; table = name, error = error);
            }
        }
        counters.passes.add(1);
    }
}

/// The statements that find and remove expired rows in one table.
struct Statements {
    /// Finds keys, between two tokens that are bound.
    select: String,
    /// Removes the row of a key.
    delete: String,
    key_columns: usize,
}

impl Statements {
    /// For rows whose TTL column is `now_ms` or earlier; `None` if the table has no such column.
    fn new(table: &Table, now_ms: i64) -> Option<Self> {
        let expiry = table.column(column(table.options())?)?;
        let now = now_ms.div_euclid(unit_ms(&expiry.ty)?);
        let names = |columns: &[Column]| -> Vec<String> {
            columns.iter().map(|column| quote(&column.name).into_owned()).collect()
        };
        let (partition, expiry) = (names(table.partition_key()), quote(&expiry.name));
        let token = format!("token({})", partition.join(", "));
        let key = [partition, names(table.clustering())].concat();
        let tests: Vec<String> = key.iter().map(|column| format!("{column} = ?")).collect();
        let table = format!("{}.{}", quote(table.keyspace()), quote(table.name()));
        Some(Self {
            select: format!(
                "SELECT {} FROM {table} WHERE {token} >= ? AND {token} <= ? AND {expiry} <= {now} ALLOW FILTERING \
                 BYPASS CACHE",
                key.join(", ")
            ),
            delete: format!("DELETE FROM {table} WHERE {} IF {expiry} <= {now}", tests.join(" AND ")),
            key_columns: key.len(),
        })
    }
}

async fn expire(engine: &Engine, table: &Table, counters: &Counters) -> Result<(), QueryError> {
    // One moment for the whole table: rows that expire meanwhile are removed the next time.
    let Some(statements) = Statements::new(table, reactor::wall_clock_us().div_euclid(1000)) else {
        return Ok(());
    };
    for tablet in engine.replicator().own_tablets(table) {
        let (first, last) = table.tablets().range(tablet);
        let bounds = [first.0.to_be_bytes(), last.0.to_be_bytes()];
        let bounds = encoded(bounds.iter().map(|token| Some(token.as_slice())));
        let mut state: Option<Vec<u8>> = None;
        loop {
            let parameters = QueryParameters {
                page_size: Some(PAGE_ROWS),
                paging_state: state.as_deref(),
                ..parameters(&bounds)?
            };
            let mut out = Response::default();
            let Some(rows) = ask(engine, &statements.select, &parameters, &mut out).await? else { break };
            let mut values = rows.values();
            for _ in 0..rows.row_count {
                let key = encoded(values.by_ref().take(statements.key_columns));
                if delete(engine, &statements.delete, &key).await? {
                    counters.deleted.add(1);
                }
            }
            match rows.paging_state {
                Some(next) if engine.storage().enter().is_some() => state = Some(next.to_vec()),
                _ => break,
            }
        }
    }
    Ok(())
}

/// Removes the row of a key; returns false if its TTL column was changed so that it has not expired.
async fn delete(engine: &Engine, statement: &str, key: &[u8]) -> Result<bool, QueryError> {
    let mut out = Response::default();
    let rows = ask(engine, statement, &parameters(key)?, &mut out).await?;
    Ok(rows.is_some_and(|rows| rows.values().next() == Some(Some(&[1]))))
}

/// The rows of a statement of the node's own; `None` if it has none.
async fn ask<'o>(
    engine: &Engine,
    statement: &str,
    parameters: &QueryParameters<'_>,
    out: &'o mut Response,
) -> Result<Option<Rows<'o>>, QueryError> {
    engine.query(&ClientState::internal(), statement, parameters, out).await?;
    let header = FrameHeader {
        version: VERSION,
        flags: Flags::default(),
        stream: 0,
        opcode: Opcode::Result,
        body_length: u32::try_from(out.body.len()).unwrap_or(u32::MAX),
    };
    match decode(&header, &out.body, &Extensions::default()).map_err(not_read)?.body {
        ResponseBody::Rows(rows) => Ok(Some(rows)),
        _ => Ok(None),
    }
}

fn parameters(values: &[u8]) -> Result<QueryParameters<'_>, QueryError> {
    let values = Values::decode(values, VERSION).map_err(not_read)?;
    Ok(QueryParameters { values, ..QueryParameters::at(Consistency::One, VERSION) })
}

/// Values as a request carries them: their number, then each with its length.
fn encoded<'v>(values: impl Iterator<Item = Option<&'v [u8]>>) -> Vec<u8> {
    let (mut count, mut bytes) = (0, Vec::new());
    for value in values {
        append_bytes(&mut bytes, value);
        count += 1;
    }
    let mut out = Vec::with_capacity(bytes.len() + 2);
    append_short_length(&mut out, count);
    out.extend_from_slice(&bytes);
    out
}

/// The error for an answer of this node to itself that cannot be parsed.
fn not_read(error: ProtocolError) -> QueryError {
    QueryError::Internal(error.to_string())
}
