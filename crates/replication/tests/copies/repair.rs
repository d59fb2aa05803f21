//! What reads write to replicas, and when they do not have to.

use std::time::Duration;

use model::TableId;
use model::clustering::Slice;
use model::partition_key::DecoratedKey;
use reactor::Deadline;
use replication::{Consistency, ReadLimits, ReplicationError};
use storage::{PartitionRange, ReadCommand};
use wire::node::frame::Verb;

use super::heard::Heard;
use super::nodes::{Mood, Nodes, RF3, Reader, THREE, id_of, run};
use super::writes::{BASE, Kind, Write};

fn command(nodes: &Nodes, id: TableId, slice: Slice) -> ReadCommand {
    ReadCommand {
        table: nodes.storage().schema().table_by_id(id).cloned().expect("the table"),
        range: PartitionRange::Key(DecoratedKey::new(vec![1])),
        slices: [slice].into_iter().collect(),
        reversed: false,
        now: BASE,
        bypass_cache: false,
    }
}

async fn give(nodes: &Nodes, to: &[u16], timestamp: i64, base: u32, kind: Kind) {
    let mutation = Write { key: 1, timestamp, local: 0, base, kind }.mutation(&nodes.table);
    for node in to {
        nodes.give(*node, &mutation).await;
    }
}

async fn read(nodes: &Nodes, level: Consistency) -> Result<Reader, ReplicationError> {
    let (deadline, mut reader) = (Deadline::after(Duration::from_secs(2)), Reader::new(None, None));
    let command = command(nodes, nodes.table.id(), Slice::all());
    let limits = ReadLimits::default();
    nodes.replicator.read(&command, limits, level, deadline, &mut reader).await.map(|()| reader)
}

/// Rows that a node has, by their first clustering column.
async fn stored(nodes: &Nodes, node: u16) -> String {
    let mut heard = Heard::new(BASE, false, None);
    nodes
        .storage()
        .read_raw(&command(nodes, id_of(node), Slice::all()), &mut heard)
        .await
        .expect("a raw read");
    heard.parts.first().map(ToString::to_string).unwrap_or_default()
}

fn verbs(nodes: &Nodes) -> Vec<(u16, Verb)> {
    nodes.others.calls.take()
}

