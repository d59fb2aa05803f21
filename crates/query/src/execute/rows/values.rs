//! Values of one row into the answer: columns straight from their cells, expressions as they come.

use model::{ColumnKind, RowView};
use statement::functions::{effort, json};
use statement::prepare::selection::{Selection, Source};
use statement::prepare::selector::Selector;
use statement::results::append_value;
use statement::terms::Binding;

use crate::QueryError;
use crate::answer_room::{Grant, too_large};
use crate::execute::cells::{self, Finder};
use crate::execute::evaluate::{Aggregated, RowInput, evaluate};

/// Drops a row that could not be shown whole; it may come again.
#[cold]
pub(super) fn take_back(out: &mut Vec<u8>, sorted: &mut Option<Vec<usize>>, start: usize) {
    out.truncate(start);
    if let Some(starts) = sorted
        && starts.last() == Some(&start)
    {
        starts.pop();
    }
}

/// Appends the values of expressions.
pub(super) fn append_values<'v>(
    selection: &Selection,
    selectors: &'v [Selector],
    input: &RowInput<'v>,
    aggregated: &'v Aggregated,
    binding: &Binding<'v>,
    (out, end_max): (&mut Vec<u8>, usize),
) -> Result<(), QueryError> {
    binding.ambient.begin_row();
    let mut selectors = selectors.iter();
    if let Some(json) = &selection.json {
        let mut text = String::from("{");
        for (at, (key, ty)) in json.keys.iter().zip(&json.types).enumerate() {
            let Some(selector) = selectors.next() else { break };
            text.push_str(if at == 0 { "" } else { ", " });
            text.push_str(key);
            text.push_str(": ");
            let value = evaluate(selector, input, aggregated, binding)?;
            match value.as_deref() {
                // The empty value of a type that has none: Cassandra writes nothing, in quotes.
                Some([]) if ty.is_empty_value_meaningless() => text.push_str("\"\""),
                value => {
                    let work = value.map_or(0, |value| effort::of_text(ty, value));
                    binding.ambient.charge(work).map_err(QueryError::Invalid)?;
                    let (before, text_max) = (text.len(), end_max.saturating_sub(out.len()));
                    json::append(ty, value, &mut text, text_max)
                        .map_err(|json::TooLong| too_large(end_max))?;
                    let work = effort::of_json_bytes(text.len() - before);
                    binding.ambient.charge(work).map_err(QueryError::Invalid)?;
                }
            }
            check_end(out.len() + text.len(), end_max)?;
        }
        text.push('}');
        append_value(out, Some(text.as_bytes()));
    }
    for selector in selectors {
        append_value(out, evaluate(selector, input, aggregated, binding)?.as_deref());
        check_end(out.len(), end_max)?;
    }
    Ok(())
}

/// One row may name a value any number of times.
#[inline]
fn check_end(end: usize, end_max: usize) -> Result<(), QueryError> {
    if end <= end_max { Ok(()) } else { Err(too_large(end_max)) }
}

/// As [`append_columns`], for a row that may need more memory than was granted to the answer, which begins at
/// `first_byte`.
#[inline]
pub(super) fn append_columns_within(
    sources: &[Source],
    input: &RowInput<'_>,
    (grant, first_byte): (&mut Grant, usize),
    out: &mut Vec<u8>,
) -> Result<(), QueryError> {
    if out.len() - first_byte + most_bytes(sources, input) <= grant.bytes() {
        append_columns(sources, input, out);
        return Ok(());
    }
    for source in sources {
        append_columns(std::slice::from_ref(source), input, out);
        if out.len() - first_byte > grant.bytes() {
            grant.cover(out.len() - first_byte)?;
        }
    }
    Ok(())
}

/// More bytes than a row takes in an answer: as if each column had all of it.
#[inline]
pub(in crate::execute) fn most_bytes(sources: &[Source], input: &RowInput<'_>) -> usize {
    let of = |row: Option<RowView<'_>>| row.map_or(0, |row| row.as_bytes().len());
    let key: usize = input.key.iter().map(|part| part.len()).sum();
    let clustering: usize = input.clustering.iter().flatten().map(|part| part.len()).sum();
    (of(input.row) + of(input.static_row) + key + clustering + 4).saturating_mul(sources.len())
}

/// Appends the values of the first columns, those of the key; how many that are.
#[inline]
fn append_key(sources: &[Source], input: &RowInput<'_>, out: &mut Vec<u8>) -> usize {
    for (at, source) in sources.iter().enumerate() {
        let position = usize::from(source.column.position);
        match source.column.kind {
            ColumnKind::PartitionKey => append_value(out, input.key.get(position).copied()),
            ColumnKind::Clustering => append_value(out, input.clustering.get(position).copied().flatten()),
            ColumnKind::Static | ColumnKind::Regular => return at,
        }
    }
    sources.len()
}

/// Appends the values of the first columns, those that have one cell each, are asked for in the order of the
/// row, and stand there as plain values or not at all; how many that are. The usual row is over then.
#[inline]
fn append_plain(sources: &[Source], row: RowView<'_>, out: &mut Vec<u8>) -> usize {
    let mut cells = row.cells();
    let mut next = cells.peek_plain();
    let mut last = None;
    for (at, source) in sources.iter().enumerate() {
        let id = source.column.id;
        if source.multi_cell || source.column.kind != ColumnKind::Regular || last >= Some(id) {
            return at;
        }
        last = Some(id);
        while let Some(cell) = &next
            && cell.column < id
        {
            cells.pass(cell);
            next = cells.peek_plain();
        }
        match &next {
            Some(cell) if cell.column == id => {
                append_value(out, Some(cell.value()));
                cells.pass(cell);
                next = cells.peek_plain();
            }
            Some(_) => append_value(out, None),
            None if cells.is_done() => append_value(out, None),
            // A cell of another kind.
            None => return at,
        }
    }
    sources.len()
}

#[inline]
pub(in crate::execute) fn append_columns(mut sources: &[Source], input: &RowInput<'_>, out: &mut Vec<u8>) {
    sources = &sources[append_key(sources, input, out)..];
    if let Some(row) = input.row {
        sources = &sources[append_plain(sources, row, out)..];
    }
    if sources.is_empty() {
        return;
    }
    let mut statics = input.static_row.map(Finder::new);
    let mut regulars = input.row.map(Finder::new);
    for source in sources {
        let column = &source.column;
        match column.kind {
            ColumnKind::PartitionKey => {
                append_value(out, input.key.get(usize::from(column.position)).copied())
            }
            ColumnKind::Clustering => {
                append_value(out, input.clustering.get(usize::from(column.position)).copied().flatten());
            }
            ColumnKind::Static | ColumnKind::Regular => {
                if source.multi_cell {
                    let row = input.row_of(column);
                    let start = out.len();
                    out.extend_from_slice(&[0; 4]);
                    if row.is_some_and(|row| cells::append_multi(row, column, out)) {
                        let length = (out.len() - start - 4) as i32;
                        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
                    } else {
                        out.truncate(start);
                        append_value(out, None);
                    }
                } else {
                    let row = if column.kind == ColumnKind::Static { &mut statics } else { &mut regulars };
                    append_value(out, row.as_mut().and_then(|row| row.single(column.id)));
                }
            }
        }
    }
}
