//! The names of a simulated disk, twice: as they are now, and as a crash would leave them.
//!
//! Fault model: a change of names is durable once its directory has been synced. At a crash each directory
//! keeps a random prefix of its unsynced changes; a change that concerns two directories survives only if
//! both keep it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

/// The object that a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    File(u64),
    Directory,
}

/// One change of names.
#[derive(Debug, Clone)]
enum Change {
    Add(PathBuf, Entry),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl Change {
    fn directories(&self) -> BTreeSet<PathBuf> {
        match self {
            Change::Add(path, _) | Change::Remove(path) => BTreeSet::from([parent(path)]),
            Change::Rename(from, to) => BTreeSet::from([parent(from), parent(to)]),
        }
    }
}

type Tree = BTreeMap<PathBuf, Entry>;

pub(super) struct Names {
    current: Tree,
    durable: Tree,
    unsynced: Vec<Change>,
}

/// The absolute form of a path, without `.` and `..`; relative ones begin at the root.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut result = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => result.push(name),
            Component::ParentDir => {
                result.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    result
}

fn parent(path: &Path) -> PathBuf {
    path.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

fn not_found() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

fn apply(tree: &mut Tree, change: &Change) {
    match change {
        Change::Add(path, entry) => {
            if tree.contains_key(&parent(path)) {
                tree.insert(path.clone(), *entry);
            }
        }
        Change::Remove(path) => {
            tree.remove(path);
            let below: Vec<PathBuf> = children(tree, path).map(|(path, _)| path.clone()).collect();
            for path in below {
                tree.remove(&path);
            }
        }
        Change::Rename(from, to) => {
            let Some(entry) = tree.remove(from) else { return };
            if !tree.contains_key(&parent(to)) {
                return;
            }
            let below: Vec<(PathBuf, Entry)> =
                children(tree, from).map(|(path, entry)| (path.clone(), *entry)).collect();
            tree.insert(to.clone(), entry);
            for (path, entry) in below {
                tree.remove(&path);
                if let Ok(rest) = path.strip_prefix(from) {
                    tree.insert(to.join(rest), entry);
                }
            }
        }
    }
}

/// Everything below `directory`, at any depth.
fn children<'tree>(
    tree: &'tree Tree,
    directory: &'tree Path,
) -> impl Iterator<Item = (&'tree PathBuf, &'tree Entry)> {
    // Paths compare by component, so what is below a directory follows it directly.
    tree.range::<Path, _>((std::ops::Bound::Excluded(directory), std::ops::Bound::Unbounded))
        .take_while(move |(path, _)| path.starts_with(directory))
}

impl Names {
    pub(super) fn new() -> Self {
        let root = Tree::from([(PathBuf::from("/"), Entry::Directory)]);
        Self { current: root.clone(), durable: root, unsynced: Vec::new() }
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.current, &change);
        self.unsynced.push(change);
    }

