//! Reads the entries that an earlier process left in a shard's log, and decides where the log ends.
//!
//! Nothing is applied before the whole log was examined: only then is it known whether a place without an
//! intact entry is a torn tail or a corrupt middle (rules in docs/formats/commitlog.md). Memory: one segment
//! at a time, and one entry that was written in pieces. A segment is read and searched in steps, so that the
//! shard, which may be serving others, is never held for long.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::tablet::TabletMap;
use model::{TableId, Token};
use reactor::file::{ALIGNMENT, AlignedBuf, File, OpenOptions};

use super::flushed::{Flushes, decode_flushed};
use super::format::{
    BOOT_UNKNOWN, BootId, EntryKind, HEADER_BYTES, HeaderProblem, Position, SegmentHeader, begins_entry,
    decode_position, encode_entry, entry_at, entry_bytes, find_entry_before,
};
use super::pieces::{Joined, Joiner, Whole};
use crate::error::StorageError;
use crate::manifest::{Edit, Manifest};

/// Largest segment file that is read: offsets are `u32`.
const SEGMENT_BYTES_MAX: u64 = u32::MAX as u64;
/// Bytes of a segment read at a time, and searched at a time where entries are missing.
const PIECE_BYTES: usize = 512 << 10;

/// A segment of an earlier process.
#[derive(Clone)]
pub(crate) struct OldSegment {
    pub(crate) header: SegmentHeader,
    pub(crate) path: PathBuf,
    pub(crate) slot: u64,
    pub(crate) file: File,
    bytes: usize,
    /// Stretches of intact entries: offset of the begin, offset of the end.
    stretches: Vec<(usize, usize)>,
    ended: bool,
}

/// The facts collected from an old log before anything is applied.
pub(crate) struct OldLog {
    pub(crate) segments: Vec<OldSegment>,
    /// The last truncation of each table: earlier entries do not count.
    truncations: BTreeMap<TableId, Position>,
    /// Position up to which each tablet was flushed.
    flushed: Flushes,
    /// Table files that truncations had to remove.
    pub(crate) truncated_files: BTreeMap<TableId, Vec<u64>>,
    /// Unfinished batches, with their positions.
    batches: BTreeMap<BatchId, (Position, Vec<u8>)>,
    /// As `batches`, of those that were kept for coordinators.
    kept: BTreeMap<BatchId, (Position, Vec<u8>)>,
    /// Number of mutations of each table.
    pub(crate) entries_of: BTreeMap<TableId, u64>,
}

/// State kept from one segment to the next while entries are read.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Room for a segment.
    bytes: Vec<u8>,
    joiner: Joiner,
}

/// A place where an intact entry is missing.
struct Gap {
    segment: usize,
    offset: usize,
    /// Whether intact entries follow it.
    followed: bool,
    /// Whether an entry begins there and is not intact. If none begins there, the log may have ended there on
    /// purpose.
    torn: bool,
}

impl OldLog {
    /// Looks at all segments in `directory`, which may be missing.
    ///
    /// # Errors
    /// [`StorageError::CommitlogCorrupt`] for a corrupt middle unless `ignore_errors`; reading errors.
    pub(crate) async fn survey(
        directory: &Path,
        boot: BootId,
        ignore_errors: bool,
        listed: (&Manifest, u32),
    ) -> Result<Self, StorageError> {
        let mut log = Self {
            segments: open_segments(directory, ignore_errors, listed).await?,
            truncations: BTreeMap::new(),
            flushed: Flushes::default(),
            truncated_files: BTreeMap::new(),
            batches: BTreeMap::new(),
            kept: BTreeMap::new(),
            entries_of: BTreeMap::new(),
        };
        let (gaps, durable) = log.look_through().await?;
        if !ignore_errors {
            log.judge(&gaps, durable, boot)?;
        } else {
            for gap in gaps.iter().filter(|gap| gap.followed) {
                reactor::warn!("a damaged part of the commit log is left out";
                    segment = log.segments[gap.segment].path.display(), offset = gap.offset);
            }
        }
        log.collect(ignore_errors).await?;
        Ok(log)
    }

