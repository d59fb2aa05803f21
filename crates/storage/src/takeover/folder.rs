//! Folders of Cassandra's tables: finds their table files, and links these under names that this node reads.
//!
//! Names of table files are `<version>-<id>-<format>-<component>`. The id is a number or, since Cassandra
//! 4.1, a text that encodes a time; links have numbers only. Folders are `<keyspace>/<table>-<id in
//! hexadecimal>`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use model::Table;
use model::schema::{Schema, TableId};
use sstable::{Component, Descriptor, FileId, Format, Sstable, Version};

use super::{is_system, refused};
use crate::error::StorageError;
use crate::import::NOT_READ;

/// Folder with the links, below a table's folder.
const STAGED: &str = "takeover";
/// Components without which a table file of a format is not read.
fn needed(format: Format) -> &'static [Component] {
    use Component::{Data, Index, Statistics, Summary, Toc};
    match format {
        Format::Big => &[Data, Index, Statistics, Summary, Toc],
        Format::Bti => &[Data, Statistics, Toc],
    }
}

/// One table file, by the prefix of its names, with its components.
#[derive(Debug)]
pub(super) struct FileSet {
    prefix: String,
    version: Version,
    components: Vec<Component>,
}

/// The id in the name of a table's folder.
pub(super) fn table_id(directory: &Path) -> Option<TableId> {
    let (_, hex) = directory.file_name()?.to_str()?.rsplit_once('-')?;
    let bytes = hex.as_bytes();
    let mut id = [0; 16];
    if bytes.len() != 32 {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(bytes.chunks_exact(2)) {
        let digit = |at: usize| (pair[at] as char).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(TableId(id))
}

/// Folders of the tables of a schema, by table; other folders are logged as left alone.
pub(super) async fn folders_of(
    data: &Path,
    schema: &Schema,
) -> Result<BTreeMap<TableId, Vec<PathBuf>>, StorageError> {
    let mut folders: BTreeMap<TableId, Vec<PathBuf>> = BTreeMap::new();
    for keyspace in reactor::file::read_dir(data).await.map_err(StorageError::of("list", data))? {
        if !keyspace.is_dir || is_system(&keyspace.name) {
            continue;
        }
        let directory = data.join(&keyspace.name);
        let tables = reactor::file::read_dir(&directory).await;
        for table in tables.map_err(StorageError::of("list", &directory))?.into_iter().filter(|t| t.is_dir) {
            let path = directory.join(&table.name);
            match table_id(&path).filter(|id| schema.table_by_id(*id).is_some()) {
                Some(id) => folders.entry(id).or_default().push(path),
                None => {
                    reactor::warn!("a folder of something that is not a table of the schema is not taken over";
                    directory = path.display())
                }
            }
        }
    }
    Ok(folders)
}

/// The table files in a folder, the oldest names first.
///
/// # Errors
/// [`StorageError::Import`] for one that cannot be read: of another format or version, or incomplete.
pub(super) async fn sets(directory: &Path) -> Result<Vec<FileSet>, StorageError> {
    let found = found(directory).await?;
    for set in &found {
        if let Some(lacking) =
            needed(set.version.format()).iter().find(|needed| !set.components.contains(needed))
        {
            let path = directory.join(format!("{}-Data.db", set.prefix));
            return Err(refused(&path, format!("the table file is not whole: it has no {lacking}")));
        }
    }
    Ok(found)
}

/// As [`sets`], for a folder in which [`remove`] may have been interrupted: the rest of such a file is
/// removed.
///
/// # Errors
/// As [`sets`], and those of removing.
pub(super) async fn sets_left(directory: &Path) -> Result<Vec<FileSet>, StorageError> {
    let mut found = found(directory).await?;
    // All files were complete when the takeover began.
    let gone: Vec<FileSet> = found.extract_if(.., |set| !set.components.contains(&Component::Toc)).collect();
    remove(directory, &gone).await?;
    Ok(found)
}

async fn found(directory: &Path) -> Result<Vec<FileSet>, StorageError> {
    let entries = reactor::file::read_dir(directory).await.map_err(StorageError::of("list", directory))?;
    let mut found: BTreeMap<String, FileSet> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| !entry.is_dir) {
        let name = entry.name.as_str();
        if name.contains("_txn_") && name.ends_with(".log") {
            return Err(refused(
                &directory.join(name),
                "Cassandra ended in the middle of a compaction or flush of this table: start it, `nodetool drain`, and stop it",
            ));
        }
        let mut parts = name.splitn(4, '-');
        let (Some(version), Some(id), Some(format), Some(component)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if version.len() != 2 || id.is_empty() {
            continue;
        }
        let readable = Format::parse(format).and_then(|format| Version::parse(version, format));
        let Some(version) = readable else {
            // Other components, such as those of SAI, are no reason to refuse a file.
            if !name.ends_with("-Data.db") {
                continue;
            }
            return Err(refused(&directory.join(name), NOT_READ));
        };
        let prefix = format!("{}-{id}-{format}", version.letters());
        let set = found.entry(prefix.clone()).or_insert(FileSet { prefix, version, components: Vec::new() });
        set.components.extend(Component::parse(component));
    }
    // Files that an interrupted takeover wrote beside them have the component that only this node writes.
    found.retain(|_, set| !set.components.is_empty() && !set.components.contains(&Component::Ceto));
    Ok(found.into_values().collect())
}

/// Removes table files whose rows are in files of this node, `TOC.txt` first: a file without it is known to
/// be incompletely removed.
///
/// # Errors
/// Those of removing.
pub(super) async fn remove(directory: &Path, sets: &[FileSet]) -> Result<(), StorageError> {
    for set in sets {
        let (toc, others): (Vec<&Component>, Vec<&Component>) =
            set.components.iter().partition(|component| **component == Component::Toc);
        for some in [toc, others] {
            for component in some {
                let path = directory.join(format!("{}-{component}", set.prefix));
                match reactor::file::remove_file(&path).await {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(StorageError::io("delete", path, error));
                    }
                    _ => {}
                }
            }
            reactor::file::sync_dir(directory).await.map_err(StorageError::of("sync", directory))?;
        }
    }
    Ok(())
}

/// Links to table files, numbered from one.
pub(super) struct Staged {
    pub(super) directory: PathBuf,
    files: Vec<(Descriptor, String)>,
}

impl Staged {
    /// Links these files of a folder; links of an earlier attempt are removed.
    pub(super) async fn of(directory: &Path, sets: &[FileSet]) -> Result<Self, StorageError> {
        let to = directory.join(STAGED);
        remove_links(&to).await?;
        reactor::file::create_dir_all(&to).await.map_err(StorageError::of("create", &to))?;
        let mut files = Vec::with_capacity(sets.len());
        for (number, set) in sets.iter().enumerate() {
            let descriptor = Descriptor { id: FileId::Number(number as u64 + 1), version: set.version };
            for component in &set.components {
                let from = directory.join(format!("{}-{component}", set.prefix));
                let linked = reactor::file::hard_link(&from, descriptor.path(&to, *component)).await;
                linked.map_err(StorageError::of("link", &from))?;
            }
            files.push((descriptor, set.prefix.clone()));
        }
        Ok(Self { directory: to, files })
    }

    /// Opens every file as one of `table`. Returns their bytes in all, and the bytes of the largest.
    ///
    /// # Errors
    /// [`StorageError::Import`] for one that cannot be opened, with the file's original name.
    pub(super) async fn look(&self, table: &Rc<Table>) -> Result<(u64, u64), StorageError> {
        let (mut bytes, mut largest) = (0, 0);
        for (descriptor, prefix) in &self.files {
            match Sstable::open(&self.directory, *descriptor, table).await {
                Ok(sstable) => {
                    bytes += sstable.bytes_on_disk();
                    largest = sstable.bytes_on_disk().max(largest);
                }
                Err(error) => {
                    let folder = self.directory.parent().unwrap_or(&self.directory);
                    let path = folder.join(format!("{prefix}-Data.db"));
                    let (keyspace, name) = (table.keyspace(), table.name());
                    let reason = format!("it is no readable file of {keyspace}.{name}: {error}");
                    return Err(refused(&path, reason));
                }
            }
        }
        Ok((bytes, largest))
    }

    /// The links.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = Descriptor> + '_ {
        self.files.iter().map(|(descriptor, _)| *descriptor)
    }

    /// Removes the links.
    pub(super) async fn remove(self) -> Result<(), StorageError> {
        remove_links(&self.directory).await
    }
}

async fn remove_links(directory: &Path) -> Result<(), StorageError> {
    match reactor::file::remove_dir_all(directory).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StorageError::io("delete", directory, error))
        }
        _ => Ok(()),
    }
}
