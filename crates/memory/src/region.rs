//! Objects of any size in segments of 128 KiB, behind handles.
//!
//! ```text
//! segment := object*            object := handle:u32 capacity:u32 bytes[capacity]     (capacity a multiple of 8)
//! ```
//! Objects are appended to the newest segment. Freed ones leave holes; when holes outweigh what lives, the
//! emptiest segment is emptied into the newest one and given back: one segment for each new one at most, so
//! that no allocation copies more than 128 KiB. Dropping a region gives all of it back at once.
//! Invariant: `entries[handle]` and the head of the object name each other, or the head says it is dead.

use crate::budget::Budget;

/// Bytes of a full segment.
pub const SEGMENT_BYTES: usize = 128 << 10;

/// The first segments of a region are smaller, so that hundreds of empty tables stay cheap.
const FIRST_SEGMENTS_BYTES: [usize; 2] = [4 << 10, 32 << 10];

/// An object above this gets a segment of its own.
const SHARED_OBJECT_BYTES_MAX: usize = SEGMENT_BYTES / 4;

const HEAD_BYTES: usize = 8;
const DEAD: u32 = u32::MAX;
const NOWHERE: u32 = u32::MAX;

/// Names an object of one region until it is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub u32);

impl Handle {
    /// Names nothing.
    pub const NONE: Handle = Handle(u32::MAX);

    /// Whether it names nothing.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    segment: u32,
    /// Of the object's bytes; for a free entry the next free one.
    offset: u32,
    length: u32,
}

#[derive(Debug)]
struct Segment {
    bytes: Box<[u8]>,
    used: u32,
    live: u32,
}

/// A set of objects that is dropped as one.
#[derive(Debug)]
pub struct Region {
    budget: Budget,
    segments: Vec<Option<Segment>>,
    free_segments: Vec<u32>,
    newest: u32,
    made: usize,
    entries: Vec<Entry>,
    free_entry: u32,
    used_bytes: usize,
    live_bytes: usize,
}

impl Region {
    /// An empty region; takes memory with its first object.
    pub fn new(budget: Budget) -> Self {
        Self {
            budget,
            segments: Vec::new(),
            free_segments: Vec::new(),
            newest: NOWHERE,
            made: 0,
            entries: Vec::new(),
            free_entry: NOWHERE,
            used_bytes: 0,
            live_bytes: 0,
        }
    }

    /// Bytes of segments held.
    pub fn held_bytes(&self) -> usize {
        self.segments.iter().flatten().map(|s| s.bytes.len()).sum()
    }

    /// Bytes of living objects with their heads.
    pub fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// Stores the concatenation of `parts`.
    pub fn alloc(&mut self, parts: &[&[u8]]) -> Handle {
        let length: usize = parts.iter().map(|p| p.len()).sum();
        let index = if self.free_entry == NOWHERE {
            self.entries.push(Entry { segment: NOWHERE, offset: NOWHERE, length: 0 });
            assert!(self.entries.len() < DEAD as usize, "a region names fewer than 2^32 objects");
            (self.entries.len() - 1) as u32
        } else {
            let index = self.free_entry;
            self.free_entry = self.entries[index as usize].offset;
            index
        };
        let (segment, offset) = self.place(index, length);
        self.entries[index as usize] = Entry { segment, offset, length: length as u32 };
        self.fill(segment, offset, parts);
        Handle(index)
    }

    /// The object's bytes.
    #[inline]
    pub fn get(&self, handle: Handle) -> &[u8] {
        let entry = self.entries[handle.0 as usize];
        let segment = self.segments[entry.segment as usize].as_ref().expect("a living object's segment");
        &segment.bytes[entry.offset as usize..(entry.offset + entry.length) as usize]
    }

