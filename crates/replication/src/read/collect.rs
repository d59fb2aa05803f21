//! Reads from the shards of a plan one after the other and hands their rows to the consumer.

use storage::{Dead, Flow, Place, ReadCommand, RowConsumer, StorageError, call_and_note};

use model::{RowView, Token};

use super::ReadLimits;
use super::answer::{Answer, Fed, Request, answer};
use super::plan::ReadPlan;
use crate::error::{RemoteFailure, ReplicationError};
use crate::replicator::{Replicator, here};

#[inline]
pub(super) async fn collect(
    replicator: &Replicator,
    plan: &ReadPlan,
    command: &ReadCommand,
    limits: ReadLimits,
    consumer: &mut dyn RowConsumer,
) -> Result<(), ReplicationError> {
    let mut watched = Watched { consumer, stopped: false };
    for shard in plan.shards.clone() {
        if shard == reactor::shard_id() {
            let read = reactor::in_place!(replicator.storage().read(command, &mut watched));
            read.map_err(storage_error)?;
        } else {
            // Boxed, so that a read of this shard does not carry the space of a call.
            Box::pin(remote(shard, command, limits, plan.required, &mut watched)).await?;
        }
        if watched.stopped {
            break;
        }
    }
    Ok(())
}

/// Converts an error of this shard's storage for a read.
#[cold]
pub(super) fn storage_error(error: StorageError) -> ReplicationError {
    match error {
        StorageError::UnknownTable { table } => ReplicationError::TableGone(table),
        error @ StorageError::TooManyReads { .. } => {
            ReplicationError::Overloaded { shard: reactor::shard_id(), reason: error.to_string() }
        }
        error => error.into(),
    }
}

/// Pages of another shard, each bounded, until it has no more or the consumer has enough.
async fn remote(
    shard: usize,
    command: &ReadCommand,
    limits: ReadLimits,
    required: u32,
    watched: &mut Watched<'_>,
) -> Result<(), ReplicationError> {
    let mut next = Some(Request::new(command, limits));
    let mut announced = false;
    while let Some(request) = next {
        let sent = request.clone();
        let page: Answer = call_and_note(shard, reactor::current_group(), move || async move {
            let replicator =
                here().ok_or_else(|| RemoteFailure::Failed("the shard is starting".to_owned()))?;
            answer(&replicator, sent).await
        })
        .await?
        .map_err(|failure: RemoteFailure| failure.at(shard, required))?;
        let fed = page.feed(&mut *watched, announced).ok_or(ReplicationError::BrokenAnswer { shard })?;
        if fed == Fed::Stopped {
            return Ok(());
        }
        announced = fed == Fed::InsidePartition;
        next = request.after(&page, fed, command);
    }
    Ok(())
}

/// Notes whether the consumer stopped, which storage does not report.
struct Watched<'c> {
    consumer: &'c mut dyn RowConsumer,
    stopped: bool,
}

impl Watched<'_> {
    fn note(&mut self, flow: Flow) -> Flow {
        self.stopped |= flow == Flow::Stop;
        flow
    }
}

impl RowConsumer for Watched<'_> {
    fn partition(&mut self, key: &[u8], token: Token, static_row: Option<RowView<'_>>) -> Flow {
        let flow = self.consumer.partition(key, token, static_row);
        self.note(flow)
    }

    #[inline]
    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        let flow = self.consumer.row(clustering, row);
        self.note(flow)
    }

    fn partition_end(&mut self) -> Flow {
        let flow = self.consumer.partition_end();
        self.note(flow)
    }

    fn dead(&mut self, dead: Dead, place: Place<'_>) -> Flow {
        let flow = self.consumer.dead(dead, place);
        self.note(flow)
    }
}
