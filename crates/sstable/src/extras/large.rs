//! The large items of a table file, as recorded by its writer: a section of `Ceto.db`.
//!
//! ```text
//! large     := written_ms:i64 partitions:u16 partition{partitions} rows:u16 row{rows} cells:u16 cell{cells}
//! partition := key bytes:u64 rows:u64 dead_rows:u64 range_tombstones:u64
//! row       := key place bytes:u64
//! cell      := key place column:text bytes:u64 elements:u64
//! key, text := length:u16 bytes
//! place     := present:bool [position]     (`position` as in the other sections; none of a static row)
//! ```
//! The writer of the file decides the thresholds and how many of each kind are kept.

use model::{Clustering, Position};

use super::{append_position, position};
use crate::error::Malformed;
use crate::input::{Input, append_short_sized, append_text};

/// A partition with many bytes or rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargePartition {
    /// Its stored key.
    pub key: Vec<u8>,
    /// Bytes of data before compression.
    pub bytes: u64,
    /// Rows without the static one.
    pub rows: u64,
    /// Rows without any live data.
    pub dead_rows: u64,
    /// Bounds of deleted ranges.
    pub range_tombstones: u64,
}

/// A row with many bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargeRow {
    /// Stored key of its partition.
    pub key: Vec<u8>,
    /// Its clustering; `None` for the static row.
    pub clustering: Option<Vec<u8>>,
    /// Bytes of data before compression.
    pub bytes: u64,
}

/// A value with many bytes, or a collection of many elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargeCell {
    /// Stored key of its partition.
    pub key: Vec<u8>,
    /// Clustering of its row; `None` for the static row.
    pub clustering: Option<Vec<u8>>,
    /// Name of its column.
    pub column: String,
    /// Bytes of the value, or of all elements with their keys.
    pub bytes: u64,
    /// Elements of a collection that is not frozen; 0 for everything else.
    pub elements: u64,
}

/// All records of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LargeData {
    /// When the file was written, milliseconds since the epoch.
    pub written_ms: i64,
    /// Partitions.
    pub partitions: Vec<LargePartition>,
    /// Rows.
    pub rows: Vec<LargeRow>,
    /// Cells and collections.
    pub cells: Vec<LargeCell>,
}

impl LargeData {
    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty() && self.rows.is_empty() && self.cells.is_empty()
    }

    /// Bytes it keeps in memory.
    pub fn bytes_in_memory(&self) -> usize {
        let place = |clustering: &Option<Vec<u8>>| clustering.as_ref().map_or(0, Vec::len);
        let partitions = self.partitions.iter().map(|one| size_of::<LargePartition>() + one.key.len());
        let rows = self.rows.iter().map(|one| size_of::<LargeRow>() + one.key.len() + place(&one.clustering));
        let cells = self
            .cells
            .iter()
            .map(|one| size_of::<LargeCell>() + one.key.len() + place(&one.clustering) + one.column.len());
        partitions.chain(rows).chain(cells).sum()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.written_ms.to_be_bytes());
        append_count(out, self.partitions.len());
        for one in &self.partitions {
            append_short_sized(out, &one.key);
            append_numbers(out, &[one.bytes, one.rows, one.dead_rows, one.range_tombstones]);
        }
        append_count(out, self.rows.len());
        for one in &self.rows {
            append_short_sized(out, &one.key);
            append_place(out, one.clustering.as_deref());
            append_numbers(out, &[one.bytes]);
        }
        append_count(out, self.cells.len());
        for one in &self.cells {
            append_short_sized(out, &one.key);
            append_place(out, one.clustering.as_deref());
            append_text(out, &one.column);
            append_numbers(out, &[one.bytes, one.elements]);
        }
    }

    pub(super) fn decode(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let mut large = Self { written_ms: input.i64()?, ..Self::default() };
        for _ in 0..input.u16()? {
            large.partitions.push(LargePartition {
                key: input.short_sized()?.to_vec(),
                bytes: input.u64()?,
                rows: input.u64()?,
                dead_rows: input.u64()?,
                range_tombstones: input.u64()?,
            });
        }
        for _ in 0..input.u16()? {
            large.rows.push(LargeRow {
                key: input.short_sized()?.to_vec(),
                clustering: place(input)?,
                bytes: input.u64()?,
            });
        }
        for _ in 0..input.u16()? {
            large.cells.push(LargeCell {
                key: input.short_sized()?.to_vec(),
                clustering: place(input)?,
                column: input.text()?.to_owned(),
                bytes: input.u64()?,
                elements: input.u64()?,
            });
        }
        Ok(large)
    }
}

fn append_count(out: &mut Vec<u8>, count: usize) {
    let count = u16::try_from(count).expect("few of each are kept");
    out.extend_from_slice(&count.to_be_bytes());
}

fn append_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
}

fn append_place(out: &mut Vec<u8>, clustering: Option<&[u8]>) {
    out.push(u8::from(clustering.is_some()));
    if let Some(prefix) = clustering {
        append_position(out, Position { prefix: Clustering(prefix), weight: 0 });
    }
}

fn place(input: &mut Input<'_>) -> Result<Option<Vec<u8>>, Malformed> {
    if !input.boolean()? {
        return Ok(None);
    }
    Ok(Some(position(input)?.prefix))
}
