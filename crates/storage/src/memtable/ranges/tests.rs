//! Range tombstones beside the plain list of `model::tombstones`, with readers that stay on the versions they
//! found.

use std::rc::Rc;

use memory::Budget;
use model::clustering::{Slice, append_component};
use model::mutation::{MutationBuilder, MutationView};
use model::schema::{TableDefinition, TableOptions};
use model::{Column, ColumnId, ColumnKind, CqlType, Table, TableId, Token, Unfiltered};
use proptest::prelude::*;
use reactor::Event;

use super::*;
use crate::memtable::{Memtable, PartitionRef, Pin, Shape, VersionCursor};

const TABLE: TableId = TableId([7; 16]);
const KEY: &[u8] = b"key";
const PARTITION: PartitionRef = PartitionRef(0);

fn table() -> Rc<Table> {
    let column = |id, name: &str, kind| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        ty: CqlType::Blob,
        kind,
        position: 0,
        reversed: false,
    };
    Rc::new(Table::new(TableDefinition {
        id: TABLE,
        keyspace: "ks".to_owned(),
        name: "t".to_owned(),
        columns: vec![column(0, "k", ColumnKind::PartitionKey), column(1, "c", ColumnKind::Clustering)],
        dropped: [].into(),
        options: TableOptions::default(),
        next_column_id: 2,
        tablets_log2: 0,
        revision: 0,
    }))
}

fn clustering(row: u16) -> Vec<u8> {
    let mut prefix = Vec::new();
    append_component(&mut prefix, Some(&row.to_be_bytes()));
    prefix
}

/// From before or behind one row to before or behind another.
fn range(
    (start, end): (u16, u16),
    (start_behind, end_behind): (bool, bool),
    timestamp: i64,
) -> RangeTombstone {
    let weight = |behind| if behind { 1 } else { -1 };
    let position =
        |row, behind| Position { prefix: Clustering(&clustering(row)), weight: weight(behind) }.to_owned();
    RangeTombstone {
        start: position(start, start_behind),
        end: position(end, end_behind),
        deletion: DeletionTime { timestamp, local_time: 1 },
    }
}

struct Subject {
    budget: Budget,
    table: Rc<Table>,
    memtable: Rc<Memtable>,
}

impl Subject {
    fn new() -> Self {
        let budget = Budget::new(1 << 30);
        let memtable = Rc::new(Memtable::new(&budget, &Rc::new(Event::new())));
        Self { budget, table: table(), memtable }
    }

    fn delete(&self, range: &RangeTombstone) {
        self.write(range, |mutation| self.memtable.apply(&self.table, mutation, None));
    }

    fn delete_in_steps(&self, range: &RangeTombstone) {
        self.write(range, |mutation| self.memtable.apply_in_steps(&self.table, mutation, None));
    }

