//! Receivers of terms: the names and types in messages and bind metadata.

use model::{Column, CqlType, Table};

/// The column, element or option that takes a value.
#[derive(Debug, Clone)]
pub struct Receiver {
    /// Name in bind metadata: `c`, `value(m)`, `[limit]`.
    pub name: String,
    /// Type of the value.
    pub ty: CqlType,
    /// Index in the partition key, if the value is a whole partition key column.
    pub partition_key_position: Option<u16>,
}

impl Receiver {
    /// Something that is not a column.
    pub fn new(name: impl Into<String>, ty: CqlType) -> Self {
        Self { name: name.into(), ty, partition_key_position: None }
    }

    /// A whole column.
    pub fn column(table: &Table, column: &Column) -> Self {
        let position = table.partition_key().iter().position(|key| key.id == column.id);
        Self {
            name: column.name.clone(),
            ty: column.ty.clone(),
            partition_key_position: position.map(|position| position as u16),
        }
    }

    /// An element of a list, set or vector, or a value of a map.
    pub fn value_of(name: &str, ty: CqlType) -> Self {
        Self::new(format!("value({name})"), ty)
    }

    /// A key of a map.
    pub fn key_of(name: &str, ty: CqlType) -> Self {
        Self::new(format!("key({name})"), ty)
    }

    /// An index into a list.
    pub fn index_of(name: &str) -> Self {
        Self::new(format!("idx({name})"), CqlType::Int)
    }

    /// `(a, b) = ?` over these receivers.
    pub fn tuple_of(parts: &[Self]) -> Self {
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        Self::new(
            format!("({})", names.join(",")),
            CqlType::Tuple(parts.iter().map(|part| part.ty.clone()).collect()),
        )
    }
}
