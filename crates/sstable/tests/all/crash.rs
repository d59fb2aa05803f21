//! After a power cut at any moment, on a disk that loses and tears unsynced data and fails from time to time:
//! an acknowledged table file is there and complete, and every set with a `TOC.txt` reads back equal.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::support::{self, Item, Partition, Random, drain};
use model::Table;
use model::clustering::Slice;
use model::row::RowView;
use reactor::file::{create_dir_all, read_dir, remove_file, sync_dir};
use reactor::sim::{DiskFaults, World};
use sstable::{Descriptor, Sstable, Writer, WriterOptions, sort_names};

/// The contents of a generation follow from its number.
fn content(generation: u64) -> (Rc<Table>, Vec<Partition>) {
    let mut random = Random::new(99);
    let mut shape = support::shape(&mut random);
    shape.regulars.truncate(4);
    let table = support::table(&mut random, &shape);
    let mut random = Random::new(generation);
    let partitions = support::partitions(&mut random, &table, 1 + random_size(generation), 12);
    (table, partitions)
}

fn random_size(generation: u64) -> usize {
    [1, 5, 60][generation as usize % 3]
}

async fn check(dir: &Path, generation: u64) {
    let (table, partitions) = content(generation);
    let file = Sstable::open(dir, Descriptor::new(generation), &table).await.unwrap();
    for partition in &partitions {
        let key = &partition.key;
        let mut reader = file.partition(key.token, &key.key, &[Slice::all()], false).await.unwrap().unwrap();
        assert_eq!(drain(&mut reader).await, partition.stream(table.clustering_orders()));
    }
}

/// Writes a generation; returns whether it was acknowledged.
async fn write(dir: &Path, generation: u64) -> bool {
    let (table, partitions) = content(generation);
    let Ok(mut writer) = Writer::create(dir, generation, &table, WriterOptions::default()).await else {
        return false;
    };
    for partition in &partitions {
        let (key, static_row) = (&partition.key, partition.static_row.as_deref().map(RowView::trusted));
        let mut result = writer.partition_start(key.token, &key.key, partition.deletion, static_row);
        for item in partition.stream(table.clustering_orders()) {
            let unfiltered = match &item {
                Item::Row(clustering, row) => {
                    model::Unfiltered::Row { clustering, row: RowView::trusted(row) }
                }
                Item::Change(position, deletion) => {
                    model::Unfiltered::Change { position: position.as_ref(), deletion: *deletion }
                }
            };
            if result.is_ok() {
                result = writer.unfiltered(unfiltered);
            }
        }
        if result.is_ok() {
            writer.partition_end();
            result = writer.drain().await;
        }
        if result.is_err() {
            writer.abort().await;
            return false;
        }
    }
    writer.finish().await.is_ok()
}

#[derive(Default)]
struct Outside {
    acknowledged: RefCell<BTreeSet<u64>>,
    next: Cell<u64>,
    checked: Cell<u64>,
}

async fn node(outside: Rc<Outside>) {
    let dir = Path::new("/data/ks/t");
    create_dir_all(dir).await.unwrap();
    // From the root down, so that each name is durable before the names below it. On a disk that fails from
    // time to time this is repeated at the next start, and nothing is written before it succeeds.
    for parent in ["/", "/data", "/data/ks"] {
        if sync_dir(Path::new(parent)).await.is_err() {
            return;
        }
    }
    let names: Vec<String> = read_dir(dir).await.unwrap().into_iter().map(|entry| entry.name).collect();
    let sorted = sort_names(names.iter().map(String::as_str));
    for name in &sorted.leftovers() {
        remove_file(dir.join(name)).await.unwrap();
    }
    let found: BTreeSet<u64> = sorted.complete.iter().map(|descriptor| descriptor.generation()).collect();
    let acknowledged = outside.acknowledged.borrow().clone();
    assert!(acknowledged.is_subset(&found), "acknowledged {acknowledged:?}, found {found:?}");
    for generation in found {
        check(dir, generation).await;
        outside.checked.set(outside.checked.get() + 1);
    }
    for _ in 0..20 {
        let generation = outside.next.get();
        outside.next.set(generation + 1);
        if write(dir, generation).await {
            outside.acknowledged.borrow_mut().insert(generation);
        }
    }
}

#[test]
fn what_was_acknowledged_survives_power_cuts_and_the_rest_is_whole_or_gone() {
    let (mut checked, mut acknowledged) = (0, 0);
    for seed in 0..25 {
        let outside = Rc::new(Outside::default());
        let mut world = World::new(seed);
        let errors = if seed % 2 == 0 { 0.0 } else { 0.01 };
        let faults = DiskFaults { write_error: errors, sync_error: errors, ..DiskFaults::default() };
        let shared = Rc::clone(&outside);
        let id = world.add_node_with(1, faults, move |_| node(Rc::clone(&shared)));
        for _ in 0..8 {
            let time = Duration::from_micros(200 + world.random_u64() % 60_000);
            world.run_for(time).unwrap();
            if let Some(Err(problem)) = world.outcome(id) {
                panic!("seed {seed}: {problem}");
            }
            world.crash(id);
            world.restart(id);
        }
        world.set_disk_faults(id, DiskFaults::default());
        world.run().unwrap();
        assert_eq!(world.outcome(id), Some(Ok(())), "seed {seed}");
        checked += outside.checked.get();
        acknowledged += outside.acknowledged.borrow().len();
    }
    assert!(checked > 100 && acknowledged > 100, "{checked} checks of {acknowledged} files say little");
}
