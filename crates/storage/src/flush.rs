//! Moves memtables to table files: when memory or the commit log asks for it, at an age that the table sets,
//! or on request.
//!
//! A flush seals the memtable and writes its file. Only when the file is durable does it replace the memtable
//! by the file and release the memtable's claim on the commit log. Flushed writes are never ahead of the log
//! on disk: the log is made durable first, so that after a power failure the rest of the log is a prefix of
//! the writes.

mod output;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use model::reconcile::Purge;
use model::schema::TableOptions;
use model::{Table, TableId, Token};
use reactor::{Cold, Deadline, Group, cold};
use sstable::{
    CHUNK_BYTES_DEFAULT, Component, Compression, Compressor, Descriptor, EncodingMinima, TabletMark, Writer,
    WriterOptions,
};

use crate::commitlog::flushed::encode_flushed;
use crate::commitlog::format::EntryKind;
use crate::directory;
use crate::error::StorageError;
use crate::large_data::Watch;
use crate::manifest::{Edit, FileState};
use crate::memtable::Memtable;
use crate::read::PartitionBound;
use crate::read::merge::Merge;
use crate::read::source::Source;
use crate::read::visible::drop_dropped_is_needless;
use crate::shard::Storage;
use crate::tablet::{self, TableFile, Tablet, to_storage_error};
use crate::throttle::Spool;

pub(crate) use output::Output;

/// Time between two attempts of a flush that the disk refused.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Flushes side by side where many are asked for. Each takes the buffers of a table file's writer.
const FLUSHES_MAX: usize = 16;
/// Least time between two looks at the ages of memtables.
const AGE_EVERY: Duration = Duration::from_millis(10);
/// Time for writers to let go of a segment that should be freed.
const PRESSURE_EVERY: Duration = Duration::from_millis(50);

/// The line of the log for a memtable that became a table file.
fn log_flushed(tablet: &Tablet, file: &TableFile) {
    let table = tablet.table();
    reactor::info_limited!("a memtable was flushed";
        keyspace = table.keyspace(), table = table.name(), tablet = tablet.id.0,
        file = file.path().display(), bytes = file.sstable().bytes_on_disk(), partitions = file.partitions());
}

impl Storage {
    /// Flushes a table's memtables on this shard; returns when their contents are in durable table files.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`]; those of writing, the contents then stay in memory and in the commit
    /// log.
    pub async fn flush(&self, table: TableId) -> Result<(), StorageError> {
        let store = self.table_store(table)?;
        for tablet in &store.tablets() {
            self.flush_tablet(tablet).await?;
        }
        Ok(())
    }

    /// Flushes every memtable of this shard.
    ///
    /// # Errors
    /// As [`Storage::flush`]: the first error. The other memtables are flushed nevertheless.
    pub async fn flush_all(&self) -> Result<(), StorageError> {
        self.flush_each(self.tablets()).await
    }

    /// Flushes the memtables of several tables; a table that no longer exists is left out.
    ///
    /// # Errors
    /// As [`Storage::flush_all`].
    pub async fn flush_tables(&self, tables: &[TableId]) -> Result<(), StorageError> {
        let stores = tables.iter().filter_map(|table| self.table_store(*table).ok());
        self.flush_each(stores.flat_map(|store| store.tablets()).collect()).await
    }

