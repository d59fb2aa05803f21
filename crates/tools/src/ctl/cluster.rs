//! Verbs that show a node, its settings and its part of the ring; `nodes` has those that show all nodes.

use serde_json::Value;

use super::CtlError;
use super::http::{Api, escaped};
use super::text::{print, size};

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

pub(super) fn text_of<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or("?")
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
    let id = api.text("/storage_service/hostid/local").await?;
    line("ID", id.clone());
    line("Gossip active", api.text("/storage_service/gossiping").await?);
    line("Native Transport active", native.to_string());
    line("Load", size(load));
    line("Generation No", api.text(&format!("/gossiper/generation_number/{}", escaped(&id))).await?);
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

pub(super) async fn describe_ring(api: &Api, keyspace: &str, table: Option<&str>) -> Result<(), CtlError> {
    let of_table = table.map_or_else(String::new, |table| format!("?table={}", escaped(table)));
    let path = format!("/storage_service/describe_ring/{}{of_table}", escaped(keyspace));
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
