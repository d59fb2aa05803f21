//! Logged batches over several nodes: kept by two others before anything is written, and finished by them
//! where the coordinator is gone.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use model::clustering::Slice;
use model::partition_key::DecoratedKey;
use reactor::Deadline;
use replication::{BatchFailure, BatchWrite, Consistency, HintsConfig, ReplicationError};
use storage::{PartitionRange, ReadCommand};
use wire::node::batch::{self, BatchLog};
use wire::node::frame::Verb;

use super::heard::Heard;
use super::hints::{config, stored};
use super::nodes::{Mood, Nodes, RF3, Site, THREE, run, run_lives};
use super::writes::{BASE, Kind, Write};

const GRACE: u32 = 864_000;
/// Longer than keepers wait for the end of a batch of these tests, and than a repetition takes.
const FINISHED: Duration = Duration::from_secs(30);

fn mutation(nodes: &Nodes, key: u8) -> Vec<u8> {
    let kind = Kind::Insert(0, 0, 1, false);
    Write { key, timestamp: 1, local: 0, base: BASE, kind }.mutation(&nodes.table)
}

/// A batch over two partitions.
fn writes(nodes: &Nodes) -> Vec<BatchWrite> {
    let write = |key| BatchWrite { table: nodes.table.clone(), mutation: mutation(nodes, key) };
    vec![write(1), write(2)]
}

async fn write_batch(nodes: &Nodes, level: Consistency) -> Result<(), BatchFailure> {
    let deadline = Deadline::after(Duration::from_secs(2));
    nodes.replicator.write_batch([7; 16], writes(nodes), level, deadline).await
}

/// The partitions of the batch that a node has.
async fn parts(nodes: &Nodes, node: u16) -> usize {
    stored(nodes, node).await.iter().filter(|part| part.contains("row [")).count()
}

fn called(nodes: &Nodes, verb: Verb) -> Vec<u16> {
    let calls = nodes.others.calls.borrow();
    let mut called: Vec<u16> = calls.iter().filter(|(_, of)| *of == verb).map(|(node, _)| *node).collect();
    called.sort_unstable();
    called
}

/// Six nodes in three racks of one data center, and one elsewhere.
const RACKS: [Site; 7] = [
    (1, "dc", "a"),
    (2, "dc", "a"),
    (3, "dc", "a"),
    (4, "dc", "b"),
    (5, "dc", "b"),
    (6, "dc", "c"),
    (7, "elsewhere", "d"),
];

#[test]
fn a_batch_is_kept_in_two_other_racks_before_it_is_written_and_forgotten_after() {
    for seed in 0..8 {
        let ran = run(seed, || async {
            let nodes = Nodes::open(&RF3, &RACKS, &[1, 2, 3], GRACE).await;
            nodes.replicator.start_late(config()).await.expect("hints");
            write_batch(&nodes, Consistency::Quorum).await.expect("a batch");
            let keepers = called(&nodes, Verb::BatchLog);
            assert!(matches!(keepers[..], [4 | 5, 6]), "{keepers:?}");
            reactor::sleep(Duration::from_secs(1)).await;
            assert_eq!(called(&nodes, Verb::BatchDone), keepers);
            let first = nodes.others.calls.take().into_iter().take(2).map(|(_, verb)| verb);
            assert_eq!(first.collect::<Vec<_>>(), [Verb::BatchLog, Verb::BatchLog]);
            reactor::sleep(FINISHED).await;
            assert_eq!(nodes.others.calls.take(), [], "nobody writes it once more");
            for node in 1..=3 {
                assert_eq!(parts(&nodes, node).await, 2);
            }
            nodes.close();
        });
        assert_eq!(ran, Ok(()), "seed {seed}");
    }
}

