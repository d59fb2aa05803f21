//! The syntax tree: the contents of a CQL text, before its names are looked up in the schema.
//!
//! There is one file per area of the language. Every node is plain data, comparable and printable
//! (`crate::print` turns each back into text that parses to the same tree). Invariant: a tree that came from
//! the parser holds only what the grammar allows, so `query` may rely on the shapes described at each node;
//! it must still check everything that needs a schema. Used by `query` (prepare) and by every tool that
//! rewrites statements.

mod auth;
mod ddl;
mod modify;
mod names;
mod relation;
mod select;
mod statement;
mod term;
mod types;

pub use auth::*;
pub use ddl::*;
pub use modify::*;
pub use names::*;
pub use relation::*;
pub use select::*;
pub use statement::*;
pub use term::*;
pub use types::*;
