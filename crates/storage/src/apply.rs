//! The write path from a mutation's bytes to the memtable: begun as a function, waited for as one small future.
//!
//! Almost every write finds its tablet open, memory free and room in the commit log, so it begins without waiting
//! ([`Storage::begin_apply`]); what is left to await is the log ([`Applying::finish`]). The others begin later (`apply_later`).
//! Invariant: between the log and the memtable a write has a [`WriteGuard`], so that no memtable is sealed without it.

use std::rc::Rc;

use model::mutation::MutationView;
use reactor::Deadline;

use crate::commitlog::Pending;
use crate::commitlog::format::EntryKind;
use crate::error::StorageError;
use crate::shard::Storage;
use crate::tablet::{Tablet, WriteGuard};
use crate::throttle::Coming;

/// A write that is on its way into the commit log. Dropping it leaves open whether the write happened.
#[must_use = "a write that is not finished is not seen"]
pub struct Applying<'s, 'm> {
    storage: &'s Storage,
    view: MutationView<'m>,
    deadline: Deadline,
    tablet: Rc<Tablet>,
    /// `None` where its keyspace does not want it in the log.
    pending: Option<Pending>,
    _writing: WriteGuard,
    _coming: Coming<'s>,
}

impl std::fmt::Debug for Applying<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applying").field("view", &self.view).finish_non_exhaustive()
    }
}

impl Applying<'_, '_> {
    /// Completes once the commit log has the write as safely as its mode promises and reads see it.
    ///
    /// # Errors
    /// As [`Storage::apply`].
    #[inline]
    pub async fn finish(self) -> Result<(), StorageError> {
        let Self { storage, view, deadline, tablet, pending, _writing, _coming } = self;
        let hold = match pending {
            Some(pending) => {
                let finished = reactor::in_place!(pending.finished_until(deadline));
                Some(finished.inspect_err(|error| storage.note_write_error(error, true))?)
            }
            None => None,
        };
        // The table may have been dropped while the log was written: then the write went with it.
        if tablet.is_dropped() {
            return Err(StorageError::UnknownTable { table: view.table });
        }
        storage.insert(&tablet, &view, hold);
        Ok(())
    }
}

impl Storage {
    /// Begins [`Storage::apply_checked`] where nothing has to be waited for before the commit log has the mutation;
    /// `None` where something has, and nothing was begun.
    ///
    /// # Errors
    /// As [`Storage::apply`].
    #[inline]
    pub fn begin_apply<'s, 'm>(
        &'s self,
        view: MutationView<'m>,
        deadline: Deadline,
    ) -> Result<Option<Applying<'s, 'm>>, StorageError> {
        debug_assert!(
            MutationView::parse(view.as_bytes()).is_ok(),
            "a mutation that was made or checked here"
        );
        let (tablet, durable) = self.taker_of(&view)?;
        if self.0.throttle.holds() || tablet.is_closed() {
            return Ok(None);
        }
        let coming = self.0.throttle.coming(view.as_bytes().len());
        let Some((pending, writing)) = self.put(view.as_bytes(), &tablet, durable)? else { return Ok(None) };
        let (storage, _writing, _coming) = (self, writing, coming);
        Ok(Some(Applying { storage, view, deadline, tablet, pending, _writing, _coming }))
    }

    /// As [`Storage::apply_checked`], where something has to be waited for.
    pub(crate) async fn apply_later(
        &self,
        view: &MutationView<'_>,
        deadline: Deadline,
    ) -> Result<(), StorageError> {
        let mutation = view.as_bytes();
        let (tablet, durable) = self.taker_of(view)?;
        if self.0.throttle.holds() {
            self.wait_for_turn(mutation.len(), deadline).await?;
        }
        let coming = self.0.throttle.coming(mutation.len());
        let busy = |_| StorageError::TabletBusy { table: view.table };
        loop {
            reactor::timeout(deadline, tablet.opened()).await.map_err(busy)?;
            if let Some((pending, writing)) = self.put(mutation, &tablet, durable)? {
                let (storage, view, _writing, _coming) = (self, *view, writing, coming);
                return Applying { storage, view, deadline, tablet, pending, _writing, _coming }
                    .finish()
                    .await;
            }
            self.0.log.wait_for_room(deadline).await?;
        }
    }

    /// Puts a mutation into the commit log, where that is wanted, and keeps memtables from being sealed without it;
    /// `None` where the log has no room now. The tablet is open: nothing was waited for since that was seen.
    #[inline]
    fn put(
        &self,
        mutation: &[u8],
        tablet: &Rc<Tablet>,
        durable: bool,
    ) -> Result<Option<(Option<Pending>, WriteGuard)>, StorageError> {
        if !durable {
            return Ok(Some((None, tablet.begin_write())));
        }
        let appended = self.0.log.try_append(EntryKind::Mutation, mutation);
        let appended = appended.inspect_err(|error| self.note_write_error(error, true))?;
        Ok(appended.map(|pending| (Some(pending), tablet.begin_write())))
    }

    /// The tablet that a mutation goes to now, and whether the commit log is to have it.
    #[inline]
    fn taker_of(&self, view: &MutationView<'_>) -> Result<(Rc<Tablet>, bool), StorageError> {
        if self.0.draining.get() {
            return Err(StorageError::Draining);
        }
        if self.0.disk.is_full() {
            return Err(self.0.disk.refusal());
        }
        self.owner_of(view)
    }
}
