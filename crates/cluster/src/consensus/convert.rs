//! Our messages, entries and members as those of the library, and back, by hand.
//!
//! Nothing is parsed here: no bytes of a socket or a file ever reach the library's protobuf parser, which has
//! a stack overflow (RUSTSEC-2024-0437). Changes of the members travel in the context of an entry, in our own
//! encoding; the library reads their protobuf form only within the proposing call, from memory of this
//! process.

use minicbor::{Decoder, Encoder};
use raft::eraftpb as lib;

use super::{Entry, HardState, MemberChange, Members, Message, MessageKind, Payload, Snapshot};
use crate::NodeNumber;

/// The node of a library's id.
pub(super) fn node(id: u64) -> NodeNumber {
    NodeNumber::try_from(id).unwrap_or_else(|_| panic!("the library names a node {id} that nobody gave it"))
}

/// The node of a library's id, where 0 stands for none.
pub(super) fn node_or_none(id: u64) -> Option<NodeNumber> {
    (id != raft::INVALID_ID).then(|| node(id))
}

pub(super) fn entry_to_lib(entry: &Entry) -> lib::Entry {
    let mut out = lib::Entry { index: entry.index, term: entry.term, ..lib::Entry::default() };
    match &entry.payload {
        Payload::Nothing => {}
        Payload::Command(bytes) => out.data = bytes.clone().into(),
        Payload::Members(changes) => {
            out.set_entry_type(lib::EntryType::EntryConfChangeV2);
            out.context = changes_to_context(changes).into();
        }
    }
    out
}

pub(super) fn entry_from_lib(entry: &lib::Entry) -> Entry {
    let payload = match entry.get_entry_type() {
        lib::EntryType::EntryNormal if entry.data.is_empty() => Payload::Nothing,
        lib::EntryType::EntryNormal => Payload::Command(entry.data.to_vec()),
        lib::EntryType::EntryConfChangeV2 => Payload::Members(changes_from_context(&entry.context)),
        lib::EntryType::EntryConfChange => panic!("entry {} has a form that is never proposed", entry.index),
    };
    Entry { index: entry.index, term: entry.term, payload }
}

/// The context of an entry that changes members; empty where the library ends joint consensus by itself.
pub(super) fn changes_to_context(changes: &[MemberChange]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if !changes.is_empty() {
        Encoder::new(&mut bytes).encode(changes).expect("writing to memory does not fail");
    }
    bytes
}

/// Changes from a context, which this process has encoded: others send them as [`Payload::Members`].
fn changes_from_context(context: &[u8]) -> Vec<MemberChange> {
    if context.is_empty() {
        return Vec::new();
    }
    Decoder::new(context).decode().unwrap_or_else(|error| panic!("an own encoding of changes: {error}"))
}

pub(super) fn changes_to_lib(changes: &[MemberChange]) -> lib::ConfChangeV2 {
    let mut out = lib::ConfChangeV2::default();
    let single = |change: &MemberChange| {
        let (kind, node) = match change {
            MemberChange::Voter(node) => (lib::ConfChangeType::AddNode, node),
            MemberChange::Learner(node) => (lib::ConfChangeType::AddLearnerNode, node),
            MemberChange::Remove(node) => (lib::ConfChangeType::RemoveNode, node),
        };
        let mut single = lib::ConfChangeSingle::default();
        single.set_change_type(kind);
        single.node_id = u64::from(*node);
        single
    };
    out.set_changes(changes.iter().map(single).collect::<Vec<_>>().into());
    out
}

fn ids(nodes: &[NodeNumber]) -> Vec<u64> {
    nodes.iter().map(|node| u64::from(*node)).collect()
}

fn nodes(ids: &[u64]) -> Vec<NodeNumber> {
    let mut nodes: Vec<_> = ids.iter().map(|id| node(*id)).collect();
    // The library keeps them in sets without an order.
    nodes.sort_unstable();
    nodes
}

pub(super) fn members_to_lib(members: &Members) -> lib::ConfState {
    let mut out = lib::ConfState::default();
    out.set_voters(ids(&members.voters));
    out.set_learners(ids(&members.learners));
    out.set_voters_outgoing(ids(&members.voters_outgoing));
    out.set_learners_next(ids(&members.learners_next));
    out.auto_leave = members.auto_leave;
    out
}

pub(super) fn members_from_lib(state: &lib::ConfState) -> Members {
    Members {
        voters: nodes(&state.voters),
        learners: nodes(&state.learners),
        voters_outgoing: nodes(&state.voters_outgoing),
        learners_next: nodes(&state.learners_next),
        auto_leave: state.auto_leave,
    }
}

pub(super) fn snapshot_to_lib(snapshot: &Snapshot) -> lib::Snapshot {
    let mut out = lib::Snapshot { data: snapshot.state.clone().into(), ..lib::Snapshot::default() };
    let metadata = out.mut_metadata();
    metadata.index = snapshot.index;
    metadata.term = snapshot.term;
    metadata.set_conf_state(members_to_lib(&snapshot.members));
    out
}

