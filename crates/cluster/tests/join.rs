//! Whole control planes over the simulated network: nodes found a cluster, join it, agree on one schema, lose
//! and regain each other. Storage and group 0 are the real ones, with their disks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use cluster::consensus::Role;
use cluster::net::InternodeCompression;
use cluster::nodes::{NodeState, OwnFacts};
use cluster::{Answered, ClusterError, ClusterOptions, ControlPlane};
use model::schema::{KeyspaceOptions, SchemaChange};
use reactor::sim::{DiskFaults, Link, NodeId, World};
use reactor::{Deadline, Event};
use storage::StorageConfig;

const PORT: u16 = 7000;
const SHARDS: usize = 2;

/// What the test sees of all nodes.
#[derive(Default)]
struct Shared {
    seeds: RefCell<Vec<SocketAddr>>,
    /// Shard 0 of each node that is open, by host.
    open: RefCell<BTreeMap<u8, Rc<ControlPlane>>>,
    /// Keyspaces that were answered as made.
    made: RefCell<Vec<String>>,
    next: Cell<u64>,
    quiet: Cell<bool>,
    /// Racks of hosts that are not in the first one.
    racks: RefCell<BTreeMap<u8, String>>,
    /// The number of the node that shall lead; whichever leads hands over to it.
    leads_next: Cell<Option<u16>>,
    /// Problems that end a start.
    refused: RefCell<Vec<String>>,
    changed: Event,
}

fn keyspace(name: &str) -> SchemaChange {
    let options = KeyspaceOptions { replication: BTreeMap::new(), durable_writes: true, tablets: None };
    SchemaChange::CreateKeyspace { name: name.to_owned(), options }
}

/// Plans a request, which is the name of a keyspace.
fn plan_with_names(control: &Rc<ControlPlane>) {
    control.plan_with(Rc::new(|turn, id, request| {
        Box::pin(async move {
            let name = String::from_utf8(request).expect("a name");
            if turn.schema().keyspace(&name).is_some() {
                return Ok(Answered { index: turn.index(), outcome: b"there".to_vec() });
            }
            let index = turn.change_as(id, &[keyspace(&name)]).await?;
            Ok(Answered { index, outcome: b"made".to_vec() })
        })
    }));
}

async fn node(host: u8, name: &'static str, address: SocketAddr, shared: Rc<Shared>) {
    let unnamed = OwnFacts::unnamed(reactor::shard_count());
    let facts = OwnFacts {
        host_id: [host; 16],
        listen: address,
        native: SocketAddr::new(address.ip(), 9042),
        rack: shared.racks.borrow().get(&host).unwrap_or(&unnamed.rack).clone(),
        ..unnamed
    };
    let options = ClusterOptions {
        cluster_name: name.to_owned(),
        seeds: shared.seeds.borrow().clone(),
        founds: false,
        bind: None,
        compression: InternodeCompression::default(),
        folder: PathBuf::from("/ceto/schema"),
    };
    let shard = reactor::shard_id();
    if shard == 0 {
        reactor::file::create_dir_all("/ceto").await.expect("a folder");
        reactor::file::sync_dir("/").await.expect("a folder");
    }
    let opened = cluster::open_node(StorageConfig::new("/ceto", 4 << 20), facts, Some(options), shard).await;
    let _storage = match opened {
        Ok(storage) => storage,
        Err(error) => {
            shared.refused.borrow_mut().push(error.to_string());
            return;
        }
    };
    if shard == 0 {
        let control = ControlPlane::here().expect("an open control plane");
        plan_with_names(&control);
        shared.open.borrow_mut().insert(host, Rc::clone(&control));
        client(host, &control, &shared).await;
    }
    shared.changed.wait_until(|| false).await;
}

