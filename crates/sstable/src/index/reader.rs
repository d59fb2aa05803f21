//! Finds partitions in `Index.db`.
//!
//! A lookup reads the stretch of the index that the summary names with one request; in files this crate wrote
//! it is within [`super::STRETCH_BYTES`]. Files of other programs may have wider stretches, and so have those
//! whose summary is thinned (`resident`); a stretch that is longer than a read is read piece by piece. The
//! size of a request depends on the stretch alone, so that the bytes read by one lookup serve the next
//! (`pages`).

use std::ops::Deref;
use std::path::PathBuf;
use std::rc::Rc;

use model::token::murmur3_token;
use reactor::file::{File, RangeBuf};

use super::pages::FilePages;
use crate::data::chunks::ReadCounter;
use crate::descriptor::Component;
use crate::error::{Malformed, Problem, SstableError};
use crate::input::Input;
use crate::scan::PartitionBound;
use crate::summary::Stretch;

/// Bytes read at first if the needed number is unknown.
const GUESS_BYTES: u64 = 4096;
/// Bytes of an entry's head besides its key: the key's length, the data's position, the promoted part's
/// length.
const HEAD_BYTES: u64 = 2 + 9 + 1;
/// Most bytes of the index that one request asks for.
const READ_BYTES_MAX: u64 = 64 * 1024;

/// An open `Index.db`.
#[derive(Debug)]
pub(crate) struct IndexFile {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) length: u64,
    /// The key of its last entry, from the summary: it reveals an index that was cut behind an entry.
    pub(crate) last_key: Box<[u8]>,
    /// The cache that lookups share; `None` if every lookup reads for itself.
    pub(crate) pages: Option<FilePages>,
}

/// Bytes of an index.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// Just read.
    Read(RangeBuf),
    /// Shared with other lookups.
    Page(Rc<[u8]>),
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Page(bytes) => bytes,
        }
    }
}

impl IndexFile {
    /// At least `length` bytes from `at` on, fewer at the end of the index; they stay cached for other
    /// lookups.
    ///
    /// # Errors
    /// [`SstableError::Io`].
    pub(crate) async fn read(
        &self,
        counter: &ReadCounter,
        at: u64,
        length: usize,
    ) -> Result<Bytes, SstableError> {
        match &self.pages {
            Some(pages) => pages.read((&self.file, &self.path), counter, (at, length)).await.map(Bytes::Page),
            None => counter.read(&self.file, &self.path, at, length).await.map(Bytes::Read),
        }
    }

    pub(crate) fn malformed(&self, malformed: Malformed) -> SstableError {
        malformed.of(Component::Index, &self.path)
    }
}

/// The place of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Offset of its data.
    pub(crate) position: u64,
    /// End of the partition's data.
    pub(crate) end: End,
    /// Offset and length of its promoted part in the index; length 0 for none.
    pub(crate) promoted: (u64, u64),
}

/// The end of a partition, as far as the index has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// At the start of the next one.
    At(u64),
    /// At the end of the data: it is the last one.
    OfData,
    /// Unknown: the next entry was not in memory.
    Unknown,
}

/// Bytes of the index that were read, and their offset.
pub(crate) type AtHand = Option<(u64, Bytes)>;

/// Walks entries.
struct Walk<'i> {
    index: &'i IndexFile,
    counter: &'i ReadCounter,
    start: u64,
    bytes: Option<Bytes>,
    /// Whether the bytes read stay cached for other lookups.
    kept: bool,
}

struct Seen<'b> {
    key: &'b [u8],
    position: u64,
    promoted: (u64, u64),
    next: u64,
}

