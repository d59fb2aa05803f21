//! BATCH as text, prepared, and the checks which statements may be in one batch.
//!
//! Rules and messages are those of Cassandra 5's `BatchStatement.validate`, for batches as text and those of
//! the protocol alike.

use cql::ast::{self, BatchKind as AstKind};
use wire::request::BatchKind;

use super::modify::{self, ModifyPlan, Route};
use crate::StatementError;
use crate::terms::Term;

/// A prepared batch.
#[derive(Debug)]
pub struct BatchPlan {
    /// How the statements hold together.
    pub kind: BatchKind,
    /// USING TIMESTAMP of the whole.
    pub timestamp: Option<Term>,
    /// USING TIMEOUT of the whole.
    pub timeout: Option<Term>,
    /// The statements.
    pub statements: Vec<ModifyPlan>,
}

impl BatchPlan {
    /// Checks that the parts go together.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] in Cassandra's words.
    pub fn new(
        kind: BatchKind,
        attributes: modify::Attributes,
        statements: Vec<ModifyPlan>,
    ) -> Result<Self, StatementError> {
        if attributes.time_to_live.is_some() {
            return Err(StatementError::invalid("Global TTL on the BATCH statement is not supported."));
        }
        check(kind, attributes.timestamp.is_some(), statements.iter())?;
        Ok(Self { kind, timestamp: attributes.timestamp, timeout: attributes.timeout, statements })
    }
}

/// Refuses statements that cannot be in one batch; `has_timestamp` is whether the whole batch has a
/// timestamp.
///
/// # Errors
/// [`StatementError::Invalid`] with Cassandra's texts.
pub fn check<'p>(
    kind: BatchKind,
    has_timestamp: bool,
    statements: impl Iterator<Item = &'p ModifyPlan> + Clone,
) -> Result<(), StatementError> {
    let any = |route: Route| statements.clone().any(|statement| statement.route == route);
    let conditional = statements.clone().any(|statement| statement.condition.is_some());
    let counters = any(Route::Counter);
    let others = statements.clone().any(|statement| statement.route != Route::Counter);
    let mistake = if has_timestamp && conditional {
        "Cannot provide custom timestamp for conditional BATCH"
    } else if has_timestamp && kind == BatchKind::Counter {
        "Cannot provide custom timestamp for counter BATCH"
    } else if has_timestamp && statements.clone().any(|statement| statement.timestamp.is_some()) {
        "Timestamp must be set either on BATCH or individual statements"
    } else if has_timestamp && counters {
        "Cannot provide custom timestamp for a BATCH containing counters"
    } else if kind == BatchKind::Counter && others {
        "Cannot include non-counter statement in a counter batch"
    } else if counters && others {
        "Counter and non-counter mutations cannot exist in the same batch"
    } else if kind == BatchKind::Logged && counters {
        "Cannot include a counter statement in a logged batch"
    } else if conditional && spans_tables(statements) {
        "Batch with conditions cannot span multiple tables"
    } else {
        return Ok(());
    };
    Err(StatementError::invalid(mistake))
}

fn spans_tables<'p>(mut statements: impl Iterator<Item = &'p ModifyPlan>) -> bool {
    let first = statements.next().map(|statement| statement.table.id());
    statements.any(|statement| Some(statement.table.id()) != first)
}

/// The protocol's kind of a batch's text.
pub fn kind(kind: ast::BatchKind) -> BatchKind {
    match kind {
        AstKind::Logged => BatchKind::Logged,
        AstKind::Unlogged => BatchKind::Unlogged,
        AstKind::Counter => BatchKind::Counter,
    }
}
