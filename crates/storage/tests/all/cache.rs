//! Effects of the row cache, by counts: reads without a disk read, and the memory of a cached row.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::table::{self, ID, changes, write};
use model::clustering::{Slice, append_component};
use model::partition_key::DecoratedKey;
use model::schema::SchemaChange;
use model::{RowView, Token};
use reactor::metrics::{self, Value};
use reactor::sim::World;
use reactor::{Deadline, Group};
use storage::{Flow, PartitionRange, ReadCommand, RowConsumer, Storage, StorageConfig};

/// Runs a test on an empty storage with these limits for memtables and for all memory, in the group of
/// statements.
fn with_storage((memtables, all): (usize, usize), test: impl AsyncFnOnce(Storage) + 'static) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut config = StorageConfig::new(directory.path(), memtables);
    config.memory_bytes_max = all;
    config.auto_compaction = false;
    reactor::run_one(reactor::Config::default(), async move {
        let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
        for change in changes() {
            cluster::change_schema(&change).await.expect("a schema change");
        }
        let task = reactor::spawn(Group::STATEMENT, async move {
            test(storage.clone()).await;
            storage.drain().await.expect("a drain");
        });
        task.await.expect("no panic");
    });
}

/// A counter's present value for a group.
fn count_of(group: Group, name: &str) -> u64 {
    let label = ("group".to_owned(), group.name().to_owned());
    let samples = metrics::snapshot();
    let sample = samples.iter().find(|sample| sample.name == name && sample.labels.contains(&label));
    match sample.map(|sample| &sample.value) {
        Some(Value::Counter(count)) => *count,
        other => panic!("no count {name} but {other:?}"),
    }
}

/// Disk requests of statements and scans so far.
fn disk_reads() -> u64 {
    let of = |group| count_of(group, "reactor_disk_operations_total");
    of(Group::STATEMENT) + of(Group::SCAN)
}

fn count(name: &str) -> u64 {
    metrics::counter(name, "", &[]).get()
}

#[derive(Default)]
struct Rows(Vec<Vec<u8>>);

