//! Every level with every pattern of nodes that are up, down or silent: the numbers are those that Cassandra
//! 5 would report.

use std::time::Duration;

use model::clustering::Slice;
use model::partition_key::DecoratedKey;
use reactor::Deadline;
use replication::{Consistency, FailureReason, ReadLimits, ReplicationError};
use storage::{PartitionRange, ReadCommand};

use super::nodes::{Mood, Nodes, RF3, Reader, Site, THREE, run};
use super::writes::{BASE, Kind, Write};

const LEVELS: [Consistency; 9] = [
    Consistency::Any,
    Consistency::One,
    Consistency::Two,
    Consistency::Three,
    Consistency::Quorum,
    Consistency::All,
    Consistency::LocalQuorum,
    Consistency::EachQuorum,
    Consistency::LocalOne,
];

/// Three nodes of one data center and two of another; the first coordinates.
const FIVE: [Site; 5] = [(1, "dc1", "a"), (2, "dc1", "b"), (3, "dc1", "a"), (4, "dc2", "a"), (5, "dc2", "b")];
const BY_DATA_CENTER: [(&str, &str); 3] =
    [("class", "org.apache.cassandra.locator.NetworkTopologyStrategy"), ("dc1", "3"), ("dc2", "2")];

/// What `ConsistencyLevel` and `ReplicaPlans` of Cassandra 5 say: the answers that are waited for, or those
/// that are needed and the replicas that live. Written from their rules, not from ours.
fn cassandra(level: Consistency, factors: [u32; 2], alive: [u32; 2]) -> Result<u32, (u32, u32)> {
    let quorum = |factor: u32| factor / 2 + 1;
    let (all, live) = (factors[0] + factors[1], alive[0] + alive[1]);
    let check = |needed: u32, live: u32| if live < needed { Err((needed, live)) } else { Ok(needed) };
    match level {
        Consistency::Any | Consistency::One => check(1, live),
        Consistency::Two => check(2, live),
        Consistency::Three => check(3, live),
        Consistency::Quorum => check(quorum(all), live),
        Consistency::All => check(all, live),
        Consistency::LocalOne => check(1, alive[0]),
        Consistency::LocalQuorum => check(quorum(factors[0]), alive[0]),
        Consistency::EachQuorum => {
            check(quorum(factors[0]), alive[0])?;
            check(quorum(factors[1]), alive[1])?;
            Ok(quorum(factors[0]) + quorum(factors[1]))
        }
        other => panic!("{other:?} is not tested"),
    }
}

fn command(nodes: &Nodes) -> ReadCommand {
    ReadCommand {
        table: nodes.table.clone(),
        range: PartitionRange::Key(DecoratedKey::new(vec![1])),
        slices: [Slice::all()].into_iter().collect(),
        reversed: false,
        now: BASE,
        bypass_cache: false,
    }
}

fn mutation(nodes: &Nodes) -> Vec<u8> {
    let kind = Kind::Insert(0, 0, 1, false);
    Write { key: 1, timestamp: 1, local: 0, base: BASE, kind }.mutation(&nodes.table)
}

pub(crate) async fn write(nodes: &Nodes, level: Consistency) -> Result<(), ReplicationError> {
    let deadline = Deadline::after(Duration::from_secs(2));
    nodes.replicator.write(&nodes.table, &mutation(nodes), level, deadline).await
}

pub(crate) async fn read(nodes: &Nodes, level: Consistency) -> Result<(), ReplicationError> {
    let (deadline, mut reader) = (Deadline::after(Duration::from_secs(2)), Reader::new(None, None));
    nodes.replicator.read(&command(nodes), ReadLimits::default(), level, deadline, &mut reader).await
}

