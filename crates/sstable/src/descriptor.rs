//! Names of table files: `me-<generation>-big-<Component>`, in Cassandra 5 also
//! `da-<generation>-bti-<Component>`.
//!
//! Files of other programs may be named by a time instead of a number: by Cassandra 4.1 and later with
//! `uuid_sstable_identifiers_enabled`, by ScyllaDB always. Such files are read; files of this crate have
//! numbers.
//!
//! A table file is a set of components that share a descriptor. It exists once its `TOC.txt` does: the writer
//! renames that one last, and removal deletes it first, so that after a crash a set is either complete or
//! known not to be. The manifest in `storage` decides whether an incomplete set is left over or has lost a
//! component; it uses [`sort_names`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::SstableError;
use crate::version::{Format, Version};

/// Suffix of the name of a component that is still being written.
pub const TEMPORARY_SUFFIX: &str = ".tmp";

/// One file of a table file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// Partitions in token order.
    Data,
    /// Keys and the offsets of their partitions.
    Index,
    /// Samples of the index's keys.
    Summary,
    /// The bloom filter of the keys.
    Filter,
    /// Metadata, including the encoding of the data.
    Statistics,
    /// Offsets of the compressed chunks of the data.
    CompressionInfo,
    /// Checksum of the data file.
    Digest,
    /// Checksums of the chunks of data that is not compressed.
    Crc,
    /// Data that the format has no place for; files of other programs do not have it.
    Ceto,
    /// Names of the components.
    Toc,
    /// The trie of the keys, in the format `bti` only; it is not read.
    Partitions,
    /// Tries of the blocks of long partitions, in the format `bti` only; it is not read.
    Rows,
}

impl Component {
    /// Components of the format `big`, in the order in which they are made visible: [`Component::Toc`] last.
    pub const ALL: [Self; 10] = [
        Self::Data,
        Self::Index,
        Self::Summary,
        Self::Filter,
        Self::Statistics,
        Self::CompressionInfo,
        Self::Digest,
        Self::Crc,
        Self::Ceto,
        Self::Toc,
    ];

    /// Components of the format `bti`, [`Component::Toc`] last.
    pub const OF_BTI: [Self; 9] = [
        Self::Data,
        Self::Partitions,
        Self::Rows,
        Self::Filter,
        Self::Statistics,
        Self::CompressionInfo,
        Self::Digest,
        Self::Crc,
        Self::Toc,
    ];

    /// The last part of its file name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "Data.db",
            Self::Index => "Index.db",
            Self::Summary => "Summary.db",
            Self::Filter => "Filter.db",
            Self::Statistics => "Statistics.db",
            Self::CompressionInfo => "CompressionInfo.db",
            Self::Digest => "Digest.crc32",
            Self::Crc => "CRC.db",
            Self::Ceto => "Ceto.db",
            Self::Toc => "TOC.txt",
            Self::Partitions => "Partitions.db",
            Self::Rows => "Rows.db",
        }
    }

    /// The component with that last part of the file name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().chain(Self::OF_BTI).find(|component| component.name() == name)
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Identifies a table file in its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileId {
    /// A number, unique within the folder; later files have greater ones.
    Number(u64),
    /// A time, in files of other programs.
    Time(TimeId),
}

impl FileId {
    fn parse(text: &str) -> Option<Self> {
        if text.bytes().all(|b| b.is_ascii_digit()) {
            // Only in its written form: `007` would be another file than `7`.
            return text.parse().ok().filter(|number: &u64| number.to_string() == text).map(Self::Number);
        }
        let bytes: [u8; TIME_ID_BYTES] = text.as_bytes().try_into().ok()?;
        let fits = |(at, byte): (usize, &u8)| match at {
            4 | 9 => *byte == b'_',
            _ => byte.is_ascii_alphanumeric(),
        };
        bytes.iter().enumerate().all(fits).then_some(Self::Time(TimeId(bytes)))
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Time(TimeId(text)) => text.iter().try_for_each(|byte| write!(f, "{}", char::from(*byte))),
        }
    }
}

const TIME_ID_BYTES: usize = 28;

/// A UUID of version 1 as text in base 36 that sorts by time: days, seconds, then ticks with the rest of the
/// UUID, `3g7k_0h3x_3m1ow2a8r9wp4c2tuv` (Cassandra's `UUIDBasedSSTableId`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeId([u8; TIME_ID_BYTES]);