    /// Finds the intact stretches and the gaps between them.
    async fn look_through(&mut self) -> Result<(Vec<Gap>, Position), StorageError> {
        let mut gaps = Vec::new();
        let mut durable = Position { segment: 0, offset: 0 };
        let mut bytes = Vec::new();
        for (index, segment) in self.segments.iter_mut().enumerate() {
            segment.read(&mut bytes).await?;
            let seed = segment.header.seed();
            let mut at = HEADER_BYTES;
            let mut start = at;
            loop {
                if let Some(entry) = entry_at(&bytes, seed, at) {
                    at = entry.end;
                    match entry.kind {
                        EntryKind::Synced => {
                            durable = decode_position(entry.payload).map_or(durable, |p| p.max(durable));
                        }
                        EntryKind::End => {
                            segment.ended = true;
                            break;
                        }
                        EntryKind::Mutation
                        | EntryKind::Truncate
                        | EntryKind::Flushed
                        | EntryKind::Batch
                        | EntryKind::KeptBatch
                        | EntryKind::BatchDone
                        | EntryKind::Piece => {}
                    }
                    reactor::maybe_yield().await;
                    continue;
                }
                let next = find(&bytes, seed, at + 1).await;
                let torn = begins_entry(&bytes, seed, at);
                gaps.push(Gap { segment: index, offset: at, followed: next.is_some(), torn });
                let Some(found) = next else { break };
                segment.stretches.push((start, at));
                (start, at) = (found, found);
            }
            segment.stretches.push((start, at));
            reactor::maybe_yield().await;
        }
        // Spare segments at the end hold nothing and prove nothing.
        let last = self.segments.iter().rposition(OldSegment::has_entries);
        gaps.retain(|gap| last.is_some_and(|last| gap.segment <= last));
        for gap in &mut gaps {
            gap.followed |= last.is_some_and(|last| gap.segment < last);
        }
        Ok((gaps, durable))
    }

    /// Cuts a torn tail; refuses a corrupt middle.
    fn judge(&mut self, gaps: &[Gap], durable: Position, boot: BootId) -> Result<(), StorageError> {
        let Some(gap) = gaps.first() else { return Ok(()) };
        let segment = &self.segments[gap.segment];
        let place = Position { segment: segment.header.id, offset: gap.offset as u32 };
        let corrupt = |reason| StorageError::CommitlogCorrupt {
            path: segment.path.clone(),
            offset: gap.offset as u64,
            reason,
        };
        if place < durable {
            return Err(corrupt("the entry there was durable"));
        }
        let same_boot = segment.header.boot == boot && boot != BOOT_UNKNOWN;
        if gap.followed && same_boot {
            return Err(corrupt("intact entries follow, and the machine has not been restarted since"));
        }
        if gap.followed {
            reactor::warn!("the commit log is cut: later writes are lost that had not been made durable";
                segment = segment.path.display(), offset = gap.offset);
        } else if gap.torn {
            reactor::warn!("the commit log is cut: its last entry was written in part only";
                segment = segment.path.display(), offset = gap.offset);
        }
        let cut = &mut self.segments[gap.segment];
        cut.stretches.truncate(1);
        cut.ended = false;
        for later in &mut self.segments[gap.segment + 1..] {
            later.stretches = vec![(HEADER_BYTES, HEADER_BYTES)];
            later.ended = false;
        }
        Ok(())
    }

