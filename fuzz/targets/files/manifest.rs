//! Fuzzes the list of what must be there, also behind correct checksums.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| storage::fuzzing::manifest(data));
