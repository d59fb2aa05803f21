//! Storage against a `BTreeMap`: random writes of every kind, flushes, compactions, columns dropped and made
//! again, and restarts with another number of shards, cleanly or by the end of the process. Nothing that was
//! acknowledged is missing, and nothing else is there.
#![allow(clippy::disallowed_types, reason = "proptest's macros name Arc")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use model::clustering::{Slice, append_component};
use model::deletion::{Liveness, NO_LOCAL_TIME};
use model::mutation::MutationBuilder;
use model::partition_key::DecoratedKey;
use model::row::{CellKind, CellView};
use model::schema::{DroppedColumn, KeyspaceOptions, SchemaChange, TableDefinition, TableOptions};
use model::{
    Clustering, Column, ColumnId, ColumnKind, CqlType, DeletionTime, RowBuilder, RowView, Table, TableId,
    Token,
};
use proptest::prelude::*;
use reactor::sim::{DiskFaults, World};
use reactor::{Deadline, Group, ShardInfo, mesh};
use storage::{Flow, PartitionRange, ReadCommand, RowConsumer, Storage, StorageConfig};

const ID: TableId = TableId([9; 16]);
const SHARDS_MAX: usize = 3;
const KEYS: u8 = 6;
const ROWS: i32 = 6;
const NOW: u32 = 1_700_000_000;
const STEPS_MAX: u64 = 2_000_000;

/// A step of a test.
#[derive(Debug, Clone)]
enum Op {
    /// One write to a row, or to its partition.
    Write(u8, i32, Write),
    Flush,
    Compact,
    /// Drops the column `x` and makes it again.
    RemakeColumn,
    /// Continues with so many shards, after a drain or after the process was killed.
    Restart {
        shards: usize,
        drains: bool,
    },
    Check,
}

#[derive(Debug, Clone)]
enum Write {
    Insert(u16),
    Value(Option<u16>),
    Extra(Option<u16>),
    Put(i32, u16),
    Remove(i32),
    Replace(Vec<(i32, u16)>),
    Static(Option<u16>),
    DeleteRow,
    /// Deletes this row and so many behind it.
    DeleteRange(i32),
    DeletePartition,
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        4 => any::<u16>().prop_map(Write::Insert),
        2 => any::<Option<u16>>().prop_map(Write::Value),
        2 => any::<Option<u16>>().prop_map(Write::Extra),
        4 => (0..5, any::<u16>()).prop_map(|(k, v)| Write::Put(k, v)),
        2 => (0..5).prop_map(Write::Remove),
        2 => proptest::collection::vec((0..5, any::<u16>()), 0..4).prop_map(Write::Replace),
        2 => any::<Option<u16>>().prop_map(Write::Static),
        2 => Just(Write::DeleteRow),
        2 => (0..ROWS).prop_map(Write::DeleteRange),
        1 => Just(Write::DeletePartition),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        40 => (0..KEYS, 0..ROWS, write()).prop_map(|(key, row, write)| Op::Write(key, row, write)),
        3 => Just(Op::Flush),
        1 => Just(Op::Compact),
        1 => Just(Op::RemakeColumn),
        2 => (1..=SHARDS_MAX, any::<bool>()).prop_map(|(shards, drains)| Op::Restart { shards, drains }),
        3 => Just(Op::Check),
    ]
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Row {
    marker: bool,
    value: Option<u16>,
    extra: Option<u16>,
    map: BTreeMap<i32, u16>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Partition {
    statics: Option<u16>,
    rows: BTreeMap<i32, Row>,
}

type Model = BTreeMap<u8, Partition>;

fn apply(model: &mut Model, key: u8, at: i32, write: &Write) {
    let partition = model.entry(key).or_default();
    let row = partition.rows.entry(at).or_default();
    match write {
        Write::Insert(value) => (row.marker, row.value) = (true, Some(*value)),
        Write::Value(value) => row.value = *value,
        Write::Extra(value) => row.extra = *value,
        Write::Put(k, value) => drop(row.map.insert(*k, *value)),
        Write::Remove(k) => drop(row.map.remove(k)),
        // Of one key given twice the greater value stays, since both have the same timestamp.
        Write::Replace(entries) => {
            row.map.clear();
            for (k, value) in entries {
                let stored = row.map.entry(*k).or_insert(*value);
                *stored = (*stored).max(*value);
            }
        }
        Write::Static(value) => partition.statics = *value,
        Write::DeleteRow => drop(partition.rows.remove(&at)),
        Write::DeleteRange(more) => partition.rows.retain(|row, _| *row < at || *row > at + more),
        Write::DeletePartition => drop(model.remove(&key)),
    }
}

/// The contents that a reader sees: rows and partitions that are not empty.
fn visible(model: &Model) -> Model {
    let mut seen = model.clone();
    for partition in seen.values_mut() {
        partition.rows.retain(|_, row| *row != Row::default());
    }
    seen.retain(|_, partition| *partition != Partition::default());
    seen
}

/// The table with its `revision`th column `x`.
fn definition(revision: u16, dropped_at_us: Option<i64>) -> TableDefinition {
    let column = |id: u16, name: &str, ty, kind| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        ty,
        kind,
        position: 0,
        reversed: false,
    };
    let map = CqlType::Map { key: Box::new(CqlType::Int), value: Box::new(CqlType::Smallint), frozen: false };
    let extra = |revision: u16| column(5 + revision, "x", CqlType::Smallint, ColumnKind::Regular);
    let dropped = dropped_at_us
        .map(|dropped_at_us| ("x".to_owned(), DroppedColumn { column: extra(revision - 1), dropped_at_us }));
    TableDefinition {
        id: ID,
        keyspace: "k".to_owned(),
        name: "t".to_owned(),
        columns: vec![
            column(0, "p", CqlType::Blob, ColumnKind::PartitionKey),
            column(1, "c", CqlType::Int, ColumnKind::Clustering),
            column(2, "s", CqlType::Smallint, ColumnKind::Static),
            column(3, "v", CqlType::Smallint, ColumnKind::Regular),
            column(4, "m", map, ColumnKind::Regular),
            extra(revision),
        ],
        dropped: dropped.into_iter().collect(),
        options: TableOptions::default(),
        next_column_id: 6 + revision,
        tablets_log2: 3,
        revision: u64::from(revision),
    }
}

