//! Scans in fetches of limited length, each with its own deadline. A scan that combines many rows into one
//! has no pages that a client would request one by one, and may take longer than one read is allowed to.

use std::collections::VecDeque;

use model::clustering::{OwnedPosition, Position};
use model::partition_key::DecoratedKey;
use model::{RowView, Table, Token};
use reactor::{Deadline, TimedOut};
use replication::read::position;
use storage::{Dead, Flow, PartitionRange, Place, RowConsumer, Slices};

use super::rows::Rows;

/// Rows, and bytes of rows, that a fetch keeps to compute with them when the read has ended.
const KEPT_ROWS: usize = 64;
const KEPT_BYTES: usize = 64 << 10;

/// Rows and partitions, living or dead, after which a fetch ends.
pub const FETCH_ROWS: usize = 10_000;

/// The place where a fetch ended.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    /// The last partition that was read.
    pub(super) key: DecoratedKey,
    /// The last position that was read in it; `None` if the partition has ended.
    pub(super) position: Option<OwnedPosition>,
    /// Whether the partition was announced to the receiver.
    pub(super) begun: bool,
}

/// The rest of a scan.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    /// Partitions to read next.
    pub(super) range: PartitionRange,
    /// Rows of them.
    pub(super) slices: Slices,
    /// The range behind `range`, if that is the rest of one partition.
    then: Option<PartitionRange>,
    /// Whether that partition was announced to the receiver.
    begun: bool,
}

impl Rest {
    /// A scan at its beginning.
    pub(super) fn new(range: PartitionRange, slices: Slices) -> Self {
        Self { range, slices, then: None, begun: false }
    }

    /// The rest after a fetch; `None` if there is none. `all` are the slices of the whole scan.
    ///
    /// A partition without further rows is ended for the receiver.
    pub(super) fn behind(mut self, fetch: Fetched, plan: (&Table, bool), all: &Slices) -> Option<Self> {
        let then = self.then.take();
        let next = match fetch.stop {
            None => then,
            Some(Stop { key, position: place, begun }) => {
                let rest = then.or_else(|| position::behind(&self.range, &key));
                if let Some(place) = place {
                    let (table, reversed) = plan;
                    let orders = table.clustering_orders();
                    position::resume_after(&mut self.slices, place.as_ref(), reversed, orders);
                    self.range = PartitionRange::Key(key);
                    self.then = rest;
                    self.begun = begun;
                    return Some(self);
                }
                rest
            }
        };
        Some(Self::new(next?, all.clone()))
    }

    /// Whether the rest begins inside a partition that was announced to the receiver.
    pub(super) fn is_inside(&self) -> bool {
        self.begun && matches!(self.range, PartitionRange::Key(_))
    }
}

/// The result of a fetch.
#[derive(Debug)]
pub(super) struct Fetched {
    /// The place where the fetch stopped because of its length; `None` if it came to the end of its range, or
    /// no more is wanted.
    pub(super) stop: Option<Stop>,
}

/// An item to be handed to the rows again, because a user-defined function was not ready, or after the read
/// because computing with it takes long. It is a copy, so that the item does not change.
#[derive(Debug)]
enum Again {
    Partition { key: Vec<u8>, token: Token, static_row: Option<Vec<u8>> },
    Row { clustering: Vec<u8>, row: Vec<u8> },
    End,
}

/// Passes rows on until a fetch is long enough.
pub(super) struct Fetch<'r, 'q> {
    rows: &'r mut Rows<'q>,
    left: usize,
    key: DecoratedKey,
    ended: bool,
    /// Whether the partition at `key` was announced to the receiver.
    begun: bool,
    /// Whether the fetch ends as soon as other tasks wait for the shard: a row may take long.
    gives_way: bool,
    stop: Option<Stop>,
    /// One item, or several rows of one partition that are computed aside, possibly with its end.
    again: VecDeque<Again>,
    /// Bytes of those rows.
    again_bytes: usize,
}

