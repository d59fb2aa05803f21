//! YAML as values and entries with their positions, which `serde` alone would lose.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::ConfigError;

/// A value of any shape.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => write!(f, "nothing"),
            Self::Bool(value) => write!(f, "'{value}'"),
            Self::Integer(value) => write!(f, "'{value}'"),
            Self::Float(value) => write!(f, "'{value}'"),
            Self::Text(value) => write!(f, "'{value}'"),
            Self::List(_) => write!(f, "a list"),
            Self::Map(_) => write!(f, "a map"),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = sequence.next_element()? {
            values.push(value);
        }
        Ok(Value::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Map(entries))
    }
}

/// A top-level key and its value, each with its position (line and column, from 1).
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_at: (u64, u64),
    pub(super) value: Value,
    pub(super) value_at: (u64, u64),
}

/// The top-level map of a file, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) entries: Vec<Entry>,
}

impl Document {
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let parsed: Result<Option<Self>, _> = serde_saphyr::from_str(text);
        parsed.map(Option::unwrap_or_default).map_err(|error| {
            let at = error.location();
            ConfigError::Yaml {
                path: path.to_owned(),
                line: at.map_or(1, |at| at.line()),
                column: at.map_or(1, |at| at.column()),
                message: error.without_snippet().to_string(),
            }
        })
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries)
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Document;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keys with values, such as 'cluster_name: name'")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = map.next_entry::<Spanned<String>, Spanned<Value>>()? {
            let place = |at: serde_saphyr::Location| (at.line(), at.column());
            entries.push(Entry {
                key: key.value,
                key_at: place(key.referenced),
                value: value.value,
                value_at: place(value.referenced),
            });
        }
        Ok(Document { entries })
    }
}
