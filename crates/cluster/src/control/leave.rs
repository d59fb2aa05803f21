//! How a node that ends takes leave of the others.

use std::time::Duration;

use reactor::Deadline;

use wire::node::control::NodeState;

use super::ControlPlane;
use crate::NodeNumber;
use crate::consensus::Role;
use crate::liveness::Liveness;
use crate::liveness::opinion::NodeView;
use crate::net::Network;

/// How long a leader that ends waits for another one.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(2);

/// How long the node that is to lead may take before another look at who lives.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Whether a voter lives and does not end too, as far as this node knows.
fn may_lead(voter: NodeNumber) -> bool {
    let Some(liveness) = reactor::local::<Liveness>() else { return false };
    let ends = |view: &NodeView| view.pong.as_ref().is_some_and(|pong| pong.state == NodeState::Draining);
    liveness.views().iter().any(|(node, view)| *node == voter && view.is_up && !ends(view))
}

/// Takes leave of the other nodes, on each shard of a node that ends: leadership goes to another voter, and
/// the transport stops. Nothing happens on a node without a network, or that has left before.
pub async fn leave() {
    let Ok(network) = Network::here() else { return };
    if let Some(control) = ControlPlane::here()
        && let Some(membership) = control.membership()
        && !membership.ending.replace(true)
    {
        let group = control.group();
        let own = group.number();
        let leads = || group.status().role == Role::Leader;
        // The last node of a cluster that ends has nobody to wait for.
        let next = || group.members().voters.into_iter().find(|voter| *voter != own && may_lead(*voter));
        let deadline = Deadline::after(HAND_OVER_WITHIN);
        while let Some(next) = next().filter(|_| leads()) {
            group.hand_over(next);
            let look = Deadline::after(LOOK_AGAIN);
            // It is asked again, or another one is, if it has not answered by then.
            let _looks = reactor::timeout(look, group.wait_changed()).await;
            if deadline.is_past() {
                reactor::info!("no other node leads the control plane yet");
                break;
            }
        }
        group.stop().await;
    }
    if let Some(liveness) = reactor::local::<Liveness>() {
        liveness.stop().await;
    }
    network.stop().await;
}
