//! From selected expressions as written to [`Resolved`] ones: names found and overloads chosen, from the
//! leaves up.
//!
//! Each expression is resolved once, so that the work grows with the text alone. Rules and messages as
//! Cassandra 5's `Selectable` and `FunctionResolver`.

use std::rc::Rc;

use cql::ast::{self, Selectable};
use model::CqlType;

use super::resolved::{Entry, Resolved, cell_word};
use super::types;
use crate::StatementError;
use crate::functions::user::UserAggregate;
use crate::functions::{self, AggregateKind, Function};
use crate::names;
use crate::terms::literal::Assignment;
use crate::terms::prepare::Context;

/// Finds the names of an expression.
///
/// # Errors
/// [`StatementError::Invalid`] for columns and functions that are not there, and calls no overload takes.
pub(super) fn resolve<'e>(
    cx: &Context<'e>,
    expression: &'e Selectable,
) -> Result<Resolved<'e>, StatementError> {
    let all =
        |parts: &'e [Selectable]| parts.iter().map(|part| resolve(cx, part)).collect::<Result<Vec<_>, _>>();
    let boxed = |part: &'e Selectable| resolve(cx, part).map(Box::new);
    reactor::give_way();
    Ok(match expression {
        Selectable::Column(name) => Resolved::Column(names::column(cx.table, name)?),
        Selectable::Constant(constant) => Resolved::Constant(constant),
        Selectable::BindMarker(marker) => Resolved::Marker(marker),
        Selectable::CountRows => count_rows(),
        Selectable::Cell { function, operand } => {
            let operand = boxed(operand)?;
            let column = operand.base_column().ok_or_else(|| {
                StatementError::Invalid(format!(
                    "Cannot use selection function {} on {}",
                    cell_word(*function),
                    operand.text()
                ))
            })?;
            Resolved::Cell { function: *function, column, operand }
        }
        Selectable::Cast { operand, target } => {
            let target = types::resolve(&ast::TypeName::Native(*target), cx.table.keyspace(), cx.schema)?;
            Resolved::Cast { operand: boxed(operand)?, target }
        }
        Selectable::Function { name, arguments } => call(cx, name, all(arguments)?)?,
        Selectable::Arithmetic { operator, left, right } => {
            let arguments = vec![resolve(cx, left)?, resolve(cx, right)?];
            operation(cx, functions::operator_name(*operator), arguments)?
        }
        Selectable::Negate(operand) => operation(cx, functions::NEGATION, vec![resolve(cx, operand)?])?,
        Selectable::Field { receiver, field } => Resolved::Field { receiver: boxed(receiver)?, field },
        Selectable::Element { receiver, key } => Resolved::Element { receiver: boxed(receiver)?, key },
        Selectable::Slice { receiver, from, to } => {
            Resolved::Slice { receiver: boxed(receiver)?, from: from.as_ref(), to: to.as_ref() }
        }
        Selectable::TypeHint { type_name, operand } => Resolved::Hint {
            shown: types::qualified_text(type_name, cx.table.keyspace()),
            ty: types::resolve(type_name, cx.table.keyspace(), cx.schema)?,
            operand: boxed(operand)?,
        },
        Selectable::List(parts) => Resolved::List(all(parts)?),
        Selectable::Set(parts) => Resolved::Set(all(parts)?),
        Selectable::Tuple(parts) => Resolved::Tuple(all(parts)?),
        Selectable::MapOrUserType(entries) => Resolved::Entries(
            entries
                .iter()
                .map(|(key, value)| {
                    let field = if let Selectable::Column(name) = key { Some(name) } else { None };
                    Ok(Entry { field, key: resolve(cx, key), value: resolve(cx, value)? })
                })
                .collect::<Result<_, StatementError>>()?,
        ),
    })
}

fn count_rows<'e>() -> Resolved<'e> {
    Resolved::Aggregate { kind: AggregateKind::CountRows, ty: CqlType::Int, argument: None }
}

