//! Items by number, in segments of the shard's memory: growing moves none of them, and only small tables take
//! from the heap.
//!
//! ```text
//! block := piece* rest          piece := item[a power of two, at most 16 KiB]
//! ```
//! A table that doubles copies itself completely, into pages that the system has yet to provide. A large
//! freed table is returned to the system by the allocator all at once, during some later allocation: 320 MB
//! took 40 ms. Here the first blocks are small, so that small tables stay small, and the others are segments:
//! segments of dropped tables are warm and are reused. Invariant: `pieces` point into `blocks`, which no
//! other code reads or writes, and the first `length` items are written. [`crate::Region`] keeps its handles
//! in one, [`crate::Forest`] its nodes, `storage`'s cache its buckets.
#![allow(unsafe_code)]

use std::ops::{Index, IndexMut};
use std::ptr::NonNull;

use crate::arena::Block;
use crate::budget::{Budget, Kind};
use crate::region::SEGMENT_BYTES;

/// Most bytes of a piece.
const PIECE_BYTES_MAX: usize = 16 << 10;
/// Pieces in the first blocks; later blocks have as many as fit in a segment.
const FIRST_BLOCKS: [usize; 3] = [1, 2, 4];

/// A growing sequence of items that are found by their number and never taken out.
#[derive(Debug)]
pub struct Pieces<T> {
    budget: Budget,
    kind: Kind,
    /// Start of each piece.
    pieces: Vec<NonNull<T>>,
    blocks: Vec<Block>,
    length: usize,
    held_bytes: usize,
}

impl<T: Copy> Pieces<T> {
    /// Items of a piece.
    const PIECE: usize = {
        assert!(size_of::<T>() > 0 && size_of::<T>() <= PIECE_BYTES_MAX, "an item fits in a piece");
        assert!(align_of::<T>() <= Block::ALIGNMENT, "a block is aligned for its items");
        1 << (PIECE_BYTES_MAX / size_of::<T>()).ilog2()
    };
    const PIECE_BYTES: usize = Self::PIECE * size_of::<T>();

