//! Shard 0's part before the other shards start: checks that no file is missing, cleans folders, and finds
//! out whose each table file is.

use reactor::{Cold, cold};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use model::schema::{Schema, SchemaChange};
use model::tablet::TabletMap;
use model::{Table, TableId, hex};
use sstable::Descriptor;

use crate::agreed::{AgreedSchema, OwnTablets, dropped_tables};
use crate::config::StorageConfig;
use crate::error::StorageError;
use crate::manifest::check::{self, Missing};
use crate::manifest::{FileState, Listed, Placement, State, Tenancies, Tenancy, TenancyKey};
use crate::paxos;
use crate::tablet::{self, AtStart, Damage, FileMark, Folder, Found, Unplaced, quarantine, to_storage_error};
use crate::takeover;

/// Results of shard 0, for all shards.
pub(super) struct Opened {
    pub(super) changes: Rc<Vec<SchemaChange>>,
    /// The epoch of the manifest's valid logs.
    pub(super) epoch: u64,
    /// The tablets of this node and the files of each table.
    pub(super) tables: BTreeMap<TableId, (OwnTablets, Folder)>,
}

/// Checks that nothing is missing and cleans folders, before any shard reads them.
#[inline(never)]
pub(super) fn open_schema<'a>(
    config: &'a StorageConfig,
    agreed: &'a AgreedSchema,
    shards: usize,
) -> Cold<'a, Result<Opened, StorageError>> {
    cold(async move {
        crate::directory::ensure(&config.data_dir).await?;
        let mut schema = Schema::empty();
        for change in &agreed.changes {
            schema.apply(change)?;
        }
        let mut missing = Missing::default();
        let listed = Listed::read(&config.manifest_dir, &mut missing).await?;
        let looked = check::look(config, &schema, agreed, &listed, &mut missing).await?;
        missing.settle(&config.accept_missing)?;
        looked.settle().await?;
        let mut placing = Placing {
            damage: Damage::new(config.disk_failure_policy),
            state: looked.state,
            placement: Placement::new(),
            gone: Vec::new(),
            aside: Vec::new(),
            listed: listed.state.files.keys().copied().collect(),
            tables: BTreeMap::new(),
        };
        for table in schema.tables().chain([&paxos::table()]) {
            let own = agreed.own_tablets(table, shards);
            placing
                .place(tablet::directory_of(&config.data_dir, table).as_path(), table, own, shards)
                .await?;
        }
        for (table, generation) in listed.state.files.keys() {
            if let Some((_, folder)) = placing.tables.get_mut(table) {
                folder.numbers.take(*generation);
            }
        }
        placing.state.tenancies = placing.tenancies_that_count(&schema, &listed.state, shards);
        let keeps_files = placing.gone.is_empty() && placing.aside.is_empty();
        let parts = placing.state.parts(&placing.placement, shards);
        let epoch = listed.go_on_with(&config.manifest_dir, &parts, keeps_files).await?;
        // Only now that no log lists them as being there.
        for (directory, descriptor) in &placing.gone {
            sstable::remove(directory, *descriptor).await.map_err(to_storage_error)?;
        }
        for (directory, descriptor) in &placing.aside {
            quarantine(directory, *descriptor).await?;
        }
        remove_leftovers(config, &schema, &agreed.changes).await?;
        Ok(Opened { changes: Rc::new(agreed.changes.clone()), epoch, tables: placing.tables })
    })
}

/// Shard 0's sorting of table files.
struct Placing {
    damage: Damage,
    /// The files that must be there.
    state: State,
    placement: Placement,
    /// Files of earlier tenancies.
    gone: Vec<(PathBuf, Descriptor)>,
    /// Files that are moved out of the way.
    aside: Vec<(PathBuf, Descriptor)>,
    /// Files that the manifest knew.
    listed: BTreeSet<(TableId, u64)>,
    tables: BTreeMap<TableId, (OwnTablets, Folder)>,
}

