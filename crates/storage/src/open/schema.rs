//! Shard 0's part before the other shards start: checks that no file is missing, and cleans folders.

use std::path::Path;
use std::rc::Rc;

use model::hex;
use model::schema::{Schema, SchemaChange};

use crate::agreed::AgreedSchema;
use crate::agreed::dropped_tables;
use crate::config::StorageConfig;
use crate::error::StorageError;
use crate::manifest::Listed;
use crate::manifest::check::{self, Missing};
use crate::takeover;

/// Results of shard 0, for all shards.
pub(super) struct Opened {
    pub(super) changes: Rc<Vec<SchemaChange>>,
    /// The epoch of the manifest's valid logs.
    pub(super) epoch: u64,
}

/// Checks that nothing is missing and cleans folders, before any shard reads them.
pub(super) async fn open_schema(
    config: &StorageConfig,
    agreed: &AgreedSchema,
    shards: usize,
) -> Result<Opened, StorageError> {
    crate::directory::ensure(&config.data_dir).await?;
    let mut schema = Schema::empty();
    for change in &agreed.changes {
        schema.apply(change)?;
    }
    let mut missing = Missing::default();
    let listed = Listed::read(&config.manifest_dir, &mut missing).await?;
    let looked = check::look(config, &schema, agreed, &listed, &mut missing).await?;
    missing.settle(&config.accept_missing)?;
    looked.settle().await?;
    let epoch = listed.go_on_with(&config.manifest_dir, &looked.state, &schema, shards).await?;
    remove_leftovers(config, &schema, &agreed.changes).await?;
    Ok(Opened { changes: Rc::new(agreed.changes.clone()), epoch })
}

/// Empties a dropped table's folder; removes the folder too if it has no snapshots.
async fn remove_all_but_snapshots(directory: &Path) -> Result<(), StorageError> {
    let entries = reactor::file::read_dir(directory).await.map_err(StorageError::of("list", directory))?;
    if !entries.iter().any(|entry| entry.is_dir && entry.name == crate::snapshot::DIRECTORY) {
        return reactor::file::remove_dir_all(directory).await.map_err(StorageError::of("delete", directory));
    }
    for entry in entries.into_iter().filter(|entry| entry.name != crate::snapshot::DIRECTORY) {
        let path = directory.join(&entry.name);
        let removed = if entry.is_dir {
            reactor::file::remove_dir_all(&path).await
        } else {
            reactor::file::remove_file(&path).await
        };
        removed.map_err(StorageError::of("delete", &path))?;
    }
    Ok(())
}

/// Removes folders of dropped tables, except their snapshots. Folders of unknown tables stay, with a line in
/// the log.
async fn remove_leftovers(
    config: &StorageConfig,
    schema: &Schema,
    changes: &[SchemaChange],
) -> Result<(), StorageError> {
    let dropped: Vec<String> = dropped_tables(changes).iter().map(|id| hex::text(&id.0)).collect();
    let known: Vec<String> = schema.tables().map(|table| hex::text(&table.id().0)).collect();
    let data = &config.data_dir;
    for keyspace in reactor::file::read_dir(data).await.map_err(StorageError::of("list", data))? {
        if !keyspace.is_dir {
            continue;
        }
        let directory = data.join(&keyspace.name);
        let tables =
            reactor::file::read_dir(&directory).await.map_err(StorageError::of("list", &directory))?;
        // A Cassandra node's own folders are not worth a line each at every start.
        if takeover::is_system(&keyspace.name) && schema.keyspace(&keyspace.name).is_none() {
            continue;
        }
        for table in tables.into_iter().filter(|table| table.is_dir) {
            let id = table.name.rsplit('-').next().unwrap_or_default().to_owned();
            let path = directory.join(&table.name);
            if dropped.contains(&id) {
                remove_all_but_snapshots(&path).await?;
            } else if !known.contains(&id) {
                reactor::warn!("a folder of a table that is not in the schema is left alone";
                    directory = path.display());
            }
        }
    }
    Ok(())
}
