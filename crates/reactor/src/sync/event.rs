//! A condition to wait for: code that changes it calls `notify_all`, and waiters check it again.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::waiters::Waiters;

/// Wakes all waiters, each time it is notified.
pub struct Event {
    waiters: RefCell<Waiters>,
    epoch: Cell<u64>,
}

impl Default for Event {
    fn default() -> Self {
        Self::new()
    }
}

impl Event {
    /// An event without waiters.
    pub fn new() -> Self {
        Self { waiters: RefCell::new(Waiters::new()), epoch: Cell::new(0) }
    }

    /// Wakes all present waiters.
    #[inline]
    pub fn notify_all(&self) {
        self.epoch.set(self.epoch.get() + 1);
        if !self.waiters.borrow().is_empty() {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        // Bounded by the waiters in the queue now: a woken waiter that joins again is not woken twice.
        let waiting = self.waiters.borrow().len();
        for _ in 0..waiting {
            let waker = self.waiters.borrow_mut().pop();
            match waker {
                Some(waker) => waker.wake(),
                None => break,
            }
        }
    }

    /// Completes at the first notification after this call.
    pub fn wait(&self) -> Wait<'_> {
        Wait { event: self, place: self.place() }
    }

    /// A place for [`Event::poll_notified`], for futures that own the event's owner and so cannot hold a
    /// [`Wait`].
    #[inline]
    pub fn place(&self) -> Place {
        Place { epoch: self.epoch.get(), ticket: None }
    }

    /// Ready at the first notification after `place` was made; until then the polled future waits in the
    /// queue at `place`, and has to [`Event::leave`] it if it stops waiting.
    #[inline]
    pub fn poll_notified(&self, place: &mut Place, context: &mut Context<'_>) -> Poll<()> {
        if self.epoch.get() != place.epoch {
            // The notification removed it from the queue.
            place.ticket = None;
            return Poll::Ready(());
        }
        let mut waiters = self.waiters.borrow_mut();
        let in_line = place.ticket.is_some_and(|ticket| waiters.renew(ticket, context.waker()));
        if !in_line {
            place.ticket = Some(waiters.join(context.waker().clone(), ()));
        }
        Poll::Pending
    }

    /// Leaves the queue, if `place` is in it.
    #[inline]
    pub fn leave(&self, place: &mut Place) {
        if let Some(ticket) = place.ticket.take() {
            self.waiters.borrow_mut().leave(ticket);
        }
    }

    /// Completes once `condition` holds; it is looked at now and after every notification.
    pub async fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        while !condition() {
            self.wait().await;
        }
    }
}

/// A waiter for an event, and the time since it waits. If it is dropped without [`Event::leave`], a waker
/// stays in the queue and is called for nothing.
#[derive(Debug)]
pub struct Place {
    epoch: u64,
    ticket: Option<u64>,
}

/// Future of [`Event::wait`].
pub struct Wait<'event> {
    event: &'event Event,
    place: Place,
}

impl Future for Wait<'_> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let event = self.event;
        event.poll_notified(&mut self.place, context)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.event.leave(&mut self.place);
    }
}
