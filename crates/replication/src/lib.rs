//! Copies that agree: consistency levels, write and read plans, and the way to the shard that has a tablet.
//!
//! A partition of which one replica, on this shard, is to answer is read and written in place, without a task
//! switch and without allocating; on another shard of the node it is reached through the mesh with owned
//! bytes. Everything else goes through a [`plan`]: the replicas of one tablet at one version of its routing,
//! and what the level waits for (`tally`). Other nodes are reached through [`Peers`], whose requests `serve`
//! answers there. What a replica missed is kept and delivered late (`hints`), and logged batches are finished
//! by other nodes where their coordinator is gone (`batchlog`). `admission` limits how often one partition
//! may be used, `speculation` says when a read asks one replica more. Writes that read first (`lwt`,
//! `counter`) wait in one queue for each partition. This crate does not know CQL.

pub mod admission;
pub mod batchlog;
pub mod consistency;
mod counter;
pub mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod hints;
pub mod lwt;
mod partition_line;
pub mod peers;
mod plan;
pub mod read;
pub mod replica_counts;
pub mod replicator;
mod serve;
mod speculation;
mod tally;
mod truncate;
pub mod write;

pub use batchlog::{BatchFailure, BatchWrite};
pub use consistency::Consistency;
pub use error::{Endpoint, FailureReason, ReplicationError};
pub use hints::{HintsConfig, HintsError, PendingHints};
pub use lwt::{Ballot, CasDeadlines, CasError, CasOutcome, CasRead, CasRequest};
pub use peers::Peers;
pub use read::ReadLimits;
pub use replica_counts::ReplicaCounts;
pub use replicator::Replicator;
