//! The keys of the cluster: seeds, the snitch with data center and rack, compression between nodes.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use super::keys::{Setter, address, choice, parse_address};
use super::value::Value;
use super::{Config, ConfigError, TEXT_BYTES_MAX};

/// File of `GossipingPropertyFileSnitch`, beside the configuration file.
const RACK_FILE: &str = "cassandra-rackdc.properties";

/// A seed as configured: an address, and a port if one is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed {
    /// The address.
    pub address: IpAddr,
    /// The port; `None` for this node's `storage_port`.
    pub port: Option<u16>,
}

/// Where a node's data center and rack come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Snitch {
    /// From `data_center` and `rack`.
    #[default]
    Simple,
    /// From `cassandra-rackdc.properties` beside the configuration file.
    PropertyFile,
}

/// Which connections between nodes are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InternodeCompression {
    /// None.
    None,
    /// Those between data centers.
    #[default]
    DataCenters,
    /// All.
    All,
}

/// The settings of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopologyConfig {
    /// `seed_provider` or `seeds`: nodes that are asked for the cluster.
    pub seeds: Vec<Seed>,
    /// `endpoint_snitch`.
    pub snitch: Snitch,
    /// `broadcast_address`: the address by which other nodes know this one; `None` for the one it listens on.
    pub broadcast_address: Option<IpAddr>,
    /// `internode_compression`.
    pub compression: InternodeCompression,
    /// Found a cluster without asking the seeds; only on the command line (`--found`).
    pub founds: bool,
}

pub(super) const SETTERS: &[(&str, Setter)] = &[
    ("seeds", |c, v| seeds(v).map(|v| c.topology.seeds = v)),
    ("seed_provider", |c, v| seed_provider(v).map(|v| c.topology.seeds = v)),
    ("endpoint_snitch", |c, v| snitch(v).map(|v| c.topology.snitch = v)),
    ("broadcast_address", |c, v| broadcast_address(v).map(|v| c.topology.broadcast_address = Some(v))),
    ("internode_compression", |c, v| {
        let words = [
            ("none", InternodeCompression::None),
            ("dc", InternodeCompression::DataCenters),
            ("all", InternodeCompression::All),
        ];
        choice(v, &words).map(|v| c.topology.compression = v)
    }),
];

impl Config {
    /// The seeds with their ports.
    pub fn seeds(&self) -> Vec<SocketAddr> {
        let with_port = |seed: &Seed| SocketAddr::new(seed.address, seed.port.unwrap_or(self.storage_port));
        self.topology.seeds.iter().map(with_port).collect()
    }

    /// Reads data center and rack where the snitch says that they stand in a file beside `config`, the path
    /// of the configuration file.
    pub(super) fn read_rack(&mut self, config: &Path) -> Result<(), ConfigError> {
        if self.topology.snitch != Snitch::PropertyFile {
            return Ok(());
        }
        let path = config.with_file_name(RACK_FILE);
        let text = reactor::file::read_text_now(&path, TEXT_BYTES_MAX)
            .map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
        (self.data_center, self.rack) = data_center_and_rack(&path, &text)?;
        Ok(())
    }
}

/// Data center and rack as `cassandra-rackdc.properties` has them; `path` is for messages.
fn data_center_and_rack(path: &Path, text: &str) -> Result<(String, String), ConfigError> {
    let bad = |line: u64, key: &str, message: &str| ConfigError::BadValue {
        path: path.to_owned(),
        line,
        column: 1,
        key: key.to_owned(),
        message: message.to_owned(),
    };
    let (mut data_center, mut rack) = (None, None);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let (key, value) = (key.trim(), value.trim());
        if value.is_empty() {
            return Err(bad(number, key, "expected a value behind '='"));
        }
        match key {
            "dc" => data_center = Some(value.to_owned()),
            "rack" => rack = Some(value.to_owned()),
            // `dc_suffix` and `prefer_local` are for other snitches; nodes have one address here.
            "dc_suffix" | "prefer_local" => {}
            _ => return Err(bad(number, key, "expected dc or rack")),
        }
    }
    let data_center = data_center.ok_or_else(|| bad(1, "dc", "expected a line 'dc=...'"))?;
    let rack = rack.ok_or_else(|| bad(1, "rack", "expected a line 'rack=...'"))?;
    Ok((data_center, rack))
}

