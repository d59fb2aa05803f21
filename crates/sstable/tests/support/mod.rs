//! Random tables and partitions from a seed, and the expected contents of their files.
//!
//! The expectation is computed from ranges and rows, not from the stream that is written, so that a mistake
//! in the stream's bookkeeping cannot be on both sides.
#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod dump;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use model::clustering::{ClusteringOrder, OwnedPosition, Position, Slice, append_component};
use model::counter::{self, CounterShard, ShardKind};
use model::deletion::{DeletionTime, Liveness, NO_LOCAL_TIME};
use model::partition_key::{self, DecoratedKey};
use model::row::{CellKind, CellView, RowBuilder, RowView};
use model::schema::{Column, ColumnId, ColumnKind, TableDefinition, TableId, TableOptions};
use model::types::{CqlType, UserType};
use model::{Table, Unfiltered};
use sstable::{Compression, Compressor, PartitionReader, SstableInfo, Writer, WriterOptions};

/// A small generator; the same seed gives the same results.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// No compression, every compressor that other programs have, and chunks stored uncompressed.
pub(crate) fn compressions() -> Vec<Option<Compression>> {
    let plain = Compressor::ALL.into_iter().filter(|compressor| !compressor.has_dictionary());
    let of = |compressor, level, min_ratio| Compression { compressor, level, min_ratio };
    [None]
        .into_iter()
        .chain(plain.map(|compressor| Some(compressor.into())))
        .chain([Some(of(Compressor::Zstd, 12, 1.5)), Some(of(Compressor::Lz4, 3, 1.3))])
        .chain([Some(of(Compressor::Snappy, 3, 2.0)), Some(of(Compressor::Deflate, 3, 2.0))])
        .collect()
}

/// Any of those, or a compressor with dictionaries.
pub(crate) fn any_compression(random: &mut Random) -> Option<Compression> {
    let mut all = compressions();
    all.extend([Some(Compressor::Lz4Dictionary.into()), Some(Compressor::ZstdDictionary.into())]);
    *random.pick(&all)
}

/// Scalar types that may be in any key.
pub(crate) const SCALARS: [CqlType; 19] = [
    CqlType::Ascii,
    CqlType::Bigint,
    CqlType::Blob,
    CqlType::Boolean,
    CqlType::Date,
    CqlType::Decimal,
    CqlType::Double,
    CqlType::Float,
    CqlType::Inet,
    CqlType::Int,
    CqlType::Smallint,
    CqlType::Text,
    CqlType::Time,
    CqlType::Timestamp,
    CqlType::Timeuuid,
    CqlType::Tinyint,
    CqlType::Uuid,
    CqlType::Varint,
    CqlType::Duration,
];

