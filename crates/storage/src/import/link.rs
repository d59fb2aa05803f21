//! Links a source into place as it is, if it belongs entirely to one tablet, names no other table, and is of
//! a format that this node writes.
//!
//! The source is read through first, so that damage is found while nothing has changed. Then its components
//! are linked under the tablet's next number, `TOC.txt` last and everything durable, as a writer would do it.

use std::rc::Rc;

use model::clustering::Slice;
use sstable::{Component, Descriptor, PartitionBound, TabletMark, Version};

use crate::error::StorageError;
use crate::flush::Making;
use crate::manifest::Edit;
use crate::shard::Storage;
use crate::tablet::{self, TableFile, Tablet, to_storage_error};

impl Storage {
    /// Links a source into the tablet; returns its number of partitions, `None` if it has to be rewritten
    /// instead.
    ///
    /// # Errors
    /// Those of reading the source.
    pub(super) async fn link_tablet(
        &self,
        tablet: &Rc<Tablet>,
        source: &Rc<TableFile>,
    ) -> Result<Option<(Rc<TableFile>, u64)>, StorageError> {
        let (first, last) = tablet.tokens();
        let is_ours = {
            let sstable = source.sstable();
            let within = first <= sstable.first_key().0 && sstable.last_key().0 <= last;
            within
                && !sstable.is_mended()
                && sstable.descriptor().version == Version::WRITTEN
                && sstable.extras().tablet.is_some_and(|mark| is_of(&mark, tablet))
                && sstable.extras().schema.is_none_or(|mark| mark.table == tablet.table().id().0)
                && sstable.dir() != tablet.directory
        };
        if !is_ours {
            return Ok(None);
        }
        let partitions = self.read_through(tablet, source).await?;
        if !tablet.has_directory() {
            crate::directory::ensure(&tablet.directory).await?;
            tablet.set_directory();
        }
        let descriptor = Descriptor::new(tablet.free_generation().await?);
        // It becomes an orphan only if this future is dropped: a compaction that ends meanwhile removes all
        // orphans.
        let making = Making::new(tablet, descriptor.generation());
        // A half-linked file that a crash leaves is removed at the next start.
        self.0.manifest.note(&[Edit::Removing((tablet.table().id(), descriptor.generation()))]).await?;
        if !link(source, tablet, descriptor).await? {
            making.end();
            self.discard_file(tablet, descriptor).await;
            return Ok(None);
        }
        let opened = tablet::open(&tablet.directory, descriptor, &tablet.table(), &self.0.cache).await;
        let file = match opened {
            Ok(sstable) => Rc::new(TableFile::found(sstable, &self.0.damage)),
            Err(error) => {
                making.end();
                self.discard_file(tablet, descriptor).await;
                return Err(to_storage_error(error));
            }
        };
        making.end();
        Ok(Some((file, partitions)))
    }

    /// Reads all of a source, so that every checksum is verified.
    async fn read_through(&self, tablet: &Tablet, source: &Rc<TableFile>) -> Result<u64, StorageError> {
        let failed = |error| source.failed(error);
        let (from, to) = (PartitionBound::START, PartitionBound::END);
        let mut scanner = source.open().scan(&from, &to, &[Slice::all()]).await.map_err(failed)?;
        let mut partitions = 0;
        while scanner.next_partition().await.map_err(failed)? {
            if tablet.is_dropped() || self.0.draining.get() {
                return Err(StorageError::Draining);
            }
            while scanner.next().await.map_err(failed)?.is_some() {
                reactor::maybe_yield().await;
            }
            partitions += 1;
            reactor::maybe_yield().await;
        }
        Ok(partitions)
    }
}

/// Whether the next start takes a file with this mark for one of the tablet's present tenancy.
fn is_of(mark: &TabletMark, tablet: &Tablet) -> bool {
    let is_cut_alike = mark.tablets_log2 == tablet.table().tablets().log2();
    mark.since == tablet.since && (!is_cut_alike || mark.tablet == tablet.id.0)
}

/// Links the components of a source; returns false if the file system does not support it.
async fn link(source: &TableFile, tablet: &Tablet, to: Descriptor) -> Result<bool, StorageError> {
    let (from, directory) = {
        let sstable = source.sstable();
        (sstable.descriptor(), sstable.dir().to_owned())
    };
    for component in Component::ALL {
        let path = from.path(&directory, component);
        if component == Component::Toc {
            // The other names first: the file counts once it has this one.
            sync(&tablet.directory).await?;
        }
        match durable(&path).await {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && component != Component::Toc => {
                continue;
            }
            Err(error) => return Err(StorageError::io("sync", path, error)),
        }
        if reactor::file::hard_link(&path, to.path(&tablet.directory, component)).await.is_err() {
            return Ok(false);
        }
    }
    sync(&tablet.directory).await?;
    Ok(true)
}

/// Makes a source durable, as the program that made it need not have done.
async fn durable(path: &std::path::Path) -> std::io::Result<()> {
    let file = reactor::file::File::open(path, reactor::file::OpenOptions::new().read(true)).await?;
    file.sync_all().await
}

async fn sync(directory: &std::path::Path) -> Result<(), StorageError> {
    reactor::file::sync_dir(directory).await.map_err(StorageError::of("sync", directory))
}
