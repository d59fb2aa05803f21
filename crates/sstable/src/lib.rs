//! Table files in Cassandra's `big` format: written as version `me`, byte for byte as other programs expect
//! them, and read in that and other versions. Files of Cassandra's `bti` format can only be read from their
//! beginning on.
//!
//! `descriptor` names the files, `data::writer` makes them, `table_file` opens them, `data::reader` reads
//! their rows, and `resident` bounds the memory of open ones. Encoding and decoding are pure, and split into
//! steps where they take long. Only `file`, `data::{chunks,chunk_writer,writer}`,
//! `index::{reader,walked,writer,promoted}`, `table_file` and `verify` access the disk, through
//! `reactor::file`. The format: docs/formats/sstable.md. This crate does not know which files a table has:
//! `storage` does.

mod compression;
mod data;
mod descriptor;
mod error;
mod extras;
mod file;
mod filter;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod input;
mod layout;
mod rebuild;
mod resident;
mod scan;
mod statistics;
mod summary;
mod table_file;
mod told;
mod verify;
mod version;

pub use compression::{
    CHUNK_BYTES_DEFAULT, CHUNK_BYTES_MAX, Compression, CompressionOptionError, Compressor,
};
pub use data::chunks::DiskReads;
pub use data::long_rows::{LongRows, RowRoom};
pub use data::reader::{PartitionReader, Scanner};
pub use data::stream::AtHand;
pub use data::writer::{SUMMARY_RATIO_DEFAULT, SstableInfo, Writer, WriterOptions};
pub use descriptor::{
    Component, Descriptor, FileId, SortedNames, TEMPORARY_SUFFIX, is_misnumbered, sort_names,
};
pub use error::{Malformed, Problem, SstableError};
pub use extras::{Extent, Extras, LargeCell, LargeData, LargePartition, LargeRow, SchemaMark, TabletMark};
pub use filter::FILTER_BYTES_MAX;
pub use index::COLUMN_INDEX_BYTES_DEFAULT;
pub use index::pages::IndexPages;
pub use resident::ComponentMemory;
pub use scan::PartitionBound;
pub use statistics::{
    Cardinality, CommitLogPosition, EncodingMinima, EstimatedHistogram, HeaderColumn, PARTITIONER,
    SerializationHeader, Statistics, Stats, TombstoneHistogram,
};
pub use table_file::{Sstable, read_extras, read_header, remove, restore_toc};
pub use told::{ReadNotes, ToldFact, ToldRead, call_and_note, is_noted, note, noting};
pub use verify::VerifyDepth;
pub use version::{Format, Version};