/// A valid serialised value.
pub(crate) fn value(random: &mut Random, ty: &CqlType) -> Vec<u8> {
    match ty {
        CqlType::Ascii | CqlType::Text => {
            let length = if random.chance(20) { 300 } else { random.below(12) };
            let text: String = (0..length).map(|_| (b' ' + random.below(95) as u8) as char).collect();
            if *ty == CqlType::Text && random.chance(4) {
                format!("{text}é漢😀").into_bytes()
            } else {
                text.into_bytes()
            }
        }
        CqlType::Blob => {
            let length = random.below(40);
            random.bytes(length)
        }
        CqlType::Boolean => vec![random.below(2) as u8],
        CqlType::Tinyint => random.bytes(1),
        CqlType::Smallint => random.bytes(2),
        CqlType::Int | CqlType::Date => random.bytes(4),
        CqlType::Bigint => random.bytes(8),
        CqlType::Timestamp => (random.next() as i64 >> 24).to_be_bytes().to_vec(),
        CqlType::Time => (random.next() % 86_400_000_000_000).to_be_bytes().to_vec(),
        CqlType::Float => (random.below(2_000_000) as f32 / 7.0 - 100_000.0).to_be_bytes().to_vec(),
        CqlType::Double => (random.next() as i64 as f64 / 7.0).to_be_bytes().to_vec(),
        CqlType::Decimal => {
            let length = 1 + random.below(12);
            [&(random.below(40) as i32 - 20).to_be_bytes(), random.bytes(length).as_slice()].concat()
        }
        CqlType::Varint => {
            let length = 1 + random.below(20);
            random.bytes(length)
        }
        CqlType::Inet => {
            let length = *random.pick(&[4, 16]);
            random.bytes(length)
        }
        CqlType::Uuid => uuid(random, 0x40),
        CqlType::Timeuuid => uuid(random, 0x10),
        CqlType::Duration => {
            let mut out = Vec::new();
            for _ in 0..3 {
                model::vint::append_signed(&mut out, random.below(1000) as i64);
            }
            out
        }
        CqlType::List { element, .. } => {
            let elements: Vec<_> = (0..random.below(4)).map(|_| value(random, element)).collect();
            sequence(elements.len(), elements)
        }
        CqlType::Set { element, .. } => {
            let elements = sorted(random, element);
            sequence(elements.len(), elements)
        }
        CqlType::Map { key, value: of, .. } => {
            let keys = sorted(random, key);
            let count = keys.len();
            sequence(count, keys.into_iter().flat_map(|key| [key, value(random, of)]).collect())
        }
        CqlType::Tuple(types) => fields(random, types.iter()),
        CqlType::Udt(udt) => fields(random, udt.fields.iter().map(|(_, ty)| ty)),
        CqlType::Vector { element, dimension } => {
            (0..*dimension).flat_map(|_| value(random, element)).collect()
        }
        CqlType::Counter => {
            let mut out = Vec::new();
            let shards: Vec<CounterShard> = (0..1 + random.below(4) as u8)
                .map(|node| CounterShard {
                    id: [node; 16],
                    clock: random.next() as i64 >> 2,
                    count: random.next() as i64 >> 20,
                    kind: ShardKind::Global,
                })
                .collect();
            counter::append(&shards, &mut out);
            out
        }
        CqlType::Empty | CqlType::Custom(_) => unreachable!("not generated"),
    }
}

fn uuid(random: &mut Random, version: u8) -> Vec<u8> {
    let mut bytes = random.bytes(16);
    bytes[6] = version | (bytes[6] & 0x0f);
    bytes[8] = 0x80 | (bytes[8] & 0x3f);
    bytes
}

fn sorted(random: &mut Random, ty: &CqlType) -> Vec<Vec<u8>> {
    let mut elements: Vec<_> = (0..random.below(4)).map(|_| value(random, ty)).collect();
    elements.sort_by(|a, b| model::compare::compare(ty, a, b));
    elements.dedup_by(|a, b| model::compare::compare(ty, a, b).is_eq());
    elements
}

fn sequence(count: usize, elements: Vec<Vec<u8>>) -> Vec<u8> {
    let mut out = (count as u32).to_be_bytes().to_vec();
    for element in elements {
        out.extend_from_slice(&(element.len() as u32).to_be_bytes());
        out.extend_from_slice(&element);
    }
    out
}

fn fields<'t>(random: &mut Random, types: impl Iterator<Item = &'t CqlType>) -> Vec<u8> {
    let mut out = Vec::new();
    for ty in types {
        if random.chance(4) {
            out.extend_from_slice(&(-1i32).to_be_bytes());
        } else {
            let value = value(random, ty);
            out.extend_from_slice(&(value.len() as u32).to_be_bytes());
            out.extend_from_slice(&value);
        }
    }
    out
}

fn scalar(random: &mut Random) -> Box<CqlType> {
    Box::new(random.pick(&SCALARS[..18]).clone())
}

/// Any type a column may have.
pub(crate) fn column_type(random: &mut Random) -> CqlType {
    let frozen = random.chance(2);
    match random.below(10) {
        0 => CqlType::List { element: scalar(random), frozen },
        1 => CqlType::Set { element: scalar(random), frozen },
        2 => CqlType::Map { key: scalar(random), value: scalar(random), frozen },
        3 => CqlType::Tuple(vec![*scalar(random), *scalar(random)]),
        4 => CqlType::Udt(Box::new(UserType {
            keyspace: "ks".into(),
            name: "point".into(),
            fields: vec![("x".into(), *scalar(random)), ("y".into(), *scalar(random))],
            frozen,
        })),
        5 => CqlType::Vector { element: Box::new(CqlType::Float), dimension: 1 + random.below(4) as u32 },
        _ => random.pick(&SCALARS).clone(),
    }
}

