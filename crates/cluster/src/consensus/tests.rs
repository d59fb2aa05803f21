//! Three instances in one process, with lost, late and doubled messages, partitions and restarts from what
//! was synced: one history everywhere, nothing that was committed is lost, a leader comes back, and a run
//! follows from its seed.

use std::collections::BTreeMap;

use super::{
    Consensus, Entry, HardState, MemberChange, Members, Message, MessageKind, Payload, RaftConsensus, Ready,
    Recovered, Role, Snapshot,
};
use crate::NodeNumber;

const NODES: [NodeNumber; 3] = [1, 2, 3];

/// A generator with a seed, SplitMix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }
}

/// A member: the instance, and what its disk has.
struct Member {
    number: NodeNumber,
    consensus: Option<RaftConsensus>,
    disk: Recovered,
    /// Commands that it applied, by index.
    applied: BTreeMap<u64, Vec<u8>>,
    applied_to: u64,
}

/// The bytes of a state that is the list of all commands.
fn state_of(applied: &BTreeMap<u64, Vec<u8>>) -> Vec<u8> {
    minicbor::to_vec(applied).expect("writing to memory does not fail")
}

impl Member {
    fn new(number: NodeNumber) -> Self {
        let members = Members { voters: NODES.to_vec(), ..Members::default() };
        let snapshot = Snapshot { index: 1, term: 1, members, state: state_of(&BTreeMap::new()) };
        let hard_state = HardState { term: 1, vote: None, commit: 1 };
        let disk = Recovered { snapshot, hard_state, entries: Vec::new() };
        Self { number, consensus: None, disk, applied: BTreeMap::new(), applied_to: 1 }
    }

    fn start(&mut self, chance: &mut Chance) {
        self.applied = minicbor::decode(&self.disk.snapshot.state).expect("an own snapshot");
        self.applied_to = self.disk.snapshot.index;
        self.consensus = Some(RaftConsensus::new(self.number, &self.disk, chance.next()));
    }

    fn consensus(&mut self) -> Option<&mut RaftConsensus> {
        self.consensus.as_mut()
    }

    /// Does all work there is; returns messages to send.
    fn work(&mut self) -> Vec<Message> {
        let mut out = Vec::new();
        while let Some(ready) = self.consensus.as_mut().and_then(Consensus::ready) {
            out.extend(self.carry_out(ready));
        }
        out
    }

    fn carry_out(&mut self, ready: Ready) -> Vec<Message> {
        let mut out = ready.messages_before;
        if let Some(snapshot) = ready.install {
            self.applied = minicbor::decode(&snapshot.state).expect("a snapshot of another member");
            self.applied_to = snapshot.index;
            self.disk.entries.clear();
            self.disk.snapshot = snapshot;
        }
        if let Some(state) = ready.hard_state {
            let before = self.disk.hard_state;
            assert!(before.term <= state.term && before.commit <= state.commit, "{before:?} {state:?}");
            self.disk.hard_state = state;
        }
        for entry in ready.entries {
            let first = self.disk.snapshot.index + 1;
            assert!(entry.index >= first && entry.index <= first + self.disk.entries.len() as u64);
            self.disk.entries.truncate((entry.index - first) as usize);
            self.disk.entries.push(entry);
        }
        let consensus = self.consensus.as_mut().expect("an instance that works");
        consensus.synced(ready.number);
        out.extend(ready.messages_after);
        for entry in ready.committed {
            assert_eq!(entry.index, self.applied_to + 1, "applied in order");
            self.applied_to = entry.index;
            if let Payload::Command(bytes) = entry.payload {
                self.applied.insert(entry.index, bytes);
            }
        }
        out
    }

    /// Puts a snapshot in the place of what was applied.
    fn compact(&mut self) {
        let Some(consensus) = self.consensus.as_mut() else { return };
        let index = self.applied_to;
        if index <= self.disk.snapshot.index {
            return;
        }
        let term = consensus.term_at(index).expect("the term of an entry that was applied");
        let snapshot = Snapshot { index, term, members: consensus.members(), state: state_of(&self.applied) };
        self.disk.entries = consensus.entries_after(index);
        self.disk.hard_state = consensus.hard_state();
        consensus.compacted(snapshot.clone());
        self.disk.snapshot = snapshot;
    }

