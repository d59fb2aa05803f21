//! Increments from all nodes: each that was acknowledged counts exactly once on every replica, the others at
//! most once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use replication::{Consistency, ReplicationError, Replicator};

use super::nodes::{COUNTERS, NODES, Nodes, Shared, delta, keys, read, soon, table};

/// Increments of one counter whose outcome may be unknown: subsets of them are tried in the end.
const UNKNOWN_MAX: usize = 12;

/// What a client knows of a counter.
#[derive(Default)]
struct Counter {
    sum: i64,
    /// Increments under way or without an answer.
    unknown: Vec<i64>,
}

#[derive(Default)]
struct Record {
    counters: RefCell<BTreeMap<u64, Counter>>,
    acknowledged: RefCell<u64>,
    refused: RefCell<u64>,
}

impl Record {
    /// Checks the total of a counter.
    fn check(&self, at: usize, number: u64, total: i64) {
        let counters = self.counters.borrow();
        let Some(counter) = counters.get(&number) else { return };
        assert!(
            make_up(&counter.unknown, total.wrapping_sub(counter.sum)),
            "node {at}: counter {number} is {total}, {} was acknowledged, unknown are {:?}",
            counter.sum,
            counter.unknown
        );
    }
}

async fn client(at: usize, replicator: Replicator, shared: Rc<Shared>, record: Rc<Record>) {
    let levels = [Consistency::One, Consistency::Quorum, Consistency::Quorum, Consistency::All];
    loop {
        reactor::sleep(Duration::from_millis(reactor::random_u64() % 40)).await;
        let Some(table) = table(&replicator, COUNTERS).filter(|_| !shared.quiet.get()) else { continue };
        let number = reactor::random_u64() % keys().len() as u64;
        // So large and random that sums of different increments differ.
        let by = (reactor::random_u64() >> 24) as i64;
        {
            let mut counters = record.counters.borrow_mut();
            let counter = counters.entry(number).or_default();
            if counter.unknown.len() >= UNKNOWN_MAX {
                continue;
            }
            counter.unknown.push(by);
        }
        let level = levels[(reactor::random_u64() % 4) as usize];
        let counted = replicator.count(&table, &delta(number, by), [at as u8 + 1; 16], level, soon()).await;
        let mut counters = record.counters.borrow_mut();
        let counter = counters.get_mut(&number).expect("a counter");
        let mut forget = || counter.unknown.retain(|unknown| *unknown != by);
        match counted {
            Ok(()) => {
                forget();
                counter.sum += by;
                *record.acknowledged.borrow_mut() += 1;
            }
            // Nothing was done.
            Err(ReplicationError::Unavailable { .. } | ReplicationError::Overloaded { .. }) => {
                forget();
                *record.refused.borrow_mut() += 1;
            }
            Err(_) => {}
        }
    }
}

/// Whether some of the increments make up a sum.
fn make_up(increments: &[i64], sum: i64) -> bool {
    (0..1u32 << increments.len()).any(|some| {
        let chosen = increments.iter().enumerate().filter(|(at, _)| some & 1 << at != 0);
        chosen.map(|(_, by)| by).sum::<i64>() == sum
    })
}

async fn check(at: usize, replicator: Replicator, record: Rc<Record>) {
    for number in keys() {
        let total = read(&replicator, COUNTERS, number, Consistency::All).await;
        let total =
            total.unwrap_or_else(|error| panic!("node {at}: a read of {number}: {error}")).unwrap_or(0);
        record.check(at, number, total);
        // By itself each replica has the same now.
        let own = read(&replicator, COUNTERS, number, Consistency::One).await.expect("a read");
        assert_eq!(own.unwrap_or(0), total, "node {at} alone: counter {number}");
    }
}

fn nodes(seed: u64) -> (Nodes, Rc<Record>) {
    let (shared, record) = (Rc::new(Shared::default()), Rc::new(Record::default()));
    let (of_client, of_record) = (Rc::clone(&shared), Rc::clone(&record));
    let nodes = Nodes::new(
        seed,
        shared,
        Rc::new(move |at, replicator| {
            Box::pin(client(at, replicator, Rc::clone(&of_client), Rc::clone(&of_record)))
        }),
    );
    (nodes, record)
}

fn end(nodes: &mut Nodes, record: &Rc<Record>) {
    nodes.settle();
    for _ in 0..2 {
        nodes.in_each(|at, replicator| check(at, replicator, Rc::clone(record)));
    }
}

#[test]
fn increments_from_all_nodes_add_up() {
    let (mut nodes, record) = nodes(3);
    nodes.run_for(Duration::from_secs(20));
    end(&mut nodes, &record);
    let acknowledged = *record.acknowledged.borrow();
    assert!(acknowledged > 1000, "{acknowledged} increments say little");
}

#[test]
fn power_and_messages_are_lost_and_every_acknowledged_increment_counts_once() {
    let (mut acknowledged, mut unknown) = (0, 0);
    for seed in 30..33 {
        let (mut nodes, record) = nodes(seed);
        for _ in 0..25 {
            nodes.trouble();
        }
        end(&mut nodes, &record);
        acknowledged += *record.acknowledged.borrow();
        unknown += record.counters.borrow().values().map(|counter| counter.unknown.len()).sum::<usize>();
    }
    assert!(acknowledged > 1000 && unknown > 30, "{acknowledged} acknowledged, {unknown} unknown");
    assert_eq!(NODES, 3);
}
