//! Group 0 of one voter, power lost at any moment: every acknowledged command is there after the restart,
//! each was applied once, and a command that is asked for again has one outcome.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use cluster::consensus::LogLimits;
use cluster::group0::{Change, ClusterState, Command, Group0, Group0Error, RequestId};
use model::schema::{KeyspaceOptions, SchemaChange};
use reactor::Group;
use reactor::sim::{DiskFaults, World};

const FOLDER: &str = "/ceto/schema/group0";
/// A new snapshot and log after so few entries, so that crashes come between their steps too.
const LIMITS: LogLimits = LogLimits { bytes: 1 << 20, entries: 6 };
/// Proposals on their way at once.
const AT_ONCE: u64 = 3;

#[derive(Default)]
struct Shared {
    next: Cell<u64>,
    /// Commands that were proposed and not acknowledged.
    open: RefCell<BTreeSet<u64>>,
    acknowledged: RefCell<BTreeSet<u64>>,
    lives: Cell<u64>,
}

/// A change that does not depend on others: each makes a keyspace of its own.
fn command(number: u64, state: &ClusterState) -> Command {
    let options = KeyspaceOptions { replication: BTreeMap::new(), durable_writes: true, tablets: None };
    Command {
        id: RequestId { node: 1, life: 1, sequence: number },
        schema: Some(state.schema().version()),
        changes: vec![Change::Schema(SchemaChange::CreateKeyspace { name: format!("k{number}"), options })],
        topology: None,
    }
}

