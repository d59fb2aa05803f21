//! A shard: one core's tasks, timers, operations and peers; and which shard a thread is running.
//!
//! `turn` is the loop. Everything public of this crate finds its shard through [`with`].
//! Invariant: no borrow of the shard's cells is held while a task is polled, a waker is called or a user's
//! value is dropped: all of these may call into the shard again.

mod turn;

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;

use crate::driver::{Completion, Driver, Finished, Handle, HandleKind, Harvest, ListenOptions, Op, OpId};
use crate::file::buffer::BufferPool;
use crate::io::{self as disk_io, Disks, Io};
use crate::log::LogState;
use crate::mesh::MeshEnd;
use crate::metrics::{Load, Registry};
use crate::op::OpTable;
use crate::sched::{BACKGROUND_SLICE_MIN_NS, Group, Sched};
use crate::signal::SignalState;
use crate::slices::Stacks;
use crate::stall::Pulse;
use crate::task::pool::TaskPool;
use crate::task::slab::Slab;
use crate::task::{self, JoinHandle, TaskRef};
use crate::time::Instant;
use crate::timer::Wheel;
use crate::waker::{self, Home, Remote};

pub(crate) struct Shard {
    pub(crate) id: usize,
    pub(crate) count: usize,
    pub(crate) sched: Sched,
    pub(crate) timers: RefCell<Wheel>,
    pub(crate) ops: RefCell<OpTable>,
    pub(crate) mesh: MeshEnd,
    pub(crate) metrics: Registry,
    pub(crate) load: Load,
    pub(crate) log: LogState,
    pub(crate) buffers: Rc<BufferPool>,
    pub(crate) signals: Rc<SignalState>,
    pub(crate) disk: crate::file::DiskCounters,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) io: RefCell<Io>,
    remote: Arc<Remote>,
    home: Home,
    tasks: Slab,
    task_pool: Rc<TaskPool>,
    pub(crate) stacks: Rc<Stacks>,
    driver: RefCell<Box<dyn Driver>>,
    driver_name: &'static str,
    poll_cost_ns: Option<u64>,
    background_slice_ns: u64,
    harvest: RefCell<Harvest>,
    foreign_wakes: RefCell<Vec<u64>>,
    closes: RefCell<Vec<(i32, HandleKind)>>,
    locals: RefCell<BTreeMap<TypeId, Rc<dyn Any>>>,
    panics: Cell<u64>,
    /// The first panic of a detached task.
    lost_panic: RefCell<Option<String>>,
    polls: Cell<u64>,
    /// The task that is being polled, the innermost if polls nest.
    current_task: Cell<Option<TaskRef>>,
    spin_ns: u64,
    /// The wall clock when it was last read for [`Shard::coarse_wall_clock_us`], and the slice's clock then.
    wall_clock_read: Cell<(i64, u64)>,
}

/// Beyond this [`Shard::coarse_wall_clock_us`] reads the clock again.
const WALL_CLOCK_READ_EVERY_US: u64 = 1000;

thread_local! {
    static CURRENT: Cell<*const Shard> = const { Cell::new(ptr::null()) };
}

/// Calls `body` with the shard this thread is running.
///
/// # Panics
/// Outside of a shard: a programming error, not an outcome.
pub(crate) fn with<R>(body: impl FnOnce(&Shard) -> R) -> R {
    try_with(body).expect("this belongs on a shard: call it from a task")
}

/// As [`with`]; `None` outside of a shard.
pub(crate) fn try_with<R>(body: impl FnOnce(&Shard) -> R) -> Option<R> {
    let current = NonNull::new(CURRENT.with(Cell::get).cast_mut())?;
    // SAFETY: the pointer is set by `Entered` from a shard borrowed for the guard's life, and reset by it.
    Some(body(unsafe { current.as_ref() }))
}

/// Makes a shard the thread's current one until dropped.
pub(crate) struct Entered<'shard> {
    previous: *const Shard,
    _shard: &'shard Shard,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.previous));
    }
}

/// The parts of a new shard.
pub(crate) struct Parts {
    pub(crate) id: usize,
    pub(crate) count: usize,
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) remote: Arc<Remote>,
    pub(crate) mesh: MeshEnd,
    pub(crate) pool_bytes_max: usize,
    pub(crate) spin_us: u32,
    pub(crate) disks: Disks,
}

