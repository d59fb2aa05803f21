//! A condition that one task waits for: an [`Event`](super::event::Event) without its line, in the sixteen bytes of a waker.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Wakes the one who waits, each time it is notified.
///
/// One task waits at a time: a second one takes the place of the first, which then sleeps on. A wait that is dropped leaves
/// its waker behind, which wakes for nothing once.
#[derive(Default)]
pub struct Signal {
    waiter: Cell<Option<Waker>>,
}

impl Signal {
    /// A signal nobody waits for yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has whoever waits look again.
    #[inline]
    pub fn notify(&self) {
        if let Some(waiter) = self.waiter.take() {
            waiter.wake();
        }
    }

    /// Completes once `condition` holds; it is looked at now and after every notification.
    pub async fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        poll_fn(|context| self.poll_until(context, &mut condition)).await;
    }

    /// Ready where `condition` holds; else whoever is polled is woken by the next notification.
    #[inline]
    pub fn poll_until(&self, context: &Context<'_>, condition: impl FnOnce() -> bool) -> Poll<()> {
        if condition() {
            return Poll::Ready(());
        }
        self.waiter.set(Some(context.waker().clone()));
        Poll::Pending
    }
}
