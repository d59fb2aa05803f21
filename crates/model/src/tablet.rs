//! Tablets: the 2^k equal token ranges of a table, their replicas, and which shard of a lone node has each.
//!
//! A token, moved to unsigned by adding 2^63, belongs to the tablet its top k bits name. Shards take
//! contiguous runs of tablets, so that reading shard after shard reads in the order of tokens.

use crate::token::Token;

/// Most tablets a table may have, as a power of two.
pub const TABLETS_LOG2_MAX: u8 = 20;

/// The number of a node within its cluster: given once, from 1 on, and never given to another node.
pub type NodeNumber = u16;

/// The number of a cluster's first node.
pub const FIRST_NODE: NodeNumber = 1;

/// One of the places that have a copy of a tablet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica {
    /// The node.
    pub node: NodeNumber,
    /// The shard of that node.
    pub shard: u16,
}

/// The number of a tablet within its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TabletId(pub u32);

/// How a table's token ring is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TabletMap {
    log2: u8,
}

impl TabletMap {
    /// 2^`log2` tablets; more than [`TABLETS_LOG2_MAX`] is taken as that.
    pub const fn new(log2: u8) -> Self {
        Self { log2: if log2 < TABLETS_LOG2_MAX { log2 } else { TABLETS_LOG2_MAX } }
    }

    /// The smallest map with a tablet for each of `shards` shards.
    pub fn for_shards(shards: usize) -> Self {
        Self::new(shards.max(1).next_power_of_two().trailing_zeros() as u8)
    }

    /// The power of two.
    pub fn log2(self) -> u8 {
        self.log2
    }

    /// How many tablets there are.
    pub fn count(self) -> u32 {
        1 << self.log2
    }

    /// The tablet of a token.
    #[inline]
    pub fn tablet_of(self, token: Token) -> TabletId {
        let unsigned = (token.0 as u64) ^ (1 << 63);
        TabletId(if self.log2 == 0 { 0 } else { (unsigned >> (64 - u32::from(self.log2))) as u32 })
    }

    /// First and last token of a tablet, both inclusive.
    pub fn range(self, tablet: TabletId) -> (Token, Token) {
        let width = u32::from(self.log2);
        let first = if width == 0 { 0 } else { u64::from(tablet.0) << (64 - width) };
        let last = if width == 0 { u64::MAX } else { first + (u64::MAX >> width) };
        (Token((first ^ (1 << 63)) as i64), Token((last ^ (1 << 63)) as i64))
    }

    /// The shard, of `shards`, that has a tablet of a node that is alone.
    #[inline]
    pub fn shard_of(self, tablet: TabletId, shards: usize) -> usize {
        ((tablet.0 as usize) * shards) >> self.log2
    }

    /// All tablets, by token.
    pub fn tablets(self) -> impl Iterator<Item = TabletId> {
        (0..self.count()).map(TabletId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_tile_the_ring_and_agree_with_lookup() {
        for log2 in [0, 1, 3, 10] {
            let map = TabletMap::new(log2);
            let mut expected_first = i64::MIN;
            for tablet in map.tablets() {
                let (first, last) = map.range(tablet);
                assert_eq!(first.0, expected_first);
                assert_eq!((map.tablet_of(first), map.tablet_of(last)), (tablet, tablet));
                expected_first = last.0.wrapping_add(1);
            }
            assert_eq!(expected_first, i64::MIN, "the last range ends at the end of the ring");
        }
    }

    #[test]
    fn every_shard_has_a_tablet() {
        for shards in 1..=9 {
            let map = TabletMap::for_shards(shards);
            let mut owners: Vec<_> = map.tablets().map(|t| map.shard_of(t, shards)).collect();
            owners.dedup();
            assert_eq!(owners, (0..shards).collect::<Vec<_>>());
        }
    }
}
