//! `ceto ctl`: nodetool's verbs and output, over a node's REST API.
//!
//! `verbs` defines the command line; each other file has a group of verbs: `cluster` for the node's state,
//! `tables` for tables, `top_partitions` for samplings, `work` for actions of a node, `snapshots` for its
//! snapshots. `http` sends requests, `text` formats. Exit codes are those of nodetool: 0, 1 for a wrong
//! command line or an unreachable node, 2 for a refusal by the node. Source of the output's format: Cassandra
//! 5.0 `org.apache.cassandra.tools.nodetool`.

mod cluster;
mod http;
mod nodes;
mod patience;
mod snapshots;
mod tables;
pub(crate) mod text;
mod top_partitions;
mod verbs;
mod work;

use std::ffi::OsString;
use std::io;
use std::net::ToSocketAddrs;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser};
use reactor::{Config, DriverChoice, run_one};

use http::Api;
use verbs::{CtlOptions, Verb};

/// `ceto ctl`, with a command line of nodetool.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct CtlCommand {
    /// A verb of nodetool with its options; `help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "VERB AND OPTIONS")]
    words: Vec<OsString>,
}

/// The verbs and options of `ceto ctl`, which the command line of `ceto` passes on as they are.
pub fn definition() -> clap::Command {
    CtlOptions::command().name("ctl")
}

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
enum CtlError {
    /// An invalid command line.
    #[error("{0}")]
    Usage(String),
    /// A verb of nodetool's that is not there.
    #[error("'{0}' is not supported")]
    Unsupported(String),
    /// The node is not there.
    #[error("Failed to connect to '{host}:{port}' - {source}{}", connect_advice(source))]
    Connect {
        /// As it was given.
        host: String,
        /// Of the API.
        port: u16,
        /// The system's error.
        source: io::Error,
    },
    /// An answer that is not a node's, or is too long.
    #[error("{0}")]
    Answer(String),
    /// The node refused.
    #[error("{message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Its reason.
        message: String,
    },
}

/// The advice to somebody who finds nothing listening; empty for other errors.
fn connect_advice(error: &io::Error) -> &'static str {
    if error.kind() != io::ErrorKind::ConnectionRefused {
        return "";
    }
    "\nNothing listens there. Does the node run, and is its REST API at this address and port? `ceto server` logs both at its \
     start; they are api_address and api_port of its configuration (--api-address, --api-port), 127.0.0.1 and 10000 by \
     default. Give others with -h ADDRESS and -p PORT before the verb."
}

impl CtlError {
    fn code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Unsupported(_) | Self::Connect { .. } => 1,
            // A question the node does not understand is a command line that makes no sense.
            Self::Refused { status: 400 | 404 | 405, .. } => 1,
            Self::Answer(_) | Self::Refused { .. } => 2,
        }
    }
}

impl CtlCommand {
    /// Executes the verb on the tool's own shard.
    pub(crate) fn run(self) -> ExitCode {
        let words = std::iter::once(OsString::from("ceto ctl")).chain(self.words.into_iter().map(long_form));
        let options = match CtlOptions::try_parse_from(words) {
            Ok(options) => options,
            Err(error) => {
                // To standard output for help, to standard error for mistakes; an error because it is closed
                // is ignored.
                let _ = error.print();
                return if error.use_stderr() { ExitCode::from(1) } else { ExitCode::SUCCESS };
            }
        };
        let config = Config { driver: DriverChoice::Poll, ..Config::default() };
        match run_one(config, run(options)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let kind = if error.code() == 1 { "ceto ctl" } else { "error" };
                eprintln!("{kind}: {error}");
                ExitCode::from(error.code())
            }
        }
    }
}

/// nodetool's options of several letters behind one hyphen, in the form that has two.
fn long_form(word: OsString) -> OsString {
    const LONG: [(&str, &str); 11] = [
        ("-cf", "--table"),
        ("-sf", "--skip-flush"),
        ("-kt", "--kt-list"),
        ("-kc", "--kt-list"),
        ("-nt", "--no-ttl"),
        ("-pw", "--password"),
        ("-pwf", "--password-file"),
        ("-pp", "--print-port"),
        ("-ns", "--no-snapshot"),
        ("-hf", "--hex-format"),
        ("--kc.list", "--kt-list"),
    ];
    LONG.iter().find(|(short, _)| word == *short).map_or(word, |(_, long)| OsString::from(long))
}

