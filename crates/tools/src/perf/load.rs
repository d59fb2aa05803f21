//! `ceto perf load`: creates a table, fills it, and reads or writes its rows by prepared statements.
//!
//! The table is in `ceto_perf`, with a partition key of 8 bytes and one value; its rows are functions of
//! their keys, so that reads are checked. With `--shard-aware` each connection requests the keys of its own
//! shard, as a shard-aware driver would.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use model::tablet::TabletMap;
use model::token::murmur3_token;
use reactor::net::Stream;
use reactor::run_one;

use super::closed_loop::{Limits, run as run_closed_loop};
use super::connection::{Connection, Landed};
use super::cql::{CqlExchange, Mix, Statements, Template};
use super::keys::{Keys, Random};
use super::report::{self, Subject};
use super::{BYTES_MAX, LoopOptions, PerfError};

/// Most partitions of one run.
const PARTITIONS_MAX: i64 = 100_000_000;
/// Most partitions of a shard-aware run: their keys are kept by shard, 8 bytes each.
const SHARD_AWARE_PARTITIONS_MAX: u64 = 10_000_000;
/// Most requests in flight on each connection while the table is filled.
const PRELOAD_DEPTH_MAX: u16 = 32;
/// Bytes of rows in flight meanwhile, of all connections together: a server accepts so many without refusing
/// requests.
const PRELOAD_BYTES: u32 = 16 << 20;
/// Connections that fill the table.
const PRELOAD_CONNECTIONS: usize = 8;
/// Longest time the table may take to fill.
const PRELOAD_TIME_MAX: Duration = Duration::from_secs(3600);
/// Connections that are tried for each wanted, until every shard has its share.
const ATTEMPTS_PER_CONNECTION: usize = 16;

/// What is done with the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Read whole partitions of one row
    Read,
    /// Overwrite them
    Write,
    /// Half of each
    Mixed,
}

/// Options of `ceto perf load`.
#[derive(Debug, Clone, Args)]
pub struct LoadOptions {
    /// Address of the server
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port of the server
    #[arg(long, value_name = "PORT", default_value_t = 9042)]
    port: u16,
    /// What to do
    #[arg(long, value_enum, default_value_t = Workload::Read)]
    workload: Workload,
    /// Partitions, of one row each
    #[arg(long, value_name = "P", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=PARTITIONS_MAX as u64))]
    partitions: u64,
    /// Bytes of each row's value
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=BYTES_MAX))]
    row_bytes: u32,
    /// Ask each connection for keys of the shard it landed on
    #[arg(long)]
    shard_aware: bool,
    /// Keyspace, made if it is not there
    #[arg(long, value_name = "NAME", default_value = "ceto_perf", value_parser = identifier)]
    keyspace: String,
    /// Take the rows as they are: a run before has written them with the same sizes
    #[arg(long)]
    no_preload: bool,
    /// The same number gives the same sequence of keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    limits: LoopOptions,
}

/// A name that needs no quotes in CQL.
fn identifier(text: &str) -> Result<String, String> {
    let is_word = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if is_word && text.len() <= 48 && text.starts_with(|first: char| first.is_ascii_lowercase()) {
        Ok(text.to_owned())
    } else {
        Err("expected up to 48 lowercase letters, digits and underscores, a letter first".to_owned())
    }
}

impl Limits {
    pub(super) fn of(options: &LoopOptions) -> Self {
        Self {
            depth: options.depth,
            warm_up: Duration::from_secs(u64::from(options.warm_up_seconds)),
            measured: Duration::from_secs(u64::from(options.seconds)),
            requests: options.requests.unwrap_or(u64::MAX),
            timeout_seconds: options.timeout_seconds,
        }
    }
}

/// Loads a CQL server and prints the results.
pub(super) fn run(options: LoadOptions) -> Result<(), PerfError> {
    options.limits.check_in_flight(options.row_bytes)?;
    run_one(options.limits.driver.config(), load(options))
}

async fn load(options: LoadOptions) -> Result<(), PerfError> {
    let limits = &options.limits;
    let address = SocketAddr::new(options.host, options.port);
    let (mut first, _) = Connection::open(address, limits.timeout_seconds).await?;
    let statements = Rc::new(prepare(&mut first, &options).await?);
    if options.workload != Workload::Write && !options.no_preload {
        preload(address, &options, &statements).await?;
    }
    let connections = connect(address, &options).await?;
    let mut lanes = Vec::new();
    let mix = match options.workload {
        Workload::Read => Mix::Read,
        Workload::Write => Mix::Write,
        Workload::Mixed => Mix::Both,
    };
    for (number, (stream, keys)) in connections.into_iter().enumerate() {
        let seed = options.seed.wrapping_mul(1_000_003).wrapping_add(number as u64);
        let keys = match keys {
            Some(keys) => Keys::OfShard { keys, random: Random::new(seed) },
            None => Keys::Random { count: options.partitions, random: Random::new(seed) },
        };
        lanes.push((stream, CqlExchange::new(statements.clone(), mix, keys, !seed, limits.depth)));
    }
    let measured = run_closed_loop(lanes, Limits::of(limits)).await?;
    let subject = Subject {
        workload: match options.workload {
            Workload::Read => "read",
            Workload::Write => "write",
            Workload::Mixed => "mixed",
        },
        connections: limits.connections as usize,
        depth: limits.depth,
        json: limits.json,
    };
    report::print(&subject, &measured)
}

