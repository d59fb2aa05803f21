//! Writes a table file from partitions, with all components.
//!
//! Components are written under temporary names and renamed once all are durable, `TOC.txt` last: a crash
//! leaves either the complete table file or files that [`crate::sort_names`] lists as left over. Rows are
//! encoded without waiting into one buffer; its complete chunks go to the disk together. Memory: that buffer
//! or one row, two buffers being written, and the memory counted in the shard's (`resident::Making`): the
//! blocks of one partition, the filter, the summary, and about four bytes for each chunk.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use model::clustering::{OwnedPosition, Position};
use model::deletion::DeletionTime;
use model::partition_key::{PARTITION_KEY_BYTES_MAX, compare_decorated};
use model::row::{RowBuilder, RowView};
use model::token::Token;
use model::{Liveness, Table, Unfiltered};
use reactor::file::{remove_file, rename, sync_dir};
use reactor::{Cold, cold};

use super::chunk_writer::{DataWriter, WrittenChunks};
use super::encode::{Scratch, append_marker, append_partition_start, append_row};
use super::flags;
use super::plain::append_plain_row;
use crate::compression::{CHUNK_BYTES_DEFAULT, CHUNK_BYTES_MAX, Compression, Compressor};
use crate::descriptor::{Component, Descriptor};
use crate::error::SstableError;
use crate::extras::{Extras, LargeData, SchemaMark, TabletMark};
use crate::file::{OutputFile, Written, make_durable};
use crate::filter::{FILTER_BYTES_MAX, Filter};
use crate::index::COLUMN_INDEX_BYTES_DEFAULT;
use crate::index::writer::{Blocks, IndexWriter};
use crate::layout::Layout;
use crate::resident::{ComponentMemory, Making};
use crate::statistics::{
    Collector, CommitLogPosition, EncodingMinima, SIGNED_TIME_MAX, SerializationHeader, Statistics, Stats,
};

/// Bytes that are encoded before they are compressed and written; at least a whole chunk.
const GATHERED_BYTES: usize = 32 << 10;
/// Default memory for a summary; enough for stretches of 12 GB of index with keys of 16 bytes.
const SUMMARY_BYTES_DEFAULT: usize = 256 << 20;

/// Default bytes of summary per byte of data.
pub const SUMMARY_RATIO_DEFAULT: f64 = 0.0005;

/// Settings for writing a table file.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// Compression of chunks; `None` for none.
    pub compression: Option<Compression>,
    /// Bytes of data in a chunk, a power of two.
    pub chunk_bytes: u32,
    /// False-positive rate of the filter; 1 for no filter.
    pub fp_chance: f64,
    /// Expected number of partitions, which the filter is sized for.
    pub expected_partitions: u64,
    /// Numbers that times are stored relative to; at most the smallest that will be written, for short
    /// encodings.
    pub minima: EncodingMinima,
    /// Bytes of a partition after which a new index block starts.
    pub column_index_bytes: u32,
    /// Bytes of summary per byte of data (`sstable_summary_ratio`), from 0 to 1. A larger ratio shortens the
    /// stretches of the index that a read asks for; a smaller one lengthens them only up to their limit.
    pub summary_ratio: f64,
    /// Most memory the summary may take.
    pub summary_bytes_max: usize,
    /// Level for leveled compaction.
    pub level: i32,
    /// When the data was repaired, milliseconds; 0 for never.
    pub repaired_at_ms: i64,
    /// Stretches of this host's commit log that are in the file.
    pub commit_log_intervals: Vec<(CommitLogPosition, CommitLogPosition)>,
    /// This host.
    pub host: Option<[u8; 16]>,
    /// The tablet and the shard that write it.
    pub tablet: Option<TabletMark>,
    /// The memory in which components count while they are written, and which limits them.
    pub memory: Option<ComponentMemory>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            compression: Some(Compression::from(Compressor::Lz4)),
            chunk_bytes: CHUNK_BYTES_DEFAULT,
            fp_chance: 0.01,
            expected_partitions: 1,
            minima: EncodingMinima::default(),
            column_index_bytes: COLUMN_INDEX_BYTES_DEFAULT,
            summary_ratio: SUMMARY_RATIO_DEFAULT,
            summary_bytes_max: SUMMARY_BYTES_DEFAULT,
            level: 0,
            repaired_at_ms: 0,
            commit_log_intervals: Vec::new(),
            host: None,
            tablet: None,
            memory: None,
        }
    }
}

