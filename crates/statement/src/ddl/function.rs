//! CREATE and DROP FUNCTION.

use std::rc::Rc;

use cql::ast::{CreateFunction, DropFunction, TypeName};
use model::CqlType;
use model::schema::{FunctionDefinition, Keyspace, SchemaChange};

use super::mistake::invalid;
use super::names::{Action, check_functions_of, check_keyspace_name};
use super::plan::{Outcome, PlanContext, Planned, existing_keyspace, keyspace_of};
use super::types::RawType;
use crate::StatementError;
use crate::functions::user;
use crate::schema_events::{Change, SchemaEvent, Target};

/// Longest source of a function, in bytes: compiling it holds a shard for a time that grows with it.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Most arguments of a function or aggregate.
const ARGUMENTS_MAX: usize = 128;

/// Plans CREATE FUNCTION.
pub(super) fn create(statement: &CreateFunction, context: &PlanContext<'_>) -> Outcome {
    let keyspace_name = keyspace_of(&statement.name, context)?;
    let name = statement.name.name.as_str();
    check_functions_of(keyspace_name, Action::Create)?;
    check_keyspace_name(keyspace_name)?;
    check_directives(statement.if_not_exists, statement.or_replace)?;
    check_enabled(context)?;
    check_name("Function", name)?;
    let names: Vec<&str> = statement.arguments.iter().map(|(name, _)| name.as_str()).collect();
    if names.iter().enumerate().any(|(at, name)| names[..at].contains(name)) {
        return Err(invalid(format!(
            "Duplicate argument names for given function {name} with argument names [{}]",
            names.join(", ")
        )));
    }
    if names.len() > ARGUMENTS_MAX {
        return Err(invalid(format!("A function cannot have more than {ARGUMENTS_MAX} arguments")));
    }
    if statement.body.len() > BODY_BYTES_MAX {
        return Err(invalid(format!(
            "The source of a function cannot be longer than {BODY_BYTES_MAX} bytes"
        )));
    }
    let raws =
        statement.arguments.iter().map(|(_, ty)| raw("Argument", ty)).collect::<Result<Vec<_>, _>>()?;
    let returns = raw("Return type", &statement.returns)?;
    let keyspace = existing_keyspace(keyspace_name, context)?;
    let resolve = |raw: &RawType| raw.resolve(keyspace_name, &keyspace.types).map(|resolved| resolved.ty);
    let arguments = names
        .iter()
        .zip(&raws)
        .map(|(name, raw)| Ok(((*name).to_owned(), resolve(raw)?)))
        .collect::<Result<Vec<_>, StatementError>>()?;
    let definition = Rc::new(FunctionDefinition {
        keyspace: keyspace_name.to_owned(),
        name: name.to_owned(),
        arguments,
        returns: resolve(&returns)?,
        called_on_null_input: statement.called_on_null_input,
        language: statement.language.name.clone(),
        body: statement.body.clone(),
    });
    user::compile(&definition)?;
    let mut event = SchemaEvent::of(&SchemaChange::CreateFunction(Box::new((*definition).clone())));
    event.arguments = raws.iter().map(ToString::to_string).collect();
    let types: Vec<CqlType> = definition.argument_types().cloned().collect();
    if keyspace.aggregate(name, &types).is_some() {
        return Err(invalid(format!("Function '{name}' cannot replace an aggregate")));
    }
    if let Some(before) = keyspace.function(name, &types) {
        if statement.if_not_exists {
            return Ok(Planned::nothing(event));
        }
        if !statement.or_replace {
            return Err(invalid(format!("Function '{name}' already exists")));
        }
        if before.called_on_null_input != definition.called_on_null_input {
            let directive = if definition.called_on_null_input { "CALLED" } else { "RETURNS NULL" };
            return Err(invalid(format!("Function '{name}' must have {directive} ON NULL INPUT directive")));
        }
        if before.returns != definition.returns {
            return Err(invalid(format!(
                "Cannot replace function '{name}', the new return type {} is not compatible with the return type {} of \
                 existing function",
                definition.returns, before.returns
            )));
        }
        event.change = Change::Updated;
        if **before == *definition {
            return Ok(Planned::nothing(event));
        }
    }
    let change = SchemaChange::CreateFunction(Box::new((*definition).clone()));
    Ok(Planned::change(change, event))
}

