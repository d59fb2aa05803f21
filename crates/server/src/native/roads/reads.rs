//! SELECTs of one row: rows of every kind, on either shard, wherever storage has them.

use model::partition_key::{DecoratedKey, append_component};
use query::{Engine, EngineConfig};
use wire::client::{Parameters, RequestOptions, ResponseBody};
use wire::consistency::Consistency;
use wire::version::ProtocolVersion;

use super::client::{Client, Clients, Value, int, text};
use super::{Answers, SHARDS, evict, flush};

/// A table whose rows have `v int` and `w text`.
pub(super) struct Table {
    pub(super) name: &'static str,
    definition: &'static str,
    /// Columns of the primary key.
    columns: &'static [&'static str],
    /// Values of the partition key that a number stands for.
    key: fn(i32) -> Vec<Value>,
    /// Whether rows have a clustering column.
    clustered: bool,
}

pub(super) const TABLES: [Table; 5] = [
    Table {
        name: "plain",
        definition: "(k int PRIMARY KEY, v int, w text)",
        columns: &["k"],
        key: |key| vec![int(key)],
        clustered: false,
    },
    Table {
        name: "wide",
        definition: "(k int, c int, v int, w text, PRIMARY KEY (k, c))",
        columns: &["k", "c"],
        key: |key| vec![int(key)],
        clustered: true,
    },
    Table {
        name: "pair",
        definition: "(a int, b text, c int, v int, w text, PRIMARY KEY ((a, b), c)) WITH CLUSTERING ORDER BY (c DESC)",
        columns: &["a", "b", "c"],
        key: |key| vec![int(key), text("key")],
        clustered: true,
    },
    Table {
        name: "static",
        definition: "(k int, c int, s text static, v int, w text, PRIMARY KEY (k, c))",
        columns: &["k", "c"],
        key: |key| vec![int(key)],
        clustered: true,
    },
    Table {
        name: "uncached",
        definition: "(k int, c int, v int, w text, PRIMARY KEY (k, c)) WITH caching = {'enabled': 'false'}",
        columns: &["k", "c"],
        key: |key| vec![int(key)],
        clustered: true,
    },
];

pub(super) const NAMES: [&str; 5] = ["plain", "wide", "pair", "static", "uncached"];

/// Kinds of rows: how each is written first, and how it is written again. `$` stands for the table, `#` for
/// the restrictions, `!` for an INSERT's columns and values, `@` for a long text.
const KINDS: [(&str, &[&str], &str); 12] = [
    ("live", &[INSERT], "UPDATE $ USING TIMESTAMP 20 SET v = 9 WHERE #"),
    (
        "with a dead cell",
        &[INSERT, "DELETE v FROM $ USING TIMESTAMP 11 WHERE #"],
        "UPDATE $ USING TIMESTAMP 20 SET w = 'new' WHERE #",
    ),
    ("deleted", &[INSERT, "DELETE FROM $ USING TIMESTAMP 11 WHERE #"], ""),
    (
        "expired",
        &["INSERT INTO $ ! USING TIMESTAMP 10 AND TTL 5"],
        "UPDATE $ USING TIMESTAMP 20 SET v = 4 WHERE #",
    ),
    ("expired for good", &["INSERT INTO $ ! USING TIMESTAMP 10 AND TTL 5"], ""),
    (
        "expiring",
        &["INSERT INTO $ ! USING TIMESTAMP 10 AND TTL 100000000"],
        "DELETE v FROM $ USING TIMESTAMP 20 WHERE #",
    ),
    (
        "without a marker",
        &["UPDATE $ USING TIMESTAMP 10 SET v = 3 WHERE #"],
        "DELETE FROM $ USING TIMESTAMP 20 WHERE #",
    ),
    (
        "of dead cells",
        &[
            "UPDATE $ USING TIMESTAMP 10 SET v = 3 WHERE #",
            "UPDATE $ USING TIMESTAMP 11 SET v = null WHERE #",
        ],
        "INSERT INTO $ ! USING TIMESTAMP 20",
    ),
    ("long", &[INSERT, "UPDATE $ USING TIMESTAMP 10 SET w = '@20@' WHERE #"], ""),
    (
        "longer",
        &["UPDATE $ USING TIMESTAMP 10 SET w = '@80@' WHERE #"],
        "UPDATE $ USING TIMESTAMP 20 SET v = 9 WHERE #",
    ),
    ("longest", &["UPDATE $ USING TIMESTAMP 10 SET w = '@200@' WHERE #"], ""),
    ("absent", &[], ""),
];
const INSERT: &str = "INSERT INTO $ ! USING TIMESTAMP 10";

