//! One page of a raw read, as a replica answers it: contents, or a digest of them, or both.
//!
//! A page ends by what a purge at the coordinator's `gc_before` would leave, so that replicas with equal
//! contents end at one place however each compacted them: at a limit of live rows, or behind
//! [`PAGE_BYTES`]. Only where more than [`PAGE_BYTES_MAX`] are to be sent does a page end by what is stored;
//! the place at which it ends is part of the digest. Key, static row and the deletion in force at the first
//! place come again with every page of a partition and do not count within it. Invariant: a page that is not
//! the last has an element, so the number of pages is finite.

use model::clustering::{OwnedPosition, Position};
use model::deletion::LocalSeconds;
use model::mutation::MutationBuilder;
use model::partition_key::DecoratedKey;
use model::reconcile::{Digest, Purge, compact_row, deletion, is_live};
use model::{DeletionTime, RowView, TableId, Token};
use storage::{Flow, Place, RawConsumer};
use wire::node::answer::{AnswerBuilder, End};

use super::ReadLimits;

/// Bytes of what a purge would leave, after which a page ends behind the next row.
pub(super) const PAGE_BYTES: usize = 256 * 1024;
/// Bytes of an answer, after which a page ends at the next element.
const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes that each element counts beside its own.
const ELEMENT_BYTES: usize = 16;

/// What is asked of one page.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageOf {
    pub(super) table: TableId,
    pub(super) reversed: bool,
    pub(super) limits: ReadLimits,
    /// The present time of the read, and the time before which tombstones may go.
    pub(super) now: LocalSeconds,
    pub(super) gc_before: LocalSeconds,
    /// Whether the contents are wanted.
    pub(super) contents: bool,
}

/// The partition that is being read.
#[derive(Debug, Default)]
struct Current {
    token: i64,
    key: Vec<u8>,
    deletion: Option<DeletionTime>,
    static_row: Vec<u8>,
    ranges: Vec<(OwnedPosition, OwnedPosition, DeletionTime)>,
    /// Clusterings and rows, and where each ends.
    rows: Vec<u8>,
    ends: Vec<(usize, usize)>,
    live_rows: usize,
    /// The range deletion in force, and where it began.
    open: Option<(OwnedPosition, DeletionTime)>,
    /// The place at which the rest of the partition is left out.
    until: Option<OwnedPosition>,
}

impl Current {
    fn clear(&mut self) {
        self.key.clear();
        self.static_row.clear();
        self.ranges.clear();
        self.rows.clear();
        self.ends.clear();
        self.live_rows = 0;
        (self.deletion, self.open, self.until) = (None, None, None);
    }

    fn deletion(&self) -> DeletionTime {
        self.deletion.unwrap_or(DeletionTime::LIVE)
    }

    /// The deletion over rows that come now.
    fn active(&self) -> DeletionTime {
        self.open.as_ref().map_or(self.deletion(), |(_, open)| deletion(self.deletion(), *open))
    }

    /// Ends the range that is open.
    fn close(&mut self, at: Position<'_>, reversed: bool) {
        let Some((from, deletion)) = self.open.take() else { return };
        let (start, end) = if reversed { (at.to_owned(), from) } else { (from, at.to_owned()) };
        self.ranges.push((start, end, deletion));
    }

    fn append_mutation(&self, table: TableId, out: &mut Vec<u8>) {
        let mut builder =
            MutationBuilder::new(out, table, Token(self.token), &self.key, self.deletion(), |out| {
                out.extend_from_slice(&self.static_row);
            });
        for (start, end, deletion) in &self.ranges {
            builder.range_tombstone(start.as_ref(), end.as_ref(), *deletion);
        }
        let mut rows = builder.rows();
        let mut begin = 0;
        for (clustering, row) in &self.ends {
            rows.row(&self.rows[begin..*clustering], |out| {
                out.extend_from_slice(&self.rows[*clustering..*row]);
            });
            begin = *row;
        }
        rows.finish();
    }
}

/// A page in the making.
pub(super) struct RawPage<'b> {
    of: PageOf,
    purge: Purge,
    digest: Option<Digest>,
    answer: AnswerBuilder<'b>,
    current: Current,
    /// Whether `current` was begun and not appended.
    is_open: bool,
    live_rows: usize,
    /// Bytes of what a purge would leave, and of what is stored.
    left_bytes: usize,
    stored_bytes: usize,
    end: Option<(DecoratedKey, Option<OwnedPosition>)>,
    compacted: Vec<u8>,
}

impl<'b> RawPage<'b> {
    /// A page at the end of `out`; `digest` takes the same elements.
    pub(super) fn new(of: PageOf, digest: Option<Digest>, out: &'b mut Vec<u8>) -> Self {
        Self {
            of,
            purge: Purge { now: of.now, gc_before: of.gc_before, timestamp_limit: i64::MAX },
            digest,
            answer: AnswerBuilder::new(out),
            current: Current::default(),
            is_open: false,
            live_rows: 0,
            left_bytes: 0,
            stored_bytes: 0,
            end: None,
            compacted: Vec::new(),
        }
    }

