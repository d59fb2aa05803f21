//! The rows of Cassandra's `system_schema`, out of its table files.
//!
//! Every table is read with the columns that the headers of its files list, all files merged. Columns are
//! found by name, and a column that the version of Cassandra does not have yet is absent. The schema fits in
//! memory: it did in Cassandra's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use model::clustering::{Clustering, Slice};
use model::deletion::LocalSeconds;
use model::marshal::parse_key_class;
use model::schema::{Column, ColumnId, ColumnKind, TableDefinition, TableId, TableOptions};
use model::{CqlType, Table, Token};
use sstable::{PartitionBound, SerializationHeader, Sstable};

use super::folder::{self, FileSet, Staged};
use super::refused;
use crate::disk::FailurePolicy;
use crate::error::StorageError;
use crate::memtable::Shape;
use crate::read::merge::{Merge, Step};
use crate::read::source::{Input, Source};
use crate::tablet::{Damage, TableFile, to_storage_error};

/// Cassandra's keyspace of schemas.
const KEYSPACE: &str = "system_schema";
/// Most columns of a schema table, so that each has a number.
const COLUMNS_MAX: usize = 1 << 12;
/// Most rows of one schema table.
const ROWS_MAX: usize = 1 << 22;

/// A row of a schema table.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    /// The keyspace it speaks of.
    pub(super) keyspace: String,
    /// Values of its clustering columns: of a table, a column, a type.
    pub(super) names: Vec<String>,
    /// Bytes of the other columns that have a value.
    pub(super) cells: BTreeMap<String, Vec<u8>>,
}

/// Rows by the name of the schema table.
pub(super) type Described = BTreeMap<&'static str, Vec<Row>>;

/// Tables of the schema that are read; the first has to be there.
const TABLES: [&str; 9] = [
    "keyspaces",
    "tables",
    "columns",
    "types",
    "dropped_columns",
    "views",
    "indexes",
    "functions",
    "aggregates",
];

/// All rows of Cassandra's schema; `None` if the directory is not that of a Cassandra node.
///
/// # Errors
/// [`StorageError::Import`] and those of the files.
pub(super) async fn read(data: &Path) -> Result<Option<Described>, StorageError> {
    let directory = data.join(KEYSPACE);
    let entries = match reactor::file::read_dir(&directory).await {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StorageError::io("list", directory, error)),
    };
    let mut described = Described::new();
    for name in TABLES {
        let mut rows = Vec::new();
        // A table of a schema may have been another one in an older version, under another id: those are
        // Cassandra 2's.
        let folders = entries.iter().filter(|entry| {
            entry.is_dir && entry.name.rsplit_once('-').is_some_and(|(table, _)| table == name)
        });
        let folders: Vec<PathBuf> = folders.map(|entry| directory.join(&entry.name)).collect();
        for folder in folders {
            let sets = folder::sets(&folder).await?;
            if !sets.is_empty() {
                rows.extend(read_folder(&folder, &sets).await?);
            }
        }
        described.insert(name, rows);
    }
    Ok((!described["keyspaces"].is_empty()).then_some(described))
}

async fn read_folder(folder: &Path, sets: &[FileSet]) -> Result<Vec<Row>, StorageError> {
    let staged = Staged::of(folder, sets).await?;
    let read = read_staged(&staged).await;
    staged.remove().await?;
    read
}

async fn read_staged(staged: &Staged) -> Result<Vec<Row>, StorageError> {
    let mut headers = Vec::new();
    for descriptor in staged.descriptors() {
        headers.push(sstable::read_header(&staged.directory, descriptor).await.map_err(to_storage_error)?);
    }
    let table = Rc::new(table_of(&staged.directory, &headers)?);
    // A damaged file is not set aside, because it belongs to Cassandra.
    let damage = Rc::new(Damage::new(FailurePolicy::Ignore));
    let mut files = Vec::new();
    for descriptor in staged.descriptors() {
        let sstable = Sstable::open(&staged.directory, descriptor, &table).await.map_err(to_storage_error)?;
        files.push(Rc::new(TableFile::new(sstable, &damage)));
    }
    let mut keys = BTreeSet::new();
    for file in &files {
        let (from, to) = (PartitionBound::START, PartitionBound::END);
        let mut scanner = file.open().scan(&from, &to, &[]).await.map_err(to_storage_error)?;
        while scanner.next_partition().await.map_err(to_storage_error)? {
            keys.insert((scanner.token(), scanner.key().to_vec()));
        }
    }
    let mut rows = Vec::new();
    for (token, key) in keys {
        read_partition(&table, &files, (token, &key), &mut rows).await?;
        if rows.len() > ROWS_MAX {
            return Err(refused(&staged.directory, format!("more than {ROWS_MAX} rows of a schema table")));
        }
    }
    Ok(rows)
}

