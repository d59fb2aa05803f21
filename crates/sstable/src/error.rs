//! What can be wrong with a table file, and where.
//!
//! Pure decoders answer [`Malformed`] with an offset into the bytes they were given; whoever read those bytes
//! adds the path and the component ([`SstableError::Corrupt`]). Nothing read from disk panics.

use std::io;
use std::path::{Path, PathBuf};

use crate::descriptor::Component;

/// Bytes that are not what the format says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at byte {offset}")]
pub struct Malformed {
    /// Where in the component (in `Data.db`, an offset of the uncompressed data unless a checksum failed).
    pub offset: u64,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The bytes end inside something.
    #[error("the bytes end early")]
    Truncated,
    /// A checksum that does not hold.
    #[error("checksum is {found:#010x}, recorded {recorded:#010x}")]
    Checksum {
        /// As stored.
        recorded: u32,
        /// As computed.
        found: u32,
    },
    /// A count or a length that cannot be.
    #[error("{what} is {found}, at most {limit} is possible")]
    OverLimit {
        /// Which number.
        what: &'static str,
        /// The number.
        found: u64,
        /// What it can be at most.
        limit: u64,
    },
    /// Something else that the format excludes.
    #[error("{0}")]
    Invalid(&'static str),
    /// A type name that is not one.
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
    /// The disk refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The bytes are not what the format says.
    #[error("{path}: corrupt {component}: {problem} at byte {offset}", path = path.display())]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// Which component of the table file.
        component: Component,
        /// Where, see [`Malformed::offset`].
        offset: u64,
        /// What is wrong.
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
        /// Which file.
        path: PathBuf,
        /// Its version.
        version: String,
    },
    /// A compressor this code does not have.
    #[error("{path}: compressor `{name}` is not supported", path = path.display())]
    Compressor {
        /// Which file.
        path: PathBuf,
        /// Its compressor.
        name: String,
    },
    /// A file whose key or clustering columns are not the table's.
    #[error("{path}: {what} of the file does not match table {table}", path = path.display())]
    Schema {
        /// Which file.
        path: PathBuf,
        /// `keyspace.table`.
        table: String,
        /// What differs.
        what: &'static str,
    },
    /// A value that cannot be stored as its column's type says.
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
