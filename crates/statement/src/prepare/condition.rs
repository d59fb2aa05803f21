//! IF clauses of modifications, prepared: the conditions on the rows before they are written.
//!
//! Rules and messages are those of Cassandra 5's `ColumnCondition`. Conditions on regular columns concern the
//! row that the statement names, those on static columns the static row.

use std::rc::Rc;

use cql::ast::{
    ComparisonOperator, Condition as Raw, ConditionTarget, ConditionTest, IfClause, InValues, Term as RawTerm,
};
use model::{Column, ColumnKind, CqlType, Table};

use super::operation::field_place;
use crate::StatementError;
use crate::names;
use crate::terms::prepare::Context;
use crate::terms::{Receiver, Term};

/// The kinds of IF clause.
#[derive(Debug)]
pub enum Conditions {
    /// `IF NOT EXISTS`
    NotExists,
    /// `IF EXISTS`
    Exists,
    /// `IF …`: those on regular columns first, each kind in the order written.
    Columns(Vec<Condition>),
}

/// One condition on a column.
#[derive(Debug)]
pub struct Condition {
    /// The column; conditions that follow each other share it.
    pub column: Rc<Column>,
    /// The tested part of the column.
    pub part: Part,
    /// Type of the tested part.
    pub ty: CqlType,
    /// The comparison.
    pub operator: Operator,
    /// The values it is compared with.
    pub values: Values,
}

/// The part of a column that a condition tests.
#[derive(Debug)]
pub enum Part {
    /// All of it.
    Whole,
    /// The entry of a map, or the element of a list, at a key.
    Element(Term),
    /// A field of a user type.
    Field(usize),
}

/// How a condition compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `= < <= > >= !=`
    Compare(ComparisonOperator),
    /// `IN`, or `NOT IN`
    In {
        /// `NOT IN`
        negated: bool,
    },
    /// `CONTAINS`
    Contains,
    /// `CONTAINS KEY`
    ContainsKey,
    /// `LIKE`
    Like,
}

impl Operator {
    /// The operator as messages show it.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Compare(operator) => operator.symbol(),
            // The values of IN are compared one by one.
            Self::In { .. } => "=",
            Self::Contains => "CONTAINS",
            Self::ContainsKey => "CONTAINS KEY",
            Self::Like => "LIKE",
        }
    }

    fn is_slice(self) -> bool {
        matches!(self, Self::Compare(operator)
            if !matches!(operator, ComparisonOperator::Equal | ComparisonOperator::NotEqual))
    }
}

/// The values that a condition compares with.
#[derive(Debug)]
pub enum Values {
    /// These; one, unless the operator is IN.
    Terms(Vec<Term>),
    /// One marker for a list of them.
    Marker {
        /// Index among the markers.
        index: usize,
        /// Type of the list.
        list: CqlType,
    },
}

impl Conditions {
    /// Prepares the IF clause of an UPDATE or DELETE; `None` if there is none.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] in Cassandra's words.
    pub fn prepare(cx: &mut Context<'_>, clause: &IfClause) -> Result<Option<Self>, StatementError> {
        Ok(match clause {
            IfClause::None => None,
            IfClause::Exists => Some(Self::Exists),
            IfClause::Conditions(raw) => {
                let mut last = None;
                let prepared = raw.iter().map(|raw| condition(cx, raw, &mut last));
                let mut conditions = prepared.collect::<Result<Vec<_>, _>>()?;
                conditions.sort_by_key(|condition| condition.column.kind == ColumnKind::Static);
                Some(Self::Columns(conditions))
            }
        })
    }

    /// Whether a condition is on a column of this kind.
    pub fn concerns(&self, kind: ColumnKind) -> bool {
        self.columns().iter().any(|condition| condition.column.kind == kind)
    }

    /// The conditions on columns.
    pub fn columns(&self) -> &[Condition] {
        if let Self::Columns(conditions) = self { conditions } else { &[] }
    }
}

