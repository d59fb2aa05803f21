//! Every decoder of bytes that others made, as a function that takes any bytes.
//!
//! `fuzz/` builds them into a libFuzzer program; `tests/corpus.rs` runs them over what is kept in
//! `fuzz/corpus`.

mod literal;
mod marshal;
mod mutation;
mod sstable_data;
mod sstable_index;
mod statement_work;
mod value;
mod wire_segments;

#[path = "../../sstable/tests/support/mod.rs"]
mod support;

/// Takes any bytes, and panics only where the code under test is wrong.
pub type Target = fn(&[u8]);

/// All targets by name; each has a folder of that name in `fuzz/corpus`.
pub const TARGETS: &[(&str, Target)] = &[
    // On disk: the commit log, group 0, hints, what must be there, table files, logs of earlier versions.
    ("commitlog", storage::fuzzing::commitlog),
    ("group0", cluster::fuzzing::group0),
    ("hints", replication::fuzzing::hints),
    ("manifest", storage::fuzzing::manifest),
    ("mutation", mutation::run),
    ("schema_change", |data| drop(model::schema::SchemaChange::decode(data))),
    ("schema_log", storage::fuzzing::schema_log),
    ("sstable_ceto", sstable::fuzzing::extras),
    ("sstable_compression", sstable::fuzzing::compression),
    ("sstable_data", sstable_data::run),
    ("sstable_filter", sstable::fuzzing::filter),
    ("sstable_index", sstable_index::run),
    ("sstable_statistics", sstable::fuzzing::statistics),
    ("sstable_summary", sstable::fuzzing::summary),
    // From clients and other nodes: frames and bodies, CQL text, types and values.
    ("cql", cql::fuzzing::fuzz_parse),
    ("marshal", marshal::run),
    ("value", value::run),
    ("wire_compressed_body", wire::fuzzing::compressed_body),
    ("wire_frames", wire::fuzzing::frames),
    ("wire_node", wire::fuzzing::node_messages),
    ("wire_request_body", wire::fuzzing::request_body),
    ("wire_response_body", wire::fuzzing::response_body),
    ("wire_segments", wire_segments::run),
    ("wire_type_option", wire::fuzzing::type_option),
    // Statements before they are run.
    ("literal", literal::run),
    ("paging_state", query::fuzzing::paging_state),
    ("statement_work", statement_work::run),
];
