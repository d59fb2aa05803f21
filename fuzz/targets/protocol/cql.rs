//! Fuzzes the CQL lexer and parser; what parses has to print to text that parses to the same tree.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cql::fuzzing::fuzz_parse(data));
