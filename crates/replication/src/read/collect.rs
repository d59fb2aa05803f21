//! Reads from the replicas of a token range part by part, in token order, and hands their rows to the reader.
//!
//! A part is what neighbouring tablets with the same replicas have of the read. It is read by this shard
//! alone, by another shard of this node, or by several replicas page by page (`copies`). Each part is planned
//! with the routing of its moment; a replica that knows another state has it planned again. Invariant: parts
//! and pages follow each other without gap or overlap.

use cluster::maps::Routing;
use model::tablet::{NodeNumber, Replica};
use model::{RowView, Token};
use storage::{
    Dead, Flow, PartitionBound, PartitionRange, Place, ReadCommand, RowConsumer, StorageError, call_and_note,
};

use super::answer::{Answer, Fed, Request, answer};
use super::parts::{behind_run, first_run, within};
use super::rest::{Part, Rest, Time};
use super::{ReadLimits, copies};
use crate::consistency::Consistency;
use crate::error::{ReplicaFailure, ReplicationError};
use crate::plan::{Distance, Plan, Purpose};
use crate::replicator::{Replicator, here};

/// A read that is under way.
pub(super) struct Reading<'a> {
    pub(super) replicator: &'a Replicator,
    pub(super) command: &'a ReadCommand,
    pub(super) limits: ReadLimits,
    pub(super) level: Consistency,
    pub(super) time: Time<'a>,
    /// Reads from all of these nodes and from a replica that joins or leaves, whatever the level, and repairs
    /// them whatever the table's options say.
    pub(super) all_of: Option<&'a [NodeNumber]>,
}

/// The way to the replicas of a part.
enum Way {
    Here,
    Shard(usize),
    Copies(Box<Plan>),
}

