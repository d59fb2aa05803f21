//! A start on the data directory of a Cassandra node: its tables and their rows are read, and its files stay.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use model::clustering::Slice;
use model::schema::{CompactShape, Schema};
use model::{RowView, Table, Token};
use storage::{Flow, PartitionRange, ReadCommand, RowConsumer, Storage, StorageConfig, StorageError};

/// Files of Cassandra 5.0.6 after `nodetool drain`; tests/golden/README.md describes them.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/cassandra-data/5.0");

/// Files of a node with Cassandra's profile `latest`, which writes table files of the format `bti`.
const GOLDEN_LATEST: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/cassandra-data/5.0-latest");

#[allow(clippy::disallowed_methods)]
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a list") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), &to).expect("a copy");
        }
    }
}

/// Names and contents of all files below a folder.
#[allow(clippy::disallowed_methods)]
fn files(of: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![of.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a list") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = std::fs::read(&path).expect("a file");
                found.insert(path.strip_prefix(of).expect("below it").to_owned(), bytes);
            }
        }
    }
    found
}

#[allow(clippy::disallowed_methods)]
fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(path, bytes).expect("a file");
}

/// A folder with a copy of Cassandra's files, and the configuration of a node that starts there.
fn cassandra() -> (tempfile::TempDir, StorageConfig) {
    cassandra_of(GOLDEN)
}

fn cassandra_of(golden: &str) -> (tempfile::TempDir, StorageConfig) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut config = StorageConfig::new(directory.path(), 8 << 20);
    config.auto_compaction = false;
    copy(Path::new(golden), &config.data_dir);
    (directory, config)
}

/// Starts a node of several shards, one after the other in one thread, and runs `test` on shard 0.
fn start<R: 'static>(
    config: &StorageConfig,
    test: impl AsyncFnOnce(Storage) -> R + 'static,
) -> Result<R, StorageError> {
    let result = Rc::new(std::cell::RefCell::new(None));
    let (shared, config) = (Rc::clone(&result), config.clone());
    reactor::run_one(reactor::Config::default(), async move {
        let opened = match cluster::open_storage(config, 0, 1).await {
            Ok(storage) => {
                let answer = test(storage.clone()).await;
                storage.drain().await.expect("a drain");
                Ok(answer)
            }
            Err(error) => Err(error),
        };
        *shared.borrow_mut() = Some(opened);
    });
    result.borrow_mut().take().expect("a result")
}

#[derive(Default)]
struct Rows {
    partitions: usize,
    rows: Vec<Vec<u8>>,
    statics: usize,
}

