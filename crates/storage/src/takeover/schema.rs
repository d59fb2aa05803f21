//! Converts rows of Cassandra's `system_schema` into changes that make the same keyspaces, types and tables.
//!
//! Unsupported items are left out and logged by name: views, secondary indexes, user-defined functions and
//! aggregates. A table or type that cannot be made at all is refused. Source: Cassandra 5.0 `SchemaKeyspace`.

use std::collections::BTreeMap;
use std::path::Path;

use model::CqlType;
use model::collection::{Elements, Entries};
use model::schema::{
    CachingOptions, Column, ColumnId, ColumnKind, CompactShape, DroppedColumn, KeyspaceOptions, SchemaChange,
    TableDefinition, TableId, TableOptions, TypeDefinition,
};
use model::tablet::TabletMap;
use model::type_parser::parse_type;
use model::types::UserType;

use super::rows::{Described, Row};
use super::{is_system, refused};
use crate::error::StorageError;

/// Types of one keyspace by name.
type Types = BTreeMap<String, TypeDefinition>;

impl Row {
    fn text(&self, name: &str) -> Option<String> {
        self.cells.get(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    fn boolean(&self, name: &str) -> Option<bool> {
        self.cells.get(name).and_then(|bytes| bytes.first()).map(|byte| *byte != 0)
    }

    fn int(&self, name: &str) -> Option<i32> {
        Some(i32::from_be_bytes(self.cells.get(name)?.as_slice().try_into().ok()?))
    }

    fn long(&self, name: &str) -> Option<i64> {
        Some(i64::from_be_bytes(self.cells.get(name)?.as_slice().try_into().ok()?))
    }

    fn double(&self, name: &str) -> Option<f64> {
        Some(f64::from_be_bytes(self.cells.get(name)?.as_slice().try_into().ok()?))
    }

    fn count(&self, name: &str) -> Option<u32> {
        self.int(name).and_then(|number| u32::try_from(number).ok())
    }

    /// Elements of a frozen list or set of texts.
    fn texts(&self, name: &str) -> Vec<String> {
        let elements = self.cells.get(name).and_then(|bytes| Elements::parse(bytes).ok());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        elements.into_iter().flatten().filter_map(|element| element.ok().map(text)).collect()
    }

    /// Entries of a frozen map from text.
    fn map(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        let entries = self.cells.get(name).and_then(|bytes| Entries::parse(bytes).ok());
        let owned =
            |(key, value): (&[u8], &[u8])| (String::from_utf8_lossy(key).into_owned(), value.to_vec());
        entries.into_iter().flatten().filter_map(|entry| entry.ok().map(owned)).collect()
    }

    fn text_map(&self, name: &str) -> Option<BTreeMap<String, String>> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let has = self.cells.contains_key(name);
        has.then(|| self.map(name).into_iter().map(|(key, value)| (key, text(value))).collect())
    }

    fn name(&self, at: usize) -> &str {
        self.names.get(at).map_or("", String::as_str)
    }
}

/// Changes that make the described schema, for a node of `shards` shards.
///
/// # Errors
/// [`StorageError::Import`] with the table or type that cannot be made; `data` is the folder it was found in.
pub(super) fn changes(
    described: &Described,
    shards: usize,
    data: &Path,
) -> Result<Vec<SchemaChange>, StorageError> {
    let mut changes = Vec::new();
    for keyspace in described["keyspaces"].iter().filter(|row| !is_system(&row.keyspace)) {
        let name = &keyspace.keyspace;
        let of =
            |table: &str| described[table].iter().filter(|row| row.keyspace == *name).collect::<Vec<_>>();
        changes.push(SchemaChange::CreateKeyspace {
            name: name.clone(),
            options: KeyspaceOptions {
                replication: keyspace.text_map("replication").unwrap_or_default(),
                durable_writes: keyspace.boolean("durable_writes").unwrap_or(true),
                tablets: None,
            },
        });
        let types = types_of(name, of("types"), data, &mut changes)?;
        let (columns, dropped) = (of("columns"), of("dropped_columns"));
        for row in of("tables") {
            let of_table = |rows: &[&Row]| -> Vec<Row> {
                rows.iter().filter(|column| column.name(0) == row.name(0)).map(|row| (*row).clone()).collect()
            };
            let definition =
                table(row, &of_table(&columns), &of_table(&dropped), &types, shards).map_err(|reason| {
                    refused(data, format!("table {name}.{} cannot be taken over: {reason}", row.name(0)))
                })?;
            changes.push(SchemaChange::CreateTable(Box::new(definition)));
        }
        for (what, table, at) in [
            ("a materialized view", "views", 0),
            ("an index", "indexes", 1),
            ("a function", "functions", 0),
            ("an aggregate", "aggregates", 0),
        ] {
            for row in of(table) {
                reactor::warn!("something in Cassandra's schema is not taken over";
                    what = what, keyspace = name, name = row.name(at), of = if at > 0 { row.name(0) } else { "" });
            }
        }
    }
    Ok(changes)
}

fn lookup<'t>(keyspace: &'t str, types: &'t Types) -> impl Fn(&str) -> Option<UserType> + 't {
    move |name| {
        let found = types.get(name)?;
        let (name, fields) = (found.name.clone(), found.fields.clone());
        Some(UserType { keyspace: keyspace.to_owned(), name, fields, frozen: false })
    }
}

/// Makes the types of a keyspace; types that others use come first.
fn types_of(
    keyspace: &str,
    mut left: Vec<&Row>,
    data: &Path,
    changes: &mut Vec<SchemaChange>,
) -> Result<Types, StorageError> {
    let mut types = Types::new();
    while !left.is_empty() {
        let (before, mut problem) = (left.len(), String::new());
        left.retain(|row| {
            let fields = row.texts("field_names").into_iter().zip(row.texts("field_types"));
            let fields: Result<Vec<_>, _> = fields
                .map(|(name, ty)| parse_type(&ty, &lookup(keyspace, &types)).map(|ty| (name, ty)))
                .collect();
            match fields {
                Ok(fields) => {
                    let definition = TypeDefinition { name: row.name(0).to_owned(), fields };
                    changes.push(SchemaChange::CreateType {
                        keyspace: keyspace.to_owned(),
                        definition: definition.clone(),
                    });
                    types.insert(definition.name.clone(), definition);
                    false
                }
                Err(error) => {
                    problem = format!("type {keyspace}.{} cannot be taken over: {error}", row.name(0));
                    true
                }
            }
        });
        if left.len() == before {
            return Err(refused(data, problem));
        }
    }
    Ok(types)
}

fn kind_of(text: &str) -> Option<ColumnKind> {
    Some(match text {
        "partition_key" => ColumnKind::PartitionKey,
        "clustering" => ColumnKind::Clustering,
        "static" => ColumnKind::Static,
        "regular" => ColumnKind::Regular,
        _ => return None,
    })
}

fn table(
    row: &Row,
    columns: &[Row],
    dropped: &[Row],
    types: &Types,
    shards: usize,
) -> Result<TableDefinition, String> {
    let id: [u8; 16] = row
        .cells
        .get("id")
        .and_then(|id| id.as_slice().try_into().ok())
        .ok_or_else(|| "it has no id".to_owned())?;
    let mut made = Vec::new();
    for column in columns {
        made.push(self::column(&row.keyspace, column, types, made.len())?);
    }
    if !made.iter().any(|column| column.kind == ColumnKind::PartitionKey) {
        return Err("it has no partition key".to_owned());
    }
    let mut gone = BTreeMap::new();
    for column in dropped {
        let id = made.len() + gone.len();
        let dropped_at_us = column.long("dropped_time").unwrap_or(i64::MAX / 1000).saturating_mul(1000);
        let column = self::column(&row.keyspace, column, types, id)?;
        gone.insert(column.name.clone(), DroppedColumn { column, dropped_at_us });
    }
    let next_column_id = (made.len() + gone.len()) as u16;
    Ok(TableDefinition {
        id: TableId(id),
        keyspace: row.keyspace.clone(),
        name: row.name(0).to_owned(),
        columns: made,
        dropped: gone,
        options: options(row)?,
        next_column_id,
        tablets_log2: TabletMap::for_shards(shards).log2(),
        revision: 0,
    })
}

fn column(keyspace: &str, row: &Row, types: &Types, id: usize) -> Result<Column, String> {
    let name = row.name(1).to_owned();
    let of = |what: &str| format!("column {name} has {what}");
    let id = u16::try_from(id).map_err(|_| of("no number left"))?;
    let kind = row.text("kind").and_then(|kind| kind_of(&kind)).ok_or_else(|| of("no known kind"))?;
    let text = row.text("type").ok_or_else(|| of("no type"))?;
    let ty: CqlType = parse_type(&text, &lookup(keyspace, types))
        .map_err(|error| of(&format!("type {text}, which is not understood: {error}")))?;
    let position = row.int("position").and_then(|position| u16::try_from(position).ok()).unwrap_or(0);
    let reversed = row.text("clustering_order").is_some_and(|order| order.eq_ignore_ascii_case("desc"));
    Ok(Column { id: ColumnId(id), name, ty, kind, position, reversed })
}

fn options(row: &Row) -> Result<TableOptions, String> {
    let usual = TableOptions::default();
    let flags = row.texts("flags");
    let has = |flag: &str| flags.iter().any(|other| other.eq_ignore_ascii_case(flag));
    if has("super") {
        return Err("super column families are not served".to_owned());
    }
    let compact = match (has("dense"), has("compound")) {
        (true, _) => Some(CompactShape::Dense),
        (false, false) => Some(CompactShape::Static),
        (false, true) => None,
    };
    let caching = row.text_map("caching").unwrap_or_default();
    let compression = row.text_map("compression").unwrap_or(usual.compression);
    sstable::Compression::of_options(&compression).map_err(|error| format!("its compression: {error}"))?;
    Ok(TableOptions {
        additional_write_policy: row.text("additional_write_policy").unwrap_or(usual.additional_write_policy),
        allow_auto_snapshot: row.boolean("allow_auto_snapshot").unwrap_or(usual.allow_auto_snapshot),
        bloom_filter_fp_chance: row.double("bloom_filter_fp_chance").unwrap_or(usual.bloom_filter_fp_chance),
        caching: CachingOptions {
            keys: caching.get("keys").cloned().unwrap_or(usual.caching.keys),
            rows_per_partition: caching
                .get("rows_per_partition")
                .cloned()
                .unwrap_or(usual.caching.rows_per_partition),
            enabled: None,
        },
        cdc: row.boolean("cdc").unwrap_or(usual.cdc),
        comment: row.text("comment").unwrap_or_default(),
        compaction: row.text_map("compaction").unwrap_or(usual.compaction),
        compression,
        memtable: row.text("memtable").unwrap_or(usual.memtable),
        crc_check_chance: row.double("crc_check_chance").unwrap_or(usual.crc_check_chance),
        default_time_to_live: row.count("default_time_to_live").unwrap_or(usual.default_time_to_live),
        extensions: row.map("extensions"),
        gc_grace_seconds: row.count("gc_grace_seconds").unwrap_or(usual.gc_grace_seconds),
        incremental_backups: row.boolean("incremental_backups").unwrap_or(usual.incremental_backups),
        max_index_interval: row.count("max_index_interval").unwrap_or(usual.max_index_interval),
        memtable_flush_period_in_ms: row
            .count("memtable_flush_period_in_ms")
            .unwrap_or(usual.memtable_flush_period_in_ms),
        min_index_interval: row.count("min_index_interval").unwrap_or(usual.min_index_interval),
        read_repair: row.text("read_repair").unwrap_or(usual.read_repair),
        speculative_retry: row.text("speculative_retry").unwrap_or(usual.speculative_retry),
        compact,
    })
}
