//! Reads for other replicas (`Storage::read_raw`).

mod digests;
pub(crate) mod heard;
mod merging;
mod raw;
mod writes;
