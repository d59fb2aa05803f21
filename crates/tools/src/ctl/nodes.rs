//! Verbs that show all nodes of the cluster: `status`, `ring`, `describecluster`, `gossipinfo`.
//!
//! Source: output of the verbs of Cassandra 5.0's nodetool, for nodes with several tokens.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::CtlError;
use super::cluster::text_of;
use super::http::{Api, escaped};
use super::text::{Table, print, size};

/// Numbers of what gossip says of a node, as the API has them.
const STATUS: u64 = 0;
const LOAD: u64 = 1;
const DATA_CENTER: u64 = 3;
const RACK: u64 = 4;
const RELEASE_VERSION: u64 = 5;
const HOST_ID: u64 = 12;
const STATES: [(u64, &str); 9] = [
    (STATUS, "STATUS"),
    (LOAD, "LOAD"),
    (2, "SCHEMA"),
    (DATA_CENTER, "DC"),
    (RACK, "RACK"),
    (RELEASE_VERSION, "RELEASE_VERSION"),
    (8, "RPC_ADDRESS"),
    (HOST_ID, "HOST_ID"),
    (17, "RPC_READY"),
];
/// The keyspace by which shares are told where users have none.
const KEYSPACE_OF_NOBODY: &str = "system_traces";

/// A node's part in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Normal,
    Leaving,
    Joining,
}

impl Part {
    fn letter(self) -> &'static str {
        &self.word()[..1]
    }

    fn word(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Leaving => "Leaving",
            Self::Joining => "Joining",
        }
    }
}

/// One node as the verbs show it.
struct Node {
    address: String,
    is_up: bool,
    part: Part,
    load: Option<u64>,
    host_id: String,
    data_center: String,
    rack: String,
    release: String,
    tokens: Vec<i64>,
}

fn states(node: &Value) -> impl Iterator<Item = (u64, &str)> {
    let list = node.get("application_state").and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|state| Some((state.get("application_state")?.as_u64()?, state.get("value")?.as_str()?)))
}

impl Node {
    fn of(endpoint: &Value, tokens: &[(String, Value)]) -> Self {
        let states: BTreeMap<u64, &str> = states(endpoint).collect();
        let text = |number: u64| states.get(&number).copied().unwrap_or("?").to_owned();
        let address = text_of(endpoint, "addrs").to_owned();
        let own = tokens.iter().filter(|(_, of)| of.as_str() == Some(&address));
        Self {
            is_up: endpoint.get("is_alive") == Some(&Value::Bool(true)),
            part: match text(STATUS).split(',').next() {
                Some("BOOT") => Part::Joining,
                Some("LEAVING") => Part::Leaving,
                _ => Part::Normal,
            },
            load: states.get(&LOAD).and_then(|load| load.parse::<f64>().ok()).map(|load| load as u64),
            host_id: text(HOST_ID),
            data_center: text(DATA_CENTER),
            rack: text(RACK),
            release: text(RELEASE_VERSION),
            tokens: own.filter_map(|(token, _)| token.parse().ok()).collect(),
            address,
        }
    }

    fn load(&self) -> String {
        self.load.map_or_else(|| "?".to_owned(), size)
    }

    /// Where it stands in lists: addresses in their order, anything else behind.
    fn place(&self) -> (Option<IpAddr>, &str) {
        (self.address.parse().ok(), &self.address)
    }
}

/// All nodes by data center, in the order of their addresses.
async fn by_data_center(api: &Api) -> Result<BTreeMap<String, Vec<Node>>, CtlError> {
    let endpoints = api.get("/failure_detector/endpoints").await?;
    let tokens = api.pairs("/storage_service/tokens_endpoint").await?;
    let mut centers: BTreeMap<String, Vec<Node>> = BTreeMap::new();
    for endpoint in endpoints.as_array().into_iter().flatten() {
        let node = Node::of(endpoint, &tokens);
        centers.entry(node.data_center.clone()).or_default().push(node);
    }
    for nodes in centers.values_mut() {
        nodes.sort_by(|a, b| a.place().cmp(&b.place()));
    }
    Ok(centers)
}

