//! Cost of a point read of a small partition with nothing in memory: exact numbers of disk reads and bytes,
//! on a simulated disk whose logical blocks are 512 bytes.

use std::path::Path;
use std::rc::Rc;

use crate::support::{self, Partition, Random, Shape, drain};
use model::clustering::Slice;
use model::deletion::{DeletionTime, Liveness, NO_LOCAL_TIME};
use model::partition_key::DecoratedKey;
use model::row::{CellKind, CellView, RowBuilder};
use model::types::CqlType;
use reactor::file::create_dir_all;
use reactor::sim::World;
use sstable::{Compressor, Descriptor, SUMMARY_RATIO_DEFAULT, Sstable, WriterOptions};

const PARTITIONS: i64 = 20_000;
/// Most bytes of one cold read.
const BYTES_MAX: u64 = 8192;

/// Cost of reading each of the partitions once.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cost {
    /// Requests of the most expensive reads.
    requests_most: u64,
    /// Bytes of the most expensive reads.
    bytes_most: u64,
    /// Number of reads that exceed the limit.
    above: usize,
    /// Bytes of a read on average, rounded down.
    bytes_average: u64,
}

async fn read_all(
    compression: Option<Compressor>,
    value: fn(&mut Random, i64) -> Vec<u8>,
    summary_ratio: f64,
) -> (Cost, usize) {
    let mut random = Random::new(1);
    let shape = Shape {
        key: vec![CqlType::Bigint],
        clustering: vec![],
        statics: vec![],
        regulars: vec![CqlType::Blob],
    };
    let table = support::table(&mut random, &shape);
    let column = table.column("r0").unwrap().id;
    let mut partitions: Vec<Partition> = (0..PARTITIONS)
        .map(|key| {
            let (value, mut row) = (value(&mut random, key), Vec::new());
            let liveness = Liveness { timestamp: 1, ttl: 0, expires_at: NO_LOCAL_TIME };
            let mut builder = RowBuilder::new(&mut row, liveness, DeletionTime::LIVE);
            builder.cell(CellView { column, timestamp: 1, path: None, kind: CellKind::Live(&value) });
            builder.finish();
            Partition {
                key: DecoratedKey::new(key.to_be_bytes().to_vec()),
                deletion: DeletionTime::LIVE,
                static_row: None,
                rows: vec![(Vec::new(), row)],
                ranges: Vec::new(),
            }
        })
        .collect();
    partitions.sort_by(|a, b| a.key.cmp(&b.key));
    let dir = Path::new("/data");
    create_dir_all(dir).await.unwrap();
    let expected_partitions = PARTITIONS as u64;
    let options = WriterOptions {
        compression: compression.map(Into::into),
        summary_ratio,
        expected_partitions,
        ..WriterOptions::default()
    };
    support::write(dir, 1, &table, &partitions, options).await;
    let file = Sstable::open(dir, Descriptor::new(1), &table).await.unwrap();
    let mut cost = Cost { requests_most: 0, bytes_most: 0, above: 0, bytes_average: 0 };
    for partition in &partitions {
        let (before, key) = (file.disk_reads(), &partition.key);
        let mut reader = file.partition(key.token, &key.key, &[Slice::all()], false).await.unwrap().unwrap();
        assert_eq!(drain(&mut reader).await, partition.stream(table.clustering_orders()));
        let after = file.disk_reads();
        let bytes = after.bytes - before.bytes;
        cost.requests_most = cost.requests_most.max(after.requests - before.requests);
        cost.bytes_most = cost.bytes_most.max(bytes);
        cost.above += usize::from(bytes > BYTES_MAX);
        cost.bytes_average += bytes;
    }
    cost.bytes_average /= PARTITIONS as u64;
    // A key that is absent and that the filter excludes takes no request.
    let before = file.disk_reads();
    let absent = (PARTITIONS..PARTITIONS + 400).map(|key| DecoratedKey::new(key.to_be_bytes().to_vec()));
    for key in absent.filter(|key| !file.may_contain(key.token, &key.key)) {
        assert!(file.partition(key.token, &key.key, &[Slice::all()], false).await.unwrap().is_none());
    }
    assert_eq!(file.disk_reads(), before);
    (cost, file.bytes_in_memory())
}

fn check(compression: Option<Compressor>, value: fn(&mut Random, i64) -> Vec<u8>, expected: Cost) {
    let (found, _) = cost(compression, value, SUMMARY_RATIO_DEFAULT);
    assert_eq!(found, expected);
}

/// Cost of reads, and bytes of summary and filter in memory.
fn cost(
    compression: Option<Compressor>,
    value: fn(&mut Random, i64) -> Vec<u8>,
    summary_ratio: f64,
) -> (Cost, usize) {
    let mut world = World::new(1);
    let found = Rc::new(std::cell::OnceCell::new());
    let shared = Rc::clone(&found);
    let id = world.add_node(1, move |_| {
        let shared = Rc::clone(&shared);
        async move { shared.set(read_all(compression, value, summary_ratio).await).expect("one life") }
    });
    world.run().unwrap();
    assert_eq!(world.outcome(id), Some(Ok(())));
    found.get().cloned().expect("the node is done")
}

fn text(_: &mut Random, key: i64) -> Vec<u8> {
    format!("value number {key} of many, and some more text").into_bytes()
}

fn noise(random: &mut Random, _: i64) -> Vec<u8> {
    random.bytes(100)
}

#[test]
fn compressed_text() {
    check(
        Some(Compressor::Lz4),
        text,
        Cost { requests_most: 2, bytes_most: 5632, above: 0, bytes_average: 3913 },
    );
}

/// If a partition spans two chunks both are read, which is more than 8 KiB for chunks that do not compress: 3
/// of 100 reads of rows of 130 bytes.
#[test]
fn compressed_noise() {
    check(
        Some(Compressor::Lz4),
        noise,
        Cost { requests_most: 2, bytes_most: 10240, above: 663, bytes_average: 6513 },
    );
}

#[test]
fn uncompressed() {
    check(None, text, Cost { requests_most: 2, bytes_most: 11264, above: 400, bytes_average: 6758 });
}

/// A hundred times the memory for the summary saves at most the read of the index's stretch. The limit on
/// stretches already meets the requirement of the usual ratio.
#[test]
fn a_greater_summary_makes_reads_of_the_index_smaller() {
    let costs = [0.0005, 0.05].map(|ratio| {
        let (cost, memory) = cost(Some(Compressor::Lz4), text, ratio);
        println!(
            "sstable_summary_ratio {ratio}: {} requests and {} bytes at most for a cold read, {} bytes on average, \
             {memory} bytes of summary and filter for {PARTITIONS} partitions",
            cost.requests_most, cost.bytes_most, cost.bytes_average
        );
        (cost, memory)
    });
    assert_eq!(costs[0].0, Cost { requests_most: 2, bytes_most: 5632, above: 0, bytes_average: 3913 });
    assert_eq!(costs[1].0, Cost { requests_most: 2, bytes_most: 3584, above: 0, bytes_average: 1933 });
    assert!(costs[0].1 < costs[1].1);
}
