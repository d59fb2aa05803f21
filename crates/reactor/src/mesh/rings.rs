//! The rings between shards, the credits that keep them from filling, and the calls that wait for replies.
//!
//! Invariant: a call's slot is freed at its reply and not before, even if the caller is gone.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rtrb::{Consumer, Producer, RingBuffer};

use super::State;
use crate::shard::Shard;
use crate::sync::semaphore::{Acquire, Permit, Semaphore};
use crate::waker::Remote;

/// Most calls from one shard to one other that may be outstanding: fewer if there are many pairs.
fn calls_max(shards: usize) -> usize {
    (8192 / shards.max(1)).clamp(128, 1024)
}
/// Messages taken from one peer before other peers are served.
const BURST: usize = 256;

/// A message: a call on its way out, or the same packet on its way back.
pub(super) type Message = Box<dyn Packet>;

pub(super) trait Packet: Send {
    /// Runs at the callee's shard: starts the work.
    fn start(self: Box<Self>);
    fn is_reply(&self) -> bool;
    fn slot(&self) -> (u32, u32);
    fn set_slot(&mut self, slot: (u32, u32));
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

struct Peer {
    to: RefCell<Option<Producer<Message>>>,
    from: RefCell<Option<Consumer<Message>>>,
    remote: Option<Arc<Remote>>,
    credits: Semaphore,
}

enum CallState {
    Free {
        next: u32,
    },
    Waiting {
        waker: Option<Waker>,
        credit: Permit,
    },
    Abandoned {
        _credit: Permit,
    },
    Replied(Message),
    /// The callee's shard is gone: there will be no reply.
    Lost,
}

struct CallSlot {
    generation: u32,
    to: usize,
    state: CallState,
}

pub(super) const NONE: u32 = u32::MAX;

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

    /// A credit for a call to `to`, if one is free.
    pub(super) fn try_credit(&self, to: usize) -> Option<Permit> {
        self.peers[to].credits.try_acquire(1)
    }

    /// Waits in line for a credit for a call to `to`.
    pub(super) fn credit(&self, to: usize) -> Acquire {
        self.peers[to].credits.acquire(1)
    }

    /// Takes the messages that peers have sent; called after they have notified.
    pub(crate) fn receive(&self, shard: &Shard) {
        for (number, peer) in self.peers.iter().enumerate() {
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
            let (more, gone) = match &*peer.from.borrow() {
                // Checked in this order, so that messages sent before the peer left are not lost.
                Some(ring) => {
                    let gone = ring.is_abandoned();
                    (!ring.is_empty(), gone)
                }
                None => (false, false),
            };
            if more {
                shard.remote().notify();
            } else if gone {
                drop(peer.from.take());
                self.lose_calls(number);
            }
        }
    }

    /// Fails the calls that wait for the shard `to`, which is gone.
    fn lose_calls(&self, to: usize) {
        let count = self.calls.borrow().len();
        for slot in 0..count {
            let mut calls = self.calls.borrow_mut();
            if calls[slot].to != to {
                continue;
            }
            let state = std::mem::replace(&mut calls[slot].state, CallState::Lost);
            match state {
                CallState::Waiting { waker, credit } => {
                    drop(calls);
                    drop(credit);
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
                abandoned @ CallState::Abandoned { .. } => {
                    self.release(&mut calls, slot as u32);
                    drop(calls);
                    drop(abandoned);
                }
                other => calls[slot].state = other,
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
            CallState::Free { .. } | CallState::Replied(_) | CallState::Lost => {
                panic!("call {slot} was answered twice")
            }
        }
    }

    fn release(&self, calls: &mut [CallSlot], slot: u32) {
        let entry = &mut calls[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.state = CallState::Free { next: self.free.get() };
        self.free.set(slot);
    }

    fn reserve(&self, to: usize, credit: Permit, waker: Option<Waker>) -> (u32, u32) {
        let mut calls = self.calls.borrow_mut();
        let state = CallState::Waiting { waker, credit };
        let slot = self.free.get();
        if slot == NONE {
            calls.push(CallSlot { generation: 0, to, state });
            return (calls.len() as u32 - 1, 0);
        }
        let entry = &mut calls[slot as usize];
        if let CallState::Free { next } = entry.state {
            self.free.set(next);
        }
        entry.to = to;
        entry.state = state;
        (slot, entry.generation)
    }

    pub(super) fn send<R>(
        &self,
        to: usize,
        mut packet: Message,
        credit: Permit,
        waker: Option<Waker>,
    ) -> State<R> {
        let (slot, generation) = self.reserve(to, credit, waker);
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

    /// The reply, once it has arrived; `None` if there will be none.
    pub(super) fn poll_reply(
        &self,
        slot: u32,
        generation: u32,
        context: &Context<'_>,
    ) -> Poll<Option<Message>> {
        let mut calls = self.calls.borrow_mut();
        let entry = &mut calls[slot as usize];
        assert_eq!(entry.generation, generation, "a call was awaited after its end");
        match std::mem::replace(&mut entry.state, CallState::Free { next: NONE }) {
            CallState::Replied(message) => {
                self.release(&mut calls, slot);
                Poll::Ready(Some(message))
            }
            CallState::Lost => {
                self.release(&mut calls, slot);
                Poll::Ready(None)
            }
            CallState::Waiting { credit, .. } => {
                entry.state = CallState::Waiting { waker: Some(context.waker().clone()), credit };
                Poll::Pending
            }
            CallState::Free { .. } | CallState::Abandoned { .. } => panic!("call {slot} has no caller"),
        }
    }

    pub(super) fn abandon(&self, slot: u32, generation: u32) {
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
    pub(super) fn push(&self, to: usize, message: Message) -> bool {
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

impl Drop for MeshEnd {
    fn drop(&mut self) {
        // Peers notice abandoned rings only when they check.
        for peer in &self.peers {
            drop(peer.to.take());
            drop(peer.from.take());
            if let Some(remote) = &peer.remote {
                remote.notify();
            }
        }
    }
}

/// The rings to and from a peer; none for the shard itself.
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
