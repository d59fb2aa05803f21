//! Where in each commit log the present tenancy of a tablet begins.
//!
//! An entry of the log does not say in which tenancy of its tablet it was written: that would cost every
//! write some bytes. Instead the manifest notes, durably before the first such entry, the position that a
//! tablet's tenancy begins at in a shard's log. Entries before it are of an earlier one. Tablets from before
//! there were tenancies (`since` 0) need no note: all of their entries count.

use std::collections::BTreeMap;

use model::mutation::MutationView;
use model::tablet::{TabletId, TabletMap};
use model::{TableId, Token};

use super::{Edit, Manifest};
use crate::commitlog::format::Position;
use crate::error::StorageError;

/// A tablet's part of a commit log: the log's number, the table, the number of its tablets as a power of two,
/// and the tablet.
pub(crate) type TenancyKey = (u32, TableId, u8, TabletId);

/// The beginning of a tenancy in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tenancy {
    pub(crate) since: u64,
    pub(crate) begin: Position,
}

/// The present tenancies of all tablets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tenancies(BTreeMap<TenancyKey, Tenancy>);

impl Tenancies {
    pub(crate) fn insert(&mut self, key: TenancyKey, tenancy: Tenancy) {
        self.0.insert(key, tenancy);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TenancyKey, Tenancy)> + '_ {
        self.0.iter().map(|(key, tenancy)| (*key, *tenancy))
    }

    /// Whether an entry of a log was written in the tenancy `since` of its tablet.
    pub(crate) fn has(&self, log: usize, entry: &MutationView<'_>, since: u64, place: Position) -> bool {
        since == 0
            || self.begin((log as u32, entry.table, entry.token), since).is_some_and(|begin| begin <= place)
    }

    /// Where the tenancy `since` of the tablet of a token begins in a log. The number of the table's tablets
    /// may have changed since the note.
    pub(crate) fn begin(&self, (log, table, token): (u32, TableId, Token), since: u64) -> Option<Position> {
        let mut next = Some((log, table, 0, TabletId(0)));
        let mut first: Option<Position> = None;
        // One round for each number of tablets that the table has had.
        while let Some(from) = next {
            let noted = self.0.range(from..).next().map(|(key, _)| *key);
            let Some((_, _, log2, _)) = noted.filter(|key| (key.0, key.1) == (log, table)) else { break };
            let tablet = TabletMap::new(log2).tablet_of(token);
            let noted = self.0.get(&(log, table, log2, tablet)).filter(|noted| noted.since == since);
            if let Some(noted) = noted {
                first = Some(first.map_or(noted.begin, |first| first.min(noted.begin)));
            }
            next = log2.checked_add(1).map(|log2| (log, table, log2, TabletId(0)));
        }
        first
    }
}

impl Manifest {
    /// Notes durably that the tenancies `since` of tablets begin at a place of a commit log, where they have
    /// not begun in it before.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) async fn begin_tenancies(
        &self,
        tablets: impl Iterator<Item = (TableId, TabletMap, TabletId, u64)>,
        place: (usize, Position),
    ) -> Result<(), StorageError> {
        self.note(&self.new_tenancies(tablets, place)).await
    }

    /// The edits of [`Manifest::begin_tenancies`], for a caller that notes other things with them.
    pub(crate) fn new_tenancies(
        &self,
        tablets: impl Iterator<Item = (TableId, TabletMap, TabletId, u64)>,
        (log, begin): (usize, Position),
    ) -> Vec<Edit> {
        let (log, known) = (log as u32, self.tenancies());
        let is_new = |(table, map, tablet, since): &(TableId, TabletMap, TabletId, u64)| {
            *since > 0 && known.begin((log, *table, map.range(*tablet).0), *since).is_none()
        };
        tablets
            .filter(is_new)
            .map(|(table, map, tablet, since)| {
                Edit::Tenancy((log, table, map.log2(), tablet), Tenancy { since, begin })
            })
            .collect()
    }
}

impl FromIterator<(TenancyKey, Tenancy)> for Tenancies {
    fn from_iter<T: IntoIterator<Item = (TenancyKey, Tenancy)>>(tenancies: T) -> Self {
        Self(tenancies.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use model::DeletionTime;
    use model::mutation::MutationBuilder;

    use super::*;

    const TABLE: TableId = TableId([3; 16]);

    fn check(tenancies: &Tenancies, (log, token): (usize, i64), since: u64, offset: u32) -> bool {
        let mut bytes = Vec::new();
        MutationBuilder::new(&mut bytes, TABLE, Token(token), b"k", DeletionTime::LIVE, |_| ())
            .rows()
            .finish();
        let entry = MutationView::trusted(&bytes).expect("a mutation");
        tenancies.has(log, &entry, since, Position { segment: 2, offset })
    }

    #[test]
    fn entries_count_from_where_their_tenancy_begins_in_their_log() {
        let mut tenancies = Tenancies::default();
        let tenancy = |since, offset| Tenancy { since, begin: Position { segment: 2, offset } };
        tenancies.insert((1, TABLE, 1, TabletId(0)), tenancy(5, 100));
        tenancies.insert((1, TABLE, 2, TabletId(1)), tenancy(5, 300));
        tenancies.insert((1, TABLE, 2, TabletId(3)), tenancy(7, 200));
        tenancies.insert((2, TABLE, 2, TabletId(3)), tenancy(7, 400));
        let (first, second, last) = (i64::MIN, i64::MIN / 2, i64::MAX);
        for (place, since, offset, expected) in [
            ((1, last), 7, 199, false),
            ((1, last), 7, 200, true),
            ((1, last), 8, 200, false),
            ((1, last), 0, 1, true),
            ((2, last), 7, 399, false),
            ((2, last), 7, 400, true),
            ((3, last), 7, 400, false),
            // Of a half, before the table was cut into quarters.
            ((1, first), 5, 100, true),
            ((1, first), 5, 99, false),
            ((1, second), 5, 100, true),
        ] {
            assert_eq!(check(&tenancies, place, since, offset), expected, "{place:?} {since} {offset}");
        }
    }
}
