//! Starting a shard's storage: schema, table files, commit log, in step with the other shards.
//!
//! Order, and why: shard 0 reads the schema log and cleans folders while nobody else looks at them; then every shard
//! opens its tablets and its log, so that it can take writes; then each replays the old logs whose number
//! is its own modulo the number of shards, keeping what is its own and sending the rest to the owners; and no
//! shard serves before all have replayed. Old segments stay until what they hold is durable elsewhere.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

use memory::Budget;
use model::mutation::MutationView;
use model::schema::{Schema, SchemaChange};
use reactor::{Deadline, Event, Group, mesh};

use crate::commitlog::format::{BOOT_UNKNOWN, BootId};
use crate::commitlog::replay::OldLog;
use crate::commitlog::{Commitlog, CommitlogOptions, Hold};
use crate::compaction;
use crate::config::StorageConfig;
use crate::ddl::on_shard;
use crate::error::StorageError;
use crate::schema_log::{SchemaLog, dropped_tables};
use crate::shard::{Inner, Storage};
use crate::tablet::{TableStore, directory_of};

/// Mutations sent to another shard at once.
const FORWARD_BATCH: usize = 128;
/// Bytes of them.
const FORWARD_BATCH_BYTES: usize = 1 << 20;
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// What shards tell each other while they start.
#[derive(Default)]
struct Boot {
    schema: RefCell<Option<Result<Rc<Vec<SchemaChange>>, String>>>,
    ready: Cell<bool>,
    /// Shards that have come as far, by [`Phase`].
    reached: RefCell<[Vec<usize>; 2]>,
    failed: RefCell<Option<(usize, String)>>,
    changed: Event,
}

/// What all shards do before any goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Interrupted truncations are finished, and their generations known: from now on files may be written.
    Truncated,
    /// Old logs are replayed: from now on reads are right.
    Replayed,
}

impl Boot {
    /// This shard's; made by whoever comes first, itself or a peer's call.
    fn here() -> Rc<Boot> {
        reactor::local::<Boot>().unwrap_or_else(|| {
            let boot = Rc::new(Boot::default());
            reactor::set_local(Rc::clone(&boot));
            boot
        })
    }

    /// Waits for `condition`; ends early when another shard failed.
    async fn wait_until(
        &self,
        shard: usize,
        config: &StorageConfig,
        condition: impl Fn(&Boot) -> bool,
    ) -> Result<(), StorageError> {
        let waited = config.start_timeout;
        let done = self.changed.wait_until(|| condition(self) || self.failed.borrow().is_some());
        reactor::timeout(Deadline::after(waited), done)
            .await
            .map_err(|_| StorageError::StartTimedOut { shard, waited })?;
        match &*self.failed.borrow() {
            Some((shard, reason)) => Err(StorageError::Shard { shard: *shard, reason: reason.clone() }),
            None => Ok(()),
        }
    }
}

impl Storage {
    /// Opens shard `shard` of `shards`; to be called on each shard at about the same time.
    ///
    /// Returns when every shard has replayed its commit log. The storage is also found by
    /// `reactor::local::<Storage>()`.
    ///
    /// # Errors
    /// [`StorageError::CommitlogCorrupt`] and [`StorageError::SchemaLogCorrupt`] for damage that is not a torn tail;
    /// file errors; [`StorageError::Shard`] when another shard failed. A table file that is damaged is no error: it is
    /// set aside.
    pub async fn open(config: StorageConfig, shard: usize, shards: usize) -> Result<Self, StorageError> {
        assert!(shard < shards, "shard {shard} of {shards}");
        if Boot::here().ready.get() {
            // An earlier storage of this process has been closed.
            reactor::set_local(Rc::new(Boot::default()));
        }
        let opened = Self::open_here(config, shard, shards).await;
        if let Err(error) = &opened {
            tell_all(shard, shards, Err(error.to_string())).await;
        }
        opened
    }

