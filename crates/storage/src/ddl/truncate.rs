//! Truncation: all rows of a table are forgotten.
//!
//! A table on whose tablets the nodes have agreed is truncated by a command that gives each of its replicas
//! another `since`: a new tenancy, in which no file and no entry of the commit log of an earlier one counts.
//! That alone makes it durable and fences late writes (`ApplyAs::since`). A node that is up empties its
//! tablets at once; where a shard cannot, and at a start, the table's tablets are removed and opened anew, as
//! those that left and came back are (`moves`, `open/schema`). Other tables are truncated by this node alone.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use model::TableId;
use reactor::Deadline;

use super::on_shard;
use crate::agreed::{OwnTablet, OwnTablets};
use crate::commitlog::Hold;
use crate::commitlog::format::EntryKind;
use crate::commitlog::replay::encode_truncation;
use crate::error::StorageError;
use crate::manifest::Edit;
use crate::shard::Storage;
use crate::tablet::{LeftOut, TableStore, Tablet};

/// How long a truncation waits for room in the commit log, or for tablets that are removed one by one.
const TRUNCATE_WITHIN: Duration = Duration::from_secs(60);

impl Storage {
    /// Takes the snapshot of a table that is about to be truncated, if `auto_snapshot` asks for it.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`], errors of the snapshot.
    pub async fn prepare_truncation(&self, table: TableId) -> Result<(), StorageError> {
        let store = self.table_store(table)?;
        self.snapshot_automatically("truncated", &[store.table()]).await
    }

    /// Forgets all rows of a table, durably: one snapshot first where `auto_snapshot` asks for it, then shard
    /// after shard. May be called on any shard. For tables on which the nodes have not agreed.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`], errors of the snapshot (nothing is lost then), those of a shard's
    /// [`Storage::truncate_shard`]: shards before it have forgotten their rows.
    pub async fn truncate(&self, table: TableId) -> Result<(), StorageError> {
        self.prepare_truncation(table).await?;
        // A tablet that moved meanwhile might be missed.
        let _hold = self.hold_moves(table).await?;
        for shard in 0..self.0.shards {
            on_shard(shard, async move |storage| storage.truncate_shard(table).await).await?;
        }
        Ok(())
    }

    /// Forgets all rows of a table on this shard, durably and without a snapshot.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`]; errors of the commit log: the table is then as it was. After a failure
    /// of the disk the next start may find the truncation in the log and carry it out.
    pub async fn truncate_shard(&self, table: TableId) -> Result<(), StorageError> {
        let store = self.table_store(table)?;
        self.forget_rows(&store, None).await
    }

    /// Truncates a table by a command, after which this node has its tablets as `own` says, on shard after
    /// shard. Puts the tablets that were emptied into `before` as they are now. Returns whether all shards
    /// have emptied theirs. On shard 0.
    pub(super) async fn truncate_agreed(
        &self,
        table: TableId,
        before: &mut OwnTablets,
        own: &OwnTablets,
    ) -> bool {
        let _hold = match self.hold_moves(table).await {
            Ok(hold) => hold,
            Err(error) => {
                reactor::warn!("a table is truncated tablet by tablet"; table = table, error = error);
                return false;
            }
        };
        let mut done = BTreeSet::new();
        for shard in 0..self.0.shards {
            let parts = own.to_parts();
            let emptied = on_shard(shard, async move |storage| {
                let store = storage.table_store(table)?;
                storage.forget_rows(&store, Some(&OwnTablets::from_parts(parts))).await
            });
            match emptied.await {
                Ok(()) => _ = done.insert(shard),
                Err(error) => {
                    reactor::warn!("a table is truncated tablet by tablet on a shard";
                        table = table, shard = shard, error = error);
                }
            }
        }
        let is_now = |tablet, was: OwnTablet| {
            let shard = usize::from(was.shard) % self.0.shards;
            let own = own.of(tablet).filter(|_| done.contains(&shard));
            OwnTablet { since: own.map_or(was.since, |own| own.since), ..was }
        };
        *before = OwnTablets::told(before.iter().map(|(tablet, was)| (tablet, is_now(tablet, was))));
        for ((of, tablet), is) in self.0.moves.moving.borrow_mut().iter_mut() {
            if *of == table {
                *is = is.map(|was| is_now(*tablet, was));
            }
        }
        done.len() == self.0.shards
    }

