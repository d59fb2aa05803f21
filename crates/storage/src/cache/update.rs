//! Merges a memtable's contents of a partition into the cache, after its table file is there and before the
//! memtable leaves.
//!
//! A partition that is cached is merged into, as far as it is cached. If that fails for want of memory the
//! partition is removed, since it would be stale. A partition that is not cached is inserted by a
//! [`super::Learner`] if no other file can have it.

use std::rc::Rc;

use model::clustering::{ClusteringOrder, Position};
use model::reconcile::{deletion, merge_rows};
use model::tombstones::RangeTombstone;
use model::{DeletionTime, RowView, Table, Token};

use memory::Handle;
use smallvec::SmallVec;

use super::learn::{Batch, KnownHead};
use super::object::{
    Kind, Name, Object, entry_bytes, replace_entry, store_entry, store_partition, store_static, store_whole,
};
use super::partition::Partition;
use super::{Claim, Inner, Sought, TOMBSTONES_MAX, TabletCache};

/// How often a row's merge is tried while making room changes the partition.
const MERGE_TRIES_MAX: u32 = 4;

/// The result of merging a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Merged {
    Done,
    /// There was no room and now there is, but the partition has to be looked up again.
    Again,
}

/// Follows the walk over one partition of a flushed memtable.
pub(crate) struct Update {
    cache: Rc<TabletCache>,
    claim: Claim,
    table: Rc<Table>,
    token: Token,
    key: Vec<u8>,
    head: KnownHead,
    batch: Batch,
    active: DeletionTime,
    active_from: model::clustering::OwnedPosition,
    ended: bool,
}

impl TabletCache {
    /// Whether anything of the partition is cached.
    pub(crate) fn has(&self, claim: Claim, sought: Sought<'_>) -> bool {
        self.cache.inner.borrow().find(sought.of(claim)).is_some()
    }
}

impl Update {
    /// For a partition that is cached.
    pub(crate) fn new(
        cache: &Rc<TabletCache>,
        claim: Claim,
        table: &Rc<Table>,
        (token, key): (Token, &[u8]),
        (deletion, static_row): (DeletionTime, Vec<u8>),
    ) -> Self {
        Self {
            cache: Rc::clone(cache),
            claim,
            table: Rc::clone(table),
            token,
            key: key.to_vec(),
            head: KnownHead { deletion, static_row },
            batch: Batch::new(),
            active: DeletionTime::LIVE,
            active_from: Position::START.to_owned(),
            ended: false,
        }
    }

    /// Takes a row of the memtable.
    pub(crate) fn row(&mut self, clustering: &[u8], row: &[u8]) {
        self.batch.push(clustering, row);
        self.look();
    }

    /// Takes a change: another range deletion is in force from here on.
    pub(crate) fn change(&mut self, position: Position<'_>, deletion: DeletionTime) {
        let end = position.to_owned();
        let start = std::mem::replace(&mut self.active_from, end.clone());
        if !self.active.is_live() {
            self.batch.tombstones.push(RangeTombstone { start, end, deletion: self.active });
        }
        self.active = deletion;
        self.look();
    }

    /// Ends the update: the whole partition was walked.
    pub(crate) fn end(mut self) {
        self.ended = true;
        self.hand_over(true);
    }

    fn look(&mut self) {
        if self.batch.is_full(self.cache.cache.total_limit()) {
            self.hand_over(false);
        }
    }

    fn hand_over(&mut self, is_all: bool) {
        let orders = self.table.clustering_orders();
        let name = Sought { token: self.token, key: &self.key, orders }.of(self.claim);
        let mut inner = self.cache.cache.inner.borrow_mut();
        inner.merge(name, &self.table, &self.head, &self.batch, is_all);
        drop(inner);
        self.cache.cache.count();
        self.batch.clear();
    }
}

impl Drop for Update {
    /// A partition that was merged only in part is removed.
    fn drop(&mut self) {
        if !self.ended {
            let orders = self.table.clustering_orders();
            let name = Sought { token: self.token, key: &self.key, orders }.of(self.claim);
            self.cache.cache.inner.borrow_mut().invalidate(name);
        }
    }
}

