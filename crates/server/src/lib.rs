//! The process: configuration, boot phases, native listeners.
//!
//! `main` reads the command line and calls in here; everything that answers clients runs on shards.

pub mod config;
