//! What is in flight on a shard: how many requests, how many bytes of them, and how many bytes of answers that wait for
//! their clients. Beyond the number requests are shed at once. Beyond the bytes a connection waits, and is not read from,
//! or is told at once where it asked for that (`THROW_ON_OVERLOAD`); connections wait in line with one request each, so
//! that they take turns. Clients that leave answers unread are not read from either.
//!
//! Short requests have a part of the memory to themselves, so that long ones, which a client may send as slowly as it likes, do not
//! keep them out. A client whose answers were long of late waits in line for the room of the next one as well ([`ShardLimits::wait_for_answer`]).

use std::cell::Cell;
use std::rc::Rc;

use query::QueryError;
use query::answer_room::{self, AnswerRoom};
use reactor::metrics::{self, Counter, Gauge};
use reactor::{Permit, Semaphore};
use wire::frame::Opcode;

/// Connections that may wait for memory; a request of the next one is shed.
const WAITING_MAX: usize = 1 << 16;

/// Bytes of a request up to which it counts as short.
const SHORT_BYTES: usize = 16 << 10;
/// Part of the memory for requests that short ones have to themselves.
const SHORT_PART: usize = 4;
/// Bytes that a long request takes for each of its own: it stands there as it was received and as it is carried out.
const LONG_COPIES: usize = 2;
/// The same for a long text, measured: its terms take more than their letters, in the parser and in the plan.
const TEXT_COPIES: usize = 32;
/// Bytes of an answer from which on the next one of the connection waits for its room.
const LONG_ANSWER_BYTES: usize = 64 << 10;

/// The length and the kind of a request, by which its memory is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Demand {
    /// Bytes of its frame.
    pub(super) bytes: usize,
    /// Whether most of it is text that is to be parsed.
    pub(super) is_text: bool,
}

impl Demand {
    /// That of a request with this opcode.
    #[inline]
    pub(super) fn of(opcode: Opcode, bytes: usize) -> Self {
        Self { bytes, is_text: matches!(opcode, Opcode::Prepare | Opcode::Query) }
    }
}

/// Counts of one shard against its limits.
pub(super) struct ShardLimits {
    requests_max: usize,
    /// Bytes that long requests may take, and those that are free.
    long_max: usize,
    long: Semaphore,
    /// The same for short requests.
    short_max: usize,
    short: Semaphore,
    /// Bytes of long answers that are not expected yet.
    expected: Semaphore,
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
        // Requests have half as much as answers, unless they are to have less.
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

    /// Requests at work.
    pub(super) fn serving(&self) -> usize {
        usize::try_from(self.serving.get()).unwrap_or(0)
    }

    /// Counts a request of `bytes` bytes in, or says what forbids it.
    ///
    /// A request larger than the limit takes all of it, so that it is not refused for ever.
    pub(super) fn admit(self: &Rc<Self>, bytes: Demand) -> Result<InFlight, Refusal> {
        self.check_requests()?;
        let (memory, bytes) = self.memory_for(bytes);
        let memory = memory.try_acquire(bytes).ok_or(Refusal::Memory)?;
        Ok(self.let_in(memory))
    }

    /// As [`ShardLimits::admit`]; `None` where something forbids it, which is then not counted: the request is offered again.
    #[inline]
    pub(super) fn admit_now(self: &Rc<Self>, bytes: Demand) -> Option<InFlight> {
        let requests = usize::try_from(self.serving.get()).unwrap_or(0);
        if requests >= self.requests_max {
            return None;
        }
        let (memory, bytes) = self.memory_for(bytes);
        memory.try_acquire(bytes).map(|memory| self.let_in(memory))
    }

    /// As [`ShardLimits::admit`], for a request whose memory is set aside already.
    pub(super) fn admit_with(self: &Rc<Self>, memory: Permit) -> Result<InFlight, Refusal> {
        self.check_requests()?;
        Ok(self.let_in(memory))
    }

