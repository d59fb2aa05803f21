//! `mask_*`: functions that hide values (Cassandra 5's masking functions).

use md5::Md5;
use model::CqlType;
use model::collection::append_element;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512, Sha512_224, Sha512_256};

use crate::StatementError;
use crate::terms::append_vector_component;
use model::timeuuid;

/// The part of a text that is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All but the first and last ones.
    Inner,
    /// The first and last ones.
    Outer,
}

/// The value that replaces all values of a type.
pub(super) fn default_value(ty: &CqlType) -> Vec<u8> {
    use CqlType as T;
    match ty {
        T::Ascii | T::Text => b"****".to_vec(),
        T::Blob | T::Empty => Vec::new(),
        T::Boolean | T::Tinyint | T::Varint => vec![0],
        T::Smallint => vec![0; 2],
        T::Int | T::Float | T::Inet => vec![0; 4],
        T::Bigint | T::Counter | T::Double | T::Time | T::Timestamp => vec![0; 8],
        T::Date => (1_u32 << 31).to_be_bytes().to_vec(),
        T::Decimal => vec![0; 5],
        T::Duration => vec![0; 3],
        T::Uuid => vec![0; 16],
        T::Timeuuid => timeuuid::min_at_unix_millis(0).as_bytes().to_vec(),
        T::List { .. } | T::Set { .. } | T::Map { .. } => vec![0; 4],
        T::Tuple(types) => composed(types.iter()),
        T::Udt(udt) => composed(udt.fields.iter().map(|(_, ty)| ty)),
        T::Vector { element, dimension } => {
            let mut out = Vec::new();
            let value = default_value(element);
            for _ in 0..*dimension {
                // A default value has the length that its type requires, so there is no error.
                let _ = append_vector_component(&mut out, element, &value);
            }
            out
        }
        T::Custom(_) => vec![0; ty.fixed_value_length().unwrap_or(0)],
    }
}

fn composed<'t>(types: impl Iterator<Item = &'t CqlType>) -> Vec<u8> {
    let mut out = Vec::new();
    types.for_each(|ty| append_element(&mut out, Some(&default_value(ty))));
    out
}

/// `value` with the characters between or around `begin` and `end` replaced by `padding`. Characters are
/// UTF-16 units, as in Java.
///
/// # Errors
/// [`StatementError::Invalid`] if the padding is not one character.
pub(super) fn partial(
    name: &str,
    part: Part,
    value: &[u8],
    [begin, end]: [i32; 2],
    padding: Option<&[u8]>,
) -> Result<Vec<u8>, StatementError> {
    let padding: Vec<u16> = match padding {
        Some(text) => String::from_utf8_lossy(text).encode_utf16().collect(),
        None => vec![u16::from(b'*')],
    };
    let [padding] = padding[..] else {
        return Err(StatementError::Invalid(format!(
            "The padding argument for function system.{name} should be single-character, but '{}' has {} characters.",
            String::from_utf16_lossy(&padding),
            padding.len()
        )));
    };
    let mut units: Vec<u16> = String::from_utf8_lossy(value).encode_utf16().collect();
    let (begin, last) = (i64::from(begin), units.len() as i64 - 1 - i64::from(end));
    for (at, unit) in (0_i64..).zip(&mut units) {
        let inside = at >= begin && at <= last;
        if inside == (part == Part::Inner) {
            *unit = padding;
        }
    }
    Ok(String::from_utf16_lossy(&units).into_bytes())
}

/// The digest of a value by the algorithm with this name in Java.
///
/// # Errors
/// [`StatementError::Invalid`] for an unknown algorithm.
pub(super) fn hash(value: &[u8], algorithm: Option<&[u8]>) -> Result<Vec<u8>, StatementError> {
    let algorithm = String::from_utf8_lossy(algorithm.unwrap_or(b"SHA-256"));
    Ok(match algorithm.to_ascii_uppercase().as_str() {
        "MD5" => Md5::digest(value).to_vec(),
        "SHA" | "SHA1" | "SHA-1" => Sha1::digest(value).to_vec(),
        "SHA-224" | "SHA224" => Sha224::digest(value).to_vec(),
        "SHA-256" | "SHA256" => Sha256::digest(value).to_vec(),
        "SHA-384" | "SHA384" => Sha384::digest(value).to_vec(),
        "SHA-512" | "SHA512" => Sha512::digest(value).to_vec(),
        "SHA-512/224" | "SHA512/224" => Sha512_224::digest(value).to_vec(),
        "SHA-512/256" | "SHA512/256" => Sha512_256::digest(value).to_vec(),
        _ => return Err(StatementError::Invalid(format!("Hash algorithm not found: {algorithm}"))),
    })
}
