//! Reads for other replicas (`Storage::read_raw`).

mod digests;
mod heard;
mod merging;
mod raw;
mod writes;
