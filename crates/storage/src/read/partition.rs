//! Reads one partition: straight out of a memtable where that is all there is, else through a merge.

use std::rc::Rc;

use model::reconcile::{Purge, deletion, is_live};
use model::{DeletionTime, RowView, Token, Unfiltered};

use super::merge::Merge;
use super::skip::{asks_for_one_row, is_older_than_all, newest_first};
use super::source::{Input, Source};
use super::visible::{VisibleScratch, visible};
use super::{Flow, ReadCommand, RowConsumer};
use crate::error::StorageError;
use crate::memtable::{Memtable, PartitionRef, Pin, Shape, VersionCursor};
use crate::tablet::{TableFile, Tablet};

/// Rows handed over before looking whether somebody else should run.
const ROWS_PER_LOOK: u32 = 64;

/// One read at work.
pub(super) struct Reader<'c> {
    pub(super) command: &'c ReadCommand,
    pub(super) scratch: VisibleScratch,
}

impl<'c> Reader<'c> {
    pub(super) fn shape(&self) -> Shape<'c> {
        Shape {
            orders: self.command.table.clustering_orders(),
            slices: &self.command.slices,
            reversed: self.command.reversed,
        }
    }

    /// Reads the partition with that key.
    pub(super) async fn partition(
        &mut self,
        tablet: &Tablet,
        token: Token,
        key: &[u8],
        consumer: &mut dyn RowConsumer,
    ) -> Result<Flow, StorageError> {
        let may_have = |file: &&Rc<TableFile>| {
            let sstable = file.sstable();
            sstable.may_contain(token, key) && sstable.may_contain_slices(&self.command.slices)
        };
        let files: Vec<_> = tablet.files().iter().filter(may_have).cloned().collect();
        if files.is_empty()
            && let Some(only) = tablet.only_memtable()
        {
            let found = {
                let contents = only.contents();
                let Some(partition) = contents.find(token, key) else { return Ok(Flow::Continue) };
                contents.only_version(partition).map(|version| (partition, version))
            };
            if let Some((partition, version)) = found {
                return Ok(self.walk_memory(&only, partition, version, consumer).await);
            }
        }
        // Boxed, so that a read from memory does not carry the space that reading files takes.
        Box::pin(self.merged_partition(tablet, files, token, key, consumer)).await
    }

    /// Reads a partition out of memtables and files together.
    async fn merged_partition(
        &mut self,
        tablet: &Tablet,
        mut files: Vec<Rc<TableFile>>,
        token: Token,
        key: &[u8],
        consumer: &mut dyn RowConsumer,
    ) -> Result<Flow, StorageError> {
        let mut sources = Vec::new();
        for memtable in tablet.memtables().iter() {
            self.add_memory(&mut sources, memtable, token, key, !files.is_empty());
        }
        let (table, shape) = (&self.command.table, self.shape());
        // One file alone is read at once: whatever is in memory too costs less than finding out.
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
                .open()
                .partition(token, key, &self.command.slices, self.command.reversed)
                .await
                .map_err(|error| file.failed(error))?;
            if let Some(reader) = opened {
                sources.push(Source::new(Input::Partition { file, reader: Box::new(reader) }));
            }
        }
        if sources.is_empty() {
            return Ok(Flow::Continue);
        }
        let (flow, _) = self.walk_sources(sources, token, key, consumer).await?;
        Ok(flow)
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

    /// Hands over a partition that one version in memory holds, rows uncopied where they are seen whole.
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
        let announce =
            |contents: &crate::memtable::Contents<'_>, consumer: &mut dyn RowConsumer, rows: bool| {
                let (token, key) = contents.key(partition);
                let (deletion, row) = contents.head(partition, version);
                // Static rows are rare and asked for once in a partition: buffers of their own do not show.
                let mut scratch = VisibleScratch::default();
                let row = row.and_then(|row| visible(table, row, deletion, now, &mut scratch));
                if rows || row.is_some() { consumer.partition(key, token, row) } else { Flow::SkipPartition }
            };
        loop {
            {
                let contents = memtable.contents();
                let (whole, _) = contents.head(partition, version);
                let mut left = ROWS_PER_LOOK;
                while left > 0 {
                    left -= 1;
                    let Some(next) = cursor.next(&contents, shape) else {
                        if !announced {
                            match announce(&contents, consumer, false) {
                                Flow::Stop => return Flow::Stop,
                                // Nothing to see, or seen and not wanted further.
                                Flow::SkipPartition => return Flow::Continue,
                                Flow::Continue => {}
                            }
                        }
                        return consumer.partition_end();
                    };
                    let (clustering, row) = match next {
                        Unfiltered::Change { deletion, .. } => {
                            range = deletion;
                            continue;
                        }
                        Unfiltered::Row { clustering, row } => (clustering, row),
                    };
                    let active = deletion(whole, range);
                    let Some(row) = visible(table, row, active, now, &mut self.scratch) else { continue };
                    let mut flow = Flow::Continue;
                    if !announced {
                        announced = true;
                        flow = announce(&contents, consumer, true);
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
                reactor::yield_now().await;
            }
        }
    }

    /// Hands over the merge of several sources; gives the sources back.
    pub(super) async fn walk_sources(
        &mut self,
        sources: Vec<Source>,
        token: Token,
        key: &[u8],
        consumer: &mut dyn RowConsumer,
    ) -> Result<(Flow, Vec<Source>), StorageError> {
        let (shape, now) = (self.shape(), self.command.now);
        let mut merge = Merge::new(Rc::clone(&self.command.table), sources, Purge::everything(now));
        let static_bytes = merge.take_static_row();
        let static_row =
            (!static_bytes.is_empty()).then(|| RowView::trusted(&static_bytes)).filter(|r| is_live(*r, now));
        let mut announced = false;
        let mut rows = 0u32;
        let flow = loop {
            let (clustering, row) = match merge.next(shape).await? {
                None => {
                    if !announced {
                        if static_row.is_none() {
                            break Flow::Continue;
                        }
                        if consumer.partition(key, token, static_row) == Flow::Stop {
                            break Flow::Stop;
                        }
                    }
                    break consumer.partition_end();
                }
                Some(Unfiltered::Change { .. }) => continue,
                Some(Unfiltered::Row { clustering, row }) => (clustering, row),
            };
            if !is_live(row, now) {
                continue;
            }
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
            rows += 1;
            if rows.is_multiple_of(ROWS_PER_LOOK) && reactor::need_preempt() {
                merge.pin();
                reactor::yield_now().await;
            }
        };
        Ok((flow, merge.into_sources()))
    }
}
