//! The model: what was begun, what was acknowledged, and what a reader may see.
//!
//! It keeps every operation and computes answers anew by looking at all of them: slow and plain, sharing no
//! code with what it checks. Timestamps of mutations are distinct; within one, `Weight` says which of two
//! words on one cell counts. After a crash it looks for a history that explains what is on the disk: all that
//! was promised to be durable, and of the rest either any part (operations in doubt) or a prefix per shard
//! (writes not synced yet).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::table::{Change, Dropped, Row};

/// The outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was begun, and failed or was cut off: it may be seen after the next start.
    InDoubt,
    /// It was acknowledged.
    Acknowledged,
    /// It did not happen.
    Lost,
}

/// The effect of an operation.
#[derive(Debug, Clone)]
pub enum Action {
    /// A mutation of one partition.
    Write {
        /// Which.
        key: u8,
        /// At which timestamp.
        timestamp: i64,
        /// What.
        changes: Vec<Change>,
    },
    /// All partitions of one shard's tablets of the table go.
    Truncate {
        /// Their keys.
        keys: Vec<u8>,
    },
}

/// One operation.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Slot of its table.
    pub slot: usize,
    /// Shard that carried it out.
    pub shard: usize,
    /// Its effect.
    pub action: Action,
    /// Its outcome.
    pub fate: Fate,
}

/// A row as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeenRow {
    /// Cells.
    pub cells: [Option<u32>; 2],
    /// Elements of the map.
    pub map: BTreeMap<u8, u32>,
}

/// A partition as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeenPartition {
    /// The static cell.
    pub statics: Option<u32>,
    /// Rows in clustering order.
    pub rows: BTreeMap<(i16, i16), SeenRow>,
}

/// A table as a reader sees it, by key.
pub type SeenTable = BTreeMap<u8, SeenPartition>;

/// Most operations in doubt between two starts; the workload restarts before there are more.
pub const IN_DOUBT_MAX: usize = 5;

/// All that happened.
#[derive(Debug, Default)]
pub struct History {
    operations: Vec<Operation>,
    /// Operations before this are settled: acknowledged or lost for good.
    settled: usize,
    /// The second regular column of each slot as it was dropped last.
    dropped: BTreeMap<usize, Dropped>,
}

impl History {
    /// Notes that the second regular column was dropped and made again.
    pub fn drop_second(&mut self, slot: usize, dropped: Dropped) {
        self.dropped.insert(slot, dropped);
    }

    /// The second regular column as it was dropped last.
    pub fn dropped(&self, slot: usize) -> Option<Dropped> {
        self.dropped.get(&slot).copied()
    }

    /// Notes that an operation begins; it is in doubt until acknowledged.
    pub fn begin(&mut self, slot: usize, shard: usize, action: Action) -> usize {
        self.operations.push(Operation { slot, shard, action, fate: Fate::InDoubt });
        self.operations.len() - 1
    }

    /// Notes that it was acknowledged.
    pub fn acknowledge(&mut self, operation: usize) {
        self.operations[operation].fate = Fate::Acknowledged;
    }

    /// How many were begun.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// How many are in doubt.
    pub fn in_doubt(&self) -> usize {
        self.operations[self.settled..].iter().filter(|o| o.fate == Fate::InDoubt).count()
    }

    /// Whether an operation is in doubt on one of those tables.
    pub fn is_in_doubt(&self, slots: impl Fn(usize) -> bool) -> bool {
        self.operations[self.settled..].iter().any(|o| o.fate == Fate::InDoubt && slots(o.slot))
    }

    /// A table made anew begins empty.
    pub fn forget(&mut self, slot: usize) {
        self.dropped.remove(&slot);
        for operation in self.operations.iter_mut().filter(|operation| operation.slot == slot) {
            operation.fate = Fate::Lost;
        }
    }

    /// What a reader at `now` sees of a slot's table, of what was acknowledged.
    pub fn seen(&self, slot: usize, now: u32) -> SeenTable {
        let operations: Vec<_> = self.operations.iter().filter(|o| o.fate == Fate::Acknowledged).collect();
        see(&operations, slot, now, self.dropped(slot))
    }

