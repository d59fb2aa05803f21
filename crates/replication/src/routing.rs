//! Which shard of this node has a tablet: the one place that is asked.
//!
//! Shards have contiguous runs of tablets, so that reading shard after shard reads in the order of tokens.

use model::tablet::TabletId;
use model::{Table, Token};

use crate::replicator::Replicator;

impl Replicator {
    /// The shard of this node that has the partitions of `token`.
    #[inline]
    pub fn shard_of(&self, table: &Table, token: Token) -> usize {
        self.shard_of_tablet(table, table.tablets().tablet_of(token))
    }

    /// The shard of this node that has a tablet.
    #[inline]
    pub fn shard_of_tablet(&self, table: &Table, tablet: TabletId) -> usize {
        table.tablets().shard_of(tablet, reactor::shard_count())
    }

    /// The tablets of `table` that this shard has, by token.
    pub fn own_tablets(&self, table: &Table) -> impl Iterator<Item = TabletId> {
        let own = reactor::shard_id();
        table.tablets().tablets().filter(move |tablet| self.shard_of_tablet(table, *tablet) == own)
    }
}
