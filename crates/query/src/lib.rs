//! What a statement means: prepare, execute, page, describe; schema statements and system tables.
//!
//! It opens no sockets and no files: statements reach it as text or ids with borrowed values, and it appends answers to
//! the caller's buffer. Data goes through `replication`, schema through the node's one schema log.

pub mod client;
mod ddl;
mod describe;
pub mod error;
mod schema_events;
pub mod system;

pub use client::{ClientState, Response};
pub use error::QueryError;
pub use schema_events::{Change, SchemaEvent, Target};
