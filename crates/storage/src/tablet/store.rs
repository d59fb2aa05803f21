//! A table's tablets on this shard, and the one place that says whose each tablet is.
//!
//! A tablet is *open* here (in `tablets`), *expected* (this shard's by what was told last, and on its way),
//! or another shard's. Requests for an expected one wait for it (`Storage::tablet_soon`): it is never read as
//! empty. One that is to leave stays open until it is handed over.

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use model::Table;
use model::hex;
use model::mutation::MutationView;
use model::tablet::{TabletId, TabletMap};
use reactor::Event;
use reactor::{Cold, cold};
use sstable::Descriptor;

use super::opening::OpenFiles;
use super::{Folder, Keepers, NumberSource, Tablet};
use crate::agreed::{OwnTablet, OwnTablets};
use crate::error::StorageError;

/// The tablets of one table that this shard has.
pub(crate) struct TableStore {
    table: RefCell<Rc<Table>>,
    /// Whether its keyspace has writes in the commit log.
    durable: Cell<bool>,
    /// Those that are open here.
    tablets: RefCell<BTreeMap<TabletId, Rc<Tablet>>>,
    /// Those of this node, as told last.
    own: RefCell<OwnTablets>,
    /// How often that has changed.
    own_changes: Cell<u64>,
    /// This shard, and how many there are.
    place: (usize, usize),
    pub(crate) numbers: NumberSource,
    /// Notified when a tablet was opened or has left, and when other tablets became this node's.
    pub(crate) changed: Event,
    pub(crate) directory: PathBuf,
}

/// The folder of a table's files, named as by Cassandra.
pub(crate) fn directory_of(data: &Path, table: &Table) -> PathBuf {
    let id = hex::text(&table.id().0);
    data.join(table.keyspace()).join(format!("{}-{id}", table.name()))
}

