//! Completion by TAB: commands, keywords, keyspaces, tables, columns and files, by the words before the
//! cursor.

use std::borrow::Cow;

use cql::split::{Word, WordKind, split};
use model::type_parser::quote_identifier;

use super::command;
use super::schema::Schema;

/// Something to put in the place of the word at the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    /// As it is listed.
    pub(super) shown: String,
    /// As it is written.
    pub(super) text: String,
}

/// Words after which a table is named.
const BEFORE_TABLES: [&str; 7] = ["FROM", "INTO", "UPDATE", "TABLE", "TRUNCATE", "COPY", "ON"];
const LEVELS: [&str; 11] = [
    "ALL",
    "ANY",
    "EACH_QUORUM",
    "LOCAL_ONE",
    "LOCAL_QUORUM",
    "LOCAL_SERIAL",
    "ONE",
    "QUORUM",
    "SERIAL",
    "THREE",
    "TWO",
];
const DESCRIBED: [&str; 15] = [
    "AGGREGATE",
    "AGGREGATES",
    "CLUSTER",
    "FULL",
    "FUNCTION",
    "FUNCTIONS",
    "INDEX",
    "KEYSPACE",
    "KEYSPACES",
    "ONLY",
    "SCHEMA",
    "TABLE",
    "TABLES",
    "TYPE",
    "TYPES",
];

/// Whether the cursor, at the end of `before`, is in a string that names a file.
pub(super) fn names_a_file(before: &str) -> bool {
    let cut = split(before, |_| false);
    let Some(piece) = cut.pieces.last().filter(|_| cut.open.is_some()) else { return false };
    let word = |at: usize| piece.words.get(at).map(|word| before[word.start..word.end].to_ascii_uppercase());
    let last = piece.words.last().map(|word| before[word.start..word.end].to_ascii_uppercase());
    match word(0).as_deref() {
        Some("SOURCE" | "CAPTURE") => true,
        Some("COPY") => matches!(last.as_deref(), Some("FROM" | "TO")),
        _ => false,
    }
}

/// The words that can stand at the end of `before`, in a statement that goes on with `after`, and the offset
/// in `before` of the word that they replace.
pub(super) fn offers(
    before: &str,
    after: &str,
    schema: &Schema,
    keyspace: Option<&str>,
) -> (usize, Vec<Offer>) {
    let cut = split(before, |_| false);
    if cut.open.is_some() {
        return (before.len(), Vec::new());
    }
    let words = cut.pieces.last().filter(|piece| !piece.is_ended).map_or(&[][..], |piece| &piece.words[..]);
    // The word that the cursor touches is completed; the others say what it may be.
    let touched = words.last().filter(|word| word.end == before.len() && word.kind == WordKind::Word);
    let start = touched.map_or(before.len(), |word| word.start);
    let earlier = if touched.is_some() { &words[..words.len() - 1] } else { words };
    let typed = &before[start..];
    let texts: Vec<&str> = earlier.iter().map(|word| &before[word.start..word.end]).collect();
    let whole = format!("{before}{after}");
    let candidates = candidates(&texts, schema, keyspace, || columns(&whole, schema, keyspace));
    let folded = typed.to_lowercase();
    // A name that needs quotes is found without them, too.
    let begins = |text: &str| text.starts_with(&folded) || text.trim_start_matches('"').starts_with(&folded);
    let mut found: Vec<Offer> =
        candidates.into_iter().filter(|offer| begins(&offer.text.to_lowercase())).collect();
    found.dedup();
    (start, found)
}

fn words<'w>(words: impl IntoIterator<Item = &'w str>) -> Vec<Offer> {
    let offer = |word: &str| Offer { shown: word.to_uppercase(), text: format!("{} ", word.to_uppercase()) };
    words.into_iter().map(offer).collect()
}

fn names<'n>(names: impl IntoIterator<Item = &'n str>, behind: &str) -> Vec<Offer> {
    let offer = |name: &str| {
        let name = quote_identifier(name);
        Offer { text: format!("{name}{behind}"), shown: name.into_owned() }
    };
    names.into_iter().map(offer).collect()
}

/// Tables of the session's keyspace, and keyspaces that hold others.
fn tables(schema: &Schema, keyspace: Option<&str>) -> Vec<Offer> {
    let mut offers = keyspace.map_or_else(Vec::new, |keyspace| names(schema.tables(keyspace), " "));
    offers.extend(names(schema.keyspaces(), "."));
    offers
}

/// All that may follow the words of a statement.
fn candidates(
    texts: &[&str],
    schema: &Schema,
    keyspace: Option<&str>,
    columns: impl FnOnce() -> Vec<Offer>,
) -> Vec<Offer> {
    let upper: Vec<String> = texts.iter().map(|text| text.to_ascii_uppercase()).collect();
    let upper: Vec<&str> = upper.iter().map(String::as_str).collect();
    match upper[..] {
        [] => {
            let mut offers = words(command::NAMES);
            offers.extend(words(STATEMENTS));
            offers.sort_by(|a, b| a.shown.cmp(&b.shown));
            return offers;
        }
        ["CONSISTENCY"] | ["SERIAL", "CONSISTENCY"] => return words(LEVELS),
        ["SERIAL"] => return words(["CONSISTENCY"]),
        ["TRACING" | "EXPAND" | "PAGING" | "TIMING"] => return words(["OFF", "ON"]),
        ["SHOW"] => return words(["HOST", "SESSION", "VERSION"]),
        ["HELP" | "?"] => return words(command::NAMES),
        ["USE"] | [.., "KEYSPACE"] => return names(schema.keyspaces(), " "),
        ["DESCRIBE" | "DESC"] => {
            let mut offers = words(DESCRIBED);
            offers.extend(tables(schema, keyspace));
            return offers;
        }
        ["BEGIN"] => return words(["BATCH", "COUNTER", "UNLOGGED"]),
        ["COPY", .., name]
            if !matches!(name, "." | "(" | ",") && !upper.contains(&"FROM") && !upper.contains(&"TO") =>
        {
            return words(["FROM", "TO"]);
        }
        ["COPY", .., "WITH" | "AND"] => return words(super::copy::OPTION_NAMES),
        _ => {}
    }
    if let [.., before, _, "."] = upper[..]
        && (BEFORE_TABLES.contains(&before) || before == "DESC" || before == "DESCRIBE")
    {
        let named = texts.get(texts.len() - 2).map(|name| unquoted(name)).unwrap_or_default();
        return names(schema.tables(&named), " ");
    }
    if upper.last().is_some_and(|last| BEFORE_TABLES.contains(last)) {
        return tables(schema, keyspace);
    }
    let mut offers = columns();
    // Names of types have their place in definitions and casts.
    let has_types = matches!(upper[0], "CREATE" | "ALTER") || upper.last() == Some(&"AS");
    offers.extend(words(
        cql::spellings().filter(|word| has_types || model::type_parser::native_type(word).is_none()),
    ));
    offers
}

