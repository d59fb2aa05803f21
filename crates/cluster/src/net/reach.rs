//! Which connection leads to a shard of a node, and opening it.
//!
//! A statement goes over a connection of the two shards. Where the node has as many as it may, the least used
//! one gives way if it has rested, else the request goes over the home connection (local shard i to remote
//! shard i modulo their number), and the receiver passes it on to its shard.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Cold, Deadline, Group, cold, mesh};
use wire::node::frame::{Verb, WorkGroup};
use wire::node::hello::{Class, Hello, Uuid};

use super::call::{Caller, Question};
use super::dial::{self, Opened};
use super::door::{Door, Ends, Process};
use super::error::{NetError, PeerName};
use super::line::{Line, LineName, Step};
use super::metrics::PeerMetrics;
use super::pipe::{BODY_BYTES_MAX, Ended, FrameReader};
use super::provisional::{Claim, Place};
use super::{Admission, InternodeCompression, Network, peer_label, verbs};
use crate::NodeNumber;
use crate::handshake::Refusal;

/// A connection gives way to another shard's only if it was not used for this long.
const REST_MIN: Duration = Duration::from_secs(10);

impl Network {
    /// The connection for a request, and the shard that it is passed on to at the other end.
    pub(super) async fn reach(
        self: &Rc<Self>,
        (node, shard): (NodeNumber, u16),
        question: &Question,
    ) -> Result<(Rc<Caller>, Option<u16>), NetError> {
        if self.gate.is_closed() {
            return Err(NetError::NotOpen);
        }
        let recorded = match self.members.borrow().get(node) {
            Some(member) => member.shards,
            // Of a provisional member only shard 0 is of interest, which has group 0.
            None if verbs::is_for_provisional(question.verb) && self.host_of(node).is_some() => 1,
            None => return Err(NetError::UnknownNode { node }),
        };
        // The node may have started again with more shards than its last first message said.
        let met = self.shards.borrow().get(&node).copied().filter(|shards| shard < *shards);
        let shards = met.unwrap_or(recorded).max(1);
        if shard >= shards {
            return Err(NetError::UnknownShard { peer: PeerName::Node(node), shard, shards });
        }
        let class = verbs::class_of(question.verb, question.group);
        let (line, for_shard) = match class {
            Class::Control if shard == 0 => (self.line(LineName { node, class, shard: 0 }), None),
            Class::Control => (self.line(LineName { node, class, shard: 0 }), Some(shard)),
            Class::Statement => self.statement_line(node, shard, shards),
            Class::Bulk => self.home_line(LineName { node, class, shard }, shards),
        };
        Ok((self.open_caller(&line, question.deadline).await?, for_shard))
    }

    fn line(&self, name: LineName) -> Rc<Line> {
        Rc::clone(self.lines.borrow_mut().entry(name).or_insert_with(|| Line::new(name)))
    }

    fn home_line(&self, name: LineName, shards: u16) -> (Rc<Line>, Option<u16>) {
        let home = (reactor::shard_id() % usize::from(shards)) as u16;
        (self.line(LineName { shard: home, ..name }), (home != name.shard).then_some(name.shard))
    }

    fn statement_line(&self, node: NodeNumber, shard: u16, shards: u16) -> (Rc<Line>, Option<u16>) {
        let name = LineName { node, class: Class::Statement, shard };
        let most = (self.config.statement_connections_max / reactor::shard_count()).max(1);
        let lines = self.lines.borrow();
        if lines.get(&name).is_some_and(|line| line.is_in_use()) {
            return (Rc::clone(&lines[&name]), None);
        }
        let in_use = || lines.values().filter(|line| line.name.class == Class::Statement && line.is_in_use());
        if in_use().count() < most {
            drop(lines);
            return (self.line(name), None);
        }
        let now = reactor::now();
        let rested = in_use()
            .filter_map(|line| line.caller())
            .filter_map(|caller| Some((caller.idle_since()?, caller)))
            .filter(|(since, _)| now.since(*since) >= REST_MIN)
            .min_by_key(|(since, _)| *since);
        drop(lines);
        match rested {
            Some((_, caller)) => {
                caller.end(Ended::Here("another shard's connection takes its place"));
                (self.line(name), None)
            }
            None => self.home_line(name, shards),
        }
    }

