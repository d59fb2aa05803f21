//! Writes and reads of statements through the engine: deadlines, statistics, and errors in the form for
//! clients.

use std::rc::Rc;
use std::time::Duration;

use model::mutation::MutationView;
use model::{Table, Token};
use reactor::Deadline;
use replication::read::{FromMemory, Unread};
use replication::write::Pending;
use replication::{BatchFailure, BatchWrite, Consistency, ReadLimits, ReplicationError};
use storage::{PartitionRange, ReadCommand, RowConsumer};
use wire::error::WriteType;

use super::{Engine, VIRTUAL_PREFIX};
use crate::QueryError;
use crate::execute::consistency;
use crate::execute::counter::Totals;

/// A mutation beyond this has its deadline from the clock itself: making it may have taken a good part of its
/// time.
const LONG_MUTATION_BYTES: usize = 16 * 1024;

impl Engine {
    /// Writes one mutation.
    #[inline]
    pub(crate) async fn write(
        &self,
        table: &Table,
        mutation: &[u8],
        level: Consistency,
        write_type: WriteType,
        timeout: Option<Duration>,
    ) -> Result<(), QueryError> {
        let timeout = timeout.unwrap_or(self.0.config.write_timeout);
        // A long mutation has taken time of this slice already.
        let is_long = mutation.len() > LONG_MUTATION_BYTES;
        let deadline = if is_long { Deadline::after(timeout) } else { Deadline::about(timeout) };
        let written = reactor::in_place!(self.0.replicator.write(table, mutation, level, deadline));
        written.map_err(|error| Self::write_failed(error, table, mutation, level, write_type))
    }

    /// As [`Self::write`], if nothing has to be waited for before the commit log has the mutation; otherwise
    /// `None`, and nothing was begun. Errors of the returned write go through [`Self::write_failed`]. The
    /// caller has checked [`Replicator::can_begin_writes`] and not waited since.
    // Always: a call of its own costs 40 instructions on the road of plain writes, and there are two callers.
    #[inline(always)]
    pub(crate) fn begin_mutation(
        &self,
        table: &Table,
        (mutation, token): (&[u8], Token),
        level: Consistency,
        timeout: Option<Duration>,
    ) -> Result<Option<Pending>, ReplicationError> {
        if mutation.len() > LONG_MUTATION_BYTES {
            return Ok(None);
        }
        let deadline = Deadline::about(timeout.unwrap_or(self.0.config.write_timeout));
        self.0.replicator.begin_write(table, (mutation, token), level, deadline)
    }

    /// The client's error for a write that failed.
    #[cold]
    pub(crate) fn write_failed(
        error: ReplicationError,
        table: &Table,
        mutation: &[u8],
        level: Consistency,
        write_type: WriteType,
    ) -> QueryError {
        let key = MutationView::trusted(mutation).map_or(&[][..], |view| view.key);
        consistency::write_error(error, level, write_type, table, key)
    }

    /// Writes to several partitions, either all or none of them.
    pub(crate) async fn write_batch(
        &self,
        writes: Vec<BatchWrite>,
        level: Consistency,
        timeout: Option<Duration>,
    ) -> Result<(), QueryError> {
        let deadline = Deadline::after(timeout.unwrap_or(self.0.config.write_timeout));
        let id = self.ambient().timeuuid();
        // Kept for the error of the write that failed.
        let named: Vec<_> = writes.iter().map(|write| Rc::clone(&write.table)).collect();
        let keys: Vec<_> = writes.iter().map(|write| consistency::mutation_key(&write.mutation)).collect();
        let written = self.0.replicator.write_batch(*id.as_bytes(), writes, level, deadline).await;
        written.map_err(|failure| match failure {
            BatchFailure::Log(error) => consistency::batch_log_error(error, id),
            BatchFailure::Write { at, error } => {
                consistency::write_error(error, level, WriteType::Batch, &named[at], &keys[at])
            }
        })
    }

