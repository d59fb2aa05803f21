//! Objects of any size in segments of 128 KiB (`arena`), behind handles.
//!
//! ```text
//! segment := object*        object := handle:u32 capacity:u32 bytes[capacity]  (capacity a multiple of 8)
//! ```
//! Objects are appended to the newest segment. Freed ones leave holes; when holes outweigh live objects, the
//! emptiest segment is moved into the newest one and returned: at most one segment for each new one, so that
//! no allocation copies more than 128 KiB. Dropping a region returns all of it at once.
//!
//! A region of clean memory is cleaned by age: its owner lists the objects of the oldest segment
//! ([`Region::oldest_objects`]) and frees each or moves it to the newest segment ([`Region::renew`]); with
//! the last one the segment is returned. Invariant: `entries[handle]` and the header of the object name each
//! other, or the header marks the object as dead.

use std::collections::VecDeque;

use crate::arena::Block;
use crate::budget::{Budget, Kind};
use crate::pieces::Pieces;

/// Bytes of a full segment.
pub const SEGMENT_BYTES: usize = 128 << 10;

/// The first segments of a region are smaller, so that hundreds of empty tables stay cheap.
const FIRST_SEGMENTS_BYTES: [usize; 2] = [4 << 10, 32 << 10];

/// Segments are not made smaller than this.
const SEGMENT_BYTES_MIN: usize = 4 << 10;

const HEAD_BYTES: usize = 8;
const DEAD: u32 = u32::MAX;
const NOWHERE: u32 = u32::MAX;

/// Names an object of one region until it is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub u32);

impl Handle {
    /// Names nothing.
    pub const NONE: Handle = Handle(u32::MAX);

    /// Whether the handle names no object.
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
    bytes: Block,
    used: u32,
    live: u32,
    /// Number of its making: greater is younger.
    born: u64,
}

/// A set of objects that is dropped as one.
#[derive(Debug)]
pub struct Region {
    budget: Budget,
    kind: Kind,
    segment_bytes: usize,
    segments: Vec<Option<Segment>>,
    free_segments: Vec<u32>,
    newest: u32,
    made: usize,
    /// Segments in the order they were made, including some that are gone.
    ages: VecDeque<(u32, u64)>,
    last_born: u64,
    entries: Pieces<Entry>,
    free_entry: u32,
    used_bytes: usize,
    live_bytes: usize,
    held_bytes: usize,
}

impl Region {
    /// An empty region of dirty memory; takes memory with its first object.
    pub fn new(budget: Budget) -> Self {
        Self::of_kind(budget, Kind::Dirty, SEGMENT_BYTES)
    }

    /// An empty region of memory of that kind, in segments of about `segment_bytes`.
    pub fn of_kind(budget: Budget, kind: Kind, segment_bytes: usize) -> Self {
        Self {
            entries: Pieces::new(budget.clone(), kind),
            budget,
            kind,
            segment_bytes: segment_bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES).next_multiple_of(4096),
            segments: Vec::new(),
            free_segments: Vec::new(),
            newest: NOWHERE,
            made: 0,
            ages: VecDeque::new(),
            last_born: 0,
            free_entry: NOWHERE,
            used_bytes: 0,
            live_bytes: 0,
            held_bytes: 0,
        }
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// Bytes of segments held.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Bytes of the table of handles.
    pub fn table_bytes(&self) -> usize {
        self.entries.held_bytes()
    }

    /// Most bytes that storing an object of `length` bytes takes from the budget.
    pub fn growth(&self, length: usize) -> usize {
        let taken = HEAD_BYTES + length.next_multiple_of(8);
        let table = if self.free_entry == NOWHERE { self.entries.growth(1) } else { 0 };
        table
            + if taken > self.shared_object_bytes_max() {
                taken
            } else if self.fits(taken) {
                0
            } else {
                // Emptying another segment may fill the new one.
                2 * self.segment_bytes
            }
    }

    /// Most bytes that the handles of `objects` take from the budget.
    pub fn handles_growth(&self, objects: usize) -> usize {
        self.entries.growth(objects)
    }

    /// A larger object gets its own segment.
    fn shared_object_bytes_max(&self) -> usize {
        self.segment_bytes / 4
    }

    #[inline]
    fn entry(&self, index: u32) -> &Entry {
        &self.entries[index as usize]
    }