    /// The line's connection, opened if need be.
    async fn open_caller(
        self: &Rc<Self>,
        line: &Rc<Line>,
        deadline: Deadline,
    ) -> Result<Rc<Caller>, NetError> {
        // Each round waits for a connection that is being opened, or ends.
        loop {
            match line.step() {
                Step::Use(caller) => return Ok(caller),
                Step::Fail(error) => return Err(error),
                Step::Wait => line.change(deadline).await?,
                Step::Dial => {
                    let dialed = Rc::clone(line);
                    let group = verbs::carrier(line.name.class);
                    let begun = self.spawn_held(group, move |network| async move {
                        network.keep_line(&dialed).await;
                    });
                    if !begun {
                        line.failed(NetError::NotOpen);
                    }
                }
            }
        }
    }

    /// Opens a line's connection and moves its bytes until it ends.
    async fn keep_line(self: Rc<Self>, line: &Rc<Line>) {
        let name = line.name;
        let (caller, reader) = match self.dial(name, line.failures()).await {
            Ok(dialed) => dialed,
            Err(error) => {
                if line.failures() == 0 {
                    reactor::info!("{error}"; node = name.node, shard = name.shard);
                }
                line.failed(error);
                return;
            }
        };
        if self.gate.is_closed() {
            caller.end(Ended::Here("this node's transport stops"));
        } else if !self.is_kept(line, &caller) {
            caller.end(Ended::Here("the node is no member any more"));
        }
        let metrics = self.metrics(Some(name.node));
        metrics.connections.add(1);
        line.opened(Rc::clone(&caller));
        Rc::clone(&caller).run(reader).await;
        metrics.connections.add(-1);
        let why = caller.why_ended();
        line.broke(&caller, why);
        self.departed(caller.process).await;
    }

    /// Whether a line is still this shard's, and a connection of it is with the node that now has its number.
    fn is_kept(&self, line: &Rc<Line>, caller: &Caller) -> bool {
        let name = line.name;
        self.lines.borrow().get(&name).is_some_and(|kept| Rc::ptr_eq(kept, line))
            && self.host_of(name.node) == Some(caller.process.host_id)
    }

    /// The host id of a member, or of a provisional one.
    pub(super) fn host_of(&self, node: NodeNumber) -> Option<Uuid> {
        let member = self.members.borrow().get(node).map(|member| member.host_id);
        member.or_else(|| Some(self.door.as_ref()?.provisional(node)?.host_id))
    }

    /// Whether a node that is no member may hand over a message of group 0, on shard 0.
    pub(super) fn takes_provisionally(&self, claim: &Claim) -> bool {
        let Some(door) = &self.door else { return false };
        match door.take_provisional(claim, reactor::now()) {
            Place::Refused => false,
            Place::Held => true,
            Place::Given { displaced } => {
                if let Some(silent) = displaced {
                    self.forget_provisional(silent);
                }
                let Claim { node, host_id, address, .. } = claim;
                // A peer chooses how often this happens.
                reactor::debug!("a node that this one's state does not name yet takes part in the control plane";
                    node = node, host_id = crate::handshake::id(host_id), address = address);
                true
            }
        }
    }

    /// Lets go of what leads to a provisional member that has lost its place; on shard 0.
    pub(super) fn forget_provisional(&self, node: NodeNumber) {
        let gone: Vec<Rc<Line>> = self
            .lines
            .borrow_mut()
            .extract_if(.., |name, _| name.node == node)
            .map(|(_, line)| line)
            .collect();
        gone.iter().for_each(|line| line.end(Ended::Here("the node is no provisional member any more")));
        self.shards.borrow_mut().remove(&node);
        if self.peers.borrow_mut().remove(&Some(node)).is_some() {
            PeerMetrics::forget(&peer_label(Some(node)));
        }
    }

