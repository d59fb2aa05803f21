//! Prints identifiers and qualified names.

use std::fmt::{Display, Formatter, Result};

use crate::ast::{Ident, QualifiedName};
use crate::keyword::Keyword;
use crate::reserved::needs_quotes;

impl Display for Ident {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        // `expr(` is one token, so a function of that name needs quotes too.
        let keyword = Keyword::of(&self.name).is_some() || self.name == "expr";
        if self.quoted || keyword || needs_quotes(&self.name) {
            write!(formatter, "\"{}\"", self.name.replace('"', "\"\""))
        } else {
            formatter.write_str(&self.name)
        }
    }
}

impl Display for QualifiedName {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        if let Some(keyspace) = &self.keyspace {
            write!(formatter, "{keyspace}.")?;
        }
        write!(formatter, "{}", self.name)
    }
}

/// A function's name: `token` and `count` are keywords that need no quotes here.
pub(super) struct FunctionName<'a>(pub(super) &'a QualifiedName);

impl Display for FunctionName<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let QualifiedName { keyspace, name } = self.0;
        if let Some(keyspace) = keyspace {
            write!(formatter, "{keyspace}.")?;
        }
        match name.as_str() {
            "token" | "count" if !name.quoted => formatter.write_str(&name.name),
            _ => write!(formatter, "{name}"),
        }
    }
}
