//! The command line: `ceto server` and the tools. Parsing it has no side effects.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::config::{
    Config, ConfigError, Driver, Port, Remarks, parse_address, parse_reachable_address, parse_seeds,
    parse_size,
};
use crate::generated::{CompletionsCommand, ConfigCommand, ManCommand};

/// A shard-per-core, Cassandra-compatible wide-column database.
#[derive(Debug, Parser)]
#[command(
    name = "ceto",
    version = crate::version::TEXT,
    about = "A shard-per-core, Cassandra-compatible wide-column database",
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `ceto` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a node
    Server(ServerOptions),
    /// Measure: the program itself in process, or a server over sockets
    #[command(subcommand)]
    Perf(crate::perf::PerfCommand),
    /// The tools beside it.
    #[command(flatten)]
    Tool(tools::Tool),
    /// Look at this machine and a configuration: what would trouble a node, and what to change
    Doctor(Box<DoctorOptions>),
    /// Print the keys of the configuration file
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print completions for a shell
    Completions(CompletionsCommand),
    /// Write man pages into a directory
    Man(ManCommand),
}

/// Options of `ceto server`; each goes before the same key of the configuration file.
#[derive(Debug, Clone, Args, Default)]
pub struct ServerOptions {
    /// Configuration file in YAML, with the keys of cassandra.yaml and scylla.yaml
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of everything the node keeps [default: ceto-data]
    #[arg(long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// Go on without what a refused start named as missing, and lose it for good; WORD is what that start
    /// printed
    #[arg(long, value_name = "WORD")]
    pub accept_missing: Vec<String>,
    /// Address for CQL clients [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub listen: Option<IpAddr>,
    /// Address that other nodes are told, if it is not the one that this node listens on
    #[arg(long, value_name = "ADDRESS", value_parser = parse_reachable_address)]
    pub broadcast_address: Option<IpAddr>,
    /// Address that drivers are told, if it is not that of --listen
    #[arg(long, value_name = "ADDRESS", value_parser = parse_reachable_address)]
    pub broadcast_rpc_address: Option<IpAddr>,
    /// Addresses of nodes that are asked for the cluster, with commas between [default: none, a node alone]
    #[arg(long, value_name = "ADDRESSES", value_parser = seeds)]
    pub seeds: Option<Seeds>,
    /// Data center of this node [default: datacenter1]
    #[arg(long, value_name = "NAME")]
    pub dc: Option<String>,
    /// Rack of this node [default: rack1]
    #[arg(long, value_name = "NAME")]
    pub rack: Option<String>,
    /// Found a cluster without asking the seeds whether there is one
    #[arg(long)]
    pub found: bool,
    /// Port for CQL clients [default: 9042]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Port where a client's source port picks the shard, 0 for none [default: 19042]
    #[arg(long, value_name = "PORT")]
    pub shard_aware_port: Option<u16>,
    /// Shards, each a thread on a processor of its own [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub smp: Option<u16>,
    /// Memory for the whole node, such as 512M [default: half of what the machine or its cgroup has]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// How shards talk to the kernel [default: auto]
    #[arg(long, value_name = "DRIVER")]
    pub driver: Option<Driver>,
    /// What the disks can do, as `ceto io-setup` writes it [default: io_properties.yaml in the work
    /// directory]
    #[arg(long, value_name = "FILE")]
    pub io_properties_file: Option<PathBuf>,
    /// Form of the lines of the log [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    pub log_format: Option<String>,
    /// Report a task that holds its core for longer than this, in milliseconds, 0 for never [default: 5]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=3_600_000))]
    pub blocked_reactor_notify_ms: Option<u64>,
    /// A node that was told to end and has not after this many seconds ends without a drain, 0 for never
    /// [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub shutdown_timeout: Option<u64>,
    /// Address of the administration API [default: the CQL address if it is a loopback one, else 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub api_address: Option<IpAddr>,
    /// Port of the administration API, 0 for none [default: 10000]
    #[arg(long, value_name = "PORT")]
    pub api_port: Option<u16>,
    /// Port where Prometheus finds /metrics, 0 for none [default: 9180]
    #[arg(long, value_name = "PORT")]
    pub prometheus_port: Option<u16>,
    /// Share the processors: no pinning of threads, and there may be more shards than processors
    #[arg(long)]
    pub overprovisioned: bool,
    /// Share the machine: as --overprovisioned, and no demands on it
    #[arg(long)]
    pub developer_mode: bool,
}

/// Options of `ceto doctor`.
#[derive(Debug, Args)]
pub struct DoctorOptions {
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
    /// The node whose start is looked at.
    #[command(flatten)]
    pub server: ServerOptions,
}

/// Seeds on the command line.
pub type Seeds = Vec<crate::config::Seed>;

fn seeds(text: &str) -> Result<Seeds, String> {
    parse_seeds(text)
}

pub(crate) fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| "expected a size such as 512M".to_owned())
}

