//! `Ceto.db`: data that Cassandra's format has no place for. Other programs ignore it, and a table file is
//! complete without it.
//!
//! ```text
//! extras  := "CETO" version:u16 sections:u16 section{sections} crc32:u32         (of all before it)
//! section := kind:u16 length:u32 bytes
//! kinds:
//!   1 dictionary := what compressed chunks refer to
//!   2 extent     := first:position last:position partition_deletions:bool static_rows:bool
//!   3 schema     := table_id:u8{16} revision:u64
//!   4 tablet     := tablets_log2:u8 tablet:u32 shard:u32
//!   5 checksums  := (component:u8 crc32:u32)*          (components by their place in `Component::ALL`)
//!   6 prefixes   := crc32:u32*                         (of `Index.db` before each entry of `Summary.db`)
//!   7 large      := what is large in the file          (`extras/large.rs`)
//!   8 tenancy    := since:u64                          (of the tablet; absent if 0)
//! position := weight:i8 components:u16 (present:bool [length:u32 bytes]){components}
//! ```
//! Sections of other kinds are skipped, so that a later writer may add some. The checksums reveal a changed
//! filter, summary or statistics: `me` has none for them, and a filter with a cleared bit hides a partition.
//! With the prefixes, and the checksum of the whole index for the last stretch, each stretch of the index
//! that is read is verified. Only the dictionary is needed to read the data; the name of the compressor in
//! `CompressionInfo.db` shows whether it is.

mod large;

use model::Clustering;
use model::clustering::{CLUSTERING_VALUE_BYTES_MAX, OwnedPosition, Position, append_component};

use crate::compression::DICTIONARY_BYTES_MAX;
use crate::descriptor::Component;
use crate::error::{Malformed, Problem};
use crate::input::Input;

pub use large::{LargeCell, LargeData, LargePartition, LargeRow};

const MAGIC: [u8; 4] = *b"CETO";
const VERSION: u16 = 1;
const DICTIONARY: u16 = 1;
const EXTENT: u16 = 2;
const SCHEMA: u16 = 3;
const TABLET: u16 = 4;
const CHECKSUMS: u16 = 5;
const PREFIXES: u16 = 6;
const LARGE: u16 = 7;
const TENANCY: u16 = 8;
/// Checksums of stretches are left out if there would be more than this.
const PREFIXES_MAX: usize = 2 << 20;
/// Most bytes of the component that are read.
pub(crate) const EXTRAS_BYTES_MAX: u64 = 16 << 20;

/// The range of all rows and range tombstones of a file, and its other contents. If there are none, `last` is
/// before `first`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// The first position of all partitions.
    pub first: OwnedPosition,
    /// The last position of all partitions.
    pub last: OwnedPosition,
    /// Whether a whole partition is deleted somewhere.
    pub partition_deletions: bool,
    /// Whether any static row is not empty.
    pub static_rows: bool,
}

/// The table a file was written for, as it was then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaMark {
    /// The table.
    pub table: [u8; 16],
    /// How often it had been altered.
    pub revision: u64,
}

/// The tablet and shard that wrote a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TabletMark {
    /// The table had two to the power of this many tablets.
    pub tablets_log2: u8,
    /// Number of the tablet.
    pub tablet: u32,
    /// The shard that had it.
    pub shard: u32,
    /// The number of the command that gave the node the tablet; 0 for data from before there were such
    /// commands.
    pub since: u64,
}

/// Contents of `Ceto.db`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras {
    /// The dictionary of compressed chunks.
    pub dictionary: Option<Vec<u8>>,
    /// The range of all positions.
    pub extent: Option<Extent>,
    /// The table it was written for.
    pub schema: Option<SchemaMark>,
    /// The tablet that wrote it.
    pub tablet: Option<TabletMark>,
    /// CRC32 of components, each as a whole.
    pub checksums: Vec<(Component, u32)>,
    /// CRC32 of the index before each entry of the summary; empty if the file does not have them.
    pub prefixes: Vec<u32>,
    /// Its large items; empty if the file does not list any.
    pub large: LargeData,
}

