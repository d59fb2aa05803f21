//! The row cache against a `BTreeMap`: random writes and deletions of every kind, expiry, flushes,
//! compactions that purge, evictions, truncations, alterations and restarts, under a budget that makes the
//! cache evict all the time. Every read is done with the cache and without it, and both must match the map.
#![allow(clippy::disallowed_types, reason = "proptest's macros name Arc")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use model::clustering::{Slice, append_component};
use model::deletion::{Liveness, NO_LOCAL_TIME};
use model::mutation::MutationBuilder;
use model::partition_key::DecoratedKey;
use model::row::{CellKind, CellView};
use model::schema::{KeyspaceOptions, SchemaChange, TableDefinition, TableOptions};
use model::{
    Clustering, Column, ColumnId, ColumnKind, CqlType, DeletionTime, RowBuilder, RowView, Table, TableId,
    Token,
};
use proptest::prelude::*;
use reactor::sim::{DiskFaults, World};
use reactor::{Deadline, Group};
use storage::{Flow, FromMemory, PartitionRange, ReadCommand, RowConsumer, Slices, Storage, StorageConfig};

const ID: TableId = TableId([5; 16]);
const KEYS: u8 = 4;
const FIRST: i32 = 4;
const SECOND: i32 = 4;
const STEPS_MAX: u64 = 20_000_000;

#[derive(Debug, Clone)]
enum Op {
    Write(u8, Write),
    Flush,
    Compact,
    Evict,
    Truncate,
    Alter,
    /// Lets so many seconds pass.
    Wait(u64),
    /// Goes on after a drain, or after the end of the process.
    Restart(bool),
    Read(Read),
}

#[derive(Debug, Clone)]
enum Write {
    /// Marker and value of a row.
    Insert(i32, i32, u16),
    Value(i32, i32, Option<u16>),
    Expiring(i32, i32, u16, u32),
    DeleteRow(i32, i32),
    /// All rows with that first column, up to so many behind it.
    DeleteRange(i32, i32),
    Static(Option<u16>),
    DeletePartition,
}

/// An end of a slice: before (−1) or behind (1) the rows that start with one or two column values.
type Bound = (i32, Option<i32>, i8);

#[derive(Debug, Clone)]
struct Read {
    key: u8,
    slices: Vec<Bound>,
    point: Option<(i32, i32)>,
    reversed: bool,
    /// The reader wants no more after so many rows.
    stop: Option<usize>,
}

fn write() -> impl Strategy<Value = Write> {
    let (a, b) = (0..FIRST, 0..SECOND);
    prop_oneof![
        12 => (a.clone(), b.clone(), any::<u16>()).prop_map(|(a, b, v)| Write::Insert(a, b, v)),
        3 => (a.clone(), b.clone(), any::<Option<u16>>()).prop_map(|(a, b, v)| Write::Value(a, b, v)),
        3 => (a.clone(), b.clone(), any::<u16>(), 1u32..30).prop_map(|(a, b, v, t)| Write::Expiring(a, b, v, t)),
        2 => (a.clone(), b).prop_map(|(a, b)| Write::DeleteRow(a, b)),
        2 => (a, 0..FIRST).prop_map(|(a, more)| Write::DeleteRange(a, more)),
        1 => any::<Option<u16>>().prop_map(Write::Static),
        1 => Just(Write::DeletePartition),
    ]
}

fn read() -> impl Strategy<Value = Read> {
    let bound = (-1..=FIRST, proptest::option::of(-1..=SECOND), prop_oneof![Just(-1i8), Just(1i8)]);
    (
        0..KEYS,
        proptest::collection::vec(bound, 0..6),
        proptest::option::weighted(0.3, (0..FIRST, 0..SECOND)),
        any::<bool>(),
        proptest::option::weighted(0.3, 1usize..6),
    )
        .prop_map(|(key, slices, point, reversed, stop)| Read { key, slices, point, reversed, stop })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        200 => (0..KEYS, write()).prop_map(|(key, write)| Op::Write(key, write)),
        500 => read().prop_map(Op::Read),
        40 => Just(Op::Flush),
        8 => Just(Op::Compact),
        4 => Just(Op::Evict),
        2 => Just(Op::Truncate),
        2 => Just(Op::Alter),
        10 => (1u64..10).prop_map(Op::Wait),
        3 => any::<bool>().prop_map(Op::Restart),
    ]
}

