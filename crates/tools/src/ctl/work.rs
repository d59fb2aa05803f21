//! Verbs that make a node do something, with progress messages while it takes its time.

use serde_json::Value;

use super::CtlError;
use super::http::{Api, escaped};
use super::patience::patiently;
use super::text::{Table, print, size};
use super::verbs::{Of, ScrubOptions, VerifyOptions};

/// The result of a scrub in validation mode that found damage.
const VALIDATION_ERRORS: u64 = 3;

/// `path` of each selected keyspace, with its tables as a parameter.
async fn paths(api: &Api, of: &Of, path: &str, user_only: bool) -> Result<Vec<String>, CtlError> {
    let keyspaces = match &of.keyspace {
        Some(keyspace) => vec![keyspace.clone()],
        None if user_only => api.texts("/storage_service/keyspaces?type=user").await?,
        None => api.texts("/storage_service/keyspaces").await?,
    };
    let tables: Vec<String> = of.tables.iter().map(|table| escaped(table)).collect();
    let parameter = if tables.is_empty() { String::new() } else { format!("?cf={}", tables.join(",")) };
    Ok(keyspaces.iter().map(|keyspace| format!("{path}/{}{parameter}", escaped(keyspace))).collect())
}

/// Sends a request and waits; progress messages name the running compactions.
async fn post(api: &Api, what: &str, path: String) -> Result<Value, CtlError> {
    let request = {
        let api = api.clone();
        async move { api.post(&path).await }
    };
    patiently(what, request, async |taken| format!("{} s {}", taken.as_secs(), running(api).await)).await
}

/// The running compactions, each with how much of it is done.
async fn running(api: &Api) -> String {
    let running = api.get("/compaction_manager/compactions").await.unwrap_or(Value::Null);
    let progress: Vec<String> = running
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|c| {
            let (done, total) = (c.get("completed")?.as_u64()?, c.get("total")?.as_u64()?);
            let name = format!("{}.{}", c.get("ks")?.as_str()?, c.get("cf")?.as_str()?);
            let percent = (done * 100).checked_div(total);
            Some(percent.map_or(name.clone(), |percent| format!("{name} {percent} %")))
        })
        .collect();
    progress.join(", ")
}

async fn each(api: &Api, of: &Of, what: &str, path: &str, user_only: bool) -> Result<(), CtlError> {
    for path in paths(api, of, path, user_only).await? {
        post(api, what, path).await?;
    }
    Ok(())
}

pub(super) async fn flush(api: &Api, of: &Of) -> Result<(), CtlError> {
    each(api, of, "flush", "/storage_service/keyspace_flush", false).await
}

pub(super) async fn compact(api: &Api, of: &Of, split_output: bool) -> Result<(), CtlError> {
    let mut left_out = 0;
    for path in paths(api, of, "/storage_service/keyspace_compaction", false).await? {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}split_output={split_output}&report=true");
        let report = post(api, "compact", path).await?;
        for file in report.get("damaged").and_then(Value::as_array).into_iter().flatten() {
            left_out += 1;
            print(&format!("{}: damaged, left as it is\n", file.as_str().unwrap_or("?")));
        }
    }
    if left_out > 0 {
        return Err(CtlError::Answer(format!(
            "{left_out} damaged table files were not compacted: see ceto ctl scrub"
        )));
    }
    Ok(())
}

pub(super) async fn garbage_collect(api: &Api, of: &Of) -> Result<(), CtlError> {
    each(api, of, "garbagecollect", "/storage_service/keyspace_garbage_collect", true).await
}

pub(super) async fn status_auto_compaction(api: &Api, of: &Of) -> Result<(), CtlError> {
    let mut table = Table::new(" ");
    for name in api.texts("/column_family/name").await? {
        let Some((keyspace, name_of)) = name.split_once(':') else { continue };
        let named = of.keyspace.as_deref().is_none_or(|wanted| wanted == keyspace)
            && (of.tables.is_empty() || of.tables.iter().any(|wanted| wanted == name_of));
        if named {
            let on = api.get(&format!("/column_family/autocompaction/{}", escaped(&name))).await?;
            let on = if on == Value::Bool(true) { "running" } else { "not running" };
            table.row([keyspace, name_of, on]);
        }
    }
    print(&table.print());
    Ok(())
}

pub(super) async fn compaction_throughput(api: &Api) -> Result<(), CtlError> {
    let mebibytes = api.number("/storage_service/compaction_throughput").await?;
    print(&format!("Current compaction throughput: {} MB/s\n", mebibytes as u64));
    Ok(())
}

