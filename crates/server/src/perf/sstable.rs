//! `ceto perf sstable`: writes a table file, scans it from end to end, or reads it by its index, with nothing
//! cached.

use std::path::PathBuf;
use std::rc::Rc;

use ::sstable::{
    CHUNK_BYTES_DEFAULT, Compressor, Descriptor, PartitionBound, Sstable, Writer, WriterOptions,
};
use clap::{Args, ValueEnum};
use model::clustering::Slice as Clusterings;
use model::deletion::DeletionTime;
use model::partition_key::DecoratedKey;
use model::row::RowView;
use model::{Table, Unfiltered};
use serde_json::{Map, Value, json};

use super::PerfError;
use super::directory::Directory;
use super::meter::{Measured, Meter};
use super::run::{self, Bench, RunOptions, Slice, Until};
use super::table;
use crate::config::Driver;

/// Partitions between two checks of the clock.
const STRIDE: u64 = 16;
/// Longest value of a row: rows are built in memory.
const VALUE_BYTES_MAX: i64 = 1 << 20;

/// The operation on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Write it, again and again
    Write,
    /// Read it from its first partition to its last
    FullScan,
    /// Read partitions by key, in random order
    IndexRead,
    /// Read stretches of neighbouring partitions
    Partitions,
}

impl Mode {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Options of `ceto perf sstable`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// What is done with the file
    #[arg(long, value_enum, default_value_t = Mode::FullScan)]
    mode: Mode,
    /// Partitions of the file, a row each
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    partitions: u64,
    /// Bytes of a row's value
    #[arg(long, value_name = "BYTES", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=VALUE_BYTES_MAX))]
    value_bytes: u32,
    /// Neighbours that are read together in mode partitions
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    neighbours: u64,
    /// Leave chunks as they are instead of compressing them with LZ4
    #[arg(long)]
    uncompressed: bool,
    /// Bytes of data in a chunk, a power of two
    #[arg(long, value_name = "BYTES", default_value_t = CHUNK_BYTES_DEFAULT, value_parser = chunk_bytes)]
    chunk_bytes: u32,
    /// How the shard talks to the kernel
    #[arg(long, value_enum, default_value_t = Driver::Auto)]
    driver: Driver,
    #[command(flatten)]
    run: RunOptions,
}

fn chunk_bytes(text: &str) -> Result<u32, String> {
    let bytes = text.parse::<u32>().map_err(|error| error.to_string())?;
    let fits = bytes.is_power_of_two() && (1 << 10..=::sstable::CHUNK_BYTES_MAX).contains(&bytes);
    if fits { Ok(bytes) } else { Err("expected a power of two from 1024".to_owned()) }
}

pub(super) fn run(options: Options) -> Result<(), PerfError> {
    reactor::run_one(run::reactor_with(options.driver), async move {
        let directory = Directory::open(options.run.workdir.as_deref()).await?;
        let run_options = options.run.clone();
        let measured = async {
            let mut bench = SstableBench::open(options, directory.path().to_owned()).await?;
            let measured = run::run(&mut bench, &run_options).await;
            measured.and(bench.close().await)
        }
        .await;
        measured.and(directory.close().await)
    })
}

struct SstableBench {
    options: Options,
    directory: PathBuf,
    table: Rc<Table>,
    /// Keys in token order, each with the number from which its row is made.
    keys: Vec<(DecoratedKey, u64)>,
    generation: u64,
    file: Option<Sstable>,
    random: u64,
    meter: Meter,
}

impl SstableBench {
    async fn open(options: Options, directory: PathBuf) -> Result<Self, PerfError> {
        let mut keys: Vec<_> = (0..options.partitions).map(|number| (table::key(number), number)).collect();
        keys.sort();
        let table = Rc::new(Table::new(table::definition()));
        let reads = options.mode != Mode::Write;
        let (generation, random, meter) = (0, 1, Meter::new());
        let mut bench = Self { options, directory, table, keys, generation, file: None, random, meter };
        if reads {
            bench.write_file().await?;
            let descriptor = Descriptor::new(bench.generation);
            bench.file = Some(Sstable::open(&bench.directory, descriptor, &bench.table).await?);
        }
        Ok(bench)
    }

    /// Removes the last file.
    async fn close(self) -> Result<(), PerfError> {
        drop(self.file);
        Ok(::sstable::remove(&self.directory, Descriptor::new(self.generation)).await?)
    }

    /// Writes a file and removes the previous one.
    async fn write_file(&mut self) -> Result<(), PerfError> {
        let before = self.generation;
        self.generation += 1;
        let options = WriterOptions {
            compression: (!self.options.uncompressed).then(|| Compressor::Lz4.into()),
            chunk_bytes: self.options.chunk_bytes,
            expected_partitions: self.options.partitions,
            ..WriterOptions::default()
        };
        let mut writer = Writer::create(&self.directory, self.generation, &self.table, options).await?;
        let (mut row, mut value) = (Vec::new(), vec![0; self.options.value_bytes as usize]);
        for (at, (key, number)) in self.keys.iter().enumerate() {
            row.clear();
            table::append_row(&mut row, *number, 1, &mut value);
            writer.partition_start(key.token, &key.key, DeletionTime::LIVE, None)?;
            let row = RowView::trusted(&row);
            writer.unfiltered(Unfiltered::Row { clustering: &[], row })?;
            writer.partition_end();
            if writer.is_due() {
                writer.drain().await?;
            }
            if (at as u64).is_multiple_of(STRIDE) {
                reactor::maybe_yield().await;
            }
        }
        writer.finish().await?;
        if before > 0 {
            ::sstable::remove(&self.directory, Descriptor::new(before)).await?;
        }
        Ok(())
    }