    /// Waits until tablets that could not be emptied at once are removed and opened anew.
    ///
    /// # Errors
    /// [`StorageError::Shard`] if it takes too long: the next start does it.
    pub(super) async fn truncations_made(&self) -> Result<(), StorageError> {
        let settled = reactor::timeout(Deadline::after(TRUNCATE_WITHIN), self.tablets_settled()).await;
        let reason = "a truncated table is not empty yet".to_owned();
        settled.map_err(|_| StorageError::Shard { shard: self.0.shard, reason })
    }

    /// Empties the tablets of a table on this shard. With `own` they begin the tenancies that it says; those
    /// that are in theirs already stay as they are.
    async fn forget_rows(&self, store: &TableStore, own: Option<&OwnTablets>) -> Result<(), StorageError> {
        let table = store.table().id();
        if let Some(own) = own {
            store.set_own(own.clone());
        }
        let is_older = |tablet: &Rc<Tablet>| {
            own.is_none_or(|own| own.of(tablet.id).is_none_or(|own| own.since != tablet.since()))
        };
        let (tablets, kept): (Vec<_>, Vec<_>) = store.tablets().into_iter().partition(is_older);
        let mut alone = Vec::new();
        for tablet in &tablets {
            alone.push(tablet.alone().await.ok_or(StorageError::Draining)?);
            self.forget_shared(tablet).await?;
        }
        let generations: Vec<u64> = tablets.iter().flat_map(|tablet| self.generations_of(tablet)).collect();
        // The record revokes all earlier entries of the table; those of tablets that stay go on counting.
        let hold = match kept.is_empty() {
            true => Some(self.log_truncation(table, &tablets, &generations).await?),
            false => None,
        };
        self.note_truncation(store, &tablets, &generations, own).await?;
        for tablet in &tablets {
            let (memtables, files) = tablet.clear();
            memtables.iter().for_each(|memtable| memtable.release_log());
            if let Some(own) = own.and_then(|own| own.of(tablet.id)) {
                tablet.begin_tenancy(own.since);
            }
            for file in files {
                self.discard(tablet, file.generation()).await;
            }
        }
        let mut gone = true;
        for tablet in &tablets {
            gone &= self.discard_orphans(tablet).await;
        }
        match hold {
            // The record may go now that the files it names are gone.
            Some(hold) if gone => drop(hold),
            Some(hold) => hold.keep(),
            None => {}
        }
        self.0.memory_freed.notify_all();
        Ok(())
    }

    /// Numbers of all files of a tablet, and of those that shard 0 removes for all.
    fn generations_of(&self, tablet: &Tablet) -> Vec<u64> {
        let mut generations = tablet.orphans();
        generations.extend(tablet.files().iter().map(|file| file.generation()));
        let left_out = tablet.left_out();
        let is_ours = |file: &&LeftOut| !file.is_shared || self.0.shard == 0;
        generations.extend(left_out.iter().filter(is_ours).map(|file| file.descriptor.generation()));
        generations
    }

    /// Puts a truncation into the commit log, durably.
    async fn log_truncation(
        &self,
        table: TableId,
        tablets: &[Rc<Tablet>],
        generations: &[u64],
    ) -> Result<Hold, StorageError> {
        let record = encode_truncation(table, generations);
        let logged = async {
            let within = Deadline::after(TRUNCATE_WITHIN);
            let hold = self.0.log.append(EntryKind::Truncate, &record, within).await?;
            self.0.log.sync().await.map(|()| hold)
        };
        let doubted = |_: &StorageError| tablets.iter().for_each(|tablet| tablet.doubt_truncation());
        logged.await.inspect_err(doubted)
    }

    /// Notes in the manifest that files are being removed, and where new tenancies begin.
    ///
    /// # Errors
    /// Those of writing, where tenancies begin. Otherwise the files stay until the manifest can be written.
    async fn note_truncation(
        &self,
        store: &TableStore,
        tablets: &[Rc<Tablet>],
        generations: &[u64],
        own: Option<&OwnTablets>,
    ) -> Result<(), StorageError> {
        let (table, map) = (store.table().id(), store.map());
        let mut edits: Vec<Edit> = generations.iter().map(|g| Edit::Removing((table, *g))).collect();
        let begun = tablets.iter().filter_map(|tablet| {
            let own = own?.of(tablet.id)?;
            Some((table, map, tablet.id, own.since))
        });
        edits.extend(self.0.manifest.new_tenancies(begun, (self.0.shard, self.0.log.end())));
        match self.0.manifest.note(&edits).await {
            Err(error) if own.is_none() => {
                reactor::warn!("files of a truncated table stay until the manifest can be written"; error = error);
                Ok(())
            }
            noted => noted,
        }
    }
}