    /// No items; takes memory of that kind with the first one.
    pub fn new(budget: Budget, kind: Kind) -> Self {
        Self { budget, kind, pieces: Vec::new(), blocks: Vec::new(), length: 0, held_bytes: 0 }
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes taken from the budget, also for room that waits for items.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Bytes that pushing `items` takes from the budget.
    #[inline]
    pub fn growth(&self, items: usize) -> usize {
        let (mut room, mut bytes) = (self.pieces.len() * Self::PIECE, 0);
        let mut number = self.blocks.len();
        while room < self.length + items {
            let (block_bytes, pieces) = Self::block(number);
            (room, bytes, number) = (room + pieces * Self::PIECE, bytes + block_bytes, number + 1);
        }
        bytes
    }

    /// Bytes and pieces of the block of that number.
    fn block(number: usize) -> (usize, usize) {
        match FIRST_BLOCKS.get(number) {
            Some(pieces) => (pieces * Self::PIECE_BYTES, *pieces),
            None => (SEGMENT_BYTES, SEGMENT_BYTES / Self::PIECE_BYTES),
        }
    }

    /// Adds an item; returns its number, which is one more than that of the one before.
    #[inline]
    pub fn push(&mut self, item: T) -> usize {
        let number = self.length;
        if number == self.pieces.len() * Self::PIECE {
            self.grow();
        }
        let piece = self.pieces[number / Self::PIECE];
        // SAFETY: a piece has room for PIECE items.
        let place = unsafe { piece.add(number % Self::PIECE) };
        // SAFETY: the place is inside one of `blocks`, which are this one's alone.
        unsafe { place.write(item) };
        self.length = number + 1;
        number
    }

    #[cold]
    fn grow(&mut self) {
        let (bytes, pieces) = Self::block(self.blocks.len());
        let block = self.budget.take_segment(self.kind, bytes);
        self.held_bytes += block.len();
        for piece in 0..pieces {
            // SAFETY: `block` has room for this many pieces of so many bytes.
            let start = unsafe { block.start().add(piece * Self::PIECE_BYTES) };
            self.pieces.push(start.cast());
        }
        self.blocks.push(block);
    }

    #[inline]
    fn place(&self, number: usize) -> NonNull<T> {
        if number >= self.length {
            missing(number, self.length);
        }
        // SAFETY: there are pieces for `length` items, and it is below.
        let piece = unsafe { *self.pieces.get_unchecked(number / Self::PIECE) };
        // SAFETY: a piece has room for PIECE items.
        unsafe { piece.add(number % Self::PIECE) }
    }
}

/// A separate function, so that the look-up, which is the most frequent operation, stays small.
#[cold]
#[inline(never)]
fn missing(number: usize, length: usize) -> ! {
    panic!("item {number} of {length}")
}

impl<T: Copy> Index<usize> for Pieces<T> {
    type Output = T;
    #[inline]
    fn index(&self, number: usize) -> &T {
        // SAFETY: an item below `length` is written; its block lives as long as `self` and is changed through
        // `&mut` only.
        unsafe { self.place(number).as_ref() }
    }
}

impl<T: Copy> IndexMut<usize> for Pieces<T> {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut T {
        // SAFETY: as above; the borrow is exclusive.
        unsafe { self.place(number).as_mut() }
    }
}

impl<T> Drop for Pieces<T> {
    fn drop(&mut self) {
        // The last one first, so that they serve in the order they did.
        for block in self.blocks.drain(..).rev() {
            self.budget.return_segment(self.kind, block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes items of `[u8; SIZE]` and checks every step.
    fn check<const SIZE: usize>(items: usize) {
        let budget = Budget::new(64 << 20);
        let mut pieces: Pieces<[u8; SIZE]> = Pieces::new(budget.clone(), Kind::Clean);
        assert!(pieces.is_empty() && pieces.held_bytes() == 0);
        for number in 0..items {
            let (held, growth) = (pieces.held_bytes(), pieces.growth(1));
            assert!(growth <= SEGMENT_BYTES, "{growth} bytes at item {number}");
            assert_eq!(pieces.push([number as u8; SIZE]), number);
            assert_eq!((pieces.held_bytes(), budget.clean()), (held + growth, held + growth));
        }
        assert_eq!(pieces.len(), items);
        for number in 0..items {
            assert_eq!(pieces[number], [number as u8; SIZE]);
            pieces[number] = [!number as u8; SIZE];
        }
        assert!((0..items).all(|number| pieces[number] == [!number as u8; SIZE]));
        drop(pieces);
        assert_eq!(budget.clean(), 0);
    }

    #[test]
    fn items_are_found_by_number_and_growth_is_told_before_it_comes() {
        check::<1>(300_000);
        check::<12>(40_000);
        check::<400>(1000);
        check::<16384>(20);
    }

    #[test]
    fn growth_of_many_is_the_sum_of_the_growths_of_each() {
        let mut pieces: Pieces<[u32; 3]> = Pieces::new(Budget::new(64 << 20), Kind::Dirty);
        for many in [1, 1023, 1024, 3839, 4096, 5000, 90_000] {
            let (held, growth) = (pieces.held_bytes(), pieces.growth(many));
            for _ in 0..many {
                pieces.push([0; 3]);
            }
            assert_eq!(pieces.held_bytes(), held + growth, "{many} more");
        }
    }

    #[test]
    fn what_is_dropped_serves_the_next_one() {
        let budget = Budget::new(64 << 20);
        let full = || {
            let mut pieces: Pieces<u64> = Pieces::new(budget.clone(), Kind::Dirty);
            (0..200_000u64).for_each(|item| assert_eq!(pieces.push(item), item as usize));
            std::ptr::from_ref(&pieces[100_000])
        };
        assert_eq!(full(), full());
    }

    #[test]
    #[should_panic(expected = "item 1 of 1")]
    fn a_number_without_an_item_is_no_item() {
        let mut pieces: Pieces<u32> = Pieces::new(Budget::new(1 << 20), Kind::Dirty);
        pieces.push(1);
        let _ = pieces[1];
    }
}
