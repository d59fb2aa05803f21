//! Snapshots: hard links to a table's files in `<table>/snapshots/<tag>/`, with Cassandra's layout.
//!
//! `take` links the files of all shards and writes `manifest.json` (`manifest`) and `schema.cql`. `list`
//! finds, measures and clears snapshots, and `expire` removes those past their time to live. A snapshot
//! without its manifest was cut off by a crash; it is listed and cleared like any other. Invariant: a
//! snapshot is reported as taken only when its links, its manifest and their names are durable. Dropped
//! tables keep their snapshots: their folder stays as long as there is one.

mod expire;
mod list;
mod manifest;
mod take;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use model::{Schema, Table, TableId};

pub(crate) use expire::Snapshots;
pub use list::{SnapshotInfo, SnapshotsOf};

/// Folder of snapshots below a table's.
pub(crate) const DIRECTORY: &str = "snapshots";
const MANIFEST: &str = "manifest.json";
const SCHEMA: &str = "schema.cql";
/// Longest name of a snapshot in bytes: the limit for file names.
const TAG_BYTES_MAX: usize = 255;

/// Writes a table's definition as CQL. A crate above this one supplies it, because this crate does not know
/// the language.
pub type Describer = Rc<dyn Fn(&Schema, &Table) -> Option<String>>;

/// Which tables to snapshot, and how.
#[derive(Debug, Clone)]
pub struct SnapshotRequest {
    /// The snapshot's name.
    pub tag: String,
    /// Its tables.
    pub tables: Vec<TableId>,
    /// Whether memtables are not flushed first, so that the snapshot lacks their rows.
    pub skip_flush: bool,
    /// The time to live, after which the snapshot is removed automatically.
    pub ttl: Option<Duration>,
}

/// Whether a name can be a snapshot's: one that is a name of a folder and nothing else.
pub fn is_tag(tag: &str) -> bool {
    !tag.is_empty()
        && tag.len() <= TAG_BYTES_MAX
        && tag != "."
        && tag != ".."
        && !tag.chars().any(|letter| letter == '/' || letter.is_control())
}

fn directory(table_directory: &Path, tag: &str) -> PathBuf {
    table_directory.join(DIRECTORY).join(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_the_name_of_one_folder() {
        for tag in ["1763712000000", "before the upgrade", "truncated-1-t", "ü"] {
            assert!(is_tag(tag), "{tag}");
        }
        let long = "x".repeat(TAG_BYTES_MAX + 1);
        for tag in ["", ".", "..", "a/b", "../x", "a\0b", "a\nb", &long] {
            assert!(!is_tag(tag), "{tag:?}");
        }
    }
}
