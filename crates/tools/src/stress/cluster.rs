//! The servers: discovered from the named ones, connected to, and chosen by token.
//!
//! As a driver does: one server is asked for the others, each gets its connections, and an operation goes to
//! the server that owns its partition, and to the shard if there are shards. Servers with tablets report the
//! owner when a request reaches another shard.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::ops::Bound;

use model::Token;
use model::token::{murmur3_token, shard_of};
use wire::extensions::ReceivedTablet;

use super::StressError;
use super::settings::{Nodes, Settings};
use crate::client::{Client, ClientError, Landed, Row};

/// Most tablets that are remembered; other requests are routed by the ring.
const TABLETS_MAX: usize = 1 << 20;
/// Average number of connections made to find each shard, before the missing shards are given up.
const ATTEMPTS_PER_CONNECTION: usize = 16;

/// One server.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) address: SocketAddr,
    /// Its name as given, for the line that describes it.
    label: String,
    datacenter: String,
    rack: String,
    tokens: Vec<Token>,
    /// Its host id, if it has one.
    id: Option<[u8; 16]>,
}

/// The servers, and the owners of tokens.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) name: String,
    pub(super) hosts: Vec<Host>,
    /// Tokens in order, each with its server.
    ring: Vec<(Token, usize)>,
}

/// The addresses of a name, with its own port or the usual one.
fn resolve(node: &str, port: u16) -> Result<SocketAddr, StressError> {
    let unknown = |error: &dyn std::fmt::Display| StressError::UnknownHost {
        host: node.to_owned(),
        reason: error.to_string(),
    };
    let ends_in_port =
        node.rsplit_once(':').is_some_and(|(host, port)| !host.contains(':') && port.parse::<u16>().is_ok());
    let found = if ends_in_port { node.to_socket_addrs() } else { (node, port).to_socket_addrs() };
    // The server may not listen on the other family of addresses: version 4 first, as servers do by default.
    let mut addresses: Vec<SocketAddr> = found.map_err(|error| unknown(&error))?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.first().copied().ok_or_else(|| unknown(&"no address"))
}

/// All named servers' addresses.
pub(super) fn addresses(nodes: &Nodes, port: u16) -> Result<Vec<(String, SocketAddr)>, StressError> {
    nodes.list.iter().map(|node| Ok((node.clone(), resolve(node, port)?))).collect()
}

/// Connects to the first of the named servers that answers.
pub(super) async fn first_client(settings: &Settings) -> Result<Client, StressError> {
    let mut last = None;
    for (_, address) in addresses(&settings.nodes, settings.ports.native)? {
        match Client::open(address, &settings.mode.client()).await {
            Ok((client, _)) => return Ok(client),
            // A login refused by one server is refused by the others.
            Err(error @ ClientError::Server { .. }) => return Err(error.into()),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| StressError::Usage("no node is named".to_owned()), StressError::Client))
}

fn text(row: &Row, column: usize) -> String {
    let bytes = row.get(column).cloned().flatten().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn address(row: &Row, column: usize) -> Option<IpAddr> {
    let bytes = row.get(column)?.as_deref()?;
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| Ipv6Addr::from(sixteen).into())
}

/// The elements of a serialised set of texts that are tokens.
fn tokens(row: &Row, column: usize) -> Vec<Token> {
    let Some(Some(bytes)) = row.get(column) else { return Vec::new() };
    let mut found = Vec::new();
    let mut rest = bytes.get(4..).unwrap_or_default();
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        let Some((element, tail)) = tail.split_at_checked(length) else { break };
        found.extend(std::str::from_utf8(element).ok().and_then(|text| text.parse().ok()).map(Token));
        rest = tail;
    }
    found
}

fn id(row: &Row, column: usize) -> Option<[u8; 16]> {
    row.get(column)?.as_deref()?.try_into().ok()
}

