//! A read: planned over the replicas that have its partitions, answered in token order.
//!
//! `collect` reads part by part (`parts`, `rest`). What another shard of this node alone is to answer comes
//! as pages of live rows (`answer`). Other parts are read by `copies`: pages with deletions and dead data
//! (`raw_page`), or digests of them, that `ask` gets from as many replicas as the level needs and `replica`
//! reads at each; `merge` makes one of them, and `repair` writes to replicas what they lack. `paced` gives
//! ranges a deadline for each fetch. `round` is a read of which conditional writes get the first page with
//! the promises of its replicas; `sync` one that gives replicas what they lack.

mod answer;
mod ask;
mod collect;
mod copies;
mod merge;
mod paced;
mod parts;
pub mod position;
mod raw_page;
pub(crate) mod repair;
mod replica;
mod rest;
mod round;
mod sync;

use std::pin::pin;
use std::rc::Rc;

use cluster::maps::Routing;
use model::{Table, Token};
use reactor::Deadline;
use storage::{PartitionRange, ReadCommand, RowConsumer};

use crate::admission::{self, Operation};
use crate::consistency::Consistency;
use crate::error::{ReplicaFailure, ReplicationError};
use crate::plan::Distance;
use crate::replicator::Replicator;
use collect::Reading;
use rest::Time;

pub(crate) use replica::serve;
pub(crate) use round::RoundRead;
pub use sync::sync_slice;

/// Whether a read sees every conditional write before it.
fn level_is_serial(level: Consistency) -> bool {
    matches!(level, Consistency::Serial | Consistency::LocalSerial)
}

/// Who answers a read of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
    /// This shard alone.
    Here,
    /// This shard and others, or others alone where nobody counts this shard's reads.
    WithOthers,
    /// Others.
    Elsewhere,
}

/// What a level needs for a read of one partition, who answers it, and the routing by which that was found,
/// where there are other nodes.
#[derive(Debug)]
struct Serving {
    required: u32,
    served: Served,
    routing: Option<Rc<Routing>>,
}

/// The most of a read that the receiver can use; other shards need not send more.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadLimits {
    /// Rows in all; `None` if rows are filtered after they were read.
    pub rows: Option<usize>,
    /// Rows of each partition; 0 for partitions without rows.
    pub rows_per_partition: Option<usize>,
}

/// How far a read came without waiting.
#[derive(Debug)]
pub enum FromMemory {
    /// Everything requested was handed over.
    Done,
    /// Nothing was handed over: call [`Replicator::read`].
    NotBegun,
    /// Memory lacks some of it: continue with [`Replicator::read_unread`].
    Partial(Unread),
}

/// The part of a planned read that memory lacks.
#[derive(Debug)]
pub struct Unread {
    /// Of the replica on this shard.
    local: Box<storage::Unread>,
    /// Answers to wait for.
    required: u32,
    /// The routing it was planned with, where there are other nodes: held until the read has ended.
    _routing: Option<Rc<Routing>>,
}

