//! INSERT, UPDATE and DELETE, prepared: the rows, the writes to each, and the condition.
//!
//! Rules and messages are those of Cassandra 5's `ModificationStatement` and `Attributes`. Operations are
//! ordered by column id, the order in which a row takes cells. [`ModifyPlan::route`] is decided here, so that
//! a plain write does not pay for the other kinds.

mod statement;

use std::rc::Rc;

use cql::ast::{self, Modification};
use model::schema::CompactShape;
use model::{Column, ColumnKind, CqlType, Table};

use super::condition::Conditions;
use super::json::{self, JsonValues};
use super::marker_sets::{self, MarkerSet};
use super::operation::{Action, Operation};
use super::selection::all_columns;
use crate::StatementError;
use crate::restrictions::clause::{RowTerm, Test};
use crate::restrictions::{Restrictions, StatementKind};
use crate::results::ResultMetadata;
use crate::terms::prepare::Context;
use crate::terms::{Receiver, Term};

use statement::{INSERT_INTO_COUNTERS, delete, insert, update};

/// A prepared modification.
#[derive(Debug)]
pub struct ModifyPlan {
    /// Table written.
    pub table: Rc<Table>,
    /// Which statement it was.
    pub kind: StatementKind,
    /// Which partitions and rows.
    pub restrictions: Restrictions,
    /// Writes to each row.
    pub regulars: Vec<Operation>,
    /// Writes to each partition's static row.
    pub statics: Vec<Operation>,
    /// USING TIMESTAMP.
    pub timestamp: Option<Term>,
    /// USING TTL.
    pub time_to_live: Option<Term>,
    /// IF.
    pub condition: Option<Box<ConditionPlan>>,
    /// The source of the values of INSERT JSON.
    pub json: Option<Box<JsonValues>>,
    /// How long to wait instead of the configured time (ScyllaDB's extension).
    pub timeout: Option<Term>,
    /// The rules of COMPACT STORAGE; rows of such a table have no row markers.
    pub compact: Option<Box<CompactRules>>,
    /// How it is executed.
    pub route: Route,
    /// Whether the statement writes one row of one partition and nothing else.
    pub plain: bool,
    /// Whether it writes collections of many cells.
    pub collections: bool,
    /// Whether its text is long, so that it may have many terms.
    pub long_text: bool,
    /// Its writes, if it is plain and they are only values of markers.
    pub sets: Option<Box<[MarkerSet]>>,
    /// Its partition's key, if it is plain and the key is the value of one marker.
    pub key: Option<Box<MarkerSet>>,
    /// Whether the statement is plain and the partition can have only that row.
    pub only_row: bool,
    needs_read: bool,
}

/// The way a modification is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Written without reading.
    Plain,
    /// The existing row is read first.
    ReadFirst,
    /// Read, decided on and written in one step.
    Conditional,
    /// Counters are changed where they are stored.
    Counter,
    /// The text is converted to values first; there may be a condition.
    Json,
}

/// Requirements on rows of a table with COMPACT STORAGE, checked when they are written.
#[derive(Debug)]
pub struct CompactRules {
    /// The value that the statement lacks, if the table has one.
    pub missing: Option<String>,
    /// The one clustering column, which must not be empty.
    pub not_empty: Option<String>,
}

impl CompactRules {
    fn new(
        table: &Table,
        restrictions: &Restrictions,
        regulars: &mut Vec<Operation>,
        kind: StatementKind,
    ) -> Self {
        let mut rules = Self { missing: None, not_empty: None };
        if table.compact() != Some(CompactShape::Dense) {
            return rules;
        }
        if let [column] = table.clustering() {
            rules.not_empty = Some(column.name.clone());
        }
        if kind != StatementKind::Delete && regulars.is_empty() && restrictions.restricts_clustering {
            match table.regulars() {
                // Without a row marker, a cell is needed for the row to exist.
                [column] if table.hides(column) => regulars.push(Operation {
                    column: column.clone(),
                    action: Action::Set(Term::Constant(Some(Box::default()))),
                }),
                regulars => rules.missing = regulars.first().map(|column| column.name.clone()),
            }
        }
        rules
    }

    /// Checks a row about to be written or deleted.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] in Cassandra's words.
    #[cold]
    pub fn check(&self, clustering: &[u8]) -> Result<(), StatementError> {
        /// A clustering of one empty component.
        const EMPTY: &[u8] = &[1];
        if let Some(column) = self.not_empty.as_ref().filter(|_| clustering == EMPTY) {
            return Err(StatementError::Invalid(format!("Invalid empty or null value for column {column}")));
        }
        match &self.missing {
            Some(column) => Err(StatementError::Invalid(format!(
                "Column {column} is mandatory for this COMPACT STORAGE table"
            ))),
            None => Ok(()),
        }
    }
}

