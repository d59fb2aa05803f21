//! Time accounts of each scheduling group: running, starving, waiting, and how often it held the core too
//! long.
//!
//! At any moment a group runs, starves (has tasks, another group runs) or waits (has none). The first is
//! charged by `Sched::charge`, kernel time of its I/O included; the other two are measured here, from one
//! change to the next. Read by `metrics`, under the field's public names. Invariant: the counters only grow.

use std::cell::Cell;

use super::QUANTUM_NS;

/// One group's account on one shard.
#[derive(Default)]
pub(crate) struct Usage {
    /// Nanoseconds of the core.
    pub(crate) run_ns: Cell<u64>,
    wait_ns: Cell<u64>,
    starve_ns: Cell<u64>,
    /// Polls of its tasks.
    pub(crate) polls: Cell<u64>,
    /// How often the core was held beyond the quantum between two reads of the clock.
    pub(crate) violations: Cell<u64>,
    /// Nanoseconds beyond the quantum, of all violations.
    pub(crate) violation_ns: Cell<u64>,
    /// The longest time the core was held in one go, nanoseconds.
    pub(crate) longest_ns: Cell<u64>,
    /// Background: times something of the foreground's waited for longer than [`super::GIVE_WAY_NS`].
    pub(crate) late: Cell<u64>,
    starves: Cell<bool>,
    since_ns: Cell<u64>,
}

fn add(counter: &Cell<u64>, ns: u64) {
    counter.set(counter.get() + ns);
}

impl Usage {
    /// Of a group that waits from `now_ns` on.
    pub(super) fn since(now_ns: u64) -> Self {
        Self { since_ns: Cell::new(now_ns), ..Self::default() }
    }

    pub(super) fn becomes_runnable(&self, now_ns: u64) {
        add(&self.wait_ns, now_ns.saturating_sub(self.since_ns.get()));
        self.since_ns.set(now_ns);
        self.starves.set(true);
    }

    pub(super) fn runs(&self, now_ns: u64) {
        add(&self.starve_ns, now_ns.saturating_sub(self.since_ns.get()));
        self.starves.set(false);
    }

    pub(super) fn stops(&self, now_ns: u64, has_tasks: bool) {
        self.since_ns.set(now_ns);
        self.starves.set(has_tasks);
    }

    /// Notes that polls of the group have held the core for `ns` without a read of the clock in between.
    pub(crate) fn held(&self, ns: u64, polls: u64) {
        add(&self.polls, polls);
        if ns > self.longest_ns.get() {
            self.longest_ns.set(ns);
        }
        if ns > QUANTUM_NS {
            add(&self.violations, 1);
            add(&self.violation_ns, ns - QUANTUM_NS);
        }
    }

    /// Nanoseconds without a task, until now.
    pub(crate) fn wait_ns(&self, now_ns: u64, runs: bool) -> u64 {
        let open = if self.starves.get() || runs { 0 } else { now_ns.saturating_sub(self.since_ns.get()) };
        self.wait_ns.get() + open
    }

    /// Nanoseconds with a task but without the core, until now.
    pub(crate) fn starve_ns(&self, now_ns: u64) -> u64 {
        let open = if self.starves.get() { now_ns.saturating_sub(self.since_ns.get()) } else { 0 };
        self.starve_ns.get() + open
    }
}
