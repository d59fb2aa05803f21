//! The console: a page at `/ui` that shows a person what the node does, and the requests that the page makes.
//!
//! The files of the page are part of the binary (`assets`); nothing is loaded from elsewhere. `data` answers
//! one poll of the page with one request, `cql` runs a statement for it. All else that the page shows comes
//! from the REST API or from system tables, read by statements.

mod assets;
mod cql;
mod data;

use axum::Router;

use super::bridge::Bridge;
use super::rest;

/// The paths of the console.
pub(super) fn router(bridge: Bridge) -> Router {
    Router::new()
        .merge(assets::routes())
        .merge(data::routes())
        .merge(cql::routes())
        .method_not_allowed_fallback(rest::wrong_method)
        .with_state(bridge)
}
