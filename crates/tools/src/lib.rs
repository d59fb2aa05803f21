//! The subcommands beside the server: looking into table files, measuring, and administration.
//!
//! `ceto`'s command line takes [`Tool`] in beside its own commands. Each tool is one shard on the calling thread that
//! ends by itself: bounded in time, in memory and in what it writes to. Answers go to standard output, progress and
//! errors to standard error; the exit code says whether the answer is a good one.
//! Invariant: no tool writes to a table file, and nothing that a file or a server says makes one panic.

pub mod ctl;
pub mod io_setup;
mod output;
pub mod perf;
pub mod sstable;
pub mod stress;

use std::process::ExitCode;

use clap::Subcommand;

/// What `ceto` can do beside serving.
#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Look into table files, without a node
    #[command(subcommand)]
    Sstable(sstable::SstableCommand),
    /// Measure a disk for the server's I/O scheduler, in a minute or less
    IoSetup(io_setup::IoSetupOptions),
    /// Load a server with cassandra-stress' command lines
    Stress(stress::StressCommand),
    /// Ask and tell a node, with nodetool's verbs
    Ctl(ctl::CtlCommand),
}

impl Tool {
    /// Runs the tool on a shard of its own until it is done; 0 when all was well, 1 otherwise.
    pub fn run(self) -> ExitCode {
        match self {
            Self::Sstable(command) => command.run(),
            Self::IoSetup(options) => options.run(),
            Self::Stress(command) => command.run(),
            Self::Ctl(command) => command.run(),
        }
    }
}
