//! Wakers that are plain integers, and the delivery of wakes to a shard from other threads.
//!
//! A waker is 64 bits: home (16) | generation (24) | index (24). It holds no pointer and no count, so cloning
//! and dropping are free and a stale one is harmless: the generation no longer matches. A wake on the shard's
//! own thread goes straight into a run queue; any other goes through the home's [`Remote`], the only place of
//! this crate where threads share memory besides the mesh's rings.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, RwLock};
use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::shard;
use crate::task::slab::{GENERATION_BITS, INDEX_BITS};

const HOME_SHIFT: u32 = INDEX_BITS + GENERATION_BITS;
/// Shards that may live in one process at a time, simulated ones included.
const HOMES_MAX: usize = 1 << 16;

/// The state of a shard that other threads may access.
pub(crate) struct Remote {
    /// Set by the shard before it sleeps; the thread that clears it has to signal the shard.
    sleeping: AtomicBool,
    /// Whether something was put into `inbox`, or a peer has something in its ring.
    notified: AtomicBool,
    inbox: Mutex<Vec<u64>>,
    eventfd: Option<OwnedFd>,
}

impl Remote {
    /// With an eventfd for shards that sleep in the kernel, without for simulated ones.
    pub(crate) fn new(eventfd: Option<OwnedFd>) -> Arc<Self> {
        Arc::new(Self {
            sleeping: AtomicBool::new(false),
            notified: AtomicBool::new(false),
            inbox: Mutex::new(Vec::new()),
            eventfd,
        })
    }

    pub(crate) fn eventfd(&self) -> Option<RawFd> {
        self.eventfd.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Notes that there is work for the shard; signals it only if it sleeps.
    pub(crate) fn notify(&self) {
        self.notified.store(true, Ordering::SeqCst);
        // Pairs with the fence in `prepare_sleep`: either the sleeper sees `notified`, or this sees
        // `sleeping`.
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed)
            && self.sleeping.swap(false, Ordering::SeqCst)
            && let Some(eventfd) = &self.eventfd
        {
            // The only failure is a full counter, which means that a signal is already there.
            let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
        }
    }

    /// Announces sleep; returns false if something has arrived and must be handled first.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.notified.load(Ordering::Relaxed) {
            self.sleeping.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    pub(crate) fn end_sleep(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_notified(&self) -> bool {
        self.notified.load(Ordering::Relaxed)
    }

    /// Clears the mark and moves foreign wakes into `wakes`. True when there may be news from peers.
    pub(crate) fn take(&self, wakes: &mut Vec<u64>) -> bool {
        if !self.notified.load(Ordering::Relaxed) || !self.notified.swap(false, Ordering::SeqCst) {
            return false;
        }
        let mut inbox = self.inbox.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        wakes.append(&mut inbox);
        true
    }

    fn wake(&self, token: u64) {
        {
            let mut inbox = self.inbox.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            // Repeated wakes of one task are one wake: the inbox is bounded by the tasks of the shard.
            if inbox.last() != Some(&token) && (inbox.len() < 1024 || !inbox.contains(&token)) {
                inbox.push(token);
            }
        }
        self.notify();
    }
}

static HOMES: RwLock<Vec<Option<Arc<Remote>>>> = RwLock::new(Vec::new());

/// A shard's number in this process; given back when dropped.
pub(crate) struct Home(pub(crate) u16);

impl Home {
    pub(crate) fn register(remote: Arc<Remote>) -> Home {
        let mut homes = HOMES.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let number = homes.iter().position(Option::is_none).unwrap_or_else(|| {
            homes.push(None);
            homes.len() - 1
        });
        assert!(number < HOMES_MAX, "more than {HOMES_MAX} shards in one process");
        homes[number] = Some(remote);
        Home(number as u16)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let mut homes = HOMES.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        homes[self.0 as usize] = None;
    }
}

const VTABLE: RawWakerVTable = RawWakerVTable::new(|data| RawWaker::new(data, &VTABLE), wake, wake, |_| {});

/// The waker of the task at `index` of the shard numbered `home`.
pub(crate) fn waker(home: u16, generation: u32, index: u32) -> Waker {
    let token = (u64::from(home) << HOME_SHIFT) | (u64::from(generation) << INDEX_BITS) | u64::from(index);
    let data = ptr::without_provenance(token as usize);
    // SAFETY: the functions of the table treat the pointer as an integer and are safe from any thread.
    unsafe { Waker::from_raw(RawWaker::new(data, &VTABLE)) }
}

fn wake(data: *const ()) {
    let token = data.addr() as u64;
    let home = (token >> HOME_SHIFT) as u16;
    let here = shard::try_with(|shard| {
        if shard.home() != home {
            return false;
        }
        shard.wake_token(token);
        true
    });
    if here == Some(true) {
        return;
    }
    let remote = {
        let homes = HOMES.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        homes.get(home as usize).cloned().flatten()
    };
    if let Some(remote) = remote {
        remote.wake(token);
    }
}

/// Generation and index of a token.
pub(crate) fn split(token: u64) -> (u32, u32) {
    let index = (token & ((1 << INDEX_BITS) - 1)) as u32;
    let generation = ((token >> INDEX_BITS) & ((1 << GENERATION_BITS) - 1)) as u32;
    (generation, index)
}