    /// Applies one mutation of a table of counters.
    pub(crate) async fn count(
        &self,
        table: &Table,
        mutation: &[u8],
        level: Consistency,
        timeout: Option<Duration>,
    ) -> Result<(), QueryError> {
        let deadline = Deadline::after(timeout.unwrap_or(self.0.config.write_timeout));
        let node = self.0.config.host_id;
        let counted = self.0.replicator.count(table, mutation, node, level, deadline).await;
        counted.map_err(|error| {
            let key = MutationView::trusted(mutation).map_or(&[][..], |view| view.key);
            consistency::write_error(error, level, WriteType::Counter, table, key)
        })
    }

    /// Hands the rows that a command selects to the consumer, from a stored table or one of the node's own.
    #[inline]
    pub(crate) async fn read(
        &self,
        command: &ReadCommand,
        limits: ReadLimits,
        level: Consistency,
        timeout: Option<Duration>,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), QueryError> {
        let table = &command.table;
        // The name is compared before the look-up, since users' keyspaces seldom begin like this.
        if table.keyspace().starts_with(VIRTUAL_PREFIX)
            && self.0.virtual_tables.table(table.keyspace(), table.name()).is_some()
        {
            if matches!(table.keyspace(), "system" | "system_schema") {
                // Tables of the node itself have one copy, and a level that wants more is not reached.
                self.0
                    .replicator
                    .required(table.keyspace(), level)
                    .map_err(|error| consistency::read_error(error, level))?;
            }
            return self.0.virtual_tables.read(self, command, consumer).await;
        }
        let timeout = timeout.unwrap_or(match command.range {
            PartitionRange::Key(_) => self.0.config.read_timeout,
            PartitionRange::Between { .. } => self.0.config.range_timeout,
        });
        let deadline = Deadline::about(timeout);
        let load = self.load_of(table);
        let requests = load.requests(&command.range);
        let began = requests.begin();
        let serial = matches!(level, Consistency::Serial | Consistency::LocalSerial).then(reactor::now);
        let read = if table.is_counter() {
            // Rare: boxed, so that other reads do not carry its space.
            Box::pin(self.read_counters(command, limits, level, deadline, consumer)).await
        } else {
            reactor::in_place!(self.0.replicator.read(command, limits, level, deadline, consumer))
        };
        requests.end(began);
        if let Some(serial) = serial {
            self.loads().cas_read_ended(serial);
        }
        read.map_err(|error| consistency::read_error(error, level))
    }

    /// As [`Self::read`], if nothing has to be waited for; see [`FromMemory`].
    #[inline]
    pub(crate) fn read_from_memory(
        &self,
        command: &ReadCommand,
        level: Consistency,
        consumer: &mut dyn RowConsumer,
    ) -> Result<FromMemory, QueryError> {
        let table = &command.table;
        if table.is_counter() || table.keyspace().starts_with(VIRTUAL_PREFIX) {
            return Ok(FromMemory::NotBegun);
        }
        let read = self.0.replicator.read_from_memory(command, level, consumer);
        read.map_err(|error| self.refused_at_once(table, error, level))
    }

    /// Counts a read that was refused, as [`Self::read`] does.
    #[cold]
    fn refused_at_once(&self, table: &Table, error: ReplicationError, level: Consistency) -> QueryError {
        self.load_of(table).reads.end(None);
        consistency::read_error(error, level)
    }

    /// Continues a read that [`Self::read_from_memory`] began.
    pub(crate) async fn read_unread(
        &self,
        command: &ReadCommand,
        unread: Unread,
        level: Consistency,
        timeout: Option<Duration>,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), QueryError> {
        let deadline = Deadline::about(timeout.unwrap_or(self.0.config.read_timeout));
        let load = self.load_of(&command.table);
        let began = load.reads.begin();
        let read = self.0.replicator.read_unread(command, unread, deadline, consumer).await;
        load.reads.end(began);
        read.map_err(|error| consistency::read_error(error, level))
    }

    async fn read_counters(
        &self,
        command: &ReadCommand,
        limits: ReadLimits,
        level: Consistency,
        deadline: Deadline,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), ReplicationError> {
        let mut totals = Totals::new(consumer);
        self.0.replicator.read(command, limits, level, deadline, &mut totals).await
    }
}
