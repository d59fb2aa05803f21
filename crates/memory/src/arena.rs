//! One reserved range of addresses per shard, and the segments that are cut out of it.
//!
//! The range is reserved when the first segment is needed and takes memory only where it is touched. Returned
//! segments are **warm** as long as they keep their memory: they are reused first. The surplus is made
//! **cold**: its memory goes back to the system, its addresses stay. If nothing can be reserved (`ulimit -v`,
//! strict overcommit), or all of the range is in use, segments come from the allocator: memory that has been
//! counted is always available. Invariant: a segment's addresses belong to one [`Block`] from [`Arena::take`]
//! to its drop, and a block keeps the range alive, so no block reaches another's bytes or a range that is
//! gone. [`crate::Region`] relies on that: it hands out plain slices.
#![allow(unsafe_code)]

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

use crate::region::SEGMENT_BYTES;

/// Size of a huge page; the range begins at a multiple of it.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Largest range that is reserved: more than the memory of any shard.
const RANGE_BYTES_MAX: usize = 1 << 42;

/// A range of addresses backed by memory, readable and writable.
#[derive(Debug)]
struct Range {
    /// Start and length of the reservation.
    reserved: (NonNull<u8>, usize),
    /// Start of its first segment.
    first: NonNull<u8>,
}

impl Range {
    /// Reserves a range for `segments`.
    fn reserve(segments: usize) -> Option<Self> {
        let length = segments.checked_mul(SEGMENT_BYTES)?.checked_add(HUGE_PAGE_BYTES)?;
        if segments == 0 || length > RANGE_BYTES_MAX {
            return None;
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping, at an address of the kernel's choice, changes no existing one.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if at == libc::MAP_FAILED {
            return None;
        }
        let at = NonNull::new(at.cast::<u8>())?;
        let skip = at.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `skip` is below HUGE_PAGE_BYTES, which the mapping has beyond its segments.
        let first = unsafe { at.add(skip) };
        Some(Self { reserved: (at, length), first })
    }

    fn segment(&self, number: u32) -> NonNull<u8> {
        // SAFETY: `Arena::take` numbers only segments that the range was reserved for.
        unsafe { self.first.add(number as usize * SEGMENT_BYTES) }
    }

    /// Returns a segment's memory to the system; its contents are lost.
    fn give_back(&self, number: u32) {
        // SAFETY: the segment is inside the mapping, and there is no block of it: it is on the list of warm
        // ones.
        let given = unsafe {
            libc::madvise(self.segment(number).as_ptr().cast(), SEGMENT_BYTES, libc::MADV_DONTNEED)
        };
        assert_eq!(given, 0, "the range is this process's own mapping");
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        let (at, length) = self.reserved;
        // SAFETY: this mapping was made by `reserve`; every block keeps the arena and so the range alive.
        let unmapped = unsafe { libc::munmap(at.as_ptr().cast(), length) };
        debug_assert_eq!(unmapped, 0);
    }
}

/// Segments of one shard.
#[derive(Debug)]
pub(crate) struct Arena {
    /// How many segments the range is for.
    segments: usize,
    /// The inner `None` means that nothing could be reserved.
    range: OnceCell<Option<Range>>,
    /// Segments with lower numbers have been used.
    fresh: Cell<u32>,
    warm: RefCell<Vec<u32>>,
    cold: RefCell<Vec<u32>>,
}

impl Arena {
    /// An arena for at most `bytes_max` in segments; it takes no memory yet.
    pub(crate) fn new(bytes_max: usize) -> Rc<Self> {
        Rc::new(Self {
            segments: bytes_max.div_ceil(SEGMENT_BYTES).min(u32::MAX as usize),
            range: OnceCell::new(),
            fresh: Cell::new(0),
            warm: RefCell::default(),
            cold: RefCell::default(),
        })
    }

    /// A block of `length` bytes with any contents: a segment if it has that length, otherwise from the
    /// allocator.
    pub(crate) fn take(self: &Rc<Self>, length: usize) -> Block {
        self.segment(length).unwrap_or_else(|| Block::zeroed(length))
    }

