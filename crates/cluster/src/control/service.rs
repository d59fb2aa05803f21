//! This node's part in the cluster, on shard 0: how it gets into one, and how it answers other nodes.
//!
//! The way in: `starts` (how often this directory was started, durable) → the port opens → a folder of group
//! 0 is opened, or made by founding or joining (`founding` decides) → messages of the group go over the
//! network (`post`). Requests of others: Status of anybody, Join and Command for the leader (`leader`), Raft
//! messages. Invariant: the folder of group 0 is durable before this node says that it is in a cluster.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use reactor::{Deadline, Group};
use storage::{StorageConfig, StorageError};
use wire::node::control::{Addresses, Join, Joined, Status, StatusAnswer};
use wire::node::fault::{Fault, FaultKind};
use wire::node::frame::Verb;
use wire::node::hello::{Class, Epoch, Hello};

use super::post::Post;
use super::{own_word, starts};
use crate::consensus::{LogLimits, Message, Snapshot};
use crate::group0::{ClusterState, Group0, GroupFailure};
use crate::liveness::Liveness;
use crate::membership::founding::{self, Promise, SeedAnswer, Step, seeds_hash};
use crate::net::{Answer, InternodeCompression, Network, NetworkConfig, Request};
use crate::nodes::OwnFacts;

/// The class name of the only partitioner, as in Cassandra's configuration.
const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";
/// Versions of the protocol between nodes that this version speaks.
const PROTOCOL_VERSIONS: (u8, u8) = (1, 1);
/// How long one question to a seed may take.
const ASK_WITHIN: Duration = Duration::from_secs(2);
/// How long a request to join may take: it waits for a majority of the others.
const JOIN_WITHIN: Duration = Duration::from_secs(30);
/// Time between the first two rounds of questions to the seeds; it doubles up to the other. Nodes that are
/// started together find each other soon.
const ASK_AGAIN: Duration = Duration::from_millis(50);
const ASK_AGAIN_MAX: Duration = Duration::from_millis(500);
/// How often a waiting start says why it waits.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// How a node takes part in a cluster; a node without these is alone and has no port for others.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Name of the cluster.
    pub cluster_name: String,
    /// Nodes that are asked for the cluster, the one that founds it first.
    pub seeds: Vec<SocketAddr>,
    /// Whether to found a cluster without asking them.
    pub founds: bool,
    /// Where to listen, if not on the address by which other nodes know this one.
    pub bind: Option<SocketAddr>,
    /// Which bodies between nodes are compressed.
    pub compression: InternodeCompression,
    /// Folder of what this part keeps.
    pub folder: PathBuf,
}

/// Starts this shard's transport; on shard 0 it opens the port.
///
/// # Errors
/// Errors of the count of starts and of the port.
pub(crate) async fn start_network(
    options: &ClusterOptions,
    facts: &mut OwnFacts,
    shard: usize,
) -> Result<Rc<Network>, StorageError> {
    if shard == 0 {
        facts.generation = starts::count(&options.folder).await?;
    }
    let own = Hello {
        version_min: PROTOCOL_VERSIONS.0,
        version_max: PROTOCOL_VERSIONS.1,
        cluster_id: None,
        cluster_name: options.cluster_name.clone(),
        partitioner: PARTITIONER.to_owned(),
        host_id: facts.host_id,
        expected: None,
        node: 0,
        generation: facts.generation,
        boot: reactor::random_u64(),
        shard: shard as u16,
        shards: facts.shards,
        features: Vec::new(),
        epoch: None,
        to_shard: None,
        class: Class::Control,
        data_center: facts.data_center.clone(),
        rack: facts.rack.clone(),
        address: facts.listen.to_string(),
        heard: Vec::new(),
    };
    let bind = options.bind.unwrap_or(facts.listen);
    let config = NetworkConfig {
        compression: options.compression,
        address_book: (shard == 0).then(|| options.folder.join("addresses")),
        ..NetworkConfig::new(own, Some(bind))
    };
    let started = Network::start(config).await;
    let network = started.map_err(|error| {
        StorageError::of("listen for other nodes on", Path::new(&bind.to_string()))(error)
    })?;
    Liveness::start(&network, own_word::facts);
    Ok(network)
}

/// This node's part in the cluster.
pub(crate) struct Membership {
    options: ClusterOptions,
    facts: OwnFacts,
    network: Rc<Network>,
    promise: RefCell<Promise>,
    /// Set once this node is in a cluster.
    group: RefCell<Option<Group0>>,
    /// Whether this node ends.
    pub(super) ending: Cell<bool>,
}

