//! What no honest coordinator sends is refused by a replica, and what no honest replica sends fails a read.

use std::time::Duration;

use model::clustering::Slice;
use model::mutation::MutationView;
use model::partition_key::DecoratedKey;
use reactor::Deadline;
use replication::{Consistency, ReadLimits, ReplicationError};
use storage::{PartitionRange, ReadCommand};
use wire::node::fault::FaultKind;
use wire::node::frame::Verb;
use wire::node::mutate::{self, Entry, Mutate};

use super::nodes::{ALL, Nodes, RF3, Reader, TABLE, THREE, renamed, run};
use super::writes::{BASE, Kind, Write};

fn deadline() -> Deadline {
    Deadline::after(Duration::from_secs(2))
}

fn mutation(nodes: &Nodes) -> Vec<u8> {
    let kind = Kind::Insert(0, 0, 1, false);
    Write { key: 1, timestamp: 1, local: 0, base: BASE, kind }.mutation(&nodes.table)
}

/// Runs `work` where the table has replicas on three nodes.
fn with_three<F: Future<Output = ()> + 'static>(work: impl FnOnce(Nodes) -> F + 'static) {
    let ran = run(1, || async move {
        let nodes = Nodes::open(&RF3, &THREE, &[1, 2, 3], 0).await;
        work(nodes).await;
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_replica_takes_only_what_is_for_it() {
    with_three(|nodes| async move {
        let bytes = mutation(&nodes);
        let message = |table, version, since| {
            let bytes = renamed(&bytes, table);
            let mutation = MutationView::parse(&bytes).expect("a mutation");
            let entries = vec![Entry { version, since, mutation }];
            let mut out = Vec::new();
            mutate::encode(
                &Mutate { born_us: reactor::wall_clock_us(), entries, forward: Vec::new() },
                &mut out,
            );
            out
        };
        let routing = nodes.replicator.routing(&nodes.table);
        let (version, since) = (routing.version(), routing.since(model::tablet::TabletId(0))[0]);
        let serve = async |body: &[u8]| nodes.replicator.serve(Verb::Mutate, body, deadline()).await;
        let fault = async |body: &[u8]| serve(body).await.expect_err("a fault").kind;
        assert_eq!(serve(&message(TABLE, version, since)).await, Ok(Vec::new()));
        assert_eq!(fault(&message(TABLE, version, since + 1)).await, FaultKind::Stale);
        assert_eq!(fault(&message(TABLE, version + 1, since)).await, FaultKind::Stale, "waited for in vain");
        assert_eq!(fault(&message(TABLE, 0, since)).await, FaultKind::Failed, "a node's own tables");
        assert_eq!(fault(&message(model::TableId([77; 16]), 1, since)).await, FaultKind::Stale);
        assert_eq!(fault(&message(ALL, 1, since)[..40]).await, FaultKind::Invalid);
        let late = Deadline::after(Duration::ZERO);
        let body = message(TABLE, version, since);
        let served = nodes.replicator.serve(Verb::Mutate, &body, late).await;
        assert_eq!(served.expect_err("a late request").kind, FaultKind::TimedOut);
        let served = nodes.replicator.serve(Verb::Ping, &[], deadline()).await;
        assert_eq!(served.expect_err("no request for replicas").kind, FaultKind::NotServed);
        nodes.close();
    });
}

#[test]
fn an_answer_that_makes_no_progress_fails_the_read() {
    with_three(|nodes| async move {
        nodes.give(1, &mutation(&nodes)).await;
        nodes.others.lies.set(true);
        let command = ReadCommand {
            table: nodes.table.clone(),
            range: PartitionRange::Key(DecoratedKey::new(vec![1])),
            slices: [Slice::all()].into_iter().collect(),
            reversed: false,
            now: BASE,
            bypass_cache: false,
        };
        let (mut reader, limits, level) =
            (Reader::new(None, None), ReadLimits::default(), Consistency::Quorum);
        let read = nodes.replicator.read(&command, limits, level, deadline(), &mut reader).await;
        let Err(ReplicationError::Failed { reason, .. }) = read else { panic!("{read:?}") };
        assert_eq!(reason, "its answer ends where it begins");
        nodes.close();
    });
}
