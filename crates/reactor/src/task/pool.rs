//! Memory for tasks, by size class, so that spawning touches the heap allocator only while warming up.
//!
//! Freed blocks are chained through themselves. Every task holds an `Rc` of its pool, so that a join handle
//! may outlive the shard. Invariant: the blocks in a class's chain have exactly that class's layout.

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;

/// Classes: 128, 192 and 256 bytes, then four for each power of two: a task wastes at most a fifth of its
/// block.
const CLASS_COUNT: usize = CLASSES_SMALL + 4 * (BITS_MAX - BITS_SMALL) as usize;
const CLASSES_SMALL: usize = 3;
/// Powers of two: of the largest small class, and of the largest class.
const BITS_SMALL: u32 = 8;
const BITS_MAX: u32 = 16;
const ALIGN: usize = 64;
/// Bytes a pool keeps for reuse; blocks freed beyond that go back to the heap.
const CACHED_BYTES_MAX: usize = 32 << 20;

pub(crate) struct TaskPool {
    chains: [Cell<Option<NonNull<u8>>>; CLASS_COUNT],
    cached_bytes: Cell<usize>,
}

fn class_of(layout: Layout) -> Option<usize> {
    if layout.align() > ALIGN {
        return None;
    }
    let size = layout.size();
    if size <= 1 << BITS_SMALL {
        return Some(size.div_ceil(ALIGN).max(2) - 2);
    }
    let bits = (size - 1).ilog2();
    let quarters = size.div_ceil(1 << (bits - 2));
    let class = CLASSES_SMALL + 4 * (bits - BITS_SMALL) as usize + quarters - 5;
    (class < CLASS_COUNT).then_some(class)
}

fn class_layout(class: usize) -> Layout {
    let size = match class.checked_sub(CLASSES_SMALL) {
        None => (class + 2) * ALIGN,
        Some(class) => (class % 4 + 5) << (BITS_SMALL as usize + class / 4 - 2),
    };
    Layout::from_size_align(size, ALIGN).expect("a small size")
}

impl TaskPool {
    pub(crate) fn new() -> Self {
        Self { chains: std::array::from_fn(|_| Cell::new(None)), cached_bytes: Cell::new(0) }
    }

    /// A block for `layout` (of non-zero size), uninitialised.
    pub(crate) fn allocate(&self, layout: Layout) -> NonNull<u8> {
        let layout = match class_of(layout) {
            Some(class) => {
                if let Some(block) = self.chains[class].get() {
                    // SAFETY: a chained block holds the link written by `release` at its start.
                    let next = unsafe { block.cast::<Option<NonNull<u8>>>().read() };
                    self.chains[class].set(next);
                    self.cached_bytes.set(self.cached_bytes.get() - class_layout(class).size());
                    return block;
                }
                class_layout(class)
            }
            None => layout,
        };
        // SAFETY: the layout has a non-zero size: a class has, and a task holds at least its header.
        let block = unsafe { std::alloc::alloc(layout) };
        NonNull::new(block).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
    }

    /// Takes back a block.
    ///
    /// # Safety
    /// `block` came from `allocate` of this pool with the same `layout`, and nothing refers to it any more.
    pub(crate) unsafe fn release(&self, block: NonNull<u8>, layout: Layout) {
        let Some(class) = class_of(layout) else {
            // SAFETY: the caller vouches that it was allocated with this layout.
            unsafe { std::alloc::dealloc(block.as_ptr(), layout) };
            return;
        };
        let size = class_layout(class).size();
        if self.cached_bytes.get() + size > CACHED_BYTES_MAX {
            // SAFETY: a block of a class was allocated with the class's layout.
            unsafe { std::alloc::dealloc(block.as_ptr(), class_layout(class)) };
            return;
        }
        // SAFETY: the block is unused, aligned to 64 and at least 128 bytes: room for a link.
        unsafe { block.cast::<Option<NonNull<u8>>>().write(self.chains[class].get()) };
        self.chains[class].set(Some(block));
        self.cached_bytes.set(self.cached_bytes.get() + size);
    }
}

impl Drop for TaskPool {
    fn drop(&mut self) {
        for class in 0..CLASS_COUNT {
            let mut chain = self.chains[class].take();
            while let Some(block) = chain {
                // SAFETY: as in `allocate`: the link stands at the block's start.
                chain = unsafe { block.cast::<Option<NonNull<u8>>>().read() };
                // SAFETY: blocks in a chain were allocated with the class's layout and are unused.
                unsafe { std::alloc::dealloc(block.as_ptr(), class_layout(class)) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_the_least_class_that_holds_it_and_wastes_a_fifth_at_most() {
        let class_for = |size| class_of(Layout::from_size_align(size, 8).unwrap());
        let mut before = 0;
        for size in 1..=1 << BITS_MAX {
            let class = class_for(size).unwrap();
            let block = class_layout(class).size();
            assert!(
                block >= size && (class == 0 || class_layout(class - 1).size() < size),
                "{size} in {block}"
            );
            assert!(size <= 1 << BITS_SMALL || (block - size) * 5 < block + 5, "{size} in {block}");
            assert!(class == before || class == before + 1);
            before = class;
        }
        assert_eq!((before, class_for((1 << BITS_MAX) + 1)), (CLASS_COUNT - 1, None));
    }
}
