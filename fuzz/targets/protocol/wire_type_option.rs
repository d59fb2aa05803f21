//! Fuzzes types in result metadata.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::fuzzing::type_option(data));
