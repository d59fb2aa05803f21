//! Snapshots: their contents, the events they survive, and the time of their removal.
#![allow(clippy::disallowed_methods)] // tests look at the disk

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use crate::table::{ID, changes, values, write};
use model::TableId;
use model::partition_key::DecoratedKey;
use model::schema::SchemaChange;
use reactor::{Deadline, Group, mesh};
use storage::{
    ImportSource, PartitionRange, SnapshotRequest, SnapshotsOf, Storage, StorageConfig, StorageError,
};

fn run<T: 'static>(work: impl Future<Output = T> + 'static) -> T {
    reactor::run_one(reactor::Config::default(), work)
}

fn config(directory: &Path) -> StorageConfig {
    let mut config = StorageConfig::new(directory, 8 << 20);
    config.segment_bytes = 1 << 20;
    config.auto_compaction = false;
    config
}

fn request(tag: &str) -> SnapshotRequest {
    SnapshotRequest { tag: tag.to_owned(), tables: vec![ID], skip_flush: false, ttl: None }
}

fn of_tag(tag: &str) -> SnapshotsOf {
    SnapshotsOf { tag: Some(tag.to_owned()), ..SnapshotsOf::default() }
}

async fn opened(config: StorageConfig) -> Storage {
    let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
    if storage.schema().table_by_id(ID).is_none() {
        for change in changes() {
            cluster::change_schema(&change).await.expect("a schema change");
        }
    }
    storage
}

async fn fill(storage: &Storage, timestamp: i64) {
    for key in 0..20 {
        let bytes = write(&format!("key{key}"), "c", &timestamp.to_string(), timestamp);
        storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
    }
}

fn table_folder(directory: &Path) -> PathBuf {
    let keyspace = directory.join("data/k");
    let mut tables = std::fs::read_dir(keyspace).unwrap();
    tables.next().expect("the table's folder").unwrap().path()
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_snapshot_holds_what_was_written_before_and_nothing_after() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    run(async move {
        let storage = opened(config(&path)).await;
        storage.set_describer(Rc::new(|_, table| Some(format!("CREATE TABLE {}", table.name()))));
        fill(&storage, 1).await;
        storage.take_snapshot(&request("before")).await.expect("a snapshot");
        fill(&storage, 2).await;
        storage.flush(ID).await.expect("a flush");
        let folder = table_folder(&path);
        let live = names(&folder);
        let snapshot = folder.join("snapshots/before");
        let kept = names(&snapshot);
        let data: Vec<&String> = kept.iter().filter(|name| name.ends_with("-Data.db")).collect();
        assert_eq!(data.len(), 2, "one file of each tablet: {kept:?}");
        assert!(kept.iter().any(|name| name.ends_with("-TOC.txt")), "{kept:?}");
        let manifest = std::fs::read_to_string(snapshot.join("manifest.json")).unwrap();
        data.iter().for_each(|name| assert!(manifest.contains(name.as_str()), "{manifest}"));
        assert_eq!(std::fs::read_to_string(snapshot.join("schema.cql")).unwrap(), "CREATE TABLE t");

        let listed = storage.snapshots(&SnapshotsOf::default()).await.expect("a list");
        assert_eq!(listed.len(), 1);
        let info = &listed[0];
        assert_eq!((&*info.tag, &*info.keyspace, &*info.table), ("before", "k", "t"));
        let of_files: u64 = kept
            .iter()
            .filter(|name| live.contains(name))
            .map(|name| std::fs::metadata(snapshot.join(name)).unwrap().len())
            .sum();
        assert!(of_files > 0);
        assert_eq!(info.true_bytes, info.disk_bytes - of_files, "files the table has too cost nothing");
        assert!(info.created_at.is_some() && info.expires_at.is_none());

        // A compaction takes the files from the table; now the snapshot alone has them.
        storage.compact(ID).await.expect("a compaction");
        assert_eq!(names(&snapshot), kept);
        let listed = storage.snapshots(&of_tag("before")).await.expect("a list");
        assert_eq!(listed[0].true_bytes, listed[0].disk_bytes);

        let again = storage.take_snapshot(&request("before")).await.expect_err("the name is taken");
        assert_eq!(again.to_string(), "snapshot \"before\": Snapshot before already exists in k.t.");
        for tag in ["../x", "", "a/b", "."] {
            let refused = storage.take_snapshot(&request(tag)).await.expect_err("no name of a snapshot");
            assert!(matches!(refused, StorageError::Snapshot { .. }), "{refused}");
        }
        assert_eq!(storage.clear_snapshots(&of_tag("other")).await.expect("nothing to clear"), 0);
        assert_eq!(storage.clear_snapshots(&of_tag("before")).await.expect("a snapshot less"), 1);
        assert!(!snapshot.exists());
    });
}

