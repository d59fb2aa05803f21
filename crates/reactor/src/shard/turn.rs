//! The loop: wakes from other threads and peers' messages, due timers, slices of the groups to run, then one
//! call to the driver that submits, collects and, if nothing is runnable, sleeps.
//!
//! Invariant: before a shard sleeps it has announced it and checked once more, so that no wake is lost; and
//! it does not sleep while the driver holds results back without a signal.

use std::task::{Context, Waker};

use super::Shard;
use crate::driver::{Completion, Harvest, Wait};
use crate::io;
use crate::sched::{BACKGROUND_SLICE_MIN_NS, GIVE_WAY_NS, Group, QUANTUM_NS};
use crate::waker;

/// Longest time a turn polls tasks before it calls the driver again.
const TURN_NS: u64 = 2 * QUANTUM_NS;
/// Polls of one slice after which the clock is read even if tasks are very short.
const POLLS_PER_CLOCK: u32 = 8;
/// If that many polls took longer, the clock is read after each for some time.
const LONG_POLLS_NS: u64 = 50_000;
/// Slice of unprepared requests: long enough for several, and short beside the time that prepared ones may
/// wait.
const UNPREPARED_SLICE_NS: u64 = QUANTUM_NS / 2;
/// Most rounds of dropping tasks at the end, since destructors may go on spawning tasks.
const TEARDOWN_ROUNDS_MAX: usize = 1 << 20;

impl Shard {
    /// One turn of the loop. If nothing is runnable then, and `may_sleep` (asked last) agrees, it waits in
    /// the driver.
    pub(crate) fn turn(&self, may_sleep: impl FnOnce() -> bool) {
        self.hear_others();
        self.fire_timers();
        self.dispatch_io();
        self.run_tasks();
        self.flush_closes();
        let wait = if self.sched.is_idle() && may_sleep() { self.settle() } else { Wait::No };
        self.pulse.beat();
        if wait == Wait::No {
            self.harvest(wait);
            return;
        }
        self.pulse.sleeps();
        self.harvest(wait);
        self.pulse.wakes();
        self.remote.end_sleep();
    }

    fn hear_others(&self) {
        let mut wakes = self.foreign_wakes.take();
        let news = self.remote.take(&mut wakes);
        for token in wakes.drain(..) {
            self.wake_token(token);
        }
        self.foreign_wakes.replace(wakes);
        self.signals.look();
        if news {
            self.mesh.receive(self);
        }
    }

