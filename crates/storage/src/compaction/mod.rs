//! Merges table files of a tablet into one, and forgets what nobody can ask for any more.
//!
//! A tombstone goes when its grace period is over and nothing outside the merge is as old as it: neither a file that
//! may have the partition nor a memtable. `size_tiered` picks, `transaction` makes the exchange survive a crash.

mod size_tiered;
mod transaction;

use std::rc::Rc;

use model::clustering::Slice;
use model::reconcile::Purge;
use model::{Table, TableId, Token};
use reactor::Group;
use sstable::{EncodingMinima, PartitionBound, Scanner};

use crate::error::StorageError;
use crate::flush::Output;
use crate::read::merge::Merge;
use crate::read::source::{Input, Source};
use crate::shard::Storage;
use crate::tablet::{TableFile, Tablet, quarantine};
use size_tiered::SizeTiered;

pub(crate) use transaction::clean;

/// One input: the file, and its scanner at a partition; away while a merge uses it, gone at its end.
struct InputFile {
    file: Rc<TableFile>,
    scanner: Option<Box<Scanner>>,
}

impl Storage {
    /// Compacts all files of each tablet of a table into one (a major compaction), after flushing it.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`]; reading and writing errors, the files are then as before.
    pub async fn compact(&self, table: TableId) -> Result<(), StorageError> {
        let store = self.table_store(table)?;
        for tablet in store.tablets() {
            self.flush_tablet(tablet).await?;
            let Ok(_turn) = tablet.compacting.acquire(1).await else { return Err(StorageError::Draining) };
            let files = tablet.files();
            if !files.is_empty() {
                self.compact_files(tablet, &files).await?;
            }
        }
        Ok(())
    }

    pub(crate) fn start_compacting(&self) {
        let hold = || self.0.tasks.enter().expect("the gate of a new storage is open");
        if self.0.config.auto_compaction {
            let (storage, gate) = (self.clone(), hold());
            drop(reactor::spawn(Group::COMPACTION, async move {
                storage.compact_when_wanted().await;
                drop(gate);
            }));
        }
        let (storage, gate) = (self.clone(), hold());
        drop(reactor::spawn(Group::BACKGROUND, async move {
            storage.set_damage_aside().await;
            drop(gate);
        }));
    }

    async fn compact_when_wanted(&self) {
        while !self.0.draining.get() {
            let wanted = self.tablets().into_iter().find(|tablet| self.pick(tablet).is_some());
            let Some(tablet) = wanted else {
                self.0.compaction_wanted.wait().await;
                continue;
            };
            let Ok(turn) = tablet.compacting.acquire(1).await else { return };
            let Some(files) = self.pick(&tablet) else { continue };
            let compacted = self.compact_files(&tablet, &files).await;
            drop(turn);
            if matches!(compacted, Err(StorageError::Draining)) {
                // It gave way, to whoever wants the tablet or to the end.
                tablet.opened().await;
            } else if let Err(error) = compacted {
                reactor::warn_limited!("a compaction failed, its files stay as they are"; error = error);
                // Until something changes it would fail again. A drain has called already, and only once.
                if !self.0.draining.get() {
                    self.0.compaction_wanted.wait().await;
                }
            }
        }
    }

    fn pick(&self, tablet: &Tablet) -> Option<Vec<Rc<TableFile>>> {
        let options = SizeTiered::of(&tablet.table().options().compaction);
        if !options.enabled || tablet.is_dropped() || tablet.is_claimed() {
            return None;
        }
        let files = tablet.files();
        let sizes: Vec<u64> = files.iter().map(|file| file.sstable().bytes_on_disk()).collect();
        Some(options.pick(&sizes)?.into_iter().map(|index| Rc::clone(&files[index])).collect())
    }

    /// Replaces files by their merge. The caller has the tablet's compaction turn.
    async fn compact_files(&self, tablet: &Rc<Tablet>, inputs: &[Rc<TableFile>]) -> Result<(), StorageError> {
        let table = tablet.table();
        let partitions =
            inputs.iter().map(|f| f.sstable().stats().partition_sizes.count().max(0) as u64).sum();
        let output = self.output(tablet, &table, minima(inputs), partitions).await?;
        // What was flushed must not be replayed once its tombstones are forgotten, so the marks have to be durable;
        // and no file may come back that nobody counts.
        let may_forget = !self.0.replaying.get()
            && self.0.log.sync().await.is_ok()
            && tablet.is_marked()
            && self.discard_orphans(tablet).await;
        let generation = output.generation();
        let merged = self
            .within(tablet, output, async |output| {
                self.merge_files(tablet, &table, inputs, may_forget, output).await
            })
            .await?;
        // In memory first: whether the record below is on the disk may remain unknown, and both answers are right as
        // long as the old files are counted as orphans.
        tablet.replace_files(inputs, merged);
        let obsolete: Vec<u64> = inputs.iter().map(|file| file.generation()).collect();
        obsolete.iter().for_each(|generation| tablet.add_orphan(*generation));
        let record = transaction::path(&tablet.directory, generation);
        reactor::file::write_all_atomic(&record, transaction::encode(&obsolete).as_bytes())
            .await
            .map_err(StorageError::of("write", &record))?;
        let mut gone = true;
        for generation in obsolete {
            gone &= self.discard(tablet, generation).await;
        }
        if gone {
            reactor::file::remove_file(&record).await.map_err(StorageError::of("delete", &record))?;
        }
        Ok(())
    }