/// The share of each node by its address.
struct Shares {
    of: BTreeMap<String, f64>,
    /// Whether they are of what is stored, and not of the ring.
    are_effective: bool,
}

impl Shares {
    fn of(&self, node: &Node, decimals: usize) -> String {
        let share = self.of.get(&node.address).filter(|_| node.part != Part::Joining);
        share.map_or_else(|| "?".to_owned(), |share| format!("{:.decimals$}%", share * 100.0))
    }
}

async fn shares_at(api: &Api, path: &str) -> Result<BTreeMap<String, f64>, CtlError> {
    let share = |(address, share): (String, Value)| Some((address, share.as_str()?.parse().ok()?));
    Ok(api.pairs(path).await?.into_iter().filter_map(share).collect())
}

/// The shares of a keyspace; without one those that all keyspaces of users have, or else of the ring.
async fn shares(api: &Api, keyspace: Option<&str>) -> Result<Shares, CtlError> {
    let of = async |keyspace: &str| {
        shares_at(api, &format!("/storage_service/ownership/{}", escaped(keyspace))).await
    };
    if let Some(keyspace) = keyspace {
        return Ok(Shares { of: of(keyspace).await?, are_effective: true });
    }
    let keyspaces = api.texts("/storage_service/keyspaces?type=user").await?;
    let Some((first, rest)) = keyspaces.split_first() else {
        return Ok(Shares { of: of(KEYSPACE_OF_NOBODY).await?, are_effective: true });
    };
    let first = of(first).await?;
    for keyspace in rest {
        if of(keyspace).await? != first {
            let ring = shares_at(api, "/storage_service/ownership").await?;
            return Ok(Shares { of: ring, are_effective: false });
        }
    }
    Ok(Shares { of: first, are_effective: true })
}

/// What is said below shares that are those of the ring.
const NOTE: &str = "Note: Non-system keyspaces don't have the same replication settings, effective ownership \
                    information is meaningless\n";

pub(super) async fn status(api: &Api, keyspace: Option<&str>) -> Result<(), CtlError> {
    let shares = shares(api, keyspace).await?;
    let mut out = String::new();
    for (data_center, nodes) in by_data_center(api).await? {
        let head = format!("Datacenter: {data_center}");
        out.push_str(&format!("{head}\n{}\n", "=".repeat(head.chars().count())));
        out.push_str("Status=Up/Down\n|/ State=Normal/Leaving/Joining/Moving\n");
        let mut table = Table::new("  ");
        let owns = if shares.are_effective { "Owns (effective)" } else { "Owns" };
        table.row(["--", "Address", "Load", "Tokens", owns, "Host ID", "Rack"]);
        for node in &nodes {
            table.row([
                &format!("{}{}", if node.is_up { "U" } else { "D" }, node.part.letter()),
                &node.address,
                &node.load(),
                &node.tokens.len().to_string(),
                &shares.of(node, 1),
                &node.host_id,
                &node.rack,
            ]);
        }
        out.push_str(&table.print());
        out.push('\n');
    }
    if !shares.are_effective {
        out.push_str(NOTE);
    }
    print(&out);
    Ok(())
}