pub(super) async fn set_compaction_throughput(api: &Api, mebibytes: u64) -> Result<(), CtlError> {
    api.post(&format!("/storage_service/compaction_throughput?value={mebibytes}")).await.map(drop)
}

pub(super) async fn cleanup(api: &Api, of: &Of) -> Result<(), CtlError> {
    each(api, of, "cleanup", "/storage_service/keyspace_cleanup", true).await
}

pub(super) async fn scrub(api: &Api, options: &ScrubOptions) -> Result<(), CtlError> {
    let mode = options.mode.as_deref().unwrap_or(if options.skip_corrupted { "SKIP" } else { "ABORT" });
    for path in paths(api, &options.of, "/storage_service/keyspace_scrub", true).await? {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!(
            "{path}{separator}scrub_mode={}&disable_snapshot={}&report=true",
            escaped(&mode.to_uppercase()),
            options.no_snapshot
        );
        let report = post(api, "scrub", path).await?;
        let number = |name: &str| report.get(name).and_then(Value::as_u64).unwrap_or(0);
        if number("damaged_sstables") > 0 {
            print(&format!(
                "{} of {} table files damaged: {} partitions read, {} stretches unreadable, {} out of order\n",
                number("damaged_sstables"),
                number("sstables"),
                number("partitions"),
                number("gaps"),
                number("out_of_order")
            ));
        }
        if number("status") == VALIDATION_ERRORS {
            return Err(CtlError::Answer(
                "there are damaged table files; the node's log names them".to_owned(),
            ));
        }
    }
    Ok(())
}

pub(super) async fn verify(api: &Api, options: &VerifyOptions) -> Result<(), CtlError> {
    let (mut files, mut damaged) = (0, 0);
    for path in paths(api, &options.of, "/storage_service/keyspace_verify", true).await? {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!(
            "{path}{separator}quick={}&extended={}&dfp={}",
            options.quick, options.extended, options.dfp
        );
        let report = post(api, "verify", path).await?;
        files += report.get("sstables").and_then(Value::as_u64).unwrap_or(0);
        for file in report.get("damaged").and_then(Value::as_array).into_iter().flatten() {
            let text = |name: &str| file.get(name).and_then(Value::as_str).unwrap_or("?");
            damaged += 1;
            print(&format!("{}: {}\n", text("file"), text("reason")));
        }
        if report.get("stopped").and_then(Value::as_bool) == Some(true) {
            return Err(CtlError::Answer("verify was stopped".to_owned()));
        }
    }
    if damaged > 0 {
        return Err(CtlError::Answer(format!("{damaged} of {files} table files are damaged")));
    }
    print(&format!("{files} table files verified\n"));
    Ok(())
}

/// Empties a cache: `key` or `row`.
pub(super) async fn forget(api: &Api, cache: &str) -> Result<(), CtlError> {
    api.post(&format!("/cache_service/invalidate_{cache}_cache")).await.map(drop)
}

pub(super) async fn upgrade(api: &Api, of: &Of, include_all: bool) -> Result<(), CtlError> {
    for path in paths(api, of, "/storage_service/keyspace_upgrade_sstables", true).await? {
        let separator = if path.contains('?') { '&' } else { '?' };
        post(api, "upgradesstables", format!("{path}{separator}exclude_current_version={}", !include_all))
            .await?;
    }
    Ok(())
}

pub(super) async fn stop(api: &Api, kind: Option<&str>) -> Result<(), CtlError> {
    let kind = kind.unwrap_or("COMPACTION").to_uppercase();
    api.post(&format!("/compaction_manager/stop_compaction?type={}", escaped(&kind))).await.map(drop)
}

pub(super) async fn auto_compaction(api: &Api, of: &Of, on: bool) -> Result<(), CtlError> {
    for path in paths(api, of, "/storage_service/auto_compaction", true).await? {
        if on {
            api.post(&path).await?
        } else {
            api.delete(&path).await?
        };
    }
    Ok(())
}

pub(super) async fn refresh(api: &Api, keyspace: &str, table: &str) -> Result<(), CtlError> {
    let path = format!("/storage_service/sstables/{}?cf={}", escaped(keyspace), escaped(table));
    post(api, "refresh", path).await.map(drop)
}

pub(super) async fn import(
    api: &Api,
    keyspace: &str,
    table: &str,
    directories: &[String],
    keep: bool,
) -> Result<(), CtlError> {
    for directory in directories {
        let path = format!(
            "/storage_service/sstables/{}?cf={}&directory={}&keep={keep}",
            escaped(keyspace),
            escaped(table),
            escaped(directory)
        );
        post(api, "import", path).await?;
    }
    Ok(())
}

