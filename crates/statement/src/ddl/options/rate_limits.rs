//! The table option `per_partition_rate_limit`, as the bytes that `replication::admission` reads.

/// Name of the option, and of the extension that has its bytes.
pub const EXTENSION: &str = "per_partition_rate_limit";

/// The limits of one table, operations a second on each partition; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateLimits {
    /// `max_reads_per_second`.
    pub reads: Option<u32>,
    /// `max_writes_per_second`.
    pub writes: Option<u32>,
}

impl RateLimits {
    /// Reads the limits from the bytes of the extension; invalid bytes mean no limits.
    pub fn decode(bytes: &[u8]) -> Self {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
            u32::try_from(i32::from_be_bytes(bytes)).ok()
        };
        Self { reads: number(0), writes: number(4) }
    }

    /// The bytes of the extension: two numbers of four bytes, big-endian, -1 for no limit.
    pub fn encode(self) -> Vec<u8> {
        let number = |limit: Option<u32>| limit.and_then(|limit| i32::try_from(limit).ok()).unwrap_or(-1);
        [number(self.reads), number(self.writes)].iter().flat_map(|number| number.to_be_bytes()).collect()
    }
}
