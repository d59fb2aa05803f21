//! How a node that ends takes leave of the others.

use std::time::Duration;

use reactor::Deadline;

use super::ControlPlane;
use crate::consensus::Role;
use crate::liveness::Liveness;
use crate::net::Network;

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
