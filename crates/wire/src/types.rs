//! Types as result and bind metadata name them: `[option]` (native_protocol_v5.spec §4.2.5.2).
//!
//! A type that a version has no number for travels as "custom" with its marshal class name: duration before
//! version 5, the four small types before version 4, and vector, empty and foreign classes always.

use model::CqlType;
use model::marshal;

use crate::protocol_error::ProtocolError;
use crate::reader::Reader;
use crate::version::ProtocolVersion;
use crate::writer::{append_short, append_short_length, append_string};

/// Deepest nesting that [`read_option`] follows; schemas do not come near.
pub const NESTING_MAX: usize = 32;

/// Most components of a tuple or fields of a user-defined type that the protocol can count; more are left
/// out.
const COMPONENTS_MAX: usize = u16::MAX as usize;

const CUSTOM: u16 = 0x0000;
const LIST: u16 = 0x0020;
const MAP: u16 = 0x0021;
const SET: u16 = 0x0022;
const UDT: u16 = 0x0030;
const TUPLE: u16 = 0x0031;

/// Types that are a number and nothing else, with the version that brought them.
const NATIVE: [(u16, ProtocolVersion, CqlType); 20] = [
    (0x0001, ProtocolVersion::V3, CqlType::Ascii),
    (0x0002, ProtocolVersion::V3, CqlType::Bigint),
    (0x0003, ProtocolVersion::V3, CqlType::Blob),
    (0x0004, ProtocolVersion::V3, CqlType::Boolean),
    (0x0005, ProtocolVersion::V3, CqlType::Counter),
    (0x0006, ProtocolVersion::V3, CqlType::Decimal),
    (0x0007, ProtocolVersion::V3, CqlType::Double),
    (0x0008, ProtocolVersion::V3, CqlType::Float),
    (0x0009, ProtocolVersion::V3, CqlType::Int),
    (0x000B, ProtocolVersion::V3, CqlType::Timestamp),
    (0x000C, ProtocolVersion::V3, CqlType::Uuid),
    (0x000D, ProtocolVersion::V3, CqlType::Text),
    (0x000E, ProtocolVersion::V3, CqlType::Varint),
    (0x000F, ProtocolVersion::V3, CqlType::Timeuuid),
    (0x0010, ProtocolVersion::V3, CqlType::Inet),
    (0x0011, ProtocolVersion::V4, CqlType::Date),
    (0x0012, ProtocolVersion::V4, CqlType::Time),
    (0x0013, ProtocolVersion::V4, CqlType::Smallint),
    (0x0014, ProtocolVersion::V4, CqlType::Tinyint),
    (0x0015, ProtocolVersion::V5, CqlType::Duration),
];

/// Appends the `[option]` of `ty`.
pub fn append_option(out: &mut Vec<u8>, version: ProtocolVersion, ty: &CqlType) {
    match ty {
        CqlType::List { element, .. } => {
            append_short(out, LIST);
            append_option(out, version, element);
        }
        CqlType::Set { element, .. } => {
            append_short(out, SET);
            append_option(out, version, element);
        }
        CqlType::Map { key, value, .. } => {
            append_short(out, MAP);
            append_option(out, version, key);
            append_option(out, version, value);
        }
        CqlType::Tuple(components) => {
            append_short(out, TUPLE);
            append_short_length(out, components.len().min(COMPONENTS_MAX));
            for component in components.iter().take(COMPONENTS_MAX) {
                append_option(out, version, component);
            }
        }
        CqlType::Udt(udt) => {
            append_short(out, UDT);
            append_string(out, &udt.keyspace);
            append_string(out, &udt.name);
            append_short_length(out, udt.fields.len().min(COMPONENTS_MAX));
            for (name, field) in udt.fields.iter().take(COMPONENTS_MAX) {
                append_string(out, name);
                append_option(out, version, field);
            }
        }
        _ => match NATIVE.iter().find(|(_, _, native)| native == ty) {
            Some((number, since, _)) if version >= *since => append_short(out, *number),
            _ => {
                append_short(out, CUSTOM);
                append_string(out, &marshal::class_name(ty, false));
            }
        },
    }
}

/// Reads an `[option]`; collections and user-defined types come out frozen, since metadata does not include
/// it.
///
/// # Errors
/// [`ProtocolError`] when the bytes are none, or nested deeper than [`NESTING_MAX`].
pub fn read_option(reader: &mut Reader<'_>) -> Result<CqlType, ProtocolError> {
    read_nested(reader, NESTING_MAX)
}

fn read_nested(reader: &mut Reader<'_>, depth: usize) -> Result<CqlType, ProtocolError> {
    const TOO_DEEP: ProtocolError = ProtocolError::InvalidResponse { reason: "types nested too deep" };
    let depth = depth.checked_sub(1).ok_or(TOO_DEEP)?;
    let nested = |reader: &mut Reader<'_>| read_nested(reader, depth).map(Box::new);
    Ok(match reader.short()? {
        CUSTOM => match marshal::parse_class(reader.string()?) {
            Ok((ty, _)) => ty,
            Err(_) => return Err(ProtocolError::InvalidResponse { reason: "not a marshal class name" }),
        },
        LIST => CqlType::List { element: nested(reader)?, frozen: true },
        SET => CqlType::Set { element: nested(reader)?, frozen: true },
        MAP => CqlType::Map { key: nested(reader)?, value: nested(reader)?, frozen: true },
        TUPLE => {
            let mut components = Vec::new();
            for _ in 0..reader.short()? {
                components.push(read_nested(reader, depth)?);
            }
            CqlType::Tuple(components)
        }
        UDT => {
            let keyspace = reader.string()?.to_owned();
            let name = reader.string()?.to_owned();
            let mut fields = Vec::new();
            for _ in 0..reader.short()? {
                fields.push((reader.string()?.to_owned(), read_nested(reader, depth)?));
            }
            CqlType::Udt(Box::new(model::types::UserType { keyspace, name, fields, frozen: true }))
        }
        number => match NATIVE.iter().find(|(native, _, _)| *native == number) {
            Some((_, _, ty)) => ty.clone(),
            None => return Err(ProtocolError::InvalidResponse { reason: "unknown type number" }),
        },
    })
}
