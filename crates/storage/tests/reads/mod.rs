//! Reads for other replicas (`Storage::read_raw`).

mod heard;
mod merging;
mod raw;
mod writes;
