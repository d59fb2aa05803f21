//! Validates serialised values of types, with Cassandra's words for errors.
//!
//! Every value that a client binds is checked here before it is stored, so stored values are well-formed. The
//! rules and texts are those of Cassandra 5.0's serializers, with three that are stricter because the value
//! could not be read back: text must be UTF-8 (Cassandra lets lone surrogates and C0 80 pass), a decimal must
//! have a digit after its scale, and a collection's count must not be negative.

use crate::collection::{CollectionError, Components, Elements, Entries, VectorElements};
use crate::number::Duration;
use crate::types::{CqlType, UserType};

/// Why bytes are not a value; its text is the message for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The value has a length its type does not have.
    #[error("Expected {expected} ({received})")]
    Length {
        /// The lengths that the type accepts.
        expected: &'static str,
        /// Bytes received.
        received: usize,
    },
    /// A UUID of other than 16 bytes.
    #[error("UUID should be 16 or 0 bytes ({received})")]
    UuidLength {
        /// Bytes received.
        received: usize,
    },
    /// A timeuuid of a version other than 1.
    #[error("Invalid version for TimeUUID type: 0x{version:x}")]
    TimeuuidVersion {
        /// Version found.
        version: u8,
    },
    /// An address of other than 4 or 16 bytes.
    #[error("Expected 4 or 16 byte inetaddress; got {}", crate::hex::text(.received))]
    InetLength {
        /// The first bytes received, at most [`EXCERPT_BYTES_MAX`].
        received: Vec<u8>,
    },
    /// A byte above 127 in ASCII text.
    #[error("Invalid byte for ascii: {}", *.byte as i8)]
    NotAscii {
        /// The byte found.
        byte: u8,
    },
    /// Text that is not UTF-8.
    #[error("String didn't validate.")]
    NotUtf8,
    /// Bytes for the type that has no bytes.
    #[error("EmptyType only accept empty values")]
    NotEmpty,
    /// Months or days of a duration beyond 32 bits.
    #[error("The duration {part} must be a 32 bits integer but was: {value}")]
    DurationRange {
        /// `months` or `days`.
        part: &'static str,
        /// The value found.
        value: i64,
    },
    /// Parts of a duration with opposite signs.
    #[error(
        "The duration months, days and nanoseconds must be all of the same sign ({months}, {days}, {nanoseconds})"
    )]
    DurationSigns {
        /// Months found.
        months: i32,
        /// Days found.
        days: i32,
        /// Nanoseconds found.
        nanoseconds: i64,
    },
    /// A decimal whose scale does not fit 32 bits.
    #[error("The decimal scale must be a 32 bits integer but was: {scale}")]
    DecimalScale {
        /// The scale.
        scale: i64,
    },
    /// The value ends too early.
    #[error("Not enough bytes to read a {what}")]
    NotEnoughBytes {
        /// `list`, `set`, `map` or `duration`.
        what: &'static str,
    },
    /// A collection with a negative count.
    #[error("The data cannot be deserialized as a {what}")]
    NegativeCount {
        /// `list`, `set` or `map`.
        what: &'static str,
    },
    /// A null inside a collection.
    #[error("Null value read when not allowed")]
    NullElement,
    /// Bytes after a collection.
    #[error("Unexpected extraneous bytes after {what} value")]
    Extraneous {
        /// `list`, `set` or `map`.
        what: &'static str,
    },
    /// A tuple that ends inside a component.
    #[error("Not enough bytes to read {}{index}th component", size_of(*.in_length))]
    ComponentTruncated {
        /// Index of the component, from zero.
        index: usize,
        /// Whether the value ends inside the component's length.
        in_length: bool,
    },
    /// A user-type value that ends inside a field.
    #[error("Not enough bytes to read {}{index}th field {name}", size_of(*.in_length))]
    FieldTruncated {
        /// Index of the field, from zero.
        index: usize,
        /// Name of the field.
        name: String,
        /// Whether the value ends inside the field's length.
        in_length: bool,
    },
    /// A user-type value with a field that is invalid for its type.
    #[error("Failure validating the {index}th field {name}; {error}")]
    Field {
        /// Index of the field, from zero.
        index: usize,
        /// Name of the field.
        name: String,
        /// The field's error.
        error: Box<ValueError>,
    },
    /// Bytes after the last component or field.
    #[error("Invalid remaining data after end of {what} value")]
    Remaining {
        /// `tuple` or `UDT`.
        what: &'static str,
    },
    /// An empty vector value.
    #[error("Invalid empty vector value")]
    EmptyVector,
    /// A vector with too few bytes for its elements.
    #[error("Not enough bytes to read a {ty}")]
    VectorTruncated {
        /// The vector type as CQL text.
        ty: String,
    },
    /// A vector with more bytes than its elements take.
    #[error("Unexpected {remaining} extraneous bytes after {ty} value")]
    VectorTrailing {
        /// Bytes left.
        remaining: usize,
        /// The vector type as CQL text.
        ty: String,
    },
}

