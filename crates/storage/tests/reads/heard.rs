//! Receivers of raw and of live reads that keep all they are given, in clustering order.

use std::cmp::Ordering;
use std::fmt;

use model::clustering::{ClusteringOrder, OwnedPosition, Position};
use model::deletion::LocalSeconds;
use model::mutation::MutationBuilder;
use model::partition_key::DecoratedKey;
use model::reconcile::{Purge, compact_row, is_live};
use model::{Clustering, DeletionTime, RowView, TableId, Token};
use storage::{Flow, Place, RawConsumer, RowConsumer};

/// A row with its clustering.
type Row = (Vec<u8>, Vec<u8>);

/// A partition as clients see it: key, static row, rows.
pub(crate) type Live = (Vec<u8>, Option<Vec<u8>>, Vec<Row>);

/// A partition with its deletions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) key: Vec<u8>,
    deletion: DeletionTime,
    statics: Option<Vec<u8>>,
    rows: Vec<Row>,
    ranges: Vec<(OwnedPosition, OwnedPosition, DeletionTime)>,
}

impl Part {
    /// The partition as a mutation of a table: the form in which a replica answers.
    pub(crate) fn mutation(&self, table: TableId) -> Vec<u8> {
        let key = DecoratedKey::new(self.key.clone());
        let mut out = Vec::new();
        let statics = self.statics.as_deref().unwrap_or_default();
        let mut builder = MutationBuilder::new(&mut out, table, key.token, &key.key, self.deletion, |out| {
            out.extend_from_slice(statics);
        });
        for (start, end, deletion) in &self.ranges {
            builder.range_tombstone(start.as_ref(), end.as_ref(), *deletion);
        }
        let mut rows = builder.rows();
        for (clustering, row) in &self.rows {
            rows.row(clustering, |out| out.extend_from_slice(row));
        }
        rows.finish();
        out
    }
}

impl fmt::Display for Part {
    /// A line for the partition, then one for each row, then one for each range.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = |row: RowView<'_>| format!("{:?}", row.cells().map(|cell| cell.kind).collect::<Vec<_>>());
        let numbers = |prefix: &[u8]| -> Vec<i32> {
            let number = |column: &[u8]| i32::from_be_bytes(column.try_into().expect("four bytes"));
            Clustering(prefix).components().flatten().map(number).collect()
        };
        let statics = self.statics.as_deref().map(|row| kinds(RowView::trusted(row))).unwrap_or_default();
        writeln!(f, "partition deleted at {}, static cells {statics}", self.deletion.timestamp)?;
        for (clustering, row) in &self.rows {
            let row = RowView::trusted(row);
            write!(f, "row {:?} ", numbers(clustering))?;
            if !row.deletion().is_live() {
                write!(f, "deleted at {}, ", row.deletion().timestamp)?;
            }
            let marker = row.liveness();
            let marker =
                if marker.is_none() { "none".to_owned() } else { format!("at {}", marker.timestamp) };
            writeln!(f, "marker {marker}, cells {}", kinds(row))?;
        }
        for (from, to, deletion) in &self.ranges {
            let (first, last) = (numbers(&from.prefix), numbers(&to.prefix));
            let (before, behind, at) = (from.weight, to.weight, deletion.timestamp);
            writeln!(f, "range from {first:?} {before} to {last:?} {behind} deleted at {at}")?;
        }
        Ok(())
    }
}

/// All that a raw read handed over.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) parts: Vec<Part>,
    /// The live rows that follow from the same elements, in reading order.
    pub(crate) live: Vec<Live>,
    now: LocalSeconds,
    reversed: bool,
    /// The read is stopped at this element, counted from 1 with beginnings and ends of partitions.
    stop: Option<usize>,
    heard: usize,
    open: Option<(OwnedPosition, DeletionTime)>,
    ended: bool,
    /// Key, position and open range deletion of the place where the read stopped.
    pub(crate) stopped: Option<(Vec<u8>, Option<OwnedPosition>, DeletionTime)>,
}

impl Heard {
    pub(crate) fn new(now: LocalSeconds, reversed: bool, stop: Option<usize>) -> Self {
        Self { now, reversed, stop, ended: true, ..Self::default() }
    }

    fn flow(&mut self) -> Flow {
        assert!(self.stopped.is_none(), "something was handed over behind the stop");
        self.heard += 1;
        if self.stop == Some(self.heard) { Flow::Stop } else { Flow::Continue }
    }