fn clustering(row: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    append_component(&mut bytes, Some(&row.to_be_bytes()));
    bytes
}

fn mutation(table: &Table, key: u8, at: i32, write: &Write, timestamp: i64) -> Vec<u8> {
    let key = DecoratedKey::new(vec![key]);
    let deletion = DeletionTime { timestamp, local_time: NOW };
    let live = DeletionTime::LIVE;
    let column = |name: &str| table.column(name).expect("a column of the table").id;
    let path = |k: &i32| k.to_be_bytes();
    let mut out = Vec::new();
    let append = |row: &mut RowBuilder<'_>, name: &str, k: Option<&i32>, value: Option<u16>| {
        let (path, bytes) = (k.map(path), value.map(u16::to_be_bytes));
        let kind = match &bytes {
            Some(bytes) => CellKind::Live(bytes),
            None => CellKind::Tombstone { local_time: NOW },
        };
        row.cell(CellView { column: column(name), timestamp, path: path.as_ref().map(|p| &p[..]), kind });
    };
    let whole = if matches!(write, Write::DeletePartition) { deletion } else { live };
    let mut builder = MutationBuilder::new(&mut out, ID, key.token, &key.key, whole, |out| {
        if let Write::Static(value) = write {
            let mut row = RowBuilder::new(out, Liveness::NONE, live);
            append(&mut row, "s", None, *value);
            row.finish();
        }
    });
    if let Write::DeleteRange(more) = write {
        let (from, to) = (clustering(at), clustering(at + more));
        let (from, to) = (Slice::prefix(&from), Slice::prefix(&to));
        builder.range_tombstone(from.start.as_ref(), to.end.as_ref(), deletion);
    }
    let mut rows = builder.rows();
    let in_row = !matches!(write, Write::Static(_) | Write::DeleteRange(_) | Write::DeletePartition);
    if in_row {
        rows.row(&clustering(at), |out| {
            let marker = Liveness { timestamp, ttl: 0, expires_at: NO_LOCAL_TIME };
            let marker = if matches!(write, Write::Insert(_)) { marker } else { Liveness::NONE };
            let of_row = if matches!(write, Write::DeleteRow) { deletion } else { live };
            let mut row = RowBuilder::new(out, marker, of_row);
            match write {
                Write::Insert(value) => append(&mut row, "v", None, Some(*value)),
                Write::Value(value) => append(&mut row, "v", None, *value),
                Write::Extra(value) => append(&mut row, "x", None, *value),
                Write::Put(k, value) => append(&mut row, "m", Some(k), Some(*value)),
                Write::Remove(k) => append(&mut row, "m", Some(k), None),
                Write::Replace(entries) => {
                    let kind = CellKind::CollectionDeletion { local_time: NOW };
                    let before = timestamp - 1;
                    row.cell(CellView { column: column("m"), timestamp: before, path: None, kind });
                    let mut stored = BTreeMap::new();
                    for (k, value) in entries {
                        let greatest = stored.entry(*k).or_insert(*value);
                        *greatest = (*greatest).max(*value);
                    }
                    stored.iter().for_each(|(k, value)| append(&mut row, "m", Some(k), Some(*value)));
                }
                _ => {}
            }
            row.finish();
        });
    }
    rows.finish();
    out
}

