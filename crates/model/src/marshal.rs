//! Java class names of types, as table files, schema rows and custom types carry them.
//!
//! `org.apache.cassandra.db.marshal.MapType(org...UTF8Type,org...FrozenType(...))`: written exactly as Cassandra 5.0's
//! `AbstractType.toString` does, since other tools compare the text; read as its `TypeParser` does, except that
//! what is not understood is an error instead of a guess. Grammar:
//!
//! ```text
//! type   := class [ "(" params ")" ]
//! params := type { "," type } | keyspace "," hex { "," hex ":" type } | type "," integer
//! ```
//!
//! Frozenness is positional: inside a frozen type nothing is marked, outside each frozen part is wrapped.

use std::fmt::Write;

use crate::type_parser::NESTING_MAX;
use crate::types::{CqlType, UserType};

/// Package of all marshal classes, with the dot that follows it.
pub const PACKAGE: &str = "org.apache.cassandra.db.marshal.";

/// Largest vector dimension that is read: a Java `int`.
pub const VECTOR_DIMENSION_MAX: u32 = i32::MAX as u32;

/// Why text is not a class name of a type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("type class `{text}`, byte {at}: {problem}")]
pub struct MarshalError {
    /// The text, cut to an excerpt when long.
    pub text: String,
    /// Offset in bytes.
    pub at: usize,
    /// What is wrong there.
    pub problem: MarshalProblem,
}

/// What is wrong with a class name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MarshalProblem {
    /// Something else should stand there.
    #[error("expected {0}")]
    Expected(&'static str),
    /// A name in hexadecimal that is not hexadecimal UTF-8.
    #[error("not a name in hexadecimal")]
    Hex,
    /// More than [`NESTING_MAX`] types inside each other.
    #[error("types nested deeper than {NESTING_MAX}")]
    TooDeep,
}

/// The class name of `ty`, wrapped in `ReversedType` for a descending clustering column.
pub fn class_name(ty: &CqlType, reversed: bool) -> String {
    let mut out = String::new();
    if reversed {
        out.push_str(PACKAGE);
        out.push_str("ReversedType(");
    }
    append_class(&mut out, ty, false);
    if reversed {
        out.push(')');
    }
    out
}

/// The class name of a partition key: its only column's, or a `CompositeType` of them all.
pub fn key_class_name(columns: &[CqlType]) -> String {
    let mut out = String::new();
    match columns {
        [only] => append_class(&mut out, only, false),
        many => append_parameters(&mut out, "CompositeType", many.iter(), false),
    }
    out
}

/// Reads a class name; the flag says whether it was wrapped in `ReversedType`.
///
/// A class without a CQL name becomes [`CqlType::Custom`] with its whole text. Short names get the package.
///
/// # Errors
/// [`MarshalError`].
pub fn parse_class(text: &str) -> Result<(CqlType, bool), MarshalError> {
    let mut parser = Parser { text, at: 0 };
    let parsed = parser.parse(0)?;
    parser.end()?;
    Ok(parsed)
}

/// Reads the class name of a partition key: the columns of a `CompositeType`, or the one column it names.
///
/// # Errors
/// [`MarshalError`].
pub fn parse_key_class(text: &str) -> Result<Vec<CqlType>, MarshalError> {
    let mut parser = Parser { text, at: 0 };
    parser.skip_blanks();
    let start = parser.at;
    let class = parser.word();
    if class.strip_prefix(PACKAGE).unwrap_or(class) != "CompositeType" {
        parser.at = start;
        let (only, _) = parser.parse(0)?;
        parser.end()?;
        return Ok(vec![only]);
    }
    let columns = parser.parameters(0)?;
    if columns.is_empty() {
        return Err(parser.error(MarshalProblem::Expected("at least one component")));
    }
    parser.end()?;
    Ok(columns)
}

fn append_class(out: &mut String, ty: &CqlType, inside_frozen: bool) {
    let frozen_here = match ty {
        CqlType::List { frozen, .. } | CqlType::Set { frozen, .. } | CqlType::Map { frozen, .. } => *frozen,
        CqlType::Udt(udt) => udt.frozen,
        _ => false,
    };
    let wrap = frozen_here && !inside_frozen;
    if wrap {
        out.push_str(PACKAGE);
        out.push_str("FrozenType(");
    }
    let inside = inside_frozen || frozen_here;
    match ty {
        CqlType::List { element, .. } => append_parameters(out, "ListType", [&**element].into_iter(), inside),
        CqlType::Set { element, .. } => append_parameters(out, "SetType", [&**element].into_iter(), inside),
        CqlType::Map { key, value, .. } => {
            append_parameters(out, "MapType", [&**key, &**value].into_iter(), inside);
        }
        CqlType::Tuple(components) => append_parameters(out, "TupleType", components.iter(), true),
        CqlType::Udt(udt) => append_user_type(out, udt, inside),
        CqlType::Vector { element, dimension } => {
            out.push_str(PACKAGE);
            out.push_str("VectorType(");
            append_class(out, element, inside_frozen);
            let _ = write!(out, " , {dimension})");
        }
        CqlType::Custom(class) => out.push_str(class),
        scalar => {
            out.push_str(PACKAGE);
            out.push_str(scalar_class(scalar));
        }
    }
    if wrap {
        out.push(')');
    }
}

