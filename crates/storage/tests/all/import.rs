//! Taking in table files: from other tablets and shards, damaged ones, incomplete ones.
#![allow(clippy::disallowed_methods)] // tests put files into place

use std::path::{Path, PathBuf};

use crate::failing::accepting;
use crate::table::{ID, changes, values, write};
use model::TableId;
use model::schema::SchemaChange;
use reactor::{Deadline, ShardInfo};
use storage::{FailurePolicy, ImportSource, PartitionRange, Storage, StorageConfig, StorageError};

const KEYS: usize = 60;

fn config(directory: &Path) -> StorageConfig {
    let mut config = StorageConfig::new(directory, 8 << 20);
    config.segment_bytes = 1 << 20;
    config.auto_compaction = false;
    config
}

/// The table's changes with 2^`log2` tablets.
fn with_tablets(log2: u8) -> [SchemaChange; 2] {
    let [keyspace, table] = changes();
    let SchemaChange::CreateTable(mut definition) = table else {
        panic!("the second change makes the table")
    };
    definition.tablets_log2 = log2;
    [keyspace, SchemaChange::CreateTable(definition)]
}

/// Runs `work` on shard 0 of `shards` once all are open.
fn node<F>(directory: &Path, shards: usize, log2: u8, work: F)
where
    F: AsyncFnOnce(Storage, PathBuf) + Clone + Send + 'static,
{
    let path = directory.to_owned();
    let config_of = reactor::Config { shards, ..reactor::Config::default() };
    let running = reactor::start(config_of, move |info: ShardInfo| {
        let (path, work) = (path.clone(), work.clone());
        async move {
            let storage =
                cluster::open_storage(config(&path), info.id, info.count).await.expect("an open storage");
            if info.id > 0 {
                return;
            }
            if storage.schema().table_by_id(ID).is_none() {
                for change in with_tablets(log2) {
                    cluster::change_schema(&change).await.expect("a schema change");
                }
            }
            let folder = std::fs::read_dir(path.join("data/k")).ok().and_then(|mut tables| tables.next());
            let folder = folder.map_or_else(
                || path.join("data/k/t-07070707070707070707070707070707"),
                |entry| entry.unwrap().path(),
            );
            work(storage, folder).await;
        }
    });
    running.expect("shards").join().expect("an end without a panic");
}

/// Table files with `KEYS` partitions, made on one shard with 2^`log2` tablets; their folder.
fn made(directory: &Path, log2: u8) -> PathBuf {
    node(directory, 1, log2, async |storage, _| {
        for key in 0..KEYS {
            let bytes = write(&format!("key{key}"), "c", &format!("value{key}"), 5);
            storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
        }
        storage.drain().await.expect("a drain");
    });
    directory.join("data/k/t-07070707070707070707070707070707")
}

