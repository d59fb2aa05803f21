//! Fuzzes the files, commands and messages of group 0.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cluster::fuzzing::group0(data));
