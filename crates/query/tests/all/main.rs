//! Statements against a node of one process, by topic. One binary, because each binary links the whole
//! engine.

mod aggregates;
mod alter;
mod batches;
mod compactions;
mod concurrent_schema;
mod conditional;
mod counters;
mod deep_literals;
mod differences;
mod dml;
mod drivers_traces;
mod fragments;
mod full_shard;
mod guardrails;
mod key_lengths;
mod large_data;
mod large_rows;
mod long_numbers;
mod paging;
mod paging_laws;
mod prepared;
mod sampled;
mod schema;
mod scylla_options;
#[path = "../support/mod.rs"]
mod support;
mod tombstones;
mod unavailable;
mod user_function_slices;
mod user_functions;
mod views;
mod worst_statements;
