//! One partition after another as a stream of rows and deletion changes, lent from buffers that are kept.
//!
//! Forward, the stream walks from head to head and decodes only what a slice wants. Backward, it takes one block at
//! a time, finds where its rows start and walks them from the back. Blocks come from the promoted index; a partition
//! without one is a single block. Memory is bounded by the longest row, or backward by the longest block.

use std::rc::Rc;

use model::clustering::{Position, Slice};
use model::deletion::DeletionTime;
use model::row::RowView;
use model::{Clustering, Unfiltered};

use super::decode::{self, Head, Item};
use super::slicing::{Slicer, Step};
use super::window::{READ_BYTES_MAX, Window};
use crate::descriptor::Component;
use crate::error::{Malformed, Problem, SstableError};
use crate::index::promoted::Promoted;
use crate::input::Input;
use crate::table_file::Inner;

/// Bytes asked for when the head of a row is not at hand.
const HEAD_BYTES: usize = 64;
/// Longest stretch that is read backward as one block: one row may be as long as rows get.
const BLOCK_BYTES_MAX: u64 = super::decode::ROW_BYTES_MAX;

/// Reads partitions of one table file.
#[derive(Debug)]
pub(crate) struct Stream {
    inner: Rc<Inner>,
    window: Window,
    ahead: u64,
    slicer: Slicer,
    key: Vec<u8>,
    deletion: DeletionTime,
    static_row: Vec<u8>,
    clustering: Vec<u8>,
    row: Vec<u8>,
    start: u64,
    header_end: u64,
    next: u64,
    pending: Option<Pending>,
    promoted: Option<Promoted>,
    sought: Option<usize>,
    backward: Option<Backward>,
    ended: bool,
}

/// Where rows of the block that is read backward start.
#[derive(Debug, Default)]
struct Backward {
    starts: Vec<u64>,
    /// Blocks that are not loaded yet: those with a smaller number than the one in `starts`.
    blocks_left: u64,
}

#[derive(Debug, Clone, Copy)]
enum Pending {
    Row { at: u64, item: Item },
    Change { at: u64, item: Item, weight: i8, deletion: DeletionTime },
    End { at: u64 },
}

/// What is handed out, by where it is kept.
#[derive(Debug, Clone, Copy)]
enum Emitted {
    Row,
    Change(i8, DeletionTime),
    Open(usize, DeletionTime),
    Close(usize),
}