    /// Waits in line for memory of `bytes`. `None` where the line is full.
    pub(super) async fn wait_for_memory(&self, bytes: Demand) -> Option<Permit> {
        let (memory, bytes) = self.memory_for(bytes);
        if let Some(permit) = memory.try_acquire(bytes) {
            return Some(permit);
        }
        self.blocked.inc();
        let _blocked = Counted::new(&self.blocked_now);
        memory.acquire(bytes).await.ok()
    }

    /// The pool that a request takes its memory from, and how much; a request that is larger than the limit takes all of it.
    #[inline]
    fn memory_for(&self, demand: Demand) -> (&Semaphore, usize) {
        if demand.bytes <= SHORT_BYTES {
            return (&self.short, demand.bytes.min(self.short_max));
        }
        (&self.long, self.countable(demand))
    }

    /// Whether memory that was set aside is enough for a request.
    pub(super) fn covers(&self, memory: &Permit, demand: Demand) -> bool {
        memory.count() >= self.memory_for(demand).1
    }

    /// Whether somebody waits for memory of a long request.
    pub(super) fn is_memory_wanted(&self) -> bool {
        self.long.waiting() > 0
    }

    /// Bytes that a long request takes of the limit.
    pub(super) fn countable(&self, demand: Demand) -> usize {
        let copies = if demand.is_text { TEXT_COPIES } else { LONG_COPIES };
        demand.bytes.saturating_mul(copies).min(self.long_max)
    }

    /// Room for an answer that is likely to have `bytes`, where it is there at once; `Some(None)` where none is needed.
    pub(super) fn answer_now(&self, bytes: usize) -> Option<Option<Permit>> {
        if bytes <= LONG_ANSWER_BYTES {
            return Some(None);
        }
        self.expected.try_acquire(bytes.min(self.answers.room.bytes_max())).map(Some)
    }

    /// Waits in line for room for an answer that is likely to have `bytes`. `None` where the line is full.
    pub(super) async fn wait_for_answer(&self, bytes: usize) -> Option<Permit> {
        self.blocked.inc();
        let _blocked = Counted::new(&self.blocked_now);
        self.expected.acquire(bytes.min(self.answers.room.bytes_max())).await.ok()
    }

    /// The text of the error for a client where others do not read their answers.
    pub(super) fn answers_text(&self) -> String {
        format!(
            "No memory for an answer: {} bytes wait for clients that do not read them; ask again later",
            self.answers.room.taken()
        )
    }

    /// What Cassandra says to a client that wants to be told of overload.
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

/// A request counted in; dropping it counts it out.
pub(super) struct InFlight {
    _memory: Permit,
    _serving: Counted,
}

/// What a request counts against from its frame to its answer; dropping it counts it out.
pub(super) struct Held {
    _answer: Expected,
    _admitted: InFlight,
    /// Room for its answer, where that is likely to be long.
    room: Option<Permit>,
}

impl Held {
    pub(super) fn new(answer: Expected, admitted: InFlight, room: Option<Permit>) -> Self {
        Self { _answer: answer, _admitted: admitted, room }
    }

    /// The room of the answer, which it needs until it is with the client.
    pub(super) fn take_room(&mut self) -> Option<Permit> {
        self.room.take()
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
    /// Those that are expected, and those that are there.
    bytes: Cell<usize>,
    /// Memory for large answers, of which those that are there take a part.
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
    #[inline]
    pub(super) fn expect(this: &Rc<Self>, bytes: usize) -> Expected {
        this.bytes.set(this.bytes.get() + bytes);
        Expected { answers: Rc::clone(this), bytes }
    }

    /// Whether there is room for `more` bytes of an answer that is there.
    pub(super) fn have_room(&self, more: usize) -> bool {
        self.room.has(more)
    }

    /// Why there is none for an answer of so many bytes.
    pub(super) fn overloaded(&self, bytes: usize) -> QueryError {
        answer_room::overloaded(bytes, &self.room)
    }

    /// Bytes of the room that are taken.
    #[cfg(test)]
    pub(super) fn room_taken(&self) -> usize {
        self.room.taken()
    }

    /// Whether not even a small answer has room.
    pub(super) fn are_full(&self) -> bool {
        self.room.is_full()
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
            // One that waits in line keeps no short one out either.
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