    /// Flushes tablets, [`FLUSHES_MAX`] at a time: a small memtable's flush only waits for the disk's syncs,
    /// and those of flushes side by side are one for the commit log, for each directory, and mostly for the
    /// file system.
    async fn flush_each(&self, tablets: Vec<Rc<Tablet>>) -> Result<(), StorageError> {
        // All are sealed first, so that one sync of the log covers them: the marks of flushes grow it.
        for tablet in &tablets {
            // One that is being flushed seals by itself afterwards.
            if let Some(_turn) = tablet.flushing.try_acquire(1)
                && !tablet.has_left()
            {
                tablet.seal_at(|| (!self.0.replaying.get()).then(|| self.0.log.end())).await;
            }
        }
        let workers = tablets.len().min(FLUSHES_MAX);
        let next = Rc::new(RefCell::new(tablets.into_iter()));
        let work = |_| {
            let (storage, next) = (self.clone(), Rc::clone(&next));
            reactor::spawn(reactor::current_group(), async move {
                let mut result = Ok(());
                // Bounded: each round takes a tablet off the list.
                loop {
                    let Some(tablet) = next.borrow_mut().next() else { return result };
                    let flushed = storage.flush_tablet(&tablet).await;
                    result = result.and(flushed);
                }
            })
        };
        let workers: Vec<_> = (0..workers).map(work).collect();
        let mut result = Ok(());
        for worker in workers {
            match worker.await {
                Ok(flushed) => result = result.and(flushed),
                Err(panicked) => panic!("a flush broke: {panicked}"),
            }
        }
        result
    }

    /// The number of memtables with writes that are in no table file yet, and their bytes.
    pub fn unflushed(&self) -> (usize, usize) {
        let tables = self.0.tables.borrow();
        let tablets = tables.values().flat_map(|store| store.tablets());
        let dirty = tablets.filter(|tablet| tablet.active_bytes() > 0 || tablet.sealed().is_some());
        dirty.fold((0, 0), |(count, sum), tablet| (count + 1, sum + tablet.memtable_bytes()))
    }

