//! Short names for the errors a schema statement can end in.

use cql::SyntaxError;

use crate::QueryError;

/// The statement cannot be meant.
pub(crate) fn invalid(message: impl Into<String>) -> QueryError {
    QueryError::Invalid(message.into())
}

/// An option cannot be.
pub(crate) fn config(message: impl Into<String>) -> QueryError {
    QueryError::Config(message.into())
}

/// Cassandra counts this among the mistakes of the text, without a place in it.
pub(crate) fn syntax(message: impl Into<String>) -> QueryError {
    QueryError::Syntax(SyntaxError { position: None, message: message.into() })
}

/// The operation is not allowed to any user.
pub(crate) fn unauthorized(message: impl Into<String>) -> QueryError {
    QueryError::Unauthorized(message.into())
}

/// The statement uses a part of the language that this version does not support.
pub(crate) fn unsupported(what: &str) -> QueryError {
    QueryError::Invalid(format!("{what} not supported yet"))
}