    /// Collects the entries that concern other entries (truncations, flushes, batches), and checks for
    /// missing pieces.
    async fn collect(&mut self, ignore_errors: bool) -> Result<(), StorageError> {
        let Reading { mut bytes, mut joiner } = self.reading();
        for segment in &self.segments {
            if !segment.has_entries() {
                continue;
            }
            segment.read(&mut bytes).await?;
            for (offset, kind, payload) in segment.entries(&bytes) {
                let at = Position { segment: segment.header.id, offset: offset as u32 };
                let Ok(entry) = Entry::of(at, kind, payload, &mut joiner) else {
                    if !ignore_errors {
                        let reason = "earlier pieces of the entry that has a piece there are missing";
                        let (path, offset) = (segment.path.clone(), offset as u64);
                        return Err(StorageError::CommitlogCorrupt { path, offset, reason });
                    }
                    reactor::warn!("an entry of the commit log is left out: pieces of it are missing";
                        segment = segment.path.display(), offset = offset);
                    continue;
                };
                let Some(entry) = entry else { continue };
                let (place, payload) = (entry.place, &*entry.payload);
                match entry.kind {
                    EntryKind::Truncate => {
                        let Some((table, generations)) = decode_truncation(payload) else { continue };
                        self.truncations.insert(table, place);
                        self.truncated_files.entry(table).or_default().extend(generations);
                    }
                    EntryKind::Flushed => {
                        let Some((table, tablet, upto)) = decode_flushed(payload) else { continue };
                        self.flushed.note(table, tablet, upto);
                    }
                    EntryKind::Batch => {
                        let Some((id, mutations)) = payload.split_first_chunk() else { continue };
                        self.batches.insert(*id, (place, mutations.to_vec()));
                    }
                    EntryKind::KeptBatch => {
                        let Some((id, rest)) = payload.split_first_chunk() else { continue };
                        self.kept.insert(*id, (place, rest.to_vec()));
                    }
                    EntryKind::BatchDone => {
                        let Ok(id) = BatchId::try_from(payload) else { continue };
                        self.batches.remove(&id);
                        self.kept.remove(&id);
                    }
                    EntryKind::Mutation => {
                        if let Some(table) = table_of(payload) {
                            *self.entries_of.entry(table).or_default() += 1;
                        }
                    }
                    EntryKind::Synced | EntryKind::End | EntryKind::Piece => {}
                }
                reactor::maybe_yield().await;
            }
        }
        Ok(())
    }

    /// Hands each unfinished batch to `each`: its id, and those of its mutations that were not truncated.
    ///
    /// Some of them may have been applied, and may be in table files: applying them again changes nothing.
    ///
    /// # Errors
    /// Those of `each`.
    pub(crate) async fn unfinished_batches(
        &self,
        mut each: impl AsyncFnMut(BatchId, Vec<&[u8]>) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        for (id, (place, payload)) in &self.batches {
            let mutations =
                batch_mutations(payload).filter(|bytes| !self.is_truncated(*place, bytes)).collect();
            each(*id, mutations).await?;
        }
        Ok(())
    }

