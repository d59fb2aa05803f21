//! The REST API: ScyllaDB's public paths and answers for what one node has.
//!
//! A file per group of paths. A handler reads its parameters, asks the node through the bridge and shapes the answer; it
//! knows no shard. What is not there answers 404 with `{"message", "code"}`, what is known but not built 501.
//! Source: ScyllaDB's documentation, "REST API reference", and what its public clients ask.

mod cache_service;
mod cluster;
mod column_family;
mod compaction;
mod import;
mod snapshots;
mod storage_service;
mod system;
mod tasks;
mod tombstone_gc;
mod top_partitions;

use axum::http::{Method, Uri};
use axum::{Json, Router};
use serde::Serialize;

use super::bridge::Bridge;
use super::error::ApiError;

/// What a handler gives back.
type Answer<T> = Result<Json<T>, ApiError>;

/// A pair, as the API writes maps.
#[derive(Debug, Serialize)]
struct Pair<K, V> {
    key: K,
    value: V,
}

/// All paths.
pub(super) fn router(bridge: Bridge) -> Router {
    Router::new()
        .merge(storage_service::routes())
        .merge(snapshots::routes())
        .merge(import::routes())
        .merge(column_family::routes())
        .merge(compaction::routes())
        .merge(cache_service::routes())
        .merge(cluster::routes())
        .merge(system::routes())
        .merge(tasks::routes())
        .merge(tombstone_gc::routes())
        .merge(top_partitions::routes())
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
        .with_state(bridge)
}

pub(super) async fn unknown_path(uri: Uri) -> ApiError {
    ApiError::absent(format!("Not found: {}", uri.path()))
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::bad(format!("{method} is not possible on {}", uri.path()))
}

/// A UUID as text.
fn uuid_text(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
