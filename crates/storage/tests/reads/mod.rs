//! Reads for other replicas (`Storage::read_raw`).

mod heard;
mod raw;
mod writes;
