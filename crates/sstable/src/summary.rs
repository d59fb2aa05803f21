//! `Summary.db`: a sample of the keys of the index, kept in memory while the file is open.
//!
//! ```text
//! summary := min_index_interval:i32 entries:i32 bytes:i64 sampling_level:i32 entries_at_full_sampling:i32
//!            offset{entries} entry{entries} first_key last_key
//! offset  := i32 little endian, from the first offset
//! entry   := key position:i64 little endian            (position in Index.db)
//! first_key, last_key := length:i32 bytes
//! ```
//! Source: Cassandra 5.0 `IndexSummary`, `IndexSummaryComponent`. The format does not require entries to be
//! evenly spaced: the writer samples by bytes of the index (`index::writer`).

use model::partition_key::compare_decorated;
use model::token::{Token, murmur3_token};

use crate::error::Malformed;
use crate::input::Input;

/// Sampling level of a summary that was not thinned out (Cassandra's `BASE_SAMPLING_LEVEL`).
const SAMPLING_LEVEL_FULL: u32 = 128;
/// Bytes of an entry besides its key: its offset and its position.
const ENTRY_BYTES: usize = 12;
/// Bytes before the entries.
const HEAD_BYTES: usize = 24;
/// Entries that are read or copied before other tasks may run.
const ENTRIES_AT_ONCE: usize = 256;
/// Most bytes a summary takes; the format's offsets are signed 32-bit numbers.
pub(crate) const SUMMARY_BYTES_MAX: usize = i32::MAX as usize / 2;

/// A stretch of the index between two samples, with the keys that the summary has for its ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch<'s> {
    /// Offset of its start.
    pub(crate) start: u64,
    /// Key of the entry at its start.
    pub(crate) first: &'s [u8],
    /// Offset and key of the next stretch; `None` for the last one.
    pub(crate) next: Option<(u64, &'s [u8])>,
    /// Checksums of the index up to its start and up to its end, if the file has them.
    pub(crate) checksums: Option<(u32, u32)>,
}

/// Sampled keys of an index, with their tokens so that searching computes no hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Summary {
    keys: Vec<u8>,
    ends: Vec<u32>,
    tokens: Vec<Token>,
    positions: Vec<u64>,
    /// Checksums of the index before each position; either none, or one for each. They are not in
    /// `Summary.db`.
    prefixes: Vec<u32>,
    /// Checksum of the whole index, if there are `prefixes`.
    whole: u32,
    min_index_interval: u32,
    at_full_sampling: u32,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
}

impl Summary {
    /// An empty summary to add to.
    pub(crate) fn new(min_index_interval: u32) -> Self {
        Self {
            keys: Vec::new(),
            ends: Vec::new(),
            tokens: Vec::new(),
            positions: Vec::new(),
            prefixes: Vec::new(),
            whole: 0,
            min_index_interval,
            at_full_sampling: 0,
            first_key: Vec::new(),
            last_key: Vec::new(),
        }
    }

    /// Reserves memory for so many more entries, so that adding them does not move the existing ones.
    fn reserve(&mut self, entries: usize, key_bytes: usize) {
        self.keys.reserve_exact(key_bytes);
        self.ends.reserve_exact(entries);
        self.tokens.reserve_exact(entries);
        self.positions.reserve_exact(entries);
    }

