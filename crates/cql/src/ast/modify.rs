//! INSERT, UPDATE, DELETE, BATCH and TRUNCATE: all statements that write rows.
//!
//! Used by `query`'s modification planner; batches consist of [`Modification`]s.

use crate::ast::{Ident, IfClause, QualifiedName, Term, WhereClause};

/// One item of a USING clause. A later item of the same kind overrides an earlier one (see [`last_of`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// `TIMESTAMP n`: microseconds; an integer literal or a marker.
    Timestamp(Term),
    /// `TTL n`: seconds; an integer literal or a marker.
    TimeToLive(Term),
    /// `TIMEOUT d` (ScyllaDB): a duration literal or a marker.
    Timeout(Term),
    /// `CONCURRENCY n` (ScyllaDB, PRUNE MATERIALIZED VIEW): an integer literal or a marker.
    Concurrency(Term),
    /// `SERVICE LEVEL name` (ScyllaDB): run this statement in another service level.
    ServiceLevel(Ident),
}

/// The effective contents of a USING clause: the last item of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttributeView<'a> {
    /// `TIMESTAMP`
    pub timestamp: Option<&'a Term>,
    /// `TTL`
    pub time_to_live: Option<&'a Term>,
    /// `TIMEOUT`
    pub timeout: Option<&'a Term>,
    /// `CONCURRENCY`
    pub concurrency: Option<&'a Term>,
    /// `SERVICE LEVEL`
    pub service_level: Option<&'a Ident>,
}

/// Folds a USING clause into the values that count.
pub fn last_of(attributes: &[Attribute]) -> AttributeView<'_> {
    let mut view = AttributeView::default();
    for attribute in attributes {
        match attribute {
            Attribute::Timestamp(term) => view.timestamp = Some(term),
            Attribute::TimeToLive(term) => view.time_to_live = Some(term),
            Attribute::Timeout(term) => view.timeout = Some(term),
            Attribute::Concurrency(term) => view.concurrency = Some(term),
            Attribute::ServiceLevel(name) => view.service_level = Some(name),
        }
    }
    view
}

/// `INSERT INTO table (columns) VALUES (values) [IF NOT EXISTS] [USING …]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Insert {
    /// The table.
    pub table: QualifiedName,
    /// The columns, at least one; repeats and a count other than `values`' are the planner's to refuse.
    pub columns: Vec<Ident>,
    /// The values, at least one.
    pub values: Vec<Term>,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// USING, possibly empty.
    pub attributes: Vec<Attribute>,
}

/// `INSERT INTO table JSON value [DEFAULT NULL|UNSET] [IF NOT EXISTS] [USING …]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InsertJson {
    /// The table.
    pub table: QualifiedName,
    /// A string literal or a marker.
    pub value: Term,
    /// The treatment of columns that the JSON text does not name.
    pub default: JsonDefault,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// USING, possibly empty.
    pub attributes: Vec<Attribute>,
}

/// The treatment by INSERT JSON of columns that are not in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum JsonDefault {
    /// `DEFAULT NULL`, also the default: they are deleted.
    #[default]
    Null,
    /// `DEFAULT UNSET`: they keep their values.
    Unset,
}

/// `UPDATE table [USING …] SET … WHERE … [IF …]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Update {
    /// The table.
    pub table: QualifiedName,
    /// USING, possibly empty.
    pub attributes: Vec<Attribute>,
    /// SET, at least one.
    pub assignments: Vec<Assignment>,
    /// WHERE
    pub where_clause: WhereClause,
    /// IF
    pub condition: IfClause,
}

/// One item of SET.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Assignment {
    /// The column that changes.
    pub column: Ident,
    /// How it changes.
    pub operation: AssignmentOperation,
}

/// How a column changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AssignmentOperation {
    /// `c = value`
    Set(Term),
    /// `c = value + c`: prepend to a list (an addition for sets, maps and counters).
    Prepend(Term),
    /// `c = c + value` or `c += value`; also `c = c -3`, whose value is the literal `-3`.
    Add(Term),
    /// `c = c - value` or `c -= value`
    Subtract(Term),
    /// `c[key] = value`
    SetElement {
        /// The map key or list index.
        key: Term,
        /// The new value.
        value: Term,
    },
    /// `c.field = value`
    SetField {
        /// The field of the user type.
        field: Ident,
        /// The new value.
        value: Term,
    },
}

/// `DELETE [selections] FROM table [USING …] WHERE … [IF …]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delete {
    /// The selected parts to delete from each row; empty: the whole row (or range, or partition).
    pub selections: Vec<DeleteSelection>,
    /// The table.
    pub table: QualifiedName,
    /// USING, possibly empty.
    pub attributes: Vec<Attribute>,
    /// WHERE
    pub where_clause: WhereClause,
    /// IF
    pub condition: IfClause,
    /// BYPASS LARGE_DATA_GUARDRAILS (ScyllaDB), not allowed in batches.
    pub bypass_guardrails: bool,
}

/// One thing a DELETE names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeleteSelection {
    /// `column`
    Column(Ident),
    /// `column[key]`
    Element {
        /// The collection column.
        column: Ident,
        /// The map key, set element or list index.
        key: Term,
    },
    /// `column.field`
    Field {
        /// The user-type column.
        column: Ident,
        /// The field.
        field: Ident,
    },
}

/// How a batch is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum BatchKind {
    /// `BEGIN BATCH`: through the batch log, all or nothing in the end.
    #[default]
    Logged,
    /// `BEGIN UNLOGGED BATCH`
    Unlogged,
    /// `BEGIN COUNTER BATCH`
    Counter,
}

/// `BEGIN … BATCH [USING …] statements APPLY BATCH`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    /// The kind.
    pub kind: BatchKind,
    /// USING, possibly empty.
    pub attributes: Vec<Attribute>,
    /// The statements, possibly none.
    pub statements: Vec<Modification>,
}

/// A statement that writes rows of one table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Modification {
    /// INSERT … VALUES
    Insert(Insert),
    /// INSERT … JSON
    InsertJson(InsertJson),
    /// UPDATE
    Update(Update),
    /// DELETE
    Delete(Delete),
}

/// `TRUNCATE [TABLE] table [USING TIMEOUT …]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Truncate {
    /// The table.
    pub table: QualifiedName,
    /// USING, possibly empty.
    pub attributes: Vec<Attribute>,
}

/// `PRUNE MATERIALIZED VIEW view [WHERE …] [USING …]` (ScyllaDB): drop view rows their base table does not
/// have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PruneMaterializedView {
    /// The view.
    pub view: QualifiedName,
    /// Selects the rows; `None`: all.
    pub where_clause: Option<WhereClause>,
    /// USING, possibly empty.
    pub attributes: Vec<Attribute>,
}
