//! Who is a member of the cluster, and with what part: founding and joining, asking the leader, and which nodes
//! vote.
//!
//! `service` is this node's part on shard 0: the way into a cluster, and answers to other nodes. `founding` decides
//! what a node without a cluster does, `voters` which nodes vote in group 0; both are pure. `leader` is what the
//! leader does for the others, and how they ask it. `post` carries group 0's messages; `starts` counts starts.

pub mod founding;
pub mod leader;
mod post;
pub mod service;
mod starts;
pub mod voters;

use crate::net::{Member, Members};
use crate::nodes::NodeState;
use crate::view::Nodes;

/// The nodes as the transport needs them: those that left are banned.
pub(crate) fn members_of(nodes: &Nodes) -> Members {
    let member = |node: &crate::nodes::NodeRecord| Member {
        node: node.number,
        host_id: node.host_id,
        address: node.listen,
        shards: node.shards,
        generation: node.generation,
        data_center: node.data_center.clone(),
        rack: node.rack.clone(),
    };
    let (left, there): (Vec<_>, Vec<_>) = nodes.values().partition(|node| node.state == NodeState::Left);
    let banned = left.into_iter().map(|node| node.host_id).collect();
    Members::new(there.into_iter().map(member).collect(), banned, Vec::new())
}
