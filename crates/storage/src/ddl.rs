//! Changes of tables: the schema's, and truncation.
//!
//! A schema change is durable on shard 0 before any shard applies it; folders are made when first needed. A crash
//! between any two steps leaves either a change that is not in the log, which nobody has seen, or one that is,
//! which every shard applies at the next start; leftovers of dropped tables are removed then.

use std::rc::Rc;
use std::time::Duration;

use model::TableId;
use model::schema::SchemaChange;
use reactor::{Deadline, Group, mesh};

use crate::commitlog::format::EntryKind;
use crate::commitlog::replay::encode_truncation;
use crate::error::StorageError;
use crate::shard::Storage;
use crate::tablet::TableStore;

/// How long a truncation waits for room in the commit log.
const TRUNCATE_WITHIN: Duration = Duration::from_secs(60);

impl Storage {
    /// Makes a schema change durable and applies it on every shard. May be called on any shard.
    ///
    /// # Errors
    /// [`StorageError::Schema`] when the change does not follow on the schema; file errors: the change did not
    /// happen; [`StorageError::Shard`] when a shard could not apply it: it will at the next start.
    pub async fn change_schema(&self, change: &SchemaChange) -> Result<(), StorageError> {
        if self.0.shard != 0 {
            let change = change.clone();
            return on_shard(0, async move |storage| storage.change_schema_here(&change).await).await;
        }
        self.change_schema_here(change).await
    }

    async fn change_schema_here(&self, change: &SchemaChange) -> Result<(), StorageError> {
        let Ok(_turn) = self.0.changing.acquire(1).await else { return Err(StorageError::Draining) };
        let Some(log) = &self.0.schema_log else {
            return Err(StorageError::WrongShard { shard: self.0.shard, owner: 0 });
        };
        (*self.schema()).clone().apply(change)?;
        log.append(change).await?;
        self.apply_schema(change).await?;
        let mut result = Ok(());
        for shard in 1..self.0.shards {
            let change = change.clone();
            let applied = on_shard(shard, async move |storage| storage.apply_schema(&change).await).await;
            result = result.and(applied);
        }
        result
    }

    /// Applies a schema change to this shard alone; [`Storage::change_schema`] does it for all.
    ///
    /// # Errors
    /// [`StorageError::Schema`] when the change does not follow on the schema; file errors.
    pub async fn apply_schema(&self, change: &SchemaChange) -> Result<(), StorageError> {
        let mut schema = (*self.schema()).clone();
        schema.apply(change)?;
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
                    let place = (self.0.shard, self.0.shards);
                    let store = TableStore::open(
                        table,
                        &self.0.config.data_dir,
                        place,
                        &self.0.cache,
                        &self.0.damage,
                    )
                    .await?;
                    made.push((table.id(), Rc::new(store)));
                }
            }
        }
        let gone: Vec<_> = {
            let mut tables = self.0.tables.borrow_mut();
            tables.extend(made);
            *self.0.schema.borrow_mut() = Rc::clone(&schema);
            tables.extract_if(|id, _| schema.table_by_id(*id).is_none()).map(|(_, store)| store).collect()
        };
        for store in gone {
            self.drop_table(&store).await;
        }
        Ok(())
    }

    /// Removes what a dropped table has on this shard. What cannot be removed now is at the next start.
    async fn drop_table(&self, store: &TableStore) {
        for tablet in store.tablets() {
            tablet.mark_dropped();
            let Some(_alone) = tablet.alone().await else { continue };
            let (memtables, files) = tablet.clear();
            memtables.iter().for_each(|memtable| memtable.release_log());
            for file in files {
                self.discard(tablet, file.generation()).await;
            }
        }
        self.0.memory_freed.notify_all();
        // The last shard to come finds the folder empty, unless somebody put something else there.
        let _ = reactor::file::remove_dir(&store.directory).await;
    }

    /// Forgets all rows of a table on this shard, durably.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`]; errors of the commit log: the table is then as it was.
    pub async fn truncate(&self, table: TableId) -> Result<(), StorageError> {
        let store = self.table_store(table)?;
        let mut alone = Vec::new();
        for tablet in store.tablets() {
            alone.push(tablet.alone().await.ok_or(StorageError::Draining)?);
        }
        let generations: Vec<u64> = store
            .tablets()
            .flat_map(|tablet| {
                let mut generations = tablet.orphans();
                generations.extend(tablet.files().iter().map(|file| file.generation()));
                generations
            })
            .collect();
        let record = encode_truncation(table, &generations);
        let hold = self.0.log.append(EntryKind::Truncate, &record, Deadline::after(TRUNCATE_WITHIN)).await?;
        self.0.log.sync().await?;
        for tablet in store.tablets() {
            let (memtables, files) = tablet.clear();
            memtables.iter().for_each(|memtable| memtable.release_log());
            for file in files {
                self.discard(tablet, file.generation()).await;
            }
        }
        let mut gone = true;
        for tablet in store.tablets() {
            gone &= self.discard_orphans(tablet).await;
        }
        if gone {
            // The record may go now that the files it names are gone.
            drop(hold);
        } else {
            hold.keep();
        }
        self.0.memory_freed.notify_all();
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
