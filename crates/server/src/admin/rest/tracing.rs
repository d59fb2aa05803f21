//! `/storage_service/trace_probability` and `/storage_service/slow_query`: which requests are traced without
//! their clients asking, and which slow ones `system_traces.node_slow_log` has.
//!
//! The settings hold on this node, on all its shards, until it stops.

use std::rc::Rc;
use std::time::Duration;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use query::watch::SlowTable;
use reactor::Group;
use serde::Serialize;

use super::Answer;
use crate::admin::bridge::Bridge;
use crate::admin::error::ApiError;
use crate::admin::node;
use crate::admin::params::Params;
use crate::boot::Shard;

/// Longest time that rows may live, in seconds: 20 years.
const TTL_SECONDS_MAX: u64 = 630_720_000;

pub(super) fn routes() -> Router<Bridge> {
    Router::new()
        .route("/storage_service/trace_probability", get(trace_probability).post(set_trace_probability))
        .route("/storage_service/slow_query", get(slow_query).post(set_slow_query))
}

async fn trace_probability(State(bridge): State<Bridge>) -> Answer<f64> {
    bridge.call(|| async { Ok(node::here()?.native.engine().watch().probability()) }).await.map(Json)
}

async fn set_trace_probability(State(bridge): State<Bridge>, params: Params) -> Answer<()> {
    let text = params.required("probability")?;
    let Some(probability) = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share)) else {
        return Err(ApiError::bad(format!("probability has to be between 0 and 1, not '{text}'")));
    };
    let set = move || {
        node::on_each(Group::ADMIN, move |shard: Rc<Shard>| async move {
            shard.native.engine().watch().set_probability(probability);
            Ok(())
        })
    };
    bridge.call(set).await?;
    reactor::info!("trace probability changed"; probability = probability);
    Ok(Json(()))
}

/// As ScyllaDB has them: the threshold in microseconds, the time to live in seconds.
#[derive(Serialize)]
struct SlowQuery {
    enable: bool,
    ttl: u32,
    threshold: u64,
    fast: bool,
}

impl From<SlowTable> for SlowQuery {
    fn from(table: SlowTable) -> Self {
        Self {
            enable: table.enable,
            ttl: table.ttl_seconds,
            threshold: u64::try_from(table.threshold.as_micros()).unwrap_or(u64::MAX),
            fast: table.fast,
        }
    }
}

async fn slow_query(State(bridge): State<Bridge>) -> Answer<SlowQuery> {
    bridge.call(|| async { Ok(node::here()?.native.engine().watch().slow_table().into()) }).await.map(Json)
}

async fn set_slow_query(State(bridge): State<Bridge>, params: Params) -> Answer<()> {
    let number = |name: &str, most: u64| match params.get(name) {
        None => Ok(None),
        Some(text) => match text.parse::<u64>() {
            Ok(number) if (1..=most).contains(&number) => Ok(Some(number)),
            _ => Err(ApiError::bad(format!("{name} has to be a number from 1 to {most}, not '{text}'"))),
        },
    };
    // Parameters that are not given stay as they are.
    let (ttl, threshold) = (number("ttl", TTL_SECONDS_MAX)?, number("threshold", 1 << 40)?);
    let flag = |name: &str| params.get(name).map(|_| params.flag(name)).transpose();
    let (enable, fast) = (flag("enable")?, flag("fast")?);
    let set = move || {
        node::on_each(Group::ADMIN, move |shard: Rc<Shard>| async move {
            let watch = shard.native.engine().watch();
            let before = watch.slow_table();
            watch.set_slow_table(SlowTable {
                enable: enable.unwrap_or(before.enable),
                fast: fast.unwrap_or(before.fast),
                threshold: threshold.map_or(before.threshold, Duration::from_micros),
                ttl_seconds: ttl.map_or(before.ttl_seconds, |ttl| ttl as u32),
            });
            shard.native.watch_slow_requests();
            Ok(())
        })
    };
    bridge.call(set).await?;
    reactor::info!("settings of node_slow_log changed");
    Ok(Json(()))
}
