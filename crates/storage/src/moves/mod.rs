//! Tablets that come, go and move between shards while the node runs.
//!
//! Effects follow the state: shard 0 compares where each tablet is with where it should be by what the node
//! was told last (`TableStore::owner`), and takes one step after another until both agree, one task for each
//! tablet and a few at a time. The steps are `leave` on the shard that has the tablet and `arrive` on the one
//! that gets it. Between shards nothing is copied: a tablet's files lie in the folder of its table, and only
//! who has them changes.
//!
//! A move in order. All shards have been told, so that requests at the new shard wait for the tablet. The old
//! one flushes while it still serves; keeps writes out and flushes the rest; notes durably in its commit log
//! that no entry of the tablet counts any more; refuses requests from then on. The new one lists the files in
//! its part of the manifest, the old one takes them off its own, and the new one opens them and serves. A
//! crash between any two steps is right by construction: a start goes by what the node was told, by the marks
//! in the files, and hands entries of the log to the shards that own them.
//!
//! Requests find their tablet by `here`. Operations on all shards of a table keep its moves away meanwhile
//! (`hold`).

mod arrive;
mod here;
mod hold;
mod leave;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use model::TableId;
use model::tablet::TabletId;
use reactor::{Deadline, Group, mesh};

use crate::agreed::{OwnTablet, OwnTablets};
use crate::error::StorageError;
use crate::shard::Storage;
use leave::Handed;

/// Time between two attempts of a step that failed.
const RETRY_EVERY: Duration = Duration::from_millis(500);

type Key = (TableId, TabletId);

impl Storage {
    /// Completes when every tablet of this node is where it should be by what the node was told last, or the
    /// node stops. On shard 0.
    pub async fn tablets_settled(&self) {
        assert_eq!(self.0.shard, 0, "shard 0 moves the tablets");
        let moves = &self.0.moves;
        moves.changed.wait_until(|| moves.moving.borrow().is_empty() || self.0.draining.get()).await;
    }

    /// Has the tablets of a table move to where they should be; `before` says where they were before the node
    /// was told. On shard 0, once every shard was told.
    pub(crate) fn move_tablets(&self, table: TableId, before: &OwnTablets) {
        let Ok(store) = self.table_store(table) else { return };
        let now = store.own();
        let mut changed: BTreeMap<TabletId, Option<OwnTablet>> = BTreeMap::new();
        for (tablet, _) in before.iter().chain(now.iter()) {
            let was = before.owner(tablet, self.0.shards);
            if was != now.owner(tablet, self.0.shards) {
                changed.insert(tablet, was);
            }
        }
        for (tablet, was) in changed {
            // One that is on its way goes on from where it is, and finds out where to by itself.
            let is_new = !self.0.moves.moving.borrow().contains_key(&(table, tablet));
            if is_new {
                self.0.moves.moving.borrow_mut().insert((table, tablet), was);
                self.start_moving((table, tablet));
            }
        }
    }

    fn start_moving(&self, key: Key) {
        // A node that stops moves nothing: its next start does.
        let Ok(gate) = self.0.tasks.enter() else { return };
        let storage = self.clone();
        drop(reactor::spawn(Group::STREAMING, async move {
            storage.move_until_settled(key).await;
            storage.0.moves.moving.borrow_mut().remove(&key);
            storage.0.moves.changed.notify_all();
            drop(gate);
        }));
    }

    /// Takes steps until the tablet is where it should be.
    async fn move_until_settled(&self, (table, tablet): Key) {
        while !self.0.draining.get() {
            let Some(_step) = self.begin_step(table).await else { return };
            let Ok(_turn) = self.0.moves.turns.acquire(1).await else { return };
            // The table may have been dropped: its files go with it.
            let Ok(store) = self.table_store(table) else { return };
            let is = self.0.moves.moving.borrow().get(&(table, tablet)).copied().flatten();
            let should = store.owner(tablet);
            if is == should {
                return;
            }
            match self.step((table, tablet), is, should).await {
                Ok(now) => _ = self.0.moves.moving.borrow_mut().insert((table, tablet), now),
                Err(error) => {
                    reactor::warn_limited!("a tablet stays where it is for now"; table = table, tablet = tablet.0,
                        error = error);
                    drop((_step, _turn));
                    self.rest().await;
                }
            }
        }
    }