    fn fire_timers(&self) {
        if self.timers.borrow().len() == 0 {
            return;
        }
        let now = self.now();
        if !self.timers.borrow_mut().has_due(now) {
            return;
        }
        // Wakers of this crate only push to run queues; others (a combinator's) may access the wheel, so due
        // ones are called outside the borrow, in batches that need no allocation.
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
                self.flush_driver();
            }
            let begin = now;
            self.pulse.enters(group);
            self.sched.begin_slice(group, begin);
            self.sched.slice_begin_ns.set(begin);
            let end = begin + self.slice_ns(group);
            self.sched.slice_end_ns.set(end);
            now = self.run_slice(group, begin, end);
            self.sched.end_slice(now);
            if self.poll_cost_ns.is_none() {
                self.sched.charge(group, now.saturating_sub(begin));
            }
            // After background work the driver is called in any case: not every driver can check for
            // completions without a call.
            let look = group.is_background() || self.poll_cost_ns.is_some();
            if look || now >= turn_end || self.driver.borrow().completions_pending() {
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

    /// Longest slice of `group`: short for a background group while foreground work waits.
    fn slice_ns(&self, group: Group) -> u64 {
        if group == Group::UNPREPARED {
            UNPREPARED_SLICE_NS
        } else if !group.is_background() {
            QUANTUM_NS
        } else if self.sched.foreground_waits() {
            self.background_slice_ns.min(GIVE_WAY_NS)
        } else {
            self.background_slice_ns
        }
    }

    /// Whether a background slice should end: completions are pending, a peer has sent something, or a task
    /// of the foreground was woken meanwhile. Loads of memory only.
    pub(crate) fn others_arrived(&self) -> bool {
        self.sched.foreground_arrived()
            || self.remote.is_notified()
            || self.driver.borrow().completions_pending()
    }

    /// Polls tasks of one group until its slice is over or its queue empty; the time then.
    fn run_slice(&self, group: Group, begin: u64, end: u64) -> u64 {
        let usage = &self.sched.usage[group.0 as usize];
        let background = group.is_background();
        let mut now = begin;
        let (mut polls, mut until_clock) = (0, if background { 1 } else { POLLS_PER_CLOCK });
        while let Some(index) = self.sched.pop(group) {
            self.poll_task(index);
            polls += 1;
            if let Some(cost) = self.poll_cost_ns {
                self.sched.charge(group, cost);
                usage.held(cost, u64::from(polls));
                return now;
            }
            if polls < until_clock {
                continue;
            }
            let before = std::mem::replace(&mut now, self.now().0);
            let held = now - before;
            usage.held(held, u64::from(std::mem::take(&mut polls)));
            if now >= end {
                return now;
            }
            if background {
                if now - begin >= BACKGROUND_SLICE_MIN_NS && self.others_arrived() {
                    if held > GIVE_WAY_NS {
                        usage.late.set(usage.late.get() + 1);
                    }
                    return now;
                }
            } else {
                until_clock = if held > LONG_POLLS_NS { 1 } else { POLLS_PER_CLOCK };
            }
        }
        if polls > 0 {
            let before = std::mem::replace(&mut now, self.now().0);
            usage.held(now - before, u64::from(polls));
        }
        now
    }

    /// Polls the task at `index` once; its slot is empty afterwards if it was done.
    pub(super) fn poll_task(&self, index: u32) {
        let Some((task, generation)) = self.tasks.begin(index) else { return };
        let waker = waker::waker(self.home.0, generation, index);
        let before = self.sched.current.replace(task.header().group.get());
        let outer_task = self.current_task.replace(Some(task));
        let outer = self.pulse.begin_poll(task.identity());
        self.polls.set(self.polls.get() + 1);
        // SAFETY: the slab holds the task until it is done. Polls nest only where a task starts one that is
        // new, so this one is not being polled.
        let done = unsafe { task.poll(&mut Context::from_waker(&waker)) };
        self.pulse.end_poll(outer);
        self.sched.current.set(before);
        self.current_task.set(outer_task);
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
                self.pulse.beat();
                self.harvest(Wait::No);
                let due = self.io.borrow().next_try_ns().is_some_and(|at| at <= self.now().0);
                if due || self.remote.is_notified() || !self.sched.is_idle() {
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
        if wait != Wait::No {
            self.sched.clock_ns.set(self.now().0);
        }
        self.settle_charges(&mut harvest);
        for completion in harvest.completions.drain(..) {
            self.complete(completion);
        }
        for waker in harvest.wakes.drain(..) {
            waker.wake();
        }
        self.harvest.replace(harvest);
    }

    pub(super) fn complete(&self, completion: Completion) {
        if io::is_scheduled(&completion.op) {
            self.io.borrow_mut().depart(completion.id, self.now().0);
        }
        let (waker, left_over) = self.ops.borrow_mut().complete(completion);
        if let Some(waker) = waker {
            waker.wake();
        }
        drop(left_over);
    }

    /// Hands submissions that are still queued to the kernel.
    pub(crate) fn flush_driver(&self) {
        let mut harvest = self.harvest.borrow_mut();
        self.driver.borrow_mut().flush(&mut harvest);
        self.settle_charges(&mut harvest);
    }

    fn settle_charges(&self, harvest: &mut Harvest) {
        for (number, ns) in harvest.charges_ns.iter_mut().enumerate() {
            if *ns > 0 {
                self.sched.charge(Group(number as u8), *ns);
                *ns = 0;
            }
        }
    }

    /// Drops all tasks, and closes the descriptors they leave.
    pub(crate) fn drop_tasks(&self) {
        for _ in 0..TEARDOWN_ROUNDS_MAX {
            let Some(index) = self.tasks.any() else { break };
            if let Some(task) = self.tasks.remove(index) {
                // SAFETY: the task was in the slab, is not being polled, and is not done: done tasks leave at
                // once.
                unsafe { task.cancel() };
                task.leave_slab();
            }
        }
        let locals = self.locals.take();
        drop(locals);
        // Operations that change the disk run to their end, even if they still wait in the queue.
        self.io.borrow_mut().drain();
        self.dispatch_io();
        self.flush_closes();
    }

    /// Drops all tasks, then waits for the operations the kernel still works on.
    pub(crate) fn tear_down(&self) {
        self.drop_tasks();
        let deadline = self.now() + std::time::Duration::from_secs(5);
        while self.ops.borrow().in_flight() > 0 && self.now() < deadline {
            // Told already, a helper thread would not wake the shard for its next result.
            let wait = if self.remote.prepare_sleep() { Wait::Until(deadline) } else { Wait::No };
            self.harvest(wait);
            self.remote.end_sleep();
            self.remote.take(&mut Vec::new());
            self.flush_closes();
        }
    }
}