#[derive(Debug, Clone, Default)]
struct Row {
    marker: bool,
    /// And when it expires.
    value: Option<(u16, u32)>,
}

#[derive(Debug, Clone, Default)]
struct Partition {
    statics: Option<u16>,
    rows: BTreeMap<(i32, std::cmp::Reverse<i32>), Row>,
}

type Model = BTreeMap<u8, Partition>;

fn apply(model: &mut Model, key: u8, write: &Write, now: u32) {
    let partition = model.entry(key).or_default();
    let at = |a: &i32, b: &i32| (*a, std::cmp::Reverse(*b));
    match write {
        Write::Insert(a, b, value) => {
            let row = partition.rows.entry(at(a, b)).or_default();
            *row = Row { marker: true, value: Some((*value, NO_LOCAL_TIME)) };
        }
        Write::Value(a, b, value) => {
            partition.rows.entry(at(a, b)).or_default().value = value.map(|value| (value, NO_LOCAL_TIME));
        }
        Write::Expiring(a, b, value, ttl) => {
            partition.rows.entry(at(a, b)).or_default().value = Some((*value, now + ttl));
        }
        Write::DeleteRow(a, b) => drop(partition.rows.remove(&at(a, b))),
        Write::DeleteRange(a, more) => partition.rows.retain(|(first, _), _| first < a || *first > a + more),
        Write::Static(value) => partition.statics = *value,
        Write::DeletePartition => drop(model.remove(&key)),
    }
}

/// Only a table without static columns has reads of one row that leave older files out.
fn definition(revision: u64, statics: bool) -> TableDefinition {
    let column = |id: u16, name: &str, ty, kind, position, reversed| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        ty,
        kind,
        position,
        reversed,
    };
    TableDefinition {
        id: ID,
        keyspace: "k".to_owned(),
        name: "t".to_owned(),
        columns: vec![
            column(0, "p", CqlType::Blob, ColumnKind::PartitionKey, 0, false),
            column(1, "a", CqlType::Int, ColumnKind::Clustering, 0, false),
            column(2, "b", CqlType::Int, ColumnKind::Clustering, 1, true),
            column(3, "s", CqlType::Blob, ColumnKind::Static, 0, false),
            column(4, "v", CqlType::Blob, ColumnKind::Regular, 0, false),
        ]
        .into_iter()
        .filter(|column| statics || column.kind != ColumnKind::Static)
        .collect(),
        dropped: BTreeMap::new(),
        // Compactions forget whatever they may.
        options: TableOptions {
            gc_grace_seconds: 0,
            comment: revision.to_string(),
            ..TableOptions::default()
        },
        next_column_id: 5,
        tablets_log2: 1,
        revision,
    }
}

fn prefix(a: i32, b: Option<i32>) -> Vec<u8> {
    let mut bytes = Vec::new();
    append_component(&mut bytes, Some(&a.to_be_bytes()));
    if let Some(b) = b {
        append_component(&mut bytes, Some(&b.to_be_bytes()));
    }
    bytes
}

/// Some values are long, so that little fits the cache.
fn bytes_of(value: u16) -> Vec<u8> {
    let mut bytes = vec![value as u8; usize::from(value % 7) * usize::from(value % 11) * 20];
    bytes.extend_from_slice(&value.to_be_bytes());
    bytes
}

fn value_of(bytes: &[u8]) -> u16 {
    let (long, value) = bytes.split_at(bytes.len() - 2);
    let value = u16::from_be_bytes(value.try_into().expect("two bytes"));
    assert!(long.iter().all(|byte| *byte == value as u8));
    value
}

