//! [`Consensus`] by the library `raft` 0.7.0 (tikv): the only file, with `convert` and `memory`, that knows
//! it.
//!
//! Pre-vote and check-quorum are on; reads are in the safe mode. The library draws election timeouts from a
//! generator of its own; after every call this file sets one from the caller's random numbers in its place,
//! so that a run follows from its seed. Committed changes of the members take effect as they are handed out.
//! A lone voter leads from its first `ready` on and needs no ticks.

use raft::eraftpb as lib;
use raft::{RawNode, SnapshotStatus, StateRole};

use super::memory::MemoryLog;
use super::{
    ChangeRefused, Consensus, Entry, HardState, MemberChange, Members, Message, MessageKind, NotLeader,
    Payload, Position, ReadState, Ready, ReadyNumber, Recovered, Refused, Role, Snapshot, Status, convert,
};
use crate::NodeNumber;

/// Ticks without word of a leader after which an election starts: this many at least, twice as many at most.
const ELECTION_TICKS: usize = 10;
/// Ticks between two heartbeats.
const HEARTBEAT_TICKS: usize = 2;
/// Bytes of entries in one message; an entry that is longer goes alone.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Messages with entries that may be on their way to one node.
const INFLIGHT_MAX: usize = 64;
/// Bytes of committed entries in one ready.
const COMMITTED_BYTES_MAX: u64 = 4 << 20;

/// The library, with our types around it.
pub struct RaftConsensus {
    node: RawNode<MemoryLog>,
    number: NodeNumber,
    /// Members as of the last committed entry that was handed out.
    members: Members,
    /// The caller's last random number, and how many timeouts were drawn from it.
    random: u64,
    draws: u64,
    /// The timeout in use, and the term and role for which it was drawn.
    timeout: usize,
    drawn_for: (u64, StateRole),
    /// A snapshot of another node that was handed out and is not durable yet.
    installing: Option<(ReadyNumber, u64)>,
}

impl RaftConsensus {
    /// An instance upon what `GroupLog::open` found. It hands out the committed entries behind the snapshot.
    ///
    /// # Panics
    /// When `recovered` contradicts itself; `GroupLog` checks what it reads.
    pub fn new(number: NodeNumber, recovered: &Recovered, random: u64) -> Self {
        let config = raft::Config {
            id: u64::from(number),
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied: recovered.snapshot.index,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: INFLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            max_committed_size_per_ready: COMMITTED_BYTES_MAX,
            ..raft::Config::default()
        };
        let memory = MemoryLog::new(recovered);
        let members = memory.members().clone();
        let logger = slog::Logger::root(ToLog, slog::o!());
        let node = RawNode::new(&config, memory, &logger).unwrap_or_else(|error| {
            panic!("node {number} does not start upon a log that was checked: {error}")
        });
        let drawn_for = (node.raft.term, node.raft.state);
        let mut consensus =
            Self { node, number, members, random, draws: 0, timeout: 0, drawn_for, installing: None };
        consensus.draw_timeout();
        consensus
    }

