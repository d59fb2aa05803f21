//! A whole cluster under a seed: nodes that crash, stop, pause and lose each other while clients use all of
//! them.
//!
//! Each node is a [`server::inproc::Node`] with its storage, group 0, network, liveness, replicas and
//! query engines; clients send statements to the engines of every shard. `nemesis` does the harm, `run`
//! drives the world: a cluster is founded, worked on under faults, healed, and looked at from every node
//! (`check`). The seed chooses among kinds of work (`workloads`), each with a model that says what answers
//! may be: `elements` (nothing acknowledged is missing), `cells` (reads never go back), `tables` (changes
//! of the schema are known), `registers` (conditional writes have one order), `batches` (all or nothing),
//! `counters` (all count once), `passing` (what was truncated is gone), `fading` (what expired is). State
//! in [`Shared`] outlives the nodes.

mod batches;
mod cells;
mod check;
mod client;
mod counters;
mod elements;
mod fading;
mod history;
mod nemesis;
mod node;
mod passing;
mod registers;
mod requests;
mod run;
mod schema;
mod sets;
mod tables;
mod workloads;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use cluster::ControlPlane;

pub use run::run;

use batches::Batches;
use cells::Cells;
use counters::Counters;
use elements::Elements;
use fading::Fading;
use passing::Passing;
use registers::Contended;
use tables::Tables;
use workloads::Workload;

/// Copies of each partition.
const COPIES: usize = 3;
/// Most shards of a node.
const SHARDS_MAX: u64 = 2;
/// Partitions of the table of elements.
const SETS: u32 = 6;
/// Partitions and rows of the table of cells: few, so that clients meet.
const KEYS: u32 = 3;
const ROWS: u32 = 6;

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// No answer, or one that leaves open whether it happened or still will.
    Doubt,
    /// It was acknowledged.
    Done,
    /// It was refused: it never happens.
    Refused,
}

/// The part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    /// The first node makes the tables.
    #[default]
    Prepare,
    /// Clients work.
    Work,
    /// Nobody does anything.
    Quiet,
    /// A node looks at everything; others wait.
    Check(check::Step),
}

/// State that outlives the nodes.
#[derive(Default)]
struct Shared {
    /// Whether the commit log runs in batch mode; a crash then loses what was not synced.
    batch: bool,
    /// Lines of notes that are kept for a failure.
    lines: usize,
    /// Addresses of the nodes that seeds are configured with.
    seeds: RefCell<Vec<IpAddr>>,
    racks: u64,
    /// The work of clients.
    workloads: Vec<Workload>,
    phase: Cell<Phase>,
    /// The last check that passed.
    checked: Cell<Option<check::Step>>,
    /// Operations that clients still begin.
    left: Cell<u64>,
    /// Operations under way.
    busy: Cell<u64>,
    /// Virtual time, as of the last look at the world.
    now: Cell<Duration>,
    /// Since when nothing has been wrong; `None` while something is.
    calm_since: Cell<Option<Duration>>,
    /// Nodes whose disks fail, and whether any has failed so far.
    bad: RefCell<BTreeSet<usize>>,
    was_bad: Cell<bool>,
    /// For how long each node was paused so far, all pauses together.
    paused: RefCell<BTreeMap<usize, Duration>>,
    /// Control planes of the nodes that are open.
    open: RefCell<BTreeMap<usize, Rc<ControlPlane>>>,
    /// Starts of each node.
    lives: RefCell<BTreeMap<usize, u64>>,
    elements: RefCell<Elements>,
    cells: RefCell<Cells>,
    tables: RefCell<Tables>,
    registers: RefCell<Contended>,
    batches: Batches,
    counters: RefCell<Counters>,
    passing: RefCell<Passing>,
    fading: RefCell<Fading>,
    /// How many steps clocks have made.
    clock_steps: Cell<u64>,
    /// How far a clock has been from the right time, at most.
    clocks_wrong_us: Cell<i64>,
    /// All rows as the first check at ALL showed them.
    settled: RefCell<Option<check::Everything>>,
    /// Digests of the copies that were looked at first.
    digests: RefCell<check::Digests>,
    counts: RefCell<BTreeMap<&'static str, u64>>,
    notes: RefCell<VecDeque<String>>,
    failure: RefCell<Option<String>>,
}

impl Shared {
    /// Whether clients do a kind of work.
    fn does(&self, workload: Workload) -> bool {
        self.workloads.contains(&workload)
    }

    /// Ends the run as failed, unless it has failed already.
    fn fail(&self, what: String) {
        self.note(|| format!("FAILED: {what}"));
        self.failure.borrow_mut().get_or_insert(what);
    }

    /// Keeps a line for whoever looks into a failure.
    fn note(&self, line: impl FnOnce() -> String) {
        let mut notes = self.notes.borrow_mut();
        if notes.len() >= self.lines {
            notes.pop_front();
        }
        notes.push_back(format!("{:>9.3} {}", self.now.get().as_secs_f64(), line()));
    }

    /// Counts what happened, for those who ask whether a run says anything.
    fn count(&self, what: &'static str) {
        *self.counts.borrow_mut().entry(what).or_default() += 1;
    }
}

/// A random number below `limit`, drawn by a node.
fn below(limit: u64) -> u64 {
    reactor::random_u64() % limit
}
