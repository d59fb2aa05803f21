//! Reads for other replicas (`Storage::read_raw`), and pages of scans.

mod digests;
mod heard;
mod kept;
mod merging;
mod raw;
mod writes;
