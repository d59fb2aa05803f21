//! Keeps a fixed number of requests in flight on each connection and times every one.
//!
//! A connection is one task: every answer frees a slot, and the free slots' next requests go out with one
//! send per batch of received answers. Latency is measured from handing a request to the send to cutting its
//! answer from the received bytes. An [`Exchange`] defines the requests. Invariant: no more than `depth`
//! requests are in flight, and none is issued after the run's end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use reactor::metrics::Histogram;
use reactor::net::Stream;
use reactor::{Deadline, Group, Instant, now, spawn};

use super::PerfError;

/// The requests and answers of one connection.
pub(super) trait Exchange: 'static {
    /// Appends one request to `out`, answered under `slot`; returns false if there are no more requests.
    fn append(&mut self, out: &mut Vec<u8>, slot: u16) -> bool;

    /// Cuts the first response from `bytes`; `None` if it is not complete yet.
    fn cut(&mut self, bytes: &[u8]) -> Result<Option<Answer>, PerfError>;
}

/// A response.
pub(super) struct Answer {
    /// Its length in bytes.
    pub(super) bytes: usize,
    /// The slot it answers.
    pub(super) slot: u16,
    /// Its problem, if any.
    pub(super) failure: Option<String>,
}

/// One run: its limits, and its measurements so far. Shared by the connections' tasks.
pub(super) struct Run {
    depth: u16,
    timeout: Duration,
    timeout_seconds: u32,
    /// Answers are counted from here on.
    begin: Cell<Instant>,
    /// Requests are issued until here.
    end: Cell<Instant>,
    /// Requests still to be issued.
    left: Cell<u64>,
    latency_ns: Histogram,
    slowest_ns: Cell<u64>,
    failed: Cell<u64>,
    first_failure: RefCell<Option<String>>,
    last_answer: Cell<Instant>,
}

/// The measurements of a run.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    /// Seconds between the first request counted and the last answer.
    pub(super) seconds: f64,
    /// Answers counted, failures included.
    pub(super) answers: u64,
    /// Of these, failures.
    pub(super) failed: u64,
    /// The first of the failures.
    pub(super) first_failure: Option<String>,
    /// Nanoseconds at quantiles 0.5, 0.99, 0.999 and 1.
    pub(super) latency_ns: [u64; 4],
    /// Share of the time in which the client's own core was busy: near 1 the client measures itself.
    pub(super) client_busy: f64,
}

/// Limits of one phase.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) depth: u16,
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
    pub(super) requests: u64,
    pub(super) timeout_seconds: u32,
}

/// Loads `connections` at once until the limits are reached; returns the streams for another run.
pub(super) async fn run<E: Exchange>(
    connections: Vec<(Rc<Stream>, E)>,
    limits: Limits,
) -> Result<Measured, PerfError> {
    let start = now();
    let begin = start + limits.warm_up;
    let run = Rc::new(Run {
        depth: limits.depth,
        timeout: Duration::from_secs(u64::from(limits.timeout_seconds)),
        timeout_seconds: limits.timeout_seconds,
        begin: Cell::new(begin),
        end: Cell::new(begin + limits.measured),
        left: Cell::new(limits.requests),
        latency_ns: Histogram::default(),
        slowest_ns: Cell::new(0),
        failed: Cell::new(0),
        first_failure: RefCell::new(None),
        last_answer: Cell::new(begin),
    });
    let busy_before = Group::STATEMENT.cpu_ns();
    let tasks: Vec<_> = connections
        .into_iter()
        .map(|(stream, exchange)| {
            let run = run.clone();
            spawn(Group::STATEMENT, async move { drive(&stream, exchange, &run).await })
        })
        .collect();
    let mut first_error = None;
    for task in tasks {
        if let Err(error) = task.await? {
            // The others end soon: no more requests are issued.
            run.left.set(0);
            first_error.get_or_insert(error);
        }
    }
    if let Some(error) = first_error {
        return Err(error);
    }
    let busy_ns = Group::STATEMENT.cpu_ns() - busy_before;
    let latency = run.latency_ns.snapshot();
    let quantile = |share| latency.quantile(share).min(run.slowest_ns.get());
    let first_failure = run.first_failure.borrow_mut().take();
    Ok(Measured {
        seconds: run.last_answer.get().since(begin).as_secs_f64(),
        answers: latency.count,
        failed: run.failed.get(),
        first_failure,
        latency_ns: [quantile(0.5), quantile(0.99), quantile(0.999), run.slowest_ns.get()],
        client_busy: busy_ns as f64 / start.elapsed().as_nanos().max(1) as f64,
    })
}

