//! Reads that show deletions and dead data, for other replicas of the same partitions.
//!
//! Two replicas cannot be reconciled from rows that clients see: a deletion that one of them missed is not
//! visible on the other. This read is the merge of memtables and table files under `Purge::nothing`, as a
//! flush makes it: cells, rows and ranges that a deletion shadows are left out, and nothing else.
//! Invariant: the elements of a partition depend on the writes to it alone, not on how memtables and files
//! hold them, as long as no compaction purged or made tombstones of expired values. The row cache has only
//! live rows and is not consulted.
//!
//! Two kinds of data do not come along, because flushes and reads leave them out as well: cells of dropped
//! columns, and row markers with Cassandra's `EXPIRED_LIVENESS_TTL`.

use std::rc::Rc;

use model::clustering::{ClusteringOrder, OwnedPosition, Position};
use model::reconcile::Purge;
use model::{DeletionTime, Digest, RowView, Token};

use super::merge::{Merge, Step};
use super::partition::Reader;
use super::source::{Input, Source, reading_order};
use super::{Flow, PartitionBound, PartitionRange, Place, ReadCommand};
use crate::error::StorageError;
use crate::shard::Storage;
use crate::tablet::Tablet;

/// Receives the contents of partitions with their deletions: partitions in token order, elements in reading
/// order.
///
/// A partition comes with its deletion and its static row, where it has anything within the slices, a
/// deletion of its own or a static row. Rows and changes follow at ascending positions (descending in a
/// reversed read). Rows are whole, with tombstones, expired cells and their own deletion, and without
/// anything that a deletion shadows. A range deletion in force where a slice begins is opened there, and one
/// in force where a slice ends is closed there. `partition_end` follows each announced partition, also after
/// [`Flow::SkipPartition`], unless the receiver stopped.
pub trait RawConsumer {
    /// A partition begins. `deletion` is [`DeletionTime::LIVE`] if the partition was not deleted.
    fn partition(
        &mut self,
        key: &[u8],
        token: Token,
        deletion: DeletionTime,
        static_row: Option<RowView<'_>>,
    ) -> Flow;
    /// A row of the partition.
    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow;
    /// From `at` on in reading order the range deletion `deletion` is in force, until the next change;
    /// [`DeletionTime::LIVE`] for none.
    fn change(&mut self, at: Position<'_>, deletion: DeletionTime) -> Flow;
    /// The partition ends.
    fn partition_end(&mut self) -> Flow;
    /// The read ends early because the receiver answered [`Flow::Stop`]. All before `place` was handed over
    /// and nothing behind it; its position is a bound, never a row, and `None` behind the whole partition.
    /// `open` is the range deletion in force there: a read of the rest opens it again at `place`.
    fn stopped(&mut self, place: Place<'_>, open: DeletionTime) {
        let _ = (place, open);
    }
}

/// Takes all of the read; one that is to end early is a read of less.
impl RawConsumer for Digest {
    fn partition(
        &mut self,
        key: &[u8],
        _: Token,
        deletion: DeletionTime,
        static_row: Option<RowView<'_>>,
    ) -> Flow {
        Digest::partition(self, key, deletion, static_row);
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        Digest::row(self, clustering, row);
        Flow::Continue
    }