    /// Adds a key whose index entry starts at `position`.
    pub(crate) fn add(&mut self, token: Token, key: &[u8], position: u64) {
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len() as u32);
        self.tokens.push(token);
        self.positions.push(position);
    }

    /// Leaves out every other entry, beginning with the second.
    pub(crate) fn thin(&mut self) {
        let mut thinned = self.without_entries();
        (0..self.len()).step_by(2).for_each(|at| thinned.add_of(self, at));
        *self = thinned;
    }

    /// A copy without every other entry; lets other tasks run meanwhile.
    pub(crate) async fn thinned(&self) -> Self {
        let mut thinned = self.without_entries();
        thinned.reserve(self.len().div_ceil(2), self.keys.len() / 2);
        for at in (0..self.len()).step_by(2) {
            thinned.add_of(self, at);
            maybe_yield_at(at).await;
        }
        thinned
    }

    fn without_entries(&self) -> Self {
        Self {
            whole: self.whole,
            at_full_sampling: self.at_full_sampling,
            first_key: self.first_key.clone(),
            last_key: self.last_key.clone(),
            ..Self::new(self.min_index_interval)
        }
    }

    fn add_of(&mut self, other: &Self, at: usize) {
        self.add(other.tokens[at], other.key(at), other.positions[at]);
        self.prefixes.extend(other.prefixes.get(at));
    }

    /// Completes the summary.
    pub(crate) fn finish(&mut self, first_key: &[u8], last_key: &[u8], partitions: u64) {
        self.first_key = first_key.to_vec();
        self.last_key = last_key.to_vec();
        let entries = partitions.div_ceil(u64::from(self.min_index_interval.max(1)));
        self.at_full_sampling = u32::try_from(entries).unwrap_or(i32::MAX as u32).min(i32::MAX as u32);
    }

    /// Notes the checksum of the index before the entry that was added last.
    pub(crate) fn add_prefix(&mut self, checksum: u32) {
        self.prefixes.push(checksum);
    }

    /// Checksums of the index before each entry.
    pub(crate) fn into_prefixes(self) -> Vec<u32> {
        self.prefixes
    }

    /// Takes checksums of the index before each entry, and of all of it; returns false if they belong to
    /// another summary.
    pub(crate) fn set_checksums(&mut self, prefixes: Vec<u32>, whole: u32) -> bool {
        let fits = prefixes.len() == self.len();
        if fits {
            (self.prefixes, self.whole) = (prefixes, whole);
        }
        fits
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.positions.len()
    }

    /// Bytes it keeps in memory.
    pub(crate) fn size(&self) -> usize {
        self.keys.len() + self.positions.len() * 20 + self.prefixes.len() * 4
    }

    /// Bytes it has reserved, including room for entries to come.
    pub(crate) fn room(&self) -> usize {
        self.keys.capacity()
            + 4 * (self.ends.capacity() + self.prefixes.capacity())
            + 8 * (self.tokens.capacity() + self.positions.capacity())
    }

    /// Smallest key of the file.
    pub(crate) fn first_key(&self) -> &[u8] {
        &self.first_key
    }

    /// Greatest key of the file.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    fn key(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.keys[start..self.ends[at] as usize]
    }

    /// The stretch of the index that would contain a key's entry.
    pub(crate) fn interval(&self, token: Token, key: &[u8]) -> Stretch<'_> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if compare_decorated((self.tokens[middle], self.key(middle)), (token, key)).is_le() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // A key that sorts before the first key belongs to the first stretch.
        self.stretch(low.saturating_sub(1))
    }

    fn stretch(&self, at: usize) -> Stretch<'_> {
        Stretch {
            start: self.positions.get(at).copied().unwrap_or(0),
            first: if at < self.len() { self.key(at) } else { &self.first_key },
            next: self.positions.get(at + 1).map(|position| (*position, self.key(at + 1))),
            checksums: self
                .prefixes
                .get(at)
                .map(|before| (*before, self.prefixes.get(at + 1).copied().unwrap_or(self.whole))),
        }
    }

    /// As [`Summary::interval`], for the first entry of a token.
    pub(crate) fn interval_of_token(&self, token: Token) -> Stretch<'_> {
        self.stretch(self.tokens.partition_point(|other| *other < token).saturating_sub(1))
    }

    /// Appends `Summary.db`; lets other tasks run meanwhile.
    pub(crate) async fn encode(&self, out: &mut Vec<u8>) {
        let offsets = 4 * self.len();
        out.reserve(HEAD_BYTES + self.keys.len() + self.len() * ENTRY_BYTES);
        out.extend_from_slice(&self.min_index_interval.to_be_bytes());
        out.extend_from_slice(&(self.len() as u32).to_be_bytes());
        out.extend_from_slice(&((offsets + self.keys.len() + 8 * self.len()) as u64).to_be_bytes());
        out.extend_from_slice(&SAMPLING_LEVEL_FULL.to_be_bytes());
        out.extend_from_slice(&self.at_full_sampling.to_be_bytes());
        for at in 0..self.len() {
            let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
            out.extend_from_slice(&((offsets + start + 8 * at) as u32).to_le_bytes());
            maybe_yield_at(at).await;
        }
        for at in 0..self.len() {
            out.extend_from_slice(self.key(at));
            out.extend_from_slice(&self.positions[at].to_le_bytes());
            maybe_yield_at(at).await;
        }
        for key in [&self.first_key, &self.last_key] {
            out.extend_from_slice(&(key.len() as u32).to_be_bytes());
            out.extend_from_slice(key);
        }
    }

    /// Reads `Summary.db` of an index of `index_length` bytes.
    ///
    /// # Errors
    /// [`Malformed`] if it is not exactly one summary, or its keys or positions do not ascend.
    pub(crate) fn decode(bytes: &[u8], index_length: u64) -> Result<Self, Malformed> {
        let mut decoding = Decoding::new(bytes, index_length)?;
        while decoding.step()? {}
        decoding.finish()
    }

    /// As [`Summary::decode`], but lets other tasks run meanwhile.
    ///
    /// # Errors
    /// As [`Summary::decode`].
    pub(crate) async fn read(bytes: &[u8], index_length: u64) -> Result<Self, Malformed> {
        let mut decoding = Decoding::new(bytes, index_length)?;
        while decoding.step()? {
            reactor::maybe_yield().await;
        }
        decoding.finish()
    }
}

/// Lets other tasks run at every [`ENTRIES_AT_ONCE`]th entry.
async fn maybe_yield_at(entry: usize) {
    if entry.is_multiple_of(ENTRIES_AT_ONCE) {
        reactor::maybe_yield().await;
    }
}

/// A summary that is being read.
struct Decoding<'b> {
    /// The input behind the entries.
    rest: Input<'b>,
    /// Offsets and entries, and their position in the file.
    body: &'b [u8],
    body_at: u64,
    offsets: Input<'b>,
    /// Start of the next entry in the body.
    start: usize,
    entries: usize,
    index_length: u64,
    at_full_sampling: u32,
    summary: Summary,
}