impl RowConsumer for Rows {
    fn partition(&mut self, _: &[u8], _: Token, row: Option<RowView<'_>>) -> Flow {
        self.partitions += 1;
        self.statics += usize::from(row.is_some());
        Flow::Continue
    }
    fn row(&mut self, _: &[u8], row: RowView<'_>) -> Flow {
        self.rows.push(row.as_bytes().to_vec());
        Flow::Continue
    }
    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

/// All rows of a table.
async fn read(storage: &Storage, table: &Rc<Table>) -> Rows {
    let command = ReadCommand {
        table: Rc::clone(table),
        range: PartitionRange::all(),
        slices: [Slice::all()].into_iter().collect(),
        reversed: false,
        now: 1_795_300_000,
        bypass_cache: false,
    };
    let mut rows = Rows::default();
    storage.read(&command, &mut rows).await.expect("a read");
    rows
}

fn table(schema: &Schema, keyspace: &str, name: &str) -> Rc<Table> {
    Rc::clone(schema.table(keyspace, name).unwrap_or_else(|| panic!("no table {keyspace}.{name}")))
}

/// Partitions, static rows and rows of each table.
async fn counts(storage: &Storage) -> Vec<(usize, usize, usize)> {
    let schema = storage.schema();
    let mut counts = Vec::new();
    for (keyspace, name) in [("shop", "orders"), ("shop", "visits"), ("Mixed", "Names")] {
        let rows = read(storage, &table(&schema, keyspace, name)).await;
        counts.push((rows.partitions, rows.statics, rows.rows.len()));
    }
    counts
}

/// The inserted rows: 60 orders of 7 customers, of which c3 (9 orders) was deleted.
const EXPECTED: [(usize, usize, usize); 3] = [(6, 6, 51), (5, 0, 5), (60, 0, 60)];

#[test]
fn tables_and_rows_are_there_and_cassandras_files_stay() {
    let (_directory, config) = cassandra();
    let before = files(&config.data_dir);
    start(&config, async |storage| {
        assert_eq!(counts(&storage).await, EXPECTED);
        let schema = storage.schema();
        assert_eq!(schema.tables().count(), 3);
        let orders = table(&schema, "shop", "orders");
        assert_eq!(orders.id().to_string(), "339cf6e0-e5a7-11f1-a326-e90aec4af046");
        let shown = |table: &Table| -> Vec<String> {
            table.columns().map(|column| format!("{} {} {:?}", column.name, column.ty, column.kind)).collect()
        };
        assert_eq!(
            shown(&orders),
            [
                "customer text PartitionKey",
                "day date Clustering",
                "number int Clustering",
                "note text Static",
                "extra bigint Regular",
                "total decimal Regular",
                "who frozen<person> Regular",
                "items map<text, int> Regular",
                "tags set<text> Regular",
            ]
        );
        let days: Vec<bool> = orders.clustering().iter().map(|column| column.reversed).collect();
        assert_eq!(days, [true, false]);
        let dropped = &orders.definition().dropped;
        assert_eq!(dropped.keys().collect::<Vec<_>>(), ["gone"]);
        let options = orders.options();
        assert_eq!((options.comment.as_str(), options.gc_grace_seconds), ("orders of customers", 3600));
        assert_eq!(options.compaction["sstable_size_in_mb"], "10");
        assert_eq!(options.compression["class"], "org.apache.cassandra.io.compress.ZstdCompressor");
        assert_eq!((options.compact, orders.tablets().count()), (None::<CompactShape>, 1));
        assert_eq!(
            shown(&table(&schema, "Mixed", "Names")),
            ["Key uuid PartitionKey", "t frozen<tuple<int, text>> Regular", "v vector<float, 3> Regular"]
        );
        assert_eq!(
            shown(&table(&schema, "shop", "visits")),
            ["page text PartitionKey", "hits counter Regular"]
        );
        let keyspace = schema.keyspace("Mixed").expect("the keyspace");
        assert!(!keyspace.options.durable_writes);
        assert_eq!(keyspace.options.replication["datacenter1"], "1");
        assert_eq!(
            schema.keyspace("shop").expect("the keyspace").types.keys().collect::<Vec<_>>(),
            ["address", "person"]
        );
    })
    .expect("a start");
    let after = files(&config.data_dir);
    assert!(
        before.iter().all(|(path, bytes)| after.get(path) == Some(bytes)),
        "Cassandra's files are as they were"
    );
    let own: Vec<_> = after.keys().filter(|path| !before.contains_key(*path)).collect();
    assert!(own.iter().all(|path| path.to_string_lossy().contains("/me-")), "and only ours came: {own:?}");
    // It is done once: the next start reads the node's own files and takes nothing in.
    start(&config, async |storage| {
        assert_eq!(counts(&storage).await, EXPECTED);
        assert_eq!(storage.stats().tables.iter().map(|table| table.files).sum::<usize>(), 4);
        let schema = storage.schema();
        for keyspace in ["shop", "Mixed"] {
            for table in schema.keyspace(keyspace).expect("the keyspace").tables.values() {
                storage.compact(table.id()).await.expect("a compaction");
            }
        }
        assert_eq!(counts(&storage).await, EXPECTED);
    })
    .expect("a start");
    let after = files(&config.data_dir);
    assert!(before.iter().all(|(path, bytes)| after.get(path) == Some(bytes)));
}

/// Cassandra's profile `latest`: schema, rows and counters are in files that have tries instead of an index.
#[test]
fn files_of_bti_are_taken_over_and_taken_in() {
    let (_directory, config) = cassandra_of(GOLDEN_LATEST);
    let before = files(&config.data_dir);
    assert!(!before.keys().any(|path| path.to_string_lossy().contains("-big-")));
    start(&config, async |storage| assert_eq!(counts(&storage).await, EXPECTED)).expect("a start");
    let after = files(&config.data_dir);
    assert!(before.iter().all(|(path, bytes)| after.get(path) == Some(bytes)));
    // The same files by `refresh`, which removes files it has taken in.
    let folder = config.data_dir.join("shop/orders-2a544e50e5dc11f1ab6a5f55d3814023");
    start(&config, async move |storage| {
        let id = table(&storage.schema(), "shop", "orders").id();
        storage.truncate(id).await.expect("a truncation");
        assert_eq!(counts(&storage).await[0], (0, 0, 0));
        let upload = folder.join("upload");
        for (path, bytes) in files(&folder) {
            let name = path.to_string_lossy().into_owned();
            if name.starts_with("da-") && !name.contains("SAI") {
                write(&upload.join(name), &bytes);
            }
        }
        let report = storage.import(id, &storage::ImportSource::default()).await.expect("an import");
        assert!(report.files > 0 && files(&upload).is_empty(), "{report:?}");
        assert_eq!(counts(&storage).await, EXPECTED);
    })
    .expect("a start");
}

#[test]
fn a_takeover_that_was_cut_off_goes_on() {
    let (_directory, config) = cassandra();
    start(&config, async |_| ()).expect("a start");
    // As if the process had ended while the second table was taken in: it is on the list, its links exist.
    let list = "ceto takeover 1\nshop/orders-339cf6e0e5a711f1a326e90aec4af046\nshop/gone-00000000000000000000000000000000\n";
    write(&config.schema_dir.join("takeover"), list.as_bytes());
    let staged = config.data_dir.join("shop/orders-339cf6e0e5a711f1a326e90aec4af046/takeover");
    write(&staged.join("nb-1-big-Data.db"), b"half");
    start(&config, async |storage| assert_eq!(counts(&storage).await, EXPECTED)).expect("a start");
    assert!(!staged.exists() && !config.schema_dir.join("takeover").exists());
    // As if it had ended before the schema log was written: everything begins again.
    let (_directory, config) = cassandra();
    write(&config.schema_dir.join("takeover"), list.as_bytes());
    start(&config, async |storage| assert_eq!(counts(&storage).await, EXPECTED)).expect("a start");
}

/// Names of Cassandra's table files below the tables that are taken over.
fn theirs(config: &StorageConfig) -> Vec<PathBuf> {
    let all = files(&config.data_dir.join("shop"));
    all.into_keys().filter(|path| path.to_string_lossy().contains("/nb-")).collect()
}

#[test]
fn a_takeover_that_keeps_nothing_removes_each_file_once_its_rows_are_there_also_after_a_crash() {
    let (_directory, config) = cassandra();
    assert!(!theirs(&config).is_empty());
    start(&config, async |_| ()).expect("a start");
    assert!(!theirs(&config).is_empty(), "they stay unless it is said");
    let (_directory, mut config) = cassandra();
    config.takeover_keeps_files = false;
    start(&config, async |storage| assert_eq!(counts(&storage).await, EXPECTED)).expect("a start");
    assert_eq!(theirs(&config), Vec::<PathBuf>::new());
    // Interrupted while it removed a file whose rows were taken in: the rest of it is removed, and nothing is
    // missing.
    let visits = visits_of(&config).strip_prefix(&config.data_dir).unwrap().to_owned();
    write(&config.schema_dir.join("takeover"), format!("ceto takeover 1\n{}\n", visits.display()).as_bytes());
    for component in ["Data.db", "Index.db"] {
        write(&visits_of(&config).join(format!("nb-1-big-{component}")), b"left over");
    }
    start(&config, async |storage| assert_eq!(counts(&storage).await, EXPECTED)).expect("a start");
    assert_eq!(theirs(&config), Vec::<PathBuf>::new());
    assert!(!config.schema_dir.join("takeover").exists());
}

/// Cassandra's files stay beside the node's: they are no reason to begin anew.
#[test]
#[allow(clippy::disallowed_methods)]
fn a_node_that_lost_its_schema_is_not_taken_over_a_second_time() {
    let (_directory, config) = cassandra();
    start(&config, async |_| ()).expect("a start");
    let (group0, aside) = (config.group0_dir(), config.schema_dir.join("aside"));
    std::fs::rename(&group0, &aside).unwrap();
    let before = files(&config.data_dir);
    for _ in 0..2 {
        let error = start(&config, async |_| ()).expect_err("a node without its schema").to_string();
        assert!(error.contains(&group0.display().to_string()), "{error}");
        assert_eq!(files(&config.data_dir), before);
        for name in ["schema.log", "takeover", "group0"] {
            assert!(!config.schema_dir.join(name).exists(), "{name} was made");
        }
    }
    std::fs::rename(&aside, &group0).unwrap();
    start(&config, async |storage| assert_eq!(counts(&storage).await, EXPECTED)).expect("a start");
}

/// Data that cannot be read is refused by name, and nothing is made.
#[test]
fn what_cannot_be_taken_over_is_refused_and_nothing_changes() {
    let check = |spoil: &dyn Fn(&StorageConfig), expected: &[&str]| {
        let (_directory, config) = cassandra();
        spoil(&config);
        let before = files(&config.data_dir);
        let error = start(&config, async |_| ()).expect_err("a refusal").to_string();
        for part in expected {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(files(&config.data_dir), before);
        assert!(!config.schema_dir.join("schema.log").exists() && !config.group0_dir().exists());
    };
    let visits =
        |config: &StorageConfig| config.data_dir.join("shop/visits-348e5bc0e5a711f1a326e90aec4af046");
    check(
        &|config| write(&visits(config).join("db-3-bti-Data.db"), b"x"),
        &["visits-", "db-3-bti-Data.db", "upgradesstables"],
    );
    check(
        &|config| write(&visits(config).join("ob-3gvw_0tnp_4uzhc2kxaz8hsqtwo4-big-Data.db"), b"x"),
        &["ob-3gvw", "a version of ma to oa"],
    );
    check(
        &|config| write(&visits(config).join("nb-9-big-Data.db"), b"x"),
        &["visits-", "nb-9-big-Data.db", "not whole"],
    );
    check(
        &|config| write(&visits(config).join("nb_txn_compaction_1.log"), b"x"),
        &["nb_txn_compaction_1.log", "drain"],
    );
    check(
        &|config| write(&visits(config).join("nb-1-big-Statistics.db"), b"not statistics"),
        &["nb-1-big-Data.db", "shop.visits"],
    );
    // A commit log with a write of shop.visits.
    let mut segment = 7u32.to_be_bytes().to_vec();
    segment.extend_from_slice(&[0; 8]);
    segment.extend_from_slice(&[0, 2, b'{', b'}', 1, 2, 3, 4]);
    segment.extend_from_slice(&[0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0, 1]);
    segment.extend_from_slice(b"\x34\x8e\x5b\xc0\xe5\xa7\x11\xf1\xa3\x26\xe9\x0a\xec\x4a\xf0\x46");
    segment.resize(4096, 0);
    check(
        &|config| write(&config.commitlog_dir.join("CommitLog-7-1.log"), &segment),
        &["CommitLog-7-1.log", "writes of shop.visits", "nodetool drain"],
    );
}

/// Cassandra 4.1 and later may name files by a text; Cassandra 3.11 names them as this node does.
#[test]
fn files_keep_apart_whatever_their_names() {
    let (_directory, config) = cassandra();
    let names = config.data_dir.join("Mixed/Names-34e57c70e5a711f1a326e90aec4af046");
    let rename = |from: &str, to: &str| {
        for (path, bytes) in files(&names) {
            let name = path.to_string_lossy().into_owned();
            if let Some(component) = name.strip_prefix(from) {
                write(&names.join(format!("{to}{component}")), &bytes);
                #[allow(clippy::disallowed_methods)]
                std::fs::remove_file(names.join(&name)).expect("removed");
            }
        }
    };
    rename("nb-1-big", "nb-3gvw_0tnp_4uzhc2kxaz8hsqtwo4-big");
    // A file of 3.11 under a number that this node would use next.
    copy(&Path::new(GOLDEN).join("../../sstable/me/lz4"), &config.data_dir.join("spare"));
    for (path, bytes) in files(&config.data_dir.join("spare")) {
        let name = path.to_string_lossy().into_owned();
        if let Some((_, component)) = name.split_once("-big-") {
            write(&visits_of(&config).join(format!("me-1-big-{component}")), &bytes);
        }
    }
    #[allow(clippy::disallowed_methods)]
    std::fs::remove_dir_all(config.data_dir.join("spare")).expect("removed");
    let refused = start(&config, async |_| ()).expect_err("a file of another table").to_string();
    assert!(refused.contains("me-1-big-Data.db") && refused.contains("shop.visits"), "{refused}");
    #[allow(clippy::disallowed_methods)]
    for (path, _) in files(&visits_of(&config)) {
        if path.to_string_lossy().starts_with("me-") {
            std::fs::rename(visits_of(&config).join(&path), config.schema_dir.parent().unwrap().join(&path))
                .expect("moved");
        }
    }
    start(&config, async |storage| assert_eq!(counts(&storage).await, EXPECTED)).expect("a start");
    // A file put there later is left alone, and its number is not used.
    #[allow(clippy::disallowed_methods)]
    for (path, _) in files(config.schema_dir.parent().unwrap()) {
        if path.to_string_lossy().starts_with("me-") {
            let number = path.to_string_lossy().replace("me-1-", "me-70-");
            std::fs::rename(config.schema_dir.parent().unwrap().join(&path), visits_of(&config).join(number))
                .expect("moved");
        }
    }
    let before = files(&visits_of(&config));
    start(&config, async |storage| {
        assert_eq!(counts(&storage).await, EXPECTED);
        let visits = table(&storage.schema(), "shop", "visits").id();
        storage.compact(visits).await.expect("a compaction");
        assert_eq!(counts(&storage).await, EXPECTED);
    })
    .expect("a start");
    let after = files(&visits_of(&config));
    let theirs = before.iter().filter(|(path, _)| path.to_string_lossy().starts_with("me-70-"));
    assert!(
        theirs.clone().count() > 5 && theirs.into_iter().all(|(path, bytes)| after.get(path) == Some(bytes))
    );
    assert!(after.keys().any(|path| path.to_string_lossy().starts_with("me-71-")), "{:?}", after.keys());
}

fn visits_of(config: &StorageConfig) -> PathBuf {
    config.data_dir.join("shop/visits-348e5bc0e5a711f1a326e90aec4af046")
}
