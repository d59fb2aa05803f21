//! Chooses the next task: one run queue per scheduling group, weighted by shares.
//!
//! Each group has a virtual runtime: the time it held the core, including kernel time of its I/O, divided by
//! its shares. The runnable group with the least runs next, for at most a quantum; within a group it is first
//! come, first served. A group that was idle does not save up: it returns at most one quantum behind. A
//! background slice is shorter while foreground work waits, and ends early when such work arrives. Invariant:
//! every queued task is in the queue of its own group, once. `usage` reports the time of each group.

pub(crate) mod usage;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::shard;
use usage::Usage;

/// Number of scheduling groups.
pub(crate) const GROUPS: usize = 11;
/// Longest slice of one group before other groups are considered.
pub(crate) const QUANTUM_NS: u64 = 500_000;
/// After this time a background slice ends as soon as foreground work has arrived.
pub(crate) const BACKGROUND_SLICE_MIN_NS: u64 = 20_000;
/// The time within which background work gives way: the length of its slice while foreground tasks wait, and
/// the time between two reads of the clock beyond which giving way counts as late.
pub(crate) const GIVE_WAY_NS: u64 = 100_000;
/// How much virtual time a group may come back with after having been idle.
const CREDIT_NS: u64 = QUANTUM_NS;
const SHARES_UNIT: u64 = 1000;

/// A scheduling group, to which a task's time and disk requests are charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub(crate) u8);

const NAMES: [&str; GROUPS] = [
    "statement",
    "commitlog",
    "memtable",
    "compaction",
    "streaming",
    "repair",
    "background",
    "control",
    "admin",
    "unprepared",
    "scan",
];
const SHARES: [u32; GROUPS] = [1000, 1000, 400, 200, 200, 200, 100, 1000, 200, 500, 300];

impl Group {
    /// Requests of clients and of other replicas on their behalf.
    pub const STATEMENT: Group = Group(0);
    /// Appending to and syncing the commit log.
    pub const COMMITLOG: Group = Group(1);
    /// Writing memtables to table files.
    pub const MEMTABLE: Group = Group(2);
    /// Compaction.
    pub const COMPACTION: Group = Group(3);
    /// Moving data between nodes and shards.
    pub const STREAMING: Group = Group(4);
    /// Repair.
    pub const REPAIR: Group = Group(5);
    /// Everything without a deadline: recycling, clean-up, statistics.
    pub const BACKGROUND: Group = Group(6);
    /// The control plane: what all nodes agree on, and which of them live.
    pub const CONTROL: Group = Group(7);
    /// Work that operators request.
    pub const ADMIN: Group = Group(8);
    /// Requests of clients that have to be parsed and prepared first, and very long ones: foreground, but not
    /// at the cost of prepared requests.
    pub const UNPREPARED: Group = Group(9);
    /// Reads over many partitions for clients: they give way to short requests as background work does.
    pub const SCAN: Group = Group(10);

    /// All groups, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Group> {
        (0..GROUPS as u8).map(Group)
    }

    /// The name used in logs and metrics.
    pub fn name(self) -> &'static str {
        NAMES[self.0 as usize]
    }

    /// The group's weight on this shard.
    pub fn shares(self) -> u32 {
        shard::with(|shard| shard.sched.shares[self.0 as usize].get())
    }

    /// Sets the group's weight on this shard; at least 1.
    pub fn set_shares(self, shares: u32) {
        shard::with(|shard| shard.sched.shares[self.0 as usize].set(shares.max(1)));
    }

    /// Nanoseconds of the core this group has used on this shard, kernel time of its submissions included.
    pub fn cpu_ns(self) -> u64 {
        shard::with(|shard| shard.sched.usage[self.0 as usize].run_ns.get())
    }

    /// Background groups give way as soon as completions are pending.
    pub(crate) fn is_background(self) -> bool {
        BACKGROUND_MASK & (1 << self.0) != 0
    }

    /// Marks that no group runs.
    const NOBODY: Group = Group(u8::MAX);
}

/// The background groups, a bit each. Scans are among them: clients wait for them, but do not notice
/// microseconds.
pub(crate) const BACKGROUND_MASK: u16 = 1 << Group::MEMTABLE.0
    | 1 << Group::COMPACTION.0
    | 1 << Group::STREAMING.0
    | 1 << Group::REPAIR.0
    | 1 << Group::BACKGROUND.0
    | 1 << Group::SCAN.0;

