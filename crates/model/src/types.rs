//! CQL types of columns, fields and elements.
//!
//! A type is a plain value: shards send schemas to each other, so nothing in it is shared or
//! reference-counted. `compare`, `validate` and `marshal` interpret serialised values and class names of
//! these types.

use std::fmt;

use crate::marshal;
use crate::type_parser::quote_identifier;

/// A CQL type as declared; a type that may be frozen or not has a flag for it.
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

    /// Whether this is a list, set or map, frozen or not.
    pub fn is_collection(&self) -> bool {
        matches!(self, Self::List { .. } | Self::Set { .. } | Self::Map { .. })
    }

    /// Whether this is the counter type.
    pub fn is_counter(&self) -> bool {
        matches!(self, Self::Counter)
    }

    /// Type of the paths that distinguish the cells of a multi-cell column: a list's are timeuuids, a user
    /// type's are the positions of its fields. `None` for a column of single cells.
    pub fn cell_path_type(&self) -> Option<&Self> {
        static LIST_PATH: CqlType = CqlType::Timeuuid;
        static FIELD_PATH: CqlType = CqlType::Smallint;
        match self {
            _ if !self.is_multi_cell() => None,
            Self::List { .. } => Some(&LIST_PATH),
            Self::Set { element, .. } => Some(element),
            Self::Map { key, .. } => Some(key),
            Self::Udt(_) => Some(&FIELD_PATH),
            _ => None,
        }
    }

    /// Type of the value in the cell at `path` (of no meaning for single cells): a set's cells have empty
    /// values. `None` when `path` is no field of the user type.
    pub fn cell_value_type(&self, path: &[u8]) -> Option<&Self> {
        static SET_VALUE: CqlType = CqlType::Empty;
        match self {
            _ if !self.is_multi_cell() => Some(self),
            Self::List { element, .. } => Some(element),
            Self::Set { .. } => Some(&SET_VALUE),
            Self::Map { value, .. } => Some(value),
            Self::Udt(udt) => {
                let position = usize::try_from(i16::from_be_bytes(path.try_into().ok()?)).ok()?;
                udt.fields.get(position).map(|(_, ty)| ty)
            }
            _ => None,
        }
    }

    /// The same type with every collection and user-defined type in it, at any depth, as one value.
    ///
    /// Cassandra leaves the fields of a frozen user type as they were declared; we freeze them too, so that
    /// a type read from a schema row and the same type read from a marshal class name are equal values.
    pub fn freeze(self) -> Self {
        let freeze_box = |inner: Box<Self>| Box::new(inner.freeze());
        match self {
            Self::List { element, .. } => Self::List { element: freeze_box(element), frozen: true },
            Self::Set { element, .. } => Self::Set { element: freeze_box(element), frozen: true },
            Self::Map { key, value, .. } => {
                Self::Map { key: freeze_box(key), value: freeze_box(value), frozen: true }
            }
            Self::Tuple(components) => Self::Tuple(components.into_iter().map(Self::freeze).collect()),
            Self::Udt(udt) => {
                let UserType { keyspace, name, fields, .. } = *udt;
                let fields = fields.into_iter().map(|(name, ty)| (name, ty.freeze())).collect();
                Self::Udt(Box::new(UserType { keyspace, name, fields, frozen: true }))
            }
            // A vector is always frozen, and the types inside keep their names (Cassandra 5.0 `VectorType`).
            other => other,
        }
    }

    /// Whether this is, or contains at any depth, the user-defined type `keyspace.name`.
    pub fn references_udt(&self, keyspace: &str, name: &str) -> bool {
        self.any(&|ty| matches!(ty, Self::Udt(udt) if udt.keyspace == keyspace && udt.name == name))
    }

    /// Whether this is, or contains at any depth, a duration; such a type cannot order a table.
    pub fn references_duration(&self) -> bool {
        self.any(&|ty| matches!(ty, Self::Duration))
    }

    /// Whether `predicate` holds for this type or for any type inside it.
    fn any(&self, predicate: &dyn Fn(&Self) -> bool) -> bool {
        predicate(self)
            || match self {
                Self::List { element, .. } | Self::Set { element, .. } | Self::Vector { element, .. } => {
                    element.any(predicate)
                }
                Self::Map { key, value, .. } => key.any(predicate) || value.any(predicate),
                Self::Tuple(components) => components.iter().any(|ty| ty.any(predicate)),
                Self::Udt(udt) => udt.fields.iter().any(|(_, ty)| ty.any(predicate)),
                _ => false,
            }
    }

    /// Bytes of every value when table files and commit logs write values of this type without a length;
    /// `None` when they write the length as a vint first.
    ///
    /// This is a property of the file format, not of the type: tinyint, smallint, date, time and counter have
    /// one length only and are still written with it (Cassandra 5.0 `AbstractType.valueLengthIfFixed`).
    pub fn fixed_value_length(&self) -> Option<usize> {
        match self {
            Self::Empty => Some(0),
            Self::Boolean => Some(1),
            Self::Int | Self::Float => Some(4),
            Self::Bigint | Self::Double | Self::Timestamp => Some(8),
            Self::Uuid | Self::Timeuuid => Some(16),
            Self::Vector { element, dimension } => {
                let dimension = usize::try_from(*dimension).ok()?;
                element.fixed_value_length()?.checked_mul(dimension)
            }
            Self::Custom(class) => match class.strip_prefix(marshal::PACKAGE).unwrap_or(class) {
                "DateType" => Some(8),
                "LexicalUUIDType" | "LegacyTimeUUIDType" => Some(16),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether zero bytes are a valid value (Cassandra 5.0 `AbstractType.allowsEmpty`).
    pub fn allows_empty(&self) -> bool {
        match self {
            Self::Ascii
            | Self::Bigint
            | Self::Blob
            | Self::Boolean
            | Self::Counter
            | Self::Decimal
            | Self::Double
            | Self::Float
            | Self::Inet
            | Self::Int
            | Self::Text
            | Self::Timestamp
            | Self::Timeuuid
            | Self::Uuid
            | Self::Varint
            | Self::Tuple(_)
            | Self::Udt(_)
            | Self::Custom(_) => true,
            Self::Date
            | Self::Duration
            | Self::Smallint
            | Self::Time
            | Self::Tinyint
            | Self::Empty
            | Self::List { .. }
            | Self::Set { .. }
            | Self::Map { .. }
            | Self::Vector { .. } => false,
        }
    }

    /// Whether an empty value, if the type allows it, means no value at all (Cassandra 5.0
    /// `AbstractType.isEmptyValueMeaningless`): true of numbers, false of text and blobs.
    pub fn is_empty_value_meaningless(&self) -> bool {
        match self {
            Self::Bigint
            | Self::Boolean
            | Self::Counter
            | Self::Decimal
            | Self::Double
            | Self::Float
            | Self::Inet
            | Self::Int
            | Self::Timestamp
            | Self::Timeuuid
            | Self::Uuid
            | Self::Varint => true,
            // The old classes for times and UUIDs.
            Self::Custom(_) => self.fixed_value_length().is_some(),
            _ => false,
        }
    }
}

impl fmt::Display for CqlType {
    /// Writes the type as CQL, exactly as `system_schema` stores it: `map<text, frozen<list<int>>>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let freezable = self.is_collection() || matches!(self, Self::Tuple(_) | Self::Udt(_));
        let (open, close) = if freezable && !self.is_multi_cell() { ("frozen<", ">") } else { ("", "") };
        f.write_str(open)?;
        match self {
            Self::Ascii => f.write_str("ascii"),
            Self::Bigint => f.write_str("bigint"),
            Self::Blob => f.write_str("blob"),
            Self::Boolean => f.write_str("boolean"),
            Self::Counter => f.write_str("counter"),
            Self::Date => f.write_str("date"),
            Self::Decimal => f.write_str("decimal"),
            Self::Double => f.write_str("double"),
            Self::Duration => f.write_str("duration"),
            Self::Float => f.write_str("float"),
            Self::Inet => f.write_str("inet"),
            Self::Int => f.write_str("int"),
            Self::Smallint => f.write_str("smallint"),
            Self::Text => f.write_str("text"),
            Self::Time => f.write_str("time"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Timeuuid => f.write_str("timeuuid"),
            Self::Tinyint => f.write_str("tinyint"),
            Self::Uuid => f.write_str("uuid"),
            Self::Varint => f.write_str("varint"),
            Self::Empty => f.write_str("empty"),
            Self::List { element, .. } => write!(f, "list<{element}>"),
            Self::Set { element, .. } => write!(f, "set<{element}>"),
            Self::Map { key, value, .. } => write!(f, "map<{key}, {value}>"),
            Self::Tuple(components) => {
                f.write_str("tuple<")?;
                for (index, component) in components.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(f, "{separator}{component}")?;
                }
                f.write_str(">")
            }
            Self::Udt(udt) => f.write_str(&quote_identifier(&udt.name)),
            Self::Vector { element, dimension } => write!(f, "vector<{element}, {dimension}>"),
            Self::Custom(class) => write!(f, "'{class}'"),
        }?;
        f.write_str(close)
    }
}

#[cfg(test)]
pub(crate) mod tests;
