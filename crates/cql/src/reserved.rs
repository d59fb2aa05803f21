//! Which words are keywords, and which of them may not stand as a bare identifier.
//!
//! A word is reserved if Cassandra 5.0's grammar does not list it among its unreserved keywords. Words that
//! only the extensions use are never reserved, so that no Cassandra schema stops parsing. Invariant:
//! `RESERVED` is sorted (a test checks it). Used by the parser, the printer and `query`'s DESCRIBE.

/// The reserved words, sorted, lower case.
pub const RESERVED: &[&str] = &[
    "-infinity",
    "-nan",
    "add",
    "allow",
    "alter",
    "and",
    "apply",
    "asc",
    "authorize",
    "batch",
    "begin",
    "by",
    "columnfamily",
    "create",
    "delete",
    "desc",
    "describe",
    "drop",
    "entries",
    "execute",
    "from",
    "full",
    "grant",
    "if",
    "in",
    "index",
    "infinity",
    "insert",
    "into",
    "is",
    "keyspace",
    "limit",
    "materialized",
    "modify",
    "nan",
    "norecursive",
    "not",
    "null",
    "of",
    "on",
    "or",
    "order",
    "primary",
    "rename",
    "revoke",
    "schema",
    "select",
    "set",
    "table",
    "to",
    "token",
    "truncate",
    "unlogged",
    "update",
    "use",
    "using",
    "view",
    "where",
    "with",
];

/// Whether `word` (lower case) may stand only in quotes as an identifier.
pub fn is_reserved(word: &str) -> bool {
    RESERVED.binary_search(&word).is_ok()
}

/// Whether bare text would not read back as the identifier `name`.
///
/// Bare identifiers are an ASCII letter followed by letters, digits and underscores, are folded to lower
/// case, and are no reserved word; words that lex as another kind of token (`true`, `p1y`) count as reserved
/// too.
pub fn needs_quotes(name: &str) -> bool {
    let mut bytes = name.bytes();
    let starts_well = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase());
    let goes_on_well = bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    !starts_well || !goes_on_well || is_reserved(name) || matches!(name, "true" | "false")
}
