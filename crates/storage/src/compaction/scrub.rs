//! Reads table files that may be damaged: reports the damage, or saves the readable part into new files.
//!
//! A file is first read through. Where it cannot be read there is a gap; the file's index gives the place
//! behind it. Then the stretches between gaps are rewritten. A damaged partition is left out as a whole: a
//! part of it could show data that the rest deletes. Damage costs everything the scanner reads in one go with
//! it, some hundred KiB. Modes are those of ScyllaDB's and Cassandra's `scrub`.

use std::collections::BTreeSet;
use std::rc::Rc;

use model::clustering::Slice;
use model::reconcile::Purge;
use model::{DeletionTime, TableId, Token, partition_key};
use sstable::{Component, PartitionBound, Problem, Scanner, Sstable, SstableError, VerifyDepth};

use super::job::{Marked, minima};
use super::running::{CompactionKind, CompactionRecord, Running};
use crate::error::StorageError;
use crate::flush::Output;
use crate::manifest::Edit;
use crate::read::merge::Merge;
use crate::read::source::{Input, Source};
use crate::shard::Storage;
use crate::tablet::{LeftOut, TableFile, Tablet, quarantine, to_storage_error};

/// After this many gaps a file is given up: the rest of it is not worth as many searches.
const GAPS_MAX: usize = 10_000;
/// Most files that one file out of order is segregated into.
const SEGREGATED_MAX: usize = 1_000;

/// How to deal with damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubMode {
    /// Stop with an error at the first damage; files without damage are rewritten.
    Abort,
    /// Leave out damaged partitions, and partitions that are out of order.
    Skip,
    /// Leave out damaged partitions; partitions that are out of order go to files of their own.
    Segregate,
    /// Write nothing, and report the damage.
    Validate,
}

/// The result of a scrub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Files read.
    pub files: usize,
    /// Files with damage in any component, or out of order.
    pub damaged_files: usize,
    /// Partitions read without damage.
    pub partitions: u64,
    /// Stretches that could not be read, of one partition or more.
    pub gaps: u64,
    /// Partitions that sort before their predecessor in the file.
    pub out_of_order: u64,
}

/// A readable stretch: from a place to the last partition before damage, or to the end of the file.
#[derive(Debug)]
struct Stretch {
    from: PartitionBound,
    last: Option<(Token, Vec<u8>)>,
}

#[derive(Debug, Default)]
struct Survey {
    stretches: Vec<Stretch>,
    partitions: u64,
    gaps: u64,
    out_of_order: u64,
    /// The first damage.
    error: Option<SstableError>,
}

impl Survey {
    fn is_sound(&self) -> bool {
        self.gaps == 0 && self.out_of_order == 0 && self.error.is_none()
    }
}

/// Why a file is not read further.
enum Stop {
    Stopped,
    Failed(StorageError),
}

impl Storage {
    /// Reads all files of a table on this shard and handles damage according to `mode`.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`]; [`StorageError::TableFileCorrupt`] in [`ScrubMode::Abort`]; those of
    /// reading and writing. Files that were dealt with by then stay so.
    pub async fn scrub(&self, table: TableId, mode: ScrubMode) -> Result<ScrubReport, StorageError> {
        let store = self.table_store(table)?;
        let mut report = ScrubReport::default();
        let mut shared = BTreeSet::new();
        for tablet in &store.tablets() {
            let files: Vec<_> = tablet.files().to_vec();
            for file in files {
                let Ok(_turn) = tablet.compacting.acquire(1).await else {
                    return Err(StorageError::Draining);
                };
                // A compaction has the file, and reads all of it.
                if tablet.is_gone()
                    || file.is_busy()
                    || !tablet.files().iter().any(|other| Rc::ptr_eq(other, &file))
                {
                    continue;
                }
                let inputs = Marked::new(vec![Rc::clone(&file)]);
                match self.scrub_file(tablet, &file, mode, &mut report).await {
                    Ok(()) => {}
                    Err(Stop::Stopped) => return Ok(report),
                    // It gave way to a task that wants the tablet, such as a move to another shard.
                    Err(Stop::Failed(StorageError::Draining)) if !self.0.draining.get() => {
                        return Err(StorageError::TabletBusy { table });
                    }
                    Err(Stop::Failed(error)) => return Err(error),
                }
                drop(inputs);
            }
            self.forget_shared(tablet).await?;
            for file in tablet.left_out().into_iter().filter(|_| !tablet.is_gone()) {
                // Shard 0 lists it in its part of the manifest.
                let is_here = self.0.shard == 0 || mode == ScrubMode::Abort;
                if file.is_shared && !(is_here && shared.insert(file.descriptor)) {
                    continue;
                }
                self.scrub_left_out(tablet, &file, mode, &mut report).await?;
            }
        }
        Ok(report)
    }

