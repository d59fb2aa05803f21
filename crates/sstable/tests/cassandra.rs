//! Apache Cassandra reads the files that this crate writes, and agrees on every byte.
//!
//! A corpus of table files is dumped by Cassandra's own classes (`perf/peers/sstabletools`) and compared with
//! the rows that were written: keys, clusterings, values, times, tombstones of all kinds. Needs the jars of
//! cassandra-all in `CASSANDRA_LIB` or `.cache/cassandra/lib`. Without them the test prints that and checks
//! nothing, unless `CASSANDRA_REQUIRED` is set.
#![allow(clippy::disallowed_methods, reason = "a test of files on the real disk, with another program")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use model::Table;
use model::clustering::Clustering;
use model::row::RowView;
use model::schema::{Column, ColumnId, ColumnKind, TableDefinition, TableId, TableOptions};
use model::types::CqlType;
use reactor::{Config, run_one};
use sstable::{Component, Descriptor, WriterOptions};
use support::dump::{Written, compare, dump, read, without_shadowed};
use support::{Random, SCALARS, Shape};

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
    let (mut random, compressions) = (Random::new(7), support::compressions());
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
            compression: compressions[number % compressions.len()],
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
    // The tool that people use, once; `DumpTables` calls it for every file.
    let exported = run(&lib, "org.apache.cassandra.tools.SSTableExport", &[paths[0], "-t"]);
    check_json(&corpus[0], std::str::from_utf8(&exported).unwrap());
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
        let written = run_one(Config::default(), read(path, foreign_table()));
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