    /// After a crash: finds what of the unsettled operations of one shard happened, given all it holds now.
    ///
    /// Operations before index `durable` were promised to be durable. With `loses` those acknowledged later
    /// may be missing, a suffix of them; else none may. `owns` says which keys were the shard's.
    ///
    /// # Errors
    /// The difference to the nearest explanation, when there is none.
    #[allow(clippy::too_many_arguments)] // what is known after a crash is just this
    pub fn settle(
        &mut self,
        shard: usize,
        durable: usize,
        loses: bool,
        slots: &[usize],
        now: u32,
        found: &BTreeMap<usize, SeenTable>,
        owns: &dyn Fn(usize, u8) -> bool,
    ) -> Result<(), String> {
        let open: Vec<usize> = (self.settled..self.operations.len())
            .filter(|at| {
                let operation = &self.operations[*at];
                operation.shard == shard && operation.fate != Fate::Lost && slots.contains(&operation.slot)
            })
            .collect();
        let earliest = if loses { open.iter().filter(|at| **at < durable).count() } else { open.len() };
        let mut nearest: Option<(usize, String)> = None;
        for kept in (earliest..=open.len()).rev() {
            let doubts: Vec<usize> = open[..kept]
                .iter()
                .copied()
                .filter(|at| self.operations[*at].fate == Fate::InDoubt)
                .collect();
            assert!(doubts.len() <= 2 * IN_DOUBT_MAX + 1, "{} operations in doubt", doubts.len());
            for chosen in 0u32..1 << doubts.len() {
                let happened = |at: usize| match doubts.iter().position(|doubt| *doubt == at) {
                    Some(bit) => chosen & (1 << bit) != 0,
                    None => open[..kept].contains(&at),
                };
                let assumed: Vec<&Operation> = self
                    .operations
                    .iter()
                    .enumerate()
                    .filter(|(at, operation)| match open.binary_search(at) {
                        Ok(_) => happened(*at),
                        Err(_) => operation.fate == Fate::Acknowledged,
                    })
                    .map(|(_, operation)| operation)
                    .collect();
                let mut differences = 0;
                let mut first = None;
                for slot in slots {
                    let expected: SeenTable = see(&assumed, *slot, now, self.dropped(*slot))
                        .into_iter()
                        .filter(|(key, _)| owns(*slot, *key))
                        .collect();
                    let mut found = found.get(slot).cloned().unwrap_or_default();
                    found.retain(|key, _| owns(*slot, *key));
                    differences += different_keys(&expected, &found);
                    if expected != found && first.is_none() {
                        first = Some(describe(*slot, &expected, &found));
                    }
                }
                match first {
                    None => {
                        let fates: Vec<(usize, Fate)> = open
                            .iter()
                            .map(|at| (*at, if happened(*at) { Fate::Acknowledged } else { Fate::Lost }))
                            .collect();
                        fates.into_iter().for_each(|(at, fate)| self.operations[at].fate = fate);
                        return Ok(());
                    }
                    Some(difference) => {
                        if nearest.as_ref().is_none_or(|(least, _)| differences < *least) {
                            nearest = Some((differences, difference));
                        }
                    }
                }
            }
        }
        Err(format!(
            "shard {shard}: no history explains what is there ({} open operations, {} promised): {}",
            open.len(),
            earliest,
            nearest.map(|(_, difference)| difference).unwrap_or_default()
        ))
    }

    /// Everything so far is settled.
    pub fn all_settled(&mut self) {
        for operation in &mut self.operations[self.settled..] {
            if operation.fate == Fate::InDoubt {
                operation.fate = Fate::Lost;
            }
        }
        // Lost operations are not looked at again.
        self.operations.retain(|operation| operation.fate == Fate::Acknowledged);
        self.settled = self.operations.len();
    }
}

fn different_keys(expected: &SeenTable, found: &SeenTable) -> usize {
    let keys: std::collections::BTreeSet<u8> = expected.keys().chain(found.keys()).copied().collect();
    keys.into_iter().filter(|key| expected.get(key) != found.get(key)).count()
}

/// The first difference between two tables, in words.
pub fn describe(slot: usize, expected: &SeenTable, found: &SeenTable) -> String {
    let keys = expected.keys().chain(found.keys());
    for key in keys {
        let (e, f) = (expected.get(key), found.get(key));
        if e != f {
            return format!("table {slot}, partition {key}: expected {e:?}, found {f:?}");
        }
    }
    "no difference".to_owned()
}

fn see(operations: &[&Operation], slot: usize, now: u32, dropped: Option<Dropped>) -> SeenTable {
    let mut of_key: BTreeMap<u8, Vec<(i64, &Change)>> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.slot == slot) {
        match &operation.action {
            Action::Write { key, timestamp, changes } => {
                of_key.entry(*key).or_default().extend(changes.iter().map(|change| (*timestamp, change)));
            }
            Action::Truncate { keys } => of_key.retain(|key, _| !keys.contains(key)),
        }
    }
    of_key
        .into_iter()
        .map(|(key, changes)| (key, see_partition(&changes, now, dropped)))
        .filter(|(_, seen)| seen.statics.is_some() || !seen.rows.is_empty())
        .collect()
}

