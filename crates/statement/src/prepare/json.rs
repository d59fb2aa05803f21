//! INSERT JSON, prepared: an INSERT of every column whose values are markers behind those of the statement;
//! each execution fills them from the text.
//!
//! Rules and messages are those of Cassandra 5's `Json` and `UpdateStatement.ParsedInsertJson`. A text in the
//! statement is read once, here.

use cql::ast::{BindMarker, Ident, Insert, InsertJson, JsonDefault, Term as RawTerm};
use model::{CqlType, Table};

use crate::StatementError;
use crate::functions::json::{self, ColumnValues};
use crate::terms::Receiver;
use crate::terms::prepare::Context;

/// The source of the values of an INSERT JSON.
#[derive(Debug)]
pub struct JsonValues {
    source: Source,
    /// The value of columns that the text does not name.
    pub default: JsonDefault,
    columns: Vec<(String, CqlType)>,
}

#[derive(Debug)]
enum Source {
    /// A text of the statement.
    Known(ColumnValues),
    /// A text at this place among the markers.
    Marker(usize),
}

/// The values of one execution.
#[derive(Debug)]
pub enum Values<'a> {
    /// The values of a text of the statement.
    Known(&'a ColumnValues),
    /// The values of a text that came with the request.
    Read(ColumnValues),
}

impl Values<'_> {
    /// The values, by column.
    pub fn get(&self) -> &ColumnValues {
        match self {
            Self::Known(values) => values,
            Self::Read(values) => values,
        }
    }
}

impl JsonValues {
    /// The values of one execution; if the statement has no text, it is the value of the marker.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] in Cassandra's words if the text is not an object of columns.
    pub fn read<'a>(
        &'a self,
        text: impl FnOnce(usize) -> Option<&'a [u8]>,
        now_ms: i64,
    ) -> Result<Values<'a>, StatementError> {
        let index = match &self.source {
            Source::Known(values) => return Ok(Values::Known(values)),
            Source::Marker(index) => *index,
        };
        let text = text(index).ok_or_else(|| StatementError::invalid("Got null for INSERT JSON values"))?;
        let text =
            std::str::from_utf8(text).map_err(|_| StatementError::invalid("String didn't validate."))?;
        parse(text, &self.columns, now_ms).map(Values::Read)
    }
}

fn parse(text: &str, columns: &[(String, CqlType)], now_ms: i64) -> Result<ColumnValues, StatementError> {
    let columns: Vec<(&str, &CqlType)> = columns.iter().map(|(name, ty)| (name.as_str(), ty)).collect();
    json::columns(text, &columns, now_ms)
}

/// The INSERT that an INSERT JSON is equivalent to, and the source of its values.
///
/// # Errors
/// [`StatementError::Invalid`] if a text in the statement is not an object of columns.
pub(super) fn as_insert(
    cx: &mut Context<'_>,
    table: &Table,
    insert: &InsertJson,
) -> Result<(Insert, JsonValues), StatementError> {
    let columns: Vec<(String, CqlType)> = table
        .columns()
        .filter(|column| !table.hides(column))
        .map(|column| (column.name.clone(), column.ty.clone()))
        .collect();
    let source = match &insert.value {
        RawTerm::BindMarker(marker) => {
            cx.markers.specify(marker.index, &Receiver::new("[json]", CqlType::Text));
            Source::Marker(marker.index)
        }
        RawTerm::Constant(constant) => Source::Known(parse(&constant.text, &columns, cx.ambient.now_ms())?),
        other => {
            return Err(StatementError::Internal(format!(
                "{} is no JSON text",
                crate::terms::text::of_term(other)
            )));
        }
    };
    // Markers beyond those of the statement, which only this plan uses.
    let first = cx.markers.len();
    let as_insert = Insert {
        table: insert.table.clone(),
        columns: columns.iter().map(|(name, _)| Ident::new(name)).collect(),
        values: (first..first + columns.len())
            .map(|index| RawTerm::BindMarker(BindMarker { index, name: None }))
            .collect(),
        if_not_exists: insert.if_not_exists,
        attributes: insert.attributes.clone(),
    };
    Ok((as_insert, JsonValues { source, default: insert.default, columns }))
}