    async fn write(&mut self, until: Until) -> Result<(u64, u64), PerfError> {
        let mut written = 0;
        while written == 0 || until.goes_on(written) {
            self.write_file().await?;
            written += self.options.partitions;
        }
        Ok((written, 0))
    }

    async fn scan(&self, until: Until) -> Result<(u64, u64), PerfError> {
        let mut read = 0;
        while read == 0 || until.goes_on(read) {
            let (from, to) = (PartitionBound::START, PartitionBound::END);
            let partitions = self.scan_between(&from, &to, until).await?;
            read += partitions;
        }
        Ok((read, 0))
    }

    /// Reads the partitions between two bounds, until the slice is over. Returns their number.
    async fn scan_between(
        &self,
        from: &PartitionBound,
        to: &PartitionBound,
        until: Until,
    ) -> Result<u64, PerfError> {
        let file = self.file.as_ref().expect("a file to read");
        let mut scanner = file.scan(from, to, &[Clusterings::all()]).await?;
        let mut partitions = 0;
        while scanner.next_partition().await? {
            while let Some(item) = scanner.next().await? {
                std::hint::black_box(&item);
            }
            partitions += 1;
            if partitions % STRIDE == 0 {
                if !until.goes_on(partitions) {
                    break;
                }
                reactor::maybe_yield().await;
            }
        }
        Ok(partitions)
    }

    fn random_below(&mut self, limit: u64) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.random) * u128::from(limit)) >> 64) as usize
    }

    /// Reads random partitions by key. Returns how many were read, and how many of these were not found.
    async fn read_by_index(&mut self, until: Until) -> Result<(u64, u64), PerfError> {
        let (mut read, mut missing) = (0, 0);
        while read == 0 || until.goes_on(read) {
            for _ in 0..STRIDE {
                let at = self.random_below(self.options.partitions);
                let file = self.file.as_ref().expect("a file to read");
                let key = &self.keys[at].0;
                match file.partition(key.token, &key.key, &[Clusterings::all()], false).await? {
                    Some(mut partition) => {
                        while let Some(item) = partition.next().await? {
                            std::hint::black_box(&item);
                        }
                    }
                    None => missing += 1,
                }
                read += 1;
            }
            reactor::maybe_yield().await;
        }
        Ok((read, missing))
    }

    /// Reads stretches of neighbouring partitions. Returns how many were read, and how many of these were not
    /// found.
    async fn read_neighbours(&mut self, until: Until) -> Result<(u64, u64), PerfError> {
        let (mut read, mut missing) = (0, 0);
        let count = self.options.neighbours.min(self.options.partitions);
        while read == 0 || until.goes_on(read) {
            let at = self.random_below(self.options.partitions - count + 1);
            let (first, last) = (&self.keys[at].0, &self.keys[at + count as usize - 1].0);
            let from = PartitionBound::before_key(first.token, &first.key);
            let to = PartitionBound::behind_key(last.token, &last.key);
            // A stretch is short, so it is always read to its end.
            let found = self.scan_between(&from, &to, Until::Operations(u64::MAX)).await?;
            missing += count - found.min(count);
            read += count;
        }
        Ok((read, missing))
    }
}

impl Bench for SstableBench {
    const NAME: &'static str = "sstable";

    fn operation(&self) -> String {
        let Options { mode, partitions, value_bytes, .. } = &self.options;
        format!("one partition ({}) of {partitions} with a value of {value_bytes} bytes", mode.name())
    }

    fn parameters(&self) -> Map<String, Value> {
        let Options { mode, partitions, value_bytes, neighbours, uncompressed, chunk_bytes, .. } =
            &self.options;
        let parameters = json!({
            "mode": mode.name(), "partitions": partitions, "value_bytes": value_bytes,
            "neighbours": neighbours, "uncompressed": uncompressed, "chunk_bytes": chunk_bytes,
        });
        parameters.as_object().cloned().unwrap_or_default()
    }

    async fn slice(&mut self, until: Until) -> Result<Slice, PerfError> {
        let began = reactor::now();
        let meter = std::mem::replace(&mut self.meter, Meter::none());
        let (outcome, used) = meter
            .measure(Measured::new(async {
                match self.options.mode {
                    Mode::Write => self.write(until).await,
                    Mode::FullScan => self.scan(until).await,
                    Mode::IndexRead => self.read_by_index(until).await,
                    Mode::Partitions => self.read_neighbours(until).await,
                }
            }))
            .await;
        self.meter = meter;
        let (operations, errors) = outcome?;
        let elapsed_ns = began.elapsed().as_nanos() as u64;
        Ok(Slice { operations, errors, elapsed_ns, used })
    }
}
