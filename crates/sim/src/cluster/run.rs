//! One seed from the founding of its cluster to the last check.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;

use reactor::driver::sim::{NodeId, World};

use super::history::{self, History};
use super::nemesis::Nemesis;
use super::workloads::Workload;
use super::{Phase, SHARDS_MAX, Shared, check, node};
use crate::removal::Removals;
use crate::run::Outcome;

/// Between two looks at the world.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the founding, and each step of the last check, may take.
const STEP_TIME_MAX: Duration = Duration::from_secs(300);
/// How long all nodes may take to be open and agree once nothing is wrong any more.
const PEACE_TIME_MAX: Duration = Duration::from_secs(120);
/// Longest work of a seed, for each operation.
const WORK_TIME_PER_OPERATION: Duration = Duration::from_millis(400);

struct Run {
    world: World,
    ids: Vec<NodeId>,
    shared: Rc<Shared>,
    history: History,
}

/// Runs a seed for about `steps` operations of clients; a failure comes with as many lines of what happened.
pub fn run(seed: u64, steps: u64, lines: usize) -> Outcome {
    run_counted(seed, steps, lines).0
}

/// As [`run`], with the state that is left.
pub(super) fn run_counted(seed: u64, steps: u64, lines: usize) -> (Outcome, Rc<Shared>) {
    let mut run = Run::new(seed, steps, lines);
    let done = run.all(steps);
    let shared = Rc::clone(&run.shared);
    let failure = done.err().map(|wrong| {
        let log = run.world.log();
        let notes: Vec<_> = shared.notes.borrow().iter().cloned().collect();
        let log = &log[log.len().saturating_sub(lines)..];
        format!("{wrong}\n{}\n{}", notes.join("\n"), log.join("\n"))
    });
    let outcome = Outcome {
        trace_hash: run.world.trace_hash(),
        lives: shared.lives.borrow().values().sum(),
        removals: Removals::default(),
        taken_away: Vec::new(),
        passed: run.world.now(),
        failure,
    };
    // Control planes belong to the nodes, which end with the world.
    shared.open.borrow_mut().clear();
    (outcome, shared)
}

/// The address that the world gives its nodes, in the order of adding.
fn address(at: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, at as u8 + 1).into()
}

impl Run {
    fn new(seed: u64, steps: u64, lines: usize) -> Self {
        let mut world = World::new(seed);
        let batch = world.random_u64().is_multiple_of(2);
        let nodes = [3, 3, 3, 4, 5][(world.random_u64() % 5) as usize];
        let racks = 1 + world.random_u64() % 3;
        let workloads = Workload::chosen(world.random_u64() % (1 << 13));
        let left = Cell::new(steps);
        let shared = Rc::new(Shared { batch, racks, lines, workloads, left, ..Shared::default() });
        shared.seeds.replace((0..nodes).map(address).collect());
        shared.note(|| {
            let kinds = &shared.workloads;
            format!("{nodes} nodes in {racks} rack(s), the commit log in batches: {batch}; work: {kinds:?}")
        });
        let mut run = Self { world, ids: Vec::new(), shared, history: History::default() };
        for _ in 0..nodes {
            run.add_node();
        }
        run
    }

    fn add_node(&mut self) -> NodeId {
        let (at, of_node) = (self.ids.len(), Rc::clone(&self.shared));
        let shards = 1 + (self.world.random_u64() % SHARDS_MAX) as usize;
        let main = move |info| node::main(info, at, address(at), Rc::clone(&of_node));
        let id = self.world.add_node(shards, main);
        assert_eq!(id.ip(), address(at), "the address of node {at}");
        self.ids.push(id);
        id
    }