impl WriterOptions {
    /// Most bytes of the filter.
    fn filter_bytes_max(&self) -> u64 {
        self.memory.as_ref().map_or(FILTER_BYTES_MAX, |memory| memory.filter_bytes_max() as u64)
    }

    /// Most bytes of the summary.
    pub(crate) fn summary_bytes_max(&self) -> usize {
        let of_memory = self.memory.as_ref().map_or(usize::MAX, ComponentMemory::summary_bytes_max);
        self.summary_bytes_max.min(of_memory)
    }
}

/// A table file that was written.
#[derive(Debug, Clone)]
pub struct SstableInfo {
    /// Its name.
    pub descriptor: Descriptor,
    /// Token and stored key of its first partition.
    pub first_key: (Token, Vec<u8>),
    /// Token and stored key of its last partition.
    pub last_key: (Token, Vec<u8>),
    /// Number of partitions.
    pub partitions: u64,
    /// Bytes of data before compression.
    pub data_bytes: u64,
    /// Bytes of `Data.db`.
    pub data_file_bytes: u64,
    /// Ranges and histograms.
    pub stats: Stats,
}

/// Writes one table file. Its functions only encode: the caller awaits [`Writer::drain`] whenever that [is
/// due](Writer::is_due); otherwise all of the data is in memory at the end.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    descriptor: Descriptor,
    options: WriterOptions,
    header: SerializationHeader,
    schema: SchemaMark,
    layout: Layout,
    data: DataWriter,
    index: IndexWriter,
    collector: Collector,
    scratch: Scratch,
    /// Data that is not written yet.
    out: Vec<u8>,
    gathered_max: usize,
    blocks: Blocks,
    empty_row: Vec<u8>,
    partition: Option<Partition>,
    first: Option<(Token, Vec<u8>)>,
    last: Option<(Token, Vec<u8>)>,
    first_position: OwnedPosition,
    last_position: OwnedPosition,
    partitions: u64,
    large: LargeData,
    making: Option<Making>,
}

/// The partition that is written.
#[derive(Debug)]
struct Partition {
    start: u64,
    header_length: u64,
    deletion: DeletionTime,
    /// Start of the previous row or marker, from the start of the partition.
    previous: u64,
    open: DeletionTime,
    any: bool,
}

impl Writer {
    /// Starts the table file `generation` in `dir`, of rows of `table`.
    ///
    /// # Errors
    /// [`SstableError::Io`], [`SstableError::Schema`] for a table with more columns than a row takes.
    pub async fn create(
        dir: &Path,
        generation: u64,
        table: &Rc<Table>,
        options: WriterOptions,
    ) -> Result<Self, SstableError> {
        assert!(
            options.chunk_bytes.is_power_of_two() && options.chunk_bytes <= CHUNK_BYTES_MAX,
            "a chunk has a power of two of bytes, {CHUNK_BYTES_MAX} at most, not {}",
            options.chunk_bytes
        );
        let descriptor = Descriptor::new(generation);
        let header = SerializationHeader::of_table(table, options.minima);
        let unsigned_times = descriptor.version.features().unsigned_deletion_times;
        let layout =
            Layout::resolve(&header, table, unsigned_times).map_err(|what| SstableError::Schema {
                path: descriptor.path(dir, Component::Data),
                table: format!("{}.{}", table.keyspace(), table.name()),
                what,
            })?;
        let data = DataWriter::create(descriptor.temporary_path(dir, Component::Data), &options).await?;
        let in_words = descriptor.version.features().filter_in_words;
        let (expected, bytes_max) = (options.expected_partitions, options.filter_bytes_max());
        let filter = Filter::new(expected, options.fp_chance, in_words, bytes_max);
        let mut making = options.memory.as_ref().map(Making::new);
        if let Some(making) = &mut making {
            making.keep((filter.as_ref().map_or(0, Filter::size), 0)).await;
        }
        let interval = table.options().min_index_interval;
        let index_path = descriptor.temporary_path(dir, Component::Index);
        let index = match IndexWriter::create(index_path, filter, interval, &options).await {
            Ok(index) => index,
            Err(error) => {
                remove_temporaries(dir, descriptor).await;
                return Err(error);
            }
        };
        let gathered_max = GATHERED_BYTES.max(options.chunk_bytes as usize);
        let mut empty_row = Vec::new();
        RowBuilder::new(&mut empty_row, Liveness::NONE, DeletionTime::LIVE).finish();
        Ok(Self {
            dir: dir.to_owned(),
            descriptor,
            options,
            header,
            schema: SchemaMark { table: table.id().0, revision: table.definition().revision },
            layout,
            data,
            index,
            collector: Collector::new(SIGNED_TIME_MAX),
            scratch: Scratch::default(),
            out: Vec::new(),
            gathered_max,
            blocks: Blocks::default(),
            empty_row,
            partition: None,
            first: None,
            last: None,
            first_position: Position::START.to_owned(),
            last_position: Position::END.to_owned(),
            partitions: 0,
            large: LargeData::default(),
            making,
        })
    }

