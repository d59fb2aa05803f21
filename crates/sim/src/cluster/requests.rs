//! The requests of clients while they work: the kinds of work of the run, cells among them, and that tables
//! are flushed and compacted.

use std::collections::BTreeMap;

use reactor::Group;
use wire::consistency::Consistency;

use super::cells::{Column, Place};
use super::client::{Client, copies, read_level, write_level};
use super::workloads::Workload;
use super::{Fate, KEYS, ROWS, below};
use crate::answer::{Value, bigint, int};

/// The timestamp of a change of cells is its number behind this one.
const TIMESTAMP_BASE: u64 = 1_767_225_600_000_000;

/// The form of a read of cells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    scope: Scope,
    reversed: bool,
    limit: Option<usize>,
    page: Option<u32>,
}

impl Default for Shape {
    /// The whole partition.
    fn default() -> Self {
        Self { scope: Scope::All, reversed: false, limit: None, page: None }
    }
}

impl Shape {
    fn random() -> Self {
        Self {
            scope: Scope::random(),
            reversed: below(3) == 0,
            limit: (below(3) == 0).then(|| 1 + below(3) as usize),
            page: (below(3) == 0).then(|| 1 + below(3) as u32),
        }
    }

    fn text(self) -> String {
        let order = if self.reversed { " ORDER BY c DESC" } else { "" };
        let limit = self.limit.map_or_else(String::new, |limit| format!(" LIMIT {limit}"));
        format!("{}{order}{limit}", self.scope.text())
    }

    /// Rows that an answer speaks of: behind the last one that a limit lets through it says nothing.
    fn rows(self, shown: &[Vec<Value>]) -> std::ops::Range<u32> {
        let all = self.scope.rows();
        let last = shown.last().and_then(|row| int(row.first()));
        match last.filter(|_| self.limit == Some(shown.len())) {
            Some(last) if self.reversed => last..all.end,
            Some(last) => all.start..last + 1,
            None => all,
        }
    }
}

/// Rows of cells that a statement covers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope {
    /// The partition.
    All,
    /// One row.
    One(u32),
    /// The rows from one on.
    From(u32),
}

impl Scope {
    fn random() -> Self {
        match below(4) {
            0 => Self::One(below(ROWS.into()) as u32),
            1 => Self::From(below(ROWS.into()) as u32),
            _ => Self::All,
        }
    }

    fn rows(self) -> std::ops::Range<u32> {
        match self {
            Self::All => 0..ROWS,
            Self::One(row) => row..row + 1,
            Self::From(row) => row..ROWS,
        }
    }

    fn text(self) -> String {
        match self {
            Self::All => String::new(),
            Self::One(row) => format!(" AND c = {row}"),
            Self::From(row) => format!(" AND c >= {row}"),
        }
    }

    fn places(self, key: u32) -> Vec<Place> {
        self.rows().flat_map(|row| [(key, row, Column::A), (key, row, Column::B)]).collect()
    }
}

/// Values of cells in rows of `c`, `a` and `b`.
pub(super) fn values(key: u32, rows: &[Vec<Value>]) -> Result<BTreeMap<Place, u64>, String> {
    let mut shown = BTreeMap::new();
    for row in rows {
        let place = int(row.first()).ok_or_else(|| format!("a row of cells is {row:?}"))?;
        for (column, value) in [(Column::A, row.get(1)), (Column::B, row.get(2))] {
            if let Some(value) = bigint(value) {
                shown.insert((key, place, column), value);
            }
        }
    }
    Ok(shown)
}

impl Client {
    /// Does one thing.
    ///
    /// # Errors
    /// An answer that is wrong.
    pub(super) async fn operate(&self) -> Result<(), String> {
        if below(16) == 0 {
            return self.maintain().await;
        }
        let kinds = &self.shared.workloads;
        match kinds[below(kinds.len() as u64) as usize] {
            Workload::Elements => self.use_sets().await,
            Workload::Cells if below(2) == 0 => self.change_cells().await,
            Workload::Cells => self.read_cells().await,
            Workload::Schema => self.use_schema().await,
            Workload::Registers => self.use_registers().await,
            Workload::Batches => self.use_batches().await,
            Workload::Counters => self.use_counters().await,
            Workload::Truncation => self.use_passing().await,
            Workload::Expiry => self.use_fading().await,
            Workload::Replication => self.use_replication().await,
        }
    }

