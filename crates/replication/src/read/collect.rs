//! Reads from the replicas of a plan one after the other and hands their rows to the consumer.

use storage::{Dead, Flow, Place, ReadCommand, RowConsumer, call_and_note};

use model::{RowView, Token};

use super::ReadLimits;
use super::answer::{Answer, Fed, Request, answer};
use super::plan::{ReadPlan, within};
use crate::error::{ReplicaFailure, ReplicationError};
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
    for run in plan.runs() {
        let part = within(command, &run);
        let command = part.as_ref().unwrap_or(command);
        if run.replica == replicator.own() {
            let read = reactor::in_place!(replicator.storage().read(command, &mut watched));
            read.map_err(|error| ReplicaFailure::from(error).here(plan.required))?;
        } else {
            // Boxed, so that a read of this shard does not carry the space of a call.
            Box::pin(remote(replicator.shard_of(run.replica), command, limits, plan.required, &mut watched))
                .await?;
        }
        if watched.stopped {
            break;
        }
    }
    Ok(())
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
            let replicator = here().ok_or_else(ReplicaFailure::starting)?;
            answer(&replicator, sent).await
        })
        .await
        .unwrap_or_else(|error| Err(error.into()))
        .map_err(|failure: ReplicaFailure| failure.at(shard, required))?;
        let broken = || ReplicaFailure::Failed("its answer is broken".to_owned()).at(shard, required);
        let fed = page.feed(&mut *watched, announced).ok_or_else(broken)?;
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
