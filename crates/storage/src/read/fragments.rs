//! Reads the contents of each source of a partition separately: `MUTATION_FRAGMENTS` (ScyllaDB's
//! documentation, "Reading mutation fragments").
//!
//! Fragments are rows of a virtual table over the same partitions. Its clustering is the source, the region
//! of the partition, the base table's clustering and the weight of the position; missing parts are null. Its
//! cells hold the raw row or deletion, which the caller formats. Invariant: fragments of a source come in the
//! order of that clustering, so that a page can begin behind any of them.
//!
//! A file is read with a permit, which also has the memory for its long rows. It is given back before the
//! next source, so a read that waits for one holds none.

use std::rc::Rc;

use model::clustering::{Clustering, Position, Slice, append_component, compare_clusterings};
use model::reconcile::Purge;
use model::row::{CellKind, CellView};
use model::schema::{TableDefinition, TableOptions};
use model::{
    Column, ColumnId, ColumnKind, CqlType, DeletionTime, Liveness, RowBuilder, RowView, Table, TableId,
    Token, Unfiltered,
};

use super::merge::Merge;
use super::permit::ReadPermit;
use super::source::{Input, Source};
use super::{Dead, Flow, PartitionBound, PartitionRange, Place, ReadCommand, RowConsumer, Slices};
use crate::error::StorageError;
use crate::memtable::{Memtable, Shape};
use crate::shard::Storage;
use crate::tablet::{TableFile, Tablet};

/// Suffix behind the base table's name; a user's table cannot have it.
const SUFFIX: &str = "_$mutation_fragments";
/// Distinguishes the virtual table's id from that of its base.
const ID_MARK: u8 = 0x80;
/// Keys looked up at once while a range is read.
const KEYS_MAX: usize = 128;
/// Most bounds of ranges over a clustering prefix that one source may have in a partition.
const PARTIAL_CHANGES_MAX: usize = 100_000;

/// The kinds of fragments, by region of the partition.
const START: (i8, &str) = (0, "partition start");
const STATIC: (i8, &str) = (1, "static row");
const ROW: (i8, &str) = (2, "clustering row");
const CHANGE: (i8, &str) = (2, "range tombstone change");
const END: (i8, &str) = (3, "partition end");

/// The virtual table whose rows are the fragments of `base`.
///
/// Its columns `metadata` and `value` are of type text for the client, but a read hands over raw bytes there:
/// a deletion as its timestamp and local time (8 and 4 bytes, big endian, empty for no deletion), and a row
/// of the base table.
pub fn fragments_table(base: &Table) -> Table {
    let key = base.partition_key().iter().cloned();
    let column = |name: &str, ty, kind| Column {
        id: ColumnId(0),
        name: name.to_owned(),
        ty,
        kind,
        position: 0,
        reversed: false,
    };
    let clustering = [
        column("mutation_source", CqlType::Text, ColumnKind::Clustering),
        column("partition_region", CqlType::Tinyint, ColumnKind::Clustering),
    ]
    .into_iter()
    .chain(base.clustering().iter().cloned())
    .chain([column("position_weight", CqlType::Tinyint, ColumnKind::Clustering)])
    .zip(0..)
    .map(|(column, position)| Column { position, ..column });
    let regular = |name| column(name, CqlType::Text, ColumnKind::Regular);
    let columns: Vec<Column> = key
        .chain(clustering)
        .chain([regular("mutation_fragment_kind"), regular("metadata"), regular("value")])
        .zip(0..)
        .map(|(column, id)| Column { id: ColumnId(id), ..column })
        .collect();
    let definition = base.definition();
    let mut id = definition.id;
    id.0[0] ^= ID_MARK;
    Table::new(TableDefinition {
        id,
        keyspace: definition.keyspace.clone(),
        name: format!("{}{SUFFIX}", definition.name),
        next_column_id: u16::try_from(columns.len()).unwrap_or(u16::MAX),
        columns,
        dropped: std::collections::BTreeMap::new(),
        options: TableOptions::default(),
        tablets_log2: definition.tablets_log2,
        revision: definition.revision,
    })
}