fn upload(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Partitions that all shards together have.
async fn partitions() -> usize {
    let mut all = 0;
    for shard in 0..reactor::shard_count() {
        let found = reactor::mesh::call(shard, reactor::Group::STATEMENT, || async {
            let storage = reactor::local::<Storage>().expect("an open storage");
            values(&storage, PartitionRange::all()).await.expect("a read").len()
        });
        all += found.await.expect("an answer");
    }
    all
}

#[test]
fn files_of_other_tablets_and_shards_are_split_among_their_owners() {
    for (made_with, shards, log2) in [(0, 3, 3), (3, 2, 0), (2, 2, 2)] {
        let (source, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let from = made(source.path(), made_with);
        let bytes: Vec<_> = names(&from).into_iter().filter(|name| name.ends_with("-Data.db")).collect();
        let files = bytes.len();
        node(directory.path(), shards, log2, async move |storage, folder| {
            upload(&from, &folder.join("upload"));
            let report = storage.import(ID, &ImportSource::default()).await.expect("an import");
            assert_eq!((report.files, report.partitions), (files, KEYS as u64));
            assert_eq!(partitions().await, KEYS, "{made_with} {shards} {log2}");
            assert_eq!(names(&folder.join("upload")), [] as [&str; 0], "what was taken in is gone");
            let again = storage.import(ID, &ImportSource::default()).await.expect("nothing to take in");
            assert_eq!(again.files, 0);
        });
        node(directory.path(), 1, log2, async |_, _| {
            assert_eq!(partitions().await, KEYS, "after a restart with another number of shards");
        });
    }
}

/// Files of a format that this node writes, each entirely of one tablet, are read through and linked; others
/// are rewritten.
#[test]
fn files_that_are_one_tablets_are_linked() {
    use std::os::unix::fs::MetadataExt;
    for (made_with, linked) in [(2, true), (1, false)] {
        let (source, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let from = made(source.path(), made_with);
        node(directory.path(), 2, 2, async move |storage, _| {
            let kept = ImportSource { directory: Some(from.clone()), keep: true };
            let report = storage.import(ID, &kept).await.expect("an import");
            assert_eq!((report.partitions, partitions().await), (KEYS as u64, KEYS));
            let links = |name: &String| std::fs::metadata(from.join(name)).unwrap().nlink();
            let data: Vec<_> = names(&from).into_iter().filter(|name| name.ends_with(".db")).collect();
            assert!(data.iter().all(|name| (links(name) == 2) == linked), "{data:?}");
        });
        node(directory.path(), 1, 2, async |storage, _| {
            storage.compact(ID).await.expect("a compaction");
            assert_eq!(partitions().await, KEYS);
        });
    }
}

/// A backup that lost what its index can tell is as good as a whole one: its rows are written anew.
#[test]
fn a_source_without_filter_or_summary_is_taken_in_and_whole_afterwards() {
    use std::os::unix::fs::MetadataExt;
    let (source, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = made(source.path(), 2);
    for name in names(&from) {
        if name.ends_with("-Filter.db") {
            std::fs::remove_file(from.join(name)).unwrap();
        } else if name.ends_with("-Summary.db") {
            std::fs::write(from.join(name), b"damaged").unwrap();
        }
    }
    node(directory.path(), 2, 2, async move |storage, folder| {
        let kept = ImportSource { directory: Some(from.clone()), keep: true };
        let report = storage.import(ID, &kept).await.expect("an import");
        assert_eq!((report.partitions, partitions().await), (KEYS as u64, KEYS));
        let count =
            |folder: &Path, end: &str| names(folder).iter().filter(|name| name.ends_with(end)).count();
        let data = count(&folder, "-Data.db");
        assert!(data > 0);
        assert_eq!((count(&folder, "-Filter.db"), count(&folder, "-Summary.db")), (data, data));
        for name in names(&from).into_iter().filter(|name| name.ends_with("-Data.db")) {
            assert_eq!(std::fs::metadata(from.join(&name)).unwrap().nlink(), 1, "{name} is not linked");
        }
    });
}

/// Copies table files and names them by times, as Cassandra and ScyllaDB may.
fn upload_by_time(from: &Path, to: &Path) {
    upload(from, to);
    for name in names(to) {
        let Some((before, after)) = name.split_once("-big-") else { continue };
        let number: u64 = before.trim_start_matches("me-").parse().unwrap();
        let renamed = format!("me-3g7k_0h3x_{number:018}-big-{after}");
        std::fs::rename(to.join(name), to.join(renamed)).unwrap();
    }
}

#[test]
fn files_named_by_time_are_taken_in_and_otherwise_left_alone() {
    let (source, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = made(source.path(), 1);
    let files = names(&from).into_iter().filter(|name| name.ends_with("-Data.db")).count();
    node(directory.path(), 1, 1, async move |storage, folder| {
        upload_by_time(&from, &folder.join("upload"));
        // Such files in the node's own folder are not its own, even if they are incomplete.
        upload_by_time(&from, &folder);
        std::fs::write(folder.join("me-3g7k_0h3x_000000000000000999-big-Data.db"), "half").unwrap();
        let report = storage.import(ID, &ImportSource::default()).await.expect("an import");
        assert_eq!((report.files, report.partitions), (files, KEYS as u64));
        assert_eq!(names(&folder.join("upload")), [] as [&str; 0], "what was taken in is gone");
        storage.truncate(ID).await.expect("a truncation");
    });
    node(directory.path(), 1, 1, async |_, folder| {
        assert_eq!(partitions().await, 0, "only what was taken in is read");
        let left = names(&folder).into_iter().filter(|name| name.starts_with("me-3g7k_")).count();
        assert!(left > 1, "files of others are not removed");
    });
}

#[test]
fn files_of_another_format_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    node(directory.path(), 1, 0, async |storage, folder| {
        let upload = folder.join("upload");
        std::fs::create_dir_all(&upload).unwrap();
        std::fs::write(upload.join("db-3g7k_0h3x_3m1ow2a8r9wp4c2tuv-bti-Data.db"), "rows").unwrap();
        let error = storage.import(ID, &ImportSource::default()).await.expect_err("a file that is not read");
        let text = error.to_string();
        assert!(
            text.contains("db-3g7k_0h3x_3m1ow2a8r9wp4c2tuv-bti-Data.db") && text.contains("upgradesstables"),
            "{text}"
        );
        assert_eq!(names(&upload).len(), 1);
    });
}

#[test]
fn newer_rows_win_whichever_way_they_came() {
    let (source, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = made(source.path(), 1);
    node(directory.path(), 1, 1, async move |storage, _| {
        for (key, timestamp) in [("key1", 4), ("key2", 6)] {
            let bytes = write(key, "c", "here", timestamp);
            storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
        }
        let kept = ImportSource { directory: Some(from.clone()), keep: true };
        storage.import(ID, &kept).await.expect("an import");
        assert!(!names(&from).is_empty(), "sources that are to stay stay");
        let found = values(&storage, PartitionRange::all()).await.expect("a read");
        let value = |key: &str| {
            found.iter().find(|(found, _)| found == key.as_bytes()).map(|(_, value)| value.clone())
        };
        assert_eq!(value("key1"), Some(b"value1".to_vec()));
        assert_eq!(value("key2"), Some(b"here".to_vec()));
    });
}

#[test]
fn a_damaged_or_half_source_changes_nothing_and_stays() {
    let (source, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = made(source.path(), 1);
    node(directory.path(), 2, 1, async move |storage, folder| {
        let to = folder.join("upload");
        upload(&from, &to);
        let data = names(&to).into_iter().find(|name| name.ends_with("-Data.db")).unwrap();
        let mut bytes = std::fs::read(to.join(&data)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        std::fs::write(to.join(&data), bytes).unwrap();
        let before = names(&to).len();
        let error = storage.import(ID, &ImportSource::default()).await.expect_err("the source is damaged");
        assert!(error.to_string().contains(&data), "{error}");
        assert_eq!(partitions().await, 0, "not even the rows of the sound file");
        assert_eq!(names(&to).len(), before);
        let left: Vec<_> = names(&folder).into_iter().filter(|name| name.contains("-big-")).collect();
        assert_eq!(left, [] as [&str; 0], "nothing is left of the attempt");

        let toc = data.replace("Data.db", "TOC.txt");
        std::fs::remove_file(to.join(&toc)).unwrap();
        let error = storage.import(ID, &ImportSource::default()).await.expect_err("the source is not whole");
        assert!(error.to_string().contains("TOC.txt"), "{error}");

        let nowhere = ImportSource { directory: Some(folder.join("nowhere")), keep: true };
        assert!(storage.import(ID, &nowhere).await.is_err());
    });
}

/// Its own files would be removed as taken in, and be gone at the next start.
#[test]
fn a_folder_whose_files_are_in_use_is_refused_by_whatever_name() {
    use std::os::unix::fs::symlink;
    let directory = tempfile::tempdir().unwrap();
    let live = made(directory.path(), 1);
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link");
    symlink(&live, &link).unwrap();
    let upload = live.join("upload");
    symlink(&live, &upload).unwrap();
    let (folder, to) = (live.clone(), upload.clone());
    node(directory.path(), 2, 1, async move |storage, _| {
        let before = names(&folder);
        for directory in [
            Some(folder.clone()),
            Some(folder.join("upload/..").join(folder.file_name().unwrap())),
            Some(link.clone()),
            Some(folder.join("elsewhere")),
            Some(folder.parent().unwrap().to_owned()),
            // Its `upload`, which is a link to the folder itself.
            None,
        ] {
            std::fs::create_dir_all(folder.join("elsewhere")).unwrap();
            let said = format!("{directory:?}");
            let from = ImportSource { directory, keep: false };
            let error = storage.import(ID, &from).await.expect_err(&said).to_string();
            assert!(error.contains("in use") && error.contains("`upload`"), "{said}: {error}");
        }
        std::fs::remove_dir(folder.join("elsewhere")).unwrap();
        assert_eq!(names(&folder), before);
        assert_eq!(partitions().await, KEYS);
    });
    node(directory.path(), 1, 1, async move |storage, folder| {
        assert_eq!(partitions().await, KEYS, "after a restart");
        std::fs::remove_file(&to).unwrap();
        // Folders below a table's whose files are not in use.
        let own: Vec<_> = names(&folder).into_iter().filter(|name| name.starts_with("me-")).collect();
        for place in ["upload", "staging", "snapshots/mine", "quarantine"] {
            std::fs::create_dir_all(folder.join(place)).unwrap();
            for name in &own {
                std::fs::hard_link(folder.join(name), folder.join(place).join(name)).unwrap();
            }
            let from = ImportSource { directory: Some(folder.join(place)), keep: false };
            let report = storage.import(ID, &from).await.expect(place);
            assert_eq!(report.partitions, KEYS as u64, "{place}");
        }
        storage.compact(ID).await.expect("a compaction");
    });
    node(directory.path(), 1, 1, async |_, _| assert_eq!(partitions().await, KEYS));
}

/// A link in the place of a table's file would lead out of its folder, to a file that another program may
/// remove.
#[test]
fn a_source_of_symbolic_links_is_taken_in_as_what_they_lead_to() {
    let (source, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = made(source.path(), 2);
    let links = source.path().join("links");
    std::fs::create_dir(&links).unwrap();
    for name in names(&from).into_iter().filter(|name| name.starts_with("me-")) {
        std::os::unix::fs::symlink(from.join(&name), links.join(&name)).unwrap();
    }
    node(directory.path(), 1, 2, async move |storage, folder| {
        let kept = ImportSource { directory: Some(links), keep: true };
        let report = storage.import(ID, &kept).await.expect("an import");
        assert_eq!(report.partitions, KEYS as u64);
        for name in names(&folder) {
            let file = std::fs::symlink_metadata(folder.join(&name)).unwrap();
            assert!(!file.is_symlink(), "{name}");
        }
    });
    drop(source);
    node(directory.path(), 1, 2, async |_, _| assert_eq!(partitions().await, KEYS));
}

/// Files with the same rows, made for a table of the same columns and another id.
fn made_for_another_table(directory: &Path) -> PathBuf {
    let config = config(directory);
    reactor::run_one(reactor::Config::default(), async move {
        let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
        let [keyspace, table] = with_tablets(1);
        let SchemaChange::CreateTable(mut definition) = table else {
            panic!("the second change makes the table")
        };
        definition.id = TableId([8; 16]);
        for change in [keyspace, SchemaChange::CreateTable(definition)] {
            cluster::change_schema(&change).await.expect("a schema change");
        }
        for key in 0..KEYS {
            let mut bytes = write(&format!("key{key}"), "c", &format!("value{key}"), 5);
            let at = bytes.windows(16).position(|window| window == ID.0).expect("the table's id");
            bytes[at..at + 16].copy_from_slice(&[8; 16]);
            storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
        }
        storage.drain().await.expect("a drain");
    });
    directory.join("data/k/t-08080808080808080808080808080808")
}

#[test]
fn files_of_another_table_are_refused_in_a_tables_folder_and_taken_in_by_import() {
    use std::os::unix::fs::MetadataExt;
    let (source, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = made_for_another_table(source.path());
    let live = made(directory.path(), 1);
    for name in names(&live) {
        std::fs::remove_file(live.join(name)).unwrap();
    }
    upload(&from, &live);
    for policy in [FailurePolicy::Stop, FailurePolicy::Ignore] {
        let config = StorageConfig { disk_failure_policy: policy, ..config(directory.path()) };
        let error: StorageError = reactor::run_one(reactor::Config::default(), async move {
            let storage = cluster::open_storage(config, 0, 1).await?;
            values(&storage, PartitionRange::all()).await.map(|_| panic!("another table's rows are read"))
        })
        .expect_err("files of another table");
        let said = error.to_string();
        assert!(
            said.contains("another table") && said.contains("08080808") && said.contains("-Data.db"),
            "{said}"
        );
    }
    for name in names(&live) {
        std::fs::remove_file(live.join(name)).unwrap();
    }
    // The table's own files are missing now.
    let accepting = accepting(config(directory.path()));
    reactor::run_one(reactor::Config::default(), async move {
        drop(cluster::open_storage(accepting, 0, 1).await.expect("a start without them"));
    });
    let kept = ImportSource { directory: Some(from.clone()), keep: true };
    node(directory.path(), 1, 1, async move |storage, _| {
        let report = storage.import(ID, &kept).await.expect("an import");
        assert_eq!(report.partitions, KEYS as u64);
        for name in names(&from).into_iter().filter(|name| name.ends_with(".db")) {
            // Linked as it is, the next start would refuse it.
            assert_eq!(std::fs::metadata(from.join(&name)).unwrap().nlink(), 1, "{name}");
        }
    });
    node(directory.path(), 2, 1, async |_, _| assert_eq!(partitions().await, KEYS));
}
