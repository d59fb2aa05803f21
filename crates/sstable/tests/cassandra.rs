//! Apache Cassandra reads what this crate writes, and agrees on every byte.
//!
//! A corpus of table files is dumped by Cassandra's own classes (`perf/peers/sstabletools`) and compared with the rows
//! that were written: keys, clusterings, values, times, tombstones of all kinds. Needs the jars of cassandra-all in
//! `CASSANDRA_LIB` or `.cache/cassandra/lib`; where they are absent the test says so and checks nothing, unless
//! `CASSANDRA_REQUIRED` is set.
#![allow(clippy::disallowed_methods, reason = "a test of files on the real disk, with another program")]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use model::clustering::{Clustering, OwnedPosition, Slice, append_component};
use model::deletion::{DeletionTime, NO_LOCAL_TIME};
use model::partition_key::DecoratedKey;
use model::row::{CellKind, RowBuilder, RowView};
use model::schema::{Column, ColumnId, ColumnKind, TableDefinition, TableId, TableOptions};
use model::types::CqlType;
use model::{Liveness, Table};
use reactor::{Config, run_one};
use sstable::{Component, Compressor, Descriptor, PartitionBound, Sstable, WriterOptions};
use support::{Item, Partition, Random, Range, SCALARS, Shape};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn cassandra_lib() -> Option<PathBuf> {
    let lib =
        std::env::var_os("CASSANDRA_LIB").map_or(repository().join(".cache/cassandra/lib"), PathBuf::from);
    if lib.is_dir() {
        return Some(lib);
    }
    assert!(std::env::var_os("CASSANDRA_REQUIRED").is_none(), "no Cassandra jars in {}", lib.display());
    eprintln!("SKIPPED: no Cassandra jars in {}: run perf/peers/cassandra/setup.sh", lib.display());
    None
}

struct Written {
    path: PathBuf,
    table: Rc<Table>,
    partitions: Vec<Partition>,
}

/// Shapes that together have every scalar type in every role, and collections of all kinds.
fn shapes(random: &mut Random) -> Vec<Shape> {
    let keyable = &SCALARS[..18];
    let mut shapes: Vec<Shape> = keyable
        .iter()
        .enumerate()
        .map(|(at, ty)| Shape {
            key: vec![ty.clone()],
            clustering: vec![
                (ty.clone(), at % 2 == 0),
                (keyable[(at + 7) % keyable.len()].clone(), at % 3 == 0),
            ],
            statics: vec![ty.clone(), support::column_type(random)],
            regulars: vec![
                ty.clone(),
                CqlType::Duration,
                support::column_type(random),
                support::column_type(random),
            ],
        })
        .collect();
    let element = || Box::new(CqlType::Text);
    let mut collections = Vec::new();
    for frozen in [false, true] {
        collections.push(CqlType::List { element: element(), frozen });
        collections.push(CqlType::Set { element: Box::new(CqlType::Uuid), frozen });
        collections.push(CqlType::Map { key: Box::new(CqlType::Int), value: element(), frozen });
    }
    shapes.push(Shape {
        key: vec![CqlType::Int, CqlType::Text],
        clustering: vec![(CqlType::Bigint, true)],
        statics: collections.clone(),
        regulars: collections,
    });
    shapes.push(Shape {
        key: vec![CqlType::Text],
        clustering: vec![],
        statics: vec![],
        regulars: SCALARS.to_vec(),
    });
    shapes.push(Shape {
        key: vec![CqlType::Int],
        clustering: vec![(CqlType::Int, false)],
        statics: vec![CqlType::Counter],
        regulars: vec![CqlType::Counter, CqlType::Counter],
    });
    shapes.push(Shape { key: vec![CqlType::Uuid], clustering: vec![], statics: vec![], regulars: vec![] });
    for _ in 0..12 {
        shapes.push(support::shape(random));
    }
    shapes
}

