//! Starting a shard's storage: schema, table files, commit log, in step with the other shards.
//!
//! The order, and its reasons. Shard 0 asks the control plane for the schema, cleans folders while no other
//! shard reads them, and finds out which shard each table file belongs to. Then every shard opens its tablets
//! and its log, so that it can take writes. Then each replays the old logs whose number modulo the number of
//! shards is its own; it keeps its own mutations and sends the others to their owners. No shard serves before
//! all have replayed, nor before the data of an Apache Cassandra node was taken in (`takeover`). Old segments
//! stay until their contents are durable elsewhere.

mod boot;
mod earlier;
mod replay;
mod schema;

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use memory::Budget;
use model::TableId;
use model::schema::{Schema, SchemaChange};

use crate::agreed::AgreedSchema;
use crate::agreed::dropped_tables;
use crate::cache::RowCache;
use crate::commitlog::format::{BOOT_UNKNOWN, BootId, Position};
use crate::commitlog::replay::OldLog;
use crate::commitlog::{Commitlog, CommitlogOptions};
use crate::config::StorageConfig;
use crate::error::StorageError;
use crate::manifest::check::Missing;
use crate::manifest::{Edit, Manifest};
use crate::paxos;
use crate::shard::{Inner, Storage};
use crate::tablet::{Damage, Keepers, TableStore};
pub use earlier::EarlierSchema;

use boot::{Boot, Phase, fetch_opened, tell_all};
use schema::{Opened, open_schema};

const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

impl Storage {
    /// Opens shard 0 of `shards`, with the schema that `agreed` has once it completes. The other shards are
    /// opened at about the same time by [`Storage::open_other`].
    ///
    /// Returns when every shard has replayed its commit log. The storage is also found by
    /// `reactor::local::<Storage>()`.
    ///
    /// # Errors
    /// Those of `agreed`; [`StorageError::CommitlogCorrupt`] for damage that is not a torn tail; file errors;
    /// [`StorageError::Shard`] when another shard failed. `disk_failure_policy` decides whether a damaged
    /// table file is an error.
    pub async fn open_first(
        config: StorageConfig,
        shards: usize,
        agreed: impl Future<Output = Result<AgreedSchema, StorageError>> + 'static,
    ) -> Result<Self, StorageError> {
        let place = (0, shards);
        Self::open_and_tell(config.clone(), place, async move {
            let agreed = agreed.await?;
            let opened = Rc::new(open_schema(&config, &agreed, shards).await?);
            let boot = Boot::here();
            *boot.opened.borrow_mut() = Some(Rc::clone(&opened));
            boot.changed.notify_all();
            Ok(opened)
        })
        .await
    }

    /// Opens shard `shard` of `shards`, which is not shard 0.
    ///
    /// # Errors
    /// As [`Storage::open_first`].
    pub async fn open_other(
        config: StorageConfig,
        shard: usize,
        shards: usize,
    ) -> Result<Self, StorageError> {
        assert!(0 < shard && shard < shards, "shard {shard} of {shards}");
        Self::open_and_tell(
            config,
            (shard, shards),
            async move { fetch_opened(shard, shards).await.map(Rc::new) },
        )
        .await
    }

    async fn open_and_tell(
        config: StorageConfig,
        (shard, shards): (usize, usize),
        schema: impl Future<Output = Result<Rc<Opened>, StorageError>> + 'static,
    ) -> Result<Self, StorageError> {
        if Boot::here().ready.get() {
            // An earlier storage of this process has been closed.
            reactor::set_local(Rc::new(Boot::default()));
        }
        // In a task of its own, so that its panic is reported to the other shards, which wait for this one.
        let opening =
            reactor::spawn(reactor::current_group(), Self::open_here(config, (shard, shards), schema));
        let opened = opening
            .await
            .unwrap_or_else(|panicked| Err(StorageError::Shard { shard, reason: panicked.to_string() }));
        if let Err(error) = &opened {
            tell_all(shard, shards, Err(error.to_string())).await;
        }
        opened
    }