impl Placing {
    /// Sorts the files of a table by the tablets of this node.
    async fn place(
        &mut self,
        directory: &Path,
        table: &Rc<Table>,
        own: OwnTablets,
        shards: usize,
    ) -> Result<(), StorageError> {
        let Found { files, unplaced, numbers, misnumbered } = tablet::find(directory, table).await?;
        tablet::set_misnumbered_aside(directory, &misnumbered, &self.damage).await?;
        let mut folder = Folder { files: Vec::new(), unplaced: Vec::new(), numbers };
        for (descriptor, mark) in files {
            let key = (table.id(), descriptor.generation());
            match own.owner(mark.tablet, shards) {
                Some(owner) if owner.since == mark.since => {
                    self.placement.insert(key, usize::from(owner.shard));
                    folder.files.push((descriptor, mark));
                }
                Some(owner) if owner.since < mark.since => {
                    tell_foreign(
                        directory,
                        descriptor,
                        mark,
                        "is of a later tenancy of its tablet and is set aside",
                    );
                    self.set_aside(directory, table.id(), descriptor);
                }
                // Nobody else knows of it: an operator may have put it there, from a snapshot.
                _ if !self.listed.contains(&key) => {
                    let what = "is from before its tablet was truncated, or left this node, and is set aside";
                    tell_foreign(directory, descriptor, mark, what);
                    self.set_aside(directory, table.id(), descriptor);
                }
                _ => {
                    let what = "is of an earlier tenancy of its tablet, which has left this node since, and is removed";
                    tell_foreign(directory, descriptor, mark, what);
                    self.state.files.insert(key, FileState::Removing);
                    self.gone.push((directory.to_owned(), descriptor));
                }
            }
        }
        for (descriptor, error) in unplaced {
            match self.damage.at_start(&error) {
                AtStart::End => return Err(error),
                AtStart::SetAside => {
                    reactor::error!("a table file cannot be used and is set aside: its data is missing from reads";
                        error = &error);
                    self.set_aside(directory, table.id(), descriptor);
                    self.damage.count_set_aside();
                }
                AtStart::RefuseReads => {
                    reactor::error!("a table file cannot be used, and its tablet is unknown: reads of its table fail";
                        error = &error);
                    folder.unplaced.push(Unplaced::new(descriptor, error));
                }
            }
        }
        self.tables.insert(table.id(), (own, folder));
        Ok(())
    }

    /// The beginnings of tenancies that tablets of this node have now, in logs that there are.
    fn tenancies_that_count(&self, schema: &Schema, listed: &State, shards: usize) -> Tenancies {
        let is_now = |(key, tenancy): &(TenancyKey, Tenancy)| {
            let (log, table, log2, tablet) = key;
            let has_log = (*log as usize) < shards || listed.segments.iter().any(|(of, _)| of == log);
            // After a change of the number of tablets, the one with its first token stands for it.
            let first = TabletMap::new(*log2).range(*tablet).0;
            let own = self.tables.get(table).zip(schema.table_by_id(*table));
            let owner = own.and_then(|((own, _), table)| own.owner(table.tablets().tablet_of(first), shards));
            has_log && owner.is_some_and(|owner| owner.since == tenancy.since)
        };
        listed.tenancies.iter().filter(is_now).collect()
    }

    fn set_aside(&mut self, directory: &Path, table: TableId, descriptor: Descriptor) {
        self.state.files.remove(&(table, descriptor.generation()));
        self.aside.push((directory.to_owned(), descriptor));
    }
}

fn tell_foreign(directory: &Path, file: Descriptor, mark: FileMark, what: &str) {
    reactor::warn!("a table file {what}";
        file = file, directory = directory.display(), tablet = mark.tablet.0, since = mark.since);
}

/// Empties a dropped table's folder; removes the folder too if it has no snapshots.
async fn remove_all_but_snapshots(directory: &Path) -> Result<(), StorageError> {
    let entries = reactor::file::read_dir(directory).await.map_err(StorageError::of("list", directory))?;
    if !entries.iter().any(|entry| entry.is_dir && entry.name == crate::snapshot::DIRECTORY) {
        return reactor::file::remove_dir_all(directory).await.map_err(StorageError::of("delete", directory));
    }
    for entry in entries.into_iter().filter(|entry| entry.name != crate::snapshot::DIRECTORY) {
        let path = directory.join(&entry.name);
        let removed = if entry.is_dir {
            reactor::file::remove_dir_all(&path).await
        } else {
            reactor::file::remove_file(&path).await
        };
        removed.map_err(StorageError::of("delete", &path))?;
    }
    Ok(())
}

/// Removes folders of dropped tables, except their snapshots. Folders of unknown tables stay, with a line in
/// the log.
async fn remove_leftovers(
    config: &StorageConfig,
    schema: &Schema,
    changes: &[SchemaChange],
) -> Result<(), StorageError> {
    let dropped: Vec<String> = dropped_tables(changes).iter().map(|id| hex::text(&id.0)).collect();
    let known: Vec<String> = schema.tables().map(|table| hex::text(&table.id().0)).collect();
    let data = &config.data_dir;
    for keyspace in reactor::file::read_dir(data).await.map_err(StorageError::of("list", data))? {
        if !keyspace.is_dir {
            continue;
        }
        let directory = data.join(&keyspace.name);
        let tables =
            reactor::file::read_dir(&directory).await.map_err(StorageError::of("list", &directory))?;
        // A Cassandra node's own folders are not worth a line each at every start.
        if takeover::is_system(&keyspace.name) && schema.keyspace(&keyspace.name).is_none() {
            continue;
        }
        for table in tables.into_iter().filter(|table| table.is_dir) {
            let id = table.name.rsplit('-').next().unwrap_or_default().to_owned();
            let path = directory.join(&table.name);
            if dropped.contains(&id) {
                remove_all_but_snapshots(&path).await?;
            } else if !known.contains(&id) {
                reactor::warn!("a folder of a table that is not in the schema is left alone";
                    directory = path.display());
            }
        }
    }
    Ok(())
}
