//! Converts relations to clauses: finds columns, checks operators, prepares terms.
//!
//! Rules and messages as Cassandra 5's `SingleColumnRelation`, `MultiColumnRelation` and `TokenRelation`.

use cql::ast::{ComparisonOperator, Ident, InValues, Relation, RelationTarget, Term as RawTerm};
use model::type_parser::quote_identifier;
use model::{Column, ColumnKind, CqlType};

use super::clause::{Clause, Contains, InTerms, Looked, RowTerm, Test};
use crate::StatementError;
use crate::names;
use crate::terms::prepare::Context;
use crate::terms::{Receiver, Term, text};

/// The target of a relation.
#[derive(Debug)]
pub(super) enum Target {
    /// Columns of one kind.
    Columns(ColumnKind),
    /// The partition's token.
    Token,
}

/// A relation, prepared.
#[derive(Debug)]
pub(super) struct Prepared {
    /// Its target.
    pub(super) target: Target,
    /// Its test.
    pub(super) clause: Clause,
}

/// Prepares one relation; some relations become two clauses.
///
/// # Errors
/// [`StatementError::Invalid`] in Cassandra's words.
pub(super) fn prepare(
    cx: &mut Context<'_>,
    relation: &Relation,
    allow_filtering: bool,
) -> Result<Vec<Prepared>, StatementError> {
    match relation {
        Relation::Compare { target, operator, value } => {
            compare(cx, target, *operator, value).map(|prepared| vec![prepared])
        }
        Relation::In { target, negated: false, values } => {
            in_list(cx, target, values).map(|prepared| vec![prepared])
        }
        Relation::Between { target, low, high } => Ok(vec![
            compare(cx, target, ComparisonOperator::GreaterOrEqual, low)?,
            compare(cx, target, ComparisonOperator::LessOrEqual, high)?,
        ]),
        Relation::In { target, negated: true, values } => not_in(cx, target, values).map(|one| vec![one]),
        Relation::Contains { column, negated, key, value } => {
            contains(cx, column, *negated, *key, value).map(|prepared| vec![prepared])
        }
        Relation::Like { column, pattern } => {
            let column = names::column(cx.table, column)?;
            let shown = text::of_term(pattern);
            let pattern = cx.prepare(pattern, &Receiver::column(cx.table, column))?;
            // Cassandra requires an index; ScyllaDB filters, and so does this if filtering is allowed.
            if !allow_filtering || !matches!(column.ty, CqlType::Text | CqlType::Ascii) {
                return Err(StatementError::Invalid(format!(
                    "LIKE restriction is only supported on properly indexed columns. {} LIKE {shown} is not valid.",
                    column.name
                )));
            }
            Ok(vec![single(cx, column, Test::Looked(Looked::Like(pattern)))])
        }
        Relation::IsNotNull { column } => {
            let column = names::column(cx.table, column)?;
            Err(StatementError::Invalid(format!(
                "Unsupported restriction: {} IS NOT NULL",
                quote_identifier(&column.name)
            )))
        }
        Relation::CustomIndex { index, .. } => Err(StatementError::Invalid(format!(
            "Invalid index expression, index {} not found for {}",
            index.name,
            names::qualified(cx.table)
        ))),
    }
}

fn slice_or_equal(operator: ComparisonOperator, row: RowTerm) -> Option<Test> {
    Some(match operator {
        ComparisonOperator::Equal => Test::Equal(row),
        ComparisonOperator::Less => Test::Slice { lower: None, upper: Some((row, false)) },
        ComparisonOperator::LessOrEqual => Test::Slice { lower: None, upper: Some((row, true)) },
        ComparisonOperator::Greater => Test::Slice { lower: Some((row, false)), upper: None },
        ComparisonOperator::GreaterOrEqual => Test::Slice { lower: Some((row, true)), upper: None },
        ComparisonOperator::NotEqual => return None,
    })
}

fn not_equal(target: &str, value: &RawTerm) -> StatementError {
    StatementError::Invalid(format!("Unsupported \"!=\" relation: {target} != {}", text::of_term(value)))
}