#[test]
fn keepers_are_told_the_end_once_the_writes_are_safe_without_the_coordinator() {
    let no_room = || HintsConfig { host_bytes_max: 10, ..config() };
    let cases: [(&[u16], Mood, HintsConfig, bool); 5] = [
        (&[3], Mood::Down, no_room(), true),
        (&[3], Mood::Silent, no_room(), true),
        (&[2, 3], Mood::Down, no_room(), false),
        (&[2, 3], Mood::Silent, no_room(), false),
        (&[2, 3], Mood::Silent, config(), true),
    ];
    for (case, (missing, mood, hints, is_told)) in cases.into_iter().enumerate() {
        let ran = run(1, move || async move {
            let nodes = Nodes::open(&RF3, &RACKS, &[1, 2, 3], GRACE).await;
            nodes.replicator.start_late(hints).await.expect("hints");
            missing.iter().for_each(|node| nodes.others.set(*node, mood));
            write_batch(&nodes, Consistency::One).await.expect("a batch");
            assert_eq!(parts(&nodes, 1).await, 2);
            let is_silent = matches!(mood, Mood::Silent);
            if is_silent && missing.len() > 1 {
                reactor::sleep(Duration::from_millis(1500)).await;
                assert!(called(&nodes, Verb::BatchDone).is_empty(), "the replicas may still take it");
            }
            reactor::sleep(Duration::from_secs(8)).await;
            assert_eq!(!called(&nodes, Verb::BatchDone).is_empty(), is_told);
            nodes.close();
        });
        assert_eq!(ran, Ok(()), "case {case}");
    }
}

#[test]
fn a_batch_whose_coordinator_vanishes_is_whole_or_not_there() {
    let (mut whole, mut none) = (0, 0);
    for step in 0..40u64 {
        let told = Rc::new(RefCell::new(None));
        let of_run = Rc::clone(&told);
        let ran = run(step, move || async move {
            let nodes = Nodes::open_late(&[1, 2, 3], GRACE, config()).await;
            nodes.others.slow.set(Some(Duration::from_millis(5)));
            // The coordinator's future is dropped wherever it is then.
            let ends = Deadline::after(Duration::from_micros(step * 500));
            let written = reactor::timeout(ends, write_batch(&nodes, Consistency::All)).await;
            reactor::sleep(FINISHED).await;
            let mut found = Vec::new();
            for node in 1..=3 {
                found.push(parts(&nodes, node).await);
            }
            of_run.replace(Some((written.is_ok(), found)));
            nodes.close();
        });
        assert_eq!(ran, Ok(()), "step {step}");
        let (is_acknowledged, found) = told.take().expect("the run has looked");
        match found[..] {
            [2, 2, 2] => whole += 1,
            [0, 0, 0] if !is_acknowledged => none += 1,
            _ => panic!(
                "step {step}: the nodes have {found:?} of its two partitions, acknowledged: {is_acknowledged}"
            ),
        }
    }
    assert!(whole >= 10 && none >= 5, "{whole} whole and {none} without a trace say little");
}

