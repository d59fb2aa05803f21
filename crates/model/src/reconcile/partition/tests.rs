//! Merging contents of partitions, and the law of what a replica lacks: merged with it, it is the whole.
#![allow(clippy::disallowed_types, reason = "proptest's macros name Arc")]

use proptest::prelude::*;

use super::super::tests::{rows, table};
use super::*;
use crate::clustering::append_component;

fn position(at: u8, weight: i8) -> OwnedPosition {
    let mut prefix = Vec::new();
    append_component(&mut prefix, Some(&[at]));
    OwnedPosition { prefix, weight }
}

fn deletions() -> impl Strategy<Value = DeletionTime> {
    prop_oneof![
        2 => Just(DeletionTime::LIVE),
        1 => (0i64..3, 0u32..3).prop_map(|(timestamp, local_time)| DeletionTime { timestamp, local_time }),
    ]
}

/// The bytes of a mutation: rows in any order and more than once, ranges that overlap, a deletion.
fn mutations() -> impl Strategy<Value = Vec<u8>> {
    let weight = || prop_oneof![Just(-1i8), Just(1i8)];
    let range = (0u8..5, weight(), 0u8..5, weight(), deletions());
    let ranges = proptest::collection::vec(range, 0..4);
    let all_rows = proptest::collection::vec((0u8..5, rows()), 0..5);
    let statics = proptest::option::of(rows());
    (deletions(), statics, ranges, all_rows).prop_map(|(deletion, statics, ranges, rows)| {
        let mut out = Vec::new();
        let mut builder = MutationBuilder::new(&mut out, TableId([1; 16]), Token(0), b"k", deletion, |out| {
            out.extend_from_slice(&statics.unwrap_or_default());
        });
        for (start, start_weight, end, end_weight, deletion) in ranges {
            let (start, end) = (position(start, start_weight), position(end, end_weight));
            if !deletion.is_live() {
                builder.range_tombstone(start.as_ref(), end.as_ref(), deletion);
            }
        }
        let mut out_rows = builder.rows();
        for (at, row) in rows {
            out_rows.row(&position(at, 0).prefix, |out| out.extend_from_slice(&row));
        }
        out_rows.finish();
        out
    })
}

fn merge(mutations: &[&[u8]]) -> PartitionContents {
    let views: Vec<_> =
        mutations.iter().map(|bytes| MutationView::parse(bytes).expect("a mutation")).collect();
    PartitionContents::merge(&table(), &views)
}

fn encoded(contents: &PartitionContents) -> Vec<u8> {
    let mut out = Vec::new();
    contents.append_mutation(&mut out, TableId([1; 16]), Token(0), b"k");
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn answers_merge_in_any_order_and_number(a in mutations(), b in mutations(), c in mutations()) {
        let all = merge(&[&a, &b, &c]);
        prop_assert_eq!(&all, &merge(&[&c, &a, &b, &a]));
        let pair = encoded(&merge(&[&b, &c]));
        prop_assert_eq!(&all, &merge(&[&encoded(&merge(&[&a])), &pair]));
        prop_assert_eq!(&all, &merge(&[&encoded(&all)]));
    }

    #[test]
    fn a_replica_with_all_that_it_lacks_is_the_whole(a in mutations(), b in mutations(), c in mutations()) {
        let merged = merge(&[&a, &b, &c]);
        for replica in [&a, &b, &c] {
            let stored = merge(&[replica]);
            let lacking = diff(&table(), &merged, &stored);
            prop_assert_eq!(&merge(&[replica, &encoded(&lacking)]), &merged);
            prop_assert_eq!(lacking.is_empty(), stored == merged, "{:?}", lacking);
        }
        prop_assert!(diff(&table(), &merged, &merged).is_empty());
    }
}

proptest! {
    #[test]
    fn the_two_sides_of_a_cut_are_the_whole(a in mutations(), at in 0u8..5, behind: bool) {
        let whole = merge(&[&a]);
        let end = position(at, if behind { 1 } else { -1 });
        let (table, mut sides) = (table(), [whole.clone(), whole.clone()]);
        for (side, reversed) in sides.iter_mut().zip([false, true]) {
            side.cut(end.as_ref(), reversed, table.clustering_orders());
            let wrong = if reversed { Ordering::Less } else { Ordering::Greater };
            let order = |position: Position<'_>| position.compare(end.as_ref(), table.clustering_orders());
            prop_assert!(side.rows().all(|(row, _)| order(Position::row(row)) != wrong));
            for range in side.ranges() {
                prop_assert!(order(range.start.as_ref()) != wrong && order(range.end.as_ref()) != wrong);
            }
        }
        prop_assert_eq!(merge(&[&encoded(&sides[0]), &encoded(&sides[1])]), whole);
    }

    #[test]
    fn what_may_be_purged_goes_and_all_else_stays_as_it_is(a in mutations(), now in 0u32..5, gc_before in 0u32..4) {
        let purge = Purge { now, gc_before, timestamp_limit: i64::MAX };
        let (whole, kept) = (merge(&[&a]), merge(&[&a]).without_purgeable(&purge));
        let compacted = |contents: &PartitionContents| -> Vec<_> {
            let rows = contents.rows().map(|(clustering, row)| {
                let mut out = Vec::new();
                compact_row(row, DeletionTime::LIVE, &purge, &mut out);
                (clustering.to_vec(), out)
            });
            rows.filter(|(_, row)| !row.is_empty()).collect()
        };
        prop_assert_eq!(compacted(&kept), compacted(&whole));
        prop_assert_eq!(kept.rows().count(), compacted(&whole).len(), "no row stays of which a purge leaves nothing");
        prop_assert!(kept.ranges().iter().all(|range| range.deletion.local_time >= gc_before));
        prop_assert!(kept.deletion().is_live() || kept.deletion().local_time >= gc_before);
        // It is a part of the whole.
        prop_assert_eq!(merge(&[&a, &encoded(&kept)]), whole);
    }
}

#[test]
fn only_the_part_of_a_range_that_a_replica_lacks_is_sent() {
    let deletion = DeletionTime { timestamp: 5, local_time: 5 };
    let of = |ranges: &[(u8, u8)]| {
        let mut out = Vec::new();
        let (table, live) = (TableId([1; 16]), DeletionTime::LIVE);
        let mut builder = MutationBuilder::new(&mut out, table, Token(0), b"k", live, |_| ());
        for (from, to) in ranges {
            builder.range_tombstone(position(*from, -1).as_ref(), position(*to, -1).as_ref(), deletion);
        }
        builder.finish();
        merge(&[&out])
    };
    assert_eq!(of(&[(1, 4), (4, 9)]), of(&[(1, 9)]), "ranges that touch are one");
    let lacking = diff(&table(), &of(&[(1, 9)]), &of(&[(0, 2), (3, 4)]));
    assert_eq!(lacking, of(&[(2, 3), (4, 9)]));
}