impl Membership {
    /// The membership, answering what others ask.
    pub(crate) fn new(options: ClusterOptions, facts: OwnFacts, network: Rc<Network>) -> Rc<Self> {
        let membership = Rc::new(Self {
            options,
            facts,
            network,
            promise: RefCell::default(),
            group: RefCell::default(),
            ending: Cell::new(false),
        });
        let of = |membership: &Rc<Self>| Rc::clone(membership);
        let answering = of(&membership);
        membership.network.register(Verb::Status, move |request| {
            let membership = Rc::clone(&answering);
            async move { membership.status(&request) }
        });
        let answering = of(&membership);
        membership.network.register(Verb::Raft, move |request| {
            let membership = Rc::clone(&answering);
            async move { membership.step(&request) }
        });
        let answering = of(&membership);
        membership.network.register(Verb::Join, move |request| {
            let membership = Rc::clone(&answering);
            async move { membership.take_in(request).await }
        });
        let answering = of(&membership);
        membership.network.register(Verb::Command, move |request| {
            let membership = Rc::clone(&answering);
            async move { membership.command(request).await }
        });
        membership
    }

    /// This node's word about itself.
    pub(crate) fn facts(&self) -> &OwnFacts {
        &self.facts
    }

    pub(super) fn network(&self) -> &Rc<Network> {
        &self.network
    }

    /// Group 0, once this node is in a cluster.
    pub(super) fn group(&self) -> Option<Group0> {
        self.group.borrow().clone()
    }

    /// Opens group 0 of the folder; a node without one founds a cluster or joins one first, however long that
    /// takes.
    pub(crate) async fn enter(
        self: &Rc<Self>,
        config: &StorageConfig,
        first: ClusterState,
        index: u64,
    ) -> Result<Group0, StorageError> {
        let folder = config.group0_dir();
        let failed = |failure: GroupFailure| StorageError::ControlPlane(Rc::new(failure));
        let exists = reactor::file::exists(&folder).await.map_err(StorageError::of("look for", &folder))?;
        if !exists {
            let alone = self.options.founds || founding::is_alone(self.facts.listen, &self.options.seeds);
            // A directory that has tables of its own cannot take over those of a cluster.
            let has_tables = first.schema().tables().next().is_some();
            if alone || has_tables {
                Group0::create(&folder, model::tablet::FIRST_NODE, index, first).await.map_err(failed)?;
            } else if let Some(snapshot) = self.found_or_join().await? {
                Group0::create_from(&folder, &snapshot).await.map_err(failed)?;
            } else {
                Group0::create(&folder, model::tablet::FIRST_NODE, index, first).await.map_err(failed)?;
            }
        }
        self.open(&folder).await.map_err(failed)
    }

    async fn open(self: &Rc<Self>, folder: &Path) -> Result<Group0, GroupFailure> {
        let number_in = |state: &ClusterState| crate::control::own_number(state, &self.facts);
        Group0::open(folder, number_in, LogLimits::default()).await
    }

    /// Has first messages name this node as a member, before other members are met: one whose state does
    /// not name this node yet goes by the number in its first message.
    pub(crate) fn name(&self, group: &Group0) {
        let state = group.state();
        let cluster_id = state.cluster_id().expect("a cluster is founded before others are met");
        let own = Hello {
            cluster_id: Some(cluster_id),
            node: group.number(),
            epoch: Some(Epoch { number: 0, id: [0; 16] }),
            ..self.network.own()
        };
        self.network.set_own(own);
    }

    /// Lets this node take part in group 0 over the network.
    pub(crate) fn attach(&self, group: &Group0) {
        self.group.replace(Some(group.clone()));
        let post = Post::new(group.clone(), Rc::clone(&self.network));
        group.connect(Rc::new(move |message| post.take(message)));
    }

    /// Asks the seeds until this node may found a cluster (`None`) or was taken into one.
    async fn found_or_join(self: &Rc<Self>) -> Result<Option<Snapshot>, StorageError> {
        let (begun, mut told, mut pause) = (reactor::now(), None, ASK_AGAIN);
        loop {
            let answers = self.ask_seeds().await;
            let may_found = self.promise.borrow().may_found(reactor::now());
            let reason = match founding::decide(self.facts.listen, &self.options.seeds, &answers) {
                Step::Found if may_found => return Ok(None),
                Step::Found => "this node has promised another one to wait".to_owned(),
                Step::Wait(reason) => reason,
                Step::Join(seed) => match self.join(seed).await {
                    Ok(snapshot) => return Ok(Some(snapshot)),
                    Err(reason) => reason,
                },
            };
            if told.is_none_or(|at: reactor::Instant| at.elapsed() >= TELL_EVERY) {
                match told.replace(reactor::now()) {
                    None => reactor::info!("this node waits for a cluster: {reason}"),
                    Some(_) => reactor::warn!(
                        "this node has waited {} s for a cluster, and answers no client: {reason}",
                        begun.elapsed().as_secs()
                    ),
                }
            }
            reactor::sleep(pause).await;
            pause = ASK_AGAIN_MAX.min(2 * pause);
        }
    }

    async fn ask_seeds(self: &Rc<Self>) -> Vec<(SocketAddr, SeedAnswer)> {
        let others = self.options.seeds.iter().filter(|seed| **seed != self.facts.listen);
        let asking: Vec<_> = others
            .map(|seed| {
                let (membership, seed) = (Rc::clone(self), *seed);
                reactor::spawn(Group::CONTROL, async move { (seed, membership.ask_seed(seed).await) })
            })
            .collect();
        let mut answers = Vec::with_capacity(asking.len());
        for asked in asking {
            answers.extend(asked.await);
        }
        answers
    }