/// The kind of rows that expire at once: they are written in 1970.
const EXPIRED: &str = "expired";
const LONG_AGO_S: u32 = 1000;

/// What a client reads.
const SELECTS: [&str; 7] = [
    "SELECT v, w FROM $ WHERE #",
    "SELECT * FROM $ WHERE #",
    "SELECT w FROM $ WHERE # BYPASS CACHE",
    "SELECT v FROM $ WHERE # LIMIT 1",
    "SELECT v FROM $ WHERE # PER PARTITION LIMIT 1",
    "SELECT v, writetime(v) FROM $ WHERE #",
    "SELECT w FROM $ WHERE # USING TIMEOUT 5m",
];
/// The first of them that may take the quick road.
const QUICK: usize = 2;
const PAGE_SIZES: [Option<i32>; 4] = [None, Some(1), Some(2), Some(5000)];

/// Where storage has the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Memtable,
    Cache,
    Both,
    /// In table files alone, each time.
    Disk,
    /// In table files; the cache gets row after row.
    Partly,
}

impl Table {
    /// Columns of the primary key.
    pub(super) fn columns(&self) -> &'static [&'static str] {
        self.columns
    }

    /// The statement, with this table's names.
    pub(super) fn fill(&self, statement: &str) -> String {
        let columns = self.columns.join(", ");
        let marks = vec!["?"; self.columns.len()].join(", ");
        let restrictions: Vec<_> = self.columns.iter().map(|column| format!("{column} = ?")).collect();
        let mut filled = statement
            .replace('$', &format!("ks.{}", self.name))
            .replace('#', &restrictions.join(" AND "))
            .replace('!', &format!("({columns}, v, w) VALUES ({marks}, 1, 'some text')"));
        for thousands in [20, 80, 200] {
            filled = filled.replace(&format!("@{thousands}@"), &"long".repeat(thousands * 256));
        }
        filled
    }

    pub(super) async fn create(&self, client: &mut Client) {
        client.run(&format!("CREATE TABLE ks.{} {}", self.name, self.definition), None).await;
    }

    /// The first numbers whose partitions are on a shard.
    pub(super) fn keys_on(&self, engine: &Engine, shard: usize, count: usize) -> Vec<i32> {
        let schema = engine.storage().schema();
        let table = schema.table("ks", self.name).expect("it was created");
        let is_there = |number: &i32| {
            let mut key = Vec::new();
            let values = (self.key)(*number);
            for value in &values {
                let Value::Bytes(value) = value else { continue };
                append_component(&mut key, values.len(), value).expect("a short key");
            }
            usize::from(engine.replicator().replica_of(table, DecoratedKey::new(key).token).shard) == shard
        };
        (0..).filter(is_there).take(count).collect()
    }

    /// The primary key of the row of a number, and of a kind.
    pub(super) fn row(&self, keys: &[i32], kind: usize) -> Vec<Value> {
        if self.clustered {
            [(self.key)(keys[0]), vec![int(kind as i32)]].concat()
        } else {
            (self.key)(keys[kind])
        }
    }
}

/// Keys of each table on each shard: one for each kind of row, and one that no row has.
pub(super) type Keys = Vec<[Vec<i32>; SHARDS]>;

/// Creates the tables.
pub(super) async fn tables(client: &mut Client, engine: &Engine) -> Keys {
    client
        .run(
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            None,
        )
        .await;
    let mut keys = Vec::new();
    for table in &TABLES {
        table.create(client).await;
        keys.push([0, 1].map(|shard| table.keys_on(engine, shard, KINDS.len() + 1)));
    }
    keys
}

async fn write(client: &mut Client, table: &Table, row: &[Value], statement: &str, now: Option<u32>) {
    let parameters = Parameters { now_in_seconds: now, ..Parameters::at(Consistency::One) };
    let statement = table.fill(statement);
    let answer = client.query(&statement, row, &parameters).await;
    client.read(&answer, |body| assert!(matches!(body, ResponseBody::Void), "{statement}: {body:?}"));
}

/// Asks for one row in one way.
struct Asking<'a> {
    client: &'a mut Client,
    /// What was asked, but for the details.
    what: String,
    id: (&'a [u8], &'a [u8]),
    answers: &'a mut Answers,
}

impl Asking<'_> {
    async fn ask(&mut self, row: &[Value], detail: &str, parameters: &Parameters<'_>) {
        let options = RequestOptions::default();
        let answer = self.client.execute(self.id, row, parameters, &options).await;
        self.answers.push((format!("{}: {}, {detail}", self.client.name, self.what), answer));
    }
}

