//! A table's tablets on this shard, and finding their files at the start.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use model::hex;
use model::mutation::MutationView;
use model::tablet::{TabletId, TabletMap};
use model::{Table, Token};
use sstable::{Component, Descriptor, Sstable, SstableError};

use super::damage::AtStart;
use super::numbers::COUNTED_MAX;
use super::{Damage, LeftOut, Numbers, QUARANTINE, TableFile, Tablet, quarantine, to_storage_error};
use crate::cache::RowCache;
use crate::error::StorageError;
use crate::manifest::{Edit, Manifest};

/// Longest `TOC.txt` that is read.
const TOC_BYTES_MAX: usize = 1 << 16;

/// The tablets of one table that this shard has.
pub(crate) struct TableStore {
    table: RefCell<Rc<Table>>,
    /// Whether its keyspace has writes in the commit log.
    durable: Cell<bool>,
    tablets: BTreeMap<TabletId, Rc<Tablet>>,
    pub(crate) directory: PathBuf,
}

/// The folder of a table's files, named as by Cassandra.
pub(crate) fn directory_of(data: &Path, table: &Table) -> PathBuf {
    let id = hex::text(&table.id().0);
    data.join(table.keyspace()).join(format!("{}-{id}", table.name()))
}

impl TableStore {
    /// Opens the tablets that belong to this shard, with their table files.
    ///
    /// `disk_failure_policy` decides what happens if a file cannot be opened; a line in the log names the
    /// file.
    ///
    /// # Errors
    /// Those of reading the directory; those of a file if the policy makes the start fail.
    pub(crate) async fn open(
        table: &Rc<Table>,
        data: &Path,
        (shard, shards): (usize, usize),
        (cache, damage, manifest): (&Rc<RowCache>, &Rc<Damage>, &Manifest),
    ) -> Result<Self, StorageError> {
        let directory = directory_of(data, table);
        let map = table.tablets();
        let mut left_out: Vec<(TabletId, LeftOut)> = Vec::new();
        let mut found: BTreeMap<TabletId, (Vec<Rc<TableFile>>, Numbers)> = map
            .tablets()
            .filter(|tablet| map.shard_of(*tablet, shards) == shard)
            .map(|tablet| (tablet, (Vec::new(), Numbers::default())))
            .collect();
        let Listed { own, taken, misnumbered } = list(&directory).await?;
        if shard == 0 {
            set_misnumbered_aside(&directory, &misnumbered, damage).await?;
        }
        for (_, numbers) in found.values_mut() {
            taken.iter().for_each(|number| numbers.take(*number));
        }
        for descriptor in own {
            let tablet = TabletId((descriptor.generation() % u64::from(map.count())) as u32);
            let Some((files, numbers)) = found.get_mut(&tablet) else { continue };
            numbers.take(descriptor.generation());
            if descriptor.generation() > COUNTED_MAX {
                reactor::warn!("a table file has a number that no node comes to by counting: it is served, and its next compaction \
                    writes it under another"; file = descriptor, directory = directory.display());
            }
            let opened = open(&directory, descriptor, table, cache).await.map_err(to_storage_error);
            let opened = opened.and_then(|sstable| of_table(sstable, table));
            let sstable = match opened.and_then(|sstable| of_tablet(sstable, map.range(tablet))) {
                Ok(sstable) => sstable,
                Err(error) => {
                    match damage.at_start(&error) {
                        AtStart::End => return Err(error),
                        AtStart::SetAside => {
                            reactor::error!("a table file cannot be used and is set aside: its data is missing from reads";
                                error = &error);
                            manifest.note(&[Edit::Gone((table.id(), descriptor.generation()))]).await?;
                            quarantine(&directory, descriptor).await?;
                            damage.count_set_aside();
                        }
                        AtStart::RefuseReads => {
                            reactor::error!("a table file cannot be used: reads of its tablet fail";
                                error = &error);
                            left_out.push((tablet, LeftOut { descriptor, refuses: Some(error) }));
                        }
                    }
                    continue;
                }
            };
            files.push(Rc::new(TableFile::found(sstable, damage)));
        }
        let tablets: BTreeMap<_, _> = found
            .into_iter()
            .map(|(id, (files, numbers))| {
                (id, Rc::new(Tablet::new(id, Rc::clone(table), &directory, cache, files, numbers)))
            })
            .collect();
        for (tablet, file) in left_out {
            tablets[&tablet].leave_out(file);
        }
        Ok(Self { table: RefCell::new(Rc::clone(table)), durable: Cell::new(true), tablets, directory })
    }

    /// The table's cut into tablets.
    pub(crate) fn map(&self) -> TabletMap {
        self.table.borrow().tablets()
    }

    /// The present revision of the table.
    pub(crate) fn table(&self) -> Rc<Table> {
        Rc::clone(&self.table.borrow())
    }

    /// Whether a mutation fits the present revision of the table.
    #[inline]
    pub(crate) fn is_of(&self, mutation: &MutationView<'_>) -> bool {
        mutation.fits(&self.table.borrow())
    }

    /// Whether `table` is still the present revision, so that data made for it fits.
    #[inline]
    pub(crate) fn is_now(&self, table: &Table) -> bool {
        std::ptr::eq(&raw const **self.table.borrow(), table)
    }

    /// Whether writes have to be in the commit log (`durable_writes` of the keyspace).
    #[inline]
    pub(crate) fn is_durable(&self) -> bool {
        self.durable.get()
    }

    pub(crate) fn set_durable(&self, durable: bool) {
        self.durable.set(durable);
    }