    /// Makes all entries durable that the commit log has taken so far.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn sync_commitlog(&self) -> Result<(), StorageError> {
        self.0.log.sync().await
    }

    /// Stops writing, flushes everything and closes the commit log. Reads go on.
    ///
    /// # Errors
    /// The first error of flushing and closing. Writes that could not be flushed are in the commit log.
    #[inline(never)]
    pub fn drain<'a>(&'a self) -> Cold<'a, Result<(), StorageError>> {
        cold(async move {
            self.0.draining.set(true);
            self.0.disk.drain_until.set(Some(Deadline::after(DRAIN_MARKS_WITHIN)));
            for event in
                [&self.0.stopped, &self.0.flush_wanted, &self.0.compaction_wanted, &self.0.memory_freed]
            {
                event.notify_all();
            }
            self.0.damage.found.notify_all();
            self.0.cache.components().wake();
            self.0.ages_changed.notify_all();
            self.wake_expiring();
            self.0.log.wake();
            let flushed = self.flush_all().await;
            if let Err(error) = self.save_cache().await {
                reactor::warn!("the list of cached rows cannot be saved"; error = error);
            }
            self.0.tasks.close().await;
            let closed = self.0.log.close().await;
            flushed.and(closed).and(self.0.manifest.settle().await)
        })
    }

    /// Flushes one tablet.
    pub(crate) async fn flush_tablet(&self, tablet: &Rc<Tablet>) -> Result<(), StorageError> {
        let Ok(_turn) = tablet.flushing.acquire(1).await else { return Err(StorageError::Draining) };
        self.flush_in_turn(tablet).await
    }

    /// As [`Storage::flush_tablet`], for a caller that has the tablet's turn to flush.
    #[inline(never)]
    pub(crate) fn flush_in_turn<'a>(&'a self, tablet: &'a Rc<Tablet>) -> Cold<'a, Result<(), StorageError>> {
        cold(async move {
            if tablet.has_left() {
                // It was flushed before.
                return Ok(());
            }
            tablet.seal_at(|| (!self.0.replaying.get()).then(|| self.0.log.end())).await;
            // Bounded: memtables are sealed only under the turn that is held here.
            while let Some(memtable) = tablet.sealed() {
                if tablet.is_dropped() {
                    return Ok(());
                }
                let logged = match memtable.sealed_at() {
                    Some(upto) => self.0.log.sync_upto(upto).await,
                    None => self.0.log.sync().await,
                };
                let logged = logged.and_then(|()| tablet.check_truncation(&self.0.log));
                logged.inspect_err(|error| self.note_write_error(error, true))?;
                let spool = self.0.throttle.spool(memtable.bytes(), memtable.partition_count());
                let file = self.write_memtable(tablet, &memtable, &spool).await;
                let file = file.inspect_err(|error| self.note_write_error(error, false))?;
                // A truncation may have taken the memtable while it was written.
                if tablet.sealed().is_some_and(|now| Rc::ptr_eq(&now, &memtable)) && !tablet.is_dropped() {
                    if let Some(file) = &file {
                        // Before the entries it stands for may go.
                        let listed = self.list_file(tablet, file).await;
                        listed.inspect_err(|error| self.note_write_error(error, false))?;
                        self.0.compactions.note_flush(file.sstable().bytes_on_disk());
                        log_flushed(tablet, file);
                    }
                    tablet.add_flushed(file.clone());
                    spool.complete();
                    // Its entries are not needed any more, while its rows are until the cache has them.
                    self.mark_flushed(tablet, &memtable).await;
                    memtable.release_log();
                    self.update_cache(tablet, &memtable, file.as_ref()).await;
                    tablet.remove_memtable(&memtable);
                } else if let Some(file) = file {
                    self.discard(tablet, file.generation()).await;
                }
                drop((memtable, spool));
                self.0.memory_freed.notify_all();
                self.0.compaction_wanted.notify_all();
            }
            Ok(())
        })
    }

    /// Records in the commit log how far the tablet is flushed, before the segments of its entries may be
    /// reused.
    async fn mark_flushed(&self, tablet: &Tablet, memtable: &Memtable) {
        let Some(upto) = memtable.sealed_at() else {
            tablet.set_marked(false);
            return;
        };
        let table = tablet.table();
        let payload = encode_flushed(table.id(), (table.tablets(), tablet.id), upto);
        // A log without room would else hold up the end of the process once for every tablet.
        let until = self.0.disk.drain_until.get().unwrap_or_else(|| Deadline::after(MARK_WITHIN));
        let marked = self.0.log.append(EntryKind::Flushed, &payload, until).await;
        if let Err(error) = &marked {
            reactor::warn_limited!("a flush could not be noted in the commit log: tombstones stay until one is";
                error = error);
        }
        tablet.set_marked(marked.is_ok());
    }

    async fn write_memtable(
        &self,
        tablet: &Rc<Tablet>,
        memtable: &Rc<Memtable>,
        spool: &Rc<Spool>,
    ) -> Result<Option<Rc<TableFile>>, StorageError> {
        let table = tablet.table();
        let mut output =
            self.output(tablet, &table, memtable.minima(), memtable.partition_count() as u64).await?;
        output.spool = Some(Rc::clone(spool));
        self.within(tablet, output, async |output| {
            let mut from = PartitionBound { token: Token::MINIMUM, key: None, inclusive: true };
            let mut walk = memtable.contents().seek(&from);
            let mut key = Vec::new();
            let mut merge = Merge::new(Rc::clone(&table), Vec::new(), Purge::nothing());
            let sees_all = drop_dropped_is_needless(&table);
            loop {
                let (partition, plain);
                {
                    let contents = memtable.contents();
                    let Some(at) = contents.at(&mut walk, &from) else { return Ok(()) };
                    let (token, bytes) = contents.key(at);
                    key.clear();
                    key.extend_from_slice(bytes);
                    from.token = token;
                    (partition, plain) = (at, contents.plain_version(at).filter(|_| sees_all));
                    if plain.is_none() {
                        let versions = contents.versions(partition).into_iter();
                        let sources = versions.map(|v| Source::memory(memtable, partition, v));
                        merge.sources_mut().extend(sources);
                    }
                    contents.step(&mut walk);
                }
                match plain {
                    Some(version) => {
                        let place = (memtable, partition, version);
                        output.partition_in_memory(from.token, &key, place).await?;
                    }
                    None => {
                        merge.restart(Purge::nothing());
                        // Writing pauses, and readers that go meanwhile fold versions together.
                        merge.pin();
                        output.partition(from.token, &key, &mut merge).await?;
                        // Dropped here, while the memtable is not read: the sources release their pins.
                        merge.sources_mut().clear();
                    }
                }
            }
        })
        .await
    }

    /// Begins a table file of a tablet.
    pub(crate) async fn output(
        &self,
        tablet: &Tablet,
        table: &Rc<Table>,
        minima: EncodingMinima,
        expected_partitions: u64,
    ) -> Result<Output, StorageError> {
        self.output_at(tablet, table, minima, expected_partitions, 0).await
    }

    /// Begins a table file of a tablet that is meant for a level.
    pub(crate) async fn output_at(
        &self,
        tablet: &Tablet,
        table: &Rc<Table>,
        minima: EncodingMinima,
        expected_partitions: u64,
        level: u32,
    ) -> Result<Output, StorageError> {
        let directory = &tablet.directory;
        if !tablet.has_directory() {
            directory::ensure(directory).await?;
            tablet.set_directory();
        }
        assert!(!tablet.has_left(), "a tablet that has left writes no file: {:?}", tablet.id);
        let generation = tablet.free_generation().await?;
        let options = WriterOptions {
            summary_ratio: self.0.config.summary_ratio,
            column_index_bytes: self.0.config.column_index_bytes,
            tablet: Some(TabletMark {
                tablets_log2: table.definition().tablets_log2,
                tablet: tablet.id.0,
                shard: reactor::shard_id() as u32,
                since: tablet.since(),
            }),
            level: i32::try_from(level).unwrap_or(i32::MAX),
            memory: Some(self.0.cache.components().clone()),
            ..writer_options(table, minima, expected_partitions)
        };
        let writer = Writer::create(directory, generation, table, options).await.map_err(to_storage_error)?;
        let file = writer.descriptor().file_name(Component::Data);
        Ok(Output {
            writer,
            generation,
            directory: directory.clone(),
            table: Rc::clone(table),
            steps: 0,
            spool: None,
            watch: Watch::new(self.0.config.large_limits, self.0.config.partition_guards, file),
        })
    }

    /// Fills a table file and opens it; after a failure its remains are removed. Returns `None` if nothing
    /// was written.
    pub(crate) async fn within(
        &self,
        tablet: &Tablet,
        mut output: Output,
        fill: impl AsyncFnOnce(&mut Output) -> Result<(), StorageError>,
    ) -> Result<Option<Rc<TableFile>>, StorageError> {
        let generation = output.generation;
        let making = Making::new(tablet, generation);
        let made = match fill(&mut output).await {
            Ok(()) => self.complete(output).await,
            Err(error) => {
                output.writer.abort().await;
                Err(error)
            }
        };
        making.end();
        match made {
            Ok(file) => Ok(file),
            Err(error) => {
                self.discard(tablet, generation).await;
                Err(error)
            }
        }
    }

    async fn complete(&self, output: Output) -> Result<Option<Rc<TableFile>>, StorageError> {
        let Output { mut writer, directory, table, watch, .. } = output;
        writer.set_large(watch.into_found());
        let Some(info) = writer.finish().await.map_err(to_storage_error)? else { return Ok(None) };
        let opened = tablet::open(&directory, info.descriptor, &table, &self.0.cache).await;
        let sstable = opened.map_err(to_storage_error)?;
        Ok(Some(Rc::new(TableFile::new(sstable, &self.0.damage))))
    }

    /// Lists a complete table file in the manifest; if that fails the file is removed.
    ///
    /// # Errors
    /// Those of writing the manifest.
    pub(crate) async fn list_file(&self, tablet: &Tablet, file: &TableFile) -> Result<(), StorageError> {
        let making = Making::new(tablet, file.generation());
        let listed = self.0.manifest.note(&[Edit::Live((tablet.table().id(), file.generation()))]).await;
        making.end();
        if listed.is_err() {
            self.discard(tablet, file.generation()).await;
        }
        listed
    }

    /// Removes a table file that is in no set any more. Returns whether it is gone for good.
    pub(crate) async fn discard(&self, tablet: &Tablet, generation: u64) -> bool {
        self.discard_file(tablet, Descriptor::new(generation)).await
    }

    /// As [`Storage::discard`], for a file of any version.
    pub(crate) async fn discard_file(&self, tablet: &Tablet, descriptor: Descriptor) -> bool {
        tablet.add_orphan_file(descriptor);
        let key = (tablet.table().id(), descriptor.generation());
        // A dropped table's files are obsolete by the schema. For any other file the manifest records the
        // removal before the first component is removed.
        if !tablet.is_dropped()
            && self.0.manifest.file(key) != Some(FileState::Removing)
            && let Err(error) = self.0.manifest.note(&[Edit::Removing(key)]).await
        {
            reactor::warn_limited!("a table file that is not needed any more cannot be removed yet";
                error = error);
            return false;
        }
        match sstable::remove(&tablet.directory, descriptor).await {
            Ok(()) => {
                tablet.remove_orphan(descriptor.generation());
                self.0.manifest.note_lazily([Edit::Gone(key)]);
                true
            }
            Err(error) => {
                reactor::warn_limited!("a table file that is not needed any more cannot be removed yet";
                    error = error);
                false
            }
        }
    }

    /// Removes the files that earlier attempts left. Returns whether all of them are gone for good.
    pub(crate) async fn discard_orphans(&self, tablet: &Tablet) -> bool {
        for descriptor in tablet.orphan_files() {
            if !self.discard_file(tablet, descriptor).await {
                return false;
            }
        }
        true
    }

    pub(crate) fn start_flushing(&self) {
        let hold = || self.0.tasks.enter().expect("the gate of a new storage is open");
        let (storage, gate) = (self.clone(), hold());
        drop(reactor::spawn(Group::MEMTABLE, async move {
            storage.flush_for_memory().await;
            drop(gate);
        }));
        let (storage, gate) = (self.clone(), hold());
        drop(reactor::spawn(Group::MEMTABLE, async move {
            storage.flush_for_log().await;
            drop(gate);
        }));
        let (storage, gate) = (self.clone(), hold());
        drop(reactor::spawn(Group::MEMTABLE, async move {
            storage.flush_for_age().await;
            drop(gate);
        }));
    }

    /// Flushes memtables that have reached the age that their tables set. Costs nothing if no table sets one.
    async fn flush_for_age(&self) {
        while !self.0.draining.get() {
            // Subscribed before the tablets are looked at, so that a change meanwhile is not missed.
            let changed = self.0.ages_changed.wait();
            let mut next: Option<Duration> = None;
            for tablet in self.tablets() {
                let Some(mut left) = tablet.until_too_old() else { continue };
                if left.is_zero() {
                    self.flush_or_pause(&tablet).await;
                    left = tablet.until_too_old().map_or(RETRY_EVERY, |left| left.max(AGE_EVERY));
                }
                next = Some(next.map_or(left, |next| next.min(left)));
            }
            match next {
                Some(time) => drop(reactor::timeout(Deadline::after(time), changed).await),
                None => changed.await,
            }
        }
    }

    /// Flushes the largest memtable whenever memory runs short.
    async fn flush_for_memory(&self) {
        while !self.0.draining.get() {
            let short = self.0.wants_flush();
            let largest = self
                .tablets()
                .into_iter()
                .filter(|t| t.memtable_bytes() > 0)
                .max_by_key(|t| t.active_bytes());
            match largest.filter(|_| short) {
                None => self.0.flush_wanted.wait().await,
                Some(tablet) => self.flush_or_pause(&tablet).await,
            }
        }
    }

    /// Flushes whatever keeps the oldest segment whenever the commit log runs out of room.
    async fn flush_for_log(&self) {
        while !self.0.draining.get() {
            let Some(segment) = self.0.log.pressing_segment() else {
                self.0.log.wait_for_pressure(&self.0.draining).await;
                continue;
            };
            let mut any = false;
            for tablet in self.tablets() {
                if tablet.oldest_segment().is_some_and(|oldest| oldest <= segment) {
                    any = true;
                    self.flush_or_pause(&tablet).await;
                }
            }
            if !any {
                self.pause(PRESSURE_EVERY).await;
            }
        }
    }

    async fn flush_or_pause(&self, tablet: &Rc<Tablet>) {
        if let Err(error) = self.flush_tablet(tablet).await {
            reactor::warn_limited!("a memtable cannot be flushed and stays in memory"; error = error);
            self.pause(RETRY_EVERY).await;
        }
    }

    async fn pause(&self, time: Duration) {
        let _ = reactor::timeout(Deadline::after(time), self.0.stopped.wait()).await;
    }
}

