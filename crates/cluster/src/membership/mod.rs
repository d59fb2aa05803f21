//! Who is a member of the cluster, and with what part: founding and joining, asking the leader, and which
//! nodes vote.
//!
//! `service` is this node's part on shard 0: the way into a cluster, and answers to other nodes. `founding`
//! decides what a node without a cluster does, `voters` which nodes vote in group 0; both are pure. `leader`
//! is what the leader does for the others, and how they ask it. `post` carries group 0's messages; `starts`
//! counts starts.

pub mod founding;
pub mod leader;
mod post;
pub mod service;
mod starts;
pub mod voters;

use std::time::Duration;

use reactor::Deadline;

use crate::consensus::Role;
use crate::control::ControlPlane;
use crate::liveness::Liveness;
use crate::net::{Member, Members, Network};
use crate::nodes::NodeState;
use crate::view::Nodes;

/// How long a leader that ends waits for another one.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(2);

/// Takes leave of the other nodes, on each shard of a node that ends: leadership goes to another voter, and
/// the transport stops. Nothing happens on a node without a network.
pub async fn leave() {
    let Ok(network) = Network::here() else { return };
    if let Some(control) = ControlPlane::here()
        && let Some(membership) = control.membership()
    {
        membership.ending.set(true);
        let group = control.group();
        let own = group.number();
        let leads = || group.status().role == Role::Leader;
        let next = group.members().voters.into_iter().find(|voter| *voter != own);
        if let Some(next) = next.filter(|_| leads()) {
            group.hand_over(next);
            let handing_over = async {
                while leads() {
                    group.wait_changed().await;
                }
            };
            if reactor::timeout(Deadline::after(HAND_OVER_WITHIN), handing_over).await.is_err() {
                reactor::info!("no other node leads the control plane yet");
            }
        }
        group.stop().await;
    }
    if let Some(liveness) = reactor::local::<Liveness>() {
        liveness.stop().await;
    }
    network.stop().await;
}

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
