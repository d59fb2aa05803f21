//! `ceto perf`: benches that run inside the process, and the loads over sockets from `tools`.
//!
//! Each bench repeats one kind of operation, prints a line per second in the format of ScyllaDB's benches,
//! and ends with the median rate, its median absolute deviation, the maximum and the minimum. `run` drives
//! the seconds, `meter` counts the costs of operations, `report` prints and stores results, `compare`
//! compares two stored runs; a bench defines its operation.
//! Invariant: a run ends by time or by count, and removes the directory that it created itself.

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
mod scan;
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
    /// Pages, ranges of tokens, filters and aggregates over many partitions, answered in process
    Scan(scan::Options),
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
    /// Runs the command; the exit code is 0 if all operations succeeded.
    pub fn run(self) -> ExitCode {
        let result = match self {
            Self::SimpleQuery(options) => simple_query::run(options),
            Self::Compaction(options) => compaction::run(options),
            Self::Sstable(options) => sstable::run(options),
            Self::Scan(options) => scan::run(options),
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
        /// The action that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The node did not open or close.
    #[error("the node: {0}")]
    Node(String),
    /// The error of a shard, as text.
    #[error("{0}")]
    Elsewhere(String),
    /// An error of the storage.
    #[error(transparent)]
    Storage(#[from] storage::StorageError),
    /// A change of the schema was not made.
    #[error(transparent)]
    Schema(#[from] cluster::ClusterError),
    /// An error of a table file.
    #[error(transparent)]
    Sstable(#[from] ::sstable::SstableError),
    /// A statement was refused or answered with something else.
    #[error("{what}: {answer} is not the answer expected")]
    Unexpected {
        /// The request.
        what: String,
        /// The answer.
        answer: String,
    },
    /// A statement does not parse.
    #[error("{statement}: {reason}")]
    Syntax {
        /// The statement.
        statement: String,
        /// The parser's error.
        reason: String,
    },
    /// Shards could not be started.
    #[error(transparent)]
    Start(#[from] reactor::StartError),
    /// A shard panicked.
    #[error(transparent)]
    Panicked(#[from] reactor::ShardPanicked),
    /// A task panicked.
    #[error(transparent)]
    Task(#[from] reactor::TaskPanicked),
    /// A shard did not answer.
    #[error(transparent)]
    Mesh(#[from] reactor::mesh::MeshError),
    /// A file is not a stored run.
    #[error("{} is not a kept run: {reason}", path.display())]
    NotARun {
        /// The file.
        path: PathBuf,
        /// Why it is not a stored run.
        reason: String,
    },
    /// The two runs are of different benches.
    #[error("{old} and {new} are different benches")]
    DifferentBenches {
        /// The bench of the old run.
        old: String,
        /// The bench of the new run.
        new: String,
    },
    /// Figures grew beyond the allowed limit.
    #[error("{}", .0.join("; "))]
    Grew(Vec<String>),
    /// Some operations failed.
    #[error("{failed} of {all} operations failed")]
    Failed {
        /// Number of operations that failed.
        failed: u64,
        /// Number of all operations.
        all: u64,
    },
}

impl PerfError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