impl Extras {
    /// Appends `Ceto.db`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut sections = Vec::new();
        if let Some(dictionary) = &self.dictionary {
            sections.push((DICTIONARY, dictionary.clone()));
        }
        if let Some(extent) = &self.extent {
            let mut bytes = Vec::new();
            append_position(&mut bytes, extent.first.as_ref());
            append_position(&mut bytes, extent.last.as_ref());
            bytes.extend_from_slice(&[u8::from(extent.partition_deletions), u8::from(extent.static_rows)]);
            sections.push((EXTENT, bytes));
        }
        if let Some(mark) = &self.schema {
            sections.push((SCHEMA, [&mark.table[..], &mark.revision.to_be_bytes()].concat()));
        }
        if let Some(mark) = &self.tablet {
            let numbers = [mark.tablet.to_be_bytes(), mark.shard.to_be_bytes()].concat();
            sections.push((TABLET, [&[mark.tablets_log2][..], &numbers].concat()));
            if mark.since > 0 {
                sections.push((TENANCY, mark.since.to_be_bytes().to_vec()));
            }
        }
        if !self.checksums.is_empty() {
            let mut bytes = Vec::new();
            for (component, checksum) in &self.checksums {
                bytes.push(*component as u8);
                bytes.extend_from_slice(&checksum.to_be_bytes());
            }
            sections.push((CHECKSUMS, bytes));
        }
        if (1..=PREFIXES_MAX).contains(&self.prefixes.len()) {
            let bytes = self.prefixes.iter().flat_map(|checksum| checksum.to_be_bytes()).collect();
            sections.push((PREFIXES, bytes));
        }
        if self.large != LargeData::default() {
            let mut bytes = Vec::new();
            self.large.encode(&mut bytes);
            sections.push((LARGE, bytes));
        }
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&(sections.len() as u16).to_be_bytes());
        for (kind, bytes) in sections {
            out.extend_from_slice(&kind.to_be_bytes());
            out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            out.extend_from_slice(&bytes);
        }
        let checksum = crc32fast::hash(&out[start..]);
        out.extend_from_slice(&checksum.to_be_bytes());
    }

    /// The checksum of a component, if there is one.
    pub(crate) fn checksum(&self, component: Component) -> Option<u32> {
        self.checksums.iter().find(|(of, _)| *of == component).map(|(_, checksum)| *checksum)
    }

    /// Reads `Ceto.db`.
    ///
    /// # Errors
    /// [`Malformed`], also for an unknown version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (body, recorded) = bytes.split_last_chunk::<4>().ok_or(Malformed::truncated(0))?;
        let mut input = Input::new(body);
        if input.take(4)? != MAGIC {
            return Err(Malformed::invalid(0, "it does not open with `CETO`"));
        }
        let (found, recorded) = (crc32fast::hash(body), u32::from_be_bytes(*recorded));
        if found != recorded {
            return Err(Malformed { offset: 0, problem: Problem::Checksum { recorded, found } });
        }
        let version = input.u16()?;
        if version != VERSION {
            return Err(Malformed::over(4, "version", u64::from(version), u64::from(VERSION)));
        }
        let mut extras = Self::default();
        let mut since = 0;
        for _ in 0..input.u16()? {
            let (kind, length) = (input.u16()?, input.u32()? as usize);
            let at = input.offset();
            let mut section = Input::at_offset(input.take(length)?, at);
            match kind {
                DICTIONARY if length > DICTIONARY_BYTES_MAX => {
                    let limit = DICTIONARY_BYTES_MAX as u64;
                    return Err(Malformed::over(at, "length of the dictionary", length as u64, limit));
                }
                DICTIONARY => extras.dictionary = Some(section.take(length)?.to_vec()),
                EXTENT => {
                    extras.extent = Some(Extent {
                        first: position(&mut section)?,
                        last: position(&mut section)?,
                        partition_deletions: section.boolean()?,
                        static_rows: section.boolean()?,
                    });
                }
                SCHEMA => {
                    let mut table = [0; 16];
                    table.copy_from_slice(section.take(16)?);
                    extras.schema = Some(SchemaMark { table, revision: section.u64()? });
                }
                TABLET => {
                    let (tablets_log2, tablet, shard) = (section.u8()?, section.u32()?, section.u32()?);
                    extras.tablet = Some(TabletMark { tablets_log2, tablet, shard, since: 0 });
                }
                TENANCY => since = section.u64()?,
                CHECKSUMS => {
                    while section.remaining() > 0 {
                        let (component, checksum) = (section.u8()?, section.u32()?);
                        // A later writer may have more components.
                        let known = Component::ALL.get(usize::from(component));
                        extras.checksums.extend(known.map(|component| (*component, checksum)));
                    }
                }
                PREFIXES => {
                    let count = section.fits("number of checksums", length as u64 / 4, 4)?;
                    extras.prefixes = (0..count).map(|_| section.u32()).collect::<Result<_, _>>()?;
                }
                LARGE => extras.large = LargeData::decode(&mut section)?,
                _ => continue,
            }
            if section.remaining() != 0 {
                return Err(Malformed::invalid(section.offset(), "bytes behind a section"));
            }
        }
        if input.remaining() != 0 {
            return Err(Malformed::invalid(input.offset(), "bytes behind the sections"));
        }
        extras.tablet.iter_mut().for_each(|mark| mark.since = since);
        Ok(extras)
    }
}

