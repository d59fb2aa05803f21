//! The time limit of a range read: one deadline for each fetch of it, not for the whole.
//!
//! A full scan or an aggregate may read for hours; only its next fetch must come in time. Cassandra does the
//! same: its `range_request_timeout` applies to each internal page of [`FETCH_ROWS`] rows. Each
//! dead item that the read has to pass counts as a row, since passing it is the same work. A read of one
//! partition keeps its one deadline.

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use model::{RowView, Token};
use reactor::Deadline;
use storage::{Dead, Flow, Place, RowConsumer};

use super::collect::Reading;
use super::rest::Time;
use crate::error::ReplicationError;

/// Rows of one fetch: Cassandra's `SelectStatement.DEFAULT_PAGE_SIZE`, by which it reads for aggregates.
const FETCH_ROWS: u32 = 10_000;

/// Reads a range; `deadline` is the first fetch's, and each fetch takes as long at most.
pub(super) async fn in_fetches(
    reading: Reading<'_>,
    deadline: Deadline,
    consumer: &mut dyn RowConsumer,
) -> Result<(), ReplicationError> {
    let current = Cell::new(deadline);
    let patience = deadline.remaining();
    // A page of replicas has the deadline of its fetch, so that its error tells who answered in time.
    let reading = Reading { time: Time::Fetch(&current), ..reading };
    let mut paced = Paced { consumer, left: FETCH_ROWS, patience, deadline: &current };
    let mut answer = pin!(reading.collect(&mut paced));
    // Each round has a later deadline than the one before.
    loop {
        let until = current.get();
        match reactor::timeout(until, answer.as_mut()).await {
            Ok(answer) => return answer,
            Err(_) if current.get() == until => {
                let required = reading.replicator.required(reading.command.table.keyspace(), reading.level);
                return Err(ReplicationError::timed_out(0, required.unwrap_or(1)));
            }
            Err(_) => {}
        }
    }
}

/// Counts rows, and begins a new fetch after a full one.
struct Paced<'c> {
    consumer: &'c mut dyn RowConsumer,
    left: u32,
    patience: Duration,
    deadline: &'c Cell<Deadline>,
}

impl Paced<'_> {
    #[inline]
    fn count(&mut self, read: u32) {
        self.left = self.left.saturating_sub(read);
        if self.left == 0 {
            self.left = FETCH_ROWS;
            if self.deadline.get() != Deadline::NEVER {
                self.deadline.set(Deadline::after(self.patience));
            }
        }
    }
}

impl RowConsumer for Paced<'_> {
    fn partition(&mut self, key: &[u8], token: Token, static_row: Option<RowView<'_>>) -> Flow {
        self.count(1);
        self.consumer.partition(key, token, static_row)
    }

    #[inline]
    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        self.count(1);
        self.consumer.row(clustering, row)
    }

    fn partition_end(&mut self) -> Flow {
        self.consumer.partition_end()
    }

    fn dead(&mut self, dead: Dead, place: Place<'_>) -> Flow {
        self.count(dead.passed);
        self.consumer.dead(dead, place)
    }
}
