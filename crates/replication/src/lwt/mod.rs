//! Conditional writes of one partition: read, decided and written with no other conditional write in between.
//!
//! The steps are those of Paxos: the replicas promise a ballot and return their contents; the coordinator
//! decides; its mutation is accepted under that ballot and then made visible to readers. [`CasRequest`] and
//! [`Replicator::cas`] are the interface for callers, for any number of replicas: `decide` may be called more
//! than once. On a node that is alone a promise is the partition's turn on the shard that has it (`acceptor`,
//! `coordinate`), so that ballots never compete; where there are other nodes, replicas agree (`paxos`).
//! Ballots (`ballot`) are the timestamps of the data they write.

mod acceptor;
mod ballot;
mod coordinate;
mod current;
mod paxos;

pub(crate) use acceptor::Acceptor;
pub use acceptor::ROUNDS_MAX;
pub use ballot::Ballot;
pub(crate) use current::Taker;
pub use current::{CURRENT_BYTES_MAX, Current};

use model::ColumnId;
use model::deletion::LocalSeconds;
use reactor::Deadline;
use storage::Slices;

use crate::error::ReplicationError;

#[allow(unused_imports, reason = "named by the documentation")]
use crate::replicator::Replicator;

/// Deadlines of a conditional write.
#[derive(Debug, Clone, Copy)]
pub struct CasDeadlines {
    /// How long contention with other proposals may delay this one (`cas_contention_timeout`).
    pub contention: Deadline,
    /// The time by which an accepted proposal must be written.
    pub write: Deadline,
}

/// The data of its partition that a conditional write reads, besides the static row, which is always read.
#[derive(Debug, Clone)]
pub struct CasRead {
    /// The rows.
    pub slices: Slices,
    /// Most rows that are read.
    pub rows_max: usize,
    /// If given, only rows count that were inserted or have a live cell of one of these columns.
    pub shown_by: Option<Vec<ColumnId>>,
}

/// A conditional write.
pub trait CasRequest {
    /// The error of deciding.
    type Error;

    /// The data read for the decision, and the present time of the request in seconds.
    fn reads(&self) -> (Vec<CasRead>, LocalSeconds);

    /// Decides by the contents of the partition: appends the mutation to be written and returns true, or
    /// returns false if the condition does not hold. Called again with the new contents if another round came
    /// first.
    ///
    /// # Errors
    /// Any error of the request; nothing is written then.
    fn decide(
        &mut self,
        current: &Current,
        ballot: Ballot,
        mutation: &mut Vec<u8>,
    ) -> Result<bool, Self::Error>;
}

/// How a conditional write ended.
#[derive(Debug)]
pub enum CasOutcome {
    /// The condition held and the write is done.
    Applied,
    /// The condition did not hold; these are the existing contents.
    Rejected(Current),
}

/// Why a conditional write failed.
#[derive(Debug)]
pub enum CasError<E> {
    /// The request could not be decided; nothing was written.
    Request(E),
    /// Copies could not be read or written; after a timeout the write may have happened.
    Replication(ReplicationError),
}

impl<E> From<ReplicationError> for CasError<E> {
    fn from(error: ReplicationError) -> Self {
        Self::Replication(error)
    }
}
