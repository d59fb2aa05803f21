//! RESULT bodies: void, set keyspace, prepared, and rows with their metadata (native_protocol_v5.spec
//! §4.2.5).
//!
//! Metadata is encoded once for each protocol version and then copied. Rows are appended where they are
//! found; data that is known only at the end (their number, whether there are more pages) is filled in behind
//! them.

use std::cell::OnceCell;

use model::CqlType;
use model::token::murmur3_hash128;
use wire::extensions::LWT_METADATA_MARK;
use wire::types::append_option;
use wire::version::ProtocolVersion;

use crate::terms::BindSpecification;

const VOID: i32 = 1;
const ROWS: i32 = 2;
const SET_KEYSPACE: i32 = 3;
const PREPARED: i32 = 4;

const GLOBAL_TABLES_SPEC: i32 = 1;
const HAS_MORE_PAGES: i32 = 2;
const NO_METADATA: i32 = 4;
const METADATA_CHANGED: i32 = 8;

/// Bytes of a column besides its name if its type has no parts.
const SPECIFICATION_BYTES: usize = 4;

/// Identifies result metadata: 16 bytes that differ if names or types do.
pub type MetadataId = [u8; 16];

/// The columns of a result.
#[derive(Debug)]
pub struct ResultMetadata {
    keyspace: String,
    table: String,
    columns: Vec<(String, CqlType)>,
    id: MetadataId,
    encoded: [OnceCell<Box<[u8]>>; 3],
}

impl ResultMetadata {
    /// Columns of one table.
    pub fn new(keyspace: &str, table: &str, columns: impl Into<Vec<(String, CqlType)>>) -> Self {
        let mut metadata = Self {
            keyspace: keyspace.to_owned(),
            table: table.to_owned(),
            columns: columns.into(),
            id: [0; 16],
            encoded: Default::default(),
        };
        let count = metadata.columns.len() as u64;
        let [high, low] = murmur3_hash128(metadata.specifications(ProtocolVersion::V5), count);
        metadata.id = (u128::from(high as u64) << 64 | u128::from(low as u64)).to_be_bytes();
        metadata
    }

    /// No columns: statements that answer with no rows.
    pub fn none() -> Self {
        Self::new("", "", Vec::new())
    }

    /// How many columns there are.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Names and types.
    pub fn columns(&self) -> &[(String, CqlType)] {
        &self.columns
    }

    /// Identifies it on the wire.
    pub fn id(&self) -> &MetadataId {
        &self.id
    }

    /// Global table specification and columns, as they follow the flags.
    fn specifications(&self, version: ProtocolVersion) -> &[u8] {
        self.encoded[version as usize - ProtocolVersion::V3 as usize].get_or_init(|| {
            let names: usize = self.columns.iter().map(|(name, _)| name.len() + SPECIFICATION_BYTES).sum();
            let mut out = Vec::with_capacity(self.keyspace.len() + self.table.len() + 4 + names);
            string(&mut out, &self.keyspace);
            string(&mut out, &self.table);
            for (name, ty) in &self.columns {
                string(&mut out, name);
                append_option(&mut out, version, ty);
            }
            out.into_boxed_slice()
        })
    }

    /// Flags, count and columns, as PREPARED shows them.
    fn append(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        if self.columns.is_empty() {
            int(out, NO_METADATA);
            int(out, 0);
            return;
        }
        int(out, GLOBAL_TABLES_SPEC);
        length(out, self.columns.len());
        out.extend_from_slice(self.specifications(version));
    }
}

/// How the metadata of one answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataMode {
    /// In full.
    Full,
    /// Left out: the client has it.
    Skip,
    /// In full with its new id: the client has an older one.
    Changed,
}

/// A ROWS body under construction: header, then rows appended by the caller, then [`RowsBody::finish`].
#[derive(Debug)]
pub struct RowsBody {
    flags_at: usize,
    paging_at: usize,
    count_at: usize,
}

impl RowsBody {
    /// Appends everything before the first row.
    pub fn begin(
        out: &mut Vec<u8>,
        version: ProtocolVersion,
        metadata: &ResultMetadata,
        mode: MetadataMode,
    ) -> Self {
        int(out, ROWS);
        let flags_at = out.len();
        int(
            out,
            match mode {
                MetadataMode::Full => GLOBAL_TABLES_SPEC,
                MetadataMode::Skip => NO_METADATA,
                MetadataMode::Changed => GLOBAL_TABLES_SPEC | METADATA_CHANGED,
            },
        );
        length(out, metadata.len());
        let paging_at = out.len();
        if mode == MetadataMode::Changed {
            short_bytes(out, metadata.id());
        }
        if mode != MetadataMode::Skip {
            out.extend_from_slice(metadata.specifications(version));
        }
        let count_at = out.len();
        int(out, 0);
        Self { flags_at, paging_at, count_at }
    }

    /// Fills in the number of rows and, if there are more, the paging state of the next page.
    pub fn finish(self, out: &mut Vec<u8>, rows: usize, paging_state: Option<&[u8]>) {
        let count = i32::try_from(rows).expect("a page is bounded by its bytes");
        out[self.count_at..self.count_at + 4].copy_from_slice(&count.to_be_bytes());
        let Some(state) = paging_state else { return };
        let flags = i32::from_be_bytes(out[self.flags_at..self.flags_at + 4].try_into().expect("four bytes"));
        out[self.flags_at..self.flags_at + 4].copy_from_slice(&(flags | HAS_MORE_PAGES).to_be_bytes());
        let length = i32::try_from(state.len()).expect("a paging state is small").to_be_bytes();
        out.splice(self.paging_at..self.paging_at, length.into_iter().chain(state.iter().copied()));
    }
}

