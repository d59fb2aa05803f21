//! Coordinators on all nodes compete for a few registers: there is an order that explains all answers, and
//! what was answered as not applied is never seen.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use model::Table;
use replication::{Consistency, Replicator};

use super::nodes::{Nodes, Setting, V, key};
use super::post::Faults;
use super::register::Registers;
use super::requests::{Ended, Swap, Value, read, swap};

const KEYS: usize = 2;
const LEVELS: (Consistency, Consistency) = (Consistency::Serial, Consistency::Quorum);
const CONTENTION: Duration = Duration::from_millis(800);

/// All that the clients of a test saw.
#[derive(Default)]
struct Seen {
    registers: RefCell<Registers>,
    /// Values that were answered as not written.
    never: RefCell<BTreeSet<u32>>,
    /// Values that somebody saw.
    values: RefCell<BTreeSet<u32>>,
    stopping: Cell<bool>,
    running: Cell<u32>,
    failures: RefCell<Vec<String>>,
}

impl Seen {
    fn now() -> u64 {
        reactor::now().as_nanos()
    }

    fn value(&self, value: Value) {
        self.values.borrow_mut().extend(value);
    }
}

/// One client: it reads registers and swaps what it knows of them.
async fn client(seen: Rc<Seen>, replicator: Replicator, table: Rc<Table>) {
    seen.running.set(seen.running.get() + 1);
    let mut known: [Value; KEYS] = [None; KEYS];
    while !seen.stopping.get() {
        let at = reactor::random_u64() as usize % KEYS;
        let key = key(at as u8);
        let began = Seen::now();
        if reactor::random_u64().is_multiple_of(4) {
            match read(&replicator, &table, &key, Consistency::Serial, CONTENTION).await {
                Ok((value, _)) => {
                    seen.value(value);
                    seen.registers.borrow_mut().read(at, value, began, Seen::now());
                    known[at] = value;
                }
                Err(error) => seen.failures.borrow_mut().push(format!("{error:?}")),
            }
            continue;
        }
        let (number, new) = seen.registers.borrow_mut().begin(at, known[at], began);
        let mut request = Swap { key, old: known[at], new: (V, new), decided: 0 };
        match swap(&replicator, &table, &mut request, LEVELS, CONTENTION).await {
            Ended::Applied | Ended::Uncommitted => {
                seen.value(Some(new));
                seen.registers.borrow_mut().end(number, None, Seen::now());
                known[at] = Some(new);
            }
            Ended::Rejected((value, _)) => {
                seen.value(value);
                seen.never.borrow_mut().insert(new);
                seen.registers.borrow_mut().end(number, Some(value), Seen::now());
                known[at] = value;
            }
            Ended::Failed(error) => {
                seen.never.borrow_mut().insert(new);
                seen.failures.borrow_mut().push(error);
            }
            Ended::Unknown => {}
        }
    }
    seen.running.set(seen.running.get() - 1);
}

fn begin(nodes: &Nodes, seen: &Rc<Seen>, node: u16) {
    for _ in 0..2 {
        let seen = Rc::clone(seen);
        nodes.give(node, move |replicator, table| client(seen, replicator, table));
    }
}

/// Lets clients on all nodes compete; returns how many writes were answered as done.
fn compete(setting: Setting, faults: Faults, crashes: u32) -> [usize; 3] {
    let mut nodes = Nodes::start(setting);
    nodes.post.faults.set(faults);
    let seen = Rc::new(Seen::default());
    for node in 1..=3 {
        begin(&nodes, &seen, node);
    }
    for _ in 0..crashes {
        let pause = Duration::from_millis(300 + nodes.world.random_u64() % 500);
        nodes.world.run_for(pause).expect("few steps");
        let node = (nodes.world.random_u64() % 3) as u16 + 1;
        nodes.crash(node);
        // Its two clients are gone.
        seen.running.set(seen.running.get() - 2);
        let pause = Duration::from_millis(nodes.world.random_u64() % 600);
        nodes.world.run_for(pause).expect("few steps");
        nodes.restart(node);
        begin(&nodes, &seen, node);
    }
    nodes.world.run_for(Duration::from_secs(1)).expect("few steps");
    seen.stopping.set(true);
    let of_wait = Rc::clone(&seen);
    nodes.run_until("the clients to end", move || of_wait.running.get() == 0);
    nodes.post.faults.set(Faults::default());
    for at in 0..KEYS {
        let began = nodes.world.now().as_nanos() as u64;
        let (value, _) = nodes
            .on(1, move |replicator, table| async move {
                read(&replicator, &table, &key(at as u8), Consistency::Serial, Duration::from_secs(5)).await
            })
            .expect("a read when all is well");
        seen.value(value);
        seen.registers.borrow_mut().read(at, value, began, nodes.world.now().as_nanos() as u64);
    }
    let shown: Vec<u32> = seen.values.borrow().intersection(&seen.never.borrow()).copied().collect();
    assert!(shown.is_empty(), "seed {}: {shown:?} were answered as not written", setting.seed);
    let checked = seen.registers.borrow().check();
    assert_eq!(checked, Ok(()), "seed {}, {:?}", setting.seed, seen.failures.borrow());
    seen.registers.borrow().counts()
}

#[test]
fn coordinators_that_compete_agree_on_one_order() {
    let counts = compete(Setting::of_seed(1), Faults::default(), 0);
    assert!(counts[0] >= 20, "{counts:?} were done, refused, in doubt");
}

#[test]
fn lost_late_and_repeated_messages_change_no_answer() {
    for seed in 1..=6 {
        let faults = Faults { lost: 5, twice: 10, late: Duration::from_millis(10) };
        let counts = compete(Setting::of_seed(seed), faults, 0);
        assert!(counts[0] >= 3, "seed {seed}: {counts:?} were done, refused, in doubt");
    }
}

#[test]
fn nodes_that_lose_power_change_no_answer() {
    for seed in 1..=8 {
        let faults = Faults { lost: 3, twice: 5, late: Duration::from_millis(5) };
        let counts = compete(Setting::of_seed(100 + seed), faults, 4);
        assert!(counts[0] >= 3, "seed {seed}: {counts:?} were done, refused, in doubt");
    }
}

#[test]
fn promises_on_other_shards_than_their_tablets_hold() {
    let faults = Faults { lost: 2, twice: 5, late: Duration::from_millis(3) };
    let counts = compete(Setting { shards: 2, ..Setting::of_seed(200) }, faults, 2);
    assert!(counts[0] >= 3, "{counts:?} were done, refused, in doubt");
}
