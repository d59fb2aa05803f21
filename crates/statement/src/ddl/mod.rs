//! Statements that change the schema: CREATE, ALTER and DROP of keyspaces, tables and types.
//!
//! Planning (`plan` and the files it names) is pure; `query::agreement` carries the change out.

mod aggregate;
mod compact;
mod drop;
mod function;
mod hash_order;
mod keyspace;
pub mod mistake;
mod names;
pub mod options;
pub mod plan;
pub(crate) mod properties;
mod replication;
pub mod roles;
pub mod row_expiry;
mod table_alter;
pub(crate) mod table_create;
mod table_like;
mod trigger;
pub mod types;
mod user_type;

pub use names::is_system;

#[cfg(test)]
mod tests;
