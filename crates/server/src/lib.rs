//! The process: configuration, boot phases, native listeners, administration.
//!
//! `main` reads the command line (`cli`) and calls `boot`. `native` answers CQL clients, on shards; `admin`
//! answers operators and tools, on a thread of its own. `generated` prints files for packages.

pub mod admin;
pub mod boot;
pub mod cli;
pub mod config;
pub mod generated;
pub mod inproc;
pub mod native;
pub mod perf;
pub mod version;
