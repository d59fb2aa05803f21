//! Conditional writes of one partition: looked at, decided and written with nobody of their kind in between.
//!
//! The steps are Paxos's: a ballot is promised by the replicas together with what they hold (`prepare`), the
//! coordinator decides, and what it wants written is accepted under that ballot (`propose`, here `accept`) and then
//! shown to readers (`commit`, part of `accept` while there is one replica). [`CasRequest`] and [`Replicator::cas`] are
//! what callers see of it, whatever the number of replicas: `decide` may be asked more than once.
//! With one replica a promise is the partition's turn in line at the shard that has it, so that ballots never compete.
//! Ballots are the timestamps of what they write: they only grow on a shard, and a shard has all of a partition.

mod acceptor;
mod coordinate;
mod current;

pub(crate) use acceptor::Acceptor;
pub use acceptor::ROUNDS_MAX;
pub(crate) use current::Taker;
pub use current::{CURRENT_BYTES_MAX, Current};

use model::ColumnId;
use model::deletion::LocalSeconds;
use reactor::Deadline;
use storage::Slices;

use crate::error::ReplicationError;

#[allow(unused_imports, reason = "named by the documentation")]
use crate::replicator::Replicator;

/// Identity and order of a round, and the timestamp in microseconds of what it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ballot(pub i64);

/// How long a conditional write may take.
#[derive(Debug, Clone, Copy)]
pub struct CasDeadlines {
    /// Until when others of its kind may keep it from being proposed (`cas_contention_timeout`).
    pub contention: Deadline,
    /// Until when what was proposed must be written.
    pub write: Deadline,
}

/// What a conditional write has to know of its partition; the static row always comes along.
#[derive(Debug, Clone)]
pub struct CasRead {
    /// Which rows.
    pub slices: Slices,
    /// How many of them at most.
    pub rows_max: usize,
    /// Where it is given, only rows count that were inserted or have a live cell of one of these columns.
    pub shown_by: Option<Vec<ColumnId>>,
}

/// A conditional write.
pub trait CasRequest {
    /// What can be wrong with deciding it.
    type Error;

    /// What is read for the decision, and the seconds that count as now.
    fn reads(&self) -> (Vec<CasRead>, LocalSeconds);

    /// Decides by what the partition holds: appends the mutation to be written and returns true, or returns false
    /// where the condition does not hold. Called again with what is there then where another round came first.
    ///
    /// # Errors
    /// Whatever is wrong with the request; nothing is written then.
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
    /// It did not; this is what was there.
    Rejected(Current),
}

/// Why a conditional write did not end.
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