    /// Sets the large items to be recorded in the file; none unless this is called.
    pub fn set_large(&mut self, large: LargeData) {
        self.large = large;
    }

    /// Bytes of data so far, before compression.
    #[inline]
    pub fn data_bytes(&self) -> u64 {
        self.data.position + self.out.len() as u64
    }

    /// Descriptor of the future table file.
    pub fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// Starts a partition; they come in the order of token and key.
    ///
    /// # Errors
    /// [`SstableError::Value`].
    pub fn partition_start(
        &mut self,
        token: Token,
        key: &[u8],
        deletion: DeletionTime,
        static_row: Option<RowView<'_>>,
    ) -> Result<(), SstableError> {
        assert!(self.partition.is_none(), "the partition before is ended");
        assert!(key.len() <= PARTITION_KEY_BYTES_MAX, "a key has at most {PARTITION_KEY_BYTES_MAX} bytes");
        if let Some((last_token, last_key)) = &self.last {
            let order = compare_decorated((*last_token, last_key), (token, key));
            assert!(order.is_lt(), "partitions ascend: {token} follows {last_token}");
        }
        let start = self.data_bytes();
        append_partition_start(&self.layout, &mut self.out, key, deletion);
        self.collector.partition_deletion(deletion);
        if !self.layout.statics.list.is_empty() {
            if let Some(row) = static_row {
                self.collector.static_row(row);
            }
            let row = static_row.unwrap_or(RowView::trusted(&self.empty_row));
            append_row(&self.layout, &mut self.scratch, &mut self.out, None, row, 0)?;
        }
        self.blocks.clear();
        self.first.get_or_insert_with(|| (token, key.to_vec()));
        match &mut self.last {
            Some((last_token, last_key)) => {
                *last_token = token;
                last_key.clear();
                last_key.extend_from_slice(key);
            }
            None => self.last = Some((token, key.to_vec())),
        }
        self.partition = Some(Partition {
            start,
            header_length: self.data_bytes() - start,
            deletion,
            previous: 0,
            open: DeletionTime::LIVE,
            any: false,
        });
        Ok(())
    }

    /// Takes a row or a change of the range deletion in force, in clustering order.
    ///
    /// # Errors
    /// [`SstableError::Value`].
    pub fn unfiltered(&mut self, unfiltered: Unfiltered<'_>) -> Result<(), SstableError> {
        let written = self.data.position;
        let partition = self.partition.as_mut().expect("a partition was started");
        let at = written + self.out.len() as u64 - partition.start;
        let previous = at - partition.previous;
        let (layout, scratch) = (&self.layout, &mut self.scratch);
        match unfiltered {
            Unfiltered::Row { clustering, row } => {
                match append_plain_row(layout, scratch, &mut self.out, clustering, row, previous)? {
                    Some(plain) => self.collector.plain_row(row.liveness(), plain),
                    None => {
                        append_row(layout, scratch, &mut self.out, Some(clustering), row, previous)?;
                        self.collector.row(row);
                    }
                }
            }
            Unfiltered::Change { position, deletion } => {
                let before = partition.open;
                if before == deletion || (before.is_live() && deletion.is_live()) {
                    return Ok(());
                }
                append_marker(layout, scratch, &mut self.out, position, before, deletion, previous)?;
                self.collector.deletion(before);
                self.collector.deletion(deletion);
                partition.open = deletion;
            }
        }
        partition.previous = at;
        let position = unfiltered.position();
        if !partition.any {
            partition.any = true;
            keep(&mut self.first_position, position);
        }
        keep(&mut self.last_position, position);
        let end = written + self.out.len() as u64 - partition.start;
        let (bytes_max, open) = (self.options.column_index_bytes, partition.open);
        self.blocks.add(&self.scratch.name, at, end, open, bytes_max, &self.layout);
        Ok(())
    }