    fn all(&mut self, steps: u64) -> Result<(), String> {
        self.until("founding", STEP_TIME_MAX, |shared| Ok(shared.phase.get() == Phase::Work))?;
        let mut nemesis = Nemesis::new(&mut self.world, self.ids.clone(), self.shared.batch);
        let end = self.world.now() + WORK_TIME_PER_OPERATION * u32::try_from(steps).unwrap_or(u32::MAX);
        // In some runs one more node joins, once so many operations are left.
        let mut joins_at = self.world.random_u64().is_multiple_of(4).then_some(steps * 2 / 3);
        while self.shared.left.get() > 0 && self.world.now() < end {
            if joins_at.take_if(|left| self.shared.left.get() <= *left).is_some() {
                let id = self.add_node();
                nemesis.add(&mut self.world, id);
            }
            nemesis.look(&mut self.world, &self.shared)?;
            self.note_calm(&nemesis);
            self.look()?;
        }
        while !nemesis.end(&mut self.world, &self.shared)? {
            self.look()?;
        }
        self.shared.phase.set(Phase::Quiet);
        let nodes = self.ids.len();
        self.until("peace", PEACE_TIME_MAX, |shared| {
            let open = shared.open.borrow();
            if open.len() < nodes || shared.busy.get() > 0 {
                return Err(format!(
                    "nodes {:?} are open, {} requests under way",
                    open.keys(),
                    shared.busy.get()
                ));
            }
            history::agree(&open).map(|()| true)
        })?;
        for step in check::steps(nodes) {
            self.shared.phase.set(Phase::Check(step));
            let name = format!("{step:?}");
            self.until(&name, STEP_TIME_MAX, |shared| Ok(shared.checked.get() == Some(step)))?;
        }
        Ok(())
    }

    fn note_calm(&self, nemesis: &Nemesis) {
        let is_calm = nemesis.is_calm() && self.shared.open.borrow().len() == self.ids.len();
        let since = self.shared.calm_since.get();
        self.shared.calm_since.set(is_calm.then(|| since.unwrap_or_else(|| self.world.now())));
    }

    /// Lets some time pass, and looks at what has become of the nodes.
    fn look(&mut self) -> Result<(), String> {
        self.world.run_for(LOOK_EVERY).map_err(|stuck| stuck.to_string())?;
        self.shared.now.set(self.world.now());
        for (at, id) in self.ids.iter().enumerate() {
            if let Some(Err(problem)) = self.world.outcome(*id)
                && problem != "crashed"
            {
                return Err(format!("node {at}: {problem}"));
            }
        }
        if let Some(wrong) = self.shared.failure.borrow().clone() {
            return Err(wrong);
        }
        self.history.look(&self.shared.open.borrow())
    }

    /// Runs until `condition` holds; it says what is missing.
    fn until(
        &mut self,
        what: &str,
        time: Duration,
        condition: impl Fn(&Shared) -> Result<bool, String>,
    ) -> Result<(), String> {
        let end = self.world.now() + time;
        loop {
            let held = condition(&self.shared);
            if held == Ok(true) {
                return Ok(());
            }
            if self.world.now() > end {
                let missing = held.err().unwrap_or_default();
                return Err(format!("{what} is not over after {time:?}: {missing}"));
            }
            self.look()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::run_counted;

    #[test]
    fn the_same_seed_gives_the_same_trace_and_another_one_does_not() {
        let run = |seed| run_counted(seed, 60, 60).0;
        let (first, again, other) = (run(3), run(3), run(4));
        assert_eq!(first, again);
        assert_ne!(first.trace_hash, other.trace_hash);
    }

    #[test]
    fn seeds_find_nothing_and_everything_happens_in_them() {
        let mut counts = std::collections::BTreeMap::<&str, u64>::new();
        let mut lives = 0;
        for seed in 0..14 {
            let (outcome, shared) = run_counted(seed, 120, 60);
            assert_eq!(outcome.failure, None, "seed {seed}");
            lives += outcome.lives;
            for (what, count) in shared.counts.borrow().iter() {
                *counts.entry(what).or_default() += count;
            }
        }
        println!("{lives} lives, {counts:?}");
        let often =
            ["inserted", "set read", "cells changed", "cells read", "schema changed", "copy compared"];
        let of_registers = ["register set", "register not set", "register read"];
        let of_others = ["batch written", "counted", "counter read", "passing inserted", "fading inserted"];
        for what in often.into_iter().chain(of_registers).chain(of_others) {
            assert!(counts.get(what).is_some_and(|count| *count > 20), "{what}: {counts:?} say little");
        }
        for what in ["truncated", "fading shown", "factor changed"] {
            assert!(counts.get(what).is_some_and(|count| *count > 3), "{what}: {counts:?} say little");
        }
        assert!(lives > 40, "{lives} lives say little");
    }
}
