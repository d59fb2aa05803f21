//! `system_schema` and `system_virtual_schema`: the schema as rows, with Cassandra's names.
//!
//! ScyllaDB's drivers also read `scylla_keyspaces` (which keyspaces have tablets) and `scylla_tables` (which
//! tables have a partitioner of their own). `scylla_aggregates` has the aggregates whose states can be
//! merged.

use model::schema::{CompactShape, Keyspace};
use model::{Column, ColumnKind, Table};
use statement::ddl::options::caching_map;
use statement::terms::constant;

use super::rows::Rows;

/// A part of a keyspace's rows in a schema table, made in one go; the pieces are in clustering order.
#[derive(Clone, Copy)]
pub(super) enum Piece<'a> {
    /// The keyspace, for its own row, its types, functions or aggregates.
    Keyspace(&'a Keyspace),
    /// One of its tables.
    Table(&'a Table),
}

/// The pieces of `keyspace` in `table`, in clustering order.
pub(super) fn pieces<'a>(table: &str, keyspace: &'a Keyspace) -> Vec<Piece<'a>> {
    match table {
        "tables" | "columns" | "dropped_columns" | "scylla_tables" => {
            keyspace.tables.values().map(|table| Piece::Table(table)).collect()
        }
        _ => vec![Piece::Keyspace(keyspace)],
    }
}

/// Adds the rows of a piece to a table of `system_schema`.
pub(super) fn fill(rows: &mut Rows<'_>, table: &str, piece: Piece<'_>) {
    match (table, piece) {
        ("keyspaces", Piece::Keyspace(keyspace)) => keyspaces(rows, keyspace),
        ("types", Piece::Keyspace(keyspace)) => types(rows, keyspace),
        ("functions", Piece::Keyspace(keyspace)) => functions(rows, keyspace),
        ("aggregates", Piece::Keyspace(keyspace)) => aggregates(rows, keyspace),
        ("tables", Piece::Table(of)) => tables(rows, of),
        ("columns", Piece::Table(of)) => columns(rows, of),
        ("dropped_columns", Piece::Table(of)) => dropped_columns(rows, of),
        ("scylla_aggregates", Piece::Keyspace(keyspace)) => scylla_aggregates(rows, keyspace),
        ("scylla_keyspaces", Piece::Keyspace(keyspace)) => scylla_keyspaces(rows, keyspace),
        ("scylla_tables", Piece::Table(of)) => scylla_tables(rows, of),
        // Indexes, views, triggers and masks are not supported, so their tables are empty.
        _ => {}
    }
}

/// Adds the rows of a piece to a table of `system_virtual_schema`.
pub(super) fn fill_virtual(rows: &mut Rows<'_>, table: &str, piece: Piece<'_>) {
    match (table, piece) {
        ("keyspaces", Piece::Keyspace(keyspace)) => rows.row(|row| row.text("keyspace_name", &keyspace.name)),
        ("tables", Piece::Table(of)) => rows.row(|row| {
            row.text("keyspace_name", of.keyspace());
            row.text("table_name", of.name());
            row.text("comment", &of.options().comment);
        }),
        ("columns", Piece::Table(of)) => columns(rows, of),
        _ => {}
    }
}

fn keyspaces(rows: &mut Rows<'_>, keyspace: &Keyspace) {
    rows.row(|row| {
        row.text("keyspace_name", &keyspace.name);
        row.boolean("durable_writes", keyspace.options.durable_writes);
        let replication = keyspace.options.replication.iter();
        row.map("replication", replication.map(|(name, value)| (name.as_str(), value.as_bytes())));
    });
}

/// Zero tablets means as many as the shards need. Without `initial_tablets`, because tablets are off, drivers
/// route by the ring.
fn scylla_keyspaces(rows: &mut Rows<'_>, keyspace: &Keyspace) {
    let tablets = keyspace.options.tablets.as_ref();
    let is_off = tablets.is_some_and(|tablets| tablets.enabled == Some(false));
    let initial = tablets.and_then(|tablets| tablets.initial).unwrap_or(0);
    rows.row(|row| {
        row.text("keyspace_name", &keyspace.name);
        row.text("consistency", "eventual");
        if !is_off {
            row.int("initial_tablets", i32::try_from(initial).unwrap_or(i32::MAX));
        }
    });
}

/// No table has a partitioner of its own.
fn scylla_tables(rows: &mut Rows<'_>, table: &Table) {
    rows.row(|row| {
        row.text("keyspace_name", table.keyspace());
        row.text("table_name", table.name());
        row.boolean("in_memory", false);
    });
}

fn tables(rows: &mut Rows<'_>, table: &Table) {
    let options = table.options();
    let int = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    rows.row(|row| {
        row.text("keyspace_name", table.keyspace());
        row.text("table_name", table.name());
        row.text("additional_write_policy", &options.additional_write_policy);
        row.double("bloom_filter_fp_chance", options.bloom_filter_fp_chance);
        row.map("caching", caching_map(&options.caching).map(|(name, value)| (name, value.as_bytes())));
        row.text("comment", &options.comment);
        row.map(
            "compaction",
            options.compaction.iter().map(|(name, value)| (name.as_str(), value.as_bytes())),
        );
        row.map(
            "compression",
            options.compression.iter().map(|(name, value)| (name.as_str(), value.as_bytes())),
        );
        row.double("crc_check_chance", options.crc_check_chance);
        // Obsolete, but drivers read it.
        row.double("dclocal_read_repair_chance", 0.0);
        row.int("default_time_to_live", int(options.default_time_to_live));
        row.map(
            "extensions",
            options.extensions.iter().map(|(name, value)| (name.as_str(), value.as_slice())),
        );
        row.texts("flags", flags(table));
        row.int("gc_grace_seconds", int(options.gc_grace_seconds));
        row.uuid("id", table.id().0);
        row.int("max_index_interval", int(options.max_index_interval));
        row.int("memtable_flush_period_in_ms", int(options.memtable_flush_period_in_ms));
        row.int("min_index_interval", int(options.min_index_interval));
        row.text("read_repair", &options.read_repair);
        row.double("read_repair_chance", 0.0);
        row.text("speculative_retry", &options.speculative_retry);
        // As in Cassandra: these columns are written only if they differ from the default, and `cdc` only on
        // a node that captures changes.
        if !options.allow_auto_snapshot {
            row.boolean("allow_auto_snapshot", false);
        }
        if !options.incremental_backups {
            row.boolean("incremental_backups", false);
        }
        if options.memtable != "default" {
            row.text("memtable", &options.memtable);
        }
    });
}

