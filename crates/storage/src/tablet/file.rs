//! An open table file of a tablet, and the handling of a damaged one.

use std::cell::{Cell, Ref, RefCell};
use std::path::Path;
use std::rc::Rc;

use model::Table;
use sstable::{Component, Descriptor, RowRoom, Sstable, SstableError};

use super::damage::Damage;
use crate::error::StorageError;

/// Folder below the table's that takes damaged files.
pub(crate) const QUARANTINE: &str = "quarantine";

/// A table file in use.
pub(crate) struct TableFile {
    /// Read as of the table's latest alteration.
    sstable: RefCell<Sstable>,
    generation: u64,
    broken: Cell<bool>,
    /// Whether reads are to go on without it.
    given_up: Cell<bool>,
    /// Whether a compaction has it.
    busy: Cell<bool>,
    /// Seconds; about, for a file that was there at the start.
    created: u32,
    /// Notified when a read finds the file damaged.
    damage: Rc<Damage>,
}

impl TableFile {
    pub(crate) fn new(sstable: Sstable, damage: &Rc<Damage>) -> Self {
        let generation = sstable.descriptor().generation();
        let created = u32::try_from(reactor::wall_clock_us() / 1_000_000).unwrap_or(u32::MAX);
        Self {
            sstable: RefCell::new(sstable),
            generation,
            broken: Cell::new(false),
            given_up: Cell::new(false),
            busy: Cell::new(false),
            created,
            damage: Rc::clone(damage),
        }
    }

    /// A file that existed before this start: it is as old as its newest write, unless that has a timestamp
    /// in the future.
    pub(crate) fn found(sstable: Sstable, damage: &Rc<Damage>) -> Self {
        let newest = u32::try_from(sstable.stats().max_timestamp / 1_000_000).unwrap_or(u32::MAX);
        let file = Self::new(sstable, damage);
        Self { created: file.created.min(newest), ..file }
    }

    /// Whether a compaction has it.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.get()
    }

    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.set(busy);
    }

    /// When it was made, seconds.
    pub(crate) fn created_seconds(&self) -> u32 {
        self.created
    }

    /// How many partitions it has.
    pub(crate) fn partitions(&self) -> u64 {
        self.sstable.borrow().stats().partition_sizes.count().max(0) as u64
    }

    /// Path of its data.
    pub(crate) fn path(&self) -> std::path::PathBuf {
        let sstable = self.sstable.borrow();
        sstable.descriptor().path(sstable.dir(), Component::Data)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The file, for as long as nothing waits.
    #[inline]
    pub(crate) fn sstable(&self) -> Ref<'_, Sstable> {
        self.sstable.borrow()
    }

    /// The open file, for callers that will wait while they use it.
    pub(crate) fn open(&self) -> Sstable {
        self.sstable.borrow().clone()
    }

    /// As [`TableFile::open`], for a read whose long rows take memory of `room`, if there is one.
    pub(crate) fn open_in(&self, room: Option<&Rc<RowRoom>>) -> Sstable {
        self.open().in_room(room)
    }

    /// The table was altered: the columns of the file are looked up by name again, so that a column that was
    /// dropped and made again with the same name is read as after a restart.
    pub(crate) fn set_table(&self, table: &Table) {
        let altered = self.sstable.borrow().with_table(table);
        match altered {
            Ok(altered) => *self.sstable.borrow_mut() = altered,
            Err(error) => reactor::error!("a table file does not fit its altered table"; error = &error),
        }
    }

    /// Whether a read found it damaged.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.get()
    }

    /// Whether the disk did not read it, and reads are to go on without it.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.get()
    }

    /// Converts a reader's error, and notes the damage that it reports for the file.
    pub(crate) fn failed(&self, error: SstableError) -> StorageError {
        if matches!(error, SstableError::Corrupt { .. }) && !self.broken.replace(true) {
            reactor::error!("a table file is corrupt: what needs the damaged part of it fails until it is scrubbed";
                error = &error);
        }
        if self.damage.gives_up(&error) && !self.given_up.replace(true) {
            reactor::error!("the disk does not read a table file, which will be set aside"; error = &error);
            self.damage.found.notify_all();
        }
        to_storage_error(error)
    }
}

/// An error of a table file as storage reports it.
pub(crate) fn to_storage_error(error: SstableError) -> StorageError {
    match error {
        SstableError::Io { path, source } => StorageError::io("use", path, source),
        SstableError::Corrupt { path, component, offset, problem } => StorageError::TableFileCorrupt {
            path,
            reason: format!("{component}: {problem} at byte {offset}"),
        },
        SstableError::Version { ref path, .. }
        | SstableError::Compressor { ref path, .. }
        | SstableError::Schema { ref path, .. } => {
            StorageError::TableFileCorrupt { path: path.clone(), reason: error.to_string() }
        }
        SstableError::Name { ref name } => {
            StorageError::TableFileCorrupt { path: name.into(), reason: error.to_string() }
        }
        SstableError::Value { .. } => {
            StorageError::TableFileCorrupt { path: "".into(), reason: error.to_string() }
        }
    }
}

/// Moves all components of a table file out of the way, its `TOC.txt` first.
///
/// # Errors
/// Those of renaming.
pub(crate) async fn quarantine(directory: &Path, descriptor: Descriptor) -> Result<(), StorageError> {
    let aside = directory.join(QUARANTINE);
    reactor::file::create_dir_all(&aside).await.map_err(StorageError::of("create", &aside))?;
    for component in Component::ALL.into_iter().rev() {
        let from = descriptor.path(directory, component);
        match reactor::file::rename(&from, descriptor.path(&aside, component)).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StorageError::io("rename", &from, error));
            }
            _ => {}
        }
    }
    for directory in [&aside, directory] {
        reactor::file::sync_dir(directory).await.map_err(StorageError::of("sync", directory))?;
    }
    Ok(())
}