#[test]
fn a_snapshot_put_back_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    run(async move {
        let storage = opened(config(&path)).await;
        fill(&storage, 1).await;
        storage.take_snapshot(&request("kept")).await.expect("a snapshot");
        storage.truncate(ID).await.expect("a truncation");
        assert_eq!(values(&storage, PartitionRange::all()).await.expect("a read"), []);
        storage.drain().await.expect("a drain");
        let folder = table_folder(&path);
        for name in names(&folder.join("snapshots/kept"))
            .iter()
            .filter(|name| name.ends_with(".db") || name.contains("-big-"))
        {
            std::fs::hard_link(folder.join("snapshots/kept").join(name), folder.join(name)).unwrap();
        }
    });
    let path = directory.path().to_owned();
    run(async move {
        let storage = opened(config(&path)).await;
        assert_eq!(values(&storage, PartitionRange::all()).await.expect("a read").len(), 20);
    });
}

#[test]
fn a_damaged_table_file_is_in_a_snapshot_as_it_is() {
    for at_start in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let of_run = config(directory.path());
        run(async move {
            let storage = opened(of_run).await;
            fill(&storage, 1).await;
            storage.drain().await.expect("a drain");
        });
        let folder = table_folder(directory.path());
        let all = names(&folder);
        let of_kind = |end: &str| folder.join(all.iter().find(|name| name.ends_with(end)).expect(end));
        let damaged = of_kind(if at_start { "-Statistics.db" } else { "-Data.db" });
        let mut bytes = std::fs::read(&damaged).unwrap();
        bytes[20] ^= 1;
        std::fs::write(&damaged, bytes).unwrap();
        let of_run = config(directory.path());
        run(async move {
            let storage = opened(of_run).await;
            storage.evict_cache();
            values(&storage, PartitionRange::all()).await.expect_err("damage");
            storage.take_snapshot(&request("s")).await.expect("a snapshot");
        });
        let snapshot = names(&folder.join("snapshots/s"));
        let missing: Vec<_> =
            all.iter().filter(|name| name.contains("-big-") && !snapshot.contains(name)).collect();
        assert!(missing.is_empty() && all.len() > 5, "{at_start}: {missing:?} of {all:?}");
        let manifest = std::fs::read_to_string(folder.join("snapshots/s/manifest.json")).unwrap();
        let data = all.iter().find(|name| name.ends_with("-Data.db")).unwrap();
        assert!(manifest.contains(data), "{manifest}");
    }
}

#[test]
fn without_a_flush_what_is_in_memory_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    run(async move {
        let storage = opened(config(&path)).await;
        fill(&storage, 1).await;
        let skipping = SnapshotRequest { skip_flush: true, ..request("files") };
        storage.take_snapshot(&skipping).await.expect("a snapshot");
        assert_eq!(names(&table_folder(&path).join("snapshots/files")), ["manifest.json"]);
        assert_eq!(values(&storage, PartitionRange::all()).await.expect("a read").len(), 20);
    });
}

