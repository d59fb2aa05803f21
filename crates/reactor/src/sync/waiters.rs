//! A queue of waiting tasks, first come first served, which any task may leave.
//!
//! Tickets only grow, so the queue is sorted by ticket and a waiter is found by binary search.

use std::collections::VecDeque;
use std::task::Waker;

pub(crate) struct Waiters<T = ()> {
    line: VecDeque<(u64, Waker, T)>,
    next: u64,
}

impl<T> Waiters<T> {
    pub(crate) fn new() -> Self {
        Self { line: VecDeque::new(), next: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.line.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Joins the line; the ticket.
    pub(crate) fn join(&mut self, waker: Waker, what: T) -> u64 {
        let ticket = self.next;
        self.next += 1;
        self.line.push_back((ticket, waker, what));
        ticket
    }

    /// Renews the waker of a ticket; false when it is no longer in line.
    pub(crate) fn renew(&mut self, ticket: u64, waker: &Waker) -> bool {
        match self.line.binary_search_by_key(&ticket, |entry| entry.0) {
            Ok(at) => {
                self.line[at].1.clone_from(waker);
                true
            }
            Err(_) => false,
        }
    }

    /// Steps out of the line; false when already gone.
    pub(crate) fn leave(&mut self, ticket: u64) -> bool {
        match self.line.binary_search_by_key(&ticket, |entry| entry.0) {
            Ok(at) => self.line.remove(at).is_some(),
            Err(_) => false,
        }
    }

    /// The request of the first waiter.
    pub(crate) fn front(&self) -> Option<&T> {
        self.line.front().map(|entry| &entry.2)
    }

    /// Removes the first waiter.
    pub(crate) fn pop(&mut self) -> Option<Waker> {
        self.line.pop_front().map(|entry| entry.1)
    }

    /// As `pop`, with the ticket.
    pub(crate) fn pop_with_ticket(&mut self) -> Option<(u64, Waker)> {
        self.line.pop_front().map(|entry| (entry.0, entry.1))
    }
}