/// An IF clause, and the results for the client.
#[derive(Debug)]
pub struct ConditionPlan {
    /// The conditions.
    pub conditions: Conditions,
    /// The result of a statement that was applied: `[applied]` alone.
    pub applied: ResultMetadata,
    /// The result of a statement that was not applied.
    pub rejected: ResultMetadata,
    /// Its columns behind `[applied]`.
    pub shown: Vec<Column>,
}

/// Name of the column that contains whether the condition held.
pub const APPLIED: &str = "[applied]";

impl ConditionPlan {
    fn new(table: &Table, conditions: Conditions) -> Self {
        let mut shown: Vec<Column> = Vec::new();
        match &conditions {
            Conditions::NotExists | Conditions::Exists => {
                shown = all_columns(table).into_iter().cloned().collect()
            }
            Conditions::Columns(columns) => {
                for condition in columns {
                    if !shown.iter().any(|column| column.id == condition.column.id) {
                        shown.push((*condition.column).clone());
                    }
                }
            }
        }
        let (applied, rejected) = (result_metadata(table, &[]), result_metadata(table, &shown));
        Self { conditions, applied, rejected, shown }
    }
}

/// `[applied]` and these columns.
pub fn result_metadata(table: &Table, columns: &[Column]) -> ResultMetadata {
    let columns: Vec<(String, CqlType)> = std::iter::once((APPLIED.to_owned(), CqlType::Boolean))
        .chain(columns.iter().map(|column| (column.name.clone(), column.ty.clone())))
        .collect();
    ResultMetadata::new(table.keyspace(), table.name(), columns)
}

impl ModifyPlan {
    /// Whether the write depends on the existing contents.
    #[inline]
    pub fn needs_read(&self) -> bool {
        self.needs_read
    }

    /// Whether rows, rather than the static row alone, are written.
    pub fn writes_rows(&self) -> bool {
        self.table.clustering().is_empty() || self.restrictions.restricts_clustering
    }

    /// The word for it in messages about conditions.
    pub fn conditional_name(&self) -> &'static str {
        if self.kind == StatementKind::Update { "updates" } else { "deletions" }
    }

    /// Whether the statement concerns only the static row.
    pub fn only_static(&self) -> bool {
        let conditions = self.condition.as_ref().map(|plan| &plan.conditions);
        let concerns = |kind| conditions.is_some_and(|conditions| conditions.concerns(kind));
        self.regulars.is_empty()
            && !deletes_rows(self.kind, self.statics.is_empty())
            && !concerns(ColumnKind::Regular)
            && (!self.statics.is_empty() || concerns(ColumnKind::Static))
            && !self.restrictions.restricts_clustering
    }
}

/// Prepares a modification of `table`.
///
/// # Errors
/// [`StatementError::Invalid`] in Cassandra's words.
pub fn prepare(
    cx: &mut Context<'_>,
    table: &Rc<Table>,
    modification: &Modification,
) -> Result<ModifyPlan, StatementError> {
    let (raw, condition) = match modification {
        Modification::Insert(insert) => {
            (&insert.attributes, insert.if_not_exists.then_some(Conditions::NotExists))
        }
        Modification::InsertJson(insert) => {
            (&insert.attributes, insert.if_not_exists.then_some(Conditions::NotExists))
        }
        Modification::Update(update) => (&update.attributes, Conditions::prepare(cx, &update.condition)?),
        Modification::Delete(delete) => (&delete.attributes, Conditions::prepare(cx, &delete.condition)?),
    };
    let attributes = attributes(cx, raw)?;
    if condition.is_some() && attributes.timestamp.is_some() {
        return Err(StatementError::invalid("Cannot provide custom timestamp for conditional updates"));
    }
    let mut json = None;
    let parts = match modification {
        Modification::Insert(insert) => self::insert(cx, table, insert, condition.as_ref())?,
        Modification::InsertJson(_) if table.is_counter() => {
            return Err(StatementError::invalid(INSERT_INTO_COUNTERS));
        }
        Modification::InsertJson(insert) => {
            let (insert, values) = json::as_insert(cx, table, insert)?;
            json = Some(Box::new(values));
            self::insert(cx, table, &insert, condition.as_ref())?
        }
        Modification::Update(update) => self::update(cx, table, update, condition.as_ref())?,
        Modification::Delete(delete) => self::delete(cx, table, delete, condition.as_ref())?,
    };
    assemble(table, parts, attributes, condition, json)
}

/// The table a modification names.
pub fn table_name(modification: &Modification) -> &ast::QualifiedName {
    match modification {
        Modification::Insert(insert) => &insert.table,
        Modification::InsertJson(insert) => &insert.table,
        Modification::Update(update) => &update.table,
        Modification::Delete(delete) => &delete.table,
    }
}

/// A USING clause.
#[derive(Debug, Default)]
pub struct Attributes {
    /// USING TIMESTAMP.
    pub timestamp: Option<Term>,
    /// USING TTL.
    pub time_to_live: Option<Term>,
    /// USING TIMEOUT.
    pub timeout: Option<Term>,
}

