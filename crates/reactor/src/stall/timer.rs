//! The timer of a watched thread and the handler of its signal.
//!
//! The timer belongs to the thread (SIGEV_THREAD_ID), is periodic, and is stopped by the handler when it
//! finds the thread asleep; the loop starts it again when it next polls a task. So a busy core takes two
//! signals per threshold (some 2 us each), a core that wakes from time to time one signal and one
//! timer_settime per sleep, an idle one nothing. Invariant: `on_tick` is async-signal-safe: stores, loads,
//! clock_gettime, getrusage, timer_settime, write, and the unwinder, which glibc runs without a lock; it
//! leaves `errno` unchanged.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::Ordering;

use super::{FRAMES_MAX, NO_GROUP, Pulse, StallDetector, StallKind, reporter};
use crate::driver::ambient::monotonic_ns;

thread_local! {
    static PULSE: Cell<*const Pulse> = const { Cell::new(ptr::null()) };
}

/// Least threshold: below it the signals themselves would be felt.
const THRESHOLD_NS_MIN: u64 = 1_000_000;
const MINUTE_NS: u64 = 60_000_000_000;

/// The detector's own signal.
pub(crate) fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 3
}

/// Watches the calling thread's shard until dropped.
pub(crate) struct Watch {
    pulse: Arc<Pulse>,
}

impl Watch {
    /// # Errors
    /// When the kernel refuses the timer or the reporter has no thread.
    pub(crate) fn start(pulse: Arc<Pulse>, detector: StallDetector) -> io::Result<Watch> {
        reporter::register(&pulse, detector.report, detector.inlined)?;
        install_handler()?;
        // The unwinder prepares itself at its first use: not in the handler.
        collect(0, |_| {});
        let threshold_ns = u64::try_from(detector.threshold.as_nanos()).unwrap_or(u64::MAX);
        pulse.threshold_ns.store(threshold_ns.max(THRESHOLD_NS_MIN), Ordering::Relaxed);
        pulse.per_minute.store(detector.reports_per_minute, Ordering::Relaxed);
        let timer = create()?;
        PULSE.with(|current| current.set(Arc::as_ptr(&pulse)));
        pulse.timer.store(timer, Ordering::Relaxed);
        pulse.watched.store(true, Ordering::Relaxed);
        arm(&pulse);
        Ok(Watch { pulse })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.pulse.watched.store(false, Ordering::Relaxed);
        let timer = self.pulse.timer.load(Ordering::Relaxed);
        // SAFETY: the timer was created by `start` and is deleted once. A signal already on its way finds no
        // pulse.
        unsafe { libc::timer_delete(timer) };
        PULSE.with(|current| current.set(ptr::null()));
    }
}

fn create() -> io::Result<libc::timer_t> {
    // SAFETY: all zeros is a valid sigevent.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = signal();
    event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
    let mut timer: libc::timer_t = ptr::null_mut();
    // SAFETY: both pointers are to locals that outlive the call.
    let failed = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) } != 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(timer) }
}

fn install_handler() -> io::Result<()> {
    static INSTALL: Once = Once::new();
    let mut outcome = Ok(());
    INSTALL.call_once(|| {
        // SAFETY: all zeros is a valid sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_tick as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void)
            as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the handler is async-signal-safe, see above, and has the signature SA_SIGINFO asks for.
        if unsafe { libc::sigaction(signal(), &action, ptr::null_mut()) } != 0 {
            outcome = Err(io::Error::last_os_error());
        }
    });
    outcome
}

