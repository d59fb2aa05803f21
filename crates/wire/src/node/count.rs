//! Counter updates on their way to their leader, and how they ended.
//!
//! ```text
//! count   := born_us:i64 level:u16 entry         an entry as in `mutate`; counter cells are deltas
//! answer  := 0                                    counted, at the level
//!          | 1 required:u32 alive:u32             too few replicas were alive: not counted
//!          | 2 received:u32 required:u32          perhaps counted: too few answers in time
//!          | 3 received:u32 required:u32 count:u16 failure[count] reason:sized
//!                                                 perhaps counted: replicas failed, the last one last
//! failure := node:u16 shard:u16 reason:u8
//! ```
//! A request that ends with an error frame of a kind that says "nothing was done" was not counted, and may be
//! sent again; after every other end it may have been.

use super::NodeError;
use super::mutate::{self, Entry};
use super::reader::{Reader, append_sized};
use crate::consistency::Consistency;

/// Bytes of a failure in an answer.
const FAILURE_BYTES: usize = 5;
/// Longest reason of a failure, in bytes.
const REASON_BYTES_MAX: usize = 1024;

/// An update for its leader.
#[derive(Debug, Clone, Copy)]
pub struct Count<'a> {
    /// When its coordinator began it, microseconds since 1970.
    pub born_us: i64,
    /// The level at which the leader answers.
    pub level: Consistency,
    /// The deltas.
    pub entry: Entry<'a>,
}

/// A replica that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Its node.
    pub node: u16,
    /// Its shard.
    pub shard: u16,
    /// The reason: the code of Cassandra's `RequestFailureReason`.
    pub reason: u8,
}

/// How an update ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counted {
    /// It is counted, and enough replicas have it.
    Done,
    /// Nothing was done.
    Unavailable {
        /// Replicas the level needs.
        required: u32,
        /// Replicas alive.
        alive: u32,
    },
    /// It may be counted.
    TimedOut {
        /// Answers received.
        received: u32,
        /// Answers needed.
        required: u32,
    },
    /// It may be counted.
    Failed {
        /// Answers received.
        received: u32,
        /// Answers needed.
        required: u32,
        /// The replicas that failed.
        failures: Vec<Failure>,
        /// The text of the last error.
        reason: String,
    },
}

/// Appends an update.
pub fn encode(message: &Count<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&message.born_us.to_le_bytes());
    out.extend_from_slice(&message.level.code().to_le_bytes());
    mutate::append_entry(&message.entry, out);
}

/// Reads an update. Whether its mutation fits its table is told by
/// [`MutationView::fits`](model::mutation::MutationView::fits).
///
/// # Errors
/// [`NodeError`] for bytes that are not exactly one update.
pub fn decode(message: &[u8]) -> Result<Count<'_>, NodeError> {
    let mut reader = Reader::new(message);
    let born_us = i64::from_le_bytes(reader.array("the time of an update")?);
    let code = reader.u16("a consistency level")?;
    let unknown = |_| NodeError::Unknown { field: "a consistency level", value: u64::from(code) };
    let level = Consistency::from_code(code).map_err(unknown)?;
    let entry = mutate::entry(&mut reader)?;
    reader.end()?;
    Ok(Count { born_us, level, entry })
}

impl Counted {
    /// Appends the answer; of more than 65,535 failures the last ones, of a long reason its beginning.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut kind = |kind: u8, numbers: &[u32]| {
            out.push(kind);
            numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        };
        match self {
            Self::Done => kind(0, &[]),
            Self::Unavailable { required, alive } => kind(1, &[*required, *alive]),
            Self::TimedOut { received, required } => kind(2, &[*received, *required]),
            Self::Failed { received, required, failures, reason } => {
                kind(3, &[*received, *required]);
                let failures = &failures[failures.len().saturating_sub(usize::from(u16::MAX))..];
                out.extend_from_slice(&(failures.len() as u16).to_le_bytes());
                for failure in failures {
                    out.extend_from_slice(&failure.node.to_le_bytes());
                    out.extend_from_slice(&failure.shard.to_le_bytes());
                    out.push(failure.reason);
                }
                append_sized(out, &reason.as_bytes()[..reason.floor_char_boundary(REASON_BYTES_MAX)]);
            }
        }
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// [`NodeError`] for bytes that are not exactly one answer.
    pub fn decode(message: &[u8]) -> Result<Self, NodeError> {
        let mut reader = Reader::new(message);
        let kind = reader.u8("the end of an update")?;
        let mut numbers = || Ok((reader.u32("a number of replicas")?, reader.u32("a number of replicas")?));
        let answer = match kind {
            0 => Self::Done,
            1 => {
                let (required, alive) = numbers()?;
                Self::Unavailable { required, alive }
            }
            2 => {
                let (received, required) = numbers()?;
                Self::TimedOut { received, required }
            }
            3 => {
                let (received, required) = numbers()?;
                let failures = failures(&mut reader)?;
                let reason = reader.sized("a reason")?;
                let invalid =
                    |_| NodeError::Invalid { field: "a reason", reason: "it is no text".to_owned() };
                let reason = str::from_utf8(reason).map_err(invalid)?;
                if reason.len() > REASON_BYTES_MAX {
                    return Err(NodeError::TooLong { length: reason.len() as u64, limit: REASON_BYTES_MAX });
                }
                Self::Failed { received, required, failures, reason: super::without_control(reason) }
            }
            other => {
                return Err(NodeError::Unknown { field: "the end of an update", value: u64::from(other) });
            }
        };
        reader.end()?;
        Ok(answer)
    }
}

fn failures(reader: &mut Reader<'_>) -> Result<Vec<Failure>, NodeError> {
    const FIELD: &str = "a replica that failed";
    let count = usize::from(reader.u16(FIELD)?);
    if count * FAILURE_BYTES > reader.rest().len() {
        return Err(NodeError::Truncated { field: FIELD });
    }
    let mut failures = Vec::with_capacity(count);
    for _ in 0..count {
        let (node, shard) = (reader.u16(FIELD)?, reader.u16(FIELD)?);
        failures.push(Failure { node, shard, reason: reader.u8(FIELD)? });
    }
    Ok(failures)
}
