//! The acceptor's half of a round: promises, accepts and commits for coordinators anywhere.
//!
//! A request holds the partition's latch from the check of what was noted until the answer: the note is on
//! stable storage before anybody hears of it, and what is read belongs to the promise. The latch is the line
//! in which this shard's own changes wait, so that a round of a node that was alone a moment ago ends first;
//! it is never held between two requests. Each request runs in a task of its own, so that a coordinator that
//! goes away leaves nothing half done. Invariant: an answer says what a loss of power leaves true.

use std::collections::BTreeMap;
use std::rc::Rc;

use cluster::maps::Routing;
use cluster::net::BODY_BYTES_MAX;
use model::Table;
use model::mutation::MutationView;
use model::partition_key::DecoratedKey;
use reactor::{Deadline, Group};
use storage::{ApplyAs, PaxosCell, PaxosChange, PaxosTable};
use wire::node::NodeError;
use wire::node::fault::{Fault, FaultKind};
use wire::node::frame::Verb;
use wire::node::paxos::{Prepare, Prepared, Promise, Proposal, Propose, encode_accepted};

use super::rules::{Accepting, Held, Promised, State};
use crate::error::ReplicaFailure;
use crate::read;
use crate::replicator::Replicator;

/// Table extension with the seconds for which promises are kept (`paxos_grace_seconds`).
const GRACE: &str = "paxos_grace_seconds";
/// Seconds for which they are kept where the table does not say: Cassandra's `gc_grace_seconds`.
const GRACE_SECONDS: u32 = 864_000;
/// The least: no request runs as long.
const GRACE_SECONDS_MIN: u32 = 3600;

/// How long promises and proposals of a table are kept.
pub(super) fn grace_seconds(table: &Table) -> u32 {
    let given = table.options().extensions.get(GRACE);
    let given = given.and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse::<u32>().ok());
    given.unwrap_or(GRACE_SECONDS).max(GRACE_SECONDS_MIN)
}

impl Replicator {
    /// Serves a request of a round's coordinator; returns the body of the answer.
    ///
    /// # Errors
    /// The [`Fault`] for the coordinator.
    pub(crate) async fn serve_round(
        &self,
        verb: Verb,
        body: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<u8>, Fault> {
        let hold = self.acceptor().enter().map_err(ReplicaFailure::into_fault)?;
        let (replicator, body) = (self.clone(), body.to_vec());
        let served = reactor::spawn(Group::STATEMENT, async move {
            let served = match verb {
                Verb::Prepare => replicator.serve_prepare(&body, deadline).await,
                Verb::Accept => replicator.serve_accept(&body, deadline).await,
                Verb::Learn => replicator.serve_learn(&body, deadline).await,
                verb => Err(ReplicaFailure::Failed(format!("{verb:?} is no request of a round"))),
            };
            drop(hold);
            served
        });
        match served.await {
            Ok(served) => served.map_err(ReplicaFailure::into_fault),
            Err(panicked) => Err(Fault::new(FaultKind::Failed, panicked.to_string())),
        }
    }

    async fn serve_prepare(&self, body: &[u8], deadline: Deadline) -> Result<Vec<u8>, ReplicaFailure> {
        let (prepare, reads) = Prepare::decode(body).map_err(invalid)?;
        let table = self.table_at(prepare.table, prepare.version, deadline).await?;
        let key = DecoratedKey::new(prepare.key.to_vec());
        // Held until the answer: those who take the tablet away wait for it.
        let routing = self.check_replica(
            &table,
            table.tablets().tablet_of(key.token),
            (prepare.since, prepare.version),
        )?;
        let acceptor = self.acceptor();
        let _latch = acceptor.turn(prepare.table, &key.key, deadline).await?;
        acceptor.note_others();
        let noted = Noted { replicator: self, table: &table, key: &key, truncated: routing.truncated() };
        let state = noted.state(deadline).await?;
        let mut out = Vec::new();
        if let Err(refusal) = state.prepare(prepare.ballot, reactor::wall_clock_us()) {
            Prepared::Refused(refusal).encode(&mut out);
            return Ok(out);
        }
        let promised = state.promised_with(prepare.ballot, prepare.writes);
        let cells = [(PaxosCell::Promised, Some(promised.encode()))].into();
        noted.note(cells, prepare.ballot.micros, true, deadline).await?;
        let mut answers = Vec::with_capacity(reads.len());
        for read in &reads {
            let reading = read::serve(self, Verb::Read, read, deadline);
            let answer = reactor::timeout(deadline, reading).await.map_err(|_| ReplicaFailure::TimedOut)?;
            answers.push(answer?);
        }
        let promise = Promise {
            written: state.promised.and_then(|promised| promised.written),
            accepted: noted.proposal(state.accepted.as_ref())?,
            committed: noted.proposal(state.committed.as_ref())?,
            answers: answers.iter().map(Vec::as_slice).collect(),
        };
        Prepared::Promised(Box::new(promise)).encode(&mut out);
        if out.len() > BODY_BYTES_MAX {
            let bytes = out.len();
            let reason = format!("a promise of {bytes} bytes: nodes send at most {BODY_BYTES_MAX}");
            return Err(ReplicaFailure::Failed(reason));
        }
        Ok(out)
    }

    async fn serve_accept(&self, body: &[u8], deadline: Deadline) -> Result<Vec<u8>, ReplicaFailure> {
        let propose = Propose::decode_accept(body).map_err(invalid)?;
        let Proposal { ballot, mutation } = propose.proposal;
        let (table, routing) = self.table_of_proposal(&propose, deadline).await?;
        self.storage().check_mutation_size(mutation.as_bytes())?;
        let key = DecoratedKey::new(mutation.key.to_vec());
        let acceptor = self.acceptor();
        let _latch = acceptor.turn(mutation.table, &key.key, deadline).await?;
        let noted = Noted { replicator: self, table: &table, key: &key, truncated: routing.truncated() };
        let answer = noted.state(deadline).await?.accept(ballot);
        if answer == Ok(Accepting::New) {
            let cells = [(PaxosCell::Accepted, Some(Held::encode(ballot, mutation.as_bytes())))].into();
            noted.note(cells, ballot.micros, true, deadline).await?;
        }
        let mut out = Vec::new();
        encode_accepted(answer.map(|_| ()), &mut out);
        Ok(out)
    }

    /// Applies the mutation and notes the commit. Behind a commit that is noted, the mutation is as safe:
    /// both are in one log in this order, or the log of the mutation is made durable in between.
    async fn serve_learn(&self, body: &[u8], deadline: Deadline) -> Result<Vec<u8>, ReplicaFailure> {
        let (propose, durably) = Propose::decode_learn(body).map_err(invalid)?;
        let Proposal { ballot, mutation } = propose.proposal;
        let (table, routing) = self.table_of_proposal(&propose, deadline).await?;
        let key = DecoratedKey::new(mutation.key.to_vec());
        let acceptor = self.acceptor();
        let _latch = acceptor.turn(mutation.table, &key.key, deadline).await?;
        if !is_empty(&mutation) {
            let how = ApplyAs { since: Some(propose.since), synced: false };
            self.storage().apply_as(&mutation, how, deadline).await?;
            if !self.storage().has_paxos_of(key.token)? {
                self.storage().sync_writes().await?;
            }
        }
        let noted = Noted { replicator: self, table: &table, key: &key, truncated: routing.truncated() };
        let learning = noted.state(deadline).await?.learn(ballot);
        let mut cells = Cells::new();
        if learning.is_latest {
            cells.insert(PaxosCell::Committed, Some(Held::encode(ballot, mutation.as_bytes())));
        }
        if learning.clears_accepted {
            cells.insert(PaxosCell::Accepted, None);
        }
        if !cells.is_empty() {
            noted.note(cells, ballot.micros, durably, deadline).await?;
        } else if durably {
            self.storage().sync_writes().await?;
        }
        Ok(Vec::new())
    }

    /// The table of a proposal that this shard is to have, and the routing by which it is.
    async fn table_of_proposal(
        &self,
        propose: &Propose<'_>,
        deadline: Deadline,
    ) -> Result<(Rc<Table>, Rc<Routing>), ReplicaFailure> {
        let mutation = &propose.proposal.mutation;
        let table = self.table_at(mutation.table, propose.version, deadline).await?;
        let tablet = table.tablets().tablet_of(mutation.token);
        let routing = self.check_replica(&table, tablet, (propose.since, propose.version))?;
        mutation.check(&table)?;
        Ok((table, routing))
    }
}

/// Whether a mutation changes nothing.
pub(super) fn is_empty(mutation: &MutationView<'_>) -> bool {
    mutation.deletion.is_live()
        && mutation.row_count() == 0
        && mutation.static_row().is_none()
        && mutation.tombstones().next().is_none()
}

fn invalid(error: NodeError) -> ReplicaFailure {
    ReplicaFailure::Failed(error.to_string())
}

/// Cells of the state that change.
type Cells = BTreeMap<PaxosCell, Option<Vec<u8>>>;

/// What this node has noted of one partition.
struct Noted<'n> {
    replicator: &'n Replicator,
    table: &'n Table,
    key: &'n DecoratedKey,
    /// The version of the routing that truncated the table last.
    truncated: u64,
}

