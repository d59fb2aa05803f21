//! An open table file: the parts of it that are kept in memory, and the ways to read it.
//!
//! Opening reads every component but Data and Index. A point read checks the filter, then the summary, then
//! reads one stretch of the index and the chunks of the partition. Clones of the `Rc` inside are cheap;
//! readers keep the file open after the table file was removed.

mod opening;

pub use opening::read_extras;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use model::Table;
use model::clustering::Slice;
use model::deletion::NO_LOCAL_TIME;
use model::token::Token;
use reactor::file::{read_all, remove_file, sync_dir};

use crate::data::chunks::{DataFile, DiskReads, ReadCounter};
use crate::data::long_rows::RowRoom;
use crate::data::reader::{PartitionReader, Scanner};
use crate::data::stream::Stream;
use crate::data::window::READ_BYTES_MAX;
use crate::descriptor::{Component, Descriptor};
use crate::error::{Malformed, SstableError};
use crate::extras::{Extent, Extras};
use crate::index::pages::IndexPages;
use crate::index::promoted::Promoted;
use crate::index::reader::{AtHand, End, Entry, IndexFile};
use crate::index::walked::Walked;
use crate::layout::Layout;
use crate::resident::{ComponentMemory, Resident};
use crate::scan::PartitionBound;
use crate::statistics::{SerializationHeader, Statistics, Stats};

/// Largest component that is read into memory as a whole.
const COMPONENT_BYTES_MAX: u64 = 2 << 30;
/// A partition up to this size is read with one request.
const WHOLE_PARTITION_BYTES: u64 = 16 * 1024;

/// Uncompressed bytes that a scan reads first if its reader may stop soon.
const FIRST_BYTES: u64 = 16 * 1024;

/// The state that readers share, with the mapping of rows to the table.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) layout: Layout,
    file: Rc<Open>,
}

impl std::ops::Deref for Inner {
    type Target = Open;
    fn deref(&self) -> &Open {
        &self.file
    }
}

/// The part of an open file that does not depend on the table.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) descriptor: Descriptor,
    pub(crate) dir: PathBuf,
    pub(crate) data: DataFile,
    finder: Finder,
    pub(crate) reads: ReadCounter,
    extras: Extras,
    pub(crate) resident: Resident,
    statistics: Statistics,
    extent: Option<Extent>,
    /// Token and stored key of the first and the last partition.
    first: (Token, Box<[u8]>),
    last: (Token, Box<[u8]>),
    bytes_on_disk: u64,
    /// Whether the summary or the filter is not the one on the disk.
    is_mended: bool,
}

/// The way in which partitions are found.
#[derive(Debug)]
enum Finder {
    /// By the index; the summary names a stretch of it.
    Index(Rc<IndexFile>),
    /// By walking over the data.
    Walked(Walked),
}

impl Open {
    /// Stored key of the last partition.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last.1
    }

    /// Whether every other entry of the summary may be left out: at most about so many bytes of index then
    /// lie between two entries.
    pub(crate) fn may_be_thinned(&self, stretch_bytes_max: u64) -> bool {
        let Finder::Index(index) = &self.finder else { return false };
        let entries = self.resident.summary().map_or(0, |summary| summary.len() as u64);
        entries > 1 && index.length / entries.div_ceil(2) <= stretch_bytes_max
    }
}

/// An open table file.
#[derive(Debug, Clone)]
pub struct Sstable {
    inner: Rc<Inner>,
    /// Memory that its readers take for long rows; `None` for no limit.
    room: Option<Rc<RowRoom>>,
}

fn resolve(
    descriptor: Descriptor,
    path: &Path,
    statistics: &Statistics,
    table: &Table,
) -> Result<Layout, SstableError> {
    let unsigned = descriptor.version.features().unsigned_deletion_times;
    Layout::resolve(&statistics.header, table, unsigned).map_err(|what| {
        let table = format!("{}.{}", table.keyspace(), table.name());
        SstableError::Schema { path: path.to_owned(), table, what }
    })
}

