//! What goes wrong in a run: nodes crash, stop and pause, lose each other, have wrong clocks and slow disks.
//!
//! The seed chooses which kinds there are and how often they come; each ends by itself after some time.
//! Clocks keep the error that they have got until all is over.

use std::time::Duration;

use cluster::consensus::Role;
use reactor::driver::sim::{DiskFaults, Link, NodeId, World};

use super::{SHARDS_MAX, Shared};

/// Longest time that a fault lasts.
const FAULT_MS_MAX: u64 = 8_000;
/// Longest time for which a node is stopped as a whole, and for which one shard stands still.
const PAUSE_MS_MAX: u64 = 10_000;
const STALL_MS_MAX: u64 = 3_000;
/// Largest step of a clock, and its largest drift.
const STEP_US_MAX: u64 = 5_000_000;
const DRIFT_US_PER_S_MAX: u64 = 10_000;
/// How long a node may take to end when it is told to.
const STOP_TIME_MAX: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Crash,
    CrashAll,
    CrashLeader,
    Stop,
    Pause,
    Stall,
    Part,
    Isolate,
    OneWay,
    SlowLink,
    Reset,
    Step,
    Drift,
    SlowDisk,
    BadDisk,
}

const KINDS: [Kind; 15] = [
    Kind::Crash,
    Kind::CrashAll,
    Kind::CrashLeader,
    Kind::Stop,
    Kind::Pause,
    Kind::Stall,
    Kind::Part,
    Kind::Isolate,
    Kind::OneWay,
    Kind::SlowLink,
    Kind::Reset,
    Kind::Step,
    Kind::Drift,
    Kind::SlowDisk,
    Kind::BadDisk,
];

/// Kinds that only some of the seeds have: what they allow would hide too much in the others.
const RARE: [Kind; 2] = [Kind::CrashAll, Kind::BadDisk];

impl Kind {
    fn is_of_network(self) -> bool {
        matches!(self, Self::Part | Self::Isolate | Self::OneWay | Self::SlowLink | Self::Reset)
    }
}

/// What ends a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cure {
    Start(usize),
    Heal(usize, usize),
    Quicken(usize, usize),
    Disk(usize),
    /// Its disk is well again, and the node starts once more.
    Replace(usize),
    /// It has ended by itself.
    None,
}

/// How wrong a node's clock is.
#[derive(Debug, Clone, Copy, Default)]
struct Wrong {
    by_us: i64,
    /// Microseconds that it gains in each second, since when.
    drift: i64,
    since: Duration,
}

impl Wrong {
    /// By how many microseconds the clock is ahead.
    fn at(self, now: Duration) -> i64 {
        let drifted = i128::from(self.drift) * (now - self.since).as_micros() as i128 / 1_000_000;
        self.by_us + drifted as i64
    }
}

/// The harm of one seed.
pub(super) struct Nemesis {
    ids: Vec<NodeId>,
    /// The clock of each node.
    clocks: Vec<Wrong>,
    kinds: Vec<Kind>,
    /// One in so many looks finds a new fault.
    rarity: u64,
    /// Whether nodes come back with other numbers of shards.
    reshards: bool,
    batch: bool,
    lasting: Vec<(Duration, Cure)>,
    /// Nodes that were told to end, and when.
    stopping: Vec<(usize, Duration)>,
}

fn below(world: &mut World, limit: u64) -> u64 {
    world.random_u64() % limit
}

impl Nemesis {
    /// The nemesis of a seed's world.
    pub(super) fn new(world: &mut World, ids: Vec<NodeId>, batch: bool) -> Self {
        let mut kinds: Vec<Kind> = KINDS.into_iter().filter(|_| below(world, 2) == 0).collect();
        kinds.retain(|kind| !RARE.contains(kind) || below(world, 3) == 0);
        let rarity = [3, 8, 20, 80, 300][below(world, 5) as usize];
        let reshards = below(world, 4) == 0;
        for id in &ids {
            world.set_disk_faults(*id, disk(batch));
        }
        let clocks = vec![Wrong::default(); ids.len()];
        Self { ids, clocks, kinds, rarity, reshards, batch, lasting: Vec::new(), stopping: Vec::new() }
    }

    /// A node has come.
    pub(super) fn add(&mut self, world: &mut World, id: NodeId) {
        world.set_disk_faults(id, disk(self.batch));
        self.ids.push(id);
        self.clocks.push(Wrong::default());
    }

    /// Whether nothing is wrong just now, clocks aside.
    pub(super) fn is_calm(&self) -> bool {
        self.lasting.is_empty() && self.stopping.is_empty()
    }

    /// Ends what has lasted long enough, and perhaps begins something.
    ///
    /// # Errors
    /// A node that does not end.
    pub(super) fn look(&mut self, world: &mut World, shared: &Shared) -> Result<(), String> {
        self.cure(world, shared, world.now())?;
        if !self.kinds.is_empty() && below(world, self.rarity) == 0 {
            let kind = self.kinds[below(world, self.kinds.len() as u64) as usize];
            self.harm(world, shared, kind);
        }
        self.note_clocks(world, shared);
        Ok(())
    }