impl Cluster {
    /// Asks `client`'s server for all servers.
    pub(super) async fn discover(client: &mut Client, settings: &Settings) -> Result<Self, StressError> {
        let local = client
            .rows(
                "SELECT cluster_name, data_center, rack, tokens, host_id FROM system.local WHERE key='local'",
            )
            .await?;
        let local =
            local.into_iter().next().ok_or(StressError::Unexpected { what: "system.local".to_owned() })?;
        let named = addresses(&settings.nodes, settings.ports.native)?;
        let label = |address: SocketAddr| {
            let name = named.iter().find(|(_, known)| *known == address).map(|(name, _)| name.as_str());
            match name {
                Some(name) if name.parse::<IpAddr>().is_err() && !name.contains(':') => {
                    format!("{name}/{address}")
                }
                _ => format!("/{address}"),
            }
        };
        let mut hosts = vec![Host {
            address: client.address,
            label: label(client.address),
            datacenter: text(&local, 1),
            rack: text(&local, 2),
            tokens: tokens(&local, 3),
            id: id(&local, 4),
        }];
        let peers = "SELECT rpc_address, peer, data_center, rack, tokens, host_id FROM system.peers";
        for peer in client.rows(peers).await? {
            let ip = address(&peer, 0).filter(|ip| !ip.is_unspecified()).or_else(|| address(&peer, 1));
            let Some(ip) = ip else { continue };
            let address = SocketAddr::new(ip, settings.ports.native);
            if hosts.iter().any(|host| host.address == address) {
                continue;
            }
            hosts.push(Host {
                address,
                label: label(address),
                datacenter: text(&peer, 2),
                rack: text(&peer, 3),
                tokens: tokens(&peer, 4),
                id: id(&peer, 5),
            });
        }
        if settings.nodes.is_white_list {
            hosts.retain(|host| named.iter().any(|(_, address)| *address == host.address));
        }
        if let Some(datacenter) = settings.nodes.datacenter() {
            hosts.retain(|host| host.datacenter == datacenter);
        }
        if hosts.is_empty() {
            return Err(StressError::Usage("no node is left to connect to".to_owned()));
        }
        let mut ring: Vec<(Token, usize)> = hosts
            .iter()
            .enumerate()
            .flat_map(|(index, host)| host.tokens.iter().map(move |token| (*token, index)))
            .collect();
        ring.sort_unstable();
        Ok(Self { name: text(&local, 0), hosts, ring })
    }

    /// The lines that describe the servers.
    pub(super) fn describe(&self, settings: &Settings) -> Vec<String> {
        let mut lines = vec![format!(
            "Connected to cluster: {}, max pending requests per connection {}, max connections per host {}",
            self.name, settings.mode.requests_per_connection, settings.mode.connections_per_host
        )];
        lines.extend(self.hosts.iter().map(|host| {
            format!("Datacenter: {}; Host: {}; Rack: {}", host.datacenter, host.label, host.rack)
        }));
        lines
    }

    /// The server that owns `token`.
    #[inline]
    pub(super) fn owner(&self, token: Token) -> usize {
        if self.hosts.len() == 1 || self.ring.is_empty() {
            return 0;
        }
        let place = self.ring.partition_point(|(end, _)| *end < token);
        self.ring.get(place).or(self.ring.first()).map_or(0, |(_, host)| *host)
    }

    /// The ends of the ranges of tokens, in order.
    pub(super) fn range_ends(&self) -> Vec<Token> {
        self.ring.iter().map(|(token, _)| *token).collect()
    }
}

/// The server and shard of tokens, as reported by servers for requests that reached another shard.
#[derive(Debug, Default)]
pub(super) struct Tablets {
    /// By last token: the token before the first, server, shard.
    by_end: BTreeMap<i64, (i64, usize, usize)>,
}

impl Tablets {
    /// The server and shard of a token, if they are known.
    #[inline]
    pub(super) fn owner(&self, token: Token) -> Option<(usize, usize)> {
        let (_, (before, host, shard)) = self.by_end.range(token.0..).next()?;
        (*before < token.0).then_some((*host, *shard))
    }

