//! Consistency levels: how many replicas must answer.
//!
//! Numbers are those of Cassandra 5's `ConsistencyLevel.blockFor`. They come from the keyspace's replication
//! factors, not from the number of nodes. So a single node with a factor of three does not promise a quorum
//! that it cannot reach.

use crate::error::ReplicationError;
use crate::replica_counts::ReplicaCounts;

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

impl Consistency {
    /// Replicas that must answer, and those alive that count; `alive` is in the coordinator's data center.
    #[inline]
    fn required_and_alive(self, counts: &ReplicaCounts) -> (u32, u32) {
        let quorum = |factor: u32| factor / 2 + 1;
        let (total, local, alive) = (counts.total(), counts.local(), counts.alive());
        match self {
            Self::Any | Self::One | Self::LocalOne | Self::NodeLocal => (1, alive),
            Self::Two => (2, alive),
            Self::Three => (3, alive),
            Self::Quorum | Self::Serial => (quorum(total), alive),
            Self::All => (total.max(1), alive),
            Self::LocalQuorum | Self::LocalSerial => (quorum(local), alive),
            Self::EachQuorum => counts
                .each_data_center()
                .map(|(factor, alive)| (quorum(factor), alive))
                .find(|(required, alive)| alive < required)
                .unwrap_or((quorum(local), alive)),
        }
    }

    /// The number of answers to wait for.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`] where fewer replicas are alive.
    #[inline]
    pub fn check_available(self, counts: &ReplicaCounts) -> Result<u32, ReplicationError> {
        let (required, alive) = self.required_and_alive(counts);
        if alive < required { Err(ReplicationError::Unavailable { required, alive }) } else { Ok(required) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn check(options: &[(&str, &str)], level: Consistency, expected: Result<u32, (u32, u32)>) {
        let options: BTreeMap<String, String> =
            options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let found = level.check_available(&ReplicaCounts::new(&options, "datacenter1"));
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