    fn leads(&self) -> bool {
        self.consensus.as_ref().is_some_and(|consensus| consensus.status().role == Role::Leader)
    }
}

/// The members, the messages on their way, and everything that was ever applied.
struct Cluster {
    chance: Chance,
    members: Vec<Member>,
    on_the_way: Vec<Message>,
    /// Pairs that cannot reach each other.
    parted: Vec<(NodeNumber, NodeNumber)>,
    history: BTreeMap<u64, Vec<u8>>,
    proposed: u64,
    trace: u64,
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let mut members: Vec<Member> = NODES.into_iter().map(Member::new).collect();
        members.iter_mut().for_each(|member| member.start(&mut chance));
        Self {
            chance,
            members,
            on_the_way: Vec::new(),
            parted: Vec::new(),
            history: BTreeMap::new(),
            proposed: 0,
            trace: 0,
        }
    }

    fn is_parted(&self, message: &Message) -> bool {
        let pair = (message.from.min(message.to), message.from.max(message.to));
        self.parted.contains(&pair)
    }

    /// One moment: some messages arrive, time passes for some, work is done, and what was applied is
    /// compared.
    fn turn(&mut self, calm: bool) {
        let messages = std::mem::take(&mut self.on_the_way);
        for message in messages {
            let lost = self.is_parted(&message) || !calm && self.chance.one_in(10);
            let late = !calm && self.chance.one_in(4);
            if late && !lost {
                self.on_the_way.push(message);
                continue;
            }
            let twice = !calm && self.chance.one_in(20);
            if lost {
                self.report(&message, false);
                continue;
            }
            if twice {
                self.on_the_way.push(message.clone());
            }
            self.trace = self.trace.rotate_left(5)
                ^ message.index
                ^ message.term << 20
                ^ u64::from(message.from) << 40;
            let to = usize::from(message.to) - 1;
            let arrived = self.members[to].consensus.is_some();
            self.report(&message, arrived);
            if let Some(consensus) = self.members[to].consensus() {
                consensus.step(message).expect("a message of a correct member");
            }
        }
        for member in &mut self.members {
            if let Some(consensus) = member.consensus.as_mut()
                && (calm || self.chance.one_in(2))
            {
                consensus.tick(self.chance.next());
            }
        }
        self.work();
    }

    /// A transport reports whether a snapshot was delivered; of other messages it may be silent.
    fn report(&mut self, message: &Message, arrived: bool) {
        if message.kind == MessageKind::Snapshot
            && let Some(consensus) = self.members[usize::from(message.from) - 1].consensus()
        {
            consensus.snapshot_sent(message.to, arrived);
        }
    }

    fn work(&mut self) {
        for member in &mut self.members {
            let messages = member.work();
            self.on_the_way.extend(messages);
            for (index, bytes) in &member.applied {
                let known = self.history.entry(*index).or_insert_with(|| bytes.clone());
                assert_eq!(known, bytes, "node {} has another command {index}", member.number);
            }
        }
    }

    fn propose(&mut self) {
        let number = self.proposed + 1;
        for member in self.members.iter_mut().filter(|member| member.leads()) {
            let consensus = member.consensus.as_mut().expect("a leader");
            if consensus.propose(number.to_be_bytes().to_vec()).is_ok() {
                self.proposed = number;
                return;
            }
        }
    }

    fn mischief(&mut self) {
        let node = (self.chance.next() % 3) as usize;
        match self.chance.next() % 40 {
            0 => {
                let other = NODES[(node + 1) % 3];
                let pair = (NODES[node].min(other), NODES[node].max(other));
                self.parted.push(pair);
            }
            1 | 2 => self.parted.clear(),
            3 => self.members[node].consensus = None,
            4 | 5 => {
                for member in self.members.iter_mut().filter(|member| member.consensus.is_none()) {
                    member.start(&mut self.chance);
                }
            }
            6 => self.members[node].compact(),
            7 => {
                let to = NODES[(node + 1) % 3];
                if let Some(consensus) = self.members[node].consensus() {
                    consensus.transfer(to);
                }
            }
            _ => {}
        }
    }

    /// Everything heals; the members agree on one log, with a command that is proposed now.
    fn heal(&mut self, seed: u64) {
        self.parted.clear();
        for member in self.members.iter_mut().filter(|member| member.consensus.is_none()) {
            member.start(&mut self.chance);
        }
        for _ in 0..200 {
            self.turn(true);
        }
        let leaders = self.members.iter().filter(|member| member.leads()).count();
        assert_eq!(leaders, 1, "seed {seed}: leaders once all is calm");
        self.propose();
        for _ in 0..100 {
            self.turn(true);
        }
        let last = self.proposed.to_be_bytes().to_vec();
        for member in &self.members {
            assert_eq!(member.applied, self.history, "seed {seed}: node {}", member.number);
            let found = member.applied.values().filter(|bytes| **bytes == last).count();
            assert_eq!(found, 1, "seed {seed}: the last command at node {}", member.number);
        }
    }
}

