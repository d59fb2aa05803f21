//! Consistency levels: how many replicas must answer.
//!
//! Numbers are those of Cassandra 5's `ConsistencyLevel.blockFor` and of the `UnavailableException` of its
//! `ReplicaPlans`. They come from the keyspace's replication factors, not from the number of nodes. So a
//! single node with a factor of three does not promise a quorum that it cannot reach. That a hint is an
//! answer at ANY is the matter of a write's plan.

use wire::consistency::Consistency as Wire;

use crate::error::ReplicationError;
use crate::replica_counts::{Alive, ReplicaCounts};

/// How many replicas must answer before the client gets the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// Any node took the write, a hint counts.
    Any,
    /// One replica.
    One,
    /// Two replicas.
    Two,
    /// Three replicas.
    Three,
    /// A majority of all replicas.
    Quorum,
    /// Every replica.
    All,
    /// A majority of the replicas in the coordinator's data center.
    LocalQuorum,
    /// A majority in every data center.
    EachQuorum,
    /// Linearizable over all data centers.
    Serial,
    /// Linearizable within the coordinator's data center.
    LocalSerial,
    /// One replica of the coordinator's data center.
    LocalOne,
    /// The coordinator itself only.
    NodeLocal,
}

/// The same levels on both sides of the wire.
macro_rules! as_on_the_wire {
    ($($level:ident),* $(,)?) => {
        impl From<Wire> for Consistency {
            fn from(level: Wire) -> Self {
                match level {
                    $(Wire::$level => Self::$level),*
                }
            }
        }

        impl From<Consistency> for Wire {
            fn from(level: Consistency) -> Self {
                match level {
                    $(Consistency::$level => Self::$level),*
                }
            }
        }
    };
}

as_on_the_wire!(
    Any,
    One,
    Two,
    Three,
    Quorum,
    All,
    LocalQuorum,
    EachQuorum,
    Serial,
    LocalSerial,
    LocalOne,
    NodeLocal
);

impl Consistency {
    /// How many replicas must answer (Cassandra's `blockFor`).
    #[inline]
    pub fn required(self, counts: &ReplicaCounts) -> u32 {
        match self {
            Self::Any | Self::One | Self::LocalOne | Self::NodeLocal => 1,
            Self::Two => 2,
            Self::Three => 3,
            Self::Quorum | Self::Serial => quorum(counts.total()),
            Self::All => counts.total().max(1),
            Self::LocalQuorum | Self::LocalSerial => quorum(counts.local()),
            Self::EachQuorum if counts.is_simple() => quorum(counts.total()),
            Self::EachQuorum => counts.each_data_center().map(|(_, factor)| quorum(factor)).sum(),
        }
    }

    /// Which answers count towards it.
    #[inline]
    pub(crate) fn scope(self, counts: &ReplicaCounts) -> Scope {
        match self {
            Self::LocalOne | Self::LocalQuorum | Self::LocalSerial => Scope::Local,
            Self::EachQuorum if !counts.is_simple() => Scope::Each,
            Self::NodeLocal => Scope::Node,
            _ => Scope::All,
        }
    }

    /// The number of answers to wait for, where so many replicas are alive.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`] where fewer are alive, with the numbers that Cassandra reports:
    /// those of the data center that lacks some for [`Consistency::EachQuorum`].
    #[inline]
    pub fn check_available(self, counts: &ReplicaCounts, alive: &Alive) -> Result<u32, ReplicationError> {
        let required = self.required(counts);
        let alive = match self.scope(counts) {
            Scope::All | Scope::Node => alive.all,
            Scope::Local => alive.local,
            Scope::Each => return check_each(required, counts, alive),
        };
        if alive < required { Err(ReplicationError::Unavailable { required, alive }) } else { Ok(required) }
    }
}

/// A majority of so many.
#[inline]
pub(crate) fn quorum(factor: u32) -> u32 {
    factor / 2 + 1
}

fn check_each(required: u32, counts: &ReplicaCounts, alive: &Alive) -> Result<u32, ReplicationError> {
    for ((_, factor), alive) in counts.each_data_center().zip(&alive.each) {
        let (required, alive) = (quorum(factor), *alive);
        if alive < required {
            return Err(ReplicationError::Unavailable { required, alive });
        }
    }
    Ok(required)
}

/// Which replicas' answers a level counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those of all.
    All,
    /// Those of the coordinator's data center.
    Local,
    /// So many of each data center.
    Each,
    /// The coordinator's own.
    Node,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn check(options: &[(&str, &str)], level: Consistency, expected: Result<u32, (u32, u32)>) {
        let options: BTreeMap<String, String> =
            options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let counts = ReplicaCounts::new(&options, "datacenter1");
        let found = level.check_available(&counts, counts.alone());
        let found = found.map_err(|error| match error {
            ReplicationError::Unavailable { required, alive } => (required, alive),
            other => panic!("{other}"),
        });
        assert_eq!(found, expected, "{options:?} at {level:?}");
    }

    #[test]
    fn one_node_says_what_it_cannot_promise() {
        let simple = |factor| {
            [("class", "org.apache.cassandra.locator.SimpleStrategy"), ("replication_factor", factor)]
        };
        check(&simple("1"), Consistency::One, Ok(1));
        check(&simple("1"), Consistency::Quorum, Ok(1));
        check(&simple("1"), Consistency::All, Ok(1));
        check(&simple("1"), Consistency::Two, Err((2, 1)));
        check(&simple("3"), Consistency::One, Ok(1));
        check(&simple("3"), Consistency::Quorum, Err((2, 1)));
        check(&simple("3"), Consistency::LocalQuorum, Err((2, 1)));
        check(&simple("3"), Consistency::All, Err((3, 1)));
        check(&simple("3"), Consistency::Three, Err((3, 1)));
        check(&simple("5"), Consistency::Serial, Err((3, 1)));
    }

    #[test]
    fn data_centers_count_for_themselves() {
        let class = ("class", "NetworkTopologyStrategy");
        check(&[class, ("datacenter1", "1")], Consistency::EachQuorum, Ok(1));
        check(&[class, ("datacenter1", "3")], Consistency::LocalQuorum, Err((2, 1)));
        check(&[class, ("elsewhere", "3")], Consistency::One, Err((1, 0)));
        check(&[class, ("elsewhere", "3")], Consistency::LocalQuorum, Err((1, 0)));
        check(&[class, ("datacenter1", "1"), ("elsewhere", "3")], Consistency::LocalOne, Ok(1));
        check(&[class, ("datacenter1", "1"), ("elsewhere", "3")], Consistency::EachQuorum, Err((2, 0)));
        check(&[class, ("datacenter1", "1"), ("elsewhere", "3")], Consistency::Quorum, Err((3, 1)));
    }
}