impl<'r, 'q> Fetch<'r, 'q> {
    /// A fetch of [`FETCH_ROWS`] into `rows`, which begins at `rest`.
    pub(super) fn new(rows: &'r mut Rows<'q>, rest: &Rest) -> Self {
        let inside = rest.is_inside();
        if inside {
            rows.go_on();
        }
        Self {
            rows,
            left: FETCH_ROWS,
            key: DecoratedKey { token: Token::MINIMUM, key: Vec::new() },
            ended: !inside,
            begun: inside,
            gives_way: false,
            stop: None,
            again: VecDeque::new(),
            again_bytes: 0,
        }
    }

    /// As [`Self::new`], but ends as soon as other tasks wait for the shard.
    pub(super) fn giving_way(mut self, gives_way: bool) -> Self {
        self.gives_way = gives_way;
        self
    }

    fn at(&mut self, token: Token, key: &[u8]) {
        self.key.token = token;
        self.key.key.clear();
        self.key.key.extend_from_slice(key);
    }

    /// Ends the fetch, with as many pauses as user-defined functions need. The partition it began inside of
    /// is over if nothing more of it came.
    ///
    /// # Errors
    /// [`TimedOut`] if the deadline comes before the last of them is done.
    pub(super) async fn end(mut self, deadline: Deadline) -> Result<Fetched, TimedOut> {
        if !self.ended && self.stop.is_none() && !self.rows.is_done() {
            if self.again.is_empty() {
                self.hand_over(Again::End);
            } else {
                self.again.push_back(Again::End);
            }
        }
        if let Some(calls) = self.rows.calls() {
            while let Some(again) = self.again.pop_front() {
                calls.rest(deadline).await?;
                self.hand_over(again);
            }
            calls.settle();
        } else {
            self.hand_over_aside(deadline).await?;
        }
        Ok(Fetched { stop: self.stop })
    }

    /// Hands the rows over that were kept because computing with them takes long.
    async fn hand_over_aside(&mut self, deadline: Deadline) -> Result<(), TimedOut> {
        while let Some(again) = self.again.pop_front() {
            if self.rows.is_done() {
                break;
            }
            if deadline.is_past() {
                return Err(TimedOut);
            }
            self.rows.begin_row();
            let flow = match &again {
                Again::Row { clustering, row } => {
                    self.rows.aside(|rows| rows.row(clustering, RowView::trusted(row))).await
                }
                _ => self.rows.aside(|rows| rows.partition_end()).await,
            };
            reactor::maybe_yield().await;
            if flow == Flow::SkipPartition && matches!(again, Again::Row { .. }) {
                if let Some(stop) = &mut self.stop {
                    stop.position = None;
                }
                self.again.clear();
                self.again.push_back(Again::End);
            }
        }
        Ok(())
    }

    /// Keeps a row until the read has ended.
    #[cold]
    fn keep(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        self.again_bytes += clustering.len() + row.as_bytes().len();
        self.again.push_back(Again::Row { clustering: clustering.to_vec(), row: row.as_bytes().to_vec() });
        let full = self.again.len() >= KEPT_ROWS || self.again_bytes >= KEPT_BYTES;
        let things = if full || reactor::need_preempt() { self.left } else { 1 };
        self.count(things, Flow::Continue, Some(Position::row(clustering)))
    }

    /// Ends the fetch: what comes next is read again, behind the rows that are kept.
    #[cold]
    fn stop_behind_kept(&mut self) -> Flow {
        if let (None, Some(Again::Row { clustering, .. })) = (&self.stop, self.again.back()) {
            let position = Some(Position::row(clustering).to_owned());
            self.stop = Some(Stop { key: self.key.clone(), position, begun: self.begun });
        }
        Flow::Stop
    }

    /// Hands an item over after the read that it came from has ended.
    fn hand_over(&mut self, again: Again) {
        if let Some(calls) = self.rows.calls() {
            calls.rewind();
        }
        let flow = match &again {
            Again::Partition { key, token, static_row } => {
                self.rows.partition(key, *token, static_row.as_deref().map(RowView::trusted))
            }
            Again::Row { clustering, row } => self.rows.row(clustering, RowView::trusted(row)),
            Again::End => self.rows.partition_end(),
        };
        if self.rows.is_paused() {
            self.pause(again);
            return;
        }
        match (again, flow) {
            (Again::Row { .. }, Flow::SkipPartition) => {
                if let Some(stop) = &mut self.stop {
                    stop.position = None;
                }
                self.hand_over(Again::End);
            }
            // It is read again from its beginning: none of its rows was.
            (Again::Partition { .. }, Flow::Continue) => {
                if let Some(stop) = &mut self.stop {
                    stop.position = Some(self.rows.beginning());
                    stop.begun = false;
                }
            }
            _ => {}
        }
    }