impl Sstable {
    /// Opens the table file `descriptor` in `dir`, whose rows are read as those of `table`; every lookup
    /// reads its part of the index.
    ///
    /// # Errors
    /// [`SstableError`] with the component and the kind of damage; the file is then not usable.
    pub async fn open(dir: &Path, descriptor: Descriptor, table: &Rc<Table>) -> Result<Self, SstableError> {
        Self::open_cold(dir, descriptor, table, None, false).await
    }

    /// As [`Sstable::open`], but a damaged or lost summary or filter is rebuilt from the index, in memory:
    /// see [`Sstable::is_mended`].
    ///
    /// # Errors
    /// As [`Sstable::open`].
    pub async fn open_mending(
        dir: &Path,
        descriptor: Descriptor,
        table: &Rc<Table>,
    ) -> Result<Self, SstableError> {
        Self::open_cold(dir, descriptor, table, None, true).await
    }

    /// As [`Sstable::open`], for use within a shard's memory. The memory of the file's components counts
    /// there, and is reduced if it is too much; parts of the index that were read are kept among `pages`. A
    /// damaged summary or filter is rebuilt from the index, in memory.
    ///
    /// # Errors
    /// As [`Sstable::open`].
    pub async fn open_within(
        dir: &Path,
        descriptor: Descriptor,
        table: &Rc<Table>,
        within: (&ComponentMemory, &IndexPages),
    ) -> Result<Self, SstableError> {
        Self::open_cold(dir, descriptor, table, Some(within), true).await
    }

    /// Whether a component was rebuilt in memory when the file was opened: the one on the disk is not usable.
    pub fn is_mended(&self) -> bool {
        self.inner.file.is_mended
    }

    /// The same open file, with its rows read as those of `table`, which was altered since.
    ///
    /// Readers of the old one continue unchanged.
    ///
    /// # Errors
    /// [`SstableError::Schema`] if the two do not match; no alteration leads there.
    pub fn with_table(&self, table: &Table) -> Result<Self, SstableError> {
        let file = Rc::clone(&self.inner.file);
        let path = file.descriptor.path(&file.dir, Component::Statistics);
        let layout = resolve(file.descriptor, &path, &file.statistics, table)?;
        Ok(Self { inner: Rc::new(Inner { layout, file }), room: None })
    }

    /// Its name.
    pub fn descriptor(&self) -> Descriptor {
        self.inner.descriptor
    }

    /// The folder it is in.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// Token and stored key of its first partition.
    pub fn first_key(&self) -> (Token, &[u8]) {
        (self.inner.first.0, &self.inner.first.1)
    }

    /// Token and stored key of its last partition.
    pub fn last_key(&self) -> (Token, &[u8]) {
        (self.inner.last.0, &self.inner.last.1)
    }

    /// Whether the file may have a partition with this key; false is always correct.
    pub fn may_contain(&self, token: Token, key: &[u8]) -> bool {
        self.covers(token) && self.inner.resident.may_contain(key)
    }

    /// Whether the token lies among those of the file's partitions.
    pub fn covers(&self, token: Token) -> bool {
        self.inner.first.0 <= token && token <= self.inner.last.0
    }

    /// Whether a read of these slices (disjoint, ascending) may find something in one of its partitions: a
    /// row, a range tombstone, the deletion of a partition or a static row. False is always correct.
    pub fn may_contain_slices(&self, slices: &[Slice]) -> bool {
        let Some(extent) = &self.inner.extent else { return true };
        let (first, last) = (extent.first.as_ref(), extent.last.as_ref());
        let orders = &self.inner.layout.orders;
        extent.partition_deletions
            || extent.static_rows
            || slices.iter().any(|slice| {
                slice.start.as_ref().compare(last, orders).is_lt()
                    && first.compare(slice.end.as_ref(), orders).is_lt()
            })
    }

    /// Whether there may be a static row that is not empty.
    pub fn may_have_static_rows(&self) -> bool {
        match &self.inner.extent {
            Some(extent) => extent.static_rows,
            None => !self.inner.statistics.header.statics.is_empty(),
        }
    }

    /// Whether the file has no deletions and no expiring data.
    pub fn has_only_values(&self) -> bool {
        self.inner.statistics.stats.min_local_deletion_time == NO_LOCAL_TIME
    }

