//! The schema as an earlier version kept it, at the first start of this one.
//!
//! That is the log of an earlier version, or the one that `takeover` makes of a Cassandra node's tables. The
//! log is put aside once the control plane has the schema and the storage is open.

use std::path::{Path, PathBuf};

use model::schema::{Schema, SchemaChange};

use crate::agreed::log as schema_log;
use crate::config::StorageConfig;
use crate::error::StorageError;
use crate::manifest::Listed;
use crate::manifest::check::Missing;
use crate::takeover;

/// The schema as an earlier version kept it, in `schema.log`.
#[derive(Debug, Clone)]
pub struct EarlierSchema {
    /// All changes in order.
    pub changes: Vec<SchemaChange>,
    /// How many changes there were, or must have been by the manifest: the number of the last one.
    pub index: u64,
    /// Whether there has to be a manifest.
    pub expects_manifest: bool,
}

fn aside(log: &Path) -> PathBuf {
    log.with_extension("log.migrated")
}

async fn exists(path: &Path) -> Result<bool, StorageError> {
    reactor::file::exists(path).await.map_err(StorageError::of("look for", path))
}

impl EarlierSchema {
    /// Reads the schema log of an earlier version, which is made of Cassandra's tables if the data directory
    /// is a Cassandra node's and the control plane has nothing yet. `None` if there is none. On shard 0,
    /// before the control plane is opened.
    ///
    /// # Errors
    /// [`StorageError::Missing`] if changes or the control plane's folder must be there and are not;
    /// [`StorageError::SchemaLogCorrupt`]; errors of the takeover; file errors.
    pub async fn read(config: &StorageConfig, shards: usize) -> Result<Option<Self>, StorageError> {
        crate::directory::ensure(&config.data_dir).await?;
        crate::directory::ensure(&config.schema_dir).await?;
        let is_migrated = exists(&config.group0_dir()).await?;
        let path = schema_log::path(&config.schema_dir);
        let mut must = 0;
        if !is_migrated {
            let mut missing = Missing::default();
            // The storage names what is missing of the manifest itself.
            let listed = Listed::read(&config.manifest_dir, &mut Missing::default()).await?;
            let has_log = exists(&path).await?;
            if listed.current.is_none() && !has_log {
                // Only a node without a past: another one's tables would come to life as they once were.
                takeover::prepare(config, shards).await?;
            } else if !has_log {
                missing.add(format!("{}: the schema", config.group0_dir().display()));
            }
            missing.settle(&config.accept_missing)?;
            must = listed.state.agreed;
        }
        if !exists(&path).await? {
            return Ok((must > 0).then(|| Self {
                changes: Vec::new(),
                index: must,
                expects_manifest: false,
            }));
        }
        let log = schema_log::open(&path).await?;
        let found = log.changes.len() as u64;
        let mut missing = Missing::default();
        if must > found {
            missing.add(format!("{}: {} of {must} schema changes", path.display(), must - found));
        }
        // Before anything is made in its place.
        missing.settle(&config.accept_missing)?;
        Ok(Some(Self { changes: log.changes, index: found.max(must), expects_manifest: log.is_listed }))
    }

    /// Checks that this is the schema with which the control plane began: a start ended before the log was
    /// put aside.
    ///
    /// # Errors
    /// [`StorageError::TwoSchemas`] if an earlier version has changed the log since.
    pub fn check(&self, config: &StorageConfig, agreed: &Schema) -> Result<(), StorageError> {
        let mut schema = Schema::empty();
        for change in &self.changes {
            schema.apply(change)?;
        }
        if schema.version() == agreed.version() {
            return Ok(());
        }
        Err(StorageError::TwoSchemas {
            path: schema_log::path(&config.schema_dir),
            group0: config.group0_dir(),
        })
    }

    /// Puts the log aside, as `schema.log.migrated`: nothing reads it any more.
    ///
    /// # Errors
    /// File errors; the next start tries it again.
    pub async fn retire(config: &StorageConfig) -> Result<(), StorageError> {
        let path = schema_log::path(&config.schema_dir);
        if exists(&path).await? {
            let renamed = reactor::file::rename(&path, &aside(&path)).await;
            renamed.map_err(StorageError::of("rename", &path))?;
            let synced = reactor::file::sync_dir(&config.schema_dir).await;
            synced.map_err(StorageError::of("sync", &config.schema_dir))?;
        }
        Ok(())
    }
}