async fn corpus(root: PathBuf) -> Vec<Written> {
    let mut random = Random::new(7);
    let mut written = Vec::new();
    for (number, shape) in shapes(&mut random).iter().enumerate() {
        let table = support::table(&mut random, shape);
        // The first files are wide, so that they have promoted indexes; some have many partitions.
        let (count, rows) = match number % 4 {
            0 => (3, 400),
            1 => (700, 3),
            _ => (30, 10),
        };
        let partitions = support::partitions(&mut random, &table, count, rows);
        let options = WriterOptions {
            compression: [Some(Compressor::Lz4), None, Some(Compressor::Snappy)][number % 3],
            expected_partitions: partitions.len() as u64,
            column_index_bytes: if number % 2 == 0 { 2048 } else { 65536 },
            fp_chance: if number == 5 { 1.0 } else { 0.01 },
            host: Some([number as u8; 16]),
            ..WriterOptions::default()
        };
        let dir = root.join("ks").join(format!("t{number}-00000000000000000000000000000001"));
        std::fs::create_dir_all(&dir).unwrap();
        support::write(&dir, 1 + number as u64, &table, &partitions, options).await;
        let path = Descriptor::new(1 + number as u64).path(&dir, Component::Data);
        written.push(Written { path, table, partitions });
    }
    written
}

fn run(lib: &Path, class: &str, arguments: &[&str]) -> Vec<u8> {
    let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sstabletools");
    let output = Command::new(repository().join("perf/peers/sstabletools/run.sh"))
        .arg(lib)
        .arg(classes)
        .arg(class)
        .args(arguments)
        .output()
        .expect("bash and a JDK");
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{class} {arguments:?}: {problem}");
    output.stdout
}

#[test]
fn cassandra_dumps_every_file_and_agrees() {
    let Some(lib) = cassandra_lib() else { return };
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_owned();
    let corpus = run_one(Config::default(), corpus(root));
    let list = dir.path().join("list");
    let paths: Vec<&str> = corpus.iter().map(|written| written.path.to_str().unwrap()).collect();
    std::fs::write(&list, paths.join("\n")).unwrap();
    run(&lib, "DumpTables", &[list.to_str().unwrap()]);
    for written in &corpus {
        let read =
            |suffix: &str| std::fs::read_to_string(format!("{}.{suffix}", written.path.display())).unwrap();
        compare(&written.path, &read("dump"), &dump(written));
        check_json(written, &read("json"));
        let metadata = read("metadata");
        let rows: usize =
            written.partitions.iter().map(|p| p.rows.len() + usize::from(p.static_row.is_some())).sum();
        assert!(metadata.contains(&format!("totalRows: {rows}")), "{metadata}");
    }
    // The program people use, once: it is what `DumpTables` calls for every file.
    let exported = run(&lib, "org.apache.cassandra.tools.SSTableExport", &[paths[0], "-t"]);
    check_json(&corpus[0], std::str::from_utf8(&exported).unwrap());
}

fn compare(path: &Path, cassandra: &str, ours: &str) {
    let mut lines = cassandra.lines().zip(ours.lines()).enumerate();
    if let Some((line, (cassandra, ours))) = lines.find(|(_, (cassandra, ours))| cassandra != ours) {
        panic!("{} line {}:\nCassandra {cassandra}\nours      {ours}", path.display(), line + 1);
    }
    assert_eq!(cassandra.len(), ours.len(), "{}", path.display());
}

