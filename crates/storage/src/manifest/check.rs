//! Compares the files that must exist with those that do, on shard 0, before anything is changed.
//!
//! Everything is examined first. Then a start that misses something is refused with the names of everything
//! missing. Only then unfinished work of the previous process is completed: obsolete files are removed, table
//! files that lost their `TOC.txt` get it back, and sets of unknown origin are moved out of the way. Nothing
//! is deleted here that was not made by a flush, compaction or import of this node.

use reactor::{Cold, cold};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use model::schema::Schema;
use model::{Table, TableId};
use reactor::file::{File, OpenOptions};
use sstable::{Component, Descriptor};

use super::{FileState, Listed, State};
use crate::agreed::AgreedSchema;
use crate::agreed::dropped_tables;
use crate::commitlog::format::HEADER_BYTES;
use crate::compaction::transaction;
use crate::config::StorageConfig;
use crate::error::StorageError;
use crate::paxos;
use crate::tablet::{directory_of, quarantine, to_storage_error};

/// How many missing files of one folder are named; of the others only the number is given.
const NAMES_MAX: usize = 3;

/// Descriptions of files that must exist and do not.
#[derive(Debug, Default)]
pub(crate) struct Missing(Vec<String>);

impl Missing {
    /// Adds something that is missing, by name.
    pub(crate) fn add(&mut self, what: String) {
        self.0.push(what);
    }

    /// Succeeds if nothing is missing, or if an operator accepted exactly this loss (`accept_missing`).
    ///
    /// # Errors
    /// [`StorageError::Missing`].
    pub(crate) fn settle(self, accepted: &[String]) -> Result<(), StorageError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let token = format!("{:08x}", crc32fast::hash(self.0.join("\n").as_bytes()));
        if !accepted.contains(&token) {
            return Err(StorageError::Missing { what: self.0, token });
        }
        for what in self.0 {
            reactor::warn!("something that must be there is missing, and the start goes on without it as told"; what = what);
        }
        Ok(())
    }
}

/// The work to be done in a table's folder before its files are opened.
#[derive(Debug, Default)]
struct Folder {
    directory: PathBuf,
    /// Table files that are in no set any more, complete or not.
    remove: Vec<Descriptor>,
    /// Files of an unfinished flush or compaction, and records of earlier versions.
    leftovers: Vec<String>,
    /// Sets that lost their `TOC.txt`, with their components.
    restore: Vec<(Descriptor, Vec<Component>)>,
    /// Sets without a `TOC.txt` that this node did not make.
    set_aside: Vec<Descriptor>,
}

/// The findings of the examination.
pub(crate) struct Looked {
    /// The files that must exist from now on.
    pub(crate) state: State,
    folders: Vec<Folder>,
}

/// Examines everything that is listed; changes nothing.
///
/// # Errors
/// File errors; a damaged record of a compaction.
#[inline(never)]
pub(crate) fn look<'a>(
    config: &'a StorageConfig,
    schema: &'a Schema,
    agreed: &'a AgreedSchema,
    listed: &'a Listed,
    missing: &'a mut Missing,
) -> Cold<'a, Result<Looked, StorageError>> {
    cold(async move {
        if listed.current.is_none() && agreed.expects_manifest && schema.keyspaces().next().is_some() {
            missing.add(format!("{}: the manifest", config.manifest_dir.display()));
        }
        if listed.state.agreed > agreed.index {
            missing.add(format!(
                "{}: the schema changes from {} to {}",
                config.group0_dir().display(),
                agreed.index + 1,
                listed.state.agreed
            ));
        }
        let mut by_table: BTreeMap<TableId, BTreeMap<u64, FileState>> = BTreeMap::new();
        for ((table, generation), state) in &listed.state.files {
            by_table.entry(*table).or_default().insert(*generation, *state);
        }
        let dropped: BTreeSet<TableId> = dropped_tables(&agreed.changes).into_iter().collect();
        let mut state = State { agreed: agreed.index, ..State::default() };
        let mut folders = Vec::new();
        for table in schema.tables().chain([&paxos::table()]) {
            let files = by_table.remove(&table.id()).unwrap_or_default();
            let folder = look_into(config, table, &files, &mut state, missing).await?;
            folders.extend(folder);
        }
        for (table, files) in by_table {
            let live = files.values().filter(|state| **state == FileState::Live).count();
            if live > 0 && !dropped.contains(&table) {
                missing.add(format!(
                    "{}: the table with id {table}, which has {live} table file(s) and was never dropped",
                    config.group0_dir().display()
                ));
            }
        }
        look_for_segments(config, listed, &mut state, missing).await?;
        Ok(Looked { state, folders })
    })
}