fn run(seed: u64) -> (usize, u64) {
    let mut cluster = Cluster::new(seed);
    for _ in 0..600 {
        cluster.mischief();
        if cluster.chance.one_in(3) {
            cluster.propose();
        }
        cluster.turn(false);
    }
    cluster.heal(seed);
    (cluster.history.len(), cluster.trace)
}

#[test]
fn one_history() {
    let mut commands = 0;
    for seed in 0..150 {
        commands += run(seed).0;
    }
    assert!(commands > 3_000, "{commands} commands say little");
}

#[test]
fn a_run_follows_from_its_seed() {
    for seed in [3, 77] {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(3).1, run(4).1);
}

/// A leader with two followers that have its first entries.
fn settled() -> Cluster {
    let mut cluster = Cluster::new(9);
    for _ in 0..200 {
        cluster.turn(true);
    }
    assert_eq!(cluster.members.iter().filter(|member| member.leads()).count(), 1);
    cluster
}

#[test]
fn members_change_by_joint_consensus_and_a_lone_voter_needs_no_ticks() {
    let mut cluster = settled();
    let leader = cluster.members.iter().position(Member::leads).expect("a leader");
    let own = NODES[leader];
    let others: Vec<_> = NODES.into_iter().filter(|node| *node != own).collect();
    let leave: Vec<_> = others.iter().map(|node| MemberChange::Remove(*node)).collect();
    cluster.members[leader].consensus().expect("a leader").change(&leave).expect("a change");
    for _ in 0..60 {
        cluster.turn(true);
    }
    let member = &mut cluster.members[leader];
    assert_eq!(member.consensus().expect("a leader").members(), Members::lone(own));
    // It restarts without a tick, leads, and takes commands.
    member.compact();
    member.start(&mut Chance(1));
    member.work();
    assert!(member.leads());
    let position = member.consensus().expect("a leader").propose(b"alone".to_vec()).expect("a proposal");
    assert!(member.work().is_empty());
    assert_eq!(member.applied.get(&position.index).map(Vec::as_slice), Some(b"alone".as_slice()));
}

