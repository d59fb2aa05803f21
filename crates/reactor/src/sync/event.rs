//! A condition to wait for: whoever changes it calls `notify_all`, whoever waits looks again.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::waiters::Waiters;

/// Wakes all who wait, each time it is notified.
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
    /// An event nobody waits for yet.
    pub fn new() -> Self {
        Self { waiters: RefCell::new(Waiters::new()), epoch: Cell::new(0) }
    }

    /// Wakes everyone who waits now.
    #[inline]
    pub fn notify_all(&self) {
        self.epoch.set(self.epoch.get() + 1);
        if !self.waiters.borrow().is_empty() {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        // Bounded by those in line now: a woken waiter that joins again is not woken twice.
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

    /// A place for [`Event::poll_notified`], for futures that own what the event is in and so cannot hold a [`Wait`].
    #[inline]
    pub fn place(&self) -> Place {
        Place { epoch: self.epoch.get(), ticket: None }
    }

    /// Ready at the first notification after `place` was made; until then who is polled waits in line at `place`, and has
    /// to [`Event::leave`] it where it does not go on waiting.
    #[inline]
    pub fn poll_notified(&self, place: &mut Place, context: &mut Context<'_>) -> Poll<()> {
        if self.epoch.get() != place.epoch {
            // Whoever notified has taken it out of the line.
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

    /// Leaves the line, where `place` is in it.
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

/// Who waits for an event, and since when. To drop it without [`Event::leave`] leaves a waker in line that wakes for nothing.
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
