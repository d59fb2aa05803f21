//! Which shard of this node has each tablet of a table, and since which command.
//!
//! The control plane says it; a lone node that was never told goes by arithmetic ([`OwnTablets::alone`]).
//! Data of a tablet carries the `since` it was written under: with another one it is of an earlier tenancy,
//! from before the tablet left this node and came back, and is not read.

use std::rc::Rc;

use model::tablet::{TabletId, TabletMap};

/// A tablet of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnTablet {
    /// The shard that has it. A number of a start with more shards means this one modulo their number now.
    pub shard: u16,
    /// The number of the command that gave this node the tablet, or that truncated it last; 0 for data from
    /// before there were such commands. A move between shards of the node keeps it.
    pub since: u64,
}

/// The tablets of one table that this node has. Clones are cheap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnTablets {
    kind: Kind,
    /// Those of which a replica joins or leaves, by number.
    in_transition: Rc<[TabletId]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// All of them, spread over so many shards.
    Alone(TabletMap, usize),
    /// These, by number.
    Told(Rc<[(TabletId, OwnTablet)]>),
}

impl OwnTablets {
    /// The tablets as the control plane said.
    pub fn told(tablets: impl IntoIterator<Item = (TabletId, OwnTablet)>) -> Self {
        let mut tablets: Vec<_> = tablets.into_iter().collect();
        tablets.sort_by_key(|(id, _)| *id);
        assert!(tablets.is_sorted_by(|(a, _), (b, _)| a < b), "a tablet has one place: {tablets:?}");
        Self { kind: Kind::Told(tablets.into()), in_transition: Rc::default() }
    }

    /// All tablets of the table, in contiguous runs over `shards` shards: those of a node that is alone.
    pub fn alone(map: TabletMap, shards: usize) -> Self {
        Self { kind: Kind::Alone(map, shards), in_transition: Rc::default() }
    }

    /// With these tablets in transition: on some node a replica of them joins or leaves, and all replicas
    /// keep their tombstones.
    pub fn in_transition(self, tablets: impl IntoIterator<Item = TabletId>) -> Self {
        let mut tablets: Vec<_> = tablets.into_iter().collect();
        tablets.sort_unstable();
        Self { in_transition: tablets.into(), ..self }
    }

    /// Whether a replica of the tablet joins or leaves.
    pub(crate) fn is_in_transition(&self, tablet: TabletId) -> bool {
        self.in_transition.binary_search(&tablet).is_ok()
    }

    /// The place of a tablet; `None` if this node does not have it.
    pub fn of(&self, tablet: TabletId) -> Option<OwnTablet> {
        match &self.kind {
            Kind::Alone(map, _) if tablet.0 >= map.count() => None,
            Kind::Alone(map, shards) => {
                Some(OwnTablet { shard: map.shard_of(tablet, *shards) as u16, since: 0 })
            }
            Kind::Told(tablets) => {
                tablets.binary_search_by_key(&tablet, |(id, _)| *id).ok().map(|at| tablets[at].1)
            }
        }
    }

    /// All tablets that this node has, by number.
    pub fn iter(&self) -> impl Iterator<Item = (TabletId, OwnTablet)> + '_ {
        self.between(TabletId(0), TabletId(u32::MAX))
    }

    /// The tablets from `first` to `last` that this node has, by number.
    pub(crate) fn between(
        &self,
        first: TabletId,
        last: TabletId,
    ) -> impl Iterator<Item = (TabletId, OwnTablet)> + '_ {
        let places = match &self.kind {
            Kind::Alone(map, _) => first.0 as usize..(map.count() as usize).min((last.0 as usize) + 1),
            Kind::Told(tablets) => {
                let place =
                    |is_before: &dyn Fn(TabletId) -> bool| tablets.partition_point(|(id, _)| is_before(*id));
                place(&|id| id < first)..place(&|id| id <= last)
            }
        };
        places.map(|at| match &self.kind {
            Kind::Alone(..) => {
                let tablet = TabletId(at as u32);
                (tablet, self.of(tablet).expect("a node that is alone has all tablets"))
            }
            Kind::Told(tablets) => tablets[at],
        })
    }

    /// As [`OwnTablets::of`], with a shard that this start of `shards` shards has.
    pub(crate) fn owner(&self, tablet: TabletId, shards: usize) -> Option<OwnTablet> {
        let own = self.of(tablet)?;
        Some(OwnTablet { shard: (usize::from(own.shard) % shards) as u16, ..own })
    }

    /// A form that may travel between shards.
    pub(crate) fn to_parts(&self) -> OwnParts {
        let kind = match &self.kind {
            Kind::Alone(map, shards) => KindParts::Alone(*map, *shards),
            Kind::Told(tablets) => KindParts::Told(tablets.to_vec()),
        };
        OwnParts { kind, in_transition: self.in_transition.to_vec() }
    }

    pub(crate) fn from_parts(parts: OwnParts) -> Self {
        let kind = match parts.kind {
            KindParts::Alone(map, shards) => Kind::Alone(map, shards),
            KindParts::Told(tablets) => Kind::Told(tablets.into()),
        };
        Self { kind, in_transition: parts.in_transition.into() }
    }
}

/// [`OwnTablets`] on their way between shards.
#[derive(Debug, Clone)]
pub(crate) struct OwnParts {
    kind: KindParts,
    in_transition: Vec<TabletId>,
}

#[derive(Debug, Clone)]
enum KindParts {
    Alone(TabletMap, usize),
    Told(Vec<(TabletId, OwnTablet)>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_alone_has_all_tablets_by_arithmetic() {
        let map = TabletMap::new(3);
        let own = OwnTablets::alone(map, 3);
        for tablet in map.tablets() {
            let place = own.of(tablet).expect("a place");
            assert_eq!((usize::from(place.shard), place.since), (map.shard_of(tablet, 3), 0));
        }
        assert_eq!(own.of(TabletId(8)), None);
        assert_eq!(own.iter().count(), 8);
        assert_eq!(own.between(TabletId(3), TabletId(5)).count(), 3);
    }

    #[test]
    fn what_was_told_is_found_and_a_shard_too_many_is_taken_modulo() {
        let told = [
            (TabletId(5), OwnTablet { shard: 6, since: 9 }),
            (TabletId(1), OwnTablet { shard: 0, since: 0 }),
        ];
        let own = OwnTablets::told(told);
        assert_eq!(own.of(TabletId(5)), Some(OwnTablet { shard: 6, since: 9 }));
        assert_eq!(own.owner(TabletId(5), 4), Some(OwnTablet { shard: 2, since: 9 }));
        assert_eq!(own.of(TabletId(0)), None);
        assert_eq!(own.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(own.between(TabletId(2), TabletId(5)).count(), 1);
        assert_eq!(own.between(TabletId(2), TabletId(4)).count(), 0);
        let own = own.in_transition([TabletId(5)]);
        assert!(own.is_in_transition(TabletId(5)) && !own.is_in_transition(TabletId(1)));
        assert_eq!(OwnTablets::from_parts(own.to_parts()), own);
    }
}
