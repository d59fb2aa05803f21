//! Written data is read back equal: whole, sliced, reversed, by scan, for random tables and partitions.

use std::rc::Rc;

use crate::support::{self, Item, Partition, Random, Shape, drain};
use model::clustering::Slice;
use model::deletion::DeletionTime;
use model::partition_key::DecoratedKey;
use model::row::RowView;
use model::types::CqlType;
use proptest::prelude::*;
use reactor::{Config, run_one};
use sstable::{Descriptor, PartitionBound, Sstable, WriterOptions};

fn options(random: &mut Random, partitions: usize) -> WriterOptions {
    WriterOptions {
        compression: support::any_compression(random),
        chunk_bytes: *random.pick(&[1024, 4096, 65536]),
        expected_partitions: partitions as u64,
        fp_chance: *random.pick(&[0.01, 0.1, 1.0]),
        column_index_bytes: *random.pick(&[300, 2048, 65536]),
        summary_ratio: *random.pick(&[0.0, 0.0005, 0.05, 1.0]),
        summary_bytes_max: *random.pick(&[100, 1 << 20]),
        ..WriterOptions::default()
    }
}

async fn check(seed: u64, count: usize, rows: usize) {
    let mut random = Random::new(seed);
    let shape = support::shape(&mut random);
    let table = support::table(&mut random, &shape);
    let orders = table.clustering_orders();
    let partitions = support::partitions(&mut random, &table, count, rows);
    let dir = tempfile::tempdir().unwrap();
    let options = options(&mut random, partitions.len());
    let info = support::write(dir.path(), 1, &table, &partitions, options).await;
    assert_eq!(info.partitions, partitions.len() as u64);

    let file = Sstable::open(dir.path(), Descriptor::new(1), &table).await.unwrap();
    assert_eq!(file.first_key().1, partitions[0].key.key);
    assert_eq!(file.last_key().1, partitions[partitions.len() - 1].key.key);
    assert_eq!(*file.stats(), info.stats);

    for partition in &partitions {
        let key = &partition.key;
        assert!(file.may_contain(key.token, &key.key));
        let mut all = file.partition(key.token, &key.key, &[Slice::all()], false).await.unwrap().unwrap();
        assert_eq!(all.key(), key.key);
        assert_eq!(all.deletion(), partition.deletion);
        assert_eq!(all.static_row().map(RowView::as_bytes), partition.static_row.as_deref());
        assert_eq!(drain(&mut all).await, partition.stream(orders));
        for _ in 0..6 {
            let slices = support::slices(&mut random, &table);
            for reversed in [false, true] {
                let mut reader =
                    file.partition(key.token, &key.key, &slices, reversed).await.unwrap().unwrap();
                let found = drain(&mut reader).await;
                assert_eq!(found, partition.cut(&slices, reversed, orders), "{slices:?} reversed {reversed}");
            }
        }
    }
    for _ in 0..10 {
        let other = support::partitions(&mut random, &table, 1, 0).pop().unwrap().key;
        let known = partitions.iter().any(|partition| partition.key == other);
        let found = file.partition(other.token, &other.key, &[Slice::all()], false).await.unwrap();
        assert_eq!(found.is_some(), known);
    }
    for _ in 0..6 {
        scan(&mut random, &file, &table, &partitions).await;
    }
}

async fn scan(
    random: &mut Random,
    file: &Sstable,
    table: &Rc<model::Table>,
    partitions: &[support::Partition],
) {
    let bound = |random: &mut Random, default: PartitionBound| {
        let key = &random.pick(partitions).key;
        match random.below(5) {
            0 => default,
            1 => PartitionBound::before_token(key.token),
            2 => PartitionBound::behind_token(key.token),
            3 => PartitionBound::before_key(key.token, &key.key),
            _ => PartitionBound::behind_key(key.token, &key.key),
        }
    };
    let (from, to) = (bound(random, PartitionBound::START), bound(random, PartitionBound::END));
    let slices = support::slices(random, table);
    let mut scanner = file.scan(&from, &to, &slices).await.unwrap();
    let within = |key: &model::partition_key::DecoratedKey| {
        from.is_before(key.token, &key.key) && !to.is_before(key.token, &key.key)
    };
    for partition in partitions.iter().filter(|partition| within(&partition.key)) {
        assert!(scanner.next_partition().await.unwrap());
        assert_eq!((scanner.token(), scanner.key()), (partition.key.token, &partition.key.key[..]));
        assert_eq!(scanner.deletion(), partition.deletion);
        assert_eq!(scanner.static_row().map(RowView::as_bytes), partition.static_row.as_deref());
        let expected = partition.cut(&slices, false, table.clustering_orders());
        let wanted = if random.chance(3) { random.below(expected.len() + 1) } else { usize::MAX };
        let mut found: Vec<Item> = Vec::new();
        while found.len() < wanted
            && let Some(item) = scanner.next().await.unwrap()
        {
            found.push(item.into());
        }
        assert_eq!(found, expected[..expected.len().min(wanted)]);
    }
    assert!(!scanner.next_partition().await.unwrap());
    assert!(!scanner.next_partition().await.unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn many_small_partitions(seed: u64) {
        run_one(Config::default(), check(seed, 40, 6));
    }

    #[test]
    fn few_wide_partitions(seed: u64) {
        run_one(Config::default(), check(seed, 3, 120));
    }
}

#[test]
fn keys_longer_than_all_room_of_the_summary_are_found() {
    run_one(Config::default(), async {
        let mut random = Random::new(3);
        let shape = Shape {
            key: vec![CqlType::Blob],
            clustering: vec![],
            statics: vec![],
            regulars: vec![CqlType::Blob],
        };
        let table = support::table(&mut random, &shape);
        let partition = |number: u32| Partition {
            key: DecoratedKey::new(number.to_be_bytes().repeat(1000)),
            deletion: DeletionTime { timestamp: i64::from(number), local_time: 1 },
            static_row: None,
            rows: Vec::new(),
            ranges: Vec::new(),
        };
        let mut partitions: Vec<Partition> = (0..300).map(partition).collect();
        partitions.sort_by(|a, b| a.key.cmp(&b.key));
        let dir = tempfile::tempdir().unwrap();
        let options = WriterOptions { summary_bytes_max: 1024, ..WriterOptions::default() };
        support::write(dir.path(), 1, &table, &partitions, options).await;
        let file = Sstable::open(dir.path(), Descriptor::new(1), &table).await.unwrap();
        assert!(file.bytes_in_memory() < 40_000, "few of the keys: {}", file.bytes_in_memory());
        for Partition { key, deletion, .. } in &partitions {
            let found = file.partition(key.token, &key.key, &[Slice::all()], false).await.unwrap().unwrap();
            assert_eq!(found.deletion(), *deletion);
        }
    });
}
