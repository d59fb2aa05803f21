//! Limits to what is in flight on a shard: the number of requests, their bytes, and the bytes of answers that
//! wait for their clients. Requests beyond the number are shed at once. If the bytes of requests are used up,
//! a connection waits and is not read from, or its request is refused at once if the client asked for that
//! (`THROW_ON_OVERLOAD`). Connections queue with one request each, so that they take turns. Clients that
//! leave answers unread are not read from either.
//!
//! A part of the memory is reserved for short requests, so that long ones, which a client may send as slowly
//! as it likes, do not keep them out. A client whose last answers were long also queues for the room of its
//! next one ([`ShardLimits::wait_for_answer`]).

use std::cell::Cell;
use std::rc::Rc;

use query::QueryError;
use query::answer_room::{self, AnswerRoom};
use reactor::metrics::{self, Counter, Gauge};
use reactor::{Permit, Semaphore};
use wire::frame::Opcode;

/// Connections that may wait for memory; the request of a further one is shed.
const WAITING_MAX: usize = 1 << 16;

/// Longest request that counts as short, in bytes.
const SHORT_BYTES: usize = 16 << 10;
/// The fraction of the memory for requests that is reserved for short ones.
const SHORT_PART: usize = 4;
/// Bytes of memory per byte of a long request: it is in memory as received, and again while it is executed.
const LONG_COPIES: usize = 2;
/// Bytes of memory per byte of a long text, measured: in the parser and in the plan, terms take more than
/// their letters.
const TEXT_COPIES: usize = 32;
/// Answers longer than this make the next one of the connection wait for room, in bytes.
const LONG_ANSWER_BYTES: usize = 64 << 10;

/// The length and kind of a request, which determine its share of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Demand {
    /// Length of its frame in bytes.
    pub(super) bytes: usize,
    /// Whether most of it is text that has to be parsed.
    pub(super) is_text: bool,
}

impl Demand {
    /// The demand of a request with this opcode.
    #[inline]
    pub(super) fn of(opcode: Opcode, bytes: usize) -> Self {
        Self { bytes, is_text: matches!(opcode, Opcode::Prepare | Opcode::Query) }
    }
}

/// The limits of one shard, and their use.
pub(super) struct ShardLimits {
    requests_max: usize,
    /// Bytes of memory for long requests, and the semaphore of the free ones.
    long_max: usize,
    long: Semaphore,
    /// Bytes of memory for short requests, and the semaphore of the free ones.
    short_max: usize,
    short: Semaphore,
    /// The semaphore of bytes for long answers that are expected.
    expected: Semaphore,
    pub(super) answers: Rc<Answers>,
    /// Number of requests being served.
    serving: Rc<Gauge>,
    shed: Rc<Counter>,
    blocked: Rc<Counter>,
    blocked_now: Rc<Gauge>,
}

/// Why a request is not admitted now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Too many requests are being served: this one is shed, with this reason.
    Shed(String),
    /// Too many bytes of requests are in memory: this one may wait.
    Memory,
}

