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
    pub fn notify_all(&self) {
        self.epoch.set(self.epoch.get() + 1);
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
        Wait { event: self, epoch: self.epoch.get(), ticket: None }
    }

    /// Completes once `condition` holds; it is looked at now and after every notification.
    pub async fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        while !condition() {
            self.wait().await;
        }
    }
}

/// Future of [`Event::wait`].
pub struct Wait<'event> {
    event: &'event Event,
    epoch: u64,
    ticket: Option<u64>,
}

impl Future for Wait<'_> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.event.epoch.get() != self.epoch {
            // Whoever notified has taken it out of the line.
            self.ticket = None;
            return Poll::Ready(());
        }
        let mut waiters = self.event.waiters.borrow_mut();
        let in_line = self.ticket.is_some_and(|ticket| waiters.renew(ticket, context.waker()));
        if !in_line {
            let ticket = waiters.join(context.waker().clone(), ());
            drop(waiters);
            self.ticket = Some(ticket);
        }
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.event.waiters.borrow_mut().leave(ticket);
        }
    }
}
