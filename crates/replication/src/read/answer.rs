//! Answers between shards: partitions and rows as bytes, in pages.
//!
//! ```text
//! page      := frame*
//! frame     := 1 token:i64 key:sized has_static:u8 [static_row:sized]      a partition begins
//!            | 2 clustering:sized row:sized                                a row of it
//!            | 3                                                           it ends
//!            | 4 tombstones:u32 passed:u32 token:i64 key:sized weight:i8 prefix:sized
//!                                                                          dead data before that place
//! sized     := length:u32 bytes                                            (little endian)
//! ```
//! The weight of a place at the end of a partition is [`AT_END`]. A page ends after [`PAGE_BYTES`],
//! [`PAGE_DEAD`] or when its limits are reached, and the reader requests the data behind its last place.
//! Invariant: a page that is not the last makes progress, so the number of requests is finite.

use model::clustering::{Clustering, OwnedPosition, Position};
use model::partition_key::DecoratedKey;
use model::{RowView, TableId, Token};
use storage::{Dead, Flow, PartitionRange, Place, ReadCommand, RowConsumer, Slices};

use super::ReadLimits;
use super::position::{behind, resume_after};
use super::rest::Rest;
use crate::admission::{self, Operation};
use crate::error::ReplicaFailure;
use crate::replicator::Replicator;

/// Bytes after which a page ends; it may contain one row more.
pub(super) const PAGE_BYTES: usize = 256 * 1024;

/// Dead items after which a page ends: passing them takes a few milliseconds.
const PAGE_DEAD: u32 = 10_000;

/// The weight that marks the end of a partition.
const AT_END: i8 = 2;

const PARTITION: u8 = 1;
const ROW: u8 = 2;
const END: u8 = 3;
const DEAD: u8 = 4;

/// A read on its way to another shard.
#[derive(Debug, Clone)]
pub(super) struct Request {
    table: TableId,
    range: PartitionRange,
    slices: Slices,
    reversed: bool,
    now: u32,
    bypass_cache: bool,
    limits: ReadLimits,
    /// Whether the page counts against the limits of its partition: the first page of a read of one.
    counts: bool,
    /// The range behind `range`, if `range` is the rest of one partition inside which a page ended.
    then: Option<PartitionRange>,
}

impl Request {
    pub(super) fn new(command: &ReadCommand, limits: ReadLimits) -> Self {
        Self {
            table: command.table.id(),
            range: command.range.clone(),
            slices: command.slices.clone(),
            reversed: command.reversed,
            now: command.now,
            bypass_cache: command.bypass_cache,
            limits,
            counts: matches!(command.range, PartitionRange::Key(_))
                && admission::may_be_limited(&command.table),
            then: None,
        }
    }

    /// What is left, from this request on, of a read of which `rest` was left before; `command` is the whole.
    pub(super) fn left(self, rest: &Rest, command: &ReadCommand) -> Rest {
        // This request's range is the rest's up to the end of a part.
        let on = |range: PartitionRange| match (range, &rest.range) {
            (PartitionRange::Between { from, .. }, PartitionRange::Between { to, .. }) => {
                PartitionRange::Between { from, to: to.clone() }
            }
            (range, _) => range,
        };
        match (&self.range, &rest.range) {
            (PartitionRange::Key(key), PartitionRange::Between { .. }) => {
                let then = behind(&rest.range, key);
                Rest { range: self.range, slices: self.slices, inside: None, then }
            }
            (PartitionRange::Key(_), PartitionRange::Key(_)) => Rest { slices: self.slices, ..rest.clone() },
            (PartitionRange::Between { .. }, _) => {
                let slices = command.slices.clone();
                Rest { range: on(self.range), slices, inside: None, then: rest.then.clone() }
            }
        }
    }

    /// The next request; `None` if everything was read.
    pub(super) fn after(mut self, page: &Answer, fed: Fed, command: &ReadCommand) -> Option<Self> {
        assert!(
            page.last.is_some() || !page.full,
            "a page of {} bytes that has no place behind it says that more follows",
            page.bytes.len()
        );
        self.counts = false;
        let then = self.then.take();
        let key = match (&page.last, page.full) {
            (Some(last), true) => last,
            _ => {
                // This range is done; the one behind it remains.
                self.range = then?;
                self.slices = command.slices.clone();
                return Some(self);
            }
        };
        let rest = match then {
            Some(range) => Some(range),
            None => behind(&self.range, &key.key),
        };
        match (&key.position, fed) {
            // If the partition was not announced, the consumer had no opportunity to skip it.
            (Some(position), fed) if fed == Fed::InsidePartition || !key.announced => {
                let orders = command.table.clustering_orders();
                resume_after(&mut self.slices, position.as_ref(), self.reversed, orders);
                self.range = PartitionRange::Key(key.key.clone());
                self.then = rest;
            }
            _ => {
                self.range = rest?;
                self.slices = command.slices.clone();
            }
        }
        Some(self)
    }
}

