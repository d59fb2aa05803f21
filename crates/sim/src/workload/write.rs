//! Writes at random.

use std::time::Duration;

use reactor::{Deadline, Group, mesh};
use storage::Storage;

use super::{COMPONENTS, KEYS, STEPS_BACK_MAX, TIMESTAMP_STEP, Worker, below, seconds};
use crate::history::Action;
use crate::table::{Bound, Change, Row, forgets, mutation};

/// Most writes at once.
const AT_ONCE_MAX: u64 = 4;
/// Keys a map may have.
const ELEMENTS: u8 = 6;

impl Worker {
    /// One write, or several at once where their order says nothing.
    ///
    /// In periodic mode a crash may lose the end of the log, so there its order has to be that of the
    /// history; and a table that forgets tombstones at once needs its writes in the order of their
    /// timestamps.
    pub(super) async fn write(&self, slot: usize) -> Result<(), String> {
        let several = self.shared.borrow().batch && !forgets(slot) && below(3) == 0;
        let count = if several { 2 + below(AT_ONCE_MAX - 1) } else { 1 };
        let mut sent = Vec::new();
        for _ in 0..count {
            let Some((operation, owner, bytes)) = self.begin_write(slot) else { return Ok(()) };
            let write = reactor::spawn(Group::STATEMENT, async move {
                let applied = mesh::call(owner, Group::STATEMENT, move || async move {
                    let storage = reactor::local::<Storage>().ok_or("no storage")?;
                    let deadline = Deadline::after(Duration::from_secs(2));
                    storage.apply(&bytes, deadline).await.map_err(|error| error.to_string())
                });
                applied.await.map_err(|error| error.to_string())?
            });
            sent.push((operation, write));
        }
        let mut outcome = Ok(());
        for (operation, write) in sent {
            match write.await.map_err(|error| error.to_string())? {
                Ok(()) => self.shared.borrow_mut().history.acknowledge(operation),
                Err(error) => {
                    outcome = outcome.and(self.unless_faulty(&format!("a write failed: {error}")));
                }
            }
        }
        outcome
    }

    /// Makes a write up and notes that it begins: its number, the shard it goes to, its bytes.
    fn begin_write(&self, slot: usize) -> Option<(usize, usize, Vec<u8>)> {
        let table = self.table(slot)?;
        let key = below(u64::from(KEYS)) as u8;
        let (now, owner) = (seconds(), self.owner(slot, key));
        let mut changes: Vec<Change> = Vec::new();
        for _ in 0..1 + below(4) * below(2) {
            // A mutation has one static row; a row may come several times.
            let change = self.change(now);
            if !changes.iter().any(|other| change.collides(other)) {
                changes.push(change);
            }
        }
        let timestamp = self.timestamp(slot);
        let bytes = mutation(&table, key, timestamp, now, &changes);
        let action = Action::Write { key, timestamp, changes };
        Some((self.shared.borrow_mut().history.begin(slot, owner, action), owner, bytes))
    }

    /// A timestamp that no other write has, now and then older than what was written before.
    fn timestamp(&self, slot: usize) -> i64 {
        let mut shared = self.shared.borrow_mut();
        shared.timestamps += TIMESTAMP_STEP;
        if forgets(slot) || below(3) > 0 {
            return shared.timestamps;
        }
        // Each step has one timestamp for every step that may look back at it.
        let back = 1 + below(STEPS_BACK_MAX as u64) as i64;
        shared.timestamps - back * TIMESTAMP_STEP + back
    }

    pub(super) fn change(&self, now: u32) -> Change {
        let row = Row { outer: below(COMPONENTS) as u8, inner: below(COMPONENTS) as u8 };
        let mut written = || {
            let mut shared = self.shared.borrow_mut();
            shared.next += 1;
            if below(5) == 0 { None } else { Some(shared.next) }
        };
        match below(20) {
            0 => Change::DeletePartition,
            1 | 2 => {
                let (a, b) = (bound(), bound());
                Change::DeleteRange(a, b)
            }
            3 | 4 => Change::DeleteRow(row),
            5 | 6 => Change::Static { written: written(), ttl: ttl(now) },
            7..=10 => {
                let mut elements = Vec::new();
                for element in 0..ELEMENTS {
                    if below(3) == 0 {
                        elements.push((element, written()));
                    }
                }
                Change::Map { row, clears: below(4) == 0, elements }
            }
            _ => {
                let cells = [(); 2].map(|()| (below(3) > 0).then(&mut written));
                Change::Cells { row, marker: below(2) == 0, cells, ttl: ttl(now) }
            }
        }
    }
}

/// A time to live and when it ends, now and then.
fn ttl(now: u32) -> Option<(u32, u32)> {
    (below(6) == 0).then(|| {
        let ttl = 1 + below(3) as u32;
        (ttl, now + ttl)
    })
}

fn bound() -> Bound {
    let outer = (below(8) > 0).then(|| below(COMPONENTS) as u8);
    let inner = outer.filter(|_| below(2) == 0).map(|_| below(COMPONENTS) as u8);
    Bound { outer, inner, behind: below(2) == 0 }
}