    /// Deals with a file that could not be opened at the start: nothing of it can be saved.
    async fn scrub_left_out(
        &self,
        tablet: &Tablet,
        file: &LeftOut,
        mode: ScrubMode,
        report: &mut ScrubReport,
    ) -> Result<(), StorageError> {
        let Some(error) = &file.refuses else { return Ok(()) };
        report.files += 1;
        report.damaged_files += 1;
        if mode == ScrubMode::Validate {
            return Ok(());
        }
        if mode == ScrubMode::Abort {
            return Err(error.clone());
        }
        self.0.manifest.note(&[Edit::Gone((tablet.table().id(), file.descriptor.generation()))]).await?;
        quarantine(&tablet.directory, file.descriptor).await?;
        self.0.damage.count_set_aside();
        tablet.forget_left_out(file.descriptor.generation());
        reactor::error!("a table file that cannot be opened was set aside: its data is missing from reads";
            file = file.descriptor, directory = tablet.directory.display());
        Ok(())
    }

    /// Forgets files that every tablet of the table leaves out and that are gone from the disk since: shard 0
    /// has dealt with them.
    ///
    /// # Errors
    /// Those of looking for them.
    pub(crate) async fn forget_shared(&self, tablet: &Tablet) -> Result<(), StorageError> {
        for file in tablet.left_out().into_iter().filter(|file| file.is_shared) {
            let path = file.descriptor.path(&tablet.directory, Component::Data);
            if !reactor::file::exists(&path).await.map_err(StorageError::of("look for", &path))? {
                tablet.forget_left_out(file.descriptor.generation());
            }
        }
        Ok(())
    }

    async fn scrub_file(
        &self,
        tablet: &Rc<Tablet>,
        file: &Rc<TableFile>,
        mode: ScrubMode,
        report: &mut ScrubReport,
    ) -> Result<(), Stop> {
        let table = tablet.table();
        let kind = if mode == ScrubMode::Validate { CompactionKind::Verify } else { CompactionKind::Scrub };
        let bytes = file.sstable().data_bytes();
        let entered = self.0.compactions.enter(kind, &table, bytes, 1);
        let mut survey = self.survey(tablet, file, &entered.running).await?;
        self.survey_components(tablet, file, &mut survey).await?;
        report.files += 1;
        report.damaged_files += usize::from(!survey.is_sound());
        report.partitions += survey.partitions;
        report.gaps += survey.gaps;
        report.out_of_order += survey.out_of_order;
        match (mode, survey.is_sound()) {
            (ScrubMode::Validate, true) => return Ok(()),
            (ScrubMode::Validate, false) => {
                reactor::error!("a table file is damaged"; file = file.path().display(), gaps = survey.gaps,
                    out_of_order = survey.out_of_order);
                let error = survey.error.unwrap_or_else(|| damage(file, "it cannot be read"));
                // Reads of the damaged part go on failing; compactions leave the file alone from now on.
                let _ = file.failed(error);
                return Ok(());
            }
            (ScrubMode::Abort, false) => {
                let error = survey.error.unwrap_or_else(|| damage(file, "it cannot be read"));
                return Err(Stop::Failed(to_storage_error(error)));
            }
            _ => {}
        }
        let mut made = Vec::new();
        let mut bands = Bands { stretches: survey.stretches.into(), scanner: None, last: None };
        while made.len() < SEGREGATED_MAX && bands.open(file).await.map_err(Stop::Failed)? {
            let level = u32::try_from(file.sstable().stats().level).unwrap_or(0);
            let least = minima(std::slice::from_ref(file));
            let output = self
                .output_at(tablet, &table, least, file.partitions(), if made.is_empty() { level } else { 0 })
                .await
                .map_err(Stop::Failed)?;
            let segregates = mode == ScrubMode::Segregate;
            let written = self.within(tablet, output, async |output| {
                self.write_band(tablet, file, &mut bands, segregates, output).await
            });
            let written = written.await;
            match written {
                Ok(new) => made.extend(new),
                Err(error) => {
                    for file in made {
                        self.discard(tablet, file.generation()).await;
                    }
                    return Err(Stop::Failed(error));
                }
            }
        }
        self.exchange(tablet, std::slice::from_ref(file), &made).await.map_err(Stop::Failed)?;
        self.0.compactions.record(CompactionRecord {
            id: entered.running.id,
            kind,
            keyspace: table.keyspace().to_owned(),
            table_name: table.name().to_owned(),
            compacted_at_us: reactor::wall_clock_us(),
            bytes_in: file.sstable().bytes_on_disk(),
            bytes_out: made.iter().map(|file| file.sstable().bytes_on_disk()).sum(),
            partitions_merged: [(1, survey.partitions)].into(),
        });
        Ok(())
    }

