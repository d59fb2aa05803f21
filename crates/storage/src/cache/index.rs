//! Finds partitions by hash: a table that grows by one bucket at a time, so that no insertion ever copies it.
//!
//! Linear hashing: with `2^level` buckets and `split` of them split already, a hash's low `level` bits name
//! its bucket, or one bit more if that bucket is split. Partitions of one bucket are chained through their
//! objects. The hash is the token, turned by its owner: tokens are hashes already. Buckets are never given
//! back; one takes 4 bytes.

use memory::{Budget, Handle, Kind, Pieces, Region};

use super::object::{NEXT_NONE, Name, Object, set_next};

/// The index of all partitions of a cache.
#[derive(Debug)]
pub(super) struct Index {
    heads: Pieces<u32>,
    level: u32,
    split: u64,
    count: u64,
}

fn hash(name: Name<'_>) -> u64 {
    (name.token.0 as u64) ^ u64::from(name.owner).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Index {
    pub(super) fn new(budget: Budget) -> Self {
        Self { heads: Pieces::new(budget, Kind::Clean), level: 0, split: 0, count: 0 }
    }

    /// Partitions in it.
    pub(super) fn len(&self) -> u64 {
        self.count
    }

    /// Most bytes an insertion takes from the budget.
    pub(super) fn growth(&self) -> usize {
        // The first one and the bucket it splits.
        self.heads.growth(2)
    }

    #[inline]
    fn bucket(&self, hash: u64) -> u64 {
        let low = hash & ((1 << self.level) - 1);
        if low < self.split { hash & ((2 << self.level) - 1) } else { low }
    }

    #[inline]
    fn head(&self, bucket: u64) -> u32 {
        self.heads[bucket as usize]
    }

    fn set_head(&mut self, bucket: u64, head: u32) {
        self.heads[bucket as usize] = head;
    }

    /// The partition of that name.
    #[inline]
    pub(super) fn find(&self, region: &Region, name: Name<'_>) -> Option<Handle> {
        if self.count == 0 {
            return None;
        }
        let mut at = self.head(self.bucket(hash(name)));
        while at != NEXT_NONE {
            let object = Object::of(region, Handle(at));
            if object.token() == name.token && object.owner() == name.owner && object.key() == name.key {
                return Some(Handle(at));
            }
            at = object.next();
        }
        None
    }

    /// Adds a partition that is not there.
    pub(super) fn insert(&mut self, region: &mut Region, handle: Handle) {
        if self.heads.is_empty() {
            self.heads.push(NEXT_NONE);
        }
        let bucket = self.bucket(hash(name_of(region, handle)));
        set_next(region, handle, self.head(bucket));
        self.set_head(bucket, handle.0);
        self.count += 1;
        if self.count > (1 << self.level) + self.split {
            self.split_one(region);
        }
    }

    /// Takes a partition out.
    ///
    /// # Panics
    /// When it is not there.
    pub(super) fn remove(&mut self, region: &mut Region, handle: Handle) {
        let bucket = self.bucket(hash(name_of(region, handle)));
        let next = Object::of(region, handle).next();
        let mut at = self.head(bucket);
        if at == handle.0 {
            self.set_head(bucket, next);
        } else {
            loop {
                assert!(at != NEXT_NONE, "partition {handle:?} is not in the index");
                let after = Object::of(region, Handle(at)).next();
                if after == handle.0 {
                    set_next(region, Handle(at), next);
                    break;
                }
                at = after;
            }
        }
        self.count -= 1;
    }

    fn split_one(&mut self, region: &mut Region) {
        let (low, high) = (self.split, self.split + (1 << self.level));
        assert_eq!(self.heads.push(NEXT_NONE) as u64, high, "a bucket is made by splitting");
        let mut at = self.head(low);
        let (mut stay, mut leave) = (NEXT_NONE, NEXT_NONE);
        while at != NEXT_NONE {
            let handle = Handle(at);
            at = Object::of(region, handle).next();
            let bit = hash(name_of(region, handle)) >> self.level & 1;
            let chain = if bit == 0 { &mut stay } else { &mut leave };
            set_next(region, handle, *chain);
            *chain = handle.0;
        }
        self.set_head(low, stay);
        self.set_head(high, leave);
        self.split += 1;
        if self.split == 1 << self.level {
            self.level += 1;
            self.split = 0;
        }
    }
}

fn name_of(region: &Region, handle: Handle) -> Name<'_> {
    let object = Object::of(region, handle);
    // The key is not part of the hash.
    Name { owner: object.owner(), token: object.token(), key: &[] }
}

#[cfg(test)]
mod tests {
    use super::super::object::store_whole;
    use super::*;
    use model::partition_key::DecoratedKey;
    use model::{DeletionTime, Token};

    fn name(number: u32) -> (Token, Vec<u8>) {
        let key = DecoratedKey::new(number.to_be_bytes().to_vec());
        // Every third token is that of another key too.
        (if number.is_multiple_of(3) { Token(7) } else { key.token }, key.key)
    }

    #[test]
    fn finds_what_is_in_it_and_nothing_else() {
        let budget = Budget::new(1 << 30);
        let mut region = Region::of_kind(budget.clone(), Kind::Clean, memory::SEGMENT_BYTES);
        let mut index = Index::new(budget.clone());
        let mut handles = Vec::new();
        let check = |index: &Index, region: &Region, there: &[Option<Handle>]| {
            for (number, handle) in there.iter().enumerate() {
                let (token, key) = name(number as u32);
                for owner in [1, 2] {
                    let expected = handle.filter(|_| owner == 1);
                    assert_eq!(index.find(region, Name { owner, token, key: &key }), expected, "{number}");
                }
            }
        };
        for number in 0..3000 {
            let (token, key) = name(number);
            let name = Name { owner: 1, token, key: &key };
            let handle = store_whole(&mut region, None, name, DeletionTime::LIVE, None);
            index.insert(&mut region, handle);
            handles.push(Some(handle));
        }
        check(&index, &region, &handles);
        for slot in handles.iter_mut().step_by(2) {
            let gone = slot.take().expect("it is there");
            index.remove(&mut region, gone);
            region.free(gone);
        }
        assert_eq!(index.len(), 1500);
        check(&index, &region, &handles);
        drop((index, region));
        assert_eq!(budget.clean(), 0);
    }
}