/// Columns of a table before they have ids.
pub(crate) struct Shape {
    pub(crate) key: Vec<CqlType>,
    pub(crate) clustering: Vec<(CqlType, bool)>,
    pub(crate) statics: Vec<CqlType>,
    pub(crate) regulars: Vec<CqlType>,
}

/// A random shape.
pub(crate) fn shape(random: &mut Random) -> Shape {
    let key = (0..1 + random.below(3)).map(|_| *scalar(random)).collect();
    let clustering: Vec<_> = (0..random.below(4)).map(|_| (*scalar(random), random.chance(2))).collect();
    let statics = if clustering.is_empty() { 0 } else { random.below(4) };
    let regulars = if random.chance(8) { 62 + random.below(6) } else { random.below(6) };
    Shape {
        key,
        clustering,
        statics: (0..statics).map(|_| column_type(random)).collect(),
        regulars: (0..regulars).map(|_| column_type(random)).collect(),
    }
}

/// The table of a shape, its column ids shuffled.
pub(crate) fn table(random: &mut Random, shape: &Shape) -> Rc<Table> {
    let count = shape.key.len() + shape.clustering.len() + shape.statics.len() + shape.regulars.len();
    let mut ids: Vec<u16> = (0..count as u16).collect();
    for at in (1..ids.len()).rev() {
        ids.swap(at, random.below(at + 1));
    }
    let mut columns = Vec::new();
    let mut add = |prefix: &str, kind, at: usize, ty: &CqlType, reversed| {
        let id = ColumnId(ids.pop().expect("an id for each column"));
        let name = format!("{prefix}{at}");
        columns.push(Column { id, name, ty: ty.clone(), kind, position: at as u16, reversed });
    };
    for (at, ty) in shape.key.iter().enumerate() {
        add("pk", ColumnKind::PartitionKey, at, ty, false);
    }
    for (at, (ty, reversed)) in shape.clustering.iter().enumerate() {
        add("ck", ColumnKind::Clustering, at, ty, *reversed);
    }
    for (at, ty) in shape.statics.iter().enumerate() {
        add("s", ColumnKind::Static, at, ty, false);
    }
    for (at, ty) in shape.regulars.iter().enumerate() {
        add("r", ColumnKind::Regular, at, ty, false);
    }
    Rc::new(Table::new(TableDefinition {
        id: TableId([1; 16]),
        keyspace: "ks".into(),
        name: "t".into(),
        columns,
        dropped: BTreeMap::new(),
        options: TableOptions::default(),
        next_column_id: count as u16,
        tablets_log2: 0,
        revision: 0,
    }))
}

/// A range tombstone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Range {
    pub(crate) start: OwnedPosition,
    pub(crate) end: OwnedPosition,
    pub(crate) deletion: DeletionTime,
}

/// One partition.
#[derive(Debug, Clone)]
pub(crate) struct Partition {
    pub(crate) key: DecoratedKey,
    pub(crate) deletion: DeletionTime,
    pub(crate) static_row: Option<Vec<u8>>,
    /// Clustering and row, ascending.
    pub(crate) rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// Disjoint and ascending; neighbours that touch differ.
    pub(crate) ranges: Vec<Range>,
}

/// An item of a stream, owned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Row(Vec<u8>, Vec<u8>),
    Change(OwnedPosition, DeletionTime),
}

impl From<Unfiltered<'_>> for Item {
    fn from(unfiltered: Unfiltered<'_>) -> Self {
        match unfiltered {
            Unfiltered::Row { clustering, row } => Self::Row(clustering.to_vec(), row.as_bytes().to_vec()),
            Unfiltered::Change { position, deletion } => Self::Change(position.to_owned(), deletion),
        }
    }
}