    fn entry_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }

    fn add_entry(&mut self) -> u32 {
        let index = self.entries.push(Entry { segment: NOWHERE, offset: NOWHERE, length: 0 });
        assert!(index < DEAD as usize, "a region names fewer than 2^32 objects");
        index as u32
    }

    /// Bytes of living objects with their heads.
    pub fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// Stores the concatenation of `parts`.
    pub fn alloc(&mut self, parts: &[&[u8]]) -> Handle {
        let length: usize = parts.iter().map(|p| p.len()).sum();
        let index = if self.free_entry == NOWHERE {
            self.add_entry()
        } else {
            let index = self.free_entry;
            self.free_entry = self.entry(index).offset;
            index
        };
        *self.entry_mut(index) = self.store(index, length, parts);
        Handle(index)
    }

    /// The object's bytes.
    #[inline]
    pub fn get(&self, handle: Handle) -> &[u8] {
        let entry = self.entry(handle.0);
        let segment = self.segments[entry.segment as usize].as_ref().expect("a living object's segment");
        &segment.bytes[entry.offset as usize..(entry.offset + entry.length) as usize]
    }

    /// The object's bytes, to be changed in place.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle) -> &mut [u8] {
        let entry = *self.entry(handle.0);
        &mut self.segment_mut(entry.segment).bytes
            [entry.offset as usize..(entry.offset + entry.length) as usize]
    }

    /// Whether the handle names an object.
    pub fn contains(&self, handle: Handle) -> bool {
        (handle.0 as usize) < self.entries.len() && self.entry(handle.0).segment != NOWHERE
    }

    /// Lists the objects of the oldest segment in `out`, which is emptied first; returns whether there is a
    /// segment.
    ///
    /// The same segment is listed again until all of its objects are freed or renewed: then it is gone.
    pub fn oldest_objects(&mut self, out: &mut Vec<Handle>) -> bool {
        out.clear();
        let oldest = loop {
            let Some((segment, born)) = self.ages.front().copied() else { return false };
            if self.segments[segment as usize].as_ref().is_some_and(|s| s.born == born) {
                break segment;
            }
            self.ages.pop_front();
        };
        if oldest == self.newest {
            // Objects moved out of the segment must not be moved back into it.
            self.newest = NOWHERE;
        }
        if self.segment_mut(oldest).live == 0 {
            self.release(oldest);
            return self.oldest_objects(out);
        }
        list_objects(self.segment_mut(oldest), out);
        true
    }

    /// How many segments the list of ages has; some of them may be gone.
    pub fn age_count(&self) -> usize {
        self.ages.len()
    }

    /// Lists the objects of the segment of that age in `out`, which is emptied first; 0 is the newest.
    pub fn objects_of_age(&self, age: usize, out: &mut Vec<Handle>) {
        out.clear();
        let listed = self.ages.len().checked_sub(age + 1).and_then(|at| self.ages.get(at));
        let Some((segment, born)) = listed.copied() else { return };
        if let Some(segment) = self.segments[segment as usize].as_ref().filter(|s| s.born == born) {
            list_objects(segment, out);
        }
    }

    /// Moves an object to the newest segment, so that it counts as young again.
    pub fn renew(&mut self, handle: Handle) {
        let old = *self.entry(handle.0);
        let born = self.last_born;
        let taken = HEAD_BYTES + self.capacity(old);
        let segment = self.segment_mut(old.segment);
        if segment.bytes.len() == taken {
            // It has the segment to itself: the segment gets younger.
            segment.born = born + 1;
            self.last_born += 1;
            self.ages.push_back((old.segment, born + 1));
            return;
        }
        let start = old.offset as usize;
        let bytes = segment.bytes[start..start + old.length as usize].to_vec();
        let fresh = self.store(handle.0, bytes.len(), &[&bytes]);
        // Making room may have moved it.
        let now = *self.entry(handle.0);
        self.kill(now);
        *self.entry_mut(handle.0) = fresh;
    }

    /// Replaces the bytes of an object, keeping its handle.
    pub fn replace(&mut self, handle: Handle, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|p| p.len()).sum();
        let old = *self.entry(handle.0);
        if length <= self.capacity(old) {
            self.entry_mut(handle.0).length = length as u32;
            self.fill(old.segment, old.offset, parts);
            return;
        }
        // Marked dead first: placing the new bytes may empty the segment of the old ones.
        self.kill(old);
        *self.entry_mut(handle.0) = self.store(handle.0, length, parts);
    }

    /// Frees the object; its handle may be reused.
    pub fn free(&mut self, handle: Handle) {
        self.kill(*self.entry(handle.0));
        *self.entry_mut(handle.0) = Entry { segment: NOWHERE, offset: self.free_entry, length: 0 };
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
        self.give(gone.bytes);
        self.free_segments.push(segment);
    }

    fn give(&mut self, bytes: Block) {
        self.held_bytes -= bytes.len();
        self.budget.return_segment(self.kind, bytes);
    }

    /// Stores an object of `length` bytes, made of `parts`.
    fn store(&mut self, index: u32, length: usize, parts: &[&[u8]]) -> Entry {
        let capacity = length.next_multiple_of(8);
        let taken = HEAD_BYTES + capacity;
        let (segment, offset) = if taken > self.shared_object_bytes_max() {
            let block = self.budget.take_filled(self.kind, taken, &head(index, capacity), parts);
            let segment = self.add_segment(block);
            (segment, self.count(segment, taken))
        } else {
            self.make_room(taken);
            let offset = self.put(self.newest, index, capacity);
            self.fill(self.newest, offset, parts);
            (self.newest, offset)
        };
        Entry { segment, offset, length: length as u32 }
    }

    /// Makes sure that an object of so many bytes fits in the newest segment.
    fn make_room(&mut self, taken: usize) {
        if !self.fits(taken) {
            let first = FIRST_SEGMENTS_BYTES.get(self.made).copied();
            let next = first.unwrap_or(self.segment_bytes).min(self.segment_bytes);
            self.made += 1;
            let old = self.newest;
            self.newest = self.add_empty_segment(next.max(taken.next_multiple_of(4096)));
            if old != NOWHERE && self.segment_mut(old).live == 0 {
                self.release(old);
            }
            self.empty_one();
            if !self.fits(taken) {
                // The moved objects filled the new segment.
                self.newest = self.add_empty_segment(self.segment_bytes);
            }
        }
    }

    fn fits(&self, taken: usize) -> bool {
        self.newest != NOWHERE
            && self.segments[self.newest as usize]
                .as_ref()
                .is_some_and(|s| s.used as usize + taken <= s.bytes.len())
    }

    /// Reserves bytes for an object in a segment and writes its header; returns the offset of the object's
    /// bytes.
    fn put(&mut self, segment: u32, index: u32, capacity: usize) -> u32 {
        let offset = self.count(segment, HEAD_BYTES + capacity);
        let at = offset as usize;
        self.segment_mut(segment).bytes[at - HEAD_BYTES..at].copy_from_slice(&head(index, capacity));
        offset
    }

    /// Counts an object of so many bytes in a segment; returns the offset of the object's bytes.
    fn count(&mut self, segment: u32, taken: usize) -> u32 {
        self.used_bytes += taken;
        self.live_bytes += taken;
        let s = self.segment_mut(segment);
        let at = s.used;
        s.used += taken as u32;
        s.live += taken as u32;
        at + HEAD_BYTES as u32
    }

    fn add_empty_segment(&mut self, bytes: usize) -> u32 {
        let block = self.budget.take_segment(self.kind, bytes);
        self.add_segment(block)
    }

    fn add_segment(&mut self, taken: Block) -> u32 {
        self.last_born += 1;
        self.held_bytes += taken.len();
        let segment = Segment { bytes: taken, used: 0, live: 0, born: self.last_born };
        let at = if let Some(at) = self.free_segments.pop() {
            self.segments[at as usize] = Some(segment);
            at
        } else {
            self.segments.push(Some(segment));
            (self.segments.len() - 1) as u32
        };
        if self.kind == Kind::Clean {
            self.ages.push_back((at, self.last_born));
            self.forget_ages();
        }
        at
    }

    /// Keeps the list of ages from growing when segments other than the oldest are released.
    fn forget_ages(&mut self) {
        if self.ages.len() > 2 * (self.segments.len() - self.free_segments.len()) + 16 {
            let segments = &self.segments;
            self.ages.retain(|(at, born)| {
                segments[*at as usize].as_ref().is_some_and(|segment| segment.born == *born)
            });
        }
    }

    /// Moves the live objects of the emptiest segment into the newest, if holes are a considerable part of
    /// the region.
    fn empty_one(&mut self) {
        let holes = self.used_bytes - self.live_bytes;
        if holes < 2 * self.segment_bytes || holes < self.live_bytes / 4 {
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
            let newest = self.newest;
            let entry = self.entry_mut(index);
            (entry.segment, entry.offset) = (newest, offset);
        }
        self.give(source.bytes);
        self.free_segments.push(from);
    }
}

