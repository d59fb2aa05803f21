//! Snapshots: hard links to a table's files, `<table>/snapshots/<tag>/`, laid out as Cassandra does.
//!
//! `take` links what all shards have and writes `manifest.json` (`manifest`) and `schema.cql`; `list` finds, measures and
//! clears them; `expire` removes those whose time is over. A snapshot without its manifest is one that a crash cut off;
//! it is listed, and cleared like any other. Invariant: a snapshot is told as taken only when its links, its manifest and
//! their names are durable. Dropped tables keep their snapshots: their folder stays as long as there is one.

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
/// Longest name of a snapshot: what a file name may have.
const TAG_BYTES_MAX: usize = 255;

/// Puts a table into CQL; the language is known above.
pub type Describer = Rc<dyn Fn(&Schema, &Table) -> Option<String>>;

/// Which tables to snapshot, and how.
#[derive(Debug, Clone)]
pub struct SnapshotRequest {
    /// The snapshot's name.
    pub tag: String,
    /// Its tables.
    pub tables: Vec<TableId>,
    /// Whether what is in memory only is left out.
    pub skip_flush: bool,
    /// After how long it goes by itself.
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