async fn node(shared: Rc<Shared>, limit: u64) {
    let folder = Path::new(FOLDER);
    if !reactor::file::exists(folder).await.expect("a look") {
        assert!(shared.acknowledged.borrow().is_empty(), "the folder of a group that worked is gone");
        reactor::file::create_dir_all("/ceto/schema").await.expect("a folder");
        reactor::file::sync_dir("/").await.expect("a folder");
        reactor::file::sync_dir("/ceto").await.expect("a folder");
        Group0::create(folder, 1, 0, ClusterState::default()).await.expect("a new group");
    }
    let group = Group0::open(folder, |_| Ok(1), LIMITS).await.expect("a group");
    check(&group, &shared);
    shared.lives.set(shared.lives.get() + 1);
    let asked_again: Vec<u64> = shared.open.borrow().iter().copied().collect();
    for number in asked_again {
        propose(&group, &shared, number).await;
    }
    check(&group, &shared);
    let workers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (group, shared) = (group.clone(), Rc::clone(&shared));
            reactor::spawn(Group::CONTROL, async move {
                while shared.next.get() < limit {
                    let number = shared.next.get();
                    shared.next.set(number + 1);
                    shared.open.borrow_mut().insert(number);
                    propose(&group, &shared, number).await;
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.expect("a worker");
    }
    check(&group, &shared);
}

/// Proposes until the command is applied: another may change the schema after it was planned.
async fn propose(group: &Group0, shared: &Shared, number: u64) {
    let exists = |state: &ClusterState| state.schema().keyspace(&format!("k{number}")).is_some();
    for attempt in 0..100 {
        if exists(&group.state()) {
            break;
        }
        let mut command = command(number, &group.state());
        // A refused command keeps its outcome; the next attempt is another command.
        command.id.life = 1 + attempt;
        let (index, outcome) = group.propose(&command).await.expect("a group that works");
        assert!(index <= group.applied());
        assert_eq!(group.propose(&command).await.expect("an outcome"), (index, outcome.clone()));
        assert_eq!(outcome.is_ok(), exists(&group.state()), "{outcome:?}");
    }
    assert!(exists(&group.state()), "a command was overtaken a hundred times");
    shared.open.borrow_mut().remove(&number);
    shared.acknowledged.borrow_mut().insert(number);
}

fn check(group: &Group0, shared: &Shared) {
    let state = group.state();
    let found: BTreeSet<u64> =
        state.schema().keyspaces().map(|keyspace| keyspace.name[1..].parse().expect("a number")).collect();
    for number in shared.acknowledged.borrow().iter() {
        assert!(found.contains(number), "command {number} was acknowledged and is gone");
    }
    for number in &found {
        let known = shared.acknowledged.borrow().contains(number) || shared.open.borrow().contains(number);
        assert!(known, "command {number} was never proposed");
    }
}

fn world(seed: u64, lose_unsynced: bool, limit: u64) -> (World, reactor::sim::NodeId, Rc<Shared>) {
    let mut world = World::new(seed);
    let shared = Rc::new(Shared::default());
    let of_node = Rc::clone(&shared);
    let faults = DiskFaults { lose_unsynced, ..DiskFaults::default() };
    let id = world.add_node_with(1, faults, move |_| node(Rc::clone(&of_node), limit));
    (world, id, shared)
}

fn end(world: &mut World, id: reactor::sim::NodeId, of: &str) {
    world.run().unwrap_or_else(|stuck| panic!("{of}: {stuck:?}"));
    assert_eq!(world.outcome(id), Some(Ok(())), "{of}");
}

#[test]
fn a_power_loss_at_each_step_loses_nothing() {
    const COMMANDS: u64 = 12;
    let (mut counted, id, _) = world(0, true, COMMANDS);
    let mut steps = 0u64;
    counted
        .run_until(|world| {
            steps += 1;
            world.outcome(id).is_some()
        })
        .expect("an end");
    assert!(steps > 100, "{steps} steps");
    for at in 1..steps {
        let (mut world, id, shared) = world(at, true, COMMANDS);
        let _ = world.run_steps(at, |_| false);
        if let Some(Err(problem)) = world.outcome(id) {
            panic!("step {at}: {problem}");
        }
        world.crash(id);
        world.restart(id);
        end(&mut world, id, &format!("after a crash at step {at}"));
        assert_eq!(shared.acknowledged.borrow().len() as u64, COMMANDS, "step {at}");
    }
}

#[test]
fn many_lives_lose_nothing_and_apply_nothing_twice() {
    let (mut lives, mut acknowledged) = (0, 0);
    for seed in 0..60 {
        let (mut world, id, shared) = world(1000 + seed, seed % 3 != 0, 60);
        for _ in 0..12 {
            let time = Duration::from_micros(world.random_u64() % 9_000);
            let _ = world.run_for(time);
            if let Some(Err(problem)) = world.outcome(id) {
                panic!("seed {seed}: {problem}");
            }
            world.crash(id);
            world.restart(id);
        }
        end(&mut world, id, &format!("seed {seed}"));
        lives += shared.lives.get();
        acknowledged += shared.acknowledged.borrow().len();
    }
    assert!(lives > 300 && acknowledged == 60 * 60, "{lives} lives, {acknowledged} commands");
}

#[test]
fn a_full_disk_refuses_a_command_and_the_next_one_is_taken_once_there_is_room() {
    let mut world = World::new(5);
    let (full, refused, done) =
        (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let of_node = (Rc::clone(&full), Rc::clone(&refused), Rc::clone(&done));
    let id = world.add_node_with(1, DiskFaults::default(), move |_| {
        let (full, refused, done) = of_node.clone();
        async move {
            let folder = Path::new(FOLDER);
            reactor::file::create_dir_all("/ceto/schema").await.expect("a folder");
            Group0::create(folder, 1, 0, ClusterState::default()).await.expect("a new group");
            let group = Group0::open(folder, |_| Ok(1), LIMITS).await.expect("a group");
            full.set(true);
            reactor::sleep(Duration::from_millis(1)).await;
            // Longer than the space that the log keeps behind its end.
            let mut long = command(1, &group.state());
            let Change::Schema(SchemaChange::CreateKeyspace { options, .. }) = &mut long.changes[0] else {
                return;
            };
            options.replication.insert("long".to_owned(), "x".repeat(1 << 20));
            let error = group.propose(&long).await.expect_err("no room").to_string();
            assert!(error.contains("no space left"), "{error}");
            // Short ones go on for a while, also past the size at which a new log is due.
            for number in 2..20 {
                let (_, outcome) =
                    group.propose(&command(number, &group.state())).await.expect("a short one");
                assert_eq!(outcome, Ok(()));
            }
            refused.set(true);
            reactor::sleep(Duration::from_millis(1)).await;
            long.schema = Some(group.state().schema().version());
            let (_, outcome) = group.propose(&long).await.expect("room");
            assert_eq!(outcome, Ok(()));
            done.set(true);
        }
    });
    world.run_until(|_| full.get()).expect("a group");
    world.set_disk_faults(id, DiskFaults { capacity_bytes: 0, ..DiskFaults::default() });
    world.run_until(|_| refused.get()).expect("a refusal");
    world.set_disk_faults(id, DiskFaults::default());
    end(&mut world, id, "a full disk");
    assert!(done.get());
}

#[test]
fn a_failed_write_stops_the_group_until_the_next_start() {
    for faults in [
        DiskFaults { write_error: 1.0, ..DiskFaults::default() },
        DiskFaults { sync_error: 1.0, ..DiskFaults::default() },
    ] {
        let mut world = World::new(6);
        let (ready, failed, lives) =
            (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        let of_node = (Rc::clone(&ready), Rc::clone(&failed), Rc::clone(&lives));
        let id = world.add_node_with(1, DiskFaults::default(), move |_| {
            let (ready, failed, lives) = of_node.clone();
            async move {
                let folder = Path::new(FOLDER);
                if lives.replace(lives.get() + 1) == 0 {
                    reactor::file::create_dir_all("/ceto/schema").await.expect("a folder");
                    reactor::file::sync_dir("/").await.expect("a folder");
                    reactor::file::sync_dir("/ceto").await.expect("a folder");
                    Group0::create(folder, 1, 0, ClusterState::default()).await.expect("a new group");
                }
                let group = Group0::open(folder, |_| Ok(1), LIMITS).await.expect("a group");
                if lives.get() == 1 {
                    let (_, first) = group.propose(&command(1, &group.state())).await.expect("a command");
                    assert_eq!(first, Ok(()));
                    ready.set(true);
                    reactor::sleep(Duration::from_millis(1)).await;
                    for number in 2..5 {
                        let refused = group.propose(&command(number, &group.state())).await;
                        assert!(matches!(refused, Err(Group0Error::Stopped(_))), "{refused:?}");
                    }
                    failed.set(true);
                    reactor::sleep(Duration::from_secs(1)).await;
                }
                assert!(group.state().schema().keyspace("k1").is_some());
                let (_, last) = group.propose(&command(9, &group.state())).await.expect("a command");
                assert_eq!(last, Ok(()));
            }
        });
        world.run_until(|_| ready.get()).expect("a group");
        world.set_disk_faults(id, faults);
        world.run_until(|_| failed.get()).expect("refusals");
        world.set_disk_faults(id, DiskFaults::default());
        world.crash(id);
        world.restart(id);
        end(&mut world, id, "after a failed write");
        assert_eq!(lives.get(), 2);
    }
}
