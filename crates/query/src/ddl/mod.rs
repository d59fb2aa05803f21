//! Statements that change the schema: CREATE, ALTER and DROP of keyspaces, tables and types.
//!
//! Planning (`plan` and the files it names) is pure; carrying out is `agreement`'s.

mod drop;
mod keyspace;
pub(crate) mod mistake;
mod names;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod properties;
mod replication;
mod table_alter;
pub(crate) mod table_create;
pub(crate) mod types;
mod user_type;

pub(crate) use names::{REPLICATED_SYSTEM, is_system};

#[cfg(test)]
pub(crate) mod tests;
