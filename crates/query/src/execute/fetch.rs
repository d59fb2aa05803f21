//! Scans in fetches of bounded length, each with a deadline of its own: what makes one row of many has no pages that
//! a client would ask for one by one, and may take longer than one read is allowed to.

use model::partition_key::DecoratedKey;
use model::{RowView, Table, Token};
use replication::read::position;
use storage::{Flow, PartitionRange, RowConsumer, Slices};

use super::rows::Rows;

/// Rows and partitions after which a fetch ends.
pub const FETCH_ROWS: usize = 10_000;

/// Where a fetch ended.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    /// The last partition that was read.
    pub(super) key: DecoratedKey,
    /// Its last row that was read; `None` where the partition has ended.
    pub(super) clustering: Option<Vec<u8>>,
}

/// What is left of a scan.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    /// Partitions to read next.
    pub(super) range: PartitionRange,
    /// Rows of them.
    pub(super) slices: Slices,
    /// What lies behind `range`, where that is the rest of one partition.
    then: Option<PartitionRange>,
}

impl Rest {
    /// A scan that has not begun.
    pub(super) fn new(range: PartitionRange, slices: Slices) -> Self {
        Self { range, slices, then: None }
    }

    /// What is left behind a fetch; `None` where nothing is. `all` are the slices of the whole scan.
    ///
    /// A partition of which no more can come is ended for the receiver.
    pub(super) fn behind(mut self, fetch: Fetched, plan: (&Table, bool), all: &Slices) -> Option<Self> {
        let then = self.then.take();
        let next = match fetch.stop {
            None => then,
            Some(Stop { key, clustering }) => {
                let rest = then.or_else(|| position::behind(&self.range, &key));
                if let Some(clustering) = clustering {
                    let (table, reversed) = plan;
                    let orders = table.clustering_orders();
                    position::resume_after(&mut self.slices, &clustering, reversed, orders);
                    self.range = PartitionRange::Key(key);
                    self.then = rest;
                    return Some(self);
                }
                rest
            }
        };
        Some(Self { range: next?, slices: all.clone(), then: None })
    }

    /// Whether it goes on inside a partition.
    pub(super) fn is_inside(&self) -> bool {
        matches!(self.range, PartitionRange::Key(_))
    }
}

/// How a fetch ended.
#[derive(Debug)]
pub(super) struct Fetched {
    /// Where it stopped for its length; `None` where it came to the end of its range, or no more is wanted.
    pub(super) stop: Option<Stop>,
}

/// Gives rows on until a fetch is long enough.
pub(super) struct Fetch<'r, 'q> {
    rows: &'r mut Rows<'q>,
    left: usize,
    key: DecoratedKey,
    ended: bool,
    stop: Option<Stop>,
}

impl<'r, 'q> Fetch<'r, 'q> {
    /// A fetch of [`FETCH_ROWS`] into `rows`; `rest` says where it begins.
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
            stop: None,
        }
    }

    /// Ends the fetch. The partition it began inside of is over if nothing more came of it.
    pub(super) fn end(self) -> Fetched {
        if !self.ended && self.stop.is_none() && !self.rows.is_done() {
            self.rows.partition_end();
        }
        Fetched { stop: self.stop }
    }

    fn count(&mut self, flow: Flow, clustering: Option<&[u8]>) -> Flow {
        self.left -= 1;
        if self.left > 0 || flow == Flow::Stop {
            return flow;
        }
        self.stop = Some(Stop { key: self.key.clone(), clustering: clustering.map(<[u8]>::to_vec) });
        Flow::Stop
    }
}

impl RowConsumer for Fetch<'_, '_> {
    fn partition(&mut self, key: &[u8], token: Token, static_row: Option<RowView<'_>>) -> Flow {
        self.key.token = token;
        self.key.key.clear();
        self.key.key.extend_from_slice(key);
        self.ended = false;
        self.rows.partition(key, token, static_row)
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        match self.rows.row(clustering, row) {
            Flow::Continue => self.count(Flow::Continue, Some(clustering)),
            // What is skipped is told when it has ended.
            other => other,
        }
    }

    fn partition_end(&mut self) -> Flow {
        self.ended = true;
        let flow = self.rows.partition_end();
        self.count(flow, None)
    }
}