#[test]
fn what_is_needed_and_what_lives_are_cassandras_numbers() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&BY_DATA_CENTER, &FIVE, &[1, 2, 3, 4, 5], 0).await;
        for pattern in 0..16u16 {
            let mut alive = [1, 0];
            for node in 2..=5u16 {
                let up = pattern & 1 << (node - 2) != 0;
                nodes.others.set(node, if up { Mood::Serves } else { Mood::Down });
                alive[usize::from(node > 3)] += u32::from(up);
            }
            for level in LEVELS {
                let expected = cassandra(level, [3, 2], alive).map(|_| ());
                let found = |result: Result<(), ReplicationError>| match result {
                    Ok(()) => Ok(()),
                    Err(ReplicationError::Unavailable { required, alive }) => Err((required, alive)),
                    Err(error) => panic!("{error:?} at {level:?}, alive {alive:?}"),
                };
                assert_eq!(
                    found(write(&nodes, level).await),
                    expected,
                    "a write at {level:?}, alive {alive:?}"
                );
                assert_eq!(
                    found(read(&nodes, level).await),
                    expected,
                    "a read at {level:?}, alive {alive:?}"
                );
            }
        }
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn timeouts_and_failures_have_the_counts_of_those_who_answered() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 0).await;
        let moods = [Mood::Serves, Mood::Silent, Mood::Breaks];
        for (second, third) in moods.iter().flat_map(|a| moods.iter().map(move |b| (*a, *b))) {
            nodes.others.set(2, second);
            nodes.others.set(3, third);
            let answering = 1 + [second, third].iter().filter(|mood| **mood == Mood::Serves).count() as u32;
            let silent = [second, third].contains(&Mood::Silent);
            for (level, required) in [(Consistency::One, 1), (Consistency::Quorum, 2), (Consistency::All, 3)]
            {
                let which = format!("{second:?} and {third:?} at {level:?}");
                match write(&nodes, level).await {
                    Ok(()) => assert!(answering >= required, "{which}"),
                    Err(ReplicationError::TimedOut { received, required: of, .. }) => {
                        assert!(silent, "{which}");
                        assert_eq!((received, of), (answering.min(required - 1), required), "{which}");
                    }
                    Err(ReplicationError::Failed { required: of, failures, endpoint, .. }) => {
                        let broken = [second, third].iter().filter(|mood| **mood == Mood::Breaks).count();
                        assert!(required + broken as u32 > 3, "{which}: a level that could be reached");
                        assert_eq!((of, failures.len()), (required, broken), "{which}");
                        assert!(failures.iter().all(|(_, reason)| *reason == FailureReason::NodeDown));
                        assert!(failures.contains(&(endpoint, FailureReason::NodeDown)), "{which}");
                    }
                    Err(error) => panic!("{error:?}: {which}"),
                }
            }
        }
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_read_that_has_the_data_and_too_few_digests_says_so() {
    let ran = run(1, || async {
        let mut nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 0).await;
        nodes.speculate("NEVER").await;
        write(&nodes, Consistency::All).await.expect("a write");
        nodes.others.set(2, Mood::Silent);
        let error = read(&nodes, Consistency::Quorum).await.expect_err("node 2 is asked and is silent");
        assert!(
            matches!(error, ReplicationError::TimedOut { received: 1, required: 2, data_present: true }),
            "{error:?}"
        );
        nodes.others.set(2, Mood::Breaks);
        read(&nodes, Consistency::Quorum).await.expect("node 3 stands in");
        nodes.others.set(3, Mood::Breaks);
        let error = read(&nodes, Consistency::Quorum).await.expect_err("nobody stands in");
        let ReplicationError::Failed { received: 1, required: 2, failures, data_present: true, .. } = error
        else {
            panic!("{error:?}")
        };
        assert_eq!(failures.len(), 2);
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn each_data_center_keeps_its_own_stand_ins() {
    let ran = run(1, || async {
        let sites: Vec<Site> = FIVE.into_iter().chain([(6, "dc2", "c")]).collect();
        let replication = [BY_DATA_CENTER[0], ("dc1", "3"), ("dc2", "3")];
        let nodes = Nodes::open(&replication, &sites, &[1, 2, 3, 4, 5, 6], 0).await;
        write(&nodes, Consistency::All).await.expect("a write");
        nodes.others.set(4, Mood::Breaks);
        nodes.others.set(3, Mood::BreaksLate);
        read(&nodes, Consistency::EachQuorum).await.expect("node 6 stands in for 4, and then node 2 for 3");
        nodes.others.set(2, Mood::Breaks);
        read(&nodes, Consistency::EachQuorum).await.expect_err("node 6 does not stand in for one of dc1");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_level_of_one_data_center_waits_for_nobody_elsewhere() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&BY_DATA_CENTER, &FIVE, &[1, 2, 3, 4, 5], 0).await;
        nodes.others.set(4, Mood::Silent);
        nodes.others.set(5, Mood::Silent);
        let begin = reactor::now();
        write(&nodes, Consistency::LocalQuorum).await.expect("a quorum of dc1");
        assert!(begin.elapsed() < Duration::from_millis(100), "{:?}", begin.elapsed());
        // Both of those of dc2 do not come in time, and all of dc1 do.
        let error = write(&nodes, Consistency::EachQuorum).await.expect_err("dc2 is silent");
        assert!(matches!(error, ReplicationError::TimedOut { received: 3, required: 4, .. }), "{error:?}");
        nodes.others.set(2, Mood::Down);
        nodes.others.set(3, Mood::Down);
        let error = write(&nodes, Consistency::LocalQuorum).await.expect_err("dc1 is down");
        assert!(matches!(error, ReplicationError::Unavailable { required: 2, alive: 1 }), "{error:?}");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn the_nearest_replicas_are_asked() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&BY_DATA_CENTER, &FIVE, &[2, 3, 4, 5], 0).await;
        write(&nodes, Consistency::All).await.expect_err("the plan has four of five");
        let asked = |nodes: &Nodes| -> Vec<u16> {
            let mut asked: Vec<_> = nodes.others.calls.take().into_iter().map(|(node, _)| node).collect();
            asked.sort_unstable();
            asked
        };
        write(&nodes, Consistency::Quorum).await.expect("three of four");
        assert_eq!(asked(&nodes), [2, 3, 4, 5], "a write goes to all");
        read(&nodes, Consistency::One).await.expect("one");
        assert_eq!(asked(&nodes), [3], "of the same rack");
        read(&nodes, Consistency::LocalQuorum).await.expect("two");
        assert_eq!(asked(&nodes), [2, 3]);
        nodes.others.set(3, Mood::Down);
        read(&nodes, Consistency::One).await.expect("one");
        assert_eq!(asked(&nodes), [2], "of the same data center");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}