impl Reading<'_> {
    /// Reads everything, or until the consumer has enough.
    pub(super) async fn collect(&self, consumer: &mut dyn RowConsumer) -> Result<(), ReplicationError> {
        let command = self.command;
        let (range, slices) = (command.range.clone(), command.slices.clone());
        let rest = Rest { range, slices, inside: None, then: None };
        self.collect_rest(rest, &mut Watched::new(consumer)).await
    }

    /// Reads what is left, or until the consumer has enough.
    pub(super) async fn collect_rest(
        &self,
        rest: Rest,
        watched: &mut Watched<'_>,
    ) -> Result<(), ReplicationError> {
        let command = self.command;
        let mut left = Some(rest);
        while let Some(rest) = left {
            let routing = self.replicator.routing(&command.table);
            let Some(run) = first_run(&routing, &rest.range) else { break };
            let part = within(command, &rest, &run);
            let ended = match self.way(&routing, run.tablet, rest.inside.is_some())? {
                (Way::Here, replica, required) => {
                    self.here(&part, &rest, (replica, required), watched).await?
                }
                (Way::Shard(shard), replica, required) => {
                    let read = self.shard(shard, &part, &rest, (replica, required), watched);
                    Box::pin(read).await?
                }
                (Way::Copies(plan), ..) => {
                    Box::pin(copies::read(self, &plan, &part, rest.clone(), watched)).await?
                }
            };
            left = match ended {
                Part::Stopped => None,
                Part::Left(rest) => Some(rest),
                Part::Done => self.behind_part(&rest, &run),
                Part::Again(_, error) if self.time.of_page().is_past() => return Err(error),
                Part::Again(rest, _) => {
                    let (table, version) = (&command.table, routing.version());
                    self.replicator.wait_for_later_plan(table, version, self.time.of_page()).await;
                    Some(rest)
                }
            };
            if watched.stopped {
                break;
            }
        }
        Ok(())
    }

    /// What is left behind a part that was read.
    fn behind_part(&self, rest: &Rest, run: &cluster::maps::Run) -> Option<Rest> {
        let range = match behind_run(&rest.range, run) {
            Some(range) => range,
            None => return self.behind_range(rest),
        };
        Some(Rest { range, ..rest.clone() })
    }

    /// What is left behind the range that is being read.
    pub(super) fn behind_range(&self, rest: &Rest) -> Option<Rest> {
        let range = rest.then.clone()?;
        Some(Rest { range, slices: self.command.slices.clone(), inside: None, then: None })
    }

    /// The way to the replicas of a tablet, the nearest of them, and the answers that the level waits for.
    fn way(
        &self,
        routing: &std::rc::Rc<Routing>,
        tablet: model::tablet::TabletId,
        is_inside: bool,
    ) -> Result<(Way, Replica, u32), ReplicationError> {
        let (replicator, table) = (self.replicator, &self.command.table);
        if let Some(nodes) = self.all_of {
            let plan = Plan::of_all(replicator, (routing, tablet), nodes)?;
            let (nearest, required) = (plan.replicas[0].replica, plan.required);
            return Ok((Way::Copies(Box::new(plan)), nearest, required));
        }
        let replica = routing.replicas(tablet)[0];
        // A map may still name a node that has left.
        if !replicator.view().is_shared() && replica.node == replicator.own().node {
            let required = replicator.required_alone(table, self.level)?;
            let is_here = replica == replicator.own();
            let way = if is_here { Way::Here } else { Way::Shard(replicator.shard_of(replica)) };
            return Ok((way, replica, required));
        }
        let plan = Plan::new(replicator, table, (routing, tablet), (self.level, Purpose::Read))?;
        let (nearest, required) = (plan.replicas[0], plan.required);
        let way = match nearest.distance {
            _ if is_inside || !plan.is_served_by_nearest() => Way::Copies(Box::new(plan)),
            Distance::Here => Way::Here,
            Distance::Node => Way::Shard(replicator.shard_of(nearest.replica)),
            _ => Way::Copies(Box::new(plan)),
        };
        Ok((way, nearest.replica, required))
    }

    /// Reads a part that this shard has.
    async fn here(
        &self,
        part: &ReadCommand,
        rest: &Rest,
        (replica, required): (Replica, u32),
        watched: &mut Watched<'_>,
    ) -> Result<Part, ReplicationError> {
        let read = reactor::in_place!(self.replicator.storage().read(part, &mut *watched));
        let error = match read {
            Ok(()) => return Ok(Part::Done),
            Err(error) => error,
        };
        let left = match (&error, &rest.range) {
            (StorageError::WrongShard { .. }, PartitionRange::Key(_)) => Some(rest.clone()),
            // The tablets before it were read.
            (StorageError::WrongShard { tablet, .. }, PartitionRange::Between { from, to }) => {
                let begin = part.table.tablets().range(model::tablet::TabletId(*tablet)).0;
                let bound = PartitionBound { token: begin, key: None, inclusive: true };
                let from = if from.token < begin { bound } else { from.clone() };
                let range = PartitionRange::Between { from, to: to.clone() };
                Some(Rest { range, ..rest.clone() })
            }
            _ => None,
        };
        let error = ReplicaFailure::from(error).at(replica, required);
        match left {
            Some(left) => Ok(Part::Again(left, error)),
            None => Err(error),
        }
    }

    /// Reads a part of another shard in pages, each bounded, until it has no more or the consumer has enough.
    async fn shard(
        &self,
        shard: usize,
        part: &ReadCommand,
        rest: &Rest,
        (replica, required): (Replica, u32),
        watched: &mut Watched<'_>,
    ) -> Result<Part, ReplicationError> {
        let mut next = Some(Request::new(part, self.limits));
        let mut announced = false;
        while let Some(request) = next {
            let sent = request.clone();
            let page: Result<Answer, ReplicaFailure> =
                call_and_note(shard, reactor::current_group(), move || async move {
                    let replicator = here().ok_or_else(ReplicaFailure::starting)?;
                    answer(&replicator, sent).await
                })
                .await
                .unwrap_or_else(|error| Err(error.into()));
            let page = match page {
                Ok(page) => page,
                // Within a partition its reader has had a part of, only that shard can go on.
                Err(failure) if failure.asks_for_a_later_plan() && !announced => {
                    let left = request.left(rest, self.command);
                    return Ok(Part::Again(left, failure.at(replica, required)));
                }
                Err(failure) => return Err(failure.at(replica, required)),
            };
            let broken = || ReplicaFailure::Failed("its answer is broken".to_owned()).at(replica, required);
            let fed = page.feed(&mut *watched, announced).ok_or_else(broken)?;
            if fed == Fed::Stopped {
                return Ok(Part::Stopped);
            }
            announced = fed == Fed::InsidePartition;
            next = request.after(&page, fed, part);
        }
        Ok(Part::Done)
    }
}

/// Notes whether the consumer stopped, which storage does not report.
pub(super) struct Watched<'c> {
    consumer: &'c mut dyn RowConsumer,
    stopped: bool,
}

impl<'c> Watched<'c> {
    pub(super) fn new(consumer: &'c mut dyn RowConsumer) -> Self {
        Self { consumer, stopped: false }
    }

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