/// The flags of a table, sorted. CQL tables, and dense ones with several clustering columns, are compound.
fn flags(table: &Table) -> impl Iterator<Item = &'static str> {
    let (dense, compound) = match table.compact() {
        None => (false, true),
        Some(CompactShape::Static) => (false, false),
        Some(CompactShape::Dense) => (true, table.clustering().len() > 1),
    };
    let flags = [(compound, "compound"), (table.is_counter(), "counter"), (dense, "dense")];
    flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag)
}

fn columns(rows: &mut Rows<'_>, table: &Table) {
    for column in table.columns() {
        rows.row(|row| {
            row.text("keyspace_name", table.keyspace());
            row.text("table_name", table.name());
            row.text("column_name", &column.name);
            row.text("clustering_order", clustering_order(column));
            row.blob("column_name_bytes", column.name.as_bytes());
            row.text("kind", kind(column.kind));
            row.int("position", position(column));
            row.text("type", &column.ty.to_string());
        });
    }
}

fn dropped_columns(rows: &mut Rows<'_>, table: &Table) {
    for (name, dropped) in &table.definition().dropped {
        rows.row(|row| {
            row.text("keyspace_name", table.keyspace());
            row.text("table_name", table.name());
            row.text("column_name", name);
            row.timestamp("dropped_time", dropped.dropped_at_us / 1000);
            row.text("kind", kind(dropped.column.kind));
            row.text("type", &dropped.column.ty.to_string());
        });
    }
}

fn types(rows: &mut Rows<'_>, keyspace: &Keyspace) {
    for definition in keyspace.types.values() {
        let types: Vec<String> = definition.fields.iter().map(|(_, ty)| ty.to_string()).collect();
        rows.row(|row| {
            row.text("keyspace_name", &keyspace.name);
            row.text("type_name", &definition.name);
            row.texts("field_names", definition.fields.iter().map(|(name, _)| name.as_str()));
            row.texts("field_types", types.iter().map(String::as_str));
        });
    }
}

fn functions(rows: &mut Rows<'_>, keyspace: &Keyspace) {
    for function in &keyspace.functions {
        let types: Vec<String> = function.argument_types().map(ToString::to_string).collect();
        rows.row(|row| {
            row.text("keyspace_name", &keyspace.name);
            row.text("function_name", &function.name);
            row.texts("argument_types", types.iter().map(String::as_str));
            row.texts("argument_names", function.arguments.iter().map(|(name, _)| name.as_str()));
            row.text("body", &function.body);
            row.boolean("called_on_null_input", function.called_on_null_input);
            row.text("language", &function.language);
            row.text("return_type", &function.returns.to_string());
        });
    }
}

fn aggregates(rows: &mut Rows<'_>, keyspace: &Keyspace) {
    for aggregate in &keyspace.aggregates {
        let types: Vec<String> = aggregate.arguments.iter().map(ToString::to_string).collect();
        rows.row(|row| {
            row.text("keyspace_name", &keyspace.name);
            row.text("aggregate_name", &aggregate.name);
            row.texts("argument_types", types.iter().map(String::as_str));
            if let Some(last) = &aggregate.final_function {
                row.text("final_func", last);
            }
            if let Some(state) = &aggregate.initial_state {
                row.text("initcond", &constant::literal_text(&aggregate.state_type, Some(state)));
            }
            row.text("return_type", &aggregate.returns.to_string());
            row.text("state_func", &aggregate.state_function);
            row.text("state_type", &aggregate.state_type.to_string());
        });
    }
}

/// Aggregates with REDUCEFUNC, for which Cassandra's table of aggregates has no column.
fn scylla_aggregates(rows: &mut Rows<'_>, keyspace: &Keyspace) {
    for aggregate in &keyspace.aggregates {
        let Some(reduce) = &aggregate.reduce_function else { continue };
        let types: Vec<String> = aggregate.arguments.iter().map(ToString::to_string).collect();
        rows.row(|row| {
            row.text("keyspace_name", &keyspace.name);
            row.text("aggregate_name", &aggregate.name);
            row.texts("argument_types", types.iter().map(String::as_str));
            row.text("reduce_func", reduce);
            row.text("state_type", &aggregate.state_type.to_string());
        });
    }
}

fn kind(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::PartitionKey => "partition_key",
        ColumnKind::Clustering => "clustering",
        ColumnKind::Static => "static",
        ColumnKind::Regular => "regular",
    }
}

fn clustering_order(column: &Column) -> &'static str {
    match column.kind {
        ColumnKind::Clustering if column.reversed => "desc",
        ColumnKind::Clustering => "asc",
        _ => "none",
    }
}

fn position(column: &Column) -> i32 {
    match column.kind {
        ColumnKind::PartitionKey | ColumnKind::Clustering => i32::from(column.position),
        ColumnKind::Static | ColumnKind::Regular => -1,
    }
}
