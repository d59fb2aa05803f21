//! Reads the partitions of one tablet in token order, over memtables and table files at once.
//!
//! The set of memtables and files is taken when the tablet is entered. Partitions that come into a memtable
//! behind the scan's place are found, because the place is a key and not a pointer. A scan that stopped
//! because its reader had enough is kept for the next page (`kept`).

use std::any::Any;
use std::rc::Rc;

use model::tablet::TabletId;
use model::{DeletionTime, Table, Token, Unfiltered, clustering::Slice};
use sstable::{AtHand, RowRoom, Scanner};

use super::dead::Graves;
use super::kept::{Reads, Scanners};
use super::partition::{ROWS_PER_LOOK, Reader};
use super::source::{Input, Source};
use super::visible::{VisibleScratch, visible};
use super::{Flow, PartitionBound, ReadCommand, RowConsumer};
use crate::error::StorageError;
use crate::memtable::{Memtable, PartitionRef, Walk};
use crate::tablet::{TableFile, Tablet};

/// The walk of a scan over the partitions of one tablet.
pub(super) struct TabletScan {
    memories: Vec<MemoryScan>,
    files: Vec<FileScan>,
    /// The tablet, its set of files and its table, of the moment when it was entered.
    tablet: TabletId,
    set: Rc<Vec<Rc<TableFile>>>,
    table: Rc<Table>,
    /// Partitions before this were passed.
    place: PartitionBound,
    to: PartitionBound,
    /// Key of the partition that the scan stands at.
    key: Vec<u8>,
}

/// A memtable with the scan's place in it.
struct MemoryScan {
    memtable: Rc<Memtable>,
    walk: Walk,
    at: Option<PartitionRef>,
    /// Whether it has the partition that the scan stands at, at `at`.
    is_here: bool,
}

/// A table file with the scan's place in it; the scanner is away while a merge uses it.
struct FileScan {
    /// Its index in the tablet's set of files.
    index: usize,
    file: Rc<TableFile>,
    scanner: Option<Box<Scanner>>,
    /// Whether it has the partition that the scan stands at.
    is_here: bool,
}

/// The files of a scan whose scanners a merge uses, by index.
pub(super) struct Lent(Vec<usize>);