/// Creates keyspace and table if they are missing, and prepares the statements.
async fn prepare(connection: &mut Connection, options: &LoadOptions) -> Result<Statements, PerfError> {
    let keyspace = &options.keyspace;
    connection
        .execute(&format!(
            "CREATE KEYSPACE IF NOT EXISTS {keyspace} \
             WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        ))
        .await?;
    connection
        .execute(&format!("CREATE TABLE IF NOT EXISTS {keyspace}.rows (key bigint PRIMARY KEY, value blob)"))
        .await?;
    let read = connection.prepare(&format!("SELECT value FROM {keyspace}.rows WHERE key = ?")).await?;
    let write =
        connection.prepare(&format!("INSERT INTO {keyspace}.rows (key, value) VALUES (?, ?)")).await?;
    let value_bytes = options.row_bytes as usize;
    Ok(Statements { read: Template::read(&read)?, write: Template::write(&write, value_bytes)?, value_bytes })
}

/// Writes every row once.
async fn preload(
    address: SocketAddr,
    options: &LoadOptions,
    statements: &Rc<Statements>,
) -> Result<(), PerfError> {
    eprintln!("ceto perf: writing {} rows of {} bytes", options.partitions, options.row_bytes);
    let at_once = PRELOAD_BYTES / options.row_bytes.max(1) / PRELOAD_CONNECTIONS as u32;
    let depth = at_once.clamp(1, u32::from(PRELOAD_DEPTH_MAX)) as u16;
    let next = Rc::new(Cell::new(0));
    let mut lanes = Vec::new();
    for _ in 0..PRELOAD_CONNECTIONS {
        let (connection, _) = Connection::open(address, options.limits.timeout_seconds).await?;
        let keys = Keys::Each { next: next.clone(), count: options.partitions };
        let exchange = CqlExchange::new(statements.clone(), Mix::Write, keys, 0, depth);
        lanes.push((connection.stream(), exchange));
    }
    let limits = Limits {
        depth,
        warm_up: Duration::ZERO,
        measured: PRELOAD_TIME_MAX,
        requests: u64::MAX,
        timeout_seconds: options.limits.timeout_seconds,
    };
    let written = run_closed_loop(lanes, limits).await?;
    if let Some(first) = written.first_failure {
        return Err(PerfError::Failed { failed: written.failed, all: written.answers, first });
    }
    if written.answers < options.partitions {
        let what = format!("writing {} rows, {} were written", options.partitions, written.answers);
        return Err(PerfError::TimedOut { what, seconds: PRELOAD_TIME_MAX.as_secs() as u32 });
    }
    Ok(())
}

/// A connection, with the keys to request on it if they depend on it.
type Lane = (Rc<Stream>, Option<Rc<Vec<u64>>>);

/// Makes the wanted number of connections; if shard-aware, as many on each shard.
async fn connect(address: SocketAddr, options: &LoadOptions) -> Result<Vec<Lane>, PerfError> {
    let wanted = options.limits.connections as usize;
    let timeout_seconds = options.limits.timeout_seconds;
    let mut lanes = Vec::with_capacity(wanted);
    let mut shards: Vec<(Rc<Vec<u64>>, usize)> = Vec::new();
    let mut attempts = 0;
    while lanes.len() < wanted {
        attempts += 1;
        let (connection, landed) = Connection::open(address, timeout_seconds).await?;
        let landed = match landed {
            Some(landed) if options.shard_aware => landed,
            None if options.shard_aware => return Err(PerfError::NoShards),
            _ => {
                lanes.push((connection.stream(), None));
                continue;
            }
        };
        if shards.is_empty() {
            shards = keys_by_shard(landed, options.partitions)?.into_iter().map(|keys| (keys, 0)).collect();
        }
        // Shards may differ by one connection if the number does not divide.
        let each_max = wanted.div_ceil(shards.len());
        let shard = landed.shard;
        if let Some((keys, count)) = shards.get_mut(shard as usize)
            && *count < each_max
        {
            *count += 1;
            lanes.push((connection.stream(), Some(keys.clone())));
        }
        if attempts >= wanted.saturating_mul(ATTEMPTS_PER_CONNECTION) && lanes.len() < wanted {
            let fewest = shards.iter().enumerate().min_by_key(|(_, (_, count))| *count);
            let shard = fewest.map_or(0, |(shard, _)| shard as u32);
            return Err(PerfError::Shard { attempts, shard, shards: landed.shards });
        }
    }
    Ok(lanes)
}

/// The keys of each shard.
fn keys_by_shard(landed: Landed, partitions: u64) -> Result<Vec<Rc<Vec<u64>>>, PerfError> {
    if partitions > SHARD_AWARE_PARTITIONS_MAX {
        return Err(PerfError::Partitions { partitions, limit: SHARD_AWARE_PARTITIONS_MAX });
    }
    let mut shards = vec![Vec::new(); landed.shards.min(u32::from(u16::MAX)) as usize];
    // Cut like a new table, which the load creates.
    let map = TabletMap::for_shards(shards.len());
    for key in 0..partitions {
        let shard = map.shard_of(map.tablet_of(murmur3_token(&key.to_be_bytes())), shards.len());
        if let Some(keys) = shards.get_mut(shard) {
            keys.push(key);
        }
    }
    Ok(shards.into_iter().map(Rc::new).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_belongs_to_one_shard() {
        let shards = keys_by_shard(Landed { shard: 0, shards: 3 }, 9000).unwrap();
        assert_eq!(shards.len(), 3);
        let mut all: Vec<u64> = shards.iter().flat_map(|keys| keys.iter().copied()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..9000).collect::<Vec<_>>());
        assert!(shards.iter().all(|keys| keys.len() > 2000));
    }

    #[test]
    fn keyspaces_are_plain_words() {
        assert!(identifier("ceto_perf2").is_ok());
        for name in ["", "2x", "Perf", "a b", "a;drop", &"a".repeat(49)] {
            assert!(identifier(name).is_err(), "{name}");
        }
    }
}
