//! Fuzzes one request body of any kind.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::fuzzing::request_body(data));
