//! The data model: CQL types and values, keys, tokens, schema, cells, rows, mutations and the one
//! `reconcile`.
//!
//! Nothing here does I/O, waits, or reads a clock: functions that need the time take `now`. A row is one flat
//! run of bytes (`row`), the same in the commit log, in a memtable and on its way to a client, so that every
//! layer reads cells in place and merging two rows is one pass over two slices. Every other crate uses this
//! one.

pub mod clustering;
pub mod collection;
pub mod compare;
pub mod counter;
pub mod deletion;
pub mod hex;
pub mod marshal;
pub mod mutation;
pub mod number;
pub mod partition_key;
pub mod reconcile;
pub mod row;
pub mod schema;
pub mod tablet;
pub mod timeuuid;
pub mod token;
pub mod tombstones;
pub mod type_parser;
pub mod types;
pub mod unfiltered;
pub mod validate;
pub mod vint;

pub use clustering::{Clustering, Position};
pub use deletion::{DeletionTime, Liveness};
pub use reconcile::{Digest, PartitionContents, diff};
pub use row::{CellView, PlainRow, RowBuilder, RowView};
pub use schema::{Column, ColumnId, ColumnKind, Keyspace, Schema, Table, TableId};
pub use token::Token;
pub use types::CqlType;
pub use unfiltered::Unfiltered;