impl Inner {
    pub(super) fn merge(
        &mut self,
        name: Name<'_>,
        table: &Rc<Table>,
        head: &KnownHead,
        batch: &Batch,
        is_all: bool,
    ) {
        let Some(handle) = self.find(name) else { return };
        if Object::of(&self.region, handle).kind() == Kind::Whole {
            if is_all && self.merge_whole(name, handle, table, head, batch) {
                return;
            }
            // The code below is for a partition with entries.
            if !self.unfold(name) {
                self.invalidate(name);
                return;
            }
        }
        if self.merge_head(name, table, head, &batch.tombstones).is_none() {
            return;
        }
        for at in 0..batch.len() {
            let (clustering, row) = batch.row(at);
            let mut merged = None;
            for _ in 0..MERGE_TRIES_MAX {
                merged = self.merge_row(name, table, clustering, row);
                if merged != Some(Merged::Again) {
                    break;
                }
            }
            match merged {
                Some(Merged::Done) => {}
                None => return,
                Some(Merged::Again) => {
                    self.invalidate(name);
                    return;
                }
            }
        }
        self.tally.merged_partitions += u64::from(is_all);
    }

    /// Merges into a partition in one object if it stays one object. Returns true if it did so, or if the
    /// partition was removed.
    fn merge_whole(
        &mut self,
        name: Name<'_>,
        handle: Handle,
        table: &Table,
        head: &KnownHead,
        batch: &Batch,
    ) -> bool {
        let object = Object::of(&self.region, handle);
        let orders = table.clustering_orders();
        let added = (batch.len() == 1).then(|| batch.row(0));
        let fits = match (object.only_row(), added) {
            (Some((old, _)), Some((new, _))) => {
                Position::row(old).compare(Position::row(new), orders).is_eq()
            }
            _ => batch.len() <= 1,
        };
        if !fits || !batch.tombstones.is_empty() || !head.static_row.is_empty() {
            return false;
        }
        let deleted = deletion(object.deletion(), head.deletion);
        let mut merged = std::mem::take(&mut self.row);
        merged.clear();
        let mut clustering = SmallVec::<[u8; 64]>::new();
        match (object.only_row(), added) {
            (Some((old, row)), Some((_, new))) => {
                // Of two equal clusterings the one written first stays.
                clustering.extend_from_slice(old);
                merge_rows(table, row, RowView::trusted(new), &mut merged);
                self.tally.merged_rows += 1;
            }
            (Some((old, row)), None) => {
                clustering.extend_from_slice(old);
                merged.extend_from_slice(row.as_bytes());
            }
            (None, Some((new, row))) => {
                clustering.extend_from_slice(new);
                merged.extend_from_slice(row);
            }
            (None, None) => {}
        }
        let growth = self.whole_growth(name.key.len(), clustering.len(), merged.len());
        let there = self.make_room(growth).then(|| self.find(name)).flatten();
        match there {
            Some(handle) => {
                let had = Object::of(&self.region, handle).only_row().is_some();
                let row = (!merged.is_empty()).then_some((clustering.as_slice(), merged.as_slice()));
                self.rows += u64::from(!had && row.is_some());
                self.tally.inserted_rows += u64::from(!had && row.is_some());
                store_whole(&mut self.region, Some(handle), name, deleted, row);
                self.tally.merged_partitions += 1;
            }
            None => self.invalidate(name),
        }
        self.row = merged;
        true
    }

    /// Turns a partition in one object into a partition with entries; returns false if there is no room.
    fn unfold(&mut self, name: Name<'_>) -> bool {
        let Some(handle) = self.find(name) else { return true };
        let length = self.region.get(handle).len();
        let growth = self.growth(None, 3, 2 * length + entry_bytes(0, 0));
        if !self.make_room(growth) {
            return false;
        }
        let Some(handle) = self.find(name) else { return true };
        let object = Object::of(&self.region, handle);
        let (deleted, only) = (object.deletion(), object.only_row());
        let only = only.map(|(clustering, row)| (clustering.to_vec(), row.as_bytes().to_vec()));
        let mut partition = Partition::new(handle, name.owner);
        partition.deletion = deleted;
        partition.to_end = true;
        let number = self.partitions.add(partition);
        store_partition(&mut self.region, Some(handle), name, number);
        if let Some((clustering, row)) = only {
            let table = self.table(name.owner);
            self.add_entry(number, table.clustering_orders(), Position::row(&clustering), &row);
            // The row was counted when it was inserted.
            self.rows -= 1;
            self.tally.inserted_rows -= 1;
        }
        true
    }