/// The table of `WriteTables.java`.
fn foreign_table() -> Rc<Table> {
    let list = |frozen, element| CqlType::List { element: Box::new(element), frozen };
    let columns = [
        ("pk", ColumnKind::PartitionKey, CqlType::Text),
        ("ck", ColumnKind::Clustering, CqlType::Int),
        ("ck2", ColumnKind::Clustering, CqlType::Text),
        ("s", ColumnKind::Static, CqlType::Text),
        ("v", ColumnKind::Regular, CqlType::Text),
        ("t", ColumnKind::Regular, CqlType::Tinyint),
        (
            "m",
            ColumnKind::Regular,
            CqlType::Map { key: Box::new(CqlType::Text), value: Box::new(CqlType::Int), frozen: false },
        ),
        ("l", ColumnKind::Regular, list(false, CqlType::Bigint)),
        ("st", ColumnKind::Regular, CqlType::Set { element: Box::new(CqlType::Uuid), frozen: false }),
        ("fl", ColumnKind::Regular, list(true, CqlType::Int)),
        ("b", ColumnKind::Regular, CqlType::Blob),
        ("d", ColumnKind::Regular, CqlType::Double),
        ("dec", ColumnKind::Regular, CqlType::Decimal),
    ];
    let columns: Vec<Column> = columns
        .into_iter()
        .enumerate()
        .map(|(at, (name, kind, ty))| Column {
            id: ColumnId(at as u16),
            name: name.into(),
            ty,
            kind,
            position: if kind == ColumnKind::Clustering { at as u16 - 1 } else { 0 },
            reversed: name == "ck",
        })
        .collect();
    Rc::new(Table::new(TableDefinition {
        id: TableId([1; 16]),
        keyspace: "ks".into(),
        name: "t".into(),
        next_column_id: columns.len() as u16,
        columns,
        dropped: BTreeMap::new(),
        options: TableOptions::default(),
        tablets_log2: 0,
        revision: 0,
    }))
}

/// All of a file: forward by scan, and each partition backward and cut by key, which must say the same.
async fn read_foreign(path: PathBuf) -> Written {
    let (table, dir) = (foreign_table(), path.parent().unwrap());
    let orders = table.clustering_orders();
    let (descriptor, _) = Descriptor::parse(path.file_name().unwrap().to_str().unwrap()).unwrap();
    let file = Sstable::open(dir, descriptor, &table).await.unwrap();
    let mut scanner = file.scan(&PartitionBound::START, &PartitionBound::END, &[Slice::all()]).await.unwrap();
    let mut partitions = Vec::new();
    while scanner.next_partition().await.unwrap() {
        let mut partition = Partition {
            key: DecoratedKey::new(scanner.key().to_vec()),
            deletion: scanner.deletion(),
            static_row: scanner.static_row().map(|row| row.as_bytes().to_vec()),
            rows: Vec::new(),
            ranges: Vec::new(),
        };
        let mut open: Option<(OwnedPosition, DeletionTime)> = None;
        while let Some(unfiltered) = scanner.next().await.unwrap() {
            match Item::from(unfiltered) {
                Item::Row(clustering, row) => partition.rows.push((clustering, row)),
                Item::Change(position, after) => {
                    if let Some((start, deletion)) = open.take() {
                        partition.ranges.push(Range { start, end: position.clone(), deletion });
                    }
                    open = Some((position, after)).filter(|(_, after)| !after.is_live());
                }
            }
        }
        partitions.push(partition);
    }
    let mut random = Random::new(1);
    for partition in &partitions {
        let key = &partition.key;
        for round in 0..8 {
            let slices = if round < 2 { vec![Slice::all()] } else { foreign_slices(&mut random) };
            let reversed = round % 2 == 0;
            let mut reader = file.partition(key.token, &key.key, &slices, reversed).await.unwrap().unwrap();
            assert_eq!(
                support::drain(&mut reader).await,
                partition.cut(&slices, reversed, orders),
                "{slices:?}"
            );
        }
    }
    Written { path, table, partitions }
}

