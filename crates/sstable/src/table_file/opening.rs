//! Opens a table file: reads and verifies the components that stay in memory.
//!
//! Long components are decoded in steps, so that opening a large file does not block other tasks.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use model::Table;
use model::deletion::NO_LOCAL_TIME;
use model::token::murmur3_token;
use reactor::file::{File, OpenOptions, metadata_size, read_all};
use reactor::{Cold, cold};

use super::{COMPONENT_BYTES_MAX, Finder, Inner, Open, Sstable, resolve};
use crate::compression::{ChunkChecksums, CompressionInfo, CompressionInfoError, Decoder};
use crate::data::chunks::{Chunks, DataFile, ReadCounter};
use crate::descriptor::{Component, Descriptor};
use crate::error::{Malformed, SstableError};
use crate::extras::{EXTRAS_BYTES_MAX, Extent, Extras};
use crate::filter::Filter;
use crate::index::pages::{FilePages, IndexPages};
use crate::index::reader::IndexFile;
use crate::index::walked::Walked;
use crate::rebuild::{self, Known};
use crate::resident::{ComponentMemory, Resident};
use crate::statistics::Statistics;
use crate::summary::Summary;
use crate::verify::check;
use crate::version::Format;

/// Bytes that are checksummed before other tasks may run.
const PIECE_BYTES: usize = 256 << 10;