struct Found {
    table: Rc<Table>,
    model: Vec<(u8, Partition)>,
}

impl Found {
    fn small(bytes: Option<&[u8]>) -> Option<u16> {
        bytes.map(|bytes| u16::from_be_bytes(bytes.try_into().expect("two bytes")))
    }
}

impl RowConsumer for Found {
    fn partition(&mut self, key: &[u8], _: Token, static_row: Option<RowView<'_>>) -> Flow {
        let cell = static_row.and_then(|row| row.cells().next());
        let statics = Self::small(cell.and_then(|cell| cell.value()));
        self.model.push((key[0], Partition { statics, rows: BTreeMap::new() }));
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        let at = Clustering(clustering).components().next().flatten().expect("one component");
        let mut found = Row { marker: !row.liveness().is_none(), ..Row::default() };
        for cell in row.cells() {
            let name = &self.table.column_by_id(cell.column).expect("a column of the table").name;
            match (name.as_str(), cell.path) {
                ("v", None) => found.value = Self::small(cell.value()),
                ("x", None) => found.extra = Self::small(cell.value()),
                ("m", Some(k)) => {
                    let k = i32::from_be_bytes(k.try_into().expect("four bytes"));
                    found.map.insert(k, Self::small(cell.value()).expect("a value"));
                }
                other => panic!("a cell of {other:?}"),
            }
        }
        let at = i32::from_be_bytes(at.try_into().expect("four bytes"));
        self.model.last_mut().expect("a partition is announced").1.rows.insert(at, found);
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

/// All data of a shard; reading each partition alone has to give the same.
async fn read(storage: Storage) -> Vec<(u8, Partition)> {
    let table = storage.schema().table_by_id(ID).cloned().expect("the table");
    let ask = async |range| {
        let slices = [Slice::all()].into_iter().collect();
        let command = ReadCommand {
            table: Rc::clone(&table),
            range,
            slices,
            reversed: false,
            now: NOW + 1,
            bypass_cache: false,
        };
        let mut found = Found { table: Rc::clone(&table), model: Vec::new() };
        storage.read(&command, &mut found).await.expect("a read");
        found.model
    };
    let all = ask(PartitionRange::all()).await;
    for (key, partition) in &all {
        let alone = ask(PartitionRange::Key(DecoratedKey::new(vec![*key]))).await;
        assert_eq!(alone, [(*key, partition.clone())], "alone and in a scan");
    }
    all
}

struct Shared {
    ops: std::vec::IntoIter<Op>,
    shards: usize,
    model: Model,
    timestamp: i64,
    columns: u16,
    /// The node's present activity.
    at: String,
    /// Whether the life ended as it should.
    over: bool,
    done: bool,
}

type SharedRef = Rc<RefCell<Shared>>;

async fn node(info: ShardInfo, shared: SharedRef) {
    let shards = shared.borrow().shards;
    if info.id >= shards {
        return;
    }
    let mut config = StorageConfig::new("/ceto", 256 << 10);
    config.segment_bytes = 64 << 10;
    config.commitlog_bytes_max = 1 << 20;
    shared.borrow_mut().at = format!("the start of {shards} shards");
    let storage = cluster::open_storage(config, info.id, shards).await.expect("an open storage");
    if info.id != 0 {
        return;
    }
    if storage.schema().keyspace("k").is_none() {
        let options = KeyspaceOptions { replication: BTreeMap::new(), durable_writes: true, tablets: None };
        let keyspace = SchemaChange::CreateKeyspace { name: "k".to_owned(), options };
        cluster::change_schema(&keyspace).await.expect("a keyspace");
        let table = SchemaChange::CreateTable(Box::new(definition(0, None)));
        cluster::change_schema(&table).await.expect("a table");
    }
    check(&shared, shards).await;
    loop {
        let next = shared.borrow_mut().ops.next();
        let Some(op) = next else {
            check(&shared, shards).await;
            shared.borrow_mut().done = true;
            break;
        };
        let to_come = shared.borrow().ops.len();
        shared.borrow_mut().at = format!("{op:?}, {to_come} to come");
        match op {
            Op::Write(key, at, write) => {
                let timestamp = {
                    let mut shared = shared.borrow_mut();
                    shared.timestamp += 2;
                    apply(&mut shared.model, key, at, &write);
                    shared.timestamp
                };
                let table = storage.schema().table_by_id(ID).cloned().expect("the table");
                let bytes = mutation(&table, key, at, &write, timestamp);
                let map = table.tablets();
                let token = DecoratedKey::new(vec![key]).token;
                let owner = map.shard_of(map.tablet_of(token), shards);
                on(owner, async move |storage| {
                    storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
                })
                .await;
            }
            Op::Flush => {
                for shard in 0..shards {
                    on(shard, async |storage| storage.flush(ID).await.expect("a flush")).await;
                }
            }
            Op::Compact => {
                for shard in 0..shards {
                    on(shard, async |storage| storage.compact(ID).await.expect("a compaction")).await;
                }
            }
            Op::RemakeColumn => {
                let (columns, timestamp) = {
                    let mut shared = shared.borrow_mut();
                    shared.columns += 1;
                    let rows = shared.model.values_mut().flat_map(|partition| partition.rows.values_mut());
                    rows.for_each(|row| row.extra = None);
                    (shared.columns, shared.timestamp)
                };
                let change = SchemaChange::AlterTable(Box::new(definition(columns, Some(timestamp))));
                cluster::change_schema(&change).await.expect("an altered table");
            }
            Op::Restart { shards: next, drains } => {
                if drains {
                    for shard in 0..shards {
                        on(shard, async |storage| storage.drain().await.expect("a drain")).await;
                    }
                }
                shared.borrow_mut().shards = next;
                break;
            }
            Op::Check => check(&shared, shards).await,
        }
    }
    shared.borrow_mut().over = true;
}

async fn on<R: Send + 'static>(shard: usize, work: impl AsyncFnOnce(Storage) -> R + Send + 'static) -> R {
    let called = mesh::call(shard, Group::STATEMENT, move || async move {
        let storage = reactor::local::<Storage>().expect("an open storage");
        work((*storage).clone()).await
    });
    called.await.expect("a peer")
}

async fn check(shared: &SharedRef, shards: usize) {
    let mut found = Vec::new();
    for shard in 0..shards {
        found.extend(on(shard, async |storage| read(storage).await).await);
    }
    let tokens: Vec<_> = found.iter().map(|(key, _)| DecoratedKey::new(vec![*key]).token).collect();
    assert!(tokens.is_sorted(), "partitions come by token, each once: {tokens:?}");
    let found: Model = found.into_iter().collect();
    assert_eq!(found, visible(&shared.borrow().model));
}

fn run(ops: Vec<Op>, seed: u64) -> Result<(), String> {
    let mut world = World::new(seed);
    let lives = 1 + ops.iter().filter(|op| matches!(op, Op::Restart { .. })).count();
    let shared = Rc::new(RefCell::new(Shared {
        ops: ops.into_iter(),
        shards: 1 + seed as usize % SHARDS_MAX,
        model: Model::new(),
        timestamp: 1_000,
        columns: 0,
        at: String::new(),
        over: false,
        done: false,
    }));
    let of_node = Rc::clone(&shared);
    // The end of a process loses nothing that the kernel has.
    let faults = DiskFaults { lose_unsynced: false, ..DiskFaults::default() };
    let id = world.add_node_with(SHARDS_MAX, faults, move |info| node(info, Rc::clone(&of_node)));
    for _ in 0..lives {
        let ended = world.run_steps(STEPS_MAX, |world| shared.borrow().over || world.outcome(id).is_some());
        if let Some(Err(problem)) = world.outcome(id) {
            return Err(problem);
        }
        if !shared.borrow().over {
            return Err(format!("a life does not end: {ended:?} at {}", shared.borrow().at));
        }
        if shared.borrow().done {
            return Ok(());
        }
        shared.borrow_mut().over = false;
        world.crash(id);
        world.restart(id);
    }
    Err("operations are left over".to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn storage_holds_what_a_map_holds(ops in proptest::collection::vec(op(), 1..250), seed in 0u64..1000) {
        prop_assert_eq!(run(ops, seed), Ok(()));
    }
}
