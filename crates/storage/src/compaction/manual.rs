//! Compactions on an operator's demand: merging all files, upgrading to newer versions, listing, stopping.
//!
//! All functions act on this shard; to act on the node, call them on each shard. A major compaction takes
//! over the files of compactions that the strategy runs in the tablet.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;

use model::{TableId, Token};
use reactor::{Group, mesh};
use sstable::Component;

use super::cutter::part_of;
use super::job::{Ended, Job, Marked};
use super::running::{CompactionFilter, CompactionKind, CompactionRecord, CompactionStats, CompactionTotals};
use super::strategy::{Cut, Plan};
use super::view::Facts;
use crate::error::StorageError;
use crate::shard::Storage;
use crate::tablet::{COMPACTIONS_MAX, TableFile, Tablet};

/// Parts of a tablet at whose bounds files must end, so that a merge of all files needs little room.
const ALIGNED_PARTS: u32 = 16;

/// Inputs and outputs of a compaction on demand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactOptions {
    /// Write several files, of half, a quarter, … of all, if the strategy would write one.
    pub split_output: bool,
    /// Only files that have partitions from the first to the second token, both included.
    pub tokens: Option<(Token, Token)>,
    /// Whether memtables stay unflushed: only the present files are compacted.
    pub skips_flush: bool,
    /// Only files with these generations.
    pub generations: Option<Vec<u64>>,
}

/// The result of a request that may be stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactOutcome {
    /// Compactions that ran to their end.
    pub completed: usize,
    /// Compactions that an operator stopped, or whose tablet left this shard.
    pub stopped: usize,
    /// Data components of damaged table files that were left as they are.
    pub damaged: Vec<PathBuf>,
}

/// A table file in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFileInfo {
    /// Its number.
    pub generation: u64,
    /// The tablet it belongs to.
    pub tablet: u32,
    /// Its level, in leveled compaction.
    pub level: u32,
    /// Bytes of all its components.
    pub bytes: u64,
    /// Bytes of its data before compression.
    pub data_bytes: u64,
    /// Partitions in it.
    pub partitions: u64,
    /// First and last token.
    pub tokens: (Token, Token),
    /// Smallest and greatest timestamp of a write in it.
    pub timestamps: (i64, i64),
    /// Whether a compaction has marked it.
    pub is_compacting: bool,
}

impl CompactOutcome {
    pub(super) fn count(&mut self, ended: Ended) {
        match ended {
            Ended::Done => self.completed += 1,
            Ended::Stopped => self.stopped += 1,
        }
    }
}

impl Storage {
    /// Compacts all files of each tablet of a table on this shard (a major compaction), after flushing it.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`]; reading and writing errors, after which inputs that were not replaced
    /// are unchanged.
    pub async fn compact(&self, table: TableId) -> Result<(), StorageError> {
        self.compact_with(table, &CompactOptions::default()).await.map(|_| ())
    }

    /// Compacts a table's files on this shard, tablet by tablet, after flushing it (unless `skips_flush`).
    /// Files that are known to be damaged stay as they are, and are reported.
    ///
    /// # Errors
    /// As [`Storage::compact`].
    pub async fn compact_with(
        &self,
        table: TableId,
        options: &CompactOptions,
    ) -> Result<CompactOutcome, StorageError> {
        let store = self.table_store(table)?;
        let mut outcome = CompactOutcome::default();
        for tablet in &store.tablets() {
            if options.generations.is_none() && !options.skips_flush {
                self.flush_tablet(tablet).await?;
            }
            let named = |generation| options.generations.as_ref().is_none_or(|of| of.contains(&generation));
            let choose = |file: &TableFile| {
                let (first, last) = (file.sstable().first_key().0, file.sstable().last_key().0);
                options.tokens.is_none_or(|(from, to)| first <= to && from <= last)
                    && named(file.generation())
            };
            let damaged = damaged_files(tablet, choose, named);
            for path in &damaged {
                reactor::warn!("a damaged table file is left out of a compaction of all: scrub mends what can be mended";
                    file = path.display());
            }
            outcome.damaged.extend(damaged);
            let permit = self.take_over(tablet, |facts, free| {
                let free: Vec<usize> = free.iter().copied().filter(|at| choose(&facts.files[*at])).collect();
                tablet.with_chooser(|chooser| chooser.together(&facts.view(), free, options.split_output))
            });
            let Some(((inputs, plan), permit)) = permit.await? else { continue };
            let ended = self.run_together(tablet, inputs, &plan).await;
            drop(permit);
            self.look_again(tablet);
            outcome.count(self.unless_left(tablet, ended).await?);
        }
        Ok(outcome)
    }

