//! The blocks of a long partition, found without reading its data.
//!
//! A small promoted index is read whole, or taken from the bytes that the lookup of the partition has read
//! already; of a large one only the pages that a binary search touches are read.

use std::rc::Rc;

use model::Clustering;
use model::clustering::{ClusteringOrder, OwnedPosition, Position};
use model::deletion::DeletionTime;

use super::WIDTH_BASE;
use super::reader::{AtHand, Bytes, IndexFile};
use crate::data::chunks::ReadCounter;
use crate::data::decode;
use crate::error::{Malformed, Problem, SstableError};
use crate::input::Input;
use crate::layout::Layout;

/// A promoted index up to this size is read whole.
const WHOLE_BYTES_MAX: u64 = 64 * 1024;
/// Bytes that are first read for a block of a larger one.
const BLOCK_BYTES: u64 = 512;
/// Reads of a larger one that others may share start and end at multiples of this.
const PAGE_BYTES: u64 = 4096;
/// Fewest bytes of a block, its offset included.
const BLOCK_BYTES_MIN: u64 = 9;

/// A block of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// Clustering of its first row or marker.
    pub(crate) first: OwnedPosition,
    /// Clustering of its last row or marker.
    pub(crate) last: OwnedPosition,
    /// Its start, from the start of the partition.
    pub(crate) offset: u64,
    /// Its length.
    pub(crate) width: u64,
    /// The range deletion in force at its end.
    pub(crate) open: DeletionTime,
}

/// The promoted index of one partition.
#[derive(Debug)]
pub(crate) struct Promoted {
    /// Bytes of the partition before its first row.
    pub(crate) header_length: u64,
    /// Deletion of the partition.
    pub(crate) deletion: DeletionTime,
    /// Number of blocks, at least one.
    pub(crate) count: u64,
    index: Rc<IndexFile>,
    blocks_at: u64,
    offsets_at: u64,
    /// All of it, if it is in memory, and the offset of these bytes in the index.
    whole: Option<(u64, Bytes)>,
}

impl Promoted {
    /// Opens the promoted index at `(start, length)` of the index, some bytes of which are in memory.
    pub(crate) async fn open(
        index: Rc<IndexFile>,
        counter: &ReadCounter,
        layout: &Layout,
        (start, length): (u64, u64),
        at_hand: AtHand,
    ) -> Result<Self, SstableError> {
        let covers = |(from, bytes): &(u64, Bytes)| {
            *from <= start && start + length <= from.saturating_add(bytes.len() as u64)
        };
        let (from, bytes) = match at_hand.filter(covers) {
            Some(at_hand) => at_hand,
            None => {
                let wanted = if length <= WHOLE_BYTES_MAX { length } else { BLOCK_BYTES.min(length) };
                let bytes = index.read(counter, start, wanted as usize).await?;
                if (bytes.len() as u64) < wanted {
                    return Err(index.malformed(Malformed::truncated(start + bytes.len() as u64)));
                }
                (start, bytes)
            }
        };
        let part = &bytes[(start - from) as usize..];
        let part = &part[..part.len().min(usize::try_from(length).unwrap_or(usize::MAX))];
        let whole = part.len() as u64 == length;
        let mut promoted = Self::decode_head(&index, layout, &mut Input::at_offset(part, start), length)
            .map_err(|m| index.malformed(m))?;
        promoted.whole = whole.then_some((from, bytes));
        Ok(promoted)
    }

    fn decode_head(
        index: &Rc<IndexFile>,
        layout: &Layout,
        input: &mut Input<'_>,
        length: u64,
    ) -> Result<Self, Malformed> {
        let start = input.offset();
        let header_length = input.vint()?;
        let deletion = decode::whole_deletion(layout, input)?;
        let at = input.offset();
        let count = input.vint()?;
        let blocks_at = input.offset();
        let room = (start + length).saturating_sub(blocks_at);
        if count == 0 || count > room / BLOCK_BYTES_MIN {
            return Err(Malformed::over(at, "number of blocks", count, room / BLOCK_BYTES_MIN));
        }
        let offsets_at = start + length - 4 * count;
        Ok(Self {
            header_length,
            deletion,
            count,
            index: Rc::clone(index),
            blocks_at,
            offsets_at,
            whole: None,
        })
    }