    /// The unfinished batches that were kept for coordinators: for each its position, and itself without the
    /// mutations that were truncated. One that is damaged inside is left out.
    pub(crate) fn unfinished_kept(&self) -> impl Iterator<Item = (Position, Kept)> + '_ {
        self.kept.iter().filter_map(|(id, (place, payload))| {
            let (born_us, rest) = payload.split_first_chunk()?;
            let (agreed, mutations) = rest.split_first_chunk()?;
            let origin =
                BatchOrigin { born_us: i64::from_le_bytes(*born_us), agreed: u64::from_le_bytes(*agreed) };
            let mutations = batch_mutations(mutations).filter(|bytes| !self.is_truncated(*place, bytes));
            let mutations = mutations.map(<[u8]>::to_vec).collect();
            Some((*place, Kept { id: *id, origin, mutations }))
        })
    }

    /// Whether the table of a mutation was truncated behind `place`.
    fn is_truncated(&self, place: Position, mutation: &[u8]) -> bool {
        table_of(mutation)
            .and_then(|table| self.truncations.get(&table))
            .is_some_and(|truncated| place < *truncated)
    }

    /// The state that [`OldLog::mutations`] keeps from one segment to the next.
    pub(crate) fn reading(&self) -> Reading {
        let oldest = self.segments.first().map_or(0, |segment| segment.header.id);
        Reading { bytes: Vec::new(), joiner: Joiner::new(oldest) }
    }

    /// Index of the segment that a position lies in.
    pub(crate) fn segment_of(&self, place: Position) -> Option<usize> {
        self.segments.binary_search_by_key(&place.segment, |segment| segment.header.id).ok()
    }

    /// Hands the mutations that end in one segment and were not truncated to `each`, in order, with the
    /// positions they begin at. Returns how many truncated ones were left out. Call it for each segment in
    /// order, with the same `reading`.
    ///
    /// # Errors
    /// Reading errors, and those of `each`.
    pub(crate) async fn mutations(
        &self,
        segment: usize,
        reading: &mut Reading,
        mut each: impl AsyncFnMut(Position, &[u8]) -> Result<(), StorageError>,
    ) -> Result<u64, StorageError> {
        let segment = &self.segments[segment];
        if !segment.has_entries() {
            return Ok(0);
        }
        let mut truncated = 0;
        let Reading { bytes, joiner } = reading;
        segment.read(bytes).await?;
        for (offset, kind, payload) in segment.entries(bytes) {
            let at = Position { segment: segment.header.id, offset: offset as u32 };
            // An entry that lacks a piece was reported when the log was surveyed.
            let Ok(Some(entry)) = Entry::of(at, kind, payload, joiner) else { continue };
            if entry.kind != EntryKind::Mutation {
                continue;
            }
            if self.is_truncated(entry.place, &entry.payload) {
                truncated += 1;
            } else {
                each(entry.place, &entry.payload).await?;
            }
            reactor::maybe_yield().await;
        }
        Ok(truncated)
    }

    /// Whether the entry at a place, for a token of a table that is cut as `map` now, is in a table file
    /// already.
    pub(crate) fn is_flushed(&self, table: TableId, map: TabletMap, token: Token, place: Position) -> bool {
        self.flushed.upto(table, map, token).is_some_and(|upto| place < upto)
    }

    /// Makes all entries unreadable, durably, the oldest first: as long as an entry can be read, the later
    /// entries that revoke it can be read too.
    ///
    /// # Errors
    /// Those of writing and syncing.
    pub(crate) async fn forget(&self) -> Result<(), StorageError> {
        for segment in &self.segments {
            segment.forget_entries().await?;
        }
        Ok(())
    }

    /// Makes the end of the log, as `judge` found it, durable before anything new is written.
    ///
    /// # Errors
    /// Those of writing and syncing.
    pub(crate) async fn seal(&mut self) -> Result<(), StorageError> {
        let last = self.segments.iter().rposition(OldSegment::has_entries);
        // Later ones first: a crash in between must not leave entries behind a gap.
        for at in (0..self.segments.len()).rev() {
            let segment = &self.segments[at];
            if last.is_some_and(|last| at <= last) {
                if !segment.ended {
                    segment.write_end().await?;
                }
                let path = &segment.path;
                segment.file.fdatasync().await.map_err(StorageError::of("sync", path))?;
            } else {
                segment.forget_entries().await?;
            }
        }
        Ok(())
    }
}

/// An entry as a whole.
struct Entry<'b> {
    /// Position at which it begins.
    place: Position,
    kind: EntryKind,
    payload: Cow<'b, [u8]>,
}

/// Pieces of an entry are missing.
struct PiecesMissing;

impl<'b> Entry<'b> {
    /// The entry that ends at `at`; `None` if `at` holds a piece that is not its entry's last one.
    fn of(
        at: Position,
        kind: EntryKind,
        payload: &'b [u8],
        joiner: &mut Joiner,
    ) -> Result<Option<Self>, PiecesMissing> {
        if kind != EntryKind::Piece {
            return Ok(Some(Self { place: at, kind, payload: Cow::Borrowed(payload) }));
        }
        match joiner.take(at, payload) {
            Joined::Whole(Whole { place, kind, payload }) => {
                Ok(Some(Self { place, kind, payload: Cow::Owned(payload) }))
            }
            Joined::Nothing => Ok(None),
            Joined::Missing => Err(PiecesMissing),
        }
    }
}

impl OldSegment {
    /// Whether the segment has its full size and no entries, so that it can be written from its beginning.
    pub(crate) fn is_unused(&self, segment_bytes: usize) -> bool {
        !self.has_entries() && self.bytes == segment_bytes
    }

