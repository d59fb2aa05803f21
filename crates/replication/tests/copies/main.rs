//! Reads and writes over several replicas, each with a real storage, in simulation.
//!
//! One shard plays all nodes: the replica of node `n` is the table with the number `n`. Requests and answers
//! of nodes but the first go through their bytes (`nodes`).

mod answers;
mod batches;
mod hints;
mod levels;
mod moving;
mod nodes;
mod pages;
mod refused;
mod repair;
mod speculation;

#[path = "../../../storage/tests/reads/heard.rs"]
#[allow(dead_code, reason = "this test uses its part")]
mod heard;
#[path = "../../../storage/tests/reads/writes.rs"]
#[allow(dead_code, reason = "this test uses its part")]
mod writes;
