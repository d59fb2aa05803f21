//! Judges the first message of another node: whether the two may talk, and in which version.
//!
//! Both sides judge, each by what it knows, with the same function. The judgement is pure: first messages and
//! facts in, an agreement or a refusal with its facts out. Invariant: which member a peer is follows from its
//! host id and this node's list of members, never from the number that it claims.

use std::collections::BTreeSet;

use wire::node::hello::{Epoch, Hello, Uuid};

use crate::NodeNumber;

/// What group 0 has recorded of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Its number.
    pub node: NodeNumber,
    /// How often its data directory had been started, as far as this node has heard.
    pub generation: u64,
    /// Its data center.
    pub data_center: String,
    /// Its rack.
    pub rack: String,
}

/// A process that this node has an open connection with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveBoot {
    /// How often its data directory had been started.
    pub generation: u64,
    /// The number that it drew at its start.
    pub boot: u64,
}

/// What this node knows beyond its own first message.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Its own first message of this connection.
    pub own: &'a Hello,
    /// Host ids that were removed from the cluster.
    pub banned: &'a BTreeSet<Uuid>,
    /// Names of the features that the cluster has enabled.
    pub enabled: &'a [String],
    /// What is recorded of the peer's host id; `None` if it is no member's.
    pub recorded: Option<&'a Recorded>,
    /// The process of the peer's host id that this node has connections with.
    pub live: Option<LiveBoot>,
}

/// What two nodes agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreement {
    /// The version of the frames that follow.
    pub version: u8,
    /// The peer's number in the cluster; `None` if it is no member.
    pub node: Option<NodeNumber>,
}

/// Why two nodes do not talk. The text is for the operator of either.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A node reached itself.
    #[error("the connection is to this node itself: an address of another node leads here")]
    Itself,
    /// Two processes run on copies of one data directory.
    #[error("node {} runs here already: the other's data directory is a copy of this one's", id(host_id))]
    OwnHostId {
        /// The host id of both.
        host_id: Uuid,
    },
    /// The clusters' names differ.
    #[error("the cluster's name is '{own}' here and '{theirs}' there (cluster_name)")]
    ClusterName {
        /// This node's.
        own: String,
        /// The peer's.
        theirs: String,
    },
    /// The clusters are two of one name.
    #[error("the nodes are of two clusters of the same name, {} here and {} there", id(own), id(theirs))]
    ClusterId {
        /// This node's.
        own: Uuid,
        /// The peer's.
        theirs: Uuid,
    },
    /// The partitioners differ.
    #[error("the partitioner is {own} here and {theirs} there")]
    Partitioner {
        /// This node's.
        own: String,
        /// The peer's.
        theirs: String,
    },
    /// The peer was removed from the cluster.
    #[error(
        "node {} was removed from the cluster: its data directory has to be emptied before it joins again",
        id(host_id)
    )]
    Banned {
        /// The peer's host id.
        host_id: Uuid,
    },
    /// Another node answers than the one that this node means to reach.
    #[error("node {} answers where node {} was meant", id(found), id(meant))]
    AnotherAnswers {
        /// The one that was meant.
        meant: Uuid,
        /// The one that answers.
        found: Uuid,
    },
    /// The peer means to reach another node.
    #[error("this is node {}, and node {} was meant", id(own), id(meant))]
    AnotherMeant {
        /// The one that was meant.
        meant: Uuid,
        /// This one.
        own: Uuid,
    },
    /// The peer lacks features that the cluster has enabled.
    #[error("the cluster uses {}, which the other node's release lacks: upgrade it", missing.join(", "))]
    MissingFeatures {
        /// Their names.
        missing: Vec<String>,
    },
    /// The cluster went on without the peer after it had lost its majority.
    #[error(
        "the other node is of epoch {theirs} of the cluster, which was recovered to epoch {own}: start it with --rejoin"
    )]
    OlderEpoch {
        /// This node's.
        own: u64,
        /// The peer's.
        theirs: u64,
    },
    /// The cluster went on without this node.
    #[error(
        "this node is of epoch {own} of the cluster, which was recovered to epoch {theirs}: start it with --rejoin"
    )]
    NewerEpoch {
        /// This node's.
        own: u64,
        /// The peer's.
        theirs: u64,
    },
    /// The cluster was recovered twice, on both sides of a split.
    #[error(
        "the cluster was recovered to epoch {number} twice, apart from each other: one half has to be replaced"
    )]
    ForkedEpoch {
        /// The epoch of both.
        number: u64,
    },
    /// The releases are too far apart.
    #[error(
        "the node protocol's versions are {} to {} here and {} to {} there: upgrade one release at a time",
        own.0, own.1, theirs.0, theirs.1
    )]
    NoCommonVersion {
        /// This node's lowest and highest.
        own: (u8, u8),
        /// The peer's.
        theirs: (u8, u8),
    },
    /// The peer's data directory is an older copy of itself.
    #[error(
        "the data directory of node {} is older than what the cluster has seen of it (start {found}, seen {seen}): replace it",
        id(host_id)
    )]
    OlderDirectory {
        /// The peer's host id.
        host_id: Uuid,
        /// The start that was seen.
        seen: u64,
        /// The start that it names.
        found: u64,
    },
    /// Another process of the peer's host id is alive.
    #[error(
        "node {} is alive already, in another process of start {generation}: one of the two runs on a copy",
        id(host_id)
    )]
    SecondBoot {
        /// The host id of both.
        host_id: Uuid,
        /// The start of both.
        generation: u64,
    },
    /// The peer is said to be elsewhere now.
    #[error(
        "node {} is in data center '{}', rack '{}' and was recorded in '{}', '{}': neither may change",
        id(host_id), found.0, found.1, recorded.0, recorded.1
    )]
    Moved {
        /// The peer's host id.
        host_id: Uuid,
        /// The data center and rack that are recorded.
        recorded: (String, String),
        /// Those that it names.
        found: (String, String),
    },
    /// The peer takes itself for another member.
    #[error("node {} calls itself number {claimed} and has number {recorded}", id(host_id))]
    Number {
        /// The peer's host id.
        host_id: Uuid,
        /// Its number.
        recorded: NodeNumber,
        /// The one that it names.
        claimed: NodeNumber,
    },
}

