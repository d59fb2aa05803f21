//! Runs one compaction: reads its inputs as lanes, writes its outputs, and exchanges the inputs for them.
//!
//! Durable outputs replace inputs that were read completely as soon as no other input spans the bound (a
//! token where every file either ends before or begins behind). For runs cut at the same bounds that is at
//! each bound, so a merge needs disk space for one part of its inputs and not for all of them. Invariant:
//! files that are exchanged together cover the same tokens, so a purged tombstone leaves together with
//! everything it shadowed.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use model::deletion::NO_TIMESTAMP;
use model::reconcile::Purge;
use model::{Table, Token};
use reactor::{Cold, cold};
use sstable::EncodingMinima;

use super::cutter::Cutter;
use super::lanes::Lanes;
use super::purge::Outside;
use super::running::{CompactionKind, CompactionRecord, Running};
use super::strategy::{Cut, expired};
use super::view::Facts;
use crate::error::StorageError;
use crate::flush::Output;
use crate::read::merge::Merge;
use crate::shard::Storage;
use crate::tablet::{TableFile, Tablet};

/// A compaction to run.
pub(super) struct Job {
    pub(super) tablet: Rc<Tablet>,
    pub(super) inputs: Marked,
    pub(super) level: u32,
    pub(super) cut: Cut,
    pub(super) kind: CompactionKind,
}

/// How a compaction ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// All inputs were replaced.
    Done,
    /// It was asked to end; inputs replaced by then stay replaced.
    Stopped,
}

/// Files that are marked as being compacted, until this is dropped.
#[derive(Default)]
pub(super) struct Marked(Vec<Rc<TableFile>>);

impl Marked {
    /// Marks files; none of them may be marked already.
    pub(super) fn new(files: Vec<Rc<TableFile>>) -> Self {
        for file in &files {
            assert!(!file.is_busy(), "a file is compacted once at a time");
            file.set_busy(true);
        }
        Self(files)
    }

    pub(super) fn files(&self) -> &[Rc<TableFile>] {
        &self.0
    }

    /// Takes some files out; they stay marked.
    pub(super) fn take(&mut self, files: &[Rc<TableFile>]) -> Self {
        let (taken, left) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|file| files.iter().any(|other| Rc::ptr_eq(other, file)));
        self.0 = left;
        Self(taken)
    }

    /// Adds the files of `other`.
    pub(super) fn join(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    fn add(&mut self, files: &[Rc<TableFile>]) {
        files.iter().for_each(|file| file.set_busy(true));
        self.0.extend(files.iter().cloned());
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        self.0.iter().for_each(|file| file.set_busy(false));
    }
}

/// State and counters of a running job.
struct Work<'j> {
    job: &'j Job,
    table: Rc<Table>,
    running: Rc<Running>,
    outside: Outside,
    now: u32,
    gc_before: u32,
    partitions: u64,
    merged: BTreeMap<u32, u64>,
    /// Bytes of output that were counted against the throughput cap.
    counted: Cell<u64>,
    stopped: bool,
}

/// Bytes of output between two checks of the throughput cap.
const THROTTLE_EVERY: u64 = 64 << 10;

impl Work<'_> {
    /// The limits for purging tombstones of the partition that the lanes are at.
    fn purge(&mut self, lanes: &Lanes, token: Token, key: &[u8]) -> Purge {
        let tablet = &self.job.tablet;
        // They may have to be kept since the job began.
        let gc_before = if tablet.keeps_tombstones() { 0 } else { self.gc_before };
        let timestamp_limit = if gc_before == 0 || lanes.have_only_values() {
            // Nothing could be purged, so other files need not be asked whether they have the partition.
            NO_TIMESTAMP
        } else {
            self.outside.refresh(tablet, self.job.inputs.files());
            self.outside.timestamp_limit(tablet, token, key)
        };
        Purge { now: self.now, gc_before, timestamp_limit }
    }

    fn tell_progress(&self, lanes: &Lanes) {
        let read = u128::from(lanes.partitions()) * u128::from(self.running.total);
        self.running.completed.set((read / u128::from(self.partitions)) as u64);
    }

    fn owns(&self, token: Token) -> bool {
        let (first, last) = self.job.tablet.tokens();
        first <= token && token <= last
    }
}

/// Finished outputs that are not in the tablet's set yet.
struct Pending<'t> {
    tablet: &'t Tablet,
    files: Vec<Rc<TableFile>>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.files.iter().for_each(|file| self.tablet.add_orphan(file.generation()));
    }
}

impl Storage {
    /// Runs a job. The caller has a permit for the tablet's compactions.
    ///
    /// # Errors
    /// Those of reading and writing; inputs that were not replaced by then are unchanged.
    /// [`StorageError::Draining`] when another task wants the tablet for itself, or the shard stops.
    pub(super) async fn run_job(&self, job: Job) -> Result<Ended, StorageError> {
        self.run_job_keeping(job).await.map(|(ended, _)| ended)
    }

