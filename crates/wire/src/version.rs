//! The protocol versions a connection may speak.
//!
//! A connection has one version for its whole life, chosen by its first frame. Everything in this crate whose
//! bytes differ between versions asks here, by comparing: `version >= ProtocolVersion::V4`.

use std::fmt;

/// A version of the CQL native protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProtocolVersion {
    /// native_protocol_v3.spec.
    V3 = 3,
    /// native_protocol_v4.spec.
    V4 = 4,
    /// native_protocol_v5.spec, the final one, with segments around envelopes.
    V5 = 5,
}

impl ProtocolVersion {
    /// Every version we speak, oldest first.
    pub const ALL: [Self; 3] = [Self::V3, Self::V4, Self::V5];

    /// The version we answer with when the client's own is unknown to us.
    pub const LATEST: Self = Self::V5;

    /// The version with this number, without the direction bit; `None` when we do not speak it.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            3 => Some(Self::V3),
            4 => Some(Self::V4),
            5 => Some(Self::V5),
            _ => None,
        }
    }

    /// The number in the first byte of a frame, without the direction bit.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The form `PROTOCOL_VERSIONS` of a SUPPORTED message wants: `5/v5`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V3 => "3/v3",
            Self::V4 => "4/v4",
            Self::V5 => "5/v5",
        }
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
