//! Applies a mutation to a memtable, without a pause; `steps` does it for long ones.
//!
//! Invariant: a pinned version is not changed. Nothing here can fail: the mutation was checked before it went
//! into the commit log.

use std::cmp::Ordering;

use memory::{Handle, Kind, Tree};
use model::clustering::{ClusteringOrder, Position};
use model::deletion::NO_TIMESTAMP;
use model::mutation::MutationView;
use model::reconcile::merge_rows;
use model::{RowView, Table, Token};

use super::ranges::Range;
use super::{Inner, Memtable, PARTITIONS_PER_CHUNK, Partition, Rows, Version, hint, split_row};
use crate::commitlog::Hold;

/// Partition records that a memtable begins with.
const FIRST_PARTITIONS: usize = 4;
/// Merging a longer row takes so long that the clock is refreshed: later deadlines in the same slice must not
/// include it.
const LONG_ROW_BYTES: usize = 64 * 1024;

/// Records that a chunk has room for, never more than the full number, which positions in the index rely on.
#[allow(clippy::ptr_arg, reason = "a slice has no capacity")]
fn room_of(chunk: &Vec<Partition>) -> usize {
    chunk.capacity().min(PARTITIONS_PER_CHUNK)
}

impl Memtable {
    /// Applies a mutation that fits the table. The memtable keeps its own claim on the mutation's commit-log
    /// segment, unless it has one.
    pub(crate) fn apply(&self, table: &Table, mutation: &MutationView<'_>, hold: Option<&Hold>) {
        assert!(!self.is_sealed(), "a sealed memtable is only read");
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        inner.note_mutation(hold);
        let at = inner.find_or_add(mutation.token, mutation.key);
        if inner.overwrite_only(at, mutation) {
            return;
        }
        let version = inner.writable(at);
        inner.write(table, at, version, mutation);
    }
}

impl Inner {
    /// Counts a mutation, and keeps a claim on its segment of the commit log.
    #[inline]
    pub(super) fn note_mutation(&mut self, hold: Option<&Hold>) {
        self.mutations += 1;
        if let Some(hold) = hold
            && self.held != Some(hold.segment())
        {
            self.hold(hold);
        }
    }

    /// Keeps a claim on a segment of the commit log, unless there is one already.
    #[cold]
    fn hold(&mut self, hold: &Hold) {
        self.held = Some(hold.segment());
        self.holds.entry(hold.segment()).or_insert_with(|| hold.again());
    }

    /// The partition of that key, if it is there.
    #[inline]
    pub(super) fn find(&self, token: Token, key: &[u8]) -> Option<u32> {
        let (cursor, found) = self.index.lower_bound(&self.tree, hint::of_token(token), |at| {
            self.region.get(self.partition(at).key).cmp(key)
        });
        if found { self.index.value(cursor) } else { None }
    }

    fn find_or_add(&mut self, token: Token, key: &[u8]) -> u32 {
        if let Some(at) = self.find(token, key) {
            return at;
        }
        let at = self.add_record(token, key);
        self.link(at);
        at
    }

    /// Makes the record of a partition that no reader finds yet.
    #[inline]
    pub(super) fn add_record(&mut self, token: Token, key: &[u8]) -> u32 {
        if self.partitions.last().is_none_or(|chunk| chunk.len() == room_of(chunk)) {
            self.add_room();
        }
        let first = self.new_version();
        let handle = self.region.alloc(&[key]);
        let last = self.partitions.len() - 1;
        self.partitions[last].push(Partition { token, key: handle, first, newer: Box::default() });
        (last * PARTITIONS_PER_CHUNK + self.partitions[last].len() - 1) as u32
    }

    /// Shows readers a partition whose key no other has.
    #[inline]
    pub(super) fn link(&mut self, at: u32) {
        let Partition { token, key, .. } = *self.partition(at);
        let (partitions, region) = (&self.partitions, &self.region);
        self.index.insert(&mut self.tree, hint::of_token(token), at, |other| {
            let other =
                &partitions[other as usize / PARTITIONS_PER_CHUNK][other as usize % PARTITIONS_PER_CHUNK];
            region.get(other.key).cmp(region.get(key))
        });
    }