impl Run {
    /// Whether a request may be issued at `at`; counts it if so.
    fn may_issue(&self, at: Instant) -> bool {
        if at >= self.end.get() {
            return false;
        }
        if at < self.begin.get() {
            return true; // warming up costs nothing of the count
        }
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 0
    }

    fn record(&self, sent: Instant, at: Instant, failure: Option<String>) {
        if let Some(failure) = &failure {
            self.first_failure.borrow_mut().get_or_insert_with(|| failure.clone());
        }
        if sent < self.begin.get() {
            return;
        }
        let latency_ns = at.since(sent).as_nanos() as u64;
        self.latency_ns.record(latency_ns);
        self.slowest_ns.set(self.slowest_ns.get().max(latency_ns));
        self.failed.set(self.failed.get() + u64::from(failure.is_some()));
        self.last_answer.set(at);
    }
}

/// The requests in flight on one connection.
struct InFlight<E> {
    exchange: E,
    /// When the request of each slot was sent; `None` for a free slot.
    sent: Vec<Option<Instant>>,
    count: usize,
}

impl<E: Exchange> InFlight<E> {
    fn issue(&mut self, run: &Run, slot: u16, at: Instant, out: &mut Vec<u8>) {
        if run.may_issue(at) && self.exchange.append(out, slot) {
            self.sent[usize::from(slot)] = Some(at);
            self.count += 1;
        }
    }

    /// Takes whole responses off `bytes`, issuing as many requests; returns the number of bytes taken.
    fn take(&mut self, run: &Run, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, PerfError> {
        let at = now();
        let mut taken = 0;
        while let Some(answer) = self.exchange.cut(&bytes[taken..])? {
            taken += answer.bytes;
            let sent = self.sent.get_mut(usize::from(answer.slot)).and_then(Option::take);
            let Some(sent) = sent else { return Err(PerfError::Stream { stream: answer.slot as i16 }) };
            self.count -= 1;
            run.record(sent, at, answer.failure);
            self.issue(run, answer.slot, at, out);
        }
        Ok(taken)
    }
}

/// Drives one connection from its first request to its last answer.
async fn drive<E: Exchange>(stream: &Stream, exchange: E, run: &Run) -> Result<(), PerfError> {
    let mut flight = InFlight { exchange, sent: vec![None; usize::from(run.depth)], count: 0 };
    let (mut out, mut rest) = (Vec::new(), Vec::new());
    let at = now();
    for slot in 0..run.depth {
        flight.issue(run, slot, at, &mut out);
    }
    loop {
        if !out.is_empty() {
            // Only the time distinguishes a server that waits for this client to receive from one that is
            // slow.
            let sending = reactor::timeout(Deadline::after(run.timeout), stream.send(out)).await;
            let (sent, back) = sending.map_err(|_| PerfError::TimedOut {
                what: "the server takes no more requests".to_owned(),
                seconds: run.timeout_seconds,
            })?;
            sent.map_err(PerfError::io("sending requests"))?;
            out = back;
            out.clear();
        }
        if flight.count == 0 {
            return Ok(());
        }
        let received = reactor::timeout(Deadline::after(run.timeout), stream.recv()).await;
        let received = received.map_err(|_| PerfError::TimedOut {
            what: format!("{} requests in flight", flight.count),
            seconds: run.timeout_seconds,
        })?;
        let chunk = received.map_err(PerfError::io("receiving answers"))?;
        let Some(chunk) = chunk else { return Err(PerfError::Closed { outstanding: flight.count }) };
        if rest.is_empty() {
            let taken = flight.take(run, &chunk, &mut out)?;
            rest.extend_from_slice(&chunk[taken..]);
        } else {
            rest.extend_from_slice(&chunk);
            let taken = flight.take(run, &rest, &mut out)?;
            rest.drain(..taken);
        }
    }
}
