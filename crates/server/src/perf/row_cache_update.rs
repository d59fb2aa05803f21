//! `ceto perf row-cache-update`: merges the contents of a memtable into the row cache, as at the end of a
//! flush.
//!
//! Only the merge is timed and counted: memtables are filled between the measurements, and no table file is
//! written.
//! Invariant: with `--known` every partition is in the cache before the merge, without it none is.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use model::clustering::append_component;
use model::deletion::DeletionTime;
use model::mutation::MutationBuilder;
use model::schema::{
    Column, ColumnId, ColumnKind, KeyspaceOptions, SchemaChange, TableDefinition, TableOptions,
};
use model::types::CqlType;
use reactor::{Deadline, Group};
use serde_json::{Map, Value, json};
use storage::{Storage, StorageConfig, measuring};

use super::PerfError;
use super::directory::Directory;
use super::meter::{Meter, Used};
use super::run::{self, Bench, RunOptions, Slice, Until};
use super::table;

/// Timeout of one write.
const WRITE_TIME: Duration = Duration::from_secs(60);
/// The values of one stretch take at most this fraction of memory, so that the memtable is not flushed while
/// it is filled.
const VALUES_OF_MEMORY: u64 = 8;

/// Options of `ceto perf row-cache-update`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Partitions merged at a time
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    partitions: u64,
    /// Rows of each partition
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rows: u32,
    /// Bytes of a row's value
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    value_bytes: u32,
    /// Merge into partitions that are in the cache instead of putting new ones in
    #[arg(long)]
    known: bool,
    /// Memory for the memtable and the cache, such as 512M
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = crate::cli::size)]
    memory: u64,
    #[command(flatten)]
    run: RunOptions,
}

impl Options {
    fn rows_at_a_time(&self) -> u64 {
        self.partitions * u64::from(self.rows)
    }
}

pub(super) fn run(options: Options) -> Result<(), PerfError> {
    let bytes = options.rows_at_a_time().saturating_mul(u64::from(options.value_bytes));
    if bytes > options.memory / VALUES_OF_MEMORY {
        let text = format!("{bytes} bytes of values are more than 1/{VALUES_OF_MEMORY} of --memory");
        return Err(PerfError::Elsewhere(text));
    }
    let reactor = reactor::Config { name: "perf".into(), ..reactor::Config::default() };
    reactor::run_one(reactor, async move {
        let directory = Directory::open(options.run.workdir.as_deref()).await?;
        let mut config = StorageConfig::new(directory.path(), options.memory as usize);
        config.auto_compaction = false;
        let storage = cluster::open_storage(config, 0, 1).await?;
        reactor::set_local(Rc::new(storage.clone()));
        let run_options = options.run.clone();
        let measured = async {
            create_table(&storage).await?;
            let storage = storage.clone();
            let mut bench = RowCacheUpdate { options, storage, meter: Meter::new(), timestamp: 0 };
            if bench.options.known {
                bench.fill().await?;
                measuring::update_row_cache(&bench.storage, table::TABLE).await?;
            }
            run::run(&mut bench, &run_options).await?;
            bench.check()
        }
        .await;
        let closed = storage.drain().await.map_err(PerfError::from);
        measured.and(closed).and(directory.close().await)
    })
}

