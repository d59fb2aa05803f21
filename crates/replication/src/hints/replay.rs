//! Delivers hints: file by file in the order in which they were made, in rounds of some hints at once.
//!
//! A round ends before the next begins, so that a file's place is one offset. A node that goes down, is short
//! of room or does not answer ends the delivery, which goes on there at the next occasion. A hint that its
//! host refuses is tried again with later files, some times. One whose host has not the tablet any more is
//! written to today's replicas. Invariant: a file is removed only after each of its hints was delivered,
//! given up for a counted reason, or added again.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use cluster::nodes::NodeState;
use model::mutation::MutationView;
use model::tablet::{NodeNumber, Replica};
use reactor::{Deadline, Group};

use super::format::Hint;
use super::reader::{Next, Reader};
use super::store::{HintFile, Host};
use super::{Hints, HintsError, pace};
use crate::error::ReplicaFailure;
use crate::replicator::Replicator;
use crate::write::late;

/// Hints that are on their way to one host at once.
const ROUND_HINTS: usize = 128;
/// Bytes of them, beyond the first.
const ROUND_BYTES: usize = 1 << 20;
/// How long one delivery may take.
const DELIVER_WITHIN: Duration = Duration::from_secs(10);
/// How often a host may refuse a hint.
const ATTEMPTS_MAX: u8 = 8;

/// Whom the hints for a host go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The node, which is up.
    Node(NodeNumber),
    /// The node is gone for ever: today's replicas.
    Gone,
    /// Nobody yet.
    Waits,
}

/// What became of a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Sent,
    /// Nobody may have it any more: it is too old, or its table is gone.
    Discarded(&'static str),
    /// The host does not take this one.
    Refused(String),
    /// The host takes none now.
    Later(String),
}

impl Outcome {
    fn of(result: Result<(), ReplicaFailure>) -> Self {
        match result {
            Ok(()) => Self::Sent,
            Err(ReplicaFailure::TableGone(_)) => Self::Discarded("its table is gone"),
            Err(
                failure @ (ReplicaFailure::Unreachable(_)
                | ReplicaFailure::TimedOut
                | ReplicaFailure::Overloaded(_)
                | ReplicaFailure::Stopping
                | ReplicaFailure::Stale(_)),
            ) => Self::Later(failure.text()),
            Err(
                failure @ (ReplicaFailure::Misfit(_)
                | ReplicaFailure::TooLarge { .. }
                | ReplicaFailure::RateLimited { .. }
                | ReplicaFailure::Failed(_)),
            ) => Self::Refused(failure.text()),
        }
    }
}

impl Hints {
    /// Starts a delivery for each host that has hints, can be reached, and has none under way.
    pub(super) fn deliver(self: &Rc<Self>, replicator: &Replicator) {
        for host in self.store.hosts() {
            if !host.has_hints() || self.target(replicator, &host) == Target::Waits {
                continue;
            }
            let Ok(hold) = self.tasks.enter() else { return };
            if !self.delivering.borrow_mut().insert(host.id) {
                continue;
            }
            let (hints, replicator) = (Rc::clone(self), replicator.clone());
            reactor::spawn(Group::BACKGROUND, async move {
                if let Ok(_place) = hints.deliveries.acquire(1).await
                    && let Err(error) = hints.deliver_to(&replicator, &host).await
                {
                    reactor::warn_limited!("hints cannot be delivered now";
                        host = model::hex::text(&host.id), error = error);
                }
                hints.delivering.borrow_mut().remove(&host.id);
                drop(hold);
            })
            .detach();
        }
    }

    fn target(&self, replicator: &Replicator, host: &Host) -> Target {
        let nodes = replicator.view().nodes();
        if nodes.is_empty() || self.is_stopping() {
            return Target::Waits;
        }
        match nodes.values().find(|node| node.host_id == host.id) {
            Some(node) if node.state != NodeState::Left => {
                let is_up = replicator.peers().is_up(Replica { node: node.number, shard: 0 });
                if is_up { Target::Node(node.number) } else { Target::Waits }
            }
            _ => Target::Gone,
        }
    }