    fn live_row(&self, row: RowView<'_>, active: DeletionTime) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        (compact_row(row, active, &Purge::everything(self.now), &mut out)
            && is_live(RowView::trusted(&out), self.now))
        .then_some(out)
    }

    /// Ends the range that is open, at `at`.
    fn close(&mut self, at: Position<'_>) {
        let Some((from, deletion)) = self.open.take() else { return };
        let (start, end) = if self.reversed { (at.to_owned(), from) } else { (from, at.to_owned()) };
        self.parts.last_mut().expect("a partition is announced").ranges.push((start, end, deletion));
    }

    fn finish_part(&mut self) {
        self.ended = true;
        let part = self.parts.last_mut().expect("a partition is announced");
        if self.reversed {
            part.rows.reverse();
            part.ranges.reverse();
        }
        if self.live.last().is_some_and(|(_, statics, rows)| statics.is_none() && rows.is_empty()) {
            self.live.pop();
        }
    }
}

impl RawConsumer for Heard {
    fn partition(
        &mut self,
        key: &[u8],
        _: Token,
        deletion: DeletionTime,
        static_row: Option<RowView<'_>>,
    ) -> Flow {
        assert!(self.ended && self.open.is_none(), "the partition before was not ended");
        self.ended = false;
        let statics = static_row.map(|row| row.as_bytes().to_vec());
        let (rows, ranges) = (Vec::new(), Vec::new());
        let live = static_row.and_then(|row| self.live_row(row, deletion));
        self.live.push((key.to_vec(), live, Vec::new()));
        self.parts.push(Part { key: key.to_vec(), deletion, statics, rows, ranges });
        self.flow()
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        let part = self.parts.last_mut().expect("a partition is announced");
        let range = self.open.as_ref().map_or(DeletionTime::LIVE, |(_, deletion)| *deletion);
        let active = part.deletion.max(range);
        part.rows.push((clustering.to_vec(), row.as_bytes().to_vec()));
        if let Some(live) = self.live_row(row, active) {
            self.live.last_mut().expect("a partition").2.push((clustering.to_vec(), live));
        }
        self.flow()
    }

    fn change(&mut self, at: Position<'_>, deletion: DeletionTime) -> Flow {
        let before = self.open.as_ref().map_or(DeletionTime::LIVE, |(_, deletion)| *deletion);
        assert_ne!(before, deletion, "a change changes something");
        self.close(at);
        self.open = (!deletion.is_live()).then(|| (at.to_owned(), deletion));
        self.flow()
    }

    fn partition_end(&mut self) -> Flow {
        assert!(!self.ended && self.open.is_none(), "ended with {:?}", self.open);
        self.finish_part();
        self.flow()
    }

    fn stopped(&mut self, place: Place<'_>, open: DeletionTime) {
        let last = &self.parts.last().expect("a partition is announced").key;
        assert_eq!(last, place.key, "a read stops in the last partition");
        let told = self.open.as_ref().map_or(DeletionTime::LIVE, |(_, deletion)| *deletion);
        assert_eq!(open, told, "the range deletion in force");
        if let Some(at) = place.position {
            self.close(at);
            self.finish_part();
        }
        self.stopped = Some((place.key.to_vec(), place.position.map(Position::to_owned), open));
    }
}

/// Joins the two halves of a partition that was read in two reads; `first` is the lower one.
pub(crate) fn join(first: &Part, second: &Part, orders: &[ClusteringOrder]) -> Part {
    assert_eq!((&first.key, first.deletion, &first.statics), (&second.key, second.deletion, &second.statics));
    let mut both = first.clone();
    both.rows.extend(second.rows.iter().cloned());
    for range in &second.ranges {
        match both.ranges.last_mut() {
            Some((_, end, deletion))
                if *deletion == range.2
                    && end.as_ref().compare(range.0.as_ref(), orders) == Ordering::Equal =>
            {
                *end = range.1.clone();
            }
            _ => both.ranges.push(range.clone()),
        }
    }
    both
}

/// All that a live read handed over.
#[derive(Debug, Default)]
pub(crate) struct Seen(pub(crate) Vec<Live>);

impl RowConsumer for Seen {
    fn partition(&mut self, key: &[u8], _: Token, static_row: Option<RowView<'_>>) -> Flow {
        self.0.push((key.to_vec(), static_row.map(|row| row.as_bytes().to_vec()), Vec::new()));
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        let rows = &mut self.0.last_mut().expect("a partition is announced").2;
        rows.push((clustering.to_vec(), row.as_bytes().to_vec()));
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}