fn set(pulse: &Pulse, period_ns: u64) {
    let period = libc::timespec {
        tv_sec: (period_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (period_ns % 1_000_000_000) as _,
    };
    let every = libc::itimerspec { it_interval: period, it_value: period };
    // SAFETY: the timer lives as long as it stands in the pulse; the specification is a local.
    unsafe { libc::timer_settime(pulse.timer.load(Ordering::Relaxed), 0, &every, ptr::null_mut()) };
}

/// Starts the timer. If that fails, the thread is only not watched.
pub(super) fn arm(pulse: &Pulse) {
    pulse.armed.store(true, Ordering::Relaxed);
    set(pulse, pulse.threshold_ns.load(Ordering::Relaxed) / 2);
}

extern "C" fn on_tick(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let current = PULSE.with(Cell::get);
    // SAFETY: the pulse is kept by the thread's `Watch`, which takes the pointer away before it goes.
    let Some(pulse) = (unsafe { current.as_ref() }) else { return };
    // SAFETY: gives the address of this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: just given, and this thread's own.
    let before = unsafe { *errno };
    pulse.ticks.fetch_add(1, Ordering::Relaxed);
    if pulse.asleep.load(Ordering::Relaxed) {
        set(pulse, 0);
        pulse.armed.store(false, Ordering::Relaxed);
    } else {
        pulse.tick(program_counter(context));
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

impl Pulse {
    /// Checks whether the loop made progress since the previous tick.
    fn tick(&self, counter: usize) {
        let seen = &self.seen;
        let (now_ns, beat) = (monotonic_ns(), self.beats.load(Ordering::Relaxed));
        let (cpu_ns, sleeps) = usage();
        if beat != seen.beat.load(Ordering::Relaxed) {
            seen.beat.store(beat, Ordering::Relaxed);
            seen.at_ns.store(now_ns, Ordering::Relaxed);
            seen.cpu_ns.store(cpu_ns, Ordering::Relaxed);
            seen.sleeps.store(sleeps, Ordering::Relaxed);
            seen.counted.store(0, Ordering::Relaxed);
            seen.next_ns.store(self.threshold_ns.load(Ordering::Relaxed), Ordering::Relaxed);
            return;
        }
        let held_ns = now_ns.saturating_sub(seen.at_ns.load(Ordering::Relaxed));
        if held_ns < seen.next_ns.load(Ordering::Relaxed) {
            return;
        }
        // The same stall is reported again only when it has become twice as long.
        seen.next_ns.store(held_ns.saturating_mul(2), Ordering::Relaxed);
        let on_cpu_ns = cpu_ns.saturating_sub(seen.cpu_ns.load(Ordering::Relaxed));
        let slept = sleeps > seen.sleeps.load(Ordering::Relaxed);
        // A task that used the threshold's time itself is the cause, however much time others took besides
        // it.
        let was_off = on_cpu_ns * 2 < held_ns && on_cpu_ns < self.threshold_ns.load(Ordering::Relaxed);
        let kind = if was_off && !slept {
            StallKind::Preempted
        } else if was_off || in_system_call(counter) {
            StallKind::Kernel
        } else {
            StallKind::Task
        };
        // A continuing stall counts once for each of its causes: the CPU may be taken from a task that
        // computes.
        let counted = seen.counted.load(Ordering::Relaxed);
        if counted & (1 << kind as u8) == 0 {
            seen.counted.store(counted | 1 << kind as u8, Ordering::Relaxed);
            self.detected[kind as usize].fetch_add(1, Ordering::Relaxed);
        }
        if kind != StallKind::Preempted {
            self.hand_over(kind, now_ns, held_ns, counter);
        }
    }

    fn hand_over(&self, kind: StallKind, now_ns: u64, held_ns: u64, counter: usize) {
        let seen = &self.seen;
        let minute = now_ns / MINUTE_NS;
        if seen.minute.swap(minute, Ordering::Relaxed) != minute {
            seen.in_minute.store(0, Ordering::Relaxed);
        }
        let allowed = seen.in_minute.load(Ordering::Relaxed) < self.per_minute.load(Ordering::Relaxed);
        if !allowed || self.slot.full.load(Ordering::Acquire) {
            seen.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        seen.in_minute.fetch_add(1, Ordering::Relaxed);
        let slot = &self.slot;
        let task = self.task.load(Ordering::Relaxed);
        let group = if task.is_null() { NO_GROUP } else { self.group.load(Ordering::Relaxed) };
        slot.held_ns.store(held_ns, Ordering::Relaxed);
        slot.kind.store(kind as u8, Ordering::Relaxed);
        slot.group.store(group, Ordering::Relaxed);
        slot.task.store(task, Ordering::Relaxed);
        slot.left_out.store(seen.left_out.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        let mut count = 0;
        collect(counter, |address| {
            slot.frames[count].store(address, Ordering::Relaxed);
            count += 1;
        });
        slot.count.store(count, Ordering::Relaxed);
        slot.full.store(true, Ordering::Release);
        self.reported.fetch_add(1, Ordering::Relaxed);
        reporter::call();
    }
}

/// Addresses from `counter`, at which the signal came in, outwards; at most as many as a slot holds.
fn collect(counter: usize, mut take: impl FnMut(usize)) {
    let (mut inside, mut count) = (false, 0);
    let mut frame = |address: usize| {
        inside |= address == counter;
        if inside {
            take(address);
            count += 1;
        }
        count < FRAMES_MAX
    };
    if cfg!(target_env = "gnu") {
        // SAFETY: asks that nobody else uses it at once for its cache of symbols, which collecting does not
        // touch.
        unsafe { backtrace::trace_unsynchronized(|at| frame(at.ip().addr())) };
    } else {
        // Elsewhere the unwinder takes locks that the interrupted code may hold: only the innermost function
        // is reported.
        frame(counter);
    }
}

/// The thread's CPU time in nanoseconds, and how often it has gone to sleep by itself.
fn usage() -> (u64, u64) {
    // The clock, not getrusage's times: those are updated only at the kernel's tick, every 4 ms or less
    // often.
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a local of the right type.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: all zeros is a valid value, and the call writes only such.
    let usage = unsafe { usage.assume_init() };
    (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64, usage.ru_nvcsw as u64)
}

#[cfg(target_arch = "x86_64")]
fn program_counter(context: *mut libc::c_void) -> usize {
    // SAFETY: with SA_SIGINFO the third argument is the interrupted context.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

#[cfg(target_arch = "aarch64")]
fn program_counter(context: *mut libc::c_void) -> usize {
    // SAFETY: with SA_SIGINFO the third argument is the interrupted context.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.pc as usize
}

/// Whether the signal arrived in a system call: the counter is then behind its instruction, or on it if the
/// call will be restarted.
fn in_system_call(counter: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    const INSTRUCTION: [u8; 2] = [0x0f, 0x05];
    #[cfg(target_arch = "aarch64")]
    const INSTRUCTION: [u8; 4] = [0x01, 0x00, 0x00, 0xd4];
    const LENGTH: usize = INSTRUCTION.len();
    // Both places on one page, which is mapped: the thread was about to execute it.
    if !(LENGTH..4096 - LENGTH).contains(&(counter % 4096)) {
        return false;
    }
    [counter - LENGTH, counter].into_iter().any(|address| {
        let code = ptr::with_exposed_provenance::<[u8; LENGTH]>(address);
        // SAFETY: bytes of the page the thread is executing.
        unsafe { code.read_unaligned() == INSTRUCTION }
    })
}
