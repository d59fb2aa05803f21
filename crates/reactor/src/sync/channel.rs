//! A bounded queue between tasks of one shard: many senders, one receiver.
//!
//! A slot is a permit of a semaphore, so senders wait in line and a dropped `send` gives its slot back.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use super::event::Event;
use super::semaphore::Semaphore;

struct State<T> {
    queue: RefCell<VecDeque<T>>,
    slots: Semaphore,
    arrived: Event,
    senders: Cell<usize>,
    receiver_alive: Cell<bool>,
}

/// The receiver is gone; the value comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why `try_send` did not; the value comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// No slot is free.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

/// A queue of `capacity` values.
///
/// # Panics
/// When `capacity` is zero.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a queue of no capacity");
    let state = Rc::new(State {
        queue: RefCell::new(VecDeque::new()),
        slots: Semaphore::new(capacity),
        arrived: Event::new(),
        senders: Cell::new(1),
        receiver_alive: Cell::new(true),
    });
    (Sender(state.clone()), Receiver(state))
}

/// The side that puts in.
pub struct Sender<T>(Rc<State<T>>);

impl<T> Sender<T> {
    /// Waits for a slot and puts the value in.
    ///
    /// # Errors
    /// [`SendError`] when the receiver is gone.
    pub async fn send(&self, value: T) -> Result<(), SendError<T>> {
        if !self.0.receiver_alive.get() {
            return Err(SendError(value));
        }
        match self.0.slots.acquire(1).await {
            Ok(slot) if self.0.receiver_alive.get() => {
                slot.forget();
                self.0.queue.borrow_mut().push_back(value);
                self.0.arrived.notify_all();
                Ok(())
            }
            _ => Err(SendError(value)),
        }
    }

    /// Puts the value in if a slot is free now.
    ///
    /// # Errors
    /// [`TrySendError`] with the value.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        if !self.0.receiver_alive.get() {
            return Err(TrySendError::Closed(value));
        }
        match self.0.slots.try_acquire(1) {
            Some(slot) => {
                slot.forget();
                self.0.queue.borrow_mut().push_back(value);
                self.0.arrived.notify_all();
                Ok(())
            }
            None => Err(TrySendError::Full(value)),
        }
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        !self.0.receiver_alive.get()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.set(self.0.senders.get() + 1);
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.senders.set(self.0.senders.get() - 1);
        if self.0.senders.get() == 0 {
            self.0.arrived.notify_all();
        }
    }
}

/// The side that takes out.
pub struct Receiver<T>(Rc<State<T>>);

impl<T> Receiver<T> {
    /// The next value; `None` once the queue is empty and every sender is gone.
    pub async fn recv(&mut self) -> Option<T> {
        loop {
            if let Some(value) = self.try_recv() {
                return Some(value);
            }
            if self.0.senders.get() == 0 {
                return None;
            }
            self.0.arrived.wait().await;
        }
    }

    /// The next value if there is one.
    pub fn try_recv(&mut self) -> Option<T> {
        let value = self.0.queue.borrow_mut().pop_front()?;
        self.0.slots.add(1);
        Some(value)
    }

    /// Values waiting.
    pub fn len(&self) -> usize {
        self.0.queue.borrow().len()
    }

    /// Whether none is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.receiver_alive.set(false);
        // Waiting senders check again, find no receiver, and take their values back.
        self.0.slots.add(self.0.slots.waiting());
        let values = self.0.queue.take();
        drop(values);
    }
}
