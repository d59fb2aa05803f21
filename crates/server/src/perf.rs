//! `ceto perf`: benches of the program itself, in process, and the loads over sockets that `tools` has.
//!
//! Each bench does one kind of operation over and over, prints a line a second in the field's form and ends with the
//! median, the median absolute deviation, the greatest and the least rate. `run` turns the seconds, `meter` counts
//! what an operation took, `report` prints and keeps, `compare` sets two kept runs side by side; a bench says what an
//! operation is. Invariant: a run ends by time or by count, and leaves nothing behind in a directory it made itself.

mod client;
mod commitlog;
mod compaction;
mod compare;
mod cql_parse;
mod directory;
mod meter;
mod report;
mod row_cache_update;
mod run;
mod simple_query;
mod sstable;
mod table;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum PerfCommand {
    /// Prepared point requests answered in process: frame bytes in, frame bytes out, no socket
    SimpleQuery(simple_query::Options),
    /// Merging table files into one
    Compaction(compaction::Options),
    /// Writing a table file, scanning one, and reading partitions by its index
    Sstable(sstable::Options),
    /// Reading statements
    CqlParse(cql_parse::Options),
    /// Merging what a memtable says into the row cache
    RowCacheUpdate(row_cache_update::Options),
    /// Appending to a commit log
    Commitlog(commitlog::Options),
    /// Set a run beside one that was kept
    Compare(compare::Options),
    /// Over sockets.
    #[command(flatten)]
    Sockets(tools::perf::PerfCommand),
}

impl PerfCommand {
    /// Runs it to its end; 0 when all was answered well.
    pub fn run(self) -> ExitCode {
        let result = match self {
            Self::SimpleQuery(options) => simple_query::run(options),
            Self::Compaction(options) => compaction::run(options),
            Self::Sstable(options) => sstable::run(options),
            Self::CqlParse(options) => cql_parse::run(options),
            Self::RowCacheUpdate(options) => row_cache_update::run(options),
            Self::Commitlog(options) => commitlog::run(options),
            Self::Compare(options) => compare::run(options),
            Self::Sockets(command) => return command.run(),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("ceto perf: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

/// Why a measurement ended without a result.
#[derive(Debug, thiserror::Error)]
enum PerfError {
    /// A file or standard output failed.
    #[error("{what}: {source}")]
    Io {
        /// While doing what.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The node did not open or close.
    #[error("the node: {0}")]
    Node(String),
    /// What a shard of its own said.
    #[error("{0}")]
    Elsewhere(String),
    /// Storage failed.
    #[error(transparent)]
    Storage(#[from] storage::StorageError),
    /// A table file failed.
    #[error(transparent)]
    Sstable(#[from] ::sstable::SstableError),
    /// A statement was refused or answered with something else.
    #[error("{what}: {answer} is not the answer expected")]
    Unexpected {
        /// What was asked.
        what: String,
        /// What came.
        answer: String,
    },
    /// A statement of the mix that does not parse.
    #[error("{statement}: {reason}")]
    Syntax {
        /// The statement.
        statement: String,
        /// What the parser said.
        reason: String,
    },
    /// Shards could not be started.
    #[error(transparent)]
    Start(#[from] reactor::StartError),
    /// A shard broke.
    #[error(transparent)]
    Panicked(#[from] reactor::ShardPanicked),
    /// A task broke.
    #[error(transparent)]
    Task(#[from] reactor::TaskPanicked),
    /// A shard did not answer.
    #[error(transparent)]
    Mesh(#[from] reactor::mesh::MeshError),
    /// A file that is no kept run.
    #[error("{} is not a kept run: {reason}", path.display())]
    NotARun {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Two runs that measured different things.
    #[error("{old} and {new} are different benches")]
    DifferentBenches {
        /// Of the old run.
        old: String,
        /// Of the new run.
        new: String,
    },
    /// Counts grew beyond what is allowed.
    #[error("{}", .0.join("; "))]
    Grew(Vec<String>),
    /// Some operations failed.
    #[error("{failed} of {all} operations failed")]
    Failed {
        /// Operations that failed.
        failed: u64,
        /// All of them.
        all: u64,
    },
}

impl PerfError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
