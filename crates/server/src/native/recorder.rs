//! Writes records of traces that no client waits for: those of requests chosen by chance, and of slow ones.
//!
//! Records wait in one line per shard and are written by one task, behind the answers. The line is bounded
//! by number and by bytes, which count as memory of answers; records that find no room are left out and
//! counted. The task belongs to the service's gate: records that wait when the shard stops are written.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use query::answer_room::AnswerRoom;
use query::tracing::Record;
use reactor::Group;
use reactor::metrics::{self, Counter, Gauge};

use super::Native;

/// Records that wait on a shard.
const RECORDS_MAX: usize = 1000;
/// Bytes of records that wait on a shard.
const BYTES_MAX: usize = 4 << 20;

/// The line of one shard.
pub(super) struct Recorder {
    line: RefCell<VecDeque<(Record, Room)>>,
    bytes: Rc<Cell<usize>>,
    is_writing: Cell<bool>,
    left_out: Rc<Counter>,
    failed: Rc<Counter>,
    waiting: Rc<Gauge>,
}

/// The memory of a record in the line, until dropped.
struct Room {
    bytes: usize,
    line: Rc<Cell<usize>>,
    answers: Rc<AnswerRoom>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.line.set(self.line.get() - self.bytes);
        self.answers.count(self.bytes, 0);
    }
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self {
            line: RefCell::default(),
            bytes: Rc::default(),
            is_writing: Cell::new(false),
            left_out: metrics::counter(
                "scylla_tracing_dropped_records",
                "Traces and records of slow requests that were left out because too many waited to be written.",
                &[],
            ),
            failed: metrics::counter(
                "scylla_tracing_trace_errors",
                "Traces and records of slow requests whose writes failed.",
                &[],
            ),
            waiting: metrics::gauge(
                "scylla_tracing_pending_for_write_records",
                "Traces and records of slow requests that wait to be written.",
                &[],
            ),
        }
    }

    /// A trace was not written.
    pub(super) fn count_failure(&self) {
        self.failed.inc();
    }

    /// Room for a record of so many bytes; `None` if the line has none.
    fn room(&self, bytes: usize, answers: &Rc<AnswerRoom>) -> Option<Room> {
        let has_room = self.line.borrow().len() < RECORDS_MAX
            && self.bytes.get() + bytes <= BYTES_MAX
            && answers.has(bytes);
        if !has_room {
            self.left_out.inc();
            return None;
        }
        self.bytes.set(self.bytes.get() + bytes);
        answers.count(0, bytes);
        Some(Room { bytes, line: Rc::clone(&self.bytes), answers: Rc::clone(answers) })
    }
}

impl Native {
    /// Has a record written in the background, if there is room for it.
    pub(super) fn record(self: &Rc<Self>, record: Record) {
        let recorder = &self.recorder;
        let Some(room) = recorder.room(record.bytes(), &self.engine.answers()) else { return };
        recorder.line.borrow_mut().push_back((record, room));
        recorder.waiting.add(1);
        if recorder.is_writing.get() {
            return;
        }
        // A closed gate means that the shard has stopped: its tables take no writes.
        let Ok(hold) = self.gate.enter() else { return };
        recorder.is_writing.set(true);
        let native = Rc::clone(self);
        let writing = Writing(Rc::clone(self));
        reactor::spawn(Group::BACKGROUND, async move {
            native.write_records().await;
            drop((writing, hold));
        })
        .detach();
    }

    async fn write_records(&self) {
        // Ends with the line, which is bounded.
        loop {
            let next = self.recorder.line.borrow_mut().pop_front();
            let Some((record, room)) = next else { return };
            self.recorder.waiting.add(-1);
            if let Err(error) = record.write(&self.engine).await {
                self.recorder.count_failure();
                reactor::warn_limited!("a trace was not written: {error}");
            }
            drop(room);
        }
    }
}

/// The task that writes, until dropped, also by a panic.
struct Writing(Rc<Native>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.recorder.is_writing.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_find_no_room_are_left_out_and_counted() {
        reactor::sim::run_one(1, || async {
            let (recorder, answers) = (Recorder::new(), Rc::new(AnswerRoom::new(32 << 20)));
            let mut rooms = Vec::new();
            while let Some(room) = recorder.room(BYTES_MAX / 8, &answers) {
                rooms.push(room);
            }
            assert_eq!((rooms.len(), answers.taken(), recorder.left_out.get()), (8, BYTES_MAX, 1));
            rooms.pop();
            assert!(recorder.room(BYTES_MAX / 8, &answers).is_some(), "one was written");
            rooms.clear();
            assert_eq!((recorder.bytes.get(), answers.taken()), (0, 0));
            answers.count(0, 32 << 20);
            assert!(recorder.room(1, &answers).is_none(), "answers have all of the memory");
            assert_eq!(recorder.left_out.get(), 2);
        });
    }
}
