//! Statements: prepare, execute, page, describe; schema statements and system tables.
//!
//! This crate opens no sockets and no files: statements come as text or ids with borrowed values, and answers
//! are appended to the caller's buffer. Data goes through `replication`, schema changes through
//! `cluster`.

pub mod agreement;
pub mod ambient;
pub mod answer_room;
pub mod client;
mod counts;
pub mod ddl;
pub mod describe;
pub mod engine;
pub mod error;
pub mod execute;
pub mod functions;
pub mod fuzzing;
pub mod guardrails;
mod load;
pub mod node;
pub mod paging;
pub mod partition_key_text;
pub mod prepare;
pub mod prepared_cache;
pub mod restrictions;
pub mod results;
pub mod row_expiry;
mod running;
mod schema_events;
pub mod system;
pub mod terms;
pub mod tracing;

pub use client::{ClientState, Response};
pub use engine::{AtOnce, BoundValues, ClientLister, Engine, EngineConfig, Left, OneRow, VirtualTables};
pub use error::QueryError;
pub use execute::one_row::Writing;
pub use functions::user::CallTimes;
pub use load::Timed;
pub use running::RunningRequest;
pub use schema_events::{Change, SchemaEvent, Target};
pub use terms::MarkerOptions;
