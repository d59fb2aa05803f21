//! The parts of INSERT, UPDATE and DELETE.

use std::rc::Rc;

use cql::ast::{self, Relation, RelationTarget};
use model::{ColumnKind, Table};

use super::super::condition::Conditions;
use super::super::operation::{Operation, assign, deletion, set};
use super::{Parts, applies_only_to_statics, deletes_rows};
use crate::StatementError;
use crate::names;
use crate::restrictions::{self, StatementKind};
use crate::terms::prepare::Context;

pub(super) fn insert(
    cx: &mut Context<'_>,
    table: &Rc<Table>,
    insert: &ast::Insert,
    condition: Option<&Conditions>,
) -> Result<Parts, StatementError> {
    if table.is_counter() {
        return Err(StatementError::invalid(INSERT_INTO_COUNTERS));
    }
    if insert.columns.len() != insert.values.len() {
        return Err(StatementError::invalid("Unmatched column names/values"));
    }
    for (at, name) in insert.columns.iter().enumerate() {
        if insert.columns[..at].contains(name) {
            return Err(StatementError::invalid("The column names contains duplicates"));
        }
    }
    let (mut relations, mut operations, mut has_clustering) = (Vec::new(), Vec::new(), false);
    for (name, value) in insert.columns.iter().zip(&insert.values) {
        let column = names::column(table, name)?;
        has_clustering |= column.kind == ColumnKind::Clustering;
        if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            relations.push(Relation::Compare {
                target: RelationTarget::Column(name.clone()),
                operator: ast::ComparisonOperator::Equal,
                value: value.clone(),
            });
        } else {
            operations.push(set(cx, column, value)?);
        }
    }
    let only_static =
        !has_clustering && applies_only_to_statics(StatementKind::Insert, &operations, condition);
    let restrictions = restrictions::prepare(cx, StatementKind::Insert, &relations, only_static, false)?;
    Ok(Parts { kind: StatementKind::Insert, operations, restrictions })
}

pub(super) fn update(
    cx: &mut Context<'_>,
    table: &Rc<Table>,
    update: &ast::Update,
    condition: Option<&Conditions>,
) -> Result<Parts, StatementError> {
    let mut operations: Vec<Operation> = Vec::with_capacity(update.assignments.len());
    // The parser has refused assignments that contradict each other.
    for assignment in &update.assignments {
        let column = names::column(table, &assignment.column)?;
        if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            return Err(StatementError::Invalid(format!(
                "PRIMARY KEY part {} found in SET part",
                column.name
            )));
        }
        operations.push(assign(cx, column, &assignment.operation, condition.is_some())?);
    }
    let only_static = applies_only_to_statics(StatementKind::Update, &operations, condition);
    let relations = &update.where_clause.relations;
    let restrictions = restrictions::prepare(cx, StatementKind::Update, relations, only_static, false)?;
    Ok(Parts { kind: StatementKind::Update, operations, restrictions })
}

pub(super) fn delete(
    cx: &mut Context<'_>,
    table: &Rc<Table>,
    delete: &ast::Delete,
    condition: Option<&Conditions>,
) -> Result<Parts, StatementError> {
    let operations = delete
        .selections
        .iter()
        .map(|selection| deletion(cx, table, selection))
        .collect::<Result<Vec<_>, _>>()?;
    let only_static = applies_only_to_statics(StatementKind::Delete, &operations, condition);
    let relations = &delete.where_clause.relations;
    let restrictions = restrictions::prepare(cx, StatementKind::Delete, relations, only_static, false)?;
    let regulars = operations.iter().any(|operation| operation.column.kind == ColumnKind::Regular);
    let deletes_rows = deletes_rows(StatementKind::Delete, operations.is_empty());
    let names_rows = restrictions.names_rows(table);
    if let Some(condition) = condition.filter(|_| !names_rows) {
        if regulars || deletes_rows {
            return Err(StatementError::invalid(
                "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to \
                 delete non static columns",
            ));
        }
        if condition.concerns(ColumnKind::Regular) {
            return Err(StatementError::invalid(
                "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to \
                 use IF condition on non static columns",
            ));
        }
    }
    if regulars && !names_rows {
        return Err(StatementError::invalid("Range deletions are not supported for specific columns"));
    }
    Ok(Parts { kind: StatementKind::Delete, operations, restrictions })
}

/// The error for an INSERT into a table of counters.
pub(super) const INSERT_INTO_COUNTERS: &str =
    "INSERT statements are not allowed on counter tables, use UPDATE instead";
