//! Heap allocations while tables grow: never a large block, however many entries there are.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use memory::{Budget, Forest, Handle, Region, Tree};

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// Notes the largest block that the calling thread asked for.
struct Largest;

// SAFETY: every call goes to the system's allocator with the arguments it came with.
unsafe impl GlobalAlloc for Largest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.set(LARGEST.get().max(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.set(LARGEST.get().max(size));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Largest = Largest;

#[test]
fn ten_million_handles_never_ask_for_a_block_above_128_kib() {
    let budget = Budget::new(4 << 30);
    let mut region = Region::new(budget.clone());
    LARGEST.set(0);
    for number in 0..10_000_000u32 {
        assert_eq!(region.alloc(&[&number.to_le_bytes()]), Handle(number));
    }
    assert!(LARGEST.get() <= 128 << 10, "a block of {} bytes", LARGEST.get());
    assert!(region.table_bytes() < 13 * 10_000_000, "{} bytes of table", region.table_bytes());
    for number in (0..10_000_000u32).step_by(997) {
        assert_eq!(region.get(Handle(number)), number.to_le_bytes());
    }
    drop(region);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_tree_of_four_million_entries_never_asks_for_a_block_above_128_kib() {
    let budget = Budget::new(4 << 30);
    let mut forest = Forest::new(budget.clone());
    let mut tree = Tree::EMPTY;
    LARGEST.set(0);
    for number in 0..4_000_000u32 {
        // In no order, so that leaves split in their middles.
        let key = number.wrapping_mul(0x9e37_79b1);
        forest.insert(&mut tree, u64::from(key), key, |other| other.cmp(&key));
    }
    assert!(LARGEST.get() <= 128 << 10, "a block of {} bytes", LARGEST.get());
    assert_eq!(tree.len(), 4_000_000);
    drop(forest);
    assert_eq!(budget.used(), 0);
}