    /// Makes room for at least one partition record, and charges it. The first chunk of a memtable grows with
    /// its records, since many memtables have only a few.
    #[cold]
    fn add_room(&mut self) {
        let before = match self.partitions.last_mut() {
            Some(chunk) if chunk.len() < PARTITIONS_PER_CHUNK => {
                let before = room_of(chunk);
                chunk.reserve_exact(before.max(FIRST_PARTITIONS).min(PARTITIONS_PER_CHUNK - before));
                before
            }
            _ => {
                let first = self.partitions.is_empty();
                let room = if first { FIRST_PARTITIONS } else { PARTITIONS_PER_CHUNK };
                self.partitions.push(Vec::with_capacity(room));
                0
            }
        };
        let now = self.partitions.last().map_or(0, room_of);
        let bytes = (now - before) * size_of::<Partition>();
        self.budget.charge(Kind::Dirty, bytes);
        self.records_bytes += bytes;
    }

    /// The version that takes writes now: the first that is not pinned.
    #[inline]
    fn writable(&mut self, at: u32) -> u32 {
        let first = &self.partition(at).first;
        if first.pins == 0 {
            return first.id;
        }
        if let Some(version) = self.partition(at).versions().find(|v| v.pins == 0) {
            return version.id;
        }
        self.add_version(at)
    }

    /// Applies the most usual mutation: it replaces the only row of an existing partition as a whole. Returns
    /// false and changes nothing for any other mutation.
    #[inline]
    fn overwrite_only(&mut self, at: u32, mutation: &MutationView<'_>) -> bool {
        let first = &self.partition(at).first;
        let Rows::One(only) = first.rows else { return false };
        let nothing_but_rows = mutation.deletion.is_live()
            && mutation.static_row().is_none()
            && mutation.tombstones().next().is_none();
        if first.pins > 0 || mutation.row_count() != 1 || !nothing_but_rows {
            return false;
        }
        mutation.rows().next().is_some_and(|(clustering, row)| self.overwrite(only, clustering, row))
    }

    fn write(&mut self, table: &Table, at: u32, version: u32, mutation: &MutationView<'_>) {
        self.write_head(table, at, version, mutation);
        for (start, end, deletion) in mutation.tombstones() {
            self.write_tombstone(table, at, version, Range { start, end, deletion });
        }
        for (clustering, row) in mutation.rows() {
            self.write_row(table, at, version, clustering, row);
        }
    }

    /// Writes the deletion of the partition, and its static row.
    #[inline]
    pub(super) fn write_head(&mut self, table: &Table, at: u32, version: u32, mutation: &MutationView<'_>) {
        if !mutation.deletion.is_live() {
            self.note(mutation.deletion.timestamp, mutation.deletion.local_time);
            self.partition_mut(at).version_mut(version).delete(mutation.deletion);
        }
        if let Some(row) = mutation.static_row() {
            self.write_static(table, at, version, row);
        }
    }

    pub(super) fn write_static(&mut self, table: &Table, at: u32, version: u32, row: RowView<'_>) {
        let old = self.partition(at).version(version).static_row;
        if old.is_none() {
            self.note_row(row);
            let handle = self.region.alloc(&[&0u32.to_le_bytes(), row.as_bytes()]);
            self.partition_mut(at).version_mut(version).static_row = handle;
        } else {
            self.merge_into(table, old, &[], row);
        }
    }

    pub(super) fn write_tombstone(&mut self, table: &Table, at: u32, version: u32, range: Range<'_>) {
        self.note(range.deletion.timestamp, range.deletion.local_time);
        self.write_range(table.clustering_orders(), at, version, range);
    }

    pub(super) fn write_row(
        &mut self,
        table: &Table,
        at: u32,
        version: u32,
        clustering: &[u8],
        row: RowView<'_>,
    ) {
        let orders = table.clustering_orders();
        let rows = self.partition(at).version(version).rows;
        let new_rows = match rows {
            Rows::None => Rows::One(self.alloc_row(clustering, row)),
            Rows::One(only) => match self.compare_row(orders, only.0, clustering) {
                Ordering::Equal => {
                    self.merge_into(table, only, clustering, row);
                    return;
                }
                _ => {
                    let mut tree = Tree::EMPTY;
                    let hint = hint::of_position(Position::row(split_row(self.region.get(only)).0), orders);
                    self.trees.insert(&mut tree, hint, only.0, |_| Ordering::Equal);
                    Rows::Many(self.insert_row(tree, orders, clustering, row))
                }
            },
            Rows::Many(tree) => {
                let hint = hint::of_position(Position::row(clustering), orders);
                let (cursor, found) =
                    self.trees.lower_bound(&tree, hint, |other| self.compare_row(orders, other, clustering));
                if found {
                    let old = Handle(self.trees.value(cursor).expect("a row that was found"));
                    self.merge_into(table, old, clustering, row);
                    return;
                }
                Rows::Many(self.insert_row(tree, orders, clustering, row))
            }
        };
        let version: &mut Version = self.partition_mut(at).version_mut(version);
        version.rows = new_rows;
    }

