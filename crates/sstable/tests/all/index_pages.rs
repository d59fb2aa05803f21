//! Savings and cost of cached index pages: exact numbers of disk reads and bytes, on a simulated disk.

use std::path::Path;
use std::rc::Rc;

use crate::support::{self, Partition, Random, Shape, drain};
use memory::Budget;
use model::Table;
use model::clustering::{Slice, append_component};
use model::deletion::{DeletionTime, Liveness, NO_LOCAL_TIME};
use model::partition_key::DecoratedKey;
use model::row::{CellKind, CellView, RowBuilder};
use model::types::CqlType;
use reactor::Group;
use reactor::file::create_dir_all;
use reactor::sim::World;
use sstable::{
    Component, ComponentMemory, Descriptor, IndexPages, PartitionBound, Sstable, SstableError, WriterOptions,
};

const DIR: &str = "/data";

/// A table of so many partitions of so many rows.
pub(crate) fn simple(partitions: i64, rows: i64) -> (Rc<Table>, Vec<Partition>) {
    let mut random = Random::new(1);
    let shape = Shape {
        key: vec![CqlType::Bigint],
        clustering: vec![(CqlType::Bigint, false)],
        statics: vec![],
        regulars: vec![CqlType::Blob],
    };
    let table = support::table(&mut random, &shape);
    let column = table.column("r0").unwrap().id;
    let mut partitions: Vec<Partition> = (0..partitions)
        .map(|key| {
            let rows = (0..rows).map(|number| {
                let (mut clustering, mut row) = (Vec::new(), Vec::new());
                append_component(&mut clustering, Some(&number.to_be_bytes()));
                let liveness = Liveness { timestamp: 1, ttl: 0, expires_at: NO_LOCAL_TIME };
                let mut builder = RowBuilder::new(&mut row, liveness, DeletionTime::LIVE);
                let kind = CellKind::Live(&[7; 100]);
                builder.cell(CellView { column, timestamp: 1, path: None, kind });
                builder.finish();
                (clustering, row)
            });
            Partition {
                key: DecoratedKey::new(key.to_be_bytes().to_vec()),
                deletion: DeletionTime::LIVE,
                static_row: None,
                rows: rows.collect(),
                ranges: Vec::new(),
            }
        })
        .collect();
    partitions.sort_by(|a, b| a.key.cmp(&b.key));
    (table, partitions)
}

/// As [`simple`], written to one file.
async fn written(partitions: i64, rows: i64) -> (Rc<Table>, Vec<Partition>) {
    let (table, partitions) = simple(partitions, rows);
    create_dir_all(DIR).await.unwrap();
    let options = WriterOptions {
        expected_partitions: partitions.len() as u64,
        column_index_bytes: 1024,
        ..WriterOptions::default()
    };
    support::write(Path::new(DIR), 1, &table, &partitions, options).await;
    (table, partitions)
}

fn unlimited(budget: &Budget) -> ComponentMemory {
    ComponentMemory::new(budget, usize::MAX)
}

async fn open(table: &Rc<Table>, within: Option<(&ComponentMemory, &IndexPages)>) -> Sstable {
    let (dir, descriptor) = (Path::new(DIR), Descriptor::new(1));
    match within {
        Some(within) => Sstable::open_within(dir, descriptor, table, within).await.unwrap(),
        None => Sstable::open(dir, descriptor, table).await.unwrap(),
    }
}

/// Reads a partition and checks the result; returns the number of requests.
async fn read(file: &Sstable, table: &Table, partition: &Partition) -> u64 {
    let (before, key) = (file.disk_reads().requests, &partition.key);
    let mut reader = file.partition(key.token, &key.key, &[Slice::all()], false).await.unwrap().unwrap();
    assert_eq!(drain(&mut reader).await, partition.stream(table.clustering_orders()));
    file.disk_reads().requests - before
}

fn simulated<F: Future<Output = ()> + 'static>(test: impl Fn() -> F + 'static) {
    let mut world = World::new(1);
    let id = world.add_node(1, move |_| test());
    world.run().unwrap();
    assert_eq!(world.outcome(id), Some(Ok(())));
}

