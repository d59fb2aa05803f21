//! Memory of open files when there is little of it: exact numbers of bytes and of disk reads, on a simulated
//! disk.

use std::path::Path;
use std::rc::Rc;

use crate::index_pages::simple;
use crate::support::{self, Partition, drain};
use memory::Budget;
use model::Table;
use model::clustering::Slice;
use model::partition_key::DecoratedKey;
use reactor::file::create_dir_all;
use reactor::sim;
use sstable::{ComponentMemory, Descriptor, IndexPages, Sstable, Writer, WriterOptions};

const DIR: &str = "/data";
const PARTITIONS: usize = 2_000;

/// Files 1 to `count` with the same partitions. Returns the partitions in them, and as many that are not.
async fn written(count: u64, summary_ratio: f64) -> (Rc<Table>, Vec<Partition>, Vec<Partition>) {
    let (table, partitions) = simple(2 * PARTITIONS as i64, 1);
    let mut at = 0;
    // Alternating except for the ends: absent partitions lie between present ones.
    let (there, others): (Vec<_>, Vec<_>) = partitions.into_iter().partition(|_| {
        at += 1;
        at % 2 == 1 || at == 2 * PARTITIONS
    });
    create_dir_all(Path::new(DIR)).await.unwrap();
    for generation in 1..=count {
        let options = WriterOptions {
            expected_partitions: there.len() as u64,
            summary_ratio,
            ..WriterOptions::default()
        };
        support::write(Path::new(DIR), generation, &table, &there, options).await;
    }
    (table, there, others)
}

async fn open(generation: u64, table: &Rc<Table>, memory: &ComponentMemory, pages: &IndexPages) -> Sstable {
    Sstable::open_within(Path::new(DIR), Descriptor::new(generation), table, (memory, pages)).await.unwrap()
}

/// Disk requests needed to find that none of these keys is in the file.
async fn misses(file: &Sstable, keys: &[Partition]) -> u64 {
    let before = file.disk_reads().requests;
    for Partition { key: DecoratedKey { token, key }, .. } in keys.iter().step_by(20) {
        assert!(file.partition(*token, key, &[Slice::all()], false).await.unwrap().is_none());
    }
    file.disk_reads().requests - before
}

async fn find_all(file: &Sstable, table: &Table, partitions: &[Partition]) {
    for partition in partitions.iter().step_by(7) {
        let key = &partition.key;
        let mut reader = file.partition(key.token, &key.key, &[Slice::all()], false).await.unwrap().unwrap();
        assert_eq!(drain(&mut reader).await, partition.stream(table.clustering_orders()));
    }
}

/// Bytes of a filter, and of all components of one of the files.
async fn sizes(table: &Rc<Table>) -> (usize, usize) {
    let budget = Budget::new(64 << 20);
    let (pages, plenty) = (IndexPages::new(&budget), ComponentMemory::new(&budget, usize::MAX));
    let whole = open(1, table, &plenty, &pages).await.bytes_in_memory();
    let filter = Path::new(DIR).join("me-1-big-Filter.db");
    (reactor::file::metadata_size(&filter).await.unwrap() as usize, whole)
}

#[test]
fn the_largest_filter_goes_where_there_is_too_little_memory_and_comes_back_with_room() {
    sim::run_one(1, || async {
        let (table, there, others) = written(3, 0.0).await;
        let (filter, whole) = sizes(&table).await;
        let budget = Budget::new(64 << 20);
        let pages = IndexPages::new(&budget);
        // All but one of the filters fit; the summaries take less than their quarter.
        let limit = 3 * whole - filter;
        let memory = ComponentMemory::new(&budget, limit);
        let mut files = Vec::new();
        for generation in 1..=3 {
            files.push(open(generation, &table, &memory, &pages).await);
        }
        assert_eq!((budget.fixed(), memory.lacking_bytes()), (limit, filter));
        let mut without = Vec::new();
        for (at, file) in files.iter().enumerate() {
            pages.give_back(usize::MAX);
            if misses(file, &others).await > 8 {
                without.push(at);
            }
            find_all(file, &table, &there).await;
        }
        assert_eq!(without.len(), 1, "one of three has no filter");
        // Nothing changes while all files stay open.
        memory.restore(|| true).await;
        assert_eq!(memory.lacking_bytes(), filter);
        let lacking = files.remove(without[0]);
        files.pop();
        memory.restore(|| true).await;
        assert_eq!((memory.lacking_bytes(), lacking.bytes_in_memory()), (0, whole));
        pages.give_back(usize::MAX);
        assert!(misses(&lacking, &others).await < 5);
        drop((files, lacking));
        assert_eq!(budget.fixed(), 0);
    });
}

