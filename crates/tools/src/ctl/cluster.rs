//! Verbs that show a node and its cluster.

use serde_json::Value;

use super::CtlError;
use super::http::{Api, escaped};
use super::text::{Table, print, size};

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn text_of<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or("?")
}

/// One node as `status` and `ring` show it.
struct Node {
    address: String,
    up: bool,
    load: Option<u64>,
    host_id: String,
    data_center: String,
    rack: String,
    tokens: Vec<String>,
}

impl Node {
    fn load(&self) -> String {
        self.load.map_or_else(|| "?".to_owned(), size)
    }
}

async fn nodes(api: &Api) -> Result<Vec<Node>, CtlError> {
    let live = api.texts("/gossiper/endpoint/live").await?;
    let loads = api.pairs("/storage_service/load_map").await?;
    let tokens = api.pairs("/storage_service/tokens_endpoint").await?;
    let data_center = api.text("/snitch/datacenter").await?;
    let rack = api.text("/snitch/rack").await?;
    let mut nodes = Vec::new();
    for (address, host_id) in api.pairs("/storage_service/host_id").await? {
        nodes.push(Node {
            up: live.contains(&address),
            load: loads.iter().find(|(of, _)| *of == address).and_then(|(_, load)| load.as_u64()),
            host_id: host_id.as_str().unwrap_or("?").to_owned(),
            data_center: data_center.clone(),
            rack: rack.clone(),
            tokens: tokens
                .iter()
                .filter(|(_, of)| of.as_str() == Some(&address))
                .map(|(token, _)| token.clone())
                .collect(),
            address,
        });
    }
    Ok(nodes)
}

/// Checks that the named keyspace exists, if one is named.
async fn ownership(api: &Api, keyspace: Option<&str>) -> Result<(), CtlError> {
    match keyspace {
        Some(keyspace) => {
            api.get(&format!("/storage_service/ownership/{}", escaped(keyspace))).await.map(drop)
        }
        None => Ok(()),
    }
}

pub(super) async fn status(api: &Api, keyspace: Option<&str>) -> Result<(), CtlError> {
    ownership(api, keyspace).await?;
    let nodes = nodes(api).await?;
    let mut out = String::new();
    let Some(first) = nodes.first() else { return Ok(()) };
    let head = format!("Datacenter: {}", first.data_center);
    out.push_str(&format!("{head}\n{}\n", "=".repeat(head.chars().count())));
    out.push_str("Status=Up/Down\n|/ State=Normal/Leaving/Joining/Moving\n");
    let mut table = Table::new("  ");
    table.row(["--", "Address", "Load", "Tokens", "Owns (effective)", "Host ID", "Rack"]);
    for node in &nodes {
        table.row([
            if node.up { "UN" } else { "DN" },
            &node.address,
            &node.load(),
            &node.tokens.len().to_string(),
            "100.0%",
            &node.host_id,
            &node.rack,
        ]);
    }
    out.push_str(&table.print());
    out.push('\n');
    print(&out);
    Ok(())
}

pub(super) async fn ring(api: &Api, keyspace: Option<&str>) -> Result<(), CtlError> {
    ownership(api, keyspace).await?;
    let nodes = nodes(api).await?;
    let Some(first) = nodes.first() else { return Ok(()) };
    let width = nodes.iter().map(|node| node.address.len()).max().unwrap_or(0);
    let line = |address: &str, rest: [&str; 6]| {
        let [rack, status, state, load, owns, token] = rest;
        format!("{address:width$}  {rack:<12}{status:<7}{state:<8}{load:<16}{owns:<20}{token:<44}\n")
    };
    let mut out = format!("\nDatacenter: {}\n==========\n", first.data_center);
    out.push_str(&line("Address", ["Rack", "Status", "State", "Load", "Owns", "Token"]));
    let last = nodes.last().and_then(|node| node.tokens.last()).map_or("", String::as_str);
    out.push_str(&line("", ["", "", "", "", "", last]));
    for node in &nodes {
        for token in &node.tokens {
            let status = if node.up { "Up" } else { "Down" };
            out.push_str(&line(
                &node.address,
                [&node.rack, status, "Normal", &node.load(), "100.00%", token],
            ));
        }
    }
    out.push_str("\n  Warning: \"ceto ctl ring\" is used to output all the tokens of a node.\n");
    out.push_str("  To view status related info of a node use \"ceto ctl status\" instead.\n\n\n  ");
    print(&out);
    Ok(())
}

