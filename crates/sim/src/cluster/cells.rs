//! The model of cells that are written, overwritten and deleted, each change with a timestamp of its own.
//!
//! Of what a cell has seen, the change with the highest timestamp counts. So it behaves as a register that
//! only grows: a read of `r` copies shows a change at least as new as every one that was on more than
//! `COPIES - r` copies when the read began. That keeps reads from going back behind an acknowledged write or
//! an earlier read, whoever writes.

use std::collections::BTreeMap;

use super::{COPIES, Fate};

/// Partition, row and column.
pub(super) type Place = (u32, u32, Column);

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column {
    /// `a`
    A,
    /// `b`
    B,
}

/// A change of one or more cells.
#[derive(Debug)]
struct Change {
    places: Vec<Place>,
    deletes: bool,
    fate: Fate,
}

#[derive(Debug, Default)]
struct Cell {
    /// Newest change that is known to be on at least so many copies, less one.
    newest: [u64; COPIES],
    /// Numbers of the changes, ascending; none of them means that it is null.
    changes: Vec<u64>,
}

/// All cells.
#[derive(Debug, Default)]
pub(super) struct Cells {
    changes: Vec<Change>,
    cells: BTreeMap<Place, Cell>,
}

/// A read that has begun.
#[derive(Debug)]
pub(super) struct Floor {
    copies: usize,
    /// The oldest change that each cell may show.
    cells: Vec<(Place, u64)>,
}

impl Floor {
    /// Keeps the places of which an answer speaks.
    pub(super) fn keep(&mut self, is_kept: impl Fn(Place) -> bool) {
        self.cells.retain(|(place, _)| is_kept(*place));
    }
}

impl Cells {
    /// A change begins; its number, from 1, is the value that it writes and the order of its timestamp.
    pub(super) fn begin(&mut self, places: Vec<Place>, deletes: bool) -> u64 {
        let number = self.changes.len() as u64 + 1;
        for place in &places {
            self.cells.entry(*place).or_default().changes.push(number);
        }
        self.changes.push(Change { places, deletes, fate: Fate::Doubt });
        number
    }

    /// Its answer; `copies` acknowledged it.
    pub(super) fn end(&mut self, number: u64, fate: Fate, copies: usize) {
        let change = &mut self.changes[number as usize - 1];
        change.fate = fate;
        if fate == Fate::Done {
            for place in change.places.clone() {
                self.raise(place, number, copies);
            }
        }
    }

    fn raise(&mut self, place: Place, number: u64, copies: usize) {
        let cell = self.cells.entry(place).or_default();
        for newest in &mut cell.newest[..copies] {
            *newest = number.max(*newest);
        }
    }

    /// A read of cells by `copies` begins.
    pub(super) fn floor(&self, places: impl IntoIterator<Item = Place>, copies: usize) -> Floor {
        let of = |place| self.cells.get(&place).map_or(0, |cell| cell.newest[COPIES - copies]);
        Floor { copies, cells: places.into_iter().map(|place| (place, of(place))).collect() }
    }

    /// Checks the values that a read showed; cells without one are null.
    ///
    /// # Errors
    /// The contradiction.
    pub(super) fn check(&mut self, floor: &Floor, shown: &BTreeMap<Place, u64>) -> Result<(), String> {
        if let Some(place) = shown.keys().find(|place| floor.cells.iter().all(|(asked, _)| asked != *place)) {
            return Err(format!("cell {place:?} was not asked for"));
        }
        for (place, least) in &floor.cells {
            let value = shown.get(place).copied();
            let seen = self.change_of(*place, *least, value).ok_or_else(|| {
                let changes = self.cells.get(place).map_or(&[][..], |cell| &cell.changes);
                let newer = changes.iter().filter(|number| **number >= *least);
                let newer: Vec<_> =
                    newer.map(|number| (number, &self.changes[*number as usize - 1])).collect();
                format!(
                    "cell {place:?} shows {value:?}, and change {least} was there before; changes: {newer:?}"
                )
            })?;
            self.raise(*place, seen, floor.copies);
        }
        Ok(())
    }

    /// The oldest change, from `least` on, that makes a cell show `value`; 0 where there was none yet.
    fn change_of(&self, place: Place, least: u64, value: Option<u64>) -> Option<u64> {
        if value.is_none() && least == 0 {
            return Some(0);
        }
        let changes = &self.cells.get(&place)?.changes;
        changes.iter().copied().filter(|number| *number >= least).find(|number| {
            let change = &self.changes[*number as usize - 1];
            let shows = (!change.deletes).then_some(*number);
            change.fate != Fate::Refused && shows == value
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Place = (1, 2, Column::A);

    fn read(cells: &mut Cells, copies: usize, value: Option<u64>) -> Result<(), String> {
        let floor = cells.floor([AT], copies);
        cells.check(&floor, &value.map(|value| (AT, value)).into_iter().collect())
    }

    #[test]
    fn a_read_never_goes_back_behind_a_write_or_a_read() {
        let mut cells = Cells::default();
        let first = cells.begin(vec![AT], false);
        let second = cells.begin(vec![AT], false);
        cells.end(first, Fate::Done, 2);
        assert!(read(&mut cells, 2, None).is_err(), "a quorum has it");
        read(&mut cells, 1, None).expect("one copy may lack it");
        read(&mut cells, 2, Some(first)).expect("it was acknowledged");
        read(&mut cells, 2, Some(second)).expect("it is under way");
        assert!(read(&mut cells, 2, Some(first)).unwrap_err().contains("was there before"));
    }

    #[test]
    fn a_deletion_shows_null_and_nothing_else_does() {
        let mut cells = Cells::default();
        let written = cells.begin(vec![AT], false);
        cells.end(written, Fate::Done, 3);
        assert!(read(&mut cells, 1, None).is_err());
        let deleted = cells.begin(vec![AT, (1, 2, Column::B)], true);
        read(&mut cells, 2, Some(written)).expect("the deletion is under way");
        read(&mut cells, 2, None).expect("the deletion came");
        assert!(read(&mut cells, 2, Some(written)).is_err(), "a deletion was shown");
        let refused = cells.begin(vec![AT], false);
        cells.end(refused, Fate::Refused, 0);
        assert!(read(&mut cells, 2, Some(refused)).is_err(), "it was refused");
        assert!(read(&mut cells, 2, Some(deleted)).is_err(), "a deletion has no value");
    }

    #[test]
    fn a_cell_that_was_not_asked_for_is_wrong() {
        let mut cells = Cells::default();
        let written = cells.begin(vec![AT], false);
        let floor = cells.floor([(1, 2, Column::B)], 2);
        assert!(cells.check(&floor, &BTreeMap::from([(AT, written)])).is_err());
    }
}
