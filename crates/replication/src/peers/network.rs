//! Other nodes over the cluster's network, and what this node thinks of who is alive.

use std::rc::Rc;

use cluster::liveness::Liveness;
use cluster::liveness::opinion::Change;
use cluster::net::{NetError, Network};
use model::tablet::Replica;

use super::{NodeChange, NodeListener, PeerAnswer, PeerCall, PeerError, PeerErrorKind, Peers};

/// The peers of a node in a cluster, as one shard reaches them.
pub(crate) struct NetworkPeers {
    network: Rc<Network>,
    liveness: Option<Rc<Liveness>>,
}

impl NetworkPeers {
    /// Over this shard's network, with this shard's copy of the opinion of who is up.
    pub(crate) fn new(network: Rc<Network>) -> Self {
        Self { network, liveness: reactor::local::<Liveness>() }
    }
}

impl Peers for NetworkPeers {
    fn is_up(&self, replica: Replica) -> bool {
        self.liveness.as_ref().is_some_and(|liveness| {
            liveness.is_up(replica.node) && !liveness.shard_is_stalled(replica.node, replica.shard)
        })
    }

    fn on_change(&self, listener: NodeListener) {
        let Some(liveness) = &self.liveness else { return };
        liveness.on_change(move |change| match *change {
            Change::Up { node } => listener(NodeChange::Up(node)),
            Change::Down { node, .. } => listener(NodeChange::Down(node)),
            Change::Stalled { .. } | Change::Clock { .. } | Change::Clients { .. } => {}
        });
    }

    fn call(&self, call: PeerCall) -> PeerAnswer {
        let network = Rc::clone(&self.network);
        Box::pin(async move {
            let PeerCall { to, verb, group, deadline, body } = call;
            let called = network.call((to.node, to.shard), verb, group, deadline, body).await;
            called.map_err(PeerError::from)
        })
    }
}

impl From<NetError> for PeerError {
    #[cold]
    fn from(error: NetError) -> Self {
        let kind = match &error {
            NetError::TimedOut { .. } => PeerErrorKind::TimedOut,
            NetError::TooManyWaiting { .. } => PeerErrorKind::Overloaded,
            NetError::UnknownNode { .. }
            | NetError::UnknownShard { .. }
            | NetError::Unreachable { .. }
            | NetError::Refused { .. }
            | NetError::RefusedBy { .. }
            | NetError::Lost { .. }
            | NetError::NotOpen => PeerErrorKind::Unreachable,
            NetError::TooLong { .. } | NetError::Flooded { .. } => PeerErrorKind::Failed,
            NetError::Fault { fault, .. } => PeerErrorKind::from(fault.kind),
        };
        Self { kind, reason: error.to_string() }
    }
}
