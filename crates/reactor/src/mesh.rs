//! Calls between shards: a closure goes there, its result comes back.
//!
//! Each ordered pair of shards has one bounded single-producer ring. A caller holds a credit of its pair from the
//! call to the reply, and a ring has room for all calls of one side and all replies of the other, so a push
//! never finds a ring full: callers wait in line before that. A call is one heap packet that carries the closure
//! there and the result back; a shard frees only what it has received.
//! Invariant: every call sent gets exactly one reply, also when the callee panics or its shard stops.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rtrb::{Consumer, Producer, RingBuffer};

use crate::sched::Group;
use crate::shard::{self, Shard};
use crate::sync::semaphore::{Acquire, Permit, Semaphore};
use crate::task::JoinHandle;
use crate::waker::Remote;

/// Why a call to another shard has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MeshError {
    /// The callee panicked; its shard has logged how.
    #[error("the call panicked on shard {shard}")]
    Panicked {
        /// Where.
        shard: usize,
    },
    /// The other shard is stopping or has stopped.
    #[error("shard {shard} has stopped")]
    Stopped {
        /// Which.
        shard: usize,
    },
    /// There is no such shard.
    #[error("there is no shard {shard}")]
    NoSuchShard {
        /// The number asked for.
        shard: usize,
    },
}

/// Calls one shard may have outstanding with one other: fewer where there are many pairs.
pub(crate) fn calls_max(shards: usize) -> usize {
    (8192 / shards.max(1)).clamp(128, 1024)
}
/// Messages taken from one peer before others are looked at.
const BURST: usize = 256;

/// What travels: a call on its way out, or the same packet on its way back.
type Message = Box<dyn Packet>;