/// Two slices by the first clustering column, which descends.
fn foreign_slices(random: &mut Random) -> Vec<Slice> {
    let mut numbers: Vec<i32> = (0..4).map(|_| random.below(8000) as i32).collect();
    numbers.sort_by(|a, b| b.cmp(a));
    numbers.dedup();
    let bound = |number: i32| {
        let mut prefix = Vec::new();
        append_component(&mut prefix, Some(&number.to_be_bytes()));
        OwnedPosition { prefix, weight: -1 }
    };
    numbers.chunks_exact(2).map(|pair| Slice { start: bound(pair[0]), end: bound(pair[1]) }).collect()
}

#[test]
fn files_that_cassandra_wrote_read_as_cassandra_reads_them() {
    let Some(lib) = cassandra_lib() else { return };
    let dir = tempfile::tempdir().unwrap();
    run(&lib, "WriteTables", &[dir.path().to_str().unwrap()]);
    let mut paths: Vec<PathBuf> = Vec::new();
    for folder in std::fs::read_dir(dir.path().join("ks")).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            paths.extend(
                Some(file.unwrap().path()).filter(|path| path.to_str().unwrap().ends_with("Data.db")),
            );
        }
    }
    assert_eq!(paths.len(), 6, "{paths:?}");
    let list = dir.path().join("list");
    let lines: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    std::fs::write(&list, lines.join("\n")).unwrap();
    run(&lib, "DumpTables", &[list.to_str().unwrap()]);
    for path in paths {
        let cassandra = std::fs::read_to_string(format!("{}.dump", path.display())).unwrap();
        let written = run_one(Config::default(), read_foreign(path));
        assert!(!written.partitions.is_empty());
        compare(&written.path, &cassandra, &dump(&written));
    }
}

