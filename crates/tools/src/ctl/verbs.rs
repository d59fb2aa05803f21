//! The command line: nodetool's verbs and options.

use clap::{Args, Parser, Subcommand};

use super::CtlError;
use super::top_partitions::TopOptions;

/// Ask and tell a node, with nodetool's verbs.
#[derive(Debug, Parser)]
#[command(name = "ceto ctl", disable_help_flag = true, disable_version_flag = true)]
pub(super) struct CtlOptions {
    /// Address or name of the node's administration
    #[arg(short = 'h', long, global = true, default_value = "127.0.0.1", value_name = "HOST")]
    pub(super) host: String,
    /// Port of the node's administration (api_port)
    #[arg(short = 'p', long, global = true, default_value_t = 10_000, value_name = "PORT")]
    pub(super) port: u16,
    /// Taken for nodetool's sake; the administration API has no users
    #[arg(short = 'u', long, global = true, value_name = "USER", hide = true)]
    username: Option<String>,
    #[arg(long, global = true, value_name = "PASSWORD", hide = true)]
    password: Option<String>,
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    password_file: Option<String>,
    #[arg(long, global = true, hide = true)]
    print_port: bool,
    /// Print help
    #[arg(long, global = true, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(subcommand)]
    pub(super) verb: Verb,
}

