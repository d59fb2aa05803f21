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
use crate::commitlog::Hold;
use crate::commitlog::format::EntryKind;
use crate::commitlog::replay::{OldLog, encode_flushed};
use crate::ddl::on_shard;
use crate::error::StorageError;
use crate::manifest::Edit;
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
        holds: Vec<Hold>,
    ) -> Result<(), StorageError> {
        let began = reactor::now();
        let mut foreign = Foreign::default();
        let mut moved = BTreeSet::new();
        let mut report = Report::default();
        for (at, (_, log)) in logs.iter().enumerate() {
            let mut reading = log.reading();
            for segment in 0..log.segments.len() {
                report.segments += u64::from(log.segments[segment].has_entries());
                let truncated = log.mutations(segment, &mut reading, async |place, bytes| {
                    let view = MutationView::parse(bytes)?;
                    let Ok(store) = self.table_store(view.table) else {
                        report.dropped += 1;
                        return Ok(());
                    };
                    let map = store.map();
                    let tablet = map.tablet_of(view.token);
                    if log.is_flushed(view.table, tablet, place) {
                        report.flushed += 1;
                        return Ok(());
                    }
                    report.bytes += bytes.len() as u64;
                    self.0.future_writes.note_mutation(&view);
                    let owner = map.shard_of(tablet, self.0.shards);
                    // A long entry began in an earlier segment, whose hold keeps the later ones too.
                    let begins = log.segment_of(place).filter(|_| own == Some(at));
                    match begins.and_then(|segment| holds.get(segment)) {
                        Some(hold) if owner == self.0.shard => {
                            if self.0.budget.is_exhausted() {
                                self.wait_for_memory(Deadline::after(self.0.config.start_timeout)).await?;
                            }
                            let (tablet, _) = self.owner_of(&view)?;
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
            log.unfinished_batches(async |id, mutations| {
                report.batches += 1;
                reactor::info!("a batch that a crash interrupted is finished"; mutations = mutations.len());
                for bytes in mutations {
                    self.apply_of_batch(&mut foreign, bytes).await?;
                }
                if own == Some(at) {
                    finished.push(id);
                }
                Ok(())
            })
            .await?;
        }
        foreign.finish(self).await?;
        self.note_moved(moved).await?;
        // Batches of other logs are removed with their logs.
        for id in finished {
            self.note_done(id).await?;
        }
        report.tell(began.elapsed());
        // From here on every entry is held by a memtable, or is in its owner's log.
        drop(holds);
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

    /// Records durably in this shard's log that its entries of other shards' tablets were handed over. Its
    /// segments may stay for long: replayed again, a write would reappear that its owner has deleted by a
    /// tombstone which was purged meanwhile.
    async fn note_moved(&self, moved: BTreeSet<(TableId, TabletId)>) -> Result<(), StorageError> {
        if moved.is_empty() {
            return Ok(());
        }
        let upto = self.0.log.end();
        for (table, tablet) in moved {
            let payload = encode_flushed(table, tablet, upto);
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
        let owner = map.shard_of(map.tablet_of(view.token), self.0.shards);
        if owner == self.0.shard {
            return self.apply(bytes, Deadline::after(self.0.config.start_timeout)).await;
        }
        foreign.send(self, owner, bytes).await
    }

    /// Finishes truncations that a crash interrupted.
    pub(super) async fn remove_truncated(&self, log: &OldLog) -> Result<(), StorageError> {
        for (table, generations) in &log.truncated_files {
            let Ok(store) = self.table_store(*table) else { continue };
            let map = store.map();
            for generation in generations {
                let tablet = TabletId((generation % u64::from(map.count())) as u32);
                let owner = map.shard_of(tablet, self.0.shards);
                let (table, generation) = (*table, *generation);
                let work = async move |storage: Storage| {
                    let store = storage.table_store(table)?;
                    let Some(tablet) = store.tablet(tablet) else { return Ok(()) };
                    tablet.skip_generation(generation);
                    let file = tablet.files().iter().find(|f| f.generation() == generation).cloned();
                    let left_out = tablet.left_out();
                    let is_left_out = left_out.iter().any(|f| f.descriptor.generation() == generation);
                    if file.is_some() || is_left_out {
                        tablet.replace_files(file.as_slice(), None);
                        tablet.forget_left_out(generation);
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
                    ready_on(owner).await?;
                    on_shard(owner, work).await?;
                }
            }
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
            batches_finished = self.batches,
            took_ms = took.as_millis());
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
