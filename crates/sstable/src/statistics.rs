//! `Statistics.db`: facts about a table file that can be read without its data.
//!
//! ```text
//! statistics := components:i32 (kind:i32 offset:i32){components} validation compaction stats header
//! validation := partitioner:text fp_chance:f64
//! compaction := length:i32 hyperloglog
//! ```
//! `stats` is in `statistics::stats`, `header` in `statistics::header`. Later versions add checksums.
//! Source: Cassandra 5.0 `MetadataSerializer` and its components.

mod cardinality;
mod collector;
mod header;
mod histogram;
mod stats;

pub use cardinality::Cardinality;
pub(crate) use collector::Collector;
pub use header::{EncodingMinima, HeaderColumn, SerializationHeader};
pub use histogram::{EstimatedHistogram, TombstoneHistogram};
pub(crate) use stats::SIGNED_TIME_MAX;
pub use stats::{CommitLogPosition, Stats};

use crate::error::{Malformed, Problem};
use crate::input::{Input, append_text};
use crate::version::Features;

/// The partitioner of every file this crate writes and reads.
pub const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

const VALIDATION: u32 = 0;
const COMPACTION: u32 = 1;
const STATS: u32 = 2;
const HEADER: u32 = 3;

/// The contents of `Statistics.db`.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// Rate of false answers the filter was made for.
    pub fp_chance: f64,
    /// Sketch of the number of distinct partitions, as stored.
    pub cardinality: Vec<u8>,
    /// Ranges and histograms.
    pub stats: Stats,
    /// How the data is encoded.
    pub header: SerializationHeader,
}

impl Statistics {
    /// Appends `Statistics.db`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, features: Features) {
        let mut components: [(u32, Vec<u8>); 4] =
            [(VALIDATION, Vec::new()), (COMPACTION, Vec::new()), (STATS, Vec::new()), (HEADER, Vec::new())];
        append_text(&mut components[0].1, PARTITIONER);
        components[0].1.extend_from_slice(&self.fp_chance.to_be_bytes());
        components[1].1.extend_from_slice(&(self.cardinality.len() as u32).to_be_bytes());
        components[1].1.extend_from_slice(&self.cardinality);
        self.stats.encode(&mut components[2].1, features);
        self.header.encode(&mut components[3].1);

        let checksum = if features.metadata_checksum { 4 } else { 0 };
        let mut crc = crc32fast::Hasher::new();
        let mut append = |out: &mut Vec<u8>, bytes: &[u8]| {
            crc.update(bytes);
            out.extend_from_slice(bytes);
            crc.clone().finalize()
        };
        let sum = append(out, &(components.len() as u32).to_be_bytes());
        if checksum != 0 {
            out.extend_from_slice(&sum.to_be_bytes());
        }
        let mut offset = 4 + 8 * components.len() + 2 * checksum;
        let mut sum = 0;
        for (kind, bytes) in &components {
            append(out, &kind.to_be_bytes());
            sum = append(out, &(offset as u32).to_be_bytes());
            offset += bytes.len() + checksum;
        }
        if checksum != 0 {
            out.extend_from_slice(&sum.to_be_bytes());
        }
        for (_, bytes) in &components {
            out.extend_from_slice(bytes);
            if checksum != 0 {
                out.extend_from_slice(&crc32fast::hash(bytes).to_be_bytes());
            }
        }
    }

    /// Reads `Statistics.db`.
    ///
    /// # Errors
    /// [`Malformed`], also when the partitioner is not [`PARTITIONER`].
    pub fn decode(bytes: &[u8], features: Features) -> Result<Self, Malformed> {
        let mut input = Input::new(bytes);
        let components = u64::from(input.u32()?);
        let components = input.fits("number of metadata components", components, 8)?;
        if features.metadata_checksum {
            check(&[&bytes[..4]], input.offset(), input.u32()?)?;
        }
        let contents_at = input.consumed();
        let mut contents = Vec::with_capacity(components);
        for _ in 0..components {
            let at = input.offset();
            contents.push((at, input.u32()?, input.u32()? as usize));
        }
        if features.metadata_checksum {
            let end = input.consumed();
            check(&[&bytes[..4], &bytes[contents_at..end]], input.offset(), input.u32()?)?;
        }
        let mut parts: [Option<Input<'_>>; 4] = [const { None }; 4];
        for (index, &(at, kind, start)) in contents.iter().enumerate() {
            let end = contents.get(index + 1).map_or(bytes.len(), |next| next.2);
            let mut part =
                bytes.get(start..end).ok_or(Malformed::invalid(at, "metadata offsets do not ascend"))?;
            if features.metadata_checksum {
                let Some((body, sum)) = part.split_last_chunk::<4>() else {
                    return Err(Malformed::truncated(start as u64));
                };
                check(&[body], start as u64, u32::from_be_bytes(*sum))?;
                part = body;
            }
            let slot = parts
                .get_mut(kind as usize)
                .ok_or(Malformed::invalid(at, "an unknown metadata component"))?;
            *slot = Some(Input::at_offset(part, start as u64));
        }
        let [Some(mut validation), Some(mut compaction), Some(mut stats), Some(mut header)] = parts else {
            return Err(Malformed::invalid(0, "a metadata component is missing"));
        };
        let at = validation.offset();
        if validation.text()? != PARTITIONER {
            return Err(Malformed::invalid(at, "the partitioner is not Murmur3Partitioner"));
        }
        let fp_chance = validation.f64()?;
        let length = compaction.u32()?;
        let cardinality = compaction.take(length as usize)?.to_vec();
        for part in [&validation, &compaction] {
            if part.remaining() != 0 {
                return Err(Malformed::invalid(part.offset(), "bytes behind a metadata component"));
            }
        }
        let stats = Stats::decode(&mut stats, features)?;
        let header = SerializationHeader::decode(&mut header)?;
        Ok(Self { fp_chance, cardinality, stats, header })
    }
}

fn check(parts: &[&[u8]], offset: u64, recorded: u32) -> Result<(), Malformed> {
    let mut crc = crc32fast::Hasher::new();
    parts.iter().for_each(|part| crc.update(part));
    let found = crc.finalize();
    if found == recorded {
        Ok(())
    } else {
        Err(Malformed { offset, problem: Problem::Checksum { recorded, found } })
    }
}

#[cfg(test)]
mod tests;
