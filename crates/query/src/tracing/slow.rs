//! Describes a slow request: for the log, and for `system_traces.node_slow_log`.

use std::time::Duration;

use cql::ast::{Modification, QualifiedName, Statement};
use statement::prepare::Plan;
use wire::consistency::Consistency;
use wire::request::{BatchKind, BatchStatementKind, Request};

use super::{STATEMENT_BYTES_MAX, bound_texts};
use crate::prepared::Prepared;
use crate::{ClientState, Engine, OneRow};

/// Longest text that is parsed for the names of its tables, in bytes.
const PARSED_BYTES_MAX: usize = 16 << 10;
/// Statements of a batch that a description shows.
const STATEMENTS_MAX: usize = 20;
/// Bound values that a line of the log shows.
const VALUES_MAX: usize = 20;

/// A slow request.
#[derive(Debug)]
pub struct SlowRequest {
    /// The beginning of its statement.
    pub text: String,
    /// The values bound to its markers, with their names, where they are known.
    pub values: String,
    /// Its tables with their keyspaces, each once.
    pub tables: Vec<String>,
    /// Its consistency level, if it has one.
    pub consistency: Option<Consistency>,
    /// Rows of its answer, if it has some, and whether more pages follow.
    pub rows: Option<(usize, bool)>,
    /// Tombstones that it passed.
    pub tombstones: u64,
    /// The error that was its answer.
    pub error: Option<String>,
}

impl SlowRequest {
    /// Describes a request.
    pub fn of(engine: &Engine, client: &ClientState, request: &Request<'_>) -> Self {
        let mut slow = Self {
            text: String::new(),
            values: String::new(),
            tables: Vec::new(),
            consistency: None,
            rows: None,
            tombstones: 0,
            error: None,
        };
        match request {
            Request::Query { query, parameters } => {
                slow.consistency = Some(parameters.consistency);
                slow.add_text(query);
                slow.add_tables_of(query, parameters.keyspace.or(client.keyspace.as_deref()));
            }
            Request::Prepare { query, keyspace } => {
                slow.add_text("PREPARE ");
                slow.add_text(query);
                slow.add_tables_of(query, keyspace.or(client.keyspace.as_deref()));
            }
            Request::Execute { id, parameters, .. } => {
                slow.consistency = Some(parameters.consistency);
                slow.add_prepared(engine, id);
                let values = bound_texts(engine, id, &parameters.values).into_iter().take(VALUES_MAX);
                let values: Vec<String> = values.map(|(name, text)| format!("{name}={text}")).collect();
                slow.values = beginning(&values.join(", ")).to_owned();
            }
            Request::Batch { kind, statements, parameters } => {
                slow.consistency = Some(parameters.consistency);
                slow.add_text(match kind {
                    BatchKind::Logged => "BEGIN BATCH ",
                    BatchKind::Unlogged => "BEGIN UNLOGGED BATCH ",
                    BatchKind::Counter => "BEGIN COUNTER BATCH ",
                });
                for part in statements.iter().take(STATEMENTS_MAX) {
                    match part.statement {
                        BatchStatementKind::Text(text) => {
                            slow.add_text(text);
                            slow.add_tables_of(text, parameters.keyspace.or(client.keyspace.as_deref()));
                        }
                        BatchStatementKind::Prepared(id) => slow.add_prepared(engine, id),
                    }
                    slow.add_text("; ");
                }
                slow.add_text(&format!("APPLY BATCH of {} statements", statements.len()));
            }
            Request::Options | Request::Startup(_) | Request::Register(_) | Request::AuthResponse(_) => {}
        }
        slow
    }

    /// Describes a request for one row that was answered on the quick road.
    pub fn of_row(row: &OneRow, consistency: Consistency) -> Self {
        let mut slow = Self {
            text: beginning(&row.statement.text).to_owned(),
            values: String::new(),
            tables: Vec::new(),
            consistency: Some(consistency),
            rows: None,
            tombstones: 0,
            error: None,
        };
        slow.add_tables(&row.statement.prepared);
        slow
    }

    /// Counts the request, and writes its line if it took longer than the log's limit.
    pub fn log(&self, engine: &Engine, client: &ClientState, took: Duration) {
        let watch = engine.watch();
        watch.slow.inc();
        if watch.log_after().is_none_or(|limit| took < limit) {
            return;
        }
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let (rows, more) = self.rows.map_or((None, None), |(rows, more)| (Some(rows), Some(more)));
        reactor::info_limited!(
            "slow request: {}", self.text;
            took_ms = format!("{:.1}", took.as_secs_f64() * 1000.0),
            tables = self.tables.join(","),
            values = self.values,
            consistency = self.consistency.map_or("-", Consistency::name),
            client = or_none(client.peer.map(|peer| peer.to_string())),
            user = client.user,
            rows = or_none(rows.map(|rows| rows.to_string())),
            more_pages = or_none(more.map(|more| more.to_string())),
            tombstones = self.tombstones,
            error = self.error.as_deref().unwrap_or("-")
        );
    }

    fn add_text(&mut self, text: &str) {
        let room = STATEMENT_BYTES_MAX.saturating_sub(self.text.len());
        self.text.push_str(&text[..text.floor_char_boundary(room)]);
    }

    fn add_table(&mut self, keyspace: &str, table: &str) {
        let name = format!("{keyspace}.{table}");
        if !self.tables.contains(&name) {
            self.tables.push(name);
        }
    }

    fn add_prepared(&mut self, engine: &Engine, id: &[u8]) {
        let Some(statement) = engine.prepared().get(id) else { return };
        self.add_text(&statement.text);
        self.add_tables(&statement.prepared);
    }

    fn add_tables(&mut self, prepared: &Prepared) {
        match &prepared.plan {
            Plan::Select(plan) => self.add_table(plan.table.keyspace(), plan.table.name()),
            Plan::Modify(plan) => self.add_table(plan.table.keyspace(), plan.table.name()),
            Plan::Truncate(table, _) => self.add_table(table.keyspace(), table.name()),
            Plan::Batch(plan) => {
                for part in &plan.statements {
                    self.add_table(part.table.keyspace(), part.table.name());
                }
            }
            Plan::Use(_) | Plan::Schema(..) | Plan::Describe(_) => {}
        }
    }

    /// Adds the tables that a statement given as text names.
    fn add_tables_of(&mut self, text: &str, keyspace: Option<&str>) {
        if text.len() > PARSED_BYTES_MAX {
            return;
        }
        let Ok(parsed) = cql::parse_statement(text) else { return };
        let mut add = |name: &QualifiedName| {
            let keyspace = name.keyspace.as_ref().map(|keyspace| keyspace.as_str()).or(keyspace);
            if let Some(keyspace) = keyspace {
                self.add_table(keyspace, name.name.as_str());
            }
        };
        match &parsed.statement {
            Statement::Select(select) => select.source.table().into_iter().for_each(add),
            Statement::Insert(insert) => add(&insert.table),
            Statement::InsertJson(insert) => add(&insert.table),
            Statement::Update(update) => add(&update.table),
            Statement::Delete(delete) => add(&delete.table),
            Statement::Truncate(truncate) => add(&truncate.table),
            Statement::Batch(batch) => batch.statements.iter().for_each(|part| match part {
                Modification::Insert(insert) => add(&insert.table),
                Modification::InsertJson(insert) => add(&insert.table),
                Modification::Update(update) => add(&update.table),
                Modification::Delete(delete) => add(&delete.table),
            }),
            _ => {}
        }
    }
}

/// As much of a text as is shown.
fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(STATEMENT_BYTES_MAX)]
}
