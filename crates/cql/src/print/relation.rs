//! Prints WHERE clauses and IF conditions.

use std::fmt::{Display, Formatter, Result};

use super::{enclosed, separated, when};
use crate::ast::{
    ColumnFunction, ComparisonOperator, Condition, ConditionTarget, ConditionTest, IfClause, InValues,
    Relation, RelationTarget, WhereClause,
};

impl Display for WhereClause {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        separated(formatter, &self.relations, " AND ")
    }
}

impl Display for ComparisonOperator {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str(self.symbol())
    }
}

impl Display for ColumnFunction {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{}({}", self.name, self.column)?;
        for argument in &self.arguments {
            write!(formatter, ", {argument}")?;
        }
        formatter.write_str(")")
    }
}

impl Display for RelationTarget {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            RelationTarget::Column(column) => write!(formatter, "{column}"),
            RelationTarget::Columns(columns) => enclosed(formatter, "(", columns, ")"),
            RelationTarget::Token(columns) => enclosed(formatter, "token(", columns, ")"),
            RelationTarget::Element { column, key } => write!(formatter, "{column}[{key}]"),
            RelationTarget::Function(function) => write!(formatter, "{function}"),
        }
    }
}

impl Display for InValues {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            InValues::Marker(marker) => write!(formatter, "{marker}"),
            InValues::List(values) => enclosed(formatter, "(", values, ")"),
        }
    }
}

fn contains(formatter: &mut Formatter<'_>, negated: bool, key: bool) -> Result {
    when(formatter, negated, "NOT ")?;
    formatter.write_str("CONTAINS ")?;
    when(formatter, key, "KEY ")
}

impl Display for Relation {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Relation::Compare { target, operator, value } => write!(formatter, "{target} {operator} {value}"),
            Relation::In { target, negated, values } => {
                let not = if *negated { "NOT " } else { "" };
                write!(formatter, "{target} {not}IN {values}")
            }
            Relation::Between { target, low, high } => write!(formatter, "{target} BETWEEN {low} AND {high}"),
            Relation::Contains { column, negated, key, value } => {
                write!(formatter, "{column} ")?;
                contains(formatter, *negated, *key)?;
                write!(formatter, "{value}")
            }
            Relation::Like { column, pattern } => write!(formatter, "{column} LIKE {pattern}"),
            Relation::IsNotNull { column } => write!(formatter, "{column} IS NOT NULL"),
            Relation::CustomIndex { index, value } => write!(formatter, "expr({index}, {value})"),
        }
    }
}

impl Display for ConditionTarget {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            ConditionTarget::Column(column) => write!(formatter, "{column}"),
            ConditionTarget::Element { column, key } => write!(formatter, "{column}[{key}]"),
            ConditionTarget::Field { column, field } => write!(formatter, "{column}.{field}"),
        }
    }
}

impl Display for Condition {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{} ", self.target)?;
        match &self.test {
            ConditionTest::Compare { operator, value } => write!(formatter, "{operator} {value}"),
            ConditionTest::In { negated, values } => {
                when(formatter, *negated, "NOT ")?;
                write!(formatter, "IN {values}")
            }
            ConditionTest::Contains { key, value } => {
                contains(formatter, false, *key)?;
                write!(formatter, "{value}")
            }
            ConditionTest::Like { pattern } => write!(formatter, "LIKE {pattern}"),
        }
    }
}

/// With a space in front, so that it can follow a WHERE clause; nothing for [`IfClause::None`].
impl Display for IfClause {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            IfClause::None => Ok(()),
            IfClause::Exists => formatter.write_str(" IF EXISTS"),
            IfClause::Conditions(conditions) => {
                formatter.write_str(" IF ")?;
                separated(formatter, conditions, " AND ")
            }
        }
    }
}