    /// Upper bound of all timestamps in it, microseconds.
    pub fn max_timestamp(&self) -> i64 {
        self.inner.statistics.stats.max_timestamp
    }

    /// Ranges and histograms.
    pub fn stats(&self) -> &Stats {
        &self.inner.statistics.stats
    }

    /// All of `Statistics.db`.
    pub fn statistics(&self) -> &Statistics {
        &self.inner.statistics
    }

    /// Contents of `Ceto.db`; empty if the file has none.
    pub fn extras(&self) -> &Extras {
        &self.inner.extras
    }

    /// Bytes of all its components.
    pub fn bytes_on_disk(&self) -> u64 {
        self.inner.bytes_on_disk
    }

    /// Bytes of its data before compression.
    pub fn data_bytes(&self) -> u64 {
        self.inner.data.length()
    }

    /// Bytes in memory of its filter, summary, dictionary and chunk offsets.
    pub fn bytes_in_memory(&self) -> usize {
        self.inner.resident.bytes()
    }

    /// The same file, with readers that take memory for long rows from `room`, if given.
    #[must_use]
    pub fn in_room(self, room: Option<&Rc<RowRoom>>) -> Self {
        Self { room: room.cloned(), ..self }
    }

    /// Disk reads of its readers so far.
    pub fn disk_reads(&self) -> DiskReads {
        self.inner.reads.get()
    }

    /// The partition with this key, cut to `slices` (disjoint, ascending); `None` if the file does not have
    /// it.
    ///
    /// With `reversed` the slices and their contents come from the last to the first.
    ///
    /// # Errors
    /// [`SstableError::Io`] and [`SstableError::Corrupt`].
    pub async fn partition(
        &self,
        token: Token,
        key: &[u8],
        slices: &[Slice],
        reversed: bool,
    ) -> Result<Option<PartitionReader>, SstableError> {
        if !self.may_contain(token, key) {
            return Ok(None);
        }
        let inner = &self.inner;
        let index = match &inner.finder {
            Finder::Index(index) => index,
            Finder::Walked(walked) => {
                let found =
                    Box::pin(walked.find((inner, self.room.as_ref()), (token, key), slices, reversed))
                        .await?;
                return Ok(found.map(PartitionReader::new));
            }
        };
        let summary = inner.resident.summary().expect("what has an index has a summary");
        let stretch = summary.interval(token, key);
        let found = index.find(&inner.reads, stretch, key).await?;
        let Some((entry, at_hand)) = found else { return Ok(None) };
        let end = match entry.end {
            End::At(end) => Some(end),
            End::OfData => Some(inner.data.length()),
            End::Unknown => None,
        };
        let ahead = match end.and_then(|end| end.checked_sub(entry.position)) {
            Some(length) if length <= WHOLE_PARTITION_BYTES => length,
            _ => inner.data.chunk_length(),
        };
        let mut stream = Stream::new(Rc::clone(inner), slices, reversed, ahead).in_room(self.room.as_ref());
        self.position(&mut stream, index, &entry, at_hand, key).await?;
        Ok(Some(PartitionReader::new(stream)))
    }

    async fn position(
        &self,
        stream: &mut Stream,
        index: &Rc<IndexFile>,
        entry: &Entry,
        at_hand: AtHand,
        key: &[u8],
    ) -> Result<(), SstableError> {
        let inner = &self.inner;
        let promoted = if entry.promoted.1 == 0 {
            None
        } else {
            let index = Rc::clone(index);
            Some(Promoted::open(index, &inner.reads, &inner.layout, entry.promoted, at_hand).await?)
        };
        match promoted {
            Some(promoted) if inner.layout.statics.list.is_empty() => {
                stream.open_promoted(key, entry.position, promoted);
            }
            promoted => {
                stream.open_partition(entry.position).await?;
                if stream.key() != key {
                    let error =
                        Malformed::invalid(entry.position, "the partition is not the one the index names");
                    return Err(error.of(Component::Data, &inner.data.path));
                }
                if let Some(promoted) = promoted {
                    stream.set_promoted(promoted);
                }
            }
        }
        Ok(())
    }

