//! Requests that run on this shard, for `system_views.queries`.
//!
//! Requests that are answered at once are not listed, and of the others only as many as the list has room
//! for. A request's line is made on demand; until then it costs a slot and, for a text, a copy of its
//! beginning.

use std::cell::RefCell;
use std::fmt::Write;

use reactor::Instant;
use wire::consistency::Consistency;
use wire::request::Request;

use crate::engine::Engine;
use crate::prepared_cache::StatementId;

/// Requests that are listed at once.
const RUNNING_MAX: usize = 4096;
/// Bytes of a statement that are kept.
const TEXT_BYTES_MAX: usize = 1024;

/// The requests of a shard.
#[derive(Debug, Default)]
pub(crate) struct Running(RefCell<Slots>);

#[derive(Debug, Default)]
struct Slots {
    tasks: Vec<Option<Task>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Task {
    began: Instant,
    what: What,
}

#[derive(Debug)]
enum What {
    Query { text: Box<str>, page_size: Option<u32>, consistency: Consistency },
    Prepare(Box<str>),
    Execute { id: StatementId, values: usize, consistency: Consistency },
    Batch { statements: usize, consistency: Consistency },
}

/// A request that runs; gone from the list once dropped.
#[derive(Debug)]
pub struct RunningRequest<'e> {
    engine: &'e Engine,
    slot: Option<usize>,
}

/// A line of `system_views.queries`.
#[derive(Debug)]
pub(crate) struct RunningRow {
    pub(crate) thread: String,
    pub(crate) running_us: u64,
    pub(crate) task: String,
}

impl Engine {
    /// Lists a request until the returned value is dropped.
    pub fn runs<'e>(&'e self, request: &Request<'_>) -> RunningRequest<'e> {
        let what = match request {
            Request::Query { query, parameters } => What::Query {
                text: beginning(query),
                page_size: parameters.page_size,
                consistency: parameters.consistency,
            },
            Request::Prepare { query, .. } => What::Prepare(beginning(query)),
            Request::Execute { id, parameters, .. } => What::Execute {
                id: StatementId::try_from(*id).unwrap_or_default(),
                values: parameters.values.len(),
                consistency: parameters.consistency,
            },
            Request::Batch { statements, parameters, .. } => {
                What::Batch { statements: statements.len(), consistency: parameters.consistency }
            }
            _ => return RunningRequest { engine: self, slot: None },
        };
        RunningRequest { engine: self, slot: self.running().add(Task { began: reactor::coarse_now(), what }) }
    }

    /// The requests that run on this shard, each as of its own moment: other tasks run in between.
    pub(crate) async fn running_rows(&self) -> Vec<RunningRow> {
        let mut rows = Vec::new();
        let mut slot = 0;
        while slot < self.running().0.borrow().tasks.len() {
            rows.extend(self.running_row(slot));
            slot += 1;
            reactor::maybe_yield().await;
        }
        rows
    }

    fn running_row(&self, slot: usize) -> Option<RunningRow> {
        let slots = self.running().0.borrow();
        let task = slots.tasks.get(slot)?.as_ref()?;
        Some(RunningRow {
            thread: format!("Native-Transport-Requests-{}-{}", reactor::shard_id(), slot + 1),
            running_us: u64::try_from(task.began.elapsed().as_micros()).unwrap_or(u64::MAX),
            task: self.line(&task.what),
        })
    }

    /// As Cassandra prints its messages.
    fn line(&self, what: &What) -> String {
        match what {
            What::Query { text, page_size, consistency } => {
                let page_size = page_size.map_or(-1, i64::from);
                format!("QUERY {text} [pageSize = {page_size}] at consistency {}", consistency.name())
            }
            What::Prepare(text) => format!("PREPARE {text}"),
            What::Execute { id, values, consistency } => {
                let mut line = "EXECUTE ".to_owned();
                model::hex::append(id, &mut line);
                if let Some(statement) = self.prepared().get(id) {
                    let _ = write!(line, " ({})", beginning(&statement.text));
                }
                let _ = write!(line, " with {values} values at consistency {}", consistency.name());
                line
            }
            What::Batch { statements, consistency } => {
                format!("BATCH of {statements} statements at consistency {}", consistency.name())
            }
        }
    }
}

impl Running {
    fn add(&self, task: Task) -> Option<usize> {
        let slots = &mut *self.0.borrow_mut();
        if let Some(slot) = slots.free.pop() {
            slots.tasks[slot] = Some(task);
            return Some(slot);
        }
        if slots.tasks.len() >= RUNNING_MAX {
            return None;
        }
        slots.tasks.push(Some(task));
        Some(slots.tasks.len() - 1)
    }
}

impl Drop for RunningRequest<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let slots = &mut *self.engine.running().0.borrow_mut();
            slots.tasks[slot] = None;
            slots.free.push(slot);
        }
    }
}

/// As much of a text as is kept.
fn beginning(text: &str) -> Box<str> {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].into()
}
