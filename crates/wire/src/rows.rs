//! Columns and rows of a RESULT (native_protocol_v5.spec §4.2.5.2).
//!
//! ```text
//! flags: int  columns: int  [paging state: bytes]  [new metadata id: short bytes]
//! [keyspace, table: string]  column*  rows: int  value*
//! ```
//! The columns of a prepared statement are encoded once, per version, as [`RowsMetadata`]; an execution
//! copies them or leaves them out. Invariant: a [`RowsWriter`] holds whole rows only when it is finished; it
//! asserts that.

use model::CqlType;

use crate::protocol_error::ProtocolError;
use crate::response::{BodyCompression, ResponseBuilder};
use crate::types::append_option;
use crate::version::ProtocolVersion;
use crate::writer::{append_bytes, append_int, append_int_length, append_short_bytes, append_string};

pub(crate) const GLOBAL_TABLES_SPEC: u32 = 0x01;
pub(crate) const HAS_MORE_PAGES: u32 = 0x02;
pub(crate) const NO_METADATA: u32 = 0x04;
pub(crate) const METADATA_CHANGED: u32 = 0x08;

/// A column of a result, or a bind marker.
#[derive(Debug, Clone, Copy)]
pub struct ColumnSpec<'a> {
    /// Keyspace of the table.
    pub keyspace: &'a str,
    /// The table.
    pub table: &'a str,
    /// Name of the column, or its alias.
    pub name: &'a str,
    /// Its type.
    pub ty: &'a CqlType,
}

/// The columns of a result, encoded for one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowsMetadata {
    version: ProtocolVersion,
    column_count: usize,
    flags: u32,
    encoded: Vec<u8>,
}

/// How rows come with their columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsMode<'a> {
    /// With all columns described.
    Full,
    /// Without: the client has them.
    Skip,
    /// With all columns and their new id: the client has them from before the schema changed. Only where
    /// [`Extensions::has_metadata_id`](crate::extensions::Extensions::has_metadata_id).
    Changed(&'a [u8]),
}

