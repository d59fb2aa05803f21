//! Has the kernel write the log while it grows, so that a flush of the device finds little left to do.
//!
//! In `periodic` mode entries stay in the kernel's page cache until the period is over. Without this task the
//! kernel wrote a gigabyte at once, and the disk had no time for reads, table files and new segments
//! meanwhile. Nothing becomes durable here: [`Commitlog::sync`] makes entries durable and reports errors.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::format::Position;
use super::{Commitlog, Segment, State};

/// Bytes that may gather before the kernel is asked to write them: one efficient request for any disk.
const GATHER_BYTES: u32 = 1 << 20;
/// Only whole pages are handed over, since the last one will be written to again.
const PAGE_BYTES: u32 = 4096;

/// Part of a segment that is to be written.
struct Stretch {
    segment: Rc<Segment>,
    offset: u32,
    bytes: u32,
}

/// Whether the bytes between the two positions are enough to be handed over.
#[inline]
fn is_behind(handed_over: Position, written: Position) -> bool {
    handed_over.segment != written.segment || written.offset - handed_over.offset >= GATHER_BYTES
}

/// Bytes to hand over from `from` on, and the position that is next. `segments` are those with entries, by
/// id.
fn stretch<T>(from: Position, written: Position, segments: &BTreeMap<u64, T>) -> (u32, Position) {
    if from.segment == written.segment {
        let end = written.offset - written.offset % PAGE_BYTES;
        return (end - from.offset, Position { offset: end, ..from });
    }
    let following = segments.range(from.segment + 1..written.segment).next();
    let following = following.map_or(written.segment, |(id, _)| *id);
    // To the end of the file, whatever its length.
    (u32::MAX >> 1, Position { segment: following, offset: 0 })
}

impl State {
    #[inline]
    pub(super) fn is_behind(&self) -> bool {
        is_behind(self.handed_over, self.written)
    }

    /// Takes the oldest stretch that the kernel is to write next, and counts it as handed over.
    fn next_stretch(&mut self) -> Option<Stretch> {
        while self.is_behind() {
            let from = self.handed_over;
            let (bytes, next) = stretch(from, self.written, &self.live);
            self.handed_over = next;
            // A segment that is not live any more is free: its bytes are not needed.
            if let Some(segment) = self.live.get(&from.segment) {
                return Some(Stretch { segment: Rc::clone(segment), offset: from.offset, bytes });
            }
        }
        None
    }
}

impl Commitlog {
    /// The task that hands written bytes over to the kernel.
    pub(super) async fn write_back(&self) {
        while !self.0.closing.get() {
            let next = self.0.state.borrow_mut().next_stretch();
            match next {
                // Errors are ignored: the flush of the device does the rest and reports its errors.
                Some(Stretch { segment, offset, bytes }) => {
                    drop(segment.file.start_writeback(offset.into(), bytes).await);
                }
                None => self.0.behind.wait().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_whole_page_is_handed_over_once_and_in_order() {
        let (segments, segment_bytes) = (3, 5 * GATHER_BYTES + 12345);
        let live: BTreeMap<u64, ()> = (1..=segments).map(|id| (id, ())).collect();
        let mut handed = Position { segment: 1, offset: 0 };
        let mut stretches = Vec::new();
        for segment in 1..=segments {
            for step in 1..=100 {
                let written = Position { segment, offset: segment_bytes / 100 * step };
                while is_behind(handed, written) {
                    let (bytes, next) = stretch(handed, written, &live);
                    stretches.push((handed.segment, handed.offset, bytes));
                    handed = next;
                }
            }
        }
        for segment in 1..segments {
            let mut at = 0;
            for (_, offset, bytes) in stretches.iter().filter(|(of, ..)| *of == segment) {
                assert_eq!(*offset, at, "of segment {segment}: {stretches:?}");
                assert!(offset % PAGE_BYTES == 0 && *bytes >= GATHER_BYTES - PAGE_BYTES);
                at += bytes;
            }
            assert!(at >= segment_bytes, "segment {segment} to its end");
        }
        assert!(segment_bytes - handed.offset < 2 * GATHER_BYTES);
    }
}