#[test]
fn a_repeated_read_costs_one_read_of_data() {
    simulated(|| async {
        let (table, partitions) = written(1_000, 1).await;
        let budget = Budget::new(16 << 20);
        let pages = IndexPages::new(&budget);
        let file = open(&table, Some((&unlimited(&budget), &pages))).await;
        assert_eq!(budget.fixed(), file.bytes_in_memory());
        assert_eq!(read(&file, &table, &partitions[500]).await, 2);
        assert_eq!(read(&file, &table, &partitions[500]).await, 1);
        // Its neighbour is on the same page, or on the next one.
        assert_eq!(read(&file, &table, &partitions[499]).await, 1);
        for partition in &partitions {
            read(&file, &table, partition).await;
        }
        let all = file.disk_reads().requests;
        for partition in &partitions {
            assert_eq!(read(&file, &table, partition).await, 1);
        }
        assert_eq!(file.disk_reads().requests, all + 1_000);
        assert_eq!(budget.clean(), pages.bytes());
        // Absent keys are looked up in pages too.
        let before = file.disk_reads();
        for key in 1_000i64..2_000 {
            let key = DecoratedKey::new(key.to_be_bytes().to_vec());
            assert!(file.partition(key.token, &key.key, &[Slice::all()], false).await.unwrap().is_none());
        }
        assert_eq!(file.disk_reads(), before);
        // Without pages every read takes two requests.
        let file = open(&table, None).await;
        assert_eq!(
            (read(&file, &table, &partitions[0]).await, read(&file, &table, &partitions[0]).await),
            (2, 2)
        );
    });
}

#[test]
fn a_summary_and_a_filter_that_were_made_anew_find_as_much_with_as_few_reads() {
    simulated(|| async {
        let (table, partitions) = written(1_000, 1).await;
        let budget = Budget::new(16 << 20);
        let whole = open(&table, Some((&unlimited(&budget), &IndexPages::new(&budget)))).await;
        for component in [Component::Summary, Component::Filter] {
            let path = Descriptor::new(1).path(Path::new(DIR), component);
            reactor::file::write_all_atomic(&path, b"damage").await.unwrap();
        }
        let strict = Sstable::open(Path::new(DIR), Descriptor::new(1), &table).await;
        assert!(matches!(strict, Err(SstableError::Corrupt { .. })));
        let pages = IndexPages::new(&budget);
        let file = open(&table, Some((&unlimited(&budget), &pages))).await;
        assert_eq!((file.first_key(), file.last_key()), (whole.first_key(), whole.last_key()));
        for partition in &partitions {
            assert!(read(&file, &table, partition).await <= 2);
        }
        // The same bits: the rebuilt filter refuses every key that the written one refuses.
        for key in 1_000i64..20_000 {
            let key = DecoratedKey::new(key.to_be_bytes().to_vec());
            assert_eq!(file.may_contain(key.token, &key.key), whole.may_contain(key.token, &key.key));
        }
    });
}

