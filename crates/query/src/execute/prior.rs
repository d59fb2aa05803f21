//! The previous contents of a partition, for writes that need them: elements of lists by their index or
//! value.
//!
//! Read at the write's own consistency before anything is written, as by Cassandra's
//! `ModificationStatement.readRequiredLists`. Of two concurrent writes both may see the list before the
//! other; such writes are not isolated.

use model::{RowView, Token};
use replication::lwt::Current;
use replication::{Consistency, ReadLimits};
use statement::prepare::modify::ModifyPlan;
use statement::restrictions::{keys, slices};
use statement::terms::Binding;
use storage::{Flow, PartitionRange, ReadCommand, RowConsumer, Slices};

use super::updates::Moment;
use crate::QueryError;
use crate::engine::Engine;

/// Bytes of rows that one write may have to read.
const PRIOR_BYTES_MAX: usize = 64 << 20;

/// Rows as they were.
#[derive(Debug, Default)]
pub struct Prior {
    rows: Vec<PriorRow>,
    bytes: usize,
    key: Vec<u8>,
}

#[derive(Debug)]
struct PriorRow {
    key: Vec<u8>,
    /// `None` is the static row.
    clustering: Option<Vec<u8>>,
    row: Vec<u8>,
}

impl Prior {
    /// Reads the rows that `plan` needs, if any.
    ///
    /// # Errors
    /// [`QueryError`] of values, consistency or storage.
    pub async fn read(
        engine: &Engine,
        plan: &ModifyPlan,
        binding: &Binding<'_>,
        moment: Moment,
        level: Consistency,
    ) -> Result<Self, QueryError> {
        let mut prior = Self::default();
        if !plan.needs_read() {
            return Ok(prior);
        }
        if level == Consistency::Any {
            return Err(QueryError::invalid(
                "Write operation require a read but consistency ANY is not supported on reads",
            ));
        }
        let mut rows = Slices::new();
        slices::fill(&plan.restrictions, &plan.table, binding, &mut rows)?;
        for key in keys::all(&plan.restrictions, &plan.table, binding)? {
            let command = ReadCommand {
                table: plan.table.clone(),
                range: PartitionRange::Key(key),
                slices: rows.clone(),
                reversed: false,
                now: moment.now,
                bypass_cache: false,
            };
            engine.read(&command, ReadLimits::default(), level, None, &mut prior).await?;
        }
        if prior.bytes > PRIOR_BYTES_MAX {
            return Err(QueryError::Invalid(format!(
                "The lists to be changed are larger than {PRIOR_BYTES_MAX} bytes together"
            )));
        }
        Ok(prior)
    }

    /// The rows that a conditional write has read.
    pub fn of(key: &[u8], current: &Current) -> Self {
        let mut prior = Self { key: key.to_vec(), ..Self::default() };
        if let Some(row) = current.static_row() {
            prior.keep(None, row);
        }
        for (clustering, row) in current.rows() {
            prior.keep(Some(clustering), row);
        }
        prior
    }

    /// The row as it was; the static one without a clustering.
    pub fn row(&self, key: &[u8], clustering: Option<&[u8]>) -> Option<RowView<'_>> {
        let found = self.rows.iter().find(|row| row.key == key && row.clustering.as_deref() == clustering)?;
        Some(RowView::trusted(&found.row))
    }

    fn keep(&mut self, clustering: Option<&[u8]>, row: RowView<'_>) {
        self.bytes += row.as_bytes().len();
        self.rows.push(PriorRow {
            key: self.key.clone(),
            clustering: clustering.map(<[u8]>::to_vec),
            row: row.as_bytes().to_vec(),
        });
    }

    fn flow(&self) -> Flow {
        if self.bytes > PRIOR_BYTES_MAX { Flow::Stop } else { Flow::Continue }
    }
}

impl RowConsumer for Prior {
    fn partition(&mut self, key: &[u8], _token: Token, static_row: Option<RowView<'_>>) -> Flow {
        self.key = key.to_vec();
        if let Some(row) = static_row {
            self.keep(None, row);
        }
        self.flow()
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        self.keep(Some(clustering), row);
        self.flow()
    }

    fn partition_end(&mut self) -> Flow {
        self.flow()
    }
}