/// A host id or cluster id as people write it.
pub fn id(id: &Uuid) -> String {
    let digits = model::hex::text(id);
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

/// Judges the peer's first message.
///
/// # Errors
/// [`Refusal`] with the first rule that it breaks.
pub fn judge(facts: &Facts<'_>, theirs: &Hello) -> Result<Agreement, Refusal> {
    judge_identity(facts, theirs)?;
    judge_cluster(facts.own, theirs)?;
    judge_member(facts, theirs)?;
    let missing: Vec<String> =
        facts.enabled.iter().filter(|name| !theirs.features.contains(name)).cloned().collect();
    if !missing.is_empty() {
        return Err(Refusal::MissingFeatures { missing });
    }
    let own = facts.own;
    let version = own.common_version(theirs).ok_or(Refusal::NoCommonVersion {
        own: (own.version_min, own.version_max),
        theirs: (theirs.version_min, theirs.version_max),
    })?;
    Ok(Agreement { version, node: facts.recorded.map(|recorded| recorded.node) })
}

/// Which node it is, and whether it is the one that was meant.
fn judge_identity(facts: &Facts<'_>, theirs: &Hello) -> Result<(), Refusal> {
    let own = facts.own;
    let host_id = theirs.host_id;
    if host_id == own.host_id {
        return Err(if theirs.boot == own.boot { Refusal::Itself } else { Refusal::OwnHostId { host_id } });
    }
    if facts.banned.contains(&host_id) {
        return Err(Refusal::Banned { host_id });
    }
    if let Some(meant) = own.expected.filter(|meant| *meant != host_id) {
        return Err(Refusal::AnotherAnswers { meant, found: host_id });
    }
    if let Some(meant) = theirs.expected.filter(|meant| *meant != own.host_id) {
        return Err(Refusal::AnotherMeant { meant, own: own.host_id });
    }
    Ok(())
}

/// Whether the two are of one cluster, or one of them may join the other's.
fn judge_cluster(own: &Hello, theirs: &Hello) -> Result<(), Refusal> {
    if own.cluster_name != theirs.cluster_name {
        let (own, theirs) = (own.cluster_name.clone(), theirs.cluster_name.clone());
        return Err(Refusal::ClusterName { own, theirs });
    }
    if let (Some(own), Some(theirs)) = (own.cluster_id, theirs.cluster_id)
        && own != theirs
    {
        return Err(Refusal::ClusterId { own, theirs });
    }
    if own.partitioner != theirs.partitioner {
        let (own, theirs) = (own.partitioner.clone(), theirs.partitioner.clone());
        return Err(Refusal::Partitioner { own, theirs });
    }
    match (own.epoch, theirs.epoch) {
        (Some(own), Some(theirs)) => judge_epochs(own, theirs),
        _ => Ok(()),
    }
}

fn judge_epochs(own: Epoch, theirs: Epoch) -> Result<(), Refusal> {
    match theirs.number.cmp(&own.number) {
        std::cmp::Ordering::Less => Err(Refusal::OlderEpoch { own: own.number, theirs: theirs.number }),
        std::cmp::Ordering::Greater => Err(Refusal::NewerEpoch { own: own.number, theirs: theirs.number }),
        std::cmp::Ordering::Equal if own.id != theirs.id => Err(Refusal::ForkedEpoch { number: own.number }),
        std::cmp::Ordering::Equal => Ok(()),
    }
}

/// Whether it is the member that it was, and the only process of it.
fn judge_member(facts: &Facts<'_>, theirs: &Hello) -> Result<(), Refusal> {
    let (host_id, generation) = (theirs.host_id, theirs.generation);
    if let Some(recorded) = facts.recorded {
        // A node whose join was answered to nobody does not know its number yet.
        if theirs.node != 0 && theirs.node != recorded.node {
            return Err(Refusal::Number { host_id, recorded: recorded.node, claimed: theirs.node });
        }
        if (&theirs.data_center, &theirs.rack) != (&recorded.data_center, &recorded.rack) {
            return Err(Refusal::Moved {
                host_id,
                recorded: (recorded.data_center.clone(), recorded.rack.clone()),
                found: (theirs.data_center.clone(), theirs.rack.clone()),
            });
        }
    }
    let recorded = facts.recorded.map_or(0, |recorded| recorded.generation);
    let seen = recorded.max(facts.live.map_or(0, |live| live.generation));
    if generation < seen {
        return Err(Refusal::OlderDirectory { host_id, seen, found: generation });
    }
    match facts.live {
        Some(live) if live.generation == generation && live.boot != theirs.boot => {
            Err(Refusal::SecondBoot { host_id, generation })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
