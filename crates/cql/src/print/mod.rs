//! Turns trees back into text.
//!
//! Every node of `ast` is `Display`, and the printed text parses to an equal tree, as long as the tree has a
//! shape that the parser can produce (a property test checks it for all statements). Keywords used as names
//! are always quoted, which is never wrong. Used by error messages, logs and tools, and by code that stores
//! statements.

mod auth;
mod ddl;
mod modify;
mod names;
mod relation;
mod select;
mod statement;
mod table;
mod term;
mod types;

use std::fmt::{Display, Formatter, Result};

/// `items` with `separator` between them.
fn separated<T: Display>(
    formatter: &mut Formatter<'_>,
    items: impl IntoIterator<Item = T>,
    separator: &str,
) -> Result {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            formatter.write_str(separator)?;
        }
        write!(formatter, "{item}")?;
    }
    Ok(())
}

/// `open item, item close`
fn enclosed<T: Display>(
    formatter: &mut Formatter<'_>,
    open: &str,
    items: impl IntoIterator<Item = T>,
    close: &str,
) -> Result {
    formatter.write_str(open)?;
    separated(formatter, items, ", ")?;
    formatter.write_str(close)
}

/// `text` when `present`.
fn when(formatter: &mut Formatter<'_>, present: bool, text: &str) -> Result {
    if present { formatter.write_str(text) } else { Ok(()) }
}

/// `prefix item AND item …`, or nothing when there is none.
fn clause<T: Display>(formatter: &mut Formatter<'_>, prefix: &str, items: &[T]) -> Result {
    if items.is_empty() {
        return Ok(());
    }
    formatter.write_str(prefix)?;
    separated(formatter, items, " AND ")
}

/// `prefix item`, or nothing when there is none.
fn optional<T: Display>(formatter: &mut Formatter<'_>, prefix: &str, item: Option<T>) -> Result {
    match item {
        Some(item) => write!(formatter, "{prefix}{item}"),
        None => Ok(()),
    }
}

/// A pair, printed with a separator between.
struct Pair<'a, A, B>(&'a A, &'static str, &'a B);

impl<A: Display, B: Display> Display for Pair<'_, A, B> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{}{}{}", self.0, self.1, self.2)
    }
}

/// The entries of a list of pairs, each printed with `separator` between.
fn pairs<'a, A, B>(entries: &'a [(A, B)], separator: &'static str) -> impl Iterator<Item = Pair<'a, A, B>> {
    entries.iter().map(move |(left, right)| Pair(left, separator, right))
}

/// A string literal.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "'{}'", self.0.replace('\'', "''"))
    }
}