#[test]
fn truncated_and_dropped_tables_leave_snapshots_that_outlive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let automatic = |path: &Path| StorageConfig { auto_snapshot: true, ..config(path) };
    let drop_table = SchemaChange::DropTable { keyspace: "k".to_owned(), name: "t".to_owned(), id: ID };
    let path = directory.path().to_owned();
    run(async move {
        let storage = opened(automatic(&path)).await;
        storage.truncate(ID).await.expect("a truncation");
        assert_eq!(storage.snapshots(&SnapshotsOf::default()).await.expect("a list"), [], "nothing to keep");
        fill(&storage, 1).await;
        storage.truncate(ID).await.expect("a truncation");
        fill(&storage, 2).await;
        cluster::change_schema(&drop_table).await.expect("a drop");
        let listed = storage.snapshots(&SnapshotsOf::default()).await.expect("a list");
        let tags: Vec<&str> = listed.iter().map(|info| info.tag.as_str()).collect();
        assert_eq!(tags.len(), 2, "{tags:?}");
        assert!(tags[0].starts_with("dropped-") && tags[0].ends_with("-t"), "{tags:?}");
        assert!(tags[1].starts_with("truncated-") && tags[1].ends_with("-t"), "{tags:?}");
        assert!(storage.flush(TableId([7; 16])).await.is_err(), "the table itself is gone");
    });
    let path = directory.path().to_owned();
    run(async move {
        let storage = cluster::open_storage(automatic(&path), 0, 1).await.expect("an open storage");
        assert_eq!(storage.snapshots(&SnapshotsOf::default()).await.expect("a list").len(), 2);
        assert_eq!(names(&table_folder(&path)), ["snapshots"], "nothing else of it is left");
        assert_eq!(storage.clear_snapshots(&SnapshotsOf::default()).await.expect("all cleared"), 2);
    });
    let path = directory.path().to_owned();
    run(async move {
        drop(cluster::open_storage(automatic(&path), 0, 1).await.expect("an open storage"));
        assert_eq!(names(&path.join("data/k")), [] as [&str; 0], "the folder went with its last snapshot");
    });
}

#[test]
fn a_snapshot_with_an_end_goes_by_itself_also_after_a_restart() {
    reactor::sim::run_one(7, || async {
        let storage = opened(StorageConfig::new("/n", 8 << 20)).await;
        fill(&storage, 1).await;
        let ending =
            |tag: &str, seconds| SnapshotRequest { ttl: Some(Duration::from_secs(seconds)), ..request(tag) };
        storage.take_snapshot(&request("stays")).await.expect("a snapshot");
        storage.take_snapshot(&ending("soon", 100)).await.expect("a snapshot");
        storage.take_snapshot(&ending("later", 1000)).await.expect("a snapshot");
        let tags = async |storage: &Storage| -> Vec<String> {
            let listed = storage.snapshots(&SnapshotsOf::default()).await.expect("a list");
            listed.into_iter().map(|info| info.tag).collect()
        };
        reactor::sleep(Duration::from_secs(90)).await;
        assert_eq!(tags(&storage).await, ["later", "soon", "stays"]);
        reactor::sleep(Duration::from_secs(90)).await;
        assert_eq!(tags(&storage).await, ["later", "stays"]);
        storage.drain().await.expect("a drain");
        let storage = opened(StorageConfig::new("/n", 8 << 20)).await;
        reactor::sleep(Duration::from_secs(1000)).await;
        assert_eq!(tags(&storage).await, ["stays"]);
    });
}

