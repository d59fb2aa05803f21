//! Fuzzes segments of the commit log, also behind correct checksums.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| storage::fuzzing::commitlog(data));