/// The JSON has every partition, row, cell and tombstone that was written.
fn check_json(written: &Written, json: &str) {
    // Cassandra writes numbers that are not JSON numbers nowhere, so that a parser takes all of it.
    let json: serde_json::Value =
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{}: {error}", written.path.display()));
    let partitions = json.as_array().unwrap();
    assert_eq!(partitions.len(), written.partitions.len());
    for (found, expected) in partitions.iter().zip(&written.partitions) {
        let deleted = found["partition"]["deletion_info"]["marked_deleted"].as_str();
        let deletion = Some(expected.deletion).filter(|deletion| !deletion.is_live());
        assert_eq!(deleted.map(str::to_owned), deletion.map(|deletion| deletion.timestamp.to_string()));
        let rows = found["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
        let kinds = |kind: &str| rows.iter().filter(|row| row["type"] == kind).collect::<Vec<_>>();
        assert_eq!(kinds("static_block").len(), usize::from(expected.static_row.is_some()));
        let found_rows = kinds("row");
        assert_eq!(found_rows.len(), expected.rows.len());
        for (found, (clustering, row)) in found_rows.iter().zip(&expected.rows) {
            let components = Clustering(clustering).components().count();
            assert_eq!(found["clustering"].as_array().map_or(0, Vec::len), components);
            let cells = found["cells"].as_array().map(Vec::as_slice).unwrap_or_default();
            let with_value = |cell: &&serde_json::Value| cell.get("value").is_some();
            let row = without_shadowed(row);
            let live = RowView::trusted(&row).cells().filter(|cell| cell.value().is_some()).count();
            assert_eq!(cells.iter().filter(with_value).count(), live);
        }
        let bounds = kinds("range_tombstone_bound").len() + 2 * kinds("range_tombstone_boundary").len();
        assert_eq!(bounds, 2 * expected.ranges.len());
    }
}

/// Cassandra leaves out, while it reads a row, what the row's own deletions cover; of deletions it keeps all.
fn without_shadowed(row: &[u8]) -> Vec<u8> {
    let row = RowView::trusted(row);
    let (mut out, mut liveness, row_deletion) = (Vec::new(), row.liveness(), row.deletion());
    if row_deletion.deletes(liveness.timestamp) {
        liveness = Liveness::NONE;
    }
    let mut builder = RowBuilder::new(&mut out, liveness, row_deletion);
    let mut collection = None;
    for cell in row.cells() {
        if let Some(deletion) = cell.collection_deletion() {
            collection = Some((cell.column, deletion));
            builder.cell(cell);
            continue;
        }
        let in_collection = collection.filter(|(column, _)| *column == cell.column);
        // An element as old as the deletion of its collection is left to whoever reads the row.
        let shadowed = in_collection.is_some_and(|(_, deletion)| cell.timestamp < deletion.timestamp);
        if !shadowed && !row_deletion.deletes(cell.timestamp) {
            builder.cell(cell);
        }
    }
    builder.finish();
    out
}

/// The dump as `DumpTables` writes it.
fn dump(written: &Written) -> String {
    let (table, mut out) = (&written.table, String::new());
    for partition in &written.partitions {
        writeln!(out, "partition {} {}", hex(&partition.key.key), deletion(partition.deletion)).unwrap();
        if let Some(row) = &partition.static_row {
            out.push_str("static\n");
            cells(&mut out, table.statics(), RowView::trusted(&without_shadowed(row)));
        }
        let mut open = DeletionTime::LIVE;
        for item in partition.stream(table.clustering_orders()) {
            match item {
                Item::Row(clustering, row) => {
                    let row = without_shadowed(&row);
                    let row = RowView::trusted(&row);
                    let liveness = row.liveness();
                    let marker = match (liveness.is_none(), liveness.ttl) {
                        (true, _) => "-".to_owned(),
                        (false, 0) => format!("{}/-", liveness.timestamp),
                        (false, ttl) => format!("{}/{ttl}/{}", liveness.timestamp, liveness.expires_at),
                    };
                    writeln!(out, "row {} {marker} {}", values(&clustering), deletion(row.deletion()))
                        .unwrap();
                    cells(&mut out, table.regulars(), row);
                }
                Item::Change(position, after) => {
                    writeln!(out, "marker {}", marker(&position, open, after)).unwrap();
                    open = after;
                }
            }
        }
    }
    out
}

fn marker(position: &OwnedPosition, before: DeletionTime, after: DeletionTime) -> String {
    let kind = match (before.is_live(), after.is_live(), position.weight > 0) {
        (true, _, false) => "INCL_START_BOUND",
        (true, _, true) => "EXCL_START_BOUND",
        (_, true, false) => "EXCL_END_BOUND",
        (_, true, true) => "INCL_END_BOUND",
        (_, _, false) => "EXCL_END_INCL_START_BOUNDARY",
        (_, _, true) => "INCL_END_EXCL_START_BOUNDARY",
    };
    format!("{kind} {} {} {}", values(&position.prefix), deletion(before), deletion(after))
}

fn cells(out: &mut String, columns: &[Column], row: RowView<'_>) {
    let mut lines = Vec::new();
    for cell in row.cells() {
        let name = &columns.iter().find(|column| column.id == cell.column).unwrap().name;
        if let CellKind::CollectionDeletion { local_time } = cell.kind {
            lines.push(format!("  {name} all {}/{local_time}", cell.timestamp));
            continue;
        }
        let path = cell.path.map_or("-".to_owned(), hex);
        let time =
            if cell.local_time() == NO_LOCAL_TIME { "-".to_owned() } else { cell.local_time().to_string() };
        let value = hex(cell.value().unwrap_or(&[]));
        lines.push(format!("  {name} {path} {} {time} {} {value}", cell.timestamp, cell.ttl()));
    }
    lines.sort();
    lines.iter().for_each(|line| writeln!(out, "{line}").unwrap());
}

fn values(prefix: &[u8]) -> String {
    let values = Clustering(prefix).components().map(|value| value.map_or("null".to_owned(), hex) + ",");
    format!("({})", values.collect::<String>())
}

fn deletion(deletion: DeletionTime) -> String {
    if deletion.is_live() {
        "-".to_owned()
    } else {
        format!("{}/{}", deletion.timestamp, deletion.local_time)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