/// Every row in every way, wherever it is.
pub(super) async fn all(mut clients: Clients, engine: Engine) -> Answers {
    let keys = tables(clients.latest(), &engine).await;
    let mut answers = Answers::new();
    for (table, keys) in TABLES.iter().zip(&keys) {
        for keys in keys {
            for (kind, (name, statements, _)) in KINDS.iter().enumerate() {
                let row = table.row(keys, kind);
                for statement in *statements {
                    let now = name.starts_with(EXPIRED).then_some(LONG_AGO_S);
                    write(clients.latest(), table, &row, statement, now).await;
                }
            }
        }
    }
    for place in [Place::Memtable, Place::Cache, Place::Both, Place::Disk, Place::Partly] {
        match place {
            Place::Memtable => {}
            Place::Both => {
                for (table, keys) in TABLES.iter().zip(&keys) {
                    for keys in keys {
                        for (kind, (_, _, again)) in
                            KINDS.iter().enumerate().filter(|(_, kind)| !kind.2.is_empty())
                        {
                            write(clients.latest(), table, &table.row(keys, kind), again, None).await;
                        }
                    }
                }
            }
            Place::Cache | Place::Disk | Place::Partly => flush(&engine, &NAMES).await,
        }
        for (table, keys) in TABLES.iter().zip(&keys) {
            for (at, select) in SELECTS.iter().enumerate() {
                // All rows and places with the first two, which may take the quick road.
                if at >= QUICK && !matches!(place, Place::Memtable | Place::Cache) {
                    continue;
                }
                let statement = table.fill(select);
                for client in &mut clients.0 {
                    if client.version() >= ProtocolVersion::V5 || (at == 0 && place != Place::Disk) {
                        each_row(client, (table, keys), &statement, place, &engine, &mut answers).await;
                    }
                }
            }
            let statement = table.fill(SELECTS[0]);
            for client in &mut clients.0 {
                if client.version() >= ProtocolVersion::V5 || place == Place::Memtable {
                    levels(client, (table, keys), &statement, place, &engine, &mut answers).await;
                }
            }
        }
    }
    for (table, keys) in TABLES.iter().zip(&keys) {
        for client in &mut clients.0 {
            wrong_values(client, (table, keys), &mut answers).await;
            other_parameters(client, (table, keys), &mut answers).await;
        }
        answers.extend(counted(clients.latest(), "read", table).await);
    }
    answers
}

/// Rows of every kind in pages of every size. Some of both are enough for older versions, which differ in
/// how an answer is put together and not in what is read, for files, which take their time, and for other
/// shards.
async fn each_row(
    client: &mut Client,
    (table, keys): (&Table, &[Vec<i32>; SHARDS]),
    statement: &str,
    place: Place,
    engine: &Engine,
    answers: &mut Answers,
) {
    let (id, metadata_id) = client.prepare(statement).await;
    let latest = client.version() >= ProtocolVersion::V5;
    let (few_pages, in_memory) = ([None, Some(1)], !matches!(place, Place::Disk | Place::Partly));
    for (shard, keys) in keys.iter().enumerate() {
        for page_size in PAGE_SIZES {
            if !(few_pages.contains(&page_size) || (latest && in_memory)) {
                continue;
            }
            if place == Place::Partly {
                evict(engine, shard).await;
            }
            for (kind, (name, ..)) in KINDS.iter().enumerate() {
                let is_usual = matches!(*name, "live" | "deleted" | "expired" | "longest" | "absent");
                if !is_usual && (!latest || (shard > 0 && place != Place::Memtable)) {
                    continue;
                }
                if place == Place::Disk {
                    evict(engine, shard).await;
                }
                let what = format!("{statement}, row {name}, shard {shard}, {place:?}");
                let mut asking = Asking { client, what, id: (&id, &metadata_id), answers };
                let parameters = Parameters { page_size, ..Parameters::at(Consistency::One) };
                let detail = format!("pages of {page_size:?}");
                asking.ask(&table.row(keys, kind), &detail, &parameters).await;
            }
        }
    }
}