/// A list of seeds as text, `address[:port]` with commas between, as in both configuration files.
pub(crate) fn parse_seeds(text: &str) -> Result<Vec<Seed>, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let mut seeds = Vec::new();
    for part in parts {
        let seed = match part.parse::<SocketAddr>() {
            Ok(both) => Seed { address: both.ip(), port: Some(both.port()) },
            Err(_) => match part.rsplit_once(':').filter(|(name, _)| *name == "localhost") {
                Some((name, port)) => {
                    let port = port
                        .parse()
                        .map_err(|_| format!("expected a port behind '{name}:', found '{port}'"))?;
                    Seed { address: parse_address(name)?, port: Some(port) }
                }
                None => Seed { address: parse_address(part)?, port: None },
            },
        };
        if seed.address.is_unspecified() || seed.port == Some(0) {
            return Err(format!("'{part}' is no address that can be connected to"));
        }
        if !seeds.contains(&seed) {
            seeds.push(seed);
        }
    }
    Ok(seeds)
}

fn seeds(value: &Value) -> Result<Vec<Seed>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Text(text) => parse_seeds(text),
        Value::List(list) => {
            let mut all = Vec::new();
            for seed in list {
                all.extend(seeds(seed)?);
            }
            Ok(all)
        }
        other => Err(format!("expected addresses with commas between, found {other}")),
    }
}

/// `[{class_name: …SimpleSeedProvider, parameters: [{seeds: "…"}]}]`, as both configuration files write it.
fn seed_provider(value: &Value) -> Result<Vec<Seed>, String> {
    let shape = || format!("expected a list with class_name and parameters with seeds, found {value}");
    let entry = match value {
        Value::List(list) if list.len() == 1 => &list[0],
        other => other,
    };
    let Value::Map(entry) = entry else { return Err(shape()) };
    let field = |map: &[(String, Value)], name: &str| {
        map.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
    };
    match field(entry, "class_name") {
        Some(Value::Text(class)) if class.rsplit('.').next() == Some("SimpleSeedProvider") => {}
        Some(other) => {
            return Err(format!("expected org.apache.cassandra.locator.SimpleSeedProvider, found {other}"));
        }
        None => return Err(shape()),
    }
    let parameters = match field(entry, "parameters") {
        Some(Value::List(list)) if list.len() == 1 => list[0].clone(),
        Some(map @ Value::Map(_)) => map,
        _ => return Err(shape()),
    };
    let Value::Map(parameters) = parameters else { return Err(shape()) };
    field(&parameters, "seeds").map_or_else(|| Err(shape()), |value| seeds(&value))
}

fn broadcast_address(value: &Value) -> Result<IpAddr, String> {
    reachable(address(value)?)
}

/// An address of one machine, as written on the command line.
pub(crate) fn parse_reachable_address(text: &str) -> Result<IpAddr, String> {
    reachable(parse_address(text)?)
}

fn reachable(told: IpAddr) -> Result<IpAddr, String> {
    if told.is_unspecified() {
        return Err(format!("{told} is no address that other nodes can connect to"));
    }
    Ok(told)
}

