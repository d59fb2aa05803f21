//! Clients that set registers if they are what they were seen to be, and read them at serial levels.
//!
//! `crate::register` says whether there is one order that explains all answers. A register is left alone
//! after some time and another is used: the search for an order takes long where very many operations are in
//! doubt. What an error says of a write is taken at its word: only `CasUnknown` leaves it open.

use std::collections::BTreeMap;

use query::QueryError;
use wire::consistency::Consistency;
use wire::error::WriteType;

use super::below;
use super::client::{Client, write_level};
use crate::answer::{Rows, Sending, int};
use crate::register::{Condition, Registers, Value};

/// Registers in use at once: few, so that clients meet.
const IN_USE: usize = 2;
/// Operations of a register, and how many of them may be in doubt, before another takes its place.
const OPERATIONS_MAX: usize = 80;
const DOUBTS_MAX: usize = 6;

/// All registers.
#[derive(Debug, Default)]
pub(super) struct Contended {
    history: Registers,
    /// Counts begins and ends: the order of events.
    events: u64,
    in_use: Vec<u32>,
    made: u32,
    /// The last value that somebody saw.
    seen: BTreeMap<u32, Value>,
}

/// The outcome of a write, by its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Done,
    /// It was not made, because this was there.
    Saw(Value),
    Never,
    Doubt,
}

impl Contended {
    fn event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    /// The register at a place.
    fn pick(&mut self, place: usize) -> u32 {
        while self.in_use.len() <= place {
            self.in_use.push(self.made);
            self.made += 1;
        }
        let (operations, doubts) = self.history.load(self.in_use[place] as usize);
        if operations >= OPERATIONS_MAX || doubts >= DOUBTS_MAX {
            self.in_use[place] = self.made;
            self.made += 1;
        }
        self.in_use[place]
    }

    /// A write begins; its number and its statement.
    fn begin(&mut self, key: u32, choice: u64) -> (usize, String) {
        let now = self.event();
        let seen = self.seen.get(&key).copied().flatten();
        let set = |old: Value, new| match old {
            None => format!("UPDATE sim.registers SET v = {new} WHERE k = {key} IF v = null"),
            Some(old) => format!("UPDATE sim.registers SET v = {new} WHERE k = {key} IF v = {old}"),
        };
        match (choice % 8, seen) {
            (0, Some(old)) => {
                let number = self.history.erase(key as usize, Condition::Is(Some(old)), now);
                (number, format!("DELETE FROM sim.registers WHERE k = {key} IF v = {old}"))
            }
            (1, _) => {
                let number = self.history.erase(key as usize, Condition::Exists, now);
                (number, format!("DELETE FROM sim.registers WHERE k = {key} IF EXISTS"))
            }
            (2..=4, None) | (2, Some(_)) => {
                let (number, new) = self.history.begin(key as usize, None, now);
                (number, format!("INSERT INTO sim.registers (k, v) VALUES ({key}, {new}) IF NOT EXISTS"))
            }
            (_, old) => {
                let (number, new) = self.history.begin(key as usize, old, now);
                (number, set(old, new))
            }
        }
    }

    fn end(&mut self, key: u32, number: usize, answer: Answer) {
        let now = self.event();
        match answer {
            Answer::Done => self.history.end(number, None, now),
            Answer::Saw(there) => {
                self.history.end(number, Some(there), now);
                self.seen.insert(key, there);
            }
            Answer::Never => self.history.never(number),
            Answer::Doubt => {}
        }
    }

    /// Registers that were used.
    pub(super) fn keys(&self) -> std::ops::Range<u32> {
        0..self.made
    }

    /// The last value that was seen of a register.
    pub(super) fn last_seen(&self, key: u32) -> Value {
        self.seen.get(&key).copied().flatten()
    }

    /// Whether all answers have an order.
    ///
    /// # Errors
    /// The register without one.
    pub(super) fn check(&self) -> Result<(), String> {
        self.history.check()
    }
}

fn serial_level() -> Consistency {
    if below(2) == 0 { Consistency::Serial } else { Consistency::LocalSerial }
}

/// Whether a request was refused because clocks are too far apart for agreement, or were when something was
/// written; nothing was done then. The nemesis changes clocks for good.
pub(super) fn is_of_clocks(error: &QueryError) -> bool {
    let words = ["the clock of this node is", "later than this node's clock"];
    matches!(error, QueryError::Invalid(text) if words.iter().any(|words| text.contains(words)))
}