impl Reader<'_> {
    /// Reads the partitions of `tablet` between two bounds.
    pub(super) async fn scan(
        &mut self,
        tablet: &Tablet,
        range: (Token, Token),
        from: &PartitionBound,
        to: &PartitionBound,
        consumer: &mut dyn RowConsumer,
    ) -> Result<Flow, StorageError> {
        let mut scan = self.open_scan(tablet, range, from, to).await?;
        while let Some(token) = scan.next() {
            let flow = self.scanned_partition(&mut scan, token, consumer).await?;
            if flow == Flow::Stop {
                self.keep(scan, token);
                return Ok(flow);
            }
            scan.pass(token).await?;
            reactor::maybe_yield().await;
        }
        Ok(Flow::Continue)
    }

    /// Takes the memtables and files of `tablet`, to walk its partitions between two bounds.
    pub(super) async fn open_scan(
        &self,
        tablet: &Tablet,
        range: (Token, Token),
        from: &PartitionBound,
        to: &PartitionBound,
    ) -> Result<TabletScan, StorageError> {
        let place = if from.token < range.0 {
            PartitionBound { token: range.0, key: None, inclusive: true }
        } else {
            from.clone()
        };
        let to = if to.token > range.1 {
            PartitionBound { token: range.1, key: None, inclusive: true }
        } else {
            to.clone()
        };
        let memories: Vec<MemoryScan> = tablet
            .memtables()
            .iter()
            .map(|memtable| MemoryScan {
                walk: memtable.contents().seek(&place),
                memtable: Rc::clone(memtable),
                at: None,
                is_here: false,
            })
            .collect();
        let (set, table) = (tablet.files(), tablet.table());
        let mut scan = TabletScan {
            memories,
            files: Vec::new(),
            tablet: tablet.id,
            set,
            table,
            place,
            to,
            key: Vec::new(),
        };
        let behind = scan.place.key.as_deref().filter(|_| !scan.place.inclusive);
        let kept = match self.command.reversed {
            // Each partition is opened separately, from its end.
            true => None,
            false => {
                let behind = behind.map(|key| (scan.place.token, key));
                self.kept.take(&scan.reads(self.command), behind)
            }
        };
        scan.files = match kept {
            Some(kept) => self.resume_files(&scan, kept).await?,
            None => self.open_files(&scan).await?,
        };
        Ok(scan)
    }

    /// Opens those of the files that may have partitions between the bounds of a scan.
    async fn open_files(&self, scan: &TabletScan) -> Result<Vec<FileScan>, StorageError> {
        let (place, to) = (&scan.place, &scan.to);
        let mut files = Vec::new();
        for (index, file) in scan.set.iter().enumerate() {
            if place.token <= file.sstable().last_key().0 && file.sstable().first_key().0 <= to.token {
                // A reversed scan opens each partition separately, from its end.
                let slices: &[Slice] = if self.command.reversed { &[] } else { &self.command.slices };
                files.extend(FileScan::open((index, file), self.room.as_ref(), (place, to), slices).await?);
            }
        }
        Ok(files)
    }

    /// Leaves the partition behind in which kept scanners stopped.
    async fn resume_files(&self, scan: &TabletScan, kept: Scanners) -> Result<Vec<FileScan>, StorageError> {
        let passed = (scan.place.token, scan.place.key.as_deref().unwrap_or_default());
        let resumed = kept.into_iter().map(|(index, mut scanner)| {
            scanner.set_room(self.room.as_ref());
            let is_here = (scanner.token(), scanner.key()) == passed;
            FileScan { index, file: Rc::clone(&scan.set[index]), scanner: Some(scanner), is_here }
        });
        let mut files: Vec<_> = resumed.collect();
        FileScan::step(&mut files).await?;
        Ok(files)
    }

    /// Keeps a scan that stopped in the partition it stands at, whose token this is.
    pub(super) fn keep(&self, scan: TabletScan, token: Token) {
        if self.command.reversed || scan.files.iter().any(|file| file.scanner.is_none()) {
            return;
        }
        let mut scan = scan;
        let files = std::mem::take(&mut scan.files);
        let scanners = files.into_iter().filter_map(|file| Some((file.index, file.scanner?))).collect();
        let key = std::mem::take(&mut scan.key);
        self.kept.keep(&scan.reads(self.command), (token, key), scanners);
    }

    async fn scanned_partition(
        &mut self,
        scan: &mut TabletScan,
        token: Token,
        consumer: &mut dyn RowConsumer,
    ) -> Result<Flow, StorageError> {
        match scan.only_holder() {
            Some(Holder::Memory { memtable, partition }) => {
                let only = memtable.contents().only_version(partition);
                if let Some(version) = only {
                    return Ok(self.walk_memory(&memtable, partition, version, consumer).await);
                }
            }
            Some(Holder::File(index)) if !self.command.reversed => {
                let FileScan { file, scanner: Some(scanner), .. } = &mut scan.files[index] else {
                    unreachable!("a file that stands at a partition has its scanner")
                };
                if file.sstable().has_only_values() {
                    return self.walk_file(file, scanner, consumer).await;
                }
            }
            _ => {}
        }
        let (sources, lent) = self.sources_of(scan, token).await?;
        let key = scan.key.as_slice();
        let (flow, sources) = self.walk_sources(sources, self.shape(), false, token, key, consumer).await?;
        scan.give_back(lent, sources);
        Ok(flow)
    }

    /// Hands over a partition that a file without deletions and expiring data has alone: what a merge of it
    /// would say.
    async fn walk_file(
        &mut self,
        file: &TableFile,
        scanner: &mut Scanner,
        consumer: &mut dyn RowConsumer,
    ) -> Result<Flow, StorageError> {
        let (table, now) = (&self.command.table, self.command.now);
        let graves = Graves::new(table, now);
        let mut announced = false;
        let mut rows = 0u32;
        // Static rows are asked for once in a partition: buffers of their own do not show.
        let mut of_static = VisibleScratch::default();
        loop {
            rows = rows.wrapping_add(1);
            if rows.is_multiple_of(ROWS_PER_LOOK) && reactor::need_preempt() {
                super::give_way(rows / ROWS_PER_LOOK).await;
            }
            let is_row = match scanner.next_at_hand().map_err(|error| file.failed(error))? {
                AtHand::Lacking => {
                    Box::pin(scanner.fetch()).await.map_err(|error| file.failed(error))?;
                    continue;
                }
                AtHand::Next(Unfiltered::Row { .. }) => true,
                // A file without deletions has none that ends or begins.
                AtHand::Next(Unfiltered::Change { .. }) => continue,
                AtHand::End => false,
            };
            let mut flow = Flow::Continue;
            let row = is_row.then(|| scanner.row()).and_then(|(clustering, row)| {
                let row = visible(table, row, DeletionTime::LIVE, now, &graves, &mut self.scratch);
                row.map(|row| (clustering, row))
            });
            if !announced && (row.is_some() || !is_row) {
                let static_row = scanner.static_row();
                let static_row = static_row
                    .and_then(|row| visible(table, row, DeletionTime::LIVE, now, &graves, &mut of_static));
                if row.is_none() && static_row.is_none() {
                    return Ok(graves.partition((scanner.token(), scanner.key()), consumer));
                }
                announced = true;
                flow = consumer.partition(scanner.key(), scanner.token(), static_row);
            }
            match row {
                Some((clustering, row)) if flow == Flow::Continue => flow = consumer.row(clustering, row),
                None if !is_row && flow != Flow::Stop => return Ok(consumer.partition_end()),
                _ => {}
            }
            match flow {
                Flow::Continue => {}
                Flow::SkipPartition => return Ok(consumer.partition_end()),
                Flow::Stop => return Ok(Flow::Stop),
            }
        }
    }

    /// The sources of the partition that the scan stands at; they go back to [`TabletScan::give_back`].
    pub(super) async fn sources_of(
        &self,
        scan: &mut TabletScan,
        token: Token,
    ) -> Result<(Vec<Source>, Lent), StorageError> {
        let TabletScan { memories, files, key, .. } = scan;
        let in_files = files.iter().any(|file| file.is_here);
        let mut sources = Vec::new();
        for memory in memories {
            self.add_memory(&mut sources, &memory.memtable, token, key, in_files);
        }
        let mut lent = Vec::new();
        for (index, scan) in files.iter_mut().enumerate() {
            if !scan.is_here {
                continue;
            }
            let file = Rc::clone(&scan.file);
            if self.command.reversed {
                let slices = &self.command.slices;
                let sstable = file.open_in(self.room.as_ref());
                let opened = sstable.partition(token, key, slices, true).await.map_err(|e| file.failed(e))?;
                let reader = opened.map(Box::new);
                sources.extend(reader.map(|reader| Source::new(Input::Partition { file, reader })));
            } else if let Some(scanner) = scan.scanner.take() {
                lent.push(index);
                sources.push(Source::new(Input::Scan { file, scanner }));
            }
        }
        Ok((sources, Lent(lent)))
    }
}