impl Walk<'_> {
    fn from(&self, at: u64) -> &[u8] {
        let skip = at.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        skip.and_then(|skip| self.bytes.as_ref()?.get(skip..)).unwrap_or(&[])
    }

    /// The entry at `at`; reads about `length` bytes if it is not in memory.
    async fn entry(&mut self, at: u64, length: u64) -> Result<Seen<'_>, SstableError> {
        let mut wanted = length;
        loop {
            let problem = match parse(self.from(at), at, self.index.length) {
                Ok(_) => break,
                Err(error) => error,
            };
            let at_hand = self.from(at).len() as u64;
            if problem.problem != Problem::Truncated
                || at + at_hand >= self.index.length
                || at_hand >= READ_BYTES_MAX
            {
                return Err(self.index.malformed(problem));
            }
            // A head is at most 64 KiB and some bytes, so there are at most three reads.
            let length = wanted.clamp(1, READ_BYTES_MAX).min(self.index.length - at);
            let bytes = if self.kept {
                self.index.read(self.counter, at, length as usize).await?
            } else {
                let read = self.counter.read(&self.index.file, &self.index.path, at, length as usize);
                Bytes::Read(read.await?)
            };
            if bytes.len() as u64 <= at_hand {
                return Err(self.index.malformed(problem));
            }
            (self.start, self.bytes) = (at, Some(bytes));
            wanted = READ_BYTES_MAX;
        }
        parse(self.from(at), at, self.index.length).map_err(|problem| self.index.malformed(problem))
    }
}

/// All entries of an index, one after the other.
pub(crate) struct Entries<'i> {
    walk: Walk<'i>,
    at: u64,
    /// Key of the present entry: a borrow of the walk could not be returned.
    key: Vec<u8>,
}

impl<'i> Entries<'i> {
    pub(crate) fn new((index, counter): (&'i IndexFile, &'i ReadCounter)) -> Self {
        let walk = Walk { index, counter, start: 0, bytes: None, kept: false };
        Self { walk, at: 0, key: Vec::new() }
    }

    /// Offset of the next entry.
    pub(crate) fn offset(&self) -> u64 {
        self.at
    }

    /// Key of the next entry, and offset of its data; `None` at the end.
    ///
    /// # Errors
    /// [`SstableError::Io`] and [`SstableError::Corrupt`].
    pub(crate) async fn next(&mut self) -> Result<Option<(&[u8], u64)>, SstableError> {
        if self.at >= self.walk.index.length {
            return Ok(None);
        }
        let seen = self.walk.entry(self.at, READ_BYTES_MAX).await?;
        self.key.clear();
        self.key.extend_from_slice(seen.key);
        self.at = seen.next;
        let position = seen.position;
        Ok(Some((&self.key, position)))
    }
}

/// Parses the entry at the start of `bytes`, which are at `at` of an index of `index_length` bytes.
fn parse(bytes: &[u8], at: u64, index_length: u64) -> Result<Seen<'_>, Malformed> {
    let mut input = Input::at_offset(bytes, at);
    let key = input.short_sized()?;
    let position = input.vint()?;
    let length = input.vint()?;
    let start = input.offset();
    let next = start.checked_add(length).filter(|next| *next <= index_length);
    let next = next.ok_or(Malformed::over(
        start,
        "length of a promoted index",
        length,
        index_length.saturating_sub(start),
    ))?;
    Ok(Seen { key, position, promoted: (start, length), next })
}

/// Checks all entries of an index in memory; for the fuzz target.
pub(crate) fn parse_all(bytes: &[u8]) -> Result<usize, Malformed> {
    let (mut at, mut count) = (0u64, 0);
    while at < bytes.len() as u64 {
        at = parse(&bytes[at as usize..], at, bytes.len() as u64)?.next;
        count += 1;
    }
    Ok(count)
}

impl IndexFile {
    /// Checks that the index ends with the last key.
    fn check_last(&self, key: &[u8]) -> Result<(), SstableError> {
        if key == &*self.last_key {
            return Ok(());
        }
        Err(self
            .malformed(Malformed::invalid(self.length, "the last entry is not the one the summary names")))
    }

    /// Checks that the entry at `at` has the key that the summary has for it.
    ///
    /// Without this a summary with a changed key would hide existing partitions.
    fn check_sample(&self, at: u64, key: &[u8], sample: &[u8]) -> Result<(), SstableError> {
        if key == sample {
            return Ok(());
        }
        Err(self.malformed(Malformed::invalid(at, "the entry is not the one the summary names")))
    }

