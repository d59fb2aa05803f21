//! Conversions between blobs and all other native types: `intAsBlob`, `blob_as_int`.

use model::validate::validate;
use model::{CqlType, type_parser};

use crate::StatementError;

/// The conversion that a function's name denotes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    ToBlob(CqlType),
    FromBlob(CqlType),
}

/// Parses `<type>asblob`, `<type>_as_blob`, `blobas<type>` and `blob_as_<type>`.
pub(super) fn conversion(name: &str) -> Option<Conversion> {
    let native = |ty: &str| type_parser::native_type(ty).filter(|ty| *ty != CqlType::Blob);
    let to = name.strip_suffix("_as_blob").or_else(|| name.strip_suffix("asblob"));
    if let Some(ty) = to {
        return native(ty).map(Conversion::ToBlob);
    }
    let from = name.strip_prefix("blob_as_").or_else(|| name.strip_prefix("blobas"));
    from.and_then(native).map(Conversion::FromBlob)
}

/// Checks that the blob is a value of type `ty` and returns it.
pub(super) fn from_blob(name: &str, ty: &CqlType, blob: &[u8]) -> Result<Vec<u8>, StatementError> {
    validate(ty, blob).map_err(|_| {
        StatementError::Invalid(format!(
            "In call to function system.{name}, value {} is not a valid binary representation for type {ty}",
            model::hex::blob(blob)
        ))
    })?;
    Ok(blob.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        assert_eq!(conversion("intasblob"), Some(Conversion::ToBlob(CqlType::Int)));
        assert_eq!(conversion("varchar_as_blob"), Some(Conversion::ToBlob(CqlType::Text)));
        assert_eq!(conversion("blobastimeuuid"), Some(Conversion::FromBlob(CqlType::Timeuuid)));
        assert_eq!(conversion("blobasblob"), None);
        assert_eq!(conversion("fooasblob"), None);
    }

    #[test]
    fn a_blob_that_is_no_value_is_refused() {
        assert_eq!(
            from_blob("blobasint", &CqlType::Int, &[1, 2]).unwrap_err().to_string(),
            "In call to function system.blobasint, value 0x0102 is not a valid binary representation for type int"
        );
        assert_eq!(from_blob("blobasint", &CqlType::Int, &[0, 0, 0, 2]).unwrap(), [0, 0, 0, 2]);
    }
}
