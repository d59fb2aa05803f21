//! SIGINT and SIGTERM as a future.
//!
//! The handler notes the signal and writes to shard 0's eventfd, both safe inside a handler; the shard's loop, woken by
//! it, finds the note. Handlers are installed with the first call of [`terminated`] and stay.

use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::shard;
use crate::sync::event::Event;

static RECEIVED: AtomicU64 = AtomicU64::new(0);
static WAKE: AtomicI32 = AtomicI32::new(-1);

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
            seen: Cell::new(RECEIVED.load(Ordering::SeqCst)),
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

    /// Tells this shard that it was asked to end.
    pub(crate) fn deliver(&self) {
        self.terminated.set(true);
        self.asked.notify_all();
    }
}

extern "C" fn handle(_signal: libc::c_int) {
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
/// Call it on one shard, usually 0. A signal that came before the first call ended the process; one that comes
/// between two calls completes the second at once.
///
/// # Errors
/// When the handlers cannot be installed.
pub async fn terminated() -> std::io::Result<()> {
    let (eventfd, state) = shard::with(|shard| (shard.remote().eventfd(), shard.signals.clone()));
    if let Some(eventfd) = eventfd
        && !state.installed.replace(true)
    {
        // The handler may run at any moment, also after this shard: its descriptor is a copy that is never closed, so
        // that its number never comes to mean something else. That is one descriptor per shard that asks.
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
