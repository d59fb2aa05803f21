//! Selected expressions, prepared: evaluated for each row, or once for each group of rows.
//!
//! `prepare::selectable` finds names and overloads, `prepare::selection` chooses types and makes these.
//! Rules, result names and messages as Cassandra 5's `Selectable` and `Selector`. `execute::evaluate`
//! computes them.

use cql::ast::CellFunction;
use std::rc::Rc;

use model::{Column, CqlType};

use crate::functions::user::UserAggregate;
use crate::functions::{Accumulator, AggregateKind, Function};
use crate::terms::Term;

/// A prepared expression.
#[derive(Debug, Clone)]
pub enum Selector {
    /// A column's value.
    Column(Column),
    /// When the cells of a column, or of a part of it, were written, or how long they have left.
    Cell {
        /// Which of the two.
        function: CellFunction,
        /// A column with fields, elements or slices of it.
        operand: Box<Selector>,
        /// Whether the operand has a cell for each element: the result is a list then.
        multi_cell: bool,
    },
    /// A value that no row changes.
    Term(Term),
    /// A function of other expressions.
    Call(Function, Vec<Selector>),
    /// A field of a user type.
    Field(Box<Selector>, usize),
    /// The value of a map at a key, or an element of a set if it is there.
    Element {
        /// The collection.
        collection: Box<Selector>,
        /// Its type.
        ty: CqlType,
        /// Key or element.
        key: Term,
        /// The collection as messages show it.
        name: String,
    },
    /// The part of a set or map between two keys, both included.
    Slice(Box<Slice>),
    /// A list, set, map, vector, tuple or user type made of parts; of a map keys and values in turn.
    Build {
        /// The type of the result.
        ty: CqlType,
        /// Its parts; a field that was not named is a null term.
        parts: Vec<Selector>,
    },
    /// An aggregate, by its index among those of the selection.
    Aggregate(usize),
}

/// Part of a collection.
#[derive(Debug, Clone)]
pub struct Slice {
    /// The collection.
    pub collection: Selector,
    /// Its type.
    pub ty: CqlType,
    /// First key or element; `None` for no bound.
    pub from: Option<Term>,
    /// Last key or element; `None` for no bound.
    pub to: Option<Term>,
    /// The collection's name in messages.
    pub name: String,
}

/// An aggregate of a selection.
#[derive(Debug, Clone)]
pub enum Aggregate {
    /// One of the language.
    Native {
        /// Which.
        kind: AggregateKind,
        /// Type of the argument; of `count(*)` any.
        ty: CqlType,
        /// The argument; `None` for `count(*)`.
        argument: Option<Selector>,
    },
    /// A user-defined aggregate.
    User {
        /// Which.
        aggregate: Rc<UserAggregate>,
        /// Its arguments.
        arguments: Vec<Selector>,
    },
}

impl Aggregate {
    /// Its arguments.
    pub fn arguments(&self) -> &[Selector] {
        match self {
            Self::Native { argument, .. } => argument.as_slice(),
            Self::User { arguments, .. } => arguments,
        }
    }

    /// Whether shards may each aggregate their own rows. User-defined aggregates do not: the initial state
    /// would count for each shard.
    pub fn is_mergeable(&self) -> bool {
        match self {
            Self::Native { kind, ty, .. } => Accumulator::is_mergeable(*kind, ty),
            Self::User { aggregate, .. } => aggregate.is_mergeable(),
        }
    }
}

/// An expression with its appearance in the result.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// How it is evaluated.
    pub selector: Selector,
    /// Name of the result column.
    pub name: String,
    /// Type of the value.
    pub ty: CqlType,
}

impl Selector {
    /// Calls `each` for every column that is read, including those in arguments of aggregates.
    pub fn for_each_column(&self, aggregates: &[Aggregate], each: &mut dyn FnMut(&Column)) {
        if let Self::Column(column) = self {
            each(column);
        }
        if let Self::Aggregate(at) = self
            && let Some(aggregate) = aggregates.get(*at)
        {
            aggregate.arguments().iter().for_each(|argument| argument.for_each_column(aggregates, each));
        }
        self.parts().iter().for_each(|part| part.for_each_column(aggregates, each));
    }

    /// Whether a column is read outside of aggregates.
    pub fn reads_row(&self) -> bool {
        matches!(self, Self::Column(_)) || self.parts().iter().any(|part| part.reads_row())
    }

    /// Whether one of the user's functions is called, or aggregates, for each row.
    pub fn calls_user(&self, aggregates: &[Aggregate]) -> bool {
        let of_aggregate = |aggregate: &Aggregate| {
            matches!(aggregate, Aggregate::User { .. })
                || aggregate.arguments().iter().any(|argument| argument.calls_user(aggregates))
        };
        match self {
            Self::Call(function, _) if function.user().is_some() => true,
            Self::Aggregate(at) => aggregates.get(*at).is_some_and(of_aggregate),
            _ => self.parts().iter().any(|part| part.calls_user(aggregates)),
        }
    }

    /// Calls of functions and operators for each row, at most as many as there are.
    pub fn calls(&self, aggregates: &[Aggregate]) -> usize {
        let of_aggregate = |aggregate: &Aggregate| {
            1 + aggregate.arguments().iter().map(|argument| argument.calls(aggregates)).sum::<usize>()
        };
        let own = match self {
            Self::Call(..) => 1,
            Self::Aggregate(at) => aggregates.get(*at).map_or(0, of_aggregate),
            _ => 0,
        };
        own + self.parts().iter().map(|part| part.calls(aggregates)).sum::<usize>()
    }

    /// Expressions this one is made of.
    fn parts(&self) -> Vec<&Selector> {
        match self {
            Self::Column(_) | Self::Term(_) | Self::Aggregate(_) => Vec::new(),
            Self::Call(_, parts) | Self::Build { parts, .. } => parts.iter().collect(),
            Self::Slice(slice) => vec![&slice.collection],
            Self::Cell { operand: inner, .. }
            | Self::Field(inner, _)
            | Self::Element { collection: inner, .. } => vec![inner],
        }
    }
}
