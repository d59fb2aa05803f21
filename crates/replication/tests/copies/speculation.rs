//! Reads that do not wait for a slow replica: `speculative_retry`, and slow nodes that are asked last.

use std::time::Duration;

use model::clustering::Slice;
use model::partition_key::DecoratedKey;
use reactor::{Deadline, metrics};
use replication::{Consistency, ReadLimits, ReplicationError};
use storage::{PartitionRange, ReadCommand};
use wire::node::frame::Verb;

use super::nodes::{Mood, Nodes, RF3, Reader, Site, THREE, run};
use super::writes::{BASE, Kind, Write};

const QUORUM: Consistency = Consistency::Quorum;
const FOUR: [Site; 4] = [THREE[0], THREE[1], THREE[2], (4, "dc", "r")];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One partition, or all.
fn command(nodes: &Nodes, key: Option<u8>) -> ReadCommand {
    ReadCommand {
        table: nodes.table.clone(),
        range: key.map_or(PartitionRange::all(), |key| PartitionRange::Key(DecoratedKey::new(vec![key]))),
        slices: [Slice::all()].into_iter().collect(),
        reversed: false,
        now: BASE,
        bypass_cache: false,
    }
}

/// The number of rows that a read finds, or its error, and how long it took.
async fn attempt(
    nodes: &Nodes,
    key: Option<u8>,
    level: Consistency,
) -> (Result<usize, ReplicationError>, Duration) {
    let (begin, mut reader) = (reactor::now(), Reader::new(None, None));
    let (command, deadline) = (command(nodes, key), Deadline::after(ms(2000)));
    let read = nodes.replicator.read(&command, ReadLimits::default(), level, deadline, &mut reader).await;
    let rows = reader.partitions.iter().map(|(.., rows)| rows.len()).sum();
    (read.map(|()| rows), begin.elapsed())
}

/// The number of rows that a read finds, and how long it took.
async fn read(nodes: &Nodes, key: Option<u8>, level: Consistency) -> (usize, Duration) {
    let (rows, took) = attempt(nodes, key, level).await;
    (rows.expect("a read"), took)
}

/// The answers of a read that has too few in its time.
async fn too_few(nodes: &Nodes, key: Option<u8>, level: Consistency) -> u32 {
    let (rows, took) = attempt(nodes, key, level).await;
    assert!(took >= ms(2000), "{took:?}");
    match rows {
        Err(ReplicationError::TimedOut { received, .. }) => received,
        rows => panic!("{rows:?}"),
    }
}

async fn give(nodes: &Nodes, to: &[u16], row: i32, timestamp: i64) {
    let kind = Kind::Insert(row, 0, 1, false);
    let mutation = Write { key: 1, timestamp, local: 0, base: BASE, kind }.mutation(&nodes.table);
    for node in to {
        nodes.give(*node, &mutation).await;
    }
}

/// Requests for data and for digests to one replica more, and reads that it helped.
fn counts() -> [u64; 3] {
    [
        "scylla_storage_proxy_coordinator_speculative_data_reads",
        "scylla_storage_proxy_coordinator_speculative_digest_reads",
        "ceto_coordinator_speculative_reads_helped",
    ]
    .map(|name| metrics::counter(name, "", &[]).get())
}

/// Nodes of `sites` that have the table, with a row, and its `speculative_retry`.
async fn open(sites: &[Site], replicas: &[u16], factor: &str, policy: &str) -> Nodes {
    let replication = [RF3[0], ("replication_factor", factor)];
    let mut nodes = Nodes::open(&replication, sites, replicas, 1000).await;
    nodes.speculate(policy).await;
    give(&nodes, replicas, 0, 1).await;
    nodes
}

