//! Fuzzes responses, as our own client reads them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::fuzzing::response_body(data));
