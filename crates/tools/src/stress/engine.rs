//! Keeps as many operations in flight as there are threads, paces them, and counts the answers.
//!
//! A thread of the original is a worker here: it has one operation at a time and begins the next when that
//! one is done. All workers share one shard; an answer begins the next operation at once, and the operations
//! begun by several answers are sent together. With a rate, operations begin on a schedule, and latency is
//! also measured from it, so that a server that stalls is charged for the operations that could not begin.
//! Invariant: an operation is counted once, however its tries end.

mod recover;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use reactor::{Event, Group, Instant, now};
use wire::client::{ResponseBody, decode};
use wire::extensions::{TABLETS_ROUTING_V1_PAYLOAD, read_tablet};
use wire::frame::{Direction, Frame};
use wire::values::BytesMap;
use wire::{Opcode, ProtocolError};

pub(super) use recover::Recovery;

use super::cluster::{Cluster, Lanes, Tablets};
use super::distribution::Distribution;
use super::operation::{Job, Operation, Permits, Verdict};
use super::random::JavaRandom;
use super::report::Interval;
use super::seeds::SeedManager;
use super::settings::{Errors, Level};
use crate::client::FRAME_BYTES_MAX;
use crate::client::pipe::Pipe;

/// The server has forgotten a statement (native_protocol_v5.spec §9).
const UNPREPARED: i32 = 0x2500;
/// Messages about failed tries printed in one interval; the rest is counted.
const MESSAGES_MAX: u32 = 1000;

/// The work of one run.
pub(super) struct Plan {
    /// The operations with their shares.
    pub(super) operations: Vec<(Box<dyn Operation>, f64)>,
    /// How many operations of a kind follow each other; `None` if there is one kind.
    pub(super) clustering: Option<Distribution>,
    pub(super) seeds: SeedManager,
    pub(super) permits: Permits,
    pub(super) threads: u32,
    /// Operations that begin in a second; 0 without a limit.
    pub(super) per_second: u32,
    pub(super) is_fixed: bool,
    pub(super) random_seed: i64,
}

/// One thread of the original.
#[derive(Default)]
struct Worker {
    job: Job,
    /// The operation, and how many more of it follow each other.
    operation: usize,
    in_a_row: i64,
    /// When it was scheduled to begin, if there is a schedule.
    intended: Option<Instant>,
    started: Option<Instant>,
    /// The connection and stream of its running try.
    at: Option<(usize, u16)>,
    sent: Option<Instant>,
    tries: u32,
    last_error: Option<String>,
    /// Whether its operation was sent again with a statement that its server had lost.
    is_prepared_again: bool,
}

/// A running run.
struct Run {
    workers: Vec<Worker>,
    operations: Vec<Box<dyn Operation>>,
    /// Sums of shares.
    shares: Vec<f64>,
    clustering: Option<Distribution>,
    seeds: SeedManager,
    permits: Permits,
    random: JavaRandom,
    begin: Instant,
    /// Nanoseconds between beginnings, and how many there have been.
    pace: Option<(u64, u64)>,
    /// Workers that wait for their time.
    waiting: BinaryHeap<Reverse<(Instant, u32)>>,
    /// Workers that wait for room on a connection.
    parked: VecDeque<u32>,
    /// Workers that wait until a connection's server has the statements again.
    unprepared: BTreeMap<usize, Vec<u32>>,
    active: usize,
    /// Kinds of operations by name, and the interval of each.
    kinds: Vec<(String, Interval)>,
    kind_of: Vec<usize>,
    messages: u32,
    is_failed: bool,
}

/// Drives runs over the connections there are.
pub(super) struct LoadEngine {
    cluster: Cluster,
    lanes: Vec<Lanes>,
    tablets: RefCell<Tablets>,
    pipes: RefCell<Vec<Rc<Pipe>>>,
    recovery: Recovery,
    errors: Errors,
    level: Level,
    run: RefCell<Option<Run>>,
    /// Notified when the last worker is done.
    done: Event,
    /// Notified when the earliest waiting worker changes.
    pace_changed: Event,
    next_host: Cell<usize>,
    scratch: RefCell<Vec<u8>>,
}

