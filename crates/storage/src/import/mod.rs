//! Takes in table files from outside, for `refresh` and `import`.
//!
//! A file may come from another node, with other shards, tablets or tokens, or from Cassandra. Every shard
//! reads the part of it that its tablets own and writes that as files of its own. A file of this node's
//! format that belongs entirely to one tablet is linked (`link`). All shards do so before any shows a row
//! (`write`, then `publish` or `forget`), so that a source that is damaged in the middle, or of another
//! schema, changes nothing. Invariant: a source is removed only when all its rows are in durable files. A
//! crash in between leaves the sources; taking them in again changes nothing, since rows have their
//! timestamps.

mod link;
mod place;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use model::clustering::Slice;
use model::reconcile::Purge;
use model::{Table, TableId};
use reactor::{Cold, Group, Instant, Semaphore, cold};
use sstable::{Descriptor, PartitionBound, Sstable};

use crate::disk::FailurePolicy;
use crate::error::StorageError;
use crate::manifest::Edit;
use crate::read::merge::Merge;
use crate::read::source::{Input, Source};
use crate::shard::Storage;
use crate::tablet::{Damage, MISNUMBERED, TableFile, Tablet, to_storage_error};

/// Folder below a table's folder where files wait to be taken in.
pub(crate) const UPLOAD: &str = "upload";
/// Message about table files in other versions.
pub(crate) const NOT_READ: &str = "table files of the format big with a version of ma to oa, and of bti with version da, are read: \
     run `nodetool upgradesstables -a` of the Apache Cassandra 3.0 to 5.0 that wrote them";
/// Most table files taken in at once; more take several calls.
const FILES_MAX: usize = 10_000;
/// How often a long import logs its progress.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The source of the files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportSource {
    /// The folder; `None` for the table's `upload`.
    pub directory: Option<PathBuf>,
    /// Whether the source files are kept.
    pub keep: bool,
}

/// Counts of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Table files.
    pub files: usize,
    /// Partitions, one that is in several files counted as often.
    pub partitions: u64,
}

/// A shard's state of imports.
pub(crate) struct Imports {
    /// One import at a time; used on the shard that leads it.
    turn: Semaphore,
    /// Complete files that are not shown yet, by import.
    written: RefCell<BTreeMap<u64, Vec<Written>>>,
    next: Cell<u64>,
}

type Written = (Rc<Tablet>, Rc<TableFile>);

impl Default for Imports {
    fn default() -> Self {
        Self { turn: Semaphore::new(1), written: RefCell::default(), next: Cell::new(0) }
    }
}

/// Progress of a shard.
struct Progress<'t> {
    task: &'t Task,
    /// Number of source files that are done.
    files: usize,
    partitions: u64,
    told: Instant,
}

impl Progress<'_> {
    /// Counts a partition that was written.
    fn step(&mut self) {
        self.partitions += 1;
        // The clock is read only from time to time.
        if self.partitions.is_multiple_of(1024) && self.told.elapsed() >= TOLD_EVERY {
            self.told = reactor::now();
            reactor::info!("table files are being taken in";
                directory = self.task.directory.display(), files = self.files, files_in_all = self.task.descriptors.len(),
                partitions = self.partitions);
        }
    }
}

/// The task that each shard is given.
#[derive(Debug, Clone)]
struct Task {
    id: u64,
    table: TableId,
    directory: PathBuf,
    descriptors: Vec<Descriptor>,
}

