//! Recovers the contents of old commit logs: truncations are finished, mutations go to the shards that own
//! them now, and unfinished batches are applied.

use std::collections::BTreeSet;
use std::time::Duration;

use model::TableId;
use model::mutation::MutationView;
use model::tablet::TabletId;
use reactor::{Deadline, Group};

use super::boot::ready_on;
use super::log_directory;
use crate::commitlog::OldHolds;
use crate::commitlog::flushed::encode_flushed;
use crate::commitlog::format::{EntryKind, Position};
use crate::commitlog::replay::OldLog;
use crate::ddl::on_shard;
use crate::error::StorageError;
use crate::manifest::{Edit, Tenancies};
use crate::shard::Storage;

/// Mutations sent to another shard at once.
const FORWARD_BATCH: usize = 128;
/// Most bytes of them.
const FORWARD_BATCH_BYTES: usize = 1 << 20;

impl Storage {
    /// Applies old logs. `own` is the index of the log with this shard's number; `holds` are the holds on its
    /// segments.
    pub(super) async fn replay(
        &self,
        logs: &[(usize, OldLog)],
        own: Option<usize>,
        holds: OldHolds,
    ) -> Result<(), StorageError> {
        let began = reactor::now();
        let mut foreign = Foreign::default();
        let mut moved = BTreeSet::new();
        let mut report = Report::default();
        let tenancies = self.0.manifest.tenancies();
        for (at, (number, log)) in logs.iter().enumerate() {
            let mut reading = log.reading();
            for segment in 0..log.segments.len() {
                report.segments += u64::from(log.segments[segment].has_entries());
                let truncated = log.mutations(segment, &mut reading, async |place, bytes| {
                    let view = MutationView::parse(bytes)?;
                    let judged = self.judge(&view, (log, *number, place), &tenancies, &mut report);
                    let Some((tablet, owner)) = judged else {
                        return Ok(());
                    };
                    report.bytes += bytes.len() as u64;
                    self.0.future_writes.note_mutation(&view);
                    // A long entry began in an earlier segment, whose hold keeps the later ones too.
                    let begins = log.segment_of(place).filter(|_| own == Some(at));
                    match begins.and_then(|segment| holds.get(segment)) {
                        Some(hold) if owner == self.0.shard => {
                            if self.0.budget.is_exhausted() {
                                self.wait_for_memory(Deadline::after(self.0.config.start_timeout)).await?;
                            }
                            let own = self.owner_of(&view)?;
                            let (tablet, _) = own.expect("a start has opened the tablets of its shards");
                            self.insert(&tablet, &view, Some(hold));
                            report.applied += 1;
                            Ok(())
                        }
                        _ => {
                            if own == Some(at) {
                                moved.insert((view.table, tablet));
                            }
                            report.sent += 1;
                            foreign.send(self, owner, bytes).await
                        }
                    }
                });
                report.truncated += truncated.await?;
            }
        }
        let mut finished = Vec::new();
        for (at, (_, log)) in logs.iter().enumerate() {
            let batches = self.finish_batches(log, &mut foreign).await?;
            report.batches += batches.len() as u64;
            let is_own = own == Some(at);
            finished.extend(batches.into_iter().filter(|_| is_own));
            self.take_over_kept(log, is_own.then_some(&holds)).await?;
        }
        foreign.finish(self).await?;
        self.note_moved(moved).await?;
        // Batches of other logs are removed with their logs.
        for id in finished {
            self.note_done(id).await?;
        }
        report.tell(began.elapsed());
        // From here on every entry is held by a memtable, or is in its owner's log.
        holds.release();
        for (at, (number, log)) in logs.iter().enumerate() {
            if own != Some(at) {
                log.forget().await?;
                let gone: Vec<Edit> =
                    log.segments.iter().map(|s| Edit::SegmentGone((*number as u32, s.slot))).collect();
                self.0.manifest.note(&gone).await?;
                let directory = log_directory(&self.0.config, *number);
                reactor::file::remove_dir_all(&directory)
                    .await
                    .map_err(StorageError::of("delete", &directory))?;
            }
        }
        Ok(())
    }

    /// Applies the batches of an old log that have no end; returns their ids.
    async fn finish_batches(
        &self,
        log: &OldLog,
        foreign: &mut Foreign,
    ) -> Result<Vec<[u8; 16]>, StorageError> {
        let mut finished = Vec::new();
        log.unfinished_batches(async |id, mutations| {
            reactor::info!("a batch that a crash interrupted is finished"; mutations = mutations.len());
            for bytes in mutations {
                self.apply_of_batch(foreign, bytes).await?;
            }
            finished.push(id);
            Ok(())
        })
        .await?;
        Ok(finished)
    }

    /// The tablet and the shard that an entry of an old log goes to; `None`, which `report` counts, if it
    /// does not count or is in table files.
    fn judge(
        &self,
        entry: &MutationView<'_>,
        (log, number, place): (&OldLog, usize, Position),
        tenancies: &Tenancies,
        report: &mut Report,
    ) -> Option<(TabletId, usize)> {
        let Ok(store) = self.table_store(entry.table) else {
            report.dropped += 1;
            return None;
        };
        let map = store.map();
        let tablet = map.tablet_of(entry.token);
        if log.is_flushed(entry.table, map, entry.token, place) {
            report.flushed += 1;
            return None;
        }
        let Some(own) = store.owner(tablet) else {
            report.of_other_nodes += 1;
            return None;
        };
        if !tenancies.has(number, entry, own.since, place) {
            report.of_earlier_tenancies += 1;
            return None;
        }
        Some((tablet, usize::from(own.shard)))
    }