    fn draw_timeout(&mut self) {
        self.draws += 1;
        // SplitMix64 over the caller's number, so that several draws between two ticks differ.
        let mut mixed = self.random.wrapping_add(self.draws.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        self.timeout = ELECTION_TICKS + (mixed % ELECTION_TICKS as u64) as usize;
        self.node.raft.set_randomized_election_timeout(self.timeout);
    }

    /// Takes the place of the library's own draw after any call that may have led to one.
    fn pin_timeout(&mut self) {
        let now = (self.node.raft.term, self.node.raft.state);
        if now != self.drawn_for {
            self.drawn_for = now;
            self.draw_timeout();
        }
        self.node.raft.set_randomized_election_timeout(self.timeout);
    }

    fn leads(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    fn not_leader(&self) -> NotLeader {
        let leader = convert::node_or_none(self.node.raft.leader_id);
        NotLeader { leader: leader.filter(|leader| *leader != self.number) }
    }

    /// Makes a lone voter the leader, without a timer.
    fn lead_if_alone(&mut self) {
        let alone = self.members.voters == [self.number] && self.members.voters_outgoing.is_empty();
        let raft = &self.node.raft;
        // The library takes a candidate only once its log is durable and its committed entries are applied.
        let settled = raft.raft_log.persisted == raft.raft_log.last_index()
            && raft.raft_log.applied == raft.raft_log.committed;
        if alone && settled && !self.leads() {
            self.node.campaign().expect("a lone voter can always ask itself");
            self.pin_timeout();
        }
    }

    /// The place of the entry that was just appended.
    fn appended(&mut self) -> Position {
        let position = Position { index: self.node.raft.raft_log.last_index(), term: self.node.raft.term };
        self.pin_timeout();
        position
    }

    /// Whether this is a refusal of entries that its sender has since confirmed.
    ///
    /// The library takes such a late refusal while it probes and lets `next_idx` fall to `matched` or below
    /// (tikv/raft-rs#555, mended by #557, which is in no release): it would send again, or as a snapshot,
    /// what the follower has. A confirmed entry is durable there, so a refusal at or below it can only be an
    /// old message.
    fn is_overtaken(&self, message: &Message) -> bool {
        let refusal =
            message.kind == MessageKind::AppendAnswer && message.reject && message.request_snapshot == 0;
        let raft = &self.node.raft;
        refusal
            && message.term == raft.term
            && self.leads()
            && raft
                .prs()
                .get(u64::from(message.from))
                .is_some_and(|progress| message.index <= progress.matched)
    }

    /// Checks a message of a node that is no member here yet, such as a leader that joined while this node
    /// was away: the library takes its messages as a member's, and panics where more is said to be committed
    /// than this node has.
    fn check_stranger(&self, message: &Message) -> Result<(), Refused> {
        let raft = &self.node.raft;
        let is_stranger = raft.prs().get(u64::from(message.from)).is_none();
        let is_beyond = message.commit > raft.raft_log.last_index() && message.term >= raft.term;
        if is_stranger && message.kind == MessageKind::Heartbeat && is_beyond {
            let reason = "it commits what this node does not have";
            return Err(Refused { from: message.from, kind: message.kind, reason });
        }
        Ok(())
    }

    /// Lets a committed entry take effect on the members.
    fn apply_members(&mut self, entry: &Entry) {
        let Payload::Members(changes) = &entry.payload else { return };
        // A change that cannot be, such as the removal of the last voter, is one nowhere.
        match self.node.apply_conf_change(&convert::changes_to_lib(changes)) {
            Ok(state) => self.members = convert::members_from_lib(&state),
            Err(error) => reactor::warn!("a change of the members has no effect";
                index = entry.index, error = error),
        }
    }

    fn handed_out(&mut self, ready: &mut raft::Ready) -> Ready {
        let messages = |list: Vec<lib::Message>| list.iter().map(convert::message_from_lib).collect();
        let entries = |list: &[lib::Entry]| list.iter().map(convert::entry_from_lib).collect();
        let install = (!ready.snapshot().is_empty()).then(|| convert::snapshot_from_lib(ready.snapshot()));
        Ready {
            number: ReadyNumber(ready.number()),
            install,
            hard_state: ready.hs().map(convert::hard_state_from_lib),
            entries: entries(ready.entries()),
            must_sync: ready.must_sync(),
            messages_before: messages(ready.take_messages()),
            messages_after: messages(ready.take_persisted_messages()),
            committed: entries(ready.committed_entries()),
            reads: ready.take_read_states().iter().filter_map(read_state).collect(),
        }
    }
}

/// An answer with a context of this file's form; contexts come back from other nodes.
fn read_state(state: &raft::ReadState) -> Option<ReadState> {
    let context = state.request_ctx.as_slice().try_into().ok()?;
    Some(ReadState { context: u64::from_le_bytes(context), index: state.index })
}

impl Consensus for RaftConsensus {
    fn step(&mut self, message: Message) -> Result<(), Refused> {
        message.check(self.number)?;
        self.check_stranger(&message)?;
        if self.is_overtaken(&message) {
            return Ok(());
        }
        // The remaining errors are about messages that come too late: of former members, or for another role.
        let _ = self.node.step(convert::message_to_lib(&message));
        self.pin_timeout();
        Ok(())
    }

    fn tick(&mut self, random: u64) {
        self.random = random;
        self.draws = 0;
        self.node.tick();
        if self.node.raft.election_elapsed == 0 && !self.leads() {
            // An election began: the next one of this role gets a timeout of its own, so that two candidates
            // that tied once do not tie again.
            self.draw_timeout();
        }
        self.pin_timeout();
    }

    fn propose(&mut self, command: Vec<u8>) -> Result<Position, NotLeader> {
        assert!(!command.is_empty(), "an empty command would be taken for a leader's first entry");
        // A follower's library would send the proposal to the leader.
        if !self.leads() || self.node.propose(Vec::new(), command).is_err() {
            return Err(self.not_leader());
        }
        Ok(self.appended())
    }

    fn read_index(&mut self, context: u64) {
        self.node.read_index(context.to_le_bytes().to_vec());
        self.pin_timeout();
    }

    fn change(&mut self, changes: &[MemberChange]) -> Result<Position, ChangeRefused> {
        assert!(!changes.is_empty(), "no change of the members");
        let context = convert::changes_to_context(changes);
        let before = self.node.raft.pending_conf_index;
        if !self.leads() || self.node.propose_conf_change(context, convert::changes_to_lib(changes)).is_err()
        {
            return Err(self.not_leader().into());
        }
        let position = self.appended();
        if self.node.raft.pending_conf_index == before {
            // The library put an empty entry in the place of this change.
            return Err(ChangeRefused::Pending);
        }
        Ok(position)
    }

    fn transfer(&mut self, to: NodeNumber) {
        if self.leads() {
            self.node.transfer_leader(u64::from(to));
            self.pin_timeout();
        }
    }

    fn unreachable(&mut self, node: NodeNumber) {
        self.node.report_unreachable(u64::from(node));
        self.pin_timeout();
    }

    fn snapshot_sent(&mut self, node: NodeNumber, arrived: bool) {
        let status = if arrived { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.node.report_snapshot(u64::from(node), status);
        self.pin_timeout();
    }

    fn ready(&mut self) -> Option<Ready> {
        self.lead_if_alone();
        if !self.node.has_ready() {
            return None;
        }
        let mut ready = self.node.ready();
        let out = self.handed_out(&mut ready);
        let memory = self.node.mut_store();
        if let Some(snapshot) = &out.install {
            memory.install(snapshot.clone());
            self.members = snapshot.members.clone();
            self.installing = Some((out.number, snapshot.index));
        }
        memory.append(ready.take_entries());
        if let Some(state) = &out.hard_state {
            memory.set_hard_state(state);
        }
        self.node.advance_append_async(ready);
        out.committed.iter().for_each(|entry| self.apply_members(entry));
        if let Some(last) = out.committed.last() {
            self.node.advance_apply_to(last.index);
        }
        self.pin_timeout();
        Some(out)
    }

    fn synced(&mut self, number: ReadyNumber) {
        self.node.on_persist_ready(number.0);
        if let Some((_, index)) = self.installing.take_if(|(of, _)| *of <= number) {
            self.node.advance_apply_to(index);
        }
        self.pin_timeout();
    }

    fn compacted(&mut self, snapshot: Snapshot) {
        self.node.mut_store().compact(snapshot);
    }

    fn members(&self) -> Members {
        self.members.clone()
    }

    fn hard_state(&self) -> HardState {
        convert::hard_state_from_lib(&self.node.raft.hard_state())
    }

    fn entries_after(&self, index: u64) -> Vec<Entry> {
        self.node.store().entries_after(index)
    }

    fn term_at(&self, index: u64) -> Option<u64> {
        self.node.store().term_at(index)
    }

    fn status(&self) -> Status {
        let raft = &self.node.raft;
        let role = match raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        };
        let log = &raft.raft_log;
        let leader = convert::node_or_none(raft.leader_id);
        Status { role, leader, term: raft.term, last: log.last_index(), committed: log.committed }
    }
}

/// Passes the library's warnings on to the log, without their keys and values.
struct ToLog;

impl slog::Drain for ToLog {
    type Ok = ();
    type Err = slog::Never;

    fn log(&self, record: &slog::Record<'_>, _: &slog::OwnedKVList) -> Result<(), slog::Never> {
        if record.level().is_at_least(slog::Level::Warning) {
            reactor::warn!("raft: {}", record.msg());
        }
        Ok(())
    }
}