    /// Puts other bytes behind the same handle.
    pub fn replace(&mut self, handle: Handle, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|p| p.len()).sum();
        let old = self.entries[handle.0 as usize];
        if length <= self.capacity(old) {
            self.entries[handle.0 as usize].length = length as u32;
            self.fill(old.segment, old.offset, parts);
            return;
        }
        // Dead first: placing the new bytes may empty the segment the old ones stand in.
        self.kill(old);
        let (segment, offset) = self.place(handle.0, length);
        self.entries[handle.0 as usize] = Entry { segment, offset, length: length as u32 };
        self.fill(segment, offset, parts);
    }

    /// Gives the object up; its handle may be given out again.
    pub fn free(&mut self, handle: Handle) {
        self.kill(self.entries[handle.0 as usize]);
        self.entries[handle.0 as usize] = Entry { segment: NOWHERE, offset: self.free_entry, length: 0 };
        self.free_entry = handle.0;
    }

    fn segment_mut(&mut self, segment: u32) -> &mut Segment {
        self.segments[segment as usize].as_mut().expect("a named segment is there")
    }

    fn capacity(&self, entry: Entry) -> usize {
        let segment = self.segments[entry.segment as usize].as_ref().expect("a living object's segment");
        let at = entry.offset as usize - 4;
        u32::from_le_bytes(segment.bytes[at..at + 4].try_into().expect("four bytes")) as usize
    }

    fn fill(&mut self, segment: u32, offset: u32, parts: &[&[u8]]) {
        let mut at = offset as usize;
        let bytes = &mut self.segment_mut(segment).bytes;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
    }

    fn kill(&mut self, entry: Entry) {
        let taken = HEAD_BYTES + self.capacity(entry);
        self.live_bytes -= taken;
        let newest = self.newest;
        let segment = self.segment_mut(entry.segment);
        let head = entry.offset as usize - HEAD_BYTES;
        segment.bytes[head..head + 4].copy_from_slice(&DEAD.to_le_bytes());
        segment.live -= taken as u32;
        if segment.live == 0 && entry.segment != newest {
            self.release(entry.segment);
        }
    }

    fn release(&mut self, segment: u32) {
        let gone = self.segments[segment as usize].take().expect("a named segment is there");
        self.used_bytes -= gone.used as usize;
        self.budget.return_segment(gone.bytes);
        self.free_segments.push(segment);
    }

    /// Room for an object of `length` bytes, its head written: segment and offset of its bytes.
    fn place(&mut self, index: u32, length: usize) -> (u32, u32) {
        let capacity = length.next_multiple_of(8);
        let taken = HEAD_BYTES + capacity;
        if taken > SHARED_OBJECT_BYTES_MAX {
            let segment = self.add_segment(taken);
            return (segment, self.put(segment, index, capacity));
        }
        if !self.fits(taken) {
            let next = FIRST_SEGMENTS_BYTES.get(self.made).copied().unwrap_or(SEGMENT_BYTES);
            self.made += 1;
            let old = self.newest;
            self.newest = self.add_segment(next.max(taken.next_multiple_of(4096)));
            if old != NOWHERE && self.segment_mut(old).live == 0 {
                self.release(old);
            }
            self.empty_one();
            if !self.fits(taken) {
                // What was moved filled the new segment.
                self.newest = self.add_segment(SEGMENT_BYTES);
            }
        }
        (self.newest, self.put(self.newest, index, capacity))
    }

    fn fits(&self, taken: usize) -> bool {
        self.newest != NOWHERE
            && self.segments[self.newest as usize]
                .as_ref()
                .is_some_and(|s| s.used as usize + taken <= s.bytes.len())
    }

    fn put(&mut self, segment: u32, index: u32, capacity: usize) -> u32 {
        let taken = HEAD_BYTES + capacity;
        self.used_bytes += taken;
        self.live_bytes += taken;
        let s = self.segment_mut(segment);
        let at = s.used as usize;
        s.bytes[at..at + 4].copy_from_slice(&index.to_le_bytes());
        s.bytes[at + 4..at + 8].copy_from_slice(&(capacity as u32).to_le_bytes());
        s.used += taken as u32;
        s.live += taken as u32;
        (at + HEAD_BYTES) as u32
    }

    fn add_segment(&mut self, bytes: usize) -> u32 {
        let segment = Segment { bytes: self.budget.take_segment(bytes), used: 0, live: 0 };
        if let Some(at) = self.free_segments.pop() {
            self.segments[at as usize] = Some(segment);
            at
        } else {
            self.segments.push(Some(segment));
            (self.segments.len() - 1) as u32
        }
    }

    /// Moves what lives in the emptiest segment into the newest, where holes are a good part of the region.
    fn empty_one(&mut self) {
        let holes = self.used_bytes - self.live_bytes;
        if holes < 2 * SEGMENT_BYTES || holes < self.live_bytes / 4 {
            return;
        }
        let emptiest = (0..self.segments.len() as u32)
            .filter(|at| *at != self.newest)
            .filter_map(|at| self.segments[at as usize].as_ref().map(|s| (s.live, at, s.used)))
            .min();
        let Some((live, from, used)) = emptiest else { return };
        let to = self.segments[self.newest as usize].as_ref().expect("the newest segment is there");
        if live > used / 2 || to.used + live > to.bytes.len() as u32 {
            return;
        }
        let source = self.segments[from as usize].take().expect("the emptiest segment is there");
        self.used_bytes -= source.used as usize;
        self.live_bytes -= source.live as usize;
        let mut at = 0;
        while at < source.used as usize {
            let word =
                |at: usize| u32::from_le_bytes(source.bytes[at..at + 4].try_into().expect("four bytes"));
            let (index, capacity) = (word(at), word(at + 4) as usize);
            let start = at + HEAD_BYTES;
            at = start + capacity;
            if index == DEAD {
                continue;
            }
            let offset = self.put(self.newest, index, capacity);
            self.fill(self.newest, offset, &[&source.bytes[start..at]]);
            let entry = &mut self.entries[index as usize];
            (entry.segment, entry.offset) = (self.newest, offset);
        }
        self.budget.return_segment(source.bytes);
        self.free_segments.push(from);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        for segment in self.segments.drain(..).flatten() {
            self.budget.return_segment(segment.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn overwriting_for_ever_stays_within_a_few_segments() {
        let budget = Budget::new(1 << 30);
        let mut region = Region::new(budget.clone());
        let handles: Vec<Handle> = (0..1000).map(|_| region.alloc(&[&[0; 40]])).collect();
        for round in 0..400usize {
            for handle in &handles {
                region.replace(*handle, &[&vec![round as u8; 40 + (round % 50) * 8]]);
            }
        }
        assert!(region.held_bytes() < 16 * SEGMENT_BYTES, "{} bytes held", region.held_bytes());
        assert!(handles.iter().all(|h| region.get(*h) == vec![143; 40 + 49 * 8]));
        drop(region);
        assert_eq!(budget.used(), 0);
    }

    proptest! {
        #[test]
        fn behaves_as_a_map_from_handles_to_bytes(
            steps in proptest::collection::vec((0u8..4, 0usize..40, 0usize..3000, any::<u8>()), 1..600)
        ) {
            let budget = Budget::new(1 << 30);
            let mut region = Region::new(budget.clone());
            let mut model: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
            for (step, pick, length, byte) in steps {
                let length = if length > 2950 { length * 40 } else { length };
                let bytes = vec![byte; length];
                let picked = model.keys().copied().nth(pick % model.len().max(1));
                match (step, picked) {
                    (0 | 1, _) | (_, None) => {
                        let handle = region.alloc(&[&bytes[..length / 2], &bytes[length / 2..]]);
                        prop_assert!(model.insert(handle.0, bytes).is_none());
                    }
                    (2, Some(key)) => {
                        region.replace(Handle(key), &[&bytes]);
                        model.insert(key, bytes);
                    }
                    (_, Some(key)) => {
                        region.free(Handle(key));
                        model.remove(&key);
                    }
                }
                for (key, bytes) in &model {
                    prop_assert_eq!(region.get(Handle(*key)), bytes.as_slice());
                }
            }
            prop_assert_eq!(budget.used(), region.held_bytes());
            drop(region);
            prop_assert_eq!(budget.used(), 0);
        }
    }
}
