//! Starts on the data directory of an Apache Cassandra node: its tables appear under their ids, with their
//! rows.
//!
//! If this node has no schema of its own and its data directory has Cassandra's `system_schema`, shard 0
//! reads the schema from those files (`rows`, `schema`). It checks that every table file can be read
//! (`folder`) and that the commit log is empty (`commitlog`), and only then writes a schema log that makes
//! the same tables. Once all shards are open, and before any serves, each table's files are taken in as by
//! `import`: every tablet gets files of its own.
//!
//! Cassandra's files stay as they are, so that one can go back: they are hard-linked below the table's folder
//! to be read, and only those links are removed. If `takeover_keeps_files` is off, each file is removed once
//! its rows are in files of this node, so that free space for the largest file is enough. A refusal comes
//! before anything is made. A list of the tables that are still to be taken in, `schema/takeover`, is durable
//! before the schema log is; a start after a crash continues with it.

mod commitlog;
mod folder;
mod rows;
mod schema;

use reactor::{Cold, cold};
use std::path::{Path, PathBuf};

use model::schema::{Schema, SchemaChange};

use crate::agreed::log as schema_log;
use crate::config::StorageConfig;
use crate::error::StorageError;
use crate::import::ImportSource;
use crate::shard::Storage;
use folder::Staged;

/// The list of tables that are still to be taken in, in the schema's folder.
const LIST: &str = "takeover";
/// First line of such a list.
const LIST_HEAD: &str = "ceto takeover 1\n";
/// Largest list that is read.
const LIST_BYTES_MAX: usize = 64 << 20;
/// Table files of one table taken in at once.
const FILES_AT_ONCE: usize = 256;

/// Whether a keyspace is one of Cassandra's own: its schema is not taken over.
pub(crate) fn is_system(keyspace: &str) -> bool {
    keyspace == "system" || keyspace.starts_with("system_") || keyspace.starts_with("dse_")
}

fn refused(path: &Path, reason: impl Into<String>) -> StorageError {
    StorageError::Import { path: path.to_owned(), reason: reason.into() }
}

/// On shard 0, on a node without a schema: makes a schema log if there is none and the data directory is a
/// Cassandra node's.
///
/// # Errors
/// [`StorageError::Import`] for anything that cannot be taken over, naming the file and the table; nothing
/// has changed then.
#[inline(never)]
pub(crate) fn prepare<'a>(config: &'a StorageConfig, shards: usize) -> Cold<'a, Result<(), StorageError>> {
    cold(async move {
        let log = schema_log::path(&config.schema_dir);
        if reactor::file::exists(&log).await.map_err(StorageError::of("look for", &log))? {
            return Ok(());
        }
        let Some(described) = rows::read(&config.data_dir).await? else { return Ok(()) };
        reactor::info!("the data directory is an Apache Cassandra node's and is taken over";
        directory = config.data_dir.display());
        let changes = schema::changes(&described, shards, &config.data_dir)?;
        let mut schema = Schema::empty();
        for change in &changes {
            schema.apply(change)?;
        }
        commitlog::check(config, &schema).await?;
        let folders = folder::folders_of(&config.data_dir, &schema).await?;
        let (mut all, mut largest) = (0, 0);
        for table in schema.tables() {
            let Some(own) = folders.get(&table.id()) else { continue };
            for directory in own {
                let staged = Staged::of(directory, &folder::sets(directory).await?).await?;
                let looked = staged.look(table).await;
                staged.remove().await?;
                let (bytes, most) = looked?;
                all += bytes;
                largest = most.max(largest);
            }
        }
        let free = reactor::file::available_space(&config.data_dir).await;
        check_room(
            &config.data_dir,
            if config.takeover_keeps_files { all } else { largest },
            free.map_err(StorageError::of("look at the free space of", &config.data_dir))?,
        )?;
        crate::directory::ensure(&config.schema_dir).await?;
        let mut left: Vec<PathBuf> = folders.into_values().flatten().collect();
        left.sort();
        write_list(config, &left).await?;
        let bytes = schema_log::encode_unlisted(&changes);
        reactor::file::write_all_atomic(&log, &bytes).await.map_err(StorageError::of("write", &log))?;
        let tables = changes.iter().filter(|change| matches!(change, SchemaChange::CreateTable(_))).count();
        reactor::info!("the schema is taken over"; tables = tables);
        Ok(())
    })
}

