//! Finds a tablet on this shard, and waits for one that is on its way.

use std::rc::Rc;
use std::time::Duration;

use model::tablet::TabletId;
use model::{TableId, Token};
use reactor::Deadline;

use crate::error::StorageError;
use crate::shard::Storage;
use crate::tablet::{TableStore, Tablet};

/// How long a read waits for a tablet that is on its way to this shard, unless its caller ends it before.
const ARRIVES_WITHIN: Duration = Duration::from_secs(60);
/// The error of a request for a tablet that takes none now.
fn busy(store: &TableStore) -> StorageError {
    StorageError::TabletBusy { table: store.table().id() }
}

impl Storage {
    /// The tablet of a token, if this shard has it.
    #[inline]
    pub(crate) fn tablet(&self, store: &TableStore, token: Token) -> Result<Rc<Tablet>, StorageError> {
        let id = store.map().tablet_of(token);
        match store.tablet(id) {
            Some(tablet) => Ok(tablet),
            None => Err(self.elsewhere(store, id).err().unwrap_or_else(|| busy(store))),
        }
    }

    /// As [`Storage::tablet`], after waiting for a tablet that is on its way to this shard. The caller bounds
    /// the wait by its own deadline; without one it ends after [`ARRIVES_WITHIN`].
    #[inline]
    pub(crate) async fn tablet_soon(
        &self,
        store: &Rc<TableStore>,
        token: Token,
    ) -> Result<Rc<Tablet>, StorageError> {
        let id = store.map().tablet_of(token);
        match store.tablet(id) {
            Some(tablet) => Ok(tablet),
            // Boxed, so that the future of a read that need not wait stays small.
            None => Box::pin(self.arrived(store, id, Deadline::after(ARRIVES_WITHIN))).await,
        }
    }

    /// A tablet of this shard, once it is open here.
    ///
    /// # Errors
    /// [`StorageError::WrongShard`] if it is no tablet of this shard, or ceases to be; at the deadline
    /// [`StorageError::TabletBusy`]; [`StorageError::Draining`].
    #[cold]
    pub(crate) async fn arrived(
        &self,
        store: &Rc<TableStore>,
        id: TabletId,
        deadline: Deadline,
    ) -> Result<Rc<Tablet>, StorageError> {
        let waits = || store.tablet(id).is_none() && store.is_expected(id) && !self.0.draining.get();
        let arrived = store.changed.wait_until(|| !waits());
        reactor::timeout(deadline, arrived).await.map_err(|_| busy(store))?;
        if let Some(tablet) = store.tablet(id) {
            return Ok(tablet);
        }
        self.elsewhere(store, id)?;
        Err(StorageError::Draining)
    }

    /// Why a tablet is not open here; succeeds if it is on its way.
    #[cold]
    pub(crate) fn elsewhere(&self, store: &TableStore, tablet: TabletId) -> Result<(), StorageError> {
        let owner = store.owner(tablet).map(|own| usize::from(own.shard));
        if owner == Some(self.0.shard) {
            return Ok(());
        }
        let table = store.table().id();
        Err(StorageError::WrongShard { table, tablet: tablet.0, shard: self.0.shard, owner })
    }

    /// Checks that a tablet that is open here is of the tenancy with which a request was planned. One that is
    /// on its way will be of the latest.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`]; [`StorageError::OtherTenancy`].
    pub fn check_tenancy(&self, table: TableId, tablet: TabletId, planned: u64) -> Result<(), StorageError> {
        let store = self.table_store(table)?;
        let is = store.borrow_tablet(tablet).map(|tablet| tablet.since());
        match is.filter(|is| *is != planned) {
            Some(is) => Err(StorageError::OtherTenancy { table, tablet: tablet.0, is, planned }),
            None => Ok(()),
        }
    }

    /// Checks that this shard has all tablets of a range of tokens, or gets them: a read of the range then
    /// misses nothing. A read that was planned with older places of tablets would take a tablet that has left
    /// for one without rows.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`]; [`StorageError::WrongShard`] naming the first that is elsewhere.
    pub fn has_tablets(&self, table: TableId, (first, last): (Token, Token)) -> Result<(), StorageError> {
        let store = self.table_store(table)?;
        let map = store.map();
        for tablet in (map.tablet_of(first).0..=map.tablet_of(last).0).map(TabletId) {
            if store.borrow_tablet(tablet).is_none() {
                self.elsewhere(&store, tablet)?;
            }
        }
        Ok(())
    }
}