impl LoadEngine {
    pub(super) fn new(
        cluster: Cluster,
        lanes: Vec<Lanes>,
        pipes: Vec<Rc<Pipe>>,
        recovery: Recovery,
        errors: Errors,
        level: Level,
    ) -> Rc<Self> {
        Rc::new(Self {
            cluster,
            lanes,
            tablets: RefCell::default(),
            pipes: RefCell::new(pipes),
            recovery,
            errors,
            level,
            run: RefCell::new(None),
            done: Event::new(),
            pace_changed: Event::new(),
            next_host: Cell::new(0),
            scratch: RefCell::new(Vec::new()),
        })
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The tasks of all connections; they end when the connections do.
    pub(super) fn spawn_pipes(self: &Rc<Self>) {
        let count = self.pipes.borrow().len();
        (0..count).for_each(|index| self.spawn_pipe(index));
    }

    fn spawn_pipe(self: &Rc<Self>, index: usize) {
        let pipe = self.pipe(index);
        let sender = pipe.clone();
        reactor::spawn(Group::STATEMENT, async move { sender.send_all().await }).detach();
        let engine = self.clone();
        let receiving = async move {
            pipe.receive_all(|bytes| engine.take(index, &pipe, bytes)).await;
            engine.lost(&pipe);
            engine.recover(index).await;
        };
        reactor::spawn(Group::STATEMENT, receiving).detach();
    }

    fn pipe(&self, index: usize) -> Rc<Pipe> {
        self.pipes.borrow()[index].clone()
    }

    /// Ends all connections.
    pub(super) fn close(&self) {
        self.recovery.stop();
        for pipe in self.pipes.borrow().iter() {
            pipe.close();
        }
    }

    /// Begins a run.
    pub(super) fn start(&self, plan: Plan) {
        let mut kinds: Vec<(String, Interval)> = Vec::new();
        let mut kind_of = Vec::new();
        let (mut operations, mut shares, mut sum) = (Vec::new(), Vec::new(), 0.0);
        for (operation, share) in plan.operations {
            let place = kinds.iter().position(|(name, _)| name == operation.name());
            kind_of.push(place.unwrap_or_else(|| {
                kinds.push((operation.name().to_owned(), Interval::new(plan.is_fixed)));
                kinds.len() - 1
            }));
            sum += share;
            shares.push(sum);
            operations.push(operation);
        }
        let workers = (0..plan.threads).map(|_| Worker::default()).collect();
        let pace = (plan.per_second > 0).then(|| (1_000_000_000 / u64::from(plan.per_second), 0));
        let mut run = Run {
            workers,
            operations,
            shares,
            clustering: plan.clustering,
            seeds: plan.seeds,
            permits: plan.permits,
            random: JavaRandom::new(plan.random_seed),
            begin: now(),
            pace,
            waiting: BinaryHeap::new(),
            parked: VecDeque::new(),
            unprepared: BTreeMap::new(),
            active: plan.threads as usize,
            kinds,
            kind_of,
            messages: 0,
            is_failed: false,
        };
        for worker in 0..plan.threads {
            self.next(&mut run, worker, now());
        }
        *self.run.borrow_mut() = Some(run);
        self.pace_changed.notify_all();
    }

    /// Waits until every worker is done.
    pub(super) async fn wait_done(&self) {
        self.done.wait_until(|| self.run.borrow().as_ref().is_none_or(|run| run.active == 0)).await;
    }

    /// No more operations begin.
    pub(super) fn stop(&self) {
        if let Some(run) = self.run.borrow_mut().as_mut() {
            run.permits.stop();
        }
    }

    /// Whether operations failed that must not.
    pub(super) fn is_failed(&self) -> bool {
        self.run.borrow().as_ref().is_some_and(|run| run.is_failed)
    }

    /// Takes the measurements since the last call, by kinds in order of their names.
    pub(super) fn collect(&self, start_ns: u64, end_ns: u64) -> BTreeMap<String, Interval> {
        let mut run = self.run.borrow_mut();
        let Some(run) = run.as_mut() else { return BTreeMap::new() };
        run.messages = 0;
        let mut collected = BTreeMap::new();
        for (name, interval) in &mut run.kinds {
            if interval.service.is_empty() {
                continue;
            }
            let mut taken = interval.clone();
            interval.reset();
            (taken.start_ns, taken.end_ns) = (start_ns, end_ns);
            collected.insert(name.clone(), taken);
        }
        collected
    }

    /// Begins scheduled operations at their times, until the run is over.
    pub(super) async fn keep_pace(&self) {
        loop {
            let next = {
                let run = self.run.borrow();
                let Some(run) = run.as_ref() else { return };
                if run.active == 0 {
                    return;
                }
                run.waiting.peek().map(|Reverse((at, _))| *at)
            };
            match next {
                None => {
                    let is_needed = || {
                        let run = self.run.borrow();
                        run.as_ref().is_none_or(|run| run.active == 0 || !run.waiting.is_empty())
                    };
                    self.pace_changed.wait_until(is_needed).await;
                }
                Some(at) => {
                    reactor::sleep_until(at).await;
                    let mut run = self.run.borrow_mut();
                    let Some(run) = run.as_mut() else { return };
                    let at = now();
                    while let Some(Reverse((due, worker))) = run.waiting.peek().copied() {
                        if due > at {
                            break;
                        }
                        run.waiting.pop();
                        self.dispatch(run, worker, at);
                    }
                }
            }
        }
    }

    /// Takes whole frames off `bytes`; returns the number of bytes taken.
    fn take(self: &Rc<Self>, index: usize, lane: &Pipe, bytes: &[u8]) -> Result<usize, ProtocolError> {
        let mut run = self.run.borrow_mut();
        let mut scratch = self.scratch.borrow_mut();
        let at = now();
        let mut taken = 0;
        loop {
            let frame = Frame::cut_direction(&bytes[taken..], FRAME_BYTES_MAX, Direction::Response);
            let Some(frame) = frame.map_err(|error| error.error)? else { return Ok(taken) };
            taken += frame.header.frame_bytes();
            if frame.header.opcode == Opcode::Event {
                continue;
            }
            let (worker, header, body) = lane.open(&frame, &mut scratch)?;
            let (Some(worker), Some(run)) = (worker, run.as_mut()) else { continue };
            let response = decode(&header, body, &lane.connection().extensions)?;
            if !response.custom_payload.is_empty() {
                self.learn(&response.custom_payload);
            }
            if matches!(response.body, ResponseBody::Error { code: UNPREPARED, .. }) {
                self.unprepared(run, worker, index, at);
            } else {
                self.answered(run, worker, &response.body, at);
            }
            if let Some(parked) = run.parked.pop_front() {
                self.dispatch(run, parked, at);
            }
        }
    }

    #[cold]
    fn learn(&self, payload: &BytesMap<'_>) {
        let entries = payload.iter().filter(|(name, _)| *name == TABLETS_ROUTING_V1_PAYLOAD);
        for tablet in entries.filter_map(|(_, value)| read_tablet(value?)) {
            self.tablets.borrow_mut().learn(&tablet, &self.cluster.hosts);
        }
    }

    fn answered(&self, run: &mut Run, worker: u32, body: &ResponseBody<'_>, at: Instant) {
        let state = &mut run.workers[worker as usize];
        state.at = None;
        if let ResponseBody::Error { code, message, .. } = body {
            let error = (error_name(*code), (*message).to_owned());
            return self.try_failed(run, worker, error, at);
        }
        match run.operations[state.operation].answer(&mut state.job, body) {
            Verdict::Again => self.dispatch(run, worker, at),
            Verdict::Done => self.finish(run, worker, true, at),
            Verdict::Invalid => self.finish(run, worker, false, at),
        }
    }

    fn try_failed(&self, run: &mut Run, worker: u32, error: (&str, String), at: Instant) {
        let (class, message) = error;
        let state = &mut run.workers[worker as usize];
        state.at = None;
        state.tries += 1;
        if self.level > Level::Minimal && run.messages < MESSAGES_MAX {
            run.messages += 1;
            eprintln!("com.datastax.driver.core.exceptions.{class}: {message}");
        }
        state.last_error = Some(format!("({class}): {message}"));
        if state.tries < self.errors.tries && !run.is_failed {
            self.dispatch(run, worker, at);
        } else {
            (state.job.partitions, state.job.rows) = (0, 0);
            self.finish(run, worker, false, at);
        }
    }

    /// Counts an operation and begins the worker's next one.
    fn finish(&self, run: &mut Run, worker: u32, is_well: bool, at: Instant) {
        let state = &mut run.workers[worker as usize];
        let started = state.started.unwrap_or(at);
        let interval = &mut run.kinds[run.kind_of[state.operation]].1;
        let nanoseconds = |from: Instant, to: Instant| (to.since(from).as_nanos() as u64).max(1);
        // Histograms that grow take any value.
        let _ = interval.service.record(nanoseconds(started, at));
        if let Some(intended) = state.intended {
            let _ = interval.response.record(nanoseconds(intended, at));
            let _ = interval.wait.record(nanoseconds(intended, started));
        }
        interval.partitions += state.job.partitions;
        interval.rows += state.job.rows;
        if !is_well {
            interval.errors += 1;
            let reason = match state.last_error.take() {
                Some(error) => format!("Error executing: {error}"),
                None => "Data returned was not validated".to_owned(),
            };
            let keys = run.operations[state.operation].key(&state.job);
            let message = format!("Operation x{} on key(s) {keys}: {reason}\n", state.tries);
            if !self.errors.ignore {
                if !run.is_failed {
                    eprintln!("java.io.IOException: {message}");
                }
                run.is_failed = true;
                run.permits.stop();
            } else if self.level > Level::Minimal && run.messages < MESSAGES_MAX {
                run.messages += 1;
                eprintln!("{message}");
            }
        }
        self.next(run, worker, at);
    }

    /// Begins the worker's next operation, or sends the worker home.
    #[inline]
    fn next(&self, run: &mut Run, worker: u32, at: Instant) {
        let state = &mut run.workers[worker as usize];
        (state.tries, state.last_error, state.intended, state.started) = (0, None, None, None);
        state.is_prepared_again = false;
        if let Some(clustering) = &mut run.clustering {
            while state.in_a_row <= 0 {
                state.in_a_row = clustering.next().max(0);
                let drawn = run.random.next_f64() * run.shares.last().copied().unwrap_or(0.0);
                let place = run.shares.partition_point(|sum| *sum <= drawn);
                state.operation = place.min(run.shares.len() - 1);
            }
            state.in_a_row -= 1;
        }
        let operation = &mut run.operations[state.operation];
        let taken = operation.begin(&mut state.job, &mut run.seeds, &mut run.permits);
        if taken == 0 {
            run.active -= 1;
            if run.active == 0 {
                self.done.notify_all();
                self.pace_changed.notify_all();
            }
            return;
        }
        if let Some((interval_ns, given)) = &mut run.pace {
            let intended = run.begin + Duration::from_nanos(*interval_ns * *given);
            *given += taken as u64;
            state.intended = Some(intended);
            if intended > at {
                return self.wait(run, worker, intended);
            }
        }
        self.dispatch(run, worker, at);
    }

    /// Sends the worker's operation.
    #[inline]
    fn dispatch(&self, run: &mut Run, worker: u32, at: Instant) {
        let state = &mut run.workers[worker as usize];
        state.started.get_or_insert(at);
        let lanes = match state.job.token {
            Some(token) => match self.tablets.borrow().owner(token) {
                Some((host, shard)) => self.lanes[host].of_shard(shard),
                None => self.lanes[self.cluster.owner(token)].for_key(token),
            },
            None => {
                let host = self.next_host.get();
                self.next_host.set((host + 1) % self.lanes.len());
                &self.lanes[host].shards[worker as usize % self.lanes[host].shards.len()]
            }
        };
        // A worker keeps to one connection of a shard, so that connections fill evenly.
        let start = worker as usize % lanes.len().max(1);
        let own = (0..lanes.len()).map(|step| lanes[(start + step) % lanes.len()]);
        let pipes = self.pipes.borrow();
        let found = own.into_iter().find(|pipe| pipes[*pipe].has_room());
        // The work of a server that is gone goes to the others.
        let is_gone = || lanes.iter().all(|pipe| pipes[*pipe].is_closed());
        let found = found
            .or_else(|| is_gone().then(|| (0..pipes.len()).find(|pipe| pipes[*pipe].has_room())).flatten());
        match found {
            Some(pipe) => {
                let stream = pipes[pipe].send(&state.job.frame, worker);
                state.at = Some((pipe, stream));
                state.sent = Some(at);
            }
            None if pipes.iter().all(|pipe| pipe.is_closed()) => self.without_connection(run, worker, at),
            None => run.parked.push_back(worker),
        }
    }

    /// Lets a worker wait for `due`.
    fn wait(&self, run: &mut Run, worker: u32, due: Instant) {
        let is_first = run.waiting.peek().is_none_or(|Reverse((first, _))| due < *first);
        run.waiting.push(Reverse((due, worker)));
        if is_first {
            self.pace_changed.notify_all();
        }
    }
}

/// The Java driver's name of an error of the protocol.
fn error_name(code: i32) -> &'static str {
    match code {
        0x000A => "ProtocolError",
        0x0100 => "AuthenticationException",
        0x1000 => "UnavailableException",
        0x1001 => "OverloadedException",
        0x1002 => "BootstrappingException",
        0x1003 => "TruncateException",
        0x1100 => "WriteTimeoutException",
        0x1200 => "ReadTimeoutException",
        0x1300 => "ReadFailureException",
        0x1400 => "FunctionExecutionException",
        0x1500 => "WriteFailureException",
        0x2000 => "SyntaxError",
        0x2100 => "UnauthorizedException",
        0x2200 => "InvalidQueryException",
        0x2300 => "InvalidConfigurationInQueryException",
        0x2400 => "AlreadyExistsException",
        0x2500 => "UnpreparedException",
        _ => "ServerError",
    }
}
