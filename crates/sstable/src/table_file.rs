//! An open table file: what is kept in memory of it, and the ways to read it.
//!
//! Opening reads every component but Data and Index. A point read asks the filter, then the summary, then reads one
//! stretch of the index and the chunks of the partition. Clones of the `Rc` inside are cheap; readers keep the file
//! open after the table file was removed.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use memory::{Budget, Charge, Kind};
use model::Table;
use model::clustering::Slice;
use model::deletion::NO_LOCAL_TIME;
use model::token::{Token, murmur3_token};
use reactor::file::{File, OpenOptions, metadata_size, read_all, remove_file, sync_dir};

use crate::compression::{ChunkChecksums, CompressionInfo, CompressionInfoError, Decoder};
use crate::data::chunks::{Chunks, DataFile, DiskReads, ReadCounter};
use crate::data::reader::{PartitionReader, Scanner};
use crate::data::stream::Stream;
use crate::data::window::READ_BYTES_MAX;
use crate::descriptor::{Component, Descriptor};
use crate::error::{Malformed, SstableError};
use crate::extras::{EXTRAS_BYTES_MAX, Extent, Extras};
use crate::filter::Filter;
use crate::index::pages::{FilePages, IndexPages};
use crate::index::promoted::Promoted;
use crate::index::reader::{AtHand, End, Entry, IndexFile};
use crate::index::walked::Walked;
use crate::layout::Layout;
use crate::rebuild::{self, Known};
use crate::scan::PartitionBound;
use crate::statistics::{SerializationHeader, Statistics, Stats};
use crate::summary::Summary;
use crate::version::Format;

/// Largest component that is read into memory as a whole.
const COMPONENT_BYTES_MAX: u64 = 2 << 30;
/// A partition up to this size is read with one request.
const WHOLE_PARTITION_BYTES: u64 = 16 * 1024;

/// What readers share, and how the rows are read.
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

/// What does not depend on the table.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) descriptor: Descriptor,
    pub(crate) dir: PathBuf,
    pub(crate) data: DataFile,
    finder: Finder,
    pub(crate) reads: ReadCounter,
    extras: Extras,
    filter: Option<Filter>,
    statistics: Statistics,
    extent: Option<Extent>,
    first: Token,
    last: Token,
    bytes_on_disk: u64,
    /// What it keeps in memory, counted.
    _in_memory: Option<Charge>,
}

/// How partitions are found.
#[derive(Debug)]
enum Finder {
    /// By the index, of which the summary names a stretch.
    Index(Rc<IndexFile>, Box<Summary>),
    /// By walking over the data; the first and the last key, as the statistics have them.
    Walked { first: Box<[u8]>, last: Box<[u8]>, walked: Walked },
}

impl Finder {
    fn first_key(&self) -> &[u8] {
        match self {
            Self::Index(_, summary) => summary.first_key(),
            Self::Walked { first, .. } => first,
        }
    }

    fn last_key(&self) -> &[u8] {
        match self {
            Self::Index(_, summary) => summary.last_key(),
            Self::Walked { last, .. } => last,
        }
    }

    /// Bytes it keeps in memory.
    fn size(&self) -> usize {
        match self {
            Self::Index(_, summary) => summary.size(),
            Self::Walked { first, last, .. } => first.len() + last.len(),
        }
    }
}

impl Open {
    /// Stored key of the last partition.
    pub(crate) fn last_key(&self) -> &[u8] {
        self.finder.last_key()
    }
}

/// An open table file.
#[derive(Debug, Clone)]
pub struct Sstable {
    inner: Rc<Inner>,
}

async fn read_component(
    dir: &Path,
    descriptor: Descriptor,
    component: Component,
    extras: &Extras,
) -> Result<(PathBuf, Vec<u8>), SstableError> {
    let path = descriptor.path(dir, component);
    let bytes = read_all(&path, COMPONENT_BYTES_MAX as usize).await.map_err(SstableError::io(&path))?;
    extras.check(component, &bytes).map_err(|error| error.of(component, &path))?;
    Ok((path, bytes))
}