    /// As [`Storage::run_job`]; its outputs stay marked until the caller drops the returned marks.
    ///
    /// # Errors
    /// As [`Storage::run_job`].
    pub(super) async fn run_job_keeping(&self, job: Job) -> Result<(Ended, Marked), StorageError> {
        let result = self.run_cold(&job).await;
        let metrics = &self.0.compactions.metrics;
        match &result {
            Ok((Ended::Done, _)) => metrics.completed.inc(),
            Err(StorageError::Draining) | Ok((Ended::Stopped, _)) => {}
            Err(error) => {
                metrics.failed.inc();
                self.note_compaction_error(error);
            }
        }
        result
    }

    /// Whether a compaction may purge tombstones. Flushed writes must not be replayed once their tombstones
    /// are purged, so the log's marks have to be durable first; nor may a file come back that is in no set.
    ///
    /// # Errors
    /// Those of the manifest: while it takes no records each compaction would leave further orphans.
    async fn may_forget(&self, tablet: &Tablet) -> Result<bool, StorageError> {
        let has_no_orphans = self.clear_orphans(tablet).await?;
        Ok(has_no_orphans && !self.0.replaying.get() && self.0.log.sync().await.is_ok() && tablet.is_marked())
    }

    #[inline(never)]
    fn run_cold<'a>(&'a self, job: &'a Job) -> Cold<'a, Result<(Ended, Marked), StorageError>> {
        cold(self.run(job))
    }

    async fn run(&self, job: &Job) -> Result<(Ended, Marked), StorageError> {
        let tablet = &job.tablet;
        let table = tablet.table();
        let inputs = job.inputs.files();
        let of_inputs = |f: fn(&TableFile) -> u64| inputs.iter().map(|file| f(file)).sum::<u64>();
        let data_bytes = of_inputs(|file| file.sstable().data_bytes());
        let input_bytes = of_inputs(|file| file.sstable().bytes_on_disk());
        let partitions = of_inputs(|file| file.partitions());
        let entered = self.0.compactions.enter(job.kind, &table, data_bytes, inputs.len());
        let may_forget = self.may_forget(tablet).await?;
        let now = self.now_seconds();
        let gc_before = if may_forget { self.gc_before_of(tablet, &table, inputs, now) } else { 0 };
        let mut outputs = Marked::default();
        let mut bytes_out = 0;
        let gone = self.expired_of(tablet, inputs, now, gc_before);
        let read: Vec<Rc<TableFile>> =
            inputs.iter().filter(|file| !gone.iter().any(|other| Rc::ptr_eq(other, file))).cloned().collect();
        if !gone.is_empty() {
            self.exchange(tablet, &gone, &[]).await?;
        }
        let mut work = Work {
            job,
            outside: Outside::new(tablet, inputs),
            table: Rc::clone(&table),
            running: Rc::clone(&entered.running),
            now,
            gc_before,
            partitions: partitions.max(1),
            merged: BTreeMap::new(),
            counted: Cell::new(0),
            stopped: false,
        };
        let mut cutter = Cutter::new(job.cut, tablet.tokens(), input_bytes, data_bytes);
        self.check_room(tablet, input_bytes / cutter.files())?;
        let expected = partitions.div_ceil(cutter.files());
        let least = minima(&read);
        let mut lanes = Lanes::open(&read, &self.0.budget).await?;
        let mut pending = Pending { tablet, files: Vec::new() };
        let mut released = Vec::new();
        while lanes.at().is_some() {
            let output = self.output_at(tablet, &table, least, expected, job.level).await?;
            let filled = self.within(tablet, output, async |output| {
                self.fill(&mut work, &mut lanes, &mut cutter, output).await
            });
            let filled = filled.await;
            let made = match filled {
                Err(error) => {
                    self.give_up(&mut pending).await;
                    return Err(error);
                }
                Ok(made) => made,
            };
            released.extend(lanes.take_finished());
            if let Some(file) = made {
                bytes_out += file.sstable().bytes_on_disk();
                self.0.compactions.metrics.bytes_written.add(file.sstable().bytes_on_disk());
                pending.files.push(file);
                let bytes = |files: &[Rc<TableFile>]| -> u64 {
                    files.iter().map(|file| file.sstable().bytes_on_disk()).sum()
                };
                self.0.compactions.note_space(bytes(&tablet.files()) + bytes(&pending.files));
            }
            if lanes.is_between_files() {
                let files = std::mem::take(&mut pending.files);
                outputs.add(&files);
                self.exchange(tablet, &released, &files).await?;
                work.outside.refresh(tablet, inputs);
                released.clear();
            }
            if work.stopped {
                self.give_up(&mut pending).await;
                return Ok((Ended::Stopped, outputs));
            }
        }
        // The loop does not read a file without partitions, which only damage makes.
        released.extend(lanes.take_finished());
        if !released.is_empty() {
            self.exchange(tablet, &released, &[]).await?;
        }
        self.0.compactions.metrics.bytes_read.add(input_bytes);
        self.0.compactions.record(CompactionRecord {
            id: entered.running.id,
            kind: job.kind,
            keyspace: table.keyspace().to_owned(),
            table_name: table.name().to_owned(),
            compacted_at_us: reactor::wall_clock_us(),
            bytes_in: input_bytes,
            bytes_out,
            partitions_merged: work.merged,
        });
        Ok((Ended::Done, outputs))
    }