/// One page.
#[derive(Debug)]
pub(super) struct Answer {
    bytes: Vec<u8>,
    /// Whether more may follow.
    full: bool,
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    key: DecoratedKey,
    /// The last row or place, if the page ended inside the partition.
    position: Option<OwnedPosition>,
    /// Whether a frame announced the partition.
    announced: bool,
}

/// The place where feeding a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fed {
    /// The consumer stopped.
    Stopped,
    /// Inside a partition of which the consumer wants more.
    InsidePartition,
    /// Between partitions, or inside one that the consumer skips.
    Between,
}

/// Reads one page on this shard.
pub(super) async fn answer(replicator: &Replicator, request: Request) -> Result<Answer, ReplicaFailure> {
    let storage = replicator.storage();
    let table = storage.schema().table_by_id(request.table).cloned();
    let table = table.or_else(|| storage.fragments_table_by_id(request.table));
    let table = table.ok_or(ReplicaFailure::TableGone(request.table))?;
    if request.counts
        && let PartitionRange::Key(key) = &request.range
    {
        replicator.limiter().check(&table, key.token, Operation::Read, false)?;
    }
    let command = ReadCommand {
        table,
        range: request.range,
        slices: request.slices,
        reversed: request.reversed,
        now: request.now,
        bypass_cache: request.bypass_cache,
    };
    let mut page = Page::new(request.limits);
    storage.read(&command, &mut page).await?;
    page.append_dead();
    let (inside, announced) = (page.inside, page.announced);
    let last = page.key.map(|key| Last { key, position: inside.then_some(page.position), announced });
    Ok(Answer { bytes: page.bytes, full: page.full, last })
}

#[derive(Debug)]
struct Page {
    bytes: Vec<u8>,
    limits: ReadLimits,
    rows: usize,
    partition_rows: usize,
    /// The partition read last, and the place in it.
    key: Option<DecoratedKey>,
    position: OwnedPosition,
    /// Whether that partition has not ended, and whether a frame announced it.
    inside: bool,
    announced: bool,
    /// Dead data passed before the place above and not reported yet; and the number of all items passed.
    dead: Dead,
    passed: u32,
    full: bool,
}

impl Page {
    fn new(limits: ReadLimits) -> Self {
        Self {
            bytes: Vec::new(),
            limits,
            rows: 0,
            partition_rows: 0,
            key: None,
            position: Position::START.to_owned(),
            inside: false,
            announced: false,
            dead: Dead::default(),
            passed: 0,
            full: false,
        }
    }

    /// Reports the dead data that was passed, if nothing was read behind it yet.
    fn append_dead(&mut self) {
        if self.dead == Dead::default() {
            return;
        }
        let Some(key) = self.key.take() else { return };
        let dead = std::mem::take(&mut self.dead);
        self.bytes.push(DEAD);
        self.bytes.extend_from_slice(&dead.tombstones.to_le_bytes());
        self.bytes.extend_from_slice(&dead.passed.to_le_bytes());
        self.bytes.extend_from_slice(&key.token.0.to_le_bytes());
        self.sized(&key.key);
        let weight = if self.inside { self.position.weight } else { AT_END };
        self.bytes.push(weight.cast_unsigned());
        let prefix = std::mem::take(&mut self.position.prefix);
        self.sized(if self.inside { &prefix } else { &[] });
        self.position.prefix = prefix;
        self.key = Some(key);
    }

    fn sized(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("keys and rows are shorter than a frame");
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(bytes);
    }

    fn at(&mut self, position: Position<'_>) {
        self.position.prefix.clear();
        self.position.prefix.extend_from_slice(position.prefix.0);
        self.position.weight = position.weight;
    }

    fn flow(&mut self) -> Flow {
        if self.bytes.len() >= PAGE_BYTES || self.limits.rows.is_some_and(|most| self.rows >= most) {
            self.full = true;
            return Flow::Stop;
        }
        Flow::Continue
    }
}