/// The answer in the row of a conditional write.
fn answer_of(rows: &Rows) -> Option<Answer> {
    let row = rows.rows.first()?;
    match row.first()?.as_deref()? {
        [1] => Some(Answer::Done),
        [0] => Some(Answer::Saw(int(row.last().filter(|_| row.len() > 1)))),
        _ => None,
    }
}

impl Client {
    /// Sets, deletes or reads a register.
    ///
    /// # Errors
    /// An answer that no fault explains.
    pub(super) async fn use_registers(&self) -> Result<(), String> {
        let key = self.shared.registers.borrow_mut().pick(below(IN_USE as u64) as usize);
        if below(3) == 0 {
            let read = self.read_register(key, serial_level()).await?;
            self.shared.count(if read.is_some() { "register read" } else { "register not read" });
            return Ok(());
        }
        let (number, text) = self.shared.registers.borrow_mut().begin(key, below(8));
        let sent = Sending { serial: Some(serial_level()), ..Sending::at(write_level()) };
        let answer = match self.send(&text, sent).await {
            Ok(Some(rows)) => answer_of(&rows).ok_or_else(|| format!("{text}: {rows:?}"))?,
            Ok(None) => return Err(format!("{text}: no rows")),
            Err(error) => self.meaning(&error).ok_or_else(|| format!("{text}: {error:?}"))?,
        };
        self.shared.count(match answer {
            Answer::Done => "register set",
            Answer::Saw(_) => "register not set",
            Answer::Never => "conditional write failed",
            Answer::Doubt => "conditional write in doubt",
        });
        self.shared.registers.borrow_mut().end(key, number, answer);
        Ok(())
    }

    /// The outcome of a conditional write, by its error; `None` where no fault explains the error.
    fn meaning(&self, error: &QueryError) -> Option<Answer> {
        match error {
            QueryError::CasUnknown { .. } => Some(Answer::Doubt),
            // The replicas have agreed, and the commit level has not been reached yet.
            QueryError::WriteTimeout { write_type: WriteType::Simple, .. } => Some(Answer::Done),
            QueryError::CasTimeout { .. }
            | QueryError::Unavailable { .. }
            | QueryError::WriteFailure { write_type: WriteType::Cas, .. }
            | QueryError::Overloaded(_)
            | QueryError::NotReady(_) => Some(Answer::Never),
            error if is_of_clocks(error) => Some(Answer::Never),
            _ => self.shared.was_bad.get().then_some(Answer::Doubt),
        }
    }

    /// Reads a register; `None` where a fault kept it from being shown.
    ///
    /// # Errors
    /// An answer that no fault explains.
    pub(super) async fn read_register(&self, key: u32, level: Consistency) -> Result<Option<Value>, String> {
        let began = self.shared.registers.borrow_mut().event();
        let text = format!("SELECT v FROM sim.registers WHERE k = {key}");
        let rows = match self.send(&text, Sending::at(level)).await {
            Ok(Some(rows)) => rows,
            Ok(None) => return Err(format!("{text}: no rows")),
            Err(error) if is_of_clocks(&error) || self.fate(&error).is_some() => return Ok(None),
            Err(error) => return Err(format!("{text} at {level}: {error:?}")),
        };
        let value = rows.rows.first().and_then(|row| int(row.first()));
        // A plain read may show or miss writes under way: the last check says what it must show.
        if matches!(level, Consistency::Serial | Consistency::LocalSerial) {
            let mut registers = self.shared.registers.borrow_mut();
            let now = registers.event();
            registers.history.read(key as usize, value, began, now);
            registers.seen.insert(key, value);
        }
        Ok(Some(value))
    }

    /// Reads all registers at SERIAL, in the end, and looks for an order of all that was done to them.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn settle_registers(&self) -> Result<(), String> {
        let keys = self.shared.registers.borrow().keys();
        for key in keys {
            self.settle(async || self.read_register(key, Consistency::Serial).await).await?;
        }
        self.shared.registers.borrow().check()
    }

    /// Checks that a plain read shows each register as the last serial one did.
    ///
    /// # Errors
    /// One that differs.
    pub(super) async fn check_registers(&self, level: Consistency) -> Result<(), String> {
        let keys = self.shared.registers.borrow().keys();
        for key in keys {
            let value = self.settle(async || self.read_register(key, level).await).await?;
            let settled = self.shared.registers.borrow().last_seen(key);
            if value != settled {
                return Err(format!("register {key} is {value:?} at {level}, and was {settled:?} at SERIAL"));
            }
        }
        Ok(())
    }
}
