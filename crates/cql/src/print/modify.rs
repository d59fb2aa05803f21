//! Prints INSERT, UPDATE, DELETE, BATCH, TRUNCATE and PRUNE.

use std::fmt::{Display, Formatter, Result};

use super::{clause, enclosed, optional, separated, when};
use crate::ast::{
    Assignment, AssignmentOperation, Attribute, Batch, BatchKind, Delete, DeleteSelection, Insert,
    InsertJson, JsonDefault, Modification, PruneMaterializedView, Truncate, Update,
};

impl Display for Attribute {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Attribute::Timestamp(term) => write!(formatter, "TIMESTAMP {term}"),
            Attribute::TimeToLive(term) => write!(formatter, "TTL {term}"),
            Attribute::Timeout(term) => write!(formatter, "TIMEOUT {term}"),
            Attribute::Concurrency(term) => write!(formatter, "CONCURRENCY {term}"),
            Attribute::ServiceLevel(name) => write!(formatter, "SERVICE LEVEL {name}"),
        }
    }
}

impl Display for Insert {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "INSERT INTO {} ", self.table)?;
        enclosed(formatter, "(", &self.columns, ")")?;
        enclosed(formatter, " VALUES (", &self.values, ")")?;
        when(formatter, self.if_not_exists, " IF NOT EXISTS")?;
        clause(formatter, " USING ", &self.attributes)
    }
}

impl Display for InsertJson {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "INSERT INTO {} JSON {}", self.table, self.value)?;
        when(formatter, self.default == JsonDefault::Unset, " DEFAULT UNSET")?;
        when(formatter, self.if_not_exists, " IF NOT EXISTS")?;
        clause(formatter, " USING ", &self.attributes)
    }
}

impl Display for Update {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "UPDATE {}", self.table)?;
        clause(formatter, " USING ", &self.attributes)?;
        enclosed(formatter, " SET ", &self.assignments, "")?;
        write!(formatter, " WHERE {}{}", self.where_clause, self.condition)
    }
}

impl Display for Assignment {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let column = &self.column;
        match &self.operation {
            AssignmentOperation::Set(value) => write!(formatter, "{column} = {value}"),
            AssignmentOperation::Prepend(value) => write!(formatter, "{column} = {value} + {column}"),
            AssignmentOperation::Add(value) => write!(formatter, "{column} += {value}"),
            AssignmentOperation::Subtract(value) => write!(formatter, "{column} -= {value}"),
            AssignmentOperation::SetElement { key, value } => write!(formatter, "{column}[{key}] = {value}"),
            AssignmentOperation::SetField { field, value } => write!(formatter, "{column}.{field} = {value}"),
        }
    }
}

impl Display for Delete {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("DELETE ")?;
        separated(formatter, &self.selections, ", ")?;
        when(formatter, !self.selections.is_empty(), " ")?;
        write!(formatter, "FROM {}", self.table)?;
        clause(formatter, " USING ", &self.attributes)?;
        write!(formatter, " WHERE {}{}", self.where_clause, self.condition)?;
        when(formatter, self.bypass_guardrails, " BYPASS LARGE_DATA_GUARDRAILS")
    }
}

impl Display for DeleteSelection {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            DeleteSelection::Column(column) => write!(formatter, "{column}"),
            DeleteSelection::Element { column, key } => write!(formatter, "{column}[{key}]"),
            DeleteSelection::Field { column, field } => write!(formatter, "{column}.{field}"),
        }
    }
}

impl Display for Batch {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str(match self.kind {
            BatchKind::Logged => "BEGIN BATCH",
            BatchKind::Unlogged => "BEGIN UNLOGGED BATCH",
            BatchKind::Counter => "BEGIN COUNTER BATCH",
        })?;
        clause(formatter, " USING ", &self.attributes)?;
        for statement in &self.statements {
            write!(formatter, " {statement};")?;
        }
        formatter.write_str(" APPLY BATCH")
    }
}

impl Display for Modification {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Modification::Insert(insert) => write!(formatter, "{insert}"),
            Modification::InsertJson(insert) => write!(formatter, "{insert}"),
            Modification::Update(update) => write!(formatter, "{update}"),
            Modification::Delete(delete) => write!(formatter, "{delete}"),
        }
    }
}

impl Display for Truncate {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "TRUNCATE {}", self.table)?;
        clause(formatter, " USING ", &self.attributes)
    }
}

impl Display for PruneMaterializedView {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "PRUNE MATERIALIZED VIEW {}", self.view)?;
        optional(formatter, " WHERE ", self.where_clause.as_ref())?;
        clause(formatter, " USING ", &self.attributes)
    }
}
