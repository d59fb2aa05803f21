//! Changes of tables: schema changes, other tablets, and truncation (`truncate`).
//!
//! A schema change is durable in the control plane before any shard applies it. Folders are made when first
//! needed. A crash between any two steps leaves the change either absent from the agreed schema, and then no
//! shard has seen it, or in it, and then every shard has it from the next start on. Leftovers of dropped
//! tables are removed at that start.

mod truncate;

use std::collections::BTreeMap;
use std::rc::Rc;

use model::schema::SchemaChange;
use model::{Table, TableId};
use reactor::{Cold, Group, cold, mesh};

use crate::agreed::{AgreedChanges, OwnParts, OwnTablets, own_tablets};
use crate::error::StorageError;
use crate::manifest::Edit;
use crate::paxos;
use crate::shard::Storage;
use crate::snapshot::SnapshotRequest;
use crate::tablet::{self, FileMark, Folder, Keepers, TableStore, Unplaced};

impl Storage {
    /// Prepares for changes that are about to be proposed: takes a snapshot of each table that they drop, if
    /// `auto_snapshot` asks for it.
    ///
    /// # Errors
    /// Errors of the snapshot: the changes are not to be made.
    pub async fn prepare_changes(&self, changes: &[SchemaChange]) -> Result<(), StorageError> {
        for change in changes {
            self.snapshot_before(change).await?;
        }
        Ok(())
    }

