//! The WITH clause of a schema statement, read by name and type.
//!
//! The texts and the order of the errors are Cassandra's (`PropertyDefinitions`), so that tools that match on
//! them work. Invariant: a property is either one text or one map of texts; a number is the text it was
//! written as. `keyspace` and `options` use it.

use std::collections::{BTreeMap, BTreeSet};

use cql::ast::{Constant, Property, PropertyItem, PropertyValue};

use super::hash_order;
use super::mistake::{invalid, syntax};
use crate::StatementError;

/// The properties of one statement, by name.
#[derive(Debug, Default)]
pub(crate) struct Properties(BTreeMap<String, Value>);

#[derive(Debug)]
enum Value {
    Text(String),
    Map(BTreeMap<String, String>),
}

impl Properties {
    /// Takes the properties as parsed.
    ///
    /// # Errors
    /// A name given twice; a list where a map of texts belongs.
    pub(crate) fn new<'a>(
        properties: impl IntoIterator<Item = &'a Property>,
    ) -> Result<Self, StatementError> {
        let mut by_name = BTreeMap::new();
        for Property { name, value } in properties {
            let value = match value {
                PropertyValue::Constant(constant) => Value::Text(constant.text.clone()),
                PropertyValue::Keyword(word) => Value::Text(word.clone()),
                PropertyValue::Map(entries) => Value::Map(map_of(name.as_str(), entries)?),
            };
            if by_name.insert(name.name.clone(), value).is_some() {
                return Err(syntax(format!("Multiple definitions for property '{}'", name.name)));
            }
        }
        Ok(Self(by_name))
    }

    /// Refuses names outside `known`.
    pub(crate) fn check_names(&self, known: &[&str]) -> Result<(), StatementError> {
        let names = hash_order::in_hash_order(self.0.keys().map(String::as_str));
        match names.into_iter().find(|name| !known.contains(name)) {
            Some(name) => Err(syntax(format!("Unknown property '{name}'"))),
            None => Ok(()),
        }
    }

    /// The names given.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// As if the property had not been given.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Whether the property was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The property as text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, StatementError> {
        match self.0.get(name) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Map(_)) => {
                Err(syntax(format!("Invalid value for property '{name}'. It should be a string")))
            }
        }
    }

    /// The property as a map.
    pub(crate) fn map(&self, name: &str) -> Result<Option<&BTreeMap<String, String>>, StatementError> {
        match self.0.get(name) {
            None => Ok(None),
            Some(Value::Map(map)) => Ok(Some(map)),
            Some(Value::Text(_)) => {
                Err(syntax(format!("Invalid value for property '{name}'. It should be a map.")))
            }
        }
    }

    /// The property as a truth value.
    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>, StatementError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match text.to_lowercase().as_str() {
            "1" | "true" | "yes" => Ok(Some(true)),
            "0" | "false" | "no" => Ok(Some(false)),
            _ => Err(syntax(format!(
                "Invalid boolean value {text} for '{name}'. Positive values can be '1', 'true' or 'yes'. \
                 Negative values can be '0', 'false' or 'no'."
            ))),
        }
    }

    /// The property as a 32-bit integer.
    pub(crate) fn integer(&self, name: &str) -> Result<Option<i32>, StatementError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| syntax(format!("Invalid integer value {text} for '{name}'")))
    }

    /// The property as a double.
    pub(crate) fn double(&self, name: &str) -> Result<Option<f64>, StatementError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        parse_double(text)
            .map(Some)
            .ok_or_else(|| syntax(format!("Invalid double value {text} for '{name}'")))
    }
}

fn map_of(
    property: &str,
    entries: &[(Constant, PropertyItem)],
) -> Result<BTreeMap<String, String>, StatementError> {
    let mut map = BTreeMap::new();
    for (key, value) in entries {
        let PropertyItem::Constant(value) = value else {
            let what = format!("Lists as values of '{property}' are not supported yet");
            return Err(invalid(match property {
                "replication" => format!("{what}: give '{}' a number of replicas", key.text),
                _ => what,
            }));
        };
        map.insert(key.text.clone(), value.text.clone());
    }
    Ok(map)
}

/// Reads a double as Java's `Double.parseDouble` does, for the texts that CQL constants can have.
pub(crate) fn parse_double(text: &str) -> Option<f64> {
    let text = text.trim();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    match unsigned {
        "NaN" => return Some(f64::NAN),
        "Infinity" => return Some(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY }),
        _ => {}
    }
    let digits = text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text);
    let is_number =
        digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if is_number { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_read_as_java_reads_them() {
        assert_eq!(parse_double(" 1.5e3 "), Some(1500.0));
        assert_eq!(parse_double("1.5f"), Some(1.5));
        assert_eq!(parse_double("-Infinity"), Some(f64::NEG_INFINITY));
        for text in ["inf", "nan", "x", "", "1e", "0x1p3"] {
            assert_eq!(parse_double(text), None, "{text}");
        }
    }
}
