//! Short names for the errors a schema statement can end in.

use cql::SyntaxError;

use crate::StatementError;

/// The statement cannot be meant.
pub fn invalid(message: impl Into<String>) -> StatementError {
    StatementError::Invalid(message.into())
}

/// An option cannot be.
pub fn config(message: impl Into<String>) -> StatementError {
    StatementError::Config(message.into())
}

/// Cassandra counts this among the mistakes of the text, without a place in it.
pub fn syntax(message: impl Into<String>) -> StatementError {
    StatementError::Syntax(SyntaxError { position: None, message: message.into() })
}

/// The operation is not allowed to any user.
pub(crate) fn unauthorized(message: impl Into<String>) -> StatementError {
    StatementError::Unauthorized(message.into())
}

/// The statement uses a part of the language that this version does not support.
pub(crate) fn unsupported(what: &str) -> StatementError {
    StatementError::Invalid(format!("{what} not supported yet"))
}
