//! Paging states, which clients send back as they got them, or not.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| query::fuzzing::paging_state(data));
