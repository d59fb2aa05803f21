//! Group 0 of three members over simulated TCP: members join by a snapshot and learn, vote, crash, are parted
//! and come back. One history everywhere, nothing that was answered is lost or applied twice, reads that
//! asked for a majority see it, and once all is calm there is one leader and everybody has everything.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use cluster::NodeNumber;
use cluster::consensus::{LogLimits, MemberChange, Message, MessageKind, Role, Snapshot};
use cluster::group0::{Applied, Change, ClusterState, Command, Group0, Group0Error, RequestId};
use model::schema::{KeyspaceOptions, SchemaChange};
use reactor::net::{ListenOptions, Listener, Stream};
use reactor::sim::{DiskFaults, NodeId, World};
use reactor::{Deadline, Event, Group};

const FOLDER: &str = "/ceto/schema/group0";
const PORT: u16 = 7000;
/// A new snapshot and log after so few entries, so that members who were away get snapshots.
const LIMITS: LogLimits = LogLimits { bytes: 1 << 20, entries: 20 };
/// Longest queue to one peer; more is lost, as by a transport that is too slow.
const QUEUE_MAX: usize = 64;

/// What the test knows of all nodes.
#[derive(Default)]
struct Shared {
    addresses: RefCell<Vec<SocketAddr>>,
    /// Snapshots for members that join, by number.
    invitations: RefCell<BTreeMap<NodeNumber, Snapshot>>,
    /// Commands by index, as the first node that applied one saw it.
    history: RefCell<BTreeMap<u64, RequestId>>,
    /// Numbers of commands that were answered, with their indexes.
    answered: RefCell<BTreeMap<u64, u64>>,
    next: Cell<u64>,
    /// Groups that run, by number.
    running: RefCell<BTreeMap<NodeNumber, Group0>>,
    /// Whether clients still propose.
    quiet: Cell<bool>,
    /// The node that leadership is to be handed to.
    hand_over_to: Cell<Option<NodeNumber>>,
    reads: Cell<u64>,
    installed: Cell<u64>,
}

/// Messages to one peer.
#[derive(Default)]
struct Queue {
    messages: RefCell<VecDeque<Message>>,
    grown: Event,
}

fn command(number: u64, state: &ClusterState, group: &Group0, node: NodeNumber) -> Command {
    let options = KeyspaceOptions { replication: BTreeMap::new(), durable_writes: true, tablets: None };
    let change = SchemaChange::CreateKeyspace { name: format!("k{number}"), options };
    Command {
        id: RequestId { node, life: group.term(), sequence: number },
        schema: Some(state.schema().version()),
        changes: vec![Change::Schema(change)],
        topology: None,
    }
}

async fn open(number: NodeNumber, shared: &Rc<Shared>) -> Group0 {
    let folder = Path::new(FOLDER);
    if !reactor::file::exists(folder).await.expect("a look") {
        reactor::file::create_dir_all("/ceto/schema").await.expect("a folder");
        reactor::file::sync_dir("/").await.expect("a folder");
        reactor::file::sync_dir("/ceto").await.expect("a folder");
        if number == 1 {
            Group0::create(folder, 1, 0, ClusterState::default()).await.expect("a new group");
        } else {
            let invited = || shared.invitations.borrow().get(&number).cloned();
            while invited().is_none() {
                reactor::sleep(Duration::from_millis(50)).await;
            }
            Group0::create_from(folder, &invited().expect("an invitation")).await.expect("a new member");
        }
    }
    let group = Group0::open(folder, |_| Ok(number), LIMITS).await.expect("a group");
    let of_listener = Rc::clone(shared);
    group.on_applied(Rc::new(move |applied, state| match applied {
        Applied::Command(index, command) => {
            let known = *of_listener.history.borrow_mut().entry(index).or_insert(command.id);
            assert_eq!(known, command.id, "node {number} has another command {index}");
            assert_eq!(state.last_command(), index);
        }
        Applied::Installed(index) => {
            of_listener.installed.set(of_listener.installed.get() + 1);
            assert!(state.last_command() <= index);
        }
    }));
    group
}