/// Words with which statements begin.
const STATEMENTS: [&str; 14] = [
    "ALTER", "BEGIN", "CREATE", "DELETE", "DROP", "GRANT", "INSERT", "LIST", "PRUNE", "REVOKE", "SELECT",
    "TRUNCATE", "UPDATE", "USE",
];

/// A name without its quotes, as the server has it.
pub(super) fn unquoted(name: &str) -> Cow<'_, str> {
    match name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) => Cow::Owned(inner.replace("\"\"", "\"")),
        None => Cow::Owned(name.to_lowercase()),
    }
}

/// Keyspace and table that a statement names, if it names one.
pub(super) fn table_of(text: &str, keyspace: Option<&str>) -> Option<(String, String)> {
    let cut = split(text, |_| false);
    let words: &[Word] = &cut.pieces.last()?.words;
    let word = |at: usize| words.get(at).map(|word| &text[word.start..word.end]);
    let is_name = |word: &Word| matches!(word.kind, WordKind::Word | WordKind::QuotedName);
    let at = words.iter().position(|word| {
        let upper = text[word.start..word.end].to_ascii_uppercase();
        word.kind == WordKind::Word && ["FROM", "INTO", "UPDATE", "COPY"].contains(&upper.as_str())
    })?;
    let first = words.get(at + 1).filter(|word| is_name(word))?;
    let first = unquoted(&text[first.start..first.end]).into_owned();
    if word(at + 2) == Some(".") {
        let table = words.get(at + 3).filter(|word| is_name(word))?;
        return Some((first, unquoted(&text[table.start..table.end]).into_owned()));
    }
    Some((keyspace?.to_owned(), first))
}

fn columns(text: &str, schema: &Schema, keyspace: Option<&str>) -> Vec<Offer> {
    let Some((keyspace, table)) = table_of(text, keyspace) else { return Vec::new() };
    names(schema.columns(&keyspace, &table).iter().map(|column| column.name.as_str()), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts offered for a line; `|` marks the cursor.
    fn check(line: &str, expected: &[&str]) {
        let schema = Schema::of(&[
            ("ks", "users", &["id", "name", "Mixed"]),
            ("ks", "visits", &["user"]),
            ("other", "users", &["x"]),
        ]);
        let (before, after) = line.split_once('|').unwrap();
        let (start, offers) = offers(before, after, &schema, Some("ks"));
        let found: Vec<String> =
            offers.iter().map(|offer| format!("{}{}", &before[..start], offer.text)).collect();
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn statements_and_commands_begin_a_line() {
        check("sel|", &["SELECT "]);
        check("co|", &["CONSISTENCY ", "COPY "]);
        check("SELECT 1; TRAC|", &["SELECT 1; TRACING "]);
        check("TRACING o|", &["TRACING OFF ", "TRACING ON "]);
        check("CONSISTENCY LOCAL_Q|", &["CONSISTENCY LOCAL_QUORUM "]);
        check("SHOW |", &["SHOW HOST ", "SHOW SESSION ", "SHOW VERSION "]);
    }

    #[test]
    fn names_follow_where_they_belong() {
        check("SELECT * FROM v|", &["SELECT * FROM visits "]);
        check("SELECT * FROM o|", &["SELECT * FROM other."]);
        check("SELECT * FROM other.|", &["SELECT * FROM other.users "]);
        check("USE o|", &["USE other "]);
        check("DESC us|", &["DESC users "]);
        check("SELECT nam| FROM users", &["SELECT name"]);
        check("SELECT \"x\", mi| FROM users", &["SELECT \"x\", \"Mixed\""]);
        check("SELECT * FROM ks.users WHERE nam|", &["SELECT * FROM ks.users WHERE name"]);
        check("SELECT bigi| FROM users", &[]);
        check("CREATE TABLE t (k bigi|", &["CREATE TABLE t (k BIGINT "]);
        check("SELECT * FROM ks.users WHERE ini|", &["SELECT * FROM ks.users WHERE INITCOND "]);
        check("COPY users |", &["COPY users FROM ", "COPY users TO "]);
        check("COPY users FROM 'x' WITH HEA|", &["COPY users FROM 'x' WITH HEADER "]);
    }

    #[test]
    fn nothing_is_offered_inside_a_string() {
        check("SELECT 'sel|", &[]);
        assert!(names_a_file("SOURCE '/tm"));
        assert!(names_a_file("COPY t FROM '"));
        assert!(!names_a_file("SELECT '"));
        assert!(!names_a_file("SOURCE 'x' "));
    }
}