async fn run(options: CtlOptions) -> Result<(), CtlError> {
    let (host, port) = (options.host, options.port);
    let unreachable = |source| CtlError::Connect { host: host.clone(), port, source };
    let mut found = (host.as_str(), port).to_socket_addrs().map_err(unreachable)?;
    let address = found.next().ok_or_else(|| unreachable(io::ErrorKind::NotFound.into()))?;
    let api = Api { address, host: host.clone() };
    match options.verb {
        Verb::Status { keyspace, resolve_ip: _ } => nodes::status(&api, keyspace.as_deref()).await,
        Verb::Info { tokens } => cluster::info(&api, tokens).await,
        Verb::Version { verbose } => cluster::version(&api, verbose).await,
        Verb::Ring { keyspace, resolve_ip: _ } => nodes::ring(&api, keyspace.as_deref()).await,
        Verb::Describecluster => nodes::describe_cluster(&api).await,
        Verb::Describering { keyspace, table } => {
            cluster::describe_ring(&api, &keyspace, table.as_deref()).await
        }
        Verb::Getendpoints { keyspace, table, key } => {
            cluster::endpoints(&api, &keyspace, &table, &key).await
        }
        Verb::Gettimeout { timeout } => cluster::timeout(&api, &timeout).await,
        Verb::Statusgossip => cluster::status_gossip(&api).await,
        Verb::Gossipinfo => nodes::gossip_info(&api).await,
        Verb::Statusbinary => cluster::status_binary(&api).await,
        Verb::Enablebinary => work::enable_binary(&api).await,
        Verb::Disablebinary => work::disable_binary(&api).await,
        Verb::Getlogginglevels => cluster::logging_levels(&api).await,
        Verb::Setlogginglevel { class, level } => work::set_logging_level(&api, class, level).await,
        Verb::Gettraceprobability => cluster::trace_probability(&api).await,
        Verb::Settraceprobability { probability } => work::set_trace_probability(&api, &probability).await,
        Verb::Drain => work::drain(&api).await,
        Verb::Flush(of) => work::flush(&api, &of).await,
        Verb::Compact { of, split_output } => work::compact(&api, &of, split_output).await,
        Verb::Garbagecollect { of, .. } => work::garbage_collect(&api, &of).await,
        Verb::Statusautocompaction { of, .. } => work::status_auto_compaction(&api, &of).await,
        Verb::Getcompactionthroughput { .. } => work::compaction_throughput(&api).await,
        Verb::Setcompactionthroughput { value } => work::set_compaction_throughput(&api, value).await,
        Verb::Cleanup { of, .. } => work::cleanup(&api, &of).await,
        Verb::Scrub(scrub) => work::scrub(&api, &scrub).await,
        Verb::Verify(verify) => work::verify(&api, &verify).await,
        Verb::Invalidatekeycache => work::forget(&api, "key").await,
        Verb::Invalidaterowcache => work::forget(&api, "row").await,
        Verb::Upgradesstables { of, include_all, .. } => work::upgrade(&api, &of, include_all).await,
        Verb::Stop { kind, .. } => work::stop(&api, kind.as_deref()).await,
        Verb::Disableautocompaction(of) => work::auto_compaction(&api, &of, false).await,
        Verb::Enableautocompaction(of) => work::auto_compaction(&api, &of, true).await,
        Verb::Refresh { keyspace, table, .. } => work::refresh(&api, &keyspace, &table).await,
        Verb::Import { keyspace, table, directories, copy_data } => {
            work::import(&api, &keyspace, &table, &directories, copy_data).await
        }
        Verb::Compactionstats { human_readable } => work::compaction_stats(&api, human_readable).await,
        Verb::Compactionhistory => work::compaction_history(&api).await,
        Verb::Tablestats { tables, ignore, human_readable } => {
            tables::stats(&api, &tables, ignore, human_readable).await
        }
        Verb::Tablehistograms { table } => tables::histograms(&api, &table).await,
        Verb::Toppartitions(top) => top_partitions::top_partitions(&api, &top).await,
        Verb::Getsstables { keyspace, table, key, hex_format } => {
            top_partitions::files_with(&api, (&keyspace, &table), &key, hex_format).await
        }
        Verb::Snapshot(snapshot) => snapshots::take(&api, snapshot).await,
        Verb::Listsnapshots { no_ttl, .. } => snapshots::list(&api, no_ttl).await,
        Verb::Clearsnapshot { tag, all, keyspaces } => snapshots::clear(&api, tag, all, &keyspaces).await,
        Verb::Other(words) => Err(verbs::unknown(&words)),
    }
}