    /// A block of `length` bytes that begins with those of `head` and of `parts`.
    pub(crate) fn take_filled(self: &Rc<Self>, length: usize, head: &[u8], parts: &[&[u8]]) -> Block {
        let all = std::iter::once(head).chain(parts.iter().copied());
        let Some(mut block) = self.segment(length) else { return Block::filled(length, all) };
        let mut at = 0;
        for part in all {
            block[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        block
    }

    fn segment(self: &Rc<Self>, length: usize) -> Option<Block> {
        if length != SEGMENT_BYTES {
            return None;
        }
        let (number, bytes) = self.number()?;
        Some(Block { bytes, length, home: Home::Segment(Rc::clone(self), number) })
    }

    fn number(&self) -> Option<(u32, NonNull<u8>)> {
        let range = self.range.get_or_init(|| Range::reserve(self.segments)).as_ref()?;
        let recycled = self.warm.borrow_mut().pop().or_else(|| self.cold.borrow_mut().pop());
        let number = match recycled {
            Some(number) => number,
            None => {
                let number = self.fresh.get();
                if number as usize >= self.segments {
                    return None;
                }
                self.fresh.set(number + 1);
                number
            }
        };
        Some((number, range.segment(number)))
    }

    /// Bytes of memory that segments hold which are not in use.
    pub(crate) fn warm_bytes(&self) -> usize {
        self.warm.borrow().len() * SEGMENT_BYTES
    }

    /// Returns memory to the system until at most `bytes` of it are warm.
    pub(crate) fn cool(&self, bytes: usize) {
        let Some(range) = self.range.get().and_then(Option::as_ref) else { return };
        let mut warm = self.warm.borrow_mut();
        while warm.len() * SEGMENT_BYTES > bytes {
            let Some(number) = warm.pop() else { return };
            range.give_back(number);
            self.cold.borrow_mut().push(number);
        }
    }
}

/// Bytes that one owner has for itself.
pub(crate) struct Block {
    bytes: NonNull<u8>,
    length: usize,
    home: Home,
}

/// Whom a block's bytes go back to.
enum Home {
    /// It is the segment of that number.
    Segment(Rc<Arena>, u32),
    /// It is a box of words.
    Words,
    /// It is a box of bytes, aligned to nothing.
    Bytes,
}

impl Block {
    /// The start of a block is a multiple of this, unless it was taken filled.
    pub(crate) const ALIGNMENT: usize = align_of::<u64>();

    fn zeroed(length: usize) -> Self {
        let words = vec![0u64; length.div_ceil(Self::ALIGNMENT)];
        Self::boxed(Box::into_raw(words.into_boxed_slice()).cast::<u8>(), length, Home::Words)
    }

    /// The bytes behind the parts are zero, and nothing is written twice: zeroing 15 MB first took half as
    /// long again as copying them.
    fn filled<'p>(length: usize, parts: impl Iterator<Item = &'p [u8]>) -> Self {
        let mut bytes = Vec::with_capacity(length);
        parts.for_each(|part| bytes.extend_from_slice(part));
        assert!(bytes.len() <= length, "{} bytes for a block of {length}", bytes.len());
        bytes.resize(length, 0);
        Self::boxed(Box::into_raw(bytes.into_boxed_slice()).cast::<u8>(), length, Home::Bytes)
    }

    fn boxed(bytes: *mut u8, length: usize, home: Home) -> Self {
        // A box is never at address zero.
        Self { bytes: NonNull::new(bytes).expect("a box has an address"), length, home }
    }

    /// Its first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.bytes
    }
}

impl Deref for Block {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `length` bytes from there on are initialised (by the kernel, or as the box was made) and
        // this block's alone until it is dropped.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.length) }
    }
}

