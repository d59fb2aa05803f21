//! `Data.db`: partitions in token order.
//!
//! ```text
//! data      := partition*
//! partition := key:short_sized whole_deletion [static_row] unfiltered* end
//! whole_deletion := local_deletion_time:i32 timestamp:i64             (up to version `nb`)
//!             | 0x80 | timestamp:i64 local_deletion_time:u32 (from version `oa`; the first says not deleted)
//! static_row:= flags extension row_body                 (always there when the file has static columns)
//! unfiltered:= flags [extension] clustering row_body | flags bound marker_body
//! row_body  := size:vint previous_size:vint [liveness] [deletion] [columns] cells
//! marker_body := size:vint previous_size:vint deletion [deletion]       (a boundary: closed, then opened)
//! liveness  := timestamp [ttl local_time]
//! deletion  := timestamp local_time
//! columns   := missing:vint bitmap                      (64 columns and more: see `encode`)
//! cell      := flags [timestamp] [local_time] [ttl] [path:sized] [value]
//! bound     := kind:u8 components:u16 values
//! end       := 0x01
//! ```
//! Timestamps, local times and TTLs are variable-length differences to the header's minima. A size counts the
//! bytes after itself. Source: Cassandra 5.0 `UnfilteredSerializer`, `Cell.Serializer`,
//! `ClusteringPrefix.Serializer`.

pub(crate) mod chunk_writer;
pub(crate) mod chunks;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod long_rows;
pub(crate) mod plain;
pub(crate) mod reader;
pub(crate) mod slicing;
pub(crate) mod stream;
pub(crate) mod window;
pub(crate) mod writer;

/// Flags of an unfiltered.
pub(crate) mod flags {
    pub(crate) const END_OF_PARTITION: u8 = 0x01;
    pub(crate) const IS_MARKER: u8 = 0x02;
    pub(crate) const HAS_TIMESTAMP: u8 = 0x04;
    pub(crate) const HAS_TTL: u8 = 0x08;
    pub(crate) const HAS_DELETION: u8 = 0x10;
    pub(crate) const HAS_ALL_COLUMNS: u8 = 0x20;
    pub(crate) const HAS_COMPLEX_DELETION: u8 = 0x40;
    pub(crate) const EXTENSION: u8 = 0x80;

    /// In the extension byte.
    pub(crate) const IS_STATIC: u8 = 0x01;
    /// In the extension byte: a deletion of a view's row, which Cassandra no longer distinguishes from
    /// others.
    pub(crate) const SHADOWABLE_DELETION: u8 = 0x02;

    /// Of a cell.
    pub(crate) const CELL_DELETED: u8 = 0x01;
    pub(crate) const CELL_EXPIRING: u8 = 0x02;
    pub(crate) const CELL_EMPTY: u8 = 0x04;
    pub(crate) const CELL_ROW_TIMESTAMP: u8 = 0x08;
    pub(crate) const CELL_ROW_TTL: u8 = 0x10;
    pub(crate) const CELL_ALL: u8 = 0x1f;
}

/// Kinds of clustering prefixes, by their number in the format.
pub(crate) mod kind {
    pub(crate) const EXCL_END: u8 = 0;
    pub(crate) const INCL_START: u8 = 1;
    pub(crate) const EXCL_END_INCL_START: u8 = 2;
    pub(crate) const CLUSTERING: u8 = 4;
    pub(crate) const INCL_END_EXCL_START: u8 = 5;
    pub(crate) const INCL_END: u8 = 6;
    pub(crate) const EXCL_START: u8 = 7;
}

/// Columns from which on the set of present columns is a list instead of a bitmap.
pub(crate) const BITMAP_COLUMNS_MAX: usize = 64;
/// Clustering values that share one header.
pub(crate) const VALUES_PER_HEADER: usize = 32;
