//! The REST API: ScyllaDB's public paths, answered for a single node.
//!
//! Each group of paths has a file. A handler reads its parameters, calls the node through the bridge and
//! shapes the response; it does not use shards directly. Unknown paths are answered with 404, known requests
//! that are not supported with 501; both with a body of the form `{"message", "code"}`.
//! Source: ScyllaDB's documentation, "REST API reference", and the requests of its public clients.

mod cache_service;
mod cluster;
mod column_family;
mod compaction;
mod import;
mod ring;
mod snapshots;
mod storage_service;
mod system;
mod tasks;
mod tombstone_gc;
mod top_partitions;
mod tracing;

use axum::http::{Method, Uri};
use axum::{Json, Router};
use serde::Serialize;

use super::bridge::Bridge;
use super::error::ApiError;

/// The result of a handler.
type Answer<T> = Result<Json<T>, ApiError>;

/// A key and a value, as the API writes the entries of maps.
#[derive(Debug, Serialize)]
struct Pair<K, V> {
    key: K,
    value: V,
}

/// All paths.
pub(super) fn router(bridge: Bridge) -> Router {
    Router::new()
        .merge(storage_service::routes())
        .merge(ring::routes())
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

pub(super) async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::wrong_method(format!("{method} is not possible on {}", uri.path()))
}

/// A UUID as text.
pub(super) fn uuid_text(bytes: [u8; 16]) -> String {
    let hex = model::hex::text(&bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
