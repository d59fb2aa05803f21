//! Fuzzes `CompressionInfo.db`, `CRC.db` and compressed chunks.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sstable::fuzzing::compression(data));