    /// Delivers the files that are there now.
    async fn deliver_to(&self, replicator: &Replicator, host: &Host) -> Result<(), HintsError> {
        self.store.rotate(host).await?;
        let end = host.next_number.get();
        let mut sent = 0;
        while let Some(file) = host.oldest().filter(|file| file.number < end) {
            let delivery = Delivery { hints: self, replicator, host, file: &file };
            match delivery.run(&mut sent).await {
                Ok(Delivered::Whole { damage }) => self.store.remove(host, &file, damage).await,
                Ok(Delivered::Part) => break,
                Err(HintsError::Damaged { offset, .. }) => {
                    self.store.remove(host, &file, Some(offset)).await;
                }
                Err(error) => return Err(error),
            }
        }
        if sent > 0 {
            reactor::info!("hints were delivered"; host = model::hex::text(&host.id), hints = sent);
        }
        Ok(())
    }
}

/// How far a file was delivered.
enum Delivered {
    /// To its end; `damage` is the first damaged byte.
    Whole { damage: Option<u64> },
    /// To the noted place.
    Part,
}

/// The delivery of one file.
struct Delivery<'d> {
    hints: &'d Hints,
    replicator: &'d Replicator,
    host: &'d Host,
    file: &'d HintFile,
}

impl Delivery<'_> {
    async fn run(&self, sent: &mut u64) -> Result<Delivered, HintsError> {
        let (number, offset) = self.host.progress.get();
        let from = if number == self.file.number { offset } else { 0 };
        let mut reader = Reader::open(&self.file.path, from, self.hints.store.entry_bytes_max()).await?;
        let mut damage = None;
        loop {
            let (round, upto, ended) = self.read_round(&mut reader, &mut damage).await?;
            let began = reactor::now();
            let bytes: usize = round.iter().map(|hint| hint.mutation.len()).sum();
            let hints = round.len() as u64;
            if !self.send_round(round).await {
                return Ok(Delivered::Part);
            }
            *sent += hints;
            if ended {
                return Ok(Delivered::Whole { damage });
            }
            self.host.progress.set((self.file.number, upto));
            let time = pace(self.replicator, bytes as u64, self.hints.config.bytes_per_second);
            if !self.hints.wait(time.saturating_sub(began.elapsed())).await {
                return Ok(Delivered::Part);
            }
        }
    }

    /// The next hints, the offset behind them, and whether the file ends there.
    async fn read_round(
        &self,
        reader: &mut Reader,
        damage: &mut Option<u64>,
    ) -> Result<(Vec<Hint>, u64, bool), HintsError> {
        let (mut round, mut bytes, mut upto) = (Vec::new(), 0, 0);
        while round.len() < ROUND_HINTS && bytes < ROUND_BYTES {
            match reader.next().await? {
                Next::Hint(hint, behind) => {
                    bytes += hint.mutation.len();
                    upto = behind;
                    round.push(hint);
                }
                Next::Damage { offset, bytes } => {
                    reactor::error!("hints are lost: a file is damaged";
                        path = self.file.path.display(), offset = offset, bytes = bytes);
                    damage.get_or_insert(offset);
                }
                Next::End { torn_bytes } => {
                    if torn_bytes > 0 {
                        reactor::warn!("the last hint of a file was written in part only, and is cut";
                            path = self.file.path.display(), bytes = torn_bytes);
                    }
                    return Ok((round, upto, true));
                }
            }
        }
        Ok((round, upto, false))
    }

    /// Delivers some hints side by side. False, and the round is to be repeated, if the host takes none now.
    async fn send_round(&self, round: Vec<Hint>) -> bool {
        let target = self.hints.target(self.replicator, self.host);
        if target == Target::Waits {
            return false;
        }
        let mut under_way: Vec<Pin<Box<dyn Future<Output = Outcome> + '_>>> = Vec::new();
        for hint in &round {
            under_way.push(Box::pin(self.send(hint, target)));
        }
        let mut outcomes = vec![None; round.len()];
        poll_fn(|context| {
            let mut is_pending = false;
            for (sending, outcome) in under_way.iter_mut().zip(&mut outcomes) {
                if outcome.is_none() {
                    match sending.as_mut().poll(context) {
                        Poll::Ready(ready) => *outcome = Some(ready),
                        Poll::Pending => is_pending = true,
                    }
                }
            }
            if is_pending { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        drop(under_way);
        let later = outcomes.iter().flatten().find_map(|outcome| match outcome {
            Outcome::Later(reason) => Some(reason.clone()),
            _ => None,
        });
        if let Some(reason) = later {
            self.hints.metrics.send_errors.inc();
            reactor::info!("the delivery of hints will go on later";
                host = model::hex::text(&self.host.id), reason = reason);
            return false;
        }
        for (hint, outcome) in round.into_iter().zip(outcomes.into_iter().flatten()) {
            self.note(hint, outcome);
        }
        true
    }

    /// Counts what became of a hint; one that was refused is added again.
    fn note(&self, hint: Hint, outcome: Outcome) {
        let metrics = &self.hints.metrics;
        match outcome {
            Outcome::Sent => {
                metrics.sent.inc();
                metrics.sent_bytes.add(hint.mutation.len() as u64);
            }
            Outcome::Discarded(reason) => {
                metrics.discarded.inc();
                reactor::warn_limited!("a hint is given up: {reason}"; host = model::hex::text(&self.host.id));
            }
            Outcome::Refused(reason) => {
                metrics.send_errors.inc();
                let attempts = hint.attempts + 1;
                let is_kept = attempts < ATTEMPTS_MAX
                    && self.hints.store.add(self.host.id, Hint { attempts, ..hint }).is_ok();
                if !is_kept {
                    metrics.discarded.inc();
                    reactor::error_limited!("a hint is given up: its host refuses it";
                        host = model::hex::text(&self.host.id), attempts = attempts, reason = reason);
                }
            }
            Outcome::Later(_) => panic!("a round with a hint for later is not noted"),
        }
    }

    /// Delivers one hint: to its host if that still is the replica that missed it, else to today's replicas.
    async fn send(&self, hint: &Hint, target: Target) -> Outcome {
        // The file's checksum says that the bytes are those that were written.
        let Ok(view) = MutationView::parse(&hint.mutation) else {
            return Outcome::Discarded("its mutation is damaged");
        };
        let table = self.replicator.storage().borrow_schema().table_by_id(view.table).cloned();
        let Some(table) = table else { return Outcome::Discarded("its table is gone") };
        if !view.fits(&table) {
            return Outcome::Discarded("it does not fit its table any more");
        }
        if late::is_too_late(self.replicator, &table, hint.born_us) {
            return Outcome::Discarded("it is older than deletions are kept");
        }
        if self.replicator.routing(&table).truncated() > hint.version {
            return Outcome::Discarded("its table was truncated");
        }
        let deadline = Deadline::after(DELIVER_WITHIN);
        let plan = self.replicator.plan_unchecked(&table, view.token);
        let still = plan
            .replicas
            .iter()
            .find(|planned| target == Target::Node(planned.replica.node) && planned.since == hint.since);
        match still {
            Some(planned) => {
                let to = (planned, plan.version());
                let sent = late::to(self.replicator, to, &hint.mutation, hint.born_us, deadline);
                Outcome::of(reactor::timeout(deadline, sent).await.unwrap_or(Err(ReplicaFailure::TimedOut)))
            }
            None => Outcome::of(
                late::everywhere(self.replicator, &table, &hint.mutation, hint.born_us, deadline).await,
            ),
        }
    }
}
