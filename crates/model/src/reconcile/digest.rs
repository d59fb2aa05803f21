//! A digest of what a raw read hands out, equal on replicas with equal contents however each compacted them.
//!
//! Hashed is what a compaction with these limits would leave: tombstones past their grace period are left
//! out, and an expired cell is the tombstone that it becomes. Cuts of range tombstones and empty rows do not
//! count. Replicas compare digests of the same slices in the same direction only.
//!
//! ```text
//! digest    := xxh3-128, seed = version, of partition* (stop | nothing)
//! stop      := 'S' token:i64 key:sized (2 | weight:i8 prefix:sized)           the place at which a page ends
//! partition := 'P' key:sized deletion static_row:sized (row | change)* 'E'    (unless all of it is empty)
//! row       := 'R' clustering:sized row:sized                                 (`row` as in row.rs)
//! change    := 'C' weight:i8 prefix:sized deletion
//! deletion  := timestamp:i64 local_time:u32            sized := length:u32 bytes    (little endian)
//! ```
//! The bytes of rows are part of the algorithm: another format of rows is another version of it.

use xxhash_rust::xxh3::Xxh3;

use super::{Purge, compact_row, deletion};
use crate::clustering::Position;
use crate::deletion::{DeletionTime, LocalSeconds};
use crate::row::RowView;
use crate::token::Token;

/// The version of the algorithm that this code makes.
pub const DIGEST_VERSION: u32 = 2;
/// Room for what is hashed of a partition or a row beside its columns, unless keys are long.
const FRAME_BYTES: usize = 128;

/// A digest of a version that this code does not make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("version {version} of digests is not known")]
pub struct UnknownDigestVersion {
    /// The version asked for.
    pub version: u32,
}

/// A digest in the making; takes the elements of a raw read in their order.
pub struct Digest {
    hash: Xxh3,
    purge: Purge,
    /// Deletion of the partition, and the range deletion in force.
    partition: DeletionTime,
    range: DeletionTime,
    /// The range deletion in force as it was hashed last.
    hashed: DeletionTime,
    /// The begin of a partition of which nothing was hashed yet; otherwise empty.
    begin: Vec<u8>,
    frame: Vec<u8>,
    row: Vec<u8>,
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Digest").field("purge", &self.purge).finish_non_exhaustive()
    }
}

impl Digest {
    /// A digest of nothing yet. Tombstones with a local time before `gc_before` are left out; data that
    /// expires at or before `now` is expired. Replicas that compare digests take the same of both.
    ///
    /// # Errors
    /// [`UnknownDigestVersion`] for any but [`DIGEST_VERSION`].
    pub fn new(
        version: u32,
        gc_before: LocalSeconds,
        now: LocalSeconds,
    ) -> Result<Self, UnknownDigestVersion> {
        if version != DIGEST_VERSION {
            return Err(UnknownDigestVersion { version });
        }
        Ok(Self {
            hash: Xxh3::with_seed(u64::from(version)),
            purge: Purge { now, gc_before, timestamp_limit: i64::MAX },
            partition: DeletionTime::LIVE,
            range: DeletionTime::LIVE,
            hashed: DeletionTime::LIVE,
            begin: Vec::with_capacity(FRAME_BYTES),
            frame: Vec::with_capacity(FRAME_BYTES),
            row: Vec::new(),
        })
    }

    /// A partition begins.
    pub fn partition(&mut self, key: &[u8], whole: DeletionTime, static_row: Option<RowView<'_>>) {
        (self.partition, self.range, self.hashed) = (whole, DeletionTime::LIVE, DeletionTime::LIVE);
        self.row.clear();
        if let Some(row) = static_row {
            compact_row(row, whole, &self.purge, &mut self.row);
        }
        let kept = self.purge.deletion(whole);
        self.begin.clear();
        self.begin.push(b'P');
        append_sized(&mut self.begin, key);
        append_deletion(&mut self.begin, kept);
        append_sized(&mut self.begin, &self.row);
        if !kept.is_live() || !self.row.is_empty() {
            self.hash_begin();
        }
    }

    /// A row of the partition.
    pub fn row(&mut self, clustering: &[u8], row: RowView<'_>) {
        let active = deletion(self.partition, self.range);
        let is_plain = active.is_live() && row.is_plain();
        self.row.clear();
        let has_any =
            if is_plain { !row.is_empty() } else { compact_row(row, active, &self.purge, &mut self.row) };
        if !has_any {
            return;
        }
        self.hash_begin();
        let bytes = if is_plain { row.as_bytes() } else { &self.row };
        self.frame.clear();
        self.frame.push(b'R');
        append_sized(&mut self.frame, clustering);
        append_length(&mut self.frame, bytes);
        self.hash.update(&self.frame);
        self.hash.update(bytes);
    }

    /// From `at` on the range deletion `range` is in force.
    pub fn change(&mut self, at: Position<'_>, range: DeletionTime) {
        self.range = range;
        let kept =
            if range.supersedes(self.partition) { self.purge.deletion(range) } else { DeletionTime::LIVE };
        if kept == self.hashed {
            return;
        }
        self.hashed = kept;
        self.hash_begin();
        self.frame.clear();
        self.frame.extend_from_slice(&[b'C', at.weight as u8]);
        append_sized(&mut self.frame, at.prefix.0);
        append_deletion(&mut self.frame, kept);
        self.hash.update(&self.frame);
    }

    /// The partition ends.
    pub fn partition_end(&mut self) {
        if self.begin.is_empty() {
            self.hash.update(b"E");
        }
        self.begin.clear();
    }

    /// The page ends at a place, and more may follow; `position` is `None` behind the whole partition. Pages
    /// of equal contents that end at different places are not equal: one of them has seen less.
    pub fn stopped(&mut self, token: Token, key: &[u8], position: Option<Position<'_>>) {
        self.frame.clear();
        self.frame.push(b'S');
        self.frame.extend_from_slice(&token.0.to_le_bytes());
        append_sized(&mut self.frame, key);
        match position {
            None => self.frame.push(2),
            Some(position) => {
                self.frame.push(position.weight as u8);
                append_sized(&mut self.frame, position.prefix.0);
            }
        }
        self.hash.update(&self.frame);
    }

    /// The digest.
    pub fn finish(&self) -> u128 {
        self.hash.digest128()
    }

    /// Hashes the begin of the partition, unless that was done.
    fn hash_begin(&mut self) {
        if !self.begin.is_empty() {
            self.hash.update(&self.begin);
            self.begin.clear();
        }
    }
}

fn append_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    append_length(out, bytes);
    out.extend_from_slice(bytes);
}

fn append_length(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("a part of a mutation is shorter than a frame");
    out.extend_from_slice(&length.to_le_bytes());
}

fn append_deletion(out: &mut Vec<u8>, deletion: DeletionTime) {
    out.extend_from_slice(&deletion.timestamp.to_le_bytes());
    out.extend_from_slice(&deletion.local_time.to_le_bytes());
}
