//! Java class names of types, as in table files, schema rows and custom types.
//!
//! `org.apache.cassandra.db.marshal.MapType(org...UTF8Type,org...FrozenType(...))`: written exactly as by
//! Cassandra 5.0's `AbstractType.toString`, since other tools compare the text; read as by its `TypeParser`,
//! except that unknown text is an error instead of a guess. Grammar:
//!
//! ```text
//! type   := class [ "(" params ")" ]
//! params := type { "," type } | keyspace "," hex { "," hex ":" type } | type "," integer
//! ```
//!
//! Frozenness is positional: inside a frozen type nothing is marked, outside each frozen part is wrapped.

use std::fmt::Write;

use crate::hex;
use reader::Reader;

use crate::type_parser::NESTING_MAX;
use crate::types::{CqlType, UserType};

/// Package of all marshal classes, with the dot that follows it.
pub const PACKAGE: &str = "org.apache.cassandra.db.marshal.";

/// Largest vector dimension that is read: a Java `int`.
pub const VECTOR_DIMENSION_MAX: u32 = i32::MAX as u32;

/// First character of a class name with more information than Cassandra's.
const EXACT_MARK: char = '=';

/// The form of a class name.
#[derive(Clone, Copy)]
struct Form {
    /// Whether a surrounding collection already marks everything inside as frozen.
    inside_frozen: bool,
    /// Whether parts of vectors carry their own mark of frozenness, regardless of the context.
    exact: bool,
}

impl Form {
    /// The form of Cassandra 5.0.
    const CASSANDRAS: Self = Self { inside_frozen: false, exact: false };

    fn inside(self, frozen: bool) -> Self {
        Self { inside_frozen: self.inside_frozen || frozen, ..self }
    }

    fn inside_vector(self) -> Self {
        Self { inside_frozen: self.inside_frozen && !self.exact, ..self }
    }
}

/// Why text is not a class name of a type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("type class `{text}`, byte {at}: {problem}")]
pub struct MarshalError {
    /// The text, cut to an excerpt when long.
    pub text: String,
    /// Offset in bytes.
    pub at: usize,
    /// The kind of problem there.
    pub problem: MarshalProblem,
}

/// Problems with a class name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MarshalProblem {
    /// Something else is required there.
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
    append_class(&mut out, ty, Form::CASSANDRAS);
    if reversed {
        out.push(')');
    }
    out
}

/// The type as text that [`parse_exact`] reads back unchanged: a class name with the frozenness of parts of
/// vectors. It begins with a mark if Cassandra's class name does not have that information.
pub fn exact_name(ty: &CqlType) -> String {
    let name = class_name(ty, false);
    if parse_class(&name).is_ok_and(|(read, _)| read == *ty) {
        return name;
    }
    let mut out = String::from(EXACT_MARK);
    append_class(&mut out, ty, Form { inside_frozen: false, exact: true });
    out
}

/// Reads the text of [`exact_name`].
///
/// # Errors
/// [`MarshalError`].
pub fn parse_exact(text: &str) -> Result<CqlType, MarshalError> {
    let (ty, _) = match text.strip_prefix(EXACT_MARK) {
        Some(exact) => Reader::exact(exact).class()?,
        None => Reader::new(text).class()?,
    };
    Ok(ty)
}

/// The class name of a partition key: its only column's, or a `CompositeType` of them all.
pub fn key_class_name(columns: &[CqlType]) -> String {
    let mut out = String::new();
    match columns {
        [only] => append_class(&mut out, only, Form::CASSANDRAS),
        many => append_parameters(&mut out, "CompositeType", many.iter(), Form::CASSANDRAS),
    }
    out
}

/// Reads a class name; the flag is whether it was wrapped in `ReversedType`.
///
/// A class without a CQL name becomes [`CqlType::Custom`] with its whole text. Short names get the package.
///
/// # Errors
/// [`MarshalError`].
pub fn parse_class(text: &str) -> Result<(CqlType, bool), MarshalError> {
    Reader::new(text).class()
}

/// Reads the class name of a partition key: the columns of a `CompositeType`, or the one column it names.
///
/// # Errors
/// [`MarshalError`].
pub fn parse_key_class(text: &str) -> Result<Vec<CqlType>, MarshalError> {
    Reader::new(text).key_class()
}

fn append_class(out: &mut String, ty: &CqlType, form: Form) {
    let frozen_here = match ty {
        CqlType::List { frozen, .. } | CqlType::Set { frozen, .. } | CqlType::Map { frozen, .. } => *frozen,
        CqlType::Udt(udt) => udt.frozen,
        _ => false,
    };
    let wrap = frozen_here && !form.inside_frozen;
    if wrap {
        out.push_str(PACKAGE);
        out.push_str("FrozenType(");
    }
    let inside = form.inside(frozen_here);
    match ty {
        CqlType::List { element, .. } => append_parameters(out, "ListType", [&**element].into_iter(), inside),
        CqlType::Set { element, .. } => append_parameters(out, "SetType", [&**element].into_iter(), inside),
        CqlType::Map { key, value, .. } => {
            append_parameters(out, "MapType", [&**key, &**value].into_iter(), inside);
        }
        CqlType::Tuple(components) => {
            append_parameters(out, "TupleType", components.iter(), form.inside(true))
        }
        CqlType::Udt(udt) => append_user_type(out, udt, inside),
        CqlType::Vector { element, dimension } => {
            out.push_str(PACKAGE);
            out.push_str("VectorType(");
            append_class(out, element, form.inside_vector());
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
    form: Form,
) {
    out.push_str(PACKAGE);
    out.push_str(class);
    out.push('(');
    for (index, ty) in types.enumerate() {
        if index > 0 {
            out.push(',');
        }
        append_class(out, ty, form);
    }
    out.push(')');
}

fn append_user_type(out: &mut String, udt: &UserType, form: Form) {
    out.push_str(PACKAGE);
    out.push_str("UserType(");
    out.push_str(&udt.keyspace);
    out.push(',');
    hex::append(udt.name.as_bytes(), out);
    for (name, ty) in &udt.fields {
        out.push(',');
        hex::append(name.as_bytes(), out);
        out.push(':');
        append_class(out, ty, form);
    }
    out.push(')');
}

fn scalar_class(ty: &CqlType) -> &'static str {
    SCALARS.iter().find(|(_, scalar)| scalar == ty).map_or_else(
        || unreachable!("types with parameters are written by append_class: {ty}"),
        |(class, _)| class,
    )
}

static SCALARS: [(&str, CqlType); 21] = [
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

/// Text for an error message: as it is, or its beginning.
pub(crate) fn excerpt(text: &str) -> String {
    const EXCERPT_CHARS_MAX: usize = 200;
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

mod reader;
#[cfg(test)]
mod tests;