impl Storage {
    /// The base of the table of fragments with that id, if there is one.
    fn fragments_base(&self, id: TableId) -> Option<Rc<Table>> {
        let mut base = id;
        base.0[0] ^= ID_MARK;
        self.schema().table_by_id(base).cloned()
    }

    /// The table of fragments with that id; `None` if there is no such base table.
    #[cold]
    pub fn fragments_table_by_id(&self, id: TableId) -> Option<Rc<Table>> {
        self.fragments_base(id).map(|base| Rc::new(fragments_table(&base)))
    }

    /// As [`Storage::read`], of a table of fragments.
    #[cold]
    pub(super) async fn read_fragments(
        &self,
        command: &ReadCommand,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), StorageError> {
        let unknown = StorageError::UnknownTable { table: command.table.id() };
        let base = self.fragments_base(command.table.id()).ok_or(unknown)?;
        let mut fragments = Fragments { storage: self, command, base, consumer, announced: false };
        match &command.range {
            PartitionRange::Key(key) => fragments.partition(key.token, &key.key).await.map(|_| ()),
            PartitionRange::Between { from, to } => fragments.range(from.clone(), to).await,
        }
    }
}

struct Fragments<'r> {
    storage: &'r Storage,
    /// A read of the table of fragments.
    command: &'r ReadCommand,
    base: Rc<Table>,
    consumer: &'r mut dyn RowConsumer,
    announced: bool,
}

/// The source of fragments.
enum Origin {
    Memory(Rc<Memtable>),
    File(Rc<TableFile>),
}

/// The fragments of one source, and the permit to read it if it is a file.
struct Opened {
    merge: Merge,
    _permit: Option<ReadPermit>,
}

/// Collects keys, including those of dead partitions.
struct Keys(Vec<(Token, Vec<u8>)>);

impl Keys {
    fn note(&mut self, token: Token, key: &[u8]) -> Flow {
        if self.0.last().is_none_or(|(_, last)| last != key) {
            self.0.push((token, key.to_vec()));
        }
        if self.0.len() >= KEYS_MAX { Flow::Stop } else { Flow::SkipPartition }
    }
}

impl RowConsumer for Keys {
    fn partition(&mut self, key: &[u8], token: Token, _static_row: Option<RowView<'_>>) -> Flow {
        self.note(token, key)
    }

    fn row(&mut self, _clustering: &[u8], _row: RowView<'_>) -> Flow {
        Flow::SkipPartition
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }

    fn dead(&mut self, _dead: Dead, place: Place<'_>) -> Flow {
        if self.note(place.token, place.key) == Flow::Stop { Flow::Stop } else { Flow::Continue }
    }
}