/// Reads a component that a file may lack.
async fn read_optional(
    dir: &Path,
    descriptor: Descriptor,
    component: Component,
    extras: &Extras,
) -> Result<Option<(PathBuf, Vec<u8>)>, SstableError> {
    match read_component(dir, descriptor, component, extras).await {
        Err(SstableError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

async fn read_extras(dir: &Path, descriptor: Descriptor) -> Result<Extras, SstableError> {
    let path = descriptor.path(dir, Component::Ceto);
    match read_all(&path, EXTRAS_BYTES_MAX as usize).await {
        Ok(bytes) => Extras::decode(&bytes).map_err(|error| error.of(Component::Ceto, &path)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Extras::default()),
        Err(error) => Err(SstableError::io(&path)(error)),
    }
}

/// Where everything in a file lies: as its writer noted it, or as its statistics have it.
fn extent(extras: &Extras, statistics: &Statistics) -> Option<Extent> {
    extras.extent.clone().or_else(|| {
        let stats = &statistics.stats;
        let (first, last) = stats.covered.clone()?;
        // Without a note of it, no deletion at all is the only proof that no partition is deleted.
        let deletions = stats.min_local_deletion_time != NO_LOCAL_TIME;
        Some(Extent {
            first,
            last,
            partition_deletions: stats.partition_deletions.unwrap_or(deletions),
            static_rows: !statistics.header.statics.is_empty(),
        })
    })
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

async fn open_data(path: &Path) -> Result<(File, u64), SstableError> {
    let file =
        File::open(path, OpenOptions::new().read(true).direct(true)).await.map_err(SstableError::io(path))?;
    let length = file.size().await.map_err(SstableError::io(path))?;
    Ok((file, length))
}

/// Whether a component says something else than what was written.
fn is_damage(error: &SstableError) -> bool {
    matches!(error, SstableError::Corrupt { .. })
}

fn is_missing(error: &SstableError) -> bool {
    matches!(error, SstableError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

impl Sstable {
    /// Opens the table file `descriptor` in `dir`, whose rows are read as those of `table`; every lookup reads its part of
    /// the index.
    ///
    /// # Errors
    /// [`SstableError`]; the file is then not usable, and the error names what is wrong with which component.
    pub async fn open(dir: &Path, descriptor: Descriptor, table: &Rc<Table>) -> Result<Self, SstableError> {
        Self::open_as(dir, descriptor, table, None).await
    }

    /// The same for use within a shard's memory: what stays in memory of the file counts as fixed, and parts of the index that
    /// were read are kept among `pages`. A summary or a filter that is damaged is made anew from the index, in memory.
    ///
    /// # Errors
    /// As [`Sstable::open`].
    pub async fn open_within(
        dir: &Path,
        descriptor: Descriptor,
        table: &Rc<Table>,
        within: (&Budget, &IndexPages),
    ) -> Result<Self, SstableError> {
        Self::open_as(dir, descriptor, table, Some(within)).await
    }

    async fn open_as(
        dir: &Path,
        descriptor: Descriptor,
        table: &Rc<Table>,
        within: Option<(&Budget, &IndexPages)>,
    ) -> Result<Self, SstableError> {
        let features = descriptor.version.features();
        let mut extras = read_extras(dir, descriptor).await?;
        let (path, bytes) = read_component(dir, descriptor, Component::Statistics, &extras).await?;
        let statistics =
            Statistics::decode(&bytes, features).map_err(|error| error.of(Component::Statistics, &path))?;
        let layout = resolve(descriptor, &path, &statistics, table)?;

        // Who looks for damage is to see it.
        let known = within.is_some().then(|| Known {
            checksum: extras.checksum(Component::Index),
            partitions: statistics.stats.partition_sizes.count().max(0) as u64,
            fp_chance: statistics.fp_chance,
        });
        let finder = match descriptor.version.format() {
            Format::Big => {
                let pages = within.map(|(_, pages)| FilePages::new(pages));
                Self::index(dir, descriptor, &mut extras, pages, known).await?
            }
            Format::Bti => {
                let Some((first, last)) = statistics.stats.key_range.clone() else {
                    let lacks = Malformed::invalid(0, "no first and last key");
                    return Err(lacks.of(Component::Statistics, &path));
                };
                Finder::Walked { first: first.into(), last: last.into(), walked: Walked::default() }
            }
        };
        let filter = match (Self::filter(dir, descriptor, &extras).await, known, &finder) {
            (Err(error), Some(known), Finder::Index(index, _)) if is_damage(&error) => {
                let rebuilt = rebuild::from_index(index, known).await?;
                reactor::warn!("a damaged filter was made anew from the index, in memory; a scrub writes it";
                    error = &error);
                rebuilt.filter
            }
            (read, ..) => read?,
        };

        let data_path = descriptor.path(dir, Component::Data);
        let (file, file_length) = open_data(&data_path).await?;
        let chunks = Self::chunks(dir, descriptor, file_length, &extras).await?;
        let data = DataFile { file, path: data_path, file_length, chunks };

        let (first, last) = (murmur3_token(finder.first_key()), murmur3_token(finder.last_key()));
        let mut bytes_on_disk = 0;
        for component in descriptor.components() {
            bytes_on_disk += metadata_size(&descriptor.path(dir, *component)).await.unwrap_or(0);
        }
        let in_memory = within.map(|(budget, _)| {
            let filter = filter.as_ref().map_or(0, Filter::size);
            let large = extras.large.bytes_in_memory();
            budget.hold(Kind::Fixed, filter + finder.size() + data.bytes_in_memory() + large)
        });
        let file = Rc::new(Open {
            descriptor,
            dir: dir.to_owned(),
            data,
            finder,
            reads: ReadCounter::default(),
            extent: extent(&extras, &statistics),
            extras,
            filter,
            statistics,
            first,
            last,
            bytes_on_disk,
            _in_memory: in_memory,
        });
        Ok(Self { inner: Rc::new(Inner { layout, file }) })
    }

    /// The same open file, its rows read as those of `table`, which was altered since.
    ///
    /// Readers of the old one go on as they began.
    ///
    /// # Errors
    /// [`SstableError::Schema`] where the two do not go together; no alteration leads there.
    pub fn with_table(&self, table: &Table) -> Result<Self, SstableError> {
        let file = Rc::clone(&self.inner.file);
        let path = file.descriptor.path(&file.dir, Component::Statistics);
        let layout = resolve(file.descriptor, &path, &file.statistics, table)?;
        Ok(Self { inner: Rc::new(Inner { layout, file }) })
    }

    /// Reads the filter; `None` where a file has none.
    async fn filter(
        dir: &Path,
        descriptor: Descriptor,
        extras: &Extras,
    ) -> Result<Option<Filter>, SstableError> {
        let in_words = descriptor.version.features().filter_in_words;
        match read_optional(dir, descriptor, Component::Filter, extras).await? {
            Some((path, bytes)) => {
                Filter::decode(&bytes, in_words).map(Some).map_err(|error| error.of(Component::Filter, &path))
            }
            None if extras.checksum(Component::Filter).is_some() => {
                let path = descriptor.path(dir, Component::Filter);
                Err(Malformed::invalid(0, "it is not there").of(Component::Filter, &path))
            }
            None => Ok(None),
        }
    }

    async fn summary(
        dir: &Path,
        descriptor: Descriptor,
        extras: &Extras,
        length: u64,
    ) -> Result<Summary, SstableError> {
        let (path, bytes) = read_component(dir, descriptor, Component::Summary, extras).await?;
        Summary::decode(&bytes, length).map_err(|error| error.of(Component::Summary, &path))
    }

    /// Opens the index and reads the summary of it, or makes one of it where that is damaged and it is `known` how.
    async fn index(
        dir: &Path,
        descriptor: Descriptor,
        extras: &mut Extras,
        pages: Option<FilePages>,
        known: Option<Known>,
    ) -> Result<Finder, SstableError> {
        let index_path = descriptor.path(dir, Component::Index);
        let (index, length) = open_data(&index_path).await?;
        let mut index =
            IndexFile { file: index, path: index_path, length, last_key: Box::default(), pages: None };
        let mut summary = match (Self::summary(dir, descriptor, extras, length).await, known) {
            (Err(error), Some(known)) if is_damage(&error) || is_missing(&error) => {
                let rebuilt = rebuild::from_index(&index, known).await?;
                reactor::warn!("a damaged summary was made anew from the index, in memory; a scrub writes it";
                    error = &error);
                // They are of the stretches of the one that was.
                extras.prefixes.clear();
                rebuilt.summary
            }
            (read, _) => read?,
        };
        let whole = extras.checksums.iter().find(|(component, _)| *component == Component::Index);
        if let (Some((_, whole)), false) = (whole, extras.prefixes.is_empty())
            && !summary.set_checksums(std::mem::take(&mut extras.prefixes), *whole)
        {
            let error = Malformed::invalid(0, "checksums of another summary's stretches");
            return Err(error.of(Component::Ceto, &descriptor.path(dir, Component::Ceto)));
        }
        (index.last_key, index.pages) = (summary.last_key().into(), pages);
        Ok(Finder::Index(Rc::new(index), Box::new(summary)))
    }

    async fn chunks(
        dir: &Path,
        descriptor: Descriptor,
        file_length: u64,
        extras: &Extras,
    ) -> Result<Chunks, SstableError> {
        let features = descriptor.version.features();
        if let Some((path, bytes)) =
            read_optional(dir, descriptor, Component::CompressionInfo, extras).await?
        {
            return match CompressionInfo::decode(&bytes, features, file_length) {
                Ok(info) => match Decoder::new(info.compressor, extras.dictionary.as_deref()) {
                    Ok(decoder) => Ok(Chunks::Compressed(info, decoder)),
                    Err(problem) => {
                        let path = descriptor.path(dir, Component::Ceto);
                        Err(Malformed { offset: 0, problem }.of(Component::Ceto, &path))
                    }
                },
                Err(CompressionInfoError::Malformed(error)) => {
                    Err(error.of(Component::CompressionInfo, &path))
                }
                Err(CompressionInfoError::Compressor(name)) => Err(SstableError::Compressor { path, name }),
            };
        }
        match read_optional(dir, descriptor, Component::Crc, extras).await? {
            Some((path, bytes)) => ChunkChecksums::decode(&bytes, file_length)
                .map(Chunks::Checked)
                .map_err(|error| error.of(Component::Crc, &path)),
            None => Ok(Chunks::Plain),
        }
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
        (self.inner.first, self.inner.finder.first_key())
    }

    /// Token and stored key of its last partition.
    pub fn last_key(&self) -> (Token, &[u8]) {
        (self.inner.last, self.inner.finder.last_key())
    }

    /// Whether it may have a partition with this key; never wrong when it says no.
    pub fn may_contain(&self, token: Token, key: &[u8]) -> bool {
        self.inner.first <= token
            && token <= self.inner.last
            && self.inner.filter.as_ref().is_none_or(|filter| filter.may_contain(key))
    }

    /// Whether a read of these slices (disjoint, ascending) may find something in a partition it has: a row, a range
    /// tombstone, the deletion of a partition or a static row. Never wrong when it says no.
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

    /// Whether a static row may say something.
    pub fn may_have_static_rows(&self) -> bool {
        match &self.inner.extent {
            Some(extent) => extent.static_rows,
            None => !self.inner.statistics.header.statics.is_empty(),
        }
    }

    /// Whether nothing in it deletes anything or expires.
    pub fn has_only_values(&self) -> bool {
        self.inner.statistics.stats.min_local_deletion_time == NO_LOCAL_TIME
    }

    /// Nothing in it has a greater timestamp, microseconds.
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

    /// What `Ceto.db` says; nothing where the file has none.
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

    /// Bytes it keeps in memory for its filter, summary, dictionary and the places of its chunks.
    pub fn bytes_in_memory(&self) -> usize {
        let filter = self.inner.filter.as_ref().map_or(0, Filter::size);
        let large = self.inner.extras.large.bytes_in_memory();
        filter + self.inner.finder.size() + self.inner.data.bytes_in_memory() + large
    }

    /// Reads its readers have asked the disk for so far.
    pub fn disk_reads(&self) -> DiskReads {
        self.inner.reads.get()
    }

    /// The partition with this key, cut to `slices` (disjoint, ascending); `None` where the file does not have it.
    ///
    /// With `reversed` the slices and what is in them come from the last to the first.
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
        let (index, summary) = match &inner.finder {
            Finder::Index(index, summary) => (index, summary),
            Finder::Walked { walked, .. } => {
                let found = Box::pin(walked.find(inner, (token, key), slices, reversed)).await?;
                return Ok(found.map(PartitionReader::new));
            }
        };
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
        let mut stream = Stream::new(Rc::clone(inner), slices, reversed, ahead);
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

    /// Its index, with what counts reads; a file of format `bti` has none of this kind.
    pub(crate) fn index_file(&self) -> Option<(&IndexFile, &ReadCounter)> {
        match &self.inner.finder {
            Finder::Index(index, _) => Some((index, &self.inner.reads)),
            Finder::Walked { .. } => None,
        }
    }

    /// The partitions between two bounds in token order, each cut to `slices`.
    ///
    /// # Errors
    /// [`SstableError::Io`] and [`SstableError::Corrupt`].
    pub async fn scan(
        &self,
        from: &PartitionBound,
        to: &PartitionBound,
        slices: &[Slice],
    ) -> Result<Scanner, SstableError> {
        let inner = &self.inner;
        let start = match &inner.finder {
            finder if from.is_before(inner.first, finder.first_key()) => Some(0),
            Finder::Index(index, summary) => {
                let stretch = summary.interval_of_token(from.token());
                index.position_behind(&inner.reads, stretch, from).await?
            }
            Finder::Walked { walked, .. } => Box::pin(walked.position_behind(inner, from)).await?,
        };
        let stream = Stream::new(Rc::clone(inner), slices, false, READ_BYTES_MAX);
        Ok(Scanner::new(stream, to.clone(), start, inner.data.length()))
    }
}

/// How the rows of a table file are encoded, whatever table it is of.
///
/// # Errors
/// [`SstableError::Io`] and [`SstableError::Corrupt`].
pub async fn read_header(dir: &Path, descriptor: Descriptor) -> Result<SerializationHeader, SstableError> {
    let path = descriptor.path(dir, Component::Statistics);
    let bytes = read_all(&path, COMPONENT_BYTES_MAX as usize).await.map_err(SstableError::io(&path))?;
    let statistics = Statistics::decode(&bytes, descriptor.version.features());
    statistics.map(|statistics| statistics.header).map_err(|error| error.of(Component::Statistics, &path))
}

/// Removes a table file: its `TOC.txt` first, so that a crash leaves what [`crate::sort_names`] calls left over.
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
