//! Type names as written: native, collection, tuple, vector, user-defined and custom.
//!
//! The schema decides whether a user type exists, whether freezing is required and whether a vector's
//! dimension is valid. `query` resolves a `TypeName` against a keyspace.

use crate::ast::QualifiedName;

/// The built-in scalar types (Cassandra's `native_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each variant is the CQL type of that name")]
pub enum NativeType {
    Ascii,
    Bigint,
    Blob,
    Boolean,
    Counter,
    Date,
    Decimal,
    Double,
    Duration,
    Float,
    Inet,
    Int,
    Smallint,
    Text,
    Time,
    Timestamp,
    Timeuuid,
    Tinyint,
    Uuid,
    Varchar,
    Varint,
}

impl NativeType {
    /// Every native type, in alphabetical order.
    pub const ALL: [NativeType; 21] = [
        NativeType::Ascii,
        NativeType::Bigint,
        NativeType::Blob,
        NativeType::Boolean,
        NativeType::Counter,
        NativeType::Date,
        NativeType::Decimal,
        NativeType::Double,
        NativeType::Duration,
        NativeType::Float,
        NativeType::Inet,
        NativeType::Int,
        NativeType::Smallint,
        NativeType::Text,
        NativeType::Time,
        NativeType::Timestamp,
        NativeType::Timeuuid,
        NativeType::Tinyint,
        NativeType::Uuid,
        NativeType::Varchar,
        NativeType::Varint,
    ];

    /// The type's CQL name, lower case.
    pub const fn name(self) -> &'static str {
        match self {
            NativeType::Ascii => "ascii",
            NativeType::Bigint => "bigint",
            NativeType::Blob => "blob",
            NativeType::Boolean => "boolean",
            NativeType::Counter => "counter",
            NativeType::Date => "date",
            NativeType::Decimal => "decimal",
            NativeType::Double => "double",
            NativeType::Duration => "duration",
            NativeType::Float => "float",
            NativeType::Inet => "inet",
            NativeType::Int => "int",
            NativeType::Smallint => "smallint",
            NativeType::Text => "text",
            NativeType::Time => "time",
            NativeType::Timestamp => "timestamp",
            NativeType::Timeuuid => "timeuuid",
            NativeType::Tinyint => "tinyint",
            NativeType::Uuid => "uuid",
            NativeType::Varchar => "varchar",
            NativeType::Varint => "varint",
        }
    }
}

/// A type as the text names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TypeName {
    /// A built-in scalar type.
    Native(NativeType),
    /// `list<element>`
    List(Box<TypeName>),
    /// `set<element>`
    Set(Box<TypeName>),
    /// `map<key, value>`
    Map(Box<TypeName>, Box<TypeName>),
    /// `tuple<a, b, …>`, at least one element.
    Tuple(Vec<TypeName>),
    /// `vector<element, dimension>`; the dimension is as written and may be zero or negative here.
    Vector(Box<TypeName>, i32),
    /// `frozen<type>`
    Frozen(Box<TypeName>),
    /// A user-defined type, `[keyspace.]name`.
    User(QualifiedName),
    /// A marshal class in single quotes, e.g. `'org.apache.cassandra.db.marshal.Int32Type'`.
    Custom(String),
}