    /// Takes a new revision of the table.
    pub(crate) fn set_table(&self, table: &Rc<Table>) {
        *self.table.borrow_mut() = Rc::clone(table);
        self.tablets.values().for_each(|tablet| tablet.set_table(table));
    }

    /// A tablet of this shard.
    pub(crate) fn tablet(&self, id: TabletId) -> Option<&Rc<Tablet>> {
        self.tablets.get(&id)
    }

    /// The first tablet of this shard at or behind `id`.
    pub(crate) fn next_tablet(&self, id: TabletId) -> Option<Rc<Tablet>> {
        self.tablets.range(id..).next().map(|(_, tablet)| Rc::clone(tablet))
    }

    /// All tablets of this shard, by token.
    pub(crate) fn tablets(&self) -> impl Iterator<Item = &Rc<Tablet>> {
        self.tablets.values()
    }
}

/// The message about a table file with an invalid number.
pub(crate) const MISNUMBERED: &str = "it has the name of a table file with a number that none has: numbers are below 2^64 and have no \
     zeros before them";

/// Sets aside files that look like table files but have invalid numbers: they may hold the only copy of some
/// rows.
async fn set_misnumbered_aside(
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
        // The file's number does not say which tablet it belongs to, so no single tablet's reads could be
        // made to fail.
        return Err(error);
    }
    reactor::error!("table files cannot be used and are set aside: their data is missing from reads"; error = &error);
    let aside = directory.join(QUARANTINE);
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

/// Opens a table file within this shard's memory.
///
/// # Errors
/// Those of the file.
pub(crate) async fn open(
    directory: &Path,
    descriptor: Descriptor,
    table: &Rc<Table>,
    cache: &RowCache,
) -> Result<Sstable, SstableError> {
    Sstable::open_within(directory, descriptor, table, (cache.components(), cache.pages())).await
}

/// Checks that a file was written for this table, or does not name its table. A file of another table was put
/// there by hand: if both tables have the same columns, its rows would be answered as this table's.
fn of_table(sstable: Sstable, table: &Table) -> Result<Sstable, StorageError> {
    let other = sstable.extras().schema.filter(|mark| mark.table != table.id().0);
    let Some(mark) = other else { return Ok(sstable) };
    let id = hex::text(&mark.table);
    Err(StorageError::TableFileCorrupt {
        path: sstable.descriptor().path(sstable.dir(), Component::Data),
        reason: format!(
            "it was written for another table, whose id is {id}: move all its files out of the folder and start; where its rows \
             belong to {}.{}, take it in with refresh or import",
            table.keyspace(),
            table.name()
        ),
    })
}

/// Checks that a file has nothing outside its tablet. A file that has was put there by hand, from a node with
/// other tablets: its rows belong to tablets that do not read it.
fn of_tablet(sstable: Sstable, (first, last): (Token, Token)) -> Result<Sstable, StorageError> {
    if first <= sstable.first_key().0 && sstable.last_key().0 <= last {
        return Ok(sstable);
    }
    Err(StorageError::TableFileCorrupt {
        path: sstable.descriptor().path(sstable.dir(), Component::Data),
        reason: "it has partitions outside the tablet that its number names: it is of a node with other tablets; move it \
                 out of the folder, start, and take it in with refresh or import"
            .to_owned(),
    })
}

/// Contents of a table's folder.
#[derive(Debug, Default)]
struct Listed {
    /// Complete table files that this node wrote.
    own: Vec<Descriptor>,
    /// Numbers of files of this node's version that another program wrote.
    taken: Vec<u64>,
    /// Files with invalid numbers, by [`sstable::is_misnumbered`].
    misnumbered: Vec<String>,
}

/// Lists the complete table files in a table's folder, which may not exist yet.
///
/// Files of other versions were put there by other programs. So were files of this node's version that never
/// had the component that only this node writes. They are not cut for tablets, and are taken in only on
/// request (`import`, `takeover`).
async fn list(directory: &Path) -> Result<Listed, StorageError> {
    let names = match reactor::file::read_dir(directory).await {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Listed::default()),
        Err(error) => return Err(StorageError::io("list", directory, error)),
    };
    let marked: BTreeSet<Descriptor> = names
        .iter()
        .filter_map(|entry| Descriptor::parse(&entry.name).ok())
        .filter(|(_, component)| *component == Component::Ceto)
        .map(|(descriptor, _)| descriptor)
        .collect();
    let misnumbered = names.iter().filter(|entry| !entry.is_dir && sstable::is_misnumbered(&entry.name));
    let mut listed =
        Listed { misnumbered: misnumbered.map(|entry| entry.name.clone()).collect(), ..Listed::default() };
    let mut others = Vec::new();
    for descriptor in sstable::sort_names(names.iter().map(|entry| entry.name.as_str())).complete {
        let written = descriptor.could_be_written();
        if written && (marked.contains(&descriptor) || has_lost_its_mark(directory, descriptor).await?) {
            listed.own.push(descriptor);
        } else {
            others.push(descriptor);
            listed.taken.extend(written.then_some(descriptor.generation()));
        }
    }
    if let Some(first) = others.first() {
        reactor::info!("table files that this node did not write are left alone until they are imported";
            count = others.len(), first = first, directory = directory.display());
    }
    Ok(listed)
}

/// Whether a file that lacks the component that only this node writes was written with it.
async fn has_lost_its_mark(directory: &Path, descriptor: Descriptor) -> Result<bool, StorageError> {
    let path = descriptor.path(directory, Component::Toc);
    let toc = reactor::file::read_all(&path, TOC_BYTES_MAX).await.map_err(StorageError::of("read", &path))?;
    Ok(String::from_utf8_lossy(&toc).lines().any(|line| line.trim() == Component::Ceto.name()))
}
