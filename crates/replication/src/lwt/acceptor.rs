//! The replica's half of a round: promises a ballot together with the current contents, then accepts the
//! proposal under it.
//!
//! A promise is the partition's turn. A coordinator on this shard keeps it itself. For one on another shard
//! it is kept here under its ballot until that shard proposes, gives up, or its deadline passes; a later
//! proposal is refused. Rounds in which several replicas agree take the turn as their latch (`paxos`); once
//! another node has asked for one, this shard makes no promises of its own any more. Invariant: ballots of a
//! shard only grow, and a proposal is applied before its partition's turn passes on, even if the waiting
//! client is gone.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;

use model::TableId;
use model::deletion::LocalSeconds;
use model::mutation::MutationView;
use model::partition_key::DecoratedKey;
use reactor::{Deadline, Gate, GateHold, Group};
use storage::{PartitionRange, ReadCommand, Storage};

use super::ballot::{Ballot, Ballots};
use super::current::{Current, Taker};
use super::{CURRENT_BYTES_MAX, CasRead};
use crate::error::ReplicaFailure;
use crate::partition_line::{PartitionLines, Turn};

/// Most rounds that coordinators of other shards may have open on a shard.
pub const ROUNDS_MAX: usize = 16_384;

/// The inputs of a round.
#[derive(Debug, Clone)]
pub(super) struct Prepare {
    pub(super) table: TableId,
    pub(super) key: DecoratedKey,
    pub(super) reads: Vec<CasRead>,
    pub(super) now: LocalSeconds,
}

/// A promised ballot, and the contents of the partition.
#[derive(Debug)]
pub(super) struct Promise {
    pub(super) ballot: Ballot,
    pub(super) current: Current,
}

/// Rounds of one shard.
pub(crate) struct Acceptor {
    lines: Rc<PartitionLines>,
    /// Requests of this shard for which several replicas agree, by partition.
    queue: Rc<PartitionLines>,
    ballots: Ballots,
    /// Whether another node has asked for a promise since the start.
    has_others: Cell<bool>,
    rounds: RefCell<BTreeMap<Ballot, (Turn, Deadline)>>,
    tasks: Gate,
}

impl Acceptor {
    pub(crate) fn new(lines: Rc<PartitionLines>) -> Self {
        Self {
            lines,
            queue: Rc::default(),
            ballots: Ballots::new(),
            has_others: Cell::new(false),
            rounds: RefCell::new(BTreeMap::new()),
            tasks: Gate::new(),
        }
    }

    /// Waits until every accepted proposal is applied; accepts none from now on.
    pub(crate) async fn stop(&self) {
        self.tasks.close().await;
    }

    /// The source of this shard's ballots.
    pub(super) fn ballots(&self) -> &Ballots {
        &self.ballots
    }

    /// Another coordinator asks for promises.
    pub(super) fn note_others(&self) {
        self.has_others.set(true);
    }

    /// Waits for the turn of a request for which several replicas agree, among those of this shard.
    pub(super) async fn queue_turn(
        &self,
        table: TableId,
        key: &[u8],
        deadline: Deadline,
    ) -> Result<Turn, ReplicaFailure> {
        match reactor::timeout(deadline, self.queue.turn(table, key)).await {
            Ok(turn) => turn
                .map_err(|error| ReplicaFailure::Overloaded(format!("the partition is contended: {error}"))),
            Err(_) => Err(ReplicaFailure::TimedOut),
        }
    }

    /// Waits for the partition's turn, reads, and promises a ballot.
    pub(super) async fn prepare(
        &self,
        storage: &Storage,
        prepare: Prepare,
        deadline: Deadline,
    ) -> Result<(Turn, Promise), ReplicaFailure> {
        let turn = self.turn(prepare.table, &prepare.key.key, deadline).await?;
        if self.has_others.get() {
            return Err(ReplicaFailure::Stale("other nodes take part in conditional writes".to_owned()));
        }
        let table = storage.schema().table_by_id(prepare.table).cloned();
        let table = table.ok_or(ReplicaFailure::TableGone(prepare.table))?;
        let mut current = Current::default();
        for read in prepare.reads {
            let command = ReadCommand {
                table: Rc::clone(&table),
                range: PartitionRange::Key(prepare.key.clone()),
                slices: read.slices,
                reversed: false,
                now: prepare.now,
                bypass_cache: false,
            };
            let shown_by = read.shown_by.as_deref().map(|columns| (columns, prepare.now));
            let mut taker = Taker::new(&mut current, read.rows_max, shown_by);
            let done = reactor::timeout(deadline, storage.read(&command, &mut taker)).await;
            done.map_err(|_| ReplicaFailure::TimedOut)??;
        }
        if current.is_too_large() {
            return Err(ReplicaFailure::Failed(format!(
                "a conditional write looked at more than {CURRENT_BYTES_MAX} bytes"
            )));
        }
        // The ballot is taken after the read: it is later than all timestamps that this shard's clock gave to
        // the data that was read.
        Ok((turn, Promise { ballot: self.ballots.next_alone(), current }))
    }

