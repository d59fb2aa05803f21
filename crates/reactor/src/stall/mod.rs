//! The stall detector: names the task, or the system call, that held a core for too long.
//!
//! While a shard is awake a timer signals its thread twice per threshold (`timer`). The signal's handler
//! compares the shard's [`Pulse`] with the previous one: if no other task was polled for the time of the
//! threshold, it collects the thread's stack addresses and hands them to a thread of the process
//! (`reporter`), which finds their names and calls the configured function. A sleeping shard has no timer
//! running: idle time costs nothing. Invariant: the handler neither allocates nor locks; its shared data is
//! atomic. Not used by simulation.

mod reporter;
mod symbols;
mod timer;

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::sched::Group;
use crate::task::Identity;
pub(crate) use timer::{Watch, signal};

/// Frames kept of a stall; deeper ones are of the loop, not of the task.
const FRAMES_MAX: usize = 64;
/// No group: the loop itself.
const NO_GROUP: u8 = u8::MAX;

/// When a stall is reported, and to whom.
#[derive(Debug, Clone, Copy)]
pub struct StallDetector {
    /// How long a core may be held before it is reported; at least a millisecond.
    pub threshold: Duration,
    /// Reports per shard and minute; more are only counted.
    pub reports_per_minute: u32,
    /// Called for each report, on its own thread.
    pub report: fn(&Stall),
    /// Whether reports also name inlined functions. To find them takes the process 60 MiB and more for a
    /// moment.
    pub inlined: bool,
}

impl Default for StallDetector {
    /// 5 ms, 5 per minute, to the log.
    fn default() -> Self {
        Self { threshold: Duration::from_millis(5), reports_per_minute: 5, report: log, inlined: true }
    }
}

/// Why a core was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallKind {
    /// The task computed.
    Task,
    /// A system call worked or slept.
    Kernel,
    /// Another process or thread had the CPU. Counted, never reported: no task is the cause.
    Preempted,
}

impl StallKind {
    const ALL: [StallKind; 3] = [StallKind::Task, StallKind::Kernel, StallKind::Preempted];

    /// The word used in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Kernel => "kernel",
            Self::Preempted => "preempted",
        }
    }
}

/// A core was held for too long.
#[derive(Debug, Clone)]
pub struct Stall {
    /// On which shard.
    pub shard: usize,
    /// For how long, when it was seen; it may have gone on.
    pub held: Duration,
    /// By whom.
    pub kind: StallKind,
    /// The task's group; `None` if the loop itself was running.
    pub group: Option<&'static str>,
    /// The type of the task's future.
    pub task: Option<&'static str>,
    /// Functions from the innermost to the task's own.
    pub trace: Vec<String>,
    /// Stalls of this shard that were not reported since the last one, being too many.
    pub left_out: u64,
}

/// Writes a stall to the log, in one line.
pub fn log(stall: &Stall) {
    let what = match stall.kind {
        StallKind::Task => "a task held the core",
        StallKind::Kernel => "a system call held the core",
        StallKind::Preempted => "the core was taken away",
    };
    crate::warn!("{}", what;
        shard = stall.shard,
        for_ms = stall.held.as_millis(),
        kind = stall.kind.name(),
        group = stall.group.unwrap_or("none"),
        task = stall.task.unwrap_or("none"),
        left_out = stall.left_out,
        trace = stall.trace.join(" < ")
    );
}

/// The handler's last observations; only the handler uses it.
#[derive(Default)]
struct Seen {
    beat: AtomicU64,
    at_ns: AtomicU64,
    cpu_ns: AtomicU64,
    sleeps: AtomicU64,
    /// The kinds that this beat has been counted as, a bit each.
    counted: AtomicU8,
    /// How long this beat must last to be reported next.
    next_ns: AtomicU64,
    minute: AtomicU64,
    in_minute: AtomicU32,
    left_out: AtomicU64,
}

