//! `Index.db`: each partition's key, the position of its data, and the blocks of long partitions.
//!
//! ```text
//! index    := entry*
//! entry    := key:short_sized data_position:vint promoted_length:vint [promoted]
//! promoted := header_length:vint whole_deletion blocks:vint block* offset:i32*
//! block    := first:prefix last:prefix offset:vint width:signed_vint has_open:bool [whole_deletion]
//! prefix   := kind:u8 [components:u16] values
//! ```
//! A block's offset is from the start of the partition, its width is stored less 64 KiB, and the offsets at
//! the end are of the blocks, from the first of them. Source: Cassandra 5.0 `RowIndexEntry`, `IndexInfo`.

pub(crate) mod pages;
pub(crate) mod promoted;
pub(crate) mod reader;
pub(crate) mod walked;
pub(crate) mod writer;

/// Bytes of partition after which a new block starts, unless configured (`column_index_size`).
pub const COLUMN_INDEX_BYTES_DEFAULT: u32 = 64 * 1024;

/// Most bytes of index between two samples of the summary, except for a single longer entry.
///
/// Together with the head of the entry behind it, rounded to blocks of 512 bytes, a stretch is read with at
/// most 3 KiB. That leaves 5 KiB of the 8 KiB that a cold point read may take: a chunk of 4 KiB that cannot
/// be compressed, with its checksum, at any alignment.
pub(crate) const STRETCH_BYTES: u64 = 2048;

/// Base that widths of blocks are stored relative to, for any block size.
const WIDTH_BASE: i64 = 64 * 1024;
