//! Fuzzes `Ceto.db`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sstable::fuzzing::extras(data));