    /// Ends the page; returns the digest of its contents.
    pub(super) fn finish(self) -> Option<u128> {
        assert!(!self.is_open, "the last partition of a page was not ended");
        let digest = self.digest.as_ref().map(Digest::finish);
        self.answer.finish(
            self.end.as_ref().map(|(key, position)| End {
                token: key.token,
                key: &key.key,
                position: position.as_ref().map(OwnedPosition::as_ref),
            }),
            digest,
        );
        digest
    }

    /// Counts a row by what a purge leaves of it; returns whether it is live.
    fn count(&mut self, row: RowView<'_>, clustering: usize, active: DeletionTime) -> bool {
        if active.is_live() && row.is_plain() {
            self.left_bytes += row.as_bytes().len() + clustering + ELEMENT_BYTES;
            return true;
        }
        self.compacted.clear();
        if !compact_row(row, active, &self.purge, &mut self.compacted) {
            return false;
        }
        self.left_bytes += self.compacted.len() + clustering + ELEMENT_BYTES;
        is_live(RowView::trusted(&self.compacted), self.of.now)
    }

    fn is_full(&self) -> bool {
        self.left_bytes >= PAGE_BYTES
            || self.stored_bytes >= PAGE_BYTES_MAX
            || self.of.limits.rows.is_some_and(|most| self.live_rows >= most)
    }

    fn append_current(&mut self) {
        assert!(self.is_open, "a partition ends that was not begun");
        self.is_open = false;
        if self.of.contents {
            let until = self.current.until.as_ref().map(OwnedPosition::as_ref);
            self.answer.partition(until, |out| self.current.append_mutation(self.of.table, out));
        }
    }
}

impl RawConsumer for RawPage<'_> {
    fn partition(
        &mut self,
        key: &[u8],
        token: Token,
        deletion: DeletionTime,
        static_row: Option<RowView<'_>>,
    ) -> Flow {
        assert!(!self.is_open, "a partition begins within another");
        if let Some(digest) = &mut self.digest {
            digest.partition(key, deletion, static_row);
        }
        self.is_open = true;
        self.current.clear();
        self.current.token = token.0;
        self.current.key.extend_from_slice(key);
        self.current.deletion = Some(deletion);
        if let Some(row) = static_row {
            self.current.static_row.extend_from_slice(row.as_bytes());
        }
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        if let Some(digest) = &mut self.digest {
            digest.row(clustering, row);
        }
        let active = self.current.active();
        self.stored_bytes += clustering.len() + row.as_bytes().len() + ELEMENT_BYTES;
        if self.of.contents {
            let Current { rows, ends, .. } = &mut self.current;
            rows.reserve(clustering.len() + row.as_bytes().len());
            rows.extend_from_slice(clustering);
            let clustering_end = rows.len();
            rows.extend_from_slice(row.as_bytes());
            ends.push((clustering_end, rows.len()));
        }
        if self.count(row, clustering.len(), active) {
            self.live_rows += 1;
            self.current.live_rows += 1;
        }
        // A partition's existence is told by one live row.
        let most = self.of.limits.rows_per_partition.map(|most| most.max(1));
        if most.is_some_and(|most| self.current.live_rows >= most) {
            let behind = match self.of.reversed {
                true => Position::before(clustering),
                false => Position::after(clustering),
            };
            self.current.close(behind, self.of.reversed);
            self.current.until = Some(behind.to_owned());
            return Flow::SkipPartition;
        }
        if self.is_full() { Flow::Stop } else { Flow::Continue }
    }

    fn change(&mut self, at: Position<'_>, deletion: DeletionTime) -> Flow {
        if let Some(digest) = &mut self.digest {
            digest.change(at, deletion);
        }
        self.current.close(at, self.of.reversed);
        self.current.open = (!deletion.is_live()).then(|| (at.to_owned(), deletion));
        self.stored_bytes += at.prefix.0.len() + ELEMENT_BYTES;
        if !self.purge.deletion(deletion).is_live() {
            self.left_bytes += at.prefix.0.len() + ELEMENT_BYTES;
        }
        // Where tombstones alone fill a page it ends by what is stored: between rows there is no place that
        // replicas with equal contents share.
        if self.stored_bytes >= PAGE_BYTES_MAX { Flow::Stop } else { Flow::Continue }
    }

    fn partition_end(&mut self) -> Flow {
        if let Some(digest) = &mut self.digest {
            digest.partition_end();
        }
        let static_row = std::mem::take(&mut self.current.static_row);
        let key_bytes = self.current.key.len() + ELEMENT_BYTES;
        self.stored_bytes += key_bytes + static_row.len();
        self.left_bytes += key_bytes;
        if !static_row.is_empty() {
            self.count(RowView::trusted(&static_row), 0, self.current.deletion());
        }
        self.current.static_row = static_row;
        self.append_current();
        if self.is_full() { Flow::Stop } else { Flow::Continue }
    }

    fn stopped(&mut self, place: Place<'_>, _: DeletionTime) {
        if let Some(digest) = &mut self.digest {
            digest.stopped(place.token, place.key, place.position);
        }
        let position = place.position.map(Position::to_owned);
        if let Some(at) = place.position {
            self.current.close(at, self.of.reversed);
            self.current.until.clone_from(&position);
            self.append_current();
        }
        self.end = Some((DecoratedKey { token: place.token, key: place.key.to_vec() }, position));
    }
}
