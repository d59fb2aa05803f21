//! Follows writes behind the answers to their clients, until they are safe without their coordinator.
//!
//! A write is safe once a majority of its replicas has it, so that a later quorum meets it, or once each
//! replica that lacks it is left a durable hint. Until then it may be lost with the coordinator, which alone
//! knows who lacks it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Deadline, Event};

use crate::replicator::Replicator;

/// How long hints may take to be durable.
const SYNC_WITHIN: Duration = Duration::from_secs(5);

/// Writes that are followed together, and the state of their safety.
#[derive(Default)]
pub(crate) struct Followed {
    /// Writes of which replicas have not answered.
    open: Cell<usize>,
    /// Hosts whose hints make writes safe once they are durable.
    hinted: RefCell<BTreeSet<[u8; 16]>>,
    /// Whether a write is neither with a majority nor in hints.
    is_any_unsafe: Cell<bool>,
    changed: Event,
}

impl Followed {
    /// Begins to follow a write that has reached its level.
    pub(super) fn follow(self: &Rc<Self>) -> Follower {
        self.open.set(self.open.get() + 1);
        Follower { followed: Rc::clone(self), is_known: false }
    }

    /// Whether all writes are safe, and nothing is waited for.
    pub(crate) fn are_safe_now(&self) -> bool {
        self.open.get() == 0 && !self.is_any_unsafe.get() && self.hinted.borrow().is_empty()
    }

    /// Waits until the replicas of all writes have answered or are given up, and until the hints of those
    /// that count are durable; returns whether all writes are safe.
    pub(crate) async fn are_safe(&self, replicator: &Replicator) -> bool {
        self.changed.wait_until(|| self.open.get() == 0).await;
        if self.is_any_unsafe.get() {
            return false;
        }
        let hosts = self.hinted.take();
        for host in hosts {
            let Some(hints) = replicator.hints() else { return false };
            if hints.synced(host, Deadline::after(SYNC_WITHIN)).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// One write that is followed. If it is dropped before its end is known, the write counts as not safe.
pub(super) struct Follower {
    followed: Rc<Followed>,
    is_known: bool,
}

impl Follower {
    /// Of the write's replicas so many have it; of the others these are left hints, and so many are not.
    pub(super) fn ended(mut self, have_it: usize, hinted: &[[u8; 16]], without: usize) {
        self.is_known = true;
        if have_it > hinted.len() + without {
            return;
        }
        match without {
            0 => self.followed.hinted.borrow_mut().extend(hinted),
            _ => self.followed.is_any_unsafe.set(true),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if !self.is_known {
            self.followed.is_any_unsafe.set(true);
        }
        self.followed.open.set(self.followed.open.get() - 1);
        self.followed.changed.notify_all();
    }
}