pub(super) async fn ring(api: &Api, keyspace: Option<&str>) -> Result<(), CtlError> {
    let shares = shares(api, keyspace).await?;
    let mut out = String::new();
    for (data_center, nodes) in by_data_center(api).await? {
        let width = nodes.iter().map(|node| node.address.len()).max().unwrap_or(0).max("Address".len());
        let line = |address: &str, rest: [&str; 6]| {
            let [rack, status, state, load, owns, token] = rest;
            format!("{address:width$}  {rack:<12}{status:<7}{state:<8}{load:<16}{owns:<20}{token:<44}\n")
        };
        out.push_str(&format!("\nDatacenter: {data_center}\n==========\n"));
        out.push_str(&line("Address", ["Rack", "Status", "State", "Load", "Owns", "Token"]));
        let mut tokens: Vec<(i64, &Node)> =
            nodes.iter().flat_map(|node| node.tokens.iter().map(move |token| (*token, node))).collect();
        tokens.sort_by_key(|(token, _)| *token);
        let last = tokens.last().map_or_else(String::new, |(token, _)| token.to_string());
        out.push_str(&line("", ["", "", "", "", "", &last]));
        for (token, node) in tokens {
            let status = if node.is_up { "Up" } else { "Down" };
            let (load, owns, token) = (node.load(), shares.of(node, 2), token.to_string());
            out.push_str(&line(&node.address, [&node.rack, status, node.part.word(), &load, &owns, &token]));
        }
    }
    out.push_str("\n  Warning: \"ceto ctl ring\" is used to output all the tokens of a node.\n");
    out.push_str("  To view status related info of a node use \"ceto ctl status\" instead.\n\n\n  ");
    if !shares.are_effective {
        out.push_str(NOTE);
    }
    print(&out);
    Ok(())
}

pub(super) async fn describe_cluster(api: &Api) -> Result<(), CtlError> {
    let centers = by_data_center(api).await?;
    let mut out = format!(
        "Cluster Information:\n\tName: {}\n\tSnitch: {}\n\tDynamicEndPointSnitch: disabled\n\tPartitioner: {}\n\
         \tSchema versions:\n",
        api.text("/storage_service/cluster_name").await?,
        api.text("/snitch/name").await?,
        api.text("/storage_service/partitioner_name").await?,
    );
    for (version, of) in api.pairs("/storage_proxy/schema_versions").await? {
        let of: Vec<&str> = of.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        out.push_str(&format!("\t\t{version}: [{}]\n\n", of.join(", ")));
    }
    let all = || centers.values().flatten();
    let live = all().filter(|node| node.is_up).count();
    let count = |part: Part| all().filter(|node| node.part == part).count();
    out.push_str(&format!(
        "Stats for all nodes:\n\tLive: {live}\n\tJoining: {}\n\tMoving: 0\n\tLeaving: {}\n\tUnreachable: {}\n",
        count(Part::Joining),
        count(Part::Leaving),
        all().count() - live
    ));
    out.push_str("\nData Centers: \n");
    for (data_center, nodes) in &centers {
        let down = nodes.iter().filter(|node| !node.is_up).count();
        out.push_str(&format!("\t{data_center} #Nodes: {} #Down: {down}\n", nodes.len()));
    }
    let mut releases: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    all().for_each(|node| releases.entry(&node.release).or_default().push(&node.address));
    out.push_str("\nDatabase versions:\n");
    for (release, of) in releases {
        out.push_str(&format!("\t{release}: [{}]\n", of.join(", ")));
    }
    out.push_str("\nKeyspaces:\n");
    for keyspace in api.texts("/storage_service/keyspaces").await? {
        out.push_str(&format!("\t{keyspace}\n"));
    }
    print(&out);
    Ok(())
}

pub(super) async fn gossip_info(api: &Api) -> Result<(), CtlError> {
    let mut out = String::new();
    for node in api.get("/failure_detector/endpoints").await?.as_array().into_iter().flatten() {
        let number = |name: &str| node.get(name).and_then(Value::as_u64).unwrap_or(0);
        out.push_str(&format!("/{}\n", text_of(node, "addrs")));
        out.push_str(&format!("  generation:{}\n  heartbeat:{}\n", number("generation"), number("version")));
        for (number, value) in states(node) {
            if let Some((_, name)) = STATES.iter().find(|(of, _)| *of == number) {
                out.push_str(&format!("  {name}:{value}\n"));
            }
        }
    }
    print(&out);
    Ok(())
}