/// The parts of the name that the components of one table file share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Descriptor {
    /// Identifies the file in its folder.
    pub id: FileId,
    /// Version of the format.
    pub version: Version,
}

impl Descriptor {
    /// The descriptor of a file that this crate is going to write.
    pub fn new(generation: u64) -> Self {
        Self { id: FileId::Number(generation), version: Version::WRITTEN }
    }

    /// The number of the file; 0, which no file of this crate has, for one that is named by a time.
    pub fn generation(self) -> u64 {
        match self.id {
            FileId::Number(number) => number,
            FileId::Time(_) => 0,
        }
    }

    /// Whether this crate gives files such names.
    pub fn could_be_written(self) -> bool {
        matches!(self.id, FileId::Number(_)) && self.version == Version::WRITTEN
    }

    /// Components that such a file may have, in the order in which they are made visible.
    pub fn components(self) -> &'static [Component] {
        match self.version.format() {
            Format::Big => &Component::ALL,
            Format::Bti => &Component::OF_BTI,
        }
    }

    /// Name of a component's file.
    pub fn file_name(self, component: Component) -> String {
        format!("{self}-{component}")
    }

    /// Path of a component's file in `dir`.
    pub fn path(self, dir: &Path, component: Component) -> PathBuf {
        dir.join(self.file_name(component))
    }

    /// Path of a component's file while it is being written.
    pub fn temporary_path(self, dir: &Path, component: Component) -> PathBuf {
        dir.join(self.file_name(component) + TEMPORARY_SUFFIX)
    }

    /// Parses the name of a component.
    ///
    /// # Errors
    /// [`SstableError::Name`] for any other name, [`SstableError::Version`] for a version that is not read.
    pub fn parse(name: &str) -> Result<(Self, Component), SstableError> {
        let not_one = || SstableError::Name { name: name.to_owned() };
        let mut parts = name.splitn(4, '-');
        let (Some(version), Some(id), Some(format), Some(component)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(not_one());
        };
        let component = Component::parse(component).ok_or_else(not_one)?;
        let is_version = version.len() == 2 && version.bytes().all(|b| b.is_ascii_lowercase());
        let format = Format::parse(format).filter(|_| is_version).ok_or_else(not_one)?;
        let id = FileId::parse(id).ok_or_else(not_one)?;
        let version = Version::parse(version, format).ok_or_else(|| SstableError::Version {
            path: name.into(),
            version: match format {
                Format::Big => version.to_owned(),
                Format::Bti => format!("{version} ({})", format.name()),
            },
        })?;
        Ok((Self { id, version }, component))
    }
}

impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.version.letters(), self.id, self.version.format().name())
    }
}

/// Whether a name would be that of a component except for its number, which is 2^64 or more or has leading
/// zeros.
pub fn is_misnumbered(name: &str) -> bool {
    let mut parts = name.splitn(3, '-');
    let (Some(version), Some(id), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let is_number = !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
    let with_another = || Descriptor::parse(&format!("{version}-1-{rest}"));
    is_number && FileId::parse(id).is_none() && !matches!(with_another(), Err(SstableError::Name { .. }))
}

/// The names in a folder, classified.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SortedNames {
    /// Complete table files, by number or time.
    pub complete: Vec<Descriptor>,
    /// Names of components that were still being written.
    pub temporary: Vec<String>,
    /// Sets without a `TOC.txt`, with their components: left by a crash, or damaged.
    pub partial: Vec<(Descriptor, Vec<Component>)>,
    /// Names of components in an unsupported version. They are left alone.
    pub unsupported: Vec<String>,
}

impl SortedNames {
    /// Names of all files that do not belong to a complete table file.
    pub fn leftovers(&self) -> Vec<String> {
        let partial = self.partial.iter();
        let names =
            partial.flat_map(|(descriptor, components)| components.iter().map(|c| descriptor.file_name(*c)));
        self.temporary.iter().cloned().chain(names).collect()
    }
}

