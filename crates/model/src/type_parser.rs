//! Parses CQL type text in the form of `system_schema` into [`CqlType`]; and CQL identifiers, quoted if
//! necessary.
//!
//! The inverse of `CqlType`'s `Display`. The schema loader uses it; statements have their own parser, which
//! handles positions and keyspaces. User-defined types are looked up by a callback, since this file has no
//! schema.

use std::borrow::Cow;

use crate::marshal::{self, MarshalError};
use crate::types::{CqlType, UserType};

/// Deepest nesting of types inside types that is read, here and in `marshal`.
pub const NESTING_MAX: usize = 160;

/// Why text is not a CQL type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypeParseError {
    /// Something else is required there.
    #[error("type `{text}`, byte {at}: expected {expected}")]
    Expected {
        /// The text being read.
        text: String,
        /// Offset in bytes.
        at: usize,
        /// The required text.
        expected: &'static str,
    },
    /// No native type and no user-defined type has this name.
    #[error("unknown type {name}")]
    UnknownType {
        /// The name, as stored.
        name: String,
    },
    /// `frozen` around a type that cannot be.
    #[error("frozen<> is only allowed on collections, tuples, and user-defined types (got {ty})")]
    NotFreezable {
        /// The type inside, as CQL text.
        ty: String,
    },
    /// A collection or user type that is not frozen inside another one.
    #[error("non-frozen {inner} is not allowed inside {outer}")]
    NestedNotFrozen {
        /// The type that should be frozen.
        inner: String,
        /// Kind of the type around it.
        outer: &'static str,
    },
    /// More than [`NESTING_MAX`] types inside each other.
    #[error("types nested deeper than {NESTING_MAX}")]
    TooDeep,
    /// A quoted class name that cannot be read.
    #[error(transparent)]
    Class(#[from] MarshalError),
}

/// Reads a CQL type; `udt` finds a user-defined type by its name as stored (frozen or not does not matter).
///
/// # Errors
/// [`TypeParseError`], with the text and, if useful, the offset.
pub fn parse_type(text: &str, udt: &dyn Fn(&str) -> Option<UserType>) -> Result<CqlType, TypeParseError> {
    let mut parser = Parser { text, at: 0, udt };
    let ty = parser.parse(0)?;
    parser.skip_blanks();
    if parser.at < text.len() {
        return Err(parser.expected("the end"));
    }
    check_parts_frozen(&ty)?;
    Ok(ty)
}