    /// Keeps the item that is to be handed over again, and ends the fetch behind it.
    #[cold]
    fn pause(&mut self, again: Again) {
        // The error only signalled the pause.
        self.rows.error = None;
        if self.stop.is_none() && !(matches!(again, Again::End) && self.key.key.is_empty()) {
            let position = match &again {
                Again::Row { clustering, .. } => Some(Position::row(clustering).to_owned()),
                Again::Partition { .. } | Again::End => None,
            };
            self.stop = Some(Stop { key: self.key.clone(), position, begun: self.begun });
        }
        self.again.push_back(again);
    }

    /// Before something is handed over.
    #[inline]
    fn begin(&self) {
        self.rows.begin_row();
        if self.gives_way
            && let Some(calls) = self.rows.calls()
        {
            calls.rewind();
        }
    }

    fn count(&mut self, things: usize, flow: Flow, position: Option<Position<'_>>) -> Flow {
        self.left = self.left.saturating_sub(things);
        if self.left > 0 || flow == Flow::Stop {
            return flow;
        }
        let position = position.map(Position::to_owned);
        self.stop = Some(Stop { key: self.key.clone(), position, begun: self.begun });
        Flow::Stop
    }
}

impl RowConsumer for Fetch<'_, '_> {
    fn partition(&mut self, key: &[u8], token: Token, static_row: Option<RowView<'_>>) -> Flow {
        self.begin();
        self.at(token, key);
        let flow = self.rows.partition(key, token, static_row);
        self.begun = true;
        if self.rows.is_paused() {
            let static_row = static_row.map(|row| row.as_bytes().to_vec());
            self.ended = true;
            self.pause(Again::Partition { key: key.to_vec(), token, static_row });
            return Flow::Stop;
        }
        self.ended = false;
        flow
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        self.begin();
        // Rows behind one that is kept are kept too: they stay in order.
        let aside = (!self.again.is_empty() || self.rows.is_long(row)) && self.rows.calls().is_none();
        if aside && self.rows.passes_filters(clustering, row) {
            if self.rows.has_room_aside(row) {
                return self.keep(clustering, row);
            }
            if !self.again.is_empty() {
                return self.stop_behind_kept();
            }
        }
        match self.rows.row(clustering, row) {
            Flow::Continue => {
                let gives_way = self.gives_way || self.rows.is_busy();
                let things = if gives_way && reactor::need_preempt() { self.left } else { 1 };
                self.count(things, Flow::Continue, Some(Position::row(clustering)))
            }
            _ if self.rows.is_paused() => {
                self.pause(Again::Row { clustering: clustering.to_vec(), row: row.as_bytes().to_vec() });
                Flow::Stop
            }
            // Skipped partitions are reported when they have ended.
            other => other,
        }
    }

    fn partition_end(&mut self) -> Flow {
        self.begin();
        self.ended = true;
        if !self.again.is_empty() {
            self.again.push_back(Again::End);
            return self.count(self.left, Flow::Continue, None);
        }
        let flow = self.rows.partition_end();
        if self.rows.is_paused() {
            self.pause(Again::End);
            return Flow::Stop;
        }
        self.count(1, flow, None)
    }

    fn dead(&mut self, dead: Dead, place: Place<'_>) -> Flow {
        if !self.again.is_empty() {
            return self.stop_behind_kept();
        }
        let flow = self.rows.dead(dead, place);
        if self.key.token != place.token || self.key.key != place.key {
            // A fetch that continues inside a partition does not have its key at first.
            self.begun &= self.key.key.is_empty();
            self.at(place.token, place.key);
        }
        if dead.passed == 0 { flow } else { self.count(dead.passed as usize, flow, place.position) }
    }
}