#[test]
fn another_node_keeps_a_batch_in_place_of_one_that_fails() {
    let ran = run(1, || async {
        let nodes = Nodes::open(&RF3, &RACKS, &[1, 2, 3], GRACE).await;
        nodes.replicator.start_late(config()).await.expect("hints");
        nodes.others.set(6, Mood::Breaks);
        nodes.others.set(4, Mood::Silent);
        write_batch(&nodes, Consistency::Quorum).await.expect("a batch");
        let keepers = called(&nodes, Verb::BatchLog);
        assert!(keepers.len() == 2 && !keepers.contains(&6) && !keepers.contains(&4), "{keepers:?}");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_batch_that_nobody_keeps_is_not_written() {
    for mood in [Mood::Breaks, Mood::Silent, Mood::Overloaded] {
        let ran = run(1, move || async move {
            let nodes = Nodes::open_late(&[1, 2, 3], GRACE, config()).await;
            nodes.others.set(2, mood);
            nodes.others.set(3, mood);
            let written = write_batch(&nodes, Consistency::One).await;
            let Err(BatchFailure::Log(error)) = written else { panic!("{written:?}") };
            let is_expected = matches!(error, ReplicationError::TimedOut { received: 0, required: 2, .. });
            assert!(is_expected, "{error:?}");
            reactor::sleep(FINISHED).await;
            assert_eq!(parts(&nodes, 1).await, 0);
            nodes.close();
        });
        assert_eq!(ran, Ok(()));
    }
}

#[test]
fn too_few_replicas_are_told_before_anything_is_kept() {
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[1, 2, 3], GRACE, config()).await;
        nodes.others.set(2, Mood::Down);
        nodes.others.set(3, Mood::Down);
        let written = write_batch(&nodes, Consistency::Quorum).await;
        let Err(BatchFailure::Write { at: 0, error }) = written else { panic!("{written:?}") };
        assert!(matches!(error, ReplicationError::Unavailable { required: 2, alive: 1 }), "{error:?}");
        assert_eq!(nodes.others.calls.take(), []);
        // Where no other node is up, this one keeps a batch itself.
        write_batch(&nodes, Consistency::One).await.expect("a batch");
        nodes.others.set(2, Mood::Serves);
        nodes.others.set(3, Mood::Serves);
        reactor::sleep(FINISHED).await;
        for node in 1..=3 {
            assert_eq!(parts(&nodes, node).await, 2, "hints have brought it to node {node}");
        }
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn writes_that_are_late_after_the_batch_was_kept_are_told_as_such_and_happen() {
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[1, 2, 3], GRACE, config()).await;
        nodes.others.refuse_writes.set(true);
        let written = write_batch(&nodes, Consistency::Quorum).await;
        assert!(matches!(written, Err(BatchFailure::Write { at: 0, .. })), "{written:?}");
        assert!(called(&nodes, Verb::BatchDone).is_empty());
        nodes.others.refuse_writes.set(false);
        reactor::sleep(FINISHED).await;
        for node in 1..=3 {
            assert_eq!(parts(&nodes, node).await, 2, "node {node}");
        }
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn nodes_that_go_down_after_the_batch_was_kept_make_it_late_and_not_unavailable() {
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[1, 2, 3], GRACE, config()).await;
        nodes.others.slow.set(Some(Duration::from_millis(20)));
        let others = Rc::clone(&nodes.others);
        let falling = reactor::spawn(reactor::Group::ADMIN, async move {
            reactor::sleep(Duration::from_millis(10)).await;
            others.set(2, Mood::Down);
            others.set(3, Mood::Down);
        });
        let written = write_batch(&nodes, Consistency::Quorum).await;
        falling.await.expect("the nodes are down");
        let Err(BatchFailure::Write { at: 0, error }) = written else { panic!("{written:?}") };
        assert!(matches!(error, ReplicationError::TimedOut { received: 0, required: 2, .. }), "{error:?}");
        nodes.others.set(2, Mood::Serves);
        nodes.others.set(3, Mood::Serves);
        reactor::sleep(FINISHED).await;
        for node in 1..=3 {
            assert_eq!(parts(&nodes, node).await, 2, "node {node}");
        }
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

/// The request of a coordinator to keep a batch.
fn request(nodes: &Nodes, born_us: i64) -> Vec<u8> {
    let mutations = [mutation(nodes, 1), mutation(nodes, 2)];
    let views =
        mutations.iter().map(|bytes| model::mutation::MutationView::parse(bytes).expect("a mutation"));
    let mut body = Vec::new();
    let batch =
        BatchLog { id: [5; 16], born_us, agreed: u64::MAX, after_ms: 60_000, mutations: views.collect() };
    batch::encode(&batch, &mut body);
    body
}

#[test]
fn a_keeper_that_crashed_goes_on_with_its_batches() {
    let ran = run_lives(1, 3, |life| async move {
        let config = HintsConfig { batch_patience: Duration::from_secs(4), ..config() };
        let nodes = Nodes::open_late(&[2, 3], GRACE, config).await;
        let deadline = || Deadline::after(Duration::from_secs(2));
        match life {
            0 => {
                let body = request(&nodes, reactor::wall_clock_us());
                nodes.replicator.serve(Verb::BatchLog, &body, deadline()).await.expect("it is kept");
                let again = nodes.replicator.serve(Verb::BatchLog, &body, deadline()).await;
                assert!(again.is_err(), "once");
                // The commit log is synced by then.
                reactor::sleep(Duration::from_secs(11)).await;
            }
            1 => {
                // One replica is away: what it lacks is in durable hints before the batch is forgotten.
                nodes.others.set(3, Mood::Down);
                reactor::sleep(Duration::from_secs(8)).await;
                assert_eq!((parts(&nodes, 2).await, parts(&nodes, 3).await), (2, 0));
                assert_eq!(nodes.replicator.pending_hints().len(), 1);
                reactor::sleep(Duration::from_secs(11)).await;
            }
            _ => {
                reactor::sleep(FINISHED).await;
                assert_eq!(parts(&nodes, 3).await, 2);
                let calls = nodes.others.calls.take();
                assert_eq!(calls, [(3, Verb::Hint); 2], "node 2 is not written to once more");
            }
        }
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_batch_is_kept_until_its_last_replica_has_it_where_there_is_no_room_for_hints() {
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[2, 3], GRACE, HintsConfig { host_bytes_max: 10, ..config() }).await;
        nodes.others.set(3, Mood::Down);
        let body = request(&nodes, reactor::wall_clock_us());
        let deadline = Deadline::after(Duration::from_secs(2));
        nodes.replicator.serve(Verb::BatchLog, &body, deadline).await.expect("it is kept");
        // Longer than until it is written out, and than it stays at its place in the commit log.
        reactor::sleep(Duration::from_secs(200)).await;
        assert_eq!((parts(&nodes, 2).await, parts(&nodes, 3).await), (2, 0));
        nodes.others.set(3, Mood::Serves);
        reactor::sleep(FINISHED).await;
        assert_eq!(parts(&nodes, 3).await, 2);
        nodes.others.calls.take();
        reactor::sleep(FINISHED).await;
        assert_eq!(nodes.others.calls.take(), [], "it is forgotten then");
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn batches_outlive_the_end_of_a_node_in_order() {
    let ran = run_lives(1, 2, |life| async move {
        let nodes = Nodes::open_late(&[2, 3], GRACE, config()).await;
        if life == 0 {
            let body = request(&nodes, reactor::wall_clock_us());
            let deadline = Deadline::after(Duration::from_secs(2));
            nodes.replicator.serve(Verb::BatchLog, &body, deadline).await.expect("it is kept");
            nodes.replicator.stop().await;
            nodes.replicator.stop_late().await;
            nodes.storage().drain().await.expect("a drain");
        } else {
            reactor::sleep(FINISHED).await;
            assert_eq!((parts(&nodes, 2).await, parts(&nodes, 3).await), (2, 2));
        }
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn a_batch_of_a_lone_replica_that_is_cut_off_by_a_drain_is_whole_or_not_there() {
    let mut whole = 0;
    for step in 0..60u64 {
        let told = Rc::new(RefCell::new(0));
        let of_lives = Rc::clone(&told);
        let ran = run_lives(step, 2, move |life| {
            let told = Rc::clone(&of_lives);
            async move {
                let nodes = Nodes::open(&RF3, &THREE, &[1], GRACE).await;
                if life == 0 {
                    let ends = Deadline::after(Duration::from_micros(step * 10));
                    let _cut = reactor::timeout(ends, write_batch(&nodes, Consistency::One)).await;
                    nodes.storage().drain().await.expect("a drain");
                } else {
                    told.replace(own_parts(&nodes).await);
                }
                nodes.close();
            }
        });
        assert_eq!(ran, Ok(()), "step {step}");
        let found = *told.borrow();
        assert!(found == 0 || found == 2, "step {step}: {found} of its two partitions");
        whole += usize::from(found == 2);
    }
    assert!((5..60).contains(&whole), "{whole} of 60 say little");
}

/// The partitions of the batch in the test's own table.
async fn own_parts(nodes: &Nodes) -> usize {
    let mut found = 0;
    for key in 1..=2u8 {
        let command = ReadCommand {
            table: nodes.table.clone(),
            range: PartitionRange::Key(DecoratedKey::new(vec![key])),
            slices: [Slice::all()].into_iter().collect(),
            reversed: false,
            now: BASE,
            bypass_cache: false,
        };
        let mut heard = Heard::new(BASE, false, None);
        nodes.storage().read_raw(&command, &mut heard).await.expect("a raw read");
        found += heard.parts.len();
    }
    found
}

#[test]
fn a_batch_from_before_the_purge_horizon_is_not_written() {
    let ran = run(1, || async {
        let nodes = Nodes::open_late(&[1, 2, 3], 1000, config()).await;
        let body = request(&nodes, reactor::wall_clock_us() - 950_000_000);
        let deadline = Deadline::after(Duration::from_secs(2));
        nodes.replicator.serve(Verb::BatchLog, &body, deadline).await.expect("it is kept");
        reactor::sleep(Duration::from_secs(100)).await;
        for node in 1..=3 {
            assert_eq!(parts(&nodes, node).await, 0, "node {node}");
        }
        nodes.close();
    });
    assert_eq!(ran, Ok(()));
}
