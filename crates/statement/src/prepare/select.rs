//! SELECT, prepared: the rows that are read, their order and limits, and the columns of the result.
//!
//! Rules and messages as Cassandra 5's `SelectStatement.RawStatement`.

use std::rc::Rc;

use cql::ast::{
    self, Direction, Ident, OrderingExpression, SelectSource, Selectable, Selection as RawSelection, last_of,
};
use model::schema::CompactShape;
use model::{Column, ColumnKind, CqlType, Table};

use super::grouping;
use super::resolved::Resolved;
use super::selectable;
use super::selection::{self, Selection, SelectionKind};
use super::selector::Aggregate;
use crate::StatementError;
use crate::names;
use crate::restrictions::{self, Restrictions, StatementKind};
use crate::results::ResultMetadata;
use crate::terms::prepare::Context;
use crate::terms::{Receiver, Term};

/// A prepared SELECT.
#[derive(Debug)]
pub struct SelectPlan {
    /// Table read.
    pub table: Rc<Table>,
    /// Which partitions and rows.
    pub restrictions: Restrictions,
    /// The selected values of each row.
    pub selection: Selection,
    /// One row for each partition.
    pub distinct: bool,
    /// ALLOW FILTERING, needed or not.
    pub allow_filtering: bool,
    /// Rows from the last to the first.
    pub reversed: bool,
    /// BYPASS CACHE (ScyllaDB's extension).
    pub bypass_cache: bool,
    /// Whether the result is sorted as a whole (ORDER BY if IN names several partitions): it has no pages.
    pub sorted_whole: bool,
    /// Order of the whole result, if IN names several partitions: indexes of selected values, and whether
    /// they are descending.
    pub sort: Vec<(usize, CqlType, bool)>,
    /// LIMIT.
    pub limit: Option<Term>,
    /// PER PARTITION LIMIT.
    pub per_partition_limit: Option<Term>,
    /// `USING TIMEOUT`: how long the coordinator waits instead of the configured time (ScyllaDB's extension).
    pub timeout: Option<Term>,
    /// The statement's text, if all rows of a scan become one and shards can do their parts on their own.
    pub parallel: Option<Box<str>>,
    /// Whether the statement selects plain columns of one row of one partition, so that `execute::point` may
    /// answer it.
    pub point: bool,
    /// Whether a read of one row first looks for it in memory, without waiting.
    pub looks_in_memory: bool,
    /// Whether a user-defined function runs for each row: rows are then read in short pieces.
    pub calls_user: bool,
    /// The number of calls of functions and operators for each row.
    pub calls: usize,
    /// The table whose fragments are read, if the statement is about those (`MUTATION_FRAGMENTS`, ScyllaDB).
    pub fragments_of: Option<Rc<Table>>,
    /// The result's columns in wire form.
    pub metadata: ResultMetadata,
}

