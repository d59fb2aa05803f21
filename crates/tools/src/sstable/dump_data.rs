//! `dump-data`: each partition, row, cell and deletion as a line of JSON.
//!
//! ```text
//! {"partition": {"key": [..], "key_hex": "0x..", "token": n, "deletion": ..}}
//! {"static": {"cells": [..]}}                                        (where there is one)
//! {"row": {"clustering": [..], "timestamp": .., "deletion": .., "cells": [{"column": .., "value": .., ..}]}}
//! {"range_deletion": {"side": "before" | "after", "clustering": [..], "deletion": ..}}
//! ```
//! A range deletion is in force from its place on until the next one; `null` ends it. Nothing is merged or
//! purged: the output is the contents of the file. Memory: one row.

use ::sstable::{Component, PartitionBound};
use model::clustering::Slice;
use model::deletion::Liveness;
use model::hex;
use model::row::{CellKind, RowView};
use model::token::{Token, murmur3_token};
use model::{CellView, CqlType, DeletionTime, Unfiltered};
use serde_json::{Map, Value, json};

use super::ToolError;
use super::progress::Progress;
use super::target::{Opened, Target};
use super::text;
use crate::output::Output;

/// Prints a table file, or one partition of it.
pub(super) async fn dump(target: &Target, key: Option<&[u8]>) -> Result<(), ToolError> {
    let opened = target.open().await?;
    let mut output = Output::new();
    let result = match key {
        Some(key) => one(target, &opened, key, &mut output).await,
        None => all(target, &opened, &mut output).await,
    };
    // Rows read before an error are shown.
    let flushed = output.finish();
    result?;
    Ok(flushed?)
}

async fn one(target: &Target, opened: &Opened, key: &[u8], output: &mut Output) -> Result<(), ToolError> {
    let token = murmur3_token(key);
    let reader = opened.sstable.partition(token, key, &[Slice::all()], false).await?;
    let Some(mut reader) = reader else {
        return Err(ToolError::NoPartition { path: target.path(Component::Data) });
    };
    output.line(&partition(opened, token, reader.key(), reader.deletion()))?;
    if let Some(row) = reader.static_row() {
        output.line(&static_row(opened, row))?;
    }
    while let Some(unfiltered) = reader.next().await? {
        output.line(&element(opened, &unfiltered))?;
    }
    Ok(())
}

async fn all(target: &Target, opened: &Opened, output: &mut Output) -> Result<(), ToolError> {
    let partitions = opened.sstable.stats().partition_sizes.count();
    let what = format!("{}: partitions", target.path(Component::Data).display());
    let mut progress = Progress::new(what, u64::try_from(partitions).unwrap_or(0));
    let mut done = 0;
    let (start, end) = (PartitionBound::START, PartitionBound::END);
    let mut scanner = opened.sstable.scan(&start, &end, &[Slice::all()]).await?;
    while scanner.next_partition().await? {
        output.line(&partition(opened, scanner.token(), scanner.key(), scanner.deletion()))?;
        if let Some(row) = scanner.static_row() {
            output.line(&static_row(opened, row))?;
        }
        while let Some(unfiltered) = scanner.next().await? {
            output.line(&element(opened, &unfiltered))?;
        }
        done += 1;
        progress.at(done);
    }
    Ok(())
}

fn partition(opened: &Opened, token: Token, key: &[u8], deletion: DeletionTime) -> String {
    json!({ "partition": {
        "key": text::key(&opened.key_types, key),
        "key_hex": hex::blob(key),
        "token": token.0,
        "deletion": text::deletion(deletion),
    }})
    .to_string()
}

fn static_row(opened: &Opened, row: RowView<'_>) -> String {
    json!({ "static": row_fields(opened, row) }).to_string()
}

fn element(opened: &Opened, unfiltered: &Unfiltered<'_>) -> String {
    let types = || opened.table.clustering().iter().map(|column| &column.ty);
    let position = unfiltered.position();
    let clustering = text::clustering(types(), position.prefix);
    match unfiltered {
        Unfiltered::Row { row, .. } => {
            let mut fields = Map::from_iter([("clustering".to_owned(), clustering)]);
            fields.extend(row_fields(opened, *row));
            json!({ "row": fields })
        }
        Unfiltered::Change { deletion, .. } => json!({ "range_deletion": {
            "side": if position.weight < 0 { "before" } else { "after" },
            "clustering": clustering,
            "deletion": text::deletion(*deletion),
        }}),
    }
    .to_string()
}

/// A row's own fields, and its cells.
fn row_fields(opened: &Opened, row: RowView<'_>) -> Map<String, Value> {
    let mut fields = Map::new();
    let Liveness { timestamp, ttl, expires_at } = row.liveness();
    if !row.liveness().is_none() {
        fields.insert("timestamp".to_owned(), json!(timestamp));
        if ttl != 0 {
            fields.insert("ttl".to_owned(), json!(ttl));
            fields.insert("expires_at".to_owned(), text::local_time(expires_at));
        }
    }
    if !row.deletion().is_live() {
        fields.insert("deletion".to_owned(), text::deletion(row.deletion()));
    }
    fields.insert(
        "cells".to_owned(),
        Value::Array(row.cells().map(|cell| cell_value(opened, &cell)).collect()),
    );
    fields
}

fn cell_value(opened: &Opened, cell: &CellView<'_>) -> Value {
    let column = opened.table.column_by_id(cell.column);
    let name = column.map_or_else(|| format!("column {}", cell.column.0), |column| column.name.clone());
    let ty = column.map(|column| &column.ty);
    let mut fields = Map::from_iter([("column".to_owned(), Value::String(name))]);
    let mut add = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    if let Some(path) = cell.path {
        let path_type = ty.and_then(CqlType::cell_path_type);
        add("path", path_type.map_or_else(|| json!(hex::blob(path)), |ty| text::value(ty, path)));
    }
    if let CellKind::Counter(context) = cell.kind {
        add("value", json!(model::counter::total(context)));
    } else if let Some(value) = cell.value() {
        let value_type = ty.and_then(|ty| ty.cell_value_type(cell.path.unwrap_or(&[])));
        add("value", value_type.map_or_else(|| json!(hex::blob(value)), |ty| text::value(ty, value)));
    }
    add("timestamp", json!(cell.timestamp));
    match cell.kind {
        CellKind::Live(_) | CellKind::Counter(_) => {}
        CellKind::Expiring { ttl, expires_at, .. } => {
            add("ttl", json!(ttl));
            add("expires_at", text::local_time(expires_at));
        }
        CellKind::Tombstone { local_time } => add("deleted_at", text::local_time(local_time)),
        CellKind::CollectionDeletion { local_time } => {
            add("collection_deleted_at", text::local_time(local_time));
        }
    }
    Value::Object(fields)
}