fn append_parameters<'a>(
    out: &mut String,
    class: &str,
    types: impl Iterator<Item = &'a CqlType>,
    inside_frozen: bool,
) {
    out.push_str(PACKAGE);
    out.push_str(class);
    for (index, ty) in types.enumerate() {
        out.push(if index == 0 { '(' } else { ',' });
        append_class(out, ty, inside_frozen);
    }
    out.push(')');
}

fn append_user_type(out: &mut String, udt: &UserType, inside_frozen: bool) {
    out.push_str(PACKAGE);
    out.push_str("UserType(");
    out.push_str(&udt.keyspace);
    out.push(',');
    append_hex(out, &udt.name);
    for (name, ty) in &udt.fields {
        out.push(',');
        append_hex(out, name);
        out.push(':');
        append_class(out, ty, inside_frozen);
    }
    out.push(')');
}

fn append_hex(out: &mut String, name: &str) {
    for byte in name.bytes() {
        let _ = write!(out, "{byte:02x}");
    }
}

fn scalar_class(ty: &CqlType) -> &'static str {
    SCALARS.iter().find(|(_, scalar)| scalar == ty).map_or_else(
        || unreachable!("types with parameters are written by append_class: {ty}"),
        |(class, _)| class,
    )
}

const SCALARS: [(&str, CqlType); 21] = [
    ("AsciiType", CqlType::Ascii),
    ("LongType", CqlType::Bigint),
    ("BytesType", CqlType::Blob),
    ("BooleanType", CqlType::Boolean),
    ("CounterColumnType", CqlType::Counter),
    ("SimpleDateType", CqlType::Date),
    ("DecimalType", CqlType::Decimal),
    ("DoubleType", CqlType::Double),
    ("DurationType", CqlType::Duration),
    ("EmptyType", CqlType::Empty),
    ("FloatType", CqlType::Float),
    ("InetAddressType", CqlType::Inet),
    ("Int32Type", CqlType::Int),
    ("ShortType", CqlType::Smallint),
    ("UTF8Type", CqlType::Text),
    ("TimeType", CqlType::Time),
    ("TimestampType", CqlType::Timestamp),
    ("TimeUUIDType", CqlType::Timeuuid),
    ("ByteType", CqlType::Tinyint),
    ("UUIDType", CqlType::Uuid),
    ("IntegerType", CqlType::Varint),
];

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn parse(&mut self, depth: usize) -> Result<(CqlType, bool), MarshalError> {
        if depth >= NESTING_MAX {
            return Err(self.error(MarshalProblem::TooDeep));
        }
        self.skip_blanks();
        let start = self.at;
        let class = self.word();
        if class.is_empty() {
            return Err(self.expected("a class name"));
        }
        let short = class.strip_prefix(PACKAGE).unwrap_or(class);
        if let Some((_, scalar)) = SCALARS.iter().find(|(name, _)| *name == short) {
            return Ok((scalar.clone(), false));
        }
        let ty = match short {
            "ReversedType" => return Ok((self.only_parameter(depth)?, true)),
            "FrozenType" => self.only_parameter(depth)?.freeze(),
            "ListType" => {
                CqlType::List { element: Box::new(self.only_parameter(depth)?.freeze()), frozen: false }
            }
            "SetType" => {
                CqlType::Set { element: Box::new(self.only_parameter(depth)?.freeze()), frozen: false }
            }
            "MapType" => {
                let [key, value] = <[CqlType; 2]>::try_from(self.parameters(depth)?)
                    .map_err(|_| self.expected("a key type and a value type"))?;
                CqlType::Map { key: Box::new(key.freeze()), value: Box::new(value.freeze()), frozen: false }
            }
            "TupleType" => CqlType::Tuple(self.parameters(depth)?.into_iter().map(CqlType::freeze).collect()),
            "UserType" => self.user_type(depth)?,
            "VectorType" => self.vector(depth)?,
            _ => self.custom(start)?,
        };
        Ok((ty, false))
    }

    fn parameters(&mut self, depth: usize) -> Result<Vec<CqlType>, MarshalError> {
        self.punctuation('(')?;
        let mut types = Vec::new();
        loop {
            self.skip_blanks_and_commas();
            if self.accept(')') {
                return Ok(types);
            }
            // Order matters for clustering columns only, which are not inside other types.
            types.push(self.parse(depth + 1)?.0);
        }
    }

    fn only_parameter(&mut self, depth: usize) -> Result<CqlType, MarshalError> {
        let mut types = self.parameters(depth)?;
        match (types.pop(), types.is_empty()) {
            (Some(only), true) => Ok(only),
            _ => Err(self.expected("exactly one type")),
        }
    }

    fn user_type(&mut self, depth: usize) -> Result<CqlType, MarshalError> {
        self.punctuation('(')?;
        self.skip_blanks_and_commas();
        let keyspace = self.word().to_owned();
        self.skip_blanks_and_commas();
        let name = self.hex_name()?;
        let mut fields = Vec::new();
        loop {
            self.skip_blanks_and_commas();
            if self.accept(')') {
                return Ok(CqlType::Udt(Box::new(UserType { keyspace, name, fields, frozen: false })));
            }
            let field = self.hex_name()?;
            self.punctuation(':')?;
            fields.push((field, self.parse(depth + 1)?.0));
        }
    }

    fn vector(&mut self, depth: usize) -> Result<CqlType, MarshalError> {
        self.punctuation('(')?;
        let (element, _) = self.parse(depth + 1)?;
        self.skip_blanks_and_commas();
        let at = self.at;
        let dimension = match self.word().parse() {
            Ok(dimension @ 1..=VECTOR_DIMENSION_MAX) => dimension,
            _ => {
                self.at = at;
                return Err(self.expected("a vector dimension above zero"));
            }
        };
        self.punctuation(')')?;
        Ok(CqlType::Vector { element: Box::new(element.freeze()), dimension })
    }

    /// Skips the parameters of a class we do not know and keeps its text.
    fn custom(&mut self, start: usize) -> Result<CqlType, MarshalError> {
        let end = self.at;
        self.skip_blanks();
        if self.rest().starts_with('(') {
            let mut open = 0_usize;
            loop {
                match self.rest().as_bytes().first() {
                    Some(b'(') => open += 1,
                    Some(b')') => open -= 1,
                    Some(_) => {}
                    None => return Err(self.expected("`)`")),
                }
                self.at += self.rest().chars().next().map_or(0, char::len_utf8);
                if open == 0 {
                    break;
                }
            }
        } else {
            self.at = end;
        }
        let class = &self.text[start..self.at];
        let package = if self.text[start..end].contains('.') { "" } else { PACKAGE };
        Ok(CqlType::Custom(format!("{package}{class}")))
    }

    fn hex_name(&mut self) -> Result<String, MarshalError> {
        let at = self.at;
        let digits = self.word();
        let (pairs, odd) = digits.as_bytes().as_chunks::<2>();
        let name = pairs
            .iter()
            .map(|[high, low]| Some((hex_digit(*high)? << 4) | hex_digit(*low)?))
            .collect::<Option<Vec<u8>>>()
            .filter(|_| odd.is_empty() && !digits.is_empty())
            .and_then(|bytes| String::from_utf8(bytes).ok());
        name.ok_or_else(|| {
            self.at = at;
            self.error(MarshalProblem::Hex)
        })
    }

    fn word(&mut self) -> &'a str {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-+._&".contains(byte);
        let length = self.rest().bytes().take_while(is_word).count();
        let word = &self.rest()[..length];
        self.at += length;
        word
    }

    fn punctuation(&mut self, wanted: char) -> Result<(), MarshalError> {
        self.skip_blanks();
        if self.accept(wanted) {
            return Ok(());
        }
        Err(self.expected(match wanted {
            '(' => "`(`",
            ')' => "`)`",
            _ => "`:`",
        }))
    }

    fn accept(&mut self, wanted: char) -> bool {
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().bytes().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n')).count();
    }

    fn skip_blanks_and_commas(&mut self) {
        self.at += self.rest().bytes().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b',')).count();
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn end(&mut self) -> Result<(), MarshalError> {
        self.skip_blanks();
        if self.rest().is_empty() { Ok(()) } else { Err(self.expected("the end")) }
    }

    fn expected(&self, what: &'static str) -> MarshalError {
        self.error(MarshalProblem::Expected(what))
    }

    fn error(&self, problem: MarshalProblem) -> MarshalError {
        MarshalError { text: excerpt(self.text), at: self.at, problem }
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

/// Text for an error message: as it is, or its beginning.
pub(crate) fn excerpt(text: &str) -> String {
    const EXCERPT_CHARS_MAX: usize = 200;
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
