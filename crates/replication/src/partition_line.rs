//! Serialises changes of a partition that begin with a read: one at a time, in the order of requests.
//!
//! Lightweight transactions and counters read before they write. Between the two no other change of this kind
//! may write to the partition, however long the disk takes. Plain writes do not wait here, as in Cassandra.
//! Invariant: a partition has an entry exactly while a task holds or awaits its turn, so memory is
//! proportional to the running work.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use model::TableId;
use reactor::sync::semaphore::Permit;
use reactor::{Semaphore, TooManyWaiters};

/// Most tasks that may await the turn of one partition; a further one gets the error that the shard is
/// overloaded.
pub(crate) const WAITERS_MAX: usize = 4096;

type Key = (TableId, Vec<u8>);

/// The lines of one shard.
#[derive(Default)]
pub(crate) struct PartitionLines {
    lines: RefCell<BTreeMap<Key, Rc<Semaphore>>>,
}

/// The right to change one partition; passes to the next waiting task when dropped.
pub(crate) struct Turn {
    // Dropped first, so that the next task has the permit before the entry may be removed.
    _permit: Permit,
    place: Place,
}

impl Turn {
    /// Whether this is the turn of that partition.
    pub(crate) fn is_of(&self, table: TableId, key: &[u8]) -> bool {
        self.place.key.0 == table && self.place.key.1 == key
    }
}

/// A task that holds or awaits a turn.
struct Place {
    lines: Rc<PartitionLines>,
    key: Key,
    line: Rc<Semaphore>,
}

impl Drop for Place {
    fn drop(&mut self) {
        // The map and this value: no other task holds or awaits the turn.
        if Rc::strong_count(&self.line) == 2 {
            let removed = self.lines.lines.borrow_mut().remove(&self.key);
            assert!(
                removed.is_some_and(|line| Rc::ptr_eq(&line, &self.line)),
                "a partition of table {} has another line than the one its last task was in",
                self.key.0
            );
        }
    }
}

impl PartitionLines {
    /// Waits for the turn of a partition.
    ///
    /// # Errors
    /// [`TooManyWaiters`] if [`WAITERS_MAX`] tasks wait already.
    pub(crate) async fn turn(self: &Rc<Self>, table: TableId, key: &[u8]) -> Result<Turn, TooManyWaiters> {
        let key = (table, key.to_vec());
        let line = Rc::clone(
            self.lines
                .borrow_mut()
                .entry(key.clone())
                .or_insert_with(|| Rc::new(Semaphore::with_waiters_max(1, WAITERS_MAX))),
        );
        let place = Place { lines: Rc::clone(self), key, line };
        let permit = place.line.acquire(1).await?;
        Ok(Turn { _permit: permit, place })
    }

    /// Number of partitions whose turn a task holds or awaits.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lines.borrow().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn turns_come_one_at_a_time_and_lines_go_with_the_last() {
        reactor::run_one(reactor::Config::default(), async {
            let lines = Rc::new(PartitionLines::default());
            let (inside, done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let mut tasks = Vec::new();
            for n in 0..20_u8 {
                let (lines, inside, done) = (Rc::clone(&lines), Rc::clone(&inside), Rc::clone(&done));
                tasks.push(reactor::spawn(reactor::Group::STATEMENT, async move {
                    let _turn = lines.turn(TableId([0; 16]), &[n % 2]).await.expect("the line is short");
                    inside.set(inside.get() + 1);
                    assert!(inside.get() <= 2, "one for each of two partitions");
                    reactor::yield_now().await;
                    inside.set(inside.get() - 1);
                    done.set(done.get() + 1);
                }));
            }
            for task in tasks {
                task.await.expect("no task panics");
            }
            assert_eq!((done.get(), lines.len()), (20, 0));
        });
    }

    #[test]
    fn one_who_gives_up_waiting_leaves_no_trace() {
        reactor::run_one(reactor::Config::default(), async {
            let lines = Rc::new(PartitionLines::default());
            let turn = lines.turn(TableId([0; 16]), b"k").await.expect("free");
            let waiting = Box::pin(lines.turn(TableId([0; 16]), b"k"));
            let past = reactor::Deadline::after(std::time::Duration::ZERO);
            assert!(reactor::timeout(past, waiting).await.is_err());
            drop(turn);
            assert_eq!(lines.len(), 0);
        });
    }
}
