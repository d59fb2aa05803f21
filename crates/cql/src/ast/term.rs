//! Values as written: constants, bind markers, collection literals, calls, arithmetic.
//!
//! A constant keeps its text: only the column it is used for decides its value. Invariant:
//! `BindMarker::index` numbers the markers of one statement from 0 in order of appearance, and every index
//! occurs once. Used by every statement with values, and by `query` to bind them.

use crate::ast::{Ident, NativeType, QualifiedName, TypeName};

/// The kind of a [`Constant`]'s literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConstantKind {
    /// `'…'` or `$$…$$`; the text is unescaped.
    String,
    /// Digits with an optional leading minus.
    Integer,
    /// Digits with a point or an exponent, or one of `NaN`, `-NaN`, `Infinity`, `-Infinity` (so spelt).
    Float,
    /// `true` or `false`, in the case it was written.
    Boolean,
    /// `12345678-1234-1234-1234-123456789abc`, in the case it was written.
    Uuid,
    /// `0x…`; the text includes the prefix.
    Hex,
    /// A duration in any of its three notations: `1y2mo3d4h5m6s7ms8us9ns`, `P1Y2M3DT4H5M6S` / `P3W`,
    /// `P0001-02-03T04:05:06`; an optional leading minus.
    Duration,
    /// `null`; the text is `null`.
    Null,
}

/// A literal: its kind and its text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Constant {
    /// The lexer's kind.
    pub kind: ConstantKind,
    /// The text, unescaped for strings, otherwise as written (see [`ConstantKind`]).
    pub text: String,
}

impl Constant {
    /// A literal from its parts.
    pub fn new(kind: ConstantKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// The literal `null`.
    pub fn null() -> Self {
        Self::new(ConstantKind::Null, "null")
    }
}

/// `?` or `:name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BindMarker {
    /// Position among all markers of the statement, from 0, in order of appearance.
    pub index: usize,
    /// The name of `:name`; `None` for `?`.
    pub name: Option<Ident>,
}

/// `+ - * / %`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArithmeticOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

impl ArithmeticOperator {
    /// Whether this is `* / %`, which bind tighter than `+ -`.
    pub const fn is_multiplicative(self) -> bool {
        matches!(self, Self::Multiply | Self::Divide | Self::Modulo)
    }

    /// The operator's sign.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
        }
    }
}

/// A value outside a selection clause (Cassandra's `term`).
///
/// Arithmetic is left-associative with `* / %` before `+ -`; the grammar has no parentheses for grouping
/// here: `(a)` is a [`Term::Tuple`] of one element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    /// A literal, `null` included.
    Constant(Constant),
    /// `?` or `:name`
    BindMarker(BindMarker),
    /// `[a, b]`
    List(Vec<Term>),
    /// `{a, b}`; also `{}`, which is an empty set or an empty map depending on the column.
    Set(Vec<Term>),
    /// `{k: v, …}`, at least one entry.
    Map(Vec<(Term, Term)>),
    /// `(a, b)`, at least one element.
    Tuple(Vec<Term>),
    /// `{field: value, …}`, at least one entry.
    UserType(Vec<(Ident, Term)>),
    /// `[keyspace.]name(arguments)`
    Function(FunctionCall),
    /// `left op right`
    Arithmetic {
        /// The operator.
        operator: ArithmeticOperator,
        /// The left operand.
        left: Box<Term>,
        /// The right operand.
        right: Box<Term>,
    },
    /// `- operand`; a minus directly before digits belongs to the literal instead.
    Negate(Box<Term>),
    /// `(type) operand`: a type hint.
    TypeHint {
        /// The type in parentheses.
        type_name: TypeName,
        /// The operand.
        operand: Box<Term>,
    },
    /// `CAST(operand AS type)`
    Cast {
        /// The expression to be converted.
        operand: Box<Term>,
        /// The target type.
        target: NativeType,
    },
}

impl Term {
    /// The literal `null`.
    pub fn null() -> Self {
        Term::Constant(Constant::null())
    }

    /// Whether this is the literal `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Term::Constant(constant) if constant.kind == ConstantKind::Null)
    }
}

/// A call of a scalar function with terms as arguments; `token(…)` is one too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FunctionCall {
    /// The function's name.
    pub name: QualifiedName,
    /// The arguments, possibly none.
    pub arguments: Vec<Term>,
}
