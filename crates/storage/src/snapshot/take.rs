//! Takes a snapshot: flushes on all shards, then every shard links its files, then the manifest lists them.

use std::io::ErrorKind;
use std::path::Path;
use std::rc::Rc;

use model::{Table, TableId};
use reactor::{Cold, Group, cold, mesh};
use sstable::{Component, Descriptor};

use super::manifest::Manifest;
use super::{MANIFEST, SCHEMA, SnapshotRequest, directory, is_tag};
use crate::error::StorageError;
use crate::shard::Storage;
use crate::tablet::Tablet;

/// How often compactions may replace a tablet's files while they are linked; a compaction takes longer than
/// linking.
const ATTEMPTS_MAX: usize = 64;

impl Storage {
    /// Takes a snapshot of tables on all shards. May be called on any shard.
    ///
    /// Unless `skip_flush`, it contains every write that was acknowledged before the call. Shards list their
    /// files one right after the other, with no flush in between.
    ///
    /// # Errors
    /// [`StorageError::Snapshot`] for an invalid name, or one that a table already has a snapshot of; file
    /// errors, after which the links are removed again.
    #[inline(never)]
    pub fn take_snapshot<'a>(&'a self, request: &'a SnapshotRequest) -> Cold<'a, Result<(), StorageError>> {
        cold(async move {
            let refused = |reason: String| StorageError::Snapshot { tag: request.tag.clone(), reason };
            if !is_tag(&request.tag) {
                return Err(refused("a snapshot's name is that of one folder".to_owned()));
            }
            let mut tables = Vec::new();
            for id in &request.tables {
                let store = self.table_store(*id)?;
                let path = directory(&store.directory, &request.tag);
                if reactor::file::exists(&path).await.map_err(StorageError::of("look for", &path))? {
                    let table = store.table();
                    return Err(refused(format!(
                        "Snapshot {} already exists in {}.{}.",
                        request.tag,
                        table.keyspace(),
                        table.name()
                    )));
                }
                tables.push((store.table(), path));
            }
            if !request.skip_flush {
                self.flush_everywhere(&request.tables).await?;
            }
            let mut taken = Ok(());
            for (table, path) in &tables {
                taken = self.snapshot_table(table, path, request).await;
                if taken.is_err() {
                    break;
                }
            }
            if let Err(error) = taken {
                for (_, path) in &tables {
                    // Links that cannot be removed form a listed snapshot, which can be cleared.
                    let _ = reactor::file::remove_dir_all(path).await;
                }
                return Err(error);
            }
            if request.ttl.is_some() {
                self.0.snapshots.expiring.notify_all();
            }
            let first = tables.first().map(|(table, _)| format!("{}.{}", table.keyspace(), table.name()));
            reactor::info!("a snapshot was taken";
                tag = request.tag, tables = tables.len(), first = first.unwrap_or_default());
            Ok(())
        })
    }

    async fn flush_everywhere(&self, tables: &[TableId]) -> Result<(), StorageError> {
        let flushed = self.on_every_shard(Group::MEMTABLE, tables.to_vec(), async |storage, tables| {
            storage.flush_tables(&tables).await
        });
        flushed.await.map(drop)
    }

