//! WHERE clauses and IF conditions: comparisons.
//!
//! `WHERE` is a conjunction of [`Relation`]s, `IF` one of [`Condition`]s; neither has OR. Used by `query`'s
//! restrictions, which match on [`RelationTarget`] and the kind of relation.

use crate::ast::{BindMarker, Ident, QualifiedName, Term};

/// `relation AND relation …`, in the order written; never empty if it came from text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct WhereClause {
    /// The relations; all must hold.
    pub relations: Vec<Relation>,
}

/// `= < <= > >= !=`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComparisonOperator {
    /// `=`
    Equal,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `!=`
    NotEqual,
}

impl ComparisonOperator {
    /// The operator's sign.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::NotEqual => "!=",
        }
    }
}

/// The left-hand side of a relation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RelationTarget {
    /// `column`
    Column(Ident),
    /// `(a, b, …)`: several clustering columns at once; at least one.
    Columns(Vec<Ident>),
    /// `token(a, b, …)`: the partition's token; at least one column.
    Token(Vec<Ident>),
    /// `column[key]`: one entry of a map (or element of a list).
    Element {
        /// The collection column.
        column: Ident,
        /// The map key or list index.
        key: Term,
    },
    /// `function(…)`: a scoring function over a column, e.g. `BM25(body, 'word')` (ScyllaDB's full-text
    /// search).
    Function(ColumnFunction),
}

/// `name(column, arguments…)`: a function over a column in WHERE or ORDER BY.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ColumnFunction {
    /// The function's name.
    pub name: QualifiedName,
    /// The column that is its first argument.
    pub column: Ident,
    /// The arguments after the column.
    pub arguments: Vec<Term>,
}

/// The right-hand side of `IN`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum InValues {
    /// `IN ?` / `IN :name`: one marker for the whole list.
    Marker(BindMarker),
    /// `IN (a, b)`, possibly empty. For [`RelationTarget::Columns`] each is a [`Term::Tuple`] or a
    /// [`Term::BindMarker`], and never a mix of the two.
    List(Vec<Term>),
}

/// One condition of a WHERE clause.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// `target op value`. For [`RelationTarget::Columns`] the value is a [`Term::Tuple`] or
    /// [`Term::BindMarker`].
    Compare {
        /// The left-hand side.
        target: RelationTarget,
        /// The operator.
        operator: ComparisonOperator,
        /// The right-hand side.
        value: Term,
    },
    /// `target [NOT] IN values`; the target is a column, columns or a token.
    In {
        /// The left-hand side.
        target: RelationTarget,
        /// `NOT IN`
        negated: bool,
        /// The right-hand side.
        values: InValues,
    },
    /// `target BETWEEN low AND high`, bounds included.
    Between {
        /// The left-hand side.
        target: RelationTarget,
        /// The lower bound.
        low: Term,
        /// The upper bound.
        high: Term,
    },
    /// `column [NOT] CONTAINS [KEY] value`
    Contains {
        /// The collection column.
        column: Ident,
        /// `NOT CONTAINS`
        negated: bool,
        /// `CONTAINS KEY`: test a map's keys rather than its values.
        key: bool,
        /// The value that is searched for.
        value: Term,
    },
    /// `column LIKE pattern`
    Like {
        /// The column.
        column: Ident,
        /// The pattern, `%` for any text.
        pattern: Term,
    },
    /// `column IS NOT NULL`
    IsNotNull {
        /// The column.
        column: Ident,
    },
    /// `expr(index, value)`: an expression in a custom index's own language.
    CustomIndex {
        /// The index.
        index: Ident,
        /// The expression.
        value: Term,
    },
}

/// One condition of a conditional (lightweight transaction) statement's IF clause.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// The tested part of the row.
    pub target: ConditionTarget,
    /// The test.
    pub test: ConditionTest,
}

/// The left-hand side of a [`Condition`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConditionTarget {
    /// `column`
    Column(Ident),
    /// `column[key]`
    Element {
        /// The collection column.
        column: Ident,
        /// The map key or list index.
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

/// The test of a [`Condition`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConditionTest {
    /// `op value`
    Compare {
        /// The operator.
        operator: ComparisonOperator,
        /// The right-hand side; `null` tests whether there is a cell.
        value: Term,
    },
    /// `[NOT] IN values`
    In {
        /// `NOT IN`
        negated: bool,
        /// The right-hand side.
        values: InValues,
    },
    /// `CONTAINS [KEY] value`; only for [`ConditionTarget::Column`].
    Contains {
        /// `CONTAINS KEY`
        key: bool,
        /// The values that are searched for.
        value: Term,
    },
    /// `LIKE pattern` (ScyllaDB).
    Like {
        /// The pattern.
        pattern: Term,
    },
}

/// The condition of an UPDATE, DELETE or INSERT on the existing row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum IfClause {
    /// No IF: an unconditional write.
    #[default]
    None,
    /// `IF EXISTS`
    Exists,
    /// `IF condition AND …`, at least one.
    Conditions(Vec<Condition>),
}