impl ShardLimits {
    pub(super) fn new(requests_max: usize, bytes_max: usize, room: Rc<AnswerRoom>) -> Rc<Self> {
        let shed = metrics::counter(
            "scylla_transport_requests_shed",
            "Requests answered with OVERLOADED because of a limit on what is in flight",
            &[],
        );
        // Requests get half as much memory as answers, or less if `bytes_max` says so.
        let bytes_max = bytes_max.min(room.bytes_max() / 2);
        let short_max = bytes_max / SHORT_PART;
        let long_max = bytes_max - short_max;
        Rc::new(Self {
            requests_max,
            long_max,
            long: Semaphore::with_waiters_max(long_max, WAITING_MAX),
            short_max,
            short: Semaphore::with_waiters_max(short_max, WAITING_MAX),
            expected: Semaphore::with_waiters_max(room.bytes_max(), WAITING_MAX),
            answers: Rc::new(Answers::within(room.bytes_max() / 2, room)),
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

    /// Number of requests being served.
    pub(super) fn serving(&self) -> usize {
        usize::try_from(self.serving.get()).unwrap_or(0)
    }

    /// Admits a request, or returns the limit that forbids it.
    ///
    /// A request larger than the limit takes all of the memory, so that it is not refused for ever.
    pub(super) fn admit(self: &Rc<Self>, bytes: Demand) -> Result<InFlight, Refusal> {
        self.check_requests()?;
        let (memory, bytes) = self.memory_for(bytes);
        let memory = memory.try_acquire(bytes).ok_or(Refusal::Memory)?;
        Ok(self.let_in(memory))
    }

    /// As [`ShardLimits::admit`]; `None` if a limit forbids it, which is not counted, because the request is
    /// offered again.
    #[inline]
    pub(super) fn admit_now(self: &Rc<Self>, bytes: Demand) -> Option<InFlight> {
        let requests = usize::try_from(self.serving.get()).unwrap_or(0);
        if requests >= self.requests_max {
            return None;
        }
        let (memory, bytes) = self.memory_for(bytes);
        memory.try_acquire(bytes).map(|memory| self.let_in(memory))
    }

    /// As [`ShardLimits::admit`], for a request whose memory is reserved already.
    pub(super) fn admit_with(self: &Rc<Self>, memory: Permit) -> Result<InFlight, Refusal> {
        self.check_requests()?;
        Ok(self.let_in(memory))
    }

    /// Queues for memory of a request. `None` if the queue is full.
    pub(super) async fn wait_for_memory(&self, bytes: Demand) -> Option<Permit> {
        let (memory, bytes) = self.memory_for(bytes);
        if let Some(permit) = memory.try_acquire(bytes) {
            return Some(permit);
        }
        self.blocked.inc();
        let _blocked = Counted::new(&self.blocked_now);
        memory.acquire(bytes).await.ok()
    }

    /// The pool from which a request takes its memory, and the bytes to take; a request larger than the pool
    /// takes all of it.
    #[inline]
    fn memory_for(&self, demand: Demand) -> (&Semaphore, usize) {
        if demand.bytes <= SHORT_BYTES {
            return (&self.short, demand.bytes.min(self.short_max));
        }
        (&self.long, self.countable(demand))
    }

    /// Whether reserved memory is enough for a request.
    pub(super) fn covers(&self, memory: &Permit, demand: Demand) -> bool {
        memory.count() >= self.memory_for(demand).1
    }

    /// Whether a connection waits for memory of a long request.
    pub(super) fn is_memory_wanted(&self) -> bool {
        self.long.waiting() > 0
    }

    /// Bytes of the limit that a long request takes.
    pub(super) fn countable(&self, demand: Demand) -> usize {
        let copies = if demand.is_text { TEXT_COPIES } else { LONG_COPIES };
        demand.bytes.saturating_mul(copies).min(self.long_max)
    }

    /// Room for an answer that is likely to have `bytes`, if there is room now; `Some(None)` if the answer
    /// needs none.
    pub(super) fn answer_now(&self, bytes: usize) -> Option<Option<Permit>> {
        if bytes <= LONG_ANSWER_BYTES {
            return Some(None);
        }
        self.expected.try_acquire(bytes.min(self.answers.room.bytes_max())).map(Some)
    }

    /// Queues for room for an answer that is likely to have `bytes`. `None` if the queue is full.
    pub(super) async fn wait_for_answer(&self, bytes: usize) -> Option<Permit> {
        self.blocked.inc();
        let _blocked = Counted::new(&self.blocked_now);
        self.expected.acquire(bytes.min(self.answers.room.bytes_max())).await.ok()
    }

    /// The error text for a client if others do not read their answers.
    pub(super) fn answers_text(&self) -> String {
        format!(
            "No memory for an answer: {} bytes wait for clients that do not read them; ask again later",
            self.answers.room.taken()
        )
    }

    /// Cassandra's error text for a client that asked for errors on overload.
    pub(super) fn memory_text(&self) -> String {
        let bytes_max = self.long_max + self.short_max;
        let used = bytes_max - self.long.available() - self.short.available();
        format!(
            "Request breached limit on bytes in flight. (Endpoint: {used}/{max} bytes, Global: {used}/{max} bytes.)\
             Server is currently in an overloaded state and cannot accept more requests.",
            max = bytes_max
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

/// A request that counts towards the limits until dropped.
pub(super) struct InFlight {
    _memory: Permit,
    _serving: Counted,
}

/// All permits of a request, from its frame to its answer; dropping it returns them.
pub(super) struct Held {
    _answer: Expected,
    _admitted: InFlight,
    /// Room for the answer, if it is likely to be long.
    room: Option<Permit>,
}

impl Held {
    pub(super) fn new(answer: Expected, admitted: InFlight, room: Option<Permit>) -> Self {
        Self { _answer: answer, _admitted: admitted, room }
    }

    /// Takes the room of the answer, which is needed until the answer is sent.
    pub(super) fn take_room(&mut self) -> Option<Permit> {
        self.room.take()
    }
}

/// Adds one to a gauge until dropped.
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
    /// Bytes of expected and of waiting answers.
    bytes: Cell<usize>,
    /// Memory for large answers, of which waiting answers take a part.
    room: Rc<AnswerRoom>,
}

impl Answers {
    pub(super) fn within(bytes_max: usize, room: Rc<AnswerRoom>) -> Self {
        Self { bytes_max, bytes: Cell::new(0), room }
    }

    /// Replaces the count of a connection's unread bytes: `before` by `after`.
    pub(super) fn count(&self, before: usize, after: usize) {
        self.bytes.set(self.bytes.get() - before + after);
        self.room.count(before, after);
    }

    /// Counts an answer that is being made and is likely to have `bytes`, until the result is dropped.
    #[inline]
    pub(super) fn expect(this: &Rc<Self>, bytes: usize) -> Expected {
        this.bytes.set(this.bytes.get() + bytes);
        Expected { answers: Rc::clone(this), bytes }
    }

    /// Whether there is room for `more` bytes of a waiting answer.
    pub(super) fn have_room(&self, more: usize) -> bool {
        self.room.has(more)
    }

    /// The error of an answer of this many bytes for which there is no room.
    pub(super) fn overloaded(&self, bytes: usize) -> QueryError {
        answer_room::overloaded(bytes, &self.room)
    }

    /// Bytes of the room that are in use.
    #[cfg(test)]
    pub(super) fn room_taken(&self) -> usize {
        self.room.taken()
    }

    /// Whether there is no room even for a small answer.
    pub(super) fn are_full(&self) -> bool {
        self.room.is_full()
    }

    /// Whether the answers of all clients together take too much: a client with unread answers must read them
    /// first.
    pub(super) fn are_too_many(&self) -> bool {
        self.bytes.get() > self.bytes_max
    }
}

/// An expected answer.
#[derive(Debug)]
pub(super) struct Expected {
    answers: Rc<Answers>,
    bytes: usize,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.answers.bytes.set(self.answers.bytes.get() - self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use reactor::sim;

    use super::*;

    const MIB: usize = 1 << 20;

    fn bytes(bytes: usize) -> Demand {
        Demand::of(Opcode::Execute, bytes)
    }

    fn limits() -> Rc<ShardLimits> {
        ShardLimits::new(100, 64 * MIB, Rc::new(AnswerRoom::new(32 * MIB)))
    }

    #[test]
    fn long_requests_leave_short_ones_their_memory() {
        sim::run_one(1, || async {
            let limits = limits();
            let long = limits.admit(bytes(6 * MIB)).expect("it takes all that long ones have");
            assert!(matches!(limits.admit(bytes(SHORT_BYTES + 1)), Err(Refusal::Memory)));
            // A long request that queues does not keep short ones out either.
            let waiting = limits.wait_for_memory(bytes(MIB));
            let mut waiting = std::pin::pin!(waiting);
            assert!(
                reactor::timeout(reactor::Deadline::after(std::time::Duration::ZERO), waiting.as_mut())
                    .await
                    .is_err()
            );
            let short: Vec<_> =
                (0..4 * MIB / SHORT_BYTES).map_while(|_| limits.admit_now(bytes(SHORT_BYTES))).collect();
            assert_eq!(short.len(), 100 - 1, "as many as may be at work");
            drop((long, short));
            assert!(waiting.await.is_some());
            assert_eq!((limits.long.available(), limits.short.available()), (12 * MIB, 4 * MIB));
        });
    }

    #[test]
    fn requests_of_all_kinds_together_take_no_more_than_they_may_and_give_all_of_it_back() {
        sim::run_one(1, || async {
            let limits = limits();
            let mut held = Vec::new();
            for length in [1, 100, SHORT_BYTES, SHORT_BYTES + 1, MIB, 5 * MIB, 16 * MIB, usize::MAX]
                .iter()
                .cycle()
                .take(96)
            {
                held.extend(limits.admit(bytes(*length)));
                assert!(limits.long_max + limits.short_max <= 16 * MIB);
            }
            assert!(!held.is_empty());
            held.clear();
            assert_eq!((limits.long.available(), limits.short.available()), (12 * MIB, 4 * MIB));
        });
    }

    #[test]
    fn a_long_text_counts_as_what_its_terms_take() {
        sim::run_one(1, || async {
            let limits = limits();
            let text = Demand::of(Opcode::Query, 128 << 10);
            let held: Vec<_> = (0..10).map_while(|_| limits.admit(text).ok()).collect();
            assert_eq!(held.len(), 3);
            drop(held);
            let memory = limits.wait_for_memory(bytes(128 << 10)).await.expect("memory");
            assert!(limits.covers(&memory, bytes(128 << 10)) && !limits.covers(&memory, text));
        });
    }

    #[test]
    fn long_answers_are_waited_for_and_short_ones_are_not() {
        sim::run_one(1, || async {
            let limits = limits();
            let first = limits.answer_now(usize::MAX).expect("room").expect("all of it");
            assert_eq!(first.count(), 32 * MIB);
            assert!(limits.answer_now(LONG_ANSWER_BYTES + 1).is_none());
            assert!(limits.answer_now(LONG_ANSWER_BYTES).expect("none is needed").is_none());
            drop(first);
            assert!(limits.wait_for_answer(5 * MIB).await.is_some());
        });
    }
}
