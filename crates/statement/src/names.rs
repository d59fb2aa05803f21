//! Names of columns in messages and lookups.

use cql::ast::Ident;
use model::type_parser::quote_identifier;
use model::{Column, Table};

use crate::StatementError;

/// The column of that name.
///
/// # Errors
/// [`StatementError::Invalid`] if the table has no such column that statements may name.
pub fn column<'t>(table: &'t Table, name: &Ident) -> Result<&'t Column, StatementError> {
    table.column(&name.name).filter(|column| !table.hides(column)).ok_or_else(|| undefined(table, &name.name))
}

/// The client's error for an unknown column.
pub fn undefined(table: &Table, name: &str) -> StatementError {
    StatementError::Invalid(format!(
        "Undefined column name {} in table {}",
        quote_identifier(name),
        qualified(table)
    ))
}

/// `keyspace.table`, quoted if necessary.
pub fn qualified(table: &Table) -> String {
    format!("{}.{}", quote_identifier(table.keyspace()), quote_identifier(table.name()))
}

#[cfg(test)]
mod tests {
    use model::type_parser::{RESERVED_WORDS, quote_identifier};

    #[test]
    fn types_are_quoted_by_the_words_that_the_grammar_reserves() {
        // Numbers with a sign are no words of letters: names like them are quoted for that.
        let words = cql::reserved::RESERVED.iter().filter(|word| !word.starts_with('-'));
        assert_eq!(words.collect::<Vec<_>>(), RESERVED_WORDS.iter().collect::<Vec<_>>());
        for name in ["-nan", "select", "a", "_a", "a1", "A", "1a"] {
            assert_eq!(quote_identifier(name) != name, cql::reserved::needs_quotes(name), "{name}");
        }
    }
}