    /// How a compaction ended; one that gave way to the tablet's move to another shard counts as stopped.
    pub(super) async fn unless_left(
        &self,
        tablet: &Tablet,
        ended: Result<Ended, StorageError>,
    ) -> Result<Ended, StorageError> {
        if !matches!(ended, Err(StorageError::Draining)) || self.0.draining.get() {
            return ended;
        }
        tablet.opened().await;
        if tablet.has_left() { Ok(Ended::Stopped) } else { ended }
    }

    /// Merges files into one run. Files that do not end at the bounds of the run's parts delay the removal of
    /// all files they overlap. If such files hold only a small part of the bytes they are first cut at those
    /// bounds, some at a time; the merge then needs disk space for one part and not for all.
    async fn run_together(
        &self,
        tablet: &Rc<Tablet>,
        mut inputs: Marked,
        plan: &Plan,
    ) -> Result<Ended, StorageError> {
        let (kind, level) = (CompactionKind::Major, plan.level);
        // Files of parts belong to no level: until they are merged they count as new ones.
        let aligned = match plan.cut {
            Cut::Shards(parts) => Some((parts, level)),
            Cut::SizeWithin(_, parts) => Some((parts, 0)),
            Cut::Whole | Cut::Size(_) | Cut::Halves(_) => None,
        };
        if let Some((parts, level_of_parts)) = aligned {
            let parts = parts.min(ALIGNED_PARTS);
            let bytes_of = |file: &Rc<TableFile>| file.sstable().bytes_on_disk();
            let tokens = tablet.tokens();
            let crosses = |file: &Rc<TableFile>| {
                let (first, last) = (file.sstable().first_key().0, file.sstable().last_key().0);
                part_of(first, tokens, parts) != part_of(last, tokens, parts)
            };
            let all: u64 = inputs.files().iter().map(bytes_of).sum();
            let mut wide: Vec<Rc<TableFile>> =
                inputs.files().iter().filter(|f| crosses(f)).cloned().collect();
            wide.sort_by_key(|file| std::cmp::Reverse(bytes_of(file)));
            if wide.iter().map(bytes_of).sum::<u64>() <= all / 2 {
                while let Some(file) = wide.pop() {
                    let mut group = vec![file];
                    let mut bytes = bytes_of(&group[0]);
                    while let Some(next) =
                        wide.pop_if(|next| bytes + bytes_of(next) <= all / u64::from(parts))
                    {
                        bytes += bytes_of(&next);
                        group.push(next);
                    }
                    let (inputs_of, cut) = (inputs.take(&group), Cut::Shards(parts));
                    let level = level_of_parts;
                    let job = Job { tablet: Rc::clone(tablet), inputs: inputs_of, level, cut, kind };
                    let (ended, made) = self.run_job_keeping(job).await?;
                    if ended == Ended::Stopped {
                        return Ok(ended);
                    }
                    inputs.join(made);
                }
            }
        }
        self.run_job(Job { tablet: Rc::clone(tablet), inputs, level, cut: plan.cut, kind }).await
    }

    pub(crate) fn look_again(&self, tablet: &Tablet) {
        tablet.look_again();
        self.0.compaction_wanted.notify_all();
    }

    /// Ends the strategy's compactions in the tablet, and marks the files that `choose` makes a plan of.
    async fn take_over(
        &self,
        tablet: &Rc<Tablet>,
        choose: impl FnOnce(&Facts, &[usize]) -> Option<Plan>,
    ) -> Result<Option<((Marked, Plan), reactor::Permit)>, StorageError> {
        let filter = CompactionFilter { table: Some(tablet.table().id()), ..CompactionFilter::default() };
        for kind in [CompactionKind::Compaction, CompactionKind::Tombstones] {
            self.0.compactions.stop(&CompactionFilter { kind: Some(kind), ..filter.clone() });
        }
        let Ok(mut permit) = tablet.compacting.acquire(COMPACTIONS_MAX).await else {
            return Err(StorageError::Draining);
        };
        if tablet.is_gone() {
            return Ok(None);
        }
        let table = tablet.table();
        let now = self.now_seconds();
        let gc_before = self.gc_before(tablet, &table, now);
        let facts = Facts::of(tablet, now, gc_before, self.0.compactions.flush_bytes.get());
        let free: Vec<usize> = (0..facts.files.len())
            .filter(|at| !facts.files[*at].is_busy() && !facts.files[*at].is_broken())
            .collect();
        let Some(plan) = choose(&facts, &free) else { return Ok(None) };
        let inputs = Marked::new(facts.inputs(&plan));
        // The plan's files are marked, so other compactions may take files that are flushed from here on.
        permit.release(COMPACTIONS_MAX - 1);
        Ok(Some(((inputs, plan), permit)))
    }

