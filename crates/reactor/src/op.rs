//! Operations in flight: their waiting futures, and operations whose futures are gone.
//!
//! A slot is taken at the first poll of an [`OpFuture`] and freed at the operation's own completion, never
//! before. Dropping the future turns the slot into an orphan and asks the driver to cancel; buffer and handle
//! stay with the driver until the kernel is done, and are dropped then. Invariant: a slot's number is not
//! reused while the driver may still complete it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::driver::{Completion, Finished, Op, OpId, Output};
use crate::shard;

/// Operations a shard may have in flight; beyond it `submit` fails with `ResourceBusy`.
pub(crate) const OPS_MAX: usize = 1 << 20;

enum State {
    Free { next: u32 },
    Waiting(Waker),
    Done(Op, io::Result<Output>),
    Orphan,
}

struct Slot {
    generation: u32,
    state: State,
}

const NONE: u32 = u32::MAX;

pub(crate) struct OpTable {
    slots: Vec<Slot>,
    free: u32,
    in_flight: usize,
    orphans: usize,
}

impl OpTable {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: NONE, in_flight: 0, orphans: 0 }
    }

    /// Operations whose completion has not arrived, including orphans.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn orphans(&self) -> usize {
        self.orphans
    }

    fn reserve(&mut self, waker: Waker) -> Option<OpId> {
        let slot = if self.free == NONE {
            if self.slots.len() >= OPS_MAX {
                return None;
            }
            self.slots.push(Slot { generation: 0, state: State::Free { next: NONE } });
            self.slots.len() as u32 - 1
        } else {
            self.free
        };
        let entry = &mut self.slots[slot as usize];
        if let State::Free { next } = entry.state {
            self.free = next;
        }
        entry.state = State::Waiting(waker);
        self.in_flight += 1;
        Some(OpId::new(slot, entry.generation))
    }

    fn release(&mut self, id: OpId) {
        let entry = &mut self.slots[id.slot()];
        entry.generation = (entry.generation + 1) & OpId::GENERATION_MASK;
        entry.state = State::Free { next: self.free };
        self.free = id.slot() as u32;
    }

    /// Files a completion. A leftover (an orphan's operation) is returned to be dropped outside of borrows.
    pub(crate) fn complete(&mut self, completion: Completion) -> (Option<Waker>, Option<Completion>) {
        let Completion { id, op, result } = completion;
        let entry = &mut self.slots[id.slot()];
        assert_eq!(entry.generation, id.generation(), "a completion for an operation that is over");
        self.in_flight -= 1;
        match std::mem::replace(&mut entry.state, State::Orphan) {
            State::Waiting(waker) => {
                entry.state = State::Done(op, result);
                (Some(waker), None)
            }
            State::Orphan => {
                self.orphans -= 1;
                self.release(id);
                (None, Some(Completion { id, op, result }))
            }
            State::Free { .. } | State::Done(..) => panic!("operation {id:?} completed twice"),
        }
    }
}

/// One operation as a future; returns the operation, with its buffers, beside the result.
pub(crate) struct OpFuture {
    state: FutureState,
}

enum FutureState {
    New(Option<Op>),
    InFlight { id: OpId, cancellable: bool },
    Over,
}

/// The outcome of a submission.
#[allow(clippy::large_enum_variant)] // lives on the stack for a moment; boxing would allocate per operation
enum Started {
    InFlight(OpId),
    Over(Finished),
}

impl OpFuture {
    pub(crate) fn new(op: Op) -> Self {
        Self { state: FutureState::New(Some(op)) }
    }
}

impl Future for OpFuture {
    type Output = (Op, io::Result<Output>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            FutureState::New(op) => {
                let op = op.take().expect("an operation is submitted once");
                let cancellable = op.is_cancellable();
                let started = shard::with(|shard| {
                    let Some(id) = shard.ops.borrow_mut().reserve(context.waker().clone()) else {
                        return Started::Over((op, Err(io::Error::from(io::ErrorKind::ResourceBusy))));
                    };
                    let group = shard.sched.current.get();
                    match shard.submit(id, op, group) {
                        None => Started::InFlight(id),
                        Some(over) => {
                            let mut ops = shard.ops.borrow_mut();
                            ops.in_flight -= 1;
                            ops.release(id);
                            Started::Over(over)
                        }
                    }
                });
                match started {
                    Started::InFlight(id) => {
                        self.state = FutureState::InFlight { id, cancellable };
                        Poll::Pending
                    }
                    Started::Over(over) => {
                        self.state = FutureState::Over;
                        Poll::Ready(over)
                    }
                }
            }
            FutureState::InFlight { id, .. } => {
                let id = *id;
                let over = shard::with(|shard| {
                    let mut ops = shard.ops.borrow_mut();
                    let entry = &mut ops.slots[id.slot()];
                    if let State::Waiting(waker) = &mut entry.state {
                        waker.clone_from(context.waker());
                        return None;
                    }
                    let State::Done(op, result) = std::mem::replace(&mut entry.state, State::Orphan) else {
                        panic!("operation {id:?} was awaited after its end")
                    };
                    ops.release(id);
                    Some((op, result))
                });
                match over {
                    None => Poll::Pending,
                    Some(over) => {
                        self.state = FutureState::Over;
                        Poll::Ready(over)
                    }
                }
            }
            FutureState::Over => panic!("an operation was awaited after its end"),
        }
    }
}

impl Drop for OpFuture {
    fn drop(&mut self) {
        let FutureState::InFlight { id, cancellable } = self.state else { return };
        // Without a shard the whole table is being dropped, driver and buffers with it.
        let left_over = shard::try_with(|shard| {
            let mut ops = shard.ops.borrow_mut();
            let entry = &mut ops.slots[id.slot()];
            if entry.generation != id.generation() {
                return None;
            }
            match std::mem::replace(&mut entry.state, State::Orphan) {
                State::Done(op, result) => {
                    ops.release(id);
                    return Some((op, result));
                }
                _ => ops.orphans += 1,
            }
            drop(ops);
            if cancellable {
                shard.cancel(id);
            }
            None
        });
        drop(left_over);
    }
}
