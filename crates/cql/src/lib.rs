//! What the client said: lexer, AST, parser, and printing back to text.
//!
//! CQL 3.4.7 as Cassandra 5.0 speaks it, plus ScyllaDB's documented extensions. Knows no schema, does no I/O.

pub mod ast;
pub mod reserved;