#[test]
fn replicas_that_agree_send_digests_and_those_that_do_not_are_repaired() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 1000).await;
        give(&nodes, &[1, 2, 3], 1, BASE, Kind::Insert(0, 0, 1, false)).await;
        read(&nodes, Consistency::All).await.expect("a read");
        assert_eq!(verbs(&nodes), [(2, Verb::Digest), (3, Verb::Digest)]);
        give(&nodes, &[2], 2, BASE, Kind::Insert(1, 0, 1, false)).await;
        give(&nodes, &[1, 3], 3, BASE, Kind::DeleteRow(0, 0)).await;
        let reader = read(&nodes, Consistency::All).await.expect("a read");
        assert_eq!(reader.partitions[0].2.len(), 1, "the second row alone is live");
        let mut called = verbs(&nodes);
        called.sort_by_key(|(node, verb)| (*node, *verb as u8));
        let expected = [
            (2, Verb::Mutate),
            (2, Verb::Read),
            (2, Verb::Digest),
            (3, Verb::Mutate),
            (3, Verb::Read),
            (3, Verb::Digest),
        ];
        assert_eq!(called, expected);
        let first = stored(&nodes, 1).await;
        assert_eq!([stored(&nodes, 2).await, stored(&nodes, 3).await], [first.clone(), first]);
        read(&nodes, Consistency::All).await.expect("a read");
        assert_eq!(verbs(&nodes), [(2, Verb::Digest), (3, Verb::Digest)], "they agree now");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn replicas_that_purged_agree_with_those_that_did_not() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 0).await;
        // Local times of long ago: the tombstones may be purged, and node 2 never had them.
        let old = 1_000_000;
        give(&nodes, &[1, 2, 3], 9, BASE, Kind::Insert(0, 0, 1, false)).await;
        give(&nodes, &[1, 3], 5, old, Kind::DeleteRow(1, 0)).await;
        give(&nodes, &[1, 3], 5, old, Kind::DeleteRange((2, None, -1), (2, None, 1))).await;
        let before = stored(&nodes, 1).await;
        assert!(before.contains("range from"), "{before}");
        read(&nodes, Consistency::All).await.expect("a read");
        assert_eq!(
            verbs(&nodes),
            [(2, Verb::Digest), (3, Verb::Digest)],
            "purgeable tombstones do not count"
        );
        // Something else differs: what may be purged is not spread with it.
        give(&nodes, &[3], 9, BASE, Kind::Insert(0, 1, 1, false)).await;
        read(&nodes, Consistency::All).await.expect("a read");
        let second = stored(&nodes, 2).await;
        assert!(second.contains("row [0, 1]"), "{second}");
        assert!(!second.contains("row [1, 0]") && !second.contains("range"), "{second}");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_read_is_answered_only_when_its_replicas_have_what_it_returns() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 1000).await;
        give(&nodes, &[1], 1, BASE, Kind::Insert(0, 0, 1, false)).await;
        let reader = read(&nodes, Consistency::Quorum).await.expect("a read");
        assert_eq!(reader.partitions.len(), 1);
        assert!(stored(&nodes, 2).await.contains("row [0, 0]"), "node 2 was asked, and repaired");
        assert_eq!(stored(&nodes, 3).await, "", "node 3 was not asked");
        // A later quorum without node 1 has it.
        assert_eq!(verbs(&nodes).len(), 3);
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_repair_that_fails_fails_the_read() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 1000).await;
        give(&nodes, &[1], 1, BASE, Kind::Insert(0, 0, 1, false)).await;
        nodes.others.refuse_writes.set(true);
        let error = read(&nodes, Consistency::Quorum).await.expect_err("node 2 takes no writes");
        assert!(
            matches!(error, ReplicationError::TimedOut { received: 1, required: 2, data_present: true }),
            "{error:?}"
        );
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_replica_that_takes_no_writes_is_replaced_by_one_that_was_not_asked() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 1000).await;
        give(&nodes, &[1], 1, BASE, Kind::Insert(0, 0, 1, false)).await;
        nodes.others.set(2, Mood::Full);
        let reader = read(&nodes, Consistency::Quorum).await.expect("node 3 is there");
        assert_eq!(reader.partitions.len(), 1);
        assert_eq!(verbs(&nodes), [(2, Verb::Digest), (2, Verb::Read), (3, Verb::Mutate)]);
        assert!(stored(&nodes, 3).await.contains("row [0, 0]"), "a later quorum without node 1 has it");
        // A page of several partitions, each of which node 2 lacks.
        for key in 2..6 {
            let kind = Kind::Insert(0, 0, 1, false);
            let write = Write { key, timestamp: 1, local: 0, base: BASE, kind };
            nodes.give(1, &write.mutation(&nodes.table)).await;
        }
        let all =
            ReadCommand { range: PartitionRange::all(), ..command(&nodes, nodes.table.id(), Slice::all()) };
        let (deadline, mut reader) = (Deadline::after(Duration::from_secs(2)), Reader::new(None, None));
        let limits = ReadLimits::default();
        let ended = nodes.replicator.read(&all, limits, Consistency::Quorum, deadline, &mut reader).await;
        assert_eq!((ended.map_err(|error| error.to_string()), reader.partitions.len()), (Ok(()), 5));
        let mut third = Heard::new(BASE, false, None);
        let of_third =
            ReadCommand { range: PartitionRange::all(), ..command(&nodes, id_of(3), Slice::all()) };
        nodes.storage().read_raw(&of_third, &mut third).await.expect("a raw read");
        assert_eq!(third.parts.len(), 5, "all of them are on node 3");
        // Without a spare the data may be lost to the next reader.
        give(&nodes, &[1], 2, BASE, Kind::Insert(1, 0, 1, false)).await;
        nodes.others.set(3, Mood::Full);
        for level in [Consistency::Quorum, Consistency::All] {
            let error = read(&nodes, level).await.expect_err("no other node takes writes");
            assert!(matches!(error, ReplicationError::TimedOut { data_present: true, .. }), "{error:?}");
        }
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_write_goes_on_behind_its_answer() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 1000).await;
        nodes.others.slow.set(Some(Duration::from_millis(300)));
        let write = Write { key: 1, timestamp: 1, local: 0, base: BASE, kind: Kind::Insert(0, 0, 1, false) };
        let (mutation, begin) = (write.mutation(&nodes.table), reactor::now());
        let deadline = Deadline::after(Duration::from_secs(2));
        let written = nodes.replicator.write(&nodes.table, &mutation, Consistency::One, deadline).await;
        written.expect("a write");
        assert!(begin.elapsed() < Duration::from_millis(100), "{:?}", begin.elapsed());
        assert_eq!(stored(&nodes, 2).await, "");
        reactor::sleep(Duration::from_secs(1)).await;
        assert!(stored(&nodes, 2).await.contains("row [0, 0]"));
        assert!(stored(&nodes, 3).await.contains("row [0, 0]"));
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_write_of_many_bytes_waits_for_all_of_its_replicas() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 1000).await;
        nodes.others.slow.set(Some(Duration::from_millis(300)));
        let room = nodes.replicator.take_late_room();
        let write = Write { key: 1, timestamp: 1, local: 0, base: BASE, kind: Kind::Insert(0, 0, 1, false) };
        let (mutation, begin) = (write.mutation(&nodes.table), reactor::now());
        let deadline = Deadline::after(Duration::from_secs(2));
        let written = nodes.replicator.write(&nodes.table, &mutation, Consistency::One, deadline).await;
        written.expect("a write");
        assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
        assert!(stored(&nodes, 3).await.contains("row [0, 0]"));
        drop(room);
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_plan_that_a_replica_does_not_know_is_made_again() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 1000).await;
        let write = Write { key: 1, timestamp: 1, local: 0, base: BASE, kind: Kind::Insert(0, 0, 1, false) };
        let mutation = write.mutation(&nodes.table);
        let deadline = || Deadline::after(Duration::from_secs(2));
        // Both others answer twice that the plan is stale.
        nodes.others.stale.set(4);
        let written = nodes.replicator.write(&nodes.table, &mutation, Consistency::Quorum, deadline()).await;
        written.expect("a write by the third plan");
        nodes.others.stale.set(4);
        read(&nodes, Consistency::All).await.expect("a read by the third plan");
        nodes.others.stale.set(u32::MAX);
        let begin = reactor::now();
        let written = nodes.replicator.write(&nodes.table, &mutation, Consistency::Quorum, deadline()).await;
        assert!(written.is_err() && begin.elapsed() >= Duration::from_secs(2), "{written:?}");
        nodes.others.stale.set(0);
        nodes.others.set(2, Mood::Serves);
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}