    /// Writes or deletes cells.
    async fn change_cells(&self) -> Result<(), String> {
        let (key, level) = (below(KEYS.into()) as u32, write_level());
        let row = below(ROWS.into()) as u32;
        let begin = |places, deletes| self.shared.cells.borrow_mut().begin(places, deletes);
        let (number, text) = match below(8) {
            0..=2 => {
                let number = begin(Scope::One(row).places(key), false);
                let values = format!("VALUES ({key}, {row}, {number}, {number})");
                (
                    number,
                    format!("INSERT INTO sim.cells (k, c, a, b) {values} USING TIMESTAMP {}", at(number)),
                )
            }
            3..=4 => {
                let (name, column) = if below(2) == 0 { ("a", Column::A) } else { ("b", Column::B) };
                let number = begin(vec![(key, row, column)], false);
                let set = format!("SET {name} = {number} WHERE k = {key} AND c = {row}");
                (number, format!("UPDATE sim.cells USING TIMESTAMP {} {set}", at(number)))
            }
            5 => {
                let number = begin(vec![(key, row, Column::A)], true);
                let clause = format!("WHERE k = {key} AND c = {row}");
                (number, format!("DELETE a FROM sim.cells USING TIMESTAMP {} {clause}", at(number)))
            }
            _ => {
                let scope = if below(3) == 0 { Scope::random() } else { Scope::One(row) };
                let number = begin(scope.places(key), true);
                let clause = format!("WHERE k = {key}{}", scope.text());
                (number, format!("DELETE FROM sim.cells USING TIMESTAMP {} {clause}", at(number)))
            }
        };
        let fate = self.write(&text, level).await?;
        self.shared.count(if fate == Fate::Done { "cells changed" } else { "cells not changed" });
        self.shared.cells.borrow_mut().end(number, fate, copies(level));
        Ok(())
    }

    async fn read_cells(&self) -> Result<(), String> {
        let (key, level) = (below(KEYS.into()) as u32, read_level());
        let read = self.show_cells(key, level, Shape::random()).await?;
        self.shared.count(if read.is_some() { "cells read" } else { "cells not read" });
        Ok(())
    }

    /// Reads cells, which must be right; `None` where a fault kept them from being shown.
    pub(super) async fn show_cells(
        &self,
        key: u32,
        level: Consistency,
        shape: Shape,
    ) -> Result<Option<BTreeMap<Place, u64>>, String> {
        let text = format!("SELECT c, a, b FROM sim.cells WHERE k = {key}{}", shape.text());
        let mut floor = self.shared.cells.borrow().floor(shape.scope.places(key), copies(level));
        let Some(rows) = self.read(&text, level, shape.page).await? else { return Ok(None) };
        if shape.limit.is_some_and(|limit| rows.len() > limit) {
            return Err(format!("{text} at {level} shows {} rows", rows.len()));
        }
        let (shown, spoken_of) = (values(key, &rows)?, shape.rows(&rows));
        floor.keep(|(_, row, _)| spoken_of.contains(&row));
        let checked = self.shared.cells.borrow_mut().check(&floor, &shown);
        checked.map_err(|wrong| format!("{text} at {level}: {wrong}"))?;
        Ok(Some(shown))
    }

    /// Flushes or compacts a table on a shard of this node.
    async fn maintain(&self) -> Result<(), String> {
        let tables: Vec<_> = self.shared.workloads.iter().filter_map(|kind| kind.table()).collect();
        // Tables that clients make may be dropped at any time.
        if tables.is_empty() {
            return Ok(());
        }
        let (name, _) = tables[below(tables.len() as u64) as usize];
        let known = self.engine.storage().schema().table("sim", name).map(|table| table.id());
        let table = known.ok_or_else(|| format!("table {name} is gone"))?;
        let (shard, compact) = (below(reactor::shard_count() as u64) as usize, below(4) == 0);
        let done = reactor::mesh::call(shard, Group::ADMIN, move || async move {
            let storage = reactor::local::<storage::Storage>().ok_or("no storage")?;
            let done = if compact { storage.compact(table).await } else { storage.flush(table).await };
            match done {
                // The node was told to end in between.
                Err(storage::StorageError::Draining) => Ok(()),
                done => done.map_err(|error| error.to_string()),
            }
        });
        self.shared.count("maintained");
        match done.await {
            Ok(Err(_)) if self.shared.was_bad.get() => Ok(()),
            Ok(done) => done.map_err(|error| format!("maintenance of {name} on shard {shard}: {error}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The timestamp of a change.
fn at(number: u64) -> u64 {
    TIMESTAMP_BASE + number
}
