//! A replica that joins or leaves: who waits for it, what it gets, and what is refused behind its fence.

use std::time::Duration;

use cluster::SyncTablet;
use cluster::maps::Step;
use model::clustering::Slice;
use model::mutation::MutationView;
use reactor::Deadline;
use replication::{Consistency, ReplicationError};
use storage::{PartitionRange, ReadCommand};
use wire::node::fault::FaultKind;
use wire::node::frame::Verb;
use wire::node::mutate::{self, Entry, Mutate};

use super::heard::Heard;
use super::levels::{read, write};
use super::nodes::{Mood, Nodes, RF3, Site, TABLE, THREE, id_of, run};
use super::writes::{BASE, Kind, Write};

const FIVE: [Site; 5] =
    [(1, "dc", "r"), (2, "dc", "r"), (3, "dc", "r"), (4, "dc", "r"), (5, "elsewhere", "r")];
const QUORUM: Consistency = Consistency::Quorum;

fn mutation(nodes: &Nodes, key: u8, kind: Kind) -> Vec<u8> {
    Write { key, timestamp: 5, local: BASE - 10, base: BASE, kind }.mutation(&nodes.table)
}

/// How many answers a write waits for while so many other nodes are silent; `None` if it does not wait for
/// more than there are.
async fn waits_for(nodes: &Nodes, silent: &[u16], level: Consistency) -> Option<u32> {
    silent.iter().for_each(|node| nodes.others.set(*node, Mood::Silent));
    let written = write(nodes, level).await;
    silent.iter().for_each(|node| nodes.others.set(*node, Mood::Serves));
    match written {
        Ok(()) => None,
        Err(ReplicationError::TimedOut { required, .. }) => Some(required),
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn a_replica_that_moves_counts_where_the_level_needs_one_more_with_it() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&RF3, &FIVE, &[1, 2, 3, 4, 5], 0).await;
        for step in [Step::Joining, Step::Leaving] {
            // One whole replica, towards two: a majority of both is two.
            nodes.step(&[1, 2], step, true);
            assert_eq!(waits_for(&nodes, &[2], QUORUM).await, Some(2), "{step:?}");
            assert_eq!(waits_for(&nodes, &[2], Consistency::All).await, Some(2), "{step:?}");
            assert_eq!(waits_for(&nodes, &[2], Consistency::One).await, None, "{step:?}");
            // Two, towards three: a majority of three is two of the first two.
            nodes.step(&[1, 2, 3], step, true);
            assert_eq!(waits_for(&nodes, &[3], QUORUM).await, None, "{step:?}");
            assert_eq!(waits_for(&nodes, &[2], QUORUM).await, Some(2), "the third does not stand in");
            assert_eq!(waits_for(&nodes, &[3], Consistency::All).await, Some(3), "{step:?}");
            // Three, towards four: three of the four.
            nodes.step(&[1, 2, 3, 4], step, false);
            assert_eq!(waits_for(&nodes, &[3], QUORUM).await, None, "the fourth is one of the three");
            assert_eq!(waits_for(&nodes, &[3, 4], QUORUM).await, Some(3), "{step:?}");
            // It is written to in any case, and never read.
            nodes.others.calls.take();
            write(&nodes, Consistency::One).await.unwrap();
            reactor::sleep(Duration::from_millis(50)).await;
            let verbs = |node: u16| -> Vec<Verb> {
                let calls = nodes.others.calls.borrow();
                calls.iter().filter(|(of, _)| *of == node).map(|(_, verb)| *verb).collect()
            };
            assert_eq!(verbs(4), [Verb::Mutate]);
            nodes.others.calls.take();
            read(&nodes, Consistency::All).await.unwrap();
            assert!(!verbs(2).is_empty() && !verbs(3).is_empty() && verbs(4).is_empty());
            nodes.others.set(2, Mood::Down);
            nodes.others.set(3, Mood::Down);
            let error = read(&nodes, QUORUM).await.unwrap_err();
            assert!(matches!(error, ReplicationError::Unavailable { required: 2, alive: 1 }), "{error:?}");
            nodes.others.set(2, Mood::Serves);
            nodes.others.set(3, Mood::Serves);
        }
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn while_factors_change_levels_count_the_replicas_that_there_are() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&RF3, &FIVE, &[1, 2, 3, 4, 5], 0).await;
        nodes.step(&[1], Step::Whole, false);
        let error = write(&nodes, QUORUM).await.unwrap_err();
        assert!(matches!(error, ReplicationError::Unavailable { required: 2, alive: 1 }), "{error:?}");
        nodes.step(&[1], Step::Whole, true);
        write(&nodes, QUORUM).await.unwrap();
        read(&nodes, QUORUM).await.unwrap();
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn what_was_planned_before_the_fence_is_refused_and_a_hint_is_taken() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 0).await;
        let earlier = nodes.replicator.routing(&nodes.table).version();
        nodes.step(&[1, 2, 3], Step::Joining, false);
        let later = nodes.replicator.routing(&nodes.table).version();
        let bytes = mutation(&nodes, 1, Kind::Insert(0, 0, 1, false));
        let send = async |verb, version| {
            let mutation = MutationView::parse(&bytes).unwrap();
            let entries = vec![Entry { version, since: 0, mutation }];
            let born_us = reactor::wall_clock_us();
            let mut body = Vec::new();
            mutate::encode(&Mutate { born_us, forward: Vec::new(), entries }, &mut body);
            let served = nodes.replicator.serve(verb, &body, Deadline::after(Duration::from_secs(1))).await;
            served.map(drop).map_err(|fault| fault.kind)
        };
        assert_eq!(send(Verb::Mutate, earlier).await, Err(FaultKind::Stale));
        assert_eq!(send(Verb::Mutate, later).await, Ok(()));
        assert_eq!(send(Verb::Hint, earlier).await, Ok(()));
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn copying_gives_each_what_the_others_have_deletions_too() {
    let ran = run(1, || async {
        // Nobody repairs anything in passing.
        let mut nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 100_000).await;
        nodes.repair_nothing().await;
        for key in 0..40u8 {
            let row = mutation(&nodes, key, Kind::Insert(0, 0, 1, false));
            nodes.give(1 + u16::from(key % 2), &row).await;
        }
        for key in 30..40u8 {
            nodes.give(1, &mutation(&nodes, key, Kind::DeletePartition)).await;
        }
        nodes.step(&[1, 2, 3], Step::Joining, true);
        for tablet in 0..2 {
            let mut from = None;
            loop {
                let slice = SyncTablet { table: TABLE.0, tablet, nodes: vec![1, 2], from };
                from = replication::read::sync_slice(slice).await.unwrap();
                if from.is_none() {
                    break;
                }
            }
        }
        let (first, third) = (everything(&nodes, 1).await, everything(&nodes, 3).await);
        assert_eq!(third.len(), 40, "also partitions that are deleted: {third:?}");
        assert_eq!(first, third);
        let gone = SyncTablet { table: TABLE.0, tablet: 0, nodes: vec![1, 5], from: None };
        let error = replication::read::sync_slice(gone).await.unwrap_err();
        assert!(error.contains("node 5 has no replica of tablet 0"), "{error}");
        let unknown = SyncTablet { table: TABLE.0, tablet: 7, nodes: vec![1], from: None };
        let error = replication::read::sync_slice(unknown).await.unwrap_err();
        assert!(error.contains("no replica of tablet 7"), "{error}");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

/// All partitions of a node, dead ones too.
async fn everything(nodes: &Nodes, node: u16) -> Vec<String> {
    let command = ReadCommand {
        table: nodes.storage().schema().table_by_id(id_of(node)).cloned().expect("the table"),
        range: PartitionRange::all(),
        slices: [Slice::all()].into_iter().collect(),
        reversed: false,
        now: BASE,
        bypass_cache: false,
    };
    let mut heard = Heard::new(BASE, false, None);
    nodes.storage().read_raw(&command, &mut heard).await.expect("a raw read");
    heard.parts.iter().map(ToString::to_string).collect()
}
