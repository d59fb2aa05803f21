//! What clients ask for while they work: elements and cells are written and read, tables flushed and
//! compacted.

use std::collections::BTreeMap;
use std::fmt::Write;

use reactor::Group;

use super::cells::{Column, Place};
use super::client::{Client, copies, read_level, write_level};
use super::{Fate, KEYS, ROWS, SETS, below};
use crate::answer::{Value, bigint, int};

/// The timestamp of a change of cells is its number behind this one.
const TIMESTAMP_BASE: u64 = 1_767_225_600_000_000;

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

/// Pairs of partition and element in rows of both.
fn pairs(rows: &[Vec<Value>]) -> Result<Vec<(u32, u32)>, String> {
    let pair = |row: &Vec<Value>| int(row.first()).zip(int(row.get(1)));
    rows.iter().map(|row| pair(row).ok_or_else(|| format!("a row of a set is {row:?}"))).collect()
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
        match below(16) {
            0..=3 => self.insert().await,
            4..=5 => self.read_set(Some(below(SETS.into()) as u32)).await,
            6 => self.read_set(None).await,
            7..=9 => self.change_cells().await,
            10..=12 => self.read_cells().await,
            13..=14 => self.use_schema().await,
            _ => self.maintain().await,
        }
    }

    /// Inserts elements, several as one batch.
    async fn insert(&self) -> Result<(), String> {
        let level = write_level();
        let count = if below(3) == 0 { 1 + below(4) } else { 1 };
        let mut inserted = Vec::new();
        let mut text = String::new();
        for _ in 0..count {
            let partition = below(SETS.into()) as u32;
            let element = self.shared.elements.borrow_mut().begin(partition);
            inserted.push(element);
            write!(text, "INSERT INTO sim.elements (p, e) VALUES ({partition}, {element}); ")
                .expect("a string takes all text");
        }
        if count > 1 {
            text = format!("BEGIN UNLOGGED BATCH {text}APPLY BATCH");
        }
        let fate = self.write(&text, level).await?;
        // Of several partitions some may have been written before another was refused.
        let fate = if count > 1 && fate == Fate::Refused { Fate::Doubt } else { fate };
        self.shared.count(match fate {
            Fate::Done => "inserted",
            Fate::Refused => "insert refused",
            Fate::Doubt => "insert in doubt",
        });
        let mut elements = self.shared.elements.borrow_mut();
        inserted.into_iter().try_for_each(|element| elements.end(element, fate, copies(level)))
    }

    /// Reads one set, or all of them.
    async fn read_set(&self, partition: Option<u32>) -> Result<(), String> {
        let page = (partition.is_none() || below(2) == 0).then(|| 1 + below(20) as u32);
        let level = read_level();
        let read = self.show_sets(partition, level, page).await?;
        self.shared.count(if read.is_some() { "set read" } else { "set not read" });
        Ok(())
    }

    /// Reads elements, which must be right; `None` where a fault kept them from being shown.
    pub(super) async fn show_sets(
        &self,
        partition: Option<u32>,
        level: wire::consistency::Consistency,
        page: Option<u32>,
    ) -> Result<Option<Vec<(u32, u32)>>, String> {
        let clause = partition.map_or_else(String::new, |partition| format!(" WHERE p = {partition}"));
        let text = format!("SELECT p, e FROM sim.elements{clause}");
        let expected = self.shared.elements.borrow().expect(partition, copies(level));
        let Some(rows) = self.read(&text, level, page).await? else { return Ok(None) };
        let shown = pairs(&rows)?;
        let checked = self.shared.elements.borrow_mut().check(&expected, &shown);
        checked.map_err(|wrong| format!("{text} at {level}: {wrong}"))?;
        Ok(Some(shown))
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
        let (key, level, scope) = (below(KEYS.into()) as u32, read_level(), Scope::random());
        let read = self.show_cells(key, level, scope, below(3) == 0).await?;
        self.shared.count(if read.is_some() { "cells read" } else { "cells not read" });
        Ok(())
    }

    /// Reads cells, which must be right; `None` where a fault kept them from being shown.
    pub(super) async fn show_cells(
        &self,
        key: u32,
        level: wire::consistency::Consistency,
        scope: Scope,
        reversed: bool,
    ) -> Result<Option<BTreeMap<Place, u64>>, String> {
        let order = if reversed { " ORDER BY c DESC" } else { "" };
        let text = format!("SELECT c, a, b FROM sim.cells WHERE k = {key}{}{order}", scope.text());
        let floor = self.shared.cells.borrow().floor(scope.places(key), copies(level));
        let page = (below(4) == 0).then_some(1);
        let Some(rows) = self.read(&text, level, page).await? else { return Ok(None) };
        let shown = values(key, &rows)?;
        let checked = self.shared.cells.borrow_mut().check(&floor, &shown);
        checked.map_err(|wrong| format!("{text} at {level}: {wrong}"))?;
        Ok(Some(shown))
    }

    /// Flushes or compacts a table on a shard of this node.
    async fn maintain(&self) -> Result<(), String> {
        let name = if below(2) == 0 { "elements" } else { "cells" };
        let known = self.engine.storage().schema().table("sim", name).map(|table| table.id());
        let table = known.ok_or_else(|| format!("table {name} is gone"))?;
        let (shard, compact) = (below(reactor::shard_count() as u64) as usize, below(4) == 0);
        let done = reactor::mesh::call(shard, Group::ADMIN, move || async move {
            let storage = reactor::local::<storage::Storage>().ok_or("no storage")?;
            let done = if compact { storage.compact(table).await } else { storage.flush(table).await };
            done.map_err(|error| error.to_string())
        });
        self.shared.count("maintained");
        match done.await {
            Ok(done) => done.map_err(|error| format!("maintenance of {name} on shard {shard}: {error}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The timestamp of a change.
fn at(number: u64) -> u64 {
    TIMESTAMP_BASE + number
}