impl Replicator {
    /// Feeds `consumer` the rows that `command` finds, at `consistency`.
    ///
    /// Partitions come in token order over all replicas. The consumer can end the read at once by its return
    /// value. The time until `deadline` is for one partition's read, or for each fetch of a range, however
    /// many there are.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`] before anything is read; later errors come after the consumer may
    /// have taken rows.
    #[inline]
    pub async fn read(
        &self,
        command: &ReadCommand,
        limits: ReadLimits,
        consistency: Consistency,
        deadline: Deadline,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), ReplicationError> {
        let time = Time::Until(deadline);
        let reading = Reading { replicator: self, command, limits, level: consistency, time, all_of: None };
        let PartitionRange::Key(key) = &command.range else {
            // Boxed, so that a read of one partition does not carry the space of a range's.
            return Box::pin(paced::in_fetches(reading, deadline, consumer)).await;
        };
        // The routing is held until the read has ended.
        let serving = self.serving(&command.table, key.token, consistency)?;
        let Serving { required, served, routing: _ } = serving;
        if admission::may_be_limited(&command.table) && served != Served::Elsewhere {
            let checked = self.limiter().check(&command.table, key.token, Operation::Read, true);
            checked.map_err(|failure| failure.here(required))?;
        }
        if level_is_serial(consistency) && self.view().is_shared() {
            return Box::pin(self.read_serial(command, limits, consistency, deadline, consumer)).await;
        }
        if served == Served::Here {
            let read = pin!(self.storage().read(command, &mut *consumer));
            let error = match reactor::timeout(deadline, read).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => ReplicaFailure::from(error),
                Err(_) => ReplicaFailure::TimedOut,
            };
            if !error.asks_for_a_later_plan() {
                return Err(error.here(required));
            }
        }
        let collecting = Box::pin(reading.collect(consumer));
        let answer = reactor::timeout(deadline, collecting).await;
        answer.unwrap_or_else(|_| Err(ReplicationError::timed_out(0, required)))
    }

    /// Feeds `consumer` the rows that `command` finds in the replicas of this shard alone.
    ///
    /// # Errors
    /// The error of the shard's storage.
    pub async fn read_own(
        &self,
        command: &ReadCommand,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), ReplicationError> {
        let read = self.storage().read(command, consumer).await;
        read.map_err(|error| ReplicaFailure::from(error).here(1))
    }

    /// As [`Replicator::read`], if the partition is this shard's, as far as the read does not have to wait. A
    /// caller that takes the answer calls [`Replicator::note_read`].
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`]; nothing was read then.
    #[inline]
    pub fn read_from_memory(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        consumer: &mut dyn RowConsumer,
    ) -> Result<FromMemory, ReplicationError> {
        let PartitionRange::Key(key) = &command.range else { return Ok(FromMemory::NotBegun) };
        let table = &command.table;
        if admission::may_be_limited(table) {
            return Ok(FromMemory::NotBegun);
        }
        let mut held = None;
        let required = if self.view().is_shared() {
            if level_is_serial(consistency) {
                return Ok(FromMemory::NotBegun);
            }
            match self.serving_of_copies(table, key.token, consistency)? {
                Serving { required, served: Served::Here, routing } => {
                    held = routing;
                    required
                }
                _ => return Ok(FromMemory::NotBegun),
            }
        } else {
            if self.replica_of(table, key.token) != self.own() {
                return Ok(FromMemory::NotBegun);
            }
            self.required_alone(table, consistency)?
        };
        Ok(match self.storage().read_from_memory(command, consumer) {
            storage::FromMemory::Done => FromMemory::Done,
            storage::FromMemory::NotBegun => FromMemory::NotBegun,
            storage::FromMemory::Partial(local) => {
                FromMemory::Partial(Unread { local, required, _routing: held })
            }
        })
    }

    /// What a level needs for a partition, and who answers it.
    #[inline]
    fn serving(&self, table: &Table, token: Token, level: Consistency) -> Result<Serving, ReplicationError> {
        if self.view().is_shared() {
            return self.serving_of_copies(table, token, level);
        }
        let is_here = self.replica_of(table, token) == self.own();
        let served = if is_here { Served::Here } else { Served::Elsewhere };
        Ok(Serving { required: self.required_alone(table, level)?, served, routing: None })
    }

    #[inline(never)]
    fn serving_of_copies(
        &self,
        table: &Table,
        token: Token,
        level: Consistency,
    ) -> Result<Serving, ReplicationError> {
        let required = self.with_counts(table, |counts| level.required(counts));
        if required > 1 && !admission::may_be_limited(table) {
            // Whether so many can answer is seen when they are asked.
            return Ok(Serving { required, served: Served::WithOthers, routing: None });
        }
        let plan = self.plan(table, token, level)?;
        let served = match plan.replicas[0].distance {
            Distance::Here if plan.is_served_by_nearest() => Served::Here,
            Distance::Here => Served::WithOthers,
            _ => Served::Elsewhere,
        };
        let routing = (served == Served::Here).then(|| Rc::clone(plan.routing()));
        Ok(Serving { required: plan.required, served, routing })
    }

    /// Notes that a client gets what [`Replicator::read_from_memory`] handed over, for those who count which
    /// partitions are used.
    #[inline]
    pub fn note_read(&self, table: &Table, key: &[u8]) {
        self.storage().note_read(table.id(), key);
    }

    /// Continues a read that [`Replicator::read_from_memory`] began.
    ///
    /// # Errors
    /// As [`Replicator::read`].
    pub async fn read_unread(
        &self,
        command: &ReadCommand,
        Unread { local, required, _routing }: Unread,
        deadline: Deadline,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), ReplicationError> {
        let reading = pin!(self.storage().read_unread(command, local, consumer));
        match reactor::timeout(deadline, reading).await {
            Ok(read) => read.map_err(|error| ReplicaFailure::from(error).here(required)),
            Err(_) => Err(ReplicationError::timed_out(0, required)),
        }
    }
}
