//! Answers that say why there is none.
//!
//! Invariant: a kind tells the caller what it may do next; the text is for people only.

use minicbor::{Decode, Encode};

use super::{NodeError, cbor};

/// Longest text of a fault, in bytes; a longer one is cut when it is encoded.
pub const FAULT_TEXT_BYTES_MAX: usize = 1024;
/// Longest encoded fault that is taken.
const FAULT_BYTES_MAX: usize = 2 * FAULT_TEXT_BYTES_MAX;

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum FaultKind {
    /// The node has no memory or no place for the request; nothing of it was done.
    #[n(0)]
    Overloaded,
    /// The node does not serve this verb, or not yet; nothing of it was done.
    #[n(1)]
    NotServed,
    /// The bytes of the request mean nothing to the node; nothing of it was done.
    #[n(2)]
    Invalid,
    /// Only the leader of the control plane does this; nothing of it was done.
    #[n(3)]
    NotLeader,
    /// The sender may not ask for this: it is no member, or is on its way out.
    #[n(4)]
    Forbidden,
    /// The request was planned with an older or newer state than the node has.
    #[n(5)]
    Stale,
    /// The request took longer than it had; it may have been done.
    #[n(6)]
    TimedOut,
    /// The node failed; the request may have been done.
    #[n(7)]
    Failed,
}

/// An answer that says why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    /// The kind.
    #[n(0)]
    pub kind: FaultKind,
    /// Whether the same request may succeed later, or elsewhere.
    #[n(1)]
    pub retryable: bool,
    /// The reason, for people.
    #[n(2)]
    pub text: String,
    /// The leader's number, where the kind is `NotLeader` and it is known.
    #[n(3)]
    pub leader: Option<u16>,
}

impl Fault {
    /// A fault without a leader; it is retryable if its kind says that nothing is wrong with the request.
    pub fn new(kind: FaultKind, text: impl Into<String>) -> Self {
        let retryable = match kind {
            FaultKind::Overloaded | FaultKind::NotLeader | FaultKind::Stale | FaultKind::TimedOut => true,
            FaultKind::NotServed | FaultKind::Invalid | FaultKind::Forbidden | FaultKind::Failed => false,
        };
        Self { kind, retryable, text: text.into(), leader: None }
    }

    /// Whether the request was certainly not done.
    pub fn is_definite(&self) -> bool {
        match self.kind {
            FaultKind::Overloaded
            | FaultKind::NotServed
            | FaultKind::Invalid
            | FaultKind::NotLeader
            | FaultKind::Forbidden
            | FaultKind::Stale => true,
            FaultKind::TimedOut | FaultKind::Failed => false,
        }
    }

    /// Appends the answer, its text cut to [`FAULT_TEXT_BYTES_MAX`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut fault = self.clone();
        if fault.text.len() > FAULT_TEXT_BYTES_MAX {
            let end = (0..=FAULT_TEXT_BYTES_MAX).rev().find(|at| fault.text.is_char_boundary(*at));
            fault.text.truncate(end.unwrap_or(0));
        }
        cbor::encode(&fault, out);
    }

    /// Reads an answer; its text has no control characters, because it is written to logs.
    ///
    /// # Errors
    /// [`NodeError`] for other bytes and an answer that is too long.
    pub fn decode(message: &[u8]) -> Result<Self, NodeError> {
        let mut fault: Self = cbor::decode(message, FAULT_BYTES_MAX, "a fault")?;
        if fault.text.len() > FAULT_TEXT_BYTES_MAX {
            return Err(NodeError::TooLong { length: fault.text.len() as u64, limit: FAULT_TEXT_BYTES_MAX });
        }
        if fault.text.chars().any(char::is_control) {
            fault.text = super::without_control(&fault.text);
        }
        Ok(fault)
    }
}
