//! Executes INSERT JSON: the text becomes values for the markers that the plan has after those of the
//! statement.

use cql::ast::JsonDefault;
use statement::prepare::json::{JsonValues, Values};
use statement::prepare::modify::ModifyPlan;
use statement::terms::Binding;
use wire::values::ValueRef;

use super::prior::Prior;
use super::{Request, conditional, modify};
use crate::engine::Engine;
use crate::{QueryError, Response};

/// Executes one INSERT JSON and appends VOID, or the rows of a conditional one.
///
/// # Errors
/// [`QueryError`] of the text, values, consistency or storage.
pub(super) async fn execute(
    engine: &Engine,
    request: &Request<'_>,
    plan: &ModifyPlan,
    json: &JsonValues,
    out: &mut Response,
) -> Result<(), QueryError> {
    let columns = read(json, request.binding)?;
    let values = expanded(json, request.binding, &columns);
    let binding = Binding { values: &values, ..*request.binding };
    let request = Request { binding: &binding, ..*request };
    if plan.condition.is_some() {
        conditional::single(engine, &request, plan, out).await
    } else {
        modify::write(engine, &request, plan, &Prior::default(), out).await
    }
}

/// The values of the columns in one execution.
///
/// # Errors
/// [`QueryError::Invalid`] for a text that is no object of columns.
pub(super) fn read<'a>(json: &'a JsonValues, binding: &Binding<'a>) -> Result<Values<'a>, QueryError> {
    let text = |index: usize| match binding.values.get(index) {
        Some(ValueRef::Bytes(text)) => Some(*text),
        _ => None,
    };
    Ok(json.read(text, binding.ambient.now_ms())?)
}

/// The values of the statement's markers and behind them those of the columns.
pub(super) fn expanded<'a>(
    json: &JsonValues,
    binding: &Binding<'a>,
    columns: &'a Values<'_>,
) -> Vec<ValueRef<'a>> {
    let of_column = |value: &'a Option<Option<Vec<u8>>>| match (value, json.default) {
        (Some(Some(value)), _) => ValueRef::Bytes(value),
        (Some(None), _) | (None, JsonDefault::Null) => ValueRef::Null,
        (None, JsonDefault::Unset) => ValueRef::Unset,
    };
    binding.values.iter().copied().chain(columns.get().iter().map(of_column)).collect()
}
