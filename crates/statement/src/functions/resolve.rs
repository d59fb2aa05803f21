//! Resolution: the choice of the overload for a call.
//!
//! Candidates are all overloads of the name: native ones, those made for the types of the arguments
//! (`factory`), and user-defined ones. A single candidate is checked with precise messages. Of several
//! candidates, the first that fits exactly is chosen, else the only one that fits. Rules, order and messages
//! are those of Cassandra 5's `FunctionResolver`.

use model::{CqlType, Schema, Table};

use super::{Function, NEGATION, candidates, factory, operation};
use crate::StatementError;
use crate::terms::literal::Assignment;

/// The arguments of a call before its function is resolved.
pub trait CallArguments {
    /// The number of arguments.
    fn count(&self) -> usize;
    /// How well the argument fits a type.
    fn fits(&self, at: usize, ty: &CqlType) -> Assignment;
    /// The type of the argument if nothing requires another; `None` for markers and null.
    fn compatible_type(&self, at: usize) -> Option<CqlType>;
    /// The number of elements of the argument, if it is a list literal.
    fn list_length(&self, _at: usize) -> Option<u32> {
        None
    }
    /// Whether the argument is a bare marker.
    fn is_marker(&self, at: usize) -> bool;
    /// The argument's text in messages.
    fn text(&self, at: usize) -> String;
}

/// The context of a call.
#[derive(Debug, Clone, Copy)]
pub struct CallSite<'a> {
    /// The keyspace written before the name.
    pub keyspace: Option<&'a str>,
    /// The function's name, with its case folded.
    pub name: &'a str,
    /// The table of the statement.
    pub table: &'a Table,
    /// The schema, for user-defined functions.
    pub schema: &'a Schema,
    /// The type required of the result, if any.
    pub receiver: Option<&'a CqlType>,
}

/// The overload for a call; `None` if no function has the name.
///
/// # Errors
/// [`StatementError::Invalid`] if no overload, or more than one, takes the arguments; errors of compiling a
/// user-defined one.
pub fn resolve(
    site: &CallSite<'_>,
    arguments: &dyn CallArguments,
) -> Result<Option<Function>, StatementError> {
    let candidates = collect(site, arguments)?;
    if candidates.is_empty() {
        return Ok(None);
    }
    super::user::chosen(pick_of(site, candidates, arguments)?).map(Some)
}

/// Chooses among candidates, of which there is at least one.
pub(super) fn pick_of(
    site: &CallSite<'_>,
    mut candidates: Vec<Function>,
    arguments: &dyn CallArguments,
) -> Result<Function, StatementError> {
    if candidates.len() > 1 {
        return pick(site, candidates, arguments);
    }
    let only = candidates.remove(0);
    check(&only, arguments)?;
    Ok(only)
}

fn collect(site: &CallSite<'_>, arguments: &dyn CallArguments) -> Result<Vec<Function>, StatementError> {
    let owner = site.keyspace.unwrap_or_else(|| site.table.keyspace());
    let mut all = super::user::overloads(site.schema, owner, site.name);
    if site.keyspace.is_none_or(|keyspace| keyspace == "system") {
        all.extend(candidates(site.name, Some(site.table)));
        all.extend(factory::make(site.name, site.receiver, arguments)?);
    }
    Ok(all)
}

fn check(function: &Function, arguments: &dyn CallArguments) -> Result<(), StatementError> {
    let required = function.arguments().len();
    if required != arguments.count() {
        return Err(StatementError::Invalid(format!(
            "Invalid number of arguments in call to function {}: {required} required but {} provided",
            function.full_name(),
            arguments.count()
        )));
    }
    for (at, ty) in function.arguments().iter().enumerate() {
        if !arguments.fits(at, ty).is_assignable() {
            return Err(StatementError::Invalid(format!(
                "Type error: {} cannot be passed as argument {at} of function {} of type {ty}",
                arguments.text(at),
                function.full_name()
            )));
        }
    }
    Ok(())
}

fn pick(
    site: &CallSite<'_>,
    candidates: Vec<Function>,
    arguments: &dyn CallArguments,
) -> Result<Function, StatementError> {
    let signatures =
        |functions: &[Function]| functions.iter().map(Function::signature).collect::<Vec<_>>().join(", ");
    let mut compatible = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let gives = |want| super::type_assignment(candidate.result(), want).is_assignable();
        if !site.receiver.is_none_or(gives) || candidate.arguments().len() != arguments.count() {
            continue;
        }
        let fits = candidate.arguments().iter().enumerate().map(|(at, ty)| arguments.fits(at, ty));
        match fits.min().unwrap_or(Assignment::Exact) {
            Assignment::Exact => return Ok(candidate.clone()),
            Assignment::Weak => compatible.push(index),
            Assignment::No => {}
        }
    }
    let compatible: Vec<Function> = compatible.into_iter().map(|index| candidates[index].clone()).collect();
    let operator = operation::operator_of(site.name);
    let name = match site.keyspace {
        Some(keyspace) => format!("{keyspace}.{}", site.name),
        None => site.name.to_owned(),
    };
    match (compatible.len(), operator) {
        (1, _) => Ok(compatible.into_iter().next().expect("there is one")),
        (0, Some(operator)) => Err(StatementError::Invalid(format!(
            "the '{}' operation is not supported between {} and {}",
            operator.symbol(),
            arguments.text(0),
            arguments.text(1)
        ))),
        (0, None) => Err(StatementError::Invalid(format!(
            "Invalid call to function {name}, none of its type signatures match (known type signatures: {})",
            signatures(&candidates)
        ))),
        (_, Some(operator)) => {
            // If literals leave a choice, the required type of the result decides.
            let open = (0..arguments.count()).any(|at| arguments.is_marker(at));
            let same = |function: &&Function| {
                site.receiver.is_some_and(|want| function.arguments().iter().all(|ty| ty == want))
            };
            if let Some(function) = compatible.iter().find(same).filter(|_| !open) {
                return Ok(function.clone());
            }
            Err(StatementError::Invalid(format!(
                "Ambiguous '{}' operation with args {} and {}: use type hint to disambiguate, example '(int) ?'",
                operator.symbol(),
                arguments.text(0),
                arguments.text(1)
            )))
        }
        (_, None) if site.name == NEGATION => {
            Err(StatementError::invalid("Ambiguous negation: use type casts to disambiguate"))
        }
        (_, None) => Err(StatementError::Invalid(format!(
            "Ambiguous call to function {name} (can be matched by following signatures: {}): use type casts to \
             disambiguate",
            signatures(&compatible)
        ))),
    }
}
