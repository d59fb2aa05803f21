//! Measures the cost of reads that memory does not answer, and the speed of making files: `cargo run
//! --release -p storage --example cold [MEGABYTES]`.
//!
//! For each strategy and summary ratio: a data set is written in flushes, overwritten in part, and compacted
//! automatically. Then random rows are read by their whole key with nothing in memory (requests and bytes of
//! each, as seen by the disk), and again uniformly with a tenth of the data set as memory. Counts repeat
//! exactly; rates are this machine's.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "an example, not the database")]

#[path = "../tests/table/mod.rs"]
mod table;

use std::collections::BTreeMap;
use std::rc::Rc;

use model::clustering::{Slice, append_component};
use model::partition_key::DecoratedKey;
use model::{RowView, Token};
use reactor::metrics::{self, Value};
use reactor::{Deadline, Group};
use storage::{Flow, PartitionRange, ReadCommand, RowConsumer, Storage, StorageConfig};
use table::{ID, changes_with, insert};

/// Bytes of a value, and approximate bytes of a row with its key.
const VALUE_BYTES: usize = 280;
const ROW_BYTES: usize = 300;
/// Flushes that the data set is written in.
const FLUSHES: usize = 12;
/// Reads that are counted.
const READS: usize = 2_000;

struct Count(u64);

impl RowConsumer for Count {
    fn partition(&mut self, _: &[u8], _: Token, _: Option<RowView<'_>>) -> Flow {
        Flow::Continue
    }
    fn row(&mut self, _: &[u8], _: RowView<'_>) -> Flow {
        self.0 += 1;
        Flow::Continue
    }
    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

/// Requests and bytes that statements have asked the disk for.
fn disk() -> (f64, f64) {
    let of = |name: &str| {
        let label = ("group".to_owned(), Group::STATEMENT.name().to_owned());
        let samples = metrics::snapshot();
        let sample = samples.iter().find(|sample| sample.name == name && sample.labels.contains(&label));
        match sample.map(|sample| &sample.value) {
            Some(Value::Counter(count)) => *count as f64,
            other => panic!("{name} is {other:?}"),
        }
    };
    (of("reactor_disk_operations_total"), of("reactor_disk_bytes_total"))
}

fn key(number: usize) -> String {
    format!("{:016x}", (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Text that compresses to about half.
fn value(number: usize) -> String {
    let mut state = number as u64 | 1;
    let digit = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b"0123456789abcdef"[(state >> 60) as usize])
    };
    (0..VALUE_BYTES).map(digit).collect()
}

async fn read(storage: &Storage, number: usize, bypass_cache: bool) -> u64 {
    let table = storage.schema().table_by_id(ID).map(Rc::clone).expect("the table");
    let mut clustering = Vec::new();
    append_component(&mut clustering, Some(b"c"));
    let command = ReadCommand {
        table,
        range: PartitionRange::Key(DecoratedKey::new(key(number).into_bytes())),
        slices: [Slice::prefix(&clustering)].into_iter().collect(),
        reversed: false,
        now: 1_700_000_000,
        bypass_cache,
    };
    let mut seen = Count(0);
    storage.read(&command, &mut seen).await.expect("a read");
    seen.0
}

fn main() {
    let megabytes: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(160);
    let rows = (megabytes << 20) / ROW_BYTES;
    println!("{rows} rows of {ROW_BYTES} bytes, {megabytes} MiB; memory of the uniform reads: a tenth of it");
    println!(
        "{:<12} {:>7} {:>5} {:>9} {:>17} {:>17} {:>25} {:>10} {:>12}",
        "strategy",
        "ratio",
        "files",
        "resident",
        "cold: requests",
        "bytes",
        "10x memory: requests, hits",
        "reads/s",
        "flush MB/s"
    );
    for strategy in ["SizeTiered", "Leveled"] {
        for ratio in [0.0005, 0.05] {
            run(strategy, ratio, rows, megabytes);
        }
    }
}

fn run(strategy: &'static str, ratio: f64, rows: usize, megabytes: usize) {
    let directory = tempfile::tempdir().expect("a folder");
    let mut config = StorageConfig::new(directory.path(), 64 << 20);
    config.summary_ratio = ratio;
    let small = StorageConfig {
        memory_bytes_max: (megabytes << 20) / 10,
        memtable_bytes_max: (megabytes << 20) / 20,
        ..config.clone()
    };
    let (rate, files) = fill(strategy, config, rows);
    reactor::run_one(reactor::Config::default(), async move {
        let storage = cluster::open_storage(small, 0, 1).await.expect("an open storage");
        let task = reactor::spawn(Group::STATEMENT, async move {
            // Nothing is in memory but the components of open files.
            let before = disk();
            for at in 0..READS {
                storage.evict_index_pages();
                assert_eq!(read(&storage, at * 15_485_863 % rows, true).await, 1);
            }
            let (cold, cold_bytes) = (disk().0 - before.0, disk().1 - before.1);
            // As many reads as there are rows warm everything that can be warmed.
            for at in 0..rows / 2 {
                read(&storage, at.wrapping_mul(2_654_435_761) % rows, false).await;
            }
            let hits = metrics::counter("scylla_cache_partition_hits", "", &[]).get();
            let (before, began) = (disk(), reactor::now());
            for at in 0..READS {
                assert_eq!(read(&storage, at * 104_729 % rows, false).await, 1);
            }
            let seconds = began.elapsed().as_secs_f64();
            let hits = metrics::counter("scylla_cache_partition_hits", "", &[]).get() - hits;
            let reads = READS as f64;
            println!(
                "{strategy:<12} {ratio:>7} {files:>5} {:>9} {:>17.2} {:>17.0} {:>18.2} {:>5.0} % {:>10.0} {rate:>12.0}",
                storage.stats().resident_bytes,
                cold / reads,
                cold_bytes / reads,
                (disk().0 - before.0) / reads,
                100.0 * hits as f64 / reads,
                reads / seconds,
            );
            storage.drain().await.expect("a drain");
        });
        task.await.expect("no panic");
    });
}

/// Writes the data set; returns the rate of flushes in MB/s, and the number of files at the end.
fn fill(strategy: &'static str, config: StorageConfig, rows: usize) -> (f64, usize) {
    reactor::run_one(reactor::Config::default(), async move {
        let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
        let compaction = BTreeMap::from([("class".to_owned(), format!("{strategy}CompactionStrategy"))]);
        for change in changes_with(0, |table| table.compaction = compaction) {
            cluster::change_schema(&change).await.expect("a schema change");
        }
        let (mut flushed, mut seconds) = (0, 0.0);
        for flush in 0..FLUSHES {
            let some = rows / FLUSHES + 1;
            // New rows, and a tenth of the existing ones.
            let new = (flush * some)..((flush + 1) * some).min(rows);
            let old = (0..some / 10).map(|at| at * 7919 % (flush * some + 1));
            for number in new.chain(old) {
                let bytes = insert(&key(number), "c", &value(number), flush as i64);
                storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
            }
            let (bytes, began) = (storage.stats().memtable_bytes, reactor::now());
            storage.flush(ID).await.expect("a flush");
            seconds += began.elapsed().as_secs_f64();
            flushed += bytes;
            storage.compacted().await;
        }
        let files = storage.table_files(ID).expect("the table").len();
        storage.drain().await.expect("a drain");
        (flushed as f64 / 1e6 / seconds, files)
    })
}