impl<'b> Decoding<'b> {
    fn new(bytes: &'b [u8], index_length: u64) -> Result<Self, Malformed> {
        let mut input = Input::new(bytes);
        let min_index_interval = input.u32()?;
        let entries = u64::from(input.u32()?);
        let length = input.u64()?;
        let _sampling_level = input.u32()?;
        let at_full_sampling = input.u32()?;
        let entries = input.fits("number of summary entries", entries, 12)?;
        if entries == 0 {
            return Err(Malformed::invalid(4, "a summary without entries"));
        }
        let body_at = input.offset();
        let limit = (input.remaining() as u64).min(SUMMARY_BYTES_MAX as u64);
        if length > limit {
            return Err(Malformed::over(8, "length of the summary", length, limit));
        }
        let body = input.take(length as usize)?;
        let mut offsets = Input::at_offset(body, body_at);
        let start = offsets.u32_le()? as usize;
        if start != 4 * entries {
            return Err(Malformed::invalid(body_at, "the first summary entry does not follow the offsets"));
        }
        let mut summary = Summary::new(min_index_interval);
        summary.reserve(entries, body.len().saturating_sub(entries * ENTRY_BYTES));
        Ok(Self {
            rest: input,
            body,
            body_at,
            offsets,
            start,
            entries,
            index_length,
            at_full_sampling,
            summary,
        })
    }

    /// Reads some entries; returns false when there are no more.
    fn step(&mut self) -> Result<bool, Malformed> {
        for _ in 0..ENTRIES_AT_ONCE {
            if self.summary.len() == self.entries {
                return Ok(false);
            }
            self.entry()?;
        }
        Ok(true)
    }

    fn entry(&mut self) -> Result<(), Malformed> {
        let (at, start) = (self.summary.len(), self.start);
        let here = self.body_at + start as u64;
        let end = if at + 1 == self.entries { self.body.len() } else { self.offsets.u32_le()? as usize };
        let entry =
            self.body.get(start..end).ok_or(Malformed::invalid(here, "summary offsets do not ascend"))?;
        let (key, position) = entry
            .split_last_chunk::<8>()
            .ok_or(Malformed::invalid(here, "a summary entry without position"))?;
        let (token, position) = (murmur3_token(key), u64::from_le_bytes(*position));
        if let Some(&last) = self.summary.positions.last() {
            let before = (self.summary.tokens[at - 1], self.summary.key(at - 1));
            if position <= last || compare_decorated(before, (token, key)).is_ge() {
                return Err(Malformed::invalid(here, "summary entries do not ascend"));
            }
        }
        if position >= self.index_length {
            return Err(Malformed::over(here, "position in the index", position, self.index_length));
        }
        self.summary.add(token, key, position);
        self.start = end;
        Ok(())
    }

    fn finish(mut self) -> Result<Summary, Malformed> {
        let input = &mut self.rest;
        let mut key = || {
            let (offset, length) = (input.offset(), input.u32()?);
            let limit = model::partition_key::PARTITION_KEY_BYTES_MAX;
            if length as usize > limit {
                return Err(Malformed::over(offset, "length of a key", u64::from(length), limit as u64));
            }
            input.take(length as usize).map(<[u8]>::to_vec)
        };
        let summary = &mut self.summary;
        (summary.first_key, summary.last_key) = (key()?, key()?);
        summary.at_full_sampling = self.at_full_sampling;
        if input.remaining() != 0 {
            return Err(Malformed::invalid(input.offset(), "bytes behind the summary"));
        }
        Ok(self.summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::partition_key::DecoratedKey;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn comes_back_and_finds_the_stretch_of_each_key(keys in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 1..20), 1..60)) {
            let mut keys: Vec<DecoratedKey> = keys.into_iter().map(DecoratedKey::new).collect();
            keys.sort();
            let mut summary = Summary::new(128);
            for (at, key) in keys.iter().enumerate().step_by(3) {
                summary.add(key.token, &key.key, at as u64 * 10);
            }
            summary.finish(&keys[0].key, &keys[keys.len() - 1].key, keys.len() as u64);
            let original = summary.clone();
            let bytes = reactor::sim::run_one(1, move || async move {
                let mut bytes = Vec::new();
                original.encode(&mut bytes).await;
                bytes
            });
            let back = Summary::decode(&bytes, keys.len() as u64 * 10).unwrap();
            prop_assert_eq!(&back, &summary);
            for (at, key) in keys.iter().enumerate() {
                let stretch = back.interval(key.token, &key.key);
                let (start, end) = (stretch.start, stretch.next.map(|(next, _)| next));
                prop_assert_eq!(start, (at / 3 * 30) as u64);
                prop_assert!(end.is_none_or(|end| end == start + 30));
            }
            for end in 0..bytes.len() {
                prop_assert!(Summary::decode(&bytes[..end], 1 << 20).is_err());
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Summary::decode(&bytes, 100);
        }
    }
}
