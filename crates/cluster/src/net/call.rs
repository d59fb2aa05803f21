//! The opening end of a connection: requests go out, answers come back.
//!
//! Invariant: at most [`REQUESTS_MAX`] requests and [`BYTES_MAX`] bytes of them are outstanding; further
//! callers wait in line until their deadline. A caller that gives up leaves its place at once, and the other
//! end is told with CANCEL. Each request that was sent gets an answer, a fault, or the reason why the
//! connection ended.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use reactor::net::Stream;
use reactor::{Deadline, Instant, Permit, Semaphore, Signal};
use wire::node::fault::Fault;
use wire::node::frame::{FrameFlags, FrameHeader, Verb, WorkGroup};
use wire::node::hello::Class;

use super::door::Process;
use super::error::{NetError, PeerName};
use super::metrics::PeerMetrics;
use super::pipe::{BODY_BYTES_MAX, Encoder, Ended, FrameReader, Pipe};

/// Requests of a connection that may be outstanding.
pub(super) const REQUESTS_MAX: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 10;
/// Bytes of requests that may be outstanding; a longer request goes alone.
pub(super) const BYTES_MAX: usize = 4 << 20;
/// Callers that may wait for a place.
const WAITING_MAX: usize = 1 << 14;
/// Bytes of an answer in parts that are kept for a caller that does not take them.
const UNTAKEN_BYTES_MAX: usize = 4 << 20;

/// What a caller asks.
pub(super) struct Question {
    pub(super) verb: Verb,
    pub(super) group: WorkGroup,
    /// The shard that serves it, where that is not the connection's.
    pub(super) for_shard: Option<u16>,
    pub(super) deadline: Deadline,
    pub(super) body: Vec<u8>,
}

/// The answer to one request, as far as it has come.
#[derive(Default)]
struct Pending {
    parts: RefCell<VecDeque<Vec<u8>>>,
    untaken: Cell<usize>,
    end: RefCell<Option<Result<(), NetError>>>,
    signal: Signal,
}

impl Pending {
    fn end(&self, result: Result<(), NetError>) {
        self.end.borrow_mut().get_or_insert(result);
        self.signal.notify();
    }
}

/// Requests that wait for answers. A stream's number is a slot and how often the slot was used, so that a
/// late answer is not taken for another's.
#[derive(Default)]
struct Slots {
    slots: Vec<(u32, Option<Rc<Pending>>)>,
    free: Vec<u32>,
}

impl Slots {
    fn insert(&mut self, pending: Rc<Pending>) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        assert!((slot as usize) < REQUESTS_MAX, "a place was given for slot {slot}");
        let (uses, place) = &mut self.slots[slot as usize];
        assert!(place.is_none(), "slot {slot} is taken");
        *uses = (*uses + 1) & (u32::MAX >> SLOT_BITS);
        *place = Some(pending);
        *uses << SLOT_BITS | slot
    }

    fn get(&self, stream: u32) -> Option<&Rc<Pending>> {
        let (uses, place) = self.slots.get(stream as usize & (REQUESTS_MAX - 1))?;
        place.as_ref().filter(|_| *uses == stream >> SLOT_BITS)
    }

    fn remove(&mut self, stream: u32) -> Option<Rc<Pending>> {
        self.get(stream)?;
        let slot = stream & (REQUESTS_MAX as u32 - 1);
        self.free.push(slot);
        self.slots[slot as usize].1.take()
    }

    fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn drain(&mut self) -> Vec<Rc<Pending>> {
        self.free = (0..self.slots.len() as u32).collect();
        self.slots.iter_mut().filter_map(|(_, place)| place.take()).collect()
    }
}

/// The opening end of one connection.
pub(super) struct Caller {
    pub(super) peer: PeerName,
    pub(super) class: Class,
    /// The process at the other end.
    pub(super) process: Process,
    pipe: Pipe,
    encoder: Encoder,
    slots: RefCell<Slots>,
    places: Semaphore,
    bytes: Semaphore,
    metrics: Rc<PeerMetrics>,
    opened: Instant,
    last_used: Cell<Instant>,
}

impl Caller {
    pub(super) fn new(
        (peer, class, process): (PeerName, Class, Process),
        stream: Rc<Stream>,
        encoder: Encoder,
        metrics: Rc<PeerMetrics>,
    ) -> Rc<Self> {
        let now = reactor::now();
        Rc::new(Self {
            peer,
            class,
            process,
            pipe: Pipe::new(stream, Rc::clone(&metrics)),
            encoder,
            slots: RefCell::default(),
            places: Semaphore::with_waiters_max(REQUESTS_MAX, WAITING_MAX),
            bytes: Semaphore::with_waiters_max(BYTES_MAX, WAITING_MAX),
            metrics,
            opened: now,
            last_used: Cell::new(now),
        })
    }