/// How long a flush waits for room in the commit log to be noted there.
const MARK_WITHIN: Duration = Duration::from_secs(1);
/// The same for all flushes of a drain together.
const DRAIN_MARKS_WITHIN: Duration = Duration::from_secs(2);

/// A file on its way; where its making is cut off it may be whole on the disk, and is an orphan.
pub(crate) struct Making<'t> {
    tablet: &'t Tablet,
    generation: u64,
    ended: bool,
}

impl<'t> Making<'t> {
    /// A file that is about to be made.
    pub(crate) fn new(tablet: &'t Tablet, generation: u64) -> Self {
        Self { tablet, generation, ended: false }
    }

    /// The file is made, or its maker has given it up and cleaned up.
    pub(crate) fn end(mut self) {
        self.ended = true;
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.tablet.add_orphan(self.generation);
        }
    }
}

/// How a table's options say its files are written.
fn writer_options(table: &Table, minima: EncodingMinima, expected_partitions: u64) -> WriterOptions {
    let (compression, chunk_bytes) = chunks(&table.options().compression);
    WriterOptions {
        compression,
        chunk_bytes,
        fp_chance: table.options().bloom_filter_fp_chance,
        expected_partitions: expected_partitions.max(1),
        minima,
        ..WriterOptions::default()
    }
}

