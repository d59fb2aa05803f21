//! SELECT: the selected expressions, the source, the order and the limits.
//!
//! Selected expressions are their own tree ([`Selectable`]), not [`Term`]: here names are columns and `(a)`
//! groups. Used by `query` (selectors, aggregates, restrictions) and by materialised view definitions.

use crate::ast::{
    ArithmeticOperator, Attribute, BindMarker, ColumnFunction, Constant, Ident, NativeType, QualifiedName,
    Term, TypeName, WhereClause,
};

/// A SELECT statement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Select {
    /// `SELECT JSON`: each row as one JSON text.
    pub json: bool,
    /// `SELECT DISTINCT`
    pub distinct: bool,
    /// The selected expressions.
    pub selection: Selection,
    /// The source of the rows.
    pub source: SelectSource,
    /// WHERE; `None` if absent.
    pub where_clause: Option<WhereClause>,
    /// GROUP BY, possibly empty.
    pub group_by: Vec<Selectable>,
    /// ORDER BY, possibly empty.
    pub order_by: Vec<Ordering>,
    /// PER PARTITION LIMIT: an integer literal or a marker.
    pub per_partition_limit: Option<Term>,
    /// LIMIT: an integer literal or a marker.
    pub limit: Option<Term>,
    /// ALLOW FILTERING
    pub allow_filtering: bool,
    /// BYPASS CACHE (ScyllaDB): neither read the row cache nor populate it.
    pub bypass_cache: bool,
    /// `USING TIMEOUT …` (ScyllaDB), possibly empty.
    pub attributes: Vec<Attribute>,
}

/// The source of a SELECT.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SelectSource {
    /// A table or view.
    Table(QualifiedName),
    /// `MUTATION_FRAGMENTS(table)` (ScyllaDB): the raw fragments of a table's partitions, unmerged.
    MutationFragments(QualifiedName),
    /// No FROM (ScyllaDB): one row of expressions without columns, and no other clause.
    Nothing,
}

impl SelectSource {
    /// The table meant, whichever way it is read.
    pub fn table(&self) -> Option<&QualifiedName> {
        match self {
            SelectSource::Table(table) | SelectSource::MutationFragments(table) => Some(table),
            SelectSource::Nothing => None,
        }
    }
}

/// The selection clause.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Selection {
    /// `*`
    Wildcard,
    /// `a, b AS c, …`, at least one.
    Selectors(Vec<Selector>),
}

/// One selected expression and its alias.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    /// The expression.
    pub expression: Selectable,
    /// `AS alias`
    pub alias: Option<Ident>,
}

/// Which metadata of a cell is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CellFunction {
    /// `WRITETIME(column)`
    WriteTime,
    /// `MAXWRITETIME(column)`
    MaxWriteTime,
    /// `TTL(column)`
    TimeToLive,
}

/// An expression in a selection clause or GROUP BY.
///
/// Arithmetic is left-associative with `* / %` before `+ -`; a tuple of one element is a parenthesised
/// expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Selectable {
    /// A column.
    Column(Ident),
    /// A literal, `null` included.
    Constant(Constant),
    /// `?` or `:name`
    BindMarker(BindMarker),
    /// `count(*)`
    CountRows,
    /// `WRITETIME(c)`, `MAXWRITETIME(c)`, `TTL(c)`; the operand is a column with field, element or slice
    /// accesses.
    Cell {
        /// Which metadata.
        function: CellFunction,
        /// Of which cell or cells.
        operand: Box<Selectable>,
    },
    /// `CAST(operand AS type)`
    Cast {
        /// The expression to be converted.
        operand: Box<Selectable>,
        /// The target type.
        target: NativeType,
    },
    /// `[keyspace.]name(arguments)`; `count(1)`, `token(…)` and aggregates are calls too.
    Function {
        /// The function's name.
        name: QualifiedName,
        /// The arguments, possibly none.
        arguments: Vec<Selectable>,
    },
    /// `receiver.field`
    Field {
        /// A user-type value.
        receiver: Box<Selectable>,
        /// The field.
        field: Ident,
    },
    /// `receiver[key]`
    Element {
        /// A map, set, list or vector value.
        receiver: Box<Selectable>,
        /// The key or index.
        key: Term,
    },
    /// `receiver[from..to]`; at least one bound is there.
    Slice {
        /// A map or set value.
        receiver: Box<Selectable>,
        /// The first key, included; `None` when open.
        from: Option<Term>,
        /// The last key, included; `None` when open.
        to: Option<Term>,
    },
    /// `left op right`
    Arithmetic {
        /// The operator.
        operator: ArithmeticOperator,
        /// The left operand.
        left: Box<Selectable>,
        /// The right operand.
        right: Box<Selectable>,
    },
    /// `- operand`
    Negate(Box<Selectable>),
    /// `(type) operand`
    TypeHint {
        /// The type in parentheses.
        type_name: TypeName,
        /// The operand.
        operand: Box<Selectable>,
    },
    /// `[a, b]`
    List(Vec<Selectable>),
    /// `{a, b}`, at least one element.
    Set(Vec<Selectable>),
    /// `{k: v, …}`: a map or, when every key is a column name, a user-type literal; also `{}`.
    MapOrUserType(Vec<(Selectable, Selectable)>),
    /// `(a, b)`, at least one element; of one element: a parenthesised expression.
    Tuple(Vec<Selectable>),
}

impl Selectable {
    /// Whether a column is named anywhere in it.
    pub fn names_column(&self) -> bool {
        match self {
            Selectable::Column(_) | Selectable::Cell { .. } => true,
            Selectable::Constant(_) | Selectable::BindMarker(_) | Selectable::CountRows => false,
            Selectable::Cast { operand, .. }
            | Selectable::Negate(operand)
            | Selectable::TypeHint { operand, .. } => operand.names_column(),
            Selectable::Field { receiver, .. }
            | Selectable::Element { receiver, .. }
            | Selectable::Slice { receiver, .. } => receiver.names_column(),
            Selectable::Arithmetic { left, right, .. } => left.names_column() || right.names_column(),
            Selectable::Function { arguments: parts, .. }
            | Selectable::List(parts)
            | Selectable::Set(parts)
            | Selectable::Tuple(parts) => parts.iter().any(Selectable::names_column),
            Selectable::MapOrUserType(entries) => {
                entries.iter().any(|(key, value)| key.names_column() || value.names_column())
            }
        }
    }
}

/// `ASC` or `DESC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Direction {
    /// Ascending, the default.
    #[default]
    Ascending,
    /// Descending.
    Descending,
}

/// One ORDER BY item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ordering {
    /// The expression to order by.
    pub by: OrderingExpression,
    /// The direction.
    pub direction: Direction,
}

/// The expression of an [`Ordering`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OrderingExpression {
    /// `column`
    Column(Ident),
    /// `column ANN OF vector`: nearest neighbours first.
    Ann {
        /// The vector column.
        column: Ident,
        /// The vector searched for.
        target: Term,
    },
    /// A scoring function, e.g. `BM25(body, 'word')` (ScyllaDB's full-text search).
    Function(ColumnFunction),
}