async fn node(number: NodeNumber, shared: Rc<Shared>) {
    let group = open(number, &shared).await;
    let queues: BTreeMap<NodeNumber, Rc<Queue>> =
        (1..=3).filter(|peer| *peer != number).map(|peer| (peer, Rc::default())).collect();
    for (peer, queue) in &queues {
        let address = shared.addresses.borrow()[usize::from(*peer) - 1];
        reactor::spawn(Group::CONTROL, send_all(*peer, address, Rc::clone(queue), group.clone())).detach();
    }
    reactor::spawn(Group::CONTROL, receive_all(group.clone())).detach();
    group.connect(Rc::new(move |message: Message| {
        let Some(queue) = queues.get(&message.to) else { return };
        if queue.messages.borrow().len() < QUEUE_MAX {
            queue.messages.borrow_mut().push_back(message);
            queue.grown.notify_all();
        }
    }));
    shared.running.borrow_mut().insert(number, group.clone());
    reactor::spawn(Group::CONTROL, manage(number, group.clone(), Rc::clone(&shared))).detach();
    client(number, group, shared).await;
}

/// As leader, invites the others and makes them voters.
async fn manage(number: NodeNumber, group: Group0, shared: Rc<Shared>) {
    loop {
        reactor::sleep(Duration::from_millis(100)).await;
        if !group.may_plan() {
            continue;
        }
        if let Some(to) = shared.hand_over_to.take() {
            group.hand_over(to);
        }
        let members = group.members();
        for peer in (1..=3).filter(|peer| *peer != number) {
            let is_learner = members.learners.contains(&peer);
            let is_invited = shared.invitations.borrow().contains_key(&peer);
            let change = match (members.voters.contains(&peer), is_learner, is_invited) {
                (true, ..) => continue,
                (false, true, false) => {
                    shared.invitations.borrow_mut().insert(peer, group.snapshot());
                    continue;
                }
                (false, true, true) if shared.running.borrow().contains_key(&peer) => {
                    MemberChange::Voter(peer)
                }
                (false, false, _) => MemberChange::Learner(peer),
                _ => continue,
            };
            match group.change_members(&[change]).await {
                Ok(()) | Err(Group0Error::Members(_) | Group0Error::Undecided) => {}
                Err(error) => panic!("node {number}: {error}"),
            }
        }
    }
}

/// Proposes where this node leads, and asks for reads that are current.
async fn client(number: NodeNumber, group: Group0, shared: Rc<Shared>) {
    loop {
        reactor::sleep(Duration::from_millis(20 + reactor::random_u64() % 100)).await;
        if shared.quiet.get() {
            continue;
        }
        if reactor::random_u64().is_multiple_of(4) {
            let before = shared.answered.borrow().values().max().copied().unwrap_or(0);
            if group.catch_up(Deadline::after(Duration::from_secs(2))).await.is_ok() {
                assert!(group.applied() >= before, "node {number} read past of {before}");
                shared.reads.set(shared.reads.get() + 1);
            }
        }
        if group.may_plan() {
            propose(number, &group, &shared).await;
        }
    }
}

async fn propose(number: NodeNumber, group: &Group0, shared: &Shared) {
    let name = shared.next.get();
    shared.next.set(name + 1);
    let command = command(name, &group.state(), group, number);
    match group.propose(&command).await {
        Ok((index, Ok(()))) => {
            shared.answered.borrow_mut().insert(name, index);
        }
        // Another leader's commands came before.
        Ok((_, Err(_))) => {}
        Err(Group0Error::NotLeader(_) | Group0Error::Undecided) => {}
        Err(error) => panic!("node {number}: {error}"),
    }
}

