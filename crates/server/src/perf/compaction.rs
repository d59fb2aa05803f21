//! `ceto perf compaction`: merges table files into one by a major compaction of the shard.
//!
//! The files are made by writing and flushing, which is not timed. Files share a part of their partitions, so
//! the compaction reconciles rows and does not only copy them.

use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use model::schema::{KeyspaceOptions, SchemaChange};
use reactor::{Deadline, Group};
use serde_json::{Map, Value, json};
use storage::{Storage, StorageConfig};

use super::PerfError;
use super::directory::Directory;
use super::meter::{Measured, Meter, Used};
use super::run::{self, Bench, RunOptions, Slice, Until};
use super::table;
use crate::config::Driver;

/// Timeout of one write.
const WRITE_TIME: Duration = Duration::from_secs(60);
/// Concurrent writes while files are made.
const WRITERS: u64 = 32;

/// Options of `ceto perf compaction`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Files that are merged
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=32))]
    files: u64,
    /// Partitions of each file, a row each
    #[arg(long, value_name = "N", default_value_t = 25_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    partitions: u64,
    /// Of a file's partitions, how many the others have too, per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=100))]
    shared: u64,
    /// Bytes of a row's value
    #[arg(long, value_name = "BYTES", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    value_bytes: u32,
    /// Memory for what is not in files yet, such as 512M
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = crate::cli::size)]
    memory: u64,
    /// How the shard talks to the kernel
    #[arg(long, value_enum, default_value_t = Driver::Auto)]
    driver: Driver,
    #[command(flatten)]
    run: RunOptions,
}

pub(super) fn run(options: Options) -> Result<(), PerfError> {
    reactor::run_one(run::reactor_with(options.driver), async move {
        let directory = Directory::open(options.run.workdir.as_deref()).await?;
        let mut config = StorageConfig::new(directory.path(), options.memory as usize);
        config.auto_compaction = false;
        let storage = cluster::open_storage(config, 0, 1).await?;
        reactor::set_local(Rc::new(storage.clone()));
        let run_options = options.run.clone();
        let measured = async {
            let options_of_keyspace = KeyspaceOptions {
                replication: [("class".to_owned(), "LocalStrategy".to_owned())].into(),
                // Compaction is measured; the log would only be written and thrown away.
                durable_writes: false,
                tablets: None,
            };
            let (name, definition) = (table::KEYSPACE.to_owned(), Box::new(table::definition()));
            let known = storage.schema().table_by_id(table::TABLE).is_some();
            if !known {
                let keyspace = SchemaChange::CreateKeyspace { name, options: options_of_keyspace };
                cluster::change_schema(&keyspace).await?;
                cluster::change_schema(&SchemaChange::CreateTable(definition)).await?;
            }
            let (storage, meter) = (storage.clone(), Meter::new());
            run::run(&mut Compaction { options, storage, meter, timestamp: 0 }, &run_options).await
        }
        .await;
        let closed = storage.drain().await.map_err(PerfError::from);
        measured.and(closed).and(directory.close().await)
    })
}

struct Compaction {
    options: Options,
    storage: Storage,
    meter: Meter,
    timestamp: i64,
}

impl Compaction {
    /// Empties the table and writes the files for the next compaction.
    async fn make_files(&mut self) -> Result<(), PerfError> {
        self.storage.truncate(table::TABLE).await?;
        let Options { files, partitions, shared, value_bytes, .. } = self.options;
        let common = partitions * shared / 100;
        for file in 0..files {
            self.timestamp += 1;
            let timestamp = self.timestamp;
            let mut writers = Vec::new();
            for writer in 0..WRITERS {
                let storage = self.storage.clone();
                writers.push(reactor::spawn(Group::STATEMENT, async move {
                    let (mut mutation, mut value) = (Vec::new(), vec![0; value_bytes as usize]);
                    for at in (writer..partitions).step_by(WRITERS as usize) {
                        let number = if at < common { at } else { at + (file + 1) * partitions };
                        table::mutation(&mut mutation, number, timestamp, &mut value);
                        storage.apply(&mutation, Deadline::after(WRITE_TIME)).await?;
                        reactor::maybe_yield().await;
                    }
                    Ok::<_, PerfError>(())
                }));
            }
            for writer in writers {
                writer.await??;
            }
            self.storage.flush(table::TABLE).await?;
        }
        Ok(())
    }
}

impl Bench for Compaction {
    const NAME: &'static str = "compaction";

    fn operation(&self) -> String {
        let Options { files, partitions, shared, .. } = &self.options;
        format!(
            "a partition read from one of {files} files of {partitions}, {shared} % of them in every file"
        )
    }

    fn parameters(&self) -> Map<String, Value> {
        let Options { files, partitions, shared, value_bytes, memory, .. } = &self.options;
        let parameters = json!({
            "files": files, "partitions": partitions, "shared": shared, "value_bytes": value_bytes,
            "memory": memory,
        });
        parameters.as_object().cloned().unwrap_or_default()
    }

    async fn slice(&mut self, until: Until) -> Result<Slice, PerfError> {
        let mut slice =
            Slice { used: Used { cpu: Some(Default::default()), ..Used::default() }, ..Slice::default() };
        while slice.operations == 0 || until.goes_on(slice.operations) {
            self.make_files().await?;
            let began = reactor::now();
            let storage = &self.storage;
            let compaction = self.meter.measure(async {
                let storage = storage.clone();
                // Compactions always run in this group.
                let compaction = Measured::new(async move { storage.compact(table::TABLE).await });
                reactor::spawn(Group::COMPACTION, compaction).await
            });
            let (outcome, used) = compaction.await;
            outcome??;
            slice.elapsed_ns += began.elapsed().as_nanos() as u64;
            slice.used = slice.used.and(used);
            slice.operations += self.options.files * self.options.partitions;
        }
        Ok(slice)
    }
}
