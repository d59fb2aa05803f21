//! A storage node under a seed: random work, a disk that lies, crashes, and a model that knows what must be
//! there.
//!
//! `table` is the shape of the tables, `history` the model: every operation that was begun, and what a read
//! may see after it. `workload` does the operations on the node, `run` drives the world and crashes it,
//! `removal` takes names off its disk in between. One seed is one run, byte for byte. `statements` does the
//! same with whole statements of many clients at once, `cluster` with several nodes and what befalls them.
//! `answer` has what statements answer, `register` says whether answers of compare-and-set have an order.
//! Never shipped.

pub mod answer;
pub mod cluster;
pub mod history;
mod register;
pub mod removal;
pub mod run;
pub mod statements;
pub mod table;
pub mod workload;