/// Sends messages to one peer, and says of snapshots whether they left.
async fn send_all(peer: NodeNumber, address: SocketAddr, queue: Rc<Queue>, group: Group0) {
    loop {
        let connecting = reactor::timeout(Deadline::after(Duration::from_secs(1)), Stream::connect(address));
        let Ok(Ok(stream)) = connecting.await else {
            queue.messages.borrow_mut().clear();
            group.unreachable(peer);
            reactor::sleep(Duration::from_millis(50)).await;
            continue;
        };
        loop {
            queue.grown.wait_until(|| !queue.messages.borrow().is_empty()).await;
            let message = queue.messages.borrow_mut().pop_front().expect("a message");
            let is_snapshot = message.kind == MessageKind::Snapshot;
            let body = minicbor::to_vec(&message).expect("writing to memory does not fail");
            let frame = [&(body.len() as u32).to_le_bytes()[..], &body].concat();
            let sent = reactor::timeout(Deadline::after(Duration::from_secs(2)), stream.send(frame)).await;
            let has_left = matches!(sent, Ok((Ok(()), _)));
            if is_snapshot {
                group.snapshot_sent(peer, has_left);
            }
            if !has_left {
                group.unreachable(peer);
                break;
            }
        }
        stream.shutdown();
    }
}

async fn receive_all(group: Group0) {
    let any = SocketAddr::new([0, 0, 0, 0].into(), PORT);
    let listener = Listener::bind(any, ListenOptions::default()).expect("a listener");
    while let Ok((stream, _)) = listener.accept().await {
        let group = group.clone();
        reactor::spawn(Group::CONTROL, async move {
            let mut bytes = Vec::new();
            while let Ok(Some(chunk)) = stream.recv().await {
                bytes.extend_from_slice(&chunk);
                while let Some(length) =
                    bytes.first_chunk::<4>().map(|head| u32::from_le_bytes(*head) as usize)
                    && bytes.len() >= 4 + length
                {
                    let message: Message = minicbor::decode(&bytes[4..4 + length]).expect("a message");
                    bytes.drain(..4 + length);
                    group.step(message).expect("a message of a correct member");
                }
            }
        })
        .detach();
    }
}

struct Cluster {
    world: World,
    ids: Vec<NodeId>,
    shared: Rc<Shared>,
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed);
        let shared = Rc::new(Shared::default());
        let mut ids = Vec::new();
        for number in 1..=3 {
            let of_node = Rc::clone(&shared);
            let faults = DiskFaults { lose_unsynced: seed.is_multiple_of(2), ..DiskFaults::default() };
            ids.push(world.add_node_with(1, faults, move |_| node(number, Rc::clone(&of_node))));
        }
        shared.addresses.replace(ids.iter().map(|id| SocketAddr::new(id.ip(), PORT)).collect());
        Self { world, ids, shared }
    }

    fn run_for(&mut self, time: Duration, of: &str) {
        self.world.run_for(time).unwrap_or_else(|stuck| panic!("{of}: {stuck:?}"));
        for id in &self.ids {
            if let Some(Err(problem)) = self.world.outcome(*id)
                && problem != "crashed"
            {
                panic!("{of}: node {}: {problem}\n{}", id.number() + 1, self.world.log().join("\n"));
            }
        }
    }

    /// One fault, or its end.
    fn mischief(&mut self) {
        let node = self.ids[(self.world.random_u64() % 3) as usize];
        let other = self.ids[(node.number() + 1) % 3];
        match self.world.random_u64() % 10 {
            0..=2 => {
                self.shared.running.borrow_mut().remove(&(node.number() as u16 + 1));
                if self.world.outcome(node).is_none() {
                    self.world.crash(node);
                } else {
                    self.world.restart(node);
                }
            }
            3 | 4 => self.world.part(node, other),
            5 | 6 => self.world.heal(node, other),
            7 => self.world.reset_connections(node, other),
            8 => {
                self.shared.hand_over_to.set(Some(other.number() as u16 + 1));
            }
            _ => {}
        }
    }

    /// Ends all faults and waits until everybody has everything.
    fn calm(&mut self, seed: u64) {
        for at in 0..3 {
            self.world.heal(self.ids[at], self.ids[(at + 1) % 3]);
            if self.world.outcome(self.ids[at]).is_some() {
                self.world.restart(self.ids[at]);
            }
        }
        self.run_for(Duration::from_secs(20), &format!("seed {seed}, calm"));
        self.shared.quiet.set(true);
        self.run_for(Duration::from_secs(40), &format!("seed {seed}, quiet"));
        let running = self.shared.running.borrow();
        let leaders = running.values().filter(|group| group.status().role == Role::Leader).count();
        assert_eq!((running.len(), leaders), (3, 1), "seed {seed}: members and leaders");
        let states: Vec<_> =
            running.values().map(|group| (group.applied(), group.state().encode())).collect();
        assert!(states.iter().all(|state| *state == states[0]), "seed {seed}: states differ");
        let state = running[&1].state();
        for (name, index) in self.shared.answered.borrow().iter() {
            let exists = state.schema().keyspace(&format!("k{name}")).is_some();
            assert!(exists, "seed {seed}: command {name}, answered as {index}, is gone");
        }
        let voters = running[&1].members().voters;
        assert_eq!(voters, [1, 2, 3], "seed {seed}");
    }
}