/// Most bytes of a refused value that an error keeps and shows.
pub const EXCERPT_BYTES_MAX: usize = 64;

/// Checks that `value` is a serialised value of `ty`; collections and user types are checked as whole values,
/// whether frozen or not. Values of custom classes are opaque: only a fixed length is checked.
///
/// # Errors
/// The first error, as [`ValueError`].
pub fn validate(ty: &CqlType, value: &[u8]) -> Result<(), ValueError> {
    let length = |valid: bool, expected: &'static str| {
        if valid { Ok(()) } else { Err(ValueError::Length { expected, received: value.len() }) }
    };
    let or_empty = |bytes: usize| value.is_empty() || value.len() == bytes;
    match ty {
        CqlType::Ascii => match value.iter().find(|byte| !byte.is_ascii()) {
            Some(&byte) => Err(ValueError::NotAscii { byte }),
            None => Ok(()),
        },
        CqlType::Text => simdutf8::basic::from_utf8(value).map(drop).map_err(|_| ValueError::NotUtf8),
        CqlType::Blob | CqlType::Varint => Ok(()),
        // Table files write some custom classes without a length, so their length must be correct.
        CqlType::Custom(_) => match ty.fixed_value_length() {
            Some(16) => validate_uuid(value),
            Some(8) => length(or_empty(8), "8 or 0 byte long for date"),
            _ => Ok(()),
        },
        CqlType::Boolean => length(value.len() <= 1, "1 or 0 byte value"),
        CqlType::Tinyint => length(value.len() == 1, "1 byte for a tinyint"),
        CqlType::Smallint => length(value.len() == 2, "2 bytes for a smallint"),
        CqlType::Int => length(or_empty(4), "4 or 0 byte int"),
        CqlType::Bigint | CqlType::Counter => length(or_empty(8), "8 or 0 byte long"),
        CqlType::Float => length(or_empty(4), "4 or 0 byte value for a float"),
        CqlType::Double => length(or_empty(8), "8 or 0 byte value for a double"),
        CqlType::Date => length(value.len() == 4, "4 byte long for date"),
        CqlType::Time => length(value.len() == 8, "8 byte long for time"),
        CqlType::Timestamp => length(or_empty(8), "8 or 0 byte long for date"),
        CqlType::Decimal => match value.len() {
            1..=3 => length(false, "0 or at least 4 bytes"),
            4 => length(false, "0 or at least 5 bytes for a decimal"),
            _ => Ok(()),
        },
        CqlType::Duration => Duration::decode(value).map(drop),
        CqlType::Uuid => validate_uuid(value),
        CqlType::Timeuuid => {
            validate_uuid(value)?;
            match value.get(6).map(|byte| byte >> 4) {
                None | Some(1) => Ok(()),
                Some(version) => Err(ValueError::TimeuuidVersion { version }),
            }
        }
        CqlType::Inet => match value.len() {
            0 | 4 | 16 => Ok(()),
            received => {
                Err(ValueError::InetLength { received: value[..received.min(EXCERPT_BYTES_MAX)].to_vec() })
            }
        },
        CqlType::Empty => {
            if value.is_empty() {
                Ok(())
            } else {
                Err(ValueError::NotEmpty)
            }
        }
        CqlType::List { element, .. } => validate_elements("list", element, value),
        CqlType::Set { element, .. } => validate_elements("set", element, value),
        CqlType::Map { key, value: value_type, .. } => {
            let error = |error| collection_error("map", error);
            for entry in Entries::parse(value).map_err(error)? {
                let (key_bytes, value_bytes) = entry.map_err(error)?;
                validate(key, key_bytes)?;
                validate(value_type, value_bytes)?;
            }
            Ok(())
        }
        CqlType::Tuple(components) => validate_tuple(components, value),
        CqlType::Udt(udt) => validate_udt(udt, value),
        CqlType::Vector { element, dimension } => validate_vector(ty, element, *dimension, value),
    }
}