trait Packet: Send {
    /// Runs at the callee's shard: starts the work.
    fn start(self: Box<Self>);
    fn is_reply(&self) -> bool;
    fn slot(&self) -> (u32, u32);
    fn set_slot(&mut self, slot: (u32, u32));
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

enum Outcome<R> {
    Pending,
    Done(R),
    Panicked,
    Stopped,
}

struct CallPacket<F, R> {
    work: Option<F>,
    outcome: Outcome<R>,
    caller: usize,
    group: Group,
    slot: (u32, u32),
}

impl<F, Fut, R> Packet for CallPacket<F, R>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = R> + 'static,
    R: Send + 'static,
{
    fn start(mut self: Box<Self>) {
        let work = self.work.take().expect("a call arrives once");
        let group = self.group;
        let mut reply = Reply(Some(self));
        let task = shard::with(|shard| {
            shard.spawn(group, async move {
                let result = work().await;
                if let Some(packet) = reply.0.as_mut() {
                    packet.outcome = Outcome::Done(result);
                }
                drop(reply);
            })
        });
        drop(task);
    }

    fn is_reply(&self) -> bool {
        !matches!(self.outcome, Outcome::Pending)
    }

    fn slot(&self) -> (u32, u32) {
        self.slot
    }

    fn set_slot(&mut self, slot: (u32, u32)) {
        self.slot = slot;
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// Sends the packet home when dropped: after success, in a panic's unwinding, or with the callee's shard.
struct Reply<F, Fut, R>(Option<Box<CallPacket<F, R>>>)
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = R> + 'static,
    R: Send + 'static;

impl<F, Fut, R> Drop for Reply<F, Fut, R>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = R> + 'static,
    R: Send + 'static,
{
    fn drop(&mut self) {
        let Some(mut packet) = self.0.take() else { return };
        if matches!(packet.outcome, Outcome::Pending) {
            packet.outcome = if std::thread::panicking() { Outcome::Panicked } else { Outcome::Stopped };
        }
        let caller = packet.caller;
        shard::try_with(|shard| shard.mesh.push(caller, packet));
    }
}

struct Peer {
    to: RefCell<Option<Producer<Message>>>,
    from: RefCell<Option<Consumer<Message>>>,
    remote: Option<Arc<Remote>>,
    credits: Semaphore,
}

enum CallState {
    Free { next: u32 },
    Waiting { waker: Option<Waker>, credit: Permit },
    Abandoned { _credit: Permit },
    Replied(Message),
}

struct CallSlot {
    generation: u32,
    state: CallState,
}

const NONE: u32 = u32::MAX;

/// One shard's ends of all rings.
pub(crate) struct MeshEnd {
    peers: Vec<Peer>,
    calls: RefCell<Vec<CallSlot>>,
    free: Cell<u32>,
}

impl MeshEnd {
    /// The ends of a full mesh of `count` shards, by shard.
    pub(crate) fn full(remotes: &[Arc<Remote>]) -> Vec<MeshSeed> {
        let count = remotes.len();
        let capacity = 2 * calls_max(count);
        let mut seeds: Vec<MeshSeed> = (0..count)
            .map(|_| MeshSeed {
                peers: (0..count).map(|_| (None, None)).collect(),
                remotes: remotes.to_vec(),
            })
            .collect();
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                let (producer, consumer) = RingBuffer::new(capacity);
                seeds[from].peers[to].0 = Some(producer);
                seeds[to].peers[from].1 = Some(consumer);
            }
        }
        seeds
    }

    /// Takes what peers have sent.
    pub(crate) fn receive(&self, shard: &Shard) {
        for peer in &self.peers {
            for _ in 0..BURST {
                let message = match peer.from.borrow_mut().as_mut().map(Consumer::pop) {
                    Some(Ok(message)) => message,
                    _ => break,
                };
                if message.is_reply() {
                    self.replied(message);
                } else {
                    message.start();
                }
            }
            if peer.from.borrow().as_ref().is_some_and(|ring| !ring.is_empty()) {
                shard.remote().notify();
            }
        }
    }

    fn replied(&self, message: Message) {
        let (slot, generation) = message.slot();
        let mut calls = self.calls.borrow_mut();
        let entry = &mut calls[slot as usize];
        assert_eq!(entry.generation, generation, "a reply to a call that is over");
        let state = std::mem::replace(&mut entry.state, CallState::Free { next: NONE });
        match state {
            CallState::Waiting { waker, credit } => {
                entry.state = CallState::Replied(message);
                drop(calls);
                drop(credit);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            abandoned @ CallState::Abandoned { .. } => {
                self.release(&mut calls, slot);
                drop(calls);
                drop(abandoned);
                drop(message);
            }
            CallState::Free { .. } | CallState::Replied(_) => panic!("call {slot} was answered twice"),
        }
    }

    fn release(&self, calls: &mut [CallSlot], slot: u32) {
        let entry = &mut calls[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.state = CallState::Free { next: self.free.get() };
        self.free.set(slot);
    }

    fn reserve(&self, credit: Permit, waker: Option<Waker>) -> (u32, u32) {
        let mut calls = self.calls.borrow_mut();
        let state = CallState::Waiting { waker, credit };
        let slot = self.free.get();
        if slot == NONE {
            calls.push(CallSlot { generation: 0, state });
            return (calls.len() as u32 - 1, 0);
        }
        let entry = &mut calls[slot as usize];
        if let CallState::Free { next } = entry.state {
            self.free.set(next);
        }
        entry.state = state;
        (slot, entry.generation)
    }

    fn send<R>(&self, to: usize, mut packet: Message, credit: Permit, waker: Option<Waker>) -> State<R> {
        let (slot, generation) = self.reserve(credit, waker);
        packet.set_slot((slot, generation));
        if !self.push(to, packet) {
            let state = {
                let mut calls = self.calls.borrow_mut();
                let state =
                    std::mem::replace(&mut calls[slot as usize].state, CallState::Free { next: NONE });
                self.release(&mut calls, slot);
                state
            };
            drop(state);
            return State::Stopped;
        }
        State::Sent { slot, generation }
    }

    fn poll_reply(&self, slot: u32, generation: u32, context: &Context<'_>) -> Option<Message> {
        let mut calls = self.calls.borrow_mut();
        let entry = &mut calls[slot as usize];
        assert_eq!(entry.generation, generation, "a call was awaited after its end");
        match std::mem::replace(&mut entry.state, CallState::Free { next: NONE }) {
            CallState::Replied(message) => {
                self.release(&mut calls, slot);
                Some(message)
            }
            CallState::Waiting { credit, .. } => {
                entry.state = CallState::Waiting { waker: Some(context.waker().clone()), credit };
                None
            }
            CallState::Free { .. } | CallState::Abandoned { .. } => panic!("call {slot} has no caller"),
        }
    }

    fn abandon(&self, slot: u32, generation: u32) {
        let left_over = {
            let mut calls = self.calls.borrow_mut();
            let entry = &mut calls[slot as usize];
            if entry.generation != generation {
                return;
            }
            match std::mem::replace(&mut entry.state, CallState::Free { next: NONE }) {
                CallState::Waiting { credit, .. } => {
                    entry.state = CallState::Abandoned { _credit: credit };
                    None
                }
                other => {
                    self.release(&mut calls, slot);
                    Some(other)
                }
            }
        };
        drop(left_over);
    }

    /// Sends a message; false when the peer is gone.
    fn push(&self, to: usize, message: Message) -> bool {
        let peer = &self.peers[to];
        let mut ring = peer.to.borrow_mut();
        let Some(ring) = ring.as_mut() else { return false };
        if ring.is_abandoned() {
            return false;
        }
        let pushed = ring.push(message).is_ok();
        assert!(pushed, "credits keep the ring to shard {to} from filling");
        if let Some(remote) = &peer.remote {
            remote.notify();
        }
        true
    }
}

/// The ring to a peer and the ring from it; none for the shard itself.
type RingEnds = (Option<Producer<Message>>, Option<Consumer<Message>>);

/// The ends of one shard while they travel to its thread.
pub(crate) struct MeshSeed {
    peers: Vec<RingEnds>,
    remotes: Vec<Arc<Remote>>,
}

impl MeshSeed {
    pub(crate) fn plant(self) -> MeshEnd {
        let credits = calls_max(self.remotes.len());
        let peers = self
            .peers
            .into_iter()
            .zip(self.remotes)
            .map(|((to, from), remote)| Peer {
                to: RefCell::new(to),
                from: RefCell::new(from),
                remote: Some(remote),
                credits: Semaphore::new(credits),
            })
            .collect();
        MeshEnd { peers, calls: RefCell::new(Vec::new()), free: Cell::new(NONE) }
    }
}

/// Runs `work` as a task of `group` on `shard`; the future completes with its result.
///
/// The call leaves at once unless 1024 (fewer with many shards) are outstanding to that shard already: then
/// when the future is polled and its turn has come. On the caller's own shard no queue is involved.
/// Dropping the future leaves a call that has left running; its result is dropped here.
///
/// # Errors
/// [`MeshError`] when the callee panicked, its shard is stopping, or there is no such shard.
pub fn call<F, Fut, R>(shard: usize, group: Group, work: F) -> CallFuture<R>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = R> + 'static,
    R: Send + 'static,
{
    let state = shard::with(|current| {
        if shard >= current.count {
            return State::NoSuchShard;
        }
        if shard == current.id {
            return State::Here(current.spawn(group, async move { work().await }));
        }
        let packet: Box<CallPacket<F, R>> = Box::new(CallPacket {
            work: Some(work),
            outcome: Outcome::Pending,
            caller: current.id,
            group,
            slot: (NONE, 0),
        });
        match current.mesh.peers[shard].credits.try_acquire(1) {
            Some(credit) => current.mesh.send(shard, packet, credit, None),
            None => State::Credit(packet, current.mesh.peers[shard].credits.acquire(1)),
        }
    });
    CallFuture { shard, state, take: take_outcome::<F, R> }
}

fn take_outcome<F, R>(shard: usize, message: Message) -> Result<R, MeshError>
where
    F: Send + 'static,
    R: Send + 'static,
{
    let packet =
        message.into_any().downcast::<CallPacket<F, R>>().expect("a reply is the packet of its call");
    match packet.outcome {
        Outcome::Done(result) => Ok(result),
        Outcome::Panicked => Err(MeshError::Panicked { shard }),
        Outcome::Stopped | Outcome::Pending => Err(MeshError::Stopped { shard }),
    }
}

enum State<R> {
    NoSuchShard,
    Here(JoinHandle<R>),
    Credit(Message, Acquire),
    Sent { slot: u32, generation: u32 },
    Stopped,
    Over,
}

/// Future of [`call`].
pub struct CallFuture<R> {
    shard: usize,
    state: State<R>,
    take: fn(usize, Message) -> Result<R, MeshError>,
}

impl<R> Unpin for CallFuture<R> {}

impl<R> Future for CallFuture<R> {
    type Output = Result<R, MeshError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let shard = this.shard;
        let result = match std::mem::replace(&mut this.state, State::Over) {
            State::NoSuchShard => Err(MeshError::NoSuchShard { shard }),
            State::Stopped => Err(MeshError::Stopped { shard }),
            State::Here(mut task) => match Pin::new(&mut task).poll(context) {
                Poll::Pending => {
                    this.state = State::Here(task);
                    return Poll::Pending;
                }
                Poll::Ready(result) => result.map_err(|_| MeshError::Panicked { shard }),
            },
            State::Credit(packet, mut credit) => match Pin::new(&mut credit).poll(context) {
                Poll::Pending => {
                    this.state = State::Credit(packet, credit);
                    return Poll::Pending;
                }
                Poll::Ready(Ok(credit)) => {
                    let waker = Some(context.waker().clone());
                    this.state = shard::with(|current| current.mesh.send(shard, packet, credit, waker));
                    if matches!(this.state, State::Stopped) {
                        return Poll::Ready(Err(MeshError::Stopped { shard }));
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Err(_)) => Err(MeshError::Stopped { shard }),
            },
            State::Sent { slot, generation } => {
                match shard::with(|current| current.mesh.poll_reply(slot, generation, context)) {
                    None => {
                        this.state = State::Sent { slot, generation };
                        return Poll::Pending;
                    }
                    Some(message) => (this.take)(shard, message),
                }
            }
            State::Over => panic!("a call was awaited after its end"),
        };
        Poll::Ready(result)
    }
}

impl<R> Drop for CallFuture<R> {
    fn drop(&mut self) {
        if let State::Sent { slot, generation } = self.state {
            shard::try_with(|current| current.mesh.abandon(slot, generation));
        }
    }
}
