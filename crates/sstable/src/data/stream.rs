//! One partition after another as a stream of rows and deletion changes, borrowed from buffers that are
//! reused.
//!
//! Forward, the stream walks from head to head and decodes only what a slice needs. Backward, it takes one
//! block at a time, finds the starts of its rows and walks them from the last. Blocks come from the promoted
//! index; a partition without one is a single block. Memory is bounded by the longest row, or backward by the
//! longest block.
//!
//! A step whose bytes are in memory is a plain call ([`Stream::next_at_hand`]). A step that lacks bytes needs
//! a future ([`Stream::fetch`]), which reads them; the step is then repeated.

mod blocks;

use std::rc::Rc;

use model::clustering::{Position, Slice};
use model::deletion::DeletionTime;
use model::row::RowView;
use model::{Clustering, Unfiltered};

use super::decode::{self, Head, Item};
use super::long_rows::{RowRoom, RowShare};
use super::slicing::{Slicer, Step};
use super::window::{READ_BYTES_MAX, Window};
use crate::descriptor::Component;
use crate::error::{Malformed, Problem, SstableError};
use crate::index::promoted::Promoted;
use crate::input::Input;
use crate::table_file::Inner;

/// Bytes requested when the head of a row is not in memory.
const HEAD_BYTES: usize = 64;

/// Reads partitions of one table file.
#[derive(Debug)]
pub(crate) struct Stream {
    inner: Rc<Inner>,
    window: Window,
    /// Its part of the read's memory for long rows.
    share: Option<RowShare>,
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

/// Starts of the rows of the block that is read backward.
#[derive(Debug, Default)]
struct Backward {
    starts: Vec<u64>,
    /// Number of blocks that are not loaded yet: those before the one in `starts`.
    blocks_left: u64,
}

#[derive(Debug, Clone, Copy)]
enum Pending {
    Row { at: u64, item: Item },
    Change { at: u64, item: Item, weight: i8, deletion: DeletionTime },
    End { at: u64 },
}

/// The next item, by the place where it is kept.
#[derive(Debug, Clone, Copy)]
enum Emitted {
    Row,
    Change(i8, DeletionTime),
    Open(usize, DeletionTime),
    Close(usize),
    /// The partition is at its end.
    End,
    /// No item yet: data has to be read first.
    Lacking,
}

/// The result of a step that does not wait for the disk.
#[derive(Debug, Clone, Copy)]
pub enum AtHand<'a> {
    /// The next row or change.
    Next(Unfiltered<'a>),
    /// The partition is at its end.
    End,
    /// No result until `fetch` was awaited.
    Lacking,
}

impl Stream {
    pub(crate) fn new(inner: Rc<Inner>, slices: &[Slice], reversed: bool, ahead: u64) -> Self {
        Self {
            inner,
            window: Window::default(),
            share: None,
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

    /// Takes memory for long rows from `room`, if given.
    #[must_use]
    pub(crate) fn in_room(mut self, room: Option<&Rc<RowRoom>>) -> Self {
        self.set_room(room);
        self
    }

    /// As [`Stream::in_room`], from now on.
    pub(crate) fn set_room(&mut self, room: Option<&Rc<RowRoom>>) {
        self.share = room.map(RowShare::new);
    }

    /// Bytes of its buffers, those included that are being read into.
    pub(crate) fn bytes_in_memory(&self) -> usize {
        let rows = self.key.capacity() + self.static_row.capacity() + self.row.capacity();
        self.window.bytes_in_memory() + rows + self.clustering.capacity()
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
        // A length beyond the data is an error, which needs no memory.
        if let Some(share) = &mut self.share
            && at.checked_add(length as u64).is_some_and(|end| end <= inner.data.length())
        {
            share.cover(length).await;
        }
        let enough = self.window.ensure(&inner.data, &inner.reads, at, length, self.ahead).await?;
        // A reader that continues gets more at once.
        self.ahead = (self.ahead * 2).clamp(inner.data.chunk_length(), READ_BYTES_MAX);
        Ok(enough)
    }

    /// Requests more than is in memory at `at`, because a head was cut there; an error if the data has no
    /// more.
    async fn more(&mut self, at: u64, error: Malformed) -> Result<(), SstableError> {
        let at_hand = self.window.from(at).len();
        let left = self.inner.data.length().saturating_sub(at);
        let wanted = (at_hand as u64 * 2).max(HEAD_BYTES as u64).min(left);
        if error.problem != Problem::Truncated || wanted <= at_hand as u64 {
            return Err(self.corrupt(error));
        }
        self.ensure(at, wanted as usize).await.map(drop)
    }

    /// Starts the partition at offset `at` of the data and reads everything before its rows.
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
            self.whole(head, item).await?;
            let mut row = std::mem::take(&mut self.static_row);
            let decoded = self.decode(head, item, &mut row);
            self.static_row = row;
            decoded?;
            self.header_end += item.length as u64;
        }
        self.next = self.header_end;
        Ok(())
    }