    /// Rewrites one file in its place; the caller has a permit for the tablet's compactions.
    pub(super) async fn rewrite_one(
        &self,
        tablet: &Rc<Tablet>,
        file: Rc<TableFile>,
        kind: CompactionKind,
    ) -> Result<Ended, StorageError> {
        let (level, cut) = self.in_place(tablet, &file);
        self.run_job(Job { tablet: Rc::clone(tablet), inputs: Marked::new(vec![file]), level, cut, kind })
            .await
    }

    /// Level and cut of a file that is rewritten in its place.
    fn in_place(&self, tablet: &Tablet, file: &Rc<TableFile>) -> (u32, Cut) {
        let facts = Facts::of(tablet, self.now_seconds(), 0, self.0.compactions.flush_bytes.get());
        let at = facts.files.iter().position(|other| Rc::ptr_eq(other, file)).unwrap_or_default();
        let level = facts.view().files.get(at).map_or(0, |info| info.level);
        (level, tablet.with_chooser(|chooser| chooser.alone(&facts.view(), at)))
    }

    /// Rewrites files of older versions of the format, or all files.
    ///
    /// # Errors
    /// As [`Storage::compact`].
    pub async fn upgrade_sstables(&self, table: TableId, all: bool) -> Result<CompactOutcome, StorageError> {
        let store = self.table_store(table)?;
        let is_wanted =
            |file: &&Rc<TableFile>| all || file.sstable().descriptor().version != sstable::Version::WRITTEN;
        let mut outcome = CompactOutcome::default();
        for tablet in &store.tablets() {
            let files: Vec<_> = tablet.files().iter().filter(is_wanted).cloned().collect();
            for file in files {
                let Ok(permit) = tablet.compacting.acquire(1).await else {
                    return Err(StorageError::Draining);
                };
                // A compaction has the file and rewrites it, or has replaced it; or the tablet has left.
                if tablet.is_gone()
                    || file.is_busy()
                    || !tablet.files().iter().any(|other| Rc::ptr_eq(other, &file))
                {
                    continue;
                }
                let ended = self.rewrite_one(tablet, file, CompactionKind::Upgrade).await;
                drop(permit);
                let ended = self.unless_left(tablet, ended).await?;
                outcome.count(ended);
                if ended == Ended::Stopped {
                    return Ok(outcome);
                }
            }
            self.look_again(tablet);
        }
        Ok(outcome)
    }

    /// Removes deleted data from a table's files: overlapping files are merged, others stay apart.
    ///
    /// # Errors
    /// As [`Storage::compact`].
    pub async fn garbage_collect(&self, table: TableId) -> Result<CompactOutcome, StorageError> {
        let store = self.table_store(table)?;
        let mut outcome = CompactOutcome::default();
        for tablet in &store.tablets() {
            // Each group is taken once; files made meanwhile are not taken again.
            let there: BTreeSet<u64> = tablet.files().iter().map(|file| file.generation()).collect();
            // Bounded: each round takes at least one file that was there at the start.
            loop {
                let taken = self.take_over(tablet, |facts, free| {
                    let old = |at: &usize| there.contains(&facts.files[*at].generation());
                    let free: Vec<usize> = free.iter().copied().filter(old).collect();
                    tablet.with_chooser(|chooser| chooser.deleting(&facts.view(), free))
                });
                let Some(((inputs, plan), permit)) = taken.await? else { break };
                let kind = CompactionKind::GarbageCollect;
                let (level, cut) = (plan.level, plan.cut);
                let ended = self.run_job(Job { tablet: Rc::clone(tablet), inputs, level, cut, kind }).await;
                drop(permit);
                let ended = self.unless_left(tablet, ended).await?;
                outcome.count(ended);
                if ended == Ended::Stopped {
                    return Ok(outcome);
                }
            }
            self.look_again(tablet);
        }
        Ok(outcome)
    }

    /// Bytes that compactions and flushes of this shard have read and written since its start.
    pub fn compaction_totals(&self) -> CompactionTotals {
        self.0.compactions.totals()
    }

    /// The table files of a table on this shard, by tablet and generation.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`].
    pub fn table_files(&self, table: TableId) -> Result<Vec<TableFileInfo>, StorageError> {
        let store = self.table_store(table)?;
        let mut infos = Vec::new();
        for tablet in &store.tablets() {
            let mut files = tablet.files().to_vec();
            files.sort_by_key(|file| file.generation());
            infos.extend(files.iter().map(|file| {
                let sstable = file.sstable();
                let stats = sstable.stats();
                TableFileInfo {
                    generation: file.generation(),
                    tablet: tablet.id.0,
                    level: u32::try_from(stats.level).unwrap_or(0),
                    bytes: sstable.bytes_on_disk(),
                    data_bytes: sstable.data_bytes(),
                    partitions: file.partitions(),
                    tokens: (sstable.first_key().0, sstable.last_key().0),
                    timestamps: (stats.min_timestamp, stats.max_timestamp),
                    is_compacting: file.is_busy(),
                }
            }));
        }
        Ok(infos)
    }

