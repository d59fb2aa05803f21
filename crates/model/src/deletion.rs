//! When something was deleted, and when a row was last inserted.
//!
//! Client timestamps are microseconds; local times are seconds since the epoch as unsigned 32-bit
//! numbers, so that they last until 2106 (table files of the `me` version cap them at 2038).

use std::cmp::Ordering;

/// Seconds since the epoch, as kept beside tombstones and expiring cells.
pub type LocalSeconds = u32;

/// The local time of a cell that neither expires nor is a tombstone.
pub const NO_LOCAL_TIME: LocalSeconds = u32::MAX;

/// The largest local time that can be stored (Cassandra's `Cell.MAX_DELETION_TIME`).
pub const LOCAL_TIME_MAX: LocalSeconds = u32::MAX - 2;

/// The latest a cell may expire: table files of the `me` version keep no later time, as Cassandra 5 with
/// `storage_compatibility_mode: CASSANDRA_4`, which is its default.
pub const EXPIRATION_MAX: LocalSeconds = i32::MAX as LocalSeconds - 1;

/// The timestamp of something that was never written.
pub const NO_TIMESTAMP: i64 = i64::MIN;

/// A deletion: everything written at or before `timestamp` is gone; `local_time` starts its grace period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeletionTime {
    /// Client timestamp in microseconds.
    pub timestamp: i64,
    /// When the deletion was made on the node that coordinated it.
    pub local_time: LocalSeconds,
}

impl DeletionTime {
    /// No deletion.
    pub const LIVE: Self = Self { timestamp: NO_TIMESTAMP, local_time: NO_LOCAL_TIME };

    /// Whether this deletes nothing.
    pub fn is_live(self) -> bool {
        self.timestamp == NO_TIMESTAMP
    }

    /// Whether a write at `timestamp` is gone.
    pub fn deletes(self, timestamp: i64) -> bool {
        timestamp <= self.timestamp && !self.is_live()
    }

    /// Whether this deletion wins over `other`.
    pub fn supersedes(self, other: Self) -> bool {
        self.cmp(&other) == Ordering::Greater
    }
}

impl PartialOrd for DeletionTime {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DeletionTime {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.is_live() || other.is_live() {
            return other.is_live().cmp(&self.is_live());
        }
        self.timestamp.cmp(&other.timestamp).then(self.local_time.cmp(&other.local_time))
    }
}

/// The row marker an INSERT leaves: the row exists even where every regular column is null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Liveness {
    /// Client timestamp in microseconds; [`NO_TIMESTAMP`] if there is no marker.
    pub timestamp: i64,
    /// Time to live in seconds, 0 for none.
    pub ttl: u32,
    /// When it expires, [`NO_LOCAL_TIME`] for never.
    pub expires_at: LocalSeconds,
}

/// The TTL of a marker that expired and stays only to shadow older ones
/// (Cassandra's `LivenessInfo.EXPIRED_LIVENESS_TTL`).
pub const EXPIRED_LIVENESS_TTL: u32 = i32::MAX as u32;

impl Liveness {
    /// No marker.
    pub const NONE: Self = Self { timestamp: NO_TIMESTAMP, ttl: 0, expires_at: NO_LOCAL_TIME };

    /// Whether there is no marker.
    pub fn is_none(self) -> bool {
        self.timestamp == NO_TIMESTAMP
    }

    /// Whether the marker counts at `now`.
    pub fn is_live(self, now: LocalSeconds) -> bool {
        !self.is_none() && self.ttl != EXPIRED_LIVENESS_TTL && (self.ttl == 0 || now < self.expires_at)
    }

    /// Whether this marker wins over `other` (Cassandra's `LivenessInfo.supersedes`).
    pub fn supersedes(self, other: Self) -> bool {
        if self.timestamp != other.timestamp {
            return self.timestamp > other.timestamp;
        }
        let (expired, other_expired) = (self.ttl == EXPIRED_LIVENESS_TTL, other.ttl == EXPIRED_LIVENESS_TTL);
        if expired != other_expired {
            return expired;
        }
        if (self.ttl != 0) != (other.ttl != 0) {
            return self.ttl != 0;
        }
        self.expires_at > other.expires_at || (self.expires_at == other.expires_at && self.ttl < other.ttl)
    }
}
