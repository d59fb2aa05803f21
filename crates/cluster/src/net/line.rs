//! The way to one shard of one node over connections of one class: opened on first use, opened again after it
//! broke, with pauses that double.
//!
//! A call that comes in a pause fails at once with the reason of the last failure: who waits for several
//! nodes must not wait for one that is known to be away. Invariant: at most one connection of a line is open
//! or being opened.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use reactor::{Deadline, Event, Instant};
use wire::node::hello::Class;

use super::call::Caller;
use super::error::{NetError, PeerName};
use super::pipe::Ended;
use crate::NodeNumber;

/// The first pause after a failure, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// A connection that ended sooner counts as a failure.
const STABLE: Duration = Duration::from_secs(1);

/// Names a line of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineName {
    pub(super) node: NodeNumber,
    pub(super) class: Class,
    /// The shard at the far end.
    pub(super) shard: u16,
}

enum State {
    Idle,
    Dialing,
    Open(Rc<Caller>),
    Resting { until: Instant, error: NetError },
}

/// One line.
pub(super) struct Line {
    pub(super) name: LineName,
    state: RefCell<State>,
    changed: Event,
    pause: Cell<Duration>,
    /// Failures in a row: the next of several addresses is tried.
    failures: Cell<usize>,
}

/// What a caller does with a line.
pub(super) enum Step {
    Use(Rc<Caller>),
    Fail(NetError),
    /// Open it, and tell the line how that went.
    Dial,
    Wait,
}

impl Line {
    pub(super) fn new(name: LineName) -> Rc<Self> {
        Rc::new(Self {
            name,
            state: RefCell::new(State::Idle),
            changed: Event::new(),
            pause: Cell::new(PAUSE_MIN),
            failures: Cell::new(0),
        })
    }

    pub(super) fn failures(&self) -> usize {
        self.failures.get()
    }

    /// What to do now; after [`Step::Dial`] the line is being opened.
    pub(super) fn step(&self) -> Step {
        let mut state = self.state.borrow_mut();
        match &*state {
            State::Open(caller) if !caller.has_ended() => return Step::Use(Rc::clone(caller)),
            State::Dialing => return Step::Wait,
            State::Resting { until, error } if reactor::now() < *until => return Step::Fail(error.clone()),
            State::Open(_) | State::Idle | State::Resting { .. } => {}
        }
        *state = State::Dialing;
        Step::Dial
    }

    /// Waits for another state.
    pub(super) async fn change(&self, deadline: Deadline) -> Result<(), NetError> {
        let is_dialing = || matches!(*self.state.borrow(), State::Dialing);
        let changed = self.changed.wait_until(|| !is_dialing());
        let peer = PeerName::Node(self.name.node);
        reactor::timeout(deadline, changed).await.map_err(|_| NetError::TimedOut { peer, sent: false })
    }

    fn set(&self, state: State) {
        let before = self.state.replace(state);
        drop(before);
        self.changed.notify_all();
    }

    /// It was opened.
    pub(super) fn opened(&self, caller: Rc<Caller>) {
        self.set(State::Open(caller));
    }

    /// It could not be opened.
    pub(super) fn failed(&self, error: NetError) {
        let pause = self.pause.get();
        self.failures.set(self.failures.get() + 1);
        self.pause.set((2 * pause).min(PAUSE_MAX));
        self.set(State::Resting { until: reactor::now() + pause, error });
    }

    /// Its connection has ended.
    pub(super) fn broke(&self, caller: &Rc<Caller>, why: String) {
        if !matches!(&*self.state.borrow(), State::Open(open) if Rc::ptr_eq(open, caller)) {
            return;
        }
        if caller.opened().elapsed() < STABLE {
            self.failed(NetError::Unreachable { peer: caller.peer, reason: why, is_refused: false });
        } else {
            self.forget_failures();
            self.set(State::Idle);
        }
    }

    fn forget_failures(&self) {
        self.failures.set(0);
        self.pause.set(PAUSE_MIN);
    }

    /// The node is back: the next call opens the line at once.
    pub(super) fn retry_now(&self) {
        self.forget_failures();
        self.open_now();
    }

    /// The next call opens the line at once, even in a pause.
    pub(super) fn open_now(&self) {
        if matches!(*self.state.borrow(), State::Resting { .. }) {
            self.set(State::Idle);
        }
    }

    /// The open connection.
    pub(super) fn caller(&self) -> Option<Rc<Caller>> {
        match &*self.state.borrow() {
            State::Open(caller) if !caller.has_ended() => Some(Rc::clone(caller)),
            _ => None,
        }
    }

    /// Whether it has a connection or is getting one.
    pub(super) fn is_in_use(&self) -> bool {
        matches!(*self.state.borrow(), State::Open(_) | State::Dialing)
    }

    /// Ends its connection.
    pub(super) fn end(&self, why: Ended) {
        if let Some(caller) = self.caller() {
            caller.end(why);
        }
    }
}
