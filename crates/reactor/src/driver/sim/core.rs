//! What all simulated shards share: virtual time, chance, the order of coming events, and the trace.
//!
//! Invariant: nothing here depends on anything but the seed and the calls made, in their order.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::rc::Rc;
use std::task::Waker;

use super::disk::Disk;
use super::net::Net;
use crate::driver::ambient::Entropy;
use crate::driver::{Completion, Op, OpId, Output};
use crate::sched::Group;

/// Wall clock at virtual time zero: 2026-01-01T00:00:00Z.
const WALL_BASE_US: i64 = 1_767_225_600_000_000;
/// Log lines kept for whoever looks into a failure.
const LOG_LINES_MAX: usize = 10_000;

/// Where a shard's operations stand: with the world, or done and waiting to be collected.
pub(super) struct Port {
    pub(super) node: usize,
    pub(super) shard: usize,
    pub(super) flights: RefCell<Vec<Option<(OpId, Op, Group)>>>,
    pub(super) ready: RefCell<VecDeque<Completion>>,
    /// Who waited for bytes that have come, or for a connection that is gone.
    pub(super) woken: RefCell<Vec<Waker>>,
    /// The node has crashed: nothing this shard still does has any effect.
    pub(super) dead: Cell<bool>,
}

impl Port {
    pub(super) fn keep(&self, id: OpId, op: Op, group: Group) {
        let mut flights = self.flights.borrow_mut();
        if flights.len() <= id.slot() {
            flights.resize_with(id.slot() + 1, || None);
        }
        flights[id.slot()] = Some((id, op, group));
    }

    /// Whether there is something for the shard to collect.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.borrow().is_empty() || !self.woken.borrow().is_empty()
    }

    pub(super) fn take(&self, id: OpId) -> Option<(Op, Group)> {
        let mut flights = self.flights.borrow_mut();
        let entry = flights.get_mut(id.slot())?;
        if entry.as_ref().is_some_and(|(held, ..)| *held == id) {
            entry.take().map(|(_, op, group)| (op, group))
        } else {
            None
        }
    }
}

/// Something that will happen.
pub(super) enum Event {
    /// A disk request is served; a sync covers the changes below `mark`.
    Disk { port: Rc<Port>, id: OpId, mark: u64 },
    /// `count` bytes arrive at a socket.
    Arrive { socket: i32, count: usize },
    /// The peer's orderly end arrives.
    Finish { socket: i32 },
    /// The connection breaks.
    Reset { socket: i32 },
    /// A connection request arrives.
    Connect { port: Rc<Port>, id: OpId },
    /// A connection request has waited long enough.
    ConnectTimeout { port: Rc<Port>, id: OpId },
}

struct Scheduled {
    at: u64,
    sequence: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// How wrong a node's wall clock is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Clock {
    skew_us: i64,
    /// Microseconds that it gains in each second since `since_ns`.
    drift_us_per_s: i64,
    since_ns: u64,
}

impl Clock {
    fn wrong_us(&self, now_ns: u64) -> i64 {
        let passed_us = (now_ns.saturating_sub(self.since_ns) / 1000) as i128;
        self.skew_us + (passed_us * i128::from(self.drift_us_per_s) / 1_000_000) as i64
    }

    pub(super) fn step(&mut self, by_us: i64) {
        self.skew_us += by_us;
    }

    /// Drifts as told from now on; what was gained stays.
    pub(super) fn drift(&mut self, us_per_s: i64, now_ns: u64) {
        *self = Self { skew_us: self.wrong_us(now_ns), drift_us_per_s: us_per_s, since_ns: now_ns };
    }
}

pub(super) struct Core {
    pub(super) now_ns: Cell<u64>,
    sequence: Cell<u64>,
    entropy: RefCell<Entropy>,
    trace: Cell<u64>,
    trace_content: bool,
    events: RefCell<BinaryHeap<Reverse<Scheduled>>>,
    pub(super) disks: RefCell<Vec<Disk>>,
    pub(super) net: RefCell<Net>,
    /// Each node's wall clock.
    pub(super) clocks: RefCell<Vec<Clock>>,
    pub(super) log: RefCell<VecDeque<String>>,
}