impl Shard {
    pub(crate) fn new(parts: Parts) -> Rc<Self> {
        let now = parts.driver.now();
        Rc::new(Self {
            id: parts.id,
            count: parts.count,
            sched: Sched::new(now.0),
            timers: RefCell::new(Wheel::new(now)),
            ops: RefCell::new(OpTable::new()),
            mesh: parts.mesh,
            metrics: Registry::new(),
            load: Load::since(now.0),
            log: LogState::new(),
            buffers: BufferPool::new(parts.pool_bytes_max),
            signals: Rc::new(SignalState::new()),
            disk: crate::file::DiskCounters::new(),
            pulse: Pulse::new(parts.id),
            io: RefCell::new(Io::new(&parts.disks)),
            home: Home::register(parts.remote.clone()),
            remote: parts.remote,
            tasks: Slab::new(),
            task_pool: Rc::new(TaskPool::new()),
            stacks: Rc::new(Stacks::new()),
            driver_name: parts.driver.name(),
            poll_cost_ns: parts.driver.poll_cost_ns(),
            background_slice_ns: parts.driver.background_slice_ns(),
            wall_clock_read: Cell::new((parts.driver.wall_clock_us(), now.0)),
            driver: RefCell::new(parts.driver),
            harvest: RefCell::new(Harvest::default()),
            foreign_wakes: RefCell::new(Vec::new()),
            closes: RefCell::new(Vec::new()),
            locals: RefCell::new(BTreeMap::new()),
            panics: Cell::new(0),
            lost_panic: RefCell::new(None),
            polls: Cell::new(0),
            current_task: Cell::new(None),
            spin_ns: u64::from(parts.spin_us) * 1000,
        })
    }

