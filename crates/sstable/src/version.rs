//! Versions of the formats `big` and `bti`, with the features of each.
//!
//! The decoders test for a feature, never for a version, so that support of another version is confined to
//! this file.
//! Source: Cassandra 5.0 `BigFormat.BigVersion`, `BtiFormat.BtiVersion`.

/// A version this crate reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Written by Cassandra 3.0.0 to 3.0.6 and 3.1 to 3.6.
    Ma,
    /// Written by Cassandra 3.0.7 and 3.7.
    Mb,
    /// Written by Cassandra 3.0.8 to 3.0.17, 3.8 to 3.11.3, and ScyllaDB 3.0 and later.
    Mc,
    /// Written by Cassandra 3.0.18 to 3.0.24, 3.11.4 to 3.11.10, and ScyllaDB 4.3 and later.
    Md,
    /// Written by Cassandra 3.0.25, 3.11.11 and later 3.x, ScyllaDB 5.1 and later; the version this crate
    /// writes.
    Me,
    /// Written by the first release candidate of Cassandra 4.0.
    Na,
    /// Written by Cassandra 4.0 and later 4.x, and by 5.0 in compatibility mode.
    Nb,
    /// Written by Cassandra 5.0.
    Oa,
    /// Written by Cassandra 5.0 with `selected_format: bti`: as `oa`, with tries (`Partitions.db`, `Rows.db`)
    /// in place of index and summary.
    Da,
}

/// The format, which decides the components that partitions are found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// `Index.db` and `Summary.db`.
    Big,
    /// `Partitions.db` and `Rows.db`.
    Bti,
}

impl Format {
    /// The name of the format in file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Big => "big",
            Self::Bti => "bti",
        }
    }

    /// The format with that name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Big, Self::Bti].into_iter().find(|format| format.name() == text)
    }
}

/// The features of a version. Each field is one difference between versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Statistics has the position at which the file's part of the commit log begins.
    pub commit_log_lower_bound: bool,
    /// Statistics has every stretch of the commit log that is in the file.
    pub commit_log_intervals: bool,
    /// The smallest and the greatest clustering in Statistics are correct (CASSANDRA-14861).
    pub accurate_clusterings: bool,
    /// These clusterings are bounds with their kinds.
    pub clustering_bounds: bool,
    /// CompressionInfo has `maxCompressedLength`, and chunks at or above it are not compressed.
    pub max_compressed_length: bool,
    /// Statistics holds the pending repair session and the transient flag.
    pub pending_repair: bool,
    /// Statistics holds the id of the host that wrote the file.
    pub originating_host: bool,
    /// Statistics is checksummed.
    pub metadata_checksum: bool,
    /// The bits of the filter stand as big-endian 64-bit words.
    pub filter_in_words: bool,
    /// Local deletion times are unsigned and last until 2106, and the absence of a deletion takes one byte.
    pub unsigned_deletion_times: bool,
    /// Whether the statistics record if whole partitions are deleted.
    pub partition_deletions: bool,
    /// Whether the statistics have the first and the last key, and the part of the ring between them.
    pub key_range: bool,
}

impl Version {
    /// The version of files this crate writes.
    pub const WRITTEN: Self = Self::Me;
    /// All versions: those of the format `big`, oldest first, then that of `bti`.
    pub const ALL: [Self; 9] =
        [Self::Ma, Self::Mb, Self::Mc, Self::Md, Self::Me, Self::Na, Self::Nb, Self::Oa, Self::Da];

    /// The version with these two letters; `None` for versions this crate does not read.
    pub fn parse(text: &str, format: Format) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.letters() == text && version.format() == format)
    }

    /// The format it is a version of.
    pub fn format(self) -> Format {
        match self {
            Self::Da => Format::Bti,
            _ => Format::Big,
        }
    }

    /// Its two letters.
    pub fn letters(self) -> &'static str {
        match self {
            Self::Ma => "ma",
            Self::Mb => "mb",
            Self::Mc => "mc",
            Self::Md => "md",
            Self::Me => "me",
            Self::Na => "na",
            Self::Nb => "nb",
            Self::Oa => "oa",
            Self::Da => "da",
        }
    }

    /// Its features.
    pub fn features(self) -> Features {
        Features {
            commit_log_lower_bound: self >= Self::Mb,
            commit_log_intervals: self >= Self::Mc,
            accurate_clusterings: self >= Self::Md,
            clustering_bounds: self >= Self::Oa,
            max_compressed_length: self >= Self::Na,
            pending_repair: self >= Self::Na,
            originating_host: self == Self::Me || self >= Self::Nb,
            metadata_checksum: self >= Self::Na,
            filter_in_words: self < Self::Na,
            unsigned_deletion_times: self >= Self::Oa,
            partition_deletions: self >= Self::Oa,
            key_range: self >= Self::Oa,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_come_back_and_ascend() {
        for version in Version::ALL {
            assert_eq!(Version::parse(version.letters(), version.format()), Some(version));
        }
        let ascend =
            |a: &Version, b: &Version| a < b && (a.format(), a.letters()) < (b.format(), b.letters());
        assert!(Version::ALL.is_sorted_by(ascend));
        for (letters, format) in [
            ("la", Format::Big),
            ("ob", Format::Big),
            ("oa", Format::Bti),
            ("da", Format::Big),
            ("db", Format::Bti),
        ] {
            assert_eq!(Version::parse(letters, format), None);
        }
    }
}
