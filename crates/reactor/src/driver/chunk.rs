//! Received bytes: slices of a pool shared by all connections of a shard, returned when dropped.
//!
//! The pool is one allocation of equal buffers, so that memory for receiving does not grow with the number of
//! connections. When all are in use, a connection gets a heap buffer instead: no connection waits for another
//! connection's consumer, which could deadlock. The io_uring driver lends the pool's free buffers to the
//! kernel.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;

/// Buffers of one shard's pool.
pub(crate) const RECV_BUFFERS: u16 = 256;
/// Bytes of one buffer.
pub(crate) const RECV_BUFFER_BYTES: usize = 8 << 10;

/// Takes back buffers that are free again.
pub(crate) trait Lender {
    /// Takes back the buffer `number`, whose memory is at `at`.
    fn give_back(&self, number: u16, at: NonNull<u8>);
}

/// A pool that keeps its free buffers itself.
#[derive(Default)]
pub(crate) struct FreeList(RefCell<Vec<u16>>);

impl Lender for FreeList {
    fn give_back(&self, number: u16, _at: NonNull<u8>) {
        self.0.borrow_mut().push(number);
    }
}

impl FreeList {
    pub(crate) fn full() -> Self {
        Self(RefCell::new((0..RECV_BUFFERS).rev().collect()))
    }

    pub(crate) fn take(&self) -> Option<u16> {
        self.0.borrow_mut().pop()
    }
}

/// The memory of a shard's receive buffers.
pub(crate) struct ChunkPool<L: ?Sized = dyn Lender> {
    memory: NonNull<u8>,
    out: Cell<usize>,
    pub(crate) lender: L,
}

fn layout() -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(RECV_BUFFERS as usize * RECV_BUFFER_BYTES, 4096)
        .expect("a small multiple of the page size")
}

impl<L> ChunkPool<L> {
    pub(crate) fn new(lender: L) -> Rc<Self> {
        // SAFETY: the layout has a non-zero size.
        let memory = unsafe { std::alloc::alloc_zeroed(layout()) };
        let memory = NonNull::new(memory).unwrap_or_else(|| std::alloc::handle_alloc_error(layout()));
        Rc::new(Self { memory, out: Cell::new(0), lender })
    }
}

impl<L: ?Sized> ChunkPool<L> {
    /// Start of the buffer `number`.
    pub(crate) fn buffer(&self, number: u16) -> NonNull<u8> {
        assert!(number < RECV_BUFFERS, "receive buffer {number} of {RECV_BUFFERS}");
        // SAFETY: the offset lies within the allocation, as just checked.
        unsafe { self.memory.add(number as usize * RECV_BUFFER_BYTES) }
    }
}

impl<L: ?Sized> Drop for ChunkPool<L> {
    fn drop(&mut self) {
        debug_assert_eq!(self.out.get(), 0, "chunks hold the pool");
        // SAFETY: allocated in `new` with the same layout; chunks hold an `Rc`, so none is left.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), layout()) };
    }
}

enum Memory {
    Pooled { pool: Rc<ChunkPool>, number: u16, len: usize },
    Heap(Vec<u8>),
}

/// Bytes received from a connection. Hold it no longer than it takes to read or copy them.
pub struct RecvChunk(Memory);

impl RecvChunk {
    /// The first `len` bytes of buffer `number`, which the caller got from the pool's lender.
    pub(crate) fn pooled(pool: Rc<ChunkPool>, number: u16, len: usize) -> Self {
        assert!(len <= RECV_BUFFER_BYTES, "a chunk of {len} bytes in a buffer of {RECV_BUFFER_BYTES}");
        pool.buffer(number);
        pool.out.set(pool.out.get() + 1);
        Self(Memory::Pooled { pool, number, len })
    }

    pub(crate) fn heap(bytes: Vec<u8>) -> Self {
        Self(Memory::Heap(bytes))
    }
}

impl Deref for RecvChunk {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Pooled { pool, number, len } => {
                let start = pool.buffer(*number);
                // SAFETY: `len` is within the buffer, which is initialised memory that belongs to this chunk
                // alone until it is given back.
                unsafe { std::slice::from_raw_parts(start.as_ptr(), *len) }
            }
            Memory::Heap(bytes) => bytes,
        }
    }
}

impl Drop for RecvChunk {
    fn drop(&mut self) {
        if let Memory::Pooled { pool, number, .. } = &self.0 {
            pool.out.set(pool.out.get() - 1);
            pool.lender.give_back(*number, pool.buffer(*number));
        }
    }
}

impl std::fmt::Debug for RecvChunk {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "RecvChunk({} bytes)", self.len())
    }
}