pub(super) async fn info(api: &Api, tokens: bool) -> Result<(), CtlError> {
    let uptime_ms = api.number("/system/uptime_ms").await?;
    let native = api.get("/storage_service/native_transport").await?;
    let load = number(&api.get("/storage_service/load").await?);
    let memtables = api.number("/column_family/metrics/memtable_live_data_size").await?;
    let resident = api.number("/column_family/metrics/bloom_filter_off_heap_memory_used").await?;
    let all_tokens = api.texts("/storage_service/tokens").await?;
    let mut out = String::new();
    let mut line = |name: &str, value: String| out.push_str(&format!("{name:<23}: {value}\n"));
    line("ID", api.text("/storage_service/hostid/local").await?);
    line("Gossip active", api.text("/storage_service/gossiping").await?);
    line("Native Transport active", native.to_string());
    line("Load", size(load));
    line("Uptime (seconds)", format!("{}", (uptime_ms / 1000.0) as u64));
    line("Memtables (MB)", format!("{:.2}", memtables / 1_048_576.0));
    line("Off Heap Memory (MB)", format!("{:.2}", (memtables + resident) / 1_048_576.0));
    line("Data Center", api.text("/snitch/datacenter").await?);
    line("Rack", api.text("/snitch/rack").await?);
    if tokens {
        all_tokens.into_iter().for_each(|token| line("Token", token));
    } else {
        line("Token", format!("(invoke with -T/--tokens to see all {} tokens)", all_tokens.len()));
    }
    print(&out);
    Ok(())
}

pub(super) async fn version(api: &Api, verbose: bool) -> Result<(), CtlError> {
    let mut out = format!("ReleaseVersion: {}\n", api.text("/storage_service/release_version").await?);
    if verbose {
        out.push_str(&format!(
            "CetoVersion: {}\n",
            api.text("/storage_service/scylla_release_version").await?
        ));
    }
    print(&out);
    Ok(())
}

pub(super) async fn describe_cluster(api: &Api) -> Result<(), CtlError> {
    let nodes = nodes(api).await?;
    let live = nodes.iter().filter(|node| node.up).count();
    let release = api.text("/storage_service/release_version").await?;
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
    out.push_str(&format!(
        "Stats for all nodes:\n\tLive: {live}\n\tJoining: 0\n\tMoving: 0\n\tLeaving: 0\n\tUnreachable: {}\n",
        nodes.len() - live
    ));
    out.push_str("\nData Centers: \n");
    if let Some(first) = nodes.first() {
        out.push_str(&format!(
            "\t{} #Nodes: {} #Down: {}\n",
            first.data_center,
            nodes.len(),
            nodes.len() - live
        ));
    }
    let addresses: Vec<&str> = nodes.iter().map(|node| node.address.as_str()).collect();
    out.push_str(&format!("\nDatabase versions:\n\t{release}: [{}]\n\n", addresses.join(", ")));
    out.push_str("Keyspaces:\n");
    for keyspace in api.texts("/storage_service/keyspaces").await? {
        out.push_str(&format!("\t{keyspace}\n"));
    }
    print(&out);
    Ok(())
}