    async fn merge_files(
        &self,
        tablet: &Tablet,
        table: &Rc<Table>,
        inputs: &[Rc<TableFile>],
        may_forget: bool,
        output: &mut Output,
    ) -> Result<(), StorageError> {
        let now = u32::try_from(reactor::wall_clock_us() / 1_000_000).unwrap_or(u32::MAX);
        let gc_before = if may_forget { now.saturating_sub(table.options().gc_grace_seconds) } else { 0 };
        let mut open = Vec::new();
        for file in inputs {
            let (from, to) = (PartitionBound::START, PartitionBound::END);
            let failed = |error| file.failed(error);
            let mut scanner = file.open().scan(&from, &to, &[Slice::all()]).await.map_err(failed)?;
            if scanner.next_partition().await.map_err(failed)? {
                open.push(InputFile { file: Rc::clone(file), scanner: Some(Box::new(scanner)) });
            }
        }
        let mut key = Vec::new();
        while let Some(token) = least(&open, &mut key) {
            // Who wants to be alone with the tablet, or with the shard, does not wait for this.
            if tablet.is_claimed() || tablet.is_dropped() || self.0.draining.get() {
                return Err(StorageError::Draining);
            }
            let mut sources = Vec::new();
            let mut lent = Vec::new();
            for (index, input) in open.iter_mut().enumerate() {
                if input.is_at(token, &key) {
                    lent.push(index);
                    sources.extend(
                        input.scanner.take().map(|scanner| {
                            Source::new(Input::Scan { file: Rc::clone(&input.file), scanner })
                        }),
                    );
                }
            }
            let limit = timestamp_limit(tablet, inputs, token, &key);
            let purge = Purge { now, gc_before, timestamp_limit: limit };
            let merge = Merge::new(Rc::clone(table), sources, purge);
            let merge = output.partition(token, &key, merge).await?;
            for (index, source) in lent.iter().zip(merge.into_sources()) {
                let Input::Scan { mut scanner, file } = source.input else { continue };
                let more = scanner.next_partition().await.map_err(|error| file.failed(error))?;
                open[*index].scanner = more.then_some(scanner);
            }
            open.retain(|input| input.scanner.is_some());
            reactor::maybe_yield().await;
        }
        Ok(())
    }

    /// The task that moves damaged files out of the way.
    async fn set_damage_aside(&self) {
        while !self.0.draining.get() {
            let broken = self.tablets().into_iter().find_map(|tablet| {
                let file = tablet.files().iter().find(|file| file.is_broken()).cloned();
                file.map(|file| (tablet, file))
            });
            let Some((tablet, file)) = broken else {
                self.0.damage.wait().await;
                continue;
            };
            let Some(_alone) = tablet.alone().await else { return };
            tablet.replace_files(std::slice::from_ref(&file), None);
            tablet.forget_cached();
            let descriptor = file.sstable().descriptor();
            match quarantine(&tablet.directory, descriptor).await {
                Ok(()) => {
                    reactor::error!("a corrupt table file was set aside, its data is missing from reads";
                    file = descriptor, directory = tablet.directory.display())
                }
                Err(error) => reactor::error!("a corrupt table file is not used but could not be moved";
                    file = descriptor, directory = tablet.directory.display(), error = error),
            }
        }
    }
}

impl InputFile {
    fn is_at(&self, token: Token, key: &[u8]) -> bool {
        self.scanner.as_ref().is_some_and(|s| s.token() == token && s.key() == key)
    }
}

/// The least key an input stands at, copied to `key`.
fn least(open: &[InputFile], key: &mut Vec<u8>) -> Option<Token> {
    let first = open
        .iter()
        .filter_map(|i| i.scanner.as_ref())
        .min_by(|a, b| model::partition_key::compare_decorated((a.token(), a.key()), (b.token(), b.key())))?;
    key.clear();
    key.extend_from_slice(first.key());
    Some(first.token())
}

/// Tombstones of the partition below this timestamp shadow nothing outside `inputs`.
fn timestamp_limit(tablet: &Tablet, inputs: &[Rc<TableFile>], token: Token, key: &[u8]) -> i64 {
    let files = tablet.files();
    let others = files
        .iter()
        .filter(|file| !inputs.iter().any(|input| Rc::ptr_eq(input, file)))
        .filter(|file| file.sstable().may_contain(token, key))
        .map(|file| file.sstable().stats().min_timestamp);
    let memtables = tablet.memtables();
    let memory = memtables
        .iter()
        .filter(|memtable| memtable.contents().find(token, key).is_some())
        .map(|memtable| memtable.timestamp_min());
    others.chain(memory).min().unwrap_or(i64::MAX)
}

fn minima(inputs: &[Rc<TableFile>]) -> EncodingMinima {
    let mut least = EncodingMinima::default();
    for file in inputs {
        let of = file.sstable().statistics().header.minima;
        least.timestamp = least.timestamp.min(of.timestamp);
        least.local_deletion_time = least.local_deletion_time.min(of.local_deletion_time);
        least.ttl = least.ttl.min(of.ttl);
    }
    least
}
