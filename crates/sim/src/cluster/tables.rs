//! The model of tables that clients make, alter and drop while they are used.
//!
//! A change that was answered is known at the node that answered it, and everywhere once some time has passed
//! without a fault. Invariant: where a change is known, no request may be refused for lack of it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Fate;

/// How long a change may take to reach all nodes while nothing is wrong.
const SPREAD: Duration = Duration::from_secs(5);

/// A start of a node: the node and how many starts it had before.
pub(super) type Life = (usize, u64);

/// Where and when a change was answered.
#[derive(Debug, Clone, Copy)]
struct Told {
    life: Life,
    at: Duration,
}

/// A change of the schema.
#[derive(Debug, Clone, Copy, Default)]
struct Change {
    fate: Option<Fate>,
    told: Option<Told>,
}

impl Change {
    /// Whether a request that begins at `now` on `life` must find it, nothing having been wrong since
    /// `calm_since`.
    fn is_known(&self, life: Life, now: Duration, calm_since: Option<Duration>) -> bool {
        let Some(told) = self.told else { return false };
        told.life == life || calm_since.is_some_and(|calm| now >= told.at.max(calm) + SPREAD)
    }
}

/// A table.
#[derive(Debug, Default)]
struct Table {
    made: Change,
    /// Columns beside the first.
    columns: Vec<Change>,
    /// Whether somebody has begun to drop it.
    dropping: bool,
    dropped: Change,
    /// Rows that were acknowledged by a majority: column and value by key.
    rows: BTreeMap<u32, (usize, u32)>,
    rows_begun: u32,
}

/// All tables.
#[derive(Debug, Default)]
pub(super) struct Tables(Vec<Table>);

/// A change that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// Of a table.
    Create(usize),
    /// Of a column.
    Add(usize, usize),
    /// Of a table.
    Drop(usize),
}

/// Where a table is to be used, and since when nothing has been wrong.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// The node's start.
    pub(super) life: Life,
    /// The time.
    pub(super) at: Duration,
    /// `None` while something is wrong.
    pub(super) calm_since: Option<Duration>,
}

impl Tables {
    /// A table is about to be made.
    pub(super) fn create(&mut self) -> Begun {
        self.0.push(Table::default());
        Begun::Create(self.0.len() - 1)
    }

    /// A column is about to be added.
    pub(super) fn add(&mut self, table: usize) -> Begun {
        let columns = &mut self.0[table].columns;
        columns.push(Change::default());
        Begun::Add(table, columns.len())
    }

    /// A table is about to be dropped.
    pub(super) fn drop_table(&mut self, table: usize) -> Begun {
        self.0[table].dropping = true;
        Begun::Drop(table)
    }

    /// A change is answered, or was refused, or nobody knows.
    pub(super) fn end(&mut self, begun: Begun, fate: Fate, life: Life, at: Duration) {
        let change = match begun {
            Begun::Create(table) => &mut self.0[table].made,
            Begun::Add(table, column) => &mut self.0[table].columns[column - 1],
            Begun::Drop(table) => &mut self.0[table].dropped,
        };
        let told = (fate == Fate::Done).then_some(Told { life, at });
        *change = Change { fate: Some(fate), told };
    }

    /// Tables that a request must find, and that nobody drops.
    pub(super) fn usable(&self, now: Now) -> Vec<usize> {
        let is_usable =
            |table: &Table| !table.dropping && table.made.is_known(now.life, now.at, now.calm_since);
        self.0.iter().enumerate().filter(|(_, table)| is_usable(table)).map(|(at, _)| at).collect()
    }

    /// Columns of a table that a request must find.
    pub(super) fn columns(&self, table: usize, now: Now) -> Vec<usize> {
        let columns = self.0[table].columns.iter().enumerate();
        let known = columns.filter(|(_, column)| column.is_known(now.life, now.at, now.calm_since));
        std::iter::once(0).chain(known.map(|(at, _)| at + 1)).collect()
    }

    /// Whether nobody has begun to drop a table.
    pub(super) fn is_kept(&self, table: usize) -> bool {
        !self.0[table].dropping
    }

    /// A key for a new row.
    pub(super) fn next_row(&mut self, table: usize) -> u32 {
        self.0[table].rows_begun += 1;
        self.0[table].rows_begun
    }

    /// A row was acknowledged by a majority.
    pub(super) fn has_row(&mut self, table: usize, key: u32, row: (usize, u32)) {
        self.0[table].rows.insert(key, row);
    }

    /// Tables that must be there in the end.
    pub(super) fn there(&self) -> Vec<usize> {
        let is_there = |table: &Table| table.made.fate == Some(Fate::Done) && !table.dropping;
        self.0.iter().enumerate().filter(|(_, table)| is_there(table)).map(|(at, _)| at).collect()
    }

    /// The acknowledged rows of a table: column and value by key.
    pub(super) fn rows_of(&self, table: usize) -> BTreeMap<u32, (usize, u32)> {
        self.0[table].rows.clone()
    }

    /// Tables that must not be there in the end.
    pub(super) fn gone(&self) -> Vec<usize> {
        let is_gone =
            |table: &Table| table.dropped.fate == Some(Fate::Done) || table.made.fate == Some(Fate::Refused);
        self.0.iter().enumerate().filter(|(_, table)| is_gone(table)).map(|(at, _)| at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(life: Life, seconds: u64, calm: Option<u64>) -> Now {
        Now { life, at: Duration::from_secs(seconds), calm_since: calm.map(Duration::from_secs) }
    }

    #[test]
    fn a_change_is_known_where_it_was_answered_and_elsewhere_after_a_calm_time() {
        let mut tables = Tables::default();
        let begun = tables.create();
        assert!(tables.usable(now((1, 0), 1, Some(0))).is_empty());
        tables.end(begun, Fate::Done, (1, 0), Duration::from_secs(10));
        assert_eq!(tables.usable(now((1, 0), 10, None)), [0]);
        assert!(tables.usable(now((1, 1), 11, Some(0))).is_empty(), "another start");
        assert!(tables.usable(now((2, 0), 60, None)).is_empty(), "something is wrong");
        assert_eq!(tables.usable(now((2, 0), 16, Some(0))), [0]);
        assert!(tables.usable(now((2, 0), 60, Some(58))).is_empty(), "calm for too short a time");
        let begun = tables.add(0);
        assert_eq!(tables.columns(0, now((1, 0), 20, None)), [0]);
        tables.end(begun, Fate::Done, (1, 0), Duration::from_secs(20));
        assert_eq!(tables.columns(0, now((1, 0), 20, None)), [0, 1]);
    }

    #[test]
    fn a_table_that_somebody_drops_is_neither_used_nor_expected() {
        let mut tables = Tables::default();
        let begun = tables.create();
        tables.end(begun, Fate::Done, (1, 0), Duration::ZERO);
        assert_eq!(tables.there(), [0]);
        let begun = tables.drop_table(0);
        assert!(tables.usable(now((1, 0), 9, Some(0))).is_empty() && !tables.is_kept(0));
        assert!(tables.there().is_empty() && tables.gone().is_empty());
        tables.end(begun, Fate::Done, (1, 0), Duration::from_secs(1));
        assert_eq!(tables.gone(), [0]);
    }
}