    async fn open_here(
        config: StorageConfig,
        (shard, shards): (usize, usize),
        schema: impl Future<Output = Result<Rc<Opened>, StorageError>>,
    ) -> Result<Self, StorageError> {
        let boot = Boot::here();
        let opened = schema.await?;
        let changes = Rc::clone(&opened.changes);
        let manifest = Manifest::open(&config.manifest_dir, opened.epoch, shard).await?;
        let mut schema = Schema::empty();
        for change in changes.iter() {
            schema.apply(change)?;
        }
        let schema = Rc::new(schema);
        let budget = Budget::shared(config.memory_bytes_max, config.memtable_bytes_max);
        let cache =
            RowCache::new(&budget, (config.memory_bytes_max as f64 * config.components_share) as usize);
        let damage = Rc::new(Damage::new(config.disk_failure_policy));
        let keepers = Keepers { cache: &cache, damage: &damage, manifest: &manifest };
        let tables = open_tables(&config, &schema, (shard, shards), keepers, &opened).await?;
        let boot_id = boot_id().await;
        let mut logs = survey_logs(&config, shard, shards, boot_id, &manifest).await?;
        refuse_unknown_tables(&config, &schema, &changes, &logs)?;
        list_what_is_there(&manifest, &tables, &logs).await?;
        for log in logs.iter_mut().map(|(_, log)| log) {
            log.seal().await?;
        }
        let own = logs.iter().position(|(number, _)| *number == shard);
        let old = own.map(|own| logs[own].1.segments.clone()).unwrap_or_default();
        let (log, holds) = Commitlog::open(log_options(&config, shard, boot_id, &manifest), old).await?;
        begin_tenancies(&manifest, &tables, (shard, log.end())).await?;
        let inner = Inner::new(config, (shard, shards), schema, log, cache, manifest, damage);
        inner.tables.borrow_mut().extend(tables);
        inner.note_durability();
        let storage = Self(Rc::new(inner));
        reactor::set_local(Rc::new(storage.clone()));
        storage.start_flushing();
        boot.ready.set(true);
        boot.changed.notify_all();
        for (_, log) in &logs {
            storage.remove_truncated(log).await?;
        }
        storage.meet(&boot, Phase::Truncated).await?;
        // Every shard has its part.
        boot.opened.take();
        drop(opened);
        // Only now: a compaction would write data that is being truncated into files that no truncation
        // names.
        storage.start_compacting();
        storage.replay(&logs, own, holds).await?;
        storage.meet(&boot, Phase::Replayed).await?;
        storage.0.replaying.set(false);
        storage.0.log.keep_to_limit();
        if shard == 0 {
            storage.finish_takeover().await?;
            storage.tell_future_writes().await;
        }
        tell_all(shard, shards, Ok(Phase::TakenOver)).await;
        let is_taken_over = |boot: &Boot| boot.reached.borrow()[Phase::TakenOver as usize].contains(&0);
        boot.wait(Phase::TakenOver.name(), is_taken_over).await?;
        storage.start_expiring();
        storage.start_watching_space();
        storage.start_warming();
        Ok(storage)
    }

    /// Waits until every shard has reached the phase.
    async fn meet(&self, boot: &Boot, phase: Phase) -> Result<(), StorageError> {
        let (shard, shards) = (self.0.shard, self.0.shards);
        tell_all(shard, shards, Ok(phase)).await;
        boot.wait(phase.name(), |boot| boot.reached.borrow()[phase as usize].len() >= shards).await
    }
}

/// Opens this shard's tablets of all tables.
async fn open_tables(
    config: &StorageConfig,
    schema: &Schema,
    place: (usize, usize),
    keepers: Keepers<'_>,
    opened: &Opened,
) -> Result<Vec<(TableId, Rc<TableStore>)>, StorageError> {
    let mut tables = Vec::new();
    for table in schema.tables().chain([&paxos::table()]) {
        let (own, folder) = &opened.tables[&table.id()];
        let found = (own.clone(), folder);
        let store = TableStore::open(table, &config.data_dir, place, keepers, found).await?;
        tables.push((table.id(), Rc::new(store)));
    }
    Ok(tables)
}

/// Notes which tenancies begin in this shard's log, before its first entry of them.
async fn begin_tenancies(
    manifest: &Manifest,
    tables: &[(TableId, Rc<TableStore>)],
    place: (usize, Position),
) -> Result<(), StorageError> {
    let of_table = |(table, store): &(TableId, Rc<TableStore>)| {
        let (table, map) = (*table, store.map());
        store.tablets().into_iter().map(move |tablet| (table, map, tablet.id, tablet.since()))
    };
    manifest.begin_tenancies(tables.iter().flat_map(of_table), place).await
}

fn log_options(config: &StorageConfig, shard: usize, boot: BootId, manifest: &Manifest) -> CommitlogOptions {
    CommitlogOptions {
        directory: log_directory(config, shard),
        shard: shard as u32,
        sync: config.commitlog_sync,
        segment_bytes: config.segment_bytes,
        bytes_max: config.commitlog_bytes_max,
        boot,
        manifest: manifest.clone(),
    }
}