impl Storage {
    /// Takes table files in on all shards. Reads show all of their rows or, after an error, none.
    ///
    /// Always call it on the same shard of a node: imports wait for each other there.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`]; [`StorageError::Import`] for files that cannot be taken in, or are in
    /// use; [`StorageError::Shard`] with a shard's error, such as a damaged file. The sources then still
    /// exist.
    #[inline(never)]
    pub fn import<'a>(
        &'a self,
        table: TableId,
        from: &'a ImportSource,
    ) -> Cold<'a, Result<ImportReport, StorageError>> {
        cold(async move {
            let directory = self.source_directory(table, from)?;
            self.check_place(&directory).await?;
            self.take_in(table, from).await
        })
    }

    /// As [`Storage::import`], also from a folder that has this node's own files.
    pub(crate) async fn take_in(
        &self,
        table: TableId,
        from: &ImportSource,
    ) -> Result<ImportReport, StorageError> {
        let directory = self.source_directory(table, from)?;
        let Ok(_turn) = self.0.imports.turn.acquire(1).await else { return Err(StorageError::Draining) };
        let descriptors = whole_files(&directory, from.directory.is_some()).await?;
        if descriptors.is_empty() {
            return Ok(ImportReport::default());
        }
        // A tablet that moved meanwhile might be missed.
        let _hold = self.hold_moves(table).await?;
        let id = self.0.imports.next.replace(self.0.imports.next.get() + 1);
        let task = Task { id, table, directory: directory.clone(), descriptors: descriptors.clone() };
        let written = self
            .on_every_shard(Group::STREAMING, task, async |storage, task| storage.write_import(&task).await)
            .await;
        let partitions = match written {
            Ok(partitions) => partitions.into_iter().sum(),
            Err(error) => {
                let forgotten = self.on_every_shard(Group::STREAMING, id, async |storage, id| {
                    storage.forget_import(id).await;
                    Ok(())
                });
                // Files that stay are complete and have correct rows; the first error is returned.
                let _ = forgotten.await;
                return Err(error);
            }
        };
        self.on_every_shard(Group::STREAMING, id, async |storage, id| {
            storage.publish_import(id).await;
            Ok(())
        })
        .await?;
        if !from.keep {
            for descriptor in &descriptors {
                sstable::remove(&directory, *descriptor).await.map_err(to_storage_error)?;
            }
        }
        reactor::info!("table files were taken in";
            directory = directory.display(), files = descriptors.len(), partitions = partitions);
        Ok(ImportReport { files: descriptors.len(), partitions })
    }

    fn source_directory(&self, table: TableId, from: &ImportSource) -> Result<PathBuf, StorageError> {
        let store = self.table_store(table)?;
        Ok(from.directory.clone().unwrap_or_else(|| store.directory.join(UPLOAD)))
    }

    /// Writes this shard's part of the sources; returns the number of partitions.
    async fn write_import(&self, task: &Task) -> Result<u64, StorageError> {
        let store = self.table_store(task.table)?;
        let own = store.own_changes();
        let mut progress = Progress { task, files: 0, partitions: 0, told: reactor::now() };
        for descriptor in &task.descriptors {
            let table = store.table();
            let source = Sstable::open_mending(&task.directory, *descriptor, &table).await;
            let source = source.map_err(to_storage_error)?;
            // A damaged source is not set aside: it does not belong to this node.
            let source = Rc::new(TableFile::new(source, &Rc::new(Damage::new(FailurePolicy::Ignore))));
            let tablets = store.tablets();
            for tablet in &tablets {
                if store.own_changes() != own {
                    return Err(StorageError::Import {
                        path: task.directory.clone(),
                        reason: "tablets of the table are about to move: try it again".to_owned(),
                    });
                }
                let file = self.write_tablet(tablet, &table, &source, &mut progress).await?;
                let mut written = self.0.imports.written.borrow_mut();
                written.entry(task.id).or_default().extend(file.map(|file| (Rc::clone(tablet), file)));
            }
            progress.files += 1;
        }
        let written: Vec<Edit> = {
            let written = self.0.imports.written.borrow();
            let files = written.get(&task.id).into_iter().flatten();
            files.map(|(_, file)| Edit::Live((task.table, file.generation()))).collect()
        };
        self.0.manifest.note(&written).await?;
        Ok(progress.partitions)
    }

    /// Writes the part of a source that belongs to a tablet.
    async fn write_tablet(
        &self,
        tablet: &Rc<Tablet>,
        table: &Rc<Table>,
        source: &Rc<TableFile>,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Rc<TableFile>>, StorageError> {
        let (first, last) = table.tablets().range(tablet.id);
        let (minima, expected) = {
            let sstable = source.sstable();
            if sstable.last_key().0 < first || last < sstable.first_key().0 {
                return Ok(None);
            }
            let all = u64::try_from(sstable.stats().partition_sizes.count()).unwrap_or(0);
            (sstable.statistics().header.minima, all / u64::from(table.tablets().count()))
        };
        if let Some((file, partitions)) = self.link_tablet(tablet, source).await? {
            progress.partitions += partitions;
            return Ok(Some(file));
        }
        let output = self.output(tablet, table, minima, expected).await?;
        let file = self.within(tablet, output, async |output| {
            let (from, to) = (PartitionBound::before_token(first), PartitionBound::behind_token(last));
            let failed = |error| source.failed(error);
            let mut scanner = source.open().scan(&from, &to, &[Slice::all()]).await.map_err(failed)?;
            let mut key = Vec::new();
            while scanner.next_partition().await.map_err(failed)? {
                if tablet.is_dropped() || self.0.draining.get() {
                    return Err(StorageError::Draining);
                }
                let token = scanner.token();
                key.clear();
                key.extend_from_slice(scanner.key());
                let input = Input::Scan { file: Rc::clone(source), scanner: Box::new(scanner) };
                let mut merge = Merge::new(Rc::clone(table), vec![Source::new(input)], Purge::nothing());
                output.partition(token, &key, &mut merge).await?;
                progress.step();
                let back = merge.into_sources().into_iter().find_map(|source| match source.input {
                    Input::Scan { scanner, .. } => Some(scanner),
                    _ => None,
                });
                let Some(back) = back else { return Ok(()) };
                scanner = *back;
                reactor::maybe_yield().await;
            }
            Ok(())
        });
        file.await
    }

    /// Adds the written files to their tablets' sets.
    async fn publish_import(&self, id: u64) {
        let written = self.0.imports.written.borrow_mut().remove(&id).unwrap_or_default();
        for (tablet, file) in written {
            if tablet.is_dropped() {
                self.discard(&tablet, file.generation()).await;
            } else {
                tablet.replace_files(&[], Some(file));
                tablet.forget_cached();
            }
        }
        self.0.compaction_wanted.notify_all();
    }

    /// Removes the written files.
    async fn forget_import(&self, id: u64) {
        let written = self.0.imports.written.borrow_mut().remove(&id).unwrap_or_default();
        for (tablet, file) in written {
            self.discard(&tablet, file.generation()).await;
        }
    }
}

