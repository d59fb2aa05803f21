//! Writes `Index.db`, samples it for the summary, and fills the filter.
//!
//! A stretch of the index between two samples has at most [`STRETCH_BYTES`], so that finding a key reads
//! little; a longer entry is a stretch of its own. Stretches are shorter if a byte of summary per so many
//! bytes of data (`sstable_summary_ratio`) allows it. They become wider only when the summary's share of
//! memory is used up: every other sample is left out from then on, repeatedly.

use std::path::PathBuf;

use model::deletion::DeletionTime;
use model::token::{Token, murmur3_hash128};
use model::vint;

use super::{STRETCH_BYTES, WIDTH_BASE};
use crate::data::encode::append_whole_deletion;
use crate::data::writer::WriterOptions;
use crate::error::SstableError;
use crate::file::{OutputFile, Written};
use crate::filter::Filter;
use crate::input::append_short_sized;
use crate::layout::Layout;
use crate::summary::{SUMMARY_BYTES_MAX, Summary};

/// Bytes of a sample in the summary besides its key.
const SAMPLE_OVERHEAD_BYTES: usize = 12;
/// Bytes of entries that are written together.
const PENDING_BYTES: usize = 16 * 1024;

/// The blocks of the partition that is being written.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    bytes: Vec<u8>,
    offsets: Vec<u32>,
    first: Vec<u8>,
    start: Option<u64>,
}

impl Blocks {
    /// Bytes in memory.
    pub(crate) fn size(&self) -> usize {
        self.bytes.capacity() + 4 * self.offsets.capacity()
    }

    /// Drops the blocks of the previous partition.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.offsets.clear();
        self.start = None;
    }

    /// Notes an item with this clustering (a `prefix`), written at `start` of the partition up to `end`; it
    /// starts a block if none is open.
    pub(crate) fn add(
        &mut self,
        name: &[u8],
        start: u64,
        end: u64,
        open: DeletionTime,
        bytes_max: u32,
        layout: &Layout,
    ) {
        if self.start.is_none() {
            self.start = Some(start);
            self.first.clear();
            self.first.extend_from_slice(name);
        }
        if self.start.is_some_and(|start| end - start >= u64::from(bytes_max)) {
            self.close(name, end, open, layout);
        }
    }

    /// Ends the open block, if there is one; `last` is the clustering of the last item.
    pub(crate) fn close(&mut self, last: &[u8], end: u64, open: DeletionTime, layout: &Layout) {
        let Some(start) = self.start.take() else { return };
        self.offsets.push(self.bytes.len() as u32);
        self.bytes.extend_from_slice(&self.first);
        self.bytes.extend_from_slice(last);
        vint::append_unsigned(&mut self.bytes, start);
        vint::append_signed(&mut self.bytes, (end - start) as i64 - WIDTH_BASE);
        self.bytes.push(u8::from(!open.is_live()));
        if !open.is_live() {
            append_whole_deletion(layout, &mut self.bytes, open);
        }
    }

    /// Appends the promoted part of an entry with its length: none for a single block.
    fn append(
        &self,
        header_length: u64,
        deletion: DeletionTime,
        layout: &Layout,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) {
        if self.offsets.len() < 2 {
            vint::append_unsigned(out, 0);
            return;
        }
        scratch.clear();
        vint::append_unsigned(scratch, header_length);
        append_whole_deletion(layout, scratch, deletion);
        vint::append_unsigned(scratch, self.offsets.len() as u64);
        let length = scratch.len() + self.bytes.len() + 4 * self.offsets.len();
        vint::append_unsigned(out, length as u64);
        out.extend_from_slice(scratch);
        out.extend_from_slice(&self.bytes);
        self.offsets.iter().for_each(|offset| out.extend_from_slice(&offset.to_be_bytes()));
    }
}

/// `Index.db` while it is written.
#[derive(Debug)]
pub(crate) struct IndexWriter {
    file: OutputFile,
    /// Entries that are not in the file yet, and how many of their bytes are in the checksum.
    pending: Vec<u8>,
    summed: usize,
    scratch: Vec<u8>,
    summary: Summary,
    summary_bytes_max: usize,
    /// Bytes of data that allow a byte of summary.
    data_per_byte: f64,
    /// Amount of data that allows the samples so far and the next one.
    paid_at: f64,
    /// Number of stretches that are joined into one, once memory is short.
    thinning: u64,
    stretches: u64,
    /// Start of the open stretch.
    stretch: Option<u64>,
    filter: Option<Filter>,
    partitions: u64,
    checksum: crc32fast::Hasher,
}