    /// Its index and the counter of reads; `None` for a file of format `bti`, which has no such index.
    pub(crate) fn index_file(&self) -> Option<(&IndexFile, &ReadCounter)> {
        match &self.inner.finder {
            Finder::Index(index) => Some((index, &self.inner.reads)),
            Finder::Walked(_) => None,
        }
    }

    /// The partitions between two bounds in token order, each cut to `slices`, for a reader that wants all of
    /// them: it reads far ahead from the beginning.
    ///
    /// # Errors
    /// [`SstableError::Io`] and [`SstableError::Corrupt`].
    pub async fn scan(
        &self,
        from: &PartitionBound,
        to: &PartitionBound,
        slices: &[Slice],
    ) -> Result<Scanner, SstableError> {
        self.scan_ahead(from, to, slices, READ_BYTES_MAX).await
    }

    /// As [`Sstable::scan`], for a reader that may stop soon: it begins with 16 KiB, or a chunk if that
    /// is longer, and reads twice as much each time.
    ///
    /// # Errors
    /// As [`Sstable::scan`].
    pub async fn scan_some(
        &self,
        from: &PartitionBound,
        to: &PartitionBound,
        slices: &[Slice],
    ) -> Result<Scanner, SstableError> {
        self.scan_ahead(from, to, slices, FIRST_BYTES.max(self.inner.data.chunk_length())).await
    }

    async fn scan_ahead(
        &self,
        from: &PartitionBound,
        to: &PartitionBound,
        slices: &[Slice],
        ahead: u64,
    ) -> Result<Scanner, SstableError> {
        let inner = &self.inner;
        let start = match &inner.finder {
            _ if from.is_before(inner.first.0, &inner.first.1) => Some(0),
            Finder::Index(index) => {
                let summary = inner.resident.summary().expect("what has an index has a summary");
                let stretch = summary.interval_of_token(from.token());
                index.position_behind(&inner.reads, stretch, from, ahead < READ_BYTES_MAX).await?
            }
            Finder::Walked(walked) => Box::pin(walked.position_behind(inner, from)).await?,
        };
        let stream = Stream::new(Rc::clone(inner), slices, false, ahead).in_room(self.room.as_ref());
        Ok(Scanner::new(stream, to.clone(), start, inner.data.length()))
    }
}

/// The encoding of a table file's rows, independent of the table.
///
/// # Errors
/// [`SstableError::Io`] and [`SstableError::Corrupt`].
pub async fn read_header(dir: &Path, descriptor: Descriptor) -> Result<SerializationHeader, SstableError> {
    let path = descriptor.path(dir, Component::Statistics);
    let bytes = read_all(&path, COMPONENT_BYTES_MAX as usize).await.map_err(SstableError::io(&path))?;
    let statistics = Statistics::decode(&bytes, descriptor.version.features());
    statistics.map(|statistics| statistics.header).map_err(|error| error.of(Component::Statistics, &path))
}

/// Removes a table file: its `TOC.txt` first, so that a crash leaves a set that is known to be incomplete.
///
/// # Errors
/// [`SstableError::Io`]; components that do not exist are no error.
pub async fn remove(dir: &Path, descriptor: Descriptor) -> Result<(), SstableError> {
    for component in descriptor.components().iter().rev() {
        let path = descriptor.path(dir, *component);
        match remove_file(&path).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(SstableError::io(&path)(error));
            }
            _ => {}
        }
        if *component == Component::Toc {
            sync_dir(dir).await.map_err(SstableError::io(dir))?;
        }
    }
    Ok(())
}

/// Makes the `TOC.txt` of a table file that lost it. It names the existing components, and the one that only
/// this crate writes, without which the file would be taken for one of another program.
///
/// # Errors
/// [`SstableError::Io`].
pub async fn restore_toc(
    dir: &Path,
    descriptor: Descriptor,
    components: &[Component],
) -> Result<(), SstableError> {
    let is_named = |component: &&Component| {
        components.contains(component) || matches!(component, Component::Ceto | Component::Toc)
    };
    let names = descriptor.components().iter().filter(is_named);
    let text: String = names.map(|component| format!("{component}\n")).collect();
    let path = descriptor.path(dir, Component::Toc);
    reactor::file::write_all_atomic(&path, text.as_bytes()).await.map_err(SstableError::io(&path))
}