    /// Writes partitions until the file ends or the inputs do.
    async fn fill(
        &self,
        work: &mut Work<'_>,
        lanes: &mut Lanes,
        cutter: &mut Cutter,
        output: &mut Output,
    ) -> Result<(), StorageError> {
        let tablet = &work.job.tablet;
        work.counted.set(0);
        let mut merge = Merge::new(Rc::clone(&work.table), Vec::new(), Purge::nothing());
        let mut key = Vec::new();
        while let Some((token, at)) = lanes.at() {
            // A task that wants the tablet or the shard for itself does not wait for this compaction.
            if tablet.is_claimed() || tablet.is_dropped() || self.0.draining.get() {
                return Err(StorageError::Draining);
            }
            if cutter.ends_before(token, output.data_bytes()) {
                break;
            }
            if work.running.is_stopped() {
                work.stopped = true;
                break;
            }
            self.check_room(tablet, 1)?;
            key.clear();
            key.extend_from_slice(at);
            if work.job.kind == CompactionKind::Cleanup && !work.owns(token) {
                lanes.lend(merge.sources_mut());
                lanes.step(merge.sources_mut()).await?;
                reactor::maybe_yield().await;
                continue;
            }
            let purge = work.purge(lanes, token, &key);
            *work.merged.entry(lanes.holders() as u32).or_default() += 1;
            lanes.lend(merge.sources_mut());
            merge.restart(purge);
            output.partition(token, &key, &mut merge).await?;
            lanes.step(merge.sources_mut()).await?;
            if output.data_bytes() - work.counted.get() >= THROTTLE_EVERY {
                work.tell_progress(lanes);
                self.throttle(work, output.data_bytes()).await;
            }
        }
        work.tell_progress(lanes);
        Ok(())
    }

    /// Checks that so many bytes may be written: never into the space that flushes need.
    fn check_room(&self, tablet: &Tablet, needed_bytes: u64) -> Result<(), StorageError> {
        let room_bytes = self.0.disk.room.get();
        if needed_bytes <= room_bytes {
            return Ok(());
        }
        let path = tablet.directory.clone();
        Err(StorageError::NoRoomToCompact { path, needed_bytes, room_bytes })
    }

    /// Counts the written bytes against the disk's room, and waits if compactions have a limit of bytes per
    /// second.
    async fn throttle(&self, work: &Work<'_>, data_bytes: u64) {
        let new = data_bytes.saturating_sub(work.counted.get());
        work.counted.set(data_bytes);
        let room = &self.0.disk.room;
        room.set(room.get().saturating_sub(new));
        let throughput = &self.0.compactions.throughput;
        let mut wait = throughput.take(new);
        // Bounded: each wait makes up for the time it lasts.
        while let Some(time) = wait {
            let tablet = &work.job.tablet;
            if work.running.is_stopped() || tablet.is_claimed() || self.0.draining.get() {
                return;
            }
            reactor::sleep(time).await;
            wait = if throughput.owes() { throughput.take(0) } else { None };
        }
    }

    /// Removes the outputs of a job that failed.
    async fn give_up(&self, pending: &mut Pending<'_>) {
        // They count as orphans until they are removed.
        let tablet = pending.tablet;
        for file in std::mem::take(&mut pending.files) {
            self.discard(tablet, file.generation()).await;
        }
    }

    /// Tombstones of the inputs with a local time before this may go.
    fn gc_before_of(&self, tablet: &Tablet, table: &Table, inputs: &[Rc<TableFile>], now: u32) -> u32 {
        let repaired = || inputs.iter().all(|file| file.sstable().stats().repaired_at_ms > 0);
        let only_repaired = tablet.with_chooser(|chooser| chooser.only_purges_repaired());
        if only_repaired && !repaired() { 0 } else { self.gc_before(tablet, table, now) }
    }

    /// The inputs that have expired as a whole.
    fn expired_of(
        &self,
        tablet: &Tablet,
        inputs: &[Rc<TableFile>],
        now: u32,
        gc_before: u32,
    ) -> Vec<Rc<TableFile>> {
        let facts = Facts::of(tablet, now, gc_before, self.0.compactions.flush_bytes.get());
        let among: Vec<usize> = (0..facts.files.len())
            .filter(|index| inputs.iter().any(|input| Rc::ptr_eq(input, &facts.files[*index])))
            .collect();
        expired(&facts.view(), &among).into_iter().map(|index| Rc::clone(&facts.files[index])).collect()
    }

    pub(super) fn now_seconds(&self) -> u32 {
        u32::try_from(reactor::wall_clock_us() / 1_000_000).unwrap_or(u32::MAX)
    }
}

pub(super) fn minima(inputs: &[Rc<TableFile>]) -> EncodingMinima {
    let mut least = EncodingMinima::default();
    for file in inputs {
        let of = file.sstable().statistics().header.minima;
        least.timestamp = least.timestamp.min(of.timestamp);
        least.local_deletion_time = least.local_deletion_time.min(of.local_deletion_time);
        least.ttl = least.ttl.min(of.ttl);
    }
    least
}