    async fn snapshot_table(
        &self,
        table: &Table,
        path: &Path,
        request: &SnapshotRequest,
    ) -> Result<(), StorageError> {
        crate::directory::ensure(path).await?;
        // A tablet that moved meanwhile might be missed.
        let _hold = self.hold_moves(table.id()).await?;
        let work = (table.id(), request.tag.clone());
        let linked = self
            .on_every_shard(Group::ADMIN, work, async |storage, (table, tag)| {
                storage.link_files(table, &tag).await
            })
            .await?;
        let now = reactor::wall_clock_us() / 1_000_000;
        let ttl = request.ttl.map(|ttl| i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX));
        let manifest = Manifest {
            files: linked.into_iter().flatten().collect(),
            created_at: Some(now),
            expires_at: ttl.map(|ttl| now.saturating_add(ttl)),
        };
        let describer = self.0.snapshots.describer.borrow().clone();
        let text = describer.and_then(|describe| describe(&self.schema(), table));
        if let Some(text) = text {
            let schema = path.join(SCHEMA);
            reactor::file::write_all_atomic(&schema, text.as_bytes())
                .await
                .map_err(StorageError::of("write", &schema))?;
        }
        let path = path.join(MANIFEST);
        reactor::file::write_all_atomic(&path, manifest.encode().as_bytes())
            .await
            .map_err(StorageError::of("write", &path))
    }

    /// Links this shard's files of a table into a snapshot's folder, including damaged ones. Returns the
    /// names of their data files.
    async fn link_files(&self, table: TableId, tag: &str) -> Result<Vec<String>, StorageError> {
        let store = self.table_store(table)?;
        let to = directory(&store.directory, tag);
        // All lists are taken at one moment, before the first wait.
        let with_files = |tablet: Rc<Tablet>| (Rc::clone(&tablet), tablet.files());
        let lists: Vec<_> = store.tablets().into_iter().map(with_files).collect();
        let mut names = Vec::new();
        for (tablet, files) in lists {
            let mut files = files;
            let mut attempt = 0;
            loop {
                let mut descriptors: Vec<Descriptor> =
                    files.iter().map(|file| file.sstable().descriptor()).collect();
                // A file that cannot be opened may hold the only copy of its rows, so it belongs in the
                // snapshot as it is.
                let left_out = tablet.left_out();
                descriptors.extend(left_out.iter().map(|file| file.descriptor));
                match link_all(&tablet, &descriptors, &to).await? {
                    Linked::All => {
                        let data = |descriptor: &Descriptor| descriptor.file_name(Component::Data);
                        names.extend(descriptors.iter().map(data));
                        let broken = files.iter().filter(|f| f.is_broken()).map(|f| f.sstable().descriptor());
                        for damaged in broken.chain(left_out.iter().map(|file| file.descriptor)) {
                            reactor::warn!("a table file in a snapshot is damaged"; snapshot = tag,
                                file = damaged.path(&tablet.directory, Component::Data).display());
                        }
                        break;
                    }
                    Linked::Replaced => {
                        // A compaction has replaced the files by another one with the same data.
                        attempt += 1;
                        if attempt > ATTEMPTS_MAX {
                            let reason = "its files do not hold still".to_owned();
                            return Err(StorageError::Snapshot { tag: tag.to_owned(), reason });
                        }
                        files = tablet.files();
                    }
                }
            }
            reactor::maybe_yield().await;
        }
        reactor::file::sync_dir(&to).await.map_err(StorageError::of("sync", &to))?;
        Ok(names)
    }

    /// Runs `work` on every shard at once. Returns the results by shard, or the first error.
    pub(crate) async fn on_every_shard<A, R, F>(
        &self,
        group: Group,
        argument: A,
        work: F,
    ) -> Result<Vec<R>, StorageError>
    where
        A: Clone + Send + 'static,
        R: Send + 'static,
        F: AsyncFn(Storage, A) -> Result<R, StorageError> + Clone + Send + 'static,
    {
        let calls: Vec<_> = (0..self.0.shards)
            .map(|shard| {
                let (argument, work) = (argument.clone(), work.clone());
                mesh::call(shard, group, move || async move {
                    let Some(storage) = reactor::local::<Storage>() else {
                        return Err("its storage is not open".to_owned());
                    };
                    work((*storage).clone(), argument).await.map_err(|error| error.to_string())
                })
            })
            .collect();
        let mut results = Vec::new();
        let mut first = Ok(());
        for (shard, call) in calls.into_iter().enumerate() {
            let failed = |reason: String| StorageError::Shard { shard, reason };
            match call.await {
                Ok(Ok(result)) => results.push(result),
                Ok(Err(reason)) => first = first.and(Err(failed(reason))),
                Err(error) => first = first.and(Err(failed(error.to_string()))),
            }
        }
        first.map(|()| results)
    }
}

enum Linked {
    All,
    Replaced,
}

/// Links every component of the files; removes the links again if a file was removed meanwhile.
async fn link_all(tablet: &Tablet, descriptors: &[Descriptor], to: &Path) -> Result<Linked, StorageError> {
    for (at, descriptor) in descriptors.iter().enumerate() {
        // `TOC.txt` is removed first when a file is removed, so if it can be linked last, all components were
        // there.
        for component in Component::ALL {
            let (from, link) =
                (descriptor.path(&tablet.directory, component), descriptor.path(to, component));
            match reactor::file::hard_link(&from, &link).await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound && component != Component::Toc => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    for gone in &descriptors[..=at] {
                        unlink(*gone, to).await?;
                    }
                    return Ok(Linked::Replaced);
                }
                Err(error) => return Err(StorageError::io("link", &from, error)),
            }
        }
    }
    Ok(Linked::All)
}

async fn unlink(descriptor: Descriptor, from: &Path) -> Result<(), StorageError> {
    for component in Component::ALL {
        let path = descriptor.path(from, component);
        match reactor::file::remove_file(&path).await {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(StorageError::io("delete", &path, error));
            }
            _ => {}
        }
    }
    Ok(())
}