    pub(super) fn get(&self, path: &Path) -> Option<Entry> {
        self.current.get(path).copied()
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<u64> {
        match self.get(path) {
            Some(Entry::File(inode)) => Ok(inode),
            Some(Entry::Directory) => Err(error(libc::EISDIR)),
            None => Err(not_found()),
        }
    }

    fn directory(&self, path: &Path) -> io::Result<()> {
        match self.get(path) {
            Some(Entry::Directory) => Ok(()),
            Some(Entry::File(_)) => Err(error(libc::ENOTDIR)),
            None => Err(not_found()),
        }
    }

    pub(super) fn add_file(&mut self, path: &Path, inode: u64) -> io::Result<()> {
        self.directory(&parent(path))?;
        if self.current.contains_key(path) {
            return Err(error(libc::EEXIST));
        }
        self.change(Change::Add(path.to_owned(), Entry::File(inode)));
        Ok(())
    }

    pub(super) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let ancestors: Vec<&Path> = path.ancestors().collect();
        for directory in ancestors.into_iter().rev() {
            match self.get(directory) {
                Some(Entry::Directory) => {}
                Some(Entry::File(_)) => return Err(error(libc::ENOTDIR)),
                None => self.change(Change::Add(directory.to_owned(), Entry::Directory)),
            }
        }
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        self.change(Change::Remove(path.to_owned()));
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, path: &Path, with_content: bool) -> io::Result<()> {
        self.directory(path)?;
        if path == Path::new("/") {
            return Err(error(libc::EBUSY));
        }
        if !with_content && children(&self.current, path).next().is_some() {
            return Err(error(libc::ENOTEMPTY));
        }
        self.change(Change::Remove(path.to_owned()));
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let source = self.get(from).ok_or_else(not_found)?;
        self.directory(&parent(to))?;
        match (source, self.get(to)) {
            _ if from == to => return Ok(()),
            (Entry::Directory, _) if to.starts_with(from) => return Err(error(libc::EINVAL)),
            (Entry::File(_), Some(Entry::Directory)) => return Err(error(libc::EISDIR)),
            (Entry::Directory, Some(Entry::File(_))) => return Err(error(libc::ENOTDIR)),
            (Entry::Directory, Some(Entry::Directory)) if children(&self.current, to).next().is_some() => {
                return Err(error(libc::ENOTEMPTY));
            }
            _ => {}
        }
        self.change(Change::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    /// Names directly in `directory`.
    pub(super) fn list(&self, directory: &Path) -> io::Result<Vec<(String, Entry)>> {
        self.directory(directory)?;
        Ok(children(&self.current, directory)
            .filter(|(path, _)| path.parent() == Some(directory))
            .filter_map(|(path, entry)| Some((path.file_name()?.to_str()?.to_owned(), *entry)))
            .collect())
    }

    /// Makes the changes in `directory` durable.
    pub(super) fn sync(&mut self, directory: &Path) -> io::Result<()> {
        self.directory(directory)?;
        // What the directory's changes build on, in other directories, is committed with them: a journal
        // keeps order.
        let Some(last) = self.unsynced.iter().rposition(|change| change.directories().contains(directory))
        else {
            return Ok(());
        };
        let mut wanted = BTreeSet::from([directory.to_owned()]);
        let mut keep = vec![true; self.unsynced.len()];
        for at in (0..=last).rev() {
            let directories = self.unsynced[at].directories();
            if !directories.is_disjoint(&wanted) {
                wanted.extend(directories);
                keep[at] = false;
            }
        }
        for (at, change) in self.unsynced.iter().enumerate() {
            if !keep[at] {
                apply(&mut self.durable, change);
            }
        }
        let mut at = 0;
        self.unsynced.retain(|_| {
            at += 1;
            keep[at - 1]
        });
        Ok(())
    }

    /// Leaves what a crash leaves; `cut(n)` chooses how many of `n` unsynced changes of a directory are kept.
    pub(super) fn crash(&mut self, mut cut: impl FnMut(usize) -> usize) {
        let mut counts: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for change in &self.unsynced {
            for directory in change.directories() {
                *counts.entry(directory).or_default() += 1;
            }
        }
        let mut kept: BTreeMap<PathBuf, usize> =
            counts.into_iter().map(|(directory, count)| (directory, cut(count))).collect();
        for change in std::mem::take(&mut self.unsynced) {
            let directories = change.directories();
            let survives =
                directories.iter().all(|directory| kept.get(directory).is_some_and(|left| *left > 0));
            for directory in directories {
                if let Some(left) = kept.get_mut(&directory) {
                    // A change that is lost takes with it all later ones of its directories.
                    *left = if survives { *left - 1 } else { 0 };
                }
            }
            if survives {
                apply(&mut self.durable, &change);
            }
        }
        self.current = self.durable.clone();
    }

    /// Everything below a folder, at any depth, sorted.
    pub(super) fn below(&self, directory: &Path) -> Vec<(PathBuf, Entry)> {
        children(&self.current, directory).map(|(path, entry)| (path.clone(), *entry)).collect()
    }

    /// Whether the folder of a name is there.
    pub(super) fn has_parent(&self, path: &Path) -> bool {
        self.get(&parent(path)) == Some(Entry::Directory)
    }

    /// Removes a name and everything below it, durably: what was removed, parents first; `None` where there
    /// is no such name.
    ///
    /// # Panics
    /// If names have changed since the last crash: changes that are not durable might build on this one.
    pub(super) fn take(&mut self, path: &Path) -> Option<Vec<(PathBuf, Entry)>> {
        assert!(self.unsynced.is_empty(), "names change from outside only right after a crash");
        let mut taken = vec![(path.to_owned(), self.get(path)?)];
        taken.extend(self.below(path));
        apply(&mut self.current, &Change::Remove(path.to_owned()));
        self.durable = self.current.clone();
        Some(taken)
    }

    /// Adds a name, durably.
    ///
    /// # Panics
    /// As `take`.
    pub(super) fn put(&mut self, path: &Path, entry: Entry) {
        assert!(self.unsynced.is_empty(), "names change from outside only right after a crash");
        apply(&mut self.current, &Change::Add(path.to_owned(), entry));
        self.durable = self.current.clone();
    }

    /// Whether any name, now or after a crash, refers to the file.
    pub(super) fn refers_to(&self, inode: u64) -> bool {
        self.inodes().any(|named| named == inode)
    }

    /// The files that any name refers to, now or after a crash; some of them more than once.
    pub(super) fn inodes(&self) -> impl Iterator<Item = u64> {
        let added = |change: &Change| match change {
            Change::Add(_, entry) => Some(*entry),
            Change::Remove(_) | Change::Rename(..) => None,
        };
        let entries = self.current.values().chain(self.durable.values()).copied();
        entries.chain(self.unsynced.iter().filter_map(added)).filter_map(|entry| match entry {
            Entry::File(inode) => Some(inode),
            Entry::Directory => None,
        })
    }
}
