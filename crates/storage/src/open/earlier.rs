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
        let group0 = config.group0_dir();
        let is_migrated = exists(&group0).await?;
        if !is_migrated {
            takeover::prepare(config, shards).await?;
        }
        let path = schema_log::path(&config.schema_dir);
        let log = if exists(&path).await? { Some(schema_log::open(&path).await?) } else { None };
        if is_migrated {
            return Ok(log.map(|log| {
                let index = log.changes.len() as u64;
                Self { changes: log.changes, index, expects_manifest: log.is_listed }
            }));
        }
        // Before anything is made in its place.
        let mut missing = Missing::default();
        let listed = Listed::read(&config.manifest_dir, &mut missing).await?;
        let found = log.as_ref().map_or(0, |log| log.changes.len() as u64);
        let must = listed.state.agreed;
        if log.is_none() && listed.current.is_some() {
            missing.add(format!("{}: the schema", group0.display()));
        } else if must > found {
            missing.add(format!("{}: {} of {must} schema changes", path.display(), must - found));
        }
        missing.settle(&config.accept_missing)?;
        if log.is_none() && must == 0 {
            return Ok(None);
        }
        let (changes, expects_manifest) = log.map(|log| (log.changes, log.is_listed)).unwrap_or_default();
        Ok(Some(Self { changes, index: found.max(must), expects_manifest }))
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