fn call<'e>(
    cx: &Context<'_>,
    name: &ast::QualifiedName,
    mut arguments: Vec<Resolved<'e>>,
) -> Result<Resolved<'e>, StatementError> {
    let lower = name.name.name.to_lowercase();
    let native = name.keyspace.as_ref().is_none_or(|keyspace| keyspace.name == "system");
    if native && let Some(kind) = AggregateKind::of_name(&lower) {
        if kind == AggregateKind::Count
            && matches!(arguments.as_slice(), [Resolved::Constant(constant)] if constant.kind != ast::ConstantKind::Null)
        {
            return Ok(count_rows());
        }
        let shapes: Vec<(Option<CqlType>, String)> =
            arguments.iter().map(|a| (a.compatible_type(), a.text())).collect();
        let ty = kind.argument_type(&shapes, &|ty| arguments[0].assignment(ty))?;
        if kind == AggregateKind::CountRows {
            return Ok(count_rows());
        }
        let argument = arguments.remove(0);
        if argument.has_aggregate() {
            return Err(StatementError::invalid(
                "aggregate functions cannot be used as arguments of aggregate functions",
            ));
        }
        return Ok(Resolved::Aggregate { kind, ty, argument: Some(Box::new(argument)) });
    }
    let keyspace = name.keyspace.as_ref().map(|keyspace| keyspace.name.as_str());
    if let Some(aggregate) = user_aggregate(cx, keyspace, &name.name.name, &arguments)? {
        if arguments.iter().any(Resolved::has_aggregate) {
            return Err(StatementError::invalid(
                "aggregate functions cannot be used as arguments of aggregate functions",
            ));
        }
        return Ok(Resolved::UserAggregate { aggregate, arguments });
    }
    let function = overload(cx, keyspace, &name.name.name, &arguments)?.ok_or_else(|| {
        let keyspace = keyspace.map(|keyspace| format!("{keyspace}.")).unwrap_or_default();
        StatementError::Invalid(format!("Unknown function '{keyspace}{}'", name.name.name))
    })?;
    Ok(Resolved::Call { function, arguments })
}

/// An arithmetic operator: a function whose name does not appear in the text.
fn operation<'e>(
    cx: &Context<'_>,
    name: &str,
    arguments: Vec<Resolved<'e>>,
) -> Result<Resolved<'e>, StatementError> {
    let function = overload(cx, Some("system"), name, &arguments)?
        .ok_or_else(|| StatementError::Internal(format!("there is no operation {name}")))?;
    Ok(Resolved::Call { function, arguments })
}

fn overload(
    cx: &Context<'_>,
    keyspace: Option<&str>,
    name: &str,
    arguments: &[Resolved<'_>],
) -> Result<Option<Function>, StatementError> {
    let site = functions::CallSite { keyspace, name, table: cx.table, schema: cx.schema, receiver: None };
    functions::resolve(&site, &Arguments(arguments))
}

/// The user's aggregate that a call means.
fn user_aggregate(
    cx: &Context<'_>,
    keyspace: Option<&str>,
    name: &str,
    arguments: &[Resolved<'_>],
) -> Result<Option<Rc<UserAggregate>>, StatementError> {
    let site = functions::CallSite { keyspace, name, table: cx.table, schema: cx.schema, receiver: None };
    functions::user::resolve_aggregate(&site, &Arguments(arguments))
}

/// The arguments of a call, as overloads are chosen by.
struct Arguments<'a, 'e>(&'a [Resolved<'e>]);

impl functions::CallArguments for Arguments<'_, '_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn fits(&self, at: usize, ty: &CqlType) -> Assignment {
        self.0[at].assignment(ty)
    }

    fn compatible_type(&self, at: usize) -> Option<CqlType> {
        self.0[at].compatible_type()
    }

    fn list_length(&self, at: usize) -> Option<u32> {
        if let Resolved::List(parts) = &self.0[at] { u32::try_from(parts.len()).ok() } else { None }
    }

    fn is_marker(&self, at: usize) -> bool {
        matches!(self.0[at], Resolved::Marker(_))
    }

    fn text(&self, at: usize) -> String {
        self.0[at].text()
    }
}