impl Core {
    pub(super) fn new(seed: u64, trace_content: bool, net: Net) -> Rc<Self> {
        Rc::new(Self {
            now_ns: Cell::new(0),
            sequence: Cell::new(0),
            entropy: RefCell::new(Entropy::from_seed(seed)),
            trace: Cell::new(0xcbf2_9ce4_8422_2325),
            trace_content,
            events: RefCell::new(BinaryHeap::new()),
            disks: RefCell::new(Vec::new()),
            net: RefCell::new(net),
            clocks: RefCell::new(Vec::new()),
            log: RefCell::new(VecDeque::new()),
        })
    }

    pub(super) fn random(&self) -> u64 {
        self.entropy.borrow_mut().next()
    }

    /// A number below `limit`; zero when that is zero.
    pub(super) fn below(&self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { ((u128::from(self.random()) * u128::from(limit)) >> 64) as u64 }
    }

    /// A number between `low` and `high`, both included.
    pub(super) fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True with `probability`.
    pub(super) fn chance(&self, probability: f64) -> bool {
        probability > 0.0 && ((self.random() >> 11) as f64 / (1u64 << 53) as f64) < probability
    }

    pub(super) fn wall_us(&self, node: usize) -> i64 {
        let now_ns = self.now_ns.get();
        let wrong = self.clocks.borrow().get(node).map_or(0, |clock| clock.wrong_us(now_ns));
        WALL_BASE_US + (now_ns / 1000) as i64 + wrong
    }

    pub(super) fn schedule(&self, delay_ns: u64, event: Event) {
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        let at = self.now_ns.get() + delay_ns;
        self.events.borrow_mut().push(Reverse(Scheduled { at, sequence, event }));
    }

    /// When the next event comes.
    pub(super) fn next_event_ns(&self) -> Option<u64> {
        self.events.borrow().peek().map(|Reverse(next)| next.at)
    }

    /// Takes an event whose time has come.
    pub(super) fn due(&self) -> Option<Event> {
        let mut events = self.events.borrow_mut();
        if events.peek()?.0.at > self.now_ns.get() {
            return None;
        }
        events.pop().map(|Reverse(next)| next.event)
    }

    /// Mixes numbers into the trace, with the time.
    pub(super) fn note(&self, what: &str, numbers: [u64; 3]) {
        let mut hash = mix_bytes(self.trace.get(), what.as_bytes());
        for number in [self.now_ns.get(), numbers[0], numbers[1], numbers[2]] {
            hash = mix(hash, number);
        }
        self.trace.set(hash);
    }

    /// Mixes bytes into the trace, unless it is kept small.
    pub(super) fn note_content(&self, bytes: &[u8]) {
        if self.trace_content {
            self.trace.set(mix_bytes(self.trace.get(), bytes));
        }
    }

    pub(super) fn trace_hash(&self) -> u64 {
        self.trace.get()
    }

    /// Ends an operation of `port`.
    pub(super) fn complete(&self, port: &Port, id: OpId, result: io::Result<Output>) {
        if let Some((op, group)) = port.take(id) {
            let outcome = match &result {
                Ok(Output::Number(number)) => *number,
                Ok(_) => 0,
                Err(error) => u64::MAX - error.raw_os_error().unwrap_or(0) as u64,
            };
            let place = (port.node as u64) << 32 | port.shard as u64;
            self.note("done", [place, id.slot() as u64 | u64::from(group.0) << 32, outcome]);
            port.ready.borrow_mut().push_back(Completion { id, op, result });
        }
    }

    pub(super) fn log_line(&self, node: usize, line: &str) {
        self.trace.set(mix_bytes(self.trace.get(), line.as_bytes()));
        let mut log = self.log.borrow_mut();
        if log.len() >= LOG_LINES_MAX {
            log.pop_front();
        }
        log.push_back(format!("node {node}: {line}"));
    }
}

fn mix(hash: u64, number: u64) -> u64 {
    let mixed = (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

fn mix_bytes(mut hash: u64, bytes: &[u8]) -> u64 {
    for piece in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..piece.len()].copy_from_slice(piece);
        hash = mix(hash, u64::from_le_bytes(word));
    }
    mix(hash, bytes.len() as u64)
}
