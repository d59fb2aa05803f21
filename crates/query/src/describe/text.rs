//! Schema elements as the CQL that creates them, byte for byte as by Cassandra 5: tools compare these texts.
//!
//! If Cassandra's order is that of a hash table (factors by data center, dropped columns), it is by name
//! here.

use std::fmt::Write;

use model::schema::{
    AggregateDefinition, CompactShape, DroppedColumn, FunctionDefinition, Keyspace, TypeDefinition,
};
use model::{Column, ColumnKind, CqlType, Table};
use statement::ddl::options::{caching_map, extension};
use statement::ddl::plan::{qualified, quote, table_text};
use statement::ddl::row_expiry;
use statement::functions::number_text;
use statement::terms::constant;

use crate::system::is_virtual;

const LOCATOR: &str = "org.apache.cassandra.locator.";

/// CREATE KEYSPACE of a keyspace.
pub(super) fn keyspace(keyspace: &Keyspace) -> String {
    let name = quote(&keyspace.name);
    if is_virtual(&keyspace.name) {
        return format!(
            "/*\nWarning: Keyspace {name} is a virtual keyspace and cannot be recreated with CQL.\nStructure, for \
             reference:\nVIRTUAL KEYSPACE {name};\n*/"
        );
    }
    let replication = &keyspace.options.replication;
    let class = replication.get("class").map_or("", String::as_str);
    let mut text = format!("CREATE KEYSPACE {name} WITH replication = {{'class': ");
    single_quoted(&mut text, class.strip_prefix(LOCATOR).unwrap_or(class));
    for (name, value) in replication.iter().filter(|(name, _)| *name != "class") {
        text.push_str(", ");
        single_quoted(&mut text, name);
        text.push_str(": ");
        single_quoted(&mut text, value);
    }
    // Two spaces: so Cassandra writes it.
    put(&mut text, format_args!("}}  AND durable_writes = {}", keyspace.options.durable_writes));
    if let Some(tablets) = &keyspace.options.tablets {
        let enabled = tablets.enabled.map(|enabled| format!("'enabled': {enabled}"));
        let initial = tablets.initial.map(|initial| format!("'initial': {initial}"));
        let entries: Vec<String> = enabled.into_iter().chain(initial).collect();
        put(&mut text, format_args!(" AND tablets = {{{}}}", entries.join(", ")));
    }
    text.push(';');
    text
}

/// CREATE TYPE of a user type.
pub(super) fn user_type(keyspace: &str, definition: &TypeDefinition) -> String {
    let mut text = format!("CREATE TYPE {} (\n", qualified(keyspace, &definition.name));
    for (index, (field, ty)) in definition.fields.iter().enumerate() {
        let separator = if index == 0 { "" } else { ",\n" };
        put(&mut text, format_args!("{separator}    {} {ty}", quote(field)));
    }
    text.push_str("\n);");
    text
}

/// CREATE TABLE of a table; with internals also its id and the statements that drop its dropped columns
/// again.
pub(super) fn table(table: &Table, internals: bool) -> String {
    let mut text = String::with_capacity(2048);
    let name = table_text(table);
    let is_virtual = is_virtual(table.keyspace());
    if is_virtual {
        put(
            &mut text,
            format_args!(
                "/*\nWarning: Table {name} is a virtual table and cannot be recreated with CQL.\nStructure, for \
                 reference:\n"
            ),
        );
    }
    if table.compact().is_some() {
        put(
            &mut text,
            format_args!(
                "/*\nWarning: Table {name} omitted because it has constructs not compatible with CQL (was created via \
                 legacy API).\nApproximate structure, for reference:\n(this should not be used to reproduce this \
                 schema)\n\n"
            ),
        );
    }
    put(&mut text, format_args!("{} TABLE {name} (\n", if is_virtual { "VIRTUAL" } else { "CREATE" }));
    columns(&mut text, table, internals);
    text.push_str(") WITH ");
    if table.compact().is_some() {
        text.push_str("COMPACT STORAGE\n    AND ");
    }
    if internals {
        put(&mut text, format_args!("ID = {}\n    AND ", table.id()));
    }
    if !table.clustering().is_empty() {
        text.push_str("CLUSTERING ORDER BY (");
        for (index, column) in table.clustering().iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let direction = if column.reversed { "DESC" } else { "ASC" };
            put(&mut text, format_args!("{separator}{} {direction}", quote(&column.name)));
        }
        text.push_str(")\n    AND ");
    }
    if is_virtual {
        text.push_str("comment = ");
        single_quoted(&mut text, &table.options().comment);
        text.push_str(";\n*/");
    } else {
        options(&mut text, table);
    }
    if internals {
        drops(&mut text, table);
    }
    if table.compact().is_some() {
        text.push_str("\n*/");
    }
    text
}

