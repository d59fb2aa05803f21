//! Describes in the log what starts: the program, its resources, and its addresses; one block of lines.
//!
//! Written once the ports of administration are bound, before any data is opened: a start that takes long, or
//! fails, says what it was of. The ports for CQL and for other nodes are opened later, or end the start.

use std::net::SocketAddr;
use std::path::Path;

use super::memory;
use crate::config::{Config, Remarks};
use crate::version;

/// The addresses that a node listens on, by their use.
fn addresses(config: &Config, rest: Option<SocketAddr>, prometheus: Option<SocketAddr>) -> String {
    let shares = !config.topology.seeds.is_empty() || config.topology.founds;
    let all = [
        ("CQL", Some(SocketAddr::new(config.rpc_address, config.native_port))),
        ("CQL, shard-aware", config.shard_aware_port.map(|port| SocketAddr::new(config.rpc_address, port))),
        ("other nodes", shares.then(|| SocketAddr::new(config.bind_address(), config.storage_port))),
        ("REST, console at /ui", rest),
        ("metrics", prometheus),
    ];
    let shown = all.into_iter().filter_map(|(name, address)| Some(format!("{} ({name})", address?)));
    shown.collect::<Vec<_>>().join(", ")
}

/// Writes the remarks about the configuration file.
pub(super) fn tell(remarks: &Remarks) {
    for warning in &remarks.warnings {
        reactor::warn!("{warning}");
    }
    if let Some(keys) = &remarks.without_effect {
        reactor::info!("{keys}");
    }
}

/// Writes the block. Call on a shard; `rest` and `prometheus` are bound.
pub(super) fn announce(
    config: &Config,
    file: Option<&Path>,
    shards: usize,
    (rest, prometheus): (Option<SocketAddr>, Option<SocketAddr>),
) {
    let file = file.map_or_else(|| "none, all defaults".to_owned(), |file| file.display().to_string());
    reactor::info!("ceto {}", version::TEXT; configuration = file, workdir = config.workdir.display());
    reactor::info!("{shards} shard(s), {} MiB of memory", memory::node_bytes(config.memory_bytes) >> 20;
        driver = reactor::driver_name(), pinned = !(config.developer_mode || config.overprovisioned));
    reactor::info!("listens on {}", addresses(config, rest, prometheus));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_are_named_and_closed_ports_are_not() {
        let mut config = Config::default();
        let rest = Some(SocketAddr::from(([127, 0, 0, 1], 10000)));
        assert_eq!(
            addresses(&config, rest, None),
            "127.0.0.1:9042 (CQL), 127.0.0.1:19042 (CQL, shard-aware), 127.0.0.1:10000 (REST, console at /ui)"
        );
        config.topology.founds = true;
        config.shard_aware_port = None;
        let prometheus = Some(SocketAddr::from(([127, 0, 0, 1], 9180)));
        assert_eq!(
            addresses(&config, None, prometheus),
            "127.0.0.1:9042 (CQL), 127.0.0.1:7000 (other nodes), 127.0.0.1:9180 (metrics)"
        );
    }
}