pub(crate) struct Sched {
    queues: [RefCell<VecDeque<u32>>; GROUPS],
    runnable: Cell<u16>,
    virtual_ns: [Cell<u64>; GROUPS],
    /// The least virtual time of any group that ran recently; a group that wakes joins there.
    floor_ns: Cell<u64>,
    shares: [Cell<u32>; GROUPS],
    pub(crate) usage: [Usage; GROUPS],
    /// The group that has the current slice; `NOBODY` between slices.
    running: Cell<Group>,
    /// A foreground group has become runnable since the slice began.
    arrived: Cell<bool>,
    /// The clock when it was last read: at each slice's start and end, and after a sleep.
    pub(crate) clock_ns: Cell<u64>,
    pub(crate) current: Cell<Group>,
    /// End of the present slice; zero outside of one.
    pub(crate) slice_begin_ns: Cell<u64>,
    pub(crate) slice_end_ns: Cell<u64>,
}

impl Sched {
    /// No group has tasks; times are measured from `now_ns` on.
    pub(crate) fn new(now_ns: u64) -> Self {
        Self {
            queues: std::array::from_fn(|_| RefCell::new(VecDeque::new())),
            runnable: Cell::new(0),
            virtual_ns: std::array::from_fn(|_| Cell::new(0)),
            floor_ns: Cell::new(0),
            shares: std::array::from_fn(|group| Cell::new(SHARES[group])),
            usage: std::array::from_fn(|_| Usage::since(now_ns)),
            running: Cell::new(Group::NOBODY),
            arrived: Cell::new(false),
            clock_ns: Cell::new(now_ns),
            current: Cell::new(Group::ADMIN),
            slice_begin_ns: Cell::new(0),
            slice_end_ns: Cell::new(0),
        }
    }

    pub(crate) fn push(&self, group: Group, index: u32) {
        let number = group.0 as usize;
        self.queues[number].borrow_mut().push_back(index);
        let bit = 1 << number;
        if self.runnable.get() & bit == 0 {
            self.runnable.set(self.runnable.get() | bit);
            let joined = self.floor_ns.get().saturating_sub(CREDIT_NS);
            self.virtual_ns[number].set(self.virtual_ns[number].get().max(joined));
            if group != self.running.get() {
                self.usage[number].becomes_runnable(self.clock_ns.get());
                if bit & BACKGROUND_MASK == 0 {
                    self.arrived.set(true);
                }
            }
        }
    }

    /// A slice of `group` begins.
    pub(crate) fn begin_slice(&self, group: Group, now_ns: u64) {
        self.clock_ns.set(now_ns);
        self.running.set(group);
        self.arrived.set(false);
        self.usage[group.0 as usize].runs(now_ns);
    }

    /// The slice is over.
    pub(crate) fn end_slice(&self, now_ns: u64) {
        self.clock_ns.set(now_ns);
        let group = self.running.replace(Group::NOBODY);
        let waits = self.runnable.get() & (1 << group.0) != 0;
        self.usage[group.0 as usize].stops(now_ns, waits);
    }

    /// Whether a foreground group has become runnable since the slice began.
    pub(crate) fn foreground_arrived(&self) -> bool {
        self.arrived.get()
    }

    /// Whether a foreground group waits for the core.
    pub(crate) fn foreground_waits(&self) -> bool {
        self.runnable.get() & !BACKGROUND_MASK != 0
    }

    /// Whether the present slice is `group`'s.
    pub(crate) fn runs(&self, group: Group) -> bool {
        self.running.get() == group
    }

    pub(crate) fn shares_of(&self, group: Group) -> u32 {
        self.shares[group.0 as usize].get()
    }

    /// Tasks of `group` that wait for the core.
    pub(crate) fn queued(&self, group: Group) -> usize {
        self.queues[group.0 as usize].borrow().len()
    }

    pub(crate) fn pop(&self, group: Group) -> Option<u32> {
        let mut queue = self.queues[group.0 as usize].borrow_mut();
        let index = queue.pop_front();
        if queue.is_empty() {
            self.runnable.set(self.runnable.get() & !(1 << group.0));
        }
        index
    }

