//! Rebuilds the summary and the filter of a table file from its index, if the ones on the disk are damaged.
//!
//! Both contain only what the index contains too, so a file without them has lost nothing. They are rebuilt
//! in memory only: the file on the disk stays as it is until it is rewritten (scrub, compaction), and
//! `verify` keeps reporting it. Invariant: nothing is rebuilt from an index that is itself damaged, as far as
//! its checksum, its order and the number of its entries show. `table_file` uses this when a file is opened
//! for use.

use model::partition_key::compare_decorated;
use model::token::{murmur3_hash128, murmur3_token};
use reactor::{Cold, cold};

use crate::data::chunks::ReadCounter;
use crate::error::{Malformed, SstableError};
use crate::filter::{FILTER_BYTES_MAX, Filter};
use crate::index::STRETCH_BYTES;
use crate::index::reader::{Entries, IndexFile};
use crate::summary::{SUMMARY_BYTES_MAX, Summary};
use crate::verify::checksum;

/// `min_index_interval` that a rebuilt summary names: the default. The summary's other numbers follow from
/// the samples.
const MIN_INDEX_INTERVAL: u32 = 128;

/// The facts about a file besides its index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    /// Checksum of the whole index, if there is one.
    pub(crate) checksum: Option<u32>,
    /// Number of partitions, from the statistics.
    pub(crate) partitions: u64,
    /// False-positive rate that the filter was made for.
    pub(crate) fp_chance: f64,
    /// Whether the format stores the filter's bits in words.
    pub(crate) filter_in_words: bool,
}

/// The rebuilt components, as they would be written.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) summary: Summary,
    /// `None` if the file has no filter.
    pub(crate) filter: Option<Filter>,
}

/// Reads the index and rebuilds both components.
///
/// # Errors
/// [`SstableError::Corrupt`] naming the index if that is damaged, [`SstableError::Io`].
#[inline(never)]
pub(crate) fn from_index<'a>(index: &'a IndexFile, known: Known) -> Cold<'a, Result<Rebuilt, SstableError>> {
    cold(async move {
        if let Some(recorded) = known.checksum {
            let (found, _) = checksum(&index.file, &index.path, &mut |_| true).await?;
            crate::verify::check(found, recorded)
                .map_err(|problem| index.malformed(Malformed { offset: 0, problem }))?;
        }
        let other_count = |at| {
            index.malformed(Malformed::invalid(at, "it has another number of partitions than the statistics"))
        };
        // Each entry takes at least a byte: a greater number in the statistics must not size a filter.
        if known.partitions > index.length {
            let what = "the statistics name more partitions than it has bytes";
            return Err(index.malformed(Malformed::invalid(index.length, what)));
        }
        let counter = ReadCounter::default();
        let mut entries = Entries::new((index, &counter));
        let mut filter =
            Filter::new(known.partitions, known.fp_chance, known.filter_in_words, FILTER_BYTES_MAX);
        let mut summary = Summary::new(MIN_INDEX_INTERVAL);
        let (mut first, mut last): (Vec<u8>, Vec<u8>) = Default::default();
        let (mut partitions, mut stretch) = (0u64, None);
        loop {
            let start = entries.offset();
            let Some((key, _)) = entries.next().await? else { break };
            let token = murmur3_token(key);
            if partitions == 0 {
                first.extend_from_slice(key);
            } else if compare_decorated((murmur3_token(&last), &last), (token, key)).is_ge() {
                return Err(index.malformed(Malformed::invalid(start, "the entry is out of order")));
            }
            last.clear();
            last.extend_from_slice(key);
            if let Some(filter) = &mut filter {
                filter.add_hash(murmur3_hash128(key, 0));
            }
            partitions += 1;
            let end = entries.offset();
            if stretch.is_none_or(|from| end - from > STRETCH_BYTES)
                && summary.size() + last.len() < SUMMARY_BYTES_MAX
            {
                stretch = Some(start);
                summary.add(token, &last, start);
            }
            reactor::maybe_yield().await;
        }
        if partitions == 0 || partitions != known.partitions {
            return Err(other_count(index.length));
        }
        summary.finish(&first, &last, partitions);
        Ok(Rebuilt { summary, filter })
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use reactor::file::{File, OpenOptions, write_all_atomic};
    use reactor::sim;

    use super::*;
    use crate::input::append_short_sized;

    /// An index of two partitions, with the numbers that statistics and checksums claim for it.
    fn check(partitions: u64, checksum: Option<u32>, expected: Result<(), &'static str>) {
        sim::run_one(1, move || async move {
            let mut keys: [&[u8]; 2] = [b"one", b"two"];
            keys.sort_by(|a, b| compare_decorated((murmur3_token(a), a), (murmur3_token(b), b)));
            let mut bytes = Vec::new();
            for key in keys {
                append_short_sized(&mut bytes, key);
                // The position of its data, and no blocks.
                bytes.extend_from_slice(&[0, 0]);
            }
            let path = Path::new("/me-1-big-Index.db");
            write_all_atomic(path, &bytes).await.unwrap();
            let file = File::open(path, OpenOptions::new().read(true).direct(true)).await.unwrap();
            let (path, length) = (path.to_owned(), bytes.len() as u64);
            let index = IndexFile { file, path, length, last_key: Box::default(), pages: None };
            let found =
                from_index(&index, Known { checksum, partitions, fp_chance: 0.01, filter_in_words: true })
                    .await;
            match (found, expected) {
                (Ok(rebuilt), Ok(())) => {
                    assert_eq!((rebuilt.summary.first_key(), rebuilt.summary.last_key()), (keys[0], keys[1]));
                    assert!(keys.iter().all(|key| rebuilt.filter.as_ref().unwrap().may_contain(key)));
                }
                (Err(error), Err(expected)) => {
                    let error = error.to_string();
                    assert!(error.contains("Index.db") && error.contains(expected), "{error}");
                }
                (other, _) => panic!("{partitions}: {other:?}"),
            }
        });
    }

    #[test]
    fn what_statistics_and_checksums_say_of_the_index_has_to_hold() {
        check(2, None, Ok(()));
        for other in [0, 1, 3, 14] {
            check(other, None, Err("another number of partitions"));
        }
        // No filter is allocated for them.
        for too_many in [15, 1 << 40, u64::MAX] {
            check(too_many, None, Err("more partitions than it has bytes"));
        }
        check(2, Some(7), Err("checksum"));
    }
}
