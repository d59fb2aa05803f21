//! Finds the table files in a table's folder, and the tablet of each.
//!
//! A file belongs to the tablet that its own mark names (`Ceto.db`). One without a mark, or with a mark from
//! when the table had another number of tablets, belongs to the tablet that has all of its keys; one that no
//! tablet has alone was put there by hand, from a node with other tablets. Files of other versions were put
//! there by other programs. So were files of this node's version that never had the component that only this
//! node writes. They are not cut for tablets, and are taken in only on request (`import`, `takeover`).
//!
//! Shard 0 looks once for all shards, before any opens a file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use model::Table;
use model::tablet::TabletId;
use sstable::{Component, Descriptor, Sstable};

use super::damage::AtStart;
use super::{Damage, LeftOut, Numbers, QUARANTINE, to_storage_error};
use crate::agreed::OwnTablets;
use crate::error::StorageError;

/// Longest `TOC.txt` that is read.
const TOC_BYTES_MAX: usize = 1 << 16;
/// Files looked into side by side.
const FILES_AT_ONCE: usize = 16;

/// The message about a table file with an invalid number.
pub(crate) const MISNUMBERED: &str = "it has the name of a table file with a number that none has: numbers are below 2^64 and have no \
     zeros before them";

/// The tablet of a table file, and the tenancy that it was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileMark {
    pub(crate) tablet: TabletId,
    pub(crate) since: u64,
}

/// A table file that may have rows of any tablet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unplaced {
    pub(crate) descriptor: Descriptor,
    pub(crate) reason: String,
}

impl Unplaced {
    pub(crate) fn new(descriptor: Descriptor, error: StorageError) -> Self {
        let reason = match error {
            StorageError::TableFileCorrupt { reason, .. } => reason,
            other => other.to_string(),
        };
        Self { descriptor, reason }
    }

    /// The file as each tablet of its table leaves it out.
    pub(crate) fn left_out(&self, directory: &Path) -> LeftOut {
        let path = self.descriptor.path(directory, Component::Data);
        let refuses = StorageError::TableFileCorrupt { path, reason: self.reason.clone() };
        LeftOut { descriptor: self.descriptor, refuses: Some(refuses), is_shared: true }
    }
}

/// The files of a folder that shards open.
#[derive(Debug, Clone, Default)]
pub(crate) struct Folder {
    pub(crate) files: Vec<(Descriptor, FileMark)>,
    /// Files whose tablet is unknown: reads of every tablet fail.
    pub(crate) unplaced: Vec<Unplaced>,
    /// Numbers that are not free.
    pub(crate) numbers: Numbers,
}

impl Folder {
    /// The part that a shard needs to open its tablets.
    pub(crate) fn of_shard(&self, own: &OwnTablets, shard: usize, shards: usize) -> Self {
        let is_here = |mark: &FileMark| {
            own.owner(mark.tablet, shards).is_some_and(|own| usize::from(own.shard) == shard)
        };
        Self {
            files: self.files.iter().filter(|(_, mark)| is_here(mark)).copied().collect(),
            unplaced: self.unplaced.clone(),
            numbers: self.numbers.clone(),
        }
    }
}

/// Contents of a table's folder.
#[derive(Default)]
pub(crate) struct Found {
    /// Complete table files that this node wrote, with their tablets.
    pub(crate) files: Vec<(Descriptor, FileMark)>,
    /// Complete table files that this node wrote, for which no tablet can be told.
    pub(crate) unplaced: Vec<(Descriptor, StorageError)>,
    /// Numbers of all files.
    pub(crate) numbers: Numbers,
    /// Files with invalid numbers, by [`sstable::is_misnumbered`].
    pub(crate) misnumbered: Vec<String>,
}