#[test]
fn a_snapshot_beside_writes_flushes_and_compactions_has_all_that_was_acknowledged() {
    for seed in 0..3 {
        reactor::sim::run_one(seed, move || async move {
            let mut config = StorageConfig::new("/n", 8 << 20);
            config.segment_bytes = 1 << 20;
            let storage = opened(config).await;
            let acknowledged = Rc::new(Cell::new(0));
            let stop = Rc::new(Cell::new(false));
            let writer = {
                let (storage, acknowledged, stop) =
                    (storage.clone(), Rc::clone(&acknowledged), Rc::clone(&stop));
                reactor::spawn(Group::STATEMENT, async move {
                    while !stop.get() {
                        let bytes = write(&format!("key{:05}", acknowledged.get()), "c", "v", 1);
                        storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
                        acknowledged.set(acknowledged.get() + 1);
                        reactor::sleep(Duration::from_micros(500)).await;
                    }
                })
            };
            let mover = {
                let (storage, stop) = (storage.clone(), Rc::clone(&stop));
                reactor::spawn(Group::COMPACTION, async move {
                    while !stop.get() {
                        storage.flush(ID).await.expect("a flush");
                        storage.compact(ID).await.expect("a compaction");
                        reactor::sleep(Duration::from_millis(2)).await;
                    }
                })
            };
            let mut taken = Vec::new();
            for number in 0..4 {
                reactor::sleep(Duration::from_millis(15)).await;
                let before = acknowledged.get();
                let tag = format!("s{number}");
                storage.take_snapshot(&request(&tag)).await.expect("a snapshot");
                taken.push((tag, before, acknowledged.get()));
            }
            stop.set(true);
            writer.await.expect("the writer");
            mover.await.expect("the mover");
            for (tag, before, after) in taken {
                storage.truncate(ID).await.expect("a truncation");
                let directory = format!("/n/data/k/t-{}/snapshots/{tag}", "07".repeat(16));
                let from = ImportSource { directory: Some(directory.into()), keep: true };
                storage.import(ID, &from).await.expect("an import");
                let found = values(&storage, PartitionRange::all()).await.expect("a read");
                let mut keys: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
                keys.sort();
                let least: Vec<_> = (0..before).map(|n| format!("key{n:05}").into_bytes()).collect();
                assert_eq!(keys[..before.min(keys.len())], least[..], "seed {seed}, {tag}");
                assert!(keys.len() <= after + 1, "seed {seed}, {tag}: nothing from later");
            }
        });
    }
}

type Counted = Pin<Box<dyn Future<Output = usize>>>;

/// Truncates once from shard 1; every shard's rows are gone, and one snapshot has them all.
async fn truncate_from_shard_1(path: PathBuf) {
    let storage =
        cluster::open_storage(StorageConfig { auto_snapshot: true, ..config(&path) }, 0, 2).await.unwrap();
    for change in changes() {
        cluster::change_schema(&change).await.unwrap();
    }
    let on = |shard, work: fn(Rc<Storage>) -> Counted| {
        mesh::call(shard, Group::ADMIN, async move || work(reactor::local().expect("an open storage")).await)
    };
    for shard in 0..2 {
        let written = on(shard, |storage| {
            Box::pin(async move {
                let tablets = storage.schema().table_by_id(ID).unwrap().tablets();
                let mut written = 0;
                for key in (0..20).map(|key| format!("key{key}")) {
                    let tablet = tablets.tablet_of(DecoratedKey::new(key.clone().into_bytes()).token);
                    if tablets.shard_of(tablet, 2) == reactor::shard_id() {
                        storage.apply(&write(&key, "c", "v", 1), Deadline::NEVER).await.unwrap();
                        written += 1;
                    }
                }
                written
            })
        });
        assert!(written.await.unwrap() > 0, "keys of shard {shard}");
    }
    let truncated = on(1, |storage| Box::pin(async move { storage.truncate(ID).await.map_or(0, |()| 1) }));
    assert_eq!(truncated.await.unwrap(), 1);
    for shard in 0..2 {
        let rows = on(shard, |storage| {
            Box::pin(async move { values(&storage, PartitionRange::all()).await.unwrap().len() })
        });
        assert_eq!(rows.await.unwrap(), 0, "rows of shard {shard}");
    }
    let listed = storage.snapshots(&SnapshotsOf::default()).await.unwrap();
    assert_eq!(listed.len(), 1);
    let kept = names(&table_folder(&path).join("snapshots").join(&listed[0].tag));
    assert_eq!(
        kept.iter().filter(|name| name.ends_with("-Data.db")).count(),
        2,
        "a file of each shard: {kept:?}"
    );
}

#[test]
fn a_truncation_from_any_shard_leaves_one_snapshot_of_all() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let config = reactor::Config { shards: 2, driver: reactor::DriverChoice::Poll, ..Default::default() };
    let running = reactor::start(config, move |shard| {
        let path = path.clone();
        async move {
            if shard.id == 0 {
                truncate_from_shard_1(path).await;
            } else {
                let config = StorageConfig { auto_snapshot: true, ..self::config(&path) };
                cluster::open_storage(config, shard.id, shard.count).await.unwrap();
            }
        }
    });
    running.unwrap().join().unwrap();
}