fn append_position(out: &mut Vec<u8>, position: Position<'_>) {
    out.push(position.weight as u8);
    let components: Vec<Option<&[u8]>> = position.prefix.components().collect();
    out.extend_from_slice(&(components.len() as u16).to_be_bytes());
    for component in components {
        out.push(u8::from(component.is_some()));
        if let Some(value) = component {
            out.extend_from_slice(&(value.len() as u32).to_be_bytes());
            out.extend_from_slice(value);
        }
    }
}

fn position(input: &mut Input<'_>) -> Result<OwnedPosition, Malformed> {
    let weight = input.u8()? as i8;
    let mut prefix = Vec::new();
    for _ in 0..input.u16()? {
        if !input.boolean()? {
            append_component(&mut prefix, None);
            continue;
        }
        let (at, length) = (input.offset(), input.u32()?);
        if length as usize > CLUSTERING_VALUE_BYTES_MAX {
            let limit = CLUSTERING_VALUE_BYTES_MAX as u64;
            return Err(Malformed::over(at, "length of a clustering value", u64::from(length), limit));
        }
        append_component(&mut prefix, Some(input.take(length as usize)?));
    }
    Ok(Position { prefix: Clustering(&prefix), weight: weight.signum() }.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Extras {
        let place = |value: Option<&[u8]>, weight| {
            let mut prefix = Vec::new();
            append_component(&mut prefix, value);
            OwnedPosition { prefix, weight }
        };
        Extras {
            dictionary: Some(vec![1, 2, 3]),
            extent: Some(Extent {
                first: place(None, -1),
                last: place(Some(b"last"), 1),
                partition_deletions: true,
                static_rows: false,
            }),
            schema: Some(SchemaMark { table: [7; 16], revision: 3 }),
            tablet: Some(TabletMark { tablets_log2: 4, tablet: 11, shard: 2, since: 1 << 40 }),
            checksums: vec![(Component::Filter, 1), (Component::Index, 2)],
            prefixes: vec![0, 7, u32::MAX],
            large: LargeData {
                written_ms: 1_700_000_000_000,
                partitions: vec![LargePartition {
                    key: b"key".to_vec(),
                    bytes: 1 << 40,
                    rows: 3,
                    dead_rows: 2,
                    range_tombstones: 1,
                }],
                rows: vec![LargeRow { key: Vec::new(), clustering: None, bytes: 7 }],
                cells: vec![LargeCell {
                    key: b"key".to_vec(),
                    clustering: Some(place(Some(b"last"), 0).prefix),
                    column: "c".to_owned(),
                    bytes: 5,
                    elements: 4,
                }],
            },
        }
    }

    #[test]
    fn it_comes_back_and_any_changed_byte_is_told() {
        for extras in [sample(), Extras::default()] {
            let mut bytes = Vec::new();
            extras.encode(&mut bytes);
            assert_eq!(Extras::decode(&bytes).unwrap(), extras);
            for at in 0..bytes.len() {
                let mut broken = bytes.clone();
                broken[at] ^= 4;
                assert!(Extras::decode(&broken).is_err(), "byte {at}");
                assert!(Extras::decode(&bytes[..at]).is_err(), "cut at {at}");
            }
        }
    }

    #[test]
    fn a_mark_without_a_tenancy_is_of_the_first_one() {
        let mut extras = sample();
        let with = {
            let mut bytes = Vec::new();
            extras.encode(&mut bytes);
            bytes.len()
        };
        extras.tablet.as_mut().expect("a mark").since = 0;
        let mut bytes = Vec::new();
        extras.encode(&mut bytes);
        assert_eq!(with - bytes.len(), 14, "the section is left out");
        assert_eq!(Extras::decode(&bytes).unwrap(), extras);
    }

    #[test]
    fn sections_of_later_writers_are_skipped() {
        let mut bytes = Vec::new();
        sample().encode(&mut bytes);
        bytes.truncate(bytes.len() - 4);
        bytes[7] += 1;
        bytes.extend_from_slice(&[0, 99, 0, 0, 0, 2, 5, 6]);
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_be_bytes());
        assert_eq!(Extras::decode(&bytes).unwrap(), sample());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes: Vec<u8>) {
            let _ = Extras::decode(&bytes);
            // The same with a valid checksum.
            let mut whole = [&MAGIC[..], &[0, 1, 0, 3]].concat();
            whole.append(&mut bytes);
            let checksum = crc32fast::hash(&whole);
            whole.extend_from_slice(&checksum.to_be_bytes());
            let _ = Extras::decode(&whole);
        }
    }
}
