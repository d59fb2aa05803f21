//! Schema changes as bytes: CBOR with numbered fields, so that fields may be added later.
//! Types travel as marshal class names, the form table files use too.

use super::{SchemaChange, TableId};

/// Bytes that are not a schema change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a schema change: {reason}")]
pub struct CodecError {
    /// The decoder's error.
    pub reason: String,
}

impl SchemaChange {
    /// The change as bytes.
    pub fn encode(&self) -> Vec<u8> {
        minicbor::to_vec(self).expect("writing to memory does not fail")
    }

    /// The change from bytes.
    ///
    /// # Errors
    /// [`CodecError`] when they are not exactly one change.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut decoder = minicbor::Decoder::new(bytes);
        let change = decoder.decode().map_err(|e| CodecError { reason: e.to_string() })?;
        if decoder.position() == bytes.len() {
            Ok(change)
        } else {
            Err(CodecError { reason: format!("{} bytes follow it", bytes.len() - decoder.position()) })
        }
    }
}

pub(super) mod table_ids {
    use super::{TableId, table_id};
    use minicbor::decode::Error as DecodeError;
    use minicbor::encode::Error as EncodeError;
    use minicbor::encode::Write;
    use minicbor::{Decoder, Encoder};

    pub(in crate::schema) fn encode<C, W: Write>(
        ids: &[TableId],
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        e.array(ids.len() as u64)?;
        ids.iter().try_for_each(|id| table_id::encode(id, e, ctx))
    }

    pub(in crate::schema) fn decode<C>(
        d: &mut Decoder<'_>,
        ctx: &mut C,
    ) -> Result<Vec<TableId>, DecodeError> {
        let length = d.array()?.ok_or_else(|| DecodeError::message("a list of table ids says its length"))?;
        (0..length).map(|_| table_id::decode(d, ctx)).collect()
    }
}

pub(super) mod table_id {
    use super::TableId;
    use minicbor::decode::Error as DecodeError;
    use minicbor::encode::Error as EncodeError;
    use minicbor::encode::Write;
    use minicbor::{Decoder, Encoder};

    pub(in crate::schema) fn encode<C, W: Write>(
        id: &TableId,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        e.bytes(&id.0)?.ok()
    }

    pub(in crate::schema) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<TableId, DecodeError> {
        let bytes = d.bytes()?;
        bytes.try_into().map(TableId).map_err(|_| DecodeError::message("a table id has 16 bytes"))
    }
}

pub(super) mod cql_type {
    use crate::marshal;
    use crate::types::CqlType;
    use minicbor::decode::Error as DecodeError;
    use minicbor::encode::Error as EncodeError;
    use minicbor::encode::Write;
    use minicbor::{Decoder, Encoder};

    pub(in crate::schema) fn encode<C, W: Write>(
        ty: &CqlType,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        e.str(&marshal::exact_name(ty))?.ok()
    }

    pub(in crate::schema) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<CqlType, DecodeError> {
        marshal::parse_exact(d.str()?).map_err(|e| DecodeError::message(e.to_string()))
    }
}

pub(super) mod types {
    use crate::types::CqlType;
    use minicbor::decode::Error as DecodeError;
    use minicbor::encode::Error as EncodeError;
    use minicbor::encode::Write;
    use minicbor::{Decoder, Encoder};

    pub(in crate::schema) fn encode<C, W: Write>(
        types: &[CqlType],
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        e.array(types.len() as u64)?;
        types.iter().try_for_each(|ty| super::cql_type::encode(ty, e, ctx))
    }

    pub(in crate::schema) fn decode<C>(
        d: &mut Decoder<'_>,
        ctx: &mut C,
    ) -> Result<Vec<CqlType>, DecodeError> {
        let length = d.array()?.ok_or_else(|| DecodeError::message("an array of known length"))?;
        let mut types = Vec::new();
        for _ in 0..length {
            types.push(super::cql_type::decode(d, ctx)?);
        }
        Ok(types)
    }
}

pub(super) mod fields {
    use crate::types::CqlType;
    use minicbor::decode::Error as DecodeError;
    use minicbor::encode::Error as EncodeError;
    use minicbor::encode::Write;
    use minicbor::{Decoder, Encoder};

    pub(in crate::schema) fn encode<C, W: Write>(
        fields: &[(String, CqlType)],
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        e.array(fields.len() as u64 * 2)?;
        for (name, ty) in fields {
            e.str(name)?;
            super::cql_type::encode(ty, e, ctx)?;
        }
        Ok(())
    }

    pub(in crate::schema) fn decode<C>(
        d: &mut Decoder<'_>,
        ctx: &mut C,
    ) -> Result<Vec<(String, CqlType)>, DecodeError> {
        let length = d.array()?.ok_or_else(|| DecodeError::message("an array of known length"))?;
        let mut fields = Vec::new();
        for _ in 0..length / 2 {
            fields.push((d.str()?.to_owned(), super::cql_type::decode(d, ctx)?));
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{KeyspaceOptions, KeyspaceTablets};
    use super::SchemaChange;

    #[test]
    fn a_keyspace_without_tablets_is_the_bytes_it_was_before_there_were_any() {
        let change = |tablets| SchemaChange::CreateKeyspace {
            name: "k".to_owned(),
            options: KeyspaceOptions { replication: [].into(), durable_writes: true, tablets },
        };
        // Array of two: the variant, and its fields: the name, and the options of two fields.
        let before = [0x82, 0x00, 0x82, 0x61, b'k', 0x82, 0xa0, 0xf5];
        assert_eq!(change(None).encode(), before);
        assert_eq!(SchemaChange::decode(&before).unwrap(), change(None));
        let with = change(Some(KeyspaceTablets { enabled: None, initial: Some(8) }));
        assert_eq!(SchemaChange::decode(&with.encode()).unwrap(), with);
    }
}
