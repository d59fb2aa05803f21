//! A group of several members: messages in and out, the passing of time, and reads that are current.
//!
//! Time passes in ticks of 100 ms while there is another member: a heartbeat every 200 ms, an election after
//! 1 to 2 s without one. Invariant: a lone voter without learners has no timer.

use std::time::Duration;

use reactor::{Deadline, Group};

use super::{Group0, Group0Error, Outbox};
use crate::NodeNumber;
use crate::consensus::{Consensus, Message, Refused, Role};

/// Time between two ticks.
const TICK: Duration = Duration::from_millis(100);
/// How often a question for a read index is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(200);

impl Group0 {
    /// Whether this node is the only member, and votes.
    pub fn is_alone(&self) -> bool {
        let members = self.members();
        members.voters == [self.0.number] && members.learners.is_empty() && members.voters_outgoing.is_empty()
    }

    /// Has messages for other members go to `outbox` from now on, and lets time pass while there are any.
    pub fn connect(&self, outbox: Outbox) {
        self.0.outbox.replace(Some(outbox));
        self.begin_ticking();
        self.begin_work();
    }

    /// Takes in a message of another member.
    ///
    /// # Errors
    /// [`Refused`] for a message that no correct member sends; nothing is changed.
    pub fn step(&self, message: Message) -> Result<(), Refused> {
        self.0.consensus.borrow_mut().step(message)?;
        self.begin_ticking();
        self.begin_work();
        Ok(())
    }

    /// Messages to `node` were lost for certain.
    pub fn unreachable(&self, node: NodeNumber) {
        self.0.consensus.borrow_mut().unreachable(node);
        self.begin_work();
    }

    /// A snapshot that was sent to `node` has arrived, or is lost.
    pub fn snapshot_sent(&self, node: NodeNumber, arrived: bool) {
        self.0.consensus.borrow_mut().snapshot_sent(node, arrived);
        self.begin_work();
    }

    /// Hands leadership to another voter, if this node leads.
    pub fn hand_over(&self, to: NodeNumber) {
        self.0.consensus.borrow_mut().transfer(to);
        self.begin_work();
    }

    /// Waits until this node has applied everything that was committed when this was called.
    ///
    /// # Errors
    /// [`Group0Error::NoMajority`] at the deadline; [`Group0Error::Stopped`].
    pub async fn catch_up(&self, deadline: Deadline) -> Result<(), Group0Error> {
        let inner = &self.0;
        // Contexts of several nodes, and of several lives, meet at the leader, which answers each once.
        let context = u64::from(inner.number) << 48 | inner.next_read.get() & ((1 << 48) - 1);
        inner.next_read.set(inner.next_read.get().wrapping_add(1));
        inner.reads.borrow_mut().insert(context, None);
        let answered = self.ask_read_index(context, deadline).await;
        inner.reads.borrow_mut().remove(&context);
        let waited = self.wait_applied(answered?, deadline).await;
        waited.map_err(|error| match error {
            Group0Error::Undecided => Group0Error::NoMajority,
            other => other,
        })
    }

    /// Asks until there is an answer: the question is lost while there is no leader, or until a leader has
    /// committed an entry of its term.
    async fn ask_read_index(&self, context: u64, deadline: Deadline) -> Result<u64, Group0Error> {
        let inner = &self.0;
        let answer = || inner.reads.borrow().get(&context).copied().flatten();
        loop {
            inner.consensus.borrow_mut().read_index(context);
            self.begin_work();
            let soon = Deadline::after(ASK_AGAIN).min(deadline);
            let is_over = || answer().is_some() || inner.failure.borrow().is_some();
            let waited = reactor::timeout(soon, inner.changed.wait_until(is_over)).await;
            inner.check()?;
            if let Some(index) = answer() {
                return Ok(index);
            }
            if waited.is_err() && deadline.instant() <= reactor::now() {
                return Err(Group0Error::NoMajority);
            }
        }
    }

    /// Sees to it that time passes while there is another member.
    pub(super) fn begin_ticking(&self) {
        let is_over = self.0.failure.borrow().is_some();
        if is_over || self.0.ticking.get() || self.0.outbox.borrow().is_none() || self.is_alone() {
            return;
        }
        let Ok(hold) = self.0.tasks.enter() else { return };
        self.0.ticking.set(true);
        let group = self.clone();
        drop(reactor::spawn(Group::CONTROL, async move {
            // A lone leader of learners ticks too: its heartbeats tell them of new entries.
            while !group.is_alone() && !group.0.tasks.is_closed() && group.0.failure.borrow().is_none() {
                reactor::sleep(TICK).await;
                let led = group.0.leads();
                group.0.consensus.borrow_mut().tick(reactor::random_u64());
                if led != group.0.leads() {
                    group.0.changed.notify_all();
                }
                group.begin_work();
            }
            group.0.ticking.set(false);
            drop(hold);
        }));
    }
}

impl super::Inner {
    /// Whether this node alone decides what is committed.
    pub(super) fn is_lone_voter(&self) -> bool {
        let members = self.consensus.borrow().members();
        members.voters == [self.number] && members.voters_outgoing.is_empty()
    }

    fn leads(&self) -> bool {
        self.consensus.borrow().status().role == Role::Leader
    }
}