fn compare(
    cx: &mut Context<'_>,
    target: &RelationTarget,
    operator: ComparisonOperator,
    value: &RawTerm,
) -> Result<Prepared, StatementError> {
    match target {
        RelationTarget::Column(name) => {
            if operator == ComparisonOperator::NotEqual {
                return Err(not_equal(&quote_identifier(&name.name), value));
            }
            let column = names::column(cx.table, name)?;
            if operator != ComparisonOperator::Equal {
                check_no_duration(column)?;
            }
            check_operator(column, operator.symbol())?;
            let term = cx.prepare(value, &Receiver::column(cx.table, column))?;
            let test = slice_or_equal(operator, RowTerm::Parts(vec![term])).expect("!= was refused above");
            Ok(single(cx, column, test))
        }
        RelationTarget::Columns(idents) => {
            let shown = || format!("{} {} {}", tuple_text(idents), operator.symbol(), text::of_term(value));
            if operator == ComparisonOperator::NotEqual {
                let names: Vec<&str> = idents.iter().map(|ident| ident.name.as_str()).collect();
                return Err(not_equal(&format!("({})", names.join(", ")), value));
            }
            let columns = clustering_run(cx, idents, &shown)?;
            let row = row_term(cx, &columns, value)?;
            let test = slice_or_equal(operator, row).expect("!= was refused above");
            Ok(multi(&columns, test))
        }
        RelationTarget::Token(idents) => {
            check_token_columns(cx, idents)?;
            let term = cx.prepare(value, &Receiver::new("partition key token", CqlType::Bigint))?;
            let test = slice_or_equal(operator, RowTerm::Parts(vec![term])).ok_or_else(|| {
                let names: Vec<&str> = idents.iter().map(|ident| ident.name.as_str()).collect();
                not_equal(&format!("token({})", names.join(", ")), value)
            })?;
            Ok(Prepared { target: Target::Token, clause: token_clause(cx, test) })
        }
        RelationTarget::Element { column, key } => {
            let column = names::column(cx.table, column)?;
            if operator == ComparisonOperator::NotEqual {
                return Err(not_equal(&format!("{}[{}]", column.name, text::of_term(key)), value));
            }
            let (key_type, value_type) = map_types(column, operator)?;
            let key = cx.prepare(key, &Receiver::key_of(&column.name, key_type))?;
            let value = cx.prepare(value, &Receiver::value_of(&column.name, value_type))?;
            Ok(single(cx, column, Test::Contains(vec![Contains::Entry(key, value)])))
        }
        RelationTarget::Function(function) => Err(StatementError::Invalid(format!(
            "Restrictions by the function {} are not supported yet",
            function.name.name.name
        ))),
    }
}

fn in_list(
    cx: &mut Context<'_>,
    target: &RelationTarget,
    values: &InValues,
) -> Result<Prepared, StatementError> {
    match target {
        RelationTarget::Column(name) => {
            let column = names::column(cx.table, name)?;
            check_operator(column, "IN")?;
            let receiver = Receiver::column(cx.table, column);
            let test = match values {
                InValues::Marker(marker) => {
                    cx.markers.specify_list(marker.index, &receiver.name, &receiver, false);
                    Test::In(InTerms::Marker { index: marker.index, types: vec![receiver.ty] })
                }
                InValues::List(terms) => {
                    let mut rows = terms
                        .iter()
                        .map(|term| Ok(RowTerm::Parts(vec![cx.prepare(term, &receiver)?])))
                        .collect::<Result<Vec<_>, StatementError>>()?;
                    // IN with one element is an equality.
                    if rows.len() == 1 { Test::Equal(rows.remove(0)) } else { Test::In(InTerms::List(rows)) }
                }
            };
            Ok(single(cx, column, test))
        }
        RelationTarget::Columns(idents) => {
            let shown = || match values {
                InValues::Marker(_) => format!("{} IN ?", tuple_text(idents)),
                InValues::List(terms) => {
                    let terms: Vec<String> = terms.iter().map(text::of_term).collect();
                    format!("{} IN ({})", tuple_text(idents), terms.join(", "))
                }
            };
            let columns = clustering_run(cx, idents, &shown)?;
            let test = match values {
                InValues::Marker(marker) => {
                    let receivers: Vec<Receiver> =
                        columns.iter().map(|column| Receiver::column(cx.table, column)).collect();
                    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                    let tuple = Receiver::tuple_of(&receivers);
                    cx.markers.specify_list(marker.index, &names.join(","), &tuple, false);
                    let types = receivers.into_iter().map(|receiver| receiver.ty).collect();
                    Test::In(InTerms::Marker { index: marker.index, types })
                }
                InValues::List(terms) => {
                    let mut rows = terms
                        .iter()
                        .map(|term| row_term(cx, &columns, term))
                        .collect::<Result<Vec<_>, _>>()?;
                    if rows.len() == 1 { Test::Equal(rows.remove(0)) } else { Test::In(InTerms::List(rows)) }
                }
            };
            Ok(multi(&columns, test))
        }
        RelationTarget::Token(_) => Err(StatementError::invalid("IN cannot be used with the token function")),
        RelationTarget::Element { .. } => {
            Err(StatementError::invalid("Only EQ relations are supported on map entries"))
        }
        RelationTarget::Function(function) => Err(StatementError::Invalid(format!(
            "Restrictions by the function {} are not supported yet",
            function.name.name.name
        ))),
    }
}