/// Every consistency level, with serial levels beside it.
async fn levels(
    client: &mut Client,
    (table, keys): (&Table, &[Vec<i32>; SHARDS]),
    statement: &str,
    place: Place,
    engine: &Engine,
    answers: &mut Answers,
) {
    let (id, metadata_id) = client.prepare(statement).await;
    for (shard, keys) in keys.iter().enumerate() {
        for level in Consistency::ALL {
            if matches!(place, Place::Disk | Place::Partly) {
                evict(engine, shard).await;
            }
            let what = format!("{statement}, shard {shard}, {place:?}");
            let mut asking = Asking { client, what, id: (&id, &metadata_id), answers };
            let serial_consistency = Some(Consistency::LocalSerial);
            let parameters = Parameters { serial_consistency, ..Parameters::at(level) };
            asking.ask(&table.row(keys, 0), &format!("{level:?}"), &parameters).await;
        }
    }
}

/// Values that are not of their types, and wrong numbers of values.
async fn wrong_values(
    client: &mut Client,
    (table, keys): (&Table, &[Vec<i32>; SHARDS]),
    answers: &mut Answers,
) {
    let statement = table.fill(SELECTS[0]);
    let (id, metadata_id) = client.prepare(&statement).await;
    for (shard, keys) in keys.iter().enumerate() {
        let right = table.row(keys, 0);
        for (detail, values) in wrong(&right) {
            let what = format!("{statement}, shard {shard}");
            let mut asking = Asking { client, what, id: (&id, &metadata_id), answers };
            asking.ask(&values, &detail, &Parameters::at(Consistency::One)).await;
        }
    }
}

/// Values of which one is wrong each time, and values that are too few or too many.
pub(super) fn wrong(right: &[Value]) -> Vec<(String, Vec<Value>)> {
    let bytes = |length: usize, byte: u8| Value::Bytes(vec![byte; length]);
    let each = [
        ("null", Value::Null),
        ("unset", Value::Unset),
        ("empty", bytes(0, 0)),
        ("3 bytes", bytes(3, 0)),
        ("5 bytes", bytes(5, 0)),
        ("no text", bytes(4, 0xff)),
        ("65535 bytes", bytes(65_535, b'x')),
        ("65536 bytes", bytes(65_536, b'x')),
    ];
    let mut all = vec![
        ("no values".to_owned(), Vec::new()),
        ("one value less".to_owned(), right[1..].to_vec()),
        ("one value more".to_owned(), [right, &right[..1]].concat()),
    ];
    for at in 0..right.len() {
        for (name, value) in &each {
            let mut values = right.to_vec();
            values[at] = value.clone();
            all.push((format!("value {at} is {name}"), values));
        }
    }
    let nulls = vec![Value::Null; right.len()];
    all.push(("all values are null".to_owned(), nulls));
    all
}

/// What a request may carry besides: metadata ids, names, payloads, another time, paging states.
async fn other_parameters(
    client: &mut Client,
    (table, keys): (&Table, &[Vec<i32>; SHARDS]),
    answers: &mut Answers,
) {
    let statement = table.fill(SELECTS[1]);
    let (id, metadata_id) = client.prepare(&statement).await;
    let one = Parameters::at(Consistency::One);
    let latest = client.version() >= ProtocolVersion::V5;
    for (shard, keys) in keys.iter().enumerate() {
        let row = table.row(keys, 0);
        for known in [&metadata_id[..], &[7; 16], &[]] {
            for skip_metadata in [false, true] {
                for page_size in [None, Some(1)] {
                    let what = format!("{statement}, shard {shard}");
                    let mut asking = Asking { client, what, id: (&id, known), answers };
                    let parameters = Parameters { skip_metadata, page_size, ..one };
                    asking
                        .ask(&row, &format!("{known:?}, {skip_metadata}, {page_size:?}"), &parameters)
                        .await;
                }
            }
        }
        let what = format!("{statement}, shard {shard}");
        let mut asking = Asking { client, what, id: (&id, &metadata_id), answers };
        let names = if table.columns.len() == row.len() { table.columns } else { &[] };
        asking.ask(&row, "names", &Parameters { names, ..one }).await;
        asking.ask(&row, "no names", &Parameters { names: &["x", "y", "z"][..row.len()], ..one }).await;
        asking.ask(&row, "a paging state", &Parameters { paging_state: Some(b"\x01\x02"), ..one }).await;
        asking.ask(&row, "pages of -1", &Parameters { page_size: Some(-1), ..one }).await;
        asking.ask(&row, "pages of 0", &Parameters { page_size: Some(0), ..one }).await;
        if latest {
            asking.ask(&row, "a keyspace", &Parameters { keyspace: Some("other"), ..one }).await;
            for (kind, (name, ..)) in KINDS.iter().enumerate() {
                let row = table.row(keys, kind);
                for now in [10, LONG_AGO_S + 4, LONG_AGO_S + 5, 2_147_483_646] {
                    let parameters = Parameters { now_in_seconds: Some(now), ..one };
                    asking.ask(&row, &format!("row {name}, now {now}"), &parameters).await;
                }
            }
        }
        let custom_payload: &[(&str, Option<&[u8]>)] = &[("a", Some(b"b"))];
        if client.version() >= ProtocolVersion::V4 {
            let options = RequestOptions { custom_payload, ..RequestOptions::default() };
            let answer = client.execute((&id, &metadata_id), &row, &one, &options).await;
            answers.push((format!("{}: {statement}, shard {shard}, a payload", client.name), answer));
        }
        for page_size in PAGE_SIZES {
            let answer = client.query(&statement, &row, &Parameters { page_size, ..one }).await;
            answers.push((
                format!("{}: {statement}, shard {shard}, as text, {page_size:?}", client.name),
                answer,
            ));
        }
    }
}

