//! Versions of the `big` format and what each of them has.
//!
//! The decoders ask for a feature, never for a version, so that reading another version is a matter of this file.
//! Source: Cassandra 5.0 `BigFormat.BigVersion`.

/// A version this crate reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Written by Cassandra 3.11.11 and later 3.11, ScyllaDB 4.3 and later; the version this crate writes.
    Me,
    /// Written by Cassandra 4.0 and later 4.x, and by 5.0 in compatibility mode.
    Nb,
}

/// What a version has. Each field is one difference between versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// CompressionInfo holds `maxCompressedLength`, and chunks at or above it are not compressed.
    pub max_compressed_length: bool,
    /// Statistics holds the pending repair session and the transient flag.
    pub pending_repair: bool,
    /// Statistics holds the id of the host that wrote the file.
    pub originating_host: bool,
    /// Statistics is checksummed.
    pub metadata_checksum: bool,
    /// The bits of the filter stand as big-endian 64-bit words.
    pub filter_in_words: bool,
    /// Local deletion times are unsigned and last until 2106.
    pub unsigned_deletion_times: bool,
}

impl Version {
    /// The version of files this crate writes.
    pub const WRITTEN: Self = Self::Me;

    /// By its two letters; `None` for versions this crate does not read.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Me, Self::Nb].into_iter().find(|version| version.letters() == text)
    }

    /// Its two letters.
    pub fn letters(self) -> &'static str {
        match self {
            Self::Me => "me",
            Self::Nb => "nb",
        }
    }

    /// What it has.
    pub fn features(self) -> Features {
        match self {
            Self::Me => Features {
                max_compressed_length: false,
                pending_repair: false,
                originating_host: true,
                metadata_checksum: false,
                filter_in_words: true,
                unsigned_deletion_times: false,
            },
            Self::Nb => Features {
                max_compressed_length: true,
                pending_repair: true,
                metadata_checksum: true,
                filter_in_words: false,
                ..Self::Me.features()
            },
        }
    }
}