/// Refuses if there is no room for the new files beside the old ones; both would stay.
fn check_room(data: &Path, bytes: u64, free: u64) -> Result<(), StorageError> {
    if bytes <= free {
        return Ok(());
    }
    let reason = format!(
        "{bytes} bytes are needed to write its table files anew while Cassandra's stay, {free} bytes are free on the disk: \
         free some, or set takeover_keeps_files: false, with which each file goes once its rows are written"
    );
    Err(refused(data, reason))
}

/// Writes the list of tables still to be taken in: folders relative to the data directory, one in each line.
async fn write_list(config: &StorageConfig, left: &[PathBuf]) -> Result<(), StorageError> {
    let path = config.schema_dir.join(LIST);
    let mut text = LIST_HEAD.to_owned();
    for directory in left {
        let relative = directory.strip_prefix(&config.data_dir).unwrap_or(directory);
        let Some(relative) = relative.to_str() else {
            return Err(refused(directory, "the name of the folder is not UTF-8"));
        };
        text.push_str(relative);
        text.push('\n');
    }
    reactor::file::write_all_atomic(&path, text.as_bytes()).await.map_err(StorageError::of("write", &path))
}

async fn read_list(config: &StorageConfig) -> Result<Option<Vec<PathBuf>>, StorageError> {
    let path = config.schema_dir.join(LIST);
    let bytes = match reactor::file::read_all(&path, LIST_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StorageError::io("read", path, error)),
    };
    let text = std::str::from_utf8(&bytes).ok().and_then(|text| text.strip_prefix(LIST_HEAD));
    let text = text.ok_or_else(|| refused(&path, "it is not a list of tables to be taken over"))?;
    Ok(Some(text.lines().map(|line| config.data_dir.join(line)).collect()))
}

impl Storage {
    /// On shard 0, once all shards are open: takes in the tables that are still on the list.
    ///
    /// # Errors
    /// Those of the import; tables that were taken in stay, and the next start continues.
    #[inline(never)]
    pub(crate) fn finish_takeover<'a>(&'a self) -> Cold<'a, Result<(), StorageError>> {
        cold(async move {
            let config = &self.0.config;
            let Some(mut left) = read_list(config).await? else { return Ok(()) };
            while let Some(directory) = left.first().cloned() {
                if let Some(table) = folder::table_id(&directory).filter(|id| self.table_store(*id).is_ok()) {
                    let keeps = config.takeover_keeps_files;
                    let sets = if keeps {
                        folder::sets(&directory).await?
                    } else {
                        folder::sets_left(&directory).await?
                    };
                    let mut partitions = 0;
                    // If files are removed, one at a time, so that no more space is taken than the largest
                    // needs.
                    for some in sets.chunks(if keeps { FILES_AT_ONCE } else { 1 }) {
                        let staged = Staged::of(&directory, some).await?;
                        let from = ImportSource { directory: Some(staged.directory.clone()), keep: true };
                        let taken = self.take_in(table, &from).await;
                        staged.remove().await?;
                        partitions += taken?.partitions;
                        if !keeps {
                            folder::remove(&directory, some).await?;
                        }
                    }
                    reactor::info!("a table of Cassandra's is taken over";
                    directory = directory.display(), files = sets.len(), partitions = partitions, tables_left = left.len() - 1);
                }
                left.remove(0);
                write_list(config, &left).await?;
            }
            let path = config.schema_dir.join(LIST);
            reactor::file::remove_file(&path).await.map_err(StorageError::of("delete", &path))?;
            reactor::info!("Cassandra's data is taken over";
            directory = config.data_dir.display(), its_files_are_kept = config.takeover_keeps_files);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_takeover_without_room_is_refused_with_both_numbers() {
        let data = Path::new("/data");
        assert!(check_room(data, 10, 10).is_ok());
        let refused = check_room(data, 11, 10).expect_err("a refusal").to_string();
        assert!(refused.contains("11 bytes") && refused.contains("10 bytes are free"), "{refused}");
    }
}