/// Prepares a USING clause.
///
/// # Errors
/// [`StatementError::Invalid`] for unsupported options and for values of other types.
pub fn attributes(cx: &mut Context<'_>, raw: &[ast::Attribute]) -> Result<Attributes, StatementError> {
    let view = ast::last_of(raw);
    for (given, what) in [
        (view.concurrency.is_some(), "USING CONCURRENCY"),
        (view.service_level.is_some(), "USING SERVICE LEVEL"),
    ] {
        if given {
            return Err(StatementError::Invalid(format!("{what} is not supported yet")));
        }
    }
    let mut one = |term: Option<&ast::Term>, name: &str, ty: CqlType| {
        term.map(|term| cx.prepare(term, &Receiver::new(name, ty))).transpose()
    };
    Ok(Attributes {
        timestamp: one(view.timestamp, "[timestamp]", CqlType::Bigint)?,
        time_to_live: one(view.time_to_live, "[ttl]", CqlType::Int)?,
        timeout: one(view.timeout, "[timeout]", CqlType::Duration)?,
    })
}

/// The parts that differ between the statements.
struct Parts {
    kind: StatementKind,
    operations: Vec<Operation>,
    restrictions: Restrictions,
}

fn assemble(
    table: &Rc<Table>,
    Parts { kind, operations, restrictions }: Parts,
    Attributes { timestamp, time_to_live, timeout }: Attributes,
    condition: Option<Conditions>,
    json: Option<Box<JsonValues>>,
) -> Result<ModifyPlan, StatementError> {
    let invalid = |text: &str| Err(StatementError::invalid(text));
    if table.is_counter() {
        if condition.is_some() {
            return invalid("Conditional updates are not supported on counter tables");
        }
        if timestamp.is_some() {
            return invalid("Cannot provide custom timestamp for counter updates");
        }
        if time_to_live.is_some() {
            return invalid("Cannot provide custom TTL for counter updates");
        }
    }
    let needs_read = operations.iter().any(|operation| operation.action.needs_read());
    let route = if json.is_some() {
        Route::Json
    } else if condition.is_some() {
        Route::Conditional
    } else if table.is_counter() {
        Route::Counter
    } else if needs_read {
        Route::ReadFirst
    } else {
        Route::Plain
    };
    let (mut statics, mut regulars): (Vec<_>, Vec<_>) =
        operations.into_iter().partition(|operation| operation.column.kind == ColumnKind::Static);
    // A stable sort: several operations on one column keep the order they were written in.
    statics.sort_by_key(|operation| operation.column.id);
    regulars.sort_by_key(|operation| operation.column.id);
    let compact =
        table.compact().map(|_| Box::new(CompactRules::new(table, &restrictions, &mut regulars, kind)));
    let plain = route == Route::Plain
        && statics.is_empty()
        && compact.is_none()
        && !(kind == StatementKind::Delete && regulars.is_empty())
        && !restrictions.partition_key_has_in()
        && !restrictions.clustering_has_in()
        && restrictions.names_rows(table);
    let sets = if plain { marker_sets::of(&regulars) } else { None };
    let key = if plain { key_of_one_marker(table, &restrictions) } else { None };
    let only_row = plain && table.clustering_orders().is_empty() && restrictions.null_tail == 0;
    Ok(ModifyPlan {
        plain,
        collections: regulars.iter().chain(&statics).any(|operation| operation.column.ty.is_multi_cell()),
        long_text: false,
        sets,
        key: key.map(Box::new),
        only_row,
        table: Rc::clone(table),
        kind,
        restrictions,
        regulars,
        statics,
        timestamp,
        time_to_live,
        condition: condition.map(|conditions| Box::new(ConditionPlan::new(table, conditions))),
        json,
        timeout,
        compact,
        route,
        needs_read,
    })
}

/// The key of a table with one key column, if a marker gives it.
fn key_of_one_marker(table: &Table, restrictions: &Restrictions) -> Option<MarkerSet> {
    let ([column], [clause]) = (table.partition_key(), restrictions.partition_key.as_slice()) else {
        return None;
    };
    match &clause.test {
        Test::Equal(RowTerm::Parts(parts)) => match parts.as_slice() {
            [term] => marker_sets::key_of(column, term),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a DELETE names no column: then it is about all of them.
fn deletes_rows(kind: StatementKind, names_nothing: bool) -> bool {
    kind == StatementKind::Delete && names_nothing
}

/// Whether a statement writes, and tests, only static columns.
fn applies_only_to_statics(
    kind: StatementKind,
    operations: &[Operation],
    condition: Option<&Conditions>,
) -> bool {
    if deletes_rows(kind, operations.is_empty()) {
        return false;
    }
    let writes = |kind| operations.iter().any(|operation| operation.column.kind == kind);
    let concerns = |kind| condition.is_some_and(|condition| condition.concerns(kind));
    !(writes(ColumnKind::Regular) || concerns(ColumnKind::Regular))
        && (writes(ColumnKind::Static) || concerns(ColumnKind::Static))
}
