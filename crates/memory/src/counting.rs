//! The process's allocator, which counts the heap allocations of each thread.
//!
//! Each allocation adds once to a number of its thread. That is cheap enough for the released server, so that
//! `ceto perf` counts in the program that users run. Invariant: every call reaches the allocator below
//! unchanged. The binary installs it as its global allocator; benches read [`allocations`]. Code that keeps
//! objects made for clients measures them by [`held_bytes`]: the plan of a statement takes many times the
//! bytes of its text, and no estimate is exact enough.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    // Constant and without a destructor: usable before and after everything else of a thread.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
    static LARGE: Cell<u64> = const { Cell::new(0) };
}

/// Allocations of the calling thread so far, including the growth of existing ones; 0 if [`Counting`] is not
/// the process's allocator.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Bytes that the calling thread allocated and did not free; negative if it freed more than it allocated,
/// because other threads had allocated some of it. The difference of two calls, before and after an object is
/// made, is the size of the object. 0 if [`Counting`] is not the process's allocator.
pub fn held_bytes() -> isize {
    HELD_BYTES.get()
}

/// Bytes from which on an allocation is large.
const LARGE_BYTES: usize = 512 << 10;

/// Large allocations of the calling thread so far. A thread that makes some leaves behind pages worth giving
/// back.
pub fn large_allocations() -> u64 {
    LARGE.get()
}

/// An allocator that counts and leaves the work to `A`.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counting<A>(pub A);

#[inline(always)]
fn count(bytes: usize, before: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get().wrapping_add(1));
    hold(signed(bytes) - signed(before));
    if bytes >= LARGE_BYTES {
        LARGE.set(LARGE.get().wrapping_add(1));
    }
}

#[inline(always)]
fn hold(more: isize) {
    HELD_BYTES.set(HELD_BYTES.get().wrapping_add(more));
}

/// A layout is never longer than `isize::MAX`.
#[inline(always)]
fn signed(bytes: usize) -> isize {
    bytes.cast_signed()
}

// SAFETY: every call goes to `A` with the arguments it came with; counting touches no memory but its own
// number.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's promises are passed on.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's promises are passed on.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(-signed(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { self.0.dealloc(pointer, layout) }
        if layout.size() >= LARGE_BYTES {
            crate::pages::note_freed(layout.size());
        }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller's promises are passed on.
        let moved = unsafe { self.0.realloc(pointer, layout, size) };
        if layout.size() >= LARGE_BYTES && moved != pointer {
            crate::pages::note_freed(layout.size());
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    #[test]
    fn what_takes_memory_is_counted_and_giving_it_back_is_not() {
        let counting = Counting(System);
        let layout = Layout::from_size_align(64, 8).unwrap();
        let (before, held) = (allocations(), held_bytes());
        // SAFETY: the layout is not empty.
        let pointer = unsafe { counting.alloc_zeroed(layout) };
        assert_eq!((allocations() - before, held_bytes() - held), (1, 64));
        // SAFETY: `pointer` came from this allocator with this layout.
        let pointer = unsafe { counting.realloc(pointer, layout, 128) };
        assert_eq!((allocations() - before, held_bytes() - held), (2, 128));
        let layout = Layout::from_size_align(128, 8).unwrap();
        // SAFETY: as above, with the layout it has now.
        unsafe { counting.dealloc(pointer, layout) };
        assert_eq!((allocations() - before, held_bytes() - held), (2, 0));
    }
}
