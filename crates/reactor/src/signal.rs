//! Signals: SIGINT and SIGTERM as a future, and all signals as values for a thread beside the shards.
//!
//! A small program only calls [`terminated`]: its first call installs a handler, which notes the signal and
//! writes to shard 0's eventfd, both safe inside a handler; the shard's loop, woken by it, finds the note. A
//! process that wants to decide about every signal calls [`take`] before it starts threads: all signals that
//! would end it are blocked from then on, in every thread, and [`Taken::next`] hands them out. It passes an
//! end on by [`terminate`]. Invariant: signals that report a fault of the program (SIGSEGV and its like) and
//! the stall detector's own are never taken.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use crate::shard;
use crate::sync::event::Event;

static RECEIVED: AtomicU64 = AtomicU64::new(0);
static WAKE: AtomicI32 = AtomicI32::new(-1);
/// Whether signals come through [`take`]. If so, a request to end from before a shard existed counts for that
/// shard too.
static TAKEN: AtomicBool = AtomicBool::new(false);

pub(crate) struct SignalState {
    asked: Event,
    seen: Cell<u64>,
    terminated: Cell<bool>,
    installed: Cell<bool>,
}

impl SignalState {
    pub(crate) fn new() -> Self {
        Self {
            asked: Event::new(),
            seen: Cell::new(if TAKEN.load(Ordering::SeqCst) { 0 } else { RECEIVED.load(Ordering::SeqCst) }),
            terminated: Cell::new(false),
            installed: Cell::new(false),
        }
    }

    /// Looks for a signal that the handler has noted.
    pub(crate) fn look(&self) {
        if WAKE.load(Ordering::Relaxed) < 0 {
            return;
        }
        let received = RECEIVED.load(Ordering::SeqCst);
        if received != self.seen.get() {
            self.seen.set(received);
            self.deliver();
        }
    }

    /// Marks this shard as asked to end, and wakes its waiters.
    pub(crate) fn deliver(&self) {
        self.terminated.set(true);
        self.asked.notify_all();
    }
}

extern "C" fn handle(_signal: libc::c_int) {
    terminate();
}

/// Asks the shards to end: [`terminated`] completes. From any thread.
pub fn terminate() {
    RECEIVED.fetch_add(1, Ordering::SeqCst);
    let wake = WAKE.load(Ordering::SeqCst);
    if wake >= 0 {
        let one = 1u64.to_ne_bytes();
        // SAFETY: has no preconditions.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: errno's address is valid for the life of the thread, and only this thread uses it.
        let errno = unsafe { &mut *errno };
        let saved = *errno;
        // SAFETY: write(2) is async-signal-safe and the buffer lives on this stack.
        unsafe { libc::write(wake, one.as_ptr().cast(), one.len()) };
        *errno = saved;
    }
}

/// Completes when the process was asked to end: SIGINT or SIGTERM, or the simulation's word.
///
/// Call it on one shard, usually 0. A signal that came before the first call ended the process; one that
/// comes between two calls completes the second at once. If all signals are taken ([`take`]) it completes
/// by [`terminate`].
///
/// # Errors
/// When the handlers cannot be installed.
pub async fn terminated() -> std::io::Result<()> {
    let (eventfd, state) = shard::with(|shard| (shard.remote().eventfd(), shard.signals.clone()));
    if let Some(eventfd) = eventfd
        && !state.installed.replace(true)
    {
        // The handler may run at any moment, also after this shard: its descriptor is a copy that is never
        // closed, so that its number never comes to mean something else. That is one descriptor per shard
        // that asks.
        let copy = duplicate(eventfd)?;
        WAKE.store(copy, Ordering::SeqCst);
        for signal in [libc::SIGINT, libc::SIGTERM] {
            install(signal)?;
        }
    }
    state.look();
    state.asked.wait_until(|| state.terminated.get()).await;
    state.terminated.set(false);
    Ok(())
}

fn duplicate(descriptor: i32) -> std::io::Result<i32> {
    // SAFETY: a plain system call on a descriptor that the shard keeps open.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 { Err(std::io::Error::last_os_error()) } else { Ok(copy) }
}

