//! A condition that one task waits for: an [`Event`](super::event::Event) without its line, in the sixteen
//! bytes of a waker.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Wakes its waiting task, each time it is notified.
///
/// One task waits at a time: a second one replaces the first, which is then not woken any more. A wait that
/// is dropped leaves its waker behind, which causes one needless wake-up.
#[derive(Default)]
pub struct Signal {
    waiter: Cell<Option<Waker>>,
}

impl Signal {
    /// A signal without a waiting task.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes the waiting task, so that it checks its condition again.
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

    /// Ready if `condition` holds; otherwise the polled task is woken by the next notification.
    #[inline]
    pub fn poll_until(&self, context: &Context<'_>, condition: impl FnOnce() -> bool) -> Poll<()> {
        if condition() {
            return Poll::Ready(());
        }
        self.waiter.set(Some(context.waker().clone()));
        Poll::Pending
    }
}