/// Prepares a SELECT of `table`.
///
/// # Errors
/// [`StatementError::Invalid`] in Cassandra's words.
pub fn prepare(
    cx: &mut Context<'_>,
    table: &Rc<Table>,
    select: &ast::Select,
) -> Result<SelectPlan, StatementError> {
    refuse_unsupported(select)?;
    let (only_static, looked_at) = look_for_statics(cx, table, &select.selection)?;
    let relations = select.where_clause.as_ref().map_or(&[][..], |clause| &clause.relations);
    let ordering = ordering_columns(table, select)?;
    let restrictions =
        restrictions::prepare(cx, StatementKind::Select, relations, only_static, select.allow_filtering)?;
    let grouped = !select.group_by.is_empty();
    let (mut selection, mut columns) = selection::prepare(cx, table, &select.selection, looked_at, grouped)?;
    if select.distinct {
        check_distinct(table, &selection, &restrictions, select.per_partition_limit.is_some())?;
        // The columns that several partitions are ordered by are selected too.
        if restrictions.partition_key_has_in()
            && let Some((column, _)) = ordering.first()
        {
            return Err(not_distinct(&column.name));
        }
    }
    if grouped && let SelectionKind::Groups(groups) = &mut selection.kind {
        groups.by = Some(grouping::group_by(cx, table, select, &restrictions)?);
    }
    if selection.is_one_group() && select.per_partition_limit.is_some() {
        return Err(StatementError::invalid("PER PARTITION LIMIT is not allowed with aggregate queries."));
    }
    if !ordering.is_empty() && restrictions.key_range {
        return Err(StatementError::invalid(
            "ORDER BY is only supported when the partition key is restricted by an EQ or an IN.",
        ));
    }
    let reversed = is_reversed(table, &ordering, &restrictions)?;
    if reversed && matches!(select.source, SelectSource::MutationFragments(_)) {
        return Err(StatementError::invalid("Mutation fragments are read in their own order only"));
    }
    let sorted_whole = !ordering.is_empty() && restrictions.partition_key_has_in();
    let sort = if sorted_whole && !selection.is_one_group() {
        let place = |(column, descending): &(Column, bool)| {
            (selection.place_of(column, select.json), column.ty.clone(), *descending)
        };
        ordering.iter().map(place).collect()
    } else {
        Vec::new()
    };
    columns.truncate(selection.shown);
    if select.json {
        columns = selection.become_json(&columns);
    }
    if restrictions.filters_unasked {
        return Err(StatementError::invalid(restrictions::ALLOW_FILTERING_NEEDED));
    }
    let limit = limit(cx, select.limit.as_ref(), "[limit]")?;
    let per_partition_limit = limit_per_partition(cx, select.per_partition_limit.as_ref())?;
    let timeout = last_of(&select.attributes).timeout;
    let timeout =
        timeout.map(|term| cx.prepare(term, &Receiver::new("[timeout]", CqlType::Duration))).transpose()?;
    let parallel = selection.is_one_group()
        && restrictions.key_range
        && !matches!(select.source, SelectSource::MutationFragments(_))
        && !select.distinct
        && selection.aggregates().iter().all(Aggregate::is_mergeable);
    let (calls_user, calls) = (selection.calls_user(), selection.calls());
    let point = matches!(selection.kind, SelectionKind::Columns(_))
        && !calls_user
        && !select.distinct
        && sort.is_empty()
        && !sorted_whole
        && limit.is_none()
        && per_partition_limit.is_none()
        && timeout.is_none()
        && !restrictions.key_range
        && restrictions.token.is_none()
        && restrictions.filters.is_empty()
        && !restrictions.partition_key_has_in()
        && !restrictions.clustering_has_in()
        && restrictions.names_rows(table)
        && table.statics().is_empty()
        && !table.is_counter();
    Ok(SelectPlan {
        point,
        looks_in_memory: !calls_user,
        parallel: parallel.then(|| select.to_string().into_boxed_str()),
        table: Rc::clone(table),
        restrictions,
        selection,
        distinct: select.distinct,
        allow_filtering: select.allow_filtering,
        reversed,
        bypass_cache: select.bypass_cache,
        sorted_whole,
        sort,
        limit,
        per_partition_limit,
        timeout,
        calls_user,
        calls,
        fragments_of: None,
        metadata: ResultMetadata::new(table.keyspace(), table.name(), columns),
    })
}

fn limit(cx: &mut Context<'_>, term: Option<&ast::Term>, name: &str) -> Result<Option<Term>, StatementError> {
    term.map(|term| cx.prepare(term, &Receiver::new(name, CqlType::Int))).transpose()
}

fn limit_per_partition(
    cx: &mut Context<'_>,
    term: Option<&ast::Term>,
) -> Result<Option<Term>, StatementError> {
    limit(cx, term, "[per_partition_limit]")
}

fn refuse_unsupported(select: &ast::Select) -> Result<(), StatementError> {
    let unsupported = |what: &str| Err(StatementError::Invalid(format!("{what} is not supported yet")));
    if last_of(&select.attributes).service_level.is_some() {
        return unsupported("USING SERVICE LEVEL");
    }
    Ok(())
}

/// Calls `each` for every column name in an expression.
fn for_each_name(expression: &Selectable, each: &mut dyn FnMut(&Ident)) {
    match expression {
        Selectable::Column(name) => each(name),
        Selectable::Constant(_) | Selectable::BindMarker(_) | Selectable::CountRows => {}
        Selectable::Cell { operand, .. }
        | Selectable::Cast { operand, .. }
        | Selectable::Negate(operand)
        | Selectable::TypeHint { operand, .. } => for_each_name(operand, each),
        Selectable::Field { receiver, .. }
        | Selectable::Element { receiver, .. }
        | Selectable::Slice { receiver, .. } => for_each_name(receiver, each),
        Selectable::Arithmetic { left, right, .. } => {
            for_each_name(left, each);
            for_each_name(right, each);
        }
        Selectable::Function { arguments: parts, .. }
        | Selectable::List(parts)
        | Selectable::Set(parts)
        | Selectable::Tuple(parts) => parts.iter().for_each(|part| for_each_name(part, each)),
        Selectable::MapOrUserType(entries) => entries.iter().for_each(|(key, value)| {
            for_each_name(key, each);
            for_each_name(value, each);
        }),
    }
}