fn timestamp(random: &mut Random) -> i64 {
    match random.below(10) {
        0 => -(random.below(1000) as i64),
        1 => 1,
        _ => 1_700_000_000_000_000 + random.below(1_000_000_000) as i64,
    }
}

fn local_time(random: &mut Random) -> u32 {
    if random.chance(10) { i32::MAX as u32 - 1 } else { 1_700_000_000 + random.below(1_000_000) as u32 }
}

pub(crate) fn deletion(random: &mut Random) -> DeletionTime {
    DeletionTime { timestamp: timestamp(random), local_time: local_time(random) }
}

/// A random row of a table; empty ones are left to the caller.
pub(crate) fn row(random: &mut Random, table: &Table, columns: &[Column], is_static: bool) -> Vec<u8> {
    let liveness = match random.below(4) {
        _ if is_static => Liveness::NONE,
        0 => Liveness::NONE,
        1 => Liveness {
            timestamp: timestamp(random),
            ttl: 1 + random.below(100_000) as u32,
            expires_at: local_time(random),
        },
        _ => Liveness { timestamp: timestamp(random), ttl: 0, expires_at: NO_LOCAL_TIME },
    };
    let row_deletion = if !is_static && random.chance(6) { deletion(random) } else { DeletionTime::LIVE };
    let mut columns: Vec<&Column> = columns.iter().filter(|_| !random.chance(3)).collect();
    columns.sort_by_key(|column| column.id);
    let mut out = Vec::new();
    let mut builder = RowBuilder::new(&mut out, liveness, row_deletion);
    for column in columns {
        let mut paths: Vec<Option<Vec<u8>>> = vec![None];
        if column.ty.is_multi_cell() {
            if random.chance(2) {
                let deletion = deletion(random);
                let kind = CellKind::CollectionDeletion { local_time: deletion.local_time };
                builder.cell(CellView { column: column.id, timestamp: deletion.timestamp, path: None, kind });
            }
            let count = random.below(4);
            paths = (0..count).map(|at| Some(path(random, &column.ty, at))).collect();
            paths.sort_by(|a, b| {
                table.compare_paths(column.id, a.as_deref().unwrap_or(&[]), b.as_deref().unwrap_or(&[]))
            });
            paths.dedup();
        }
        for path in &paths {
            let bytes = match &column.ty {
                CqlType::Set { frozen: false, .. } => Vec::new(),
                CqlType::List { element, frozen: false } => value(random, element),
                CqlType::Map { value: of, frozen: false, .. } => value(random, of),
                CqlType::Udt(udt) if !udt.frozen => {
                    let field = u16::from_be_bytes(path.as_ref().unwrap()[..2].try_into().unwrap());
                    value(random, &udt.fields[usize::from(field)].1)
                }
                ty if random.chance(12)
                    && matches!(ty, CqlType::Text | CqlType::Blob | CqlType::Int | CqlType::Uuid) =>
                {
                    Vec::new()
                }
                ty => value(random, ty),
            };
            let own = random.chance(3) || liveness.is_none();
            let kind = match random.below(6) {
                1.. if column.ty.is_counter() => CellKind::Counter(&bytes),
                0 => CellKind::Tombstone { local_time: local_time(random) },
                1 if !own && liveness.ttl != 0 => {
                    CellKind::Expiring { value: &bytes, ttl: liveness.ttl, expires_at: liveness.expires_at }
                }
                1 => CellKind::Expiring {
                    value: &bytes,
                    ttl: 1 + random.below(1000) as u32,
                    expires_at: local_time(random),
                },
                _ => CellKind::Live(&bytes),
            };
            let timestamp = if own { timestamp(random) } else { liveness.timestamp };
            builder.cell(CellView { column: column.id, timestamp, path: path.as_deref(), kind });
        }
    }
    builder.finish();
    out
}

fn path(random: &mut Random, ty: &CqlType, at: usize) -> Vec<u8> {
    match ty {
        CqlType::Set { element, .. } => value(random, element),
        CqlType::Map { key, .. } => value(random, key),
        CqlType::Udt(udt) => ((at % udt.fields.len()) as u16).to_be_bytes().to_vec(),
        _ => uuid(random, 0x10),
    }
}

