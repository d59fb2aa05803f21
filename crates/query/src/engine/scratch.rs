//! Buffers of requests, kept by the shard from one to the next.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use model::{Table, Token};
use replication::write::Pending;
use storage::{PartitionRange, ReadCommand, Slices};

use super::Engine;
use crate::execute::rows::RowBuffers;
use crate::execute::update_buffer::PartitionUpdate;

impl Engine {
    /// Buffers for one request on `table`.
    #[inline]
    pub(crate) fn scratch(&self, table: &Rc<Table>) -> ScratchGuard<'_> {
        let scratch = match self.0.scratches.borrow_mut().pop() {
            Some(mut scratch) => {
                scratch.read.table = Rc::clone(table);
                scratch
            }
            None => Box::new(Scratch::new(table)),
        };
        ScratchGuard { engine: self, scratch: Some(scratch) }
    }

    /// Takes a scratch back for the next request.
    #[inline]
    fn keep_scratch(&self, mut scratch: Box<Scratch>) {
        // A write may be left here whose outcome the caller no longer waits for.
        scratch.pending = None;
        let mut scratches = self.0.scratches.borrow_mut();
        if scratches.len() < SCRATCHES_MAX && scratch.is_small() {
            scratches.push(scratch);
        } else if scratch.read.slices.len() > SLICES_KEPT_MAX {
            // The names of rows are freed one by one.
            reactor::drop_in_steps(std::mem::take(&mut scratch.read.slices).into_vec());
        }
    }
}

/// Scratches a shard keeps: as many requests as it is likely to have under way at once.
const SCRATCHES_MAX: usize = 256;
/// A buffer that grew beyond this is given back.
const SCRATCH_BYTES_MAX: usize = 64 * 1024;

/// A read or write that named more rows gives their names back.
const SLICES_KEPT_MAX: usize = 16;

/// Buffers of one request.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// The read, its slices also for writes.
    pub(crate) read: ReadCommand,
    /// For rows on their way out.
    pub(crate) rows: RowBuffers,
    /// For writes.
    pub(crate) write: WriteBuffers,
    /// The write of `write.mutation` that is in progress. It is stored here so that the future that waits for
    /// it moves as a pointer.
    pub(crate) pending: Option<Pending>,
}

/// Buffers of a write.
#[derive(Debug, Default)]
pub struct WriteBuffers {
    /// Stored key.
    pub key: Vec<u8>,
    /// Partitions written; those beyond the ones in use are old.
    pub updates: Vec<PartitionUpdate>,
    /// The mutation.
    pub mutation: Vec<u8>,
}

impl Scratch {
    fn new(table: &Rc<Table>) -> Self {
        let read = ReadCommand {
            table: Rc::clone(table),
            range: PartitionRange::Key(model::partition_key::DecoratedKey {
                token: Token::MINIMUM,
                key: Vec::new(),
            }),
            slices: Slices::new(),
            reversed: false,
            now: 0,
            bypass_cache: false,
        };
        Self { read, rows: RowBuffers::default(), write: WriteBuffers::default(), pending: None }
    }

    /// Whether keeping it costs little.
    fn is_small(&self) -> bool {
        let WriteBuffers { mutation, updates, .. } = &self.write;
        mutation.capacity() <= SCRATCH_BYTES_MAX
            && updates.len() <= 4
            && updates.iter().all(|update| update.len() <= SCRATCH_BYTES_MAX)
            && self.read.slices.len() <= SLICES_KEPT_MAX
            && self.rows.is_small()
    }
}

/// A scratch in use; goes back to its shard when dropped.
pub(crate) struct ScratchGuard<'e> {
    engine: &'e Engine,
    scratch: Option<Box<Scratch>>,
}

impl ScratchGuard<'_> {
    /// The same scratch, for a future that outlives the request's function.
    #[inline]
    pub(crate) fn keep(mut self) -> KeptScratch {
        KeptScratch { engine: self.engine.clone(), scratch: self.scratch.take() }
    }
}

/// A [`ScratchGuard`] that owns its engine.
pub(crate) struct KeptScratch {
    engine: Engine,
    scratch: Option<Box<Scratch>>,
}

impl KeptScratch {
    /// The engine that it goes back to.
    #[inline]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The scratch, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut Scratch {
        self.scratch.as_mut().expect("taken only by drop")
    }
}

impl Deref for KeptScratch {
    type Target = Scratch;

    #[inline]
    fn deref(&self) -> &Scratch {
        self.scratch.as_ref().expect("taken only by drop")
    }
}

impl Drop for KeptScratch {
    #[inline]
    fn drop(&mut self) {
        if let Some(scratch) = self.scratch.take() {
            self.engine.keep_scratch(scratch);
        }
    }
}

impl Deref for ScratchGuard<'_> {
    type Target = Scratch;

    fn deref(&self) -> &Scratch {
        self.scratch.as_ref().expect("taken only by drop")
    }
}

impl DerefMut for ScratchGuard<'_> {
    fn deref_mut(&mut self) -> &mut Scratch {
        self.scratch.as_mut().expect("taken only by drop")
    }
}

impl Drop for ScratchGuard<'_> {
    fn drop(&mut self) {
        if let Some(scratch) = self.scratch.take() {
            self.engine.keep_scratch(scratch);
        }
    }
}
