//! Names of table files on the command line, and opening them by their own header.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use ::sstable::{Component, Descriptor, SerializationHeader, Sstable, SstableError, Statistics};
use model::marshal::parse_key_class;
use model::schema::{Column, ColumnId, ColumnKind, TableDefinition, TableId, TableOptions};
use model::{CqlType, Table};
use reactor::file::read_all;

use super::ToolError;

/// Largest Statistics.db that is read.
const STATISTICS_BYTES_MAX: usize = 1 << 30;
/// Most columns of a file, so that each has a number.
const COLUMNS_MAX: usize = u16::MAX as usize;

/// A table file by folder and descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) dir: PathBuf,
    pub(super) descriptor: Descriptor,
}

/// An open table file and the table that its header describes.
pub(super) struct Opened {
    pub(super) sstable: Sstable,
    pub(super) table: Rc<Table>,
    /// Types of the partition key's columns; one opaque column if the header names a class of another kind.
    pub(super) key_types: Vec<CqlType>,
}

impl Target {
    /// The table file that has `path` as a component.
    pub(super) fn parse(path: &Path) -> Result<Self, ToolError> {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| ToolError::Path { path: path.to_owned() })?;
        let dir = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        match Descriptor::parse(name) {
            Ok((descriptor, _)) => Ok(Self { dir, descriptor }),
            Err(SstableError::Name { .. }) => Err(ToolError::Path { path: path.to_owned() }),
            Err(SstableError::Version { version, .. }) => {
                Err(SstableError::Version { path: path.to_owned(), version }.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Path of one of its components.
    pub(super) fn path(&self, component: Component) -> PathBuf {
        self.descriptor.path(&self.dir, component)
    }

    /// Reads its Statistics.
    pub(super) async fn statistics(&self) -> Result<Statistics, ToolError> {
        let path = self.path(Component::Statistics);
        let bytes = read_all(&path, STATISTICS_BYTES_MAX).await.map_err(ToolError::io(&path))?;
        Statistics::decode(&bytes, self.descriptor.version.features()).map_err(|error| {
            let (component, offset) = (Component::Statistics, error.offset);
            SstableError::Corrupt { path, component, offset, problem: error.problem }.into()
        })
    }

    /// Opens it with the columns of its own header.
    pub(super) async fn open(&self) -> Result<Opened, ToolError> {
        let header = self.statistics().await?.header;
        let key_types = key_types(&header);
        let table = Rc::new(self.table(&header, &key_types)?);
        let sstable = Sstable::open(&self.dir, self.descriptor, &table).await?;
        Ok(Opened { sstable, table, key_types })
    }

    /// The table that a header describes, named after the folders the file is in.
    fn table(&self, header: &SerializationHeader, key_types: &[CqlType]) -> Result<Table, ToolError> {
        let count = key_types.len() + header.clusterings.len() + header.statics.len() + header.regulars.len();
        if count > COLUMNS_MAX {
            let path = self.path(Component::Statistics);
            return Err(ToolError::Columns { path, columns: count, limit: COLUMNS_MAX });
        }
        let mut columns: Vec<Column> = Vec::with_capacity(count);
        let mut add = |name: String, ty: &CqlType, kind, position: usize, reversed| {
            let id = ColumnId(columns.len() as u16);
            columns.push(Column { id, name, ty: ty.clone(), kind, position: position as u16, reversed });
        };
        // In the order of the file, so that rows decode without sorting.
        for column in &header.statics {
            add(column.name.clone(), &column.ty, ColumnKind::Static, 0, false);
        }
        for column in &header.regulars {
            add(column.name.clone(), &column.ty, ColumnKind::Regular, 0, false);
        }
        // A control character keeps these apart from the names of columns.
        for (position, ty) in key_types.iter().enumerate() {
            add(format!("\u{1}key {position}"), ty, ColumnKind::PartitionKey, position, false);
        }
        for (position, (ty, reversed)) in header.clusterings.iter().enumerate() {
            add(format!("\u{1}clustering {position}"), ty, ColumnKind::Clustering, position, *reversed);
        }
        let folder = |path: Option<&Path>| {
            path.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        Ok(Table::new(TableDefinition {
            id: TableId([0; 16]),
            keyspace: folder(self.dir.parent()),
            name: folder(Some(&self.dir)),
            next_column_id: columns.len() as u16,
            columns,
            dropped: Default::default(),
            options: TableOptions::default(),
            tablets_log2: 0,
            revision: 0,
        }))
    }
}

fn key_types(header: &SerializationHeader) -> Vec<CqlType> {
    match parse_key_class(&header.key_class) {
        Ok(types) if !types.is_empty() => types,
        _ => vec![CqlType::Custom(header.key_class.clone())],
    }
}
