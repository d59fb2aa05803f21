//! Conditional writes and serial reads of the test's table.

use std::rc::Rc;
use std::time::Duration;

use model::clustering::Slice;
use model::deletion::LocalSeconds;
use model::mutation::append_one_row;
use model::partition_key::DecoratedKey;
use model::row::{CellKind, CellView};
use model::{ColumnId, DeletionTime, Liveness, RowBuilder, RowView, Table, Token};
use reactor::Deadline;
use replication::lwt::Current;
use replication::{
    Ballot, CasDeadlines, CasError, CasOutcome, CasRead, CasRequest, Consistency, ReadLimits,
    ReplicationError, Replicator,
};
use storage::{Flow, PartitionRange, ReadCommand, RowConsumer};

use super::nodes::{TABLE, V, W};

/// A value of a register.
pub(crate) type Value = Option<u32>;

/// The two values of a row.
pub(crate) type Row = (Value, Value);

/// A mutation that sets columns of a key's row.
pub(crate) fn mutation(key: &DecoratedKey, columns: &[(ColumnId, u32)], timestamp: i64) -> Vec<u8> {
    let mut mutation = Vec::new();
    append_one_row(&mut mutation, TABLE, key.token, &key.key, &[], |out| {
        let mut row = RowBuilder::new(out, Liveness::NONE, DeletionTime::LIVE);
        for (column, value) in columns {
            let kind = CellKind::Live(&value.to_be_bytes());
            row.cell(CellView { column: *column, timestamp, path: None, kind });
        }
        row.finish();
    });
    mutation
}

fn value(row: RowView<'_>, column: ColumnId) -> Value {
    let bytes = row.cell(column)?.value()?;
    Some(u32::from_be_bytes(bytes.try_into().expect("four bytes")))
}

fn row_of(row: RowView<'_>) -> Row {
    (value(row, V), value(row, W))
}

fn now() -> LocalSeconds {
    LocalSeconds::try_from(reactor::wall_clock_us() / 1_000_000).expect("before 2106")
}

/// Sets a column if V has a value.
pub(crate) struct Swap {
    pub(crate) key: DecoratedKey,
    pub(crate) old: Value,
    pub(crate) new: (ColumnId, u32),
    /// How often it was decided.
    pub(crate) decided: u32,
}

impl CasRequest for Swap {
    type Error = ();

    fn reads(&self) -> (Vec<CasRead>, LocalSeconds) {
        let slices = [Slice::all()].into_iter().collect();
        (vec![CasRead { slices, rows_max: 1, shown_by: None }], now())
    }

    fn decide(&mut self, current: &Current, ballot: Ballot, out: &mut Vec<u8>) -> Result<bool, ()> {
        self.decided += 1;
        if seen(current).0 != self.old {
            return Ok(false);
        }
        out.extend(mutation(&self.key, &[self.new], ballot.micros));
        Ok(true)
    }
}

/// What a request saw.
pub(crate) fn seen(current: &Current) -> Row {
    current.rows().next().map_or((None, None), |(_, row)| row_of(row))
}

/// How a conditional write ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    Applied,
    /// It was not applied; what was there instead.
    Rejected(Row),
    /// It failed and did not happen.
    Failed(String),
    /// It may have happened.
    Unknown,
    /// It happened, and is not committed at its level.
    Uncommitted,
}

pub(crate) fn deadlines(contention: Duration) -> CasDeadlines {
    let write = Deadline::after(contention + Duration::from_secs(1));
    CasDeadlines { contention: Deadline::after(contention), write }
}

/// Executes a swap.
pub(crate) async fn swap(
    replicator: &Replicator,
    table: &Table,
    request: &mut Swap,
    levels: (Consistency, Consistency),
    contention: Duration,
) -> Ended {
    let key = request.key.clone();
    match replicator.cas(table, &key, request, levels, deadlines(contention)).await {
        Ok(CasOutcome::Applied) => Ended::Applied,
        Ok(CasOutcome::Rejected(current)) => Ended::Rejected(seen(&current)),
        Err(CasError::Replication(ReplicationError::Undecided { .. })) => Ended::Unknown,
        Err(CasError::Replication(ReplicationError::Uncommitted { .. })) => Ended::Uncommitted,
        Err(CasError::Replication(error)) => Ended::Failed(format!("{error:?}")),
        Err(CasError::Request(())) => panic!("a swap can be decided"),
    }
}

#[derive(Default)]
struct Taken(Row);

impl RowConsumer for Taken {
    fn partition(&mut self, _: &[u8], _: Token, _: Option<RowView<'_>>) -> Flow {
        Flow::Continue
    }

    fn row(&mut self, _: &[u8], row: RowView<'_>) -> Flow {
        self.0 = row_of(row);
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

/// Reads a key's row at a level.
pub(crate) async fn read(
    replicator: &Replicator,
    table: &Rc<Table>,
    key: &DecoratedKey,
    level: Consistency,
    within: Duration,
) -> Result<Row, ReplicationError> {
    let command = ReadCommand {
        table: Rc::clone(table),
        range: PartitionRange::Key(key.clone()),
        slices: [Slice::all()].into_iter().collect(),
        reversed: false,
        now: now(),
        bypass_cache: false,
    };
    let (mut taken, limits) = (Taken::default(), ReadLimits::default());
    replicator.read(&command, limits, level, Deadline::after(within), &mut taken).await?;
    Ok(taken.0)
}
