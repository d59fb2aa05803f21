//! Any split of writes over replicas, and any read at a level that meets them: the answer is that of one node
//! that has all of the writes.
#![allow(clippy::disallowed_types, reason = "proptest's macros name Arc")]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use model::clustering::Slice;
use model::partition_key::DecoratedKey;
use model::{Table, TableId};
use proptest::prelude::*;
use reactor::Deadline;
use replication::{Consistency, ReadLimits};
use storage::{PartitionRange, ReadCommand, Slices};

use super::heard::Heard;
use super::nodes::{ALL, Mood, Nodes, RF3, Reader, TABLE, THREE, id_of, renamed, run};
use super::writes::{BASE, Bound, KEYS, Kind, SPAN, Write, bound, position, prefix, write};

#[derive(Debug, Clone)]
enum Op {
    /// A write that these nodes get; the others miss it.
    Give(Write, Vec<u16>),
    /// A write at QUORUM while a node is down.
    Write(Write, Option<u16>),
    Flush(u16),
    Compact(u16),
    Read(Read),
}

#[derive(Debug, Clone)]
struct Read {
    /// One partition, or all.
    key: Option<u8>,
    bounds: Vec<Bound>,
    statics_only: bool,
    reversed: bool,
    now: u32,
    /// Rows that the reader takes, in all and of a partition.
    rows: Option<usize>,
    per_partition: Option<usize>,
    /// Rows of a page.
    page: Option<usize>,
    level: Consistency,
    /// A node that is not up, fails or does not answer.
    without: Option<(u16, Mood)>,
}

/// The replicas, and the numbers of those that a test may take away.
fn replicas(coordinator_is_one: bool) -> Vec<u16> {
    if coordinator_is_one { vec![1, 2, 3] } else { vec![2, 3, 4] }
}

fn read() -> impl Strategy<Value = Read> {
    let moods = [Mood::Down, Mood::Breaks, Mood::Overloaded, Mood::Silent, Mood::KeepsData];
    let moods = proptest::sample::select(moods.to_vec());
    (
        (
            proptest::option::weighted(0.6, 0..KEYS),
            prop_oneof![Just(Vec::new()), proptest::collection::vec(bound(), 2..6)],
            proptest::bool::weighted(0.05),
            any::<bool>(),
        ),
        (BASE..BASE + SPAN, proptest::option::of(1..8usize), proptest::option::weighted(0.3, 0..4usize)),
        (
            proptest::option::of(1..4usize),
            prop_oneof![4 => Just(Consistency::Quorum), 1 => Just(Consistency::All)],
            proptest::option::of((2..4u16, moods)),
        ),
    )
        .prop_map(
            |((key, bounds, statics_only, reversed), (now, rows, per_partition), (page, level, without))| {
                Read { key, bounds, statics_only, reversed, now, rows, per_partition, page, level, without }
            },
        )
}

fn op() -> impl Strategy<Value = Op> {
    let two = proptest::sample::subsequence(vec![0u16, 1, 2], 2..=3);
    prop_oneof![
        14 => (write(), two).prop_map(|(write, nodes)| Op::Give(write, nodes)),
        4 => (write(), proptest::option::of(1..3u16)).prop_map(|(write, down)| Op::Write(write, down)),
        2 => (0..3u16).prop_map(Op::Flush),
        1 => (0..3u16).prop_map(Op::Compact),
        8 => read().prop_map(Op::Read),
    ]
}

fn slices(read: &Read, table: &Table) -> Slices {
    if read.statics_only {
        return Slices::new();
    }
    if read.bounds.is_empty() {
        return [Slice::all()].into_iter().collect();
    }
    let orders = table.clustering_orders();
    let mut bounds: Vec<_> = read.bounds.iter().map(position).collect();
    bounds.sort_by(|x, y| x.as_ref().compare(y.as_ref(), orders));
    bounds.dedup();
    bounds.chunks_exact(2).map(|pair| Slice { start: pair[0].clone(), end: pair[1].clone() }).collect()
}

fn command(nodes: &Nodes, id: TableId, read: &Read) -> ReadCommand {
    let table = nodes.storage().schema().table_by_id(id).cloned().expect("the table");
    ReadCommand {
        slices: slices(read, &table),
        range: match read.key {
            Some(key) => PartitionRange::Key(DecoratedKey::new(vec![key])),
            None => PartitionRange::all(),
        },
        table,
        reversed: read.reversed,
        now: read.now,
        bypass_cache: false,
    }
}

async fn check(nodes: &Nodes, read: &Read) {
    let (wanted, asked) = (command(nodes, ALL, read), command(nodes, nodes.table.id(), read));
    let mut expected = Reader::new(read.rows, read.per_partition);
    nodes.storage().read(&wanted, &mut expected).await.expect("a read");
    let level = match &read.without {
        Some((node, mood)) => {
            nodes.others.set(*node, *mood);
            Consistency::Quorum
        }
        None => read.level,
    };
    let limits = ReadLimits { rows: read.page, rows_per_partition: read.per_partition };
    let mut found = Reader::new(read.rows, read.per_partition);
    let deadline = Deadline::after(Duration::from_secs(5));
    let answered = nodes.replicator.read(&asked, limits, level, deadline, &mut found).await;
    assert!(answered.is_ok(), "{answered:?}: {read:?}");
    if let Some((node, _)) = &read.without {
        nodes.others.set(*node, Mood::Serves);
    }
    assert_eq!(found.partitions, expected.partitions, "{read:?}");
}

fn everything(reversed: bool) -> Read {
    Read {
        key: None,
        bounds: Vec::new(),
        statics_only: false,
        reversed,
        now: BASE,
        rows: None,
        per_partition: None,
        page: None,
        level: Consistency::All,
        without: None,
    }
}

