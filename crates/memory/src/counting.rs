//! The process's allocator, counting what each thread takes from the heap.
//!
//! One addition to a thread's own number for each allocation: cheap enough for the server to run with, so that
//! `ceto perf` counts in the very program that is shipped. Invariant: every call reaches the allocator below as it came.
//! The binary names it as its global allocator; benches read [`allocations`].
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    // Constant and without a destructor: usable before and after everything else of a thread.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Allocations of the calling thread so far, growths of what it had included; 0 where [`Counting`] is not the
/// process's allocator.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// An allocator that counts and leaves the work to `A`.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counting<A>(pub A);

#[inline(always)]
fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get().wrapping_add(1));
}

// SAFETY: every call goes to `A` with the arguments it came with; counting touches no memory but its own number.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { self.0.realloc(pointer, layout, size) }
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
        let before = allocations();
        // SAFETY: the layout is not empty.
        let pointer = unsafe { counting.alloc_zeroed(layout) };
        assert_eq!(allocations() - before, 1);
        // SAFETY: `pointer` came from this allocator with this layout.
        let pointer = unsafe { counting.realloc(pointer, layout, 128) };
        assert_eq!(allocations() - before, 2);
        let layout = Layout::from_size_align(128, 8).unwrap();
        // SAFETY: as above, with the layout it has now.
        unsafe { counting.dealloc(pointer, layout) };
        assert_eq!(allocations() - before, 2);
    }
}
