//! `/system`: the node's uptime and its log level.

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use reactor::log::Level;

use super::Answer;
use crate::admin::bridge::Bridge;
use crate::admin::error::ApiError;
use crate::admin::node::NodeState;
use crate::admin::params::Params;

/// The level applies to the whole process, so there is one logger.
const LOGGER: &str = "ceto";

const LEVELS: [(&str, Level); 5] = [
    ("error", Level::Error),
    ("warn", Level::Warn),
    ("info", Level::Info),
    ("debug", Level::Debug),
    ("trace", Level::Debug),
];

pub(super) fn routes() -> Router<Bridge> {
    Router::new()
        .route("/system/uptime_ms", get(uptime_ms))
        .route("/system/logger", get(async || Json([LOGGER])).post(set_level))
        .route("/system/logger/", get(async || Json([LOGGER])).post(set_level))
        .route("/system/logger/{name}", get(level_of).post(set_level_of))
}

async fn uptime_ms(State(bridge): State<Bridge>) -> Answer<u64> {
    let uptime = bridge.call(|| async { Ok(NodeState::here()?.started.elapsed()) }).await?;
    Ok(Json(u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX)))
}

fn check_logger(name: &str) -> Result<(), ApiError> {
    if name == LOGGER || name == "root" || name == "ROOT" {
        return Ok(());
    }
    Err(ApiError::bad(format!("Unknown logger name {name}")))
}

async fn level_of(Path(name): Path<String>) -> Answer<&'static str> {
    check_logger(&name)?;
    let written = LEVELS.iter().take(4).rev().find(|(_, level)| reactor::log::enabled(*level));
    Ok(Json(written.map_or("error", |(name, _)| name)))
}

async fn set_level(params: Params) -> Answer<()> {
    let text = params.required("level")?.to_ascii_lowercase();
    let Some((_, level)) = LEVELS.iter().find(|(name, _)| *name == text) else {
        return Err(ApiError::bad(format!("Unknown logging level {text}")));
    };
    reactor::log::set_level(*level);
    Ok(Json(()))
}

async fn set_level_of(Path(name): Path<String>, params: Params) -> Answer<()> {
    check_logger(&name)?;
    set_level(params).await
}