/// Whether only static columns and the partition key are selected, and the expressions that were resolved to
/// find out.
///
/// Before the WHERE clause, Cassandra examines a selection only as far as needed for this: the order decides
/// which of two mistakes is reported.
fn look_for_statics<'e>(
    cx: &Context<'e>,
    table: &Table,
    selection: &'e RawSelection,
) -> Result<(bool, Vec<Option<Resolved<'e>>>), StatementError> {
    let RawSelection::Selectors(selectors) = selection else { return Ok((false, Vec::new())) };
    let mut resolved: Vec<Option<Resolved<'e>>> = selectors.iter().map(|_| None).collect();
    // The static row of a static compact table is its only row.
    if table.statics().is_empty() || table.compact() == Some(CompactShape::Static) {
        return Ok((false, resolved));
    }
    let mut any = |wanted: &dyn Fn(ColumnKind) -> bool| -> Result<bool, StatementError> {
        for (selector, slot) in selectors.iter().zip(&mut resolved) {
            if slot.is_none() {
                *slot = Some(selectable::resolve(cx, &selector.expression)?);
            }
            let mut found = false;
            for_each_name(&selector.expression, &mut |name| {
                found |= table.column(&name.name).is_some_and(|column| wanted(column.kind));
            });
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let statics = any(&|kind| kind == ColumnKind::Static)?;
    let others = statics && any(&|kind| !matches!(kind, ColumnKind::Static | ColumnKind::PartitionKey))?;
    Ok((statics && !others, resolved))
}

fn not_distinct(name: &str) -> StatementError {
    StatementError::Invalid(format!(
        "SELECT DISTINCT queries must only request partition key columns and/or static columns (not {name})"
    ))
}

fn check_distinct(
    table: &Table,
    selection: &Selection,
    restrictions: &Restrictions,
    per_partition_limit: bool,
) -> Result<(), StatementError> {
    if per_partition_limit {
        return Err(StatementError::invalid(
            "PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries",
        ));
    }
    if restrictions.restricts_clustering || restrictions.restricts_regular {
        return Err(StatementError::invalid(
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or static columns.",
        ));
    }
    let mut wrong = None;
    let mut selected = Vec::new();
    selection.for_each_column(&mut |column| match column.kind {
        ColumnKind::PartitionKey => selected.push(column.id),
        ColumnKind::Static => {}
        _ => {
            wrong.get_or_insert_with(|| column.name.clone());
        }
    });
    if let Some(name) = wrong {
        return Err(not_distinct(&name));
    }
    if !restrictions.key_range {
        return Ok(());
    }
    match table.partition_key().iter().find(|column| !selected.contains(&column.id)) {
        Some(missing) => Err(StatementError::Invalid(format!(
            "SELECT DISTINCT queries must request all the partition key columns (missing {})",
            missing.name
        ))),
        None => Ok(()),
    }
}

fn ordering_columns(table: &Table, select: &ast::Select) -> Result<Vec<(Column, bool)>, StatementError> {
    let mut ordering: Vec<(Column, bool)> = Vec::new();
    for order in &select.order_by {
        let OrderingExpression::Column(name) = &order.by else {
            return Err(StatementError::invalid(
                "ORDER BY with ANN or a scoring function is not supported yet",
            ));
        };
        let column = names::column(table, name)?.clone();
        let descending = order.direction == Direction::Descending;
        match ordering.iter_mut().find(|(seen, _)| seen.id == column.id) {
            Some(seen) => seen.1 = descending,
            None => ordering.push((column, descending)),
        }
    }
    Ok(ordering)
}

fn is_reversed(
    table: &Table,
    ordering: &[(Column, bool)],
    restrictions: &Restrictions,
) -> Result<bool, StatementError> {
    let mut expected = 0;
    let mut reversed: Option<bool> = None;
    for (column, descending) in ordering {
        if column.kind != ColumnKind::Clustering {
            return Err(StatementError::Invalid(format!(
                "Order by is currently only supported on the clustered columns of the PRIMARY KEY, got {}",
                column.name
            )));
        }
        let place = usize::from(column.position);
        while expected != place {
            let equal = restrictions.clustering_equal.get(expected).copied().unwrap_or(false);
            if !equal {
                return Err(StatementError::invalid(
                    "Order by currently only supports the ordering of columns following their declared order in the PRIMARY KEY",
                ));
            }
            expected += 1;
        }
        expected += 1;
        let turned = *descending != table.clustering()[place].reversed;
        if reversed.is_some_and(|reversed| reversed != turned) {
            return Err(StatementError::invalid("Unsupported order by relation"));
        }
        reversed = Some(turned);
    }
    Ok(reversed.unwrap_or(false))
}
