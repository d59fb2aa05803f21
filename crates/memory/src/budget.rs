//! The memory of one shard, counted in one place, and the segments it keeps for reuse.
//!
//! The budget counts; it never refuses. Who writes asks [`Budget::is_exhausted`] before starting and waits, because
//! a write that has begun must be able to end. Regions and forests charge it for what they hold.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::region::SEGMENT_BYTES;

/// Free segments kept for the next region; beyond it they go back to the allocator.
const FREE_SEGMENTS_MAX: usize = 64;

/// A shared count of bytes against a limit.
#[derive(Debug, Clone)]
pub struct Budget(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: usize,
    used: Cell<usize>,
    free: RefCell<Vec<Box<[u8]>>>,
}

impl Budget {
    /// A budget of `limit` bytes, unused.
    pub fn new(limit: usize) -> Self {
        Self(Rc::new(Inner { limit, used: Cell::new(0), free: RefCell::default() }))
    }

    /// Bytes that may be used.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.0.used.get()
    }

    /// Whether the limit is reached.
    pub fn is_exhausted(&self) -> bool {
        self.used() >= self.0.limit
    }

    pub(crate) fn charge(&self, bytes: usize) {
        self.0.used.set(self.0.used.get() + bytes);
    }

    pub(crate) fn refund(&self, bytes: usize) {
        let used = self.0.used.get();
        assert!(bytes <= used, "a refund of {bytes} bytes of {used} in use");
        self.0.used.set(used - bytes);
    }

    /// Memory for a segment, charged.
    pub(crate) fn take_segment(&self, bytes: usize) -> Box<[u8]> {
        self.charge(bytes);
        if bytes == SEGMENT_BYTES
            && let Some(segment) = self.0.free.borrow_mut().pop()
        {
            return segment;
        }
        vec![0; bytes].into_boxed_slice()
    }

    /// Takes a segment back.
    pub(crate) fn return_segment(&self, segment: Box<[u8]>) {
        self.refund(segment.len());
        let mut free = self.0.free.borrow_mut();
        if segment.len() == SEGMENT_BYTES && free.len() < FREE_SEGMENTS_MAX {
            free.push(segment);
        }
    }
}
