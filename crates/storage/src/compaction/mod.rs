//! Merges table files of a tablet, and forgets what nobody can ask for any more.
//!
//! `strategy` chooses files, `schedule` gives them to workers as jobs, `job` merges them (`lanes` in, `cutter` decides
//! where outputs end), `purge` says what may be forgotten, `exchange` puts outputs in the place of inputs and
//! `transaction` makes that survive a crash. `manual`, `cleanup` and `scrub` are what operators ask for, `running` what they are shown,
//! `controller` and `throughput` how much of the shard all of it gets.
//! Invariant: a file is in at most one job (its mark), and whoever wants a tablet alone ends its jobs.

mod cleanup;
mod controller;
mod cutter;
mod exchange;
mod job;
mod lanes;
mod manual;
mod purge;
mod running;
mod schedule;
mod scrub;
mod strategy;
mod throughput;
pub(crate) mod transaction;
mod verify;
mod view;

pub use manual::{CompactOptions, CompactOutcome, TableFileInfo};
pub use running::{
    CompactionFilter, CompactionKind, CompactionRecord, CompactionStats, CompactionTotals, HISTORY_MAX,
};
pub use scrub::{ScrubMode, ScrubReport};
pub use verify::{DamagedFile, VerifyOptions, VerifyReport};

pub(crate) use running::Compactions;
pub(crate) use strategy::Chooser;
pub(crate) use view::Facts;
