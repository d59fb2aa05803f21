//! Copies that agree: consistency levels, write and read plans, and the way to the shard that has a tablet.
//!
//! On one node with one replica this is the code a cluster runs, with plans of one local replica. The shard that owns a
//! tablet executes in place, without a task switch and without allocating; another shard of the node is reached through
//! the mesh with owned bytes. `admission` says how often one partition may be used. What reads before it writes (`lwt`, `counter`) stands in one line for each partition. It speaks no CQL.

pub mod admission;
pub mod batchlog;
pub mod consistency;
mod counter;
pub mod error;
pub mod lwt;
mod partition_line;
pub mod placement;
pub mod read;
pub mod replicator;
pub mod write;

pub use batchlog::{BatchFailure, BatchWrite};
pub use consistency::Consistency;
pub use error::ReplicationError;
pub use lwt::{Ballot, CasDeadlines, CasError, CasOutcome, CasRead, CasRequest};
pub use placement::Placement;
pub use read::ReadLimits;
pub use replicator::Replicator;
