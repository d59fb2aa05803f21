//! BATCH as text, prepared.

use cql::ast::{self, BatchKind as AstKind};
use wire::request::BatchKind;

use super::modify::{self, ModifyPlan};
use crate::QueryError;
use crate::terms::Term;

/// A prepared batch.
#[derive(Debug)]
pub struct BatchPlan {
    /// How the statements hold together.
    pub kind: BatchKind,
    /// USING TIMESTAMP of the whole.
    pub timestamp: Option<Term>,
    /// The statements.
    pub statements: Vec<ModifyPlan>,
}

impl BatchPlan {
    /// Checks that the parts go together.
    ///
    /// # Errors
    /// [`QueryError::Invalid`] in Cassandra's words.
    pub fn new(
        kind: BatchKind,
        (timestamp, time_to_live): modify::Attributes,
        statements: Vec<ModifyPlan>,
    ) -> Result<Self, QueryError> {
        if time_to_live.is_some() {
            return Err(QueryError::invalid("Global TTL on the BATCH statement is not supported."));
        }
        check_kind(kind)?;
        if timestamp.is_some() && statements.iter().any(|statement| statement.timestamp.is_some()) {
            return Err(QueryError::invalid(
                "Timestamp must be set either on BATCH or individual statements",
            ));
        }
        Ok(Self { kind, timestamp, statements })
    }
}

/// Refuses batches of kinds that do not work yet.
///
/// # Errors
/// [`QueryError::Invalid`] for counter batches.
pub fn check_kind(kind: BatchKind) -> Result<(), QueryError> {
    match kind {
        BatchKind::Counter => Err(QueryError::invalid("Counter batches are not supported yet")),
        BatchKind::Logged | BatchKind::Unlogged => Ok(()),
    }
}

/// The protocol's kind of a batch's text.
pub fn kind(kind: ast::BatchKind) -> BatchKind {
    match kind {
        AstKind::Logged => BatchKind::Logged,
        AstKind::Unlogged => BatchKind::Unlogged,
        AstKind::Counter => BatchKind::Counter,
    }
}