/// A keyspace and some of its tables; without a keyspace all.
#[derive(Debug, Args)]
pub(super) struct Of {
    /// Keyspace; all of them where none is named
    pub(super) keyspace: Option<String>,
    /// Tables of the keyspace; all of them where none is named
    pub(super) tables: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct ScrubOptions {
    #[command(flatten)]
    pub(super) of: Of,
    /// No snapshot before
    #[arg(long)]
    pub(super) no_snapshot: bool,
    /// Leave out what cannot be read
    #[arg(short, long)]
    pub(super) skip_corrupted: bool,
    /// ABORT, SKIP, SEGREGATE or VALIDATE
    #[arg(short, long)]
    pub(super) mode: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct VerifyOptions {
    #[command(flatten)]
    pub(super) of: Of,
    /// Read every row too, not only checksums
    #[arg(short, long, visible_alias = "extended-verify", conflicts_with = "quick")]
    pub(super) extended: bool,
    /// Do not read the data, only the other components
    #[arg(short, long)]
    pub(super) quick: bool,
    /// Let disk_failure_policy act upon damage
    #[arg(short, long, visible_alias = "disk-failure-policy")]
    pub(super) dfp: bool,
    /// nodetool refuses without it
    #[arg(short, long, hide = true)]
    force: bool,
    /// Done in any case
    #[arg(short = 't', long, hide = true)]
    check_tokens: bool,
    /// All files that are in use have the newest version
    #[arg(short = 'c', long, hide = true)]
    check_version: bool,
}

#[derive(Debug, Args)]
pub(super) struct SnapshotOptions {
    /// Keyspaces; all of them where none is named
    pub(super) keyspaces: Vec<String>,
    /// Name of the snapshot [default: the time in milliseconds]
    #[arg(short, long)]
    pub(super) tag: Option<String>,
    /// The table, of the one keyspace that is named (-cf)
    #[arg(long, visible_alias = "column-family")]
    pub(super) table: Option<String>,
    /// keyspace.table, separated by commas (-kt)
    #[arg(long)]
    pub(super) kt_list: Option<String>,
    /// Leave out what is in memory only (-sf)
    #[arg(long)]
    pub(super) skip_flush: bool,
    /// After how long it goes by itself, such as 12h
    #[arg(long)]
    pub(super) ttl: Option<String>,
}

/// What can be asked and told.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// The cluster: state, load, ids
    Status {
        keyspace: Option<String>,
        #[arg(short, long)]
        resolve_ip: bool,
    },
    /// The node: uptime, load, memory
    Info {
        /// Show all tokens
        #[arg(short = 'T', long)]
        tokens: bool,
    },
    /// The version of Cassandra the node behaves like
    Version {
        #[arg(short, long)]
        verbose: bool,
    },
    /// The tokens that drivers see
    Ring {
        keyspace: Option<String>,
        #[arg(short, long)]
        resolve_ip: bool,
    },
    /// Name, snitch, partitioner and schema version of the cluster
    Describecluster,
    /// The token ranges of a keyspace, or the tablets of one of its tables
    Describering { keyspace: String, table: Option<String> },
    /// The nodes that have a partition
    Getendpoints { keyspace: String, table: String, key: String },
    /// A timeout: read, range, write, truncate or misc
    Gettimeout { timeout: String },
    /// Whether the node takes part in the cluster
    Statusgossip,
    /// What nodes know of each other
    Gossipinfo,
    /// Whether CQL clients can connect
    Statusbinary,
    /// Let CQL clients connect again
    Enablebinary,
    /// Send CQL clients away
    Disablebinary,
    /// How much is logged
    Getlogginglevels,
    /// Log more or less: error, warn, info or debug
    Setlogginglevel { class: Option<String>, level: Option<String> },
    /// The share of requests that are traced
    Gettraceprobability,
    /// Trace a share of all requests
    Settraceprobability { probability: String },
    /// End clients and writing, and flush everything: before a stop
    Drain,
    /// Write memtables to table files
    Flush(Of),
    /// Merge all files of each tablet into one
    Compact {
        #[command(flatten)]
        of: Of,
        /// Several files of half, a quarter, … of all instead of one
        #[arg(short, long)]
        split_output: bool,
    },
    /// Remove what is deleted from table files
    Garbagecollect {
        #[command(flatten)]
        of: Of,
        #[arg(short, long, hide = true)]
        granularity: Option<String>,
        #[arg(short, long, hide = true)]
        jobs: Option<u32>,
    },
    /// Whether tables are compacted by themselves
    Statusautocompaction {
        #[command(flatten)]
        of: Of,
        #[arg(short, long, hide = true)]
        all: bool,
    },
    /// MiB per second that compactions may write
    Getcompactionthroughput {
        #[arg(long, hide = true)]
        precise_mib: bool,
    },
    /// Limit what compactions may write, in MiB per second; 0 for no limit
    Setcompactionthroughput { value: u64 },
    /// Remove what the node does not own any more
    Cleanup {
        #[command(flatten)]
        of: Of,
        #[arg(short, long, hide = true)]
        jobs: Option<u32>,
    },
    /// Rewrite table files, leaving out what cannot be read
    Scrub(ScrubOptions),
    /// Look for damage in table files, and change nothing
    Verify(VerifyOptions),
    /// Forget what is in memory of the indexes of table files
    Invalidatekeycache,
    /// Forget the rows in memory that are in table files too
    Invalidaterowcache,
    /// Rewrite table files of older versions
    Upgradesstables {
        #[command(flatten)]
        of: Of,
        /// Rewrite those of the newest version too
        #[arg(short = 'a', long, visible_alias = "include-all-sstables")]
        include_all: bool,
        #[arg(short, long, hide = true)]
        jobs: Option<u32>,
    },
    /// Stop compactions of a kind
    Stop {
        /// COMPACTION, CLEANUP, SCRUB or UPGRADE_SSTABLES
        kind: Option<String>,
        #[arg(short, long, hide = true)]
        id: Option<String>,
    },
    /// No compactions by themselves
    Disableautocompaction(Of),
    /// Compactions by themselves again
    Enableautocompaction(Of),
    /// Take in table files put into a table's `upload` folder
    Refresh {
        keyspace: String,
        table: String,
        #[arg(long, hide = true)]
        load_and_stream: bool,
    },
    /// Take in table files from a folder of the node's
    Import {
        keyspace: String,
        table: String,
        #[arg(required = true)]
        directories: Vec<String>,
        /// Leave the files where they are
        #[arg(long)]
        copy_data: bool,
    },
    /// Compactions that run
    Compactionstats {
        /// Bytes as KiB, MiB, GiB
        #[arg(short = 'H', long)]
        human_readable: bool,
    },
    /// Compactions that ran
    Compactionhistory,
    /// What tables take
    #[command(alias = "cfstats")]
    Tablestats {
        /// keyspace or keyspace.table
        tables: Vec<String>,
        /// All but those that are named
        #[arg(short, long)]
        ignore: bool,
        /// Bytes as KiB, MiB, GiB
        #[arg(short = 'H', long)]
        human_readable: bool,
    },
    /// How sizes and times of a table are distributed
    #[command(alias = "cfhistograms")]
    Tablehistograms {
        /// keyspace table, or keyspace.table
        table: Vec<String>,
    },
    /// The partitions asked for most
    Toppartitions(TopOptions),
    /// The table files that have a partition
    Getsstables {
        keyspace: String,
        table: String,
        /// Partition key; several columns with colons between them
        key: String,
        /// The key is hexadecimal digits (-hf)
        #[arg(long)]
        hex_format: bool,
    },
    /// Keep a copy of tables as they are, by hard links
    Snapshot(SnapshotOptions),
    /// Snapshots with their sizes
    Listsnapshots {
        /// Leave out those that go by themselves (-nt)
        #[arg(long)]
        no_ttl: bool,
        #[arg(short, long, hide = true)]
        ephemeral: bool,
    },
    /// Remove snapshots
    Clearsnapshot {
        /// Name of the snapshot
        #[arg(short)]
        tag: Option<String>,
        /// All snapshots
        #[arg(long)]
        all: bool,
        /// Of these keyspaces only
        keyspaces: Vec<String>,
    },
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// Verbs of nodetool that are not there.
const UNSUPPORTED: &[&str] = &[
    "abortbootstrap",
    "assassinate",
    "backup",
    "bootstrap",
    "checkandrepaircdcstreams",
    "checktokenmetadata",
    "cluster",
    "clientstats",
    "datapaths",
    "decommission",
    "disableauditlog",
    "disablebackup",
    "disablefullquerylog",
    "disablegossip",
    "disablehandoff",
    "disablehintsfordc",
    "disableoldprotocolversions",
    "dropquarantinedsstables",
    "enableauditlog",
    "enablebackup",
    "enablefullquerylog",
    "enablegossip",
    "enablehandoff",
    "enablehintsfordc",
    "enableoldprotocolversions",
    "excludenode",
    "failuredetector",
    "forcecompact",
    "gcstats",
    "getauditlog",
    "getauthcacheconfig",
    "getbatchlogreplaythrottle",
    "getcolumnindexsize",
    "getcompactionthreshold",
    "getconcurrency",
    "getconcurrentcompactors",
    "getconcurrentviewbuilders",
    "getdefaultrf",
    "getfullquerylog",
    "getinterdcstreamthroughput",
    "getmaxhintwindow",
    "getseeds",
    "getsnapshotthrottle",
    "getstreamthroughput",
    "handoffwindow",
    "invalidatecountercache",
    "invalidatecredentialscache",
    "invalidatejmxpermissionscache",
    "invalidatenetworkpermissionscache",
    "invalidatepermissionscache",
    "invalidaterolescache",
    "join",
    "listpendinghints",
    "move",
    "netstats",
    "pausehandoff",
    "profileload",
    "proxyhistograms",
    "rangekeysample",
    "rebuild",
    "rebuild_index",
    "recompress_sstables",
    "refreshsizeestimates",
    "reloadlocalschema",
    "reloadseeds",
    "reloadssl",
    "reloadtriggers",
    "relocatesstables",
    "removenode",
    "repair",
    "repair_admin",
    "replaybatchlog",
    "resetfullquerylog",
    "resetlocalschema",
    "restore",
    "resumehandoff",
    "setauthcacheconfig",
    "setbatchlogreplaythrottle",
    "setcachecapacity",
    "setcachekeystosave",
    "setcolumnindexsize",
    "setcompactionthreshold",
    "setconcurrency",
    "setconcurrentcompactors",
    "setconcurrentviewbuilders",
    "setdefaultrf",
    "sethintedhandoffthrottlekb",
    "setinterdcstreamthroughput",
    "setmaxhintwindow",
    "setsnapshotthrottle",
    "setstreamthroughput",
    "settimeout",
    "sjk",
    "sstableinfo",
    "statusbackup",
    "statushandoff",
    "stopdaemon",
    "tasks",
    "tpstats",
    "truncatehints",
    "updatecidrgroup",
    "viewbuildstatus",
];

/// The error for a verb that is not among these.
pub(super) fn unknown(words: &[String]) -> CtlError {
    let verb = words.first().map_or("", String::as_str);
    if UNSUPPORTED.contains(&verb) {
        return CtlError::Unsupported(verb.to_owned());
    }
    CtlError::Usage(format!(
        "Found unexpected parameters: [{verb}]; see 'ceto ctl help' for the verbs there are"
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CtlOptions::command().debug_assert();
    }

    #[test]
    fn host_and_port_go_before_the_verb_and_behind() {
        for words in
            [&["ctl", "-h", "127.0.0.7", "-p", "7", "drain"], &["ctl", "drain", "-p", "7", "-h", "127.0.0.7"]]
        {
            let options = CtlOptions::try_parse_from(words.iter()).unwrap();
            assert_eq!((options.host.as_str(), options.port), ("127.0.0.7", 7));
        }
    }

    #[test]
    fn a_verb_that_is_not_there_says_so() {
        let said = |verb: &str| unknown(&[verb.to_owned()]).to_string();
        assert_eq!(said("repair"), "'repair' is not supported");
        assert!(said("nonsense").contains("[nonsense]"));
        let options = CtlOptions::try_parse_from(["ctl", "decommission", "--force"]).unwrap();
        assert!(matches!(options.verb, Verb::Other(words) if words[0] == "decommission"));
    }
}
