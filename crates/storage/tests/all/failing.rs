//! Each value of `disk_failure_policy`: the effect of a read error, a wrong checksum, a write error and a
//! file that cannot be opened on reads and on the start. `server` decides the effect on the node.
#![allow(clippy::disallowed_methods)]

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::table::{ID, changes, values, write};
use FailurePolicy::{BestEffort, Die, Ignore, Stop, StopParanoid};
use model::partition_key::DecoratedKey;
use reactor::Deadline;
use reactor::sim::{DiskFaults, World};
use storage::{
    CommitlogSync, FailurePolicy, PartitionRange, ScrubMode, Storage, StorageConfig, StorageError, Trouble,
};

pub(crate) const POLICIES: [FailurePolicy; 5] = [Die, StopParanoid, Stop, BestEffort, Ignore];

pub(crate) fn config(directory: impl Into<PathBuf>, policy: FailurePolicy) -> StorageConfig {
    let mut config = StorageConfig::new(directory, 8 << 20);
    config.segment_bytes = 1 << 20;
    config.auto_compaction = false;
    config.disk_failure_policy = policy;
    config
}

pub(crate) async fn opened(config: StorageConfig) -> Storage {
    let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
    if storage.schema().table_by_id(ID).is_none() {
        for change in changes() {
            cluster::change_schema(&change).await.expect("a schema change");
        }
    }
    storage
}

/// Writes rows `from` to `to` of a partition.
pub(crate) async fn put(storage: &Storage, from: i64, to: i64) {
    for number in from..to {
        let bytes = write("key", &number.to_string(), &number.to_string(), number);
        storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
    }
}

pub(crate) async fn all(storage: &Storage) -> Result<String, StorageError> {
    let found = values(storage, PartitionRange::all()).await?;
    Ok(found.into_iter().map(|(_, value)| String::from_utf8(value).expect("text")).collect())
}

fn listen(storage: &Storage) -> Rc<RefCell<Vec<Trouble>>> {
    let heard: Rc<RefCell<Vec<Trouble>>> = Rc::default();
    let (listener, place) = (storage.clone(), Rc::clone(&heard));
    reactor::spawn(reactor::Group::ADMIN, async move {
        loop {
            let trouble = listener.next_trouble().await;
            place.borrow_mut().push(trouble);
        }
    })
    .detach();
    heard
}

/// Lets the listener run, which is a task of its own, until it has heard of something.
async fn until_heard(heard: &RefCell<Vec<Trouble>>) {
    for _ in 0..100 {
        if !heard.borrow().is_empty() {
            return;
        }
        reactor::yield_now().await;
    }
}

/// Runs a node on a simulated disk: `work` uses its cell to switch the disk's faults on and off.
fn on_faulty_disk<F>(faults: DiskFaults, work: impl Fn(Rc<Cell<bool>>) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let mut world = World::new(21);
    let (fails, done) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let (of_node, ended) = (Rc::clone(&fails), Rc::clone(&done));
    let node = world.add_node_with(1, DiskFaults::default(), move |_| {
        let (work, ended) = (work(Rc::clone(&of_node)), Rc::clone(&ended));
        async move {
            work.await;
            ended.set(true);
        }
    });
    world.run_until(|_| fails.get()).expect("a node that works");
    world.set_disk_faults(node, faults);
    world.run_until(|_| !fails.get()).expect("a node on a disk that fails");
    world.set_disk_faults(node, DiskFaults::default());
    world.run().expect("an end");
    assert_eq!(world.outcome(node), Some(Ok(())));
    assert!(done.get());
}

/// Sets whether the disk fails; the disk follows within a second of virtual time.
pub(crate) async fn set(fails: &Cell<bool>, to: bool) {
    fails.set(to);
    reactor::sleep(Duration::from_secs(1)).await;
}

#[test]
fn a_read_error_fails_the_request_and_only_best_effort_goes_on_without_the_file() {
    for policy in POLICIES {
        let faults = DiskFaults { read_error: 1.0, ..DiskFaults::default() };
        on_faulty_disk(faults, move |fails| async move {
            let storage = opened(config("/n", policy)).await;
            let heard = listen(&storage);
            put(&storage, 0, 5).await;
            storage.flush(ID).await.expect("a flush");
            storage.evict_cache();
            put(&storage, 5, 10).await;
            set(&fails, true).await;
            let error = all(&storage).await.expect_err("the disk fails");
            assert!(matches!(error, StorageError::Io { .. }), "{policy:?}: {error}");
            assert!(error.to_string().contains("-Data.db"), "{policy:?}: {error}");
            set(&fails, false).await;
            let (files, rows) = if policy == BestEffort { (0, "56789") } else { (1, "0123456789") };
            assert_eq!(storage.stats().tables[0].files, files, "{policy:?}");
            assert_eq!(all(&storage).await.expect("a disk that is well again"), rows, "{policy:?}");
            let heard = heard.borrow();
            assert!(
                matches!(&heard[..], [Trouble::Data { reason }] if reason.contains("-Data.db")),
                "{policy:?}: {heard:?}"
            );
        });
    }
}

