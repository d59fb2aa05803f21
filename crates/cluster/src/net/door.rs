//! What shard 0 knows for all shards: this node's first message, whom it talks to, and where others are.
//!
//! Every connection of the node passes here when it is opened or accepted, and again when it ends: the
//! processes that are alive are those with an open connection.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use reactor::{Event, Instant};
use wire::node::hello::{Class, Heard, Hello, Uuid};

use super::book::Book;
use super::members::Members;
use super::provisional::{Claim, Place, Provisional};
use crate::NodeNumber;
use crate::handshake::{Agreement, Facts, LiveBoot, Refusal, judge};

/// Addresses that a first message passes on: with them it stays far below its limit.
const HEARD_IN_HELLO: usize = 16;

/// A process of a node: two at a time of one host id are two copies of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) host_id: Uuid,
    pub(super) boot: LiveBoot,
}

impl Process {
    /// The one that a first message is from.
    pub(super) fn of(hello: &Hello) -> Self {
        let boot = LiveBoot { generation: hello.generation, boot: hello.boot };
        Self { host_id: hello.host_id, boot }
    }
}

/// A process of another node, and how many connections there are with it.
#[derive(Debug, Clone, Copy)]
struct Alive {
    boot: LiveBoot,
    connections: usize,
}

/// The end of a connection that is being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) expected: Option<Uuid>,
    pub(super) class: Class,
    pub(super) shard: u16,
    pub(super) to_shard: Option<u16>,
}

/// A process that was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Admitted {
    pub(super) agreement: Agreement,
    /// Whether connections with an earlier process of that node have to be closed.
    pub(super) replaces: bool,
}

/// What shard 0 knows for all shards.
pub(super) struct Door {
    own: RefCell<Hello>,
    members: RefCell<Members>,
    alive: RefCell<BTreeMap<Uuid, Alive>>,
    provisional: RefCell<Provisional>,
    book: RefCell<Book>,
    changed: Event,
    has_changed: Cell<bool>,
    stopped: Cell<bool>,
}

impl Door {
    pub(super) fn new(own: Hello, book: Book) -> Self {
        Self {
            own: RefCell::new(own),
            members: RefCell::default(),
            alive: RefCell::default(),
            provisional: RefCell::default(),
            book: RefCell::new(book),
            changed: Event::new(),
            has_changed: Cell::new(false),
            stopped: Cell::new(false),
        }
    }

    pub(super) fn set_own(&self, own: Hello) {
        self.own.replace(own);
    }

    pub(super) fn own(&self) -> Hello {
        self.own.borrow().clone()
    }

    /// Replaces the members; the numbers of provisional members that turn out to be none.
    pub(super) fn set_members(&self, members: Members) -> Vec<NodeNumber> {
        let hosts: BTreeSet<Uuid> = members.all().map(|member| member.host_id).collect();
        self.book.borrow_mut().keep(&hosts);
        let dropped = self.provisional.borrow_mut().follow(&members);
        self.members.replace(members);
        self.note_change();
        dropped
    }

    /// Gives the node of a connection a place among the provisional members, for a message of group 0 that
    /// came from it.
    pub(super) fn take_provisional(&self, claim: &Claim, now: Instant) -> Place {
        let is_of_cluster = self.own.borrow().cluster_id == Some(claim.cluster_id);
        // Without a connection that counts, nothing would take the place back.
        let is_alive = self.alive.borrow().contains_key(&claim.host_id);
        let is_held = self.provisional(claim.node) == Some(*claim);
        if !is_of_cluster || !is_alive || !is_held && self.is_taken(claim.address) {
            return Place::Refused;
        }
        self.provisional.borrow_mut().take(claim, &self.members.borrow(), now)
    }

    /// The claim of the provisional member of that number.
    pub(super) fn provisional(&self, node: NodeNumber) -> Option<Claim> {
        self.provisional.borrow().get(node).copied()
    }

    /// Whether this node or a member that it has connections with is at an address. A member without any may
    /// have left, and the node that replaces it may have its address.
    fn is_taken(&self, address: SocketAddr) -> bool {
        if self.own.borrow().address.parse() == Ok(address) {
            return true;
        }
        let (members, alive, book) = (self.members.borrow(), self.alive.borrow(), self.book.borrow());
        let is_there = |host_id: &Uuid| {
            let member = members.of(host_id)?;
            Some(book.address(host_id).unwrap_or(member.address) == address)
        };
        alive.keys().any(|host_id| is_there(host_id) == Some(true))
    }

