//! Contents of a partition when a conditional write read it: rows as bytes, so that they can be sent between
//! shards.

use model::deletion::LocalSeconds;
use model::{ColumnId, RowView, Token};
use storage::{Flow, RowConsumer};

/// Most bytes of rows that one conditional write may read.
pub const CURRENT_BYTES_MAX: usize = 64 << 20;

/// Live rows of one partition, by clustering, and its static row.
#[derive(Debug, Clone, Default)]
pub struct Current {
    static_row: Option<Vec<u8>>,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
}

impl Current {
    /// The static row, if it has live cells.
    pub fn static_row(&self) -> Option<RowView<'_>> {
        self.static_row.as_deref().map(RowView::trusted)
    }

    /// The row at a clustering, if it is live and was requested.
    pub fn row(&self, clustering: &[u8]) -> Option<RowView<'_>> {
        let (_, row) = self.rows.iter().find(|(at, _)| at == clustering)?;
        Some(RowView::trusted(row))
    }

    /// The rows in the order they were read, each with its clustering.
    pub fn rows(&self) -> impl Iterator<Item = (&[u8], RowView<'_>)> {
        self.rows.iter().map(|(clustering, row)| (clustering.as_slice(), RowView::trusted(row)))
    }

    /// Whether more was read than [`CURRENT_BYTES_MAX`] allows.
    pub(super) fn is_too_large(&self) -> bool {
        self.bytes > CURRENT_BYTES_MAX
    }
}

/// Takes the rows of one read.
pub(crate) struct Taker<'c> {
    current: &'c mut Current,
    left: usize,
    shown_by: Option<(&'c [ColumnId], LocalSeconds)>,
}

impl<'c> Taker<'c> {
    pub(crate) fn new(
        current: &'c mut Current,
        rows_max: usize,
        shown_by: Option<(&'c [ColumnId], LocalSeconds)>,
    ) -> Self {
        Self { current, left: rows_max, shown_by }
    }

    /// Whether a row counts, by [`CasRead::shown_by`](super::CasRead::shown_by).
    fn shows(&self, row: RowView<'_>) -> bool {
        self.shown_by.is_none_or(|(columns, now)| {
            row.liveness().is_live(now)
                || row.cells().any(|cell| columns.contains(&cell.column) && cell.is_live(now))
        })
    }

    fn flow(&self) -> Flow {
        if self.left == 0 || self.current.is_too_large() { Flow::Stop } else { Flow::Continue }
    }
}

impl RowConsumer for Taker<'_> {
    fn partition(&mut self, _key: &[u8], _token: Token, static_row: Option<RowView<'_>>) -> Flow {
        if let Some(row) = static_row {
            self.current.bytes += row.as_bytes().len();
            self.current.static_row = Some(row.as_bytes().to_vec());
        }
        self.flow()
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        if !self.shows(row) {
            return self.flow();
        }
        self.left -= 1;
        // Two reads of one decision may meet in a row.
        if self.current.row(clustering).is_none() {
            self.current.bytes += row.as_bytes().len();
            self.current.rows.push((clustering.to_vec(), row.as_bytes().to_vec()));
        }
        self.flow()
    }

    fn partition_end(&mut self) -> Flow {
        self.flow()
    }
}
