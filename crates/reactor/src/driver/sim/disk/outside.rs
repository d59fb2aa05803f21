//! Changes to a simulated disk from outside, behind the node's back: bytes that are replaced, names that are
//! taken away and put back.

use std::path::{Path, PathBuf};

use super::super::content::Content;
use super::super::names::{Entry, normal};
use super::{Disk, Inode};

/// A name that was taken away, with everything that stood below it.
#[derive(Clone)]
pub struct TakenAway {
    path: PathBuf,
    /// Parents first; of a file also its inode's number and its bytes.
    entries: Vec<(PathBuf, Option<(u64, Content)>)>,
}

impl TakenAway {
    /// The name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name and all names that stood below it, parents first.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.entries.iter().map(|(path, _)| path.as_path())
    }
}

impl Disk {
    /// Bytes of a file as they are now.
    pub(in crate::driver::sim) fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let inode = self.names.file(&normal(path)).ok()?;
        self.inodes.get(&inode).map(|inode| inode.current.to_vec())
    }

    /// Replaces a file's bytes, durably: damage from outside.
    pub(in crate::driver::sim) fn set_content(&mut self, path: &Path, content: &[u8]) -> bool {
        let Ok(number) = self.names.file(&normal(path)) else { return false };
        let Some(inode) = self.inodes.get_mut(&number) else { return false };
        inode.unsynced.clear();
        inode.durable = Content::default();
        inode.durable.write(0, content);
        inode.current = inode.durable.clone();
        true
    }

    /// Paths of all files and folders below the root, sorted; true for folders.
    pub(in crate::driver::sim) fn names(&self) -> Vec<(PathBuf, bool)> {
        let below = self.names.below(Path::new("/"));
        below.into_iter().map(|(path, entry)| (path, entry == Entry::Directory)).collect()
    }

    /// Removes a name and everything below it, durably. `None` where there is no such name.
    ///
    /// # Panics
    /// If names have changed since the last crash.
    pub(in crate::driver::sim) fn take_away(&mut self, path: &Path) -> Option<TakenAway> {
        let path = normal(path);
        let taken = self.names.take(&path)?;
        let kept = |entry| match entry {
            Entry::Directory => None,
            Entry::File(number) => {
                let content = self.inodes.get(&number).map(|inode| inode.durable.clone());
                Some((number, content.unwrap_or_default()))
            }
        };
        let entries = taken.into_iter().map(|(path, entry)| (path, kept(entry))).collect();
        self.collect_garbage();
        Some(TakenAway { path, entries })
    }

    /// Puts a name back as it was, durably, in the place of whatever has that name now. False, with nothing
    /// changed, where the folder that it was in is gone.
    ///
    /// A file that still has another name is the same file as before under both.
    ///
    /// # Panics
    /// If names have changed since the last crash.
    pub(in crate::driver::sim) fn put_back(&mut self, taken: &TakenAway) -> bool {
        if !self.names.has_parent(&taken.path) {
            return false;
        }
        self.names.take(&taken.path);
        for (path, file) in &taken.entries {
            let entry = match file {
                None => Entry::Directory,
                Some((number, content)) => {
                    self.inodes.entry(*number).or_insert_with(|| Inode {
                        current: content.clone(),
                        durable: content.clone(),
                        ..Inode::default()
                    });
                    Entry::File(*number)
                }
            };
            self.names.put(path, entry);
        }
        self.collect_garbage();
        true
    }
}