fn columns(text: &mut String, table: &Table, internals: bool) {
    let dropped: Vec<(&str, &DroppedColumn)> =
        table.definition().dropped.iter().map(|(name, column)| (name.as_str(), column)).collect();
    let key_in_line = table.partition_key().len() == 1 && table.clustering().is_empty();
    let shown: Vec<&Column> = table.columns().filter(|column| !table.hides(column)).collect();
    let count = shown.len();
    let is_static_compact = table.compact() == Some(CompactShape::Static);
    for (index, column) in shown.into_iter().enumerate() {
        // A column that was added again under a dropped name is added behind the drop, as it happened.
        if internals && table.definition().dropped.contains_key(&column.name) {
            continue;
        }
        if is_static_compact {
            put(text, format_args!("    {} {}", quote(&column.name), column.ty));
        } else {
            column_definition(text, column, &column.name, "    ");
        }
        if row_expiry::column(table.options()) == Some(column.name.as_str()) {
            text.push_str(" TTL");
        }
        if key_in_line && column.kind == ColumnKind::PartitionKey {
            text.push_str(" PRIMARY KEY");
        }
        if !key_in_line || internals && !dropped.is_empty() || index + 1 < count {
            text.push(',');
        }
        text.push('\n');
    }
    if internals {
        for (index, (name, dropped_column)) in dropped.iter().enumerate() {
            column_definition(text, &dropped_column.column, name, "    ");
            if !key_in_line || index + 1 < dropped.len() {
                text.push(',');
            }
            text.push('\n');
        }
    }
    if !key_in_line {
        text.push_str("    PRIMARY KEY (");
        let names = |columns: &[Column]| {
            columns.iter().map(|column| quote(&column.name).into_owned()).collect::<Vec<_>>().join(", ")
        };
        let partition = names(table.partition_key());
        if table.partition_key().len() > 1 {
            put(text, format_args!("({partition})"));
        } else {
            text.push_str(&partition);
        }
        if !table.clustering().is_empty() && !is_static_compact {
            put(text, format_args!(", {}", names(table.clustering())));
        }
        text.push_str(")\n");
    }
}

fn column_definition(text: &mut String, column: &Column, name: &str, indent: &str) {
    let is_static = if column.kind == ColumnKind::Static { " static" } else { "" };
    put(text, format_args!("{indent}{} {}{is_static}", quote(name), column.ty));
}