impl TableStore {
    /// Opens the tablets that belong to this shard, with those table files of `folder` that are theirs.
    ///
    /// # Errors
    /// Those of a file if the policy makes the start fail.
    #[inline(never)]
    pub(crate) fn open<'a>(
        table: &'a Rc<Table>,
        data: &'a Path,
        place: (usize, usize),
        keepers: Keepers<'a>,
        (own, folder): (OwnTablets, &'a Folder),
    ) -> Cold<'a, Result<Self, StorageError>> {
        cold(async move {
            let store = Self {
                table: RefCell::new(Rc::clone(table)),
                durable: Cell::new(true),
                tablets: RefCell::default(),
                own: RefCell::new(own),
                own_changes: Cell::new(0),
                place,
                numbers: NumberSource::new(folder.numbers.clone(), place),
                changed: Event::new(),
                directory: directory_of(data, table),
            };
            let mut of_tablets: BTreeMap<TabletId, (u64, Vec<Descriptor>)> = {
                let own = store.own.borrow();
                let here = own.iter().filter_map(|(id, _)| Some((id, own.owner(id, place.1)?)));
                here.filter(|(_, own)| usize::from(own.shard) == place.0)
                    .map(|(id, own)| (id, (own.since, Vec::new())))
                    .collect()
            };
            for (descriptor, mark) in &folder.files {
                let Some((since, files)) = of_tablets.get_mut(&mark.tablet) else { continue };
                assert_eq!(mark.since, *since, "{descriptor} of tablet {:?} is of its tenancy", mark.tablet);
                files.push(*descriptor);
            }
            for (id, (since, files)) in of_tablets {
                let tablet = store.opened((id, since), &files, keepers, true).await?;
                folder.unplaced.iter().for_each(|file| tablet.leave_out(file.left_out(&store.directory)));
                store.insert(tablet);
            }
            Ok(store)
        })
    }

    /// A tablet with its open files, which is not in the set yet.
    ///
    /// # Errors
    /// Those of a file if the policy makes the start fail.
    pub(crate) async fn opened(
        &self,
        (id, since): (TabletId, u64),
        files: &[Descriptor],
        keepers: Keepers<'_>,
        at_start: bool,
    ) -> Result<Rc<Tablet>, StorageError> {
        let table = self.table();
        let mut opened = OpenFiles::default();
        for descriptor in files {
            opened.add((&self.directory, *descriptor), &table, id, keepers, at_start).await?;
        }
        // The table may have been altered meanwhile.
        let now = self.table();
        opened.files.iter().for_each(|file| file.set_table(&now));
        let OpenFiles { files, left_out, lacks_rows } = opened;
        let numbers = self.numbers.clone();
        let tablet = Rc::new(Tablet::new((id, since), now, &self.directory, keepers.cache, files, numbers));
        left_out.into_iter().for_each(|file| tablet.leave_out(file));
        if lacks_rows {
            tablet.set_lacks_rows();
        }
        Ok(tablet)
    }

    /// Adds a tablet to the set: from now on it is read and written here.
    pub(crate) fn insert(&self, tablet: Rc<Tablet>) {
        let table = self.table();
        assert!(tablet.id.0 < table.tablets().count(), "tablet {:?} of {:?}", tablet.id, table.tablets());
        if !self.is_now(&tablet.table()) {
            tablet.set_table(&table);
        }
        tablet.set_in_transition(self.own.borrow().is_in_transition(tablet.id));
        let before = self.tablets.borrow_mut().insert(tablet.id, Rc::clone(&tablet));
        assert!(before.is_none(), "tablet {:?} is opened once", tablet.id);
        self.changed.notify_all();
    }

    /// Takes a tablet out of the set: it has left, or is about to.
    pub(crate) fn remove(&self, tablet: &Rc<Tablet>) {
        let removed = self.tablets.borrow_mut().remove(&tablet.id);
        let is_it = removed.is_some_and(|removed| Rc::ptr_eq(&removed, tablet));
        assert!(is_it, "tablet {:?} that leaves was open", tablet.id);
        self.changed.notify_all();
    }

    /// The table's cut into tablets.
    #[inline]
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
        self.tablets().iter().for_each(|tablet| tablet.set_table(table));
    }

    /// The tablets of this node, as told last.
    pub(crate) fn own(&self) -> OwnTablets {
        self.own.borrow().clone()
    }

    /// How often [`TableStore::set_own`] was called.
    pub(crate) fn own_changes(&self) -> u64 {
        self.own_changes.get()
    }

    /// Takes what this node was told of its tablets. Tablets come and go by it later (`moves`).
    pub(crate) fn set_own(&self, own: OwnTablets) {
        for tablet in self.tablets.borrow().values() {
            tablet.set_in_transition(own.is_in_transition(tablet.id));
        }
        *self.own.borrow_mut() = own;
        self.own_changes.set(self.own_changes.get() + 1);
        self.changed.notify_all();
    }

    /// The shard of this node that a tablet belongs to, and since when; `None` if this node does not have it.
    pub(crate) fn owner(&self, tablet: TabletId) -> Option<OwnTablet> {
        self.own.borrow().owner(tablet, self.place.1)
    }

    /// Whether a tablet belongs to this shard.
    pub(crate) fn is_own(&self, tablet: TabletId) -> bool {
        self.owner(tablet).is_some_and(|own| usize::from(own.shard) == self.place.0)
    }

    /// Whether a tablet belongs to this shard and is not open yet.
    pub(crate) fn is_expected(&self, tablet: TabletId) -> bool {
        self.is_own(tablet) && !self.tablets.borrow().contains_key(&tablet)
    }

    /// A tablet that is open here.
    #[inline]
    pub(crate) fn tablet(&self, id: TabletId) -> Option<Rc<Tablet>> {
        self.tablets.borrow().get(&id).cloned()
    }

    /// As [`TableStore::tablet`], borrowed; not to be held across an await.
    #[inline]
    pub(crate) fn borrow_tablet(&self, id: TabletId) -> Option<Ref<'_, Rc<Tablet>>> {
        Ref::filter_map(self.tablets.borrow(), |tablets| tablets.get(&id)).ok()
    }

    /// The tablets from `first` to `last` that are open or expected here, by token.
    pub(crate) fn ids_between(&self, first: TabletId, last: TabletId) -> Vec<TabletId> {
        if first > last {
            return Vec::new();
        }
        let own = self.own.borrow();
        let (shard, shards) = self.place;
        let is_here = |own: OwnTablet| usize::from(own.shard) % shards == shard;
        let mut ids: Vec<TabletId> =
            own.between(first, last).filter(|(_, own)| is_here(*own)).map(|(id, _)| id).collect();
        ids.extend(self.tablets.borrow().range(first..=last).map(|(id, _)| *id));
        ids.sort();
        ids.dedup();
        ids
    }

    /// All tablets that are open here, by token.
    pub(crate) fn tablets(&self) -> Vec<Rc<Tablet>> {
        self.tablets.borrow().values().cloned().collect()
    }
}
