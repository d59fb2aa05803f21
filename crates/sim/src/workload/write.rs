//! Writes at random.

use std::time::Duration;

use reactor::Deadline;

use super::{COMPONENTS, KEYS, Worker, below, seconds};
use crate::history::Action;
use crate::table::{Bound, Change, Row, forgets, mutation};

/// Keys a map may have.
const ELEMENTS: u8 = 6;

impl Worker {
    pub(super) async fn write(&self, slot: usize) -> Result<(), String> {
        let Some(table) = self.table(slot) else { return Ok(()) };
        let key = below(u64::from(KEYS)) as u8;
        let (now, owner) = (seconds(), self.owner(key));
        let mut changes: Vec<Change> = Vec::new();
        for _ in 0..1 + below(4) * below(2) {
            // One timestamp, so one word on each cell.
            let change = self.change(now);
            if !changes.iter().any(|other| change.collides(other)) {
                changes.push(change);
            }
        }
        let timestamp = {
            let mut shared = self.shared.borrow_mut();
            shared.timestamps += 64;
            // Distinct, and now and then older than what was written before.
            let back =
                if forgets(slot) || below(3) > 0 { 0 } else { below(40) as i64 * 64 + 1 + below(60) as i64 };
            shared.timestamps - back
        };
        let bytes = mutation(&table, key, timestamp, now, &changes);
        let operation =
            self.shared.borrow_mut().history.begin(slot, owner, Action::Write { key, timestamp, changes });
        let written = self
            .on(owner, async move |storage| {
                let deadline = Deadline::after(Duration::from_secs(2));
                storage.apply(&bytes, deadline).await.map_err(|error| error.to_string())
            })
            .await;
        match written {
            Ok(()) => self.shared.borrow_mut().history.acknowledge(operation),
            Err(error) => return self.unless_faulty(&format!("a write failed: {error}")),
        }
        Ok(())
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
