//! `/system`: the node's uptime and the levels of its log.

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use reactor::log::Level;

use super::Answer;
use crate::admin::bridge::Bridge;
use crate::admin::error::ApiError;
use crate::admin::node::NodeState;
use crate::admin::params::Params;

/// The logger of all modules that have no level of their own.
const LOGGER: &str = "ceto";

/// The modules that write lines of the log, besides those inside of them. The house's tests compare
/// them with the sources.
#[rustfmt::skip]
const LOGGERS: &[&str] = &[
    "cluster", "cluster::consensus", "cluster::control", "cluster::group0", "cluster::liveness",
    "cluster::net", "query", "query::agreement", "query::engine", "query::execute", "query::row_expiry",
    "query::tracing", "reactor", "reactor::file", "reactor::shard", "reactor::stall", "reactor::start",
    "replication", "replication::batchlog", "replication::hints", "replication::read",
    "replication::speculation", "replication::write", "server", "server::admin", "server::boot",
    "server::native", "sstable", "sstable::resident", "sstable::table_file", "statement",
    "statement::functions", "storage", "storage::batchlog", "storage::cache", "storage::clock",
    "storage::commitlog", "storage::compaction", "storage::ddl", "storage::disk", "storage::flush",
    "storage::import", "storage::large_data", "storage::manifest", "storage::moves", "storage::open",
    "storage::partition_guard", "storage::records", "storage::snapshot", "storage::tablet",
    "storage::takeover", "storage::warm",
];

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
        .route("/system/logger", get(loggers).post(set_all))
        .route("/system/logger/", get(loggers).post(set_all))
        .route("/system/logger/{name}", get(level_of).post(set_level_of))
}

async fn uptime_ms(State(bridge): State<Bridge>) -> Answer<u64> {
    let uptime = bridge.call(|| async { Ok(NodeState::here()?.started.elapsed()) }).await?;
    Ok(Json(u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX)))
}

async fn loggers() -> Json<Vec<&'static str>> {
    Json(std::iter::once(LOGGER).chain(LOGGERS.iter().copied()).collect())
}

/// The module of a logger; `None` for the logger of all modules.
fn module(logger: &str) -> Result<Option<&'static str>, ApiError> {
    if [LOGGER, "root", "ROOT"].contains(&logger) {
        return Ok(None);
    }
    let module = LOGGERS.iter().find(|module| **module == logger);
    module.map(|module| Some(*module)).ok_or_else(|| ApiError::bad(format!("Unknown logger name {logger}")))
}

fn level(params: &Params) -> Result<Level, ApiError> {
    let text = params.required("level")?.to_ascii_lowercase();
    let found = LEVELS.iter().find(|(name, _)| *name == text);
    found.map(|(_, level)| *level).ok_or_else(|| ApiError::bad(format!("Unknown logging level {text}")))
}

async fn level_of(Path(name): Path<String>) -> Answer<&'static str> {
    let level = reactor::log::level_of(module(&name)?);
    let name = LEVELS.iter().find(|(_, of_name)| *of_name == level);
    Ok(Json(name.map_or("error", |(name, _)| name)))
}

/// Sets the level of all loggers: none has one of its own behind it.
async fn set_all(params: Params) -> Answer<()> {
    reactor::log::set_all(level(&params)?);
    Ok(Json(()))
}

async fn set_level_of(Path(name): Path<String>, params: Params) -> Answer<()> {
    let level = level(&params)?;
    match module(&name)? {
        None => reactor::log::set_level(level),
        Some(module) => reactor::log::set_level_of(module, level),
    }
    Ok(Json(()))
}
