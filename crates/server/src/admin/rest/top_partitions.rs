//! `toppartitions`: the partitions that are read and written most while the request lasts.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use storage::SAMPLING_CAPACITY_MAX;
use tokio::sync::oneshot;

use super::Answer;
use crate::admin::bridge::Bridge;
use crate::admin::error::ApiError;
use crate::admin::node::{self, TableName};
use crate::admin::params::Params;
use crate::admin::sampling::{self, Partition, SamplingRequest, Top};

const DURATION_MS_DEFAULT: u64 = 5000;
/// Longest sampling: ten minutes.
const DURATION_MS_MAX: u64 = 600_000;
const CAPACITY_DEFAULT: u64 = 256;
const LIST_SIZE_DEFAULT: u64 = 10;

pub(super) fn routes() -> Router<Bridge> {
    Router::new()
        .route("/column_family/toppartitions/{name}", get(of_table))
        .route("/storage_service/toppartitions", get(of_tables))
        .route("/storage_service/toppartitions/", get(of_tables))
}

/// Parameters of both requests: `duration` in milliseconds; `capacity`, the number of keys that are counted;
/// `list_size`, the most partitions in the result.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    duration: Duration,
    capacity: usize,
    list_size: usize,
}

impl Sizes {
    fn of(params: &Params) -> Result<Self, ApiError> {
        let capacity_max = SAMPLING_CAPACITY_MAX as u64;
        let duration = number(params, "duration", DURATION_MS_DEFAULT, DURATION_MS_MAX)?;
        let capacity = number(params, "capacity", CAPACITY_DEFAULT, capacity_max)?;
        // A `list_size` above `capacity` is allowed: the result then has the keys that were counted.
        let list_size = number(params, "list_size", LIST_SIZE_DEFAULT, capacity_max)?;
        Ok(Self {
            duration: Duration::from_millis(duration),
            capacity: capacity as usize,
            list_size: list_size as usize,
        })
    }
}

/// A parameter from 1 to `most`.
fn number(params: &Params, name: &str, default: u64, most: u64) -> Result<u64, ApiError> {
    let Some(text) = params.get(name) else { return Ok(default) };
    let number = text.parse::<u64>().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| ApiError::bad(format!("{name} has to be a number from 1 to {most}, not '{text}'")))
}

async fn of_table(State(bridge): State<Bridge>, Path(name): Path<String>, params: Params) -> Answer<Value> {
    let sizes = Sizes::of(&params)?;
    let tables = move || Ok(Some(vec![node::table_called(&name)?]));
    answer(&bridge, sizes, tables, |one| one.key.clone()).await
}

/// More parameters: `table_filters`, `keyspace:table` separated by commas; `keyspace_filters`, keyspaces;
/// without both all tables. The result names each partition's table.
async fn of_tables(State(bridge): State<Bridge>, params: Params) -> Answer<Value> {
    let sizes = Sizes::of(&params)?;
    let (tables, keyspaces) = (params.list("table_filters"), params.list("keyspace_filters"));
    let tables = move || named(&tables, &keyspaces);
    answer(&bridge, sizes, tables, |one| format!("({}:{}) {}", one.keyspace, one.table, one.key)).await
}

fn named(tables: &[String], keyspaces: &[String]) -> Result<Option<Vec<TableName>>, ApiError> {
    if tables.is_empty() && keyspaces.is_empty() {
        return Ok(None);
    }
    let mut found = BTreeSet::new();
    for table in tables {
        found.insert(node::table_called(table)?);
    }
    for keyspace in keyspaces {
        found.extend(node::tables_of(keyspace, &[])?);
    }
    Ok(Some(found.into_iter().collect()))
}

async fn answer(
    bridge: &Bridge,
    sizes: Sizes,
    tables: impl FnOnce() -> Result<Option<Vec<TableName>>, ApiError> + Send + 'static,
    show: fn(&Partition) -> String,
) -> Answer<Value> {
    let Sizes { duration, capacity, list_size } = sizes;
    // The client's departure drops this future and so the sender, which ends the sampling.
    let (_stays, gone) = oneshot::channel::<()>();
    let (reads, writes) = bridge
        .call(move || async move {
            let request = SamplingRequest { tables: tables()?, duration, capacity, list_size };
            sampling::sample(request, async move { drop(gone.await) }).await
        })
        .await?;
    let list = |top: &Top| -> Vec<Value> {
        let told = |one: &Partition| json!({"partition": show(one), "count": one.count, "error": one.error});
        top.partitions.iter().map(told).collect()
    };
    Ok(Json(json!({
        "read_cardinality": reads.cardinality,
        "read": list(&reads),
        "write_cardinality": writes.cardinality,
        "write": list(&writes),
    })))
}