/// The one source of a partition.
enum Holder {
    Memory {
        memtable: Rc<Memtable>,
        partition: PartitionRef,
    },
    /// A file, by index.
    File(usize),
}

impl TabletScan {
    /// Its range and rows, by which it is found again.
    fn reads<'s>(&'s self, command: &'s ReadCommand) -> Reads<'s> {
        let set = Rc::clone(&self.set) as Rc<dyn Any>;
        Reads {
            tablet: self.tablet,
            table: Rc::clone(&self.table),
            set,
            slices: &command.slices,
            to: self.to.as_place(false),
        }
    }

    /// The memtable or file that has the partition the scan stands at, if it is only one.
    fn only_holder(&self) -> Option<Holder> {
        let memories =
            self.memories.iter().filter(|memory| memory.is_here).filter_map(|m| Some((&m.memtable, m.at?)));
        let files = self.files.iter().enumerate().filter(|(_, file)| file.is_here);
        match (single(memories), single(files)) {
            (Count::One((memtable, partition)), Count::None) => {
                Some(Holder::Memory { memtable: Rc::clone(memtable), partition })
            }
            (Count::None, Count::One((index, _))) => Some(Holder::File(index)),
            _ => None,
        }
    }

    /// Moves to the first partition that was not passed; returns its token, `None` at the end of the range.
    pub(super) fn next(&mut self) -> Option<Token> {
        let Self { memories, files, place, key, .. } = self;
        let mut least: Option<Token> = None;
        let mut offer = |token: Token, candidate: &[u8]| {
            if least.is_none_or(|least| (token, candidate) < (least, key.as_slice())) {
                least = Some(token);
                key.clear();
                key.extend_from_slice(candidate);
            }
        };
        for memory in memories.iter_mut() {
            memory.at = memory.memtable.contents().at(&mut memory.walk, place);
            memory.with_key(&mut offer);
        }
        if let Some((token, candidate)) = files.iter().filter_map(FileScan::key).min() {
            offer(token, candidate);
        }
        let token = least?;
        let here = (token, key.as_slice());
        for memory in memories.iter_mut() {
            memory.is_here = memory.with_key(|token, key| (token, key) == here) == Some(true);
        }
        for file in files.iter_mut() {
            file.is_here = file.key() == Some(here);
        }
        self.to.ends_behind(token, &self.key).then_some(token)
    }

