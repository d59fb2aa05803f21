//! The write path from a mutation's bytes to the memtable. It begins with a function call that does not wait;
//! the caller then awaits one small future.
//!
//! Almost every write finds its tablet open, memory free and room in the commit log, so it begins without
//! waiting ([`Storage::begin_apply`]), and only the commit log is left to await ([`Applying::finish`]). A
//! write that has to wait first, or that is so long that the memtable takes it in steps, begins in
//! `apply_later`. Invariant: between its entry in the log and its
//! insertion into the memtable a write has a [`WriteGuard`], so that no memtable is sealed without it.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use model::mutation::MutationView;
use model::{Table, Token};
use reactor::Deadline;

use crate::commitlog::Pending;
use crate::commitlog::format::EntryKind;
use crate::error::StorageError;
use crate::shard::Storage;
use crate::tablet::{Tablet, WriteGuard};

/// Whether a mutation that is not parsed is applied in steps.
#[inline]
fn takes_steps(mutation: &[u8]) -> Result<bool, StorageError> {
    Ok(mutation.len() >= Tablet::BYTES_AT_ONCE && Tablet::takes_steps(&MutationView::trusted(mutation)?))
}

/// The demands of a write besides those that every write has.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApplyAs {
    /// The command that gave this node the tablet, as the write was planned: another tenancy of the tablet
    /// refuses the write.
    pub since: Option<u64>,
    /// Whether the write is durable before anybody sees it, whatever the commit log's mode.
    pub synced: bool,
}

impl ApplyAs {
    /// Checks that a tablet is of the tenancy that the write was planned for.
    ///
    /// # Errors
    /// [`StorageError::OtherTenancy`].
    fn check(self, tablet: &Tablet) -> Result<(), StorageError> {
        match self.since {
            Some(planned) if planned != tablet.since() => Err(StorageError::OtherTenancy {
                table: tablet.table().id(),
                tablet: tablet.id.0,
                is: tablet.since(),
                planned,
            }),
            _ => Ok(()),
        }
    }
}

/// A write that is on its way into the commit log. Dropping it leaves open whether the write happened.
#[must_use = "a write that is not finished is not seen"]
pub struct Applying {
    storage: Storage,
    deadline: Deadline,
    /// `None` if the mutation's keyspace is not durable and does not use the log.
    pending: Option<Pending>,
    writing: WriteGuard,
    /// Bytes that the throttle counts as coming.
    coming: usize,
}

impl std::fmt::Debug for Applying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applying").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl Drop for Applying {
    #[inline]
    fn drop(&mut self) {
        self.storage.0.throttle.came(self.coming);
    }
}

impl Applying {
    /// Completes once the commit log has the write as safely as its mode promises and reads see it;
    /// `mutation` is the one that was begun.
    ///
    /// # Errors
    /// As [`Storage::apply`].
    pub async fn finish(mut self, mutation: &[u8]) -> Result<(), StorageError> {
        poll_fn(|context| self.poll_finish(mutation, context)).await
    }

    /// As [`Applying::finish`], for futures that own the mutation. Not to be polled again once it is ready.
    #[inline]
    pub fn poll_finish(
        &mut self,
        mutation: &[u8],
        context: &mut Context<'_>,
    ) -> Poll<Result<(), StorageError>> {
        if let Some(pending) = &mut self.pending {
            let finished = ready!(pending.poll_finished(self.deadline, context));
            if let Err(error) = finished {
                self.storage.note_write_error(&error, true);
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(self.insert(mutation))
    }

    /// As [`Applying::finish`], as the write asks for.
    async fn finish_as(mut self, mutation: &[u8], how: ApplyAs) -> Result<(), StorageError> {
        let upto = how.synced.then(|| self.storage.0.log.end());
        if let Some(pending) = &mut self.pending {
            let written = poll_fn(|context| pending.poll_finished(self.deadline, context)).await;
            written.inspect_err(|error| self.storage.note_write_error(error, true))?;
            if let Some(upto) = upto {
                let synced = self.storage.0.log.sync_upto(upto).await;
                synced.inspect_err(|error| self.storage.note_write_error(error, true))?;
            }
        }
        let view = self.written(mutation)?;
        let hold = self.pending.as_ref().map(Pending::held);
        self.storage.insert_soon(self.writing.tablet(), &view, hold).await;
        Ok(())
    }

    fn insert(&mut self, mutation: &[u8]) -> Result<(), StorageError> {
        let view = self.written(mutation)?;
        let hold = self.pending.as_ref().map(Pending::held);
        self.storage.insert(self.writing.tablet(), &view, hold);
        Ok(())
    }

    /// The mutation, once the log has it.
    #[inline]
    fn written<'m>(&self, mutation: &'m [u8]) -> Result<MutationView<'m>, StorageError> {
        let view = MutationView::trusted(mutation)?;
        // The table may have been dropped while the log was written: then the write went with it.
        if self.writing.tablet().is_dropped() {
            return Err(StorageError::UnknownTable { table: view.table });
        }
        Ok(view)
    }
}