impl RowConsumer for Rows {
    fn partition(&mut self, _: &[u8], _: Token, _: Option<RowView<'_>>) -> Flow {
        Flow::Continue
    }
    fn row(&mut self, _: &[u8], row: RowView<'_>) -> Flow {
        self.0.push(row.cells().next().and_then(|cell| cell.value()).unwrap_or_default().to_vec());
        Flow::Continue
    }
    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

fn prefix(clustering: &str) -> Vec<u8> {
    let mut prefix = Vec::new();
    append_component(&mut prefix, Some(clustering.as_bytes()));
    prefix
}

/// Values of the rows of a range, or of one clustering of it, and the number of disk requests.
async fn read(
    storage: &Storage,
    range: PartitionRange,
    clustering: Option<&str>,
    bypass_cache: bool,
) -> (Vec<Vec<u8>>, u64) {
    let table = storage.schema().table_by_id(ID).cloned().expect("the table");
    let slice = clustering.map_or(Slice::all(), |clustering| Slice::prefix(&prefix(clustering)));
    let slices = [slice].into_iter().collect();
    let command = ReadCommand { table, range, slices, reversed: false, now: 1_700_000_000, bypass_cache };
    let mut rows = Rows::default();
    let before = disk_reads();
    storage.read(&command, &mut rows).await.expect("a read");
    (rows.0, disk_reads() - before)
}

fn key(key: &str) -> PartitionRange {
    PartitionRange::Key(DecoratedKey::new(key.as_bytes().to_vec()))
}

async fn put(storage: &Storage, key: &str, clustering: &str, value: &str, timestamp: i64) {
    storage.apply(&write(key, clustering, value, timestamp), Deadline::NEVER).await.expect("a write");
}

#[test]
fn what_was_flushed_is_read_without_the_disk() {
    with_storage((8 << 20, 16 << 20), async |storage| {
        for number in 0..200 {
            put(&storage, &format!("key{number}"), "c", &format!("value{number}"), 1).await;
        }
        storage.flush(ID).await.expect("a flush");
        assert_eq!(count("scylla_cache_partition_insertions"), 200);
        for number in 0..200 {
            let (rows, reads) = read(&storage, key(&format!("key{number}")), None, false).await;
            assert_eq!((rows, reads), (vec![format!("value{number}").into_bytes()], 0));
        }
        // Overwritten and flushed again: the cached partitions are merged into.
        for number in 0..200 {
            put(&storage, &format!("key{number}"), "c", "newer", 2).await;
        }
        storage.flush(ID).await.expect("a flush");
        assert_eq!(count("scylla_cache_rows_merged_from_memtable"), 200);
        for number in 0..200 {
            let read = read(&storage, key(&format!("key{number}")), None, false).await;
            assert_eq!(read, (vec![b"newer".to_vec()], 0));
        }
        assert_eq!(storage.stats().cache_rows, 200);
    });
}

#[test]
fn a_cache_that_is_emptied_by_request_lets_others_run() {
    with_storage((8 << 20, 32 << 20), async |storage| {
        const PARTITIONS: u64 = 4_000;
        for number in 0..PARTITIONS {
            put(&storage, &format!("key{number}"), "c", &"v".repeat(1_000), 1).await;
        }
        storage.flush(ID).await.expect("a flush");
        let held = storage.stats();
        assert!(held.cache_partitions > PARTITIONS / 2, "{held:?}");
        let (turns, ended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (counted, end) = (Rc::clone(&turns), Rc::clone(&ended));
        let other = reactor::spawn(reactor::current_group(), async move {
            while !end.get() {
                counted.set(counted.get() + 1);
                reactor::yield_now().await;
            }
        });
        storage.evict_cache_in_steps().await;
        ended.set(true);
        other.await.expect("no panic");
        assert_eq!((storage.stats().cache_partitions, storage.stats().cache_rows), (0, 0));
        // At least one turn for each MiB of memory.
        assert!(turns.get() >= held.cache_bytes >> 20, "{} turns, {held:?}", turns.get());
    });
}

#[test]
fn what_was_read_once_is_read_without_the_disk() {
    with_storage((8 << 20, 16 << 20), async |storage| {
        for round in 0..3 {
            for number in 0..100 {
                put(&storage, "wide", &format!("{number:03}"), &format!("{round}"), round).await;
            }
            storage.flush(ID).await.expect("a flush");
        }
        storage.evict_cache();
        assert_eq!((storage.stats().cache_partitions, storage.stats().cache_rows), (0, 0));
        // A row that exists, and one that does not.
        for clustering in ["050", "nothing"] {
            let expected = if clustering == "050" { vec![b"2".to_vec()] } else { vec![] };
            let (rows, reads) = read(&storage, key("wide"), Some(clustering), false).await;
            assert!(rows == expected && reads > 0, "{rows:?} by {reads} reads");
            assert_eq!(read(&storage, key("wide"), Some(clustering), false).await, (expected, 0));
        }
        assert_eq!(storage.stats().cache_rows, 1);
        let (rows, reads) = read(&storage, key("wide"), None, false).await;
        assert!(rows.len() == 100 && reads > 0, "{} rows by {reads} reads", rows.len());
        assert_eq!(read(&storage, key("wide"), None, false).await, (rows, 0));
        assert_eq!(storage.stats().cache_rows, 100);
    });
}

#[test]
fn a_partition_that_is_not_there_is_looked_for_once() {
    with_storage((8 << 20, 16 << 20), async |storage| {
        // A filter that lets everything pass makes each absent key cost a read.
        for number in 0..2000 {
            put(&storage, &format!("key{number}"), "c", "value", 1).await;
        }
        storage.flush(ID).await.expect("a flush");
        let mut asked = 0;
        for number in 0..3000 {
            let absent = key(&format!("absent{number}"));
            let (rows, reads) = read(&storage, absent.clone(), None, false).await;
            assert!(rows.is_empty());
            if reads > 0 {
                asked += 1;
                assert_eq!(read(&storage, absent, None, false).await, (vec![], 0));
            }
        }
        assert!(asked > 0, "of 3000 absent keys no filter let one pass");
    });
}

#[test]
fn scans_and_reads_that_bypass_the_cache_leave_it_alone() {
    with_storage((8 << 20, 16 << 20), async |storage| {
        for number in 0..100 {
            put(&storage, &format!("key{number}"), "c", "value", 1).await;
        }
        storage.flush(ID).await.expect("a flush");
        storage.evict_cache();
        let (rows, reads) = read(&storage, PartitionRange::all(), None, false).await;
        assert!(rows.len() == 100 && reads > 0);
        for _ in 0..2 {
            let (rows, reads) = read(&storage, key("key1"), None, true).await;
            assert!(rows.len() == 1 && reads > 0, "{reads} reads");
        }
        assert_eq!(storage.stats().cache_partitions, 0);
        let (_, reads) = read(&storage, key("key1"), None, false).await;
        assert!(reads > 0);
        let (_, reads) = read(&storage, key("key1"), None, true).await;
        assert!(reads > 0, "what is cached is bypassed too");
    });
}

#[test]
fn a_table_that_says_so_is_not_cached() {
    with_storage((8 << 20, 16 << 20), async |storage| {
        let set = async |enabled: Option<bool>, revision: u64| {
            let [_, SchemaChange::CreateTable(mut definition)] = changes() else { panic!("a table") };
            definition.options.caching.enabled = enabled;
            definition.revision = revision;
            cluster::change_schema(&SchemaChange::AlterTable(definition)).await.expect("an altered table");
        };
        set(Some(false), 1).await;
        put(&storage, "key", "c", "value", 1).await;
        storage.flush(ID).await.expect("a flush");
        for _ in 0..2 {
            let (rows, reads) = read(&storage, key("key"), None, false).await;
            assert!(rows.len() == 1 && reads > 0);
        }
        assert_eq!(storage.stats().cache_partitions, 0);
        set(Some(true), 2).await;
        let (_, reads) = read(&storage, key("key"), None, false).await;
        assert!(reads > 0);
        assert_eq!(read(&storage, key("key"), None, false).await.1, 0);
    });
}

#[test]
fn truncation_forgets_what_is_cached() {
    with_storage((8 << 20, 16 << 20), async |storage| {
        put(&storage, "key", "c", "value", 1).await;
        storage.flush(ID).await.expect("a flush");
        assert_eq!(read(&storage, key("key"), None, false).await.0.len(), 1);
        for number in 0..20 {
            put(&storage, "wide", &format!("{number:02}"), "value", 1).await;
        }
        storage.flush(ID).await.expect("a flush");
        storage.truncate(ID).await.expect("a truncation");
        assert!(read(&storage, key("key"), None, false).await.0.is_empty());
        // Swept rows do not count as evicted: they were stale. The cached absence counts as evicted.
        storage.evict_cache();
        let rows = ["removals", "evictions"].map(|what| count(&format!("scylla_cache_row_{what}")));
        let partitions =
            ["removals", "evictions"].map(|what| count(&format!("scylla_cache_partition_{what}")));
        assert_eq!((rows, partitions), ([21, 0], [2, 0]));
    });
}

/// Ten times the memory's size is written and read: writers never wait for the cache, all memory together
/// keeps to the budget, and rows that are read often stay cached.
#[test]
fn memory_goes_where_it_is_needed_and_never_beyond_its_limit() {
    let (memtables, all) = (2 << 20, 3 << 20);
    with_storage((memtables, all), async move |storage| {
        let value = "x".repeat(1000);
        let check = |storage: &Storage| {
            let stats = storage.stats();
            let used = stats.memtable_bytes + stats.cache_bytes;
            assert!(used <= all, "{used} bytes of {all}: {stats:?}");
        };
        for number in 0..16_000 {
            put(&storage, &format!("key{number}"), "c", &value, 1).await;
            if number % 8 == 0 && number > 1000 {
                // Fifty rows that are read all the time.
                read(&storage, key(&format!("key{}", number / 8 % 50)), None, false).await;
            }
            if number % 97 == 0 {
                check(&storage);
            }
        }
        storage.flush(ID).await.expect("a flush");
        check(&storage);
        assert!(count("scylla_cache_partition_evictions") > 4_000);
        let mut reads = 0;
        for number in 0..50 {
            reads += read(&storage, key(&format!("key{number}")), None, false).await.1;
        }
        assert!(reads <= 10, "rows that are read all the time took {reads} disk reads");
        // The cache uses the memory that memtables leave.
        for number in 0..4_000 {
            read(&storage, key(&format!("key{number}")), None, false).await;
        }
        check(&storage);
        let stats = storage.stats();
        assert!(stats.cache_bytes > all / 2, "{stats:?}");
        assert!(stats.cache_bytes_used > stats.cache_bytes * 4 / 5, "{stats:?}");
    });
}

#[test]
fn a_wide_partition_does_not_pin_itself() {
    with_storage((2 << 20, 3 << 20), async |storage| {
        let value = "x".repeat(1000);
        for number in 0..5_000 {
            put(&storage, "wide", &format!("{number:05}"), &value, 1).await;
        }
        storage.flush(ID).await.expect("a flush");
        let (rows, _) = read(&storage, key("wide"), None, false).await;
        assert_eq!(rows.len(), 5_000);
        let rows = storage.stats().cache_rows;
        assert!((100..3_000).contains(&rows), "{rows} rows are cached");
        assert!(count("scylla_cache_row_evictions") > 2_000);
        let (rows, _) = read(&storage, key("wide"), None, false).await;
        assert_eq!(rows.len(), 5_000);
    });
}

/// Memory of a cached row of 300 bytes, including all tables and holes.
#[test]
fn a_cached_row_takes_little_more_than_its_payload() {
    with_storage((64 << 20, 96 << 20), async |storage| {
        const ROWS: usize = 30_000;
        let value = "x".repeat(271);
        let before = storage.stats().cache_bytes;
        for number in 0..ROWS {
            put(&storage, &format!("user-{number:016}"), "profile", &value, 1).await;
        }
        storage.flush(ID).await.expect("a flush");
        let stats = storage.stats();
        assert_eq!(stats.cache_rows, ROWS as u64);
        // Key, clustering, value: 300 bytes.
        let payload = 21 + 7 + 1 + 271;
        let each = (stats.cache_bytes - before) as f64 / ROWS as f64;
        println!(
            "a cached row of {payload} bytes takes {each:.1}, {:.2} times as much",
            each / payload as f64
        );
        assert!(each <= 1.3 * payload as f64, "{each} bytes for a row of {payload}");
    });
}

#[test]
fn after_a_restart_what_was_cached_is_read_back_before_anybody_asks() {
    let directory = tempfile::tempdir().expect("a directory");
    for life in 0..3 {
        let config = StorageConfig::new(directory.path(), 8 << 20);
        let list = config.saved_caches_dir.join("rows-0.db");
        reactor::run_one(reactor::Config::default(), async move {
            if life == 2 {
                // A damaged list costs only the warm cache.
                let mut bytes = reactor::file::read_all(&list, 1 << 20).await.expect("a list");
                bytes[10] ^= 1;
                reactor::file::write_all_atomic(&list, &bytes).await.expect("a damaged list");
            }
            let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
            let task = reactor::spawn(Group::STATEMENT, async move {
                if life == 0 {
                    for change in changes() {
                        cluster::change_schema(&change).await.expect("a schema change");
                    }
                    for number in 0..300 {
                        put(&storage, &format!("key{number}"), "c", "value", 1).await;
                        put(&storage, "wide", &format!("{number:03}"), "value", 1).await;
                    }
                    storage.flush(ID).await.expect("a flush");
                    storage.evict_cache();
                }
                storage.cache_prefetched().await;
                assert_eq!(count("cache_prefetch_partitions_total"), if life == 1 { 101 } else { 0 });
                let mut reads = 0;
                for number in 0..100 {
                    reads += read(&storage, key(&format!("key{number}")), None, false).await.1;
                    let row = format!("{:03}", number * 2);
                    let (rows, cost) = read(&storage, key("wide"), Some(&row), false).await;
                    assert_eq!(rows.len(), 1);
                    reads += cost;
                }
                assert_eq!(reads == 0, life == 1, "{reads} disk reads in life {life}");
                // Partitions that were not read are not cached.
                if life == 1 {
                    assert!(read(&storage, key("key200"), None, false).await.1 > 0);
                }
                storage.drain().await.expect("a drain");
            });
            task.await.expect("no panic");
        });
    }
}

/// The list is also saved periodically: after a crash the rows come back that were cached at the last save.
#[test]
fn after_a_crash_what_was_cached_at_the_last_save_is_read_back() {
    const PERIOD: Duration = Duration::from_secs(60);
    for lives_long in [false, true] {
        let mut world = World::new(5);
        let life = Rc::new(Cell::new(0));
        let lives = Rc::clone(&life);
        let node = world.add_node(1, move |_| {
            let first = lives.replace(lives.get() + 1) == 0;
            async move {
                let mut config = StorageConfig::new("/n", 8 << 20);
                config.cache_save_period = PERIOD;
                let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
                if first {
                    for change in changes() {
                        cluster::change_schema(&change).await.expect("a schema change");
                    }
                    for number in 0..20 {
                        put(&storage, &format!("key{number}"), "c", "value", 1).await;
                    }
                    storage.flush(ID).await.expect("a flush");
                    reactor::sleep(if lives_long { PERIOD * 2 } else { PERIOD / 2 }).await;
                    return;
                }
                storage.cache_prefetched().await;
                let asked = reactor::spawn(Group::STATEMENT, async move {
                    let mut reads = 0;
                    for number in 0..20 {
                        let (rows, cost) = read(&storage, key(&format!("key{number}")), None, false).await;
                        assert_eq!(rows.len(), 1);
                        reads += cost;
                    }
                    reads
                });
                let reads = asked.await.expect("no panic");
                assert_eq!(reads == 0, lives_long, "{reads} disk reads");
            }
        });
        for _ in 0..2 {
            world.run_until(|world| world.is_ended(node)).expect("an end");
            assert_eq!(world.outcome(node), Some(Ok(())), "{lives_long}");
            if life.get() == 1 {
                world.crash(node);
                world.restart(node);
            }
        }
        assert_eq!(life.get(), 2);
    }
}

/// Reads that bypass the row cache, and reads of evicted rows, use the index page that the first such read
/// cached.
#[test]
fn repeated_reads_beside_the_row_cache_cost_one_read_of_data() {
    with_storage((8 << 20, 16 << 20), async |storage| {
        for number in 0..2_000 {
            put(&storage, &format!("key{number:05}"), "c", &format!("value{number}"), 1).await;
        }
        storage.flush(ID).await.expect("a flush");
        let expected = vec![b"value7".to_vec()];
        assert_eq!(read(&storage, key("key00007"), None, true).await, (expected.clone(), 2));
        for _ in 0..3 {
            assert_eq!(read(&storage, key("key00007"), None, true).await, (expected.clone(), 1));
        }
        storage.evict_cache();
        assert_eq!(read(&storage, key("key00007"), None, false).await, (expected.clone(), 1));
        assert_eq!(read(&storage, key("key00007"), None, false).await, (expected.clone(), 0));
        let pages = |what: &str| count(&format!("scylla_sstables_index_page_cache_{what}"));
        assert_eq!((pages("misses"), pages("hits"), pages("populations"), pages("evictions")), (1, 4, 1, 0));
        let stats = storage.stats();
        assert!(stats.index_page_bytes > 0 && stats.resident_bytes > 0, "{stats:?}");
        storage.evict_index_pages();
        assert_eq!(storage.stats().index_page_bytes, 0);
        assert_eq!(read(&storage, key("key00007"), None, true).await, (expected, 2));
        // A compaction replaces these files by others, and none of their pages stay.
        put(&storage, "key00007", "c", "newer", 2).await;
        storage.flush(ID).await.expect("a flush");
        storage.compact(ID).await.expect("a compaction");
        assert_eq!(storage.stats().index_page_bytes, 0);
    });
}

/// Rows and index pages share one budget; memory for writers comes from both.
#[test]
fn pages_and_rows_give_way_to_writers_and_to_each_other() {
    with_storage((192 << 10, 320 << 10), async |storage| {
        let value = "x".repeat(60);
        let all = storage.stats().memory_bytes_max;
        let check = || {
            let stats = storage.stats();
            let used =
                stats.memtable_bytes + stats.cache_bytes + stats.index_page_bytes + stats.resident_bytes;
            assert!(used <= all, "{stats:?}");
            stats
        };
        for number in 0..6_000 {
            put(&storage, &format!("key{number:05}"), "c", &value, 1).await;
            if number % 500 == 499 {
                storage.flush(ID).await.expect("a flush");
                check();
            }
        }
        storage.compact(ID).await.expect("a compaction");
        // Reads that bypass the row cache may fill all free memory with pages.
        storage.evict_cache();
        for number in (0..6_000).step_by(7) {
            let (rows, _) = read(&storage, key(&format!("key{number:05}")), None, true).await;
            assert_eq!(rows.len(), 1);
            check();
        }
        let pages = check().index_page_bytes;
        assert!(pages > all / 8, "{pages} bytes of pages");
        // Reads of rows take that memory, down to the share of pages.
        for number in (0..6_000).step_by(3) {
            let (rows, _) = read(&storage, key(&format!("key{number:05}")), None, false).await;
            assert_eq!(rows.len(), 1);
            check();
        }
        let stats = check();
        assert!(stats.index_page_bytes < pages && stats.cache_bytes > stats.index_page_bytes, "{stats:?}");
        assert!(stats.index_page_bytes > 0, "{stats:?}");
        assert!(count("scylla_sstables_index_page_cache_evictions") > 0);
        // Writers take memory from both.
        for number in 0..800 {
            put(&storage, &format!("key{number:05}"), "c", &value, 2).await;
            check();
        }
    });
}

/// A cached row that was written again since: both contents are merged by timestamp.
#[test]
fn a_row_of_the_cache_and_of_a_memtable_is_read_without_the_disk() {
    with_storage((8 << 20, 16 << 20), async |storage| {
        for number in 0..20 {
            put(&storage, &format!("key{number}"), "c", "cached", 5).await;
            put(&storage, &format!("key{number}"), "d", "beside it", 5).await;
        }
        put(&storage, "single", "c", "cached", 5).await;
        storage.flush(ID).await.expect("a flush");
        put(&storage, "key0", "c", "newer", 6).await;
        put(&storage, "key1", "c", "older", 4).await;
        put(&storage, "key2", "e", "another row", 6).await;
        put(&storage, "single", "c", "newer", 6).await;
        let deletion = table::delete("key3", 5, 1_700_000_000);
        storage.apply(&deletion, Deadline::NEVER).await.expect("a write");
        put(&storage, "key4", "c", "", 4).await;
        let deletion = table::delete("key4", 4, 1_700_000_000);
        storage.apply(&deletion, Deadline::NEVER).await.expect("a write");
        let check = async |name: &str, clustering: Option<&str>, expected: &[&str]| {
            let expected: Vec<_> = expected.iter().map(|value| value.as_bytes().to_vec()).collect();
            assert_eq!(
                read(&storage, key(name), clustering, false).await,
                (expected, 0),
                "{name} {clustering:?}"
            );
        };
        check("key0", Some("c"), &["newer"]).await;
        check("key0", Some("d"), &["beside it"]).await;
        check("key0", None, &["newer", "beside it"]).await;
        check("key1", Some("c"), &["cached"]).await;
        check("key2", Some("c"), &["cached"]).await;
        check("key2", Some("e"), &["another row"]).await;
        check("key2", Some("f"), &[]).await;
        check("key3", Some("c"), &[]).await;
        check("key4", Some("c"), &["cached"]).await;
        check("single", Some("c"), &["newer"]).await;
        // If the row is not cached, the files are read.
        storage.evict_cache();
        let (rows, reads) = read(&storage, key("key1"), Some("c"), false).await;
        assert!(rows == [b"cached"] && reads > 0, "{rows:?} by {reads} reads");
        check("key1", Some("c"), &["cached"]).await;
    });
}

#[test]
fn a_flush_lets_others_run_while_it_puts_a_partition_of_many_rows_into_the_cache() {
    const ROWS: usize = 30_000;
    with_storage((64 << 20, 96 << 20), async |storage| {
        // In the second round the partition is cached.
        for round in 1..=2 {
            for row in 0..ROWS {
                let bytes = write("key", &format!("row{row:06}"), &format!("value {round}"), round);
                storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
            }
            let merging = storage.clone();
            let merged = reactor::spawn(Group::MEMTABLE, async move {
                storage::measuring::update_row_cache(&merging, ID).await.expect("the table");
            });
            let turns = || count_of(Group::MEMTABLE, "scylla_scheduler_tasks_processed");
            let before = turns();
            // Another task always wants to run.
            while !merged.is_finished() {
                reactor::yield_now().await;
            }
            merged.await.expect("no panic");
            let turns = turns() - before;
            // With one turn it would not have yielded; the exact number otherwise depends on the core.
            assert!(turns > 10, "{ROWS} rows in {turns} turns, round {round}");
        }
        assert_eq!(count("scylla_cache_rows_merged_from_memtable"), ROWS as u64);
    });
}