/// `NOT IN`, which Cassandra 5.0 does not have: none of the values, and not null.
fn not_in(
    cx: &mut Context<'_>,
    target: &RelationTarget,
    values: &InValues,
) -> Result<Prepared, StatementError> {
    let RelationTarget::Column(name) = target else {
        return Err(StatementError::invalid("NOT IN is only supported on single columns"));
    };
    let column = names::column(cx.table, name)?;
    check_operator(column, "NOT IN")?;
    let receiver = Receiver::column(cx.table, column);
    let terms = match values {
        InValues::Marker(marker) => {
            cx.markers.specify_list(marker.index, &receiver.name, &receiver, true);
            InTerms::Marker { index: marker.index, types: vec![receiver.ty] }
        }
        InValues::List(terms) => InTerms::List(
            terms
                .iter()
                .map(|term| Ok(RowTerm::Parts(vec![cx.prepare(term, &receiver)?])))
                .collect::<Result<Vec<_>, StatementError>>()?,
        ),
    };
    Ok(single(cx, column, Test::Looked(Looked::NotIn(terms))))
}

fn contains(
    cx: &mut Context<'_>,
    name: &Ident,
    negated: bool,
    key: bool,
    value: &RawTerm,
) -> Result<Prepared, StatementError> {
    let column = names::column(cx.table, name)?;
    let element = match (&column.ty, key) {
        (CqlType::Map { key, .. }, true) => (**key).clone(),
        (_, true) => {
            return Err(StatementError::Invalid(format!(
                "Cannot use CONTAINS KEY on non-map column {}",
                column.name
            )));
        }
        (CqlType::Map { value, .. }, false) => (**value).clone(),
        (CqlType::List { element, .. } | CqlType::Set { element, .. }, false) => (**element).clone(),
        _ => {
            return Err(StatementError::Invalid(format!(
                "Cannot use CONTAINS on non-collection column {}",
                column.name
            )));
        }
    };
    let receiver =
        if key { Receiver::key_of(&column.name, element) } else { Receiver::value_of(&column.name, element) };
    let term: Term = cx.prepare(value, &receiver)?;
    let contains = if key { Contains::Key(term) } else { Contains::Value(term) };
    let test =
        if negated { Test::Looked(Looked::NotContains(contains)) } else { Test::Contains(vec![contains]) };
    Ok(single(cx, column, test))
}

fn check_no_duration(column: &Column) -> Result<(), StatementError> {
    if !column.ty.references_duration() {
        return Ok(());
    }
    Err(StatementError::invalid(match &column.ty {
        ty if ty.is_collection() => {
            "Slice restrictions are not supported on collections containing durations"
        }
        CqlType::Tuple(_) => "Slice restrictions are not supported on tuples containing durations",
        CqlType::Udt(_) => "Slice restrictions are not supported on UDTs containing durations",
        _ => "Slice restrictions are not supported on duration columns",
    }))
}

fn check_operator(column: &Column, operator: &str) -> Result<(), StatementError> {
    if !column.ty.is_multi_cell() {
        return Ok(());
    }
    Err(StatementError::Invalid(match column.ty {
        CqlType::Udt(_) => format!(
            "Non-frozen UDT column '{}' ({}) cannot be restricted by any relation",
            column.name, column.ty
        ),
        _ => format!(
            "Collection column '{}' ({}) cannot be restricted by a '{operator}' relation",
            column.name, column.ty
        ),
    }))
}

fn map_types(column: &Column, operator: ComparisonOperator) -> Result<(CqlType, CqlType), StatementError> {
    let name = &column.name;
    match &column.ty {
        CqlType::List { .. } => Err(StatementError::Invalid(format!(
            "Indexes on list entries ({name}[index] = value) are not currently supported."
        ))),
        CqlType::Map { frozen: true, .. } => Err(StatementError::Invalid(format!(
            "Map-entry equality predicates on frozen map column {name} are not supported"
        ))),
        CqlType::Map { .. } if operator != ComparisonOperator::Equal => {
            Err(StatementError::invalid("Only EQ relations are supported on map entries"))
        }
        CqlType::Map { key, value, .. } => Ok(((**key).clone(), (**value).clone())),
        _ => Err(StatementError::Invalid(format!("Column {name} cannot be used as a map"))),
    }
}

