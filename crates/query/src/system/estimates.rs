//! `system.size_estimates` and `system.table_estimates`: the number and the mean size of each table's
//! partitions in each range of the ring. Spark's connector splits its reads by them.
//!
//! Cassandra's `SizeEstimatesRecorder` writes them every five minutes; here they are computed when they are
//! read, and include the rows of memtables. A node without peers owns all ranges, so both types of range have
//! the same rows.

use model::tablet::TabletId;
use storage::SizeEstimate;

use super::node::ring_parts;
use super::rows::Rows;

/// Types of ranges in `system.table_estimates`.
const RANGE_TYPES: [&str; 2] = ["local_primary", "primary"];

/// Whether a table of `system` shows estimates.
pub(super) fn is_estimates(table: &str) -> bool {
    matches!(table, "size_estimates" | "table_estimates")
}

/// Start (exclusive) and end of each range.
pub(super) fn ranges() -> Vec<(String, String)> {
    let mut ranges = Vec::new();
    let mut start = i64::MIN;
    for part in ring_parts().tablets() {
        let end = end_of(part);
        ranges.push((start.to_string(), end.to_string()));
        start = end;
    }
    ranges
}

fn end_of(part: TabletId) -> i64 {
    ring_parts().range(part).1.0
}

/// Adds the rows of one table.
pub(super) fn fill(rows: &mut Rows<'_>, table: &SizeEstimate, ranges: &[(String, String)]) {
    let types = if rows.has_column("range_type") { &RANGE_TYPES[..] } else { &RANGE_TYPES[..1] };
    for range_type in types {
        for ((start, end), (partitions, bytes)) in ranges.iter().zip(&table.parts) {
            let bigint = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            rows.row(|row| {
                row.text("keyspace_name", &table.keyspace);
                row.text("table_name", &table.name);
                if types.len() > 1 {
                    row.text("range_type", range_type);
                }
                row.text("range_start", start);
                row.text("range_end", end);
                row.bigint("mean_partition_size", bigint(bytes.checked_div(*partitions).unwrap_or(0)));
                row.bigint("partitions_count", bigint(*partitions));
            });
        }
    }
}