impl Stream {
    pub(crate) fn new(inner: Rc<Inner>, slices: &[Slice], reversed: bool, ahead: u64) -> Self {
        Self {
            inner,
            window: Window::default(),
            ahead,
            slicer: Slicer::new(slices, reversed),
            key: Vec::new(),
            deletion: DeletionTime::LIVE,
            static_row: Vec::new(),
            clustering: Vec::new(),
            row: Vec::new(),
            start: 0,
            header_end: 0,
            next: 0,
            pending: None,
            promoted: None,
            sought: None,
            backward: reversed.then(Backward::default),
            ended: true,
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn deletion(&self) -> DeletionTime {
        self.deletion
    }

    pub(crate) fn static_row(&self) -> Option<RowView<'_>> {
        if self.static_row.is_empty() {
            return None;
        }
        Some(RowView::trusted(&self.static_row)).filter(|row| !row.is_empty())
    }

    fn corrupt(&self, malformed: Malformed) -> SstableError {
        malformed.of(Component::Data, &self.inner.data.path)
    }

    async fn ensure(&mut self, at: u64, length: usize) -> Result<bool, SstableError> {
        let inner = &self.inner;
        if self.window.from(at).len() >= length {
            return Ok(true);
        }
        let enough = self.window.ensure(&inner.data, &inner.reads, at, length, self.ahead).await?;
        // Whoever reads on gets more at once.
        self.ahead = (self.ahead * 2).clamp(inner.data.chunk_length(), READ_BYTES_MAX);
        Ok(enough)
    }

    /// Asks for more than is at hand at `at`, because a head ended early there; an error when there is no more.
    async fn more(&mut self, at: u64, error: Malformed) -> Result<(), SstableError> {
        let at_hand = self.window.from(at).len();
        let left = self.inner.data.length().saturating_sub(at);
        let wanted = (at_hand as u64 * 2).max(HEAD_BYTES as u64).min(left);
        if error.problem != Problem::Truncated || wanted <= at_hand as u64 {
            return Err(self.corrupt(error));
        }
        self.ensure(at, wanted as usize).await.map(drop)
    }

    /// Starts the partition at `at` of the data and reads what comes before its rows.
    pub(crate) async fn open_partition(&mut self, at: u64) -> Result<(), SstableError> {
        self.begin(at);
        self.header_end = loop {
            match self.header(at) {
                Ok(end) => break end,
                Err(error) => self.more(at, error).await?,
            }
        };
        self.static_row.clear();
        if !self.inner.layout.statics.list.is_empty() {
            let (head, item) = match self.head(self.header_end).await? {
                (Head::Row(item), _) if item.is_static => (self.header_end, item),
                _ => {
                    return Err(
                        self.corrupt(Malformed::invalid(self.header_end, "the static row is missing"))
                    );
                }
            };
            let mut row = std::mem::take(&mut self.static_row);
            let decoded = self.row_at(head, item, &mut row).await;
            self.static_row = row;
            decoded?;
            self.header_end += item.length as u64;
        }
        self.next = self.header_end;
        Ok(())
    }

    fn begin(&mut self, at: u64) {
        self.start = at;
        self.slicer.restart();
        (self.pending, self.promoted, self.sought, self.ended) = (None, None, None, false);
        if let Some(backward) = &mut self.backward {
            backward.starts.clear();
            backward.blocks_left = 1;
        }
    }

    fn header(&mut self, at: u64) -> Result<u64, Malformed> {
        let mut input = Input::at_offset(self.window.from(at), at);
        let key = input.short_sized()?;
        self.deletion = decode::whole_deletion(&self.inner.layout, &mut input)?;
        self.key.clear();
        self.key.extend_from_slice(key);
        Ok(input.offset())
    }

    /// Gives the partition that was opened its promoted index.
    pub(crate) fn set_promoted(&mut self, promoted: Promoted) {
        if let Some(backward) = &mut self.backward {
            backward.blocks_left = promoted.count;
        }
        self.promoted = Some(promoted);
    }

    /// Starts a partition whose header need not be read: the promoted index has its deletion, and there is no static
    /// row.
    pub(crate) fn open_promoted(&mut self, key: &[u8], at: u64, promoted: Promoted) {
        self.begin(at);
        self.key.clear();
        self.key.extend_from_slice(key);
        self.deletion = promoted.deletion;
        self.static_row.clear();
        self.header_end = at.saturating_add(promoted.header_length);
        self.next = self.header_end;
        self.set_promoted(promoted);
    }

    /// What stands at `at`; a row's clustering is left in `clustering`.
    async fn head(&mut self, at: u64) -> Result<(Head, u64), SstableError> {
        loop {
            let mut input = Input::at_offset(self.window.from(at), at);
            match decode::head(&self.inner.layout, &mut input, &mut self.clustering) {
                Ok(Head::End) => return Ok((Head::End, at + 1)),
                Ok(head @ (Head::Row(item) | Head::Marker(_, item))) => {
                    return Ok((head, at + item.length as u64));
                }
                Err(error) => self.more(at, error).await?,
            }
        }
    }

    async fn row_at(&mut self, at: u64, item: Item, out: &mut Vec<u8>) -> Result<(), SstableError> {
        self.whole(at, item).await?;
        let body_at = at + item.body as u64;
        let body = &self.window.from(at)[item.body..item.length];
        out.clear();
        decode::row(&self.inner.layout, item, &mut Input::at_offset(body, body_at), out)
            .map_err(|error| self.corrupt(error))
    }

    async fn whole(&mut self, at: u64, item: Item) -> Result<(), SstableError> {
        if self.ensure(at, item.length).await? {
            return Ok(());
        }
        let left = self.inner.data.length().saturating_sub(at);
        Err(self.corrupt(Malformed::over(at, "size of a row", item.length as u64, left)))
    }

    /// Reads on to the end of the partition without handing anything out; returns where the next one starts.
    pub(crate) async fn skip_rest(&mut self) -> Result<u64, SstableError> {
        if let Some(Pending::End { at }) = self.pending {
            return Ok(at + 1);
        }
        let mut at = self.next;
        loop {
            match self.head(at).await? {
                (Head::End, next) => return Ok(next),
                (_, next) => at = next,
            }
        }
    }

    /// The next row or change; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Unfiltered<'_>>, SstableError> {
        let Some(emitted) = self.advance().await? else { return Ok(None) };
        Ok(Some(match emitted {
            Emitted::Row => {
                Unfiltered::Row { clustering: &self.clustering, row: RowView::trusted(&self.row) }
            }
            Emitted::Change(weight, deletion) => Unfiltered::Change {
                position: Position { prefix: Clustering(&self.clustering), weight },
                deletion,
            },
            Emitted::Open(slice, deletion) => {
                Unfiltered::Change { position: self.slicer.near(slice).unwrap_or(Position::START), deletion }
            }
            Emitted::Close(slice) => Unfiltered::Change {
                position: self.slicer.far(slice).unwrap_or(Position::END),
                deletion: DeletionTime::LIVE,
            },
        }))
    }