    /// Block number `number`.
    pub(crate) async fn block(
        &self,
        counter: &ReadCounter,
        layout: &Layout,
        number: u64,
    ) -> Result<Block, SstableError> {
        let offset_at = self.offsets_at + 4 * number;
        let offset = self.part(counter, offset_at, 4).await?;
        let offset = Input::at_offset(&offset, offset_at).u32().map_err(|m| self.index.malformed(m))?;
        let at = self.blocks_at + u64::from(offset);
        if at >= self.offsets_at {
            return Err(self.index.malformed(Malformed::invalid(offset_at, "a block behind the blocks")));
        }
        let room = self.offsets_at - at;
        let mut length = BLOCK_BYTES.min(room);
        loop {
            let bytes = self.part(counter, at, length).await?;
            match decode_block(layout, &mut Input::at_offset(&bytes, at)) {
                // Clusterings may be long: at most 17 rounds.
                Err(Malformed { problem: Problem::Truncated, .. }) if length < room => {
                    length = (length * 4).min(room)
                }
                block => return block.map_err(|m| self.index.malformed(m)),
            }
        }
    }

    async fn part(&self, counter: &ReadCounter, at: u64, length: u64) -> Result<Vec<u8>, SstableError> {
        match &self.whole {
            Some((from, bytes)) => slice(bytes, *from, at, length),
            None => {
                let (from, end) = if self.index.pages.is_some() {
                    let end = (at + length).next_multiple_of(PAGE_BYTES).min(self.index.length);
                    (at / PAGE_BYTES * PAGE_BYTES, end)
                } else {
                    (at, at + length)
                };
                let bytes = self.index.read(counter, from, (end - from) as usize).await?;
                slice(&bytes, from, at, length)
            }
        }
        .map_err(|m| self.index.malformed(m))
    }

    /// Number of leading blocks that end at or before `position`.
    pub(crate) async fn ending_before(
        &self,
        counter: &ReadCounter,
        layout: &Layout,
        position: Position<'_>,
        orders: &[ClusteringOrder],
    ) -> Result<u64, SstableError> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            if self.block(counter, layout, middle).await?.last.as_ref().compare(position, orders).is_le() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Number of leading blocks that start before `position`.
    pub(crate) async fn starting_before(
        &self,
        counter: &ReadCounter,
        layout: &Layout,
        position: Position<'_>,
        orders: &[ClusteringOrder],
    ) -> Result<u64, SstableError> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            if self.block(counter, layout, middle).await?.first.as_ref().compare(position, orders).is_lt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

/// `length` bytes of the index from `at` on, taken from `bytes`, which start at `from`.
fn slice(bytes: &[u8], from: u64, at: u64, length: u64) -> Result<Vec<u8>, Malformed> {
    let start = at.checked_sub(from).and_then(|skip| usize::try_from(skip).ok());
    let part = start.and_then(|start| bytes.get(start..start.checked_add(usize::try_from(length).ok()?)?));
    part.map(<[u8]>::to_vec).ok_or(Malformed::truncated(at))
}

/// Decodes one block.
pub(crate) fn decode_block(layout: &Layout, input: &mut Input<'_>) -> Result<Block, Malformed> {
    let position = |input: &mut Input<'_>| -> Result<OwnedPosition, Malformed> {
        let mut prefix = Vec::new();
        let weight = decode::prefix(layout, input, &mut prefix)?;
        Ok(Position { prefix: Clustering(&prefix), weight }.to_owned())
    };
    let (first, last) = (position(input)?, position(input)?);
    let at = input.offset();
    let offset = input.vint()?;
    let width = input.signed_vint()?.checked_add(WIDTH_BASE).and_then(|width| u64::try_from(width).ok());
    let width = width.ok_or(Malformed::invalid(at, "a block of negative width"))?;
    let open = if input.boolean()? { decode::whole_deletion(layout, input)? } else { DeletionTime::LIVE };
    Ok(Block { first, last, offset, width, open })
}
