//! Counts what preparing a statement allocates: it must not grow faster than the statement's text.
//!
//! Work that grows by itself shows in it: texts that double, terms that are made again at each level, numbers
//! whose digits a client need not send. Bytes are counted and not time, so that each run of an input counts
//! the same.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use statement::fuzzing::Statements;

/// Bytes that any statement may allocate: the largest text of JSON, which grows by doubling, and what one
/// row's work over long numbers takes.
const FREE_BYTES: u64 = 160 << 20;
/// Bytes for each of its text.
const PER_BYTE: u64 = 16 << 10;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
    static STATEMENTS: Statements = Statements::default();
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATED.try_with(|bytes| bytes.set(bytes.get() + layout.size() as u64));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    STATEMENTS.with(|statements| {
        let before = ALLOCATED.get();
        statements.prepare(text);
        let work = ALLOCATED.get() - before;
        assert!(
            work <= FREE_BYTES + PER_BYTE * data.len() as u64,
            "{work} bytes for a text of {}",
            data.len()
        );
    });
}