pub(crate) fn all_in_one_table(columns: &[ColumnSpec<'_>]) -> bool {
    columns.first().is_some_and(|first| {
        columns.iter().all(|column| column.keyspace == first.keyspace && column.table == first.table)
    })
}

/// Appends the tables and columns, after the flags that give their form.
pub(crate) fn append_columns(out: &mut Vec<u8>, version: ProtocolVersion, columns: &[ColumnSpec<'_>]) {
    let one_table = all_in_one_table(columns);
    if one_table {
        append_string(out, columns[0].keyspace);
        append_string(out, columns[0].table);
    }
    for column in columns {
        if !one_table {
            append_string(out, column.keyspace);
            append_string(out, column.table);
        }
        append_string(out, column.name);
        append_option(out, version, column.ty);
    }
}

impl RowsMetadata {
    /// Encodes `columns` for `version`.
    pub fn new(version: ProtocolVersion, columns: &[ColumnSpec<'_>]) -> Self {
        let flags = if all_in_one_table(columns) { GLOBAL_TABLES_SPEC } else { 0 };
        let mut encoded = Vec::new();
        append_columns(&mut encoded, version, columns);
        Self { version, column_count: columns.len(), flags, encoded }
    }

    /// How many values a row has.
    pub fn column_count(&self) -> usize {
        self.column_count
    }

    /// The encoded columns: equal bytes mean equal results, so the result metadata id is a digest of them.
    pub fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    pub(crate) fn append_full(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        self.assert_version(version);
        append_int(out, self.flags.cast_signed());
        append_int_length(out, self.column_count);
        out.extend_from_slice(&self.encoded);
    }

    fn assert_version(&self, version: ProtocolVersion) {
        assert!(self.version == version, "metadata of version {} for version {version}", self.version);
    }
}

/// Writes the rows of a RESULT.
#[derive(Debug)]
#[must_use = "a response that is not finished is taken back"]
pub struct RowsWriter<'b> {
    response: ResponseBuilder<'b>,
    flags_at: usize,
    count_at: usize,
    column_count: usize,
    row_count: usize,
    values_in_row: usize,
    has_paging_state: bool,
}

impl<'b> RowsWriter<'b> {
    #[inline]
    pub(crate) fn begin(response: ResponseBuilder<'b>, metadata: &RowsMetadata, mode: RowsMode<'_>) -> Self {
        let version = response.version();
        metadata.assert_version(version);
        let flags_at = response.out.len();
        let flags = match mode {
            RowsMode::Full => metadata.flags,
            RowsMode::Skip => metadata.flags | NO_METADATA,
            RowsMode::Changed(_) => metadata.flags | METADATA_CHANGED,
        };
        append_int(response.out, flags.cast_signed());
        append_int_length(response.out, metadata.column_count);
        if let RowsMode::Changed(id) = mode {
            append_short_bytes(response.out, id);
        }
        if mode != RowsMode::Skip {
            response.out.extend_from_slice(&metadata.encoded);
        }
        let count_at = response.out.len();
        append_int(response.out, 0);
        Self {
            response,
            flags_at,
            count_at,
            column_count: metadata.column_count,
            row_count: 0,
            values_in_row: 0,
            has_paging_state: false,
        }
    }

    /// Appends the next value of the row; `None` is null.
    #[inline]
    pub fn append_value(&mut self, value: Option<&[u8]>) {
        append_bytes(self.response.out, value);
        self.values_in_row += 1;
    }

    /// Appends the next value of the row, as `write` serialises it to the end of the buffer it is given.
    #[inline]
    pub fn append_value_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut *self.response.out;
        let length_at = out.len();
        append_int(out, 0);
        write(out);
        let length = out.len() - length_at - 4;
        let length = i32::try_from(length).unwrap_or_else(|_| panic!("a value of {length} bytes"));
        out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
        self.values_in_row += 1;
    }

    /// Ends the row; it must have as many values as there are columns.
    #[inline]
    pub fn end_row(&mut self) {
        assert!(
            self.values_in_row == self.column_count,
            "a row of {} values in a result of {} columns",
            self.values_in_row,
            self.column_count
        );
        self.values_in_row = 0;
        self.row_count += 1;
    }

    /// Appends `row_count` whole rows that another shard or node has encoded with [`Self::append_value`]'s
    /// layout.
    pub fn append_rows(&mut self, row_count: usize, encoded: &[u8]) {
        assert!(self.values_in_row == 0, "rows appended inside a row");
        self.response.out.extend_from_slice(encoded);
        self.row_count += row_count;
    }

    /// Rows so far.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Bytes of rows so far, an unfinished one included; pages are ended by this.
    pub fn row_bytes(&self) -> usize {
        self.response.out.len() - self.count_at - 4
    }

    /// Marks the result as having more rows, from `paging_state` on.
    ///
    /// The state stands before the rows but is known only after them: the rows are moved up by its length.
    pub fn set_paging_state(&mut self, paging_state: &[u8]) {
        assert!(!self.has_paging_state, "the paging state is set twice");
        self.has_paging_state = true;
        let out = &mut *self.response.out;
        let flags_low = &mut out[self.flags_at + 3];
        *flags_low |= HAS_MORE_PAGES as u8;
        let end = out.len();
        append_bytes(out, Some(paging_state));
        let added = out.len() - end;
        out[self.flags_at + 8..].rotate_right(added);
        self.count_at += added;
    }

    /// Makes the frame final.
    ///
    /// # Errors
    /// [`ProtocolError::TooLarge`] for a body that no length can express; the buffer is then as before
    /// `begin`.
    #[inline]
    pub fn finish(self, compression: BodyCompression<'_>) -> Result<(), ProtocolError> {
        assert!(self.values_in_row == 0, "{} values after the last whole row", self.values_in_row);
        let too_large = ProtocolError::TooLarge { length: self.row_count as u64, limit: i32::MAX as usize };
        let row_count = i32::try_from(self.row_count).map_err(|_| too_large)?;
        self.response.out[self.count_at..self.count_at + 4].copy_from_slice(&row_count.to_be_bytes());
        self.response.finish(compression)
    }
}
