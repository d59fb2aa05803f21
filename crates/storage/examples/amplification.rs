//! Measures the bytes that each compaction strategy writes and the space it takes, for a fixed workload:
//! `cargo run --release -p storage --example amplification [flushes]`.
//!
//! Counts, not times: the same run prints the same numbers. Bytes written are those of table files, including
//! flushes, relative to the bytes flushed; space is the most bytes that files took at once, relative to the
//! bytes left when all are compacted.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "an example, not the database")]

#[path = "../tests/table/mod.rs"]
mod table;

use std::collections::BTreeMap;

use reactor::Deadline;
use storage::StorageConfig;
use table::{ID, changes_with, write};

/// Partitions of a flush.
const PARTITIONS: u32 = 500;
/// Bytes of a value.
const VALUE_BYTES: usize = 1000;

type Options = &'static [(&'static str, &'static str)];

const STRATEGIES: &[(&str, Options)] = &[
    ("SizeTiered", &[("min_sstable_size", "0")]),
    ("Leveled", &[("sstable_size_in_mb", "0.25")]),
    ("TimeWindow", &[("compaction_window_unit", "MINUTES"), ("min_sstable_size", "0")]),
    ("Incremental", &[("sstable_size_in_mb", "0.25"), ("min_sstable_size", "0")]),
    (
        "Incremental",
        &[("sstable_size_in_mb", "0.25"), ("min_sstable_size", "0"), ("space_amplification_goal", "1.25")],
    ),
    (
        "Unified",
        &[("scaling_parameters", "T4"), ("target_sstable_size", "256KiB"), ("min_sstable_size", "64KiB")],
    ),
    (
        "Unified",
        &[("scaling_parameters", "L4"), ("target_sstable_size", "256KiB"), ("min_sstable_size", "64KiB")],
    ),
];

fn main() {
    let flushes: u32 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    println!("{flushes} flushes of {PARTITIONS} partitions of {VALUE_BYTES} bytes");
    println!("{:<66} {:>9} {:>7} {:>7} {:>7}", "strategy", "keys", "written", "room", "files");
    for (name, options) in STRATEGIES {
        for (keys, of) in [("new", flushes * PARTITIONS), ("again", flushes * PARTITIONS / 4)] {
            run(name, options, flushes, keys, of);
        }
    }
}

fn run(name: &'static str, options: Options, flushes: u32, keys: &'static str, of: u32) {
    let directory = tempfile::tempdir().expect("a folder");
    let config = StorageConfig::new(directory.path(), 256 << 20);
    reactor::run_one(reactor::Config::default(), async move {
        let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
        let mut compaction: BTreeMap<String, String> =
            options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        compaction.insert("class".to_owned(), format!("{name}CompactionStrategy"));
        let changes = changes_with(0, |table| {
            table.compaction = compaction;
            table.compression.clear();
        });
        for change in changes {
            cluster::change_schema(&change).await.expect("a schema change");
        }
        let value = "v".repeat(VALUE_BYTES);
        for flush in 0..flushes {
            for number in flush * PARTITIONS..(flush + 1) * PARTITIONS {
                // Each key once, or each several times in another order; spread over the ring.
                let key = format!("{:08x}", (number.wrapping_mul(48_271) % of).wrapping_mul(2_654_435_761));
                let bytes = write(&key, "c", &value, i64::from(flush) * 1_000_000);
                storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
            }
            storage.flush(ID).await.expect("a flush");
            storage.compacted().await;
        }
        let minor = storage.compaction_totals();
        let files = storage.table_files(ID).expect("the table").len();
        storage.compact(ID).await.expect("a compaction");
        let live: u64 = storage.table_files(ID).expect("the table").iter().map(|file| file.bytes).sum();
        println!(
            "{:<66} {keys:>9} {:>7.2} {:>7.2} {files:>7}",
            format!("{name} {options:?}").replace(['(', ')', '"', '[', ']'], ""),
            (minor.flushed + minor.written) as f64 / minor.flushed as f64,
            minor.tablet_bytes_max as f64 / live as f64,
        );
        storage.drain().await.expect("a drain");
    });
}