    /// Ends everything, as soon as nodes that are told to end have done so; whether it is over.
    ///
    /// # Errors
    /// A node that does not end.
    pub(super) fn end(&mut self, world: &mut World, shared: &Shared) -> Result<bool, String> {
        self.cure(world, shared, Duration::MAX)?;
        if self.is_calm() {
            self.set_clocks_right(world, shared);
        }
        Ok(self.is_calm())
    }

    /// Notes how wrong clocks are, after each change and now and then.
    fn note_clocks(&self, world: &World, shared: &Shared) {
        let wrong_us = self.clocks.iter().map(|clock| clock.at(world.now()).abs()).max().unwrap_or(0);
        shared.clocks_wrong_us.set(shared.clocks_wrong_us.get().max(wrong_us));
    }

    /// Makes all clocks right: agreement is impossible between nodes whose clocks are too far apart.
    fn set_clocks_right(&mut self, world: &mut World, shared: &Shared) {
        self.note_clocks(world, shared);
        for (id, clock) in self.ids.iter().zip(&mut self.clocks) {
            world.skew_clock(*id, -clock.at(world.now()));
            world.drift_clock(*id, 0);
            *clock = Wrong::default();
        }
        // As many steps of the usual length.
        let steps = 1 + shared.clocks_wrong_us.get().unsigned_abs() / STEP_US_MAX;
        shared.clock_steps.set(shared.clock_steps.get() + steps);
        shared.note(|| "nemesis: all clocks are right".to_owned());
    }

    /// Ends what was to last until `time`.
    fn cure(&mut self, world: &mut World, shared: &Shared, time: Duration) -> Result<(), String> {
        let ids = self.ids.clone();
        let ended: Vec<usize> =
            self.stopping.iter().map(|(at, _)| *at).filter(|at| world.is_ended(ids[*at])).collect();
        for at in ended {
            self.stopping.retain(|(stopping, _)| *stopping != at);
            self.last(world, Cure::Start(at));
        }
        if let Some((at, told)) = self.stopping.iter().find(|(_, told)| world.now() > *told + STOP_TIME_MAX) {
            return Err(format!("node {at} was told to end at {told:?} and has not"));
        }
        let (due, lasting) = self.lasting.drain(..).partition(|(until, _)| *until <= time);
        self.lasting = lasting;
        for (_, cure) in due {
            match cure {
                Cure::Start(at) if self.reshards => {
                    let shards = 1 + below(world, SHARDS_MAX) as usize;
                    world.restart_with(ids[at], shards);
                }
                Cure::Start(at) => world.restart(ids[at]),
                Cure::Heal(left, right) => world.heal(ids[left], ids[right]),
                Cure::Quicken(from, to) => world.set_link(ids[from], ids[to], Link::default()),
                Cure::Disk(at) if shared.bad.borrow().contains(&at) => {}
                Cure::Disk(at) => world.set_disk_faults(ids[at], disk(self.batch)),
                Cure::Replace(at) => {
                    world.set_disk_faults(ids[at], disk(self.batch));
                    shared.bad.borrow_mut().remove(&at);
                    if self.runs(at) {
                        self.crash(world, shared, at);
                    }
                }
                Cure::None => continue,
            }
            shared.note(|| format!("nemesis: {cure:?} is over"));
        }
        Ok(())
    }

    /// Notes what ends a fault, at a random time.
    fn last(&mut self, world: &mut World, cure: Cure) {
        let time = Duration::from_millis(1 + below(world, FAULT_MS_MAX));
        self.lasting.push((world.now() + time, cure));
    }

    /// Whether a node runs, as far as the nemesis knows.
    fn runs(&self, at: usize) -> bool {
        !self.stopping.iter().any(|(stopping, _)| *stopping == at)
            && !self.lasting.iter().any(|(_, cure)| *cure == Cure::Start(at))
    }

    fn crash(&mut self, world: &mut World, shared: &Shared, at: usize) {
        shared.open.borrow_mut().remove(&at);
        world.crash(self.ids[at]);
        self.last(world, Cure::Start(at));
    }

    fn harm(&mut self, world: &mut World, shared: &Shared, kind: Kind) {
        let count = self.ids.len() as u64;
        let at = match kind {
            Kind::CrashLeader => leader(shared),
            _ => None,
        };
        let at = at.unwrap_or_else(|| below(world, count) as usize);
        let other = (at + 1 + below(world, count - 1) as usize) % self.ids.len();
        let needs_node = !kind.is_of_network() && !matches!(kind, Kind::Step | Kind::Drift);
        // A disk that fails is enough for its node.
        if needs_node && (!self.runs(at) || shared.bad.borrow().contains(&at)) {
            return;
        }
        shared.note(|| format!("nemesis: {kind:?} of node {at}, or from it to {other}"));
        match kind {
            Kind::Crash | Kind::CrashLeader | Kind::CrashAll | Kind::Stop | Kind::Pause | Kind::Stall => {
                self.harm_node(world, shared, kind, at);
            }
            Kind::Step | Kind::Drift | Kind::SlowDisk | Kind::BadDisk => {
                self.harm_parts(world, shared, kind, at);
            }
            Kind::Part | Kind::Isolate | Kind::OneWay | Kind::SlowLink | Kind::Reset => {
                self.harm_network(world, kind, (at, other));
            }
        }
    }

