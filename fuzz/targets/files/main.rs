//! Decoders of what is on disk: table files, the commit log, hints, the manifest, group 0 and logs of earlier versions.
#![no_main]

mod commitlog;
mod group0;
mod hints;
mod manifest;
mod mutation;
mod schema_change;
mod schema_log;
mod sstable_ceto;
mod sstable_compression;
mod sstable_data;
mod sstable_filter;
mod sstable_index;
mod sstable_statistics;
mod sstable_summary;

#[path = "../../../crates/sstable/tests/support/mod.rs"]
mod support;

fuzz::targets!(
    commitlog,
    group0,
    hints,
    manifest,
    mutation,
    schema_change,
    schema_log,
    sstable_ceto,
    sstable_compression,
    sstable_data,
    sstable_filter,
    sstable_index,
    sstable_statistics,
    sstable_summary
);