    async fn open_here(config: StorageConfig, shard: usize, shards: usize) -> Result<Self, StorageError> {
        let boot = Boot::here();
        let (schema_log, changes) = if shard == 0 {
            let (log, changes) = open_schema(&config).await?;
            *boot.schema.borrow_mut() = Some(Ok(Rc::clone(&changes)));
            boot.changed.notify_all();
            (Some(log), changes)
        } else {
            (None, fetch_schema(&config, shard).await?)
        };
        let mut schema = Schema::empty();
        for change in changes.iter() {
            schema.apply(change)?;
        }
        let schema = Rc::new(schema);
        let budget = Budget::new(config.memtable_bytes_max);
        let damage = Rc::new(Event::new());
        let mut tables = Vec::new();
        for table in schema.tables() {
            let store = TableStore::open(table, &config.data_dir, (shard, shards), &budget, &damage).await?;
            tables.push((table.id(), Rc::new(store)));
        }
        let boot_id = boot_id().await;
        let mut logs = survey_logs(&config, shard, shards, boot_id).await?;
        for log in logs.iter_mut().map(|(_, log)| log) {
            log.seal().await?;
        }
        let own = logs.iter().position(|(number, _)| *number == shard);
        let options = CommitlogOptions {
            directory: log_directory(&config, shard),
            shard: shard as u32,
            sync: config.commitlog_sync,
            segment_bytes: config.segment_bytes,
            bytes_max: config.commitlog_bytes_max,
            boot: boot_id,
        };
        let old = own.map(|own| logs[own].1.segments.clone()).unwrap_or_default();
        let (log, holds) = Commitlog::open(options, old).await?;
        let inner = Inner::new(config, (shard, shards), schema, log, budget, schema_log, damage);
        inner.tables.borrow_mut().extend(tables);
        let storage = Self(Rc::new(inner));
        reactor::set_local(Rc::new(storage.clone()));
        storage.start_flushing();
        storage.start_compacting();
        boot.ready.set(true);
        boot.changed.notify_all();
        for (_, log) in &logs {
            storage.remove_truncated(log).await?;
        }
        storage.meet(&boot, Phase::Truncated).await?;
        storage.replay(&logs, own, holds).await?;
        storage.meet(&boot, Phase::Replayed).await?;
        storage.0.replaying.set(false);
        Ok(storage)
    }

    /// Waits until every shard has come as far.
    async fn meet(&self, boot: &Boot, phase: Phase) -> Result<(), StorageError> {
        let (shard, shards) = (self.0.shard, self.0.shards);
        tell_all(shard, shards, Ok(phase)).await;
        let all = |boot: &Boot| boot.reached.borrow()[phase as usize].len() >= shards;
        boot.wait_until(shard, &self.0.config, all).await
    }

    /// Applies old logs, `own` being that of this shard's number; the holds are those of its segments.
    async fn replay(
        &self,
        logs: &[(usize, OldLog)],
        own: Option<usize>,
        holds: Vec<Hold>,
    ) -> Result<(), StorageError> {
        let mut foreign = Foreign::default();
        let mut unknown = 0u64;
        for (at, (_, log)) in logs.iter().enumerate() {
            for segment in 0..log.segments.len() {
                let hold = if own == Some(at) { holds.get(segment) } else { None };
                log.mutations(segment, async |place, bytes| {
                    let view = MutationView::parse(bytes)?;
                    let Ok(store) = self.table_store(view.table) else {
                        unknown += 1;
                        return Ok(());
                    };
                    let map = store.map();
                    let tablet = map.tablet_of(view.token);
                    if log.is_flushed(view.table, tablet, place) {
                        return Ok(());
                    }
                    let owner = map.shard_of(tablet, self.0.shards);
                    match hold {
                        Some(hold) if owner == self.0.shard => {
                            if self.0.budget.is_exhausted() {
                                self.wait_for_memory(Deadline::after(self.0.config.start_timeout)).await?;
                            }
                            let (tablet, _) = self.owner_of(&view)?;
                            self.insert(&tablet, &view, Some(hold.again()));
                            Ok(())
                        }
                        _ => foreign.send(self, owner, bytes).await,
                    }
                })
                .await?;
            }
        }
        foreign.finish(self).await?;
        if unknown > 0 {
            reactor::info!("entries of the commit log for tables that were dropped are left out"; count = unknown);
        }
        // From here on every entry is held by a memtable, or is in the owner's log.
        drop(holds);
        for (at, (number, log)) in logs.iter().enumerate() {
            if own != Some(at) {
                log.forget().await?;
                let directory = log_directory(&self.0.config, *number);
                reactor::file::remove_dir_all(&directory)
                    .await
                    .map_err(StorageError::of("delete", &directory))?;
            }
        }
        Ok(())
    }