/// Separates complete table files from files that a crash left; names of other things are ignored.
pub fn sort_names<'a>(names: impl IntoIterator<Item = &'a str>) -> SortedNames {
    let mut sorted = SortedNames::default();
    let mut sets: BTreeMap<Descriptor, Vec<Component>> = BTreeMap::new();
    for name in names {
        if let Some(base) = name.strip_suffix(TEMPORARY_SUFFIX) {
            if Descriptor::parse(base).is_ok() {
                sorted.temporary.push(name.to_owned());
            }
            continue;
        }
        match Descriptor::parse(name) {
            Ok((descriptor, component)) => sets.entry(descriptor).or_default().push(component),
            Err(SstableError::Version { .. }) => sorted.unsupported.push(name.to_owned()),
            Err(_) => {}
        }
    }
    for (descriptor, components) in sets {
        if components.contains(&Component::Toc) {
            sorted.complete.push(descriptor);
        } else {
            sorted.partial.push((descriptor, components));
        }
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for component in Component::ALL {
            let descriptor = Descriptor::new(42);
            let name = descriptor.file_name(component);
            assert_eq!(Descriptor::parse(&name).unwrap(), (descriptor, component), "{name}");
        }
        assert_eq!(Descriptor::new(7).file_name(Component::Data), "me-7-big-Data.db");
    }

    #[test]
    fn other_names_are_refused() {
        for name in [
            "",
            "me-1-big",
            "me-1-big-Data",
            "me--big-Data.db",
            "me-+1-big-Data.db",
            "me-x-big-Data.db",
            "m-1-big-Data.db",
            "me-99999999999999999999-big-Data.db",
            "me-007-big-Data.db",
            "nb-3g7k_0h3x_3m1ow2a8r9wp4c2tu-big-Data.db",
            "nb-3g7k-0h3x_3m1ow2a8r9wp4c2tuv-big-Data.db",
            "nb-3g7k_0h3x_3m1ow2a8r9wp4c2t\u{e9}-big-Data.db",
            "sa-1-abc-Data.db",
        ] {
            assert!(matches!(Descriptor::parse(name), Err(SstableError::Name { .. })), "{name}");
        }
        for name in [
            "ob-1-big-Data.db",
            "da-1-big-Data.db",
            "db-1-bti-Data.db",
            "db-3g7k_0h3x_3m1ow2a8r9wp4c2tuv-bti-TOC.txt",
        ] {
            assert!(matches!(Descriptor::parse(name), Err(SstableError::Version { .. })), "{name}");
        }
    }

    #[test]
    fn a_number_that_none_has_is_told_from_other_names() {
        for name in [
            "me-18446744073709551616-big-TOC.txt",
            "me-007-big-Data.db",
            "me-00-big-Data.db",
            "ob-01-big-Data.db",
        ] {
            assert!(is_misnumbered(name), "{name}");
        }
        for name in [
            "me-18446744073709551615-big-TOC.txt",
            "me-0-big-Data.db",
            "me--big-Data.db",
            "me-01-big-x",
            "a-01-b",
        ] {
            assert!(!is_misnumbered(name), "{name}");
        }
    }

    #[test]
    fn names_of_others_are_times() {
        let names = [
            "nb-3g7k_0h3x_3m1ow2a8r9wp4c2tuv-big-Data.db",
            "nb-3g7k_0h3y_000000a8r9wp4c2tuv-big-Data.db",
            "da-3g7k_0h3y_000000a8r9wp4c2tuv-bti-Partitions.db",
        ];
        let [first, second, _] = names.map(|name| {
            let (descriptor, component) = Descriptor::parse(name).unwrap();
            assert_eq!(descriptor.file_name(component), name);
            assert!(descriptor.components().contains(&component) && !descriptor.could_be_written());
            descriptor
        });
        assert!(first < second);
    }

    #[test]
    fn a_set_without_its_list_is_left_over() {
        let sorted = sort_names([
            "me-1-big-Data.db",
            "me-1-big-TOC.txt",
            "me-2-big-Data.db",
            "me-2-big-Index.db",
            "me-3-big-Data.db.tmp",
            "ob-4-big-Data.db",
            "snapshots",
            "notes.tmp",
        ]);
        assert_eq!(sorted.complete, [Descriptor::new(1)]);
        assert_eq!(sorted.leftovers(), ["me-3-big-Data.db.tmp", "me-2-big-Data.db", "me-2-big-Index.db"]);
        assert_eq!(sorted.unsupported, ["ob-4-big-Data.db"]);
    }
}
