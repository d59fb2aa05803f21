//! A counted resource whose permits are given out in the order of the requests.
//!
//! A large request at the head of the line holds back smaller ones behind it, so that no request starves.
//! Invariant: permits given + permits available is constant, but for `add` and `forget`. Permits granted to a
//! waiter that is dropped before it takes them go back.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::waiters::Waiters;

/// The line is as long as it may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{waiting} are waiting already")]
pub struct TooManyWaiters {
    /// Length of the line.
    pub waiting: usize,
}

struct State {
    available: Cell<usize>,
    waiters: RefCell<Waiters<usize>>,
    /// Tickets below this one that have not stepped out have been granted.
    granted_below: Cell<u64>,
    waiters_max: usize,
}

/// A number of permits. Clones are the same semaphore.
#[derive(Clone)]
pub struct Semaphore(Rc<State>);

impl Semaphore {
    /// `permits` permits, and no bound on the line but the number of tasks.
    pub fn new(permits: usize) -> Self {
        Self::with_waiters_max(permits, usize::MAX)
    }

    /// `permits` permits; `acquire` fails when `waiters_max` are in line already.
    pub fn with_waiters_max(permits: usize, waiters_max: usize) -> Self {
        Self(Rc::new(State {
            available: Cell::new(permits),
            waiters: RefCell::new(Waiters::new()),
            granted_below: Cell::new(0),
            waiters_max,
        }))
    }

    /// Waits for `count` permits.
    ///
    /// # Errors
    /// [`TooManyWaiters`] at once when the line is full.
    pub fn acquire(&self, count: usize) -> Acquire {
        Acquire { state: self.0.clone(), count, ticket: None }
    }

    /// `count` permits if they are free and no request waits.
    pub fn try_acquire(&self, count: usize) -> Option<Permit> {
        self.0.try_take(count).then(|| Permit { state: self.0.clone(), count })
    }

    /// Permits that are free.
    pub fn available(&self) -> usize {
        self.0.available.get()
    }

    /// Length of the line.
    pub fn waiting(&self) -> usize {
        self.0.waiters.borrow().len()
    }

    /// Adds permits.
    pub fn add(&self, count: usize) {
        self.0.give(count);
    }
}

impl State {
    fn try_take(&self, count: usize) -> bool {
        let available = self.available.get();
        if available < count || !self.waiters.borrow().is_empty() {
            return false;
        }
        self.available.set(available - count);
        true
    }

    fn give(&self, count: usize) {
        self.available.set(self.available.get() + count);
        self.grant();
    }

    fn grant(&self) {
        loop {
            let mut waiters = self.waiters.borrow_mut();
            let Some(&wanted) = waiters.front() else { return };
            let available = self.available.get();
            if wanted > available {
                return;
            }
            self.available.set(available - wanted);
            let (ticket, waker) = waiters.pop_with_ticket().expect("the front was just seen");
            self.granted_below.set(ticket + 1);
            drop(waiters);
            waker.wake();
        }
    }
}

/// Future of [`Semaphore::acquire`].
pub struct Acquire {
    state: Rc<State>,
    count: usize,
    ticket: Option<u64>,
}

impl Future for Acquire {
    type Output = Result<Permit, TooManyWaiters>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match this.ticket {
            None => {
                if this.state.try_take(this.count) {
                    return Poll::Ready(Ok(Permit { state: this.state.clone(), count: this.count }));
                }
                let mut waiters = this.state.waiters.borrow_mut();
                if waiters.len() >= this.state.waiters_max {
                    return Poll::Ready(Err(TooManyWaiters { waiting: waiters.len() }));
                }
                this.ticket = Some(waiters.join(context.waker().clone(), this.count));
                Poll::Pending
            }
            Some(ticket) if ticket < this.state.granted_below.get() => {
                this.ticket = None;
                Poll::Ready(Ok(Permit { state: this.state.clone(), count: this.count }))
            }
            Some(ticket) => {
                this.state.waiters.borrow_mut().renew(ticket, context.waker());
                Poll::Pending
            }
        }
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        if ticket < self.state.granted_below.get() {
            self.state.give(self.count);
        } else {
            self.state.waiters.borrow_mut().leave(ticket);
            // The one behind may want less than the one that left.
            self.state.grant();
        }
    }
}

/// Permits held; dropping gives them back.
#[must_use = "dropping a permit gives it back"]
pub struct Permit {
    state: Rc<State>,
    count: usize,
}

impl Permit {
    /// How many.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Keeps the permits out of circulation.
    pub fn forget(mut self) {
        self.count = 0;
    }

    /// Gives back `count` of them early, at most all.
    pub fn release(&mut self, count: usize) {
        let count = count.min(self.count);
        self.count -= count;
        self.state.give(count);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.count > 0 {
            self.state.give(self.count);
        }
    }
}
