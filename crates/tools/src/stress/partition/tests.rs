//! Partitions and their rows, held to values computed by Cassandra's generators.

use super::*;
use crate::stress::distribution::Factory;
use crate::stress::generate::{Kind, Spread};
use crate::stress::settings_of;

fn generator(clusters: &[&str], order: Order) -> PartitionGenerator {
    let column = |name: &str, cluster: Option<&str>| {
        let cluster = cluster.map(|text| Factory::parse(text).unwrap());
        Generator::new(Kind::BigInt, None, name, &Spread { cluster, ..Spread::default() })
    };
    let clustering = clusters.iter().enumerate();
    let clustering = clustering.map(|(index, cluster)| {
        let name = format!("c{index}");
        (name.clone(), CqlType::Bigint, column(&name, Some(cluster)))
    });
    PartitionGenerator::new(
        vec![("k".to_owned(), column("k", None))],
        clustering.collect(),
        vec![("v".to_owned(), column("v", None)), ("w".to_owned(), column("w", None))],
        order,
    )
}

struct World(SeedManager, JavaRandom);

fn world(line: &str) -> World {
    World(SeedManager::new(&settings_of(line).unwrap(), 1).unwrap(), JavaRandom::new(5))
}

fn rows(
    generator: &mut PartitionGenerator,
    world: &mut World,
    seed: Rc<Seed>,
    share: Share,
    populated: f64,
    is_write: bool,
) -> Vec<Row> {
    let World(manager, random) = world;
    let visit = Partition::visit(generator, manager, seed, share, populated, is_write, random);
    let Some(mut visit) = visit else { return Vec::new() };
    std::iter::from_fn(|| visit.next(manager, random)).collect()
}

#[test]
fn one_visit_writes_every_row_once_and_a_read_finds_the_same() {
    for clusters in [&[][..], &["fixed(10)"], &["fixed(3)", "fixed(4)"], &["uniform(1..9)", "uniform(2..5)"]]
    {
        let mut generator = generator(clusters, Order::Arbitrary);
        let mut world = world("write n=5");
        let seed = world.0.next(true).unwrap();
        let value = seed.value;
        let written = rows(&mut generator, &mut world, seed, Share::Chance(1.0), 1.0, true);
        let keys: std::collections::BTreeSet<_> =
            written.iter().map(|row| row[..clusters.len()].to_vec()).collect();
        assert_eq!(keys.len(), written.len(), "{clusters:?}");
        let fixed = [1, 10, 12];
        if let Some(expected) = fixed.get(clusters.len()).filter(|_| !clusters.concat().contains('u')) {
            assert_eq!(written.len(), *expected, "{clusters:?}");
        }
        let again = world.0.next(true).unwrap();
        assert_ne!(again.value, value, "the partition is done");
    }
}

#[test]
fn visits_share_a_partition_between_them() {
    let mut generator = generator(&["fixed(10)"], Order::Arbitrary);
    let mut world = world("write n=5 -pop seq=1..1 -insert visits=fixed(5) revisit=fixed(0)");
    let mut all = Vec::new();
    for visit in 0..5 {
        let seed = world.0.next(true).unwrap();
        let rows = rows(&mut generator, &mut world, seed, Share::Chance(1.0), 1.0, true);
        assert_eq!(rows.len(), 2, "visit {visit}");
        all.extend(rows.into_iter().map(|row| row[0].clone()));
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 10);
}

#[test]
fn a_share_of_the_rows_is_chosen() {
    let mut generator = generator(&["fixed(10)", "fixed(100)"], Order::Arbitrary);
    let mut world = world("write n=5");
    let mut count = 0;
    for _ in 0..50 {
        let seed = world.0.next(false).unwrap();
        count += rows(&mut generator, &mut world, seed, Share::Chance(0.1), 1.0, false).len();
    }
    assert!((3_000..8_000).contains(&count), "{count} of 50000");
    let seed = world.0.next(false).unwrap();
    let some = rows(&mut generator, &mut world, seed, Share::Count(1), 0.5, false);
    assert!(some.iter().all(|row| row[2].is_some() && row[3].is_none()), "half of the columns");
}

#[test]
fn sorted_partitions_are_sorted_and_bounds_take_in_both_ends() {
    let mut generator = generator(&["fixed(6)", "fixed(5)"], Order::Sorted);
    let mut world = world("write n=5");
    let seed = world.0.next(false).unwrap();
    let all = rows(&mut generator, &mut world, seed.clone(), Share::Chance(1.0), 1.0, false);
    assert_eq!(all.len(), 30);
    assert!(all.windows(2).all(|pair| pair[0][..2] < pair[1][..2]), "positive numbers sort as bytes");
    for depth in 1..=2 {
        for _ in 0..20 {
            let World(manager, random) = &mut world;
            let found = Partition::between(&mut generator, manager, seed.clone(), depth, random);
            let (mut visit, low, high) = found.unwrap();
            let found: Vec<Row> = std::iter::from_fn(|| visit.next(manager, random)).collect();
            let within = |row: &&Row| {
                let key: Vec<Vec<u8>> = row[..depth].iter().flatten().cloned().collect();
                low <= key && key <= high
            };
            let expected: Vec<Row> = all.iter().filter(within).cloned().collect();
            assert_eq!(found, expected, "{depth}");
        }
    }
}
