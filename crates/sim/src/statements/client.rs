//! One client: what it sends, and what it notes of the answers.

use std::rc::Rc;
use std::time::Duration;

use query::{Engine, QueryError};
use reactor::Group;
use wire::consistency::Consistency;

use super::{KEYS, Shared};
use crate::answer::{self, Sending, int};
use crate::register::Value;

/// Runs a statement; the first row of its answer, `None` for an answer that has no rows.
pub(super) async fn execute(engine: &Engine, text: &str) -> Result<Option<Vec<answer::Value>>, QueryError> {
    let answered = answer::execute(engine, text, Sending::at(Consistency::One)).await?;
    Ok(answered.map(|answered| answered.rows.into_iter().next().unwrap_or_default()))
}

fn below(limit: u64) -> u64 {
    reactor::random_u64() % limit
}

pub(super) struct Client {
    pub(super) engine: Engine,
    pub(super) shared: Rc<Shared>,
}

impl Client {
    /// Works until nothing is left to do.
    pub(super) async fn work(self) -> Result<(), String> {
        let mut known = [None; KEYS];
        while self.shared.steps.get() > 0 && !self.shared.over.get() {
            self.shared.steps.set(self.shared.steps.get() - 1);
            let key = below(KEYS as u64) as usize;
            match below(10) {
                0..=4 => known[key] = self.swap(key, known[key]).await?,
                5 => known[key] = self.read(key).await?,
                6..=7 => self.count(key).await?,
                8 => self.total(key, false).await?,
                _ => self.maintain().await?,
            }
        }
        Ok(())
    }

    /// An answer that never came is no mistake on a disk that fails, and one elsewhere.
    fn unless_faulty(&self, statement: &str, error: &QueryError) -> Result<(), String> {
        if self.shared.faulty.get() { Ok(()) } else { Err(format!("{statement}: {error}")) }
    }

    /// Sets the register if it is what it was when seen last; what it is now.
    async fn swap(&self, key: usize, old: Value) -> Result<Value, String> {
        let (number, new) = self.shared.registers.borrow_mut().begin(key, old, self.shared.tick());
        let statement = match old {
            None if below(2) == 0 => {
                format!("INSERT INTO sim.register (k, v) VALUES ({key}, {new}) IF NOT EXISTS")
            }
            None => format!("UPDATE sim.register SET v = {new} WHERE k = {key} IF v = null"),
            Some(old) => format!("UPDATE sim.register SET v = {new} WHERE k = {key} IF v = {old}"),
        };
        match execute(&self.engine, &statement).await {
            Ok(Some(row)) => {
                let applied = row.first().is_some_and(|value| value.as_deref() == Some(&[1]));
                let there = int(row.last().filter(|_| row.len() > 1));
                let now = self.shared.tick();
                self.shared.registers.borrow_mut().end(number, (!applied).then_some(there), now);
                Ok(if applied { Some(new) } else { there })
            }
            Ok(None) => Err(format!("{statement}: no row in the answer")),
            Err(error) => self.unless_faulty(&statement, &error).map(|()| old),
        }
    }

    /// Reads the register; on one replica a plain read too sees what was set before it began.
    pub(super) async fn read(&self, key: usize) -> Result<Value, String> {
        let began = self.shared.tick();
        let statement = format!("SELECT v FROM sim.register WHERE k = {key}");
        match execute(&self.engine, &statement).await {
            Ok(row) => {
                let value = int(row.and_then(|row| row.into_iter().next()).as_ref());
                let ended = self.shared.tick();
                self.shared.registers.borrow_mut().read(key, value, began, ended);
                Ok(value)
            }
            Err(error) => self.unless_faulty(&statement, &error).map(|()| None),
        }
    }

    async fn count(&self, key: usize) -> Result<(), String> {
        if self.shared.counters.borrow().is_doubtful(key) {
            return Ok(());
        }
        let by = 1 + below(1_000) as i64;
        let number = self.shared.tick();
        self.shared.counters.borrow_mut().begin(key, number, by);
        let statement = format!("UPDATE sim.counter SET n = n + {by} WHERE k = {key}");
        let counted = execute(&self.engine, &statement).await;
        self.shared.counters.borrow_mut().end(key, number, counted.is_err());
        match counted {
            Ok(_) => Ok(()),
            Err(error) => self.unless_faulty(&statement, &error),
        }
    }

    /// Reads a counter; with `quiet` nobody counts, and what was in doubt is settled by it.
    pub(super) async fn total(&self, key: usize, quiet: bool) -> Result<(), String> {
        let least = self.shared.counters.borrow().least(key);
        let statement = format!("SELECT n FROM sim.counter WHERE k = {key}");
        match execute(&self.engine, &statement).await {
            Ok(row) => {
                let bytes = row.and_then(|row| row.into_iter().next().flatten());
                let seen =
                    bytes.and_then(|bytes| Some(i64::from_be_bytes(bytes.try_into().ok()?))).unwrap_or(0);
                let mut counters = self.shared.counters.borrow_mut();
                counters.check(key, least, seen)?;
                if quiet { counters.settle(key, seen) } else { Ok(()) }
            }
            Err(error) => self.unless_faulty(&statement, &error),
        }
    }

    /// Flushes or compacts a table on a shard, or waits a little.
    async fn maintain(&self) -> Result<(), String> {
        let name = if below(2) == 0 { "register" } else { "counter" };
        let Some(table) = self.engine.storage().schema().table("sim", name).map(|table| table.id()) else {
            return Err(format!("table {name} is gone"));
        };
        let shard = below(super::SHARDS as u64) as usize;
        let compact = below(4) == 0;
        if below(3) > 0 {
            reactor::sleep(Duration::from_micros(below(3_000))).await;
            return Ok(());
        }
        let done = reactor::mesh::call(shard, Group::ADMIN, move || async move {
            let storage = reactor::local::<storage::Storage>().ok_or("no storage")?;
            let done = if compact { storage.compact(table).await } else { storage.flush(table).await };
            done.map_err(|error| error.to_string())
        });
        match done.await {
            Ok(Ok(())) => Ok(()),
            _ if self.shared.faulty.get() => Ok(()),
            Ok(Err(error)) => Err(format!("maintenance of {name} on shard {shard}: {error}")),
            Err(error) => Err(error.to_string()),
        }
    }
}