    fn harm_node(&mut self, world: &mut World, shared: &Shared, kind: Kind, at: usize) {
        let id = self.ids[at];
        match kind {
            Kind::CrashAll => {
                let is_able = |at: &usize| self.runs(*at) && !shared.bad.borrow().contains(at);
                for at in (0..self.ids.len()).filter(is_able).collect::<Vec<_>>() {
                    self.crash(world, shared, at);
                }
            }
            // A node that is not open yet has nothing that it could end in order.
            Kind::Stop if !shared.open.borrow().contains_key(&at) => {}
            Kind::Stop => {
                world.terminate(id);
                self.stopping.push((at, world.now()));
            }
            Kind::Pause => {
                let time = Duration::from_millis(1 + below(world, PAUSE_MS_MAX));
                world.pause(id, time);
                *shared.paused.borrow_mut().entry(at).or_default() += time;
                self.lasting.push((world.now() + time, Cure::None));
            }
            Kind::Stall => {
                let time = Duration::from_millis(1 + below(world, STALL_MS_MAX));
                world.pause_shard(id, 0, time);
                self.lasting.push((world.now() + time, Cure::None));
            }
            _ => self.crash(world, shared, at),
        }
    }

    /// Harms a node's clock or its disk.
    fn harm_parts(&mut self, world: &mut World, shared: &Shared, kind: Kind, at: usize) {
        let id = self.ids[at];
        let mut faults = disk(self.batch);
        match kind {
            Kind::Step => {
                let step_us = below(world, 2 * STEP_US_MAX) as i64 - STEP_US_MAX as i64;
                world.skew_clock(id, step_us);
                self.clocks[at].by_us += step_us;
                shared.clock_steps.set(shared.clock_steps.get() + 1);
            }
            Kind::Drift => {
                let drift = below(world, 2 * DRIFT_US_PER_S_MAX) as i64 - DRIFT_US_PER_S_MAX as i64;
                world.drift_clock(id, drift);
                let now = world.now();
                self.clocks[at] = Wrong { by_us: self.clocks[at].at(now), drift, since: now };
            }
            Kind::SlowDisk => {
                let slow_ns = 1_000_000 * (1 + below(world, 60));
                faults.latency_ns = (slow_ns / 4, slow_ns);
                world.set_disk_faults(id, faults);
                self.last(world, Cure::Disk(at));
            }
            _ => {
                // A sync that fails takes writes with it that were acknowledged before, in periodic mode.
                let failing = match below(world, if self.batch { 3 } else { 2 }) {
                    0 => ("writes", &mut faults.write_error, 0.01),
                    1 => ("reads", &mut faults.read_error, 0.01),
                    _ => ("syncs", &mut faults.sync_error, 0.02),
                };
                *failing.1 = failing.2;
                shared.note(|| format!("nemesis: the disk of node {at} fails some {}", failing.0));
                world.set_disk_faults(id, faults);
                shared.was_bad.set(true);
                shared.bad.borrow_mut().insert(at);
                self.last(world, Cure::Replace(at));
            }
        }
    }

    fn harm_network(&mut self, world: &mut World, kind: Kind, (at, other): (usize, usize)) {
        let (id, other_id) = (self.ids[at], self.ids[other]);
        match kind {
            Kind::Part => {
                world.part(id, other_id);
                self.last(world, Cure::Heal(at, other));
            }
            Kind::Isolate => {
                for other in (0..self.ids.len()).filter(|other| *other != at) {
                    world.part(id, self.ids[other]);
                    self.last(world, Cure::Heal(at, other));
                }
            }
            Kind::OneWay => {
                world.part_one_way(id, other_id);
                self.last(world, Cure::Heal(at, other));
            }
            Kind::SlowLink => {
                let slow_ns = 1_000_000 * (1 + below(world, 400));
                let bytes_per_second = (below(world, 2) == 0).then_some(20_000);
                let link = Link { latency_ns: Some((slow_ns / 4, slow_ns)), bytes_per_second };
                world.set_link(id, other_id, link);
                self.last(world, Cure::Quicken(at, other));
            }
            _ => {
                world.reset_connections(id, other_id);
                self.lasting.push((world.now(), Cure::None));
            }
        }
    }
}

/// The node that leads the control plane, if one that is open does.
fn leader(shared: &Shared) -> Option<usize> {
    let open = shared.open.borrow();
    let mut leading = open.iter().filter(|(_, control)| control.group().status().role == Role::Leader);
    leading.next().map(|(at, _)| *at)
}

/// A disk on which nothing is wrong. In periodic mode a crash is that of the process alone, and what the
/// kernel has stays: else a node might lose what it has acknowledged, and a majority with it.
fn disk(batch: bool) -> DiskFaults {
    DiskFaults { lose_unsynced: batch, ..DiskFaults::default() }
}