#[test]
fn lookups_that_meet_on_a_page_read_it_once() {
    simulated(|| async {
        let (table, partitions) = written(1_000, 1).await;
        let budget = Budget::new(16 << 20);
        let pages = IndexPages::new(&budget);
        let file = open(&table, Some((&unlimited(&budget), &pages))).await;
        let partition = Rc::new(partitions.into_iter().nth(100).unwrap());
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (file, table, partition) = (file.clone(), Rc::clone(&table), Rc::clone(&partition));
                reactor::spawn(Group::STATEMENT, async move { read(&file, &table, &partition).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(file.disk_reads().requests, 21, "one of the index and twenty of data");
        assert_eq!(pages.count(), 1);
        // A reader that gives up leaves the page to other readers.
        pages.give_back(usize::MAX);
        let first = reactor::spawn(Group::STATEMENT, {
            let (file, table, partition) = (file.clone(), Rc::clone(&table), Rc::clone(&partition));
            async move { read(&file, &table, &partition).await }
        });
        let second = reactor::spawn(Group::STATEMENT, {
            let (file, table, partition) = (file.clone(), Rc::clone(&table), Rc::clone(&partition));
            async move { read(&file, &table, &partition).await }
        });
        reactor::yield_now().await;
        drop(first);
        second.await.unwrap();
        assert_eq!(pages.count(), 1);
    });
}

#[test]
fn a_closed_file_takes_its_pages_along() {
    simulated(|| async {
        let (table, partitions) = written(4_000, 1).await;
        let budget = Budget::new(16 << 20);
        let pages = IndexPages::new(&budget);
        let (one, other) = (
            open(&table, Some((&unlimited(&budget), &pages))).await,
            open(&table, Some((&unlimited(&budget), &pages))).await,
        );
        for partition in &partitions {
            read(&one, &table, partition).await;
        }
        let (of_one, bytes) = (pages.count(), pages.bytes());
        assert!(of_one > 20, "{pages:?}");
        read(&other, &table, &partitions[7]).await;
        let fixed = budget.fixed();
        drop(one);
        assert_eq!(budget.fixed(), fixed / 2);
        // Pages that were not removed at once are removed as other pages are added.
        for partition in &partitions {
            read(&other, &table, partition).await;
        }
        assert_eq!((pages.count(), pages.bytes()), (of_one, bytes));
        assert_eq!(budget.clean(), bytes);
        drop(other);
        pages.give_back(usize::MAX);
        assert_eq!((pages.count(), budget.total_used()), (0, 0));
    });
}

#[test]
fn pages_stay_within_their_budget_and_the_latest_used_stay() {
    simulated(|| async {
        let (table, partitions) = written(4_000, 1).await;
        let (wanted, file) = {
            let budget = Budget::new(16 << 20);
            let pages = IndexPages::new(&budget);
            let file = open(&table, Some((&unlimited(&budget), &pages))).await;
            for partition in &partitions {
                read(&file, &table, partition).await;
            }
            (pages.bytes(), file.bytes_in_memory())
        };
        // Room for half of them.
        let budget = Budget::new(file + wanted / 2);
        let pages = IndexPages::new(&budget);
        let file = open(&table, Some((&unlimited(&budget), &pages))).await;
        let favourite = &partitions[2_000];
        read(&file, &table, favourite).await;
        for (number, partition) in partitions.iter().enumerate() {
            read(&file, &table, partition).await;
            if number % 100 == 0 {
                assert_eq!(read(&file, &table, favourite).await, 1);
            }
            assert!(budget.total_used() <= budget.total_limit(), "{budget:?}");
        }
        assert!(pages.bytes() > wanted / 3, "{pages:?} of {wanted} bytes");
        // With no room at all everything works as without pages.
        let budget = Budget::new(1);
        let pages = IndexPages::new(&budget);
        let file = open(&table, Some((&unlimited(&budget), &pages))).await;
        assert_eq!((read(&file, &table, favourite).await, read(&file, &table, favourite).await), (2, 2));
        assert_eq!(pages.count(), 0);
    });
}

/// One row of a long partition: the blocks of a small promoted index are on the page that the lookup read,
/// those of a large one on pages that stay cached.
#[test]
fn blocks_of_long_partitions_are_found_in_pages() {
    simulated(|| async {
        for (rows, first_most) in [(300, 2), (8_000, 40)] {
            let (table, partitions) = written(1, rows).await;
            let budget = Budget::new(16 << 20);
            let pages = IndexPages::new(&budget);
            let file = open(&table, Some((&unlimited(&budget), &pages))).await;
            let mut clustering = Vec::new();
            append_component(&mut clustering, Some(&(rows / 3).to_be_bytes()));
            let slices = [Slice::prefix(&clustering)];
            let key = &partitions[0].key;
            let mut taken = Vec::new();
            for _ in 0..2 {
                let before = file.disk_reads().requests;
                let mut reader = file.partition(key.token, &key.key, &slices, false).await.unwrap().unwrap();
                assert_eq!(drain(&mut reader).await.len(), 1);
                taken.push(file.disk_reads().requests - before);
            }
            assert!(taken[0] <= first_most && taken[1] == 1, "{rows} rows: {taken:?} requests");
        }
    });
}

/// Key of the first partition behind a bound.
async fn first_behind(file: &Sstable, from: &PartitionBound) -> Result<Option<Vec<u8>>, SstableError> {
    let mut scanner = file.scan(from, &PartitionBound::END, &[Slice::all()]).await?;
    Ok(if scanner.next_partition().await? { Some(scanner.key().to_vec()) } else { None })
}

/// The format has no checksum of a stretch of the index, and a key with a changed bit would seem to be
/// absent: with the checksums in `Ceto.db` a lookup in a changed stretch always fails.
#[test]
fn a_changed_stretch_of_the_index_is_told() {
    simulated(|| async {
        let (table, partitions) = written(400, 1).await;
        let path = Path::new(DIR).join("me-1-big-Index.db");
        let whole = reactor::file::read_all(&path, 1 << 20).await.unwrap();
        for at in (0..whole.len()).step_by(97) {
            let mut changed = whole.clone();
            changed[at] ^= 4;
            reactor::file::write_all_atomic(&path, &changed).await.unwrap();
            let file = open(&table, None).await;
            let mut told = 0;
            for partition in &partitions {
                let key = &partition.key;
                match file.partition(key.token, &key.key, &[Slice::all()], false).await {
                    Ok(found) => assert!(found.is_some(), "byte {at} hides a partition"),
                    Err(error) => {
                        assert!(matches!(error, SstableError::Corrupt { .. }), "{error}");
                        told += 1;
                    }
                }
            }
            // A scan that begins at a key finds the next partition, or fails.
            for (partition, next) in partitions.iter().zip(&partitions[1..]) {
                let from = PartitionBound::behind_key(partition.key.token, &partition.key.key);
                match first_behind(&file, &from).await {
                    Ok(first) => {
                        assert_eq!(first.as_deref(), Some(&*next.key.key), "byte {at} hides a partition")
                    }
                    Err(error) => assert!(matches!(error, SstableError::Corrupt { .. }), "{error}"),
                }
            }
            // All lookups of its stretch fail, and of the previous one if the byte is in the head of the
            // entry that ends it.
            assert!((1..400).contains(&told), "byte {at}: {told} of 400 lookups");
        }
    });
}