#[test]
fn a_write_error_fails_the_flush_and_loses_nothing_whatever_the_policy() {
    for policy in POLICIES {
        let faults = DiskFaults { write_error: 1.0, ..DiskFaults::default() };
        on_faulty_disk(faults, move |fails| async move {
            let storage = opened(config("/n", policy)).await;
            let heard = listen(&storage);
            put(&storage, 0, 5).await;
            set(&fails, true).await;
            let error = storage.flush(ID).await.expect_err("the disk fails");
            assert!(matches!(error, StorageError::Io { .. }), "{policy:?}: {error}");
            assert_eq!(all(&storage).await.expect("a read of memory"), "01234", "{policy:?}");
            until_heard(&heard).await;
            assert!(matches!(&heard.borrow()[..], [Trouble::Data { .. }, ..]), "{policy:?}: {heard:?}");
            set(&fails, false).await;
            storage.flush(ID).await.expect("a flush");
            assert_eq!(all(&storage).await.expect("a read"), "01234", "{policy:?}");
        });
    }
}

#[test]
fn a_commit_log_that_could_not_be_made_durable_ends_writes_and_reads_go_on() {
    let faults = DiskFaults { sync_error: 1.0, ..DiskFaults::default() };
    on_faulty_disk(faults, move |fails| async move {
        let mut config = config("/n", Ignore);
        config.commitlog_sync = CommitlogSync::Batch;
        let storage = opened(config).await;
        let heard = listen(&storage);
        put(&storage, 0, 5).await;
        set(&fails, true).await;
        let bytes = write("key", "5", "5", 5);
        let error = storage.apply(&bytes, Deadline::NEVER).await.expect_err("the disk fails");
        assert!(error.to_string().contains("commitlog"), "names the file: {error}");
        set(&fails, false).await;
        let error = storage.apply(&bytes, Deadline::NEVER).await.expect_err("the log stays dead");
        assert!(matches!(error, StorageError::CommitlogDead { .. }), "{error}");
        assert_eq!(all(&storage).await.expect("a read"), "01234");
        until_heard(&heard).await;
        assert!(matches!(&heard.borrow()[..], [Trouble::Commitlog { .. }, ..]), "{heard:?}");
    });
}

/// The part of `commit_failure_policy` that storage has: `ignore` and `stop_commit` after a write of the log
/// that the disk refused, in both modes of the log, and the contents after a restart.
#[test]
fn a_commit_log_that_could_not_be_written_goes_on_by_itself_unless_writes_are_stopped() {
    for sync in [CommitlogSync::Batch, CommitlogSync::Periodic { period: Duration::from_millis(100) }] {
        for stops in [false, true] {
            let mut world = World::new(22);
            let (fails, life) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
            let (of_node, lives) = (Rc::clone(&fails), Rc::clone(&life));
            let node = world.add_node_with(1, DiskFaults::default(), move |_| {
                let fails = Rc::clone(&of_node);
                let first = lives.replace(lives.get() + 1) == 0;
                async move {
                    let mut config = config("/n", Ignore);
                    config.commitlog_sync = sync;
                    let storage = opened(config).await;
                    if first {
                        refused_and_again(&storage, &fails, stops).await;
                    } else {
                        let found = all(&storage).await.expect("a read");
                        assert_eq!(
                            found,
                            if stops { "01234" } else { "012345" },
                            "what was acknowledged, no more"
                        );
                        put(&storage, 6, 7).await;
                    }
                }
            });
            world.run_until(|_| fails.get()).expect("a node that works");
            world.set_disk_faults(node, DiskFaults { write_error: 1.0, ..DiskFaults::default() });
            world.run_until(|_| !fails.get()).expect("a node on a disk that fails");
            world.set_disk_faults(node, DiskFaults::default());
            for _ in 0..2 {
                world.run().expect("an end");
                assert_eq!(world.outcome(node), Some(Ok(())), "{sync:?} {stops}");
                if life.get() == 1 {
                    world.crash(node);
                    world.restart(node);
                }
            }
            assert_eq!(life.get(), 2);
        }
    }
}