fn single(cx: &Context<'_>, column: &Column, test: Test) -> Prepared {
    let first = cx
        .table
        .columns_of(column.kind)
        .iter()
        .position(|c| c.id == column.id)
        .expect("a column of the table");
    Prepared {
        target: Target::Columns(column.kind),
        clause: Clause { first, names: vec![column.name.clone()], multi: false, test },
    }
}

fn multi(columns: &[Column], test: Test) -> Prepared {
    Prepared {
        target: Target::Columns(ColumnKind::Clustering),
        clause: Clause {
            first: usize::from(columns[0].position),
            names: columns.iter().map(|column| column.name.clone()).collect(),
            multi: true,
            test,
        },
    }
}

/// The clustering columns of a multi-column relation, which must follow each other.
fn clustering_run(
    cx: &Context<'_>,
    idents: &[Ident],
    shown: &dyn Fn() -> String,
) -> Result<Vec<Column>, StatementError> {
    let mut columns: Vec<Column> = Vec::with_capacity(idents.len());
    for ident in idents {
        let column = names::column(cx.table, ident)?;
        if column.kind != ColumnKind::Clustering {
            return Err(StatementError::Invalid(format!(
                "Multi-column relations can only be applied to clustering columns but was applied to: {}",
                column.name
            )));
        }
        if columns.iter().any(|seen| seen.id == column.id) {
            return Err(StatementError::Invalid(format!(
                "Column \"{}\" appeared twice in a relation: {}",
                column.name,
                shown()
            )));
        }
        if columns.last().is_some_and(|last| column.position != last.position + 1) {
            return Err(StatementError::Invalid(format!(
                "Clustering columns must appear in the PRIMARY KEY order in multi-column relations: {}",
                shown()
            )));
        }
        columns.push(column.clone());
    }
    Ok(columns)
}

/// The columns of a relation as messages show them.
fn tuple_text(idents: &[Ident]) -> String {
    let names: Vec<&str> = idents.iter().map(|ident| ident.name.as_str()).collect();
    format!("({})", names.join(", "))
}

fn row_term(cx: &mut Context<'_>, columns: &[Column], value: &RawTerm) -> Result<RowTerm, StatementError> {
    let receivers: Vec<Receiver> = columns.iter().map(|column| Receiver::column(cx.table, column)).collect();
    match value {
        RawTerm::Tuple(parts) => {
            if parts.len() != columns.len() {
                return Err(StatementError::Invalid(format!(
                    "Expected {} elements in value tuple, but got {}: {}",
                    columns.len(),
                    parts.len(),
                    text::of_term(value)
                )));
            }
            let parts = parts
                .iter()
                .zip(&receivers)
                .map(|(part, receiver)| cx.prepare(part, receiver))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(RowTerm::Parts(parts))
        }
        RawTerm::BindMarker(marker) => {
            cx.markers.specify(marker.index, &Receiver::tuple_of(&receivers));
            let types = receivers.into_iter().map(|receiver| receiver.ty).collect();
            Ok(RowTerm::Marker { index: marker.index, types })
        }
        other => Err(StatementError::Invalid(format!(
            "Expected {} elements in value tuple, but got 1: {}",
            columns.len(),
            text::of_term(other)
        ))),
    }
}

fn check_token_columns(cx: &Context<'_>, idents: &[Ident]) -> Result<(), StatementError> {
    let key: Vec<&str> = cx.table.partition_key().iter().map(|column| column.name.as_str()).collect();
    let mut given = Vec::with_capacity(idents.len());
    for ident in idents {
        given.push(names::column(cx.table, ident)?.name.as_str());
    }
    if given == key {
        return Ok(());
    }
    let twice = |at: usize| given[..at].contains(&given[at]);
    Err(StatementError::Invalid(if key.iter().any(|name| !given.contains(name)) {
        "The token() function must be applied to all partition key components or none of them".to_owned()
    } else if (0..given.len()).any(twice) {
        "The token() function contains duplicate partition key components".to_owned()
    } else if given.iter().any(|name| !key.contains(name)) {
        "The token() function must contains only partition key components".to_owned()
    } else {
        format!("The token function arguments must be in the partition key order: {}", key.join(", "))
    }))
}

fn token_clause(cx: &Context<'_>, test: Test) -> Clause {
    let names = cx.table.partition_key().iter().map(|column| column.name.clone()).collect();
    Clause { first: 0, names, multi: false, test }
}