/// Looks for the complete table files in a table's folder, which may not exist yet.
///
/// # Errors
/// Those of reading the folder.
pub(crate) async fn find(directory: &Path, table: &Rc<Table>) -> Result<Found, StorageError> {
    let names = match reactor::file::read_dir(directory).await {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::default()),
        Err(error) => return Err(StorageError::io("list", directory, error)),
    };
    let marked: BTreeSet<Descriptor> = names
        .iter()
        .filter_map(|entry| Descriptor::parse(&entry.name).ok())
        .filter(|(_, component)| *component == Component::Ceto)
        .map(|(descriptor, _)| descriptor)
        .collect();
    let misnumbered = names.iter().filter(|entry| !entry.is_dir && sstable::is_misnumbered(&entry.name));
    let mut found =
        Found { misnumbered: misnumbered.map(|entry| entry.name.clone()).collect(), ..Found::default() };
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for descriptor in sstable::sort_names(names.iter().map(|entry| entry.name.as_str())).complete {
        let written = descriptor.could_be_written();
        if written {
            found.numbers.take(descriptor.generation());
        }
        if written && (marked.contains(&descriptor) || has_lost_its_mark(directory, descriptor).await?) {
            own.push(descriptor);
        } else {
            others.push(descriptor);
        }
    }
    if let Some(first) = others.first() {
        reactor::info!("table files that this node did not write are left alone until they are imported";
            count = others.len(), first = first, directory = directory.display());
    }
    for some in own.chunks(FILES_AT_ONCE) {
        let looking = some.iter().map(|descriptor| {
            let (directory, table, descriptor) = (directory.to_owned(), Rc::clone(table), *descriptor);
            reactor::spawn(
                reactor::current_group(),
                async move { mark_of(&directory, descriptor, &table).await },
            )
        });
        let looking: Vec<_> = looking.collect();
        for (descriptor, looked) in some.iter().zip(looking) {
            let looked =
                looked.await.unwrap_or_else(|panicked| panic!("looking into a file broke: {panicked}"));
            match looked {
                Ok(mark) => found.files.push((*descriptor, mark)),
                Err(error) => found.unplaced.push((*descriptor, error)),
            }
        }
    }
    Ok(found)
}

/// The tablet of a file.
///
/// # Errors
/// Those of reading the file; [`StorageError::TableFileCorrupt`] if it has keys of several tablets.
async fn mark_of(
    directory: &Path,
    descriptor: Descriptor,
    table: &Rc<Table>,
) -> Result<FileMark, StorageError> {
    let extras = sstable::read_extras(directory, descriptor).await.map_err(to_storage_error)?;
    let (map, since) = (table.tablets(), extras.tablet.map_or(0, |mark| mark.since));
    if let Some(mark) =
        extras.tablet.filter(|mark| mark.tablets_log2 == map.log2() && mark.tablet < map.count())
    {
        return Ok(FileMark { tablet: TabletId(mark.tablet), since });
    }
    let sstable = Sstable::open(directory, descriptor, table).await.map_err(to_storage_error)?;
    let (first, last) = (map.tablet_of(sstable.first_key().0), map.tablet_of(sstable.last_key().0));
    if first == last {
        return Ok(FileMark { tablet: first, since });
    }
    Err(StorageError::TableFileCorrupt {
        path: descriptor.path(directory, Component::Data),
        reason: "it has partitions outside the tablet of its first one: it is of a node with other tablets; move it out of the \
                 folder, start, and take it in with refresh or import"
            .to_owned(),
    })
}

/// Whether a file that lacks the component that only this node writes was written with it.
async fn has_lost_its_mark(directory: &Path, descriptor: Descriptor) -> Result<bool, StorageError> {
    let path = descriptor.path(directory, Component::Toc);
    let toc = reactor::file::read_all(&path, TOC_BYTES_MAX).await.map_err(StorageError::of("read", &path))?;
    Ok(String::from_utf8_lossy(&toc).lines().any(|line| line.trim() == Component::Ceto.name()))
}

/// Sets aside files that look like table files but have invalid numbers: they may hold the only copy of some
/// rows.
///
/// # Errors
/// An error that names the first, if the policy does not go on without them; those of moving them.
pub(crate) async fn set_misnumbered_aside(
    directory: &Path,
    names: &[String],
    damage: &Damage,
) -> Result<(), StorageError> {
    let Some(first) = names.first() else { return Ok(()) };
    let reason = format!(
        "{MISNUMBERED}; move all files of that number out of the folder, start, give them another number, and \
        take them in with import"
    );
    let error = StorageError::TableFileCorrupt { path: directory.join(first), reason };
    if damage.at_start(&error) != AtStart::SetAside {
        // The file does not count as one, so no tablet's reads could be made to fail.
        return Err(error);
    }
    reactor::error!("table files cannot be used and are set aside: their data is missing from reads"; error = &error);
    let aside: PathBuf = directory.join(QUARANTINE);
    reactor::file::create_dir_all(&aside).await.map_err(StorageError::of("create", &aside))?;
    for name in names {
        let from = directory.join(name);
        let moved = reactor::file::rename(&from, aside.join(name)).await;
        moved.map_err(StorageError::of("rename", &from))?;
    }
    for directory in [&aside, directory] {
        reactor::file::sync_dir(directory).await.map_err(StorageError::of("sync", directory))?;
    }
    damage.count_set_aside();
    Ok(())
}
