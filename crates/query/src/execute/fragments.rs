//! Mutation fragments as text: a source's contents of a partition, in JSON (ScyllaDB's documentation,
//! "Reading mutation fragments" and "ScyllaDB SStable: dump-data").
//!
//! Storage hands over raw deletions and rows of the base table (`storage::fragments_table`). Here they become
//! `metadata`, with times and kinds of cells, and `value`, with their values. Used only by `select`.

use std::rc::Rc;

use model::deletion::{Liveness, LocalSeconds};
use model::hex;
use model::row::CellKind;
use model::{CellView, Column, CqlType, DeletionTime, RowBuilder, RowView, Table, Token, counter};
use serde_json::{Map, Value, json};
use statement::functions::cast;
use statement::terms::constant::literal_text;
use statement::terms::time;
use storage::{Dead, Flow, Place, RowConsumer};

/// Hands fragments to a consumer with their raw parts formatted.
pub(super) struct Readable<'c> {
    base: Rc<Table>,
    columns: [Option<model::ColumnId>; 3],
    inner: &'c mut dyn RowConsumer,
    buffer: Vec<u8>,
}

impl<'c> Readable<'c> {
    /// `base` is the table whose fragments these are, `table` the virtual table they are rows of.
    pub(super) fn new(base: &Rc<Table>, table: &Table, inner: &'c mut dyn RowConsumer) -> Self {
        let id = |name| table.column(name).map(|column| column.id);
        let columns = [id("mutation_fragment_kind"), id("metadata"), id("value")];
        Self { base: Rc::clone(base), columns, inner, buffer: Vec::new() }
    }

    fn fill(&mut self, row: RowView<'_>) {
        let raw = |at: usize| self.columns[at].and_then(|id| row.cell(id)).and_then(|cell| cell.value());
        let kind = raw(0).unwrap_or_default();
        let (mut metadata, mut value) = (None, None);
        if let Some(deletion) = raw(1) {
            metadata = Some(json!({ "tombstone": tombstone(parse_deletion(deletion)) }).to_string());
        } else if let Some(bytes) = raw(2) {
            let row = RowView::trusted(bytes);
            let (columns, values) = columns(&self.base, row);
            let content =
                if kind == b"static row" { Value::Object(columns) } else { clustered(row, columns) };
            metadata = Some(content.to_string());
            value = Some(Value::Object(values).to_string());
        }
        self.buffer.clear();
        let mut builder = RowBuilder::new(&mut self.buffer, row.liveness(), row.deletion());
        let texts = [Some(kind), metadata.as_deref().map(str::as_bytes), value.as_deref().map(str::as_bytes)];
        for (id, text) in self.columns.iter().zip(texts) {
            if let (Some(column), Some(text)) = (*id, text) {
                builder.cell(CellView { column, timestamp: 0, path: None, kind: CellKind::Live(text) });
            }
        }
        builder.finish();
    }
}

impl RowConsumer for Readable<'_> {
    fn partition(&mut self, key: &[u8], token: Token, static_row: Option<RowView<'_>>) -> Flow {
        self.inner.partition(key, token, static_row)
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        self.fill(row);
        self.inner.row(clustering, RowView::trusted(&self.buffer))
    }

    fn partition_end(&mut self) -> Flow {
        self.inner.partition_end()
    }

    fn dead(&mut self, dead: Dead, place: Place<'_>) -> Flow {
        self.inner.dead(dead, place)
    }
}

fn parse_deletion(bytes: &[u8]) -> DeletionTime {
    let parts = bytes.split_first_chunk::<8>().and_then(|(timestamp, rest)| {
        let local_time = u32::from_be_bytes(rest.try_into().ok()?);
        Some(DeletionTime { timestamp: i64::from_be_bytes(*timestamp), local_time })
    });
    parts.unwrap_or(DeletionTime::LIVE)
}

fn tombstone(deletion: DeletionTime) -> Value {
    if deletion.is_live() {
        return json!({});
    }
    json!({ "timestamp": deletion.timestamp, "deletion_time": seconds(deletion.local_time) })
}

/// A time as `2023-06-30 11:00:48z`.
fn seconds(at: LocalSeconds) -> String {
    let text = time::timestamp_text(i64::from(at) * 1000);
    text.get(..19).unwrap_or(&text).replace('T', " ") + "z"
}