/// How many requests of a kind a table had.
pub(super) async fn counted(client: &mut Client, kind: &str, table: &Table) -> Answers {
    let asked = format!(
        "SELECT count FROM system_views.coordinator_{kind}_latency WHERE keyspace_name = 'ks' AND table_name = '{}'",
        table.name
    );
    let answer = client.query(&asked, &[], &Parameters::at(Consistency::One)).await;
    vec![(asked, answer)]
}

/// Guardrails that warn of some of the requests of [`guarded`] and refuse others.
pub(super) fn guard(config: &mut EngineConfig) {
    config.guardrails.page_size.warn = Some(1);
    config.guardrails.page_size.fail = Some(4000);
    config.guardrails.read_levels.warned = vec![Consistency::Quorum];
    config.guardrails.read_levels.disallowed = vec![Consistency::All];
    config.guardrails.tombstones.warn = Some(0);
}

/// Rows of every kind, in pages and at levels that guardrails are about.
pub(super) async fn guarded(mut clients: Clients, engine: Engine) -> Answers {
    let keys = tables(clients.latest(), &engine).await;
    let mut answers = Answers::new();
    for (table, keys) in TABLES.iter().zip(&keys) {
        for keys in keys {
            for (kind, (_, statements, _)) in KINDS.iter().enumerate() {
                for statement in *statements {
                    write(clients.latest(), table, &table.row(keys, kind), statement, None).await;
                }
            }
        }
        let statement = table.fill(SELECTS[0]);
        for client in &mut clients.0 {
            each_row(client, (table, keys), &statement, Place::Memtable, &engine, &mut answers).await;
            levels(client, (table, keys), &statement, Place::Memtable, &engine, &mut answers).await;
        }
    }
    answers
}

/// Looks of reads into the row cache of this shard, where rows are on disk: each read looks once, before it
/// goes to the disk.
pub(super) async fn looks(mut clients: Clients, engine: Engine) -> Answers {
    let keys = tables(clients.latest(), &engine).await;
    let (table, keys) = (&TABLES[1], &keys[1][0]);
    for kind in 0..4 {
        write(clients.latest(), table, &table.row(keys, kind), INSERT, None).await;
    }
    flush(&engine, &NAMES).await;
    evict(&engine, 0).await;
    let again = "UPDATE $ USING TIMESTAMP 20 SET v = 9 WHERE #";
    write(clients.latest(), table, &table.row(keys, 2), again, None).await;
    let statement = table.fill(SELECTS[0]);
    let client = clients.latest();
    let (id, metadata_id) = client.prepare(&statement).await;
    let count = |name| reactor::metrics::counter(name, "", &[]).get();
    let mut answers = Answers::new();
    for (kind, what, misses) in [
        (0, "a partition that the cache does not have", [1, 0]),
        (1, "a row that it lacks", [0, 1]),
        (2, "a row that it lacks, and a memtable has in part", [0, 1]),
        (1, "a row that it has", [0, 0]),
    ] {
        let names = ["scylla_cache_partition_misses", "scylla_cache_reads_with_misses"];
        let (before, looks) = (names.map(count), count("scylla_cache_reads"));
        let one = Parameters::at(Consistency::One);
        let options = RequestOptions::default();
        let answer = client.execute((&id, &metadata_id), &table.row(keys, kind), &one, &options).await;
        let after = names.map(count);
        assert_eq!(count("scylla_cache_reads") - looks, 1, "{what}");
        assert_eq!([after[0] - before[0], after[1] - before[1]], misses, "{what}");
        answers.push((what.to_owned(), answer));
    }
    answers
}
