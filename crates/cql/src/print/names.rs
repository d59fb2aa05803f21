//! Prints identifiers and qualified names.

use std::fmt::{Display, Formatter, Result};

use crate::ast::{Ident, QualifiedName};
use crate::keyword::Keyword;
use crate::reserved::needs_quotes;

impl Display for Ident {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        if self.quoted || needs_quotes(&self.name) || Keyword::of(&self.name).is_some() {
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