async fn refused_and_again(storage: &Storage, fails: &Cell<bool>, stops: bool) {
    let heard = listen(storage);
    put(storage, 0, 5).await;
    set(fails, true).await;
    for _ in 0..3 {
        let refused = write("key", "9", "9", 9);
        let error = storage.apply(&refused, Deadline::NEVER).await.expect_err("the disk fails");
        assert!(matches!(error, StorageError::Io { .. }), "{error}");
        assert!(error.to_string().contains("commitlog"), "names the file: {error}");
    }
    assert_eq!(all(storage).await.expect("a read"), "01234", "reads go on");
    until_heard(&heard).await;
    assert!(matches!(&heard.borrow()[..], [Trouble::Commitlog { .. }, ..]), "{heard:?}");
    if stops {
        storage.stop_writes();
    }
    set(fails, false).await;
    let again = storage.apply(&write("key", "5", "5", 5), Deadline::NEVER).await;
    if stops {
        let error = again.expect_err("writes are stopped");
        assert!(matches!(error, StorageError::CommitlogDead { .. }), "{error}");
        assert_eq!(all(storage).await.expect("a read"), "01234");
        // Its contents are as safe as before.
        storage.flush(ID).await.expect("a flush");
        let again = storage.apply(&write("key", "5", "5", 5), Deadline::NEVER).await;
        assert!(
            matches!(again, Err(StorageError::CommitlogDead { .. })),
            "a disk that is well changes nothing"
        );
    } else {
        again.expect("the disk is well again");
        storage.flush(ID).await.expect("a flush");
        assert_eq!(all(storage).await.expect("a read"), "012345");
    }
    // As promised by periodic mode.
    reactor::sleep(Duration::from_secs(1)).await;
}

pub(crate) fn run<T: 'static>(work: impl Future<Output = T> + 'static) -> T {
    reactor::run_one(reactor::Config::default(), work)
}

/// A configuration that accepts everything that a start of it misses.
pub(crate) fn accepting(mut config: StorageConfig) -> StorageConfig {
    let tried = config.clone();
    let refused = run(async move { cluster::open_storage(tried, 0, 1).await.map(drop) });
    let Err(StorageError::Missing { token, .. }) = refused else { panic!("nothing is missing: {refused:?}") };
    config.accept_missing.push(token);
    config
}

/// A node's folder with five rows in a table file and five in the commit log, and the path of a component of
/// the file.
pub(crate) fn stopped(end: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let of_run = config(directory.path(), Ignore);
    run(async move {
        let storage = opened(of_run).await;
        put(&storage, 0, 5).await;
        storage.flush(ID).await.expect("a flush");
        put(&storage, 5, 10).await;
    });
    let folder = table_folder(directory.path());
    let component = names(&folder).into_iter().find(|name| name.ends_with(end)).expect("the component");
    (directory, folder.join(component))
}

