//! Clients that compare and set, and clients that count, on a whole node under a seed.
//!
//! Each client sends statements to the query engine of the simulated node; the node is crashed at random and
//! started again. `crate::register` says whether what was answered has an order that keeps to the clock
//! (linearizability), `counter` whether every increment counts once. What was under way in a crash may have
//! happened or not.

mod client;
mod counter;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use query::EngineConfig;
use reactor::driver::sim::{DiskFaults, World};
use reactor::{Group, ShardInfo};
use storage::{CommitlogSync, StorageConfig};

use crate::register::Registers;
use crate::removal::Removals;
use crate::run::Outcome;
use client::{Client, execute};
use counter::Counters;

const SHARDS: usize = 2;
/// Clients at work at once.
const CLIENTS: usize = 4;
/// Partitions of each table: few, so that clients meet.
const KEYS: usize = 3;
const LIVES: usize = 6;
/// Steps of the world a start or the last check may take.
const CHECK_STEPS_MAX: u64 = 4_000_000;
/// Most steps of a life that is cut off within its start.
const START_STEPS_MAX: u64 = 60_000;
/// Most steps that clients work in a life: a small part of what all statements take, so that lives end among
/// them.
const WORK_STEPS_MAX: u64 = 3_000;

const SCHEMA: [&str; 3] = [
    "CREATE KEYSPACE IF NOT EXISTS sim WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE IF NOT EXISTS sim.register (k int PRIMARY KEY, v int)",
    "CREATE TABLE IF NOT EXISTS sim.counter (k int PRIMARY KEY, n counter)",
];

/// State that outlives the node.
#[derive(Default)]
struct Shared {
    batch: bool,
    faulty: Cell<bool>,
    /// Operations still to do; at 0 a life only checks.
    steps: Cell<u64>,
    checked: Cell<bool>,
    over: Cell<bool>,
    lives: Cell<u64>,
    /// Counts what happens: a begin or an end gets the next number.
    clock: Cell<u64>,
    registers: RefCell<Registers>,
    counters: RefCell<Counters>,
    failure: RefCell<Option<String>>,
}