/// Refuses multi-cell types inside a multi-cell collection: their cells could not be stored. Only the
/// outermost type can be multi-cell and have such parts, since freezing extends to all depths. A user type's
/// fields are checked where the type is used.
fn check_parts_frozen(ty: &CqlType) -> Result<(), TypeParseError> {
    let check = |outer, inner: &CqlType| {
        if inner.is_multi_cell() {
            return Err(TypeParseError::NestedNotFrozen { inner: inner.to_string(), outer });
        }
        check_parts_frozen(inner)
    };
    match ty {
        CqlType::List { element, .. } => check("list", element),
        CqlType::Set { element, .. } => check("set", element),
        CqlType::Map { key, value, .. } => check("map", key).and_then(|()| check("map", value)),
        _ => Ok(()),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    udt: &'a dyn Fn(&str) -> Option<UserType>,
}

impl<'a> Parser<'a> {
    fn parse(&mut self, depth: usize) -> Result<CqlType, TypeParseError> {
        if depth >= NESTING_MAX {
            return Err(TypeParseError::TooDeep);
        }
        self.skip_blanks();
        match self.rest().as_bytes().first() {
            Some(b'\'') => {
                let class = self.quoted('\'')?;
                Ok(marshal::parse_class(&class)?.0)
            }
            Some(b'"') => {
                let name = self.quoted('"')?;
                self.user_type(name)
            }
            _ => {
                let name = self.word()?.to_ascii_lowercase();
                self.named(name, depth)
            }
        }
    }

    fn named(&mut self, name: String, depth: usize) -> Result<CqlType, TypeParseError> {
        Ok(match name.as_str() {
            "frozen" => {
                self.punctuation('<')?;
                let inner = self.parse(depth + 1)?;
                self.punctuation('>')?;
                let freezable = inner.is_collection()
                    || matches!(inner, CqlType::Tuple(_) | CqlType::Udt(_) | CqlType::Vector { .. });
                if !freezable {
                    return Err(TypeParseError::NotFreezable { ty: inner.to_string() });
                }
                inner.freeze()
            }
            "list" | "set" => {
                self.punctuation('<')?;
                let element = Box::new(self.parse(depth + 1)?);
                self.punctuation('>')?;
                if name == "list" {
                    CqlType::List { element, frozen: false }
                } else {
                    CqlType::Set { element, frozen: false }
                }
            }
            "map" => {
                self.punctuation('<')?;
                let key = Box::new(self.parse(depth + 1)?);
                self.punctuation(',')?;
                let value = Box::new(self.parse(depth + 1)?);
                self.punctuation('>')?;
                CqlType::Map { key, value, frozen: false }
            }
            "tuple" => {
                self.punctuation('<')?;
                let mut components = vec![self.parse(depth + 1)?.freeze()];
                while self.accept(',') {
                    components.push(self.parse(depth + 1)?.freeze());
                }
                self.punctuation('>')?;
                CqlType::Tuple(components)
            }
            "vector" => {
                self.punctuation('<')?;
                let element = Box::new(self.parse(depth + 1)?.freeze());
                if element.fixed_value_length() == Some(0) {
                    // Nothing in such a value would bound a walk over its elements.
                    return Err(self.expected("an element type whose values have bytes"));
                }
                self.punctuation(',')?;
                let dimension = self.dimension()?;
                self.punctuation('>')?;
                CqlType::Vector { element, dimension }
            }
            _ => match native_type(&name) {
                Some(ty) => ty,
                None => self.user_type(name)?,
            },
        })
    }

    fn user_type(&mut self, name: String) -> Result<CqlType, TypeParseError> {
        let udt = (self.udt)(&name).ok_or(TypeParseError::UnknownType { name })?;
        Ok(CqlType::Udt(Box::new(UserType { frozen: false, ..udt })))
    }

    fn dimension(&mut self) -> Result<u32, TypeParseError> {
        self.skip_blanks();
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        match self.rest()[..digits].parse() {
            Ok(dimension @ 1..=marshal::VECTOR_DIMENSION_MAX) => {
                self.at += digits;
                Ok(dimension)
            }
            _ => Err(self.expected("a vector dimension above zero")),
        }
    }

    fn word(&mut self) -> Result<&'a str, TypeParseError> {
        let length =
            self.rest().bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        if length == 0 {
            return Err(self.expected("a type name"));
        }
        let word = &self.rest()[..length];
        self.at += length;
        Ok(word)
    }

    /// Text between `quote`s; a doubled quote means one.
    fn quoted(&mut self, quote: char) -> Result<String, TypeParseError> {
        let mut content = String::new();
        loop {
            self.at += 1;
            let end = self.rest().find(quote).ok_or_else(|| self.expected("a closing quote"))?;
            content.push_str(&self.rest()[..end]);
            self.at += end + 1;
            if !self.rest().starts_with(quote) {
                return Ok(content);
            }
            content.push(quote);
        }
    }

    fn punctuation(&mut self, wanted: char) -> Result<(), TypeParseError> {
        if self.accept(wanted) {
            return Ok(());
        }
        Err(self.expected(match wanted {
            '<' => "`<`",
            '>' => "`>`",
            _ => "`,`",
        }))
    }

    fn accept(&mut self, wanted: char) -> bool {
        self.skip_blanks();
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn skip_blanks(&mut self) {
        self.at +=
            self.rest().bytes().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn expected(&self, expected: &'static str) -> TypeParseError {
        TypeParseError::Expected { text: marshal::excerpt(self.text), at: self.at, expected }
    }
}

/// The native type with that lower-case CQL name.
pub fn native_type(name: &str) -> Option<CqlType> {
    Some(match name {
        "ascii" => CqlType::Ascii,
        "bigint" => CqlType::Bigint,
        "blob" => CqlType::Blob,
        "boolean" => CqlType::Boolean,
        "counter" => CqlType::Counter,
        "date" => CqlType::Date,
        "decimal" => CqlType::Decimal,
        "double" => CqlType::Double,
        "duration" => CqlType::Duration,
        "empty" => CqlType::Empty,
        "float" => CqlType::Float,
        "inet" => CqlType::Inet,
        "int" => CqlType::Int,
        "smallint" => CqlType::Smallint,
        "text" | "varchar" => CqlType::Text,
        "time" => CqlType::Time,
        "timestamp" => CqlType::Timestamp,
        "timeuuid" => CqlType::Timeuuid,
        "tinyint" => CqlType::Tinyint,
        "uuid" => CqlType::Uuid,
        "varint" => CqlType::Varint,
        _ => return None,
    })
}

/// The identifier as CQL text: quoted unless it is lower-case letters, digits and `_`, begins with a letter
/// and is no reserved word (Cassandra 5.0 `ColumnIdentifier.maybeQuote`).
pub fn quote_identifier(name: &str) -> Cow<'_, str> {
    let plain = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && RESERVED_WORDS.binary_search(&name).is_err();
    if plain { Cow::Borrowed(name) } else { Cow::Owned(format!("\"{}\"", name.replace('"', "\"\""))) }
}

/// Words that cannot be identifiers without quotes (Cassandra 5.0 `reserved_keywords.txt`), sorted. `cql` has
/// them as keywords of its grammar; a test of `query`, which knows both crates, holds the lists together.
pub const RESERVED_WORDS: &[&str] = &[
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

#[cfg(test)]
mod tests;