    fn insert_row(
        &mut self,
        mut tree: Tree,
        orders: &[ClusteringOrder],
        clustering: &[u8],
        row: RowView<'_>,
    ) -> Tree {
        let handle = self.alloc_row(clustering, row);
        let hint = hint::of_position(Position::row(clustering), orders);
        let region = &self.region;
        self.trees.insert(&mut tree, hint, handle.0, |other| {
            Position::row(split_row(region.get(Handle(other))).0).compare(Position::row(clustering), orders)
        });
        tree
    }

    fn alloc_row(&mut self, clustering: &[u8], row: RowView<'_>) -> Handle {
        self.note_row(row);
        self.region.alloc(&[&(clustering.len() as u32).to_le_bytes(), clustering, row.as_bytes()])
    }

    #[inline]
    pub(super) fn compare_row(&self, orders: &[ClusteringOrder], stored: u32, clustering: &[u8]) -> Ordering {
        Position::row(split_row(self.region.get(Handle(stored))).0).compare(Position::row(clustering), orders)
    }

    /// Merges a row into a stored one whose clustering equals `clustering`.
    ///
    /// Equal clusterings may differ in their bytes (decimals 1.5 and 1.50): the one written first stays, as
    /// in Cassandra.
    #[inline]
    fn merge_into(&mut self, table: &Table, handle: Handle, clustering: &[u8], row: RowView<'_>) {
        if !self.overwrite(handle, clustering, row) {
            self.merge_cells(table, handle, clustering, row);
        }
    }

    /// Replaces the stored row if the new one shadows all of it; otherwise, or if the bytes of the
    /// clusterings differ, returns false and changes nothing. So the only row of a partition need not be
    /// compared in clustering order first.
    #[inline]
    fn overwrite(&mut self, handle: Handle, clustering: &[u8], row: RowView<'_>) -> bool {
        let object = self.region.get_mut(handle);
        let (stored, old) = split_row(object);
        if stored != clustering || !RowView::trusted(old).is_rewritten_by(row) {
            return false;
        }
        // The minima stay: all timestamps of the new row are later than those noted for the old one, and it
        // has no local time.
        let row = row.as_bytes();
        if old.len() == row.len() {
            let at = object.len() - row.len();
            object[at..].copy_from_slice(row);
        } else {
            self.region.replace(handle, &[&(clustering.len() as u32).to_le_bytes(), clustering, row]);
        }
        true
    }

    /// As `merge_into`, cell by cell.
    #[inline(never)]
    fn merge_cells(&mut self, table: &Table, handle: Handle, clustering: &[u8], row: RowView<'_>) {
        self.note_row(row);
        let (stored, old) = split_row(self.region.get(handle));
        self.scratch.clear();
        let other_bytes = (stored != clustering).then(|| stored.to_vec());
        merge_rows(table, RowView::trusted(old), row, &mut self.scratch);
        let clustering = other_bytes.as_deref().unwrap_or(clustering);
        let parts: [&[u8]; 3] = [&(clustering.len() as u32).to_le_bytes(), clustering, &self.scratch];
        self.region.replace(handle, &parts);
        if self.scratch.len() > LONG_ROW_BYTES {
            // Every memtable has a scratch buffer, which must not keep the size of its longest row.
            self.scratch = Vec::new();
            reactor::refresh_clock();
        }
    }

    fn note_row(&mut self, row: RowView<'_>) {
        let (marker, mut cells) = (row.liveness(), row.cells());
        self.note(marker.timestamp, marker.expires_at.saturating_sub(marker.ttl));
        if row.is_plain() {
            // Data that is not deleted and does not expire has no local time.
            let mut least = self.timestamp_min;
            while let Some(cell) = cells.peek_plain() {
                if cell.timestamp != NO_TIMESTAMP {
                    least = least.min(cell.timestamp);
                }
                cells.pass(&cell);
            }
            self.timestamp_min = least;
        } else {
            let deletion = row.deletion();
            self.note(deletion.timestamp, deletion.local_time);
        }
        for cell in cells {
            // An expiring cell becomes a tombstone with the local time at which it was written.
            self.note(cell.timestamp, cell.local_time().saturating_sub(cell.ttl()));
        }
    }
}