/// Creates `ks.cf (key blob, at int, value blob, PRIMARY KEY (key, at))`, one tablet, without durable writes.
async fn create_table(storage: &Storage) -> Result<(), PerfError> {
    if storage.schema().table_by_id(table::TABLE).is_some() {
        return Ok(());
    }
    let column = |id, name: &str, ty, kind| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        ty,
        kind,
        position: 0,
        reversed: false,
    };
    let definition = TableDefinition {
        id: table::TABLE,
        keyspace: table::KEYSPACE.to_owned(),
        name: "cf".to_owned(),
        columns: vec![
            column(0, "key", CqlType::Blob, ColumnKind::PartitionKey),
            column(table::VALUE.0, "value", CqlType::Blob, ColumnKind::Regular),
            column(2, "at", CqlType::Int, ColumnKind::Clustering),
        ],
        dropped: BTreeMap::new(),
        options: TableOptions::default(),
        next_column_id: 3,
        tablets_log2: 0,
        revision: 0,
    };
    let options = KeyspaceOptions {
        replication: [("class".to_owned(), "LocalStrategy".to_owned())].into(),
        durable_writes: false,
        tablets: None,
    };
    let keyspace = SchemaChange::CreateKeyspace { name: table::KEYSPACE.to_owned(), options };
    cluster::change_schema(&keyspace).await?;
    cluster::change_schema(&SchemaChange::CreateTable(Box::new(definition))).await?;
    Ok(())
}

struct RowCacheUpdate {
    options: Options,
    storage: Storage,
    meter: Meter,
    timestamp: i64,
}

impl RowCacheUpdate {
    /// Writes every row again with a later timestamp.
    async fn fill(&mut self) -> Result<(), PerfError> {
        self.timestamp += 1;
        let (mut mutation, mut clustering) = (Vec::new(), Vec::new());
        let mut value = vec![0; self.options.value_bytes as usize];
        for number in 0..self.options.partitions {
            let key = table::key(number);
            for at in 0..self.options.rows {
                clustering.clear();
                append_component(&mut clustering, Some(&at.to_be_bytes()));
                mutation.clear();
                let (table, live) = (table::TABLE, DeletionTime::LIVE);
                let builder = MutationBuilder::new(&mut mutation, table, key.token, &key.key, live, |_| ());
                let mut rows = builder.rows();
                rows.row(&clustering, |out| table::append_row(out, number, self.timestamp, &mut value));
                rows.finish();
                self.storage.apply(&mutation, Deadline::after(WRITE_TIME)).await?;
            }
            reactor::maybe_yield().await;
        }
        Ok(())
    }

    /// Checks that the cache has all rows.
    fn check(&self) -> Result<(), PerfError> {
        let rows = self.storage.stats().cache_rows;
        if rows == self.options.rows_at_a_time() {
            return Ok(());
        }
        let answer = format!("{rows} of {} rows", self.options.rows_at_a_time());
        Err(PerfError::Unexpected { what: "what the cache holds".to_owned(), answer })
    }
}

impl Bench for RowCacheUpdate {
    const NAME: &'static str = "row-cache-update";

    fn operation(&self) -> String {
        let Options { partitions, rows, value_bytes, known, .. } = &self.options;
        let how = if *known { "merged into the row cache" } else { "put into the row cache" };
        format!("a row of {value_bytes} bytes, one of {rows} in each of {partitions} partitions, {how}")
    }

    fn parameters(&self) -> Map<String, Value> {
        let Options { partitions, rows, value_bytes, known, memory, .. } = &self.options;
        let parameters = json!({
            "partitions": partitions, "rows": rows, "value_bytes": value_bytes, "known": known,
            "memory": memory,
        });
        parameters.as_object().cloned().unwrap_or_default()
    }

    async fn slice(&mut self, until: Until) -> Result<Slice, PerfError> {
        let mut slice =
            Slice { used: Used { cpu: Some(Default::default()), ..Used::default() }, ..Slice::default() };
        while slice.operations == 0 || until.goes_on(slice.operations) {
            self.fill().await?;
            if !self.options.known {
                self.storage.evict_cache();
            }
            let began = reactor::now();
            let update = self.meter.measure(async {
                let storage = self.storage.clone();
                // Merges into the cache always run in this group.
                let update = async move { measuring::update_row_cache(&storage, table::TABLE).await };
                reactor::spawn(Group::MEMTABLE, update).await
            });
            let (outcome, used) = update.await;
            outcome??;
            slice.elapsed_ns += began.elapsed().as_nanos() as u64;
            slice.used = slice.used.and(used);
            slice.operations += self.options.rows_at_a_time();
        }
        Ok(slice)
    }
}
