//! `/storage_service/sstables`: imports table files from a table's `upload` directory, or from another one.

use std::path::PathBuf;

use axum::extract::{Path, State};
use axum::routing::post;
use axum::{Json, Router};
use storage::{ImportSource, StorageError};

use super::Answer;
use crate::admin::bridge::Bridge;
use crate::admin::error::ApiError;
use crate::admin::node;
use crate::admin::params::Params;

pub(super) fn routes() -> Router<Bridge> {
    Router::new().route("/storage_service/sstables/{keyspace}", post(import))
}

/// Parameters: `cf`, the table; and as extensions `directory`, an absolute path on the node to use instead of
/// the table's `upload`, and `keep`, whether the files stay there. ScyllaDB's `load_and_stream` and
/// `primary_replica_only` are accepted without effect: each shard always takes the partitions it owns.
async fn import(State(bridge): State<Bridge>, Path(keyspace): Path<String>, params: Params) -> Answer<()> {
    let table = params.required("cf")?.to_owned();
    let from =
        ImportSource { directory: params.get("directory").map(PathBuf::from), keep: params.flag("keep")? };
    if from.directory.as_ref().is_some_and(|directory| !directory.is_absolute()) {
        return Err(ApiError::bad("directory has to be an absolute path"));
    }
    bridge
        .call(move || async move {
            for table in node::tables_of(&keyspace, &[table])? {
                let imported = node::here()?.storage().import(table.id, &from).await;
                imported.map_err(|error| match error {
                    StorageError::Import { .. } => ApiError::bad(error.to_string()),
                    other => other.into(),
                })?;
            }
            Ok(())
        })
        .await
        .map(Json)
}