    /// Adds a server's report; earlier reports about these tokens are dropped.
    pub(super) fn learn(&mut self, tablet: &ReceivedTablet, hosts: &[Host]) {
        let known = tablet.replicas.iter().find_map(|(id, shard)| {
            let host = hosts.iter().position(|host| host.id == Some(*id))?;
            Some((host, usize::try_from(*shard).ok()?))
        });
        let (Some((host, shard)), true) = (known, tablet.first_token < tablet.last_token) else { return };
        let overlaps = |(_, (before, ..)): &(&i64, &(i64, usize, usize))| *before < tablet.last_token;
        let after = self.by_end.range((Bound::Excluded(tablet.first_token), Bound::Unbounded));
        let old: Vec<i64> = after.take_while(overlaps).map(|(end, _)| *end).collect();
        for end in old {
            self.by_end.remove(&end);
        }
        if self.by_end.len() < TABLETS_MAX {
            self.by_end.insert(tablet.last_token, (tablet.first_token, host, shard));
        }
    }
}

/// The connections of one server, by shard; one entry if it has no shards.
#[derive(Debug, Default, Clone)]
pub(super) struct Lanes {
    /// Numbers of the connections to each shard.
    pub(super) shards: Vec<Vec<usize>>,
    ignore_msb: u8,
}

impl Lanes {
    /// The connections to a shard; those of the first one if there is no such shard.
    #[inline]
    pub(super) fn of_shard(&self, shard: usize) -> &[usize] {
        let lane = self.shards.get(shard).filter(|lanes| !lanes.is_empty());
        lane.or(self.shards.first()).map_or(&[], Vec::as_slice)
    }

    /// The connections for a key whose tablet is unknown.
    #[inline]
    pub(super) fn for_key(&self, token: Token) -> &[usize] {
        match self.shards.len() {
            0 | 1 => self.of_shard(0),
            count => self.of_shard(shard_of(token, count as u32, self.ignore_msb) as usize),
        }
    }
}

/// The token of a serialised partition key.
#[inline]
pub(super) fn token_of(key: &[u8]) -> Token {
    murmur3_token(key)
}

/// Makes a server's connections: as many as wanted, and on a server with shards as many on each.
pub(super) async fn connect(
    host: &Host,
    wanted: usize,
    settings: &Settings,
) -> Result<Vec<(Client, Option<Landed>)>, StressError> {
    let mut clients: Vec<(Client, Option<Landed>)> = Vec::with_capacity(wanted);
    let mut on_shard: Vec<usize> = Vec::new();
    let mut attempts = 0;
    while clients.len() < wanted.max(on_shard.len()) {
        attempts += 1;
        let (client, landed) = Client::open(host.address, &settings.mode.client()).await?;
        let Some(place) = landed else {
            clients.push((client, None));
            continue;
        };
        on_shard.resize(place.shards as usize, 0);
        let each_max = wanted.div_ceil(on_shard.len());
        let is_patient = attempts < wanted.max(on_shard.len()) * ATTEMPTS_PER_CONNECTION;
        let count = &mut on_shard[place.shard as usize];
        if *count < each_max || !is_patient {
            *count += 1;
            clients.push((client, landed));
        }
    }
    Ok(clients)
}