    /// Compactions that run on this shard.
    pub fn compactions(&self) -> Vec<CompactionStats> {
        self.0.compactions.list()
    }

    /// Estimated number of due compactions on this shard, by table; tables with none are left out.
    pub fn pending_compactions(&self) -> Vec<(TableId, usize)> {
        let mut pending: Vec<(TableId, usize)> = Vec::new();
        for tablet in self.tablets() {
            let table = tablet.table();
            let now = self.now_seconds();
            let gc_before = self.gc_before(&tablet, &table, now);
            let flush_bytes = self.0.compactions.flush_bytes.get();
            let (_, jobs) = tablet.debt(|| Facts::of(&tablet, now, gc_before, flush_bytes));
            match pending.last_mut() {
                _ if jobs == 0 => {}
                Some((last, count)) if *last == table.id() => *count += jobs,
                _ => pending.push((table.id(), jobs)),
            }
        }
        pending
    }

    /// Stops compactions on this shard; returns how many. They end at the next partition; inputs replaced by
    /// then stay replaced.
    pub fn stop_compactions(&self, filter: &CompactionFilter) -> usize {
        self.0.compactions.stop(filter)
    }

    /// Compactions that have ended on this shard since its start, oldest first; the last
    /// [`HISTORY_MAX`](crate::COMPACTION_HISTORY_MAX) of them.
    pub fn compaction_history(&self) -> Vec<CompactionRecord> {
        self.0.compactions.history()
    }

    /// As [`Storage::compaction_history`], for all shards of the node, by the time of the end.
    ///
    /// # Errors
    /// [`StorageError::Shard`] when a shard does not answer.
    pub async fn compaction_history_of_node(&self) -> Result<Vec<CompactionRecord>, StorageError> {
        let mut all = self.compaction_history();
        for shard in (0..self.0.shards).filter(|shard| *shard != self.0.shard) {
            let asked = mesh::call(shard, Group::ADMIN, || async {
                reactor::local::<Storage>().map(|storage| storage.compaction_history()).unwrap_or_default()
            });
            let answer = asked.await;
            all.extend(answer.map_err(|error| StorageError::Shard { shard, reason: error.to_string() })?);
        }
        all.sort_by_key(|record| (record.compacted_at_us, record.id));
        Ok(all)
    }

    /// Whether a table's files on this shard are compacted automatically.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`].
    pub fn auto_compaction(&self, table: TableId) -> Result<bool, StorageError> {
        Ok(self.table_store(table)?.tablets().iter().all(|tablet| tablet.compacts_itself()))
    }

    /// Switches automatic compaction on or off, until the next start.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`].
    pub fn set_auto_compaction(&self, table: TableId, on: bool) -> Result<(), StorageError> {
        for tablet in &self.table_store(table)?.tablets() {
            tablet.set_compacts_itself(on);
            self.look_again(tablet);
        }
        Ok(())
    }

    /// Bytes per second that compactions of this shard may write; 0 for any number.
    pub fn compaction_throughput(&self) -> u64 {
        self.0.compactions.throughput.bytes_per_second()
    }

    /// Sets the limit of bytes per second, also for running compactions.
    pub fn set_compaction_throughput(&self, bytes_per_second: u64) {
        self.0.compactions.throughput.set(bytes_per_second);
    }

    /// Sets fixed shares for compactions of this shard, or lets them follow the backlog with 0.
    pub fn set_compaction_static_shares(&self, shares: u32) {
        self.0.compactions.static_shares.set(shares);
        self.adjust_shares();
    }
}

/// Data components of files that no compaction takes: files of `choose` in which damage was found, and files
/// of `named` generations that could not be opened.
fn damaged_files(
    tablet: &Tablet,
    choose: impl Fn(&TableFile) -> bool,
    named: impl Fn(u64) -> bool,
) -> Vec<PathBuf> {
    let files = tablet.files();
    let broken = files.iter().filter(|file| file.is_broken() && choose(file)).map(|file| file.path());
    let left_out = tablet.left_out().into_iter().filter(|file| file.refuses.is_some());
    let left_out = left_out.filter(|file| named(file.descriptor.generation()));
    let left_out = left_out.map(|file| file.descriptor.path(&tablet.directory, Component::Data));
    broken.chain(left_out).collect()
}