/// The table files in a folder; an error if one is incomplete or unreadable.
async fn whole_files(directory: &Path, must_exist: bool) -> Result<Vec<Descriptor>, StorageError> {
    let refused = |reason: String| StorageError::Import { path: directory.to_owned(), reason };
    let entries = match reactor::file::read_dir(directory).await {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !must_exist => return Ok(Vec::new()),
        Err(error) => return Err(StorageError::io("list", directory, error)),
    };
    let names = entries.iter().filter(|entry| !entry.is_dir).map(|entry| entry.name.as_str());
    let sorted = sstable::sort_names(names);
    let misnumbered = entries.iter().find(|entry| sstable::is_misnumbered(&entry.name));
    if let Some(entry) = misnumbered {
        return Err(refused(format!(
            "{}: {MISNUMBERED}; give all files of that number another one",
            entry.name
        )));
    }
    if let Some(name) = sorted.unsupported.first() {
        return Err(refused(format!("{name}: {NOT_READ}")));
    }
    if let Some(name) = sorted.leftovers().first() {
        return Err(refused(format!("{name} is part of a table file that is not whole: it has no TOC.txt")));
    }
    if sorted.complete.len() > FILES_MAX {
        return Err(refused(format!("{} table files, at most {FILES_MAX} at once", sorted.complete.len())));
    }
    Ok(sorted.complete)
}
