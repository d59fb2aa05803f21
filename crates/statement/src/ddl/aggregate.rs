//! CREATE and DROP AGGREGATE.

use std::rc::Rc;

use cql::ast::{CreateAggregate, DropAggregate};
use model::CqlType;
use model::schema::{AggregateDefinition, FunctionDefinition, Keyspace, SchemaChange};

use super::function::{Overload, check_directives, check_name, raw};
use super::mistake::{config, invalid};
use super::names::{Action, check_functions_of, check_keyspace_name};
use super::plan::{Outcome, PlanContext, Planned, keyspace_of};
use crate::StatementError;
use crate::schema_events::{Change, SchemaEvent, Target};
use crate::terms::constant;

/// Plans CREATE AGGREGATE.
pub(super) fn create(statement: &CreateAggregate, context: &PlanContext<'_>) -> Outcome {
    let keyspace_name = keyspace_of(&statement.name, context)?;
    let name = statement.name.name.as_str();
    check_functions_of(keyspace_name, Action::Create)?;
    check_keyspace_name(keyspace_name)?;
    check_directives(statement.if_not_exists, statement.or_replace)?;
    check_name("Aggregate", name)?;
    let raws =
        statement.argument_types.iter().map(|ty| raw("Argument", ty)).collect::<Result<Vec<_>, _>>()?;
    let raw_state = raw("State type", &statement.state_type)?;
    let keyspace = context.schema.keyspace(keyspace_name);
    let keyspace = keyspace.ok_or_else(|| config(format!("Keyspace {keyspace_name} doesn't exist")))?;
    let resolve =
        |raw: &super::types::RawType| raw.resolve(keyspace_name, &keyspace.types).map(|resolved| resolved.ty);
    let arguments = raws.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
    let state_type = resolve(&raw_state)?;

    let shown = |name: &str, types: &[String]| format!("{keyspace_name}.{name}({})", types.join(", "));
    let state_shown = {
        let types: Vec<String> = std::iter::once(&raw_state).chain(&raws).map(ToString::to_string).collect();
        shown(statement.state_function.as_str(), &types)
    };
    let state_types: Vec<CqlType> = std::iter::once(&state_type).chain(&arguments).cloned().collect();
    let state = find(keyspace, "State", statement.state_function.as_str(), &state_types, &state_shown)?;
    if state.returns != state_type {
        return Err(invalid(format!(
            "State function {state_shown} return type must be the same as the first argument type - check STYPE, \
             argument and return types"
        )));
    }
    let mut returns = state.returns.clone();
    if let Some(last) = &statement.final_function {
        let types = std::slice::from_ref(&state_type);
        let last =
            find(keyspace, "Final", last.as_str(), types, &shown(last.as_str(), &[raw_state.to_string()]))?;
        returns = last.returns.clone();
    }
    if let Some(reduce) = &statement.reduce_function {
        let types = [state_type.clone(), state_type.clone()];
        let reduce_shown = shown(reduce.as_str(), &[raw_state.to_string(), raw_state.to_string()]);
        let found = find(keyspace, "Reduce", reduce.as_str(), &types, &reduce_shown)?;
        if found.returns != state_type {
            return Err(invalid(format!("Reduce function {reduce_shown} must return the type of the state")));
        }
    }
    let initial_state = initial_state(statement, &state_type)?;
    if !state.called_on_null_input && initial_state.is_none() {
        return Err(invalid(format!(
            "Cannot create aggregate '{name}' without INITCOND because state function {keyspace_name}.{} does not \
             accept 'null' arguments",
            state.name
        )));
    }
    let definition = AggregateDefinition {
        keyspace: keyspace_name.to_owned(),
        name: name.to_owned(),
        arguments,
        state_function: statement.state_function.name.clone(),
        state_type,
        final_function: statement.final_function.as_ref().map(|name| name.name.clone()),
        reduce_function: statement.reduce_function.as_ref().map(|name| name.name.clone()),
        initial_state,
        returns,
    };
    let change = SchemaChange::CreateAggregate(Box::new(definition.clone()));
    let mut event = SchemaEvent::of(&change);
    event.arguments = raws.iter().map(ToString::to_string).collect();
    if keyspace.function(name, &definition.arguments).is_some() {
        return Err(invalid(format!("Aggregate '{name}' cannot replace a function")));
    }
    if let Some(before) = keyspace.aggregate(name, &definition.arguments) {
        if statement.if_not_exists {
            return Ok(Planned::nothing(event));
        }
        if !statement.or_replace {
            return Err(invalid(format!("Aggregate '{name}' already exists")));
        }
        if before.returns != definition.returns {
            return Err(invalid(format!(
                "Cannot replace aggregate '{name}', the new return type {} isn't compatible with the return type {} of \
                 existing function",
                definition.returns, before.returns
            )));
        }
        event.change = Change::Updated;
        if **before == definition {
            return Ok(Planned::nothing(event));
        }
    }
    Ok(Planned::change(change, event))
}

/// The function of a role in the aggregate.
fn find<'k>(
    keyspace: &'k Keyspace,
    role: &str,
    name: &str,
    types: &[CqlType],
    shown: &str,
) -> Result<&'k Rc<FunctionDefinition>, StatementError> {
    match keyspace.function(name, types) {
        Some(function) => Ok(function),
        None if keyspace.aggregate(name, types).is_some() => {
            Err(invalid(format!("{role} function {shown} isn't a scalar function")))
        }
        None => Err(invalid(format!("{role} function {shown} doesn't exist"))),
    }
}

fn initial_state(statement: &CreateAggregate, ty: &CqlType) -> Result<Option<Vec<u8>>, StatementError> {
    let Some(term) = &statement.initial_condition else { return Ok(None) };
    if term.is_null() {
        return Ok(None);
    }
    let value = constant::value(term, ty)?;
    match value {
        Some(value) if !value.is_empty() || !ty.is_empty_value_meaningless() => Ok(Some(value)),
        _ => Err(invalid("INITCOND must not be empty for all types except TEXT, ASCII, BLOB")),
    }
}

/// Plans DROP AGGREGATE.
pub(super) fn drop(statement: &DropAggregate, context: &PlanContext<'_>) -> Outcome {
    let keyspace_name = keyspace_of(&statement.name, context)?;
    let name = statement.name.name.as_str();
    let overload = Overload::new("Aggregate", keyspace_name, name, statement.argument_types.as_deref())?;
    let nothing = |problem: StatementError| {
        if statement.if_exists {
            Ok(Planned::nothing(overload.event(Target::Aggregate, &[])))
        } else {
            Err(problem)
        }
    };
    let Some(keyspace) = context.schema.keyspace(keyspace_name) else { return nothing(overload.missing()) };
    let types = overload.types(keyspace)?;
    let named: Vec<_> = keyspace.aggregates.iter().filter(|aggregate| aggregate.name == name).collect();
    let overloads = named.len() + keyspace.functions.iter().filter(|f| f.name == name).count();
    if overloads > 1 && types.is_none() {
        return Err(overload.ambiguous());
    }
    let matches = |aggregate: &&Rc<AggregateDefinition>| {
        types.as_ref().is_none_or(|types| aggregate.arguments == *types)
    };
    let Some(aggregate) = named.into_iter().find(matches) else { return nothing(overload.missing()) };
    let arguments = aggregate.arguments.clone();
    let event = overload.event(Target::Aggregate, &arguments);
    let (keyspace, name) = (keyspace_name.to_owned(), name.to_owned());
    Ok(Planned::change(SchemaChange::DropAggregate { keyspace, name, arguments }, event))
}
