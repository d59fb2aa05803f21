//! Table files in Cassandra's `big` format: written as version `me`, read likewise, byte for byte what others read; those of
//! its format `bti` are read from their beginning on.
//!
//! `descriptor` names the files, `data::writer` makes them, `table_file` opens them, `data::reader` hands out what is
//! in them, and `resident` bounds what open ones keep in memory. Coding is pure, and in steps where it is long; only `file`, `data::{chunks,chunk_writer,writer}`, `index::{reader,walked,writer,promoted}`
//! and `table_file` and `verify` talk to the disk, through `reactor::file`. The format: docs/formats/sstable.md.
//! Nothing here knows which files a table has: `storage` does.

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
pub use table_file::{Sstable, read_header, remove, restore_toc};
pub use told::{ReadNotes, ToldRead, call_and_note, noting};
pub use verify::VerifyDepth;
pub use version::{Format, Version};
