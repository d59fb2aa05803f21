//! Errors of table files, with their place.
//!
//! Pure decoders return [`Malformed`] with an offset into the bytes they were given; the code that read those
//! bytes adds the path and the component ([`SstableError::Corrupt`]). Nothing read from disk causes a panic.

use std::io;
use std::path::{Path, PathBuf};

use crate::descriptor::Component;

/// Bytes that violate the format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at byte {offset}")]
pub struct Malformed {
    /// Offset in the component (in `Data.db`, an offset of the uncompressed data unless a checksum failed).
    pub offset: u64,
    /// The kind of problem there.
    pub problem: Problem,
}

/// The kinds of problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The bytes end inside an item.
    #[error("the bytes end early")]
    Truncated,
    /// A checksum that does not match.
    #[error("checksum is {found:#010x}, recorded {recorded:#010x}")]
    Checksum {
        /// The stored checksum.
        recorded: u32,
        /// The computed checksum.
        found: u32,
    },
    /// An impossible count or length.
    #[error("{what} is {found}, at most {limit} is possible")]
    OverLimit {
        /// The name of the number.
        what: &'static str,
        /// The number.
        found: u64,
        /// Its greatest possible value.
        limit: u64,
    },
    /// Another violation of the format.
    #[error("{0}")]
    Invalid(&'static str),
    /// An invalid type name.
    #[error("{0}")]
    Type(#[from] model::marshal::MarshalError),
}

impl Malformed {
    pub(crate) fn invalid(offset: u64, what: &'static str) -> Self {
        Self { offset, problem: Problem::Invalid(what) }
    }

    pub(crate) fn truncated(offset: u64) -> Self {
        Self { offset, problem: Problem::Truncated }
    }

    pub(crate) fn over(offset: u64, what: &'static str, found: u64, limit: u64) -> Self {
        Self { offset, problem: Problem::OverLimit { what, found, limit } }
    }

    /// Names the file the bytes came from.
    pub(crate) fn of(self, component: Component, path: &Path) -> SstableError {
        SstableError::Corrupt { path: path.to_owned(), component, offset: self.offset, problem: self.problem }
    }
}

/// Why a table file could not be written, opened or read.
#[derive(Debug, thiserror::Error)]
pub enum SstableError {
    /// A disk operation failed.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The bytes violate the format.
    #[error("{path}: corrupt {component}: {problem} at byte {offset}", path = path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The component of the table file.
        component: Component,
        /// Offset of the problem, see [`Malformed::offset`].
        offset: u64,
        /// The kind of problem.
        problem: Problem,
    },
    /// A name that is not that of a table file's component.
    #[error("`{name}` is not the name of a table file component")]
    Name {
        /// The name.
        name: String,
    },
    /// A version of the format this code does not read.
    #[error("{path}: table files of version `{version}` are not supported", path = path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: String,
    },
    /// A compressor this code does not have.
    #[error("{path}: compressor `{name}` is not supported", path = path.display())]
    Compressor {
        /// The file.
        path: PathBuf,
        /// Its compressor.
        name: String,
    },
    /// A file whose key or clustering columns are not the table's.
    #[error("{path}: {what} of the file does not match table {table}", path = path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// `keyspace.table`.
        table: String,
        /// The difference.
        what: &'static str,
    },
    /// A value that does not fit its column's type.
    #[error("column {column}: a value of {found} bytes, its type has {expected}")]
    Value {
        /// Name of the column.
        column: String,
        /// Bytes every value of the type has.
        expected: usize,
        /// Bytes the value has.
        found: usize,
    },
}

impl SstableError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}
