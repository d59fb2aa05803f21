//! `ceto sstable`: contents and checks of table files, without a node and without a schema.
//!
//! Types and columns come from each file's own Statistics; names of key columns are not in a table file and
//! are not shown. Files are only read. Every problem is reported with its file and offset; one file's
//! problems do not keep the others from being read, and any problem makes the exit code 1.

mod dump_data;
mod dump_statistics;
mod list;
mod progress;
mod target;
mod text;
mod verify;

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use ::sstable::SstableError;
use clap::Subcommand;
use model::hex;
use reactor::{Config, run_one};

use target::Target;

/// What can be asked of table files. A file is named by any of its components, such as `me-1-big-Data.db`.
#[derive(Debug, Subcommand)]
pub enum SstableCommand {
    /// A table of the table files in a folder and in the folders below it
    List {
        /// Folder of a table, of a keyspace, or of all data
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// What Statistics.db says: ranges, histograms, types and columns
    DumpStatistics {
        /// Table files
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
    /// Partitions, rows and cells as lines of JSON
    DumpData {
        /// Table files
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// Only the partition with this stored key
        #[arg(long, value_name = "HEX", value_parser = parse_hex)]
        key: Option<Key>,
    },
    /// Check every checksum, the order of keys and rows, the filter, and that the index finds every partition
    Verify {
        /// Table files
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// Look up one partition in 256 through the index instead of every one
        #[arg(long)]
        quick: bool,
    },
}

/// Stored bytes of a partition key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

fn parse_hex(text: &str) -> Result<Key, String> {
    let key = hex::parse(text.strip_prefix("0x").unwrap_or(text)).map(Key);
    key.ok_or_else(|| "expected an even number of hexadecimal digits".to_owned())
}

impl SstableCommand {
    /// Runs it; returns 0 if every file could be read and, if that was requested, is undamaged.
    pub fn run(self) -> ExitCode {
        let config = Config { name: "sstable".to_owned(), ..Config::default() };
        let all_well = run_one(config, async move {
            match self {
                Self::List { dir } => well(list::list(&dir).await),
                Self::DumpStatistics { files } => {
                    each(files, async |target| dump_statistics::dump(&target).await).await
                }
                Self::DumpData { files, key } => {
                    let key = key.map(|key| key.0);
                    each(files, async |target| dump_data::dump(&target, key.as_deref()).await).await
                }
                Self::Verify { files, quick } => {
                    each(files, async |target| verify::verify(&target, quick).await).await
                }
            }
        });
        if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Why a table file could not be shown, or its damage.
#[derive(Debug, thiserror::Error)]
enum ToolError {
    /// Reading or parsing it failed.
    #[error(transparent)]
    Sstable(#[from] SstableError),
    /// Something beside the format could not be read.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A path that is not the name of a table file's component.
    #[error("{path}: not the path of a table file component such as me-1-big-Data.db", path = path.display())]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// More columns than there are numbers for them.
    #[error("{path}: {columns} columns, at most {limit} are read", path = path.display())]
    Columns {
        /// Its Statistics.
        path: PathBuf,
        /// How many.
        columns: usize,
        /// How many there can be.
        limit: usize,
    },
    /// The partition that was asked for is not in the file.
    #[error("{path}: no partition with that key", path = path.display())]
    NoPartition {
        /// The data file.
        path: PathBuf,
    },
    /// Failed checks, which were reported one by one.
    #[error("{path}: {count} problems", path = path.display())]
    Problems {
        /// The data file.
        path: PathBuf,
        /// How many.
        count: usize,
    },
    /// Standard output failed.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

impl ToolError {
    fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// Whether the reader of the output is gone: then output stops without an error message.
    fn is_reader_gone(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

fn well(result: Result<(), ToolError>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            if !error.is_reader_gone() {
                eprintln!("ceto sstable: {error}");
            }
            false
        }
    }
}

/// Does the same with one file after another; returns whether all succeeded.
async fn each<F: Future<Output = Result<(), ToolError>>>(
    files: Vec<PathBuf>,
    mut act: impl FnMut(Target) -> F,
) -> bool {
    let mut all_well = true;
    for path in files {
        let result = match Target::parse(&path) {
            Ok(target) => act(target).await,
            Err(error) => Err(error),
        };
        let gone = matches!(&result, Err(error) if error.is_reader_gone());
        all_well &= well(result);
        if gone {
            break;
        }
    }
    all_well
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_pairs_of_hexadecimal_digits() {
        assert_eq!(parse_hex("0x00fF"), Ok(Key(vec![0, 255])));
        assert_eq!(parse_hex(""), Ok(Key(Vec::new())));
        for text in ["0", "0x123", "zz", "+1", "é"] {
            assert!(parse_hex(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_is_named_by_any_of_its_components() {
        let target = Target::parse("me-3-big-TOC.txt".as_ref()).unwrap();
        assert_eq!(target.path(::sstable::Component::Data), PathBuf::from("./me-3-big-Data.db"));
        assert!(matches!(Target::parse("a/notes.txt".as_ref()), Err(ToolError::Path { .. })));
        let unread = Target::parse("a/zz-3-big-Data.db".as_ref());
        assert!(matches!(unread, Err(ToolError::Sstable(SstableError::Version { .. }))));
    }
}