    async fn advance(&mut self) -> Result<Option<Emitted>, SstableError> {
        if self.ended {
            return Ok(None);
        }
        loop {
            if self.sought != Some(self.slicer.current()) {
                self.sought = Some(self.slicer.current());
                self.seek().await?;
            }
            if self.slicer.near(self.slicer.current()).is_none() {
                // Behind the last slice nothing is read any more.
                self.ended = true;
                return Ok(None);
            }
            let pending = match self.pending {
                Some(pending) => pending,
                None => self.load().await?,
            };
            self.pending = Some(pending);
            let orders = &self.inner.layout.orders;
            let (step, position) = match pending {
                Pending::End { .. } => (self.slicer.end(), None),
                Pending::Row { .. } => (self.slicer.step(Position::row(&self.clustering), orders), Some(0)),
                Pending::Change { weight, .. } => {
                    let position = Position { prefix: Clustering(&self.clustering), weight };
                    (self.slicer.step(position, orders), Some(weight))
                }
            };
            match (step, pending) {
                (Step::Open(slice, deletion), _) => return Ok(Some(Emitted::Open(slice, deletion))),
                (Step::Close(slice), _) => return Ok(Some(Emitted::Close(slice))),
                (Step::Done, _) => {
                    self.ended = true;
                    return Ok(None);
                }
                (Step::Skip, _) if position.is_none() => {}
                (Step::Skip, Pending::Row { at, item }) => self.consume(at, item),
                (Step::Emit, Pending::Row { at, item }) => {
                    let mut row = std::mem::take(&mut self.row);
                    let decoded = self.row_at(at, item, &mut row).await;
                    self.row = row;
                    decoded?;
                    self.consume(at, item);
                    if !RowView::trusted(&self.row).is_empty() {
                        return Ok(Some(Emitted::Row));
                    }
                }
                (step @ (Step::Skip | Step::Emit), Pending::Change { at, item, weight, deletion }) => {
                    self.consume(at, item);
                    self.slicer.open = deletion;
                    if step == Step::Emit {
                        return Ok(Some(Emitted::Change(weight, deletion)));
                    }
                }
                (Step::Skip | Step::Emit, Pending::End { .. }) => {
                    unreachable!("the end is neither left out nor handed out")
                }
            }
        }
    }

    fn consume(&mut self, at: u64, item: Item) {
        self.pending = None;
        if self.backward.is_none() {
            self.next = at + item.length as u64;
        }
    }

    /// Finds what comes next in reading order.
    async fn load(&mut self) -> Result<Pending, SstableError> {
        let at = match &mut self.backward {
            None => self.next,
            Some(_) => match self.previous().await? {
                Some(at) => at,
                None => return Ok(Pending::End { at: self.start }),
            },
        };
        let (kind, item) = match self.head(at).await?.0 {
            Head::End => return Ok(Pending::End { at }),
            Head::Row(item) if item.is_static => {
                return Err(self.corrupt(Malformed::invalid(at, "a second static row")));
            }
            Head::Row(item) => return Ok(Pending::Row { at, item }),
            Head::Marker(kind, item) => (kind, item),
        };
        self.whole(at, item).await?;
        let body_at = at + item.body as u64;
        let mut input = Input::at_offset(&self.window.from(at)[item.body..item.length], body_at);
        let marker =
            decode::marker(&self.inner.layout, kind, &mut input).map_err(|error| self.corrupt(error))?;
        let deletion = if self.backward.is_some() { marker.before } else { marker.after };
        // `head` accepts kinds with a weight only.
        let weight = decode::weight(kind).unwrap_or(0);
        Ok(Pending::Change { at, item, weight, deletion })
    }