    /// Applies changes of the schema, and of the tablets that this node has, on every shard. They were agreed
    /// upon, and are durable, under the number `index`. On shard 0, in the order of the numbers.
    ///
    /// On return every shard goes by the changes. Tablets that are elsewhere are on their way, and requests
    /// at their new shards wait for them ([`Storage::tablets_settled`]).
    ///
    /// # Errors
    /// [`StorageError::Schema`] when a change does not follow on the schema; [`StorageError::Shard`] when a
    /// shard could not apply them: it will at the next start.
    #[inline(never)]
    pub fn apply_agreed<'a>(
        &'a self,
        index: u64,
        agreed: &'a AgreedChanges,
    ) -> Cold<'a, Result<(), StorageError>> {
        cold(async move {
            assert_eq!(self.0.shard, 0, "shard 0 applies what was agreed upon");
            // Noted before the answer, so that a loss of the change would be noticed at a start.
            if let Err(error) = self.0.manifest.note(&[Edit::Agreed(index)]).await {
                reactor::warn!("the manifest cannot be told of a schema change"; error = error);
            }
            self.apply_everywhere(agreed).await
        })
    }

    /// Truncates tables, has every shard go by changes, and moves the tablets that are elsewhere now. On
    /// shard 0.
    ///
    /// # Errors
    /// As [`Storage::apply_agreed`].
    pub(crate) async fn apply_everywhere(&self, agreed: &AgreedChanges) -> Result<(), StorageError> {
        let own = |table: &TableId| self.table_store(*table).ok().map(|store| (*table, store.own()));
        let mut before: BTreeMap<TableId, OwnTablets> = agreed.tablets.keys().filter_map(own).collect();
        let mut late = false;
        for table in &agreed.truncated {
            let (Some(own), Some(before)) = (agreed.tablets.get(table), before.get_mut(table)) else {
                continue;
            };
            late |= !self.truncate_agreed(*table, before, own).await;
        }
        let mut result = self.apply_here(&agreed.changes, agreed.tablets.clone()).await;
        for shard in 1..self.0.shards {
            let changes = agreed.changes.clone();
            let tablets: Vec<(TableId, OwnParts)> =
                agreed.tablets.iter().map(|(table, own)| (*table, own.to_parts())).collect();
            let applied = on_shard(shard, async move |storage| {
                let own = tablets.into_iter().map(|(table, own)| (table, OwnTablets::from_parts(own)));
                storage.apply_here(&changes, own.collect()).await
            });
            result = result.and(applied.await);
        }
        // Only now: requests at the new shard of a tablet wait for it from before it leaves its old one.
        for (table, before) in before {
            self.move_tablets(table, &before);
        }
        if late {
            self.truncations_made().await?;
        }
        result
    }

    /// Has this shard go by changes of the schema and of tablets.
    async fn apply_here(
        &self,
        changes: &[SchemaChange],
        tablets: BTreeMap<TableId, OwnTablets>,
    ) -> Result<(), StorageError> {
        self.apply_schema(changes, &tablets).await?;
        for (table, own) in tablets {
            // A table that is not there any more was dropped by a later change of the same command.
            let Ok(store) = self.table_store(table) else { continue };
            if store.own() != own {
                let mut keep = store.tablets();
                keep.retain(|tablet| tablet.keeps_tombstones());
                store.set_own(own);
                // Compactions for the sake of tombstones may be due that were not.
                keep.iter().for_each(|tablet| self.look_again(tablet));
            }
        }
        Ok(())
    }

    /// Applies schema changes to this shard alone, all or none.
    async fn apply_schema(
        &self,
        changes: &[SchemaChange],
        tablets: &BTreeMap<TableId, OwnTablets>,
    ) -> Result<(), StorageError> {
        let mut schema = (*self.schema()).clone();
        for change in changes {
            schema.apply(change)?;
        }
        let schema = Rc::new(schema);
        let mut made = Vec::new();
        for table in schema.tables() {
            let known = self.0.tables.borrow().get(&table.id()).cloned();
            match known {
                Some(store) => {
                    if !Rc::ptr_eq(&store.table(), table) {
                        store.set_table(table);
                    }
                }
                None => {
                    let own = own_tablets(tablets, table, self.0.shards);
                    made.push((table.id(), Rc::new(self.make_table(table, own).await?)));
                }
            }
        }
        let gone: Vec<_> = {
            let mut tables = self.0.tables.borrow_mut();
            tables.extend(made);
            *self.0.schema.borrow_mut() = Rc::clone(&schema);
            let is_gone = |id: &TableId| *id != paxos::TABLE && schema.table_by_id(*id).is_none();
            tables.extract_if(|id, _| is_gone(id)).map(|(_, store)| store).collect()
        };
        self.0.note_durability();
        self.0.ages_changed.notify_all();
        for store in gone {
            self.drop_table(&store).await;
        }
        Ok(())
    }

    /// Opens a table that is new on this shard. Its folder may be there, with files that were put there by
    /// hand.
    async fn make_table(&self, table: &Rc<Table>, own: OwnTablets) -> Result<TableStore, StorageError> {
        let (config, place) = (&self.0.config, (self.0.shard, self.0.shards));
        let directory = tablet::directory_of(&config.data_dir, table);
        let found = tablet::find(&directory, table).await?;
        if self.0.shard == 0 {
            tablet::set_misnumbered_aside(&directory, &found.misnumbered, &self.0.damage).await?;
        }
        let unplaced = found.unplaced.into_iter().map(|(descriptor, error)| Unplaced::new(descriptor, error));
        let is_ours =
            |mark: &FileMark| own.owner(mark.tablet, place.1).is_some_and(|o| o.since == mark.since);
        let folder = Folder {
            files: found.files.into_iter().filter(|(_, mark)| is_ours(mark)).collect(),
            unplaced: unplaced.collect(),
            numbers: found.numbers,
        };
        let keepers = Keepers { cache: &self.0.cache, damage: &self.0.damage, manifest: &self.0.manifest };
        let store = TableStore::open(table, &config.data_dir, place, keepers, (own, &folder)).await?;
        // The table may be new to this node alone, which was away while it was made and its tablets moved.
        let (map, tablets) = (store.map(), store.tablets());
        let tenancies = tablets.iter().map(|tablet| (table.id(), map, tablet.id, tablet.since()));
        self.0.manifest.begin_tenancies(tenancies, (self.0.shard, self.0.log.end())).await?;
        Ok(store)
    }

    /// Removes the files of a dropped table on this shard. Files that cannot be removed now are removed at
    /// the next start.
    async fn drop_table(&self, store: &TableStore) {
        for tablet in &store.tablets() {
            tablet.mark_dropped();
            let Some(_alone) = tablet.alone().await else { continue };
            let (memtables, files) = tablet.clear();
            memtables.iter().for_each(|memtable| memtable.release_log());
            for file in files {
                self.discard(tablet, file.generation()).await;
            }
            self.discard_orphans(tablet).await;
        }
        self.0.memory_freed.notify_all();
        // The last shard finds the folder empty, unless it has files that this node did not write.
        let _ = reactor::file::remove_dir(&store.directory).await;
    }

    /// Takes a snapshot of each table that the schema change drops, if `auto_snapshot` asks for it.
    async fn snapshot_before(&self, change: &SchemaChange) -> Result<(), StorageError> {
        let schema = self.schema();
        let tables: Vec<Rc<Table>> = match change {
            SchemaChange::DropTable { keyspace, name, .. } => {
                schema.table(keyspace, name).cloned().into_iter().collect()
            }
            SchemaChange::DropKeyspace { name } => {
                schema.keyspace(name).map(|k| k.tables.values().cloned().collect()).unwrap_or_default()
            }
            _ => return Ok(()),
        };
        self.snapshot_automatically("dropped", &tables).await
    }

    /// Snapshots tables that are about to lose their rows, as `<why>-<milliseconds>-<table>`. Tables without
    /// rows get no snapshot.
    ///
    /// On a full disk the memtables are not flushed for the snapshot, and a snapshot that fails there does
    /// not stop the truncation or drop, because that frees space. A snapshot of existing files needs almost
    /// no space.
    async fn snapshot_automatically(&self, why: &str, tables: &[Rc<Table>]) -> Result<(), StorageError> {
        if !self.0.config.auto_snapshot {
            return Ok(());
        }
        for table in tables {
            let id = table.id();
            let any = self.on_every_shard(Group::ADMIN, id, async |storage, id| {
                Ok(storage.table_report(id).is_some_and(|r| r.files > 0 || r.memtable_partitions > 0))
            });
            if !any.await?.contains(&true) {
                continue;
            }
            let mut request = SnapshotRequest {
                tag: format!("{why}-{}-{}", reactor::wall_clock_us() / 1000, table.name()),
                tables: vec![id],
                skip_flush: self.0.disk.is_full(),
                ttl: None,
            };
            let mut taken = self.take_snapshot(&request).await;
            if taken.is_err() && !request.skip_flush {
                request.skip_flush = true;
                reactor::warn!("a table cannot be flushed for its snapshot, which has its files only";
                    keyspace = table.keyspace(), table = table.name());
                taken = self.take_snapshot(&request).await;
            }
            match taken {
                Err(error) if self.0.disk.is_full() || matches!(error, StorageError::DiskFull { .. }) => {
                    reactor::error!("a table is truncated or dropped without a snapshot: the disk is full";
                        keyspace = table.keyspace(), table = table.name(), error = error);
                }
                other => other?,
            }
        }
        Ok(())
    }
}

/// Runs `work` with the storage of another shard.
pub(crate) async fn on_shard<F>(shard: usize, work: F) -> Result<(), StorageError>
where
    F: AsyncFnOnce(Storage) -> Result<(), StorageError> + Send + 'static,
{
    let called = mesh::call(shard, Group::ADMIN, move || async move {
        let Some(storage) = reactor::local::<Storage>() else {
            return Err("its storage is not open".to_owned());
        };
        // Errors hold values of their shard; between shards their text travels.
        work((*storage).clone()).await.map_err(|error| error.to_string())
    });
    match called.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(reason)) => Err(StorageError::Shard { shard, reason }),
        Err(error) => Err(StorageError::Shard { shard, reason: error.to_string() }),
    }
}
