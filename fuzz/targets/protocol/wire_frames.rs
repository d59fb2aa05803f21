//! Fuzzes native frames of versions 3 and 4 as they come from a socket, with the requests in them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::fuzzing::frames(data));
