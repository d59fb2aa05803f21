//! Truncations while rows are written: nothing that was acknowledged before one comes back behind it, and
//! nothing that was begun behind it is lost.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use reactor::Deadline;
use reactor::sim::Link;
use replication::{Consistency, ReplicationError, Replicator};

use super::nodes::{NODES, NUMBERS, Nodes, Shared, keys, read, soon, table, value};

/// A write: when it began, and when it was acknowledged, as numbers of events.
#[derive(Debug, Clone, Copy)]
struct Write {
    value: i64,
    began: u64,
    ended: Option<u64>,
}

#[derive(Default)]
struct Record {
    event: Cell<u64>,
    writes: RefCell<BTreeMap<u64, Vec<Write>>>,
    /// Events of the last truncation that was answered as made.
    truncated: Cell<Option<(u64, u64)>>,
    /// Whether one is under way or failed: rows may go at any time.
    doubtful: Cell<u32>,
    truncations: Cell<u64>,
    unavailable: Cell<u64>,
}

impl Record {
    fn now(&self) -> u64 {
        self.event.set(self.event.get() + 1);
        self.event.get()
    }

    /// Checks what a read that began at `began` found of a key.
    fn check(&self, at: usize, number: u64, began: u64, found: Option<i64>) {
        let (Some(found), Some((truncation, truncated))) = (found, self.truncated.get()) else { return };
        let writes = self.writes.borrow();
        let write =
            writes[&number].iter().find(|write| write.value == found).expect("a value that was written");
        let is_of_before = write.ended.is_some_and(|ended| ended < truncation);
        assert!(
            began < truncated || !is_of_before,
            "node {at}: key {number} has {write:?}, and was truncated from {truncation} to {truncated}"
        );
    }
}

async fn write(replicator: &Replicator, record: &Record, number: u64) {
    let Some(table) = table(replicator, NUMBERS) else { return };
    let began = record.now();
    let written = Write { value: began as i64, began, ended: None };
    record.writes.borrow_mut().entry(number).or_default().push(written);
    let bytes = value(number, began as i64);
    if replicator.write(&table, &bytes, Consistency::Quorum, soon()).await.is_ok() {
        let ended = record.now();
        let mut writes = record.writes.borrow_mut();
        let written = writes.get_mut(&number).expect("the key").iter_mut().find(|write| write.began == began);
        written.expect("the write").ended = Some(ended);
    }
}

async fn truncate(replicator: &Replicator, record: &Record) {
    let Some(table) = table(replicator, NUMBERS) else { return };
    let began = record.now();
    record.doubtful.set(record.doubtful.get() + 1);
    match replicator.truncate(&table, Deadline::after(Duration::from_secs(20))).await {
        Ok(()) => {
            record.doubtful.set(record.doubtful.get() - 1);
            record.truncations.set(record.truncations.get() + 1);
            record.truncated.set(Some((began, record.now())));
        }
        Err(ReplicationError::Unavailable { .. }) => {
            record.doubtful.set(record.doubtful.get() - 1);
            record.unavailable.set(record.unavailable.get() + 1);
        }
        Err(_) => {}
    }
}

async fn client(at: usize, replicator: Replicator, shared: Rc<Shared>, record: Rc<Record>) {
    loop {
        reactor::sleep(Duration::from_millis(reactor::random_u64() % 30)).await;
        if shared.quiet.get() {
            continue;
        }
        let number = reactor::random_u64() % keys().len() as u64;
        match reactor::random_u64() % 200 {
            0 => truncate(&replicator, &record).await,
            1..120 => write(&replicator, &record, number).await,
            choice => {
                let level = if choice % 2 == 0 { Consistency::One } else { Consistency::Quorum };
                let began = record.now();
                if table(&replicator, NUMBERS).is_none() {
                    continue;
                }
                if let Ok(found) = read(&replicator, NUMBERS, number, level).await {
                    record.check(at, number, began, found);
                }
            }
        }
    }
}

fn nodes(seed: u64) -> (Nodes, Rc<Record>) {
    let (shared, record) = (Rc::new(Shared::default()), Rc::new(Record::default()));
    shared.syncs_writes.set(true);
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

/// Checks all keys by one node: what was acknowledged behind the last truncation is there.
async fn check_all(at: usize, replicator: Replicator, record: Rc<Record>, level: Consistency) {
    for number in keys() {
        let began = record.now();
        let found = read(&replicator, NUMBERS, number, level).await.expect("a read");
        record.check(at, number, began, found);
        let writes = record.writes.borrow();
        let behind = record.truncated.get().map_or(0, |(_, truncated)| truncated);
        let is_kept = |write: &&Write| write.began > behind && write.ended.is_some();
        let last = writes.get(&number).and_then(|writes| writes.iter().rfind(is_kept));
        if level != Consistency::One
            && record.doubtful.get() == 0
            && let Some(last) = last
        {
            // Timestamps are those of nodes with one clock: the last write that began may win over it.
            assert!(
                found.is_some_and(|found| found >= last.value),
                "node {at}: {number} is {found:?}, not {last:?}"
            );
        }
    }
}

#[test]
fn nothing_comes_back_and_nothing_is_lost_while_all_nodes_are_up() {
    let (mut nodes, record) = nodes(5);
    nodes.run_for(Duration::from_secs(30));
    nodes.settle();
    for level in [Consistency::Quorum, Consistency::All, Consistency::One] {
        nodes.in_each(|at, replicator| check_all(at, replicator, Rc::clone(&record), level));
    }
    let truncations = record.truncations.get();
    assert!(truncations > 10 && record.doubtful.get() == 0, "{truncations} truncations say little");
}

#[test]
fn a_write_that_is_late_does_not_come_behind_a_truncation() {
    let (mut truncations, mut late) = (0, 0);
    for at in 0..NODES {
        let (mut nodes, record) = nodes(60 + at as u64);
        // Writes of one node reach another a second later, when a truncation that others ask for is over.
        let slow = Link { latency_ns: Some((900_000_000, 1_000_000_000)), ..Link::default() };
        let (from, to) = (nodes.ids[at], nodes.ids[(at + 1) % NODES]);
        nodes.world.set_link(from, to, slow);
        nodes.run_for(Duration::from_secs(40));
        nodes.world.set_link(from, to, Link::default());
        nodes.settle();
        for level in [Consistency::One, Consistency::Quorum] {
            nodes.in_each(|at, replicator| check_all(at, replicator, Rc::clone(&record), level));
        }
        truncations += record.truncations.get();
        late += record.writes.borrow().values().flatten().filter(|write| write.ended.is_some()).count();
    }
    assert!(truncations > 5 && late > 100, "{truncations} truncations, {late} writes");
}

#[test]
fn nothing_comes_back_after_power_and_messages_were_lost() {
    let (mut truncations, mut unavailable) = (0, 0);
    for seed in 50..54 {
        let (mut nodes, record) = nodes(seed);
        for _ in 0..20 {
            nodes.trouble();
        }
        nodes.settle();
        for level in [Consistency::One, Consistency::Quorum, Consistency::All] {
            nodes.in_each(|at, replicator| check_all(at, replicator, Rc::clone(&record), level));
        }
        truncations += record.truncations.get();
        unavailable += record.unavailable.get();
    }
    assert!(truncations > 5 && unavailable > 5, "{truncations} truncations, {unavailable} refused");
}