/// Folder of a shard's log.
pub(crate) fn log_directory(config: &StorageConfig, shard: usize) -> std::path::PathBuf {
    config.commitlog_dir.join(format!("shard-{shard}"))
}

/// The old logs that this shard replays: those whose number is its own modulo the number of shards.
async fn survey_logs(
    config: &StorageConfig,
    shard: usize,
    shards: usize,
    boot: BootId,
    manifest: &Manifest,
) -> Result<Vec<(usize, OldLog)>, StorageError> {
    let directory: &Path = &config.commitlog_dir;
    let exists = reactor::file::exists(directory).await.map_err(StorageError::of("look for", directory))?;
    let mut logs = Vec::new();
    if exists {
        let entries =
            reactor::file::read_dir(directory).await.map_err(StorageError::of("list", directory))?;
        for entry in entries.into_iter().filter(|entry| entry.is_dir) {
            let number = entry.name.strip_prefix("shard-").and_then(|n| n.parse::<usize>().ok());
            let Some(number) = number.filter(|number| number % shards == shard) else { continue };
            let path = directory.join(&entry.name);
            let listed = (manifest, number as u32);
            let log = OldLog::survey(&path, boot, config.commitlog_replay_ignore_errors, listed).await?;
            logs.push((number, log));
        }
    }
    Ok(logs)
}

/// Checks that every entry of the old logs belongs to a table that exists or was dropped; otherwise the
/// schema has lost a table.
///
/// # Errors
/// [`StorageError::Missing`].
fn refuse_unknown_tables(
    config: &StorageConfig,
    schema: &Schema,
    changes: &[SchemaChange],
    logs: &[(usize, OldLog)],
) -> Result<(), StorageError> {
    let mut entries: BTreeMap<TableId, u64> = BTreeMap::new();
    for (table, count) in logs.iter().flat_map(|(_, log)| &log.entries_of) {
        *entries.entry(*table).or_default() += count;
    }
    entries.retain(|table, _| *table != paxos::TABLE && schema.table_by_id(*table).is_none());
    if entries.is_empty() {
        return Ok(());
    }
    let dropped = dropped_tables(changes);
    let mut missing = Missing::default();
    for (table, count) in entries.iter().filter(|(table, _)| !dropped.contains(table)) {
        missing.add(format!(
            "{}: the table with id {table}, which has {count} write(s) in the commit log and was never dropped",
            config.group0_dir().display()
        ));
    }
    missing.settle(&config.accept_missing)
}

/// Lists table files and segments that exist and are not in the manifest: from before there was a manifest,
/// from a process that ended between making and listing them, or put there by hand.
async fn list_what_is_there(
    manifest: &Manifest,
    tables: &[(TableId, Rc<TableStore>)],
    logs: &[(usize, OldLog)],
) -> Result<(), StorageError> {
    let mut edits = Vec::new();
    for (table, store) in tables {
        let tablets = store.tablets();
        let generations = tablets.iter().flat_map(|tablet| tablet.generations());
        let unlisted = generations.map(|g| (*table, g)).filter(|key| manifest.file(*key).is_none());
        edits.extend(unlisted.map(Edit::Live));
    }
    for (number, log) in logs {
        let segments = log.segments.iter().map(|segment| (*number as u32, segment.slot));
        edits.extend(segments.filter(|key| !manifest.has_segment(*key)).map(Edit::Segment));
    }
    match manifest.note(&edits).await {
        // They are listed with the next exchange of their tablet's files, or at a start with free space.
        Err(error @ StorageError::DiskFull { .. }) => {
            reactor::warn!("what is there cannot be listed"; error = error);
            Ok(())
        }
        noted => noted,
    }
}

/// The kernel's boot id, which distinguishes a restart of the machine from one of the process.
async fn boot_id() -> BootId {
    let Ok(text) = reactor::file::read_all(BOOT_ID_PATH, 4096).await else { return BOOT_UNKNOWN };
    let digits: Vec<u8> =
        text.iter().filter_map(|byte| (*byte as char).to_digit(16)).map(|d| d as u8).collect();
    let mut id = BOOT_UNKNOWN;
    if digits.len() == 32 {
        id.iter_mut().zip(digits.chunks_exact(2)).for_each(|(byte, pair)| *byte = pair[0] << 4 | pair[1]);
    }
    id
}