pub(super) async fn drain(api: &Api) -> Result<(), CtlError> {
    post(api, "drain", "/storage_service/drain".to_owned()).await.map(drop)
}

pub(super) async fn enable_binary(api: &Api) -> Result<(), CtlError> {
    api.post("/storage_service/native_transport").await.map(drop)
}

pub(super) async fn disable_binary(api: &Api) -> Result<(), CtlError> {
    api.delete("/storage_service/native_transport").await.map(drop)
}

/// Without a level, or without anything, the default one.
pub(super) async fn set_logging_level(
    api: &Api,
    class: Option<String>,
    level: Option<String>,
) -> Result<(), CtlError> {
    let level = level.unwrap_or_else(|| "info".to_owned());
    match class.filter(|class| !class.is_empty()) {
        Some(class) => {
            api.post(&format!("/system/logger/{}?level={}", escaped(&class), escaped(&level))).await.map(drop)
        }
        None => api.post(&format!("/system/logger?level={}", escaped(&level))).await.map(drop),
    }
}

pub(super) async fn set_trace_probability(api: &Api, probability: &str) -> Result<(), CtlError> {
    api.post(&format!("/storage_service/trace_probability?probability={}", escaped(probability)))
        .await
        .map(drop)
}

pub(super) async fn compaction_stats(api: &Api, human_readable: bool) -> Result<(), CtlError> {
    let pending = api.number("/compaction_manager/metrics/pending_tasks").await?;
    let running = api.get("/compaction_manager/compactions").await?;
    let mut table = Table::new(" ");
    table.row(["pending tasks".to_owned(), format!("{}", pending as u64)]);
    let by_table = api.get("/compaction_manager/metrics/pending_tasks_by_table").await?;
    for due in by_table.as_array().into_iter().flatten() {
        let text = |name: &str| due.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        table.row([text("ks"), text("cf"), due.get("task").map_or_else(String::new, Value::to_string)]);
    }
    let running = running.as_array().cloned().unwrap_or_default();
    if !running.is_empty() {
        table.row(["id", "compaction type", "keyspace", "table", "completed", "total", "unit", "progress"]);
    }
    for compaction in &running {
        let text = |name: &str| match compaction.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let number = |name: &str| compaction.get(name).and_then(Value::as_u64).unwrap_or(0);
        let (done, total, unit) = (number("completed"), number("total"), text("unit"));
        let shown =
            |count: u64| if human_readable && unit == "bytes" { size(count) } else { count.to_string() };
        let progress =
            if total == 0 { "n/a".to_owned() } else { format!("{:.2}%", done as f64 / total as f64 * 100.0) };
        let kind = text("task_type");
        table.row([
            text("id"),
            kind,
            text("ks"),
            text("cf"),
            shown(done),
            shown(total),
            unit.clone(),
            progress,
        ]);
    }
    if !running.is_empty() {
        table.row(["active compaction remaining time", "n/a"]);
    }
    print(&table.print());
    Ok(())
}

pub(super) async fn compaction_history(api: &Api) -> Result<(), CtlError> {
    let history = api.get("/compaction_manager/compaction_history").await?;
    let history = history.as_array().cloned().unwrap_or_default();
    if history.is_empty() {
        print("Compaction History: \nThere is no compaction history");
        return Ok(());
    }
    let mut table = Table::new(" ");
    table.row([
        "id",
        "keyspace_name",
        "columnfamily_name",
        "compacted_at",
        "bytes_in",
        "bytes_out",
        "rows_merged",
        "compaction_properties",
    ]);
    for entry in &history {
        let text = |name: &str| match entry.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let at = entry.get("compacted_at").and_then(Value::as_i64);
        let at = at.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        let at = at.map_or_else(String::new, |at| at.strftime("%Y-%m-%dT%H:%M:%S%.3f").to_string());
        let merged = entry.get("rows_merged").and_then(Value::as_array).cloned().unwrap_or_default();
        let merged: Vec<String> = merged
            .iter()
            .filter_map(|pair| Some(format!("{}:{}", pair.get("key")?, pair.get("value")?)))
            .collect();
        let merged = format!("{{{}}}", merged.join(", "));
        table.row([
            text("id"),
            text("ks"),
            text("cf"),
            at,
            text("bytes_in"),
            text("bytes_out"),
            merged,
            format!("{{compaction_type: {}}}", text("compaction_type")),
        ]);
    }
    print(&format!("Compaction History: \n{}", table.print()));
    Ok(())
}
