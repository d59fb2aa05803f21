//! Names of keyspaces, tables and columns, as the server had them when they were last asked for.
//!
//! Completion and the colors of columns' names use them, so they may be some seconds old.

use std::collections::BTreeMap;
use std::time::Duration;

use reactor::Instant;

use super::error::ShellError;
use super::session::{Row, Session};

/// After this the names are asked for again.
const AGE_MAX: Duration = Duration::from_secs(30);

/// The part of a row that has a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    PartitionKey,
    Clustering,
    Static,
    Regular,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) position: i32,
    /// Its type, as CQL writes it.
    pub(super) ty: String,
}

/// Tables by name, each with its columns in the order of `SELECT *`.
type Tables = BTreeMap<String, Vec<Column>>;

/// The names.
#[derive(Debug, Default)]
pub(super) struct Schema {
    keyspaces: BTreeMap<String, Tables>,
    read_at: Option<Instant>,
}

impl Schema {
    /// Has them asked for again before they are next used.
    pub(super) fn forget(&mut self) {
        self.read_at = None;
    }

    /// Asks for the names unless they are fresh. A server that does not tell them leaves them as they are.
    pub(super) async fn refresh(&mut self, session: &mut Session) {
        if self.read_at.is_some_and(|at| at.elapsed() < AGE_MAX) {
            return;
        }
        if let Ok(keyspaces) = read(session).await {
            self.keyspaces = keyspaces;
        }
        self.read_at = Some(reactor::now());
    }

    /// Names of all keyspaces.
    pub(super) fn keyspaces(&self) -> impl Iterator<Item = &str> {
        self.keyspaces.keys().map(String::as_str)
    }

    /// Names of a keyspace's tables.
    pub(super) fn tables(&self, keyspace: &str) -> impl Iterator<Item = &str> {
        self.keyspaces.get(keyspace).into_iter().flat_map(|tables| tables.keys().map(String::as_str))
    }

    /// Columns of a table; empty if it is not known.
    pub(super) fn columns(&self, keyspace: &str, table: &str) -> &[Column] {
        self.keyspaces.get(keyspace).and_then(|tables| tables.get(table)).map_or(&[], Vec::as_slice)
    }

    /// A schema for tests.
    #[cfg(test)]
    pub(super) fn of(tables: &[(&str, &str, &[&str])]) -> Self {
        let mut keyspaces: BTreeMap<String, Tables> = BTreeMap::new();
        for (keyspace, table, names) in tables {
            let column = |name: &&str| Column {
                name: (*name).to_owned(),
                kind: Kind::Regular,
                position: -1,
                ty: "int".to_owned(),
            };
            let columns = names.iter().map(column).collect();
            keyspaces.entry((*keyspace).to_owned()).or_default().insert((*table).to_owned(), columns);
        }
        Self { keyspaces, read_at: None }
    }
}

const COLUMNS: &str = "keyspace_name, table_name, column_name, kind, position, type";

async fn read(session: &mut Session) -> Result<BTreeMap<String, Tables>, ShellError> {
    let mut keyspaces: BTreeMap<String, Tables> = BTreeMap::new();
    for row in session.small_rows("SELECT keyspace_name FROM system_schema.keyspaces").await? {
        keyspaces.entry(text(&row, 0)).or_default();
    }
    for source in ["system_schema", "system_virtual_schema"] {
        for row in session.small_rows(&format!("SELECT {COLUMNS} FROM {source}.columns")).await? {
            let columns = keyspaces.entry(text(&row, 0)).or_default().entry(text(&row, 1)).or_default();
            columns.push(column(&row));
        }
    }
    for columns in keyspaces.values_mut().flat_map(BTreeMap::values_mut) {
        sort(columns);
    }
    Ok(keyspaces)
}

/// The columns of one table, asked for now; empty if there is no such table.
///
/// # Errors
/// As [`Session::query`].
pub(super) async fn columns_of(
    session: &mut Session,
    keyspace: &str,
    table: &str,
) -> Result<Vec<Column>, ShellError> {
    let mut columns = Vec::new();
    for source in ["system_schema", "system_virtual_schema"] {
        let wanted = format!(
            "SELECT {COLUMNS} FROM {source}.columns WHERE keyspace_name = '{}' AND table_name = '{}'",
            keyspace.replace('\'', "''"),
            table.replace('\'', "''")
        );
        columns.extend(session.small_rows(&wanted).await?.iter().map(column));
    }
    sort(&mut columns);
    Ok(columns)
}

fn text(row: &Row, at: usize) -> String {
    String::from_utf8_lossy(row.get(at).and_then(Option::as_deref).unwrap_or_default()).into_owned()
}

fn column(row: &Row) -> Column {
    let kind = match text(row, 3).as_str() {
        "partition_key" => Kind::PartitionKey,
        "clustering" => Kind::Clustering,
        "static" => Kind::Static,
        _ => Kind::Regular,
    };
    let position = row.get(4).and_then(Option::as_deref).and_then(|bytes| bytes.try_into().ok());
    Column { name: text(row, 2), kind, position: position.map_or(-1, i32::from_be_bytes), ty: text(row, 5) }
}

/// The key's columns in their order, then the others by name.
fn sort(columns: &mut [Column]) {
    columns.sort_by(|a, b| {
        let order = |column: &Column| match column.kind {
            Kind::PartitionKey => (0, column.position),
            Kind::Clustering => (1, column.position),
            _ => (2, 0),
        };
        order(a).cmp(&order(b)).then_with(|| a.name.cmp(&b.name))
    });
}