async fn read_partition(
    table: &Rc<Table>,
    files: &[Rc<TableFile>],
    (token, key): (Token, &[u8]),
    rows: &mut Vec<Row>,
) -> Result<(), StorageError> {
    let slices = [Slice::all()];
    let shape = Shape { orders: table.clustering_orders(), slices: &slices, reversed: false };
    let mut sources = Vec::new();
    for file in files {
        let reader = file.open().partition(token, key, &slices, false).await.map_err(to_storage_error)?;
        sources.extend(
            reader.map(|reader| {
                Source::new(Input::Partition { file: Rc::clone(file), reader: Box::new(reader) })
            }),
        );
    }
    let now = LocalSeconds::try_from(reactor::wall_clock_us() / 1_000_000).unwrap_or(LocalSeconds::MAX);
    let mut merge = Merge::for_reading(Rc::clone(table), sources, now);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    loop {
        match merge.step(shape).await? {
            Step::End => return Ok(()),
            Step::DeadRow | Step::Change => {}
            Step::Row => {
                let (clustering, view) = merge.row();
                let names = Clustering(clustering).components().map(|name| text(name.unwrap_or_default()));
                let cells = view.cells().filter_map(|cell| {
                    let column = table.column_by_id(cell.column)?;
                    Some((column.name.clone(), cell.value()?.to_vec()))
                });
                rows.push(Row { keyspace: text(key), names: names.collect(), cells: cells.collect() });
            }
        }
    }
}

/// A table with the columns of all these headers.
fn table_of(directory: &Path, headers: &[SerializationHeader]) -> Result<Table, StorageError> {
    let mut columns: Vec<Column> = Vec::new();
    let mut add = |name: String, ty: &CqlType, kind, position: usize, reversed| {
        if !columns.iter().any(|column| column.name == name) {
            let id = ColumnId(columns.len() as u16);
            columns.push(Column { id, name, ty: ty.clone(), kind, position: position as u16, reversed });
        }
    };
    for header in headers {
        let keys = parse_key_class(&header.key_class)
            .map_err(|error| refused(directory, format!("the type of a partition key: {error}")))?;
        let count = keys.len() + header.clusterings.len() + header.statics.len() + header.regulars.len();
        if count > COLUMNS_MAX {
            return Err(refused(directory, format!("a schema table of {count} columns")));
        }
        // A control character keeps these apart from the names of columns.
        for (position, ty) in keys.iter().enumerate() {
            add(format!("\u{1}key {position}"), ty, ColumnKind::PartitionKey, position, false);
        }
        for (position, (ty, reversed)) in header.clusterings.iter().enumerate() {
            add(format!("\u{1}clustering {position}"), ty, ColumnKind::Clustering, position, *reversed);
        }
        for column in &header.statics {
            add(column.name.clone(), &column.ty, ColumnKind::Static, 0, false);
        }
        for column in &header.regulars {
            add(column.name.clone(), &column.ty, ColumnKind::Regular, 0, false);
        }
    }
    if columns.len() > COLUMNS_MAX {
        return Err(refused(directory, format!("a schema table of {} columns", columns.len())));
    }
    Ok(Table::new(TableDefinition {
        id: TableId([0; 16]),
        keyspace: KEYSPACE.to_owned(),
        name: directory.to_string_lossy().into_owned(),
        next_column_id: columns.len() as u16,
        columns,
        dropped: BTreeMap::new(),
        options: TableOptions::default(),
        tablets_log2: 0,
        revision: 0,
    }))
}
