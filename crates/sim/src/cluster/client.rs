//! A client of one shard: how its statements are sent, and what their errors mean.

use std::rc::Rc;
use std::time::Duration;

use query::{Engine, QueryError};
use wire::consistency::Consistency;

use super::tables::{Life, Now};
use super::{Fate, Shared, below};
use crate::answer::{Rows, Sending, execute};

/// Longest that a request may take beside pauses of its own node: the longest timeout of a node, with room
/// for what it does around that.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);
/// How long nothing may have been wrong until every request must succeed: until then nodes may take each
/// other for down.
const WELL_AFTER: Duration = Duration::from_secs(20);

/// A client.
pub(super) struct Client {
    /// Its shard and its number there.
    pub(super) name: (usize, u64),
    pub(super) engine: Engine,
    pub(super) shared: Rc<Shared>,
    /// The start of the node that it is a client of.
    pub(super) life: Life,
}

/// A request under way, for those who wait until there is none.
struct UnderWay<'s>(&'s Shared);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.busy.set(self.0.busy.get() - 1);
    }
}

/// How many copies a level waits for.
pub(super) fn copies(level: Consistency) -> usize {
    match level {
        Consistency::One | Consistency::LocalOne => 1,
        Consistency::All => super::COPIES,
        _ => 2,
    }
}

/// A level for writes: mostly one of a majority.
pub(super) fn write_level() -> Consistency {
    match below(12) {
        0 => Consistency::All,
        1 => Consistency::One,
        2 => Consistency::Two,
        3 => Consistency::LocalQuorum,
        4 => Consistency::EachQuorum,
        _ => Consistency::Quorum,
    }
}

/// A level for reads.
pub(super) fn read_level() -> Consistency {
    match below(12) {
        0 => Consistency::All,
        1 => Consistency::One,
        2 => Consistency::Two,
        3 => Consistency::LocalQuorum,
        4 => Consistency::LocalOne,
        _ => Consistency::Quorum,
    }
}

impl Client {
    /// Where and when a request begins.
    pub(super) fn now(&self) -> Now {
        Now { life: self.life, at: self.shared.now.get(), calm_since: self.shared.calm_since.get() }
    }

    /// Sends a statement.
    pub(super) async fn send(&self, text: &str, sent: Sending<'_>) -> Result<Option<Rows>, QueryError> {
        let shared = &self.shared;
        shared.busy.set(shared.busy.get() + 1);
        let under_way = UnderWay(shared);
        let (began, is_well, paused) = (reactor::now(), self.is_well(), self.paused());
        let answered = execute(&self.engine, text, sent).await;
        drop(under_way);
        if began.elapsed() > REQUEST_TIME_MAX + (self.paused() - paused) {
            shared.fail(format!("{text} took {:?}", began.elapsed()));
        }
        shared.note(|| {
            let (node, (shard, number)) = (self.life.0, self.name);
            let outcome = match &answered {
                Ok(None) => "done".to_owned(),
                Ok(Some(rows)) => format!("{:?}", rows.rows.iter().map(|row| Shown(row)).collect::<Vec<_>>()),
                Err(error) => format!("{error:?}"),
            };
            let took_ms = began.elapsed().as_millis();
            format!("node {node}.{shard}.{number} {} {text}: {outcome} ({took_ms} ms)", sent.level)
        });
        if let Err(error) = &answered
            && is_well
            && self.is_well()
            && fate(error).is_some()
        {
            shared.fail(format!("nothing is wrong, and {text} gets {error:?}"));
        }
        answered
    }

    /// For how long its node was paused so far.
    fn paused(&self) -> Duration {
        self.shared.paused.borrow().get(&self.life.0).copied().unwrap_or_default()
    }

    /// Whether nothing has been wrong for so long that all nodes know it.
    fn is_well(&self) -> bool {
        let Now { at, calm_since, .. } = self.now();
        calm_since.is_some_and(|since| at >= since + WELL_AFTER)
    }

    /// The fate of a request that got an error which faults explain; `None` for other errors.
    pub(super) fn fate(&self, error: &QueryError) -> Option<Fate> {
        // A disk that fails explains all errors, and leaves open what happened.
        fate(error).or_else(|| self.shared.was_bad.get().then_some(Fate::Doubt))
    }

    /// Sends a write; its fate.
    ///
    /// # Errors
    /// An answer that no fault explains.
    pub(super) async fn write(&self, text: &str, level: Consistency) -> Result<Fate, String> {
        match self.send(text, Sending::at(level)).await {
            Ok(_) => Ok(Fate::Done),
            Err(error) => self.fate(&error).ok_or_else(|| format!("{text}: {error:?}")),
        }
    }

    /// Reads all pages of a statement; `None` where a fault kept it from being answered.
    ///
    /// # Errors
    /// An answer that no fault explains.
    pub(super) async fn read(
        &self,
        text: &str,
        level: Consistency,
        page: Option<u32>,
    ) -> Result<Option<Vec<Vec<crate::answer::Value>>>, String> {
        let mut rows = Vec::new();
        let mut state: Option<Vec<u8>> = None;
        loop {
            let sent = Sending { page, state: state.as_deref(), ..Sending::at(level) };
            match self.send(text, sent).await {
                Ok(Some(answered)) => {
                    rows.extend(answered.rows);
                    state = answered.next;
                    if state.is_none() {
                        return Ok(Some(rows));
                    }
                }
                Ok(None) => return Err(format!("{text}: no rows")),
                Err(error) => {
                    let explained = self.fate(&error).map(|_| None);
                    return explained.ok_or_else(|| format!("{text}: {error:?}"));
                }
            }
        }
    }
}

/// A row of numbers, in few words.
struct Shown<'r>(&'r [crate::answer::Value]);

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = |bytes: &[u8]| bytes.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        f.debug_list().entries(self.0.iter().map(|value| value.as_deref().map(number))).finish()
    }
}

/// The fate of a request that got an error which faults of nodes or between them explain.
fn fate(error: &QueryError) -> Option<Fate> {
    match error {
        // Decided before anything is sent.
        QueryError::Unavailable { .. } => Some(Fate::Refused),
        // Others did not let it through, and nothing was proposed.
        QueryError::CasTimeout { .. } => Some(Fate::Refused),
        QueryError::WriteTimeout { .. }
        | QueryError::CasUnknown { .. }
        | QueryError::ReadTimeout { .. }
        | QueryError::WriteFailure { .. }
        | QueryError::ReadFailure { .. }
        // A replica that was asked beside the overloaded ones may still do its part.
        | QueryError::Overloaded(_)
        | QueryError::NotReady(_) => Some(Fate::Doubt),
        _ => None,
    }
}
