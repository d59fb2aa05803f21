//! Counts the keys that come most often out of a stream, in bounded memory.
//!
//! Source: A. Metwally, D. Agrawal, A. El Abbadi, "Efficient Computation of Frequent and Top-k Elements in
//! Data Streams", ICDT 2005 (Space-Saving). A key that is new where all places are taken gets the place of
//! the key with the least count, and inherits that count as its error. Here a long key may take several
//! places, as bytes are bounded too: `given_up` is the greatest count that was ever given up. Invariant: a
//! key that is not kept came at most `given_up` times; a kept one came between `count - error` and `count`
//! times.

use std::collections::BTreeMap;
use std::rc::Rc;

use hashbrown::HashMap;
use model::TableId;

use super::{SampledPartition, TopPartitions};

/// Most bytes of keys that are kept together.
const KEY_BYTES_MAX: usize = 512 << 10;
/// Bytes of a table's id, which a kept key begins with.
const ID_BYTES: usize = size_of::<TableId>();

/// The keys with the greatest counts.
pub(super) struct TopKeys {
    capacity: usize,
    kept: HashMap<Rc<[u8]>, Kept, foldhash::fast::FixedState>,
    /// Kept keys by count, and those of one count by age.
    order: BTreeMap<(u64, u64), Rc<[u8]>>,
    key_bytes: usize,
    given_up: u64,
    /// Keys that were ever kept.
    keys: u64,
    /// The key that is looked for.
    sought: Vec<u8>,
}

struct Kept {
    count: u64,
    error: u64,
    number: u64,
}

impl TopKeys {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            kept: HashMap::default(),
            order: BTreeMap::new(),
            key_bytes: 0,
            given_up: 0,
            keys: 0,
            sought: Vec::new(),
        }
    }

    /// A key came once more.
    pub(super) fn count(&mut self, table: TableId, key: &[u8]) {
        self.sought.clear();
        self.sought.extend_from_slice(&table.0);
        self.sought.extend_from_slice(key);
        if let Some(kept) = self.kept.get_mut(&self.sought[..]) {
            let key = self.order.remove(&(kept.count, kept.number)).expect("a kept key has its place");
            kept.count += 1;
            self.order.insert((kept.count, kept.number), key);
            return;
        }
        let bytes = self.sought.len();
        while self.kept.len() >= self.capacity || self.key_bytes + bytes > KEY_BYTES_MAX {
            let Some(((count, _), key)) = self.order.pop_first() else { break };
            self.kept.remove(&key);
            self.key_bytes -= key.len();
            self.given_up = self.given_up.max(count);
        }
        let key: Rc<[u8]> = Rc::from(&self.sought[..]);
        let (count, error, number) = (self.given_up + 1, self.given_up, self.keys);
        self.keys += 1;
        self.key_bytes += bytes;
        self.order.insert((count, number), Rc::clone(&key));
        self.kept.insert(key, Kept { count, error, number });
    }

    /// The first `most` keys in descending order of their counts.
    pub(super) fn most_counted(&self, most: usize) -> TopPartitions {
        let top = self.order.iter().rev().take(most).filter_map(|((count, _), key)| {
            let (id, rest) = key.split_first_chunk::<ID_BYTES>()?;
            let error = self.kept.get(key)?.error;
            Some(SampledPartition { table: TableId(*id), key: rest.to_vec(), count: *count, error })
        });
        TopPartitions { cardinality: self.kept.len(), top: top.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = TableId([7; 16]);

    fn found(keys: &TopKeys, most: usize) -> Vec<(String, u64, u64)> {
        let top = keys.most_counted(most).top.into_iter();
        top.map(|one| (String::from_utf8(one.key).unwrap(), one.count, one.error)).collect()
    }

    #[test]
    fn counts_are_exact_while_all_keys_have_a_place() {
        let mut keys = TopKeys::new(4);
        for key in ["a", "b", "a", "c", "a", "b"] {
            keys.count(TABLE, key.as_bytes());
        }
        // The same key of another table is another key.
        keys.count(TableId([8; 16]), b"a");
        assert_eq!(keys.most_counted(9).cardinality, 4);
        assert_eq!(found(&keys, 2), [("a".to_owned(), 3, 0), ("b".to_owned(), 2, 0)]);
    }

    #[test]
    fn a_new_key_takes_the_place_of_the_least_one_with_its_count_as_error() {
        let mut keys = TopKeys::new(2);
        for key in ["a", "a", "a", "b", "b", "c"] {
            keys.count(TABLE, key.as_bytes());
        }
        assert_eq!(found(&keys, 9), [("c".to_owned(), 3, 2), ("a".to_owned(), 3, 0)]);
    }

    /// Half of what comes is of five keys, the other half of keys that hardly come again.
    #[test]
    fn what_comes_often_is_found_and_counts_are_within_their_errors() {
        let mut keys = TopKeys::new(64);
        let mut really: BTreeMap<u64, u64> = BTreeMap::new();
        let mut chance = 1u64;
        for _ in 0..20_000 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = if chance >> 63 == 0 { (chance >> 32) % 5 } else { 100 + (chance >> 32) % 10_000 };
            *really.entry(key).or_default() += 1;
            keys.count(TABLE, &key.to_be_bytes());
        }
        let top = keys.most_counted(64);
        assert_eq!(top.cardinality, 64);
        let number = |one: &SampledPartition| u64::from_be_bytes(one.key[..].try_into().unwrap());
        let mut first: Vec<u64> = top.top[..5].iter().map(number).collect();
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2, 3, 4]);
        for one in &top.top {
            let real = really[&number(one)];
            assert!(one.count - one.error <= real && real <= one.count, "{one:?} came {real} times");
        }
    }

    #[test]
    fn long_keys_are_bounded_by_their_bytes_and_errors_stay_right() {
        let mut keys = TopKeys::new(1000);
        let long = |first: u8| [vec![first], vec![b'x'; 60_000]].concat();
        for round in 0..10 {
            for key in 0..20 {
                keys.count(TABLE, &long(key));
            }
            assert!(keys.key_bytes <= KEY_BYTES_MAX, "{round}: {} bytes", keys.key_bytes);
        }
        let top = keys.most_counted(1000);
        assert_eq!(top.cardinality, KEY_BYTES_MAX / (60_001 + ID_BYTES));
        assert!(top.top.iter().all(|one| one.count - one.error <= 10 && 10 <= one.count), "{top:?}");
    }
}