impl IndexWriter {
    /// Starts an index at `path`.
    pub(crate) async fn create(
        path: PathBuf,
        filter: Option<Filter>,
        min_index_interval: u32,
        options: &WriterOptions,
    ) -> Result<Self, SstableError> {
        Ok(Self {
            file: OutputFile::create(path).await?,
            pending: Vec::new(),
            summed: 0,
            scratch: Vec::new(),
            summary: Summary::new(min_index_interval),
            summary_bytes_max: options.summary_bytes_max().min(SUMMARY_BYTES_MAX),
            // Without a ratio the quotient is infinite, and only the length of a stretch counts.
            data_per_byte: 1.0 / options.summary_ratio.clamp(0.0, 1.0),
            paid_at: 0.0,
            thinning: 1,
            stretches: 0,
            stretch: None,
            filter,
            partitions: 0,
            checksum: crc32fast::Hasher::new(),
        })
    }

    /// Adds the partition whose data starts at `position`; to be written by [`IndexWriter::drain`].
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn append(
        &mut self,
        token: Token,
        key: &[u8],
        position: u64,
        header_length: u64,
        deletion: DeletionTime,
        blocks: &Blocks,
        layout: &Layout,
    ) {
        let start = self.pending.len();
        append_short_sized(&mut self.pending, key);
        vint::append_unsigned(&mut self.pending, position);
        blocks.append(header_length, deletion, layout, &mut self.scratch, &mut self.pending);
        self.sample(token, key, position, start);
        if let Some(filter) = &mut self.filter {
            filter.add_hash(murmur3_hash128(key, 0));
        }
        self.partitions += 1;
    }

    /// Bytes in memory that grow with the index: of everything, and of the summary.
    pub(crate) fn bytes_in_memory(&self) -> (usize, usize) {
        let summary = self.summary.room();
        (summary + self.filter.as_ref().map_or(0, Filter::size), summary)
    }

    /// Whether there is enough to be written.
    pub(crate) fn is_due(&self) -> bool {
        self.pending.len() >= PENDING_BYTES
    }

    /// Writes the waiting entries.
    pub(crate) async fn drain(&mut self) -> Result<(), SstableError> {
        self.sum(self.pending.len());
        self.summed = 0;
        self.file.append(&self.pending).await?;
        self.pending.clear();
        Ok(())
    }

    /// Adds waiting bytes up to `end` to the checksum.
    fn sum(&mut self, end: usize) {
        self.checksum.update(&self.pending[self.summed..end]);
        self.summed = end;
    }

    /// Samples the entry at `start` of the waiting bytes, if a sample is due.
    fn sample(&mut self, token: Token, key: &[u8], position: u64, start: usize) {
        let (entry, written) = (start, self.file.position());
        let start = written + entry as u64;
        let end = written + self.pending.len() as u64;
        let paid = position as f64 >= self.paid_at;
        if !paid && self.stretch.is_some_and(|stretch| end - stretch <= STRETCH_BYTES) {
            return;
        }
        self.stretch = Some(start);
        self.paid_at = position as f64 + (key.len() + SAMPLE_OVERHEAD_BYTES) as f64 * self.data_per_byte;
        // Only for samples that would be added: otherwise keys longer than all its memory would thin it at
        // each stretch.
        let is_full = self.summary.size() + key.len() > self.summary_bytes_max;
        if is_full && self.summary.len() > 1 && self.stretches.is_multiple_of(self.thinning) {
            self.summary.thin();
            self.thinning *= 2;
        }
        if self.stretches.is_multiple_of(self.thinning) {
            self.summary.add(token, key, start);
            self.sum(entry);
            self.summary.add_prefix(self.checksum.clone().finalize());
        }
        self.stretches += 1;
    }

    /// Completes the index; returns the file, the summary and the filter, which are still in memory, and the
    /// checksum.
    pub(crate) async fn finish(
        mut self,
        first_key: &[u8],
        last_key: &[u8],
    ) -> Result<(Written, Summary, Option<Filter>, u32), SstableError> {
        self.drain().await?;
        let file = self.file.close().await?;
        self.summary.finish(first_key, last_key, self.partitions);
        Ok((file, self.summary, self.filter, self.checksum.finalize()))
    }
}