/// The header before an object's bytes.
fn head(index: u32, capacity: usize) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&index.to_le_bytes());
    head[4..].copy_from_slice(&(capacity as u32).to_le_bytes());
    head
}

/// Appends the live objects of a segment.
fn list_objects(segment: &Segment, out: &mut Vec<Handle>) {
    let word = |at: usize| u32::from_le_bytes(segment.bytes[at..at + 4].try_into().expect("four bytes"));
    let mut at = 0;
    while at < segment.used as usize {
        let (index, capacity) = (word(at), word(at + 4) as usize);
        if index != DEAD {
            out.push(Handle(index));
        }
        at += HEAD_BYTES + capacity;
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        for segment in std::mem::take(&mut self.segments).into_iter().flatten() {
            self.give(segment.bytes);
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
            let held: usize = region.segments.iter().flatten().map(|s| s.bytes.len()).sum();
            prop_assert_eq!(region.held_bytes(), held);
            prop_assert_eq!(budget.used(), region.held_bytes() + region.table_bytes());
            drop(region);
            prop_assert_eq!(budget.used(), 0);
        }

        /// Clean memory under a limit: objects are added, changed and read by their handles, and the oldest
        /// segment is cleaned whenever the next object would not fit. The limit is never exceeded, and
        /// objects that were not evicted are unchanged.
        #[test]
        fn cleaning_by_age_keeps_to_the_limit(
            steps in proptest::collection::vec((0u8..5, 0usize..60, 0usize..1800, any::<u8>()), 1..500),
            segment_kib in 4usize..40
        ) {
            let limit = 12 * (segment_kib << 10);
            let budget = Budget::shared(limit, limit);
            let mut region = Region::of_kind(budget.clone(), Kind::Clean, segment_kib << 10);
            let mut model: BTreeMap<u32, (Vec<u8>, bool)> = BTreeMap::new();
            let mut oldest = Vec::new();
            for (step, pick, length, byte) in steps {
                let length = if length > 1760 { length * 8 } else { length };
                let bytes = vec![byte; length];
                let mut rounds = 0;
                while budget.room() < region.growth(length) + 2 * region.segment_bytes() {
                    rounds += 1;
                    prop_assert!(rounds < 200);
                    prop_assert!(region.oldest_objects(&mut oldest));
                    for handle in &oldest {
                        let (_, read) = model.get_mut(&handle.0).expect("listed objects live");
                        if std::mem::take(read) {
                            region.renew(*handle);
                        } else {
                            region.free(*handle);
                            model.remove(&handle.0);
                        }
                    }
                }
                let picked = model.keys().copied().nth(pick % model.len().max(1));
                match (step, picked) {
                    (0 | 1, _) | (_, None) => {
                        let handle = region.alloc(&[&bytes]);
                        prop_assert!(model.insert(handle.0, (bytes, false)).is_none());
                    }
                    (2, Some(key)) => {
                        region.replace(Handle(key), &[&bytes]);
                        model.get_mut(&key).expect("a picked key").0 = bytes;
                    }
                    (3, Some(key)) => model.get_mut(&key).expect("a picked key").1 = true,
                    (_, Some(key)) => {
                        region.free(Handle(key));
                        model.remove(&key);
                    }
                }
                prop_assert!(budget.total_used() <= limit, "{budget:?}");
                for (key, (bytes, _)) in &model {
                    prop_assert_eq!(region.get(Handle(*key)), bytes.as_slice());
                }
            }
            prop_assert_eq!(budget.clean(), region.held_bytes() + region.table_bytes());
            drop(region);
            prop_assert_eq!(budget.clean(), 0);
        }
    }
}
