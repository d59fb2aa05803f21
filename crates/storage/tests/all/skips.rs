//! Files that cannot hold anything a read may see cost no disk read: by token, filter, clustering and
//! timestamp.

use crate::table::{ID, changes, slice_values};
use model::clustering::{Slice, append_component};
use model::deletion::{Liveness, NO_LOCAL_TIME};
use model::mutation::MutationBuilder;
use model::partition_key::DecoratedKey;
use model::row::{CellKind, CellView};
use model::{ColumnId, DeletionTime, RowBuilder};
use reactor::Deadline;
use storage::{PartitionRange, StorageConfig};

/// The write to one row.
#[derive(Clone, Copy)]
enum Write {
    /// An inserted value.
    Insert(&'static str),
    /// A value without the row's own timestamp.
    Update(&'static str),
    /// The row's deletion.
    Row,
    /// The deletion of the whole partition.
    Partition,
}

fn mutation(clustering: &str, write: Write, timestamp: i64) -> Vec<u8> {
    let key = DecoratedKey::new(b"key".to_vec());
    let deletion = DeletionTime { timestamp, local_time: 1_600_000_000 };
    let whole = if matches!(write, Write::Partition) { deletion } else { DeletionTime::LIVE };
    let mut out = Vec::new();
    let builder = MutationBuilder::new(&mut out, ID, key.token, &key.key, whole, |_| ());
    let mut prefix = Vec::new();
    append_component(&mut prefix, Some(clustering.as_bytes()));
    let mut rows = builder.rows();
    if whole.is_live() {
        rows.row(&prefix, |out| {
            let inserted = Liveness { timestamp, ttl: 0, expires_at: NO_LOCAL_TIME };
            let liveness = if matches!(write, Write::Insert(_)) { inserted } else { Liveness::NONE };
            let row = if matches!(write, Write::Row) { deletion } else { DeletionTime::LIVE };
            let mut builder = RowBuilder::new(out, liveness, row);
            if let Write::Insert(value) | Write::Update(value) = write {
                let kind = CellKind::Live(value.as_bytes());
                builder.cell(CellView { column: ColumnId(2), timestamp, path: None, kind });
            }
            builder.finish();
        });
    }
    rows.finish();
    out
}

/// Writes `files`, each flushed, then `memory`, which stays in the memtable. Reads row `clustering` (all rows
/// for `*`), and returns the visible values and the number of requests.
fn read(files: &[&[(&str, Write, i64)]], memory: &[(&str, Write, i64)], clustering: &str) -> (String, u64) {
    read_as(files, memory, clustering, Through::Files)
}

/// As `read`, through an empty row cache.
fn read_evicted(files: &[&[(&str, Write, i64)]], clustering: &str) -> (String, u64) {
    read_as(files, &[], clustering, Through::Evicted)
}

/// The path of a read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Through {
    /// Past the row cache.
    Files,
    Cache,
    /// Through the cache, after it was emptied.
    Evicted,
}

fn read_as(
    files: &[&[(&str, Write, i64)]],
    memory: &[(&str, Write, i64)],
    clustering: &str,
    through: Through,
) -> (String, u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut config = StorageConfig::new(directory.path(), 8 << 20);
    config.auto_compaction = false;
    let files: Vec<Vec<_>> = files.iter().map(|file| file.to_vec()).collect();
    let owned = |writes: &[(&str, Write, i64)]| -> Vec<(String, Write, i64)> {
        writes.iter().map(|(clustering, write, at)| ((*clustering).to_owned(), *write, *at)).collect()
    };
    let files: Vec<_> = files.iter().map(|file| owned(file)).collect();
    let (memory, clustering) = (owned(memory), clustering.to_owned());
    reactor::run_one(reactor::Config::default(), async move {
        let storage = cluster::open_storage(config, 0, 1).await.unwrap();
        for change in changes() {
            cluster::change_schema(&change).await.unwrap();
        }
        for (writes, flushed) in files.iter().map(|file| (file, true)).chain([(&memory, false)]) {
            for (clustering, write, at) in writes {
                storage.apply(&mutation(clustering, *write, *at), Deadline::NEVER).await.unwrap();
            }
            if flushed {
                storage.flush(ID).await.unwrap();
            }
        }
        if through == Through::Evicted {
            storage.evict_cache();
        }
        let before = storage.disk_reads(ID).unwrap();
        let mut prefix = Vec::new();
        if clustering != "*" {
            append_component(&mut prefix, Some(clustering.as_bytes()));
        }
        let range = PartitionRange::Key(DecoratedKey::new(b"key".to_vec()));
        let found =
            slice_values(&storage, range, Slice::prefix(&prefix), through == Through::Files).await.unwrap();
        let after = storage.disk_reads(ID).unwrap();
        let value = found.into_iter().map(|(_, value)| String::from_utf8(value).unwrap()).collect();
        (value, after.requests - before.requests)
    })
}

/// Requests that one file takes: a stretch of the index and a chunk.
const ONE_FILE: u64 = 2;

#[test]
fn a_file_whose_rows_lie_elsewhere_is_not_read() {
    use Write::Insert;
    let files: [&[_]; 3] = [
        &[("a", Insert("1"), 10), ("c", Insert("2"), 10)],
        &[("m", Insert("3"), 10)],
        &[("x", Insert("4"), 10)],
    ];
    assert_eq!(read(&files, &[], "m"), ("3".to_owned(), ONE_FILE));
    assert_eq!(read(&files, &[], "d"), (String::new(), 0));
    // Within a file's range the file has to be read.
    assert_eq!(read(&files, &[], "b"), (String::new(), ONE_FILE));
}

#[test]
fn a_deletion_of_the_partition_reaches_rows_outside_its_files_range() {
    use Write::{Insert, Partition};
    let files: [&[_]; 2] = [&[("a", Insert("1"), 10)], &[("x", Insert("2"), 30), ("", Partition, 20)]];
    assert_eq!(read(&files, &[], "a"), (String::new(), ONE_FILE), "what it deletes need not be read");
    let files: [&[_]; 2] = [&[("a", Insert("1"), 10)], &[("x", Insert("2"), 30), ("", Partition, 5)]];
    assert_eq!(read(&files, &[], "a"), ("1".to_owned(), 2 * ONE_FILE));
}

#[test]
fn files_older_than_a_row_that_is_known_whole_are_not_read() {
    use Write::{Insert, Row, Update};
    let files: [&[_]; 3] = [&[("a", Insert("1"), 10)], &[("a", Insert("3"), 30)], &[("a", Insert("2"), 20)]];
    assert_eq!(read(&files, &[], "a"), ("3".to_owned(), ONE_FILE));
    assert_eq!(read(&files, &[("a", Insert("4"), 40)], "a"), ("4".to_owned(), 0), "memory knows enough");
    assert_eq!(read(&files, &[("a", Insert("2"), 25)], "a"), ("3".to_owned(), ONE_FILE));
    assert_eq!(read(&files, &[("a", Row, 40)], "a"), (String::new(), 0));
    // An update does not show whether the row was inserted.
    assert_eq!(read(&files, &[("a", Update("4"), 40)], "a"), ("4".to_owned(), ONE_FILE));
    // At equal timestamps the value decides.
    assert_eq!(read(&files, &[("a", Insert("2"), 30)], "a"), ("3".to_owned(), ONE_FILE));
    // A read of many rows must not skip any file, however new one row is.
    assert_eq!(read(&files, &[("0", Insert("4"), 40)], "*"), ("43".to_owned(), 3 * ONE_FILE));
    // A row that deletes at the same timestamp wins.
    assert_eq!(read(&files, &[("a", Row, 30)], "a"), (String::new(), 0));
}

/// A read that populates the row cache skips only files that have nothing but values, all older than the row.
#[test]
fn a_read_into_the_cache_leaves_older_values_out_and_older_deletions_not() {
    use Write::{Insert, Partition, Row};
    let files: [&[_]; 3] = [&[("a", Insert("1"), 10)], &[("a", Insert("3"), 30)], &[("a", Insert("2"), 20)]];
    assert_eq!(read_as(&files, &[], "a", Through::Cache).0, "3");
    assert_eq!(read_evicted(&files, "a"), ("3".to_owned(), ONE_FILE));
    let files: [&[_]; 2] = [&[("a", Row, 10), ("b", Insert("1"), 10)], &[("a", Insert("3"), 30)]];
    assert_eq!(read_evicted(&files, "a"), ("3".to_owned(), 2 * ONE_FILE));
    let files: [&[_]; 2] = [&[("b", Insert("1"), 10), ("", Partition, 5)], &[("a", Insert("3"), 30)]];
    assert_eq!(read_evicted(&files, "a"), ("3".to_owned(), 2 * ONE_FILE));
}