impl RowConsumer for Page {
    fn partition(&mut self, key: &[u8], token: Token, static_row: Option<RowView<'_>>) -> Flow {
        self.append_dead();
        self.bytes.push(PARTITION);
        self.bytes.extend_from_slice(&token.0.to_le_bytes());
        self.sized(key);
        self.bytes.push(u8::from(static_row.is_some()));
        if let Some(row) = static_row {
            self.sized(row.as_bytes());
        }
        self.key = Some(DecoratedKey { token, key: key.to_vec() });
        self.partition_rows = 0;
        self.inside = false;
        self.announced = true;
        if self.limits.rows_per_partition == Some(0) { Flow::SkipPartition } else { Flow::Continue }
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        self.append_dead();
        self.bytes.push(ROW);
        self.sized(clustering);
        self.sized(row.as_bytes());
        self.at(Position::row(clustering));
        self.inside = true;
        self.rows += 1;
        self.partition_rows += 1;
        if self.limits.rows_per_partition.is_some_and(|most| self.partition_rows >= most) {
            return Flow::SkipPartition;
        }
        self.flow()
    }

    fn partition_end(&mut self) -> Flow {
        self.append_dead();
        self.bytes.push(END);
        self.inside = false;
        self.flow()
    }

    fn dead(&mut self, dead: Dead, place: Place<'_>) -> Flow {
        let same = self.key.as_ref().is_some_and(|key| key.token == place.token && key.key == place.key);
        if !same {
            self.key = Some(DecoratedKey { token: place.token, key: place.key.to_vec() });
            self.announced = false;
        }
        self.inside = place.position.is_some();
        if let Some(position) = place.position {
            self.at(position);
        }
        self.dead.tombstones = self.dead.tombstones.saturating_add(dead.tombstones);
        self.dead.passed = self.dead.passed.saturating_add(dead.passed);
        self.passed = self.passed.saturating_add(dead.passed);
        if self.passed >= PAGE_DEAD && dead.passed > 0 {
            self.full = true;
            return Flow::Stop;
        }
        Flow::Continue
    }
}

impl Answer {
    /// Hands the page's contents to a consumer. `announced` says that the first partition was announced to
    /// the consumer.
    ///
    /// `None` if the page is broken.
    pub(super) fn feed(&self, consumer: &mut dyn RowConsumer, mut announced: bool) -> Option<Fed> {
        let mut rest = self.bytes.as_slice();
        let (mut inside, mut skipping) = (announced, false);
        while let Some((&kind, after)) = rest.split_first() {
            rest = after;
            let flow = match kind {
                PARTITION => {
                    let token = Token(i64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?));
                    let key = sized(&mut rest)?;
                    let static_row = match take(&mut rest, 1)? {
                        [0] => None,
                        _ => Some(RowView::trusted(sized(&mut rest)?)),
                    };
                    skipping = false;
                    inside = true;
                    if std::mem::take(&mut announced) {
                        Flow::Continue
                    } else {
                        consumer.partition(key, token, static_row)
                    }
                }
                ROW => {
                    let clustering = sized(&mut rest)?;
                    let row = RowView::trusted(sized(&mut rest)?);
                    if skipping { Flow::Continue } else { consumer.row(clustering, row) }
                }
                END => {
                    inside = false;
                    skipping = false;
                    consumer.partition_end()
                }
                DEAD => {
                    let dead = Dead { tombstones: number(&mut rest)?, passed: number(&mut rest)? };
                    let token = Token(i64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?));
                    let key = sized(&mut rest)?;
                    let weight = take(&mut rest, 1)?[0].cast_signed();
                    let prefix = Clustering(sized(&mut rest)?);
                    let position = (weight != AT_END).then_some(Position { prefix, weight });
                    let place = Place { token, key, position };
                    if skipping { Flow::Continue } else { consumer.dead(dead, place) }
                }
                _ => return None,
            };
            match flow {
                Flow::Continue => {}
                Flow::SkipPartition => skipping = true,
                Flow::Stop => return Some(Fed::Stopped),
            }
        }
        let cut_inside = self.full && self.last.as_ref().is_some_and(|last| last.position.is_some());
        if inside && (skipping || (announced && !cut_inside)) {
            // The page ended inside a partition of which no more is read, or found no more of the one that
            // was announced to the consumer: its end is reported here.
            inside = false;
            if consumer.partition_end() == Flow::Stop {
                return Some(Fed::Stopped);
            }
        }
        Some(if inside { Fed::InsidePartition } else { Fed::Between })
    }
}

fn take<'b>(rest: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(take(rest, 4)?.try_into().ok()?))
}

fn sized<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
    take(rest, length as usize)
}
