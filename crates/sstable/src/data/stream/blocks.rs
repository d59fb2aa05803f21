//! Moves a stream by blocks: to the block where a slice begins, and from the last to the first when it reads
//! backward.

use model::deletion::DeletionTime;

use super::{HEAD_BYTES, Stream};
use crate::data::decode::{self, Head};
use crate::error::{Malformed, Problem, SstableError};
use crate::input::Input;

/// Longest stretch that is read backward as one block: one row may be as long as rows can be.
const BLOCK_BYTES_MAX: u64 = decode::ROW_BYTES_MAX;

impl Stream {
    /// Start of the row or marker before the last one; loads the previous block if needed.
    pub(super) async fn previous(&mut self) -> Result<Option<u64>, SstableError> {
        // Bounded: each round takes one block.
        loop {
            let Some(backward) = &mut self.backward else { return Ok(None) };
            if let Some(at) = backward.starts.pop() {
                return Ok(Some(at));
            }
            if backward.blocks_left == 0 {
                return Ok(None);
            }
            backward.blocks_left -= 1;
            let number = backward.blocks_left;
            let (start, end) = match &self.promoted {
                None => (self.header_end, None),
                Some(promoted) => {
                    let block = promoted.block(&self.inner.reads, &self.inner.layout, number).await?;
                    let start = self.start.saturating_add(block.offset);
                    (start, Some(start.saturating_add(block.width)))
                }
            };
            self.load_block(start, end).await?;
        }
    }

    /// Brings the rows of a block into memory and finds the start of each.
    async fn load_block(&mut self, start: u64, end: Option<u64>) -> Result<(), SstableError> {
        let too_long = |found| Malformed::over(start, "width of a block", found, BLOCK_BYTES_MAX);
        if let Some(end) = end {
            if end - start > BLOCK_BYTES_MAX {
                return Err(self.corrupt(too_long(end - start)));
            }
            if !self.ensure(start, (end - start) as usize).await? {
                return Err(self.corrupt(Malformed::invalid(start, "a block behind the end of the data")));
            }
        }
        let mut at = start;
        loop {
            if end.is_some_and(|end| at >= end) {
                return Ok(());
            }
            if at - start > BLOCK_BYTES_MAX {
                return Err(self.corrupt(too_long(at - start)));
            }
            let next = match self.head_within(start, at).await? {
                (Head::End, _) => return Ok(()),
                (_, next) => next,
            };
            if let Some(backward) = &mut self.backward {
                backward.starts.push(at);
            }
            at = next;
        }
    }

    /// As `head`, keeping everything from `start` on in memory.
    async fn head_within(&mut self, start: u64, at: u64) -> Result<(Head, u64), SstableError> {
        let behind = (at - start) as usize;
        let mut wanted = HEAD_BYTES;
        loop {
            let left = self.inner.data.length().saturating_sub(at) as usize;
            let have = wanted.min(left);
            if self.window.from(at).len() < have {
                self.ensure(start, behind + have).await?;
            }
            let mut input = Input::at_offset(self.window.from(at), at);
            match decode::head(&self.inner.layout, &mut input, &mut self.clustering) {
                Ok(Head::End) => return Ok((Head::End, at + 1)),
                Ok(head @ (Head::Row(item) | Head::Marker(_, item))) => {
                    // The row itself stays in memory with its block.
                    if item.length <= left {
                        self.ensure(start, behind + item.length).await?;
                    }
                    return Ok((head, at + item.length as u64));
                }
                Err(error) if error.problem == Problem::Truncated && have < left => wanted = have * 2,
                Err(error) => return Err(self.corrupt(error)),
            }
        }
    }

    /// Jumps to the block where the current slice begins in reading order, if that is further on.
    pub(super) async fn seek(&mut self) -> Result<(), SstableError> {
        let Some(promoted) = &self.promoted else { return Ok(()) };
        let Some(near) = self.slicer.near(self.slicer.current()) else { return Ok(()) };
        let (reads, layout) = (&self.inner.reads, &self.inner.layout);
        if let Some(backward) = &mut self.backward {
            // Blocks from `count` on have nothing for the slice.
            let count = promoted.starting_before(reads, layout, near, &layout.orders).await?;
            if count > backward.blocks_left {
                return Ok(());
            }
            backward.starts.clear();
            backward.blocks_left = count;
            self.pending = None;
            self.slicer.open = match count.checked_sub(1) {
                Some(block) => promoted.block(reads, layout, block).await?.open,
                None => DeletionTime::LIVE,
            };
            return Ok(());
        }
        let number = promoted.ending_before(reads, layout, near, &layout.orders).await?;
        let Some(last) = number.checked_sub(1) else { return Ok(()) };
        let before = promoted.block(reads, layout, last).await?;
        // Blocks are adjacent, and the last one ends where the partition does.
        let next = self.start.saturating_add(before.offset).saturating_add(before.width);
        if next > self.next {
            self.next = next;
            self.slicer.open = before.open;
            self.pending = None;
        }
        Ok(())
    }
}