    /// Number of the partition of that name, with room made for `growth` bytes; `None` if it is not cached,
    /// or was removed for want of room.
    fn with_room(&mut self, name: Name<'_>, growth: usize) -> Option<u32> {
        if !self.make_room(growth) {
            self.invalidate(name);
            return None;
        }
        // Making room may have evicted it.
        let object = Object::of(&self.region, self.find(name)?);
        assert_eq!(object.kind(), Kind::Partition, "a partition was unfolded");
        Some(object.number())
    }

    fn merge_head(
        &mut self,
        name: Name<'_>,
        table: &Table,
        head: &KnownHead,
        tombstones: &[RangeTombstone],
    ) -> Option<()> {
        let bytes: usize = tombstones
            .iter()
            .map(|t| 2 * size_of::<RangeTombstone>() + 2 * (t.start.prefix.len() + t.end.prefix.len()))
            .sum();
        let old = Object::of(&self.region, self.find(name)?);
        let old_static = self.partitions.get(old.number()).static_row;
        let old_bytes = if old_static.is_none() { 0 } else { self.region.get(old_static).len() };
        let growth = self.growth(None, 1, old_bytes + head.static_row.len() + 8) + bytes;
        let number = self.with_room(name, growth)?;
        let partition = self.partitions.get_mut(number);
        partition.deletion = deletion(partition.deletion, head.deletion);
        partition.add_tombstones(&self.budget, tombstones.iter().cloned(), table.clustering_orders());
        if partition.tombstones.len() > TOMBSTONES_MAX {
            self.invalidate(name);
            return None;
        }
        if !head.static_row.is_empty() {
            let old = partition.static_row;
            let mut merged = std::mem::take(&mut self.row);
            merged.clear();
            if old.is_none() {
                merged.extend_from_slice(&head.static_row);
            } else {
                let known = Object::of(&self.region, old).static_row();
                merge_rows(table, known, RowView::trusted(&head.static_row), &mut merged);
            }
            let stored = store_static(&mut self.region, old, number, &merged);
            self.partitions.get_mut(number).static_row = stored;
            self.row = merged;
        }
        Some(())
    }

    /// Merges a row into a partition with entries, if the row's place is cached. `None`: the partition is
    /// gone.
    fn merge_row(&mut self, name: Name<'_>, table: &Table, clustering: &[u8], row: &[u8]) -> Option<Merged> {
        let orders: &[ClusteringOrder] = table.clustering_orders();
        let position = Position::row(clustering);
        let number = Object::of(&self.region, self.find(name)?).number();
        let partition = self.partitions.get(number);
        let (spot, found) = partition.entries.seek(&self.forest, &self.region, position, orders);
        if !found && !partition.is_known_before(&self.forest, &self.region, spot) {
            return Some(Merged::Done);
        }
        let old = partition.entries.at(&self.forest, spot).filter(|_| found);
        let old_bytes = old.map_or(0, |old| self.region.get(old).len());
        let growth = self.growth(self.find(name), 1, entry_bytes(clustering.len(), row.len()) + old_bytes);
        if self.budget.room() < growth {
            self.with_room(name, growth)?;
            return Some(Merged::Again);
        }
        let Some(old) = old else {
            let handle = store_entry(&mut self.region, number, position, row, true);
            let partition = self.partitions.get_mut(number);
            partition.entries.insert(&mut self.forest, &self.region, handle, orders);
            self.rows += 1;
            self.tally.inserted_rows += 1;
            return Some(Merged::Done);
        };
        let mut merged = std::mem::take(&mut self.row);
        merged.clear();
        let object = Object::of(&self.region, old);
        // Of two equal clusterings the one written first stays.
        let prefix = object.position().prefix.0.to_vec();
        let had = object.row();
        match had {
            Some(known) => merge_rows(table, known, RowView::trusted(row), &mut merged),
            None => merged.extend_from_slice(row),
        }
        let had = had.is_some();
        self.rows += u64::from(!had);
        self.tally.inserted_rows += u64::from(!had);
        self.tally.merged_rows += u64::from(had);
        replace_entry(&mut self.region, old, &prefix, &merged);
        self.row = merged;
        Some(Merged::Done)
    }
}
