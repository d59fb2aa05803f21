//! Facts of a read of one partition, for its trace: which memtables have it, what the row cache has of it,
//! and which table files are read or skipped, and why.
//!
//! Reads that are not traced pay one check where they go to files.

use model::Token;

use super::{PartitionRange, ReadCommand, Slices};
use crate::shard::Storage;
use crate::tablet::{TableFile, Tablet};

/// Files of which a trace tells each by name; of more it tells the number.
const FILES_MAX: usize = 32;

/// Notes where a read that goes to the files has to look. `slices` are left to be read.
#[cold]
pub(super) fn sources(tablet: &Tablet, token: Token, key: &[u8], slices: &Slices) {
    memtables(tablet, token, key);
    let files = tablet.files();
    for file in files.iter().take(FILES_MAX) {
        let (sstable, name) = (file.sstable(), name(file));
        let why = if !sstable.covers(token) {
            "skipped, the key is out of its range"
        } else if !sstable.may_contain(token, key) {
            "skipped, its filter says that it lacks the key"
        } else if !sstable.may_contain_slices(slices) {
            "no rows in the range that is asked for"
        } else {
            "may have the key"
        };
        sstable::note(|| format!("{name}: {why}"));
    }
    if files.len() > FILES_MAX {
        sstable::note(|| format!("{} more table files", files.len() - FILES_MAX));
    }
}

/// Notes that what is older than the rows read so far is not read.
#[cold]
pub(super) fn older(file: &TableFile) {
    sstable::note(|| format!("{}: skipped, all that it has is older than what was read", name(file)));
}

/// Notes that the row cache answered, or did not.
#[cold]
pub(super) fn cache(found: &'static str) {
    sstable::note(|| format!("Row cache: {found}"));
}

/// Notes how many sources were merged.
#[cold]
pub(super) fn merged(sources: usize) {
    sstable::note(|| format!("Merging {sources} sources"));
}

/// Notes which memtables have the partition.
#[cold]
fn memtables(tablet: &Tablet, token: Token, key: &[u8]) {
    let memtables = tablet.memtables();
    let having = memtables.iter().filter(|memtable| memtable.contents().find(token, key).is_some()).count();
    sstable::note(|| format!("Memtables: {having} of {} have the partition", memtables.len()));
}

fn name(file: &TableFile) -> String {
    file.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

impl Storage {
    /// Notes, for a trace, where a read was answered that did not wait. Call in the slice of the read.
    #[cold]
    pub fn note_memory(&self, command: &ReadCommand) {
        let PartitionRange::Key(key) = &command.range else { return };
        let Ok(store) = self.table_store(command.table.id()) else { return };
        let Ok(tablet) = self.tablet(&store, key.token) else { return };
        memtables(&tablet, key.token, &key.key);
        let files = tablet.files();
        let may_have = files.iter().filter(|file| file.sstable().may_contain(key.token, &key.key)).count();
        match (may_have, files.len()) {
            (0, 0) => {}
            (0, all) => sstable::note(|| format!("Table files: none of {all} has the key")),
            (some, _) => {
                cache("hit");
                sstable::note(|| format!("Table files: {some} may have the key, none was read"));
            }
        }
    }
}