/// After a read of everything at ALL each node has what all of them have.
async fn check_equal(nodes: &Nodes, replicas: &[u16]) {
    check(nodes, &everything(true)).await;
    let read = everything(false);
    let mut whole = Heard::new(BASE, false, None);
    nodes.storage().read_raw(&command(nodes, ALL, &read), &mut whole).await.expect("a raw read");
    for node in replicas {
        let mut heard = Heard::new(BASE, false, None);
        nodes.storage().read_raw(&command(nodes, id_of(*node), &read), &mut heard).await.expect("a raw read");
        assert_eq!(heard.parts, whole.parts, "node {node} after a read at ALL");
    }
}

async fn node(ops: Vec<Op>, coordinator_is_one: bool, policy: &str) {
    let replicas = replicas(coordinator_is_one);
    let sites = [THREE[0], THREE[1], THREE[2], (4, "dc", "r")];
    let mut nodes = Nodes::open(&RF3, &sites, &replicas, 0).await;
    nodes.speculate(policy).await;
    for op in &ops {
        match op {
            Op::Give(write, to) => {
                let mutation = write.mutation(&nodes.table);
                for at in to {
                    nodes.give(replicas[usize::from(*at)], &mutation).await;
                }
                nodes.give(99, &mutation).await;
            }
            Op::Write(write, down) => {
                let mutation = write.mutation(&nodes.table);
                let down = down.map(|at| replicas[usize::from(at)]);
                down.iter().for_each(|node| nodes.others.set(*node, Mood::Down));
                let deadline = Deadline::after(Duration::from_secs(5));
                let written =
                    nodes.replicator.write(&nodes.table, &mutation, Consistency::Quorum, deadline).await;
                written.expect("a write at QUORUM");
                down.iter().for_each(|node| nodes.others.set(*node, Mood::Serves));
                let applied = nodes.storage().apply(&renamed(&mutation, ALL), Deadline::NEVER).await;
                applied.expect("a write");
            }
            Op::Flush(at) => {
                let flushed = nodes.storage().flush(id_of(replicas[usize::from(*at)])).await;
                flushed.expect("a flush");
            }
            Op::Compact(at) => {
                let compacted = nodes.storage().compact(id_of(replicas[usize::from(*at)])).await;
                compacted.expect("a compaction");
            }
            Op::Read(read) => check(&nodes, read).await,
        }
    }
    check_equal(&nodes, &replicas).await;
    nodes.close();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_read_that_meets_all_writes_is_that_of_one_node_that_has_them(
        ops in proptest::collection::vec(op(), 1..120), coordinator_is_one: bool, seed in 0u64..1000,
        policy in proptest::sample::select(vec!["99p", "20ms", "ALWAYS"])
    ) {
        prop_assert_eq!(run(seed, move || node(ops, coordinator_is_one, policy)), Ok(()));
    }
}

/// Reads a range at QUORUM from nodes with these writes, a row of each partition at a time; returns the keys
/// with the rows that were shown.
fn first_rows(writes: &'static [(u16, u8, i64, Kind)]) -> Vec<(u8, Vec<Vec<u8>>)> {
    let found = Rc::new(RefCell::new(Vec::new()));
    let shown = Rc::clone(&found);
    let ran = run(1, move || async move {
        let nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 1000).await;
        for (node, key, timestamp, kind) in writes {
            let write = Write { key: *key, timestamp: *timestamp, local: 0, base: BASE, kind: kind.clone() };
            nodes.give(*node, &write.mutation(&nodes.table)).await;
        }
        let read = Read { per_partition: Some(1), page: Some(1), ..everything(false) };
        let limits = ReadLimits { rows: read.page, rows_per_partition: read.per_partition };
        let (mut reader, command) = (Reader::new(None, read.per_partition), command(&nodes, TABLE, &read));
        let deadline = Deadline::after(Duration::from_secs(5));
        let read = nodes.replicator.read(&command, limits, Consistency::Quorum, deadline, &mut reader).await;
        read.expect("a read");
        let rows =
            |rows: Vec<(Vec<u8>, Vec<u8>)>| rows.into_iter().map(|(clustering, _)| clustering).collect();
        let partitions = reader.partitions.into_iter().map(|(key, _, of_key)| (key[0], rows(of_key)));
        shown.replace(partitions.collect());
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
    found.take()
}

#[test]
fn what_lies_behind_the_end_of_an_answer_is_not_taken_for_missing() {
    // By token, key 0 comes before key 2 (the test would not be one otherwise).
    let [first, second] = [0u8, 2].map(|key| DecoratedKey::new(vec![key]).token);
    assert!(first < second, "{first:?} {second:?}");
    // Node 1 is cut behind the first partition; it has deleted what node 2 shows of the second.
    let shown = first_rows(&[
        (1, 0, 1, Kind::Insert(0, 0, 1, false)),
        (1, 2, 5, Kind::DeleteRow(0, 0)),
        (2, 2, 1, Kind::Insert(0, 0, 1, false)),
    ]);
    assert_eq!(shown, [(0, vec![prefix(0, Some(0))])]);
}

#[test]
fn a_range_deletion_that_is_open_where_an_answer_is_cut_shadows_what_lies_before() {
    let deletion = Kind::DeleteRange((0, None, -1), (1, None, 1));
    let writes = vec![
        (1, 1, 5, deletion),
        (1, 1, 9, Kind::Insert(1, 0, 1, false)),
        (2, 1, 1, Kind::Insert(0, 0, 1, false)),
    ];
    let shown = first_rows(writes.leak());
    assert_eq!(shown, [(1, vec![prefix(1, Some(0))])]);
}