    /// Examines the components besides the data. The others are not needed for rewriting: their contents are
    /// in memory or follow from the data.
    async fn survey_components(
        &self,
        tablet: &Tablet,
        file: &Rc<TableFile>,
        survey: &mut Survey,
    ) -> Result<(), Stop> {
        let (table, descriptor) = (tablet.table(), file.sstable().descriptor());
        let verified = Sstable::verify(&tablet.directory, descriptor, &table, VerifyDepth::Quick, |_| true);
        match verified.await {
            Ok(_) => Ok(()),
            Err(error) => {
                let is_gone = |source: &std::io::Error| source.kind() == std::io::ErrorKind::NotFound;
                if matches!(&error, SstableError::Io { source, .. } if !is_gone(source)) {
                    return Err(Stop::Failed(file.failed(error)));
                }
                survey.error.get_or_insert(error);
                Ok(())
            }
        }
    }

    /// Reads the file to its end, skipping unreadable parts.
    async fn survey(&self, tablet: &Tablet, file: &Rc<TableFile>, running: &Running) -> Result<Survey, Stop> {
        let mut survey = Survey::default();
        let mut from = PartitionBound::START;
        let all = file.partitions().max(1);
        loop {
            let mut last: Option<(Token, Vec<u8>)> = None;
            let ended = loop {
                if running.is_stopped() {
                    return Err(Stop::Stopped);
                }
                if tablet.is_claimed() || tablet.is_dropped() || self.0.draining.get() {
                    return Err(Stop::Failed(StorageError::Draining));
                }
                // Each stretch is read in one go: the scanner stays open over whole partitions.
                let read = read_on(file, &from, &mut last, &mut survey, |done| {
                    running
                        .completed
                        .set((u128::from(done) * u128::from(running.total) / u128::from(all)) as u64);
                    running.is_stopped() || tablet.is_claimed() || self.0.draining.get()
                });
                match read.await {
                    Ok(true) => break None,
                    Ok(false) => continue,
                    Err(error) => break Some(error),
                }
            };
            let Some(error) = ended else {
                survey.stretches.push(Stretch { from, last: None });
                return Ok(survey);
            };
            if last.is_some() {
                survey.stretches.push(Stretch { from: from.clone(), last: last.clone() });
            }
            if !matches!(error, SstableError::Corrupt { .. }) {
                return Err(Stop::Failed(to_storage_error(error)));
            }
            survey.gaps += 1;
            survey.error.get_or_insert(error);
            if survey.gaps as usize > GAPS_MAX {
                return Ok(survey);
            }
            // If nothing was read, the damage is at the beginning of the stretch.
            let begin = last.map_or(from.token().0, |(token, _)| token.0);
            match behind_damage(file, begin).await {
                Some(next) => from = PartitionBound::before_token(next),
                None => return Ok(survey),
            }
        }
    }

    /// Writes partitions in order: up to the end, or, if partitions out of order are kept, to the first of
    /// them.
    async fn write_band(
        &self,
        tablet: &Tablet,
        file: &Rc<TableFile>,
        bands: &mut Bands,
        segregates: bool,
        output: &mut Output,
    ) -> Result<(), StorageError> {
        let table = tablet.table();
        let mut written: Option<(Token, Vec<u8>)> = None;
        while bands.open(file).await? {
            if tablet.is_claimed() || tablet.is_dropped() || self.0.draining.get() {
                return Err(StorageError::Draining);
            }
            let Some(scanner) = bands.scanner.take() else { return Ok(()) };
            let at = (scanner.token(), scanner.key().to_vec());
            let ascends = written.as_ref().is_none_or(|(token, key)| {
                partition_key::compare_decorated((*token, key), (at.0, &at.1)).is_lt()
            });
            if !ascends && segregates {
                bands.scanner = Some(scanner);
                return Ok(());
            }
            let source = Source::new(Input::Scan { file: Rc::clone(file), scanner });
            let sources = if ascends {
                let mut merge = Merge::new(Rc::clone(&table), vec![source], Purge::nothing());
                output.partition(at.0, &at.1, &mut merge).await?;
                written = Some(at);
                merge.into_sources()
            } else {
                vec![source]
            };
            for source in sources {
                let Input::Scan { scanner, .. } = source.input else { continue };
                bands.step(scanner).await?;
            }
            reactor::maybe_yield().await;
        }
        Ok(())
    }
}