fn mutation(key: u8, write: &Write, timestamp: i64, now: u32) -> Vec<u8> {
    let key = DecoratedKey::new(vec![key]);
    let deletion = DeletionTime { timestamp, local_time: now };
    let live = DeletionTime::LIVE;
    let cell = |row: &mut RowBuilder<'_>, column: u16, value: Option<u16>, ttl: Option<u32>| {
        let bytes = value.map(bytes_of);
        let kind = match (&bytes, ttl) {
            (Some(value), None) => CellKind::Live(value),
            (Some(value), Some(ttl)) => CellKind::Expiring { value, ttl, expires_at: now + ttl },
            (None, _) => CellKind::Tombstone { local_time: now },
        };
        row.cell(CellView { column: ColumnId(column), timestamp, path: None, kind });
    };
    let mut out = Vec::new();
    let whole = if matches!(write, Write::DeletePartition) { deletion } else { live };
    let mut builder = MutationBuilder::new(&mut out, ID, key.token, &key.key, whole, |out| {
        if let Write::Static(value) = write {
            let mut row = RowBuilder::new(out, Liveness::NONE, live);
            cell(&mut row, 3, *value, None);
            row.finish();
        }
    });
    if let Write::DeleteRange(a, more) = write {
        let (from, to) = (prefix(*a, None), prefix(a + more, None));
        let (from, to) = (Slice::prefix(&from), Slice::prefix(&to));
        builder.range_tombstone(from.start.as_ref(), to.end.as_ref(), deletion);
    }
    let mut rows = builder.rows();
    let marker = Liveness { timestamp, ttl: 0, expires_at: NO_LOCAL_TIME };
    let (a, b, marker, of_row, value) = match write {
        Write::Insert(a, b, value) => (a, b, marker, live, Some((Some(*value), None))),
        Write::Value(a, b, value) => (a, b, Liveness::NONE, live, Some((*value, None))),
        Write::Expiring(a, b, value, ttl) => (a, b, Liveness::NONE, live, Some((Some(*value), Some(*ttl)))),
        Write::DeleteRow(a, b) => (a, b, Liveness::NONE, deletion, None),
        _ => {
            rows.finish();
            return out;
        }
    };
    rows.row(&prefix(*a, Some(*b)), |out| {
        let mut row = RowBuilder::new(out, marker, of_row);
        if let Some((value, ttl)) = value {
            cell(&mut row, 4, value, ttl);
        }
        row.finish();
    });
    rows.finish();
    out
}

/// Static value and rows in reading order, each with its cells.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    announced: bool,
    statics: Option<u16>,
    rows: Vec<(i32, i32, bool, Option<u16>)>,
    stop: Option<usize>,
}