    fn change(&mut self, at: Position<'_>, deletion: DeletionTime) -> Flow {
        Digest::change(self, at, deletion);
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Digest::partition_end(self);
        Flow::Continue
    }
}

impl Storage {
    /// Reads partitions of this shard's tablets in token order, with deletions and dead data. Within a
    /// partition a reversed read goes from the last position to the first. The command's `now` and
    /// `bypass_cache` have no meaning here: nothing expires for this read, and it passes by the row cache.
    ///
    /// Other tasks run between rows. For what a read sees of writes that end while it runs see
    /// [`Storage::read`].
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`]; [`StorageError::WrongShard`] for a key of another shard;
    /// [`StorageError::TableFileCorrupt`] naming the file, and reading errors. Elements handed over before
    /// stay handed over.
    pub async fn read_raw(
        &self,
        command: &ReadCommand,
        consumer: &mut dyn RawConsumer,
    ) -> Result<(), StorageError> {
        let scratch = self.take_scratch();
        let mut reader =
            Reader { command, scratch, permits: &self.0.permits, kept: &self.0.kept_scans, room: None };
        let result = self.read_raw_with(&mut reader, consumer).await;
        self.return_scratch(reader.scratch);
        result.inspect_err(|error| self.note_read_error(error))
    }

    async fn read_raw_with(
        &self,
        reader: &mut Reader<'_>,
        consumer: &mut dyn RawConsumer,
    ) -> Result<(), StorageError> {
        let command = reader.command;
        let store = self.table_store(command.table.id())?;
        let (from, to) = match &command.range {
            PartitionRange::Key(key) => {
                let tablet = self.tablet_soon(&store, key.token).await?;
                tablet.check_readable()?;
                self.note_read(command.table.id(), &key.key);
                reader.raw_partition(&tablet, key.token, &key.key, consumer).await?;
                return Ok(());
            }
            PartitionRange::Between { from, to } => (from, to),
        };
        let permit = self.begin_scan().await?;
        reader.room = Some(Rc::clone(permit.room()));
        let map = store.map();
        let (first, last) = (map.tablet_of(from.token), map.tablet_of(to.token));
        // In token order. A tablet that leaves before its turn fails the scan: its rows would be missing.
        for id in store.ids_between(first, last) {
            let tablet = self.tablet_soon(&store, map.range(id).0).await?;
            tablet.check_readable()?;
            let range = map.range(tablet.id);
            if reader.raw_scan(&tablet, range, from, to, consumer).await? == Flow::Stop {
                break;
            }
        }
        Ok(())
    }
}

impl Reader<'_> {
    async fn raw_partition(
        &mut self,
        tablet: &Tablet,
        token: Token,
        key: &[u8],
        consumer: &mut dyn RawConsumer,
    ) -> Result<Flow, StorageError> {
        let slices = &self.command.slices;
        // Memtables and files are taken together, before anything waits. A file without any of the slices
        // may be left out: `may_contain_slices` says yes for deletions of partitions and static rows.
        let mut files: Vec<_> =
            tablet.files().iter().filter(|f| f.sstable().may_contain(token, key)).cloned().collect();
        files.retain(|file| file.sstable().may_contain_slices(slices));
        let mut sources = Vec::new();
        for memtable in tablet.memtables().iter() {
            self.add_memory(&mut sources, memtable, token, key, !files.is_empty());
        }
        let permit = if files.is_empty() { None } else { Some(self.permits.read(files.len()).await?) };
        for file in files {
            let opened = file
                .open_in(permit.as_ref().map(|permit| permit.room()))
                .partition(token, key, slices, self.command.reversed)
                .await
                .map_err(|error| file.failed(error))?;
            let reader = opened.map(Box::new);
            sources.extend(reader.map(|reader| Source::new(Input::Partition { file, reader })));
        }
        if sources.is_empty() {
            return Ok(Flow::Continue);
        }
        let (flow, _) = self.walk_raw(sources, token, key, consumer).await?;
        Ok(flow)
    }

    async fn raw_scan(
        &mut self,
        tablet: &Tablet,
        range: (Token, Token),
        from: &PartitionBound,
        to: &PartitionBound,
        consumer: &mut dyn RawConsumer,
    ) -> Result<Flow, StorageError> {
        let mut scan = self.open_scan(tablet, range, from, to).await?;
        while let Some(token) = scan.next() {
            let (sources, lent) = self.sources_of(&mut scan, token).await?;
            let (flow, sources) = self.walk_raw(sources, token, scan.key(), consumer).await?;
            scan.give_back(lent, sources);
            if flow == Flow::Stop {
                self.keep(scan, token);
                return Ok(flow);
            }
            scan.pass(token).await?;
            reactor::maybe_yield().await;
        }
        Ok(Flow::Continue)
    }

    /// Hands over the merge of the sources of one partition; gives the sources back.
    async fn walk_raw(
        &mut self,
        sources: Vec<Source>,
        token: Token,
        key: &[u8],
        consumer: &mut dyn RawConsumer,
    ) -> Result<(Flow, Vec<Source>), StorageError> {
        let shape = self.shape();
        let mut merge = Merge::new(Rc::clone(&self.command.table), sources, Purge::nothing());
        let static_bytes = merge.take_static_row();
        let mut handover = Handover {
            consumer,
            key: (token, key),
            deletion: merge.partition_deletion(),
            static_row: (!static_bytes.is_empty()).then(|| RowView::trusted(&static_bytes)),
            reversed: shape.reversed,
            announced: false,
            open: DeletionTime::LIVE,
            last: None,
        };
        let flow = loop {
            let flow = match merge.step(shape).await? {
                Step::End => break handover.end(),
                Step::DeadRow => continue,
                Step::Row => {
                    let (clustering, row) = merge.row();
                    handover.row(clustering, row, shape.orders)
                }
                // A step says so as well where the change alters nothing that is reported.
                Step::Change if merge.told() == handover.open => continue,
                Step::Change => handover.change(merge.change(), merge.told(), shape.orders),
            };
            match flow {
                Flow::Continue => {}
                Flow::SkipPartition => break handover.partition_end(),
                Flow::Stop => break Flow::Stop,
            }
        };
        Ok((flow, merge.into_sources()))
    }
}

/// One partition on its way to its receiver.
struct Handover<'a> {
    consumer: &'a mut dyn RawConsumer,
    key: (Token, &'a [u8]),
    deletion: DeletionTime,
    static_row: Option<RowView<'a>>,
    reversed: bool,
    announced: bool,
    /// The range deletion in force.
    open: DeletionTime,
    /// Position of the last element.
    last: Option<OwnedPosition>,
}

impl Handover<'_> {
    fn row(&mut self, clustering: &[u8], row: RowView<'_>, orders: &[ClusteringOrder]) -> Flow {
        self.ascend(Position::row(clustering), orders);
        assert!(!row.is_empty(), "a row of which nothing is left is not handed over: {clustering:?}");
        let flow = self.announce();
        if flow != Flow::Continue {
            return flow;
        }
        let flow = self.consumer.row(clustering, row);
        let behind = if self.reversed { Position::before(clustering) } else { Position::after(clustering) };
        self.told(flow, Some(behind))
    }

    fn change(&mut self, at: Position<'_>, deletion: DeletionTime, orders: &[ClusteringOrder]) -> Flow {
        self.ascend(at, orders);
        assert!(at.weight != 0, "a range deletion changes between rows, not at {at:?}");
        let flow = self.announce();
        if flow != Flow::Continue {
            return flow;
        }
        self.open = deletion;
        let flow = self.consumer.change(at, deletion);
        self.told(flow, Some(at))
    }

    /// Ends a partition that was read to its end.
    fn end(&mut self) -> Flow {
        assert!(self.open.is_live(), "a range deletion is left open at the end: {:?}", self.open);
        if !self.announced && self.deletion.is_live() && self.static_row.is_none() {
            return Flow::Continue;
        }
        match self.announce() {
            Flow::Stop => Flow::Stop,
            Flow::Continue | Flow::SkipPartition => self.partition_end(),
        }
    }

    fn partition_end(&mut self) -> Flow {
        self.open = DeletionTime::LIVE;
        let flow = self.consumer.partition_end();
        self.told(flow, None)
    }

    /// Announces the partition, unless that was done.
    fn announce(&mut self) -> Flow {
        if self.announced {
            return Flow::Continue;
        }
        self.announced = true;
        let (token, key) = self.key;
        let flow = self.consumer.partition(key, token, self.deletion, self.static_row);
        self.told(flow, Some(if self.reversed { Position::END } else { Position::START }))
    }

    /// Says where the read ended, if the receiver wants no more.
    fn told(&mut self, flow: Flow, position: Option<Position<'_>>) -> Flow {
        if flow == Flow::Stop {
            let (token, key) = self.key;
            self.consumer.stopped(Place { token, key, position }, self.open);
        }
        flow
    }

    /// Notes the position of an element, which lies behind the one before it.
    fn ascend(&mut self, at: Position<'_>, orders: &[ClusteringOrder]) {
        let Some(last) = &mut self.last else {
            self.last = Some(at.to_owned());
            return;
        };
        let order = reading_order(last.as_ref(), at, orders, self.reversed);
        assert!(order.is_lt(), "{at:?} comes behind {last:?}, reversed: {}", self.reversed);
        last.prefix.clear();
        last.prefix.extend_from_slice(at.prefix.0);
        last.weight = at.weight;
    }
}
