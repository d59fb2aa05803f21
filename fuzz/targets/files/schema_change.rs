//! Fuzzes model::schema::SchemaChange from the schema log.

pub(crate) fn run(data: &[u8]) {
    let _ = model::schema::SchemaChange::decode(data);
}