fn validate_uuid(value: &[u8]) -> Result<(), ValueError> {
    match value.len() {
        0 | 16 => Ok(()),
        received => Err(ValueError::UuidLength { received }),
    }
}

fn validate_elements(what: &'static str, element: &CqlType, value: &[u8]) -> Result<(), ValueError> {
    for bytes in Elements::parse(value).map_err(|error| collection_error(what, error))? {
        validate(element, bytes.map_err(|error| collection_error(what, error))?)?;
    }
    Ok(())
}

fn collection_error(what: &'static str, error: CollectionError) -> ValueError {
    match error {
        CollectionError::Truncated { .. } | CollectionError::LengthTruncated { .. } => {
            ValueError::NotEnoughBytes { what }
        }
        CollectionError::NegativeCount { .. } => ValueError::NegativeCount { what },
        CollectionError::NullElement { .. } => ValueError::NullElement,
        CollectionError::Trailing { .. } => ValueError::Extraneous { what },
    }
}

fn validate_tuple(components: &[CqlType], value: &[u8]) -> Result<(), ValueError> {
    let mut types = components.iter();
    for (index, component) in Components::new(value).enumerate() {
        let ty = types.next().ok_or(ValueError::Remaining { what: "tuple" })?;
        let component = component
            .map_err(|error| ValueError::ComponentTruncated { index, in_length: ends_in_length(error) })?;
        if let Some(bytes) = component {
            validate(ty, bytes)?;
        }
    }
    Ok(())
}

fn validate_udt(udt: &UserType, value: &[u8]) -> Result<(), ValueError> {
    let mut fields = udt.fields.iter();
    for (index, field) in Components::new(value).enumerate() {
        let (name, ty) = fields.next().ok_or(ValueError::Remaining { what: "UDT" })?;
        let field = field.map_err(|error| ValueError::FieldTruncated {
            index,
            name: name.clone(),
            in_length: ends_in_length(error),
        })?;
        if let Some(bytes) = field {
            validate(ty, bytes).map_err(|error| ValueError::Field {
                index,
                name: name.clone(),
                error: Box::new(error),
            })?;
        }
    }
    Ok(())
}

fn validate_vector(ty: &CqlType, element: &CqlType, dimension: u32, value: &[u8]) -> Result<(), ValueError> {
    if value.is_empty() {
        return Err(ValueError::EmptyVector);
    }
    if element.fixed_value_length() == Some(0) {
        // Elements take no bytes, so there must be none.
        return Err(ValueError::VectorTrailing { remaining: value.len(), ty: ty.to_string() });
    }
    for bytes in VectorElements::new(element, dimension, value) {
        let bytes = bytes.map_err(|error| match error {
            CollectionError::Trailing { remaining } => {
                ValueError::VectorTrailing { remaining, ty: ty.to_string() }
            }
            _ => ValueError::VectorTruncated { ty: ty.to_string() },
        })?;
        validate(element, bytes)?;
    }
    Ok(())
}

fn ends_in_length(error: CollectionError) -> bool {
    matches!(error, CollectionError::LengthTruncated { .. })
}

fn size_of(in_length: bool) -> &'static str {
    if in_length { "size of " } else { "" }
}

#[cfg(test)]
mod tests;
