//! `ceto perf`: closed-loop load on a CQL server, and a bare echo on the same reactor as the floor beside it.
//!
//! `closed_loop` keeps a number of requests in flight on each connection and times them; `cql` and `echo`
//! define the requests. Client and echo server are one shard each, so that one core is measured against one
//! core. Invariant: a run ends by time or by count, whatever the server does.

mod closed_loop;
pub(crate) mod connection;
mod cql;
mod echo;
mod keys;
mod load;
mod report;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use reactor::{Config, DriverChoice};

/// Most connections of one run.
const CONNECTIONS_MAX: i64 = 10_000;
/// Most requests in flight on one connection; stream ids are 15 bits.
const DEPTH_MAX: i64 = 1024;
/// Longest run in seconds: a day.
const SECONDS_MAX: i64 = 86_400;
/// Longest request or response of the echo, and longest value of a row, in bytes.
const BYTES_MAX: i64 = 1 << 20;
/// Most bytes of requests and responses in flight at once, all connections together.
const IN_FLIGHT_BYTES_MAX: u64 = 1 << 30;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum PerfCommand {
    /// Read and write rows of a CQL server as fast as it answers
    Load(load::LoadOptions),
    /// Answer requests of one size with responses of another: what reactor and kernel cost without a database
    EchoServer(echo::ServerOptions),
    /// Load an echo server
    EchoLoad(echo::LoadOptions),
}

impl PerfCommand {
    /// Runs it to its end; 0 when every request was answered well.
    pub fn run(self) -> ExitCode {
        let result = match self {
            Self::Load(options) => load::run(options),
            Self::EchoServer(options) => echo::serve(options),
            Self::EchoLoad(options) => echo::load(options),
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

/// How a load is sized and how long it lasts.
#[derive(Debug, Clone, Args)]
pub struct LoopOptions {
    /// Connections
    #[arg(long, value_name = "C", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=CONNECTIONS_MAX))]
    pub connections: u32,
    /// Requests in flight on each connection
    #[arg(long, value_name = "D", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=DEPTH_MAX))]
    pub depth: u16,
    /// Seconds that are measured, at most
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=SECONDS_MAX))]
    pub seconds: u32,
    /// Seconds of the same load before them, not counted
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=SECONDS_MAX))]
    pub warm_up_seconds: u32,
    /// Requests that are measured, at most; no limit but the time when left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Seconds an answer may take before the run is given up
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=SECONDS_MAX))]
    pub timeout_seconds: u32,
    /// How the shard talks to the kernel
    #[arg(long, value_enum, default_value_t = Driver::Auto)]
    pub driver: Driver,
    /// Print the result as one line of JSON
    #[arg(long)]
    pub json: bool,
}

impl LoopOptions {
    /// Checks that the requests in flight fit into memory.
    fn check_in_flight(&self, bytes_each: u32) -> Result<(), PerfError> {
        let bytes = u64::from(self.connections) * u64::from(self.depth) * u64::from(bytes_each);
        let limit = IN_FLIGHT_BYTES_MAX;
        if bytes > limit { Err(PerfError::InFlight { bytes, limit }) } else { Ok(()) }
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(u64::from(self.timeout_seconds))
    }
}

/// How a shard talks to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Driver {
    /// io_uring, or epoll where the kernel refuses it
    Auto,
    /// io_uring or nothing
    Uring,
    /// epoll
    Poll,
}

impl Driver {
    fn config(self) -> Config {
        let driver = match self {
            Self::Auto => DriverChoice::Auto,
            Self::Uring => DriverChoice::Uring,
            Self::Poll => DriverChoice::Poll,
        };
        Config { driver, name: "perf".to_owned(), ..Config::default() }
    }
}

/// Why a measurement ended without a result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PerfError {
    /// The network or standard output failed.
    #[error("{what}: {source}")]
    Io {
        /// The action that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// Sizes that would take too much memory.
    #[error("connections x depth x bytes is {bytes}, at most {limit} bytes may be in flight")]
    InFlight {
        /// Bytes that would be in flight.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The server ended a connection.
    #[error("the server closed a connection with {outstanding} requests in flight")]
    Closed {
        /// Requests that were not answered.
        outstanding: usize,
    },
    /// No answer in time.
    #[error("no answer within {seconds} s: {what}")]
    TimedOut {
        /// The awaited event.
        what: String,
        /// The time that was waited.
        seconds: u32,
    },
    /// Bytes that are not a response.
    #[error("the server does not speak the protocol: {0}")]
    Protocol(#[from] wire::ProtocolError),
    /// A response to no request.
    #[error("the server answered stream {stream}, which has no request in flight")]
    Stream {
        /// Its stream id.
        stream: i16,
    },
    /// The server refused a statement that the run needs.
    #[error("{what}: error {code:#06x}: {message}")]
    Server {
        /// The request.
        what: String,
        /// The protocol's error code.
        code: i32,
        /// Its text.
        message: String,
    },
    /// An answer of another kind than expected.
    #[error("{what}: {answer} is not the answer expected")]
    Unexpected {
        /// The request.
        what: String,
        /// The answer's kind.
        answer: String,
    },
    /// `--shard-aware` on a server that does not report the shard of a connection.
    #[error("the server does not name its shards: run without --shard-aware")]
    NoShards,
    /// More partitions than a shard-aware run keeps the keys of.
    #[error("a shard-aware run takes at most {limit} partitions, not {partitions}")]
    Partitions {
        /// Partitions asked for.
        partitions: u64,
        /// The most.
        limit: u64,
    },
    /// No connection landed on a shard.
    #[error("none of {attempts} connections landed on shard {shard} of {shards}")]
    Shard {
        /// Connections made.
        attempts: usize,
        /// The shard without a connection.
        shard: u32,
        /// Number of shards that the server reports.
        shards: u32,
    },
    /// A task of the run ended by panic.
    #[error("{0}")]
    Panicked(#[from] reactor::TaskPanicked),
    /// Some requests failed; the report has their number.
    #[error("{failed} of {all} requests failed, the first with: {first}")]
    Failed {
        /// Requests that failed.
        failed: u64,
        /// Requests answered.
        all: u64,
        /// The error of the first of them.
        first: String,
    },
}

impl PerfError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