pub(super) async fn describe_ring(api: &Api, keyspace: &str) -> Result<(), CtlError> {
    let path = format!("/storage_service/describe_ring/{}", escaped(keyspace));
    let ranges = api.get(&path).await?;
    let version = api.text("/storage_service/schema_version").await?;
    let mut out = format!("Schema Version:{version}\nTokenRange: \n");
    let list = |value: &Value, name: &str| {
        let items: Vec<&str> = value
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        items.join(", ")
    };
    for range in ranges.as_array().into_iter().flatten() {
        let details: Vec<String> = range
            .get("endpoint_details")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|of| {
                format!(
                    "EndpointDetails(host:{}, datacenter:{}, rack:{})",
                    text_of(of, "host"),
                    text_of(of, "datacenter"),
                    text_of(of, "rack")
                )
            })
            .collect();
        out.push_str(&format!(
            "\tTokenRange(start_token:{}, end_token:{}, endpoints:[{}], rpc_endpoints:[{}], endpoint_details:[{}])\n",
            text_of(range, "start_token"),
            text_of(range, "end_token"),
            list(range, "endpoints"),
            list(range, "rpc_endpoints"),
            details.join(", ")
        ));
    }
    print(&out);
    Ok(())
}

pub(super) async fn endpoints(api: &Api, keyspace: &str, table: &str, key: &str) -> Result<(), CtlError> {
    let path = format!(
        "/storage_service/natural_endpoints/{}?cf={}&key={}",
        escaped(keyspace),
        escaped(table),
        escaped(key)
    );
    let mut out = api.texts(&path).await?.join("\n");
    out.push('\n');
    print(&out);
    Ok(())
}

pub(super) async fn timeout(api: &Api, which: &str) -> Result<(), CtlError> {
    let path = match which {
        "read" => "read_rpc_timeout",
        "range" => "range_rpc_timeout",
        "write" => "write_rpc_timeout",
        "truncate" => "truncate_rpc_timeout",
        "misc" => "rpc_timeout",
        other => {
            return Err(CtlError::Usage(format!(
                "Timeout type requires one of (read, range, write, truncate, misc), not {other}"
            )));
        }
    };
    let seconds = api.number(&format!("/storage_proxy/{path}")).await?;
    print(&format!("Current timeout for type {which}: {} ms\n", (seconds * 1000.0) as u64));
    Ok(())
}

pub(super) async fn status_gossip(api: &Api) -> Result<(), CtlError> {
    let running = api.get("/storage_service/gossiping").await? == Value::Bool(true);
    print(if running { "running\n" } else { "not running\n" });
    Ok(())
}

pub(super) async fn status_binary(api: &Api) -> Result<(), CtlError> {
    let running = api.get("/storage_service/native_transport").await? == Value::Bool(true);
    print(if running { "running\n" } else { "not running\n" });
    Ok(())
}

pub(super) async fn gossip_info(api: &Api) -> Result<(), CtlError> {
    let mut out = String::new();
    for node in api.get("/failure_detector/endpoints").await?.as_array().into_iter().flatten() {
        out.push_str(&format!("/{}\n", text_of(node, "addrs")));
        for state in node.get("application_state").and_then(Value::as_array).into_iter().flatten() {
            let name = match state.get("application_state").and_then(Value::as_u64) {
                Some(3) => "DC",
                Some(4) => "RACK",
                Some(12) => "HOST_ID",
                _ => continue,
            };
            out.push_str(&format!("  {name}:{}\n", text_of(state, "value")));
        }
    }
    print(&out);
    Ok(())
}

pub(super) async fn logging_levels(api: &Api) -> Result<(), CtlError> {
    let mut out = format!("\n{:<50}{:>10}\n", "Logger Name", "Log Level");
    for name in api.texts("/system/logger").await? {
        let level = api.text(&format!("/system/logger/{}", escaped(&name))).await?;
        out.push_str(&format!("{name:<50}{:>10}\n", level.to_uppercase()));
    }
    print(&out);
    Ok(())
}

pub(super) async fn trace_probability(api: &Api) -> Result<(), CtlError> {
    let share = api.number("/storage_service/trace_probability").await?;
    print(&format!("Current trace probability: {share:?}\n"));
    Ok(())
}