async fn read_component(
    dir: &Path,
    descriptor: Descriptor,
    component: Component,
    extras: &Extras,
) -> Result<(PathBuf, Vec<u8>), SstableError> {
    let path = descriptor.path(dir, component);
    let bytes = read_all(&path, COMPONENT_BYTES_MAX as usize).await.map_err(SstableError::io(&path))?;
    if let Some(recorded) = extras.checksum(component) {
        let mut hasher = crc32fast::Hasher::new();
        for piece in bytes.chunks(PIECE_BYTES) {
            hasher.update(piece);
            reactor::maybe_yield().await;
        }
        check(hasher.finalize(), recorded)
            .map_err(|problem| Malformed { offset: 0, problem }.of(component, &path))?;
    }
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

/// Reads the `Ceto.db` of a table file alone; empty extras if the file has none.
///
/// # Errors
/// [`SstableError::Corrupt`]; reading errors.
pub async fn read_extras(dir: &Path, descriptor: Descriptor) -> Result<Extras, SstableError> {
    let path = descriptor.path(dir, Component::Ceto);
    match read_all(&path, EXTRAS_BYTES_MAX as usize).await {
        Ok(bytes) => Extras::decode(&bytes).map_err(|error| error.of(Component::Ceto, &path)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Extras::default()),
        Err(error) => Err(SstableError::io(&path)(error)),
    }
}

/// Extent of a file's contents: as its writer noted it, or as its statistics have it.
fn extent(extras: &Extras, statistics: &Statistics) -> Option<Extent> {
    extras.extent.clone().or_else(|| {
        let stats = &statistics.stats;
        let (first, last) = stats.covered.clone()?;
        // Without that note, only the absence of all deletions proves that no partition is deleted.
        let deletions = stats.min_local_deletion_time != NO_LOCAL_TIME;
        Some(Extent {
            first,
            last,
            partition_deletions: stats.partition_deletions.unwrap_or(deletions),
            static_rows: !statistics.header.statics.is_empty(),
        })
    })
}

async fn open_data(path: &Path) -> Result<(File, u64), SstableError> {
    let file =
        File::open(path, OpenOptions::new().read(true).direct(true)).await.map_err(SstableError::io(path))?;
    let length = file.size().await.map_err(SstableError::io(path))?;
    Ok((file, length))
}

/// Whether the contents of a component differ from what was written.
fn is_damage(error: &SstableError) -> bool {
    matches!(error, SstableError::Corrupt { .. })
}

fn is_missing(error: &SstableError) -> bool {
    matches!(error, SstableError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

/// What the other components tell of an index, for those that are rebuilt from it.
fn known(extras: &Extras, statistics: &Statistics, filter_in_words: bool) -> Known {
    Known {
        checksum: extras.checksum(Component::Index),
        partitions: statistics.stats.partition_sizes.count().max(0) as u64,
        fp_chance: statistics.fp_chance,
        filter_in_words,
    }
}

impl Sstable {
    #[inline(never)]
    pub(super) fn open_cold<'a>(
        dir: &'a Path,
        descriptor: Descriptor,
        table: &'a Rc<Table>,
        within: Option<(&'a ComponentMemory, &'a IndexPages)>,
        mends: bool,
    ) -> Cold<'a, Result<Self, SstableError>> {
        cold(Self::open_as(dir, descriptor, table, within, mends))
    }

    async fn open_as(
        dir: &Path,
        descriptor: Descriptor,
        table: &Rc<Table>,
        within: Option<(&ComponentMemory, &IndexPages)>,
        mends: bool,
    ) -> Result<Self, SstableError> {
        let features = descriptor.version.features();
        let mut extras = read_extras(dir, descriptor).await?;
        let (path, bytes) = read_component(dir, descriptor, Component::Statistics, &extras).await?;
        let statistics =
            Statistics::decode(&bytes, features).map_err(|error| error.of(Component::Statistics, &path))?;
        let layout = resolve(descriptor, &path, &statistics, table)?;

        // A search for damage has to see the damage, so nothing is rebuilt for it.
        let known = mends.then(|| known(&extras, &statistics, features.filter_in_words));
        let mut is_mended = false;
        let (finder, summary, first, last): (_, _, Box<[u8]>, Box<[u8]>) = match descriptor.version.format() {
            Format::Big => {
                let pages = within.map(|(_, pages)| FilePages::new(pages));
                let (index, summary, mended) = open_index(dir, descriptor, &mut extras, pages, known).await?;
                is_mended = mended;
                let (first, last) = (summary.first_key().into(), summary.last_key().into());
                (Finder::Index(Rc::new(index)), Some(summary), first, last)
            }
            Format::Bti => {
                let Some((first, last)) = statistics.stats.key_range.clone() else {
                    let lacks = Malformed::invalid(0, "no first and last key");
                    return Err(lacks.of(Component::Statistics, &path));
                };
                (Finder::Walked(Walked::default()), None, first.into(), last.into())
            }
        };
        let filter = match (read_filter(dir, descriptor, &extras).await, known, &finder) {
            (Err(error), Some(known), Finder::Index(index)) if is_damage(&error) => {
                let rebuilt = rebuild::from_index(index, known).await?;
                reactor::warn!("a damaged filter was made anew from the index, in memory; a scrub writes it";
                    error = &error);
                is_mended = true;
                rebuilt.filter
            }
            (read, ..) => read?,
        };

        let data_path = descriptor.path(dir, Component::Data);
        let (file, file_length) = open_data(&data_path).await?;
        let chunks = read_chunks(dir, descriptor, file_length, &extras).await?;
        let data = DataFile { file, path: data_path, file_length, chunks };

        let mut bytes_on_disk = 0;
        for component in descriptor.components() {
            bytes_on_disk += metadata_size(&descriptor.path(dir, *component)).await.unwrap_or(0);
        }
        let others = data.bytes_in_memory() + extras.large.bytes_in_memory();
        let memory = within.map(|(memory, _)| memory);
        let file = Rc::new(Open {
            descriptor,
            dir: dir.to_owned(),
            data,
            finder,
            reads: ReadCounter::default(),
            extent: extent(&extras, &statistics),
            extras,
            resident: Resident::new(filter, summary, others, memory),
            statistics,
            first: (murmur3_token(&first), first),
            last: (murmur3_token(&last), last),
            bytes_on_disk,
            is_mended,
        });
        if let Some(memory) = memory {
            memory.admit(&file).await;
        }
        Ok(Self { inner: Rc::new(Inner { layout, file }), room: None })
    }
}

impl Open {
    /// Reads the filter, which the file has, again.
    ///
    /// # Errors
    /// [`SstableError`]; `NotFound` if the file was removed and is still being read.
    pub(crate) async fn read_filter(&self) -> Result<Filter, SstableError> {
        let (path, bytes) =
            read_component(&self.dir, self.descriptor, Component::Filter, &self.extras).await?;
        let in_words = self.descriptor.version.features().filter_in_words;
        Filter::decode(bytes, in_words).map_err(|error| error.of(Component::Filter, &path))
    }

    /// Reads the summary again.
    ///
    /// # Errors
    /// [`SstableError`].
    pub(crate) async fn read_summary(&self) -> Result<Summary, SstableError> {
        let mut extras = read_extras(&self.dir, self.descriptor).await?;
        let length = match &self.finder {
            Finder::Index(index) => index.length,
            Finder::Walked(_) => 0,
        };
        let summary = read_summary(&self.dir, self.descriptor, &extras, length).await?;
        with_checksums(summary, &self.dir, self.descriptor, &mut extras)
    }
}

/// Reads the filter; `None` if the file has none.
async fn read_filter(
    dir: &Path,
    descriptor: Descriptor,
    extras: &Extras,
) -> Result<Option<Filter>, SstableError> {
    let in_words = descriptor.version.features().filter_in_words;
    match read_optional(dir, descriptor, Component::Filter, extras).await? {
        Some((path, bytes)) => {
            Filter::decode(bytes, in_words).map(Some).map_err(|error| error.of(Component::Filter, &path))
        }
        None if extras.checksum(Component::Filter).is_some() => {
            let path = descriptor.path(dir, Component::Filter);
            Err(Malformed::invalid(0, "it is not there").of(Component::Filter, &path))
        }
        None => Ok(None),
    }
}

async fn read_summary(
    dir: &Path,
    descriptor: Descriptor,
    extras: &Extras,
    length: u64,
) -> Result<Summary, SstableError> {
    let (path, bytes) = read_component(dir, descriptor, Component::Summary, extras).await?;
    Summary::read(&bytes, length).await.map_err(|error| error.of(Component::Summary, &path))
}

/// Opens the index and reads its summary, or rebuilds the summary if it is damaged and `known` allows it;
/// returns whether it was rebuilt.
async fn open_index(
    dir: &Path,
    descriptor: Descriptor,
    extras: &mut Extras,
    pages: Option<FilePages>,
    known: Option<Known>,
) -> Result<(IndexFile, Summary, bool), SstableError> {
    let index_path = descriptor.path(dir, Component::Index);
    let (index, length) = open_data(&index_path).await?;
    let mut index =
        IndexFile { file: index, path: index_path, length, last_key: Box::default(), pages: None };
    let (summary, is_mended) = match (read_summary(dir, descriptor, extras, length).await, known) {
        (Err(error), Some(known)) if is_damage(&error) || is_missing(&error) => {
            let rebuilt = rebuild::from_index(&index, known).await?;
            reactor::warn!("a damaged summary was made anew from the index, in memory; a scrub writes it";
                error = &error);
            // They belong to the stretches of the damaged summary.
            extras.prefixes.clear();
            (rebuilt.summary, true)
        }
        (read, _) => (read?, false),
    };
    let summary = with_checksums(summary, dir, descriptor, extras)?;
    (index.last_key, index.pages) = (summary.last_key().into(), pages);
    Ok((index, summary, is_mended))
}

/// Adds the checksums of its stretches in `extras` to a summary.
fn with_checksums(
    mut summary: Summary,
    dir: &Path,
    descriptor: Descriptor,
    extras: &mut Extras,
) -> Result<Summary, SstableError> {
    let prefixes = std::mem::take(&mut extras.prefixes);
    if let (Some(whole), false) = (extras.checksum(Component::Index), prefixes.is_empty())
        && !summary.set_checksums(prefixes, whole)
    {
        let error = Malformed::invalid(0, "checksums of another summary's stretches");
        return Err(error.of(Component::Ceto, &descriptor.path(dir, Component::Ceto)));
    }
    Ok(summary)
}

/// Whether a file was written with a component: a writer of this crate noted the checksum of each component
/// in `Ceto.db`; files of other programs list theirs in `TOC.txt`.
async fn was_written(
    dir: &Path,
    descriptor: Descriptor,
    component: Component,
    extras: &Extras,
) -> Result<bool, SstableError> {
    if !extras.checksums.is_empty() {
        return Ok(extras.checksum(component).is_some());
    }
    let toc = read_optional(dir, descriptor, Component::Toc, extras).await?;
    let text = toc.map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    Ok(text.lines().any(|line| line.trim() == component.name()))
}

/// Reads a component that is absent only where the file was written without it.
async fn read_unless_never_written(
    dir: &Path,
    descriptor: Descriptor,
    component: Component,
    extras: &Extras,
) -> Result<Option<(PathBuf, Vec<u8>)>, SstableError> {
    match read_component(dir, descriptor, component, extras).await {
        Err(error) if is_missing(&error) && !was_written(dir, descriptor, component, extras).await? => {
            Ok(None)
        }
        read => read.map(Some),
    }
}

async fn read_chunks(
    dir: &Path,
    descriptor: Descriptor,
    file_length: u64,
    extras: &Extras,
) -> Result<Chunks, SstableError> {
    let features = descriptor.version.features();
    // Compressed data that lost it would be taken for rows.
    let info = read_unless_never_written(dir, descriptor, Component::CompressionInfo, extras).await?;
    if let Some((path, bytes)) = info {
        return match CompressionInfo::read(&bytes, features, file_length).await {
            Ok(info) => match Decoder::new(info.compressor, extras.dictionary.as_deref()) {
                Ok(decoder) => Ok(Chunks::Compressed(info, decoder)),
                Err(problem) => {
                    let path = descriptor.path(dir, Component::Ceto);
                    Err(Malformed { offset: 0, problem }.of(Component::Ceto, &path))
                }
            },
            Err(CompressionInfoError::Malformed(error)) => Err(error.of(Component::CompressionInfo, &path)),
            Err(CompressionInfoError::Compressor(name)) => Err(SstableError::Compressor { path, name }),
        };
    }
    // Data that lost it would be read without a check, damage and all.
    match read_unless_never_written(dir, descriptor, Component::Crc, extras).await? {
        Some((path, bytes)) => ChunkChecksums::read(&bytes, file_length)
            .await
            .map(Chunks::Checked)
            .map_err(|error| error.of(Component::Crc, &path)),
        None => Ok(Chunks::Plain),
    }
}