impl Noted<'_> {
    fn of(&self) -> PaxosTable {
        PaxosTable { id: self.table.id(), truncated: self.truncated }
    }

    async fn state(&self, deadline: Deadline) -> Result<State, ReplicaFailure> {
        let reading = self.replicator.storage().paxos_state(self.of(), self.key);
        let bytes = reactor::timeout(deadline, reading).await.map_err(|_| ReplicaFailure::TimedOut)??;
        let held = |bytes: Option<Vec<u8>>| {
            bytes.map(|bytes| Held::decode(&bytes).ok_or_else(|| self.damaged())).transpose()
        };
        let promised = bytes.promised.map(|bytes| Promised::decode(&bytes).ok_or_else(|| self.damaged()));
        Ok(State {
            promised: promised.transpose()?,
            accepted: held(bytes.accepted)?,
            committed: held(bytes.committed)?,
        })
    }

    /// Writes cells of the state, durably or as safely as any write.
    async fn note(
        &self,
        cells: Cells,
        timestamp: i64,
        durably: bool,
        deadline: Deadline,
    ) -> Result<(), ReplicaFailure> {
        let keep_seconds = grace_seconds(self.table);
        let change = PaxosChange { cells, timestamp, keep_seconds, durably };
        let noted = self.replicator.storage().note_paxos(self.of(), self.key, change, deadline);
        noted.await.map_err(ReplicaFailure::from)
    }

    /// A proposal as it is sent.
    fn proposal<'h>(&self, held: Option<&'h Held>) -> Result<Option<Proposal<'h>>, ReplicaFailure> {
        let Some(Held { ballot, mutation }) = held else { return Ok(None) };
        let mutation = MutationView::parse(mutation).map_err(|_| self.damaged())?;
        Ok(Some(Proposal { ballot: *ballot, mutation }))
    }

    fn damaged(&self) -> ReplicaFailure {
        let (keyspace, name) = (self.table.keyspace(), self.table.name());
        let token = self.key.token.0;
        ReplicaFailure::Failed(format!(
            "what this node has promised in {keyspace}.{name} to the partition of token {token} is damaged"
        ))
    }
}