/// Asks for keyspaces, whoever leads.
async fn client(host: u8, control: &ControlPlane, shared: &Shared) {
    loop {
        reactor::sleep(Duration::from_millis(50 + reactor::random_u64() % 200)).await;
        if let Some(next) = shared.leads_next.get() {
            control.group().hand_over(next);
        }
        if shared.quiet.get() {
            continue;
        }
        let name = format!("k{}", shared.next.get());
        shared.next.set(shared.next.get() + 1);
        match control.ask(name.clone().into_bytes(), Deadline::after(Duration::from_secs(5))).await {
            Ok(answered) => {
                let state = control.group().state();
                assert!(
                    state.schema().keyspace(&name).is_some(),
                    "node {host} was answered {answered:?} and does not know {name} at {}",
                    state.last_command()
                );
                shared.made.borrow_mut().push(name);
            }
            Err(ClusterError::Group0(_) | ClusterError::Refused(_) | ClusterError::Leader { .. }) => {}
            Err(error) => panic!("node {host}: {error}"),
        }
    }
}

struct Cluster {
    world: World,
    ids: Vec<NodeId>,
    shared: Rc<Shared>,
}

impl Cluster {
    /// `nodes` nodes of one cluster's name, all of them seeds.
    fn new(seed: u64, nodes: u8) -> Self {
        Self::named(seed, &vec!["c"; usize::from(nodes)])
    }