/// Formats a clustering row without its values.
fn clustered(row: RowView<'_>, columns: Map<String, Value>) -> Value {
    let mut fields = Map::new();
    if !row.deletion().is_live() {
        fields.insert("tombstone".to_owned(), tombstone(row.deletion()));
    }
    let Liveness { timestamp, ttl, expires_at } = row.liveness();
    if !row.liveness().is_none() {
        let mut marker = Map::from_iter([("timestamp".to_owned(), json!(timestamp))]);
        if ttl != 0 {
            marker.insert("ttl".to_owned(), json!(format!("{ttl}s")));
            marker.insert("expiry".to_owned(), json!(seconds(expires_at)));
        }
        fields.insert("marker".to_owned(), Value::Object(marker));
    }
    fields.insert("columns".to_owned(), Value::Object(columns));
    Value::Object(fields)
}

/// The cells of a row by column: their metadata, and their values.
fn columns(base: &Table, row: RowView<'_>) -> (Map<String, Value>, Map<String, Value>) {
    let (mut metadata, mut values) = (Map::new(), Map::new());
    let mut cells = row.cells().peekable();
    while let Some(first) = cells.next() {
        let mut of_column = vec![first];
        while let Some(cell) = cells.next_if(|cell| cell.column == first.column) {
            of_column.push(cell);
        }
        let Some(column) = base.column_by_id(first.column) else { continue };
        if column.ty.is_multi_cell() {
            let (what, held) = collection(column, &of_column);
            metadata.insert(column.name.clone(), what);
            values.insert(column.name.clone(), held);
        } else {
            metadata.insert(column.name.clone(), cell(&column.ty, &first));
            if let Some(text) = value(&column.ty, &first) {
                values.insert(column.name.clone(), text);
            }
        }
    }
    (metadata, values)
}

/// A column with a cell for each element.
fn collection(column: &Column, cells: &[CellView<'_>]) -> (Value, Value) {
    let mut what = Map::from_iter([("type".to_owned(), json!("collection"))]);
    let (mut described, mut held) = (Vec::new(), Vec::new());
    for element in cells {
        if let Some(deletion) = element.collection_deletion() {
            what.insert("tombstone".to_owned(), tombstone(deletion));
            continue;
        }
        let path = element.path.unwrap_or_default();
        let key = match column.ty.cell_path_type() {
            Some(ty) => text(ty, path),
            None => json!(hex::blob(path)),
        };
        let ty = column.ty.cell_value_type(path);
        let ty = ty.unwrap_or(&CqlType::Blob);
        described.push(json!({ "key": key, "value": cell(ty, element) }));
        held.push(json!({ "key": key, "value": value(ty, element) }));
    }
    what.insert("cells".to_owned(), Value::Array(described));
    (Value::Object(what), Value::Array(held))
}

/// Formats a cell without its value.
fn cell(ty: &CqlType, cell: &CellView<'_>) -> Value {
    let is_frozen = ty.is_collection() || matches!(ty, CqlType::Tuple(_) | CqlType::Udt(_));
    let kind = match cell.kind {
        CellKind::Counter(_) => "counter-shards",
        _ if is_frozen => "frozen-collection",
        _ => "regular",
    };
    let is_live = matches!(cell.kind, CellKind::Live(_) | CellKind::Expiring { .. } | CellKind::Counter(_));
    let mut fields = Map::from_iter([
        ("is_live".to_owned(), json!(is_live)),
        ("type".to_owned(), json!(kind)),
        ("timestamp".to_owned(), json!(cell.timestamp)),
    ]);
    match cell.kind {
        CellKind::Expiring { ttl, expires_at, .. } => {
            fields.insert("ttl".to_owned(), json!(format!("{ttl}s")));
            fields.insert("expiry".to_owned(), json!(seconds(expires_at)));
        }
        CellKind::Tombstone { local_time } | CellKind::CollectionDeletion { local_time } => {
            fields.insert("deletion_time".to_owned(), json!(seconds(local_time)));
        }
        CellKind::Live(_) | CellKind::Counter(_) => {}
    }
    Value::Object(fields)
}

fn value(ty: &CqlType, cell: &CellView<'_>) -> Option<Value> {
    match cell.kind {
        CellKind::Counter(context) => Some(json!(counter::total(context).to_string())),
        _ => cell.value().map(|value| text(ty, value)),
    }
}

/// A value as text.
fn text(ty: &CqlType, value: &[u8]) -> Value {
    match ty {
        CqlType::Text | CqlType::Ascii => json!(String::from_utf8_lossy(value)),
        CqlType::Blob => json!(hex::blob(value)),
        ty => json!(cast::text(ty, value).unwrap_or_else(|_| literal_text(ty, Some(value)))),
    }
}
