//! A world's disks as somebody outside the nodes sees and changes them.

use std::path::{Path, PathBuf};

use super::{NodeId, TakenAway, World};

impl World {
    /// A file's bytes as the node sees them.
    pub fn read_file(&self, id: NodeId, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.core.disks.borrow()[id.0].content(path.as_ref())
    }

    /// Replaces a file's bytes, durably, behind the node's back. False when there is no such file.
    pub fn damage_file(&mut self, id: NodeId, path: impl AsRef<Path>, content: Vec<u8>) -> bool {
        self.core.disks.borrow_mut()[id.0].set_content(path.as_ref(), &content)
    }

    /// All files of a node's disk, sorted.
    pub fn files(&self, id: NodeId) -> Vec<PathBuf> {
        let names = self.core.disks.borrow()[id.0].names();
        names.into_iter().filter(|(_, is_dir)| !is_dir).map(|(path, _)| path).collect()
    }

    /// All files and folders of a node's disk, sorted.
    pub fn names(&self, id: NodeId) -> Vec<PathBuf> {
        self.core.disks.borrow()[id.0].names().into_iter().map(|(path, _)| path).collect()
    }

    /// Removes a file, or a folder with everything in it, durably and behind the node's back. `None` where
    /// there is no such name.
    ///
    /// # Panics
    /// If the node has run since its last crash.
    pub fn take_away(&mut self, id: NodeId, path: impl AsRef<Path>) -> Option<TakenAway> {
        let path = path.as_ref();
        self.core.note("take away", [id.0 as u64, 0, 0]);
        self.core.note_content(path.as_os_str().as_encoded_bytes());
        self.core.disks.borrow_mut()[id.0].take_away(path)
    }

    /// Puts back exactly what [`World::take_away`] removed, in the place of whatever has that name now.
    /// False, with nothing changed, where the folder that it was in is gone.
    ///
    /// # Panics
    /// If the node has run since its last crash.
    pub fn put_back(&mut self, id: NodeId, taken: &TakenAway) -> bool {
        self.core.note("put back", [id.0 as u64, 0, 0]);
        self.core.disks.borrow_mut()[id.0].put_back(taken)
    }
}
