//! The way to replicas on other nodes, as this crate needs it.
//!
//! A request is a verb and a body in the form of `wire::node`, sent to one shard of another node; its answer
//! is a body or a [`PeerError`]. [`network`] is the one of a node in a cluster; tests have their own.
//! `speeds` has how fast other nodes answered.
//! Invariant: a call ends by its deadline.

mod network;
mod speeds;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use model::tablet::{NodeNumber, Replica};
use reactor::Deadline;
use wire::node::fault::{Fault, FaultKind};
use wire::node::frame::{Verb, WorkGroup};

pub(crate) use network::NetworkPeers;
pub(crate) use speeds::Speeds;

/// A call under way. Dropping it gives up the answer; the request may still be done.
pub type PeerAnswer = Pin<Box<dyn Future<Output = Result<Vec<u8>, PeerError>>>>;

/// A request to a replica on another node.
#[derive(Debug)]
pub struct PeerCall {
    /// The node, and the shard of it.
    pub to: Replica,
    /// The kind of request.
    pub verb: Verb,
    /// Whose share of the other node's time it is.
    pub group: WorkGroup,
    /// When nobody waits for the answer any more.
    pub deadline: Deadline,
    /// The request, as `wire::node` has it.
    pub body: Vec<u8>,
}

/// News of another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeChange {
    /// It is up.
    Up(NodeNumber),
    /// It is down.
    Down(NodeNumber),
}

/// One who is told of changes.
pub type NodeListener = Rc<dyn Fn(NodeChange)>;

/// Other nodes' shards, as this shard reaches them.
pub trait Peers {
    /// Whether a replica on another node is expected to answer: its node is up, its shard not stalled.
    fn is_up(&self, replica: Replica) -> bool;

    /// Tells `listener` every change from now on, once [`Peers::is_up`] follows it.
    fn on_change(&self, listener: NodeListener);

    /// Sends a request. Nothing is sent before the answer is polled.
    fn call(&self, call: PeerCall) -> PeerAnswer;
}

/// A call without an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct PeerError {
    /// The kind.
    pub kind: PeerErrorKind,
    /// The reason, for people.
    pub reason: String,
}

/// The kinds of calls without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerErrorKind {
    /// The node cannot be reached, or the connection broke; the request may have been done.
    Unreachable,
    /// The deadline passed; the request may have been done.
    TimedOut,
    /// The node, or the connection to it, had no room; nothing was done.
    Overloaded,
    /// The request was planned with another state than the node has; nothing was done.
    Stale,
    /// The node failed; the request may have been done.
    Failed,
}

impl From<FaultKind> for PeerErrorKind {
    fn from(kind: FaultKind) -> Self {
        match kind {
            FaultKind::Overloaded => Self::Overloaded,
            FaultKind::Stale => Self::Stale,
            FaultKind::TimedOut => Self::TimedOut,
            // A node that does not serve yet, or any more, is as good as one that cannot be reached.
            FaultKind::NotServed => Self::Unreachable,
            FaultKind::Invalid | FaultKind::NotLeader | FaultKind::Forbidden | FaultKind::Failed => {
                Self::Failed
            }
        }
    }
}

impl From<Fault> for PeerError {
    fn from(fault: Fault) -> Self {
        Self { kind: fault.kind.into(), reason: fault.text }
    }
}

/// The peers of a node that has none.
pub(crate) struct NoPeers;

impl Peers for NoPeers {
    fn is_up(&self, _: Replica) -> bool {
        false
    }

    fn on_change(&self, _: NodeListener) {}

    fn call(&self, call: PeerCall) -> PeerAnswer {
        let reason = format!("node {} cannot be reached: this node has no network", call.to.node);
        Box::pin(async move { Err(PeerError { kind: PeerErrorKind::Unreachable, reason }) })
    }
}
