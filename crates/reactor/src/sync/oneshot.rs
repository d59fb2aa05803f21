//! One value, once, from one task to another.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The sender was dropped without sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other side went away without an answer")]
pub struct Canceled;

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
    sender_alive: bool,
    receiver_alive: bool,
}

/// Makes a connected pair.
pub fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let state =
        Rc::new(RefCell::new(State { value: None, waker: None, sender_alive: true, receiver_alive: true }));
    (Sender(state.clone()), Receiver(state))
}

/// The side that promises a value.
pub struct Sender<T>(Rc<RefCell<State<T>>>);

impl<T> Sender<T> {
    /// Sends the value.
    ///
    /// # Errors
    /// The value itself if the receiver is gone.
    pub fn send(self, value: T) -> Result<(), T> {
        let mut state = self.0.borrow_mut();
        if !state.receiver_alive {
            return Err(value);
        }
        state.value = Some(value);
        Ok(())
    }

    /// Whether the receiver is gone.
    pub fn is_abandoned(&self) -> bool {
        !self.0.borrow().receiver_alive
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.0.borrow_mut();
            state.sender_alive = false;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The side that waits: a future of the value.
pub struct Receiver<T>(Rc<RefCell<State<T>>>);

impl<T> Receiver<T> {
    /// The value if it is there already.
    pub fn try_recv(&mut self) -> Option<T> {
        self.0.borrow_mut().value.take()
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, Canceled>;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.borrow_mut();
        if let Some(value) = state.value.take() {
            return Poll::Ready(Ok(value));
        }
        if !state.sender_alive {
            return Poll::Ready(Err(Canceled));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let value = {
            let mut state = self.0.borrow_mut();
            state.receiver_alive = false;
            state.value.take()
        };
        drop(value);
    }
}