    fn named(seed: u64, names: &[&'static str]) -> Self {
        let world = World::new(seed);
        let shared = Rc::new(Shared::default());
        // The addresses that the world gives, in the order of adding.
        let addresses: Vec<SocketAddr> =
            (1..=names.len() as u8).map(|at| SocketAddr::new([10, 0, 0, at].into(), PORT)).collect();
        shared.seeds.replace(addresses);
        let mut cluster = Self { world, ids: Vec::new(), shared };
        for name in names {
            let lose_unsynced = seed.is_multiple_of(2);
            cluster.add(name, DiskFaults { lose_unsynced, ..DiskFaults::default() });
        }
        cluster
    }

    fn add(&mut self, name: &'static str, faults: DiskFaults) {
        let (of_node, host) = (Rc::clone(&self.shared), self.ids.len() as u8 + 1);
        let address = SocketAddr::new([10, 0, 0, host].into(), PORT);
        let main = move |_| node(host, name, address, Rc::clone(&of_node));
        let id = self.world.add_node_with(SHARDS, faults, main);
        assert_eq!(id.ip(), address.ip());
        self.ids.push(id);
    }

    fn run_for(&mut self, time: Duration, of: &str) {
        self.world.run_for(time).unwrap_or_else(|stuck| panic!("{of}: {stuck:?}"));
        self.check(of);
    }

    fn check(&self, of: &str) {
        for id in &self.ids {
            if let Some(Err(problem)) = self.world.outcome(*id)
                && problem != "crashed"
            {
                panic!("{of}: node {}: {problem}\n{}", id.number() + 1, self.world.log().join("\n"));
            }
        }
    }

    fn crash(&mut self, at: usize) {
        self.shared.open.borrow_mut().remove(&(at as u8 + 1));
        self.world.crash(self.ids[at]);
    }

    /// Waits until all nodes are open and agree, and checks that nothing is missing.
    fn settle(&mut self, of: &str) {
        self.shared.quiet.set(true);
        self.run_for(Duration::from_secs(30), of);
        assert_eq!(*self.shared.refused.borrow(), Vec::<String>::new(), "{of}");
        let open = self.shared.open.borrow();
        assert_eq!(open.len(), self.ids.len(), "{of}: open nodes\n{}", self.world.log().join("\n"));
        let first = open.values().next().expect("a node");
        let state = first.group().state();
        for (host, control) in open.iter() {
            let group = control.group();
            let is_equal = group.state().encode() == state.encode();
            assert!(
                is_equal,
                "{of}: node {host} has applied {} ({:?}) and the first {}\n{}",
                group.applied(),
                group.status(),
                first.group().applied(),
                self.world.log().join("\n")
            );
        }
        for name in self.shared.made.borrow().iter() {
            assert!(state.schema().keyspace(name).is_some(), "{of}: {name} was made and is gone");
        }
        assert!(
            state.nodes().values().all(|node| node.state == NodeState::Normal),
            "{of}: {:?}",
            state.nodes()
        );
        let voters = first.group().members().voters.len();
        let expected = match self.ids.len() {
            even if even % 2 == 0 => even - 1,
            odd => odd,
        };
        assert_eq!(voters, expected.min(5), "{of}: voters");
    }
}

#[test]
fn nodes_find_each_other_and_agree() {
    for (seed, nodes) in [(1, 1), (2, 2), (3, 3), (4, 5)] {
        let of = format!("{nodes} nodes");
        let mut cluster = Cluster::new(seed, nodes);
        cluster.run_for(Duration::from_secs(10), &of);
        cluster.settle(&of);
        let made = cluster.shared.made.borrow().len();
        assert!(made > 20, "{of}: {made} keyspaces");
        let open = cluster.shared.open.borrow();
        let nodes_known: Vec<usize> =
            open.values().map(|control| control.group().state().nodes().len()).collect();
        assert_eq!(nodes_known, vec![usize::from(nodes); usize::from(nodes)]);
    }
}

#[test]
fn a_node_of_another_cluster_is_not_taken_in() {
    let mut cluster = Cluster::named(7, &["c", "c", "other"]);
    cluster.run_for(Duration::from_secs(20), "two names");
    // The first seed founds only once all have answered, and the third never does.
    assert!(cluster.shared.open.borrow().is_empty());
    let log = cluster.world.log().join("\n");
    assert!(log.contains("cluster_name"), "{log}");
}

#[test]
fn crashes_and_partitions_lose_nothing_and_make_no_second_cluster() {
    let (mut made, mut lives) = (0, 0);
    for seed in 10..13 {
        let of = format!("seed {seed}");
        let mut cluster = Cluster::new(seed, 3);
        for _ in 0..20 {
            let at = (cluster.world.random_u64() % 3) as usize;
            let (node, other) = (cluster.ids[at], cluster.ids[(at + 1) % 3]);
            match cluster.world.random_u64() % 5 {
                0 | 1 => {
                    cluster.crash(at);
                    lives += 1;
                    let down = Duration::from_millis(cluster.world.random_u64() % 4_000);
                    cluster.run_for(down, &of);
                    cluster.world.restart(node);
                }
                2 => cluster.world.part(node, other),
                3 => cluster.world.heal(node, other),
                _ => cluster.world.reset_connections(node, other),
            }
            let time = Duration::from_millis(cluster.world.random_u64() % 3_000);
            cluster.run_for(time, &of);
        }
        for at in 0..3 {
            cluster.world.heal(cluster.ids[at], cluster.ids[(at + 1) % 3]);
        }
        cluster.run_for(Duration::from_secs(20), &of);
        cluster.settle(&of);
        made += cluster.shared.made.borrow().len();
    }
    assert!(made > 100 && lives > 10, "{made} changes and {lives} lives say little");
}

#[test]
fn a_start_that_takes_long_to_apply_what_it_missed_goes_on() {
    let mut cluster = Cluster::new(21, 3);
    cluster.run_for(Duration::from_secs(5), "three nodes");
    cluster.crash(2);
    cluster.run_for(Duration::from_secs(5), "one is away");
    let (away, others) = (cluster.ids[2], [cluster.ids[0], cluster.ids[1]]);
    others.iter().for_each(|other| cluster.world.part(away, *other));
    cluster.world.restart(away);
    cluster.run_for(Duration::from_secs(3), "it has opened its storage and hears nobody");
    // Shard 0 learns of what was missed, and the other shard applies it only after the start has given up
    // waiting for it.
    others.iter().for_each(|other| cluster.world.heal(away, *other));
    cluster.world.pause_shard(away, 1, Duration::from_secs(20));
    cluster.run_for(Duration::from_secs(15), "a shard stands still");
    assert_eq!(*cluster.shared.refused.borrow(), Vec::<String>::new());
    cluster.settle("all is well again");
}

#[test]
fn a_start_waits_for_the_next_leader_where_the_disk_of_this_one_fails() {
    let mut cluster = Cluster::new(22, 3);
    cluster.run_for(Duration::from_secs(5), "three nodes");
    cluster.shared.quiet.set(true);
    cluster.crash(2);
    cluster.run_for(Duration::from_secs(5), "one is away, and nothing is asked for");
    let leads = cluster.shared.open.borrow()[&1].may_plan();
    assert!(leads, "the founder leads");
    // The first thing that it has to write is that the third node has started again.
    let broken = DiskFaults { sync_error: 1.0, ..DiskFaults::default() };
    cluster.world.set_disk_faults(cluster.ids[0], broken);
    cluster.world.restart(cluster.ids[2]);
    cluster.run_for(Duration::from_secs(15), "the leader's disk fails");
    assert_eq!(*cluster.shared.refused.borrow(), Vec::<String>::new());
    assert!(cluster.shared.open.borrow().contains_key(&3), "the third node is open");
    cluster.crash(0);
    cluster.world.set_disk_faults(cluster.ids[0], DiskFaults::default());
    cluster.world.restart(cluster.ids[0]);
    cluster.settle("all is well again");
}

/// The first entry of a new leader changes nothing and has a number all the same.
#[test]
fn a_start_misses_nothing_where_a_new_leader_came_behind_the_last_change() {
    let mut cluster = Cluster::new(24, 5);
    cluster.run_for(Duration::from_secs(5), "five nodes");
    cluster.crash(4);
    let away = cluster.ids[4];
    // It hears of others while its storage opens, and they hear late of it.
    let slow_disk = DiskFaults { latency_ns: (3_000_000, 9_000_000), ..DiskFaults::default() };
    cluster.world.set_disk_faults(away, slow_disk);
    let slow_link = Link { latency_ns: Some((40_000_000, 60_000_000)), ..Link::default() };
    for other in &cluster.ids[..4] {
        cluster.world.set_link(away, *other, slow_link);
    }
    for round in 0..40 {
        let of = format!("round {round}");
        cluster.shared.quiet.set(false);
        cluster.run_for(Duration::from_millis(500), &of);
        cluster.shared.quiet.set(true);
        cluster.run_for(Duration::from_millis(500), &of);
        let leads = |control: &Rc<ControlPlane>| control.group().status().role == Role::Leader;
        let leader =
            cluster.shared.open.borrow().iter().find(|(_, control)| leads(control)).map(|(at, _)| *at);
        let leader = cluster.ids[usize::from(leader.expect("a leader")) - 1];
        let others: Vec<NodeId> = cluster.ids[..4].iter().copied().filter(|id| *id != leader).collect();
        others.iter().for_each(|other| cluster.world.part(leader, *other));
        cluster.run_for(Duration::from_secs(4), &of);
        others.iter().for_each(|other| cluster.world.heal(leader, *other));
        cluster.run_for(Duration::from_secs(1), &of);
        // Its start ends at all points, also behind the note of what it has learnt and before its own word.
        cluster.world.restart(away);
        cluster.run_for(Duration::from_millis(200 + 25 * round), &of);
        cluster.crash(4);
        assert_eq!(*cluster.shared.refused.borrow(), Vec::<String>::new(), "{of}");
    }
    cluster.world.restart(away);
    cluster.settle("all are there");
}

#[test]
fn a_first_start_may_end_at_any_point() {
    let mut cluster = Cluster::new(25, 3);
    cluster.run_for(Duration::from_secs(5), "three nodes with keyspaces");
    cluster.add("c", DiskFaults { latency_ns: (2_000_000, 6_000_000), ..DiskFaults::default() });
    let mut opened = 0;
    for round in 0..70 {
        let of = format!("round {round}");
        cluster.run_for(Duration::from_millis(20 + 8 * round), &of);
        assert_eq!(*cluster.shared.refused.borrow(), Vec::<String>::new(), "{of}");
        opened += u64::from(cluster.shared.open.borrow().contains_key(&4));
        cluster.crash(3);
        cluster.world.restart(cluster.ids[3]);
    }
    assert!(0 < opened && opened < 60, "{opened} starts that came to their end say little");
    cluster.settle("four nodes");
}

#[test]
fn a_start_without_a_majority_is_told_to_the_others_later() {
    let mut cluster = Cluster::new(26, 3);
    cluster.run_for(Duration::from_secs(5), "three nodes");
    cluster.crash(2);
    let (away, others) = (cluster.ids[2], [cluster.ids[0], cluster.ids[1]]);
    others.iter().for_each(|other| cluster.world.part(away, *other));
    cluster.world.restart_with(away, SHARDS + 1);
    cluster.run_for(Duration::from_secs(15), "it serves what it has");
    let shards = |cluster: &Cluster| {
        let open = cluster.shared.open.borrow();
        open[&1].group().state().nodes()[&3].shards
    };
    assert!(cluster.shared.open.borrow().contains_key(&3), "it is open");
    assert_eq!(usize::from(shards(&cluster)), SHARDS, "nobody has heard of it");
    others.iter().for_each(|other| cluster.world.heal(away, *other));
    cluster.run_for(Duration::from_secs(10), "they meet");
    assert_eq!(usize::from(shards(&cluster)), SHARDS + 1);
    cluster.settle("all is well again");
}

/// The node that was away knows the leader neither by its number nor by its address.
#[test]
fn a_node_that_was_away_follows_a_leader_that_joined_meanwhile() {
    // It may be down, and it may hear of the joining node before that has a number.
    let cases =
        [(27, false, false), (28, true, false), (29, false, true), (30, true, false), (31, false, true)];
    for (seed, is_down, meets_it) in cases {
        let of = format!("seed {seed}");
        let mut cluster = Cluster::new(seed, 3);
        cluster.run_for(Duration::from_secs(5), &of);
        let host_of = |cluster: &Cluster, number: u16| {
            let open = cluster.shared.open.borrow();
            let found = open.iter().find(|(_, control)| control.group().number() == number);
            *found.expect("an open node").0
        };
        // A node in a rack of its own votes in the place of the third of the others.
        let (first, away) = (host_of(&cluster, 1), host_of(&cluster, 3));
        let (at, id) = (usize::from(away) - 1, cluster.ids[usize::from(away) - 1]);
        cluster.shared.racks.borrow_mut().insert(4, "another".to_owned());
        cluster.add("c", DiskFaults::default());
        let others: Vec<NodeId> = cluster.ids.iter().copied().filter(|other| *other != id).collect();
        let parted = &others[..if meets_it { 2 } else { 3 }];
        parted.iter().for_each(|other| cluster.world.part(id, *other));
        if is_down {
            cluster.crash(at);
        }
        cluster.run_for(Duration::from_secs(10), &of);
        let group_of = |cluster: &Cluster, host: u8| cluster.shared.open.borrow()[&host].group().clone();
        assert_eq!(group_of(&cluster, first).members().voters, [1, 2, 4], "{of}");
        cluster.shared.leads_next.set(Some(4));
        cluster.run_for(Duration::from_secs(5), &of);
        cluster.shared.leads_next.set(None);
        let leader = group_of(&cluster, 4);
        let term = leader.term();
        assert_eq!(leader.status().role, Role::Leader, "{of}");
        others.iter().for_each(|other| cluster.world.heal(id, *other));
        if is_down {
            cluster.world.restart(id);
        }
        cluster.run_for(Duration::from_secs(15), &of);
        cluster.shared.quiet.set(true);
        cluster.run_for(Duration::from_secs(5), &of);
        let log = || cluster.world.log().join("\n");
        assert_eq!(
            (leader.status().role, leader.term()),
            (Role::Leader, term),
            "{of}: another leads\n{}",
            log()
        );
        assert_eq!(group_of(&cluster, away).applied(), leader.applied(), "{of}: it is behind\n{}", log());
        cluster.settle(&of);
    }
}
