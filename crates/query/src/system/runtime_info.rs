//! `system.runtime_info`: the node's state and its use of memory, in groups of items.
//!
//! The columns are those of ScyllaDB's documentation, which describes the contents (the outputs of nodetool's
//! `info`, `gettraceprobability` and `statusgossip`) but not the names of items. Sizes are in bytes, times in
//! seconds.

use reactor::metrics::{Sample, Value};

use super::node::NodeFacts;
use super::rows::Rows;
use crate::Engine;

/// Figures of the whole node.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Runtime {
    /// Bytes of table files.
    pub(crate) load_bytes: u64,
    memory_bytes_max: u64,
    memtable_bytes: u64,
    memtable_bytes_max: u64,
    memtable_partitions: u64,
    cache_bytes: u64,
    cache_bytes_used: u64,
    cache_partitions: u64,
    cache_rows: u64,
    cache_hits: u64,
    cache_misses: u64,
    index_page_bytes: u64,
    resident_bytes: u64,
    /// The share of requests that is traced by chance: the same on every shard.
    trace_probability: f64,
}

impl Runtime {
    /// Figures of the current shard, without those of its table files.
    pub(super) fn of_shard(engine: &Engine) -> Self {
        let stats = engine.storage().stats();
        let samples = reactor::metrics::snapshot();
        Self {
            load_bytes: 0,
            memory_bytes_max: stats.memory_bytes_max as u64,
            memtable_bytes: stats.memtable_bytes as u64,
            memtable_bytes_max: stats.memtable_bytes_max as u64,
            memtable_partitions: stats.tables.iter().map(|table| table.memtable_partitions as u64).sum(),
            cache_bytes: stats.cache_bytes as u64,
            cache_bytes_used: stats.cache_bytes_used as u64,
            cache_partitions: stats.cache_partitions,
            cache_rows: stats.cache_rows,
            cache_hits: counted(&samples, "scylla_cache_row_hits"),
            cache_misses: counted(&samples, "scylla_cache_row_misses"),
            index_page_bytes: stats.index_page_bytes as u64,
            resident_bytes: stats.resident_bytes as u64,
            trace_probability: engine.watch().probability(),
        }
    }

    /// Adds another shard's figures.
    pub(super) fn add(&mut self, other: &Self) {
        self.load_bytes += other.load_bytes;
        self.memory_bytes_max += other.memory_bytes_max;
        self.memtable_bytes += other.memtable_bytes;
        self.memtable_bytes_max += other.memtable_bytes_max;
        self.memtable_partitions += other.memtable_partitions;
        self.cache_bytes += other.cache_bytes;
        self.cache_bytes_used += other.cache_bytes_used;
        self.cache_partitions += other.cache_partitions;
        self.cache_rows += other.cache_rows;
        self.cache_hits += other.cache_hits;
        self.cache_misses += other.cache_misses;
        self.index_page_bytes += other.index_page_bytes;
        self.resident_bytes += other.resident_bytes;
        self.trace_probability = other.trace_probability;
    }

    fn memory_bytes(&self) -> u64 {
        self.memtable_bytes + self.cache_bytes + self.index_page_bytes + self.resident_bytes
    }
}

fn counted(samples: &[Sample], name: &str) -> u64 {
    let of_name = samples.iter().filter(|sample| sample.name == name);
    let number = |sample: &Sample| match sample.value {
        Value::Counter(count) => count,
        _ => 0,
    };
    of_name.map(number).sum()
}

pub(super) fn fill(rows: &mut Rows<'_>, node: &NodeFacts, of: &Runtime) {
    let now = reactor::wall_clock_us() / 1_000_000;
    let uptime = u64::try_from(now - i64::from(node.generation)).unwrap_or(0);
    let requests = of.cache_hits + of.cache_misses;
    let hit_rate = if requests == 0 { 0.0 } else { of.cache_hits as f64 / requests as f64 };
    let number = |value: u64| value.to_string();
    let parts = |used: u64, total: u64| {
        [("free", number(total.saturating_sub(used))), ("total", number(total)), ("used", number(used))]
    };
    let [memory_free, memory_total, memory_used] = parts(of.memory_bytes(), of.memory_bytes_max);
    let [table_free, table_total, table_used] = parts(of.memtable_bytes, of.memtable_bytes_max);
    let [cache_free, cache_total, cache_used] = parts(of.cache_bytes_used, of.cache_bytes);
    let groups: [(&str, Vec<(&str, String)>); 8] = [
        (
            "cache",
            vec![
                ("entries", number(of.cache_partitions)),
                ("hit_rate_total", format!("{hit_rate:.4}")),
                ("hits", number(of.cache_hits)),
                ("memory_free", cache_free.1),
                ("memory_total", cache_total.1),
                ("memory_used", cache_used.1),
                ("misses", number(of.cache_misses)),
                ("requests_total", number(requests)),
                ("rows", number(of.cache_rows)),
            ],
        ),
        (
            "generic",
            vec![
                ("generation", number(u64::from(node.generation))),
                ("load", number(of.load_bytes)),
                ("uptime", number(uptime)),
            ],
        ),
        ("gossip", vec![("active", "true".to_owned())]),
        ("incremental_backup", vec![("enabled", "false".to_owned())]),
        ("memory", vec![memory_free, memory_total, memory_used]),
        (
            "memtable",
            vec![
                ("entries", number(of.memtable_partitions)),
                ("memory_free", table_free.1),
                ("memory_total", table_total.1),
                ("memory_used", table_used.1),
            ],
        ),
        // A client reads this over the native transport, so that is active.
        ("native_transport", vec![("active", "true".to_owned())]),
        ("trace_probability", vec![("trace_probability", of.trace_probability.to_string())]),
    ];
    for (group, items) in groups {
        for (item, value) in items {
            rows.row(|row| {
                row.text("group", group);
                row.text("item", item);
                row.text("value", &value);
            });
        }
    }
}
