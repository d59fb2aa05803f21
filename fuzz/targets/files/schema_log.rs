//! Fuzzes the log of schema changes, also behind correct checksums.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| storage::fuzzing::schema_log(data));
