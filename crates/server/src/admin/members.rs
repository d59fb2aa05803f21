//! The nodes of the cluster as administration shows them: the list on which they agreed, with this node's
//! opinion of who is up and what each said of itself.
//!
//! All of it runs on shard 0 (see `bridge`). Invariant: this node is always in the list and up, also if its
//! disk had no room for the list at its first start.

use std::net::IpAddr;
use std::rc::Rc;

use cluster::liveness::Liveness;
use cluster::nodes::{NodeRecord, NodeState};
use cluster::{NodeNumber, View};

use super::error::ApiError;
use super::node;
use super::rest::uuid_text;

/// One node.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// What the nodes agreed upon.
    pub(crate) record: NodeRecord,
    /// Whether it is this node.
    pub(crate) is_own: bool,
    /// Whether it is up, in this node's opinion.
    pub(crate) is_up: bool,
    /// Whether its port for clients is open.
    pub(crate) serves_clients: bool,
    /// For how long it has been down, in milliseconds; `None` for one that is up or never was.
    pub(crate) down_ms: Option<u64>,
    /// Bytes of its table files, as far as they are known here.
    pub(crate) load_bytes: Option<u64>,
}

impl Member {
    /// Its address for other nodes, by which people and tools know it.
    pub(crate) fn address(&self) -> IpAddr {
        self.record.listen.ip()
    }

    /// Its host id as text.
    pub(crate) fn host_id(&self) -> String {
        uuid_text(self.record.host_id)
    }

    /// Whether it has data, or gives it away.
    pub(crate) fn has_tokens(&self) -> bool {
        matches!(self.record.state, NodeState::Normal | NodeState::Draining)
    }

    /// Whether `name` is its address for nodes or for clients, or its host id.
    fn is_called(&self, name: &str) -> bool {
        let addresses = [self.address(), self.record.native.ip()];
        name.parse().is_ok_and(|address: IpAddr| addresses.contains(&address)) || self.host_id() == name
    }
}

/// The nodes that have not left, by number.
pub(crate) async fn all() -> Result<Vec<Member>, ApiError> {
    let own_load: u64 = node::reports().await?.iter().map(|report| report.file_bytes).sum();
    let mut members = known()?;
    for member in members.iter_mut().filter(|member| member.is_own) {
        member.load_bytes = Some(own_load);
    }
    Ok(members)
}

/// As [`all`], without measuring this node's data.
pub(crate) fn known() -> Result<Vec<Member>, ApiError> {
    let shard = node::here()?;
    let own_id = shard.native.engine().config().host_id;
    let nodes = View::here().nodes();
    let views = reactor::local::<Liveness>().map_or_else(Vec::new, |liveness| liveness.views());
    let now = reactor::now();
    let member = |record: &NodeRecord| {
        let is_own = record.host_id == own_id;
        let view = views.iter().find(|(node, _)| *node == record.number).map(|(_, view)| view);
        let pong = view.and_then(|view| view.pong.as_ref());
        let is_up = is_own || view.is_some_and(|view| view.is_up);
        let since = view.and_then(|view| view.since);
        Member {
            record: record.clone(),
            is_own,
            is_up,
            serves_clients: match pong {
                Some(pong) => is_up && pong.serves_clients,
                None => is_own && node::NodeState::here().is_ok_and(|node| node.is_open()),
            },
            down_ms: since.filter(|_| !is_up).map(|since| now.since(since).as_millis() as u64),
            load_bytes: pong.map(|pong| pong.load_bytes),
        }
    };
    let mut members: Vec<Member> =
        nodes.values().filter(|node| node.state != NodeState::Left).map(member).collect();
    if !members.iter().any(|member| member.is_own) {
        members.push(member(&own_record(&shard)));
    }
    Ok(members)
}

/// What this node is by its configuration.
fn own_record(shard: &Rc<crate::boot::Shard>) -> NodeRecord {
    let config = shard.native.engine().config();
    NodeRecord {
        number: View::here().own().node,
        host_id: config.host_id,
        data_center: config.data_center.clone(),
        rack: config.rack.clone(),
        listen: config.listen_address,
        native: config.native_address,
        tokens: cluster::maps::ring::tokens_of_next(&[]),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..NodeRecord::default()
    }
}

/// This node.
pub(crate) fn own() -> Result<Member, ApiError> {
    let own = known()?.into_iter().find(|member| member.is_own);
    Ok(own.expect("this node is in the list"))
}

/// The node of that address or host id; this one if none is named.
pub(crate) fn called(name: Option<&str>) -> Result<Member, ApiError> {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return own() };
    let found = known()?.into_iter().find(|member| member.is_called(name));
    found.ok_or_else(|| ApiError::bad(format!("there is no node {name}")))
}

/// Finds members by their numbers.
pub(crate) fn numbered(members: &[Member], number: NodeNumber) -> Option<&Member> {
    members.iter().find(|member| member.record.number == number)
}
