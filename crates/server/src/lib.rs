//! The process: configuration, boot phases, native listeners.
//!
//! `main` reads the command line (`cli`) and calls `boot`; everything that answers clients is in `native`, on shards.

pub mod boot;
pub mod cli;
pub mod config;
pub mod inproc;
pub mod native;
pub mod perf;
