//! The subcommands besides the server: reading table files, measuring, and administration.
//!
//! `ceto`'s command line includes [`Tool`] with its own commands. Each tool is one shard on the calling
//! thread that ends by itself: bounded in time, in memory and in the bytes it writes. [`local`] alone runs
//! until it is told to end, and has no shard but for a moment. Results go to standard
//! output, progress and errors to standard error; the exit code is whether the result is good. Invariant: no
//! tool writes to a table file, and no content of a file or of an answer makes a tool panic.

mod client;
pub mod ctl;
pub mod io_setup;
pub mod local;
mod output;
pub mod perf;
pub mod shell;
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
    /// Talk CQL to a node, as with cqlsh: at a terminal, from a file, or a statement
    Shell(shell::ShellCommand),
    /// Ask and tell a node, with nodetool's verbs
    Ctl(ctl::CtlCommand),
    /// Start several nodes on this machine as one cluster, and end them together
    Local(local::LocalCommand),
}

impl Tool {
    /// Runs the tool on a shard of its own until it is done; 0 when all was well, 1 otherwise.
    pub fn run(self) -> ExitCode {
        match self {
            Self::Sstable(command) => command.run(),
            Self::IoSetup(options) => options.run(),
            Self::Stress(command) => command.run(),
            Self::Shell(command) => command.run(),
            Self::Ctl(command) => command.run(),
            Self::Local(command) => command.run(),
        }
    }
}
