//! Reads one partition: straight out of a memtable where that is all there is, else through a merge.

use std::rc::Rc;

use model::clustering::Position;
use model::reconcile::{deletion, is_live};
use model::{DeletionTime, RowView, Token, Unfiltered};
use sstable::RowRoom;

use super::both::Both;
use super::cached::CachedPartition;
use super::dead::Graves;
use super::kept::KeptScans;
use super::merge::{Merge, Step};
use super::permit::Permits;
use super::skip::{asks_for_one_row, is_older_than_all, newest_first};
use super::source::{Input, Source};
use super::told;
use super::visible::{VisibleScratch, visible};
use super::{Flow, ReadCommand, RowConsumer, Slices};
use crate::cache::{Claim, Sought, Walked};
use crate::error::StorageError;
use crate::memtable::{Memtable, PartitionRef, Pin, Shape, VersionCursor};
use crate::tablet::Tablet;

/// Rows handed over before checking whether another task should run.
pub(super) const ROWS_PER_LOOK: u32 = 64;

/// One read at work.
pub(super) struct Reader<'c> {
    pub(super) command: &'c ReadCommand,
    pub(super) scratch: VisibleScratch,
    pub(super) permits: &'c Permits,
    pub(super) kept: &'c KeptScans,
    /// Memory of a scan for long rows; a read of one partition has its permit's.
    pub(super) room: Option<Rc<RowRoom>>,
}