#[test]
fn a_silent_replica_costs_a_read_the_time_that_the_table_says() {
    let ran = run(1, || async {
        let nodes = open(&THREE, &[1, 2, 3], "3", "20ms").await;
        nodes.others.set(2, Mood::Silent);
        for (key, verb, counted) in [(Some(1), Verb::Digest, [0, 1, 1]), (None, Verb::Read, [1, 1, 2])] {
            let (rows, took) = read(&nodes, key, QUORUM).await;
            assert_eq!(rows, 1, "{key:?}");
            assert!((ms(20)..ms(25)).contains(&took), "{took:?} for {key:?}");
            assert_eq!(nodes.others.calls.take(), [(3, verb)], "{key:?}");
            assert_eq!(counts(), counted, "{key:?}");
        }
        // One that answers in time is alone.
        nodes.others.set(2, Mood::Late(ms(10)));
        assert_eq!(read(&nodes, Some(1), QUORUM).await.0, 1);
        assert_eq!(nodes.others.calls.take(), [(2, Verb::Digest)]);
        assert_eq!(counts(), [1, 1, 2]);
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn data_is_asked_for_where_it_is_missing() {
    let ran = run(1, || async {
        let nodes = open(&FOUR, &[2, 3, 4], "3", "20ms").await;
        nodes.others.set(2, Mood::Silent);
        let (rows, took) = read(&nodes, Some(1), QUORUM).await;
        assert_eq!(rows, 1);
        assert!((ms(20)..ms(25)).contains(&took), "{took:?}");
        assert_eq!(nodes.others.calls.take(), [(3, Verb::Digest), (4, Verb::Read)]);
        assert_eq!(counts(), [1, 0, 1]);
        // At ONE too.
        assert_eq!(read(&nodes, Some(1), Consistency::One).await.0, 1);
        assert_eq!(nodes.others.calls.take(), [(3, Verb::Read)]);
        assert_eq!(counts(), [2, 0, 2]);
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_table_that_says_never_waits() {
    let ran = run(1, || async {
        let nodes = open(&THREE, &[1, 2, 3], "3", "NEVER").await;
        nodes.others.set(2, Mood::Silent);
        for key in [Some(1), None] {
            assert_eq!(too_few(&nodes, key, QUORUM).await, 1);
        }
        assert_eq!(nodes.others.calls.take(), []);
        assert_eq!(counts(), [0; 3]);
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_table_that_says_always_asks_one_more_at_once() {
    let ran = run(1, || async {
        let nodes = open(&THREE, &[1, 2, 3], "3", "ALWAYS").await;
        assert_eq!(read(&nodes, Some(1), QUORUM).await.0, 1);
        assert_eq!(nodes.others.calls.take(), [(2, Verb::Read), (3, Verb::Digest)]);
        assert_eq!(read(&nodes, None, QUORUM).await.0, 1);
        assert_eq!(nodes.others.calls.take(), [(2, Verb::Read), (3, Verb::Read)]);
        assert_eq!(counts()[..2], [1, 1]);
        for silent in [2, 3] {
            nodes.others.set(silent, Mood::Silent);
            for key in [Some(1), None] {
                let (rows, took) = read(&nodes, key, QUORUM).await;
                assert_eq!(rows, 1, "{key:?} without {silent}");
                assert!(took < ms(5), "{took:?} for {key:?} without {silent}");
            }
            nodes.others.set(silent, Mood::Serves);
        }
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn where_all_are_needed_nobody_is_left_to_ask() {
    for policy in ["20ms", "ALWAYS"] {
        let ran = run(1, move || async move {
            let nodes = open(&THREE, &[1, 2, 3], "3", policy).await;
            nodes.others.set(2, Mood::Silent);
            assert_eq!(too_few(&nodes, Some(1), Consistency::All).await, 2);
            assert_eq!(nodes.others.calls.take(), [(3, Verb::Digest)], "{policy}");
            // At QUORUM nobody is left where one is down.
            nodes.others.set(3, Mood::Down);
            assert_eq!(too_few(&nodes, Some(1), QUORUM).await, 1);
            assert_eq!(counts(), [0; 3], "{policy}");
            nodes.close();
        });
        assert_eq!(ran, Ok(()), "{policy}");
    }
}

#[test]
fn one_more_is_asked_and_no_further_one() {
    let ran = run(1, || async {
        let sites: Vec<Site> = FOUR.into_iter().chain([(5, "dc", "r")]).collect();
        let nodes = open(&sites, &[1, 2, 3, 4, 5], "5", "20ms").await;
        nodes.others.set(2, Mood::Silent);
        nodes.others.set(3, Mood::Silent);
        assert_eq!(too_few(&nodes, Some(1), QUORUM).await, 2);
        assert_eq!(nodes.others.calls.take(), [(4, Verb::Digest)]);
        assert_eq!(counts(), [0, 1, 0]);
        // One that fails is replaced nevertheless.
        nodes.others.set(3, Mood::Breaks);
        assert_eq!(read(&nodes, Some(1), QUORUM).await.0, 1);
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn what_the_answer_of_one_more_shows_is_repaired() {
    let ran = run(1, || async {
        let nodes = open(&THREE, &[1, 2, 3], "3", "20ms").await;
        give(&nodes, &[3], 1, 2).await;
        nodes.others.set(2, Mood::Silent);
        let (rows, took) = read(&nodes, Some(1), QUORUM).await;
        assert_eq!(rows, 2, "node 3 has two");
        assert!(took < ms(30), "{took:?}");
        assert_eq!(nodes.others.calls.take(), [(3, Verb::Digest), (3, Verb::Read)]);
        nodes.others.set(3, Mood::Silent);
        assert_eq!(read(&nodes, Some(1), Consistency::One).await.0, 2, "and node 1 has both now");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn contents_that_do_not_come_behind_digests_are_asked_of_one_more() {
    let ran = run(1, || async {
        let nodes = open(&THREE, &[1, 2, 3], "3", "20ms").await;
        give(&nodes, &[1, 3], 1, 2).await;
        // Its digest differs, and its contents do not come.
        nodes.others.set(2, Mood::KeepsData);
        let (rows, took) = read(&nodes, Some(1), QUORUM).await;
        assert_eq!(rows, 2);
        assert!((ms(20)..ms(25)).contains(&took), "{took:?}");
        assert_eq!(nodes.others.calls.take(), [(2, Verb::Digest), (3, Verb::Read)]);
        assert_eq!(counts(), [1, 0, 1]);
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_late_answer_does_no_harm() {
    let ran = run(1, || async {
        let nodes = open(&THREE, &[1, 2, 3], "3", "20ms").await;
        give(&nodes, &[2], 1, 2).await;
        nodes.others.set(2, Mood::Late(ms(50)));
        for _ in 0..10 {
            let (rows, took) = read(&nodes, Some(1), QUORUM).await;
            assert_eq!(rows, 1, "nodes 1 and 3 agree");
            assert!(took < ms(30), "{took:?}");
            reactor::sleep(ms(10)).await;
        }
        reactor::sleep(ms(200)).await;
        nodes.others.set(2, Mood::Serves);
        assert_eq!(read(&nodes, Some(1), Consistency::All).await.0, 2);
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_percentile_is_that_of_the_reads_of_the_table() {
    let ran = run(1, || async {
        let mut nodes = open(&THREE, &[1, 2, 3], "3", "99p").await;
        nodes.others.set(2, Mood::Silent);
        let (rows, took) = read(&nodes, Some(1), QUORUM).await;
        assert_eq!(rows, 1);
        assert!((ms(1000)..ms(1010)).contains(&took), "{took:?}: half the time, before any read");
        nodes.others.slow.set(Some(ms(4)));
        nodes.others.set(2, Mood::Serves);
        for _ in 0..400 {
            assert_eq!(read(&nodes, Some(1), QUORUM).await.0, 1);
        }
        // The percentile is taken anew each second.
        nodes.others.set(2, Mood::Silent);
        let (rows, took) = read(&nodes, Some(1), QUORUM).await;
        assert_eq!(rows, 1);
        assert!((ms(8)..ms(10)).contains(&took), "{took:?}: 4 ms are usual, and node 3 takes as long");
        // Another policy counts at once.
        nodes.speculate("MAX(99p,100ms)").await;
        let (_, took) = read(&nodes, Some(1), QUORUM).await;
        assert!((ms(104)..ms(110)).contains(&took), "{took:?}");
        // Ranges have their own times.
        nodes.speculate("99p").await;
        reactor::sleep(ms(100_000)).await;
        let (_, took) = read(&nodes, None, QUORUM).await;
        assert!(took >= ms(1000), "{took:?}: no range was read so far");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn one_more_is_of_the_data_center_that_is_late() {
    let ran = run(1, || async {
        let sites: Vec<Site> =
            (1..=6).map(|node| (node, if node <= 3 { "dc1" } else { "dc2" }, "r")).collect();
        let class = "org.apache.cassandra.locator.NetworkTopologyStrategy";
        let replication = [("class", class), ("dc1", "3"), ("dc2", "3")];
        let mut nodes = Nodes::open(&replication, &sites, &[1, 2, 3, 4, 5, 6], 1000).await;
        nodes.speculate("20ms").await;
        give(&nodes, &[1, 2, 3, 4, 5, 6], 0, 1).await;
        nodes.others.set(4, Mood::Silent);
        let (rows, took) = read(&nodes, Some(1), Consistency::EachQuorum).await;
        assert_eq!(rows, 1);
        assert!((ms(20)..ms(25)).contains(&took), "{took:?}");
        let digest = |node| (node, Verb::Digest);
        assert_eq!(nodes.others.calls.take(), [digest(2), digest(5), digest(6)]);
        // At a level of this data center nobody elsewhere is asked.
        nodes.others.set(2, Mood::Silent);
        nodes.others.set(3, Mood::Silent);
        assert_eq!(too_few(&nodes, Some(1), Consistency::LocalQuorum).await, 1);
        assert_eq!(nodes.others.calls.take(), []);
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

/// The nodes that so many reads asked, but for the first.
async fn asked(nodes: &Nodes, reads: usize, pause: Duration) -> Vec<u16> {
    for _ in 0..reads {
        assert_eq!(read(nodes, Some(1), QUORUM).await.0, 1);
        reactor::sleep(pause).await;
    }
    nodes.others.calls.take().into_iter().map(|(node, _)| node).collect()
}

#[test]
fn a_slow_node_is_asked_last_until_it_is_tried_again() {
    let ran = run(1, || async {
        let nodes = open(&THREE, &[1, 2, 3], "3", "NEVER").await;
        assert_eq!(asked(&nodes, 20, ms(1)).await, [2; 20], "all alike: the first by their order");
        nodes.others.set(2, Mood::Late(ms(1)));
        assert_eq!(asked(&nodes, 50, ms(1)).await, [2; 50], "a small difference moves nothing");
        nodes.others.set(2, Mood::Late(ms(30)));
        let after = asked(&nodes, 50, ms(1)).await;
        let change = after.iter().position(|node| *node == 3).expect("node 3 is asked instead");
        assert!((2..10).contains(&change), "{after:?}");
        assert!(after[change..].iter().all(|node| *node == 3), "{after:?}");
        nodes.others.set(2, Mood::Serves);
        assert_eq!(asked(&nodes, 1, ms(100_000)).await, [3]);
        assert_eq!(asked(&nodes, 20, ms(1)).await, [2; 20], "and it is quick again");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_node_that_does_not_answer_is_asked_last() {
    let ran = run(1, || async {
        let nodes = open(&THREE, &[1, 2, 3], "3", "20ms").await;
        nodes.others.set(2, Mood::Silent);
        for key in [Some(1), None] {
            let mut waits = Vec::new();
            for _ in 0..30 {
                let (rows, took) = read(&nodes, key, QUORUM).await;
                assert_eq!(rows, 1);
                waits.push(took);
            }
            let waited = waits.iter().filter(|took| **took >= ms(20)).count();
            assert!((2..10).contains(&waited), "{waits:?} for {key:?}");
            reactor::sleep(ms(100_000)).await;
        }
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}