/// The lanes of connections numbered from `first` on.
pub(super) fn lanes(landed: &[Option<Landed>], first: usize) -> Lanes {
    let place = landed.iter().flatten().next();
    let shards = place.map_or(1, |place| place.shards as usize);
    let mut lanes = Lanes { shards: vec![Vec::new(); shards], ignore_msb: place.map_or(0, |p| p.ignore_msb) };
    for (number, landed) in landed.iter().enumerate() {
        let shard = landed.map_or(0, |landed| landed.shard as usize);
        if let Some(lane) = lanes.shards.get_mut(shard) {
            lane.push(first + number);
        }
    }
    let all: Vec<usize> = (first..first + landed.len()).collect();
    for lane in &mut lanes.shards {
        if lane.is_empty() {
            lane.clone_from(&all);
        }
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_ports() {
        assert_eq!(resolve("127.0.0.3", 9042).unwrap().to_string(), "127.0.0.3:9042");
        assert_eq!(resolve("127.0.0.3:19", 9042).unwrap().to_string(), "127.0.0.3:19");
        assert_eq!(resolve("::1", 9042).unwrap().to_string(), "[::1]:9042");
        assert!(matches!(resolve("", 9042), Err(StressError::UnknownHost { .. })));
    }

    #[test]
    fn tokens_are_read_from_a_set_of_texts() {
        let mut set = 2_i32.to_be_bytes().to_vec();
        for text in ["-5", "x", "7"] {
            set.extend_from_slice(&(text.len() as i32).to_be_bytes());
            set.extend_from_slice(text.as_bytes());
        }
        set.extend_from_slice(&[0, 0, 0, 9, 1]);
        assert_eq!(tokens(&vec![Some(set)], 0), [Token(-5), Token(7)]);
        assert!(tokens(&vec![None], 0).is_empty());
    }

    #[test]
    fn a_token_belongs_to_the_next_end_on_the_ring() {
        let host = |port| Host {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            label: String::new(),
            datacenter: String::new(),
            rack: String::new(),
            tokens: Vec::new(),
            id: Some([port as u8; 16]),
        };
        let ring = vec![(Token(-10), 0), (Token(0), 1), (Token(10), 0)];
        let cluster = Cluster { name: String::new(), hosts: vec![host(1), host(2)], ring };
        let owners: Vec<usize> = [-11, -10, -9, 0, 1, 11].map(|token| cluster.owner(Token(token))).into();
        assert_eq!(owners, [0, 0, 1, 1, 0, 0]);
    }

    #[test]
    fn tablets_are_learned_and_replaced() {
        let host = |id| Host {
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            label: String::new(),
            datacenter: String::new(),
            rack: String::new(),
            tokens: Vec::new(),
            id: Some([id; 16]),
        };
        let hosts = [host(1), host(2)];
        let tablet = |first_token, last_token, id, shard| ReceivedTablet {
            first_token,
            last_token,
            replicas: vec![([9; 16], 7), ([id; 16], shard)],
        };
        let mut tablets = Tablets::default();
        tablets.learn(&tablet(0, 10, 1, 3), &hosts);
        tablets.learn(&tablet(10, 20, 2, 4), &hosts);
        tablets.learn(&tablet(30, 30, 2, 4), &hosts);
        tablets.learn(&tablet(40, 50, 9, 4), &hosts);
        let owners = |tablets: &Tablets| [0, 1, 10, 11, 20, 21, 45].map(|token| tablets.owner(Token(token)));
        let (first, second) = (Some((0, 3)), Some((1, 4)));
        assert_eq!(owners(&tablets), [None, first, first, second, second, None, None]);
        // A split and a merge: the last report counts.
        tablets.learn(&tablet(0, 5, 2, 1), &hosts);
        let split = Some((1, 1));
        assert_eq!(owners(&tablets), [None, split, None, second, second, None, None]);
        tablets.learn(&tablet(-1, 25, 1, 0), &hosts);
        assert_eq!(owners(&tablets)[..6], [Some((0, 0)); 6]);
        assert_eq!(tablets.by_end.len(), 1);
    }

    #[test]
    fn lanes_of_missing_shards_are_all_lanes() {
        let on = |shard| Some(Landed { shard, shards: 3, ignore_msb: 12 });
        let found = lanes(&[on(0), on(2), on(0)], 4);
        assert_eq!(found.shards, [vec![4, 6], vec![4, 5, 6], vec![5]]);
    }
}
