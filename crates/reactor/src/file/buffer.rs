//! Buffers the device may read and write directly: aligned to 4096 bytes, pooled per shard.
//!
//! Classes are powers of two from 4 KiB to 1 MiB; larger buffers come from the heap each time. Memory is
//! zeroed when it is new and stays initialised, so a buffer never exposes uninitialised bytes (it may contain
//! old ones). Each thread counts its buffers in use ([`aligned_bytes`]): tests check with it how much of a
//! file is in memory at a time.

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

use crate::shard;

/// Alignment of memory, and of offsets and lengths of direct writes, in bytes.
pub const ALIGNMENT: usize = 4096;
/// Smallest multiple that direct reads are cut to, in bytes.
pub(crate) const SECTOR_BYTES: u32 = 512;
const CLASSES: usize = 9;

thread_local! {
    static IN_USE: Cell<AlignedBytes> = const { Cell::new(AlignedBytes { now: 0, most: 0 }) };
}

/// Bytes of buffers that a thread has in use, by their capacity, without those in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlignedBytes {
    /// At this moment.
    pub now: usize,
    /// The most there were since [`forget_most_aligned_bytes`].
    pub most: usize,
}

/// The calling thread's buffers in use.
pub fn aligned_bytes() -> AlignedBytes {
    IN_USE.get()
}

/// Resets the maximum to the bytes in use now.
pub fn forget_most_aligned_bytes() {
    let now = IN_USE.get().now;
    IN_USE.set(AlignedBytes { now, most: now });
}

/// The pool of one shard.
pub(crate) struct BufferPool {
    free: [RefCell<Vec<NonNull<u8>>>; CLASSES],
    cached_bytes: Cell<usize>,
    bytes_max: usize,
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, ALIGNMENT).expect("a buffer fits the address space")
}

fn class_of(capacity: usize) -> Option<usize> {
    let class = (capacity.trailing_zeros() - ALIGNMENT.trailing_zeros()) as usize;
    (capacity.is_power_of_two() && class < CLASSES).then_some(class)
}

fn capacity_for(bytes: usize) -> usize {
    let rounded = bytes.max(1).next_multiple_of(ALIGNMENT);
    let power = rounded.next_power_of_two();
    if class_of(power).is_some() { power } else { rounded }
}

impl BufferPool {
    pub(crate) fn new(bytes_max: usize) -> Rc<Self> {
        Rc::new(Self {
            free: std::array::from_fn(|_| RefCell::new(Vec::new())),
            cached_bytes: Cell::new(0),
            bytes_max,
        })
    }

    fn take(&self, capacity: usize) -> Option<NonNull<u8>> {
        let memory = self.free[class_of(capacity)?].borrow_mut().pop()?;
        self.cached_bytes.set(self.cached_bytes.get() - capacity);
        Some(memory)
    }

    fn keep(&self, memory: NonNull<u8>, capacity: usize) -> bool {
        let Some(class) = class_of(capacity) else { return false };
        if self.cached_bytes.get() + capacity > self.bytes_max {
            return false;
        }
        self.cached_bytes.set(self.cached_bytes.get() + capacity);
        self.free[class].borrow_mut().push(memory);
        true
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        for (class, free) in self.free.iter().enumerate() {
            for memory in free.take() {
                // SAFETY: pooled memory was allocated with its class's layout and nobody holds it.
                unsafe { std::alloc::dealloc(memory.as_ptr(), layout(ALIGNMENT << class)) };
            }
        }
    }
}

/// Owned memory for direct I/O: `len` bytes in use of `capacity`, all of it initialised.
pub struct AlignedBuf {
    memory: NonNull<u8>,
    len: usize,
    capacity: usize,
}

impl AlignedBuf {
    /// A buffer of `len` bytes with the previous contents of its memory, for callers that fill it at once.
    pub fn with_len(len: usize) -> Self {
        let capacity = capacity_for(len);
        let pooled = shard::try_with(|shard| shard.buffers.take(capacity)).flatten();
        let memory = pooled.unwrap_or_else(|| {
            // SAFETY: the capacity is at least one page.
            let fresh = unsafe { std::alloc::alloc_zeroed(layout(capacity)) };
            NonNull::new(fresh).unwrap_or_else(|| std::alloc::handle_alloc_error(layout(capacity)))
        });
        let AlignedBytes { now, most } = IN_USE.get();
        IN_USE.set(AlignedBytes { now: now + capacity, most: most.max(now + capacity) });
        Self { memory, len, capacity }
    }

    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::with_len(len);
        buf.fill(0);
        buf
    }

    /// Bytes it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the length; bytes that appear are initialised but arbitrary.
    ///
    /// # Panics
    /// When `len` is greater than the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "length {len} of a buffer of {}", self.capacity);
        self.len = len;
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `memory` are initialised and belong to this buffer alone.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        let AlignedBytes { now, most } = IN_USE.get();
        IN_USE.set(AlignedBytes { now: now - self.capacity, most });
        let kept = shard::try_with(|shard| shard.buffers.keep(self.memory, self.capacity)).unwrap_or(false);
        if !kept {
            // SAFETY: allocated with the layout of this capacity, by this type alone.
            unsafe { std::alloc::dealloc(self.memory.as_ptr(), layout(self.capacity)) };
        }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "AlignedBuf({} of {})", self.len, self.capacity)
    }
}

/// Bytes of a file, cut from an aligned buffer.
#[derive(Debug)]
pub struct RangeBuf {
    buf: AlignedBuf,
    start: usize,
    end: usize,
}

impl RangeBuf {
    /// `start..end` of `buf`, both cut to its length.
    pub(crate) fn new(buf: AlignedBuf, start: usize, end: usize) -> Self {
        let end = end.min(buf.len());
        Self { start: start.min(end), end, buf }
    }
}

impl Deref for RangeBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }
}