pub(super) fn snapshot_from_lib(snapshot: &lib::Snapshot) -> Snapshot {
    let metadata = snapshot.get_metadata();
    Snapshot {
        index: metadata.index,
        term: metadata.term,
        members: members_from_lib(metadata.get_conf_state()),
        state: snapshot.data.to_vec(),
    }
}

pub(super) fn hard_state_to_lib(state: &HardState) -> lib::HardState {
    let vote = state.vote.map_or(raft::INVALID_ID, u64::from);
    lib::HardState { term: state.term, vote, commit: state.commit, ..lib::HardState::default() }
}

pub(super) fn hard_state_from_lib(state: &lib::HardState) -> HardState {
    HardState { term: state.term, vote: node_or_none(state.vote), commit: state.commit }
}

fn kind_to_lib(kind: MessageKind) -> lib::MessageType {
    match kind {
        MessageKind::Append => lib::MessageType::MsgAppend,
        MessageKind::AppendAnswer => lib::MessageType::MsgAppendResponse,
        MessageKind::Vote => lib::MessageType::MsgRequestVote,
        MessageKind::VoteAnswer => lib::MessageType::MsgRequestVoteResponse,
        MessageKind::PreVote => lib::MessageType::MsgRequestPreVote,
        MessageKind::PreVoteAnswer => lib::MessageType::MsgRequestPreVoteResponse,
        MessageKind::Heartbeat => lib::MessageType::MsgHeartbeat,
        MessageKind::HeartbeatAnswer => lib::MessageType::MsgHeartbeatResponse,
        MessageKind::Snapshot => lib::MessageType::MsgSnapshot,
        MessageKind::TimeoutNow => lib::MessageType::MsgTimeoutNow,
        MessageKind::ReadIndex => lib::MessageType::MsgReadIndex,
        MessageKind::ReadIndexAnswer => lib::MessageType::MsgReadIndexResp,
    }
}

fn kind_from_lib(kind: lib::MessageType) -> MessageKind {
    match kind {
        lib::MessageType::MsgAppend => MessageKind::Append,
        lib::MessageType::MsgAppendResponse => MessageKind::AppendAnswer,
        lib::MessageType::MsgRequestVote => MessageKind::Vote,
        lib::MessageType::MsgRequestVoteResponse => MessageKind::VoteAnswer,
        lib::MessageType::MsgRequestPreVote => MessageKind::PreVote,
        lib::MessageType::MsgRequestPreVoteResponse => MessageKind::PreVoteAnswer,
        lib::MessageType::MsgHeartbeat => MessageKind::Heartbeat,
        lib::MessageType::MsgHeartbeatResponse => MessageKind::HeartbeatAnswer,
        lib::MessageType::MsgSnapshot => MessageKind::Snapshot,
        lib::MessageType::MsgTimeoutNow => MessageKind::TimeoutNow,
        lib::MessageType::MsgReadIndex => MessageKind::ReadIndex,
        lib::MessageType::MsgReadIndexResp => MessageKind::ReadIndexAnswer,
        // Proposals and transfers are taken by a leader only (`raft`), so the library forwards none.
        other => panic!("the library sends a {other:?}, which never leaves a node"),
    }
}

pub(super) fn message_to_lib(message: &Message) -> lib::Message {
    let mut out = lib::Message::default();
    out.set_msg_type(kind_to_lib(message.kind));
    out.from = u64::from(message.from);
    out.to = u64::from(message.to);
    out.term = message.term;
    out.log_term = message.log_term;
    out.index = message.index;
    out.set_entries(message.entries.iter().map(entry_to_lib).collect::<Vec<_>>().into());
    out.commit = message.commit;
    out.commit_term = message.commit_term;
    if let Some(snapshot) = &message.snapshot {
        out.set_snapshot(snapshot_to_lib(snapshot));
    }
    out.request_snapshot = message.request_snapshot;
    out.reject = message.reject;
    out.reject_hint = message.reject_hint;
    out.context = message.context.clone().into();
    out.priority = message.priority;
    out
}

pub(super) fn message_from_lib(message: &lib::Message) -> Message {
    let kind = kind_from_lib(message.get_msg_type());
    Message {
        kind,
        from: node(message.from),
        to: node(message.to),
        term: message.term,
        log_term: message.log_term,
        index: message.index,
        entries: message.entries.iter().map(entry_from_lib).collect(),
        commit: message.commit,
        commit_term: message.commit_term,
        snapshot: (kind == MessageKind::Snapshot).then(|| snapshot_from_lib(message.get_snapshot())),
        request_snapshot: message.request_snapshot,
        reject: message.reject,
        reject_hint: message.reject_hint,
        context: message.context.to_vec(),
        priority: message.priority,
    }
}
