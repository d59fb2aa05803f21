//! Copies that agree: consistency levels, write and read plans, and the way to the shard that has a tablet.
//!
//! One node with one replica runs the same code as a cluster, with plans of one local replica. The shard that
//! owns a tablet executes in place, without a task switch and without allocating; another shard of the node
//! is reached through the mesh with owned bytes. `admission` limits how often one partition may be used.
//! Writes that read first (`lwt`, `counter`) wait in one queue for each partition. This crate does not know
//! CQL.

pub mod admission;
pub mod batchlog;
pub mod consistency;
mod counter;
pub mod error;
pub mod lwt;
mod partition_line;
pub mod read;
pub mod replica_counts;
pub mod replicator;
mod truncate;
pub mod write;

pub use batchlog::{BatchFailure, BatchWrite};
pub use consistency::Consistency;
pub use error::ReplicationError;
pub use lwt::{Ballot, CasDeadlines, CasError, CasOutcome, CasRead, CasRequest};
pub use read::ReadLimits;
pub use replica_counts::ReplicaCounts;
pub use replicator::Replicator;
