//! The text of statements: lexer, AST, parser, and printing back to text.
//!
//! CQL 3.4.7 as in Cassandra 5.0, plus ScyllaDB's documented extensions. This crate has no schema and does no
//! I/O: names are not resolved, and a value is its text. Invariant: no text makes this crate panic or use
//! more than linear memory and time. Used by `query` and by tools that read or write statements.

pub mod ast;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod keyword;
mod lexer;
mod parser;
mod print;
pub mod reserved;
pub mod split;

pub use error::{Position, SyntaxError};
pub use keyword::spellings;
pub use lexer::TOKENS_MAX;
pub use parser::{
    BIND_MARKERS_MAX, CHAIN_LENGTH_MAX, NESTING_DEPTH_MAX, SameNames, parse_statement, parse_statement_as,
    parse_term, parse_type,
};
