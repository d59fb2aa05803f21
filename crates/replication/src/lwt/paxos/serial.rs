//! Reads of one partition that see every conditional write before them.
//!
//! A quorum promises the read's ballot and sends what it has. If no earlier proposal can be chosen any more
//! that is the answer, after one round trip; else it is first agreed that nothing changes.

use std::slice;

use reactor::Deadline;
use storage::{PartitionRange, ReadCommand, RowConsumer};

use super::plain_level;
use super::session::{Next, Proposed, Session, Settled};
use crate::consistency::Consistency;
use crate::error::ReplicationError;
use crate::read::{ReadLimits, RoundRead};
use crate::replicator::Replicator;

impl Replicator {
    /// Feeds `consumer` the rows of one partition, as [`Replicator::read`] does, at SERIAL or LOCAL_SERIAL.
    ///
    /// # Errors
    /// As [`Replicator::read`]; [`ReplicationError::TimedOut`] also where rounds of others did not let it
    /// through.
    pub(crate) async fn read_serial(
        &self,
        command: &ReadCommand,
        limits: ReadLimits,
        level: Consistency,
        deadline: Deadline,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), ReplicationError> {
        let PartitionRange::Key(key) = &command.range else {
            panic!("a serial read is of one partition");
        };
        let round = RoundRead::new(command, limits);
        let mut session = Session::new(self, (&command.table, key), level, (deadline, deadline));
        // Bounded by the deadline.
        loop {
            // A read proposes nothing that could have been chosen.
            let Next::Decide(settled) = session.settle(false, slice::from_ref(&round)).await? else {
                continue;
            };
            let Settled { plan, ballot, is_settled, answers } = *settled;
            if !is_settled && matches!(session.propose_nothing(&plan, ballot).await?, Proposed::Again) {
                continue;
            }
            let way = (&plan, plain_level(level), deadline);
            return round.hand_over(self, way, &answers[0], consumer).await.map(|_| ());
        }
    }
}