fn condition(
    cx: &mut Context<'_>,
    raw: &Raw,
    last: &mut Option<Rc<Column>>,
) -> Result<Condition, StatementError> {
    let invalid = |text: String| Err(StatementError::Invalid(text));
    let table: &Table = cx.table;
    let (ConditionTarget::Column(name)
    | ConditionTarget::Element { column: name, .. }
    | ConditionTarget::Field { column: name, .. }) = &raw.target;
    let found = names::column(table, name)?;
    let column = match last {
        Some(last) if last.id == found.id => Rc::clone(last),
        _ => Rc::new(found.clone()),
    };
    *last = Some(Rc::clone(&column));
    if column.ty == CqlType::Counter {
        return Err(StatementError::invalid("Conditions on counters are not supported"));
    }
    let operator = operator(&raw.test)?;
    let (part, receiver) = match &raw.target {
        ConditionTarget::Column(_) => (Part::Whole, Receiver::column(table, &column)),
        ConditionTarget::Element { key, .. } => match &column.ty {
            CqlType::List { element, .. } => {
                let index = cx.prepare(key, &Receiver::index_of(&column.name))?;
                (Part::Element(index), Receiver::value_of(&column.name, (**element).clone()))
            }
            CqlType::Map { key: ty, value, .. } => {
                let key = cx.prepare(key, &Receiver::key_of(&column.name, (**ty).clone()))?;
                (Part::Element(key), Receiver::value_of(&column.name, (**value).clone()))
            }
            CqlType::Set { .. } => {
                return invalid(format!("Invalid element access syntax for set column {}", column.name));
            }
            _ => {
                return invalid(format!(
                    "Invalid element access syntax for non-collection column {}",
                    column.name
                ));
            }
        },
        ConditionTarget::Field { field, .. } => {
            let CqlType::Udt(udt) = &column.ty else {
                return invalid(format!("Invalid field access syntax for non-UDT column {}", column.name));
            };
            let at = field_place(&column, &field.name).map_err(|_| {
                StatementError::Invalid(format!("Unknown field {} for column {}", field.name, column.name))
            })?;
            let (name, ty) = &udt.fields[at];
            (Part::Field(at), Receiver::new(format!("{}.{name}", column.name), ty.clone()))
        }
    };
    if operator.is_slice() {
        check_no_durations(&receiver.ty, operator)?;
    }
    let values = values(cx, &column, &receiver, &raw.test)?;
    if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
        return invalid(format!("PRIMARY KEY column '{}' cannot have IF conditions", column.name));
    }
    Ok(Condition { column, part, ty: receiver.ty, operator, values })
}

fn operator(test: &ConditionTest) -> Result<Operator, StatementError> {
    Ok(match test {
        ConditionTest::Compare { operator, .. } => Operator::Compare(*operator),
        ConditionTest::In { negated, .. } => Operator::In { negated: *negated },
        ConditionTest::Contains { key: false, .. } => Operator::Contains,
        ConditionTest::Contains { key: true, .. } => Operator::ContainsKey,
        ConditionTest::Like { .. } => Operator::Like,
    })
}

fn values(
    cx: &mut Context<'_>,
    column: &Column,
    receiver: &Receiver,
    test: &ConditionTest,
) -> Result<Values, StatementError> {
    let mut one =
        |value: &RawTerm, receiver: &Receiver| Ok(Values::Terms(vec![cx.prepare(value, receiver)?]));
    match test {
        ConditionTest::Compare { value, .. } => one(value, receiver),
        ConditionTest::In { values: InValues::List(list), .. } => {
            let terms = list.iter().map(|value| cx.prepare(value, receiver)).collect::<Result<_, _>>()?;
            Ok(Values::Terms(terms))
        }
        ConditionTest::In { values: InValues::Marker(marker), .. } => {
            let list = cx.markers.specify_list(marker.index, &receiver.name, receiver, false);
            Ok(Values::Marker { index: marker.index, list })
        }
        ConditionTest::Contains { key, value } => {
            let name = &column.name;
            let element = match (&column.ty, key) {
                (CqlType::Map { key, .. }, true) => Receiver::key_of(name, (**key).clone()),
                (_, true) => {
                    return Err(StatementError::Invalid(format!(
                        "Cannot use CONTAINS KEY on non-map column {name}"
                    )));
                }
                (CqlType::Map { value: ty, .. }, false)
                | (CqlType::List { element: ty, .. } | CqlType::Set { element: ty, .. }, false) => {
                    Receiver::value_of(name, (**ty).clone())
                }
                (_, false) => {
                    return Err(StatementError::Invalid(format!(
                        "Cannot use CONTAINS on non-collection column {name}"
                    )));
                }
            };
            one(value, &element)
        }
        ConditionTest::Like { pattern } => match &receiver.ty {
            CqlType::Text | CqlType::Ascii => one(pattern, receiver),
            ty => Err(StatementError::Invalid(format!(
                "LIKE is allowed only on string types, which {} is not: it is of type {ty}",
                receiver.name
            ))),
        },
    }
}

/// Durations have no order.
fn check_no_durations(ty: &CqlType, operator: Operator) -> Result<(), StatementError> {
    if !ty.references_duration() {
        return Ok(());
    }
    let of = match ty {
        ty if ty.is_collection() => "on collections containing durations",
        CqlType::Tuple(_) => "on tuples containing durations",
        CqlType::Udt(_) => "on UDTs containing durations",
        _ => {
            return Err(StatementError::Invalid(format!(
                "Slice conditions ( {} ) are not supported on durations",
                operator.symbol()
            )));
        }
    };
    Err(StatementError::Invalid(format!("Slice conditions are not supported {of}")))
}
