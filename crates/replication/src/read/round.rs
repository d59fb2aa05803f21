//! A read whose first page comes with the promises of a round: the acceptors of a conditional write or of a
//! serial read send what they have of the partition.
//!
//! The page is merged and repaired as any page of several replicas. What it does not bring whole is read on
//! at the plain level of as many replicas: the promises are given, so that what is read later is as valid.

use model::mutation::MutationView;
use model::{DeletionTime, Liveness, RowView};
use reactor::Deadline;
use storage::{ReadCommand, RowConsumer};
use wire::node::answer::Answer;

use super::collect::{Reading, Watched};
use super::copies::{Contents, hand_over, page_of};
use super::raw_page::PageOf;
use super::replica::checked;
use super::rest::{Part, Rest, Time};
use super::{ReadLimits, ask};
use crate::consistency::Consistency;
use crate::error::{ReplicaFailure, ReplicationError};
use crate::plan::{Plan, Planned};
use crate::replicator::Replicator;

/// A read of one partition, and its first page.
#[derive(Debug, Clone)]
pub(crate) struct RoundRead<'a> {
    command: &'a ReadCommand,
    limits: ReadLimits,
    page: PageOf,
}

impl<'a> RoundRead<'a> {
    pub(crate) fn new(command: &'a ReadCommand, limits: ReadLimits) -> Self {
        Self { command, limits, page: page_of(command, limits, &rest_of(command)) }
    }

    /// The request for the first page, for a replica since the command `since`.
    pub(crate) fn encode(&self, version: u64, since: u64) -> Vec<u8> {
        let mut body = Vec::new();
        ask::encode(self.command, &self.page, (version, since), 0, &mut body);
        body
    }

    /// Checks that a replica's answer has nothing that was not asked for.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn check(&self, answer: &[u8]) -> Result<(), ReplicaFailure> {
        checked(self.command, answer).map(drop)
    }

    /// Hands the rows to `consumer`: those of the first page out of the checked answers of a plan's replicas,
    /// and the rest at `level`. Returns the latest timestamp in the answers.
    ///
    /// # Errors
    /// Those of a read at `level`.
    pub(crate) async fn hand_over(
        &self,
        replicator: &Replicator,
        (plan, level, deadline): (&Plan, Consistency, Deadline),
        answers: &[(Planned, Vec<u8>)],
        consumer: &mut dyn RowConsumer,
    ) -> Result<i64, ReplicationError> {
        let contents: Contents<'_> =
            answers.iter().map(|(planned, bytes)| (*planned, bytes.as_slice())).collect();
        let time = Time::Until(deadline);
        let reading =
            Reading { replicator, command: self.command, limits: self.limits, level, time, all_of: None };
        let mut watched = Watched::new(consumer);
        let handing = async {
            let page = (self.command, self.page);
            let rest = rest_of(self.command);
            match hand_over(&reading, plan, page, rest, (&contents, deadline), &mut watched).await? {
                Part::Done | Part::Stopped => Ok(()),
                Part::Left(rest) | Part::Again(rest, _) => reading.collect_rest(rest, &mut watched).await,
            }
        };
        let handed = reactor::timeout(deadline, handing).await;
        handed.unwrap_or_else(|_| Err(ReplicationError::timed_out(0, plan.required)))?;
        let timestamps = contents.iter().filter_map(|(_, bytes)| {
            let answer = Answer::decode(bytes).ok()?;
            answer.partitions.iter().map(|partition| latest_timestamp(&partition.mutation)).max()
        });
        Ok(timestamps.max().unwrap_or(i64::MIN))
    }
}

/// All that a command reads.
fn rest_of(command: &ReadCommand) -> Rest {
    Rest { range: command.range.clone(), slices: command.slices.clone(), inside: None, then: None }
}

/// The latest timestamp in a mutation, deletions included.
fn latest_timestamp(mutation: &MutationView<'_>) -> i64 {
    let of_deletion = |deletion: DeletionTime| if deletion.is_live() { i64::MIN } else { deletion.timestamp };
    let ranges = mutation.tombstones().map(|(.., deletion)| of_deletion(deletion));
    let rows = mutation.static_row().into_iter().chain(mutation.rows().map(|(_, row)| row));
    let of_row = |row: RowView<'_>| {
        let liveness = row.liveness();
        let inserted = if liveness == Liveness::NONE { i64::MIN } else { liveness.timestamp };
        let cells = row.cells().map(|cell| cell.timestamp).max().unwrap_or(i64::MIN);
        inserted.max(of_deletion(row.deletion())).max(cells)
    };
    rows.map(of_row).chain(ranges).max().unwrap_or(i64::MIN).max(of_deletion(mutation.deletion))
}