/// Data that the handler hands to the reporter.
struct Slot {
    /// True from the handler's last store until the reporter has read everything.
    full: AtomicBool,
    held_ns: AtomicU64,
    kind: AtomicU8,
    group: AtomicU8,
    task: AtomicPtr<Identity>,
    left_out: AtomicU64,
    frames: [AtomicUsize; FRAMES_MAX],
    count: AtomicUsize,
}

/// A shard's sign of life: written by the loop with plain stores, read by the handler on the same thread.
pub(crate) struct Pulse {
    shard: usize,
    /// Grows with every poll of a task that is not nested in another, and with every turn.
    beats: AtomicU64,
    /// The task that is being polled; null outside of a poll.
    task: AtomicPtr<Identity>,
    group: AtomicU8,
    asleep: AtomicBool,
    /// Whether the thread is watched, so that `timer` is valid. The kernel's first timer has the number 0, so
    /// the number alone does not show it.
    watched: AtomicBool,
    timer: AtomicPtr<libc::c_void>,
    armed: AtomicBool,
    threshold_ns: AtomicU64,
    per_minute: AtomicU32,
    seen: Seen,
    slot: Slot,
    detected: [AtomicU64; 3],
    reported: AtomicU64,
    ticks: AtomicU64,
}

impl Pulse {
    pub(crate) fn new(shard: usize) -> Arc<Self> {
        Arc::new(Self {
            shard,
            beats: AtomicU64::new(1),
            task: AtomicPtr::new(ptr::null_mut()),
            group: AtomicU8::new(NO_GROUP),
            asleep: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            timer: AtomicPtr::new(ptr::null_mut()),
            armed: AtomicBool::new(false),
            threshold_ns: AtomicU64::new(0),
            per_minute: AtomicU32::new(0),
            seen: Seen::default(),
            slot: Slot {
                full: AtomicBool::new(false),
                held_ns: AtomicU64::new(0),
                kind: AtomicU8::new(0),
                group: AtomicU8::new(NO_GROUP),
                task: AtomicPtr::new(ptr::null_mut()),
                left_out: AtomicU64::new(0),
                frames: std::array::from_fn(|_| AtomicUsize::new(0)),
                count: AtomicUsize::new(0),
            },
            detected: std::array::from_fn(|_| AtomicU64::new(0)),
            reported: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
        })
    }

    /// Notes that the loop makes progress. There is one writer, so no atomic addition is needed.
    pub(crate) fn beat(&self) {
        self.beats.store(self.beats.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Begins a poll of a task; returns the value for `end_poll`. A poll within a poll is no progress of the
    /// outer one.
    pub(crate) fn begin_poll(&self, task: &'static Identity) -> *mut Identity {
        let outer = self.task.load(Ordering::Relaxed);
        if outer.is_null() {
            self.beat();
        }
        self.task.store(ptr::from_ref(task).cast_mut(), Ordering::Relaxed);
        outer
    }

    pub(crate) fn end_poll(&self, outer: *mut Identity) {
        self.task.store(outer, Ordering::Relaxed);
    }

    /// Sets the group whose tasks are polled from now on. Starts the timer if it has stopped; this is not
    /// done at the wake itself, which may be caused by the timer's own signal and have no task.
    pub(crate) fn enters(&self, group: Group) {
        self.group.store(group.0, Ordering::Relaxed);
        if !self.armed.load(Ordering::Relaxed) && self.watched.load(Ordering::Relaxed) {
            timer::arm(self);
        }
    }

    /// The thread is about to wait in the driver.
    pub(crate) fn sleeps(&self) {
        self.asleep.store(true, Ordering::Relaxed);
    }

    /// The wait is over.
    pub(crate) fn wakes(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        self.beat();
    }

    /// Signals of the timer so far.
    pub(crate) fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Stalls so far, by kind, and how many of all were reported.
    pub(crate) fn counts(&self) -> ([(StallKind, u64); 3], u64) {
        let count = |kind: StallKind| (kind, self.detected[kind as usize].load(Ordering::Relaxed));
        (StallKind::ALL.map(count), self.reported.load(Ordering::Relaxed))
    }
}