    /// Where the row or marker before the last one starts, loading the block before when needed.
    async fn previous(&mut self) -> Result<Option<u64>, SstableError> {
        // Each round takes one block, and blocks are finite.
        loop {
            let Some(backward) = &mut self.backward else { return Ok(None) };
            if let Some(at) = backward.starts.pop() {
                return Ok(Some(at));
            }
            if backward.blocks_left == 0 {
                return Ok(None);
            }
            backward.blocks_left -= 1;
            let number = backward.blocks_left;
            let (start, end) = match &self.promoted {
                None => (self.header_end, None),
                Some(promoted) => {
                    let block = promoted.block(&self.inner.reads, &self.inner.layout, number).await?;
                    let start = self.start.saturating_add(block.offset);
                    (start, Some(start.saturating_add(block.width)))
                }
            };
            self.load_block(start, end).await?;
        }
    }

    /// Has the rows of a block in memory and finds where each starts.
    async fn load_block(&mut self, start: u64, end: Option<u64>) -> Result<(), SstableError> {
        let too_long = |found| Malformed::over(start, "width of a block", found, BLOCK_BYTES_MAX);
        if let Some(end) = end {
            if end - start > BLOCK_BYTES_MAX {
                return Err(self.corrupt(too_long(end - start)));
            }
            if !self.ensure(start, (end - start) as usize).await? {
                return Err(self.corrupt(Malformed::invalid(start, "a block behind the end of the data")));
            }
        }
        let mut at = start;
        loop {
            if end.is_some_and(|end| at >= end) {
                return Ok(());
            }
            if at - start > BLOCK_BYTES_MAX {
                return Err(self.corrupt(too_long(at - start)));
            }
            let next = match self.head_within(start, at).await? {
                (Head::End, _) => return Ok(()),
                (_, next) => next,
            };
            if let Some(backward) = &mut self.backward {
                backward.starts.push(at);
            }
            at = next;
        }
    }

    /// Like `head`, keeping everything from `start` on in memory.
    async fn head_within(&mut self, start: u64, at: u64) -> Result<(Head, u64), SstableError> {
        let behind = (at - start) as usize;
        let mut wanted = HEAD_BYTES;
        loop {
            let left = self.inner.data.length().saturating_sub(at) as usize;
            let have = wanted.min(left);
            if self.window.from(at).len() < have {
                self.ensure(start, behind + have).await?;
            }
            let mut input = Input::at_offset(self.window.from(at), at);
            match decode::head(&self.inner.layout, &mut input, &mut self.clustering) {
                Ok(Head::End) => return Ok((Head::End, at + 1)),
                Ok(head @ (Head::Row(item) | Head::Marker(_, item))) => {
                    // The row itself stays in memory with its block.
                    if item.length <= left {
                        self.ensure(start, behind + item.length).await?;
                    }
                    return Ok((head, at + item.length as u64));
                }
                Err(error) if error.problem == Problem::Truncated && have < left => wanted = have * 2,
                Err(error) => return Err(self.corrupt(error)),
            }
        }
    }

    /// Jumps to the block where the current slice begins in reading order, if that is further on.
    async fn seek(&mut self) -> Result<(), SstableError> {
        let Some(promoted) = &self.promoted else { return Ok(()) };
        let Some(near) = self.slicer.near(self.slicer.current()) else { return Ok(()) };
        let (reads, layout) = (&self.inner.reads, &self.inner.layout);
        if let Some(backward) = &mut self.backward {
            // Blocks from `count` on have nothing for the slice.
            let count = promoted.starting_before(reads, layout, near, &layout.orders).await?;
            if count > backward.blocks_left {
                return Ok(());
            }
            backward.starts.clear();
            backward.blocks_left = count;
            self.pending = None;
            self.slicer.open = match count.checked_sub(1) {
                Some(block) => promoted.block(reads, layout, block).await?.open,
                None => DeletionTime::LIVE,
            };
            return Ok(());
        }
        let number = promoted.ending_before(reads, layout, near, &layout.orders).await?;
        let Some(last) = number.checked_sub(1) else { return Ok(()) };
        let before = promoted.block(reads, layout, last).await?;
        // Blocks lie back to back, the last one ends where the partition does.
        let next = self.start.saturating_add(before.offset).saturating_add(before.width);
        if next > self.next {
            self.next = next;
            self.slicer.open = before.open;
            self.pending = None;
        }
        Ok(())
    }
}