impl DerefMut for Block {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the borrow of the block is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), self.length) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match &self.home {
            Home::Segment(arena, number) => arena.warm.borrow_mut().push(*number),
            Home::Words => {
                let words = self.length.div_ceil(Self::ALIGNMENT);
                let words = std::ptr::slice_from_raw_parts_mut(self.bytes.as_ptr().cast::<u64>(), words);
                // SAFETY: `zeroed` made it from a box of so many words, and there is no other owner.
                drop(unsafe { Box::from_raw(words) });
            }
            Home::Bytes => {
                let bytes = std::ptr::slice_from_raw_parts_mut(self.bytes.as_ptr(), self.length);
                // SAFETY: `filled` made it from a box of so many bytes, and there is no other owner.
                drop(unsafe { Box::from_raw(bytes) });
            }
        }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Block").field("length", &self.length).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_segment(block: &Block) -> bool {
        matches!(block.home, Home::Segment(..))
    }

    #[test]
    fn a_filled_block_begins_with_its_parts() {
        let arena = Arena::new(2 * SEGMENT_BYTES);
        for length in [0, 5, 4096, SEGMENT_BYTES, SEGMENT_BYTES + 3] {
            // Twice, so that the contents left in a segment by the first block are covered.
            for mark in [1u8, 2] {
                let parts = [vec![mark; length / 3], vec![mark + 1; length / 3]];
                let parts = [parts[0].as_slice(), parts[1].as_slice()];
                let head = vec![mark + 2; length - 2 * (length / 3)];
                let block = arena.take_filled(length, &head, &parts);
                assert_eq!((is_segment(&block), block.len()), (length == SEGMENT_BYTES, length));
                assert_eq!(*block, [head.as_slice(), parts[0], parts[1]].concat());
            }
        }
        assert_eq!(*arena.take_filled(9, b"head", &[b"a", b"b"]), *b"headab\0\0\0");
    }

    #[test]
    fn segments_are_aligned_cut_one_behind_the_other_and_reused() {
        let arena = Arena::new(4 * SEGMENT_BYTES);
        assert!(arena.range.get().is_none(), "nothing is reserved before it is wanted");
        let first = arena.take(SEGMENT_BYTES);
        let second = arena.take(SEGMENT_BYTES);
        let at = first.bytes.as_ptr() as usize;
        assert_eq!((at % HUGE_PAGE_BYTES, second.bytes.as_ptr() as usize - at), (0, SEGMENT_BYTES));
        assert!(first.iter().all(|byte| *byte == 0));
        drop(first);
        assert_eq!(arena.warm_bytes(), SEGMENT_BYTES);
        assert_eq!(arena.take(SEGMENT_BYTES).bytes.as_ptr() as usize, at, "the warm one comes first");
        assert!(!is_segment(&arena.take(4096)), "smaller ones are not cut out of it");
    }

    #[test]
    fn a_cold_segment_has_lost_what_it_held_and_is_had_again() {
        let arena = Arena::new(4 * SEGMENT_BYTES);
        let mut block = arena.take(SEGMENT_BYTES);
        block.fill(7);
        drop(block);
        arena.cool(SEGMENT_BYTES);
        assert_eq!(arena.warm_bytes(), SEGMENT_BYTES, "as many as may be warm stay");
        arena.cool(0);
        assert_eq!((arena.warm_bytes(), arena.cold.borrow().len()), (0, 1));
        assert!(arena.take(SEGMENT_BYTES).iter().all(|byte| *byte == 0));
        assert_eq!(arena.fresh.get(), 1);
    }

    #[test]
    fn what_does_not_fit_in_the_range_is_allocated() {
        let arena = Arena::new(2 * SEGMENT_BYTES);
        let mut blocks: Vec<Block> = (0..5).map(|_| arena.take(SEGMENT_BYTES)).collect();
        assert_eq!(blocks.iter().filter(|block| is_segment(block)).count(), 2);
        blocks.iter_mut().for_each(|block| block.fill(9));
        drop(blocks);
        assert_eq!(arena.warm_bytes(), 2 * SEGMENT_BYTES);
        // Nothing can be reserved at all.
        let arena = Arena::new(usize::MAX);
        assert!(!is_segment(&arena.take(SEGMENT_BYTES)));
    }

    #[test]
    fn a_block_keeps_its_range() {
        let mut block = Arena::new(SEGMENT_BYTES).take(SEGMENT_BYTES);
        block.fill(3);
        assert!(block.iter().all(|byte| *byte == 3));
    }

    proptest! {
        /// Blocks are taken, dropped and cooled: each keeps its written bytes, so none shares a byte with
        /// another.
        #[test]
        fn blocks_never_share_bytes(steps in proptest::collection::vec((0u8..8, 0usize..8), 1..120)) {
            let arena = Arena::new(5 * SEGMENT_BYTES);
            let mut blocks: Vec<(u8, Block)> = Vec::new();
            for (number, (step, pick)) in steps.into_iter().enumerate() {
                let mark = number as u8;
                match step {
                    0..=3 if blocks.len() < 8 => {
                        let mut block = match step {
                            0 => arena.take(4096),
                            1 => arena.take_filled(4097, &[mark], &[]),
                            _ => arena.take(SEGMENT_BYTES),
                        };
                        // The ends and the middle are checked instead of all bytes.
                        let (middle, last) = (block.len() / 2, block.len() - 1);
                        (block[0], block[middle], block[last]) = (mark, mark, mark);
                        blocks.push((mark, block));
                    }
                    4..=6 if !blocks.is_empty() => drop(blocks.swap_remove(pick % blocks.len())),
                    _ => arena.cool(pick * SEGMENT_BYTES),
                }
                for (mark, block) in &blocks {
                    let held = [block[0], block[block.len() / 2], block[block.len() - 1]];
                    prop_assert_eq!(held, [*mark; 3]);
                }
            }
        }
    }
}