/// Rows of a ROWS body that [`RowsBody`] wrote, in one page.
#[cold]
pub fn rows_in(
    body: &[u8],
    version: ProtocolVersion,
    metadata: &ResultMetadata,
    mode: MetadataMode,
) -> usize {
    // The result's kind, flags, columns; the id if it is new.
    let specifications = || metadata.specifications(version).len();
    let count_at = 12
        + match mode {
            MetadataMode::Skip => 0,
            MetadataMode::Full => specifications(),
            MetadataMode::Changed => 2 + metadata.id().len() + specifications(),
        };
    let count = body.get(count_at..count_at + 4).and_then(|count| <[u8; 4]>::try_from(count).ok());
    count.map_or(0, |count| usize::try_from(i32::from_be_bytes(count)).unwrap_or(0))
}

/// Appends a VOID body.
pub fn append_void(out: &mut Vec<u8>) {
    int(out, VOID);
}

/// Appends a SET_KEYSPACE body.
pub fn append_set_keyspace(out: &mut Vec<u8>, keyspace: &str) {
    int(out, SET_KEYSPACE);
    string(out, keyspace);
}

/// Contents of a PREPARED body.
#[derive(Debug)]
pub struct PreparedBody<'a> {
    /// Id of the statement.
    pub id: &'a [u8; 16],
    /// Its markers.
    pub markers: &'a [BindSpecification],
    /// For each column of the partition key the marker bound to it; empty unless all are.
    pub partition_key_indexes: &'a [u16],
    /// Its result.
    pub result: &'a ResultMetadata,
    /// Whether the id of the result metadata is sent: version 5, or a v4 client that asked for it.
    pub with_metadata_id: bool,
    /// Whether the client gets the mark of conditional statements (`SCYLLA_LWT_ADD_METADATA_MARK`).
    pub lwt_mark: bool,
}

impl PreparedBody<'_> {
    /// Appends the body.
    pub fn append(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        int(out, PREPARED);
        short_bytes(out, self.id);
        if self.with_metadata_id {
            short_bytes(out, self.result.id());
        }
        self.append_markers(out, version);
        self.result.append(out, version);
    }

    fn append_markers(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let first = self.markers.first();
        let global = first.is_some_and(|first| {
            self.markers.iter().all(|m| m.keyspace == first.keyspace && m.table == first.table)
        });
        let mark = if self.lwt_mark { LWT_METADATA_MARK.cast_signed() } else { 0 };
        int(out, mark | if global { GLOBAL_TABLES_SPEC } else { 0 });
        length(out, self.markers.len());
        if version >= ProtocolVersion::V4 {
            // Markers of a key are included only if all markers belong to one table, as in Cassandra.
            let indexes = if global { self.partition_key_indexes } else { &[] };
            length(out, indexes.len());
            for index in indexes {
                out.extend_from_slice(&index.to_be_bytes());
            }
        }
        if let Some(first) = first.filter(|_| global) {
            string(out, &first.keyspace);
            string(out, &first.table);
        }
        for marker in self.markers {
            if !global {
                string(out, &marker.keyspace);
                string(out, &marker.table);
            }
            string(out, &marker.name);
            append_option(out, version, &marker.ty);
        }
    }
}

/// Appends one value of a row.
#[inline]
pub fn append_value(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(value) => {
            out.extend_from_slice(&(value.len() as i32).to_be_bytes());
            out.extend_from_slice(value);
        }
        None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
    }
}

fn int(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn length(out: &mut Vec<u8>, value: usize) {
    int(out, i32::try_from(value).expect("columns and markers are fewer than 2^31"));
}

fn string(out: &mut Vec<u8>, text: &str) {
    short_bytes(out, text.as_bytes());
}

fn short_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // Names from statements may be longer than the protocol allows; they are cut at a character.
    let mut end = bytes.len().min(usize::from(u16::MAX));
    while end < bytes.len() && end > 0 && bytes[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    out.extend_from_slice(&(end as u16).to_be_bytes());
    out.extend_from_slice(&bytes[..end]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paging_state_is_put_in_before_the_columns() {
        let metadata = ResultMetadata::new("ks", "t", &[("c".to_owned(), CqlType::Int)]);
        let mut out = b"before".to_vec();
        let body = RowsBody::begin(&mut out, ProtocolVersion::V5, &metadata, MetadataMode::Skip);
        append_value(&mut out, Some(&[0, 0, 0, 7]));
        append_value(&mut out, None);
        body.finish(&mut out, 2, Some(b"xy"));
        assert_eq!(
            out,
            b"before\0\0\0\x02\0\0\0\x06\0\0\0\x01\0\0\0\x02xy\0\0\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff"
        );
    }

    #[test]
    fn full_metadata_names_its_table_once() {
        let metadata = ResultMetadata::new("ks", "t", &[("c".to_owned(), CqlType::Int)]);
        let mut out = Vec::new();
        let body = RowsBody::begin(&mut out, ProtocolVersion::V4, &metadata, MetadataMode::Full);
        body.finish(&mut out, 0, None);
        assert_eq!(out, b"\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\x02ks\0\x01t\0\x01c\0\x09\0\0\0\0");
    }

    #[test]
    fn metadata_ids_differ_where_columns_do() {
        let id = |name: &str, ty| *ResultMetadata::new("ks", "t", &[(name.to_owned(), ty)]).id();
        assert_eq!(id("a", CqlType::Int), id("a", CqlType::Int));
        assert_ne!(id("a", CqlType::Int), id("b", CqlType::Int));
        assert_ne!(id("a", CqlType::Int), id("a", CqlType::Bigint));
    }
}