#[test]
fn summaries_get_coarser_where_there_is_too_little_memory_and_all_is_found_with_them() {
    sim::run_one(1, || async {
        // Every key is sampled.
        let (table, there, others) = written(2, 1.0).await;
        let (filter, whole) = sizes(&table).await;
        let summary = whole - filter;
        let budget = Budget::new(64 << 20);
        let pages = IndexPages::new(&budget);
        for part in [2, 3, 10, 100] {
            let memory = ComponentMemory::new(&budget, 4 * (2 * summary / part));
            let one = open(1, &table, &memory, &pages).await;
            let other = open(2, &table, &memory, &pages).await;
            assert!(budget.fixed() <= 4 * (2 * summary / part), "{part}: {budget:?}");
            assert!(memory.lacking_bytes() > 0);
            for file in [&one, &other] {
                find_all(file, &table, &there).await;
                misses(file, &others).await;
            }
            drop(other);
            memory.restore(|| true).await;
            assert_eq!(memory.lacking_bytes() == 0, part == 2, "{part}: room for one summary");
            find_all(&one, &table, &there).await;
            misses(&one, &others).await;
        }
    });
}

#[test]
fn a_file_that_is_written_takes_its_room_from_those_that_are_open() {
    const EXPECTED: u64 = 100_000;
    // Ten bits for each key, and the header.
    const MADE: usize = 125_016;
    sim::run_one(1, || async {
        let (table, there, _) = written(2, 0.0).await;
        let (filter, whole) = sizes(&table).await;
        let budget = Budget::new(64 << 20);
        let pages = IndexPages::new(&budget);
        // One byte too little for the filters of all three.
        let memory = ComponentMemory::new(&budget, 2 * whole + MADE - 1);
        let mut files = Vec::new();
        for generation in 1..=2 {
            files.push(open(generation, &table, &memory, &pages).await);
        }
        assert_eq!((budget.fixed(), memory.lacking_bytes()), (2 * whole, 0));
        let create = async || {
            let options = WriterOptions {
                expected_partitions: EXPECTED,
                memory: Some(memory.clone()),
                ..WriterOptions::default()
            };
            Writer::create(Path::new(DIR), 3, &table, options).await.unwrap()
        };
        let writer = create().await;
        assert_eq!((budget.fixed(), memory.lacking_bytes()), (2 * whole + MADE - filter, filter));
        writer.abort().await;
        memory.restore(|| true).await;
        assert_eq!(
            (budget.fixed(), memory.lacking_bytes()),
            (2 * whole, 0),
            "what came to nothing takes nothing"
        );

        let mut writer = create().await;
        for partition in &there {
            support::append(&mut writer, &table, partition).await;
            assert!(budget.fixed() >= 2 * whole + MADE - filter);
        }
        writer.finish().await.unwrap().expect("there are partitions");
        // Its room is kept for the file when it is opened.
        memory.restore(|| true).await;
        assert_eq!((budget.fixed(), memory.lacking_bytes()), (2 * whole - filter, filter));
        let made = open(3, &table, &memory, &pages).await;
        assert!(made.bytes_in_memory() > MADE && memory.lacking_bytes() == filter);
        find_all(&made, &table, &there).await;
        drop((files, made));
        assert_eq!(budget.fixed(), 0);
    });
}

#[test]
fn what_a_file_keeps_while_it_is_written_is_bounded_however_many_keys_it_has() {
    const LIMIT: usize = 2 << 20;
    sim::run_one(1, || async {
        let (table, there) = simple(20_000, 1);
        create_dir_all(Path::new(DIR)).await.unwrap();
        let budget = Budget::new(64 << 20);
        let (pages, memory) = (IndexPages::new(&budget), ComponentMemory::new(&budget, LIMIT));
        let options = WriterOptions {
            // Their filter would take 12.5 MB, a summary of each key 640 KB.
            expected_partitions: 10_000_000,
            summary_ratio: 1.0,
            memory: Some(memory.clone()),
            ..WriterOptions::default()
        };
        let mut writer = Writer::create(Path::new(DIR), 1, &table, options).await.unwrap();
        let mut most = 0;
        for partition in &there {
            support::append(&mut writer, &table, partition).await;
            most = most.max(budget.fixed());
        }
        // Half of the limit for the filter, a quarter for the summary with its room to grow, and chunk
        // offsets.
        assert!((LIMIT / 2..LIMIT / 2 + LIMIT / 4 + (64 << 10)).contains(&most), "{most} bytes");
        writer.finish().await.unwrap().expect("there are partitions");
        assert_eq!(budget.fixed(), 0);
        let file = open(1, &table, &memory, &pages).await;
        assert_eq!(memory.lacking_bytes(), 0, "all of it fits in the limit");
        find_all(&file, &table, &there).await;
    });
}
