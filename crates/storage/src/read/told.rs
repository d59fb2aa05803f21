//! Facts of a read of one partition, for its trace: which memtables have it, what the row cache has of it,
//! and which table files are read or skipped, and why.
//!
//! Reads that are not traced pay one check where they go to files.

use model::Token;
use model::clustering::Slice;
use sstable::{Component, Sstable};

/// Files of which a trace tells each by name; of more it tells the number.
const FILES_MAX: usize = 32;

/// The memtables and table files that may have rows of a partition.
pub(super) struct Places {
    /// The number of memtables, and how many of them have the partition.
    pub(super) memtables: (usize, usize),
    /// All table files.
    pub(super) files: Vec<Sstable>,
}

/// Notes where a read that goes to the files has to look.
pub(super) fn sources(places: impl FnOnce() -> Places, token: Token, key: &[u8], slices: &[Slice]) {
    if sstable::is_noted() {
        list(&places(), token, key, slices);
    }
}

#[cold]
fn list(places: &Places, token: Token, key: &[u8], slices: &[Slice]) {
    memtables(places);
    for file in places.files.iter().take(FILES_MAX) {
        let why = if !file.covers(token) {
            "skipped, the key is out of its range"
        } else if !file.may_contain(token, key) {
            "skipped, its filter says that it lacks the key"
        } else if !file.may_contain_slices(slices) {
            "no rows in the range that is asked for"
        } else {
            "may have the key"
        };
        sstable::note(|| format!("{}: {why}", name(file)));
    }
    if places.files.len() > FILES_MAX {
        sstable::note(|| format!("{} more table files", places.files.len() - FILES_MAX));
    }
}

/// Notes that what is older than the rows read so far is not read.
pub(super) fn older(file: &Sstable) {
    sstable::note(|| format!("{}: skipped, all that it has is older than what was read", name(file)));
}

/// Notes that the row cache answered, or did not.
pub(super) fn cache(found: &'static str) {
    sstable::note(|| format!("Row cache: {found}"));
}

/// Notes how many sources were merged.
pub(super) fn merged(sources: usize) {
    sstable::note(|| format!("Merging {sources} sources"));
}

/// Notes which memtables have the partition.
fn memtables(Places { memtables: (all, having), .. }: &Places) {
    sstable::note(|| format!("Memtables: {having} of {all} have the partition"));
}

fn name(file: &Sstable) -> String {
    let path = file.descriptor().path(file.dir(), Component::Data);
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Notes where a read was answered that did not wait, in the slice of that read.
pub(super) fn from_memory(places: &Places, token: Token, key: &[u8]) {
    memtables(places);
    let may_have = places.files.iter().filter(|file| file.may_contain(token, key)).count();
    match (may_have, places.files.len()) {
        (0, 0) => {}
        (0, all) => sstable::note(|| format!("Table files: none of {all} has the key")),
        (some, _) => {
            cache("hit");
            sstable::note(|| format!("Table files: {some} may have the key, none was read"));
        }
    }
}