    /// Finishes truncations that a crash interrupted.
    async fn remove_truncated(&self, log: &OldLog) -> Result<(), StorageError> {
        for (table, generations) in &log.truncated_files {
            let Ok(store) = self.table_store(*table) else { continue };
            let map = store.map();
            for generation in generations {
                let tablet = model::tablet::TabletId((generation % u64::from(map.count())) as u32);
                let owner = map.shard_of(tablet, self.0.shards);
                let (table, generation) = (*table, *generation);
                let work = async move |storage: Storage| {
                    let store = storage.table_store(table)?;
                    let Some(tablet) = store.tablet(tablet) else { return Ok(()) };
                    tablet.skip_generation(generation);
                    let file = tablet.files().iter().find(|f| f.generation() == generation).cloned();
                    if let Some(file) = file {
                        tablet.replace_files(std::slice::from_ref(&file), None);
                        if !storage.discard(tablet, generation).await {
                            let shard = storage.0.shard;
                            let reason = format!("truncated file {generation} cannot be removed");
                            return Err(StorageError::Shard { shard, reason });
                        }
                    }
                    Ok(())
                };
                if owner == self.0.shard {
                    work(self.clone()).await?;
                } else {
                    ready_on(owner, &self.0.config).await?;
                    on_shard(owner, work).await?;
                }
            }
        }
        Ok(())
    }
}

/// Mutations on their way to the shards that own them now.
#[derive(Default)]
struct Foreign {
    batches: std::collections::BTreeMap<usize, (Vec<Vec<u8>>, usize)>,
    reached: std::collections::BTreeSet<usize>,
}

impl Foreign {
    async fn send(&mut self, storage: &Storage, owner: usize, bytes: &[u8]) -> Result<(), StorageError> {
        let (batch, size) = self.batches.entry(owner).or_default();
        batch.push(bytes.to_vec());
        *size += bytes.len();
        if batch.len() >= FORWARD_BATCH || *size >= FORWARD_BATCH_BYTES {
            let batch = std::mem::take(batch);
            *size = 0;
            self.deliver(storage, owner, batch).await?;
        }
        Ok(())
    }

    async fn deliver(
        &mut self,
        storage: &Storage,
        owner: usize,
        batch: Vec<Vec<u8>>,
    ) -> Result<(), StorageError> {
        let deadline = Deadline::after(storage.0.config.start_timeout);
        let work = async move |storage: Storage| {
            // Together, so that they share writes of the log.
            let writes: Vec<_> = batch
                .into_iter()
                .map(|bytes| {
                    let storage = storage.clone();
                    reactor::spawn(Group::COMMITLOG, async move { storage.apply(&bytes, deadline).await })
                })
                .collect();
            for write in writes {
                let shard = storage.0.shard;
                write.await.map_err(|e| StorageError::Shard { shard, reason: e.to_string() })??;
            }
            Ok(())
        };
        if self.reached.insert(owner) {
            ready_on(owner, &storage.0.config).await?;
        }
        on_shard(owner, work).await
    }

    /// Delivers the rest, and makes it durable where it went.
    async fn finish(mut self, storage: &Storage) -> Result<(), StorageError> {
        for (owner, (batch, _)) in std::mem::take(&mut self.batches) {
            self.deliver(storage, owner, batch).await?;
        }
        for owner in self.reached {
            on_shard(owner, async move |storage: Storage| storage.0.log.sync().await).await?;
        }
        Ok(())
    }
}

/// Reads the schema log and brings folders in order, before any shard looks at them.
async fn open_schema(config: &StorageConfig) -> Result<(SchemaLog, Rc<Vec<SchemaChange>>), StorageError> {
    crate::directory::ensure(&config.data_dir).await?;
    let (mut log, changes) = SchemaLog::open(&config.schema_dir).await?;
    let mut schema = Schema::empty();
    for change in &changes {
        schema.apply(change)?;
    }
    for table in schema.tables() {
        compaction::clean(&directory_of(&config.data_dir, table)).await?;
    }
    remove_leftovers(config, &schema, &changes).await?;
    log.compact(&changes).await?;
    Ok((log, Rc::new(changes)))
}