    /// Ends the partition.
    pub fn partition_end(&mut self) {
        let partition = self.partition.take().expect("a partition was started");
        assert!(partition.open.is_live(), "a partition ends without a range deletion in force");
        let end = self.data_bytes() - partition.start;
        if partition.any {
            self.blocks.close(&self.scratch.name, end, DeletionTime::LIVE, &self.layout);
            let (first, last) = (self.first_position.as_ref(), self.last_position.as_ref());
            self.collector.positions(first, last, &self.layout.orders);
        }
        self.out.push(flags::END_OF_PARTITION);
        let (token, key) = self.last.as_ref().expect("a partition was started");
        self.collector.partition(key, end + 1);
        self.index.append(
            *token,
            key,
            partition.start,
            partition.header_length,
            partition.deletion,
            &self.blocks,
            &self.layout,
        );
        self.partitions += 1;
    }

    /// Whether so much was encoded that [`Writer::drain`] is due, before the next partition, row or change.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.out.len() >= self.gathered_max || self.index.is_due()
    }

    /// Moves encoded data to the files; lets other tasks run in between.
    ///
    /// # Errors
    /// [`SstableError::Io`].
    pub async fn drain(&mut self) -> Result<(), SstableError> {
        self.data.take_chunks(&mut self.out).await?;
        // The buffer does not keep the size of an unusually long row.
        self.out.shrink_to(2 * self.gathered_max);
        if self.index.is_due() {
            self.index.drain().await?;
        }
        let kept = self.bytes_in_memory();
        if let Some(making) = &mut self.making {
            making.keep(kept).await;
        }
        Ok(())
    }

    /// Bytes in memory that grow with the data: of everything, and of the summary.
    fn bytes_in_memory(&self) -> (usize, usize) {
        let (index, summary) = self.index.bytes_in_memory();
        (index + self.data.bytes_in_memory() + self.blocks.size(), summary)
    }

    /// Makes the table file durable and visible.
    ///
    /// A table file cannot be without partitions: in that case nothing is left behind, and the result is
    /// `None`.
    ///
    /// # Errors
    /// [`SstableError::Io`]; the written files are then removed as far as the disk allows.
    pub async fn finish(self) -> Result<Option<SstableInfo>, SstableError> {
        assert!(self.partition.is_none(), "the partition before is ended");
        let (dir, descriptor) = (self.dir.clone(), self.descriptor);
        if self.partitions == 0 {
            self.abort().await;
            return Ok(None);
        }
        match self.write_components_cold().await {
            Ok(info) => Ok(Some(info)),
            Err(error) => {
                // Also files that have their final names: after an error the caller must not find the table
                // file later.
                let _ = crate::table_file::remove(&dir, descriptor).await;
                remove_temporaries(&dir, descriptor).await;
                Err(error)
            }
        }
    }

    #[inline(never)]
    fn write_components_cold(self) -> Cold<'static, Result<SstableInfo, SstableError>> {
        cold(self.write_components())
    }

    async fn write_components(self) -> Result<SstableInfo, SstableError> {
        let kept = self.bytes_in_memory();
        let (dir, descriptor, options) = (self.dir, self.descriptor, self.options);
        let features = descriptor.version.features();
        let first_key = self.first.expect("there is a partition");
        let last_key = self.last.expect("there is a partition");
        let data = self.data.finish(self.out).await?;
        let (index, summary, filter, index_checksum) = self.index.finish(&first_key.1, &last_key.1).await?;
        let data_file_bytes = data.file.length;

        let (mut stats, sketch, extent) = self.collector.finish();
        stats.level = options.level;
        stats.repaired_at_ms = options.repaired_at_ms;
        stats.commit_log_intervals = options.commit_log_intervals;
        stats.originating_host = options.host;
        if options.compression.is_some() {
            stats.compression_ratio = data_file_bytes as f64 / data.bytes as f64;
        }
        let mut made = Made {
            dir: &dir,
            descriptor,
            files: vec![data.file, index],
            checksums: vec![(Component::Data, data.digest), (Component::Index, index_checksum)],
            making: self.making,
            kept,
        };
        let mut bytes = Vec::new();
        summary.encode(&mut bytes).await;
        made.write(Component::Summary, &mut bytes).await?;
        if let Some(filter) = filter {
            made.write_bytes(Component::Filter, filter.as_file()).await?;
        }
        let mut cardinality = Vec::new();
        sketch.encode(&mut cardinality);
        let statistics = Statistics { fp_chance: options.fp_chance, cardinality, stats, header: self.header };
        statistics.encode(&mut bytes, features);
        made.write(Component::Statistics, &mut bytes).await?;
        match data.chunks {
            WrittenChunks::Compressed(info) => {
                info.encode(&mut bytes, features).await;
                made.write(Component::CompressionInfo, &mut bytes).await?;
            }
            WrittenChunks::Checked(checksums) => {
                checksums.encode(&mut bytes).await;
                made.write(Component::Crc, &mut bytes).await?;
            }
        }
        bytes.extend_from_slice(data.digest.to_string().as_bytes());
        made.write(Component::Digest, &mut bytes).await?;
        let extras = Extras {
            dictionary: data.dictionary,
            extent: Some(extent),
            schema: Some(self.schema),
            tablet: options.tablet,
            checksums: made.checksums.clone(),
            prefixes: summary.into_prefixes(),
            large: self.large,
        };
        extras.encode(&mut bytes);
        made.write(Component::Ceto, &mut bytes).await?;
        let mut names: Vec<Component> = made.checksums.iter().map(|(component, _)| *component).collect();
        names.push(Component::Toc);
        names.iter().for_each(|component| bytes.extend_from_slice(format!("{component}\n").as_bytes()));
        made.write(Component::Toc, &mut bytes).await?;
        make_durable(made.files).await?;
        make_visible(&dir, descriptor, &names).await?;
        if let Some(making) = made.making {
            making.end();
        }
        Ok(SstableInfo {
            descriptor,
            first_key,
            last_key,
            partitions: self.partitions,
            data_bytes: data.bytes,
            data_file_bytes,
            stats: statistics.stats,
        })
    }

    /// Gives up: removes the written files as far as the disk allows. The next start removes the rest.
    pub async fn abort(self) {
        let (dir, descriptor) = (self.dir, self.descriptor);
        drop((self.data, self.index));
        remove_temporaries(&dir, descriptor).await;
    }
}

