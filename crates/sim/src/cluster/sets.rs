//! Sets of elements as clients write and read them; `elements` says what a read must show.

use std::cell::RefCell;
use std::fmt::Write;

use wire::consistency::Consistency;

use super::client::{Client, copies, read_level, write_level};
use super::elements::Elements;
use super::{Fate, SETS, Shared, below};
use crate::answer::{Value, bigint, int};

/// A table of sets with its model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Set<'s> {
    pub(super) table: &'static str,
    pub(super) elements: &'s RefCell<Elements>,
}

impl Shared {
    /// The sets whose elements are inserted one by one.
    pub(super) fn elements_set(&self) -> Set<'_> {
        Set { table: "elements", elements: &self.elements }
    }
}

/// Sets that a read covers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sets {
    /// All.
    All,
    /// One.
    One(u32),
    /// Two.
    Two(u32, u32),
    /// Of one the elements from a number on, the last one first.
    Last(u32, u32),
}

impl Sets {
    pub(super) fn random() -> Self {
        let partition = || below(SETS.into()) as u32;
        match below(6) {
            0..=1 => Self::All,
            2 => Self::Two(partition(), partition()),
            3 => Self::Last(partition(), below(100) as u32),
            _ => Self::One(partition()),
        }
    }

    pub(super) fn covers(self, partition: u32, element: u32) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => partition == one,
            Self::Two(one, other) => partition == one || partition == other,
            Self::Last(one, from) => partition == one && element >= from,
        }
    }

    pub(super) fn text(self) -> String {
        match self {
            Self::All => String::new(),
            Self::One(one) => format!(" WHERE p = {one}"),
            Self::Two(one, other) => format!(" WHERE p IN ({one}, {other})"),
            Self::Last(one, from) => format!(" WHERE p = {one} AND e >= {from} ORDER BY e DESC"),
        }
    }
}

/// Pairs of partition and element in rows of both.
pub(super) fn pairs(rows: &[Vec<Value>]) -> Result<Vec<(u32, u32)>, String> {
    let pair = |row: &Vec<Value>| int(row.first()).zip(int(row.get(1)));
    rows.iter().map(|row| pair(row).ok_or_else(|| format!("a row of a set is {row:?}"))).collect()
}

impl Client {
    /// Inserts elements, or reads sets.
    ///
    /// # Errors
    /// An answer that is wrong.
    pub(super) async fn use_sets(&self) -> Result<(), String> {
        if below(7) < 4 { self.insert().await } else { self.read_sets().await }
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

    /// Reads one set, some, or all of them.
    async fn read_sets(&self) -> Result<(), String> {
        let (sets, level) = (Sets::random(), read_level());
        if matches!(sets, Sets::All) && below(2) == 0 {
            return self.count_elements(level).await;
        }
        let page = (!matches!(sets, Sets::One(_)) || below(2) == 0).then(|| 1 + below(20) as u32);
        let set = self.shared.elements_set();
        let read = self.show_sets(set, sets, level, page).await?;
        self.shared.count(if read.is_some() { "set read" } else { "set not read" });
        Ok(())
    }

    /// Counts all elements.
    async fn count_elements(&self, level: Consistency) -> Result<(), String> {
        let least = self.shared.elements.borrow().expect(copies(level), |_, _| true).count();
        let text = "SELECT COUNT(*) FROM sim.elements";
        let Some(rows) = self.read(text, level, None).await? else { return Ok(()) };
        let counted = rows.first().and_then(|row| bigint(row.first()));
        let most = self.shared.elements.borrow().begun();
        self.shared.count("elements counted");
        match counted {
            Some(counted) if (least as u64..=most as u64).contains(&counted) => Ok(()),
            _ => Err(format!("{text} at {level}: {counted:?}, and there are {least} to {most}")),
        }
    }

    /// Reads elements, which must be right; `None` where a fault kept them from being shown.
    pub(super) async fn show_sets(
        &self,
        set: Set<'_>,
        sets: Sets,
        level: Consistency,
        page: Option<u32>,
    ) -> Result<Option<Vec<(u32, u32)>>, String> {
        let text = format!("SELECT p, e FROM sim.{}{}", set.table, sets.text());
        let covers = |partition, element| sets.covers(partition, element);
        let expected = set.elements.borrow().expect(copies(level), covers);
        let Some(rows) = self.read(&text, level, page).await? else { return Ok(None) };
        let shown = pairs(&rows)?;
        if let Some((partition, element)) =
            shown.iter().find(|(partition, element)| !covers(*partition, *element))
        {
            return Err(format!("{text} at {level} shows element {element} of partition {partition}"));
        }
        let checked = set.elements.borrow_mut().check(&expected, &shown);
        checked.map_err(|wrong| format!("{text} at {level}: {wrong}"))?;
        Ok(Some(shown))
    }

    /// Reads all sets in the end, each and all of them, which must be right.
    ///
    /// # Errors
    /// The contradiction.
    pub(super) async fn show_all(&self, set: Set<'_>, level: Consistency) -> Result<Vec<(u32, u32)>, String> {
        let mut shown = Vec::new();
        for partition in 0..SETS {
            let one = Sets::One(partition);
            let rows = self.settle(async || self.show_sets(set, one, level, Some(7)).await).await?;
            shown.extend(rows);
        }
        let mut scanned = self.settle(async || self.show_sets(set, Sets::All, level, Some(5)).await).await?;
        scanned.sort_unstable();
        // A late write of unknown outcome may come in between; what was read stays.
        if let Some(lost) = shown.iter().find(|element| scanned.binary_search(element).is_err()) {
            let table = set.table;
            return Err(format!(
                "a scan of {table} at {level} lacks {lost:?}, which its partition showed: {scanned:?}"
            ));
        }
        Ok(scanned)
    }
}
