//! `ceto local`: a cluster of several nodes on one machine, started and ended as one command.
//!
//! The nodes are processes of this program's own `server` command, each with a loopback address and a folder
//! of its own. One thread, the `supervisor`, starts, watches and ends them; everything else sends it events:
//! signals, ends of processes (`process`), requests of other terminals (`control`) and what the nodes answer
//! (`watch`, judged by `agreement`). `plan` makes the nodes' arguments of the command line and of what the
//! directory was made with (`directory`). Invariant: no node outlives its supervisor, however that one ends
//! (`process`), and nothing is started before the directory is locked and every address is free.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the supervisor is no shard: it has threads and files

mod agreement;
mod console;
mod control;
mod directory;
mod event;
mod memory;
mod options;
mod plan;
mod process;
mod status;
mod supervisor;
mod watch;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use options::Verb;

pub use options::LocalCommand;

/// Most nodes of one cluster.
const NODES_MAX: usize = 16;
/// Ports of every node, the server's own defaults: CQL, CQL by shard, other nodes.
const CQL_PORT: u16 = 9042;
const SHARD_AWARE_PORT: u16 = 19042;
const STORAGE_PORT: u16 = 7000;

/// Why a cluster was not started, or a request to a running one failed.
#[derive(Debug, thiserror::Error)]
enum LocalError {
    /// A command line that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// A file or the directory cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The directory's description is not one.
    #[error("{}: not a description of local nodes: {reason}", path.display())]
    Description {
        /// Its path.
        path: PathBuf,
        /// The first error in it.
        reason: String,
    },
    /// Another supervisor has the directory.
    #[error(
        "another `ceto local` runs in {}: `ceto local status --dir {}` shows its nodes, or take another --dir",
        directory.display(), directory.display()
    )]
    Running {
        /// The directory.
        directory: PathBuf,
    },
    /// No supervisor has the directory.
    #[error("no `ceto local` runs in {}: start it with `ceto local --dir {}`", directory.display(), directory.display())]
    NotRunning {
        /// The directory.
        directory: PathBuf,
    },
    /// An address cannot be listened on.
    #[error("node {node} cannot listen on {address}: {source}; {}", advice(source))]
    Address {
        /// The node.
        node: usize,
        /// Its address, and the first port that is not free.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The directory was made with other nodes.
    #[error("{} was made with {made}; {asked}: {advice}, or take another --dir", directory.display())]
    OtherNodes {
        /// The directory.
        directory: PathBuf,
        /// Its nodes.
        made: String,
        /// The nodes that the command line asks for.
        asked: String,
        /// Arguments that fit.
        advice: String,
    },
    /// The system refuses a process, a thread or a signal.
    #[error("cannot {action}: {source}")]
    System {
        /// The refused action.
        action: String,
        /// The system's error.
        source: io::Error,
    },
    /// The supervisor refused a request.
    #[error("{0}")]
    Refused(String),
    /// The supervisor did not answer.
    #[error("the `ceto local` in {} does not answer: {source}", directory.display())]
    Silent {
        /// The directory.
        directory: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Advice for an address that cannot be listened on.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "end the program that listens there, or take other addresses with --first"
        }
        io::ErrorKind::AddrNotAvailable => "it is no address of this machine: take another one with --first",
        _ => "take other addresses with --first",
    }
}

impl LocalError {
    fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::System { action, source }
    }
}

impl LocalCommand {
    /// Runs a cluster until it is told to end, or passes a request to a running one; 0 when all was well.
    pub(crate) fn run(self) -> ExitCode {
        let ended = match &self.verb {
            None => supervisor::run(&self.directory, &self.start),
            Some(Verb::RunNode { parent, arguments }) => Err(process::become_node(*parent, arguments)),
            Some(verb) => self.start.refuse_beside_a_verb().and_then(|()| {
                let text = control::ask(&self.directory, &verb.request())?;
                console::print(&text);
                Ok(ExitCode::SUCCESS)
            }),
        };
        ended.unwrap_or_else(|error| {
            console::complain(&error.to_string());
            ExitCode::FAILURE
        })
    }
}
