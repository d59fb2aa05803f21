//! What data is: CQL types and values, keys, tokens, schema, cells, rows, mutations and the one reconcile.

pub mod collection;
pub mod compare;
pub mod marshal;
pub mod number;
pub mod timeuuid;
pub mod token;
pub mod type_parser;
pub mod types;
pub mod validate;
pub mod vint;
