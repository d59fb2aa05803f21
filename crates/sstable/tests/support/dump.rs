//! Dumps a file in the form of `perf/peers/sstabletools/DumpTables.java`, for comparison.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use model::Table;
use model::clustering::{Clustering, OwnedPosition, Slice};
use model::deletion::{DeletionTime, Liveness, NO_LOCAL_TIME};
use model::partition_key::DecoratedKey;
use model::row::{CellKind, RowBuilder, RowView};
use model::schema::{Column, ColumnId, ColumnKind, TableDefinition, TableId, TableOptions};
use model::types::CqlType;
use sstable::{Descriptor, PartitionBound, SerializationHeader, Sstable};

use super::{Item, Partition, Random, Range, drain};

/// A file, its table, and its contents.
pub(crate) struct Written {
    pub(crate) path: PathBuf,
    pub(crate) table: Rc<Table>,
    pub(crate) partitions: Vec<Partition>,
}

pub(crate) fn compare(path: &Path, cassandra: &str, ours: &str) {
    let mut lines = cassandra.lines().zip(ours.lines()).enumerate();
    if let Some((line, (cassandra, ours))) = lines.find(|(_, (cassandra, ours))| cassandra != ours) {
        panic!("{} line {}:\nCassandra {cassandra}\nours      {ours}", path.display(), line + 1);
    }
    assert_eq!(cassandra.len(), ours.len(), "{}", path.display());
}

/// Reads all of a file: forward by scan, and each partition backward and sliced by key, which must agree.
pub(crate) async fn read(path: PathBuf, table: Rc<Table>) -> Written {
    let dir = path.parent().unwrap();
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
            let slices = if round < 2 { vec![Slice::all()] } else { slices(&mut random, partition) };
            let reversed = round % 2 == 0;
            let mut reader = file.partition(key.token, &key.key, &slices, reversed).await.unwrap().unwrap();
            assert_eq!(drain(&mut reader).await, partition.cut(&slices, reversed, orders), "{slices:?}");
        }
    }
    Written { path, table, partitions }
}

/// Two slices between rows of a partition.
fn slices(random: &mut Random, partition: &Partition) -> Vec<Slice> {
    let rows = &partition.rows;
    if rows.is_empty() {
        return vec![Slice::all()];
    }
    let mut numbers: Vec<usize> = (0..4).map(|_| random.below(rows.len())).collect();
    numbers.sort();
    numbers.dedup();
    let bound = |number: usize, weight| OwnedPosition { prefix: rows[number].0.clone(), weight };
    numbers.chunks_exact(2).map(|pair| Slice { start: bound(pair[0], -1), end: bound(pair[1], 1) }).collect()
}

/// The table that a file's header describes.
pub(crate) fn table_of_header(header: &SerializationHeader) -> TableDefinition {
    let mut columns = Vec::new();
    let mut add = |name: String, ty: &CqlType, kind, position: usize, reversed| {
        let id = ColumnId(columns.len() as u16);
        columns.push(Column { id, name, ty: ty.clone(), kind, position: position as u16, reversed });
    };
    header.statics.iter().for_each(|c| add(c.name.clone(), &c.ty, ColumnKind::Static, 0, false));
    header.regulars.iter().for_each(|c| add(c.name.clone(), &c.ty, ColumnKind::Regular, 0, false));
    add("\u{1}key".into(), &CqlType::Blob, ColumnKind::PartitionKey, 0, false);
    for (position, (ty, reversed)) in header.clusterings.iter().enumerate() {
        add(format!("\u{1}clustering {position}"), ty, ColumnKind::Clustering, position, *reversed);
    }
    TableDefinition {
        id: TableId([1; 16]),
        keyspace: "ks".into(),
        name: "t".into(),
        next_column_id: columns.len() as u16,
        columns,
        dropped: BTreeMap::new(),
        options: TableOptions::default(),
        tablets_log2: 0,
        revision: 0,
    }
}

/// Removes data covered by the row's own deletions, as Cassandra does when it reads a row; deletions stay.
pub(crate) fn without_shadowed(row: &[u8]) -> Vec<u8> {
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
        // An element as old as the deletion of its collection is left to the reader of the row.
        let shadowed = in_collection.is_some_and(|(_, deletion)| cell.timestamp < deletion.timestamp);
        if !shadowed && !row_deletion.deletes(cell.timestamp) {
            builder.cell(cell);
        }
    }
    builder.finish();
    out
}

/// The dump as `DumpTables` writes it.
pub(crate) fn dump(written: &Written) -> String {
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
