//! A shard: one core's tasks, timers, operations and peers, and the loop that turns them.
//!
//! One turn: foreign wakes and peers' messages, due timers, slices of the groups that are owed time, then one
//! call to the driver that submits, collects and, if nothing is runnable, sleeps.
//! Invariant: no borrow of the shard's cells is held while a task is polled, a waker is called or anything of a
//! user is dropped: all of these may come back in.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::driver::{Completion, Driver, Handle, HandleKind, Harvest, ListenOptions, Op, OpId, Output, Wait};
use crate::file::buffer::BufferPool;
use crate::log::LogState;
use crate::mesh::MeshEnd;
use crate::metrics::Registry;
use crate::op::OpTable;
use crate::sched::{BACKGROUND_SLICE_MIN_NS, Group, QUANTUM_NS, Sched};
use crate::signal::SignalState;
use crate::task::pool::TaskPool;
use crate::task::slab::Slab;
use crate::task::{self, JoinHandle};
use crate::time::Instant;
use crate::timer::Wheel;
use crate::waker::{self, Home, Remote};

/// Longest time a turn polls tasks before it looks at the driver again.
const TURN_NS: u64 = 2 * QUANTUM_NS;
/// Polls of one slice after which the clock is read even if tasks are very short.
const POLLS_PER_CLOCK: u32 = 8;
/// Rounds of dropping tasks at the end; destructors that go on spawning tasks are cut off after these.
const TEARDOWN_ROUNDS_MAX: usize = 1 << 20;

pub(crate) struct Shard {
    pub(crate) id: usize,
    pub(crate) count: usize,
    pub(crate) sched: Sched,
    pub(crate) timers: RefCell<Wheel>,
    pub(crate) ops: RefCell<OpTable>,
    pub(crate) mesh: MeshEnd,
    pub(crate) metrics: Registry,
    pub(crate) log: LogState,
    pub(crate) buffers: Rc<BufferPool>,
    pub(crate) signals: Rc<SignalState>,
    pub(crate) disk: crate::file::DiskCounters,
    remote: Arc<Remote>,
    home: Home,
    tasks: Slab,
    task_pool: Rc<TaskPool>,
    driver: RefCell<Box<dyn Driver>>,
    driver_name: &'static str,
    poll_cost_ns: Option<u64>,
    harvest: RefCell<Harvest>,
    foreign_wakes: RefCell<Vec<u64>>,
    closes: RefCell<Vec<(i32, HandleKind)>>,
    locals: RefCell<BTreeMap<TypeId, Rc<dyn Any>>>,
    panics: Cell<u64>,
    polls: Cell<u64>,
    spin_ns: u64,
}

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

/// What a new shard is made of.
pub(crate) struct Parts {
    pub(crate) id: usize,
    pub(crate) count: usize,
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) remote: Arc<Remote>,
    pub(crate) mesh: MeshEnd,
    pub(crate) pool_bytes_max: usize,
    pub(crate) spin_us: u32,
}

