//! Drives a run: one slice of work after the other, a line for each, then the summary.
//!
//! Used by every bench. Invariant: no slice begins after the end of the run.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use reactor::{Instant, now};
use serde_json::{Map, Value};

use super::PerfError;
use super::meter::Used;
use super::report::{self, Second, Summary};
use crate::config::Driver;

/// Longest run in seconds: a day.
const SECONDS_MAX: i64 = 86_400;
/// Timeout of one operation, for operations that wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Length of a slice.
const SLICE: Duration = Duration::from_secs(1);

/// How long a bench runs, and where its result goes.
#[derive(Debug, Clone, Args)]
pub(super) struct RunOptions {
    /// Seconds to measure, a line each
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=SECONDS_MAX))]
    pub duration: u32,
    /// Write the result to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json_result: Option<PathBuf>,
    /// Directory for what the bench writes; without it one of its own in the system's temporary directory
    #[arg(long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
}

/// The reactor's configuration for a bench on one shard with this driver.
pub(super) fn reactor_with(driver: Driver) -> reactor::Config {
    let driver = match driver {
        Driver::Auto => reactor::DriverChoice::Auto,
        Driver::Uring => reactor::DriverChoice::Uring,
        Driver::Poll => reactor::DriverChoice::Poll,
    };
    reactor::Config { driver, name: "perf".into(), ..reactor::Config::default() }
}

/// When a slice ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// At an instant.
    Time(Instant),
    /// After this many operations on each shard.
    Operations(u64),
}

impl Until {
    /// Whether work continues after `done` operations. May read the clock: do not call it for every
    /// operation.
    pub(super) fn goes_on(self, done: u64) -> bool {
        match self {
            Self::Time(end) => now() < end,
            Self::Operations(count) => done < count,
        }
    }
}

/// The result of a slice.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Slice {
    pub(super) operations: u64,
    /// Operations that failed.
    pub(super) errors: u64,
    /// Measured time in nanoseconds.
    pub(super) elapsed_ns: u64,
    pub(super) used: Used,
}

/// A benchmark.
pub(super) trait Bench {
    /// The name on the command line.
    const NAME: &'static str;
    /// A description of one operation.
    fn operation(&self) -> String;
    /// The parameters of the run.
    fn parameters(&self) -> Map<String, Value>;
    /// The number of operations per shard after which the run ends; `None` ends it by time.
    fn operations_per_shard(&self) -> Option<u64> {
        None
    }
    /// Works until `until`, but performs at least one operation.
    async fn slice(&mut self, until: Until) -> Result<Slice, PerfError>;
}

/// Runs a bench, prints its figures, and stores the result in the file that the options name.
///
/// # Errors
/// Errors of the bench; [`PerfError::Failed`] if operations failed, after printing; [`PerfError::Io`].
pub(super) async fn run<B: Bench>(bench: &mut B, options: &RunOptions) -> Result<(), PerfError> {
    println!("{}: an operation is {}", B::NAME, bench.operation());
    let mut seconds = Vec::new();
    let slices = if bench.operations_per_shard().is_some() { 1 } else { options.duration };
    let end = now() + SLICE * slices;
    for at in 0..slices {
        let until = match bench.operations_per_shard() {
            Some(operations) => Until::Operations(operations),
            None => Until::Time(now() + SLICE),
        };
        let slice = bench.slice(until).await?;
        let second = Second::of(&slice);
        println!("{}", second.line());
        if at == 0 && slice.used.cpu.is_none() {
            println!("(instructions and cycles: this processor or kernel does not let them be counted)");
        }
        seconds.push(second);
        if bench.operations_per_shard().is_none() && now() >= end {
            break; // slices of whole compactions take longer than a second
        }
    }
    let summary = Summary::of(B::NAME, bench.parameters(), seconds);
    for line in summary.lines() {
        println!("{line}");
    }
    if let Some(path) = &options.json_result {
        report::keep(path, &summary).await?;
    }
    match summary.errors() {
        0 => Ok(()),
        failed => Err(PerfError::Failed { failed, all: summary.operations() }),
    }
}