/// The fault of the library that its issue 555 tells: a refusal that was overtaken by a confirmation.
#[test]
fn a_late_refusal_does_not_send_a_leader_back() {
    let mut cluster = settled();
    for _ in 0..20 {
        cluster.propose();
        cluster.turn(true);
    }
    for _ in 0..20 {
        cluster.turn(true);
    }
    let leader = cluster.members.iter().position(Member::leads).expect("a leader");
    let follower = NODES[(leader + 1) % 3];
    let consensus = cluster.members[leader].consensus().expect("a leader");
    let status = consensus.status();
    consensus.unreachable(follower);
    let refusal = Message {
        kind: MessageKind::AppendAnswer,
        from: follower,
        to: NODES[leader],
        term: status.term,
        log_term: 1,
        index: status.last - 2,
        entries: Vec::new(),
        commit: 0,
        commit_term: 0,
        snapshot: None,
        request_snapshot: 0,
        reject: true,
        reject_hint: 1,
        context: Vec::new(),
        priority: 0,
    };
    consensus.step(refusal).expect("a message of a correct member");
    cluster.propose();
    cluster.work();
    let resent = cluster
        .on_the_way
        .iter()
        .find(|message| message.kind == MessageKind::Append && message.to == follower);
    let index = resent.expect("the new entry").index;
    assert!(
        index >= status.last - 2,
        "entries behind {index} are sent again, {} were confirmed",
        status.last
    );
}

#[test]
fn messages_that_no_member_sends_are_refused_and_change_nothing() {
    let mut cluster = settled();
    let entry = |index, term| Entry { index, term, payload: Payload::Nothing };
    let good = Message {
        kind: MessageKind::Append,
        from: 2,
        to: 1,
        term: 90,
        log_term: 1,
        index: 1,
        entries: vec![entry(2, 2), entry(3, 2)],
        commit: 1,
        commit_term: 0,
        snapshot: None,
        request_snapshot: 0,
        reject: false,
        reject_hint: 0,
        context: Vec::new(),
        priority: 0,
    };
    type Spoil = fn(&mut Message);
    let bad: [(&str, Spoil); 8] = [
        ("to another", |message| message.to = 3),
        ("of itself", |message| message.from = 1),
        ("without a term", |message| message.term = 0),
        ("with a gap", |message| message.entries[1].index = 4),
        ("with a falling term", |message| message.entries[1].term = 1),
        ("of a later term", |message| message.entries[1].term = 91),
        ("with entries", |message| message.kind = MessageKind::Heartbeat),
        ("without its snapshot", |message| message.kind = MessageKind::Snapshot),
    ];
    let consensus = cluster.members[0].consensus().expect("an instance");
    let before = consensus.status();
    for (what, spoil) in bad {
        let mut message = good.clone();
        spoil(&mut message);
        assert!(consensus.step(message).is_err(), "a message {what}");
        assert_eq!(consensus.status(), before, "a message {what}");
    }
    consensus.step(good).expect("a message of a correct member");
    assert_eq!(consensus.status().term, 90);
}

/// A leader may have joined while this node was away.
#[test]
fn a_leader_that_is_no_member_yet_is_followed_and_answered() {
    let mut cluster = settled();
    let member = &mut cluster.members[0];
    let consensus = member.consensus().expect("an instance");
    let last = consensus.status().last;
    let append = Message {
        kind: MessageKind::Append,
        from: 9,
        to: 1,
        term: 90,
        log_term: consensus.term_at(last).expect("its last entry"),
        index: last,
        entries: vec![Entry { index: last + 1, term: 90, payload: Payload::Nothing }],
        commit: last + 1,
        commit_term: 0,
        snapshot: None,
        request_snapshot: 0,
        reject: false,
        reject_hint: 0,
        context: Vec::new(),
        priority: 0,
    };
    let heartbeat =
        |commit| Message { kind: MessageKind::Heartbeat, entries: Vec::new(), commit, ..append.clone() };
    // The library would stop the process, as it does for a member.
    consensus.step(heartbeat(last + 1)).expect_err("what it commits is not here");
    assert_ne!(consensus.status().leader, Some(9));
    consensus.step(append.clone()).expect("a message of a correct leader");
    let answers = member.work();
    let is_answer = |message: &Message| message.to == 9 && !message.reject && message.index == last + 1;
    assert!(answers.iter().any(is_answer), "{answers:?}");
    let consensus = member.consensus().expect("an instance");
    consensus.step(heartbeat(last + 1)).expect("a message of a correct leader");
    let status = consensus.status();
    assert_eq!((status.leader, status.term, status.committed), (Some(9), 90, last + 1));
}