    async fn ask_seed(&self, seed: SocketAddr) -> SeedAnswer {
        match self.status_of(seed).await {
            Ok(StatusAnswer { cluster_id: Some(_), .. }) => SeedAnswer::Member,
            Ok(StatusAnswer { seeds_hash, promises, .. }) => SeedAnswer::NoCluster { seeds_hash, promises },
            Err(reason) => SeedAnswer::Silent(reason),
        }
    }

    async fn status_of(&self, address: SocketAddr) -> Result<StatusAnswer, String> {
        let wants_to_found = self.options.seeds.first() == Some(&self.facts.listen);
        let question = Status { seeds_hash: seeds_hash(&self.options.seeds), wants_to_found };
        let mut body = Vec::new();
        question.encode(&mut body);
        let deadline = Deadline::after(ASK_WITHIN);
        let asked = self.network.ask(address, None, Verb::Status, deadline, body).await;
        let answer = asked.map_err(|error| error.to_string())?;
        StatusAnswer::decode(&answer).map_err(|error| error.to_string())
    }

    /// Asks the leader of a seed's cluster to take this node in.
    async fn join(&self, seed: SocketAddr) -> Result<Snapshot, String> {
        let leader = self.status_of(seed).await?.leader;
        let leader = leader.ok_or("the cluster has no leader at the moment")?;
        let leader: SocketAddr =
            leader.parse().map_err(|_| format!("'{leader}' is no address of a leader"))?;
        let facts = &self.facts;
        let request = Join {
            data_center: facts.data_center.clone(),
            rack: facts.rack.clone(),
            addresses: Addresses { storage: facts.listen.to_string(), native: facts.native.to_string() },
            version: facts.version.clone(),
            shards: facts.shards,
            capacity_bytes: 0,
            replaces: None,
            generation: facts.generation,
            features: Vec::new(),
        };
        let mut body = Vec::new();
        request.encode(&mut body);
        let deadline = Deadline::after(JOIN_WITHIN);
        let asked = self.network.ask(leader, None, Verb::Join, deadline, body).await;
        let answer = asked.map_err(|error| error.to_string())?;
        let joined = Joined::decode(&answer).map_err(|error| error.to_string())?;
        let snapshot: Snapshot = minicbor::decode(&joined.snapshot).map_err(|error| error.to_string())?;
        let state = ClusterState::decode(&snapshot.state)?;
        let known = state.nodes().get(&joined.node).is_some_and(|node| node.host_id == facts.host_id);
        if !known || state.cluster_id() != Some(joined.cluster_id) {
            return Err("the leader's answer does not name this node or its cluster".to_owned());
        }
        Ok(snapshot)
    }

    fn status(&self, request: &Request) -> Answer {
        let question = Status::decode(&request.body).map_err(invalid)?;
        let own_hash = seeds_hash(&self.options.seeds);
        let group = self.group();
        let is_candidate = self.options.seeds.first() == Some(&self.facts.listen);
        let answer = match &group {
            Some(group) => {
                let (leader, leader_id) = leader_of(group).unzip();
                let cluster_id = group.state().cluster_id();
                StatusAnswer { cluster_id, seeds_hash: own_hash, promises: false, leader, leader_id }
            }
            None => {
                let promises = question.wants_to_found
                    && !is_candidate
                    && self.promise.borrow_mut().give(request.from.host_id, reactor::now());
                StatusAnswer {
                    cluster_id: None,
                    seeds_hash: own_hash,
                    promises,
                    leader: None,
                    leader_id: None,
                }
            }
        };
        let mut body = Vec::new();
        answer.encode(&mut body);
        Ok(body)
    }

    fn step(&self, request: &Request) -> Answer {
        let message =
            Message::decode(&request.body).map_err(|reason| Fault::new(FaultKind::Invalid, reason))?;
        let from = &request.from;
        if Some(message.from) != from.node.or(from.provisional) {
            return Err(Fault::new(FaultKind::Forbidden, "the message is another member's"));
        }
        let group = self.group().ok_or_else(not_in_a_cluster)?;
        group.step(message).map_err(|refused| Fault::new(FaultKind::Invalid, refused.to_string()))?;
        Ok(Vec::new())
    }
}

/// Address and host id of the leader that a group knows.
fn leader_of(group: &Group0) -> Option<(String, [u8; 16])> {
    let state = group.state();
    let record = state.nodes().get(&group.status().leader?)?;
    Some((record.listen.to_string(), record.host_id))
}

pub(super) fn not_in_a_cluster() -> Fault {
    Fault { retryable: true, ..Fault::new(FaultKind::NotServed, "this node is in no cluster yet") }
}

pub(super) fn invalid(error: wire::node::NodeError) -> Fault {
    Fault::new(FaultKind::Invalid, error.to_string())
}