pub(crate) fn clustering(random: &mut Random, table: &Table, components: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for column in &table.clustering()[..components] {
        let value = value(random, &column.ty);
        append_component(&mut out, Some(&value));
    }
    out
}

fn key(random: &mut Random, table: &Table) -> DecoratedKey {
    loop {
        let mut key = Vec::new();
        for column in table.partition_key() {
            let value = value(random, &column.ty);
            partition_key::append_component(&mut key, table.partition_key().len(), &value).unwrap();
        }
        if !key.is_empty() {
            return DecoratedKey::new(key);
        }
    }
}

/// Partitions in token order with about `rows` rows each.
pub(crate) fn partitions(random: &mut Random, table: &Table, count: usize, rows: usize) -> Vec<Partition> {
    let mut partitions: Vec<Partition> = (0..count).map(|_| partition(random, table, rows)).collect();
    partitions.sort_by(|a, b| a.key.cmp(&b.key));
    partitions.dedup_by(|a, b| a.key == b.key);
    partitions
}

fn partition(random: &mut Random, table: &Table, rows: usize) -> Partition {
    let key = key(random, table);
    let orders = table.clustering_orders();
    let width = orders.len();
    let statics = row(random, table, table.statics(), true);
    let static_row = Some(statics).filter(|row| !RowView::trusted(row).is_empty() && !random.chance(3));
    let mut clusterings: Vec<Vec<u8>> = if width == 0 {
        vec![Vec::new()]
    } else {
        (0..random.below(rows + 1)).map(|_| clustering(random, table, width)).collect()
    };
    clusterings.sort_by(|a, b| model::clustering::compare_clusterings(orders, a, b));
    clusterings.dedup_by(|a, b| model::clustering::compare_clusterings(orders, a, b).is_eq());
    let mut built = Vec::new();
    for clustering in clusterings {
        let row = row(random, table, table.regulars(), false);
        if !RowView::trusted(&row).is_empty() {
            built.push((clustering, row));
        }
    }
    let ranges = if width > 0 && random.chance(2) { ranges(random, table, rows / 3) } else { Vec::new() };
    let deletion = if random.chance(4) { deletion(random) } else { DeletionTime::LIVE };
    Partition { key, deletion, static_row, rows: built, ranges }
}

fn ranges(random: &mut Random, table: &Table, count: usize) -> Vec<Range> {
    let orders = table.clustering_orders();
    let mut positions: Vec<OwnedPosition> =
        (0..2 + random.below(count + 1)).map(|_| bound(random, table)).collect();
    positions.sort_by(|a, b| a.as_ref().compare(b.as_ref(), orders));
    positions.dedup_by(|a, b| a.as_ref().compare(b.as_ref(), orders).is_eq());
    let mut ranges: Vec<Range> = Vec::new();
    for pair in positions.windows(2) {
        if random.chance(3) {
            continue;
        }
        let deletion = deletion(random);
        if ranges.last().is_some_and(|last| last.deletion == deletion) {
            continue;
        }
        ranges.push(Range { start: pair[0].clone(), end: pair[1].clone(), deletion });
    }
    ranges
}

/// A place between rows.
pub(crate) fn bound(random: &mut Random, table: &Table) -> OwnedPosition {
    let components = random.below(table.clustering().len() + 1);
    let weight = if random.chance(2) { 1 } else { -1 };
    OwnedPosition { prefix: clustering(random, table, components), weight }
}

/// Disjoint ascending slices.
pub(crate) fn slices(random: &mut Random, table: &Table) -> Vec<Slice> {
    if random.chance(4) {
        return vec![Slice::all()];
    }
    let orders = table.clustering_orders();
    let mut bounds: Vec<OwnedPosition> = (0..2 + random.below(6)).map(|_| bound(random, table)).collect();
    bounds.sort_by(|a, b| a.as_ref().compare(b.as_ref(), orders));
    bounds.dedup_by(|a, b| a.as_ref().compare(b.as_ref(), orders).is_eq());
    bounds.chunks_exact(2).map(|pair| Slice { start: pair[0].clone(), end: pair[1].clone() }).collect()
}