    /// As [`Stream::open_partition`], if all it needs is in memory; otherwise returns false.
    pub(crate) fn open_at_hand(&mut self, at: u64) -> Result<bool, SstableError> {
        let mut end = match self.header(at) {
            Ok(end) => end,
            Err(error) if error.problem == Problem::Truncated => return Ok(false),
            Err(error) => return Err(self.corrupt(error)),
        };
        self.static_row.clear();
        if !self.inner.layout.statics.list.is_empty() {
            let mut input = Input::at_offset(self.window.from(end), end);
            let item = match decode::head(&self.inner.layout, &mut input, &mut self.clustering) {
                Ok(Head::Row(item)) if item.is_static && self.window.from(end).len() >= item.length => item,
                // A possible error is found by the call that reads more.
                _ => return Ok(false),
            };
            let mut row = std::mem::take(&mut self.static_row);
            let decoded = self.decode(end, item, &mut row);
            self.static_row = row;
            decoded?;
            end += item.length as u64;
        }
        self.begin(at);
        (self.header_end, self.next) = (end, end);
        Ok(true)
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

    /// Sets the promoted index of the opened partition.
    pub(crate) fn set_promoted(&mut self, promoted: Promoted) {
        if let Some(backward) = &mut self.backward {
            backward.blocks_left = promoted.count;
        }
        self.promoted = Some(promoted);
    }

    /// Starts a partition without reading its header: the promoted index has its deletion, and there is no
    /// static row.
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

    /// The item at `at`; a row's clustering is left in `clustering`.
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

    /// Decodes a row that is completely in memory.
    fn decode(&self, at: u64, item: Item, out: &mut Vec<u8>) -> Result<(), SstableError> {
        let body = &self.window.from(at)[item.body..item.length];
        out.clear();
        decode::row(&self.inner.layout, item, &mut Input::at_offset(body, at + item.body as u64), out)
            .map_err(|error| self.corrupt(error))
    }

    async fn whole(&mut self, at: u64, item: Item) -> Result<(), SstableError> {
        if self.ensure(at, item.length).await? {
            return Ok(());
        }
        let left = self.inner.data.length().saturating_sub(at);
        Err(self.corrupt(Malformed::over(at, "size of a row", item.length as u64, left)))
    }

    /// Start of the next partition, if this one was read to its end.
    pub(crate) fn behind_end(&self) -> Option<u64> {
        match self.pending {
            Some(Pending::End { at }) => Some(at + 1),
            _ => None,
        }
    }

    /// Reads to the end of the partition without returning anything; returns the start of the next one.
    pub(crate) async fn skip_rest(&mut self) -> Result<u64, SstableError> {
        if let Some(behind) = self.behind_end() {
            return Ok(behind);
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
        let emitted = loop {
            match self.advance()? {
                // Boxed, so that the future of a read that does not wait stays small.
                Emitted::Lacking => Box::pin(self.fetch()).await?,
                emitted => break emitted,
            }
        };
        Ok(self.emitted(emitted))
    }

    /// As [`Stream::next`] without waiting.
    #[inline]
    pub(crate) fn next_at_hand(&mut self) -> Result<AtHand<'_>, SstableError> {
        let emitted = self.advance()?;
        Ok(match emitted {
            Emitted::Lacking => AtHand::Lacking,
            emitted => self.emitted(emitted).map_or(AtHand::End, AtHand::Next),
        })
    }

    /// The row that was returned last, until another item is.
    #[inline]
    pub(crate) fn row(&self) -> (&[u8], RowView<'_>) {
        (&self.clustering, RowView::trusted(&self.row))
    }

    #[inline]
    fn emitted(&self, emitted: Emitted) -> Option<Unfiltered<'_>> {
        Some(match emitted {
            Emitted::Row => {
                let (clustering, row) = self.row();
                Unfiltered::Row { clustering, row }
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
            Emitted::End | Emitted::Lacking => return None,
        })
    }

    /// Reads the data that the next step lacks; called after a step that reported so.
    pub(crate) async fn fetch(&mut self) -> Result<(), SstableError> {
        if self.sought != Some(self.slicer.current()) {
            self.sought = Some(self.slicer.current());
            return self.seek().await;
        }
        match self.pending {
            None => self.pending = Some(self.load().await?),
            Some(Pending::Row { at, item } | Pending::Change { at, item, .. }) => {
                self.whole(at, item).await?
            }
            Some(Pending::End { .. }) => {}
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<Emitted, SstableError> {
        if self.ended {
            return Ok(Emitted::End);
        }
        loop {
            if self.sought != Some(self.slicer.current()) {
                if self.promoted.is_some() {
                    return Ok(Emitted::Lacking);
                }
                self.sought = Some(self.slicer.current());
            }
            if self.slicer.near(self.slicer.current()).is_none() {
                // Behind the last slice nothing more is read.
                self.ended = true;
                return Ok(Emitted::End);
            }
            let pending = match self.pending {
                Some(pending) => pending,
                None => match self.load_at_hand()? {
                    Some(pending) => pending,
                    None => return Ok(Emitted::Lacking),
                },
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
                (Step::Open(slice, deletion), _) => return Ok(Emitted::Open(slice, deletion)),
                (Step::Close(slice), _) => return Ok(Emitted::Close(slice)),
                (Step::Done, _) => {
                    self.ended = true;
                    return Ok(Emitted::End);
                }
                (Step::Skip, _) if position.is_none() => {}
                (Step::Skip, Pending::Row { at, item }) => self.consume(at, item),
                (Step::Emit, Pending::Row { at, item }) => {
                    if self.window.from(at).len() < item.length {
                        return Ok(Emitted::Lacking);
                    }
                    let mut row = std::mem::take(&mut self.row);
                    let decoded = self.decode(at, item, &mut row);
                    self.row = row;
                    decoded?;
                    self.consume(at, item);
                    if !RowView::trusted(&self.row).is_empty() {
                        return Ok(Emitted::Row);
                    }
                }
                (step @ (Step::Skip | Step::Emit), Pending::Change { at, item, weight, deletion }) => {
                    self.consume(at, item);
                    self.slicer.open = deletion;
                    if step == Step::Emit {
                        return Ok(Emitted::Change(weight, deletion));
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

    /// The next item in reading order, if it is in memory.
    fn load_at_hand(&mut self) -> Result<Option<Pending>, SstableError> {
        let at = match &self.backward {
            None => self.next,
            Some(backward) => match backward.starts.last() {
                Some(at) => *at,
                None => return Ok(None),
            },
        };
        let mut input = Input::at_offset(self.window.from(at), at);
        let head = match decode::head(&self.inner.layout, &mut input, &mut self.clustering) {
            Ok(Head::Marker(_, item)) if self.window.from(at).len() < item.length => return Ok(None),
            Ok(head) => head,
            Err(error) if error.problem == Problem::Truncated => return Ok(None),
            Err(error) => return Err(self.corrupt(error)),
        };
        if let Some(backward) = &mut self.backward {
            backward.starts.pop();
        }
        self.pending_of(at, head).map(Some)
    }

    /// Finds the next item in reading order.
    async fn load(&mut self) -> Result<Pending, SstableError> {
        let at = match &mut self.backward {
            None => self.next,
            Some(_) => match self.previous().await? {
                Some(at) => at,
                None => return Ok(Pending::End { at: self.start }),
            },
        };
        let head = self.head(at).await?.0;
        if let Head::Marker(_, item) = head {
            self.whole(at, item).await?;
        }
        self.pending_of(at, head)
    }

    /// The item at `at`; a marker is completely in memory.
    fn pending_of(&self, at: u64, head: Head) -> Result<Pending, SstableError> {
        let (kind, item) = match head {
            Head::End => return Ok(Pending::End { at }),
            Head::Row(item) if item.is_static => {
                return Err(self.corrupt(Malformed::invalid(at, "a second static row")));
            }
            Head::Row(item) => return Ok(Pending::Row { at, item }),
            Head::Marker(kind, item) => (kind, item),
        };
        let body_at = at + item.body as u64;
        let mut input = Input::at_offset(&self.window.from(at)[item.body..item.length], body_at);
        let marker =
            decode::marker(&self.inner.layout, kind, &mut input).map_err(|error| self.corrupt(error))?;
        let deletion = if self.backward.is_some() { marker.before } else { marker.after };
        // `head` accepts kinds with a weight only.
        let weight = decode::weight(kind).unwrap_or(0);
        Ok(Pending::Change { at, item, weight, deletion })
    }
}