fn snitch(value: &Value) -> Result<Snitch, String> {
    let expected = "expected SimpleSnitch or GossipingPropertyFileSnitch";
    let Value::Text(class) = value else { return Err(format!("{expected}, found {value}")) };
    match class.rsplit('.').next() {
        Some("SimpleSnitch") => Ok(Snitch::Simple),
        Some("GossipingPropertyFileSnitch") => Ok(Snitch::PropertyFile),
        _ => Err(format!(
            "{expected}, found {value}: ceto has no other yet, write the data center into one of them"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<Config, String> {
        Config::from_yaml(Path::new("x.yaml"), text)
            .map(|(config, remarks)| {
                assert_eq!(remarks, crate::config::Remarks::default());
                config
            })
            .map_err(|error| error.to_string())
    }

    fn check(text: &str, expected: Result<&[&str], &str>) {
        let found = config(text).map(|config| config.seeds());
        match (found, expected) {
            (Ok(seeds), Ok(expected)) => {
                let expected: Vec<SocketAddr> = expected.iter().map(|seed| seed.parse().unwrap()).collect();
                assert_eq!(seeds, expected, "{text}");
            }
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn seeds_are_read_as_both_configuration_files_write_them() {
        let stock = "seed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    parameters:\n      \
                     - seeds: \"127.0.0.1:7000, 127.0.0.2\"\nstorage_port: 7001\n";
        check(stock, Ok(&["127.0.0.1:7000", "127.0.0.2:7001"]));
        check("seeds: 10.0.0.1,10.0.0.1, 10.0.0.2:70\n", Ok(&["10.0.0.1:7000", "10.0.0.2:70"]));
        check(
            "seeds: '[::1]:7000,localhost:9,localhost'\n",
            Ok(&["[::1]:7000", "127.0.0.1:9", "127.0.0.1:7000"]),
        );
        check("seeds: [10.0.0.1, 10.0.0.2]\n", Ok(&["10.0.0.1:7000", "10.0.0.2:7000"]));
        check("seeds: ''\n", Ok(&[]));
        check("seeds: 0.0.0.0\n", Err("no address that can be connected to"));
        check("seeds: db.example.org\n", Err("expected an IP address or localhost"));
        check("seeds: localhost:x\n", Err("expected a port"));
        check("seeds: 5\n", Err("expected addresses with commas"));
        check("seed_provider: [{class_name: K8s, parameters: [{seeds: ''}]}]\n", Err("SimpleSeedProvider"));
        check("seed_provider: [{class_name: SimpleSeedProvider}]\n", Err("parameters with seeds"));
    }

    #[test]
    fn other_nodes_know_the_broadcast_address_and_the_port_is_on_the_other() {
        let of = |text: &str| {
            let config = config(text).unwrap();
            (config.own_address().to_string(), config.bind_address().to_string())
        };
        let pair = |own: &str, bound: &str| (own.to_owned(), bound.to_owned());
        assert_eq!(of("listen_address: 10.0.0.1\n"), pair("10.0.0.1", "10.0.0.1"));
        assert_eq!(
            of("listen_address: 10.0.0.1\nbroadcast_address: 84.0.0.1\n"),
            pair("84.0.0.1", "10.0.0.1")
        );
        assert_eq!(of("rpc_address: 10.0.0.2\nbroadcast_address: '::1'\n"), pair("::1", "10.0.0.2"));
        let wrong = config("broadcast_address: 0.0.0.0\n").unwrap_err();
        assert!(wrong.contains("no address that other nodes can connect to"), "{wrong}");
    }

    #[test]
    fn the_snitch_names_data_center_and_rack() {
        let with = |properties: &str| data_center_and_rack(Path::new("p"), properties);
        let (data_center, rack) = with("# as shipped\ndc = east\nrack=r7\nprefer_local=true\n").unwrap();
        assert_eq!((data_center.as_str(), rack.as_str()), ("east", "r7"));
        for (properties, message) in [
            ("dc=east\n", "'rack=...'"),
            ("rack=r\n", "'dc=...'"),
            ("dc=\n", ":1:1: dc: expected a value"),
            ("dc=a\nrack=b\nzone=c\n", ":3:1: zone: expected dc or rack"),
        ] {
            let error = with(properties).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let yaml = "endpoint_snitch: GossipingPropertyFileSnitch\n";
        let missing = Config::from_yaml(Path::new("/nowhere/x.yaml"), yaml).unwrap_err().to_string();
        assert!(missing.contains("/nowhere/cassandra-rackdc.properties"), "{missing}");
        let unknown = config("endpoint_snitch: Ec2Snitch\n").unwrap_err();
        assert!(unknown.contains("GossipingPropertyFileSnitch"), "{unknown}");
    }
}