#[test]
fn members_come_and_crash_and_have_one_history() {
    let (mut answered, mut reads, mut installed) = (0, 0, 0);
    for seed in 0..12 {
        let mut cluster = Cluster::new(seed);
        cluster.run_for(Duration::from_secs(5), &format!("seed {seed}, first"));
        for _ in 0..40 {
            cluster.mischief();
            let time = Duration::from_millis(cluster.world.random_u64() % 3_000);
            cluster.run_for(time, &format!("seed {seed}"));
        }
        cluster.calm(seed);
        answered += cluster.shared.answered.borrow().len();
        reads += cluster.shared.reads.get();
        installed += cluster.shared.installed.get();
    }
    assert!(
        answered > 600 && reads > 300 && installed > 5,
        "{answered} commands, {reads} reads and {installed} snapshots say little"
    );
}

#[test]
fn a_member_whose_log_failed_confirms_nothing_more() {
    for seed in 30..34 {
        let of = format!("seed {seed}");
        let mut cluster = Cluster::new(seed);
        cluster.run_for(Duration::from_secs(5), &of);
        let follows = |(number, group): (&NodeNumber, &Group0)| {
            (group.status().role == Role::Follower).then_some(usize::from(*number) - 1)
        };
        let at = cluster.shared.running.borrow().iter().find_map(follows).expect("a follower");
        let well = DiskFaults { lose_unsynced: true, ..DiskFaults::default() };
        cluster.world.set_disk_faults(cluster.ids[at], DiskFaults { sync_error: 1.0, ..well.clone() });
        let before = cluster.shared.answered.borrow().len();
        cluster.run_for(Duration::from_secs(5), &of);
        let answered = cluster.shared.answered.borrow().len();
        assert!(answered > before + 10, "{of}: the other two go on: {before} commands, then {answered}");
        // Entries that it confirmed without having them would be missing now.
        cluster.shared.running.borrow_mut().remove(&(at as NodeNumber + 1));
        cluster.world.crash(cluster.ids[at]);
        cluster.world.set_disk_faults(cluster.ids[at], well);
        cluster.world.restart(cluster.ids[at]);
        cluster.calm(seed);
    }
}

#[test]
fn a_run_follows_from_its_seed() {
    let run = |seed| {
        let mut cluster = Cluster::new(seed);
        cluster.run_for(Duration::from_secs(10), "a run");
        let answered = cluster.shared.answered.borrow().len();
        (answered, cluster.world.trace_hash())
    };
    assert_eq!(run(3), run(3));
    assert!(run(3).0 > 20);
    assert_ne!(run(3).1, run(4).1);
}
