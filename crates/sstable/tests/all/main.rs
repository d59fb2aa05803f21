//! Table files written, read, damaged and cut off, by topic. One binary, because each binary links the whole
//! crate.

mod any_bytes;
mod cold_read;
mod crash;
mod files;
mod golden;
mod index_pages;
mod lost;
mod resident;
mod round_trip;
#[path = "../support/mod.rs"]
mod support;
mod verify;