    /// Whether the segment holds any entry that counts.
    pub(crate) fn has_entries(&self) -> bool {
        self.stretches.iter().any(|(from, to)| to > from)
    }

    /// Puts the whole segment into `bytes`. In pieces: a fresh buffer of this size would hold the core for
    /// milliseconds while its pages are made.
    async fn read(&self, bytes: &mut Vec<u8>) -> Result<(), StorageError> {
        bytes.clear();
        bytes.reserve_exact(self.bytes);
        while bytes.len() < self.bytes {
            let wanted = PIECE_BYTES.min(self.bytes - bytes.len()).next_multiple_of(ALIGNMENT);
            let piece = self.file.read_at(bytes.len() as u64, wanted).await;
            let piece = piece.map_err(StorageError::of("read", &self.path))?;
            bytes.extend_from_slice(&piece[..piece.len().min(self.bytes - bytes.len())]);
            if piece.len() < wanted {
                break; // shorter than its name said when it was listed
            }
            reactor::maybe_yield().await;
        }
        Ok(())
    }

    fn entries<'b>(&self, bytes: &'b [u8]) -> impl Iterator<Item = (usize, EntryKind, &'b [u8])> {
        let seed = self.header.seed();
        self.stretches.iter().flat_map(move |(from, to)| {
            let (mut at, to) = (*from, *to);
            std::iter::from_fn(move || {
                if at >= to {
                    return None;
                }
                let entry = entry_at(bytes, seed, at)?;
                let offset = std::mem::replace(&mut at, entry.end);
                Some((offset, entry.kind, entry.payload))
            })
        })
    }

    /// Ends the segment behind its last intact stretch.
    async fn write_end(&self) -> Result<(), StorageError> {
        let at = self.stretches.last().map_or(HEADER_BYTES, |(_, to)| *to);
        // This may write behind the end of the file: a crash may have left the file only as long as its
        // entries.
        let mut buf = AlignedBuf::with_len(entry_bytes(0));
        encode_entry(&mut buf, self.header.seed(), at as u32, EntryKind::End, &[]);
        self.file.write_at(at as u64, buf).await.0.map_err(StorageError::of("write", &self.path))
    }

    /// Frees the segment: an empty header makes its entries unreadable, durably.
    async fn forget_entries(&self) -> Result<(), StorageError> {
        let buf = AlignedBuf::zeroed(HEADER_BYTES);
        self.file.write_at(0, buf).await.0.map_err(StorageError::of("write", &self.path))?;
        self.file.fdatasync().await.map_err(StorageError::of("sync", &self.path))
    }
}

/// The table of a mutation.
fn table_of(mutation: &[u8]) -> Option<TableId> {
    mutation.get(1..17).map(|id| TableId(id.try_into().expect("sixteen bytes")))
}

/// Offset of the next intact entry, at or behind `from`.
async fn find(bytes: &[u8], seed: u32, from: usize) -> Option<usize> {
    let mut at = from;
    while at < bytes.len() {
        let before = at.saturating_add(PIECE_BYTES).next_multiple_of(ALIGNMENT);
        if let Some((found, _)) = find_entry_before(bytes, seed, at, before) {
            return Some(found);
        }
        at = before;
        reactor::maybe_yield().await;
    }
    None
}

