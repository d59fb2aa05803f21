//! Queue of writes that wait for the commit log: one line per shard, completed by one task.
//!
//! The commit log completes writes in the order in which it accepted them, so the first in the line is
//! completed first. One task that waits for the first write completes all writes of a group, whatever their
//! connections; they need no task and no wake-up of their own. The task never waits for a client: a client
//! that does not read must not keep a memtable from being sealed.
//! Invariant: a write has no earlier deadline than those before it, because all have the same timeout
//! (`query::Engine::begin_write`). Each write is admitted like any request, which bounds the line.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use query::{OneRow, Timed, Writing};
use reactor::{Group, Instant};
use wire::consistency::Consistency;
use wire::frame::FrameHeader;

use super::limits::Held;
use super::session::Working;
use super::{dispatch, slow};

/// Writes completed before other tasks get a turn.
const WRITES_PER_TURN: usize = 32;

/// A write in the line.
pub(super) struct PendingWrite {
    pub(super) working: Working,
    pub(super) header: FrameHeader,
    pub(super) writing: Writing,
    /// Measures the latency of the write.
    pub(super) timed: Timed,
    /// The statement and the consistency level, should the write be slow.
    pub(super) row: OneRow,
    pub(super) consistency: Consistency,
    /// When the request began, if it is measured.
    pub(super) began: Option<Instant>,
    /// When it began, by the clock of its slice if it is not measured.
    pub(super) since: Instant,
    /// The permits of the request; `None` for a client without a socket.
    pub(super) held: Option<Held>,
}

/// The line of one shard.
pub(super) struct WriteLine {
    line: RefCell<VecDeque<PendingWrite>>,
    /// The waker of the task, once it has run. The first write to join an empty line registers this waker
    /// with the commit log, so that the task need not run for that alone.
    ender: RefCell<Option<Waker>>,
    closed: Cell<bool>,
}

impl WriteLine {
    /// Opens an empty line and starts the task that completes its writes.
    pub(super) fn open() -> Rc<Self> {
        let line =
            Rc::new(Self { line: RefCell::default(), ender: RefCell::default(), closed: Cell::new(false) });
        let watched = Rc::clone(&line);
        let watch = async move {
            loop {
                let ending = Rc::clone(&watched);
                if reactor::spawn(Group::STATEMENT, async move { ending.end_all().await }).await.is_ok() {
                    return;
                }
                // The write that caused the panic is dropped; the reactor has reported the panic.
                let broken = watched.line.borrow_mut().pop_front();
                drop(broken);
            }
        };
        reactor::spawn(Group::STATEMENT, watch).detach();
        line
    }

    /// Lets the task end once the line is empty.
    pub(super) fn close(&self) {
        self.closed.set(true);
        if let Some(ender) = self.ender.take() {
            ender.wake();
        }
    }

    /// Appends a write to the line.
    #[inline]
    pub(super) fn join(&self, begun: PendingWrite) {
        let mut line = self.line.borrow_mut();
        line.push_back(begun);
        let first = line.len() == 1;
        drop(line);
        if first && let Some(ender) = &*self.ender.borrow() {
            // The write may be complete already, if its keyspace does not use the commit log.
            let _ = self.poll_end(&mut Context::from_waker(ender));
        }
    }

    async fn end_all(&self) {
        poll_fn(|context| {
            self.ender.replace(Some(context.waker().clone()));
            if self.poll_end(context).is_pending() {
                return Poll::Pending;
            }
            if !self.line.borrow().is_empty() {
                // Other tasks get a turn first.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.closed.get() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Completes writes from the front of the line; ready after `WRITES_PER_TURN` of them, or once the line
    /// is empty.
    fn poll_end(&self, context: &mut Context<'_>) -> Poll<()> {
        for _ in 0..WRITES_PER_TURN {
            let mut line = self.line.borrow_mut();
            let Some(first) = line.front_mut() else { break };
            let ended = ready!(Pin::new(&mut first.writing).poll(context));
            let begun = line.pop_front().expect("whoever was polled is there");
            drop(line);
            begun.timed.end();
            let session = begun.working.session();
            dispatch::end_write(session, &begun.header, &ended);
            let took = session.native.latency.end(begun.began);
            let took = took.unwrap_or_else(|| reactor::coarse_now().since(begun.since));
            if session.native.engine.watch().is_slow(took) {
                let of_row = (&begun.row, begun.consistency);
                slow::note_row(&session.native, &session.client.borrow(), of_row, took, &ended);
            }
            // Buffers are returned first: the next request is about to begin.
            let PendingWrite { working, writing, row, held, .. } = begun;
            drop((writing, row, held, working));
        }
        Poll::Ready(())
    }
}
