//! What is in flight on a shard: how many requests, how many bytes of them, and how many bytes of answers that wait for
//! their clients. Beyond the number requests are shed at once. Beyond the bytes a connection waits, and is not read from,
//! or is told at once where it asked for that (`THROW_ON_OVERLOAD`); connections wait in line with one request each, so
//! that they take turns. Clients that leave answers unread are not read from either.

use std::cell::Cell;
use std::rc::Rc;

use query::answer_room::AnswerRoom;
use reactor::metrics::{self, Counter, Gauge};
use reactor::{Permit, Semaphore};

/// Connections that may wait for memory; a request of the next one is shed.
const WAITING_MAX: usize = 1 << 16;

/// Counts of one shard against its limits.
pub(super) struct ShardLimits {
    requests_max: usize,
    bytes_max: usize,
    /// Bytes that are free.
    memory: Semaphore,
    pub(super) answers: Rc<Answers>,
    /// Requests that are at work.
    serving: Rc<Gauge>,
    shed: Rc<Counter>,
    blocked: Rc<Counter>,
    blocked_now: Rc<Gauge>,
}

/// Why a request is not let in now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Too many are at work: it is shed, for this reason.
    Shed(String),
    /// Too many bytes of requests are in memory: it may wait.
    Memory,
}

impl ShardLimits {
    pub(super) fn new(requests_max: usize, bytes_max: usize, room: Rc<AnswerRoom>) -> Rc<Self> {
        let shed = metrics::counter(
            "scylla_transport_requests_shed",
            "Requests answered with OVERLOADED because of a limit on what is in flight",
            &[],
        );
        Rc::new(Self {
            requests_max,
            bytes_max,
            memory: Semaphore::with_waiters_max(bytes_max, WAITING_MAX),
            answers: Rc::new(Answers::within(bytes_max, room)),
            serving: metrics::gauge("scylla_transport_requests_serving", "Requests at work", &[]),
            shed,
            blocked: metrics::counter(
                "scylla_transport_requests_blocked_memory",
                "Requests that waited because requests in flight took the memory for them",
                &[],
            ),
            blocked_now: metrics::gauge(
                "scylla_transport_requests_blocked_memory_current",
                "Requests that wait for memory of requests now",
                &[],
            ),
        })
    }

    /// Counts a request of `bytes` bytes in, or says what forbids it.
    ///
    /// A request larger than the limit takes all of it, so that it is not refused for ever.
    pub(super) fn admit(self: &Rc<Self>, bytes: usize) -> Result<InFlight, Refusal> {
        self.check_requests()?;
        let memory = self.memory.try_acquire(self.countable(bytes)).ok_or(Refusal::Memory)?;
        Ok(self.let_in(memory))
    }

    /// As [`ShardLimits::admit`]; `None` where something forbids it, which is then not counted: the request is offered again.
    #[inline]
    pub(super) fn admit_now(self: &Rc<Self>, bytes: usize) -> Option<InFlight> {
        let requests = usize::try_from(self.serving.get()).unwrap_or(0);
        if requests >= self.requests_max {
            return None;
        }
        self.memory.try_acquire(self.countable(bytes)).map(|memory| self.let_in(memory))
    }

    /// As [`ShardLimits::admit`], for a request whose memory is set aside already.
    pub(super) fn admit_with(self: &Rc<Self>, memory: Permit) -> Result<InFlight, Refusal> {
        self.check_requests()?;
        Ok(self.let_in(memory))
    }

    /// Waits in line for memory of `bytes`. `None` where the line is full.
    pub(super) async fn wait_for_memory(&self, bytes: usize) -> Option<Permit> {
        let bytes = self.countable(bytes);
        if let Some(permit) = self.memory.try_acquire(bytes) {
            return Some(permit);
        }
        self.blocked.inc();
        let _blocked = Counted::new(&self.blocked_now);
        self.memory.acquire(bytes).await.ok()
    }

    /// What of `bytes` the limit counts: a frame larger than it takes all of it.
    pub(super) fn countable(&self, bytes: usize) -> usize {
        bytes.min(self.bytes_max)
    }

    /// What Cassandra says to a client that wants to be told of overload.
    pub(super) fn memory_text(&self) -> String {
        let used = self.bytes_max - self.memory.available();
        format!(
            "Request breached limit on bytes in flight. (Endpoint: {used}/{max} bytes, Global: {used}/{max} bytes.)\
             Server is currently in an overloaded state and cannot accept more requests.",
            max = self.bytes_max
        )
    }

    fn check_requests(&self) -> Result<(), Refusal> {
        let requests = usize::try_from(self.serving.get()).unwrap_or(0);
        if requests < self.requests_max {
            return Ok(());
        }
        self.shed.inc();
        Err(Refusal::Shed(format!(
            "Too many requests in flight on this shard: {requests} (max_concurrent_requests_per_shard)"
        )))
    }

    fn let_in(&self, memory: Permit) -> InFlight {
        InFlight { _memory: memory, _serving: Counted::new(&self.serving) }
    }

    /// Counts a request that another limit refused.
    pub(super) fn count_shed(&self) {
        self.shed.inc();
    }
}

/// A request counted in; dropping it counts it out.
pub(super) struct InFlight {
    _memory: Permit,
    _serving: Counted,
}

/// What a request counts against from its frame to its answer; dropping it counts it out.
pub(super) struct Held {
    _answer: Expected,
    _admitted: InFlight,
}

impl Held {
    pub(super) fn new(answer: Expected, admitted: InFlight) -> Self {
        Self { _answer: answer, _admitted: admitted }
    }
}

/// One more of something, until dropped.
pub(super) struct Counted(Rc<Gauge>);

impl Counted {
    pub(super) fn new(gauge: &Rc<Gauge>) -> Self {
        gauge.add(1);
        Self(Rc::clone(gauge))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

/// Answers of a shard that are being made or wait for their clients.
#[derive(Debug)]
pub(super) struct Answers {
    bytes_max: usize,
    bytes: Cell<usize>,
    /// Where large answers find their memory, of which these take a part.
    room: Rc<AnswerRoom>,
}

impl Answers {
    pub(super) fn within(bytes_max: usize, room: Rc<AnswerRoom>) -> Self {
        Self { bytes_max, bytes: Cell::new(0), room }
    }

    /// A connection has `after` bytes unread, of which `before` are counted.
    pub(super) fn count(&self, before: usize, after: usize) {
        self.bytes.set(self.bytes.get() - before + after);
        self.room.count(before, after);
    }

    /// Counts an answer that is being made and likely to have `bytes`, until what is returned is dropped.
    pub(super) fn expect(this: &Rc<Self>, bytes: usize) -> Expected {
        this.count(0, bytes);
        Expected { answers: Rc::clone(this), bytes }
    }

    /// Whether all clients together have too much of them: whoever has any must read it first.
    pub(super) fn are_too_many(&self) -> bool {
        self.bytes.get() > self.bytes_max
    }
}

/// An answer in the making.
#[derive(Debug)]
pub(super) struct Expected {
    answers: Rc<Answers>,
    bytes: usize,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.answers.count(self.bytes, 0);
    }
}