impl Storage {
    /// As [`Storage::apply`], for a mutation that this process made or has checked: its rows are not checked
    /// again.
    ///
    /// # Errors
    /// As [`Storage::apply`].
    #[inline]
    pub async fn apply_checked(
        &self,
        view: &MutationView<'_>,
        deadline: Deadline,
    ) -> Result<(), StorageError> {
        match self.begin_apply(view, deadline)? {
            Some(applying) => reactor::in_place!(applying.finish(view.as_bytes())),
            // Boxed, so that the future of a write that need not wait to begin stays small.
            None => Box::pin(self.apply_later(view, ApplyAs::default(), deadline)).await,
        }
    }

    /// Begins [`Storage::apply_checked`] if the mutation can enter the commit log without waiting. Otherwise
    /// returns `None` and begins nothing.
    ///
    /// # Errors
    /// As [`Storage::apply`].
    #[inline]
    pub fn begin_apply(
        &self,
        view: &MutationView<'_>,
        deadline: Deadline,
    ) -> Result<Option<Applying>, StorageError> {
        debug_assert!(
            MutationView::parse(view.as_bytes()).is_ok(),
            "a mutation that was made or checked here"
        );
        if self.holds_writers() {
            return Ok(None);
        }
        let Some((tablet, durable)) = self.taker_of(view)? else { return Ok(None) };
        self.begin_in(&tablet, durable, view.as_bytes(), deadline)
    }

    /// As [`Storage::apply_checked`], as `how` asks for.
    ///
    /// # Errors
    /// As [`Storage::apply`]; [`StorageError::OtherTenancy`] before anything is done;
    /// [`StorageError::CommitlogDead`] where the log could not be made durable: the write may have happened.
    pub async fn apply_as(
        &self,
        view: &MutationView<'_>,
        how: ApplyAs,
        deadline: Deadline,
    ) -> Result<(), StorageError> {
        if !self.holds_writers()
            && let Some((tablet, durable)) = self.taker_of(view)?
            && !tablet.is_closed()
        {
            how.check(&tablet)?;
            if let Some(applying) = self.begin_in(&tablet, durable, view.as_bytes(), deadline)? {
                return applying.finish_as(view.as_bytes(), how).await;
            }
        }
        Box::pin(self.apply_later(view, how, deadline)).await
    }

    /// Whether memory is so full that the next write has to wait for its turn.
    #[inline]
    pub fn holds_writers(&self) -> bool {
        self.0.throttle.holds()
    }

    /// As [`Storage::begin_apply`], for a mutation that was just made of `table`, for a partition with the
    /// token `token`. The mutation is not parsed again, and is checked against the schema only if the table
    /// was altered since. Returns `None` also if the partition belongs to another shard. The caller has
    /// checked, before it made the mutation, that [`Storage::holds_writers`] is false.
    ///
    /// # Errors
    /// As [`Storage::apply`].
    #[inline]
    pub fn begin_made(
        &self,
        mutation: &[u8],
        table: &Table,
        token: Token,
        deadline: Deadline,
    ) -> Result<Option<Applying>, StorageError> {
        debug_assert!(
            MutationView::parse(mutation).is_ok_and(|view| view.table == table.id() && view.token == token),
            "a mutation that was made of this table"
        );
        self.check_taking()?;
        let tables = self.0.tables.borrow();
        let Some(store) = tables.get(&table.id()) else {
            return Err(StorageError::UnknownTable { table: table.id() });
        };
        let Some(tablet) = store.borrow_tablet(store.map().tablet_of(token)) else { return Ok(None) };
        if !store.is_now(table) && !store.is_of(&MutationView::trusted(mutation)?) {
            return Err(StorageError::MutationMisfit { table: table.id() });
        }
        self.begin_in(&tablet, store.is_durable(), mutation, deadline)
    }

    #[inline]
    fn begin_in(
        &self,
        tablet: &Rc<Tablet>,
        durable: bool,
        mutation: &[u8],
        deadline: Deadline,
    ) -> Result<Option<Applying>, StorageError> {
        if tablet.is_closed() || takes_steps(mutation)? {
            return Ok(None);
        }
        let Some((pending, writing)) = self.put(mutation, tablet, durable)? else { return Ok(None) };
        Ok(Some(self.applying(mutation, deadline, pending, writing)))
    }

