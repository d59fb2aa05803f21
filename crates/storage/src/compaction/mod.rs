//! Merges table files of a tablet, and purges data that no read can ask for any more.
//!
//! `strategy` chooses files, `schedule` gives them to workers as jobs, and `job` merges them: `lanes` reads
//! the inputs and `cutter` decides where outputs end. `purge` decides which tombstones may be purged.
//! `exchange` replaces inputs by outputs, and `transaction` makes that survive a crash. `manual`, `cleanup`
//! and `scrub` are the operations that operators ask for, and `running` lists the running ones. `controller`
//! and `throughput` limit the share of the shard's resources that compactions get. Invariant: a file is in at
//! most one job (its mark), and a task that needs a tablet exclusively ends the tablet's jobs.

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
