//! The work of a group: makes batches durable, sends what they promise, applies what is committed.
//!
//! One task works at a time, begun by whoever made work. Invariant: a message that promises durability leaves
//! only after its batch is synced; an entry is applied once it is committed, in order, and only when this
//! node would know after a power loss that it is: effects of it must not be found without it.

use std::rc::Rc;

use reactor::Group;

use super::command::Command;
use super::{Applied, Group0, GroupFailure, Inner, apply, read_state};
use crate::consensus::{Consensus, Entry, HardState, LogError, Message, Payload, Ready, Snapshot};

impl Group0 {
    /// Sees to it that a task works on the group.
    pub(super) fn begin_work(&self) {
        if self.0.failure.borrow().is_some() {
            return;
        }
        let Ok(hold) = self.0.tasks.enter() else { return };
        if self.0.working.replace(true) {
            return;
        }
        let inner = Rc::clone(&self.0);
        drop(reactor::spawn(Group::CONTROL, async move {
            let of_task = Self(Rc::clone(&inner));
            // In a task of its own, so that its panic stops the group, and callers hear of it.
            let working = reactor::spawn(Group::CONTROL, async move {
                if let Err(failure) = of_task.0.work().await {
                    of_task.0.stop(failure);
                }
                // In the moment in which there was nothing to do, so that whoever comes later begins anew.
                of_task.0.working.set(false);
                // There may be other members now.
                of_task.begin_ticking();
            });
            if let Err(panicked) = working.await {
                inner.stop(GroupFailure::Broken(panicked.to_string()));
            }
            drop(hold);
        }));
    }
}

impl Inner {
    /// Works until there is nothing to do.
    pub(super) async fn work(&self) -> Result<(), GroupFailure> {
        loop {
            let ready = self.consensus.borrow_mut().ready();
            match ready {
                Some(ready) => self.carry_out(ready).await?,
                None if self.log.is_full(self.applied.get()) => self.replace_log().await?,
                None => return Ok(()),
            }
        }
    }

    async fn carry_out(&self, ready: Ready) -> Result<(), GroupFailure> {
        self.send(ready.messages_before);
        if let Some(snapshot) = &ready.install {
            self.install(snapshot, &ready.entries).await?;
        } else if ready.must_sync {
            self.note_commit(ready.hard_state);
            self.log.append(ready.hard_state, ready.entries).await?;
        }
        self.consensus.borrow_mut().synced(ready.number);
        self.send(ready.messages_after);
        // Of a lone voter the commit index follows from its entries. Otherwise it goes to the disk with the
        // next batch, or now where something is applied.
        let last = ready.committed.last().map_or(0, |entry| entry.index);
        if last > self.synced_commit.get() && !self.is_lone_voter() {
            let hard_state = Some(self.consensus.borrow().hard_state());
            self.log.append(hard_state, Vec::new()).await?;
            self.note_commit(hard_state);
            assert!(last <= self.synced_commit.get(), "entry {last} is applied before its commit is durable");
        }
        for entry in &ready.committed {
            self.apply(entry)?;
        }
        for read in ready.reads {
            if let Some(answer) = self.reads.borrow_mut().get_mut(&read.context) {
                *answer = Some(read.index);
            }
        }
        self.changed.notify_all();
        Ok(())
    }

    fn note_commit(&self, hard_state: Option<HardState>) {
        if let Some(state) = hard_state {
            self.synced_commit.set(self.synced_commit.get().max(state.commit));
        }
    }

    fn send(&self, messages: Vec<Message>) {
        let outbox = self.outbox.borrow().clone();
        if let Some(outbox) = outbox {
            messages.into_iter().for_each(|message| outbox(message));
        }
    }

    /// Puts another member's state in the place of this one's, and a log that begins behind it in the place
    /// of the log.
    async fn install(&self, snapshot: &Snapshot, entries: &[Entry]) -> Result<(), GroupFailure> {
        let state = Rc::new(read_state(snapshot)?);
        let before = self.applied.get();
        assert!(before < snapshot.index, "a snapshot of {} is installed upon {before}", snapshot.index);
        let hard_state = self.consensus.borrow().hard_state();
        if !self.log.replace(snapshot, hard_state, entries).await? {
            let reason = format!("there is no room on the disk for the state of {}", snapshot.index);
            return Err(GroupFailure::Broken(reason));
        }
        self.state.replace(Rc::clone(&state));
        self.applied.set(snapshot.index);
        self.report(Applied::Installed(snapshot.index), &state);
        Ok(())
    }

    fn apply(&self, entry: &Entry) -> Result<(), GroupFailure> {
        let before = self.applied.get();
        assert_eq!(entry.index, before + 1, "entry {} is applied behind {before}", entry.index);
        if let Payload::Command(bytes) = &entry.payload {
            let command = Command::decode(bytes).map_err(|reason| GroupFailure::Unreadable {
                place: format!("entry {}", entry.index),
                reason,
            })?;
            let state = Rc::clone(&self.state.borrow());
            let after = Rc::new(apply(&state, entry.index, &command));
            self.state.replace(Rc::clone(&after));
            self.applied.set(entry.index);
            self.report(Applied::Command(entry.index, &command), &after);
        }
        self.applied.set(entry.index);
        Ok(())
    }

    fn report(&self, news: Applied<'_>, state: &Rc<super::ClusterState>) {
        let listener = self.on_applied.borrow().clone();
        if let Some(listener) = listener {
            listener(news, state);
        }
    }

    /// Puts a snapshot of the state and a new log in the place of a full one.
    async fn replace_log(&self) -> Result<(), GroupFailure> {
        let index = self.applied.get();
        let (hard_state, entries, term, members) = {
            let consensus = self.consensus.borrow();
            (
                consensus.hard_state(),
                consensus.entries_after(index),
                consensus.term_at(index),
                consensus.members(),
            )
        };
        let term = term.expect("the term of the last entry that was applied");
        let state = self.state.borrow().encode();
        let snapshot = Snapshot { index, term, members, state };
        if self.log.replace(&snapshot, hard_state, &entries).await? {
            self.consensus.borrow_mut().compacted(snapshot);
        }
        Ok(())
    }
}

impl From<LogError> for super::Group0Error {
    fn from(error: LogError) -> Self {
        Self::Stopped(Rc::new(error.into()))
    }
}