fn install(signal: libc::c_int) -> std::io::Result<()> {
    // SAFETY: a zeroed sigaction is valid: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the action is initialised and its handler does only what a handler may.
    let result = unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// SIGHUP.
pub const HANGUP: i32 = libc::SIGHUP;
/// SIGINT.
pub const INTERRUPT: i32 = libc::SIGINT;
/// SIGQUIT.
pub const QUIT: i32 = libc::SIGQUIT;
/// SIGTERM.
pub const TERMINATE: i32 = libc::SIGTERM;
/// SIGPWR: the power fails.
pub const POWER: i32 = libc::SIGPWR;
/// SIGXCPU: a limit on processor time is near.
pub const PROCESSOR_TIME: i32 = libc::SIGXCPU;

/// The signals of [`take`] with their names; all end a process that does nothing about them. Those in real
/// time come on top.
const NAMED: [(i32, &str); 13] = [
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGSTKFLT, "SIGSTKFLT"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGVTALRM, "SIGVTALRM"),
    (libc::SIGPROF, "SIGPROF"),
    (libc::SIGIO, "SIGIO"),
    (libc::SIGPWR, "SIGPWR"),
];

/// All signals that would end the process, for one thread to hand out.
pub struct Taken {
    set: libc::sigset_t,
}

/// A signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// The process that sent it; `None` for the kernel.
    pub sender: Option<u32>,
}

impl std::fmt::Display for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match NAMED.iter().find(|(signal, _)| *signal == self.signal) {
            Some((_, name)) => write!(f, "{name}")?,
            None => write!(f, "signal {}", self.signal)?,
        }
        self.sender.map_or(Ok(()), |sender| write!(f, " of process {sender}"))
    }
}

/// Blocks every signal that would end the process, in this thread and those it starts later; they wait for
/// [`Taken::next`]. SIGPIPE and SIGXFSZ are ignored: the write that causes one fails with an error of its
/// own.
///
/// Call it before other threads start, once in the life of a process.
///
/// # Errors
/// When the system refuses the mask.
pub fn take() -> io::Result<Taken> {
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: a plain system call; ignoring a signal runs no code.
        if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is to a local of the right type, which the call initialises.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: just initialised.
    let mut set = unsafe { set.assume_init() };
    let of_real_time =
        (libc::SIGRTMIN()..=libc::SIGRTMAX()).filter(|signal| *signal != crate::stall::signal());
    for signal in NAMED.iter().map(|(signal, _)| *signal).chain(of_real_time) {
        // SAFETY: the set is initialised; an unknown number only makes the call fail.
        if unsafe { libc::sigaddset(&mut set, signal) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the set is initialised, and the mask before is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } {
        0 => {
            TAKEN.store(true, Ordering::SeqCst);
            Ok(Taken { set })
        }
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

impl Taken {
    /// Waits for the next signal, at most for `time`. Holds the thread: not for a shard's.
    ///
    /// # Errors
    /// When the system refuses to wait.
    pub fn next(&self, time: Duration) -> io::Result<Option<Received>> {
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: time.subsec_nanos() as _,
        };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: all three pointers are to initialised values that outlive the call.
        let signal = unsafe { libc::sigtimedwait(&self.set, info.as_mut_ptr(), &time) };
        if signal < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: all zeros is a valid value, and the call has filled it in.
        let info = unsafe { info.assume_init() };
        let of_a_process = [libc::SI_USER, libc::SI_QUEUE, libc::SI_TKILL].contains(&info.si_code);
        // SAFETY: signals of these codes carry the sender.
        let sender = of_a_process.then(|| unsafe { info.si_pid() });
        Ok(Some(Received { signal, sender: sender.and_then(|pid| u32::try_from(pid).ok()) }))
    }
}

/// Ends the process at once: nothing is flushed, no other thread is waited for.
pub fn end_process(code: i32) -> ! {
    // SAFETY: a plain system call that does not return.
    unsafe { libc::_exit(code) }
}