    /// As [`Storage::apply_checked`], for a write that has to wait.
    pub(crate) async fn apply_later(
        &self,
        view: &MutationView<'_>,
        how: ApplyAs,
        deadline: Deadline,
    ) -> Result<(), StorageError> {
        let mutation = view.as_bytes();
        let (mut tablet, durable) = self.taker_soon(view, deadline).await?;
        if self.holds_writers() {
            self.wait_for_turn(mutation.len(), deadline).await?;
        }
        let coming = self.0.throttle.coming(mutation.len());
        if durable && self.0.log.is_long(mutation.len()) {
            let written = self.apply_long(view, tablet, how, deadline).await;
            return written.inspect_err(|error| self.note_write_error(error, true));
        }
        let busy = |_| StorageError::TabletBusy { table: view.table };
        loop {
            reactor::timeout(deadline, tablet.opened()).await.map_err(busy)?;
            if tablet.has_left() {
                tablet = self.taker_soon(view, deadline).await?.0;
                continue;
            }
            how.check(&tablet)?;
            if let Some((pending, writing)) = self.put(mutation, &tablet, durable)? {
                // From here on it counts itself.
                drop(coming);
                return self.applying(mutation, deadline, pending, writing).finish_as(mutation, how).await;
            }
            self.0.log.wait_for_room(deadline).await?;
        }
    }

    /// As [`Storage::apply_later`], of a mutation that the log takes in pieces.
    async fn apply_long(
        &self,
        view: &MutationView<'_>,
        mut tablet: Rc<Tablet>,
        how: ApplyAs,
        deadline: Deadline,
    ) -> Result<(), StorageError> {
        let (mutation, busy) = (view.as_bytes(), |_| StorageError::TabletBusy { table: view.table });
        // Before it keeps the tablet's memtable from being sealed: the turn may have to wait for a flush of
        // it.
        let mut turn = self.0.log.long_turn(mutation.len(), deadline).await?;
        loop {
            reactor::timeout(deadline, tablet.opened()).await.map_err(busy)?;
            if tablet.has_left() {
                tablet = self.taker_soon(view, deadline).await?.0;
                continue;
            }
            how.check(&tablet)?;
            match turn.begin(EntryKind::Mutation, mutation)? {
                Ok(entry) => {
                    let writing = tablet.begin_write();
                    let hold = entry.finish(mutation, deadline).await?;
                    if how.synced {
                        self.0.log.sync().await?;
                    }
                    if tablet.is_dropped() {
                        return Err(StorageError::UnknownTable { table: view.table });
                    }
                    self.insert_soon(writing.tablet(), view, Some(&hold)).await;
                    return Ok(());
                }
                Err(again) => turn = again,
            }
            self.0.log.wait_for_room(deadline).await?;
        }
    }

    /// A write that the log has, or is not to have.
    #[inline]
    fn applying(
        &self,
        mutation: &[u8],
        deadline: Deadline,
        pending: Option<Pending>,
        writing: WriteGuard,
    ) -> Applying {
        let coming = mutation.len();
        self.0.throttle.comes(coming);
        Applying { storage: self.clone(), deadline, pending, writing, coming }
    }

    /// Puts a mutation into the commit log, if `durable`, and keeps memtables from being sealed without it.
    /// `None` if the log has no room now. Precondition: the tablet was found open, and nothing was awaited
    /// since.
    #[inline]
    fn put(
        &self,
        mutation: &[u8],
        tablet: &Rc<Tablet>,
        durable: bool,
    ) -> Result<Option<(Option<Pending>, WriteGuard)>, StorageError> {
        assert!(!tablet.has_left(), "a tablet that has left takes no writes: {:?}", tablet.id);
        if !durable {
            self.0.log.check_taking()?;
            return Ok(Some((None, tablet.begin_write())));
        }
        let appended = self.0.log.try_append(EntryKind::Mutation, mutation);
        let appended = appended.inspect_err(|error| self.note_write_error(error, true))?;
        Ok(appended.map(|pending| (Some(pending), tablet.begin_write())))
    }

    /// The tablet that a mutation goes to now, and whether the commit log is to have it; `None` if the tablet
    /// is on its way to this shard.
    #[inline]
    fn taker_of(&self, view: &MutationView<'_>) -> Result<Option<(Rc<Tablet>, bool)>, StorageError> {
        self.check_taking()?;
        self.owner_of(view)
    }

    /// As [`Storage::taker_of`], after waiting for a tablet that is on its way to this shard.
    async fn taker_soon(
        &self,
        view: &MutationView<'_>,
        deadline: Deadline,
    ) -> Result<(Rc<Tablet>, bool), StorageError> {
        // Bounded by the deadline.
        loop {
            if let Some(taker) = self.taker_of(view)? {
                return Ok(taker);
            }
            let store = self.table_store(view.table)?;
            self.arrived(&store, store.map().tablet_of(view.token), deadline).await?;
        }
    }

    /// Whether writes are taken at all.
    #[inline]
    fn check_taking(&self) -> Result<(), StorageError> {
        if self.0.draining.get() {
            return Err(StorageError::Draining);
        }
        if self.0.disk.is_full() {
            return Err(self.0.disk.refusal());
        }
        Ok(())
    }
}