    /// This node's first message for a connection.
    pub(super) fn hello(&self, ends: Ends) -> Hello {
        let Ends { expected, class, shard, to_shard } = ends;
        let own = self.own.borrow().clone();
        let heard = self.book.borrow().newest(HEARD_IN_HELLO);
        Hello { expected, class, shard, to_shard, heard, ..own }
    }

    /// The addresses at which a member, or a provisional one, may be reached, the likeliest first.
    pub(super) fn addresses(&self, node: NodeNumber) -> Vec<SocketAddr> {
        let members = self.members.borrow();
        let Some(member) = members.get(node) else {
            return self.provisional(node).map(|claim| claim.address).into_iter().collect();
        };
        let heard = self.book.borrow().address(&member.host_id);
        let mut addresses: Vec<_> = heard.into_iter().chain([member.address]).collect();
        addresses.dedup();
        addresses
    }

    /// Judges a peer's first message. If it is admitted, its connection counts until [`Door::closed`], and
    /// what it passes on is noted.
    pub(super) fn admit(&self, own: &Hello, theirs: &Hello) -> Result<Admitted, Refusal> {
        let members = self.members.borrow();
        let recorded = members.recorded(&theirs.host_id);
        let live = self.alive.borrow().get(&theirs.host_id).map(|alive| alive.boot);
        let facts = Facts {
            own,
            banned: &members.banned,
            enabled: &members.enabled,
            recorded: recorded.as_ref(),
            live,
        };
        let agreement = judge(&facts, theirs)?;
        drop(members);
        let boot = Process::of(theirs).boot;
        let mut alive = self.alive.borrow_mut();
        let entry = alive.entry(theirs.host_id).or_insert(Alive { boot, connections: 0 });
        let replaces = entry.boot != boot;
        if replaces {
            *entry = Alive { boot, connections: 0 };
        }
        entry.connections += 1;
        drop(alive);
        if let Ok(address) = theirs.address.parse() {
            self.hear(&theirs.host_id, address, theirs.generation);
        }
        self.hear_all(&theirs.heard);
        Ok(Admitted { agreement, replaces })
    }

    /// A connection with a process has ended; the number of a provisional member that loses its place by it.
    pub(super) fn closed(&self, Process { host_id, boot }: Process) -> Option<NodeNumber> {
        let mut alive = self.alive.borrow_mut();
        let entry = alive.get_mut(&host_id).filter(|entry| entry.boot == boot)?;
        assert!(entry.connections > 0, "a connection ended that was not counted");
        entry.connections -= 1;
        if entry.connections > 0 {
            return None;
        }
        alive.remove(&host_id);
        self.provisional.borrow_mut().leave(&host_id)
    }

    /// Notes addresses that another node passed on.
    pub(super) fn hear_all(&self, heard: &[Heard]) {
        for Heard { host_id, address, generation } in heard {
            if let Ok(address) = address.parse() {
                self.hear(host_id, address, *generation);
            }
        }
    }

    fn hear(&self, host_id: &Uuid, address: SocketAddr, generation: u64) {
        let is_own = *host_id == self.own.borrow().host_id;
        let members = self.members.borrow();
        if is_own || !(members.is_empty() || members.of(host_id).is_some()) {
            return;
        }
        if self.book.borrow_mut().hear(*host_id, address, generation) {
            self.note_change();
        }
    }

    /// Addresses to pass on.
    pub(super) fn newest(&self, count: usize) -> Vec<Heard> {
        self.book.borrow().newest(count)
    }

    fn note_change(&self) {
        self.has_changed.set(true);
        self.changed.notify_all();
    }

    /// Waits until the book has changed since the last time; false once the network stops.
    pub(super) async fn book_changed(&self) -> bool {
        self.changed.wait_until(|| self.has_changed.get() || self.stopped.get()).await;
        self.has_changed.replace(false) || !self.stopped.get()
    }

    pub(super) fn book_text(&self) -> String {
        self.book.borrow().encode()
    }

    pub(super) fn stop(&self) {
        self.stopped.set(true);
        self.changed.notify_all();
    }
}
