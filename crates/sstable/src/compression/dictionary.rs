//! Makes a dictionary for a file from its first chunks.
//!
//! A dictionary is bytes that chunks may refer to as if they preceded them; LZ4 and Zstandard accept any
//! bytes. Useful bytes are those that occur in many places. So the samples are cut into as many stretches as
//! the dictionary has segments, and from each the segment is taken whose substrings occur most often in all
//! samples and are not in the dictionary yet (the greedy cover of Liao, Petri, Moffat and Wirth, on which
//! Zstandard's own builder rests). The builder works in short steps, so that a shard that makes a dictionary
//! continues to answer.

/// Bytes at the start of a file's data that its dictionary is made of.
pub(crate) const SAMPLE_BYTES: usize = 256 * 1024;
/// Fewest sampled bytes that a dictionary is made of.
const SAMPLE_BYTES_MIN: usize = 16 * 1024;
/// Longest dictionary that LZ4 can refer to.
pub(crate) const DICTIONARY_BYTES_MAX: usize = 64 * 1024;
/// Longest dictionary that is made; a longer one costs each file more than it saves.
const DICTIONARY_BYTES: usize = 16 * 1024;
/// Samples are at least this many times as long as the dictionary.
const SAMPLES_PER_DICTIONARY: usize = 8;
/// Bytes that are taken at a time.
const SEGMENT_BYTES: usize = 128;
/// Bytes of a substring that is counted.
const SUBSTRING_BYTES: usize = 8;
/// Slots for counts; substrings that share one count together.
const SLOTS: usize = 1 << 16;
/// Positions that are examined in one step.
const STEP_POSITIONS: usize = 16 * 1024;

/// Makes a dictionary from samples; `None` if they are too few to be worth one.
pub(crate) async fn train(samples: &[u8]) -> Option<Vec<u8>> {
    if samples.len() < SAMPLE_BYTES_MIN {
        return None;
    }
    let mut counts = vec![0u16; SLOTS];
    let positions = samples.len() - SUBSTRING_BYTES + 1;
    for from in (0..positions).step_by(STEP_POSITIONS) {
        for at in from..positions.min(from + STEP_POSITIONS) {
            let count = &mut counts[slot(samples, at)];
            *count = count.saturating_add(1);
        }
        reactor::maybe_yield().await;
    }
    // A substring that occurs once is worth nothing.
    counts.iter_mut().for_each(|count| *count = count.saturating_sub(1));

    let bytes = DICTIONARY_BYTES.min(samples.len() / SAMPLES_PER_DICTIONARY);
    let segments = bytes / SEGMENT_BYTES;
    let stretch = samples.len() / segments;
    let mut chosen = Vec::with_capacity(segments);
    for number in 0..segments {
        let from = number * stretch;
        if let Some((start, worth)) = best(&samples[from..from + stretch], &counts) {
            let segment = from + start..from + start + SEGMENT_BYTES;
            (segment.start..=segment.end - SUBSTRING_BYTES).for_each(|at| counts[slot(samples, at)] = 0);
            chosen.push((worth, segment));
        }
        reactor::maybe_yield().await;
    }
    // The most useful segment last: short distances are cheap to refer to.
    chosen.sort_by_key(|(worth, segment)| (*worth, segment.start));
    let dictionary: Vec<u8> =
        chosen.into_iter().flat_map(|(_, segment)| &samples[segment]).copied().collect();
    // Bytes that begin like a dictionary in Zstandard's own format would be taken for one.
    (!dictionary.is_empty() && !dictionary.starts_with(&[0x37, 0xa4, 0x30, 0xec])).then_some(dictionary)
}

fn slot(samples: &[u8], at: usize) -> usize {
    let mut word = [0; SUBSTRING_BYTES];
    word.copy_from_slice(&samples[at..at + SUBSTRING_BYTES]);
    // A multiplication mixes eight bytes into the upper bits well enough for counting.
    (u64::from_le_bytes(word).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}

/// The segment of a stretch whose substrings occur most often, and how often; `None` if none occurs twice.
fn best(stretch: &[u8], counts: &[u16]) -> Option<(usize, u64)> {
    let window = SEGMENT_BYTES - SUBSTRING_BYTES + 1;
    let positions = (stretch.len() + 1).checked_sub(SUBSTRING_BYTES).filter(|count| *count >= window)?;
    let count = |at: usize| u64::from(counts[slot(stretch, at)]);
    let mut worth: u64 = (0..window).map(count).sum();
    let mut best = (0, worth);
    for end in window..positions {
        worth = worth + count(end) - count(end - window);
        if worth > best.1 {
            best = (end - window + 1, worth);
        }
    }
    (best.1 > 0).then_some(best)
}

const _: () = assert!(SAMPLE_BYTES / SAMPLES_PER_DICTIONARY >= DICTIONARY_BYTES, "the samples suffice");