    /// Verifies the bytes of a stretch, if all of them are in memory and the file has a checksum of it.
    fn check_stretch(&self, stretch: Stretch<'_>, end: u64, bytes: &[u8]) -> Result<(), SstableError> {
        let length = usize::try_from(end.saturating_sub(stretch.start)).unwrap_or(usize::MAX);
        let (Some((before, recorded)), Some(bytes)) = (stretch.checksums, bytes.get(..length)) else {
            return Ok(());
        };
        let mut hasher = crc32fast::Hasher::new_with_initial(before);
        hasher.update(bytes);
        let found = hasher.finalize();
        if found == recorded {
            return Ok(());
        }
        let problem = Problem::Checksum { recorded, found };
        Err(self.malformed(Malformed { offset: stretch.start, problem }))
    }

    /// The entry of a key, searched in the stretch that the summary names, and the bytes of the index that
    /// are in memory then, with their offset.
    pub(crate) async fn find(
        &self,
        counter: &ReadCounter,
        stretch: Stretch<'_>,
        key: &[u8],
    ) -> Result<Option<(Entry, AtHand)>, SstableError> {
        let end = stretch.next.map_or(self.length, |(next, _)| next.min(self.length));
        // Includes the head of the entry behind the stretch, which gives the end of the stretch's last
        // partition: that saves guessing how much data to read.
        let head = stretch.next.map_or(0, |(_, key)| HEAD_BYTES + key.len() as u64);
        let mut at = stretch.start;
        let mut walk = Walk { index: self, counter, start: 0, bytes: None, kept: true };
        while at < end {
            let seen = walk.entry(at, end - at + head).await?;
            let (found, next, mut entry) = (
                seen.key == key,
                seen.next,
                Entry { position: seen.position, end: End::Unknown, promoted: seen.promoted },
            );
            if at == stretch.start {
                self.check_sample(at, seen.key, stretch.first)?;
            }
            if next == self.length {
                self.check_last(seen.key)?;
            }
            if at == stretch.start {
                self.check_stretch(stretch, end, walk.from(at))?;
            }
            if found {
                entry.end = match parse(walk.from(next), next, self.length) {
                    Ok(seen) => End::At(seen.position),
                    Err(_) if next == self.length => End::OfData,
                    Err(_) => End::Unknown,
                };
                let start = walk.start;
                return Ok(Some((entry, walk.bytes.map(|bytes| (start, bytes)))));
            }
            at = next;
        }
        // The key is absent if the stretch ends where the summary says, with the head of the next entry,
        // which was read too.
        if let Some((next, sample)) = stretch.next {
            if at != next {
                return Err(self.malformed(Malformed::invalid(at, "no entry starts where the summary says")));
            }
            let seen = walk.entry(at, HEAD_BYTES + sample.len() as u64).await?;
            self.check_sample(at, seen.key, sample)?;
        }
        Ok(None)
    }

    /// Offset of the data of the first partition behind `bound`, searched from the start of `stretch` on.
    /// `kept` says that others may begin there too: what is read stays among the index pages.
    pub(crate) async fn position_behind(
        &self,
        counter: &ReadCounter,
        stretch: Stretch<'_>,
        bound: &PartitionBound,
        kept: bool,
    ) -> Result<Option<u64>, SstableError> {
        let end = stretch.next.map_or(self.length, |(next, _)| next.min(self.length));
        let mut at = stretch.start;
        let mut walk = Walk { index: self, counter, start: 0, bytes: None, kept };
        while at < self.length {
            // The whole stretch at once, so that it can be verified: a key with a wrong bit would hide
            // partitions.
            let seen = walk.entry(at, GUESS_BYTES.max(end.saturating_sub(at))).await?;
            let (is_behind, next, position) =
                (bound.is_before(murmur3_token(seen.key), seen.key), seen.next, seen.position);
            match stretch.next {
                Some((start, sample)) if at == start => self.check_sample(at, seen.key, sample)?,
                _ if at == stretch.start => self.check_sample(at, seen.key, stretch.first)?,
                _ => {}
            }
            if next == self.length {
                self.check_last(seen.key)?;
            }
            if at == stretch.start {
                self.check_stretch(stretch, end, walk.from(at))?;
            }
            if is_behind {
                return Ok(Some(position));
            }
            if at < end && next > end {
                return Err(
                    self.malformed(Malformed::invalid(next, "no entry starts where the summary says"))
                );
            }
            at = next;
        }
        Ok(None)
    }
}