    fn write(&self, range: &RangeTombstone, apply: impl Fn(&MutationView<'_>)) {
        let mut bytes = Vec::new();
        let mut builder = MutationBuilder::new(&mut bytes, TABLE, Token(1), KEY, DeletionTime::LIVE, |_| ());
        builder.range_tombstone(range.start.as_ref(), range.end.as_ref(), range.deletion);
        builder.finish();
        apply(&MutationView::parse(&bytes).expect("a mutation"));
    }

    fn versions(&self) -> Vec<u32> {
        self.memtable.contents().versions(PARTITION).to_vec()
    }

    /// Number of ranges in each version.
    fn ranges(&self) -> Vec<usize> {
        let inner = self.memtable.inner.borrow();
        let count = |ranges: &Ranges| match ranges {
            Ranges::None => 0,
            Ranges::One(_) => 1,
            Ranges::Many(tree) => tree.len(),
        };
        inner.partition(0).versions().map(|version| count(&version.ranges)).collect()
    }

    /// A reader that pauses.
    fn pin(&self) -> Vec<Pin> {
        let versions = self.versions().into_iter();
        versions.map(|version| Pin::new(&self.memtable, &self.table, PARTITION, version)).collect()
    }

    /// The deletion of each row of a slice, as the streams of versions have it.
    fn deletions(&self, versions: &[u32], slice: &Slice, reversed: bool, rows: u16) -> Vec<DeletionTime> {
        let mut deletions = vec![DeletionTime::LIVE; usize::from(rows)];
        let slices = [slice.clone()];
        let shape = Shape { orders: self.table.clustering_orders(), slices: &slices, reversed };
        let contents = self.memtable.contents();
        for version in versions {
            let mut cursor = VersionCursor::new(PARTITION, *version);
            let mut changes = Vec::new();
            while let Some(next) = cursor.next(&contents, shape) {
                let Unfiltered::Change { position, deletion } = next else { panic!("there are no rows") };
                changes.push((position.to_owned(), deletion));
            }
            assert!(
                changes.last().is_none_or(|(_, deletion)| deletion.is_live()),
                "it ends live: {changes:?}"
            );
            let comes_before = |a: Position<'_>, b: Position<'_>| {
                let order = a.compare(b, shape.orders);
                if reversed { order.is_gt() } else { order.is_lt() }
            };
            assert!(
                changes.is_sorted_by(|(a, _), (b, _)| comes_before(a.as_ref(), b.as_ref())),
                "{changes:?}"
            );
            for (row, deletion) in deletions.iter_mut().enumerate() {
                let clustering = clustering(row as u16);
                let behind =
                    changes.partition_point(|(at, _)| comes_before(at.as_ref(), Position::row(&clustering)));
                let own = behind.checked_sub(1).map_or(DeletionTime::LIVE, |at| changes[at].1);
                *deletion = (*deletion).max(own);
            }
        }
        deletions
    }

    /// Checks that everything the memtable holds is charged.
    fn check_charge(&self) {
        let inner = self.memtable.inner.borrow();
        let records: usize =
            inner.partitions.iter().flatten().map(|p| p.newer.len() * size_of::<Version>()).sum();
        let chunks: usize = inner.partitions.iter().map(|chunk| std::mem::size_of_val(&chunk[..])).sum();
        assert!(inner.records_bytes >= chunks + records, "{} charged", inner.records_bytes);
        let kept = inner.region.held_bytes()
            + inner.region.table_bytes()
            + inner.index.held_bytes()
            + inner.trees.held_bytes()
            + inner.records_bytes;
        assert_eq!(self.budget.used(), kept);
    }
}

const ROWS: u16 = 24;

/// The deletion of each row according to a list of ranges; rows outside the slice are live.
fn expected(list: &RangeTombstones, slice: &Slice, orders: &[ClusteringOrder]) -> Vec<DeletionTime> {
    (0..ROWS)
        .map(|row| {
            let clustering = clustering(row);
            let inside = slice.contains(&clustering, orders);
            if inside { list.covering(&clustering, orders) } else { DeletionTime::LIVE }
        })
        .collect()
}

proptest! {
    /// Range tombstones are added while readers come and go. Each reader sees the same for as long as it
    /// stays, and a new reader sees everything written so far.
    #[test]
    fn every_reader_finds_the_greatest_deletion_of_each_row_that_it_began_with(
        steps in proptest::collection::vec((0u8..6, (0..ROWS, 0..ROWS), any::<(bool, bool)>(), 0i64..6), 1..80),
        slices in proptest::collection::vec(((0..ROWS, 0..ROWS), any::<(bool, bool)>()), 1..4),
    ) {
        let subject = Subject::new();
        let orders = subject.table.clustering_orders();
        let slices: Vec<Slice> = slices
            .into_iter()
            .map(|(rows, behind)| range(rows, behind, 1))
            .map(|range| Slice { start: range.start, end: range.end })
            .filter(|slice| !slice.is_empty(orders))
            .chain([Slice::all()])
            .collect();
        let check = |versions: &[u32], list: &RangeTombstones| {
            for (slice, reversed) in slices.iter().flat_map(|slice| [(slice, false), (slice, true)]) {
                let found = subject.deletions(versions, slice, reversed, ROWS);
                assert_eq!(found, expected(list, slice, orders), "{slice:?} {reversed}");
            }
        };
        let mut list = RangeTombstones::new();
        let mut readers: Vec<(Vec<Pin>, Vec<u32>, RangeTombstones)> = Vec::new();
        subject.delete(&range((0, 0), (true, false), 0));
        for (step, rows, behind, timestamp) in steps {
            match step {
                0 => readers.push((subject.pin(), subject.versions(), list.clone())),
                1 if !readers.is_empty() => {
                    let (pins, versions, list) = readers.swap_remove(usize::from(rows.0) % readers.len());
                    check(&versions, &list);
                    drop(pins);
                }
                _ => {
                    let range = range(rows, behind, timestamp);
                    if step == 2 {
                        subject.delete_in_steps(&range);
                    } else {
                        subject.delete(&range);
                    }
                    list.add(range, orders);
                }
            }
            subject.check_charge();
        }
        check(&subject.versions(), &list);
        for (pins, versions, list) in readers {
            check(&versions, &list);
            drop(pins);
        }
        check(&subject.versions(), &list);
        prop_assert_eq!(subject.versions().len(), 1, "few enough to be folded together");
        let budget = subject.budget.clone();
        drop(subject);
        prop_assert_eq!(budget.used(), 0);
    }
}

#[test]
fn a_range_over_many_others_cuts_none_of_them_and_is_read_with_them() {
    const MANY: u16 = 2000;
    let subject = Subject::new();
    for row in 0..MANY {
        subject.delete(&range((row, row), (false, true), i64::from(row % 7)));
    }
    assert_eq!(subject.ranges(), [2000]);
    // Over few ranges: cut as usual.
    subject.delete(&range((100, 199), (false, true), 9));
    assert_eq!(subject.ranges(), [1901]);
    for timestamp in [3, 5, 4] {
        subject.delete(&range((0, MANY), (false, true), timestamp));
        assert_eq!(subject.ranges(), [1901, 1], "all of them are cut by the next to go there");
        subject.check_charge();
    }
    // A reader that ends folds the versions it had pinned, unless they are too large.
    drop(subject.pin());
    assert_eq!(subject.ranges(), [1901, 1]);
    for reversed in [false, true] {
        let found = subject.deletions(&subject.versions(), &Slice::all(), reversed, MANY);
        for (row, deletion) in found.into_iter().enumerate() {
            let own = if (100..200).contains(&row) { 9 } else { row as i64 % 7 };
            assert_eq!(deletion.timestamp, own.max(5), "row {row}");
        }
    }
}

#[test]
fn versions_that_readers_hold_are_charged_and_given_back_with_them() {
    let subject = Subject::new();
    let write = |row: u16| subject.delete(&range((row, row), (false, true), 1));
    write(0);
    let before = subject.memtable.inner.borrow().records_bytes;
    let mut readers = Vec::new();
    for row in 1..=200 {
        readers.push(subject.pin());
        write(row);
        subject.check_charge();
    }
    assert_eq!(subject.versions().len(), 201);
    let held = subject.memtable.inner.borrow().records_bytes - before;
    assert_eq!(held, 200 * size_of::<Version>());
    drop(readers);
    assert_eq!((subject.ranges(), subject.memtable.inner.borrow().records_bytes), (vec![201], before));
    subject.check_charge();
}

#[test]
fn a_range_takes_no_more_than_twice_what_it_says() {
    const RANGES: u16 = 50_000;
    for scattered in [false, true] {
        let subject = Subject::new();
        let mut said = 0;
        for row in 0..RANGES {
            let row = if scattered { row.wrapping_mul(40_503) } else { row };
            let mut prefix = Vec::new();
            append_component(&mut prefix, Some(&row.to_be_bytes().repeat(8)));
            let position = |weight| Position { prefix: Clustering(&prefix), weight }.to_owned();
            let deletion = DeletionTime { timestamp: 1, local_time: 1 };
            let range = RangeTombstone { start: position(-1), end: position(1), deletion };
            said += range.start.prefix.len() + range.end.prefix.len() + HEAD_BYTES;
            subject.delete(&range);
        }
        let (kept, charged) = (subject.memtable.bytes(), subject.budget.used());
        assert_eq!(subject.ranges(), [usize::from(RANGES)]);
        assert!(kept >= said && charged >= kept, "{said} said, {kept} kept, {charged} charged");
        assert!(charged <= 2 * kept, "{kept} kept, {charged} charged");
    }
}
