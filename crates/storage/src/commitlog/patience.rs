//! Ends the waiting of writes whose deadline comes before their group is written.
//!
//! The disk nearly always answers before the deadline of a write, so writes have no timer of their own. One
//! task sleeps until the earliest deadline of all waiting writes and then wakes all of them; a write that
//! goes on waiting registers its deadline again. Invariant: while any write waits for a group until a
//! deadline, the task sleeps no longer than until that deadline.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use reactor::{Deadline, Event, Place};

use super::Commitlog;
use super::group::GroupState;
use crate::error::StorageError;

/// The earliest deadline of the waiting writes.
pub(super) struct Patience {
    until: Cell<Deadline>,
    changed: Event,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { until: Cell::new(Deadline::NEVER), changed: Event::new() }
    }

    /// Registers a write that waits until `deadline`.
    #[inline]
    fn expect(&self, deadline: Deadline) {
        if deadline < self.until.get() {
            self.until.set(deadline);
            self.changed.notify_all();
        }
    }

    /// Wakes the task so that it checks whether the log closes.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }
}

/// A write that waits for a group. It is polled in place, so that a write is one future and not five.
pub(super) struct Waiting {
    group: Rc<GroupState>,
    place: Option<Place>,
}

impl Waiting {
    pub(super) fn new(group: Rc<GroupState>) -> Self {
        Self { group, place: None }
    }

    /// Completes as [`GroupState::finished`].
    pub(super) async fn finished(&self) -> Result<(), StorageError> {
        self.group.finished().await
    }

    /// The group's outcome: `Ok` while it is not finished.
    ///
    /// # Errors
    /// Those of the write.
    pub(super) fn failure(&self) -> Result<(), StorageError> {
        self.group.outcome()
    }

    /// As [`Waiting::finished`], not longer than until `deadline`.
    ///
    /// # Errors
    /// Those of the write; [`StorageError::CommitlogTimedOut`] at the deadline: the entry may or may not be
    /// in the log.
    #[inline]
    pub(super) fn poll_until(
        &mut self,
        patience: &Patience,
        deadline: Deadline,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), StorageError>> {
        // Each turn follows a notification: the group has finished, or some deadline has come.
        while !self.group.is_finished() {
            let news = self.group.news();
            if let Some(place) = &mut self.place {
                ready!(news.poll_notified(place, context));
                self.place = None;
                continue;
            }
            if deadline.instant() <= reactor::coarse_now() {
                return Poll::Ready(Err(StorageError::CommitlogTimedOut));
            }
            patience.expect(deadline);
            self.place = Some(news.place());
        }
        // The notification of the group's end has removed this write from the event's queue.
        self.place = None;
        Poll::Ready(self.group.outcome())
    }
}

impl Drop for Waiting {
    #[inline]
    fn drop(&mut self) {
        if let Some(place) = &mut self.place {
            self.group.news().leave(place);
        }
    }
}

impl Commitlog {
    /// The task that sleeps until the earliest deadline. Without waiters it does not wake.
    pub(super) async fn watch_deadlines(&self) {
        let patience = &self.0.patience;
        while !self.0.closing.get() {
            let until = patience.until.get();
            if until == Deadline::NEVER {
                patience.changed.wait().await;
                continue;
            }
            if reactor::timeout(until, patience.changed.wait()).await.is_ok() {
                // An earlier deadline was registered, or the log closes.
                continue;
            }
            patience.until.set(Deadline::NEVER);
            let waiting: Vec<_> = {
                let state = self.0.state.borrow();
                let queued = state.groups.iter().map(|group| &group.state);
                queued.chain(&state.writing).map(Rc::clone).collect()
            };
            waiting.iter().for_each(|group| group.tell());
        }
    }
}