impl<'c> Reader<'c> {
    pub(super) fn shape(&self) -> Shape<'c> {
        self.command.shape()
    }

    /// Reads the partition with that key.
    pub(super) async fn partition(
        &mut self,
        tablet: &Tablet,
        token: Token,
        key: &[u8],
        consumer: &mut dyn RowConsumer,
    ) -> Result<Flow, StorageError> {
        let files = tablet.files();
        let claim = tablet.cache().claim().filter(|_| !self.command.bypass_cache);
        let found = match tablet.only_memtable() {
            Some(only) => {
                let contents = only.contents();
                let found = contents.find(token, key);
                let version = found.map(|partition| (partition, contents.only_version(partition)));
                drop(contents);
                version.map(|version| (Some(only), version))
            }
            None => {
                let among = tablet.memtables().iter().find_map(|m| m.contents().find(token, key));
                among.map(|partition| (None, (partition, None)))
            }
        };
        let mut left = None;
        match found {
            None if files.is_empty() => return Ok(Flow::Continue),
            None => {
                if let Some(claim) = claim {
                    match self.walk_cache(tablet, claim, token, key, consumer) {
                        (Walked::Done(flow), _) => return Ok(flow),
                        (Walked::Left(slices), announced) => left = Some((slices, announced)),
                        (Walked::Unknown, _) => {}
                    }
                }
            }
            Some((Some(only), (partition, Some(version)))) => {
                if !files.iter().any(|file| file.sstable().may_contain(token, key)) {
                    return Ok(reactor::in_place!(self.walk_memory(&only, partition, version, consumer)));
                }
                if let Some(claim) = claim
                    && asks_for_one_row(&self.command.table, self.shape())
                {
                    let one = (&only, partition, version);
                    match self.row_of_both((tablet, claim), one, (token, key), consumer) {
                        Both::HandedOver(flow) => return Ok(flow),
                        Both::Gap => left = Some((self.command.slices.clone(), false)),
                        Both::Merge => {}
                    }
                }
            }
            Some(_) => {}
        }
        told::sources(|| places(tablet, token, key), token, key, &self.command.slices);
        // Boxed, so that a read from memory does not carry the space that reading files takes.
        Box::pin(self.merged_partition(tablet, claim, left, token, key, consumer)).await
    }

    /// Reads a partition from memtables and files merged. `left` is set if the first part was read already:
    /// the slices that are left, and whether the partition was announced.
    pub(super) async fn merged_partition(
        &mut self,
        tablet: &Tablet,
        claim: Option<Claim>,
        left: Option<(Slices, bool)>,
        token: Token,
        key: &[u8],
        consumer: &mut dyn RowConsumer,
    ) -> Result<Flow, StorageError> {
        let (slices, announced) = match &left {
            Some((slices, announced)) => (slices, *announced),
            None => (&self.command.slices, false),
        };
        // One row is left only where the cache has a gap; of many rows it may have more.
        let gap = left.is_some() && asks_for_one_row(&self.command.table, self.shape());
        let shape = Shape { slices, ..self.shape() };
        // Taken together, before anything waits.
        let mut files: Vec<_> =
            tablet.files().iter().filter(|f| f.sstable().may_contain(token, key)).cloned().collect();
        let mut sources = Vec::new();
        for memtable in tablet.memtables().iter() {
            self.add_memory(&mut sources, memtable, token, key, !files.is_empty());
        }
        let permit = match self.permits.try_read(files.len()) {
            Some(permit) => permit,
            None => self.permits.read(files.len()).await?,
        };
        match claim {
            Some(claim) if !files.is_empty() => {
                let table = &self.command.table;
                let opened = CachedPartition::open(
                    tablet.cache(),
                    claim,
                    table,
                    (token, key),
                    (files, permit.room()),
                    (shape, gap),
                )
                .await?;
                sources.push(Source::new(Input::Cached(Box::new(opened))));
            }
            _ => {
                files.retain(|file| file.sstable().may_contain_slices(slices));
                // One file alone is read at once: whatever is in memory too costs less than finding out.
                let table = &self.command.table;
                let one_row = asks_for_one_row(table, shape) && (files.len() > 1 || !sources.is_empty());
                if one_row {
                    newest_first(&mut files);
                }
                for file in files {
                    if one_row {
                        for source in &mut sources {
                            source.begin(shape).await?;
                        }
                        if is_older_than_all(table, &sources, &file.open()) {
                            break;
                        }
                    }
                    let opened = file
                        .open_in(Some(permit.room()))
                        .partition(token, key, slices, shape.reversed)
                        .await
                        .map_err(|error| file.failed(error))?;
                    let reader = opened.map(Box::new);
                    sources.extend(reader.map(|reader| Source::new(Input::Partition { file, reader })));
                }
            }
        }
        if sources.is_empty() {
            return Ok(if announced { consumer.partition_end() } else { Flow::Continue });
        }
        let (flow, _) = self.walk_sources(sources, shape, announced, token, key, consumer).await?;
        Ok(flow)
    }

    /// Hands over the rows that the row cache has of a partition that is in no memtable. Also returns whether
    /// the partition was announced.
    pub(super) fn walk_cache(
        &mut self,
        tablet: &Tablet,
        claim: Claim,
        token: Token,
        key: &[u8],
        consumer: &mut dyn RowConsumer,
    ) -> (Walked, bool) {
        let shape = self.shape();
        let (table, now) = (&self.command.table, self.command.now);
        let scratch = &mut self.scratch;
        let (mut announced, mut skipped) = (false, false);
        let sought = Sought { token, key, orders: shape.orders };
        let graves = Graves::new(table, now);
        let walked = tablet.cache().walk(claim, sought, shape, &mut |head, found| {
            let announce = |consumer: &mut dyn RowConsumer, rows: bool| {
                // Static rows are rare and asked for once in a partition: buffers of their own do not show.
                let mut scratch = VisibleScratch::default();
                let row = head.static_row;
                let row = row.and_then(|row| visible(table, row, head.deletion, now, &graves, &mut scratch));
                (rows || row.is_some()).then(|| consumer.partition(key, token, row))
            };
            let Some((clustering, row)) = found else {
                if !announced {
                    match announce(consumer, false) {
                        None => return graves.partition((token, key), consumer),
                        Some(Flow::Stop) => return Flow::Stop,
                        Some(Flow::SkipPartition) => return Flow::Continue,
                        Some(Flow::Continue) => {}
                    }
                }
                return consumer.partition_end();
            };
            let row = visible(table, row, head.deletion, now, &graves, scratch);
            if graves.found_any() {
                let place = passed(clustering, row.is_some(), shape.reversed);
                if graves.say((token, key), Some(place), consumer) == Flow::Stop {
                    return Flow::Stop;
                }
            }
            let Some(row) = row else { return Flow::Continue };
            let mut flow = Flow::Continue;
            if !announced {
                announced = true;
                flow = announce(consumer, true).unwrap_or(flow);
            }
            if flow == Flow::Continue {
                flow = consumer.row(clustering, row);
            }
            skipped = flow == Flow::SkipPartition;
            flow
        });
        let walked = if skipped { Walked::Done(consumer.partition_end()) } else { walked };
        (walked, announced)
    }

    /// Adds the versions of a partition in a memtable, pinned where the read is going to wait.
    pub(super) fn add_memory(
        &self,
        sources: &mut Vec<Source>,
        memtable: &Rc<Memtable>,
        token: Token,
        key: &[u8],
        pinned: bool,
    ) {
        let versions = {
            let contents = memtable.contents();
            let Some(partition) = contents.find(token, key) else { return };
            (partition, contents.versions(partition))
        };
        for version in versions.1 {
            let mut source = Source::memory(memtable, versions.0, version);
            if pinned {
                source.pin(&self.command.table);
            }
            sources.push(source);
        }
    }

    /// Hands over a partition that is in one version in memory; rows that are visible as a whole are not
    /// copied.
    pub(super) async fn walk_memory(
        &mut self,
        memtable: &Rc<Memtable>,
        partition: PartitionRef,
        version: u32,
        consumer: &mut dyn RowConsumer,
    ) -> Flow {
        let shape = self.shape();
        let (table, now) = (&self.command.table, self.command.now);
        let mut cursor = VersionCursor::new(partition, version);
        let mut announced = false;
        let mut range = DeletionTime::LIVE;
        let mut pin = None;
        let mut looks = 0;
        let mut graves = Graves::new(table, now);
        let announce = |contents: &crate::memtable::Contents<'_>,
                        consumer: &mut dyn RowConsumer,
                        graves: &Graves,
                        rows| {
            let (token, key) = contents.key(partition);
            let (deletion, row) = contents.head(partition, version);
            // Static rows are rare and asked for once in a partition: buffers of their own do not show.
            let mut scratch = VisibleScratch::default();
            let row = row.and_then(|row| visible(table, row, deletion, now, graves, &mut scratch));
            (rows || row.is_some()).then(|| consumer.partition(key, token, row))
        };
        loop {
            {
                let contents = memtable.contents();
                let (whole, _) = contents.head(partition, version);
                looks += 1;
                let mut left = ROWS_PER_LOOK;
                while left > 0 {
                    left -= 1;
                    let Some(next) = cursor.next(&contents, shape) else {
                        if !announced {
                            match announce(&contents, consumer, &graves, false) {
                                None => return graves.partition(contents.key(partition), consumer),
                                Some(Flow::Stop) => return Flow::Stop,
                                Some(Flow::SkipPartition) => return Flow::Continue,
                                Some(Flow::Continue) => {}
                            }
                        }
                        return consumer.partition_end();
                    };
                    let (clustering, row) = match next {
                        Unfiltered::Change { position, deletion } => {
                            range = deletion;
                            graves.change(range, whole);
                            let key = contents.key(partition);
                            if graves.say(key, Some(position), consumer) == Flow::Stop {
                                return Flow::Stop;
                            }
                            continue;
                        }
                        Unfiltered::Row { clustering, row } => (clustering, row),
                    };
                    let active = deletion(whole, range);
                    let row = visible(table, row, active, now, &graves, &mut self.scratch);
                    if graves.found_any() {
                        let key = contents.key(partition);
                        // A row that is seen is still to come.
                        let place = passed(clustering, row.is_some(), shape.reversed);
                        if graves.say(key, Some(place), consumer) == Flow::Stop {
                            return Flow::Stop;
                        }
                    }
                    let Some(row) = row else { continue };
                    let mut flow = Flow::Continue;
                    if !announced {
                        announced = true;
                        flow = announce(&contents, consumer, &graves, true).unwrap_or(flow);
                    }
                    if flow == Flow::Continue {
                        flow = consumer.row(clustering, row);
                    }
                    match flow {
                        Flow::Continue => {}
                        Flow::SkipPartition => return consumer.partition_end(),
                        Flow::Stop => return Flow::Stop,
                    }
                }
            }
            if reactor::need_preempt() {
                if pin.is_none() {
                    let (partition, version) = cursor.place();
                    pin = Some(Pin::new(memtable, table, partition, version));
                }
                super::give_way(looks).await;
            }
        }
    }

    /// Hands over the merge of several sources; gives the sources back.
    pub(super) async fn walk_sources(
        &mut self,
        sources: Vec<Source>,
        shape: Shape<'_>,
        mut announced: bool,
        token: Token,
        key: &[u8],
        consumer: &mut dyn RowConsumer,
    ) -> Result<(Flow, Vec<Source>), StorageError> {
        let now = self.command.now;
        told::merged(sources.len());
        let mut merge = Merge::for_reading(Rc::clone(&self.command.table), sources, now);
        let static_bytes = merge.take_static_row();
        let static_row =
            (!static_bytes.is_empty()).then(|| RowView::trusted(&static_bytes)).filter(|r| is_live(*r, now));
        let flow = loop {
            let step = merge.step(shape).await?;
            let graves = merge.graves();
            let place = match step {
                Step::End => {
                    if !announced {
                        if static_row.is_none() {
                            break graves.map_or(Flow::Continue, |g| g.partition((token, key), consumer));
                        }
                        if consumer.partition(key, token, static_row) == Flow::Stop {
                            break Flow::Stop;
                        }
                    }
                    break consumer.partition_end();
                }
                Step::Row => passed(merge.row().0, true, shape.reversed),
                Step::DeadRow => passed(merge.row().0, false, shape.reversed),
                Step::Change => merge.change(),
            };
            if let Some(graves) = graves.filter(|graves| graves.found_any())
                && graves.say((token, key), Some(place), consumer) == Flow::Stop
            {
                break Flow::Stop;
            }
            if step != Step::Row {
                continue;
            }
            let (clustering, row) = merge.row();
            let mut flow = Flow::Continue;
            if !announced {
                announced = true;
                flow = consumer.partition(key, token, static_row);
            }
            if flow == Flow::Continue {
                flow = consumer.row(clustering, row);
            }
            match flow {
                Flow::Continue => {}
                Flow::SkipPartition => break consumer.partition_end(),
                Flow::Stop => break Flow::Stop,
            }
        };
        Ok((flow, merge.into_sources()))
    }
}

/// The places of a partition, for a trace.
#[cold]
pub(super) fn places(tablet: &Tablet, token: Token, key: &[u8]) -> told::Places {
    let memtables = tablet.memtables();
    let having = memtables.iter().filter(|memtable| memtable.contents().find(token, key).is_some()).count();
    let files = tablet.files().iter().map(|file| file.sstable().clone()).collect();
    told::Places { memtables: (memtables.len(), having), files }
}

/// The position reached after the row at `clustering` was checked; before the row if it is to be handed over.
pub(super) fn passed(clustering: &[u8], seen: bool, reversed: bool) -> Position<'_> {
    match (seen, reversed) {
        (false, _) => Position::row(clustering),
        (true, false) => Position::before(clustering),
        (true, true) => Position::after(clustering),
    }
}
