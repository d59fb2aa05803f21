//! CQL types: what a column, a field or an element may hold.
//!
//! A type is a value: shards send schemas to each other, so nothing here is shared or counted.
//! `compare`, `validate` and `marshal` interpret serialised values and class names of these types.

/// A CQL type as declared, with its frozenness where that is a choice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CqlType {
    /// US-ASCII text.
    Ascii,
    /// Signed 64-bit integer.
    Bigint,
    /// Arbitrary bytes.
    Blob,
    /// One byte, zero is false.
    Boolean,
    /// Distributed 64-bit counter.
    Counter,
    /// Days since 1970-01-01, biased by 2^31.
    Date,
    /// Arbitrary-precision decimal: 32-bit scale and a varint.
    Decimal,
    /// IEEE 754 binary64.
    Double,
    /// Months, days, nanoseconds; has no order.
    Duration,
    /// IEEE 754 binary32.
    Float,
    /// IPv4 (4 bytes) or IPv6 (16 bytes) address.
    Inet,
    /// Signed 32-bit integer.
    Int,
    /// Signed 16-bit integer.
    Smallint,
    /// UTF-8 text (`varchar` is the same type).
    Text,
    /// Nanoseconds since midnight.
    Time,
    /// Milliseconds since the epoch.
    Timestamp,
    /// Version 1 UUID, ordered by time.
    Timeuuid,
    /// Signed 8-bit integer.
    Tinyint,
    /// Any UUID.
    Uuid,
    /// Arbitrary-precision integer, two's complement, big endian.
    Varint,
    /// The type with no value but the empty one.
    Empty,
    /// Ordered elements.
    List {
        /// Type of each element.
        element: Box<CqlType>,
        /// Whether the whole list is one value.
        frozen: bool,
    },
    /// Sorted distinct elements.
    Set {
        /// Type of each element.
        element: Box<CqlType>,
        /// Whether the whole set is one value.
        frozen: bool,
    },
    /// Sorted keys with values.
    Map {
        /// Type of each key.
        key: Box<CqlType>,
        /// Type of each value.
        value: Box<CqlType>,
        /// Whether the whole map is one value.
        frozen: bool,
    },
    /// Fixed sequence of components; always one value.
    Tuple(Vec<CqlType>),
    /// User-defined type.
    Udt(Box<UserType>),
    /// Exactly `dimension` elements; always one value.
    Vector {
        /// Type of each element.
        element: Box<CqlType>,
        /// Number of elements.
        dimension: u32,
    },
    /// A marshal class that no CQL name stands for; values are opaque bytes.
    Custom(String),
}

/// A user-defined type as seen by a column that uses it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserType {
    /// Keyspace that owns the type.
    pub keyspace: String,
    /// Name of the type, case as stored.
    pub name: String,
    /// Fields in declaration order.
    pub fields: Vec<(String, CqlType)>,
    /// Whether the whole value is one cell.
    pub frozen: bool,
}

impl CqlType {
    /// Whether a column of this type stores one cell per element (a non-frozen collection or UDT).
    pub fn is_multi_cell(&self) -> bool {
        match self {
            Self::List { frozen, .. } | Self::Set { frozen, .. } | Self::Map { frozen, .. } => !frozen,
            Self::Udt(udt) => !udt.frozen,
            _ => false,
        }
    }
}