/// How chunks are compressed and how long they are, by a table's compression option.
///
/// A table that was made without the option shows Cassandra's default, chunks of 16 KiB, but has chunks of
/// one page, so that a cold read of a small row reads little. No table can be made with invalid options. If
/// one exists all the same, its files are written as for a table without the option.
fn chunks(options: &BTreeMap<String, String>) -> (Option<Compression>, u32) {
    let (compression, chunk_bytes) =
        Compression::of_options(options).unwrap_or((Some(Compressor::Lz4.into()), CHUNK_BYTES_DEFAULT));
    let unsaid = *options == TableOptions::default().compression || compression.is_none();
    (compression, if unsaid { CHUNK_BYTES_DEFAULT } else { chunk_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_made_as_the_table_says() {
        let check = |options: &[(&str, &str)], expected: (Option<Compression>, u32)| {
            let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            assert_eq!(chunks(&options), expected, "{options:?}");
        };
        let lz4 = Compression::from(Compressor::Lz4);
        let class = "org.apache.cassandra.io.compress.LZ4Compressor";
        check(&[("class", class), ("chunk_length_in_kb", "16")], (Some(lz4), 4096));
        check(&[("class", class), ("chunk_length_in_kb", "64")], (Some(lz4), 65_536));
        check(&[("enabled", "false")], (None, 4096));
        check(&[], (None, 4096));
        let zstd = Compression { level: 9, ..Compression::from(Compressor::Zstd) };
        let options = [("class", "ZstdCompressor"), ("chunk_length_in_kb", "16"), ("compression_level", "9")];
        check(&options, (Some(zstd), 16_384));
        check(&[("class", "Unheard"), ("chunk_length_in_kb", "64")], (Some(lz4), 4096));
    }
}
