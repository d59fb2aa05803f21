//! `/cache_service` and `/system/drop_sstable_caches`: drops cached contents of table files on every shard.

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use reactor::Group;

use super::Answer;
use crate::admin::bridge::Bridge;
use crate::admin::node;

pub(super) fn routes() -> Router<Bridge> {
    Router::new()
        .route("/cache_service/invalidate_key_cache", post(forget_index_pages))
        .route("/cache_service/invalidate_row_cache", post(forget_rows))
        .route("/system/drop_sstable_caches", post(forget_all))
}

/// Other databases cache positions of keys; this one caches pages of indexes instead.
async fn forget_index_pages(State(bridge): State<Bridge>) -> Answer<()> {
    let done = bridge.call(|| async {
        node::on_each(Group::ADMIN, |shard| async move {
            shard.storage().evict_index_pages();
            Ok(())
        })
        .await
    });
    done.await.map(|_| Json(()))
}

/// Drops everything cached of table files.
async fn forget_all(State(bridge): State<Bridge>) -> Answer<()> {
    let _ = forget_index_pages(State(bridge.clone())).await?;
    forget_rows(State(bridge)).await
}

async fn forget_rows(State(bridge): State<Bridge>) -> Answer<()> {
    let done = bridge.call(|| async {
        node::on_each(Group::ADMIN, |shard| async move {
            shard.storage().evict_cache_in_steps().await;
            Ok(())
        })
        .await
    });
    done.await.map(|_| Json(()))
}
