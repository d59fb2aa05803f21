//! The way of freed heap memory back to the kernel, where the allocator is mimalloc.
//!
//! By itself mimalloc has a thread that allocates or frees return what all threads left: each stretch is a
//! system call, which on a busy machine held a shard for hundreds of milliseconds. In a server one thread
//! that is no shard does it ([`returner`]): other threads only mark their free pages. It is woken by freed
//! bytes, because memory that a burst leaves behind is to go before the next kind of work takes its own.
//! Invariant: after [`leave_pages_to_returner`] no other thread returns pages, whatever it allocates, frees
//! or tidies up.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::Thread;
use std::time::Duration;

use crate::counting::Counting;

/// `mi_option_purge_delay` of mimalloc.h: how long empty pages are kept, in ms.
const MI_OPTION_PURGE_DELAY: i32 = 15;
/// One second, the default, keeps all that a second of large requests leaves behind: hundreds of MiB,
/// measured.
const PURGE_DELAY_MS: i64 = 20;
/// 34 years: longer than any process runs. A negative delay would forbid also the thread to return pages.
const PURGE_DELAY_NEVER_MS: i64 = 1 << 40;
/// `MI_RETIRE_CYCLES` of mimalloc's `page.c`: so often is an empty page passed over before it counts as free.
const COLLECTIONS: usize = 16;

/// Freed bytes of large allocations that wake the returner.
const FREED_BYTES_MAX: usize = 4 << 20;
/// The returner looks at least as often, for small allocations do not wake it.
const LOOK: Duration = Duration::from_secs(1);
/// Pause of the returner behind each look: pages that are reused at once need not be faulted in anew.
const PAUSE: Duration = Duration::from_millis(PURGE_DELAY_MS.cast_unsigned());

/// Bytes of large allocations that were freed since the returner looked last.
static FREED_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The thread that returns pages.
static RETURNER: OnceLock<Thread> = OnceLock::new();

unsafe extern "C" {
    /// As mimalloc.h describes it.
    fn mi_collect(force: bool);
    /// As mimalloc.h describes it.
    fn mi_option_set(option: i32, value: i64);
}

/// Has mimalloc keep pages that hold nothing for a short time only. Call it once, when the program begins.
///
/// This and the functions below are only for a program whose allocator is mimalloc; generic functions, so
/// that other programs need not link it.
pub fn keep_pages_briefly<A>(_: &Counting<A>) {
    // SAFETY: it may be called by any thread at any time; the option is one that there is.
    unsafe { mi_option_set(MI_OPTION_PURGE_DELAY, PURGE_DELAY_MS) };
}

/// From now on pages go back to the kernel only by [`give_back_pages`].
pub fn leave_pages_to_returner<A>(_: &Counting<A>) {
    // SAFETY: it may be called by any thread at any time; the option is one that there is.
    unsafe { mi_option_set(MI_OPTION_PURGE_DELAY, PURGE_DELAY_NEVER_MS) };
}

/// Returns pages that hold nothing to the kernel: those of the calling thread, and those that other threads
/// have given up. A thread gives up its last free pages only when it allocates again.
pub fn give_back_pages<A>(_: &Counting<A>) {
    // SAFETY: it may be called by any thread at any time, and frees nothing that is in use.
    unsafe { mi_collect(true) };
}

/// Marks the pages of the calling thread that hold nothing as free, and wakes the returner. By itself
/// mimalloc does so only during further allocations, so that a thread that is idle after a load would keep
/// its peak.
pub fn tidy_pages<A>(_: &Counting<A>) {
    for _ in 0..COLLECTIONS {
        // SAFETY: it may be called by any thread at any time, and frees nothing that is in use.
        unsafe { mi_collect(false) };
    }
    wake();
}

/// The work of the thread that returns pages to the kernel; it never ends.
pub fn returner<A>(allocator: &Counting<A>) -> ! {
    leave_pages_to_returner(allocator);
    // A second returner would only not be woken.
    let _ = RETURNER.set(std::thread::current());
    // Loops until the process ends.
    loop {
        std::thread::park_timeout(LOOK);
        FREED_BYTES.store(0, Relaxed);
        give_back_pages(allocator);
        #[allow(clippy::disallowed_methods, reason = "no shard runs here")]
        std::thread::sleep(PAUSE);
    }
}

/// Counts a large allocation that was freed.
#[cold]
pub(crate) fn note_freed(bytes: usize) {
    let before = FREED_BYTES.fetch_add(bytes, Relaxed);
    if before < FREED_BYTES_MAX && before.saturating_add(bytes) >= FREED_BYTES_MAX {
        wake();
    }
}

fn wake() {
    if let Some(returner) = RETURNER.get() {
        returner.unpark();
    }
}