pub(crate) fn table_folder(directory: &Path) -> PathBuf {
    let mut folder = directory.join("data");
    for _ in 0..2 {
        folder = std::fs::read_dir(&folder).unwrap().next().expect("a folder").unwrap().path();
    }
    folder
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn turn_a_bit(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_wrong_checksum_fails_each_request_that_meets_it_until_a_scrub_whatever_the_policy() {
    for policy in POLICIES {
        let (directory, data) = stopped("-Data.db");
        turn_a_bit(&data, 10);
        let config = config(directory.path(), policy);
        run(async move {
            let storage = opened(config).await;
            let heard = listen(&storage);
            for _ in 0..3 {
                match all(&storage).await {
                    Err(StorageError::TableFileCorrupt { path, .. }) => assert_eq!(path, data),
                    other => panic!("{policy:?}: {other:?}"),
                }
                // The task that would set the file aside gets its turn.
                for _ in 0..1_000 {
                    reactor::yield_now().await;
                }
            }
            assert_eq!(storage.stats().tables[0].files, 1, "{policy:?}");
            until_heard(&heard).await;
            assert!(matches!(&heard.borrow()[..], [Trouble::Corrupt { .. }, ..]), "{policy:?}: {heard:?}");
            let error = storage.scrub(ID, ScrubMode::Abort).await.expect_err("damage");
            assert!(
                matches!(&error, StorageError::TableFileCorrupt { path, .. } if *path == data),
                "{error}"
            );
            let report = storage.scrub(ID, ScrubMode::Skip).await.expect("a scrub");
            assert_eq!((report.damaged_files, report.gaps), (1, 1), "{policy:?}");
            assert_eq!(all(&storage).await.expect("a read"), "56789", "{policy:?}");
        });
    }
}

#[test]
fn a_file_that_cannot_be_opened_ends_the_start_or_is_set_aside_or_makes_reads_fail() {
    for policy in POLICIES {
        let (directory, statistics) = stopped("-Statistics.db");
        std::fs::write(&statistics, b"no statistics").unwrap();
        let config = config(directory.path(), policy);
        let named = statistics.clone();
        run(async move {
            let storage = match (policy, cluster::open_storage(config, 0, 1).await) {
                (Die | StopParanoid | Stop, Err(StorageError::TableFileCorrupt { path, .. })) => {
                    assert_eq!(path, named);
                    return;
                }
                (BestEffort | Ignore, Ok(storage)) => storage,
                (_, other) => panic!("{policy:?}: {:?}", other.map(|_| "a start")),
            };
            if policy == BestEffort {
                assert_eq!(all(&storage).await.expect("the other rows"), "56789");
                return;
            }
            // Also for rows that memory has: the file may have newer contents of them.
            let memory = write("key", "7", "newer", 100);
            storage.apply(&memory, Deadline::NEVER).await.expect("a write");
            let reads = [PartitionRange::all(), PartitionRange::Key(DecoratedKey::new(b"key".to_vec()))];
            for range in reads {
                match values(&storage, range).await {
                    Err(StorageError::TableFileCorrupt { path, .. }) => assert_eq!(path, named),
                    other => panic!("{other:?}"),
                }
            }
        });
        // Set aside or not, no file is lost.
        let folder = table_folder(directory.path());
        let aside = folder.join("quarantine");
        let folder = if policy == BestEffort { aside } else { folder };
        assert!(names(&folder).iter().any(|name| name.ends_with("-Data.db")), "{policy:?}");
    }
}

#[test]
fn a_file_that_makes_reads_fail_goes_with_a_truncation_and_out_of_the_way_with_a_scrub() {
    for truncates in [true, false] {
        let (directory, statistics) = stopped("-Statistics.db");
        std::fs::write(&statistics, b"no statistics").unwrap();
        let of_run = config(directory.path(), Ignore);
        run(async move {
            let storage = opened(of_run).await;
            all(&storage).await.expect_err("a file that is not read");
            if truncates {
                storage.truncate(ID).await.expect("a truncation");
                assert_eq!(all(&storage).await.expect("a read"), "");
            } else {
                storage.scrub(ID, ScrubMode::Abort).await.expect_err("a damaged file");
                all(&storage).await.expect_err("a file that is not read");
                let report = storage.scrub(ID, ScrubMode::Skip).await.expect("a scrub");
                assert_eq!(report.damaged_files, 1);
                assert_eq!(all(&storage).await.expect("a read"), "56789");
            }
        });
        assert!(!statistics.exists());
        let strictest = config(directory.path(), Stop);
        let rows = run(async move { all(&opened(strictest).await).await.expect("a read") });
        assert_eq!(rows, if truncates { "" } else { "56789" });
    }
}

/// While the manifest takes no record, each further compaction would leave the outputs of the one before.
#[test]
fn compactions_that_cannot_be_recorded_do_not_fill_the_disk() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        let stage = Rc::new(Cell::new(0));
        let most = Rc::new(Cell::new(0));
        let (of_node, seen) = (Rc::clone(&stage), Rc::clone(&most));
        let node = world.add_node(1, move |_| {
            let (stage, most) = (Rc::clone(&of_node), Rc::clone(&seen));
            async move {
                let storage = opened(config("/n", Ignore)).await;
                for from in [0, 10] {
                    put(&storage, from, from + 10).await;
                    storage.flush(ID).await.expect("a flush");
                }
                stage.set(1);
                for _ in 0..60 {
                    drop(storage.compact(ID).await);
                    let folder = "/n/data/k/t-07070707070707070707070707070707";
                    let names = reactor::file::read_dir(folder).await.expect("the table's folder");
                    let data = names.iter().filter(|entry| entry.name.ends_with("-Data.db"));
                    most.set(most.get().max(data.count()));
                }
                assert_eq!(
                    all(&storage).await.expect("the rows").len(),
                    "012345678910111213141516171819".len()
                );
                stage.set(2);
            }
        });
        world.run_until(|_| stage.get() == 1).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        world.set_disk_faults(node, DiskFaults { sync_error: 0.15, ..DiskFaults::default() });
        world.run_until(|_| stage.get() == 2).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        // The two that were flushed, what replaced them, and one more replacement in the making.
        assert!(most.get() <= 4, "seed {seed}: {} table files", most.get());
    }
}
