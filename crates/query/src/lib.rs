//! Statements are run: executed, paged, described; schema changes are agreed upon, system tables filled.
//!
//! The meaning of a statement is prepared in crate `statement`. This crate opens no sockets and no files:
//! statements come as text or ids with borrowed values, and answers are appended to the caller's buffer. Data
//! goes through `replication`, schema changes through `cluster`.

pub mod agreement;
pub mod answer_room;
pub mod client;
mod counts;
pub mod describe;
pub mod engine;
pub mod error;
pub mod execute;
pub mod fuzzing;
mod load;
pub mod node;
pub mod paging;
pub mod partition_key_text;
pub mod prepared;
pub mod prepared_cache;
pub mod row_expiry;
mod running;
mod statements;
pub mod system;
pub mod tracing;
pub mod watch;

pub use client::{ClientState, Response};
pub use engine::{AtOnce, BoundValues, ClientLister, Engine, EngineConfig, Left, OneRow, VirtualTables};
pub use error::QueryError;
pub use execute::one_row::Writing;
pub use load::Timed;
pub use replication::{Endpoint, FailureReason};
pub use running::RunningRequest;
pub use statement::ddl::is_system;
pub use statement::functions::user::CallTimes;
pub use statement::guardrails;
pub use statement::schema_events::{Change, SchemaEvent, Target};
pub use statement::terms::MarkerOptions;
pub use statement::terms::constant::literal_text;
