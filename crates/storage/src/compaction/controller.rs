//! Sets how much of the core and of the disk compactions get, in proportion to their backlog.
//!
//! The backlog is the number of bytes that the strategies still have to rewrite, divided by the bytes that
//! memtables may take. Few shares without a backlog keep the latency of requests low. Many shares with a
//! large backlog keep the number of files, and with it the space on disk, from growing without bound.
//! `compaction_static_shares` sets a fixed number of shares instead.

use reactor::Group;

use super::view::Facts;
use crate::shard::Storage;

/// Shares at some backlogs, by bytes of memory; between two of them along a line, behind the last one
/// constant.
const SHARES: [(f64, f64); 3] = [(0.0, 50.0), (1.5, 100.0), (30.0, 1000.0)];

/// Shares for a backlog of so many times the memory.
fn shares_for(normalized: f64) -> u32 {
    let pairs = SHARES.windows(2);
    for pair in pairs {
        let ((from, low), (to, high)) = (pair[0], pair[1]);
        if normalized <= to {
            let along = ((normalized - from) / (to - from)).clamp(0.0, 1.0);
            return (low + along * (high - low)).round() as u32;
        }
    }
    SHARES[SHARES.len() - 1].1 as u32
}

impl Storage {
    /// Gives the compaction group the shares that the backlog asks for, and publishes both.
    pub(super) fn adjust_shares(&self) {
        let compactions = &self.0.compactions;
        let (mut backlog, mut pending) = (0.0, 0);
        for tablet in self.tablets() {
            let (bytes, jobs) = tablet.debt(|| {
                let now = self.now_seconds();
                let gc_before = self.gc_before(&tablet, &tablet.table(), now);
                Facts::of(&tablet, now, gc_before, compactions.flush_bytes.get())
            });
            backlog += bytes;
            pending += jobs;
        }
        let normalized = backlog / (self.0.config.memtable_bytes_max.max(1) as f64);
        let fixed = compactions.static_shares.get();
        let shares = if fixed > 0 { fixed } else { shares_for(normalized) };
        Group::COMPACTION.set_shares(shares);
        let metrics = &compactions.metrics;
        metrics.backlog.set(backlog as i64);
        metrics.normalized_backlog.set((normalized * 1000.0) as i64);
        metrics.pending.set(i64::try_from(pending).unwrap_or(i64::MAX));
        metrics.shares.set(i64::from(shares));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_backlog() {
        for (backlog, expected) in
            [(0.0, 50), (0.75, 75), (1.5, 100), (15.75, 550), (30.0, 1000), (1e9, 1000), (f64::NAN, 1000)]
        {
            assert_eq!(shares_for(backlog), expected, "{backlog}");
        }
        let rising: Vec<u32> = (0..100).map(|n| shares_for(f64::from(n) / 2.0)).collect();
        assert!(rising.is_sorted());
    }
}