fn keep(kept: &mut OwnedPosition, position: Position<'_>) {
    kept.prefix.clear();
    kept.prefix.extend_from_slice(position.prefix.0);
    kept.weight = position.weight;
}

async fn remove_temporaries(dir: &Path, descriptor: Descriptor) {
    for component in Component::ALL {
        // A file that cannot be removed now is removed at the next start.
        let _ = remove_file(&descriptor.temporary_path(dir, component)).await;
    }
}

/// Bytes of a component that are checksummed before other tasks may run.
const PIECE_BYTES: usize = 128 << 10;

/// Components that are written, but not durable yet.
struct Made<'d> {
    dir: &'d Path,
    descriptor: Descriptor,
    files: Vec<Written>,
    checksums: Vec<(Component, u32)>,
    making: Option<Making>,
    /// Bytes in memory besides the component being written: of everything, and of the summary.
    kept: (usize, usize),
}

impl Made<'_> {
    /// Writes a component that is in memory as a whole; empties `bytes`.
    async fn write(&mut self, component: Component, bytes: &mut Vec<u8>) -> Result<(), SstableError> {
        if let Some(making) = &mut self.making {
            making.keep((self.kept.0 + bytes.capacity(), self.kept.1)).await;
        }
        self.write_bytes(component, bytes).await?;
        bytes.clear();
        Ok(())
    }

    async fn write_bytes(&mut self, component: Component, bytes: &[u8]) -> Result<(), SstableError> {
        let mut checksum = crc32fast::Hasher::new();
        let mut file = OutputFile::create(self.descriptor.temporary_path(self.dir, component)).await?;
        for piece in bytes.chunks(PIECE_BYTES) {
            checksum.update(piece);
            file.append(piece).await?;
            reactor::maybe_yield().await;
        }
        self.files.push(file.close().await?);
        self.checksums.push((component, checksum.finalize()));
        Ok(())
    }
}

/// Gives durable components their final names, `TOC.txt` last.
async fn make_visible(
    dir: &Path,
    descriptor: Descriptor,
    components: &[Component],
) -> Result<(), SstableError> {
    for component in components {
        if *component == Component::Toc {
            sync_dir(dir).await.map_err(SstableError::io(dir))?;
        }
        let path = descriptor.path(dir, *component);
        rename(&descriptor.temporary_path(dir, *component), &path).await.map_err(SstableError::io(&path))?;
    }
    sync_dir(dir).await.map_err(SstableError::io(dir))
}