/// Examines the folder of a table; `None` if there is nothing to do in it.
async fn look_into(
    config: &StorageConfig,
    table: &Table,
    listed: &BTreeMap<u64, FileState>,
    state: &mut State,
    missing: &mut Missing,
) -> Result<Option<Folder>, StorageError> {
    let directory = directory_of(&config.data_dir, table);
    let entries = match reactor::file::read_dir(&directory).await {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(StorageError::io("list", &directory, error)),
    };
    let names: Vec<&str> = entries.iter().filter(|e| !e.is_dir).map(|e| e.name.as_str()).collect();
    let mut folder = Folder { directory, ..Folder::default() };
    let recorded = transaction::recorded(&folder.directory, &names).await?;
    folder.leftovers.extend(recorded.names);
    let sorted = sstable::sort_names(names.iter().copied());
    let is_obsolete = |generation: u64| {
        recorded.obsolete.contains(&generation) || listed.get(&generation) == Some(&FileState::Removing)
    };
    let is_live = |generation: u64| listed.get(&generation) == Some(&FileState::Live);
    let mut found = BTreeSet::new();
    // A table file of another version under such a number is not a listed file.
    for descriptor in sorted.complete.into_iter().filter(|d| d.could_be_written()) {
        let generation = descriptor.generation();
        if is_obsolete(generation) {
            folder.remove.push(descriptor);
        } else {
            found.insert(generation);
        }
    }
    // Unfinished files that another process wrote are left alone.
    for (descriptor, components) in sorted.partial.into_iter().filter(|(d, _)| d.could_be_written()) {
        let generation = descriptor.generation();
        let has = |component| components.contains(&component);
        let begun = descriptor.file_name(Component::Toc) + sstable::TEMPORARY_SUFFIX;
        if is_obsolete(generation) {
            folder.remove.push(descriptor);
        } else if is_live(generation) {
            if has(Component::Data) && has(Component::Index) && has(Component::Statistics) {
                found.insert(generation);
                folder.restore.push((descriptor, components));
            }
        } else if sorted.temporary.contains(&begun) {
            folder.remove.push(descriptor);
        } else {
            folder.set_aside.push(descriptor);
        }
    }
    for name in sorted.temporary {
        let written = name.strip_suffix(sstable::TEMPORARY_SUFFIX).unwrap_or(&name);
        if Descriptor::parse(written).is_ok_and(|(descriptor, _)| descriptor.could_be_written()) {
            folder.leftovers.push(name);
        }
    }
    let gone: Vec<u64> = listed
        .iter()
        .filter(|(g, s)| **s == FileState::Live && !found.contains(*g))
        .map(|(g, _)| *g)
        .collect();
    let gone: Vec<u64> =
        gone.into_iter().filter(|generation| !recorded.obsolete.contains(generation)).collect();
    if !gone.is_empty() {
        let names: Vec<String> =
            gone.iter().take(NAMES_MAX).map(|g| Descriptor::new(*g).to_string()).collect();
        let more = if gone.len() > NAMES_MAX { ", …" } else { "" };
        missing.add(format!(
            "{}: {} of {} table files, or their Data, Index or Statistics ({}{more})",
            folder.directory.display(),
            gone.len(),
            listed.values().filter(|state| **state == FileState::Live).count(),
            names.join(", ")
        ));
    }
    // Files that are not listed yet are listed by the shard that opens them.
    let live = listed.keys().filter(|generation| found.contains(*generation));
    state.files.extend(live.map(|generation| ((table.id(), *generation), FileState::Live)));
    let idle = folder.remove.is_empty()
        && folder.leftovers.is_empty()
        && folder.restore.is_empty()
        && folder.set_aside.is_empty();
    Ok((!idle).then_some(folder))
}

/// Looks for the segments of every commit log.
async fn look_for_segments(
    config: &StorageConfig,
    listed: &Listed,
    state: &mut State,
    missing: &mut Missing,
) -> Result<(), StorageError> {
    let mut by_log: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (log, slot) in &listed.state.segments {
        by_log.entry(*log).or_default().push(*slot);
    }
    for (log, slots) in by_log {
        let directory = crate::open::log_directory(config, log as usize);
        let entries = match reactor::file::read_dir(&directory).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                missing.add(format!("{}: a commit log with {} segment(s)", directory.display(), slots.len()));
                continue;
            }
            Err(error) => return Err(StorageError::io("list", &directory, error)),
        };
        for slot in slots {
            let name = format!("{slot}.log");
            let path = directory.join(&name);
            if !entries.iter().any(|entry| entry.name == name) {
                missing.add(format!("{}: a commit-log segment", path.display()));
                continue;
            }
            // It is opened, since its directory entry may be a link, or not a file at all.
            let file = File::open(&path, OpenOptions::new().read(true)).await;
            let file = file.map_err(StorageError::of("open", &path))?;
            let bytes = file.size().await.map_err(StorageError::of("measure", &path))?;
            if bytes >= HEADER_BYTES as u64 {
                state.segments.insert((log, slot));
            } else {
                missing.add(format!(
                    "{}: a commit-log segment, of which {bytes} bytes are left",
                    path.display()
                ));
            }
        }
    }
    Ok(())
}

impl Looked {
    /// Completes the unfinished work of an earlier process in the folders.
    ///
    /// # Errors
    /// File errors.
    pub(crate) async fn settle(&self) -> Result<(), StorageError> {
        for folder in &self.folders {
            folder.settle().await?;
        }
        Ok(())
    }
}

impl Folder {
    async fn settle(&self) -> Result<(), StorageError> {
        let directory: &Path = &self.directory;
        for (descriptor, components) in &self.restore {
            reactor::warn!("a table file has lost its TOC.txt, which is made anew";
                file = descriptor, directory = directory.display());
            sstable::restore_toc(directory, *descriptor, components).await.map_err(to_storage_error)?;
        }
        for descriptor in &self.set_aside {
            reactor::warn!("a table file without a TOC.txt that this node did not leave is set aside";
                file = descriptor, directory = directory.display());
            quarantine(directory, *descriptor).await?;
        }
        for descriptor in &self.remove {
            sstable::remove(directory, *descriptor).await.map_err(to_storage_error)?;
        }
        let (records, leftovers): (Vec<_>, Vec<_>) =
            self.leftovers.iter().partition(|name| transaction::is_record(name));
        for name in leftovers {
            let path = directory.join(name);
            reactor::file::remove_file(&path).await.map_err(StorageError::of("delete", &path))?;
        }
        if !records.is_empty() {
            // The records are removed only when the removal of the files they name is durable.
            reactor::file::sync_dir(directory).await.map_err(StorageError::of("sync", directory))?;
        }
        for name in records {
            let path = directory.join(name);
            reactor::file::remove_file(&path).await.map_err(StorageError::of("delete", &path))?;
        }
        Ok(())
    }
}