/// Readable stretches of a file, one after the other.
struct Bands {
    stretches: std::collections::VecDeque<Stretch>,
    /// The scanner, positioned at the next partition to be written.
    scanner: Option<Box<Scanner>>,
    /// The last partition of the present stretch; damage follows it.
    last: Option<(Token, Vec<u8>)>,
}

impl Bands {
    /// Goes to the next partition, unless it is at one; returns false at the end.
    async fn open(&mut self, file: &Rc<TableFile>) -> Result<bool, StorageError> {
        while self.scanner.is_none() {
            let Some(stretch) = self.stretches.pop_front() else { return Ok(false) };
            let scanner = file.open().scan(&stretch.from, &PartitionBound::END, &[Slice::all()]).await;
            let mut scanner = scanner.map_err(to_storage_error)?;
            if scanner.next_partition().await.map_err(to_storage_error)? {
                self.last = stretch.last;
                self.scanner = Some(Box::new(scanner));
            }
        }
        Ok(true)
    }

    /// Moves past a partition that was read or is left out.
    async fn step(&mut self, mut scanner: Box<Scanner>) -> Result<(), StorageError> {
        let is_last =
            self.last.as_ref().is_some_and(|(token, key)| (scanner.token(), scanner.key()) == (*token, key));
        self.scanner = if !is_last && scanner.next_partition().await.map_err(to_storage_error)? {
            Some(scanner)
        } else {
            None
        };
        Ok(())
    }
}

fn damage(file: &Rc<TableFile>, what: &'static str) -> SstableError {
    let sstable = file.sstable();
    let path = sstable.descriptor().path(sstable.dir(), Component::Data);
    SstableError::Corrupt { path, component: Component::Data, offset: 0, problem: Problem::Invalid(what) }
}

/// Reads partitions from a place on; `last` becomes the last one that was read completely. Returns whether
/// the file ended.
async fn read_on(
    file: &Rc<TableFile>,
    from: &PartitionBound,
    last: &mut Option<(Token, Vec<u8>)>,
    survey: &mut Survey,
    mut stops: impl FnMut(u64) -> bool,
) -> Result<bool, SstableError> {
    let begin = match last {
        Some((token, key)) => PartitionBound::behind_key(*token, key),
        None => from.clone(),
    };
    let mut scanner = file.open().scan(&begin, &PartitionBound::END, &[Slice::all()]).await?;
    while scanner.next_partition().await? {
        read_partition(file, &mut scanner).await?;
        let at = (scanner.token(), scanner.key());
        if let Some((token, key)) = last
            && partition_key::compare_decorated((*token, key), at).is_ge()
        {
            survey.out_of_order += 1;
            survey.error.get_or_insert_with(|| damage(file, "partitions are out of order"));
        }
        survey.partitions += 1;
        *last = Some((at.0, at.1.to_vec()));
        reactor::maybe_yield().await;
        if stops(survey.partitions) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads the partition that a scanner is at to its end.
async fn read_partition(file: &Rc<TableFile>, scanner: &mut Scanner) -> Result<(), SstableError> {
    let mut open = DeletionTime::LIVE;
    while let Some(next) = scanner.next().await? {
        if let model::Unfiltered::Change { deletion, .. } = next {
            open = deletion;
        }
        reactor::maybe_yield().await;
    }
    // A range deletion without an end would shadow the partitions that follow.
    if open.is_live() { Ok(()) } else { Err(damage(file, "a range deletion has no end")) }
}

/// The least token behind `begin` from which the file is readable again, found by its index; `None` if there
/// is none.
async fn behind_damage(file: &Rc<TableFile>, begin: i64) -> Option<Token> {
    let end = i128::from(file.sstable().last_key().0.0);
    let mut bad = i128::from(begin);
    let mut step = 1i128;
    // Bounded: the step doubles, so there are at most 64 rounds.
    let mut good = loop {
        let probe = (bad + step).min(end);
        if is_readable(file, Token(probe as i64)).await {
            break probe;
        }
        if probe >= end {
            return None;
        }
        bad = probe;
        step *= 2;
    };
    while good - bad > 1 {
        let middle = bad + (good - bad) / 2;
        if is_readable(file, Token(middle as i64)).await {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Some(Token(good as i64))
}

/// Whether there is a partition at or behind a token and the first such can be read.
async fn is_readable(file: &Rc<TableFile>, token: Token) -> bool {
    let from = PartitionBound::before_token(token);
    let read = async {
        let mut scanner = file.open().scan(&from, &PartitionBound::END, &[Slice::all()]).await?;
        if !scanner.next_partition().await? {
            return Ok::<bool, SstableError>(false);
        }
        read_partition(file, &mut scanner).await?;
        Ok(true)
    };
    matches!(read.await, Ok(true))
}