    /// Puts another task of `group` to the front: the simulation's way to try other orders.
    pub(crate) fn rotate(&self, group: Group, by: u64) {
        let mut queue = self.queues[group.0 as usize].borrow_mut();
        if !queue.is_empty() {
            let by = (by % queue.len() as u64) as usize;
            queue.rotate_left(by);
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.runnable.get() == 0
    }

    pub(crate) fn runnable_groups(&self) -> u32 {
        self.runnable.get().count_ones()
    }

    /// The `number`th of the runnable groups.
    pub(crate) fn nth_runnable(&self, number: u32) -> Option<Group> {
        Group::all().filter(|group| self.runnable.get() & (1 << group.0) != 0).nth(number as usize)
    }

    /// The runnable group that has had least.
    pub(crate) fn next_group(&self) -> Option<Group> {
        let mut left = self.runnable.get();
        let mut best: Option<(u64, u8)> = None;
        while left != 0 {
            let group = left.trailing_zeros() as u8;
            left &= left - 1;
            let virtual_ns = self.virtual_ns[group as usize].get();
            if best.is_none_or(|(found, _)| virtual_ns < found) {
                best = Some((virtual_ns, group));
            }
        }
        best.map(|(virtual_ns, group)| {
            self.floor_ns.set(self.floor_ns.get().max(virtual_ns));
            Group(group)
        })
    }

    /// Adds time a group has held the core.
    pub(crate) fn charge(&self, group: Group, ns: u64) {
        let number = group.0 as usize;
        let usage = &self.usage[number];
        usage.run_ns.set(usage.run_ns.get() + ns);
        let weighted = ns * SHARES_UNIT / u64::from(self.shares[number].get());
        self.virtual_ns[number].set(self.virtual_ns[number].get() + weighted);
    }
}

/// The group of the task that is running.
pub fn current_group() -> Group {
    shard::with(|shard| shard.sched.current.get())
}

/// Whether the running task should let others run: its group's slice is over, or, for a background group,
/// other work has arrived: completions, messages of other shards, foreground tasks. Cheap enough to call once
/// per row.
pub fn need_preempt() -> bool {
    shard::with(|shard| shard.need_preempt())
}

/// Lets the other runnable tasks run first.
pub async fn yield_now() {
    struct Yield(bool);
    impl Future for Yield {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            if self.0 {
                return Poll::Ready(());
            }
            self.0 = true;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    }
    Yield(false).await;
}

/// Yields if [`need_preempt`] returns true.
pub async fn maybe_yield() {
    if need_preempt() {
        yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_foreground_cuts_a_background_slice_short() {
        let sched = Sched::new(0);
        sched.push(Group::COMPACTION, 1);
        assert_eq!(sched.pop(Group::COMPACTION), Some(1));
        sched.begin_slice(Group::COMPACTION, 1000);
        for other in [Group::COMPACTION, Group::MEMTABLE, Group::BACKGROUND] {
            sched.push(other, 2);
            assert!(!sched.foreground_arrived() && !sched.foreground_waits());
        }
        sched.push(Group::STATEMENT, 3);
        assert!(sched.foreground_arrived() && sched.foreground_waits());
        sched.end_slice(2000);
        sched.begin_slice(Group::MEMTABLE, 2000);
        assert!(!sched.foreground_arrived(), "who waited before the slice has not arrived in it");
        assert!(sched.foreground_waits());
    }

    #[test]
    fn running_starving_and_waiting_add_up_to_the_time_that_passed() {
        let sched = Sched::new(0);
        let usage = &sched.usage[Group::MEMTABLE.0 as usize];
        sched.clock_ns.set(100);
        sched.push(Group::MEMTABLE, 1); // waited 100
        sched.push(Group::MEMTABLE, 2);
        sched.begin_slice(Group::MEMTABLE, 150); // starved 50
        sched.pop(Group::MEMTABLE);
        sched.end_slice(170); // ran 20, one task is left
        sched.begin_slice(Group::MEMTABLE, 200); // starved 30
        sched.pop(Group::MEMTABLE);
        sched.end_slice(210); // ran 10
        assert_eq!((usage.wait_ns(300, false), usage.starve_ns(300)), (190, 80));
        sched.clock_ns.set(400);
        sched.push(Group::MEMTABLE, 3);
        assert_eq!((usage.wait_ns(450, false), usage.starve_ns(450)), (290, 130));
    }

    #[test]
    fn tasks_that_come_before_the_first_slice_starve_from_then_on_and_not_from_the_clocks_start() {
        let begun_ns = 7_000_000_000;
        let sched = Sched::new(begun_ns);
        sched.push(Group::MEMTABLE, 1);
        let usage = |group: Group| &sched.usage[group.0 as usize];
        assert_eq!(usage(Group::MEMTABLE).starve_ns(begun_ns + 5), 5);
        sched.begin_slice(Group::MEMTABLE, begun_ns + 8);
        assert_eq!(usage(Group::MEMTABLE).starve_ns(begun_ns + 9), 8);
        assert_eq!(usage(Group::STATEMENT).starve_ns(begun_ns + 9), 0, "it never had a task");
    }

    #[test]
    fn what_exceeds_the_quantum_is_a_violation() {
        let usage = Usage::default();
        usage.held(QUANTUM_NS, 8);
        assert_eq!((usage.violations.get(), usage.violation_ns.get()), (0, 0));
        usage.held(QUANTUM_NS + 7, 1);
        usage.held(10, 1);
        assert_eq!((usage.violations.get(), usage.violation_ns.get(), usage.polls.get()), (1, 7, 10));
        assert_eq!(usage.longest_ns.get(), QUANTUM_NS + 7);
    }
}
