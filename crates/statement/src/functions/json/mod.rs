//! Values as JSON and back: `to_json`, `from_json`, `SELECT JSON`, `INSERT … JSON`.
//!
//! Each type is written and read as in Cassandra 5 (`AbstractType.toJSONString`, `fromJSONObject`), with
//! Cassandra's error texts. Text from clients is parsed once into a tree whose depth is at most
//! [`DEPTH_MAX`].

mod parse;
mod read;
mod write;

use model::CqlType;

use crate::StatementError;

pub use parse::{DEPTH_MAX, Json, ParseError, parse};
pub use read::value;
pub use write::{TooLong, append, append_quoted};

/// Longest text that `to_json` makes, in bytes: enough for a blob of 16 MiB, the largest that can be stored.
pub const TEXT_BYTES_MAX: usize = (32 << 20) + 16;

/// The value of each column for `INSERT … JSON`: `None` if the text does not name the column, `Some(None)` if
/// its value is null.
pub type ColumnValues = Vec<Option<Option<Vec<u8>>>>;

/// Parses the object of `INSERT … JSON` into the values of `columns`, in their order.
///
/// Keys name columns as identifiers do: without regard to case unless they are in (escaped) double quotes. If
/// a key occurs more than once, the last one counts.
///
/// # Errors
/// [`StatementError::Invalid`] in Cassandra's words: the text is not an object, a value is not one of its
/// column's type, or a key is not a column.
pub fn columns(
    text: &str,
    columns: &[(&str, &CqlType)],
    now_ms: i64,
) -> Result<ColumnValues, StatementError> {
    let not_a_map = |problem: String| {
        StatementError::Invalid(format!(
            "Could not decode JSON string as a map: {problem}. (String was: {text})"
        ))
    };
    let entries = match parse(text).map_err(|error| not_a_map(error.to_string()))? {
        Json::Map(entries) => entries,
        Json::Null => return Err(StatementError::invalid("Got null for INSERT JSON values")),
        other => return Err(not_a_map(format!("an object is expected, not a {}", other.class()))),
    };
    let entries = read::fold_case(entries);
    let mut values = ColumnValues::with_capacity(columns.len());
    for (name, ty) in columns {
        values.push(match entries.iter().rfind(|(key, _)| key == name) {
            None => None,
            Some((_, json)) => Some(value(ty, json, now_ms).map_err(|problem| {
                // The parser of durations refuses a wrong one without the column's name.
                let bare = **ty == CqlType::Duration && problem.starts_with("Unable to convert");
                StatementError::Invalid(match bare {
                    true => problem,
                    false => format!("Error decoding JSON value for {name}: {problem}"),
                })
            })?),
        });
    }
    if let Some((unknown, _)) = entries.iter().find(|(key, _)| !columns.iter().any(|(name, _)| key == name)) {
        return Err(StatementError::Invalid(format!(
            "JSON values map contains unrecognized column: {unknown}"
        )));
    }
    Ok(values)
}

/// `to_json(value)`.
///
/// # Errors
/// [`StatementError::Invalid`] if the text would be longer than [`TEXT_BYTES_MAX`].
pub(super) fn to_json(ty: &CqlType, value: Option<&[u8]>) -> Result<Vec<u8>, StatementError> {
    let value = value.filter(|value| !value.is_empty() || !ty.is_empty_value_meaningless());
    let mut text = String::new();
    append(ty, value, &mut text, TEXT_BYTES_MAX).map_err(|TooLong| {
        StatementError::Invalid(format!("The JSON text of a value is longer than {TEXT_BYTES_MAX} bytes"))
    })?;
    Ok(text.into_bytes())
}

/// `from_json(text)` for a receiver of type `ty`.
///
/// # Errors
/// [`StatementError::FunctionFailure`] if the text is not JSON or not a value of the type.
pub(super) fn from_json(
    name: &str,
    ty: &CqlType,
    text: &[u8],
    now_ms: i64,
) -> Result<Option<Vec<u8>>, StatementError> {
    let failure = |message: String| StatementError::FunctionFailure {
        keyspace: "system".to_owned(),
        function: name.to_owned(),
        arguments: vec!["text".to_owned()],
        message,
    };
    let text = str::from_utf8(text).map_err(|_| failure("String didn't validate.".to_owned()))?;
    let json = parse(text).map_err(|error| {
        failure(format!(
            "execution of 'system.{name}[text]' failed: Could not decode JSON string '{text}': {error}"
        ))
    })?;
    value(ty, &json, now_ms)
        .map_err(|problem| failure(format!("org.apache.cassandra.serializers.MarshalException: {problem}")))
}

#[cfg(test)]
mod tests;
