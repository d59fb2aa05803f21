//! The kernel's view of the receive pool: a ring of buffers it may fill.
//!
//! A buffer is either in the ring (the kernel's), or named by a completion not yet looked at, or in a
//! `RecvChunk`. Giving back writes one entry and publishes the tail, without a system call. Invariant: the
//! ring has exactly as many places as the pool has buffers, so it never overflows.

use std::alloc::Layout;
use std::cell::Cell;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

use crate::driver::chunk::{ChunkPool, Lender, RECV_BUFFER_BYTES, RECV_BUFFERS};

/// The group number that identifies the ring to the kernel.
pub(super) const GROUP: u16 = 0;

/// Memory shared with the kernel: `RECV_BUFFERS` entries, the tail hidden in the first one.
pub(super) struct BufferRing {
    entries: NonNull<BufRingEntry>,
    tail: Cell<u16>,
}

fn layout() -> Layout {
    Layout::array::<BufRingEntry>(RECV_BUFFERS as usize)
        .and_then(|layout| layout.align_to(4096))
        .expect("a page of entries")
}

impl BufferRing {
    fn new() -> Self {
        assert!(RECV_BUFFERS.is_power_of_two(), "the kernel wants a power of two");
        // SAFETY: the layout has a non-zero size.
        let memory = unsafe { std::alloc::alloc_zeroed(layout()) };
        let entries = NonNull::new(memory.cast()).unwrap_or_else(|| std::alloc::handle_alloc_error(layout()));
        Self { entries, tail: Cell::new(0) }
    }
}

impl Lender for BufferRing {
    fn give_back(&self, number: u16, at: NonNull<u8>) {
        let tail = self.tail.get();
        let place = (tail & (RECV_BUFFERS - 1)) as usize;
        // SAFETY: `place` is below the number of entries.
        let entry = unsafe { self.entries.add(place) };
        // SAFETY: the kernel does not read an entry beyond the published tail, so this one is ours; its
        // memory is initialised and aligned.
        let entry = unsafe { &mut *entry.as_ptr() };
        entry.set_addr(at.as_ptr().expose_provenance() as u64);
        entry.set_len(RECV_BUFFER_BYTES as u32);
        entry.set_bid(number);
        let tail = tail.wrapping_add(1);
        self.tail.set(tail);
        // SAFETY: the pointer is the ring's first entry.
        let shared = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: the tail is two aligned bytes that only the kernel reads and only this thread writes.
        let shared = unsafe { AtomicU16::from_ptr(shared.cast_mut()) };
        shared.store(tail, Ordering::Release);
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; the driver unregisters it before it lets go.
        unsafe { std::alloc::dealloc(self.entries.as_ptr().cast(), layout()) };
    }
}

/// Makes the pool and lends all of it to the kernel.
pub(super) fn register(ring: &IoUring) -> io::Result<Rc<ChunkPool<BufferRing>>> {
    let pool = ChunkPool::new(BufferRing::new());
    let address = pool.lender.entries.as_ptr().expose_provenance() as u64;
    // SAFETY: the memory lives in the pool, which the driver keeps until it has unregistered it.
    unsafe { ring.submitter().register_buf_ring_with_flags(address, RECV_BUFFERS, GROUP, 0) }?;
    for number in 0..RECV_BUFFERS {
        pool.lender.give_back(number, pool.buffer(number));
    }
    Ok(pool)
}
