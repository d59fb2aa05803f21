//! Writes that wait for the commit log, begun where their frames were cut: one line for a shard, ended by one task.
//!
//! The commit log ends writes in the order in which it took them, so who stands first in the line is told first: one task that
//! waits for the first ends all of a group, whichever connection they came by, without a task and a wake of their own. That
//! task never waits for a client: a client that does not read must not keep a memtable from being sealed.
//! Invariant: who stands behind has no earlier deadline; `query` begins writes here that all have the same time
//! (`query::Engine::begin_write`). Each is counted in as any request, which bounds the line.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use query::{Timed, Writing};
use reactor::Group;
use wire::frame::FrameHeader;

use super::dispatch;
use super::limits::Held;
use super::session::Working;

/// Writes ended before others have their turn.
const WRITES_PER_TURN: usize = 32;

/// A write on its way.
pub(super) struct Begun {
    pub(super) working: Working,
    pub(super) header: FrameHeader,
    pub(super) writing: Writing,
    /// How long it takes is measured.
    pub(super) timed: Timed,
    /// What it counts against; a client without a socket is not counted.
    pub(super) held: Option<Held>,
}

/// The line of one shard.
pub(super) struct WriteLine {
    line: RefCell<VecDeque<Begun>>,
    /// Wakes the task, once it has run. Who comes to an empty line has the commit log wake it, so that it need not run for
    /// that alone.
    ender: RefCell<Option<Waker>>,
    closed: Cell<bool>,
}

impl WriteLine {
    /// An empty line, and the task that ends what stands in it.
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
                // The one that broke it is not tried again; the reactor has told of it.
                let broken = watched.line.borrow_mut().pop_front();
                drop(broken);
            }
        };
        reactor::spawn(Group::STATEMENT, watch).detach();
        line
    }

    /// Has the line end when nobody stands in it any more.
    pub(super) fn close(&self) {
        self.closed.set(true);
        if let Some(ender) = self.ender.take() {
            ender.wake();
        }
    }

    /// Puts a write at the end.
    #[inline]
    pub(super) fn join(&self, begun: Begun) {
        let mut line = self.line.borrow_mut();
        line.push_back(begun);
        let first = line.len() == 1;
        drop(line);
        if first && let Some(ender) = &*self.ender.borrow() {
            // Ended already where its keyspace does not want it in the log.
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
                // Others have their turn first.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.closed.get() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Ends those that may, from the first on; ready after some of them, or when nobody is left.
    fn poll_end(&self, context: &mut Context<'_>) -> Poll<()> {
        for _ in 0..WRITES_PER_TURN {
            let mut line = self.line.borrow_mut();
            let Some(first) = line.front_mut() else { break };
            let ended = ready!(Pin::new(&mut first.writing).poll(context));
            let begun = line.pop_front().expect("whoever was polled is there");
            drop(line);
            begun.timed.end();
            dispatch::end_write(begun.working.session(), &begun.header, ended);
            // Its buffers go back first: the next request is about to begin.
            let Begun { working, writing, held, .. } = begun;
            drop((writing, held, working));
        }
        Poll::Ready(())
    }
}