fn see_partition(changes: &[(i64, &Change)], now: u32, dropped: Option<Dropped>) -> SeenPartition {
    let whole = changes.iter().filter(|(_, c)| matches!(c, Change::DeletePartition)).map(|(t, _)| *t).max();
    let statics = changes
        .iter()
        .filter_map(|(t, c)| match c {
            Change::Static { written, ttl } => Some((*t, *written, *ttl)),
            _ => None,
        })
        .max_by_key(|(t, _, _)| *t)
        .filter(|(t, _, ttl)| whole.is_none_or(|whole| *t > whole) && ttl.is_none_or(|(_, end)| now < end))
        .and_then(|(_, written, _)| written);
    let mut rows: Vec<Row> = changes
        .iter()
        .filter_map(|(_, c)| match c {
            Change::Cells { row, .. } | Change::Map { row, .. } => Some(*row),
            _ => None,
        })
        .collect();
    rows.sort_by_key(|row| row.rank());
    rows.dedup();
    let rows = rows
        .into_iter()
        .filter_map(|row| see_row(changes, row, whole, now, dropped).map(|seen| (row.rank(), seen)));
    SeenPartition { statics, rows: rows.collect() }
}

fn see_row(
    changes: &[(i64, &Change)],
    wanted: Row,
    whole: Option<i64>,
    now: u32,
    dropped: Option<Dropped>,
) -> Option<SeenRow> {
    let deleted = changes
        .iter()
        .filter(|(_, change)| match change {
            Change::DeleteRow(row) => *row == wanted,
            Change::DeleteRange(start, end) => start.is_before(wanted) && !end.is_before(wanted),
            _ => false,
        })
        .map(|(t, _)| *t)
        .chain(whole)
        .max();
    let alive = |timestamp: i64, ttl: &Option<(u32, u32)>| {
        deleted.is_none_or(|deleted| timestamp > deleted) && ttl.is_none_or(|(_, end)| now < end)
    };
    let mut marker: Option<(Weight, bool)> = None;
    let mut cells: [Option<(Weight, Option<u32>)>; 2] = [None, None];
    for (timestamp, change) in changes {
        let Change::Cells { row, marker: marks, cells: written, ttl } = change else { continue };
        if *row != wanted {
            continue;
        }
        let weight = weigh(*timestamp, Some(0), ttl);
        if *marks && marker.is_none_or(|(other, _)| other < weight) {
            marker = Some((weight, alive(*timestamp, ttl)));
        }
        for (cell, written) in cells.iter_mut().zip(written) {
            let Some(value) = written else { continue };
            let weight = weigh(*timestamp, *value, ttl);
            if cell.is_none_or(|(other, _)| other < weight) {
                *cell = Some((weight, value.filter(|_| alive(*timestamp, ttl))));
            }
        }
    }
    if let (Some(dropped), Some(((timestamp, ..), _))) = (dropped, cells[1])
        && timestamp <= dropped.at
    {
        cells[1] = None;
    }
    let cells = cells.map(|cell| cell.and_then(|(_, value)| value));
    let map = see_map(changes, wanted, deleted);
    let marked = marker.is_some_and(|(_, alive)| alive);
    (marked || !map.is_empty() || cells.iter().any(Option::is_some)).then_some(SeenRow { cells, map })
}

/// What decides between two words on one cell, the first that differs: the later one; a deletion over a value
/// that expires over one that stays; what ends later; what was given less time; the greater value.
type Weight = (i64, u8, u32, Reverse<u32>, u32);

fn weigh(timestamp: i64, value: Option<u32>, ttl: &Option<(u32, u32)>) -> Weight {
    match (value, ttl) {
        (None, _) => (timestamp, 2, 0, Reverse(0), 0),
        (Some(value), None) => (timestamp, 0, 0, Reverse(0), value),
        (Some(value), Some((ttl, end))) => (timestamp, 1, *end, Reverse(*ttl), value),
    }
}

fn see_map(changes: &[(i64, &Change)], wanted: Row, deleted: Option<i64>) -> BTreeMap<u8, u32> {
    let of_row = || {
        changes.iter().filter_map(|(timestamp, change)| match change {
            Change::Map { row, clears, elements } if *row == wanted => Some((*timestamp, *clears, elements)),
            _ => None,
        })
    };
    // A map that is cleared loses what is older than the write that clears it.
    let cleared = of_row().filter(|(_, clears, _)| *clears).map(|(timestamp, _, _)| timestamp - 1).max();
    let gone = deleted.max(cleared);
    let mut newest: BTreeMap<u8, (Weight, Option<u32>)> = BTreeMap::new();
    for (timestamp, _, elements) in of_row() {
        for (element, written) in elements {
            let word = (weigh(timestamp, *written, &None), *written);
            let known = newest.entry(*element).or_insert(word);
            *known = word.max(*known);
        }
    }
    newest
        .into_iter()
        .filter(|(_, (weight, _))| gone.is_none_or(|gone| weight.0 > gone))
        .filter_map(|(element, (_, written))| Some((element, written?)))
        .collect()
}