/// Removes folders of dropped tables; those of tables nobody knows stay, with a line in the log.
async fn remove_leftovers(
    config: &StorageConfig,
    schema: &Schema,
    changes: &[SchemaChange],
) -> Result<(), StorageError> {
    let hex = |id: &[u8; 16]| -> String { id.iter().map(|byte| format!("{byte:02x}")).collect() };
    let dropped: Vec<String> = dropped_tables(changes).iter().map(|id| hex(&id.0)).collect();
    let known: Vec<String> = schema.tables().map(|table| hex(&table.id().0)).collect();
    let data = &config.data_dir;
    for keyspace in reactor::file::read_dir(data).await.map_err(StorageError::of("list", data))? {
        if !keyspace.is_dir {
            continue;
        }
        let directory = data.join(&keyspace.name);
        let tables =
            reactor::file::read_dir(&directory).await.map_err(StorageError::of("list", &directory))?;
        for table in tables.into_iter().filter(|table| table.is_dir) {
            let id = table.name.rsplit('-').next().unwrap_or_default().to_owned();
            let path = directory.join(&table.name);
            if dropped.contains(&id) {
                reactor::file::remove_dir_all(&path).await.map_err(StorageError::of("delete", &path))?;
            } else if !known.contains(&id) {
                reactor::warn!("a folder of a table that is not in the schema is left alone";
                    directory = path.display());
            }
        }
    }
    Ok(())
}

/// The schema changes, from shard 0.
async fn fetch_schema(config: &StorageConfig, shard: usize) -> Result<Rc<Vec<SchemaChange>>, StorageError> {
    let waited = config.start_timeout;
    let asked = mesh::call(0, Group::ADMIN, move || async move {
        let boot = Boot::here();
        let known =
            boot.changed.wait_until(|| boot.schema.borrow().is_some() || boot.failed.borrow().is_some());
        reactor::timeout(Deadline::after(waited), known).await.map_err(|_| "no schema in time".to_owned())?;
        match (&*boot.schema.borrow(), &*boot.failed.borrow()) {
            (Some(Ok(changes)), _) => Ok(changes.iter().map(SchemaChange::encode).collect::<Vec<_>>()),
            (Some(Err(reason)), _) => Err(reason.clone()),
            (None, Some((_, reason))) => Err(reason.clone()),
            (None, None) => Err("no schema".to_owned()),
        }
    });
    let failed = |reason: String| StorageError::Shard { shard: 0, reason };
    let encoded = asked.await.map_err(|e| failed(e.to_string()))?.map_err(failed)?;
    let changes: Result<Vec<_>, _> = encoded.iter().map(|bytes| SchemaChange::decode(bytes)).collect();
    changes.map(Rc::new).map_err(|error| StorageError::Shard { shard, reason: error.to_string() })
}

/// Waits until another shard takes writes.
async fn ready_on(shard: usize, config: &StorageConfig) -> Result<(), StorageError> {
    let waited = config.start_timeout;
    let called = mesh::call(shard, Group::ADMIN, move || async move {
        let boot = Boot::here();
        let ready = boot.changed.wait_until(|| boot.ready.get() || boot.failed.borrow().is_some());
        reactor::timeout(Deadline::after(waited), ready).await.is_ok() && boot.ready.get()
    });
    match called.await {
        Ok(true) => Ok(()),
        Ok(false) => Err(StorageError::StartTimedOut { shard, waited }),
        Err(error) => Err(StorageError::Shard { shard, reason: error.to_string() }),
    }
}

/// Tells every shard, this one too, how far this one is, or that it failed.
async fn tell_all(shard: usize, shards: usize, news: Result<Phase, String>) {
    for peer in 0..shards {
        let news = news.clone();
        let told = mesh::call(peer, Group::ADMIN, move || async move {
            let boot = Boot::here();
            match news {
                Ok(phase) => boot.reached.borrow_mut()[phase as usize].push(shard),
                Err(reason) => *boot.failed.borrow_mut() = Some((shard, reason)),
            }
            boot.changed.notify_all();
        });
        if let Err(error) = told.await {
            reactor::warn!("a shard could not be told how the start goes"; peer = peer, error = error);
        }
    }
}

fn log_directory(config: &StorageConfig, shard: usize) -> std::path::PathBuf {
    config.commitlog_dir.join(format!("shard-{shard}"))
}

/// The old logs that this shard replays: those whose number is its own modulo the number of shards.
async fn survey_logs(
    config: &StorageConfig,
    shard: usize,
    shards: usize,
    boot: BootId,
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
            let log = OldLog::survey(&path, boot, config.commitlog_replay_ignore_errors).await?;
            logs.push((number, log));
        }
    }
    Ok(logs)
}

/// The kernel's boot id: tells the end of the process from the end of the machine.
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
