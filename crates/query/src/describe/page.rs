//! A page of a description as the body of a RESULT of kind Rows (native_protocol_v5.spec §4.2.5.2).

use super::{Description, RANGE_OWNERSHIP};
use crate::QueryError;

const KIND_ROWS: i32 = 0x0002;
const GLOBAL_TABLES_SPEC: i32 = 0x0001;
const HAS_MORE_PAGES: i32 = 0x0002;
const TYPE_VARCHAR: u16 = 0x000D;
const TYPE_LIST: u16 = 0x0020;
const TYPE_MAP: u16 = 0x0021;

/// Paging state: a version, the version of the schema, the number of rows already given.
const STATE_VERSION: u8 = 1;
const STATE_BYTES: usize = 1 + 16 + 8;

/// Appends the page that begins where `state` points and has at most `page_size` rows.
///
/// # Errors
/// A paging state that this node did not make, or one of another schema.
pub(crate) fn append_rows(
    description: &Description,
    schema_version: [u8; 16],
    page_size: Option<u32>,
    state: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<(), QueryError> {
    let begin = match state {
        None => 0,
        Some(state) => read_state(state, schema_version)?.min(description.rows.len()),
    };
    let page_size = page_size.filter(|size| *size > 0).and_then(|size| usize::try_from(size).ok());
    let end = page_size
        .map_or(description.rows.len(), |size| begin.saturating_add(size).min(description.rows.len()));
    let has_more = end < description.rows.len();
    append_int(out, KIND_ROWS);
    append_int(out, if has_more { GLOBAL_TABLES_SPEC | HAS_MORE_PAGES } else { GLOBAL_TABLES_SPEC });
    append_length(out, description.columns.len());
    if has_more {
        append_bytes(out, &write_state(schema_version, end));
    }
    append_string(out, "system");
    append_string(out, "describe");
    for column in &description.columns {
        append_string(out, column);
        let types: &[u16] = if *column == RANGE_OWNERSHIP {
            &[TYPE_MAP, TYPE_VARCHAR, TYPE_LIST, TYPE_VARCHAR]
        } else {
            &[TYPE_VARCHAR]
        };
        types.iter().for_each(|id| out.extend_from_slice(&id.to_be_bytes()));
    }
    append_length(out, end - begin);
    for row in &description.rows[begin..end] {
        row.iter().for_each(|value| append_bytes(out, value));
    }
    Ok(())
}

fn write_state(schema_version: [u8; 16], given: usize) -> Vec<u8> {
    let mut state = Vec::with_capacity(STATE_BYTES);
    state.push(STATE_VERSION);
    state.extend_from_slice(&schema_version);
    state.extend_from_slice(&(given as u64).to_be_bytes());
    state
}

fn read_state(state: &[u8], schema_version: [u8; 16]) -> Result<usize, QueryError> {
    let state: &[u8; STATE_BYTES] =
        state.try_into().map_err(|_| QueryError::invalid("Invalid paging state."))?;
    if state[0] != STATE_VERSION {
        return Err(QueryError::invalid("Incompatible paging state"));
    }
    if state[1..17] != schema_version {
        return Err(QueryError::invalid(
            "The schema has changed since the previous page of the DESCRIBE statement result. Please retry the \
             DESCRIBE statement.",
        ));
    }
    let given = u64::from_be_bytes(state[17..].try_into().expect("25 bytes less 17 are 8"));
    usize::try_from(given).map_err(|_| QueryError::invalid("Invalid paging state."))
}

fn append_int(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn append_length(out: &mut Vec<u8>, length: usize) {
    append_int(out, i32::try_from(length).expect("descriptions are far smaller than 2 GiB"));
}

fn append_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    append_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn append_string(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).expect("column names are short");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}