    pub(crate) fn enter(&self) -> Entered<'_> {
        Entered { previous: CURRENT.with(|current| current.replace(self)), _shard: self }
    }

    pub(crate) fn home(&self) -> u16 {
        self.home.0
    }

    pub(crate) fn remote(&self) -> &Arc<Remote> {
        &self.remote
    }

    pub(crate) fn now(&self) -> Instant {
        self.driver.borrow().now()
    }

    pub(crate) fn wall_clock_us(&self) -> i64 {
        self.driver.borrow().wall_clock_us()
    }

    #[inline]
    pub(crate) fn coarse_wall_clock_us(&self) -> i64 {
        let (wall_us, read_at_ns) = self.wall_clock_read.get();
        let now_ns = self.sched.clock_ns.get();
        let passed_us = now_ns.saturating_sub(read_at_ns) / 1000;
        if passed_us < WALL_CLOCK_READ_EVERY_US {
            wall_us + passed_us as i64
        } else {
            self.read_wall_clock(now_ns)
        }
    }

    #[inline(never)]
    fn read_wall_clock(&self, now_ns: u64) -> i64 {
        let wall_us = self.wall_clock_us();
        self.wall_clock_read.set((wall_us, now_ns));
        wall_us
    }

    pub(crate) fn entropy(&self) -> u64 {
        self.driver.borrow_mut().entropy()
    }

    pub(crate) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn panics(&self) -> u64 {
        self.panics.get()
    }

    /// The message of the first detached task that panicked.
    pub(crate) fn lost_panic(&self) -> Option<String> {
        self.lost_panic.borrow().clone()
    }

    /// Polls of tasks so far.
    pub(crate) fn polls(&self) -> u64 {
        self.polls.get()
    }

    pub(crate) fn spawn<F: Future + 'static>(&self, group: Group, future: F) -> JoinHandle<F::Output> {
        let (task, handle) = task::create(&self.task_pool, group, move || future);
        let (index, _) = self.tasks.insert(task);
        self.sched.push(group, index);
        handle
    }

    /// As `spawn`, but polled before this returns if the caller belongs to the same group.
    #[inline]
    pub(crate) fn spawn_now<F: Future + 'static>(&self, group: Group, make: impl FnOnce() -> F) {
        let (task, handle) = task::create(&self.task_pool, group, make);
        handle.detach();
        let (index, _) = self.tasks.insert(task);
        // Simulated: one in four starts later, as it would after a yield.
        let later = self.poll_cost_ns.is_some() && self.driver.borrow_mut().choose(4) == Some(0);
        if later || self.sched.current.get() != group {
            self.sched.push(group, index);
        } else {
            self.poll_task(index);
        }
    }

    pub(crate) fn wake_token(&self, token: u64) {
        let (generation, index) = waker::split(token);
        if let Some(task) = self.tasks.queue(index, generation) {
            self.sched.push(task.header().group.get(), index);
        }
    }

    pub(crate) fn note_panic(&self, group: Group, message: &str) {
        self.panics.set(self.panics.get() + 1);
        crate::error!("a task panicked: {}", message; group = group.name());
    }

    pub(crate) fn note_lost_panic(&self, message: String) {
        self.lost_panic.borrow_mut().get_or_insert(message);
    }

    /// Moves the running task to another group; returns false if it belongs to that one already.
    pub(crate) fn move_current(&self, group: Group) -> bool {
        let Some(task) = self.current_task.get() else { return false };
        if task.header().group.replace(group) == group {
            return false;
        }
        self.sched.current.set(group);
        true
    }

    /// Whether its time passes only as the simulation says.
    pub(crate) fn is_simulated(&self) -> bool {
        self.poll_cost_ns.is_some()
    }

    pub(crate) fn need_preempt(&self) -> bool {
        if self.is_simulated() {
            // Simulated: one question in eight is answered with yes, so that every loop is cut somewhere.
            return self.driver.borrow_mut().choose(8) == Some(0);
        }
        let now = self.now().0;
        if now >= self.sched.slice_end_ns.get() {
            return true;
        }
        self.sched.current.get().is_background()
            && now - self.sched.slice_begin_ns.get() >= BACKGROUND_SLICE_MIN_NS
            && self.others_arrived()
    }

    pub(crate) fn submit(&self, id: OpId, op: Op, group: Group) -> Option<Finished> {
        if !disk_io::is_scheduled(&op) {
            return self.driver.borrow_mut().submit(id, op, group);
        }
        self.disk.count(group, &op);
        let now_ns = self.now().0;
        let shares = self.sched.shares_of(group);
        let at_once = self.io.borrow_mut().arrive(id, op, group, shares, now_ns);
        let Some(op) = at_once else {
            self.dispatch_io();
            return None;
        };
        let finished = self.driver.borrow_mut().submit(id, op, group);
        if finished.is_some() {
            self.io.borrow_mut().depart(id, now_ns);
        }
        finished
    }

    pub(crate) fn cancel(&self, id: OpId) {
        let waiting = if self.io.borrow().queued() > 0 {
            let now_ns = self.now().0;
            self.io.borrow_mut().withdraw(id, now_ns)
        } else {
            None
        };
        match waiting {
            Some(op) => {
                self.complete(Completion {
                    id,
                    op,
                    result: Err(io::Error::from_raw_os_error(libc::ECANCELED)),
                });
            }
            None => self.driver.borrow_mut().cancel(id),
        }
    }

    /// Hands the driver the disk requests for which there is room now.
    pub(crate) fn dispatch_io(&self) {
        if self.io.borrow().queued() == 0 {
            return;
        }
        let now_ns = self.now().0;
        // Bounded: each round takes a request out of a queue.
        loop {
            let next = self.io.borrow_mut().next(|group| self.sched.shares_of(group), now_ns);
            let Some((id, op, group)) = next else { return };
            let finished = self.driver.borrow_mut().submit(id, op, group);
            if let Some((op, result)) = finished {
                self.complete(Completion { id, op, result });
            }
        }
    }

    pub(crate) fn with_driver<R>(&self, body: impl FnOnce(&mut dyn Driver) -> R) -> R {
        body(&mut **self.driver.borrow_mut())
    }

    pub(crate) fn listen(
        &self,
        address: std::net::SocketAddr,
        options: ListenOptions,
    ) -> io::Result<(Handle, std::net::SocketAddr)> {
        self.driver.borrow_mut().listen(address, options)
    }

    pub(crate) fn close_later(&self, descriptor: i32, kind: HandleKind) {
        self.closes.borrow_mut().push((descriptor, kind));
    }

    pub(crate) fn log_line(&self, line: &str) -> bool {
        // If the driver logs while it works it is borrowed; such a line goes to standard error.
        self.driver.try_borrow_mut().is_ok_and(|mut driver| driver.log_line(line))
    }

    /// Whether a turn would find work without waiting.
    pub(crate) fn is_runnable(&self) -> bool {
        !self.sched.is_idle() || self.remote.is_notified() || !self.closes.borrow().is_empty()
    }

    /// When there is something to do next: a timer, or a disk request's turn.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let timer = self.timers.borrow().next();
        let request = self.io.borrow().next_try_ns().map(Instant);
        match (timer, request) {
            (Some(timer), Some(request)) => Some(timer.min(request)),
            (timer, request) => timer.or(request),
        }
    }
}

/// The number of this shard, from 0.
pub fn shard_id() -> usize {
    with(|shard| shard.id)
}

/// Name of the driver this shard runs on: `uring`, `poll` or `sim`.
pub fn driver_name() -> &'static str {
    with(|shard| shard.driver_name)
}

/// How many shards this process (or simulated node) has.
pub fn shard_count() -> usize {
    with(|shard| shard.count)
}

/// 64 random bits; from the seed under simulation.
pub fn random_u64() -> u64 {
    with(Shard::entropy)
}

/// Makes `value` this shard's one value of its type, replacing an earlier one.
pub fn set_local<T: 'static>(value: Rc<T>) {
    let previous = with(|shard| shard.locals.borrow_mut().insert(TypeId::of::<T>(), value));
    drop(previous);
}

/// This shard's value of type `T`, if one was set.
pub fn local<T: 'static>() -> Option<Rc<T>> {
    let value = with(|shard| shard.locals.borrow().get(&TypeId::of::<T>()).cloned())?;
    value.downcast::<T>().ok()
}
