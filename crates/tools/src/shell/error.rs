//! Errors as the shell prints them: those of the server in the words of cqlsh's driver.
//!
//! Source: `protocol.py` and `__init__.py` of the Python driver for Apache Cassandra.

use wire::Consistency;

use super::style::harmless;
use crate::client::ClientError;

/// Why a statement or a command got no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShellError {
    /// The connection or its answers are no good.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// The server refused or failed.
    #[error("{0}")]
    Server(ServerError),
    /// No answer in time.
    #[error(
        "OperationTimedOut: no answer within {seconds} s; the statement may still be at work. Give it longer with \
         --request-timeout SECONDS"
    )]
    TimedOut {
        /// How long the shell waited.
        seconds: f64,
    },
    /// Ctrl-C.
    #[error("interrupted; the statement may still be at work")]
    Interrupted,
    /// A command of the shell that makes no sense, or whose file is no good.
    #[error("{0}")]
    Command(String),
}

impl From<wire::ProtocolError> for ShellError {
    fn from(error: wire::ProtocolError) -> Self {
        Self::Client(error.into())
    }
}

impl ShellError {
    /// An error of a command.
    pub(super) fn command(text: impl Into<String>) -> Self {
        Self::Command(text.into())
    }

    /// Whether the connection cannot be used any more.
    pub(super) fn ends_connection(&self) -> bool {
        matches!(self, Self::Client(_) | Self::Interrupted | Self::TimedOut { .. })
    }
}

/// An ERROR of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerError {
    pub(super) code: i32,
    pub(super) message: String,
    /// The fields of its code, as pairs in Python's form with commas between; empty if it has none.
    info: String,
}

const ALREADY_EXISTS: i32 = 0x2400;

/// Exceptions of the driver by code, with their summaries, and whether they print only their message.
const KINDS: [(i32, &str, &str, bool); 20] = [
    (0x0000, "ServerError", "Server error", true),
    (0x000A, "ProtocolException", "Protocol error", true),
    (0x0100, "AuthenticationFailed", "Bad credentials", false),
    (0x1000, "Unavailable", "Unavailable exception", false),
    (0x1001, "OverloadedErrorMessage", "Coordinator node overloaded", true),
    (0x1002, "IsBootstrappingErrorMessage", "Coordinator node is bootstrapping", true),
    (0x1003, "TruncateError", "Error during truncate", true),
    (0x1100, "WriteTimeout", "Coordinator node timed out waiting for replica nodes' responses", false),
    (0x1200, "ReadTimeout", "Coordinator node timed out waiting for replica nodes' responses", false),
    (0x1300, "ReadFailure", "Replica(s) failed to execute read", false),
    (0x1400, "FunctionFailure", "User Defined Function failure", false),
    (0x1500, "WriteFailure", "Replica(s) failed to execute write", false),
    (0x1600, "CDCWriteException", "Failed to execute write due to CDC space exhaustion.", true),
    (0x1700, "CasWriteUnknown", "The outcome of a conditional write is not known", false),
    (0x2000, "SyntaxException", "Syntax error in CQL query", true),
    (0x2100, "Unauthorized", "Unauthorized", false),
    (0x2200, "InvalidRequest", "Invalid query", false),
    (0x2300, "ConfigurationException", "Query invalid because of configuration issue", true),
    (0x2400, "AlreadyExists", "Item already exists", true),
    (0x2500, "PreparedQueryNotFound", "Matching prepared statement not found on this node", true),
];

impl ServerError {
    /// Reads an error; fields that are cut are left out.
    pub(super) fn new(code: i32, message: &str, fields: &[u8]) -> Self {
        let mut fields = Fields { rest: fields };
        let named = if code == ALREADY_EXISTS { fields.already_there() } else { None };
        let info = pairs(code, &mut fields).unwrap_or_default();
        Self { code, message: named.unwrap_or_else(|| harmless(message)), info }
    }