    /// Records durably in this shard's log that its entries of other shards' tablets were handed over. Its
    /// segments may stay for long: replayed again, a write would reappear that its owner has deleted by a
    /// tombstone which was purged meanwhile.
    async fn note_moved(&self, moved: BTreeSet<(TableId, TabletId)>) -> Result<(), StorageError> {
        if moved.is_empty() {
            return Ok(());
        }
        let upto = self.0.log.end();
        for (table, tablet) in moved {
            let Ok(store) = self.table_store(table) else { continue };
            let payload = encode_flushed(table, (store.map(), tablet), upto);
            let until = Deadline::after(self.0.config.start_timeout);
            self.0.log.append(EntryKind::Flushed, &payload, until).await?;
        }
        self.0.log.sync().await
    }

    /// Applies one write of a batch, on the shard that owns it.
    async fn apply_of_batch(&self, foreign: &mut Foreign, bytes: &[u8]) -> Result<(), StorageError> {
        let view = MutationView::parse(bytes)?;
        // Its table may have been dropped since.
        let Ok(store) = self.table_store(view.table) else { return Ok(()) };
        let map = store.map();
        let own = store.owner(map.tablet_of(view.token));
        let Some(owner) = own.map(|own| usize::from(own.shard)) else { return Ok(()) };
        if owner == self.0.shard {
            return self.apply(bytes, Deadline::after(self.0.config.start_timeout)).await;
        }
        foreign.send(self, owner, bytes).await
    }

    /// Finishes truncations that a crash interrupted.
    pub(super) async fn remove_truncated(&self, log: &OldLog) -> Result<(), StorageError> {
        for (table, generations) in &log.truncated_files {
            if self.table_store(*table).is_err() {
                continue;
            }
            // A record names files, and any shard may have their tablets now.
            for shard in 0..self.0.shards {
                let (table, generations) = (*table, generations.clone());
                let work =
                    async move |storage: Storage| storage.remove_truncated_here(table, &generations).await;
                if shard == self.0.shard {
                    work(self.clone()).await?;
                } else {
                    ready_on(shard).await?;
                    on_shard(shard, work).await?;
                }
            }
        }
        Ok(())
    }

    /// Removes those truncated files that tablets of this shard have.
    async fn remove_truncated_here(&self, table: TableId, generations: &[u64]) -> Result<(), StorageError> {
        let store = self.table_store(table)?;
        generations.iter().for_each(|generation| store.numbers.take(*generation));
        let truncated: BTreeSet<u64> = generations.iter().copied().collect();
        for tablet in store.tablets() {
            // Shard 0 removes a file that no tablet has alone, and comes first.
            self.forget_shared(&tablet).await?;
            let files = tablet.files();
            let files = files.iter().filter(|file| truncated.contains(&file.generation()));
            let left_out = tablet.left_out();
            let left_out = left_out.iter().map(|file| file.descriptor.generation());
            let gone: Vec<u64> = left_out.filter(|generation| truncated.contains(generation)).collect();
            let files: Vec<_> = files.cloned().collect();
            tablet.replace_files(&files, None);
            gone.iter().for_each(|generation| tablet.forget_left_out(*generation));
            for generation in files.iter().map(|file| file.generation()).chain(gone) {
                if !self.discard(&tablet, generation).await {
                    let reason = format!("truncated file {generation} cannot be removed");
                    return Err(StorageError::Shard { shard: self.0.shard, reason });
                }
            }
            reactor::maybe_yield().await;
        }
        Ok(())
    }
}

/// Counters of a replay.
#[derive(Debug, Default)]
struct Report {
    segments: u64,
    applied: u64,
    sent: u64,
    bytes: u64,
    flushed: u64,
    truncated: u64,
    dropped: u64,
    of_other_nodes: u64,
    of_earlier_tenancies: u64,
    batches: u64,
}

impl Report {
    /// Logs the counters, if anything was replayed.
    fn tell(&self, took: Duration) {
        if self.segments == 0 {
            return;
        }
        reactor::info!("commit log replayed";
            segments = self.segments,
            applied = self.applied,
            to_other_shards = self.sent,
            bytes = self.bytes,
            in_table_files = self.flushed,
            truncated = self.truncated,
            of_dropped_tables = self.dropped,
            of_other_nodes = self.of_other_nodes,
            of_earlier_tenancies = self.of_earlier_tenancies,
            batches_finished = self.batches,
            took_ms = took.as_millis());
        let dropped = self.of_other_nodes + self.of_earlier_tenancies;
        if dropped > 0 {
            reactor::warn!("entries of the commit log were dropped: their tablets have left this node since they were written";
                entries = dropped, of_earlier_tenancies = self.of_earlier_tenancies);
        }
    }
}

/// Mutations on their way to the shards that own them now.
#[derive(Default)]
struct Foreign {
    batches: std::collections::BTreeMap<usize, (Vec<Vec<u8>>, usize)>,
    reached: BTreeSet<usize>,
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
            // All at once, so that they share writes of the log.
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
            ready_on(owner).await?;
        }
        on_shard(owner, work).await
    }

    /// Delivers the rest, and makes it durable on the shards it was sent to.
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
