//! The configuration, the work directory's lock, and the addresses of a node.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use rustix::fs::FlockOperation;

use super::super::{advice, lock};
use super::{Finding, Root, Verdict};
use crate::config::{Config, Port, Remarks};

/// How long a seed may take to accept a connection.
const SEED_TIME: Duration = Duration::from_secs(1);
/// Connections that may wait to be accepted, below which a burst of clients is refused.
const BACKLOG_WANTED: u32 = 1_024;

pub(super) fn configuration(file: Option<&Path>, remarks: &Remarks) -> Vec<Finding> {
    const PART: &str = "configuration";
    let advice = "remove the key, or read in `ceto config reference` what there is instead";
    let warned = remarks.warnings.iter().map(|text| Finding::new(Verdict::Warning, PART, text, advice));
    let mut found: Vec<_> = warned.collect();
    if let Some(keys) = &remarks.without_effect {
        found.push(Finding::new(Verdict::Note, PART, keys, "nothing: they may stay"));
    }
    if found.is_empty() {
        let name = file.map_or_else(|| "all defaults".to_owned(), |file| file.display().to_string());
        found.push(Finding::good(PART, name));
    }
    found
}

pub(super) fn network(root: &Root, config: &Config) -> Vec<Finding> {
    const PART: &str = "network";
    let mut found = Vec::new();
    if is_locked(&config.workdir.join(lock::LOCK)) {
        // Its ports are taken, by itself.
        found.push(Finding::good(
            PART,
            format!("a node runs in {}: its ports are its own", config.workdir.display()),
        ));
    } else {
        found.extend(ports(config));
    }
    found.extend(seeds(config));
    let backlog = root.read("/proc/sys/net/core/somaxconn").and_then(|text| text.parse::<u32>().ok());
    if let Some(backlog) = backlog.filter(|backlog| *backlog < BACKLOG_WANTED) {
        let fact = format!("{backlog} connections may wait to be accepted: many clients at once are refused");
        found.push(Finding::new(Verdict::Warning, PART, fact, "sysctl -w net.core.somaxconn=4096"));
    }
    found
}

/// Whether another process holds the lock of a work directory.
fn is_locked(path: &Path) -> bool {
    let Ok(file) = std::fs::File::open(path) else { return false };
    // A shared lock, given back at once: a node that starts in this moment tries again.
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => false,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// Binds each port for a moment.
fn ports(config: &Config) -> Vec<Finding> {
    const PART: &str = "network";
    let is_in_cluster = !config.topology.seeds.is_empty() || config.topology.founds;
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let default = if config.rpc_address.is_loopback() { config.rpc_address } else { loopback };
    let api = config.admin.api_address.unwrap_or(default);
    let prometheus = config.admin.prometheus_address.unwrap_or(default);
    let is_default = |port: Port| matches!(port, Port::Default(_));
    let optional = |address: IpAddr, port: u16| (port > 0).then(|| SocketAddr::new(address, port));
    let other_nodes = is_in_cluster.then(|| SocketAddr::new(config.bind_address(), config.storage_port));
    let shard_aware = config.shard_aware_port.map(|port| SocketAddr::new(config.rpc_address, port));
    let (api_port, prometheus_port) = (config.admin.api_port, config.admin.prometheus_port);
    // The use, the option that moves it, the address, and whether a node starts without it.
    let wanted = [
        ("CQL", "--port", Some(SocketAddr::new(config.rpc_address, config.native_port)), false),
        ("CQL, shard-aware", "--shard-aware-port", shard_aware, false),
        ("other nodes", "storage_port", other_nodes, false),
        ("REST", "--api-port", optional(api, api_port.number()), is_default(api_port)),
        (
            "metrics",
            "--prometheus-port",
            optional(prometheus, prometheus_port.number()),
            is_default(prometheus_port),
        ),
    ];
    let (mut found, mut free) = (Vec::new(), Vec::new());
    for (purpose, option, address, is_optional) in wanted {
        let Some(address) = address else { continue };
        if let Err(error) = TcpListener::bind(address) {
            let verdict = if is_optional { Verdict::Warning } else { Verdict::Failure };
            let fact = format!("{address} ({purpose}): {error}");
            let advice = advice::port(&error, option);
            let advice = advice.trim_start_matches("; ");
            let advice = if advice.is_empty() { "choose another address" } else { advice };
            found.push(Finding::new(verdict, PART, fact, advice));
        } else {
            free.push(format!("{address} ({purpose})"));
        }
    }
    if !free.is_empty() {
        found.push(Finding::good(PART, format!("free: {}", free.join(", "))));
    }
    found
}

/// Connects to each seed that is not this node.
fn seeds(config: &Config) -> Vec<Finding> {
    const PART: &str = "seeds";
    let others = config.topology.seeds.iter().filter(|seed| seed.address != config.bind_address());
    let of_seed = |address: SocketAddr| match TcpStream::connect_timeout(&address, SEED_TIME) {
        Ok(_) => Finding::good(PART, format!("{address} answers")),
        Err(error) => {
            let advice = "start that node, or look at its address, port 7000 and the firewalls between";
            Finding::new(Verdict::Warning, PART, format!("{address}: {error}"), advice)
        }
    };
    others
        .map(|seed| of_seed(SocketAddr::new(seed.address, seed.port.unwrap_or(config.storage_port))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::root;
    use super::*;
    use crate::config::Seed;

    #[test]
    fn remarks_about_the_configuration_are_findings() {
        let remarks =
            Remarks { warnings: vec!["no TLS".to_owned()], without_effect: Some("keys".to_owned()) };
        let verdicts: Vec<_> = configuration(None, &remarks).iter().map(|finding| finding.verdict).collect();
        assert_eq!(verdicts, [Verdict::Warning, Verdict::Note]);
        assert_eq!(configuration(None, &Remarks::default())[0].verdict, Verdict::Good);
    }

    #[test]
    fn a_port_that_is_taken_is_a_failure_unless_a_node_runs_there() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config {
            native_port: taken.local_addr().unwrap().port(),
            shard_aware_port: None,
            workdir: folder.path().to_owned(),
            ..Config::default()
        };
        config.admin.api_port = Port::Given(0);
        config.admin.prometheus_port = Port::Given(0);
        let (_folder, root) = root(&[("/proc/sys/net/core/somaxconn", "128\n")]);
        let found = network(&root, &config);
        assert_eq!(found[0].verdict, Verdict::Failure);
        assert!(found[0].advice.as_ref().unwrap().contains("--port"), "{found:?}");
        assert_eq!(found[1].verdict, Verdict::Warning, "{found:?}");
        let lock = std::fs::File::create(folder.path().join(lock::LOCK)).unwrap();
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(network(&root, &config)[0].verdict, Verdict::Good);
    }

    #[test]
    fn seeds_that_do_not_answer_are_told() {
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let seed = |address: SocketAddr| Seed { address: address.ip(), port: Some(address.port()) };
        let mut config = Config { rpc_address: [127, 0, 0, 9].into(), ..Config::default() };
        config.topology.seeds = vec![seed(open.local_addr().unwrap()), seed(closed)];
        let verdicts: Vec<_> = seeds(&config).iter().map(|finding| finding.verdict).collect();
        assert_eq!(verdicts, [Verdict::Good, Verdict::Warning]);
    }
}