impl Fragments<'_> {
    async fn range(&mut self, mut from: PartitionBound, to: &PartitionBound) -> Result<(), StorageError> {
        loop {
            let command = ReadCommand {
                table: Rc::clone(&self.base),
                range: PartitionRange::Between { from, to: to.clone() },
                slices: Slices::new(),
                reversed: false,
                now: self.command.now,
                bypass_cache: true,
            };
            let mut keys = Keys(Vec::new());
            Box::pin(self.storage.read(&command, &mut keys)).await?;
            for (token, key) in &keys.0 {
                if self.partition(*token, key).await? == Flow::Stop {
                    return Ok(());
                }
            }
            match keys.0.pop() {
                Some((token, key)) if keys.0.len() + 1 >= KEYS_MAX => {
                    from = PartitionBound { token, key: Some(key), inclusive: false };
                }
                _ => return Ok(()),
            }
        }
    }

    /// Hands over the fragments of one partition, source by source.
    async fn partition(&mut self, token: Token, key: &[u8]) -> Result<Flow, StorageError> {
        let store = self.storage.table_store(self.base.id())?;
        let tablet: Rc<Tablet> = self.storage.tablet_soon(&store, token).await?;
        let mut origins: Vec<(String, Origin)> = tablet
            .memtables()
            .iter()
            .enumerate()
            .map(|(at, memtable)| (format!("memtable:{at}"), Origin::Memory(Rc::clone(memtable))))
            .collect();
        for file in tablet.files().iter().filter(|file| file.sstable().may_contain(token, key)) {
            origins.push((format!("sstable:{}", file.path().display()), Origin::File(Rc::clone(file))));
        }
        origins.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.announced = false;
        for (name, origin) in &origins {
            match self.source(name, origin, token, key).await? {
                Flow::Continue => {}
                Flow::SkipPartition => break,
                Flow::Stop => return Ok(Flow::Stop),
            }
        }
        Ok(if self.announced { self.consumer.partition_end() } else { Flow::Continue })
    }

    /// Waits for a permit to read files: that of a scan where many partitions are read.
    async fn permit(&self) -> Result<ReadPermit, StorageError> {
        match &self.command.range {
            PartitionRange::Key(_) => self.storage.0.permits.read(1).await,
            PartitionRange::Between { .. } => self.storage.begin_scan().await,
        }
    }

    async fn open(&self, origin: &Origin, token: Token, key: &[u8]) -> Result<Option<Opened>, StorageError> {
        let (mut sources, mut permit) = (Vec::new(), None);
        match origin {
            Origin::Memory(memtable) => {
                let versions = {
                    let contents = memtable.contents();
                    let Some(partition) = contents.find(token, key) else { return Ok(None) };
                    (partition, contents.versions(partition))
                };
                for version in versions.1 {
                    sources.push(Source::memory(memtable, versions.0, version));
                }
            }
            Origin::File(file) => {
                let permit = permit.insert(self.permit().await?);
                let opened =
                    file.open_in(Some(permit.room())).partition(token, key, &[Slice::all()], false).await;
                let Some(reader) = opened.map_err(|error| file.failed(error))? else { return Ok(None) };
                sources
                    .push(Source::new(Input::Partition { file: Rc::clone(file), reader: Box::new(reader) }));
            }
        }
        let mut merge = Merge::new(Rc::clone(&self.base), sources, Purge::nothing());
        // Other tasks may run while it is read.
        merge.pin();
        Ok(Some(Opened { merge, _permit: permit }))
    }

    async fn source(
        &mut self,
        name: &str,
        origin: &Origin,
        token: Token,
        key: &[u8],
    ) -> Result<Flow, StorageError> {
        let base = Rc::clone(&self.base);
        let all = [Slice::all()];
        let shape = Shape { orders: base.clustering_orders(), slices: &all, reversed: false };
        // Changes at a clustering prefix sort differently in the virtual table's order.
        let mut partial: Vec<(Vec<u8>, DeletionTime)> = Vec::new();
        let Some(mut opened) = self.open(origin, token, key).await? else { return Ok(Flow::Continue) };
        while let Some(unfiltered) = opened.merge.next(shape).await? {
            if let Unfiltered::Change { position, deletion } = unfiltered
                && is_partial(&base, position)
                && partial.len() < PARTIAL_CHANGES_MAX
            {
                partial.push((clustering(&base, name, CHANGE.0, Some(position)), deletion));
            }
            reactor::maybe_yield().await;
        }
        // Its permit is given back: a read that waits for the next one must not hold any.
        drop(opened);
        let Some(Opened { mut merge, _permit }) = self.open(origin, token, key).await? else {
            return Ok(Flow::Continue);
        };
        let orders = self.command.table.clustering_orders().to_vec();
        partial.sort_by(|(a, _), (b, _)| compare_clusterings(&orders, a, b));
        let mut partial = partial.into_iter().peekable();
        let deletion = merge.partition_deletion();
        let start = clustering(&base, name, START.0, None);
        let mut flow = self.give((token, key), &start, (START.1, Some(deletion), None));
        let static_row = merge.take_static_row();
        if flow == Flow::Continue && !static_row.is_empty() {
            let at = clustering(&base, name, STATIC.0, None);
            flow = self.give((token, key), &at, (STATIC.1, None, Some(&static_row)));
        }
        while flow == Flow::Continue {
            let next = merge.next(shape).await?;
            let at = next.as_ref().map(|unfiltered| {
                let region = if matches!(unfiltered, Unfiltered::Row { .. }) { ROW.0 } else { CHANGE.0 };
                clustering(&base, name, region, Some(unfiltered.position()))
            });
            while flow == Flow::Continue
                && let Some((place, deletion)) = partial.next_if(|(place, _)| {
                    at.as_ref().is_none_or(|at| compare_clusterings(&orders, place, at).is_lt())
                })
            {
                flow = self.give((token, key), &place, (CHANGE.1, Some(deletion), None));
            }
            let (Some(next), Some(at), Flow::Continue) = (next, at, flow) else { break };
            flow = match next {
                Unfiltered::Row { row, .. } => {
                    self.give((token, key), &at, (ROW.1, None, Some(row.as_bytes())))
                }
                Unfiltered::Change { position, .. } if is_partial(&base, position) => Flow::Continue,
                Unfiltered::Change { deletion, .. } => {
                    self.give((token, key), &at, (CHANGE.1, Some(deletion), None))
                }
            };
            reactor::maybe_yield().await;
        }
        if flow == Flow::Continue {
            let end = clustering(&base, name, END.0, None);
            flow = self.give((token, key), &end, (END.1, None, None));
        }
        Ok(flow)
    }

    /// Hands over a fragment if it was requested.
    fn give(
        &mut self,
        (token, key): (Token, &[u8]),
        clustering: &[u8],
        (kind, deletion, row): (&str, Option<DeletionTime>, Option<&[u8]>),
    ) -> Flow {
        let table = &self.command.table;
        let orders = table.clustering_orders();
        if !self.command.slices.iter().any(|slice| slice.contains(clustering, orders)) {
            return Flow::Continue;
        }
        if !self.announced {
            self.announced = true;
            match self.consumer.partition(key, token, None) {
                Flow::Continue => {}
                other => return other,
            }
        }
        let deletion = deletion.map(|deletion| {
            let mut bytes = Vec::new();
            if !deletion.is_live() {
                bytes.extend_from_slice(&deletion.timestamp.to_be_bytes());
                bytes.extend_from_slice(&deletion.local_time.to_be_bytes());
            }
            bytes
        });
        let values = [Some(kind.as_bytes()), deletion.as_deref(), row];
        let mut out = Vec::new();
        let mut builder =
            RowBuilder::new(&mut out, Liveness { timestamp: 0, ..Liveness::NONE }, DeletionTime::LIVE);
        let names = ["mutation_fragment_kind", "metadata", "value"];
        for (name, value) in names.iter().zip(values) {
            if let (Some(column), Some(value)) = (table.column(name), value) {
                builder.cell(CellView {
                    column: column.id,
                    timestamp: 0,
                    path: None,
                    kind: CellKind::Live(value),
                });
            }
        }
        builder.finish();
        self.consumer.row(clustering, RowView::trusted(&out))
    }
}

fn is_partial(base: &Table, position: Position<'_>) -> bool {
    position.prefix.components().count() < base.clustering().len()
}

/// The clustering of a fragment; parts that a position lacks are null.
fn clustering(base: &Table, source: &str, region: i8, position: Option<Position<'_>>) -> Vec<u8> {
    let mut out = Vec::new();
    append_component(&mut out, Some(source.as_bytes()));
    append_component(&mut out, Some(&region.to_be_bytes()));
    let prefix = position.map_or(Clustering::EMPTY, |position| position.prefix);
    let mut components = prefix.components();
    for _ in base.clustering() {
        append_component(&mut out, components.next().flatten());
    }
    append_component(
        &mut out,
        position.map(|position| position.weight.to_be_bytes()).as_ref().map(|w| &w[..]),
    );
    out
}