fn options(text: &mut String, table: &Table) {
    let options = table.options();
    let separator = "\n    AND ";
    text.push_str("additional_write_policy = ");
    single_quoted(text, &options.additional_write_policy);
    put(text, format_args!("{separator}allow_auto_snapshot = {}", options.allow_auto_snapshot));
    put(
        text,
        format_args!(
            "{separator}bloom_filter_fp_chance = {}",
            number_text::double(options.bloom_filter_fp_chance)
        ),
    );
    put(text, format_args!("{separator}caching = "));
    map(text, caching_map(&options.caching));
    put(text, format_args!("{separator}cdc = {}{separator}comment = ", options.cdc));
    single_quoted(text, &options.comment);
    put(text, format_args!("{separator}compaction = "));
    map(text, options.compaction.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    put(text, format_args!("{separator}compression = "));
    map(text, options.compression.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    put(text, format_args!("{separator}memtable = "));
    single_quoted(text, &options.memtable);
    put(
        text,
        format_args!("{separator}crc_check_chance = {}", number_text::double(options.crc_check_chance)),
    );
    put(text, format_args!("{separator}default_time_to_live = {}", options.default_time_to_live));
    put(text, format_args!("{separator}extensions = {{"));
    let bare = options
        .extensions
        .iter()
        .filter(|(name, _)| !extension::is_option(name) && *name != row_expiry::EXTENSION);
    for (index, (name, value)) in bare.enumerate() {
        text.push_str(if index == 0 { "" } else { ", " });
        single_quoted(text, name);
        text.push_str(": 0x");
        model::hex::append(value, text);
    }
    put(text, format_args!("}}{separator}gc_grace_seconds = {}", options.gc_grace_seconds));
    put(text, format_args!("{separator}incremental_backups = {}", options.incremental_backups));
    put(text, format_args!("{separator}max_index_interval = {}", options.max_index_interval));
    put(
        text,
        format_args!("{separator}memtable_flush_period_in_ms = {}", options.memtable_flush_period_in_ms),
    );
    put(text, format_args!("{separator}min_index_interval = {}", options.min_index_interval));
    put(text, format_args!("{separator}read_repair = "));
    single_quoted(text, &options.read_repair);
    put(text, format_args!("{separator}speculative_retry = "));
    single_quoted(text, &options.speculative_retry);
    for (name, value) in extension::described(options) {
        put(text, format_args!("{separator}{name} = {value}"));
    }
    text.push(';');
}

fn drops(text: &mut String, table: &Table) {
    let name = table_text(table);
    for (dropped, column) in &table.definition().dropped {
        put(
            text,
            format_args!(
                "\nALTER TABLE {name} DROP {} USING TIMESTAMP {};",
                quote(dropped),
                column.dropped_at_us
            ),
        );
        if let Some(column) = table.column(dropped) {
            put(text, format_args!("\nALTER TABLE {name} ADD "));
            column_definition(text, column, &column.name, "");
            text.push(';');
        }
    }
}

fn map<'a>(text: &mut String, entries: impl IntoIterator<Item = (&'a str, &'a str)>) {
    text.push('{');
    for (index, (name, value)) in entries.into_iter().enumerate() {
        text.push_str(if index == 0 { "" } else { ", " });
        single_quoted(text, name);
        text.push_str(": ");
        single_quoted(text, value);
    }
    text.push('}');
}

fn single_quoted(text: &mut String, value: &str) {
    text.push('\'');
    text.push_str(&value.replace('\'', "''"));
    text.push('\'');
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("writing to a String does not fail");
}

/// A type as the signature of a function shows it.
pub(super) fn signature_type(ty: &CqlType) -> String {
    // Functions ignore frozenness, and CREATE does not accept the form that shows it for a tuple or vector.
    match ty {
        CqlType::Tuple(components) => {
            format!("tuple<{}>", components.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// The statement that makes a function.
pub(super) fn function(function: &FunctionDefinition) -> String {
    let arguments: Vec<String> = function
        .arguments
        .iter()
        .map(|(name, ty)| format!("{} {}", quote(name), signature_type(ty)))
        .collect();
    format!(
        "CREATE FUNCTION {}({})\n    {} ON NULL INPUT\n    RETURNS {}\n    LANGUAGE {}\n    AS $${}$$;",
        qualified(&function.keyspace, &function.name),
        arguments.join(", "),
        if function.called_on_null_input { "CALLED" } else { "RETURNS NULL" },
        signature_type(&function.returns),
        function.language,
        function.body
    )
}

/// The statement that makes an aggregate.
pub(super) fn aggregate(aggregate: &AggregateDefinition) -> String {
    let types: Vec<String> = aggregate.arguments.iter().map(signature_type).collect();
    let mut text = format!(
        "CREATE AGGREGATE {}({})\n    SFUNC {}\n    STYPE {}",
        qualified(&aggregate.keyspace, &aggregate.name),
        types.join(", "),
        quote(&aggregate.state_function),
        signature_type(&aggregate.state_type)
    );
    if let Some(reduce) = &aggregate.reduce_function {
        text.push_str(&format!("\n    REDUCEFUNC {}", quote(reduce)));
    }
    if let Some(last) = &aggregate.final_function {
        text.push_str(&format!("\n    FINALFUNC {}", quote(last)));
    }
    if let Some(state) = &aggregate.initial_state {
        let literal = constant::literal_text(&aggregate.state_type, Some(state));
        text.push_str(&format!("\n    INITCOND {literal}"));
    }
    text + ";"
}