/// Plans DROP FUNCTION.
pub(super) fn drop(statement: &DropFunction, context: &PlanContext<'_>) -> Outcome {
    let keyspace_name = keyspace_of(&statement.name, context)?;
    let name = statement.name.name.as_str();
    let overload = Overload::new("Function", keyspace_name, name, statement.argument_types.as_deref())?;
    let nothing = |problem: StatementError| {
        if statement.if_exists {
            Ok(Planned::nothing(overload.event(Target::Function, &[])))
        } else {
            Err(problem)
        }
    };
    let Some(keyspace) = context.schema.keyspace(keyspace_name) else { return nothing(overload.missing()) };
    let types = overload.types(keyspace)?;
    let named: Vec<_> = keyspace.functions.iter().filter(|function| function.name == name).collect();
    let overloads = named.len() + keyspace.aggregates.iter().filter(|a| a.name == name).count();
    if overloads > 1 && types.is_none() {
        return Err(overload.ambiguous());
    }
    let found = named.into_iter().find(|function| types.as_ref().is_none_or(|types| function.takes(types)));
    let Some(function) = found else { return nothing(overload.missing()) };
    let users: Vec<String> = keyspace
        .aggregates
        .iter()
        .filter(|aggregate| aggregate.uses(function))
        .map(|aggregate| format!("{keyspace_name}.{}", aggregate.name))
        .collect();
    if !users.is_empty() {
        return Err(invalid(format!(
            "Function '{}' is still referenced by aggregates {}",
            overload.shown,
            users.join(", ")
        )));
    }
    let arguments: Vec<CqlType> = function.argument_types().cloned().collect();
    let event = overload.event(Target::Function, &arguments);
    let (keyspace, name) = (keyspace_name.to_owned(), name.to_owned());
    Ok(Planned::change(SchemaChange::DropFunction { keyspace, name, arguments }, event))
}

/// OR REPLACE and IF NOT EXISTS exclude each other.
pub(super) fn check_directives(if_not_exists: bool, or_replace: bool) -> Result<(), StatementError> {
    if if_not_exists && or_replace {
        return Err(invalid("Cannot use both 'OR REPLACE' and 'IF NOT EXISTS' directives"));
    }
    Ok(())
}

fn check_enabled(context: &PlanContext<'_>) -> Result<(), StatementError> {
    if context.user_functions {
        return Ok(());
    }
    Err(invalid(
        "User-defined functions are disabled in cassandra.yaml - set user_defined_functions_enabled=true to enable",
    ))
}

/// Refuses names that no resource can have.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), StatementError> {
    if name.contains(['/', '[', ']']) {
        return Err(invalid(format!("{what} name '{name}' is invalid")));
    }
    Ok(())
}

/// A type in a signature; types in signatures cannot be frozen.
pub(super) fn raw(what: &str, ty: &TypeName) -> Result<RawType, StatementError> {
    let raw = RawType::new(ty)?;
    if raw.is_frozen() {
        return Err(invalid(format!(
            "{what} '{raw}' cannot be frozen; remove frozen<> modifier from '{raw}'"
        )));
    }
    Ok(raw)
}

/// The function or aggregate that a DROP names.
pub(super) struct Overload<'a> {
    what: &'static str,
    keyspace: &'a str,
    name: &'a str,
    raws: Option<Vec<RawType>>,
    /// How messages name it.
    pub(super) shown: String,
}

impl<'a> Overload<'a> {
    pub(super) fn new(
        what: &'static str,
        keyspace: &'a str,
        name: &'a str,
        types: Option<&[TypeName]>,
    ) -> Result<Self, StatementError> {
        check_functions_of(keyspace, Action::Drop)?;
        check_keyspace_name(keyspace)?;
        let raws = types.map(|types| types.iter().map(RawType::new).collect()).transpose()?;
        let shown = match &raws {
            None => format!("{keyspace}.{name}"),
            Some(raws) => {
                let raws: &Vec<RawType> = raws;
                let types: Vec<String> = raws.iter().map(ToString::to_string).collect();
                format!("{keyspace}.{name}({})", types.join(", "))
            }
        };
        Ok(Self { what, keyspace, name, raws, shown })
    }

    /// The types given, if any were.
    pub(super) fn types(&self, keyspace: &Keyspace) -> Result<Option<Vec<CqlType>>, StatementError> {
        let Some(raws) = &self.raws else { return Ok(None) };
        if let Some(frozen) = raws.iter().find(|raw| raw.is_frozen()) {
            return Err(invalid(format!(
                "Argument '{frozen}' cannot be frozen; remove frozen<> modifier from '{frozen}'"
            )));
        }
        let resolve = |raw: &RawType| raw.resolve(self.keyspace, &keyspace.types).map(|resolved| resolved.ty);
        raws.iter().map(resolve).collect::<Result<_, _>>().map(Some)
    }

    pub(super) fn missing(&self) -> StatementError {
        invalid(format!("{} '{}' doesn't exist", self.what, self.shown))
    }

    pub(super) fn ambiguous(&self) -> StatementError {
        let (what, name) = (self.what.to_uppercase(), self.name);
        invalid(format!(
            "'DROP {what} {name}' matches multiple function definitions; specify the argument types by issuing a \
             statement like 'DROP {what} {name} (type, type, ...)'. You can use cqlsh 'DESCRIBE {what} {name}' command \
             to find all overloads"
        ))
    }

    pub(super) fn event(&self, target: Target, arguments: &[CqlType]) -> SchemaEvent {
        SchemaEvent {
            change: Change::Dropped,
            target,
            keyspace: self.keyspace.to_owned(),
            name: self.name.to_owned(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
        }
    }
}
