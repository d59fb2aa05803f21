//! Fuzzes model::schema::SchemaChange from the schema log.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = model::schema::SchemaChange::decode(data);
});