impl ServerOptions {
    /// The configuration file, if any, overridden by these options, and remarks about it.
    ///
    /// # Errors
    /// [`ConfigError`] of the file.
    pub fn configuration(&self) -> Result<(Config, Remarks), ConfigError> {
        let (mut config, remarks) = match &self.config {
            Some(path) => Config::from_file(path)?,
            None => (Config::default(), Remarks::default()),
        };
        if let Some(workdir) = &self.workdir {
            config.workdir.clone_from(workdir);
        }
        config.accept_missing.clone_from(&self.accept_missing);
        if let Some(listen) = self.listen {
            config.rpc_address = listen;
        }
        if let Some(address) = self.broadcast_address {
            config.topology.broadcast_address = Some(address);
        }
        if let Some(address) = self.broadcast_rpc_address {
            config.broadcast_rpc_address = Some(address);
        }
        if let Some(seeds) = &self.seeds {
            config.topology.seeds.clone_from(seeds);
        }
        if let Some(name) = &self.dc {
            config.data_center.clone_from(name);
        }
        if let Some(name) = &self.rack {
            config.rack.clone_from(name);
        }
        config.topology.founds = self.found;
        if let Some(port) = self.port {
            config.native_port = port;
        }
        if let Some(port) = self.shard_aware_port {
            config.shard_aware_port = (port != 0).then_some(port);
        }
        if let Some(shards) = self.smp {
            config.shards = Some(usize::from(shards));
        }
        if let Some(memory) = self.memory {
            config.memory_bytes = Some(memory);
        }
        if let Some(driver) = self.driver {
            config.driver = driver;
        }
        if let Some(path) = &self.io_properties_file {
            config.io_properties_file = Some(path.clone());
        }
        if let Some(ms) = self.blocked_reactor_notify_ms {
            config.blocked_reactor_notify = Duration::from_millis(ms);
        }
        if let Some(format) = &self.log_format {
            config.admin.log_is_json = format == "json";
        }
        if let Some(seconds) = self.shutdown_timeout {
            config.shutdown_timeout = Duration::from_secs(seconds);
        }
        if let Some(address) = self.api_address {
            config.admin.api_address = Some(address);
        }
        if let Some(port) = self.api_port {
            config.admin.api_port = Port::Given(port);
        }
        if let Some(port) = self.prometheus_port {
            config.admin.prometheus_port = Port::Given(port);
        }
        config.developer_mode |= self.developer_mode;
        config.overprovisioned |= self.overprovisioned;
        Ok((config, remarks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::{completions, write_pages};
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_go_before_defaults() {
        let cli = Cli::try_parse_from([
            "ceto",
            "server",
            "--workdir",
            "d",
            "--listen",
            "127.0.0.5",
            "--port",
            "9999",
            "--smp",
            "2",
            "--memory",
            "512M",
            "--driver",
            "poll",
            "--developer-mode",
            "--blocked-reactor-notify-ms",
            "20",
            "--io-properties-file",
            "io.yaml",
            "--shard-aware-port",
            "0",
            "--shutdown-timeout",
            "7",
            "--api-address",
            "127.0.0.6",
            "--api-port",
            "0",
            "--prometheus-port",
            "9181",
        ])
        .unwrap();
        let Command::Server(options) = cli.command else { panic!("the server's command") };
        let (config, remarks) = options.configuration().unwrap();
        assert_eq!(remarks, Remarks::default());
        assert_eq!((config.native_port, config.shard_aware_port), (9999, None));
        assert_eq!((config.shards, config.memory_bytes), (Some(2), Some(512 << 20)));
        assert_eq!(config.io_properties_file, Some("io.yaml".into()));
        assert_eq!(config.blocked_reactor_notify, Duration::from_millis(20));
        assert_eq!(config.shutdown_timeout, Duration::from_secs(7));
        assert_eq!(config.admin.api_address, Some("127.0.0.6".parse().unwrap()));
        // Without `listen_address`, the node's own address is the one for CQL clients.
        assert_eq!(config.own_address(), IpAddr::from([127, 0, 0, 5]));
        assert_eq!(
            (config.admin.api_port, config.admin.prometheus_port),
            (Port::Given(0), Port::Given(9181))
        );
        assert_eq!((config.driver, config.developer_mode), (Driver::Poll, true));
    }

    #[test]
    fn other_nodes_and_drivers_are_told_the_addresses_that_they_can_reach() {
        let options = |address: &str| {
            let words = ["ceto", "server", "--listen", "10.0.0.1", "--broadcast-address", address];
            Cli::try_parse_from(words.into_iter().chain(["--broadcast-rpc-address", "84.0.0.2"]))
        };
        let Command::Server(given) = options("84.0.0.1").unwrap().command else {
            panic!("the server's command")
        };
        let (config, _) = given.configuration().unwrap();
        let told = [Some(config.own_address()), config.broadcast_rpc_address, Some(config.bind_address())];
        assert_eq!(told, ["84.0.0.1", "84.0.0.2", "10.0.0.1"].map(|address| address.parse().ok()));
        let error = options("0.0.0.0").unwrap_err().to_string();
        assert!(error.contains("no address that other nodes can connect to"), "{error}");
    }

    #[test]
    fn an_address_is_a_number_or_localhost() {
        let listen = |address: &str| {
            let cli = Cli::try_parse_from(["ceto", "server", "--listen", address]);
            cli.map(|cli| match cli.command {
                Command::Server(options) => options.listen,
                _ => None,
            })
        };
        assert_eq!(listen("localhost").unwrap(), Some(IpAddr::from([127, 0, 0, 1])));
        let error = listen("here").unwrap_err().to_string();
        assert!(error.contains("expected an IP address or localhost, found 'here'"), "{error}");
    }

    #[test]
    fn completions_of_each_shell_know_commands_verbs_and_options() {
        use clap_complete::Shell;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completions(shell, Cli::command());
            for word in ["io-setup", "prometheus-port", "compactionstats", "completions"] {
                assert!(script.contains(word), "{shell} knows nothing of {word}");
            }
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // no shard runs here
    fn each_command_has_a_man_page() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("man1");
        write_pages(&directory, Cli::command()).unwrap();
        let page = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        assert!(page("ceto.1").contains("io\\-setup"));
        assert!(page("ceto-server.1").contains("\\-\\-shutdown\\-timeout"));
        assert!(page("ceto-ctl-compactionstats.1").contains(".TH ceto-ctl-compactionstats 1"));
        assert!(write_pages(&directory.join("ceto.1"), Cli::command()).is_err());
    }
}
