//! Consistency levels by their numbers and names on the wire (native_protocol_v5.spec §3 `[consistency]`).
//!
//! Whether a level makes sense for a statement is decided where the statement is executed; here every level
//! that has a number is let through. Invariant: `from_code(level.code()) == Some(level)`.

use std::fmt;

use crate::protocol_error::ProtocolError;

/// How many replicas must answer before the client gets the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Consistency {
    /// Any node took the write, a hint counts.
    Any = 0,
    /// One replica.
    One = 1,
    /// Two replicas.
    Two = 2,
    /// Three replicas.
    Three = 3,
    /// A majority of all replicas.
    Quorum = 4,
    /// Every replica.
    All = 5,
    /// A majority of the replicas in the coordinator's data center.
    LocalQuorum = 6,
    /// A majority in every data center.
    EachQuorum = 7,
    /// Linearizable over all data centers.
    Serial = 8,
    /// Linearizable within the coordinator's data center.
    LocalSerial = 9,
    /// One replica of the coordinator's data center.
    LocalOne = 10,
    /// The coordinator itself only; Cassandra's extension for special reads.
    NodeLocal = 11,
}

impl Consistency {
    /// Every level, by number.
    pub const ALL: [Self; 12] = [
        Self::Any,
        Self::One,
        Self::Two,
        Self::Three,
        Self::Quorum,
        Self::All,
        Self::LocalQuorum,
        Self::EachQuorum,
        Self::Serial,
        Self::LocalSerial,
        Self::LocalOne,
        Self::NodeLocal,
    ];

    /// The level with this number.
    ///
    /// # Errors
    /// [`ProtocolError::UnknownConsistency`] when there is none.
    pub fn from_code(code: u16) -> Result<Self, ProtocolError> {
        Self::ALL.get(usize::from(code)).copied().ok_or(ProtocolError::UnknownConsistency { code })
    }

    /// The number on the wire.
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The name in messages and in `CONSISTENCY` of cqlsh, such as `LOCAL_QUORUM`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "ANY",
            Self::One => "ONE",
            Self::Two => "TWO",
            Self::Three => "THREE",
            Self::Quorum => "QUORUM",
            Self::All => "ALL",
            Self::LocalQuorum => "LOCAL_QUORUM",
            Self::EachQuorum => "EACH_QUORUM",
            Self::Serial => "SERIAL",
            Self::LocalSerial => "LOCAL_SERIAL",
            Self::LocalOne => "LOCAL_ONE",
            Self::NodeLocal => "NODE_LOCAL",
        }
    }

    /// Whether this is one of the two levels of a conditional statement's Paxos phase.
    pub const fn is_serial(self) -> bool {
        matches!(self, Self::Serial | Self::LocalSerial)
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