    /// When it was last used, if nothing is outstanding on it.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.slots.borrow().outstanding() == 0 && self.places.waiting() == 0;
        is_idle.then(|| self.last_used.get())
    }

    /// When it was opened.
    pub(super) fn opened(&self) -> Instant {
        self.opened
    }

    pub(super) fn has_ended(&self) -> bool {
        self.pipe.has_ended()
    }

    pub(super) fn end(&self, why: Ended) {
        self.pipe.end(why);
    }

    /// Why it has ended, for people.
    pub(super) fn why_ended(&self) -> String {
        self.pipe.ended().map_or_else(String::new, |why| why.to_string())
    }

    /// Moves bytes in both directions until the connection ends; everything outstanding ends with it.
    pub(super) async fn run(self: Rc<Self>, mut reader: FrameReader) {
        let sender = {
            let caller = Rc::clone(&self);
            let group = super::verbs::carrier(self.class);
            reactor::spawn(group, async move { caller.pipe.send_on().await })
        };
        let why = self.receive(&mut reader).await;
        self.pipe.end(why);
        // A panic of the sender has been logged and counted.
        let _sent = sender.await;
        let reason = self.why_ended();
        let left = self.slots.borrow_mut().drain();
        for pending in left {
            pending.end(Err(NetError::Lost { peer: self.peer, reason: reason.clone() }));
        }
    }

    /// Takes answers until there are no more.
    async fn receive(&self, reader: &mut FrameReader) -> Ended {
        loop {
            loop {
                match reader.cut() {
                    Ok(Some((header, body))) => {
                        if let Err(why) = self.answered(&header, body) {
                            return why;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return error.into(),
                }
            }
            reactor::maybe_yield().await;
            if let Err(why) = reader.fill().await {
                return why;
            }
        }
    }

    /// Hands a frame to the caller that waits for it.
    fn answered(&self, header: &FrameHeader, body: Vec<u8>) -> Result<(), Ended> {
        let flags = header.flags;
        if !flags.has(FrameFlags::REPLY) {
            return Err(Ended::Protocol("a request came over a connection that it did not open"));
        }
        if header.version != self.encoder.version {
            return Err(Ended::Protocol("a frame is of another version than was agreed on"));
        }
        let pending = match self.slots.borrow().get(header.stream) {
            Some(pending) => Rc::clone(pending),
            // Its caller has given up.
            None => return Ok(()),
        };
        if flags.has(FrameFlags::ERROR) {
            let fault = Fault::decode(&body)?;
            pending.end(Err(NetError::Fault { peer: self.peer, fault }));
        } else {
            let untaken = pending.untaken.get() + body.len();
            let is_last = !flags.has(FrameFlags::MORE_FOLLOWS);
            if untaken > UNTAKEN_BYTES_MAX && !(is_last && pending.parts.borrow().is_empty()) {
                pending.end(Err(NetError::Flooded { peer: self.peer, limit: UNTAKEN_BYTES_MAX }));
                self.cancel(header.stream, header.verb, header.group);
                self.slots.borrow_mut().remove(header.stream);
                return Ok(());
            }
            pending.untaken.set(untaken);
            pending.parts.borrow_mut().push_back(body);
            if !is_last {
                pending.signal.notify();
                return Ok(());
            }
            pending.end(Ok(()));
        }
        self.slots.borrow_mut().remove(header.stream);
        Ok(())
    }

    fn cancel(&self, stream: u32, verb: Verb, group: WorkGroup) {
        let flags = FrameFlags::CANCEL.with(FrameFlags::ONE_WAY);
        let header = FrameHeader { verb, flags, group, version: self.encoder.version, stream, left_ms: 0 };
        self.pipe.append(header, None, &[]);
    }

    fn timed_out(&self, sent: bool) -> NetError {
        NetError::TimedOut { peer: self.peer, sent }
    }

    /// A place on the connection, waited for until the deadline.
    async fn place(&self, question: &Question) -> Result<[Permit; 2], NetError> {
        let bytes = question.body.len().min(BYTES_MAX);
        let too_many = |waiting: usize| NetError::TooManyWaiting { peer: self.peer, waiting };
        if let Some(place) = self.places.try_acquire(1)
            && let Some(bytes) = self.bytes.try_acquire(bytes)
        {
            return Ok([place, bytes]);
        }
        self.metrics.waiting.add(1);
        let both = reactor::timeout(question.deadline, async {
            let place = self.places.acquire(1).await?;
            Ok([place, self.bytes.acquire(bytes).await?])
        })
        .await;
        self.metrics.waiting.add(-1);
        match both {
            Ok(Ok(both)) => Ok(both),
            Ok(Err(reactor::TooManyWaiters { waiting })) => Err(too_many(waiting)),
            Err(_) => Err(self.timed_out(false)),
        }
    }

    fn ask(&self, question: &Question, flags: FrameFlags, stream: u32) {
        self.last_used.set(reactor::now());
        self.metrics.requests.inc();
        let left = question.deadline.remaining().as_millis();
        let flags = if question.for_shard.is_some() { flags.with(FrameFlags::FOR_SHARD) } else { flags };
        let header = FrameHeader {
            verb: question.verb,
            flags,
            group: question.group,
            version: self.encoder.version,
            stream,
            left_ms: u32::try_from(left).unwrap_or(u32::MAX).max(1),
        };
        let shard = question.for_shard.map(u16::to_le_bytes);
        let shard = shard.as_ref().map_or(&[][..], |shard| &shard[..]);
        self.encoder.with(|compressor| self.pipe.append(header, compressor, &[shard, &question.body]));
    }

    fn check(&self, question: &Question) -> Result<(), NetError> {
        let bytes = question.body.len();
        if bytes > BODY_BYTES_MAX - size_of::<u16>() {
            return Err(NetError::TooLong { bytes, limit: BODY_BYTES_MAX - size_of::<u16>() });
        }
        if self.pipe.has_ended() {
            let reason = self.why_ended();
            return Err(NetError::Unreachable { peer: self.peer, reason, is_refused: false });
        }
        if question.deadline.is_past() {
            return Err(self.timed_out(false));
        }
        Ok(())
    }

    /// Sends a request; the answer is taken from the result.
    pub(super) async fn call(self: &Rc<Self>, question: Question) -> Result<Answers, NetError> {
        let places = self.place(&question).await?;
        self.check(&question)?;
        let pending = Rc::new(Pending::default());
        let stream = self.slots.borrow_mut().insert(Rc::clone(&pending));
        self.ask(&question, FrameFlags::NONE, stream);
        let Question { verb, group, deadline, .. } = question;
        let sent = Some(self.last_used.get()).filter(|_| self.class == Class::Statement);
        let caller = Rc::clone(self);
        Ok(Answers { caller, pending, stream, verb, group, deadline, sent, _places: places })
    }

    /// Sends a message that has no answer; waits for room for it only.
    pub(super) async fn send(&self, question: Question) -> Result<(), NetError> {
        while self.pipe.unsent() > BYTES_MAX && !self.pipe.has_ended() {
            let drained = self.pipe.drained.wait();
            reactor::timeout(question.deadline, drained).await.map_err(|_| self.timed_out(false))?;
        }
        self.check(&question)?;
        self.ask(&question, FrameFlags::ONE_WAY, 0);
        Ok(())
    }
}

/// The answer to a request, in parts. Dropping it before its end tells the other node to stop.
pub struct Answers {
    caller: Rc<Caller>,
    pending: Rc<Pending>,
    stream: u32,
    verb: Verb,
    group: WorkGroup,
    deadline: Deadline,
    /// When it was sent, until a part of the answer has come; `None` if its time is not measured.
    sent: Option<Instant>,
    /// The places of the request, until it is answered or given up.
    _places: [Permit; 2],
}

impl Answers {
    /// The next part; `None` behind the last one.
    ///
    /// # Errors
    /// [`NetError`] when there is no answer, or no more of it, within the time of the request.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, NetError> {
        let pending = &self.pending;
        let news = pending
            .signal
            .wait_until(|| !pending.parts.borrow().is_empty() || pending.end.borrow().is_some());
        if reactor::timeout(self.deadline, news).await.is_err() {
            self.caller.metrics.errors.inc();
            return Err(self.caller.timed_out(true));
        }
        if let Some(part) = pending.parts.borrow_mut().pop_front() {
            pending.untaken.set(pending.untaken.get() - part.len());
            if let Some(sent) = self.sent.take() {
                self.caller.metrics.latency_us.record(sent.elapsed().as_micros() as u64);
            }
            return Ok(Some(part));
        }
        match &*pending.end.borrow() {
            Some(Err(error)) => {
                self.caller.metrics.errors.inc();
                Err(error.clone())
            }
            _ => Ok(None),
        }
    }

    /// All of an answer that comes in one part.
    ///
    /// # Errors
    /// As [`Answers::next`]; and if there are more parts, or none.
    pub async fn whole(mut self) -> Result<Vec<u8>, NetError> {
        let Some(mut whole) = self.next().await? else { return Ok(Vec::new()) };
        while let Some(part) = self.next().await? {
            if whole.len() + part.len() > BODY_BYTES_MAX {
                return Err(NetError::Flooded { peer: self.caller.peer, limit: BODY_BYTES_MAX });
            }
            whole.extend_from_slice(&part);
        }
        Ok(whole)
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if self.pending.end.borrow().is_some() {
            return;
        }
        let removed = self.caller.slots.borrow_mut().remove(self.stream);
        if removed.is_some() {
            self.caller.cancel(self.stream, self.verb, self.group);
        }
    }
}
