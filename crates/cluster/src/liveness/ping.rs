//! The loop that pings, on shard 0: every [`PING_EVERY`] each other member is asked, and what comes of it
//! goes to the opinion. A node without other members waits for some, and has no timer.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Deadline, Group, Instant};
use wire::node::control::{Ping, Pong};
use wire::node::frame::{Verb, WorkGroup};

use super::Liveness;
use super::opinion::{Answered, SILENCE_MAX};
use crate::NodeNumber;
use crate::net::{NetError, Network};

/// Time between two pings of a node.
pub const PING_EVERY: Duration = Duration::from_millis(500);
/// Addresses that a ping and its answer pass on.
pub(super) const HEARD_IN_PING: usize = 8;

/// Pings until the network or the liveness stops.
pub(super) async fn run(liveness: Rc<Liveness>) {
    let network = Rc::clone(&liveness.network);
    let own_id = network.own().host_id;
    loop {
        let others = || -> BTreeSet<NodeNumber> {
            let members = network.members();
            members.all().filter(|member| member.host_id != own_id).map(|member| member.node).collect()
        };
        network.members_changed().wait_until(|| liveness.is_stopped() || !others().is_empty()).await;
        if liveness.is_stopped() {
            return;
        }
        let nodes = others();
        liveness.set_nodes(&nodes).await;
        liveness.look_at_shards();
        for node in nodes {
            let Ok(hold) = liveness.gate.enter() else { return };
            let liveness = Rc::clone(&liveness);
            reactor::spawn(Group::CONTROL, async move {
                ping(&liveness, node).await;
                drop(hold);
            })
            .detach();
        }
        // A tick between two pings: a silence is noticed within a quarter of a second.
        for _ in 0..2 {
            let until = Deadline::after(PING_EVERY / 2);
            let _stopped =
                reactor::timeout(until, liveness.stopping.wait_until(|| liveness.is_stopped())).await;
            if liveness.is_stopped() {
                return;
            }
            liveness.tick().await;
        }
    }
}

/// Asks a node once; and once more, at once, if only the connection was gone.
async fn ping(liveness: &Rc<Liveness>, node: NodeNumber) {
    let network = &liveness.network;
    for is_last in [false, true] {
        network.retry_control(node);
        let sent = reactor::now();
        match ask(network, node, Deadline::at(sent + SILENCE_MAX)).await {
            Ok(pong) => return liveness.answered(node, sent, pong).await,
            Err(NetError::Lost { .. }) if !is_last => {}
            Err(error) => return liveness.unanswered(node, &error).await,
        }
    }
}

async fn ask(network: &Rc<Network>, node: NodeNumber, deadline: Deadline) -> Result<Pong, NetError> {
    let ping = Ping { generation: network.own().generation, heard: network.heard(HEARD_IN_PING) };
    let mut body = Vec::new();
    ping.encode(&mut body);
    let answer = network.call((node, 0), Verb::Ping, WorkGroup::Control, deadline, body).await?;
    let reason = |error: wire::node::NodeError| NetError::Lost {
        peer: crate::net::PeerName::Node(node),
        reason: error.to_string(),
    };
    let pong = Pong::decode(&answer).map_err(reason)?;
    network.hear(&pong.heard);
    Ok(pong)
}

/// An answer with this node's clocks.
pub(super) fn with_clocks(sent: Instant, pong: Pong) -> Answered {
    Answered { sent, received: reactor::now(), wall_us: reactor::wall_clock_us(), pong }
}
