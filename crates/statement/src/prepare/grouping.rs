//! GROUP BY: a prefix of the primary key, the last column of which may be under a function.
//!
//! Rules and messages as Cassandra 5's `SelectStatement.getAggregationSpecFactory`.

use cql::ast;
use model::{Column, ColumnKind, CqlType, Table};

use super::resolved::{Resolved, is_primary_key};
use super::selection::GroupBy;
use super::selector::Selector;
use super::{expression, selectable};
use crate::StatementError;
use crate::restrictions::Restrictions;
use crate::terms::prepare::Context;

/// How GROUP BY cuts the rows.
///
/// # Errors
/// [`StatementError::Invalid`] in Cassandra's words.
pub(super) fn group_by(
    cx: &mut Context<'_>,
    table: &Table,
    select: &ast::Select,
    restrictions: &Restrictions,
) -> Result<GroupBy, StatementError> {
    const DECLARED_ORDER: &str =
        "Group by currently only support groups of columns following their declared order in the PRIMARY KEY";
    let key = table.partition_key().iter().chain(table.clustering());
    let mut rest = key.enumerate();
    let mut by = GroupBy::default();
    for item in &select.group_by {
        let resolved = selectable::resolve(cx, item)?;
        let column = match &resolved {
            Resolved::Aggregate { kind, .. } => {
                return Err(StatementError::Invalid(format!(
                    "Aggregate functions are not supported within the GROUP BY clause, got: system.{}",
                    kind.name()
                )));
            }
            Resolved::Call { .. } => group_function(cx, &resolved, &mut by)?,
            Resolved::Column(column) => {
                if !is_primary_key(column) {
                    return Err(StatementError::Invalid(format!(
                        "Group by is currently only supported on the columns of the PRIMARY KEY, got {}",
                        column.name
                    )));
                }
                if by.function.is_some() {
                    return Err(StatementError::invalid(
                        "Functions are only supported on the last element of the GROUP BY clause",
                    ));
                }
                (*column).clone()
            }
            other => {
                return Err(StatementError::Invalid(format!(
                    "Group by is currently only supported on columns and functions of them, got {}",
                    other.text()
                )));
            }
        };
        loop {
            let (_, next) = rest.next().ok_or_else(|| StatementError::invalid(DECLARED_ORDER))?;
            if next.kind == ColumnKind::Clustering {
                by.clustering += 1;
            }
            if next.id == column.id {
                break;
            }
            if !restrictions.is_equal(next) {
                return Err(StatementError::invalid(DECLARED_ORDER));
            }
        }
    }
    if rest.next().is_some_and(|(_, column)| column.kind == ColumnKind::PartitionKey) {
        return Err(StatementError::invalid("Group by is not supported on only a part of the partition key"));
    }
    if by.clustering > 0 && select.distinct {
        return Err(StatementError::invalid(
            "Grouping on clustering columns is not allowed for SELECT DISTINCT queries",
        ));
    }
    Ok(by)
}

/// Refuses functions under which rows of one group might not follow each other.
fn check_monotonic(selector: &Selector) -> Result<(), StatementError> {
    let Selector::Call(function, arguments) = selector else {
        return match selector {
            Selector::Column(_) => Ok(()),
            other if !other.reads_row() => Ok(()),
            _ => Err(StatementError::invalid(
                "Only column names and monotonic scalar functions are supported in the GROUP BY clause.",
            )),
        };
    };
    let varies: Vec<bool> = arguments.iter().map(Selector::reads_row).collect();
    let monotonic = match function.short_name() {
        // The user's are not known to be, whatever they are called.
        _ if function.user().is_some() => false,
        "to_date" | "todate" | "to_timestamp" | "totimestamp" | "to_unix_timestamp" | "tounixtimestamp" => {
            true
        }
        "floor" => varies.first() == Some(&true) && !varies[1..].contains(&true),
        _ => false,
    };
    if !monotonic {
        let argument =
            |(ty, varies): (&CqlType, &bool)| format!("{ty}{}", if *varies { "" } else { "(constant)" });
        let arguments: Vec<String> = function.arguments().iter().zip(&varies).map(argument).collect();
        // The blank before the end is Cassandra's.
        return Err(StatementError::Invalid(format!(
            "Only monotonic functions are supported in the GROUP BY clause. Got: {}.{} : ({}) -> {} ",
            model::type_parser::quote_identifier(function.keyspace()),
            model::type_parser::quote_identifier(function.short_name()),
            arguments.join(", "),
            function.result()
        )));
    }
    arguments.iter().filter(|argument| argument.reads_row()).try_for_each(check_monotonic)
}

/// Adds a function of a clustering column to `by` and returns the column.
fn group_function(
    cx: &mut Context<'_>,
    resolved: &Resolved<'_>,
    by: &mut GroupBy,
) -> Result<Column, StatementError> {
    let function = expression::single(cx, resolved)?;
    let mut columns: Vec<Column> = Vec::new();
    function.for_each_column(&[], &mut |column| {
        if !columns.iter().any(|seen| seen.id == column.id) {
            columns.push(column.clone());
        }
    });
    let column = match columns.as_slice() {
        [] => {
            return Err(StatementError::invalid(
                "GROUP BY functions must have one clustering column name as parameter",
            ));
        }
        [column] => column.clone(),
        several => {
            let names: Vec<String> = several
                .iter()
                .map(|column| model::type_parser::quote_identifier(&column.name).to_string())
                .collect();
            return Err(StatementError::Invalid(format!(
                "GROUP BY functions accept only one clustering column as parameter, got: {}",
                names.join(",")
            )));
        }
    };
    if column.kind != ColumnKind::Clustering {
        return Err(StatementError::Invalid(format!(
            "Group by functions are only supported on clustering columns, got {}",
            column.name
        )));
    }
    check_monotonic(&function)?;
    by.function = Some(function);
    Ok(column)
}