impl Shard {
    pub(crate) fn new(parts: Parts) -> Rc<Self> {
        let now = parts.driver.now();
        Rc::new(Self {
            id: parts.id,
            count: parts.count,
            sched: Sched::new(),
            timers: RefCell::new(Wheel::new(now)),
            ops: RefCell::new(OpTable::new()),
            mesh: parts.mesh,
            metrics: Registry::new(),
            log: LogState::new(),
            buffers: BufferPool::new(parts.pool_bytes_max),
            signals: Rc::new(SignalState::new()),
            disk: crate::file::DiskCounters::new(),
            home: Home::register(parts.remote.clone()),
            remote: parts.remote,
            tasks: Slab::new(),
            task_pool: Rc::new(TaskPool::new()),
            driver_name: parts.driver.name(),
            poll_cost_ns: parts.driver.poll_cost_ns(),
            driver: RefCell::new(parts.driver),
            harvest: RefCell::new(Harvest::default()),
            foreign_wakes: RefCell::new(Vec::new()),
            closes: RefCell::new(Vec::new()),
            locals: RefCell::new(BTreeMap::new()),
            panics: Cell::new(0),
            polls: Cell::new(0),
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

    pub(crate) fn entropy(&self) -> u64 {
        self.driver.borrow_mut().entropy()
    }

    pub(crate) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn panics(&self) -> u64 {
        self.panics.get()
    }

    /// Polls of tasks so far.
    pub(crate) fn polls(&self) -> u64 {
        self.polls.get()
    }

    pub(crate) fn spawn<F: Future + 'static>(&self, group: Group, future: F) -> JoinHandle<F::Output> {
        let (task, handle) = task::create(&self.task_pool, group, future);
        let (index, _) = self.tasks.insert(task);
        self.sched.push(group, index);
        handle
    }

    pub(crate) fn wake_token(&self, token: u64) {
        let (generation, index) = waker::split(token);
        if let Some(task) = self.tasks.queue(index, generation) {
            self.sched.push(task.header().group, index);
        }
    }

    pub(crate) fn note_panic(&self, group: Group, message: &str) {
        self.panics.set(self.panics.get() + 1);
        crate::error!("a task panicked: {}", message; group = group.name());
    }

    pub(crate) fn need_preempt(&self) -> bool {
        if self.poll_cost_ns.is_some() {
            // Simulated: one question in eight is answered with yes, so that every loop is cut somewhere.
            return self.driver.borrow_mut().choose(8) == Some(0);
        }
        let now = self.now().0;
        if now >= self.sched.slice_end_ns.get() {
            return true;
        }
        self.sched.current.get().is_background()
            && now - self.sched.slice_begin_ns.get() >= BACKGROUND_SLICE_MIN_NS
            && self.driver.borrow().completions_pending()
    }

    pub(crate) fn submit(&self, id: OpId, op: Op, group: Group) -> Option<(Op, io::Result<Output>)> {
        self.disk.count(group, &op);
        self.driver.borrow_mut().submit(id, op, group)
    }

    pub(crate) fn cancel(&self, id: OpId) {
        self.driver.borrow_mut().cancel(id);
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
        // A driver that logs while it works finds itself borrowed; such a line goes to standard error.
        self.driver.try_borrow_mut().is_ok_and(|mut driver| driver.log_line(line))
    }

    /// Whether a turn would find something to do without waiting.
    pub(crate) fn is_runnable(&self) -> bool {
        !self.sched.is_idle() || self.remote.is_notified() || !self.closes.borrow().is_empty()
    }

    /// The next timer.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.borrow().next()
    }

    /// One turn of the loop. If nothing is runnable then, and `may_sleep` (asked last) agrees, it waits in the driver.
    pub(crate) fn turn(&self, may_sleep: impl FnOnce() -> bool) {
        self.hear_others();
        self.fire_timers();
        self.run_tasks();
        self.flush_closes();
        let wait = if self.sched.is_idle() && may_sleep() { self.settle() } else { Wait::No };
        self.harvest(wait);
        if wait != Wait::No {
            self.remote.end_sleep();
        }
    }

    fn hear_others(&self) {
        let mut wakes = self.foreign_wakes.take();
        self.remote.take(&mut wakes);
        for token in wakes.drain(..) {
            self.wake_token(token);
        }
        self.foreign_wakes.replace(wakes);
        self.signals.look();
        self.mesh.receive(self);
    }

    fn fire_timers(&self) {
        if self.timers.borrow().len() == 0 {
            return;
        }
        let now = self.now();
        // Our wakers only push to run queues; others (a combinator's) may come back for the wheel, so the due ones
        // are called outside the borrow, in batches that need no memory of their own.
        loop {
            let mut batch: [Option<Waker>; 32] = [const { None }; 32];
            let mut count = 0;
            self.timers.borrow_mut().advance(now, batch.len(), |waker| {
                batch[count] = Some(waker);
                count += 1;
            });
            for waker in batch[..count].iter_mut().filter_map(Option::take) {
                waker.wake();
            }
            if count < batch.len() {
                return;
            }
        }
    }

    fn run_tasks(&self) {
        let mut now = self.now().0;
        let turn_end = now + TURN_NS;
        while let Some(group) = self.choose_group() {
            if group.is_background() {
                let mut harvest = self.harvest.borrow_mut();
                self.driver.borrow_mut().flush(&mut harvest);
                self.settle_charges(&mut harvest);
            }
            let begin = now;
            self.sched.slice_begin_ns.set(begin);
            self.sched.slice_end_ns.set(begin + QUANTUM_NS);
            now = self.run_slice(group, begin);
            if self.poll_cost_ns.is_none() {
                self.sched.charge(group, now.saturating_sub(begin));
            }
            if now >= turn_end || self.poll_cost_ns.is_some() || self.driver.borrow().completions_pending() {
                break;
            }
        }
        self.sched.slice_end_ns.set(0);
    }

    fn choose_group(&self) -> Option<Group> {
        if self.sched.is_idle() {
            return None;
        }
        if self.poll_cost_ns.is_some() {
            let mut driver = self.driver.borrow_mut();
            let runnable = self.sched.runnable_groups();
            let group = if driver.choose(8) == Some(0) {
                driver.choose(runnable).and_then(|number| self.sched.nth_runnable(number))
            } else {
                None
            };
            let group = group.or_else(|| self.sched.next_group())?;
            if driver.choose(8) == Some(0) {
                let by = driver.entropy();
                self.sched.rotate(group, by);
            }
            return Some(group);
        }
        self.sched.next_group()
    }

    /// Polls tasks of one group until its slice is over or its queue empty; the time then.
    fn run_slice(&self, group: Group, begin: u64) -> u64 {
        let end = begin + QUANTUM_NS;
        let mut now = begin;
        let mut until_clock = POLLS_PER_CLOCK;
        while let Some(index) = self.sched.pop(group) {
            self.poll_task(index);
            if let Some(cost) = self.poll_cost_ns {
                self.sched.charge(group, cost);
                break;
            }
            until_clock -= 1;
            if until_clock == 0 {
                until_clock = POLLS_PER_CLOCK;
                now = self.now().0;
                if now >= end {
                    return now;
                }
            }
            if group.is_background() {
                now = self.now().0;
                if now >= end
                    || (now - begin >= BACKGROUND_SLICE_MIN_NS && self.driver.borrow().completions_pending())
                {
                    return now;
                }
            }
        }
        now = now.max(self.now().0);
        now
    }

    fn poll_task(&self, index: u32) {
        let Some((task, generation)) = self.tasks.begin(index) else { return };
        let waker = waker::waker(self.home.0, generation, index);
        self.sched.current.set(task.header().group);
        self.polls.set(self.polls.get() + 1);
        // SAFETY: the slab holds the task until it is done, and `run_slice` is not entered from within a poll.
        let done = unsafe { task.poll(&mut Context::from_waker(&waker)) };
        self.sched.current.set(Group::ADMIN);
        if done && let Some(task) = self.tasks.remove(index) {
            task.leave_slab();
        }
    }

    fn flush_closes(&self) {
        if self.closes.borrow().is_empty() {
            return;
        }
        let mut closes = self.closes.take();
        for (descriptor, kind) in closes.drain(..) {
            self.driver.borrow_mut().close(descriptor, kind);
        }
        // Whatever was added meanwhile stays; the memory is kept for next time.
        let mut current = self.closes.borrow_mut();
        closes.append(&mut current);
        *current = closes;
    }

    /// Nothing is runnable: spins for a while if configured, then announces sleep.
    fn settle(&self) -> Wait {
        if self.spin_ns > 0 {
            let end = self.now().0 + self.spin_ns;
            while self.now().0 < end {
                if self.remote.is_notified() || self.driver.borrow().completions_pending() {
                    return Wait::No;
                }
                std::hint::spin_loop();
            }
        }
        if !self.remote.prepare_sleep() {
            return Wait::No;
        }
        match self.next_timer() {
            Some(at) => Wait::Until(at),
            None => Wait::Forever,
        }
    }

    fn harvest(&self, wait: Wait) {
        let mut harvest = self.harvest.take();
        self.driver.borrow_mut().poll(wait, &mut harvest);
        self.settle_charges(&mut harvest);
        for completion in harvest.completions.drain(..) {
            self.complete(completion);
        }
        self.harvest.replace(harvest);
    }

    fn complete(&self, completion: Completion) {
        let (waker, left_over) = self.ops.borrow_mut().complete(completion);
        if let Some(waker) = waker {
            waker.wake();
        }
        drop(left_over);
    }

    fn settle_charges(&self, harvest: &mut Harvest) {
        for (number, ns) in harvest.charges_ns.iter_mut().enumerate() {
            if *ns > 0 {
                self.sched.charge(Group(number as u8), *ns);
                *ns = 0;
            }
        }
    }

    /// Drops all tasks and what they have left to be closed.
    pub(crate) fn drop_tasks(&self) {
        for _ in 0..TEARDOWN_ROUNDS_MAX {
            let Some(index) = self.tasks.any() else { break };
            if let Some(task) = self.tasks.remove(index) {
                // SAFETY: the task was in the slab, is not being polled, and is not done: done tasks leave at once.
                unsafe { task.cancel() };
                task.leave_slab();
            }
        }
        let locals = self.locals.take();
        drop(locals);
        self.flush_closes();
    }

    /// Drops all tasks, then waits for the operations the kernel still works on.
    pub(crate) fn tear_down(&self) {
        self.drop_tasks();
        let deadline = self.now() + std::time::Duration::from_secs(5);
        while self.ops.borrow().in_flight() > 0 && self.now() < deadline {
            self.remote.prepare_sleep();
            self.harvest(Wait::Until(deadline));
            self.remote.end_sleep();
            self.remote.take(&mut Vec::new());
            self.flush_closes();
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