    /// Opens a connection to a shard of a member; the one of its addresses that the number of failures says.
    #[inline(never)]
    fn dial<'a>(
        self: &'a Rc<Self>,
        name: LineName,
        failures: usize,
    ) -> Cold<'a, Result<(Rc<Caller>, FrameReader), NetError>> {
        cold(async move {
            let LineName { node, class, shard } = name;
            let peer = PeerName::Node(node);
            let host_id = self.host_of(node).ok_or(NetError::UnknownNode { node })?;
            let own_shard = reactor::shard_id() as u16;
            let ends = Ends { expected: Some(host_id), class, shard: own_shard, to_shard: Some(shard) };
            let (addresses, own) = on_door(move |door| (door.addresses(node), door.hello(ends))).await?;
            let Some(address) = addresses.get(failures % addresses.len().max(1)).copied() else {
                return Err(NetError::UnknownNode { node });
            };
            let opened = self.open(peer, address, own).await?;
            let (caller, reader, theirs) = opened;
            self.shards.borrow_mut().insert(node, theirs.shards);
            if theirs.shard != shard {
                self.departed(caller.process).await;
                return Err(NetError::UnknownShard { peer, shard, shards: theirs.shards });
            }
            Ok((caller, reader))
        })
    }

    /// Opens a connection and has the other's first message judged.
    async fn open(
        self: &Rc<Self>,
        peer: PeerName,
        address: SocketAddr,
        own: Hello,
    ) -> Result<(Rc<Caller>, FrameReader, Hello), NetError> {
        let from = self.config.listen.map(|listen| listen.ip());
        let Opened { stream, theirs, reader } = dial::open(peer, from, address, &own).await?;
        drop(reader);
        let class = own.class;
        let first = theirs.clone();
        let admitted = on_door(move |door| {
            let network = reactor::local::<Self>().ok_or(NetError::NotOpen)?;
            Ok::<_, NetError>(network.admit_at(&door, &own, &first))
        });
        let admission =
            admitted.await??.map_err(|refusal| NetError::Refused { peer, refusal: Box::new(refusal) })?;
        let metrics = self.metrics(admission.node);
        let reader = FrameReader::new(Rc::clone(&stream), BODY_BYTES_MAX, Some(Rc::clone(&metrics)));
        let facts = (peer, class, Process::of(&theirs));
        Ok((Caller::new(facts, stream, self.encoder(admission), metrics), reader, theirs))
    }

    /// On shard 0: judges a first message; an earlier process of that node loses its connections.
    pub(super) fn admit_at(
        self: &Rc<Self>,
        door: &Door,
        own: &Hello,
        theirs: &Hello,
    ) -> Result<Admission, Refusal> {
        let admitted = door.admit(own, theirs)?;
        if admitted.replaces {
            let process = Process::of(theirs);
            self.spawn_held(Group::CONTROL, move |_| async move {
                everywhere(move |network| network.end_earlier(process)).await;
            });
        }
        let is_compressed = match self.config.compression {
            InternodeCompression::None => false,
            InternodeCompression::Dc => own.data_center != theirs.data_center,
            InternodeCompression::All => true,
        };
        let agreement = admitted.agreement;
        Ok(Admission { version: agreement.version, node: agreement.node, is_compressed })
    }

    /// Ends this shard's connections with earlier processes of a node.
    fn end_earlier(&self, process: Process) {
        let is_earlier = |other: Process| {
            other.host_id == process.host_id && other.boot.generation < process.boot.generation
        };
        let why = Ended::Here("the node has started again");
        for caller in self.lines.borrow().values().filter_map(|line| line.caller()) {
            if is_earlier(caller.process) {
                caller.end(why.clone());
            }
        }
        for incoming in self.incoming.borrow().values().filter(|incoming| is_earlier(incoming.process)) {
            incoming.end(why.clone());
        }
    }

    /// Tells shard 0 that a connection has ended.
    pub(super) async fn departed(&self, process: Process) {
        // A shard 0 that is gone counts no connections any more.
        let _told = on_door(move |door| {
            if let Some(node) = door.closed(process)
                && let Some(network) = reactor::local::<Self>()
            {
                network.forget_provisional(node);
            }
        })
        .await;
    }

    /// Acts on what liveness says of a node, on all shards: connections with one that is down end, and lines
    /// to one that is back open at once. On shard 0.
    pub async fn set_reachable(&self, node: NodeNumber, is_reachable: bool) {
        everywhere(move |network| network.set_reachable_here(node, is_reachable)).await;
    }

    /// Has the next call over the control connection of a node open it even in a pause.
    pub fn retry_control(&self, node: NodeNumber) {
        if let Some(line) = self.lines.borrow().get(&LineName { node, class: Class::Control, shard: 0 }) {
            line.open_now();
        }
    }

    fn set_reachable_here(&self, node: NodeNumber, is_reachable: bool) {
        let why = Ended::Here("the node does not answer any more");
        for line in self.lines.borrow().values().filter(|line| line.name.node == node) {
            if is_reachable {
                line.retry_now();
            } else {
                line.end(why.clone());
            }
        }
        if !is_reachable {
            let incoming = self.incoming.borrow();
            incoming.values().filter(|incoming| incoming.node() == Some(node)).for_each(|incoming| {
                incoming.end(why.clone());
            });
        }
    }

    /// Asks a node of which only the address is known, over a connection of its own, and waits for the
    /// answer. With `expected`, only the node of that host id is asked.
    ///
    /// # Errors
    /// As [`Network::call`].
    pub async fn ask(
        self: &Rc<Self>,
        address: SocketAddr,
        expected: Option<Uuid>,
        verb: Verb,
        deadline: Deadline,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, NetError> {
        let peer = PeerName::Address(address);
        let class = verbs::class_of(verb, WorkGroup::Control);
        let own_shard = reactor::shard_id() as u16;
        let ends = Ends { expected, class, shard: own_shard, to_shard: Some(0) };
        let hold = self.gate.enter().map_err(|_| NetError::NotOpen)?;
        let asked = async {
            let own = on_door(move |door| door.hello(ends)).await?;
            let (caller, reader, _) = self.open(peer, address, own).await?;
            let process = caller.process;
            let moving = {
                let (caller, network, hold) = (Rc::clone(&caller), Rc::clone(self), hold.clone());
                reactor::spawn(Group::CONTROL, async move {
                    caller.run(reader).await;
                    network.departed(process).await;
                    drop(hold);
                })
            };
            let _ends = EndOnDrop(Rc::clone(&caller));
            moving.detach();
            let question = Question { verb, group: WorkGroup::Control, for_shard: None, deadline, body };
            caller.call(question).await?.whole().await
        };
        let answered = reactor::timeout(deadline, asked).await;
        answered.unwrap_or(Err(NetError::TimedOut { peer, sent: true }))
    }
}

/// Ends a connection that was opened for one question, also if the asker gives up.
struct EndOnDrop(Rc<Caller>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(Ended::Here("the question was answered"));
    }
}

/// Runs `work` with shard 0's door.
async fn on_door<R, F>(work: F) -> Result<R, NetError>
where
    F: FnOnce(Rc<Door>) -> R + Send + 'static,
    R: Send + 'static,
{
    let find = || reactor::local::<Network>().and_then(|network| network.door.clone());
    if reactor::shard_id() == 0 {
        return find().map(work).ok_or(NetError::NotOpen);
    }
    let called = mesh::call(0, Group::CONTROL, move || async move { find().map(work) });
    called.await.ok().flatten().ok_or(NetError::NotOpen)
}

/// Runs `work` with each shard's network.
async fn everywhere<F>(work: F)
where
    F: Fn(&Network) + Clone + Send + 'static,
{
    for shard in 0..reactor::shard_count() {
        let work = work.clone();
        let called = mesh::call(shard, Group::CONTROL, move || async move {
            if let Some(network) = reactor::local::<Network>() {
                work(&network);
            }
        });
        // A shard that has stopped has no connections.
        let _done = called.await;
    }
}
