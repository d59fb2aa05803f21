//! How a world moves: what is due happens, else somebody who can runs, else time goes on to the next thing.
//!
//! Invariant: every choice is drawn from the seed or follows from the order of adding; every loop has a
//! bound.

use std::time::Duration;

use super::core::Event;
use super::{POLL_COST_NS, SimShard, Stuck, World, flow, net};
use crate::time::Instant;

/// Steps `run_until` takes unless told otherwise.
const STEPS_MAX: u64 = 50_000_000;

impl World {
    /// Runs until `condition` holds; it is asked after every step.
    ///
    /// # Errors
    /// [`Stuck`] when nothing can happen any more or too many steps were taken.
    pub fn run_until(&mut self, condition: impl FnMut(&World) -> bool) -> Result<(), Stuck> {
        self.run_steps(STEPS_MAX, condition)
    }

    /// As `run_until`, with at most `steps_max` steps.
    ///
    /// # Errors
    /// As `run_until`.
    pub fn run_steps(
        &mut self,
        steps_max: u64,
        mut condition: impl FnMut(&World) -> bool,
    ) -> Result<(), Stuck> {
        for _ in 0..steps_max {
            if condition(self) {
                return Ok(());
            }
            if !self.step(u64::MAX) {
                return if condition(self) { Ok(()) } else { Err(Stuck::Deadlock { at: self.now() }) };
            }
        }
        Err(Stuck::Steps { steps: steps_max, at: self.now() })
    }

    /// Runs for `time` of virtual time; nodes that have nothing to do sleep through it.
    ///
    /// # Errors
    /// [`Stuck::Steps`] when that takes too many steps.
    pub fn run_for(&mut self, time: Duration) -> Result<(), Stuck> {
        let end = (Instant(self.core.now_ns.get()) + time).0;
        for _ in 0..STEPS_MAX {
            if self.core.now_ns.get() >= end {
                return Ok(());
            }
            if !self.step(end) {
                self.core.now_ns.set(end);
            }
        }
        Err(Stuck::Steps { steps: STEPS_MAX, at: self.now() })
    }

    /// Runs until every node has ended.
    ///
    /// # Errors
    /// As `run_until`.
    pub fn run(&mut self) -> Result<(), Stuck> {
        self.run_until(|world| world.nodes.iter().all(|node| node.ended.is_some()))
    }

    /// One step: what is due happens, or one shard turns its loop, or time moves on, at most to `limit_ns`.
    /// False when there is nothing to do before that.
    fn step(&mut self, limit_ns: u64) -> bool {
        if let Some(event) = self.core.due() {
            self.happen(event);
            return true;
        }
        let now = self.core.now_ns.get();
        let mut runnable = 0;
        let mut next_timer = u64::MAX;
        for sim in self.nodes.iter().flat_map(|node| &node.shards) {
            let timer = sim.shard.next_timer().map_or(u64::MAX, |at| at.0);
            let pause = sim.paused_until_ns.get();
            next_timer = next_timer.min(if now < pause { pause } else { timer });
            runnable += u64::from(can_run(sim, timer, now));
        }
        if runnable > 0 {
            let chosen = if self.options.shuffle { self.core.below(runnable) } else { 0 };
            self.turn(chosen as usize, now);
            return true;
        }
        let next = next_timer.min(self.core.next_event_ns().unwrap_or(u64::MAX));
        if next == u64::MAX || next > limit_ns {
            return false;
        }
        self.core.now_ns.set(next.max(now));
        true
    }

    /// Turns the loop of the `chosen`th shard that can run.
    fn turn(&mut self, chosen: usize, now: u64) {
        let found = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(number, node)| node.shards.iter().map(move |sim| (number, sim)))
            .filter(|(_, sim)| can_run(sim, sim.shard.next_timer().map_or(u64::MAX, |at| at.0), now))
            .nth(chosen);
        let Some((number, sim)) = found else { return };
        let before = sim.shard.polls();
        {
            let _entered = sim.shard.enter();
            sim.shard.turn(|| false);
        }
        let polls = sim.shard.polls() - before;
        self.core.now_ns.set(now + polls * POLL_COST_NS);
        self.core.note("turn", [number as u64, sim.port.shard as u64, polls]);
        self.look_for_end(number);
    }

    fn look_for_end(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if !node.shards.iter().all(|sim| sim.outcome.borrow().is_some()) {
            return;
        }
        let shards = std::mem::take(&mut node.shards);
        let first_failure = shards.iter().find_map(|sim| match &*sim.outcome.borrow() {
            Some(Err(message)) => Some(message.clone()),
            _ => sim.shard.lost_panic(),
        });
        node.ended = Some(first_failure.map_or(Ok(()), Err));
        self.core.note("end", [number as u64, 0, 0]);
        // What the tasks leave open is closed in order; what the disk still has to do, it does.
        for sim in &shards {
            let _entered = sim.shard.enter();
            sim.shard.drop_tasks();
        }
        for sim in &shards {
            self.settle(sim);
            sim.port.dead.set(true);
            let _entered = sim.shard.enter();
            sim.shard.tear_down();
        }
    }

    /// Serves the disk requests of an ending shard at once.
    fn settle(&mut self, sim: &SimShard) {
        let pending: Vec<_> = sim.port.flights.borrow().iter().flatten().map(|(id, ..)| *id).collect();
        for id in pending {
            self.happen(Event::Disk { port: sim.port.clone(), id, mark: u64::MAX });
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Disk { port, id, mark } => {
                if port.dead.get() {
                    return;
                }
                if let Some((mut op, group)) = port.take(id) {
                    let result =
                        self.core.disks.borrow_mut()[port.node].serve(&mut op, mark, &mut &*self.core);
                    port.keep(id, op, group);
                    self.core.complete(&port, id, result);
                }
            }
            Event::Connect { port, id } if !port.dead.get() => net::arrive_connect(&self.core, &port, id),
            Event::ConnectTimeout { port, id } if !port.dead.get() => {
                self.core.complete(&port, id, Err(std::io::Error::from_raw_os_error(libc::ETIMEDOUT)));
            }
            Event::Connect { .. } | Event::ConnectTimeout { .. } => {}
            Event::Arrive { .. } | Event::Finish { .. } | Event::Reset { .. } => {
                flow::arrive(&self.core, event);
            }
        }
    }
}

fn can_run(sim: &SimShard, timer: u64, now: u64) -> bool {
    now >= sim.paused_until_ns.get() && (timer <= now || sim.shard.is_runnable() || sim.port.is_ready())
}
