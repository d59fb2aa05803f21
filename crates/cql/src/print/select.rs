//! Prints SELECT and selected expressions.

use std::fmt::{Display, Formatter, Result};

use super::names::FunctionName;
use super::{clause, enclosed, optional, pairs, separated, when};
use crate::ast::{
    CellFunction, Direction, Ordering, OrderingExpression, Select, SelectSource, Selectable, Selection,
    Selector, Term,
};

impl Display for Select {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("SELECT ")?;
        when(formatter, self.json, "JSON ")?;
        when(formatter, self.distinct, "DISTINCT ")?;
        write!(formatter, "{}{}", self.selection, self.source)?;
        optional(formatter, " WHERE ", self.where_clause.as_ref())?;
        if !self.group_by.is_empty() {
            enclosed(formatter, " GROUP BY ", &self.group_by, "")?;
        }
        if !self.order_by.is_empty() {
            enclosed(formatter, " ORDER BY ", &self.order_by, "")?;
        }
        optional(formatter, " PER PARTITION LIMIT ", self.per_partition_limit.as_ref())?;
        optional(formatter, " LIMIT ", self.limit.as_ref())?;
        when(formatter, self.allow_filtering, " ALLOW FILTERING")?;
        when(formatter, self.bypass_cache, " BYPASS CACHE")?;
        clause(formatter, " USING ", &self.attributes)
    }
}

impl Display for SelectSource {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            SelectSource::Table(table) => write!(formatter, " FROM {table}"),
            SelectSource::MutationFragments(table) => write!(formatter, " FROM MUTATION_FRAGMENTS({table})"),
            SelectSource::Nothing => Ok(()),
        }
    }
}

impl Display for Selection {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Selection::Wildcard => formatter.write_str("*"),
            Selection::Selectors(selectors) => separated(formatter, selectors, ", "),
        }
    }
}

impl Display for Selector {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{}", self.expression)?;
        optional(formatter, " AS ", self.alias.as_ref())
    }
}

impl Display for CellFunction {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str(match self {
            CellFunction::WriteTime => "writetime",
            CellFunction::MaxWriteTime => "maxwritetime",
            CellFunction::TimeToLive => "ttl",
        })
    }
}

/// A slice's bound, or nothing.
fn bound(formatter: &mut Formatter<'_>, term: Option<&Term>) -> Result {
    optional(formatter, "", term)
}

impl Display for Selectable {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Selectable::Column(column) => write!(formatter, "{column}"),
            Selectable::Constant(constant) => write!(formatter, "{constant}"),
            Selectable::BindMarker(marker) => write!(formatter, "{marker}"),
            Selectable::CountRows => formatter.write_str("count(*)"),
            Selectable::Cell { function, operand } => write!(formatter, "{function}({operand})"),
            Selectable::Cast { operand, target } => write!(formatter, "CAST({operand} AS {target})"),
            Selectable::Function { name, arguments } => {
                write!(formatter, "{}", FunctionName(name))?;
                enclosed(formatter, "(", arguments, ")")
            }
            // `1.a` would be the float `1.`.
            Selectable::Field { receiver, field } => match **receiver {
                Selectable::Constant(_) => write!(formatter, "{receiver} .{field}"),
                _ => write!(formatter, "{receiver}.{field}"),
            },
            Selectable::Element { receiver, key } => write!(formatter, "{receiver}[{key}]"),
            Selectable::Slice { receiver, from, to } => {
                write!(formatter, "{receiver}[")?;
                bound(formatter, from.as_ref())?;
                formatter.write_str(" .. ")?;
                bound(formatter, to.as_ref())?;
                formatter.write_str("]")
            }
            Selectable::Arithmetic { operator, left, right } => {
                write!(formatter, "{left} {} {right}", operator.symbol())
            }
            Selectable::Negate(operand) => write!(formatter, "- {operand}"),
            Selectable::TypeHint { type_name, operand } => write!(formatter, "({type_name}) {operand}"),
            Selectable::List(elements) => enclosed(formatter, "[", elements, "]"),
            Selectable::Set(elements) => enclosed(formatter, "{", elements, "}"),
            Selectable::MapOrUserType(entries) => enclosed(formatter, "{", pairs(entries, ": "), "}"),
            Selectable::Tuple(elements) => enclosed(formatter, "(", elements, ")"),
        }
    }
}

impl Display for Direction {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str(match self {
            Direction::Ascending => "ASC",
            Direction::Descending => "DESC",
        })
    }
}

impl Display for Ordering {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match &self.by {
            OrderingExpression::Column(column) => write!(formatter, "{column}")?,
            OrderingExpression::Ann { column, target } => write!(formatter, "{column} ANN OF {target}")?,
            OrderingExpression::Function(function) => write!(formatter, "{function}")?,
        }
        when(formatter, self.direction == Direction::Descending, " DESC")
    }
}
