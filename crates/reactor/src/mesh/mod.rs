//! Calls between shards: a closure is sent to another shard, and its result comes back.
//!
//! Each ordered pair of shards has one bounded single-producer ring. A caller holds a credit of its pair from
//! the call to the reply. A ring has room for all calls of one side and all replies of the other, so a push
//! never finds a ring full: callers wait in line for a credit. A call is one packet on the heap that carries
//! the closure there and the result back; a shard frees only packets that it has received.
//! Invariant: every call sent gets exactly one reply, also when the callee panics or its shard stops.

mod rings;

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

pub(crate) use rings::{MeshEnd, MeshSeed};

use crate::sched::Group;
use crate::shard;
use crate::sync::semaphore::Acquire;
use crate::task::JoinHandle;
use rings::{Message, NONE, Packet};

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
        match current.mesh.try_credit(shard) {
            Some(credit) => current.mesh.send(shard, packet, credit, None),
            None => State::Credit(packet, current.mesh.credit(shard)),
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
                    Poll::Pending => {
                        this.state = State::Sent { slot, generation };
                        return Poll::Pending;
                    }
                    Poll::Ready(Some(message)) => (this.take)(shard, message),
                    Poll::Ready(None) => Err(MeshError::Stopped { shard }),
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
