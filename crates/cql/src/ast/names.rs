//! Names as CQL writes them: identifiers with their case rule, and names qualified by a keyspace.
//!
//! Invariant: `name` is already folded (unquoted identifiers are ASCII-lower-cased, quoted ones unescaped),
//! so comparing names is comparing strings. All of `ast` relies on that.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// An identifier: a column, table, keyspace, type, function, role or option name.
///
/// Equality, order and hash look at `name` alone: `"a"` and `A` are the same identifier.
#[derive(Clone, Debug)]
pub struct Ident {
    /// The name after case folding (unquoted) or unescaping (quoted).
    pub name: String,
    /// Whether the text had it in double quotes (or, for roles, in single quotes).
    pub quoted: bool,
}

impl Ident {
    /// An identifier whose exact spelling is `name`; it is marked quoted if bare text would not parse to the
    /// same name.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let quoted = crate::reserved::needs_quotes(&name);
        Self { name, quoted }
    }

    /// The folded name.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

impl PartialEq for Ident {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Ident {}

impl Hash for Ident {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl PartialOrd for Ident {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ident {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }
}

impl AsRef<str> for Ident {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

/// `[keyspace.]name`: a table, view, index, type, function or aggregate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QualifiedName {
    /// The keyspace, when the text named one; otherwise the session's keyspace is meant.
    pub keyspace: Option<Ident>,
    /// The object's own name.
    pub name: Ident,
}

impl QualifiedName {
    /// A name without keyspace.
    pub fn bare(name: Ident) -> Self {
        Self { keyspace: None, name }
    }
}