impl Shared {
    fn tick(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    fn fail(&self, what: String) {
        self.failure.borrow_mut().get_or_insert(what);
        self.over.set(true);
    }
}

/// Runs a seed for about `steps` statements.
pub fn run(seed: u64, steps: u64) -> Outcome {
    run_counted(seed, steps).0
}

/// As [`run`], with the writes to registers that were answered, refused, and are in doubt.
fn run_counted(seed: u64, steps: u64) -> (Outcome, [usize; 3]) {
    let mut world = World::new(seed);
    let batch = world.random_u64().is_multiple_of(2);
    let shared = Rc::new(Shared { batch, steps: Cell::new(steps), ..Shared::default() });
    let of_node = Rc::clone(&shared);
    let id = world.add_node(SHARDS, move |info| node(info, Rc::clone(&of_node)));
    let mut failure = None;
    for life in 0..=LIVES {
        let last = life == LIVES;
        let mut faults = DiskFaults { lose_unsynced: batch, ..DiskFaults::default() };
        if !last && world.random_u64().is_multiple_of(4) {
            faults.write_error = 0.005;
        }
        shared.faulty.set(faults.write_error > 0.0);
        shared.over.set(false);
        world.set_disk_faults(id, faults);
        if last {
            shared.steps.set(0);
        }
        let in_start = !last && world.random_u64().is_multiple_of(4);
        let length = 1 + world.random_u64() % if in_start { START_STEPS_MAX } else { WORK_STEPS_MAX };
        let before = shared.lives.get();
        let ended = |world: &World| shared.over.get() || world.is_ended(id);
        // Other lives are cut off among statements, however many steps the start takes; the last one runs to
        // its end.
        if !in_start {
            let works = |world: &World| ended(world) || !last && shared.lives.get() > before;
            if let Err(stuck) = world.run_steps(CHECK_STEPS_MAX, works) {
                let what = if last { "the last check does not end" } else { "the node does not start" };
                failure = Some(format!("{what}: {stuck:?}"));
            }
        }
        if !last {
            let _ = world.run_steps(length, ended);
        }
        if let Some(Err(panic)) = world.outcome(id) {
            failure = Some(panic);
        }
        failure = failure.or_else(|| shared.failure.borrow_mut().take());
        if last && failure.is_none() && !shared.checked.get() {
            failure = Some("the last life did not check what is there".to_owned());
        }
        if failure.is_some() || last {
            break;
        }
        // In periodic mode only the process goes: what the kernel has stays, so nothing acknowledged may be
        // missing.
        world.set_disk_faults(id, DiskFaults { lose_unsynced: batch, ..DiskFaults::default() });
        world.crash(id);
        world.restart(id);
    }
    let failure = failure.or_else(|| shared.registers.borrow().check().err()).map(|failure| {
        let log = world.log();
        format!("{failure}\n{}", log[log.len().saturating_sub(30)..].join("\n"))
    });
    let outcome = Outcome {
        trace_hash: world.trace_hash(),
        lives: shared.lives.get(),
        removals: Removals::default(),
        taken_away: Vec::new(),
        passed: world.now(),
        failure,
    };
    (outcome, shared.registers.borrow().counts())
}

async fn node(info: ShardInfo, shared: Rc<Shared>) {
    if let Err(error) = live(info, &shared).await
        && !shared.faulty.get()
    {
        shared.fail(error);
    }
    if info.id == 0 {
        shared.over.set(true);
    }
    std::future::pending().await
}

async fn live(info: ShardInfo, shared: &Rc<Shared>) -> Result<(), String> {
    let mut config = StorageConfig::new("/ceto", 1 << 20);
    config.segment_bytes = 64 << 10;
    config.commitlog_bytes_max = 640 << 10;
    if shared.batch {
        config.commitlog_sync = CommitlogSync::Batch;
    }
    let words = |error: &dyn std::fmt::Display| format!("shard {} does not start: {error}", info.id);
    let opened = query::node::open(config, EngineConfig::new([7; 16], info.count)).await;
    let engine = opened.map_err(|error| words(&error))?;
    if info.id != 0 {
        return Ok(());
    }
    query::node::all_opened().await;
    for statement in SCHEMA {
        execute(&engine, statement).await.map_err(|error| format!("{statement}: {error}"))?;
    }
    shared.counters.borrow_mut().crashed();
    for key in 0..KEYS {
        let client = Client { engine: engine.clone(), shared: Rc::clone(shared) };
        client.read(key).await?;
        client.total(key, true).await?;
    }
    shared.lives.set(shared.lives.get() + 1);
    if shared.steps.get() == 0 {
        shared.checked.set(true);
        return Ok(());
    }
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let client = Client { engine: engine.clone(), shared: Rc::clone(shared) };
        clients.push(reactor::spawn(Group::STATEMENT, async move { client.work().await }));
    }
    for client in clients {
        client.await.map_err(|error| format!("a client: {error}"))??;
    }
    reactor::sleep(Duration::from_millis(1)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{run, run_counted};

    #[test]
    fn the_same_seed_gives_the_same_trace() {
        assert_eq!(run(3, 200), run(3, 200));
    }

    #[test]
    fn seeds_find_nothing_and_everything_happens_in_them() {
        let (mut lives, mut sum) = (0, [0; 3]);
        for seed in 8..24 {
            let (outcome, counts) = run_counted(seed, 300);
            assert_eq!(outcome.failure, None, "seed {seed}");
            lives += outcome.lives;
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        println!("{lives} lives, {sum:?} writes answered, refused, in doubt");
        assert!(
            lives > 20 && sum[0] > 100 && sum[1] > 100 && sum[2] > 3,
            "{lives} lives, {sum:?} say little"
        );
    }
}