impl RowConsumer for Answer {
    fn partition(&mut self, _: &[u8], _: Token, static_row: Option<RowView<'_>>) -> Flow {
        assert!(!self.announced, "one partition was asked for");
        self.announced = true;
        let cell = static_row.and_then(|row| row.cells().next());
        self.statics = cell.and_then(|cell| cell.value()).map(value_of);
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        let mut columns = Clustering(clustering).components().flatten();
        let mut number =
            || i32::from_be_bytes(columns.next().expect("a column").try_into().expect("four bytes"));
        let (a, b) = (number(), number());
        let value = row.cells().next().and_then(|cell| cell.value()).map(value_of);
        self.rows.push((a, b, !row.liveness().is_none(), value));
        if self.stop == Some(self.rows.len()) { Flow::Stop } else { Flow::Continue }
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

fn slices(read: &Read, table: &Table) -> Slices {
    if let Some((a, b)) = read.point {
        return [Slice::prefix(&prefix(a, Some(b)))].into_iter().collect();
    }
    if read.slices.is_empty() {
        return [Slice::all()].into_iter().collect();
    }
    let orders = table.clustering_orders();
    let mut bounds: Vec<_> = read
        .slices
        .iter()
        .map(|(a, b, weight)| model::clustering::OwnedPosition { prefix: prefix(*a, *b), weight: *weight })
        .collect();
    bounds.sort_by(|x, y| x.as_ref().compare(y.as_ref(), orders));
    bounds.dedup();
    bounds.chunks_exact(2).map(|pair| Slice { start: pair[0].clone(), end: pair[1].clone() }).collect()
}

fn expected(model: &Model, read: &Read, slices: &Slices, table: &Table, now: u32) -> Answer {
    let mut answer = Answer { stop: read.stop, ..Answer::default() };
    let Some(partition) = model.get(&read.key) else { return answer };
    let orders = table.clustering_orders();
    for ((a, b), row) in &partition.rows {
        let clustering = prefix(*a, Some(b.0));
        let value = row.value.filter(|(_, expires)| now < *expires).map(|(value, _)| value);
        if (row.marker || value.is_some()) && slices.iter().any(|slice| slice.contains(&clustering, orders)) {
            answer.rows.push((*a, b.0, row.marker, value));
        }
    }
    if read.reversed {
        answer.rows.reverse();
    }
    answer.rows.truncate(read.stop.unwrap_or(usize::MAX));
    answer.announced = !answer.rows.is_empty() || partition.statics.is_some();
    answer.statics = partition.statics.filter(|_| answer.announced);
    answer
}

fn now() -> u32 {
    u32::try_from(reactor::wall_clock_us() / 1_000_000).expect("a time before 2106")
}

async fn ask(storage: &Storage, read: &Read, now: u32, bypass_cache: bool) -> (Answer, Slices, Rc<Table>) {
    let table = storage.schema().table_by_id(ID).cloned().expect("the table");
    let slices = slices(read, &table);
    let command = ReadCommand {
        table: Rc::clone(&table),
        range: PartitionRange::Key(DecoratedKey::new(vec![read.key])),
        slices: slices.clone(),
        reversed: read.reversed,
        now,
        bypass_cache,
    };
    let mut answer = Answer { stop: read.stop, ..Answer::default() };
    // Both ways to read, as the seed wants it.
    let tried = reactor::random_u64().is_multiple_of(2);
    match if tried { storage.read_from_memory(&command, &mut answer) } else { FromMemory::NotBegun } {
        FromMemory::Done => {}
        FromMemory::NotBegun => storage.read(&command, &mut answer).await.expect("a read"),
        FromMemory::Partial(unread) => {
            storage.read_unread(&command, unread, &mut answer).await.expect("a read")
        }
    }
    (answer, slices, table)
}

struct Shared {
    ops: std::vec::IntoIter<Op>,
    model: Model,
    timestamp: i64,
    revision: u64,
    memory: usize,
    statics: bool,
    over: bool,
    done: bool,
    /// Rows read from the cache and rows added to it, over all lives.
    hits: (u64, u64),
}

async fn open(memory: usize, statics: bool) -> Storage {
    let mut config = StorageConfig::new("/ceto", 256 << 10);
    config.memory_bytes_max = (256 << 10) + memory;
    config.segment_bytes = 64 << 10;
    config.commitlog_bytes_max = 1 << 20;
    let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
    if storage.schema().keyspace("k").is_none() {
        let options = KeyspaceOptions { replication: BTreeMap::new(), durable_writes: true, tablets: None };
        let keyspace = SchemaChange::CreateKeyspace { name: "k".to_owned(), options };
        cluster::change_schema(&keyspace).await.expect("a keyspace");
        let table = SchemaChange::CreateTable(Box::new(definition(0, statics)));
        cluster::change_schema(&table).await.expect("a table");
    }
    storage
}

async fn node(shared: Rc<RefCell<Shared>>) {
    let (memory, statics) = (shared.borrow().memory, shared.borrow().statics);
    let storage = open(memory, statics).await;
    let hits = reactor::metrics::counter("scylla_cache_row_hits", "", &[]);
    let learned = reactor::metrics::counter("scylla_cache_row_misses", "", &[]);
    loop {
        let next = shared.borrow_mut().ops.next();
        let Some(op) = next else {
            shared.borrow_mut().done = true;
            break;
        };
        match op {
            Op::Write(_, Write::Static(_)) if !statics => {}
            Op::Write(key, write) => {
                let now = now();
                let bytes = {
                    let mut shared = shared.borrow_mut();
                    shared.timestamp += 1;
                    apply(&mut shared.model, key, &write, now);
                    mutation(key, &write, shared.timestamp, now)
                };
                storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
            }
            Op::Flush => storage.flush(ID).await.expect("a flush"),
            Op::Compact => storage.compact(ID).await.expect("a compaction"),
            Op::Evict => storage.evict_cache(),
            Op::Truncate => {
                storage.truncate(ID).await.expect("a truncation");
                shared.borrow_mut().model.clear();
            }
            Op::Alter => {
                shared.borrow_mut().revision += 1;
                let altered = definition(shared.borrow().revision, statics);
                let change = SchemaChange::AlterTable(Box::new(altered));
                cluster::change_schema(&change).await.expect("an altered table");
            }
            Op::Wait(seconds) => reactor::sleep(Duration::from_secs(seconds)).await,
            Op::Restart(drains) => {
                if drains {
                    storage.drain().await.expect("a drain");
                }
                break;
            }
            Op::Read(read) => {
                let now = now();
                let (cached, slices, table) = ask(&storage, &read, now, false).await;
                let (direct, ..) = ask(&storage, &read, now, true).await;
                let expected = expected(&shared.borrow().model, &read, &slices, &table, now);
                assert_eq!(direct, expected, "without the cache: {read:?}");
                assert_eq!(cached, expected, "with the cache: {read:?}");
            }
        }
        let stats = storage.stats();
        let bytes = stats.memtable_bytes + stats.cache_bytes;
        assert!(bytes <= stats.memory_bytes_max.max(stats.memtable_bytes), "{stats:?}");
    }
    let mut shared = shared.borrow_mut();
    shared.hits.0 += hits.get();
    shared.hits.1 += learned.get();
    shared.over = true;
}

/// Runs operations; returns how many rows came from the cache and how many were added to it.
fn run(ops: Vec<Op>, seed: u64, memory: usize, statics: bool) -> Result<(u64, u64), String> {
    let mut world = World::new(seed);
    let lives = 1 + ops.iter().filter(|op| matches!(op, Op::Restart(_))).count();
    let shared = Rc::new(RefCell::new(Shared {
        ops: ops.into_iter(),
        model: Model::new(),
        timestamp: 1_000,
        revision: 0,
        memory,
        statics,
        over: false,
        done: false,
        hits: (0, 0),
    }));
    let of_node = Rc::clone(&shared);
    let faults = DiskFaults { lose_unsynced: false, ..DiskFaults::default() };
    let id = world.add_node_with(1, faults, move |_| node(Rc::clone(&of_node)));
    for _ in 0..lives {
        let ended = world.run_steps(STEPS_MAX, |world| shared.borrow().over || world.outcome(id).is_some());
        if let Some(Err(problem)) = world.outcome(id) {
            return Err(problem);
        }
        if !shared.borrow().over {
            return Err(format!("a life does not end: {ended:?}"));
        }
        if shared.borrow().done {
            return Ok(shared.borrow().hits);
        }
        shared.borrow_mut().over = false;
        world.crash(id);
        world.restart(id);
    }
    Err("operations are left over".to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn cached_reads_are_what_files_and_memtables_say(
        ops in proptest::collection::vec(op(), 1..800), seed in 0u64..1000, kilobytes in 24usize..600, statics in any::<bool>()
    ) {
        let ran = run(ops, seed, kilobytes << 10, statics);
        prop_assert!(ran.is_ok(), "{ran:?}");
    }
}

/// All `rows` rows of a partition get one value at a time while it is read in every way, flushed, compacted
/// and evicted. No reader may see two values, nor one that is older than the last acknowledged before it
/// began.
fn whole_mutations(seed: u64, memory: usize, rows: i32) -> Result<(), String> {
    let mut world = World::new(seed);
    let done = Rc::new(Cell::new(false));
    let of_node = Rc::clone(&done);
    let faults = DiskFaults { lose_unsynced: false, ..DiskFaults::default() };
    let id = world.add_node_with(1, faults, move |_| {
        let done = Rc::clone(&of_node);
        async move {
            let storage = open(memory, true).await;
            let (acknowledged, ended) = (Rc::new(Cell::new(0u16)), Rc::new(Cell::new(false)));
            let mut tasks = Vec::new();
            for reader in 0..3u64 {
                let (storage, acknowledged, ended) =
                    (storage.clone(), Rc::clone(&acknowledged), Rc::clone(&ended));
                tasks.push(reactor::spawn(Group::STATEMENT, async move {
                    let mut chance = seed * 7 + reader;
                    for _ in 0..100_000 {
                        if ended.get() {
                            return;
                        }
                        chance = chance
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let pick = |bits: u32, of: i32| ((chance >> bits) % of as u64) as i32;
                        let read = Read {
                            key: 1,
                            slices: match pick(10, 3) {
                                0 => vec![],
                                1 => vec![(pick(20, rows), None, -1), (pick(30, rows), None, 1)],
                                _ => vec![(pick(20, rows), Some(0), 1), (rows, None, 1)],
                            },
                            point: (pick(40, 8) == 0).then(|| (pick(20, rows), 0)),
                            reversed: pick(50, 2) == 0,
                            stop: (pick(55, 3) == 0).then(|| 1 + pick(33, 30) as usize),
                        };
                        let floor = acknowledged.get();
                        let (answer, ..) = ask(&storage, &read, now(), false).await;
                        let values: Vec<_> = answer.rows.iter().map(|row| row.3.expect("a value")).collect();
                        assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{read:?}: {values:?}");
                        assert!(
                            values.first().is_none_or(|value| *value >= floor),
                            "{read:?}: {values:?} < {floor}"
                        );
                        // The simulation's clock advances only while no task has anything to do.
                        reactor::sleep(Duration::from_micros(2_000 + 700 * reader)).await;
                    }
                }));
            }
            for value in 1..=30u16 {
                storage.apply(&whole(1, value, rows), Deadline::NEVER).await.expect("a write");
                acknowledged.set(value);
                // Another partition, for the memtable to have something else too.
                storage.apply(&whole(2, value, rows), Deadline::NEVER).await.expect("a write");
                match (u64::from(value) + seed) % 5 {
                    0 | 2 => storage.flush(ID).await.expect("a flush"),
                    3 => storage.evict_cache(),
                    4 if value % 4 == 0 => storage.compact(ID).await.expect("a compaction"),
                    _ => reactor::sleep(Duration::from_millis(u64::from(value % 7))).await,
                }
            }
            ended.set(true);
            let hits = reactor::metrics::counter("scylla_cache_row_hits", "", &[]).get();
            let learned = reactor::metrics::counter("scylla_cache_row_misses", "", &[]).get();
            assert!(
                learned > 100 && (hits > 100 || memory < 500 << 10),
                "the cache had {hits} rows and learned {learned}"
            );
            for task in tasks {
                task.await.expect("no panic");
            }
            done.set(true);
        }
    });
    let ended = world.run_steps(STEPS_MAX, |world| done.get() || world.outcome(id).is_some());
    match world.outcome(id) {
        Some(Err(problem)) => Err(problem),
        _ if done.get() => Ok(()),
        _ => Err(format!("it does not end: {ended:?}")),
    }
}

/// So many rows of a partition with one value.
fn whole(key: u8, value: u16, row_count: i32) -> Vec<u8> {
    let key = DecoratedKey::new(vec![key]);
    let timestamp = i64::from(value);
    let mut out = Vec::new();
    let builder = MutationBuilder::new(&mut out, ID, key.token, &key.key, DeletionTime::LIVE, |_| ());
    let mut rows = builder.rows();
    let bytes = value.to_be_bytes();
    for row in 0..row_count {
        rows.row(&prefix(row, Some(0)), |out| {
            let mut row = RowBuilder::new(out, Liveness::NONE, DeletionTime::LIVE);
            row.cell(CellView { column: ColumnId(4), timestamp, path: None, kind: CellKind::Live(&bytes) });
            row.finish();
        });
    }
    rows.finish();
    out
}

#[test]
fn a_mutation_is_seen_whole_or_not_at_all_through_the_cache() {
    for seed in 0..6 {
        let memory = [40, 120, 600][seed as usize % 3] << 10;
        assert_eq!(whole_mutations(seed, memory, 60), Ok(()), "seed {seed}");
    }
}

#[test]
fn a_mutation_that_is_applied_in_steps_is_seen_whole_or_not_at_all() {
    for seed in 0..3 {
        let memory = [1, 3, 8][seed as usize] << 20;
        assert_eq!(whole_mutations(seed, memory, 1500), Ok(()), "seed {seed}");
    }
}