impl Partition {
    /// The stream of the whole partition, forward.
    pub(crate) fn stream(&self, orders: &[ClusteringOrder]) -> Vec<Item> {
        self.cut(&[Slice::all()], false, orders)
    }

    /// The expected stream of a reader of these slices.
    pub(crate) fn cut(&self, slices: &[Slice], reversed: bool, orders: &[ClusteringOrder]) -> Vec<Item> {
        let mut all = Vec::new();
        let mut ordered: Vec<&Slice> = slices.iter().collect();
        if reversed {
            ordered.reverse();
        }
        for slice in ordered {
            let (from, to) = (slice.start.as_ref(), slice.end.as_ref());
            let mut items: Vec<(OwnedPosition, Item)> = Vec::new();
            for (clustering, row) in &self.rows {
                if slice.contains(clustering, orders) {
                    let position = Position::row(clustering).to_owned();
                    items.push((position, Item::Row(clustering.clone(), row.clone())));
                }
            }
            let mut ranges: Vec<Range> = Vec::new();
            for range in &self.ranges {
                let start = if range.start.as_ref().compare(from, orders).is_lt() {
                    slice.start.clone()
                } else {
                    range.start.clone()
                };
                let end = if range.end.as_ref().compare(to, orders).is_gt() {
                    slice.end.clone()
                } else {
                    range.end.clone()
                };
                if start.as_ref().compare(end.as_ref(), orders).is_lt() {
                    ranges.push(Range { start, end, deletion: range.deletion });
                }
            }
            if reversed {
                ranges.reverse();
            }
            for (at, range) in ranges.iter().enumerate() {
                let (near, far) =
                    if reversed { (&range.end, &range.start) } else { (&range.start, &range.end) };
                items.push((near.clone(), Item::Change(near.clone(), range.deletion)));
                let continues = ranges.get(at + 1).is_some_and(|next| {
                    let next = if reversed { &next.end } else { &next.start };
                    next.as_ref().compare(far.as_ref(), orders) == Ordering::Equal
                });
                if !continues {
                    items.push((far.clone(), Item::Change(far.clone(), DeletionTime::LIVE)));
                }
            }
            items.sort_by(|a, b| {
                let order = a.0.as_ref().compare(b.0.as_ref(), orders);
                if reversed { order.reverse() } else { order }
            });
            all.extend(items.into_iter().map(|(_, item)| item));
        }
        all
    }
}

/// Writes partitions to a table file.
pub(crate) async fn write(
    dir: &Path,
    generation: u64,
    table: &Rc<Table>,
    partitions: &[Partition],
    options: WriterOptions,
) -> SstableInfo {
    let mut writer = Writer::create(dir, generation, table, options).await.unwrap();
    for partition in partitions {
        append(&mut writer, table, partition).await;
    }
    writer.finish().await.unwrap().expect("there are partitions")
}

/// Appends a partition to a file that is being written.
pub(crate) async fn append(writer: &mut Writer, table: &Table, partition: &Partition) {
    let static_row = partition.static_row.as_deref().map(RowView::trusted);
    let Partition { key, deletion, .. } = partition;
    writer.partition_start(key.token, &key.key, *deletion, static_row).unwrap();
    for item in partition.stream(table.clustering_orders()) {
        let unfiltered = match &item {
            Item::Row(clustering, row) => Unfiltered::Row { clustering, row: RowView::trusted(row) },
            Item::Change(position, deletion) => {
                Unfiltered::Change { position: position.as_ref(), deletion: *deletion }
            }
        };
        writer.unfiltered(unfiltered).unwrap();
        if writer.is_due() {
            writer.drain().await.unwrap();
        }
    }
    writer.partition_end();
}

/// All items of a reader.
pub(crate) async fn drain(reader: &mut PartitionReader) -> Vec<Item> {
    let mut items = Vec::new();
    while let Some(item) = reader.next().await.unwrap() {
        items.push(item.into());
    }
    items
}