    /// Whether the same request may succeed when it is sent again.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(self.code, 0x1000 | 0x1001 | 0x1002 | 0x1100 | 0x1200)
    }
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (code, message) = (self.code, &self.message);
        let known = KINDS.iter().find(|(of, ..)| *of == code);
        let (_, name, summary, is_bare) = known.copied().unwrap_or((code, "ErrorMessage", "Unknown", false));
        if is_bare {
            return write!(f, "{name}: {message}");
        }
        write!(f, "{name}: Error from server: code={code:04x} [{summary}] message=\"{message}\"")?;
        if self.info.is_empty() { Ok(()) } else { write!(f, " info={{{}}}", self.info) }
    }
}

/// The fields of an error, in the protocol's order.
struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*first)
    }

    fn level(&mut self) -> Option<String> {
        let level = Consistency::from_code(u16::from_be_bytes(self.take()?)).ok()?;
        Some(format!("'consistency': '{}'", level.name()))
    }

    fn number(&mut self, name: &str) -> Option<String> {
        Some(format!("'{name}': {}", i32::from_be_bytes(self.take()?)))
    }

    fn string(&mut self) -> Option<String> {
        let length = usize::from(u16::from_be_bytes(self.take()?));
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(harmless(&String::from_utf8_lossy(text)))
    }

    fn text(&mut self, name: &str) -> Option<String> {
        Some(format!("'{name}': '{}'", self.string()?))
    }

    /// The driver's own words for what exists already.
    fn already_there(&mut self) -> Option<String> {
        let (keyspace, table) = (self.string()?, self.string()?);
        Some(match table.as_str() {
            "" => format!("Keyspace '{keyspace}' already exists"),
            table => format!("Table '{keyspace}.{table}' already exists"),
        })
    }
}

fn pairs(code: i32, fields: &mut Fields<'_>) -> Option<String> {
    let parts = match code {
        0x1000 => {
            vec![fields.level()?, fields.number("required_replicas")?, fields.number("alive_replicas")?]
        }
        0x1100 | 0x1200 | 0x1300 | 0x1500 | 0x1700 => {
            let level = fields.level()?;
            let received = fields.number("received_responses")?;
            let mut parts = vec![level, fields.number("required_responses")?, received];
            match code {
                // Version 5 has a map of reasons here, whose length is the number of failures.
                0x1300 | 0x1500 => parts.push(fields.number("failures")?),
                0x1100 => parts.push(fields.text("write_type")?),
                _ => {}
            }
            parts
        }
        0x1400 => vec![fields.text("keyspace")?, fields.text("function")?],
        _ => Vec::new(),
    };
    Some(parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_those_of_the_driver() {
        let check = |code, fields: &[u8], expected: &str| {
            assert_eq!(ServerError::new(code, "why\x1b", fields).to_string(), expected);
        };
        check(
            0x2200,
            &[],
            r#"InvalidRequest: Error from server: code=2200 [Invalid query] message="why\x1b""#,
        );
        check(0x2000, &[], r"SyntaxException: why\x1b");
        check(0x2400, &[0, 1, b'k', 0, 1, b't'], "AlreadyExists: Table 'k.t' already exists");
        check(0x2400, &[0], r"AlreadyExists: why\x1b");
        check(
            0x1000,
            &[0, 3, 0, 0, 0, 3, 0, 0, 0, 1],
            "Unavailable: Error from server: code=1000 [Unavailable exception] message=\"why\\x1b\" \
             info={'consistency': 'THREE', 'required_replicas': 3, 'alive_replicas': 1}",
        );
        let timeout = [&[0u8, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0, 6][..], b"SIMPLE"].concat();
        assert!(ServerError::new(0x1100, "", &timeout).to_string().ends_with(
            "info={'consistency': 'QUORUM', 'required_responses': 2, 'received_responses': 1, 'write_type': \
                 'SIMPLE'}"
        ));
        // Cut, and unknown.
        check(
            0x1000,
            &[0],
            "Unavailable: Error from server: code=1000 [Unavailable exception] message=\"why\\x1b\"",
        );
        check(0x7777, &[], "ErrorMessage: Error from server: code=7777 [Unknown] message=\"why\\x1b\"");
    }
}
