//! The tables of `system_views`, and the source of each one's rows.
//!
//! A table is added by its definition in `definitions/system_views.cql` and a line here. A test compares the
//! two.

use reactor::metrics::Sample;
use storage::TableReport;

use super::super::node::NodeFacts;
use super::super::rows::Rows;
use super::fill;
use crate::load::{Of, Told};

/// Metrics of a shard, and its memory limit in bytes.
pub(super) type ShardSamples = (Vec<Sample>, u64);

/// The source of a table's rows.
pub(super) enum View {
    /// No rows: the node has nothing to show there, or does not measure it.
    Empty,
    /// Facts about the node.
    Facts(fn(&mut Rows<'_>, &NodeFacts)),
    /// Reports of all tables.
    Tables(fn(&mut Rows<'_>, &[TableReport])),
    /// Loads of all tables by one kind of request.
    Loads(Of, fn(&mut Rows<'_>, &[(TableReport, Told)])),
    /// Metrics of each shard.
    Samples(fn(&mut Rows<'_>, &[ShardSamples])),
    /// Sizes of batches.
    Batches,
    /// Connected clients.
    Clients,
    /// Running compactions.
    Compactions,
    /// Hints for other nodes.
    Hints,
    /// Running requests.
    Requests,
    /// The configuration.
    Settings,
    /// Snapshots.
    Snapshots,
    /// Prepared statements, and counts of statements.
    Statements,
}

/// Tables by name, sorted.
static VIEWS: [(&str, View); 43] = [
    ("batch_metrics", View::Batches),
    ("caches", View::Samples(fill::row_cache)),
    ("cidr_filtering_metrics_counts", View::Empty),
    ("cidr_filtering_metrics_latencies", View::Empty),
    ("clients", View::Clients),
    ("coordinator_read_latency", View::Loads(Of::Reads, fill::latencies)),
    ("coordinator_scan_latency", View::Loads(Of::Scans, fill::latencies)),
    ("coordinator_write_latency", View::Loads(Of::Writes, fill::latencies)),
    ("cql_metrics", View::Statements),
    ("credentials_cache_keys", View::Empty),
    ("disk_usage", View::Tables(|rows, reports| fill::sizes(rows, reports, |report| report.file_bytes))),
    ("gossip_info", View::Facts(fill::gossip)),
    ("internode_inbound", View::Empty),
    ("internode_outbound", View::Empty),
    ("jmx_permissions_cache_keys", View::Empty),
    ("local_read_latency", View::Loads(Of::Reads, fill::latencies)),
    ("local_scan_latency", View::Loads(Of::Scans, fill::latencies)),
    ("local_write_latency", View::Loads(Of::Writes, fill::latencies)),
    (
        "max_partition_size",
        View::Tables(|rows, reports| fill::sizes(rows, reports, |r| r.partition_bytes_max)),
    ),
    ("max_sstable_duration", View::Tables(fill::durations)),
    ("max_sstable_size", View::Tables(|rows, reports| fill::sizes(rows, reports, |r| r.file_bytes_max))),
    ("network_permissions_cache_keys", View::Empty),
    ("pending_hints", View::Hints),
    ("permissions_cache_keys", View::Empty),
    ("queries", View::Requests),
    ("repair_jobs", View::Empty),
    ("repair_participates", View::Empty),
    ("repair_sessions", View::Empty),
    ("repair_validations", View::Empty),
    ("repairs", View::Empty),
    ("roles_cache_keys", View::Empty),
    ("rows_per_read", View::Loads(Of::Rows, fill::past)),
    ("sai_column_indexes", View::Empty),
    ("sai_sstable_index_segments", View::Empty),
    ("sai_sstable_indexes", View::Empty),
    ("settings", View::Settings),
    ("snapshots", View::Snapshots),
    ("sstable_tasks", View::Compactions),
    ("streaming", View::Empty),
    ("system_logs", View::Empty),
    ("system_properties", View::Empty),
    ("thread_pools", View::Samples(fill::groups)),
    ("tombstones_per_read", View::Loads(Of::Tombstones, fill::past)),
];

/// The table of that name.
pub(super) fn view(table: &str) -> Option<&'static View> {
    let place = VIEWS.binary_search_by_key(&table, |(name, _)| *name).ok()?;
    Some(&VIEWS[place].1)
}

#[cfg(test)]
mod tests {
    use super::super::super::Catalog;
    use super::{VIEWS, view};

    #[test]
    fn the_tables_that_are_defined_are_registered() {
        let catalog = Catalog::new().expect("definitions that parse");
        let keyspace = catalog.keyspace("system_views").expect("the keyspace");
        let defined: Vec<&str> = keyspace.tables.keys().map(String::as_str).collect();
        let registered: Vec<&str> = VIEWS.iter().map(|(name, _)| *name).collect();
        assert_eq!(registered, defined, "sorted, as the search needs it");
        assert!(defined.iter().all(|name| view(name).is_some()) && view("nothing").is_none());
    }
}
