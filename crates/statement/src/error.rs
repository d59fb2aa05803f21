//! Errors of statements, as facts. `query` hands them on as its own.
//!
//! Texts inside are those of Cassandra 5 for the same mistake.

/// Why a statement has no meaning, or why its values cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    /// The text is not CQL.
    #[error("{0}")]
    Syntax(#[from] cql::SyntaxError),
    /// The statement is CQL but has no valid meaning.
    #[error("{0}")]
    Invalid(String),
    /// A guardrail forbids it. Clients have the text as a warning, too.
    #[error("{0}")]
    Guardrail(String),
    /// A schema option that cannot be.
    #[error("{0}")]
    Config(String),
    /// The client may not do this.
    #[error("{0}")]
    Unauthorized(String),
    /// CREATE of a keyspace (`table` empty) or of a table or type that exists.
    #[error("{message}")]
    AlreadyExists {
        /// Keyspace in question.
        keyspace: String,
        /// Table in question, empty for a keyspace.
        table: String,
        /// Text for people.
        message: String,
    },
    /// A function failed while it ran.
    #[error("{message}")]
    FunctionFailure {
        /// Keyspace of the function.
        keyspace: String,
        /// Its name.
        function: String,
        /// Types of its arguments.
        arguments: Vec<String>,
        /// Text for people.
        message: String,
    },
    /// A surprise inside this process.
    #[error("{0}")]
    Internal(String),
}

impl StatementError {
    /// A [`StatementError::Invalid`] from a text.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }
}
