//! The transport between nodes in simulation: whole networks of several nodes and shards in one thread, under
//! latency, resets, partitions and restarts, from one seed each.
#![allow(clippy::disallowed_types)] // a test outside of every shard

mod alive;
mod calls;
mod nodes;
mod provisional;