    /// Key of the partition that the scan stands at.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Takes back the scanners among the sources of a partition.
    pub(super) fn give_back(&mut self, Lent(lent): Lent, sources: Vec<Source>) {
        let back = sources.into_iter().filter_map(|source| match source.input {
            Input::Scan { scanner, .. } => Some(scanner),
            _ => None,
        });
        for (index, scanner) in lent.into_iter().zip(back) {
            self.files[index].scanner = Some(scanner);
        }
    }

    /// Leaves the partition behind that the scan stands at, whose token this is.
    ///
    /// # Errors
    /// Those of reading table files.
    pub(super) async fn pass(&mut self, token: Token) -> Result<(), StorageError> {
        let Self { memories, files, place, key, .. } = self;
        place.token = token;
        place.inclusive = false;
        let before = place.key.get_or_insert_default();
        before.clear();
        before.extend_from_slice(key);
        for memory in memories.iter_mut().filter(|memory| memory.is_here) {
            memory.memtable.contents().step(&mut memory.walk);
        }
        FileScan::step(files).await
    }
}

impl MemoryScan {
    /// Calls `f` with token and key of the partition that it stands at, if it does.
    fn with_key<T>(&self, mut f: impl FnMut(Token, &[u8]) -> T) -> Option<T> {
        self.at.map(|at| {
            let contents = self.memtable.contents();
            let (token, key) = contents.key(at);
            f(token, key)
        })
    }
}

impl FileScan {
    async fn open(
        (index, file): (usize, &Rc<TableFile>),
        room: Option<&Rc<RowRoom>>,
        (from, to): (&PartitionBound, &PartitionBound),
        slices: &[Slice],
    ) -> Result<Option<Self>, StorageError> {
        let failed = |error| file.failed(error);
        let sstable = file.open_in(room);
        let mut scanner =
            sstable.scan_some(&from.as_place(true), &to.as_place(false), slices).await.map_err(failed)?;
        let more = scanner.next_partition().await.map_err(failed)?;
        let file = Rc::clone(file);
        Ok(more.then(|| Self { index, file, scanner: Some(Box::new(scanner)), is_here: false }))
    }

    /// Token and key of the partition that it stands at.
    fn key(&self) -> Option<(Token, &[u8])> {
        self.scanner.as_ref().map(|scanner| (scanner.token(), scanner.key()))
    }

    /// Moves all that have the scan's partition to the next one; those at their end go.
    async fn step(files: &mut Vec<FileScan>) -> Result<(), StorageError> {
        let mut index = 0;
        while index < files.len() {
            let scan = &mut files[index];
            let mut more = true;
            if scan.is_here
                && let Some(scanner) = &mut scan.scanner
            {
                more = scanner.next_partition().await.map_err(|error| scan.file.failed(error))?;
            }
            if more {
                index += 1;
            } else {
                files.swap_remove(index);
            }
        }
        Ok(())
    }
}

/// Whether there is one of something.
enum Count<T> {
    None,
    One(T),
    More,
}

fn single<T>(mut all: impl Iterator<Item = T>) -> Count<T> {
    match (all.next(), all.next()) {
        (None, _) => Count::None,
        (Some(only), None) => Count::One(only),
        (Some(_), Some(_)) => Count::More,
    }
}
