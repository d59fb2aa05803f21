//! Partition keys as text, for operators: the values of the columns with colons between them.
//!
//! Source: Apache Cassandra 5.0 `AbstractType.fromString` and `AbstractCompositeType`, which `nodetool
//! getsstables` reads keys by.

use model::{CqlType, Table, partition_key};
use statement::restrictions::keys;
use statement::terms::literal;

use crate::execute::consistency;

/// A stored key as text.
pub fn print(table: &Table, key: &[u8]) -> String {
    consistency::key_text(table, key)
}

/// The stored key that `text` stands for. Several columns have colons between them; a colon within a value
/// has a backslash before it, and one exclamation mark at the end of a value is left out.
///
/// # Errors
/// The fault of the text, in words.
pub fn parse(table: &Table, text: &str, now_ms: i64) -> Result<Vec<u8>, String> {
    let columns = table.partition_key();
    let values = if columns.len() == 1 { vec![text.to_owned()] } else { components(text) };
    if values.len() != columns.len() {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        return Err(format!(
            "the key has {} values ({}), not {}",
            names.len(),
            names.join(":"),
            values.len()
        ));
    }
    let mut key = Vec::new();
    for (column, text) in columns.iter().zip(&values) {
        let wrong = |reason: String| format!("'{text}' is no {} for {}: {reason}", column.ty, column.name);
        let mut value = Vec::new();
        let digits = text.strip_prefix("0x").filter(|_| column.ty == CqlType::Blob).unwrap_or(text);
        literal::append_inner_text(digits, &column.ty, now_ms, &mut value).map_err(wrong)?;
        partition_key::append_component(&mut key, columns.len(), &value)
            .map_err(|error| error.to_string())?;
    }
    checked(key)
}

/// The stored key whose bytes `text` has as hexadecimal digits, with `0x` before them or without.
///
/// # Errors
/// The fault of the text, in words.
pub fn parse_hex(table: &Table, text: &str) -> Result<Vec<u8>, String> {
    let mut key = Vec::new();
    literal::append_hex(text.strip_prefix("0x").unwrap_or(text), &mut key)?;
    // Made of its values again it has the same bytes, or it is not made of values.
    let values = keys::split(table, &key);
    let mut again = Vec::new();
    for value in &values {
        let made = partition_key::append_component(&mut again, table.partition_key().len(), value);
        made.map_err(|error| error.to_string())?;
    }
    let count = values.len();
    drop(values);
    if again != key || count != table.partition_key().len() {
        return Err(format!("the bytes of '{text}' are no key of the table"));
    }
    checked(key)
}

fn checked(key: Vec<u8>) -> Result<Vec<u8>, String> {
    keys::check_not_empty(&key).map_err(|error| error.to_string())?;
    Ok(key)
}

/// The values of a key of several columns.
fn components(text: &str) -> Vec<String> {
    let mut values = vec![String::new()];
    for letter in text.chars() {
        let last = values.last_mut().expect("there is one from the beginning");
        match letter {
            ':' if last.ends_with('\\') => {
                last.pop();
                last.push(':');
            }
            ':' => values.push(String::new()),
            other => last.push(other),
        }
    }
    for value in &mut values {
        if value.ends_with('!') {
            value.pop();
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use statement::session::Session;

    fn table(key: &str) -> std::rc::Rc<Table> {
        let mut session = Session::default();
        session
            .run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
            .unwrap();
        session.run(&format!("CREATE TABLE ks.t ({key})")).unwrap();
        session.schema.table("ks", "t").unwrap().clone()
    }

    #[test]
    fn keys_are_read_by_the_types_of_their_columns() {
        let check = |columns: &str, text: &str, expected: Result<&[u8], &str>| {
            let parsed = parse(&table(columns), text, 0);
            match (&parsed, expected) {
                (Ok(bytes), Ok(expected)) => assert_eq!(bytes, expected, "{text}"),
                (Err(said), Err(part)) => assert!(said.contains(part), "{text}: {said}"),
                _ => panic!("{text}: {parsed:?}"),
            }
        };
        check("k int PRIMARY KEY", "7", Ok(&[0, 0, 0, 7]));
        check("k int PRIMARY KEY", "seven", Err("'seven' is no int for k"));
        check("k text PRIMARY KEY", "a:b", Ok(b"a:b"));
        check("k text PRIMARY KEY", "", Err("Key may not be empty"));
        check("k blob PRIMARY KEY", "cafe", Ok(&[0xca, 0xfe]));
        check("k blob PRIMARY KEY", "0xcafe", Ok(&[0xca, 0xfe]));
        check("k boolean PRIMARY KEY", "true", Ok(&[1]));
        let two = "a int, b text, PRIMARY KEY ((a, b))";
        check(two, "7:x", Ok(&[0, 4, 0, 0, 0, 7, 0, 0, 1, b'x', 0]));
        check(two, "7:x\\:y!", Ok(&[0, 4, 0, 0, 0, 7, 0, 0, 3, b'x', b':', b'y', 0]));
        check(two, "7", Err("the key has 2 values (a:b), not 1"));
        check(two, "7:x:y", Err("the key has 2 values (a:b), not 3"));
    }

    #[test]
    fn keys_are_read_as_bytes() {
        let two = table("a int, b text, PRIMARY KEY ((a, b))");
        let bytes = [0, 4, 0, 0, 0, 7, 0, 0, 1, b'x', 0];
        assert_eq!(parse_hex(&two, "0x0004000000070000017800").as_deref(), Ok(&bytes[..]));
        assert_eq!(print(&two, &bytes), "7:x");
        for text in
            ["", "0", "xy", "00", "000400000007", "000400000007000001780000", "0004000000070000017801"]
        {
            assert!(parse_hex(&two, text).is_err(), "{text}");
        }
        assert_eq!(parse_hex(&table("k int PRIMARY KEY"), "00000007"), Ok(vec![0, 0, 0, 7]));
    }
}
