//! `tablestats` and `tablehistograms`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::CtlError;
use super::http::{Api, escaped};
use super::text::{print, size};

/// Tables by keyspace, of those that are named (or not, with `ignore`).
async fn wanted(
    api: &Api,
    named: &[String],
    ignore: bool,
) -> Result<BTreeMap<String, Vec<String>>, CtlError> {
    let all = api.texts("/column_family/name").await?;
    let mut wanted: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in &all {
        let Some((keyspace, table)) = name.split_once(':') else { continue };
        let dotted = format!("{keyspace}.{table}");
        let is_named = named.iter().any(|name| name == keyspace || *name == dotted);
        if named.is_empty() || is_named != ignore {
            wanted.entry(keyspace.to_owned()).or_default().push(table.to_owned());
        }
    }
    for name in named {
        let known = all.iter().any(|known| {
            known.split_once(':').is_some_and(|(k, t)| name == k || *name == format!("{k}.{t}"))
        });
        if !known {
            let kind = if name.contains('.') { "table" } else { "keyspace" };
            return Err(CtlError::Usage(format!("Unknown {kind}: {name}")));
        }
    }
    Ok(wanted)
}

pub(super) async fn stats(
    api: &Api,
    named: &[String],
    ignore: bool,
    human_readable: bool,
) -> Result<(), CtlError> {
    let wanted = wanted(api, named, ignore).await?;
    let total: usize = api.texts("/column_family/name").await?.len();
    let mut out = format!("Total number of tables: {total}\n----------------\n");
    for (keyspace, tables) in wanted {
        let mut body = String::new();
        let mut pending = 0;
        for table in tables {
            let path = format!("/column_family/report/{}:{}", escaped(&keyspace), escaped(&table));
            let report = match api.get(&path).await {
                Ok(report) => report,
                // Dropped since it was listed.
                Err(CtlError::Refused { status: 400 | 404, .. }) => continue,
                Err(error) => return Err(error),
            };
            let number = |name: &str| report.get(name).and_then(Value::as_u64).unwrap_or(0);
            let bytes = |name: &str| {
                if human_readable { size(number(name)) } else { number(name).to_string() }
            };
            pending += number("pending_flushes");
            let snapshots = api
                .number(&format!(
                    "/column_family/metrics/snapshots_size/{}:{}",
                    escaped(&keyspace),
                    escaped(&table)
                ))
                .await? as u64;
            let snapshots = if human_readable { size(snapshots) } else { snapshots.to_string() };
            let ratio = report.get("compression_ratio").and_then(Value::as_f64).unwrap_or(0.0);
            let mut line = |name: &str, value: String| body.push_str(&format!("\t\t{name}: {value}\n"));
            line("Table", table.clone());
            line("SSTable count", number("sstables").to_string());
            let levels: Vec<String> = report
                .get("sstables_in_each_level")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(Value::to_string)
                .collect();
            if levels.len() > 1 {
                line("SSTables in each level", format!("[{}]", levels.join(", ")));
            }
            line("Max SSTable size", size(number("max_sstable_size")));
            line("Space used (live)", bytes("live_disk_space_used"));
            line("Space used (total)", bytes("live_disk_space_used"));
            line("Space used by snapshots (total)", snapshots);
            line("Off heap memory used (total)", bytes("resident_bytes"));
            line("SSTable Compression Ratio", format!("{ratio:.5}"));
            line("Number of partitions (estimate)", number("partitions_estimate").to_string());
            line("Memtable partition count", number("memtable_partitions").to_string());
            line("Memtable data size", bytes("memtable_bytes"));
            line("Pending flushes", number("pending_flushes").to_string());
            line("Compacted partition mean bytes", number("mean_partition_bytes").to_string());
            line("Tablet count", number("tablets").to_string());
            body.push('\n');
        }
        out.push_str(&format!(
            "Keyspace: {keyspace}\n\tPending Flushes: {pending}\n{body}----------------\n"
        ));
    }
    print(&out);
    Ok(())
}

pub(super) async fn histograms(api: &Api, words: &[String]) -> Result<(), CtlError> {
    let name = match words {
        [name] if name.contains('.') => name.replacen('.', ":", 1),
        [keyspace, table] => format!("{keyspace}:{table}"),
        _ => {
            return Err(CtlError::Usage(
                "tablehistograms requires <keyspace> <table> or <keyspace.table> format argument.".to_owned(),
            ));
        }
    };
    // The node keeps no such histograms yet; a missing table is reported nevertheless.
    api.get(&format!("/column_family/report/{}", escaped(&name))).await?;
    Err(CtlError::Unsupported("tablehistograms".to_owned()))
}