async fn open_segments(
    directory: &Path,
    ignore_errors: bool,
    (manifest, number): (&Manifest, u32),
) -> Result<Vec<OldSegment>, StorageError> {
    let exists = reactor::file::exists(directory).await.map_err(StorageError::of("look for", directory))?;
    if !exists {
        return Ok(Vec::new());
    }
    let entries = reactor::file::read_dir(directory).await.map_err(StorageError::of("list", directory))?;
    let mut segments = Vec::new();
    for entry in entries {
        let Some(slot) = entry.name.strip_suffix(".log").and_then(|slot| slot.parse::<u64>().ok()) else {
            reactor::warn!("a file in the commit log's directory is not a segment and is left alone";
                file = directory.join(&entry.name).display());
            continue;
        };
        let path = directory.join(&entry.name);
        let options = OpenOptions::new().read(true).write(true);
        let file = File::open(&path, options).await.map_err(StorageError::of("open", &path))?;
        let bytes = file.size().await.map_err(StorageError::of("measure", &path))?;
        let head = file.read_at(0, HEADER_BYTES).await.map_err(StorageError::of("read", &path))?;
        if head.iter().all(|byte| *byte == 0) {
            // The segment was never begun, or it was given up: no entry in it was acknowledged.
            if manifest.has_segment((number, slot)) {
                manifest.note(&[Edit::SegmentGone((number, slot))]).await?;
            }
            reactor::file::remove_file(&path).await.map_err(StorageError::of("delete", &path))?;
            continue;
        }
        let corrupt = |reason| StorageError::CommitlogCorrupt { path: path.clone(), offset: 0, reason };
        match SegmentHeader::decode(&head) {
            Ok(header) => segments.push(OldSegment {
                header,
                slot,
                bytes: bytes.min(SEGMENT_BYTES_MAX) as usize,
                path,
                file,
                stretches: Vec::new(),
                ended: false,
            }),
            Err(HeaderProblem::Version(_)) => {
                return Err(corrupt("its header names a version this build does not read"));
            }
            Err(HeaderProblem::Corrupt) if ignore_errors => {
                reactor::warn!("a commit-log segment with a damaged header is left alone"; segment = path.display());
            }
            Err(HeaderProblem::Corrupt) => return Err(corrupt("its header is damaged")),
        }
    }
    segments.sort_by_key(|segment| segment.header.id);
    Ok(segments)
}

/// Names a batch: a time UUID.
pub(crate) type BatchId = [u8; 16];

/// What the coordinator of a batch knew when it began it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchOrigin {
    /// When that was, microseconds since 1970.
    pub born_us: i64,
    /// The latest version of its tables' routings: what truncated one of them later is behind the batch.
    pub agreed: u64,
}

/// A batch that is kept for a coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) id: BatchId,
    /// The knowledge of its coordinator when it began the batch.
    pub(crate) origin: BatchOrigin,
    pub(crate) mutations: Vec<Vec<u8>>,
}

/// The payload of a batch that is kept for a coordinator.
pub(crate) fn encode_kept<'m>(
    id: BatchId,
    origin: BatchOrigin,
    mutations: impl Iterator<Item = &'m [u8]>,
) -> Vec<u8> {
    let mut bytes = [&id[..], &origin.born_us.to_le_bytes(), &origin.agreed.to_le_bytes()].concat();
    append_batched(&mut bytes, mutations);
    bytes
}

/// The payload of a batch.
pub(crate) fn encode_batch<'m>(id: BatchId, mutations: impl Iterator<Item = &'m [u8]>) -> Vec<u8> {
    let mut bytes = id.to_vec();
    append_batched(&mut bytes, mutations);
    bytes
}

fn append_batched<'m>(bytes: &mut Vec<u8>, mutations: impl Iterator<Item = &'m [u8]>) {
    for mutation in mutations {
        // A mutation too long for this was refused by its size before.
        bytes.extend_from_slice(&u32::try_from(mutation.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(mutation);
    }
}

/// The mutations in a batch's payload; `bytes` begins behind the id. A broken mutation ends the list.
pub(crate) fn batch_mutations(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (mutation, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        bytes = rest;
        Some(mutation)
    })
}

/// The payload of a truncation: the table, and the generations of its files that are gone with it.
pub(crate) fn encode_truncation(table: TableId, generations: &[u64]) -> Vec<u8> {
    let mut bytes = table.0.to_vec();
    generations.iter().for_each(|generation| bytes.extend_from_slice(&generation.to_le_bytes()));
    bytes
}

pub(crate) fn decode_truncation(bytes: &[u8]) -> Option<(TableId, impl Iterator<Item = u64> + use<'_>)> {
    let (table, generations) = bytes.split_first_chunk::<16>()?;
    let generations =
        generations.chunks_exact(8).map(|g| u64::from_le_bytes(g.try_into().expect("eight bytes")));
    Some((TableId(*table), generations))
}