    async fn rest(&self) {
        let stopped = self.0.stopped.wait_until(|| self.0.draining.get());
        let _ = reactor::timeout(Deadline::after(RETRY_EVERY), stopped).await;
    }

    /// Brings a tablet a step nearer to where it should be; returns where it is then.
    ///
    /// # Errors
    /// Those of the shards: the tablet is where it was.
    async fn step(
        &self,
        key: Key,
        is: Option<OwnTablet>,
        should: Option<OwnTablet>,
    ) -> Result<Option<OwnTablet>, StorageError> {
        let Some(is) = is else {
            let Some(own) = should else { return Ok(None) };
            self.at(own.shard, async move |storage| storage.open_tablet(key, own.since).await).await?;
            return Ok(Some(own));
        };
        match should.filter(|should| should.since == is.since) {
            Some(should) => {
                let handed = self.at(is.shard, async move |storage| storage.hand_over(key).await).await?;
                self.arrive(key, is, should, handed).await;
                Ok(Some(should))
            }
            None => {
                self.at(is.shard, async move |storage| storage.remove_tablet(key).await).await?;
                Ok(None)
            }
        }
    }

    /// Brings a tablet that was handed over to its new shard. Nobody has it meanwhile, so each part is tried
    /// until it succeeds, or the node stops: its next start then opens the tablet there.
    async fn arrive(&self, key: Key, from: OwnTablet, to: OwnTablet, handed: Handed) {
        let parts: [(&str, u16); 3] =
            [("listed", to.shard), ("taken off the list", from.shard), ("opened", to.shard)];
        for (part, (what, shard)) in parts.into_iter().enumerate() {
            while !self.0.draining.get() {
                let handed = handed.clone();
                let done = self
                    .at(shard, async move |storage| match part {
                        0 => storage.list_arriving(key, &handed).await,
                        1 => storage.forget_handed(key, &handed).await,
                        _ => storage.open_handed(key, to.since, &handed).await,
                    })
                    .await;
                match done {
                    Ok(()) => break,
                    // It went with its table.
                    Err(_) if self.table_store(key.0).is_err() => return,
                    Err(error) => {
                        reactor::warn_limited!("a tablet that moves cannot be {what} yet"; table = key.0,
                            tablet = key.1.0, error = error);
                        self.rest().await;
                    }
                }
            }
        }
    }

    /// Runs `work` with the storage of a shard.
    async fn at<R: Send + 'static>(
        &self,
        shard: u16,
        work: impl AsyncFnOnce(Storage) -> Result<R, StorageError> + Send + 'static,
    ) -> Result<R, StorageError> {
        let shard = usize::from(shard);
        let called = mesh::call(shard, Group::STREAMING, move || async move {
            let Some(storage) = reactor::local::<Storage>() else {
                return Err("its storage is not open".to_owned());
            };
            // Errors hold values of their shard; between shards their text travels.
            work((*storage).clone()).await.map_err(|error| error.to_string())
        });
        let failed = |reason: String| StorageError::Shard { shard, reason };
        called.await.map_err(|error| failed(error.to_string()))?.map_err(failed)
    }
}

/// The table and the tablet of a move on a shard of it.
fn store_of(
    storage: &Storage,
    (table, tablet): Key,
) -> Result<(Rc<crate::tablet::TableStore>, Rc<crate::tablet::Tablet>), StorageError> {
    let store = storage.table_store(table)?;
    let found = store.tablet(tablet);
    let shard = storage.0.shard;
    let found =
        found.ok_or_else(|| StorageError::WrongShard { table, tablet: tablet.0, shard, owner: None })?;
    Ok((store, found))
}
