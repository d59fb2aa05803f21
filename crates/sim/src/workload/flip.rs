//! One bit of one table file turns round at the end of a seed: what is read then is right, or fails.
//!
//! The node goes by `disk_failure_policy: ignore`: it never answers without the rows of a file that is there.
//! Bits of the commit log are not turned: what stands behind one is taken for a torn end.

use std::path::{Path, PathBuf};

use super::{SLOTS, Worker, below, config};

/// Reads after the flip.
const READS: usize = 40;
/// Largest file that is touched.
const FILE_BYTES_MAX: usize = 64 << 20;

impl Worker {
    /// Turns one bit round; says no where there is no table file.
    pub(super) async fn flip_a_bit(&self) -> Result<bool, String> {
        let mut files = Vec::new();
        for folder in self.table_folders().await {
            let names = reactor::file::read_dir(&folder).await.unwrap_or_default();
            files
                .extend(names.into_iter().filter(|entry| !entry.is_dir).map(|entry| folder.join(entry.name)));
        }
        if files.is_empty() {
            return Ok(false);
        }
        let path = files.swap_remove(below(files.len() as u64) as usize);
        let Ok(mut bytes) = reactor::file::read_all(&path, FILE_BYTES_MAX).await else { return Ok(false) };
        if bytes.is_empty() {
            return Ok(false);
        }
        let (at, bit) = (below(bytes.len() as u64) as usize, below(8));
        bytes[at] ^= 1 << bit;
        reactor::info!("a bit is turned round"; path = path.display(), at = at, bit = bit);
        // Before the write: a crash in the middle of it leaves either.
        self.shared.borrow_mut().flipped = true;
        let written = reactor::file::write_all_atomic(&path, &bytes).await;
        written.or_else(|error| self.unless_faulty(&format!("a file could not be written: {error}")))?;
        Ok(true)
    }

    /// Reads in every way.
    pub(super) async fn check_flipped(&self) -> Result<(), String> {
        self.shared.borrow_mut().doing = "reading what has a wrong bit";
        for number in 0..READS {
            let slot = below(SLOTS as u64) as usize;
            if number % 3 == 0 { self.scan(slot).await? } else { self.read(slot).await? }
        }
        Ok(())
    }

    /// Folders of all tables that ever were.
    async fn table_folders(&self) -> Vec<PathBuf> {
        let keyspace: PathBuf = config(true).data_dir.join("sim");
        let entries = reactor::file::read_dir(&keyspace).await.unwrap_or_default();
        let folder = |name: &str| Path::new(&keyspace).join(name);
        entries.iter().filter(|entry| entry.is_dir).map(|entry| folder(&entry.name)).collect()
    }
}
