//! Which overload a call means.
//!
//! Candidates are all overloads of the name: native ones, those made for the types of the arguments (`factory`), and
//! the user's own. One candidate is checked with precise messages; of several the first that fits exactly is taken,
//! else the only one that fits. Rules, order and messages are Cassandra 5's `FunctionResolver`.

use model::{CqlType, Schema, Table};

use super::{Function, NEGATION, candidates, factory, operation};
use crate::QueryError;
use crate::terms::literal::Assignment;

/// What a call passes, before it is known what it calls.
pub trait CallArguments {
    /// How many there are.
    fn count(&self) -> usize;
    /// How well one fits a type.
    fn fits(&self, at: usize, ty: &CqlType) -> Assignment;
    /// The type one has where nothing asks for another; `None` for markers and null.
    fn compatible_type(&self, at: usize) -> Option<CqlType>;
    /// The number of elements, of one that is a list literal.
    fn list_length(&self, _at: usize) -> Option<u32> {
        None
    }
    /// Whether one is a bare marker.
    fn is_marker(&self, at: usize) -> bool;
    /// How messages show one.
    fn text(&self, at: usize) -> String;
}

/// Where a call stands.
#[derive(Debug, Clone, Copy)]
pub struct CallSite<'a> {
    /// Keyspace written before the name.
    pub keyspace: Option<&'a str>,
    /// The name, case as the text has it after folding.
    pub name: &'a str,
    /// The table the call is about.
    pub table: &'a Table,
    /// For the user's functions.
    pub schema: &'a Schema,
    /// The type asked for, where one is.
    pub receiver: Option<&'a CqlType>,
}

/// The overload a call means; `None` where no function has the name.
///
/// # Errors
/// [`QueryError::Invalid`] where no overload, or more than one, takes the arguments.
pub fn resolve(site: &CallSite<'_>, arguments: &dyn CallArguments) -> Result<Option<Function>, QueryError> {
    let mut candidates = collect(site, arguments)?;
    match candidates.len() {
        0 => Ok(None),
        1 => {
            let only = candidates.remove(0);
            check(&only, arguments)?;
            Ok(Some(only))
        }
        _ => pick(site, candidates, arguments).map(Some),
    }
}

fn collect(site: &CallSite<'_>, arguments: &dyn CallArguments) -> Result<Vec<Function>, QueryError> {
    let mut all = Vec::new();
    if site.keyspace.is_none_or(|keyspace| keyspace == "system") {
        let name = site.name.to_lowercase();
        all.extend(candidates(&name, Some(site.table)));
        all.extend(factory::make(&name, site.receiver, arguments)?);
    }
    Ok(all)
}

fn check(function: &Function, arguments: &dyn CallArguments) -> Result<(), QueryError> {
    let required = function.arguments().len();
    if required != arguments.count() {
        return Err(QueryError::Invalid(format!(
            "Invalid number of arguments in call to function {}: {required} required but {} provided",
            function.full_name(),
            arguments.count()
        )));
    }
    for (at, ty) in function.arguments().iter().enumerate() {
        if !arguments.fits(at, ty).is_assignable() {
            return Err(QueryError::Invalid(format!(
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
) -> Result<Function, QueryError> {
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
        (0, Some(operator)) => Err(QueryError::Invalid(format!(
            "the '{}' operation is not supported between {} and {}",
            operator.symbol(),
            arguments.text(0),
            arguments.text(1)
        ))),
        (0, None) => Err(QueryError::Invalid(format!(
            "Invalid call to function {name}, none of its type signatures match (known type signatures: {})",
            signatures(&candidates)
        ))),
        (_, Some(operator)) => {
            // Where literals leave the choice open, the type asked for decides.
            let open = (0..arguments.count()).any(|at| arguments.is_marker(at));
            let same = |function: &&Function| {
                site.receiver.is_some_and(|want| function.arguments().iter().all(|ty| ty == want))
            };
            if let Some(function) = compatible.iter().find(same).filter(|_| !open) {
                return Ok(function.clone());
            }
            Err(QueryError::Invalid(format!(
                "Ambiguous '{}' operation with args {} and {}: use type hint to disambiguate, example '(int) ?'",
                operator.symbol(),
                arguments.text(0),
                arguments.text(1)
            )))
        }
        (_, None) if site.name == NEGATION => {
            Err(QueryError::invalid("Ambiguous negation: use type casts to disambiguate"))
        }
        (_, None) => Err(QueryError::Invalid(format!(
            "Ambiguous call to function {name} (can be matched by following signatures: {}): use type casts to \
             disambiguate",
            signatures(&compatible)
        ))),
    }
}
