//! Which intervals overlap at the same place: the sections that unified compaction counts.
//!
//! As Cassandra's `Overlaps`: intervals are put into sets such that those in one set all overlap, no interval
//! is in sets that are not next to each other, and every place with overlaps is covered by one set.

use std::collections::BTreeSet;

use model::Token;

/// How far a section's neighbours are taken along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inclusion {
    /// Not at all.
    None,
    /// Those that overlap the section itself.
    Single,
    /// Files that overlap a file taken already, and files that overlap those, and so on.
    Transitive,
}

/// The sets of overlapping intervals, by place; `items` are names with first and last token.
pub(super) fn sections(items: &[(usize, (Token, Token))]) -> Vec<BTreeSet<usize>> {
    let mut by_start = items.to_vec();
    by_start.sort_by_key(|(name, tokens)| (tokens.0, *name));
    let mut active: Vec<(Token, usize)> = Vec::new();
    let mut sets = Vec::new();
    let names = |active: &[(Token, usize)]| active.iter().map(|(_, name)| *name).collect::<BTreeSet<usize>>();
    for (name, (first, last)) in by_start {
        if active.iter().any(|(end, _)| *end < first) {
            sets.push(names(&active));
            active.retain(|(end, _)| *end >= first);
        }
        active.push((last, name));
    }
    if !active.is_empty() {
        sets.push(names(&active));
    }
    sets
}

/// Runs of sections, each with one of at least `threshold` intervals and the neighbours that go with it.
pub(super) fn buckets(
    sections: &[BTreeSet<usize>],
    threshold: usize,
    inclusion: Inclusion,
) -> Vec<std::ops::Range<usize>> {
    let mut found: Vec<std::ops::Range<usize>> = Vec::new();
    let mut at = 0;
    while at < sections.len() {
        if sections[at].len() < threshold {
            at += 1;
            continue;
        }
        let (mut start, mut end) = (at, at + 1);
        if inclusion != Inclusion::None {
            let floor = found.last().map_or(0, |before| before.end);
            let mut all = sections[at].clone();
            let takes = |all: &BTreeSet<usize>, next: &BTreeSet<usize>| {
                let target = if inclusion == Inclusion::Transitive { all } else { &sections[at] };
                !next.is_disjoint(target)
            };
            while start > floor && takes(&all, &sections[start - 1]) {
                start -= 1;
                all.extend(&sections[start]);
            }
            while end < sections.len() && takes(&all, &sections[end]) {
                all.extend(&sections[end]);
                end += 1;
            }
        }
        at = end;
        found.push(start..end);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(items: &[(i64, i64)]) -> Vec<Vec<usize>> {
        let items: Vec<_> =
            items.iter().enumerate().map(|(name, (a, b))| (name, (Token(*a), Token(*b)))).collect();
        sections(&items).into_iter().map(|set| set.into_iter().collect()).collect()
    }

    #[test]
    fn sections_hold_what_overlaps_at_one_place() {
        // A[0, 3], B[2, 7], C[6, 9], D[1, 8].
        assert_eq!(sets(&[(0, 3), (2, 7), (6, 9), (1, 8)]), [vec![0, 1, 3], vec![1, 2, 3]]);
        assert_eq!(sets(&[(0, 1), (2, 3)]), [vec![0], vec![1]]);
        assert_eq!(sets(&[(0, 1), (1, 3)]), [vec![0, 1]]);
        assert!(sets(&[]).is_empty());
    }

    #[test]
    fn neighbours_go_along_as_far_as_asked() {
        // A chain: AB, BCD, DE, EF.
        let chain: Vec<BTreeSet<usize>> = [vec![0, 1], vec![1, 2, 3], vec![3, 4], vec![4, 5]]
            .into_iter()
            .map(|set| set.into_iter().collect())
            .collect();
        let check = |inclusion, expected: &std::ops::Range<usize>| {
            assert_eq!(buckets(&chain, 3, inclusion), std::slice::from_ref(expected));
        };
        check(Inclusion::None, &(1..2));
        check(Inclusion::Single, &(0..3));
        check(Inclusion::Transitive, &(0..4));
        assert!(buckets(&chain, 4, Inclusion::Transitive).is_empty());
    }
}