    /// As [`Self::prepare`], for a coordinator on another shard.
    pub(super) async fn prepare_for_another(
        &self,
        storage: &Storage,
        prepare: Prepare,
        (contention, until): (Deadline, Deadline),
    ) -> Result<Promise, ReplicaFailure> {
        self.forget_late_rounds();
        if self.rounds.borrow().len() >= ROUNDS_MAX {
            return Err(ReplicaFailure::Overloaded(format!("{ROUNDS_MAX} conditional writes are under way")));
        }
        let (turn, promise) = self.prepare(storage, prepare, contention).await?;
        let other = self.rounds.borrow_mut().insert(promise.ballot, (turn, until));
        assert!(other.is_none(), "two rounds have ballot {:?}", promise.ballot);
        Ok(promise)
    }

    /// Lets a write begin that goes on when its client is gone, and that [`Acceptor::stop`] waits for.
    ///
    /// # Errors
    /// [`ReplicaFailure::Stopping`].
    pub(crate) fn enter(&self) -> Result<GateHold, ReplicaFailure> {
        self.tasks.enter().map_err(|_| ReplicaFailure::Stopping)
    }

    /// Waits for the turn of a partition, behind running rounds and no longer than those may take.
    pub(crate) async fn turn(
        &self,
        table: TableId,
        key: &[u8],
        deadline: Deadline,
    ) -> Result<Turn, ReplicaFailure> {
        let mut turn = pin!(self.lines.turn(table, key));
        loop {
            self.forget_late_rounds();
            // The holder of the turn, if it is on another shard, may never come back.
            let holder = self.rounds.borrow().values().map(|(_, deadline)| *deadline).min();
            let until = holder.map_or(deadline, |holder| holder.min(deadline));
            match reactor::timeout(until, turn.as_mut()).await {
                Ok(turn) => {
                    return turn.map_err(|error| {
                        ReplicaFailure::Overloaded(format!("the partition is contended: {error}"))
                    });
                }
                Err(_) if deadline.is_past() => return Err(ReplicaFailure::TimedOut),
                Err(_) => {}
            }
        }
    }

    fn forget_late_rounds(&self) {
        let late: Vec<_> = {
            let mut rounds = self.rounds.borrow_mut();
            rounds.extract_if(.., |_, (_, deadline)| deadline.is_past()).collect()
        };
        // Turns are given on outside the borrow.
        drop(late);
    }

    /// Removes a promise kept for another shard, for its proposal or because there will be none.
    ///
    /// # Errors
    /// [`ReplicaFailure::TimedOut`] if it is no longer kept: the round is lost, and nothing was written.
    pub(super) fn take(&self, ballot: Ballot) -> Result<Turn, ReplicaFailure> {
        self.forget_late_rounds();
        let round = self.rounds.borrow_mut().remove(&ballot);
        round.map(|(turn, _)| turn).ok_or(ReplicaFailure::TimedOut)
    }

    /// Applies a proposal and then passes the turn on. If the future is dropped the proposal is still
    /// applied.
    pub(crate) async fn accept(
        &self,
        storage: &Storage,
        turn: Turn,
        mutation: Vec<u8>,
        deadline: Deadline,
    ) -> Result<(), ReplicaFailure> {
        storage.check_mutation_size(&mutation)?;
        let view = MutationView::trusted(&mutation)?;
        assert!(
            turn.is_of(view.table, view.key),
            "a proposal for table {} without the turn of its partition",
            view.table
        );
        let inside = self.enter()?;
        let storage = storage.clone();
        let applied = reactor::spawn(Group::STATEMENT, async move {
            let applied = storage.apply(&mutation, deadline).await;
            drop(turn);
            drop(inside);
            applied
        });
        // A panic of the write is this request's failure; the reactor has logged it.
        Ok(applied.await.map_err(|_| ReplicaFailure::TimedOut)??)
    }
}
