//! Resolves type names of a statement to types of the schema.
//!
//! Follows Cassandra's `CQL3Type.Raw`: freezing extends into the frozen type, a non-frozen collection takes
//! only frozen collections and user types as elements, and user types come from the statement's own keyspace.
//! Used by CREATE and ALTER of tables and types.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use cql::ast::{NativeType, TypeName};
use model::CqlType;
use model::schema::TypeDefinition;
use model::types::UserType;

use super::mistake::{invalid, syntax};
use crate::StatementError;

/// Most types in one type, fields of user types counted at each use: a user type holds copies of the types it
/// names, so that a few doublings could otherwise fill memory.
pub(crate) const TYPE_NODES_MAX: usize = 16_384;

/// The user-defined types a statement can name.
pub(crate) type UserTypes = BTreeMap<String, TypeDefinition>;

/// A type as written, with freezing extended to its parts.
#[derive(Debug, Clone)]
pub(crate) enum RawType {
    Native(NativeType),
    Custom(String),
    List { element: Box<RawType>, frozen: bool },
    Set { element: Box<RawType>, frozen: bool },
    Map { key: Box<RawType>, value: Box<RawType>, frozen: bool },
    Tuple(Vec<RawType>),
    Vector { element: Box<RawType>, dimension: i32 },
    User { keyspace: Option<String>, name: String, frozen: bool },
}

/// A type resolved against a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedType {
    /// The type.
    pub ty: CqlType,
    /// Whether a class name asked for descending order.
    pub reversed: bool,
}

impl RawType {
    /// Takes a type name as parsed.
    ///
    /// # Errors
    /// `frozen<>` around a type without a frozen form, unknown classes.
    pub(crate) fn new(name: &TypeName) -> Result<Self, StatementError> {
        Ok(match name {
            TypeName::Native(native) => Self::Native(*native),
            TypeName::Custom(class) => {
                // Classes need no schema: they are wrong as soon as the statement is read.
                resolve_class(class)?;
                Self::Custom(class.clone())
            }
            TypeName::List(element) => Self::List { element: Self::boxed(element)?, frozen: false },
            TypeName::Set(element) => Self::Set { element: Self::boxed(element)?, frozen: false },
            TypeName::Map(key, value) => {
                Self::Map { key: Self::boxed(key)?, value: Self::boxed(value)?, frozen: false }
            }
            TypeName::Tuple(components) => {
                let components = components.iter().map(|c| Self::new(c).map(Self::freeze_inside));
                Self::Tuple(components.collect::<Result<_, _>>()?)
            }
            TypeName::Vector(element, dimension) => {
                Self::Vector { element: Self::boxed(element)?, dimension: *dimension }
            }
            TypeName::User(name) => Self::User {
                keyspace: name.keyspace.as_ref().map(|keyspace| keyspace.name.clone()),
                name: name.name.name.clone(),
                frozen: false,
            },
            TypeName::Frozen(inner) => {
                let inner = Self::new(inner)?;
                if !inner.supports_freezing() {
                    return Err(syntax(format!(
                        "frozen<> is only allowed on collections, tuples, and user-defined types (got {inner})"
                    )));
                }
                inner.freeze_inside()
            }
        })
    }

    fn boxed(name: &TypeName) -> Result<Box<Self>, StatementError> {
        Self::new(name).map(Box::new)
    }

    /// Whether the type is the counter.
    pub(crate) fn is_counter(&self) -> bool {
        matches!(self, Self::Native(NativeType::Counter))
    }

    /// Whether the type is a user type that is not frozen.
    pub(crate) fn is_open_user_type(&self) -> bool {
        matches!(self, Self::User { frozen: false, .. })
    }

    /// Whether the type is declared frozen; tuples and vectors always are.
    pub(crate) fn is_frozen(&self) -> bool {
        matches!(
            self,
            Self::List { frozen: true, .. }
                | Self::Set { frozen: true, .. }
                | Self::Map { frozen: true, .. }
                | Self::User { frozen: true, .. }
        )
    }

    fn is_duration(&self) -> bool {
        matches!(self, Self::Native(NativeType::Duration))
    }

    fn supports_freezing(&self) -> bool {
        !matches!(self, Self::Native(_) | Self::Custom(_))
    }

    /// The frozen form, if there is one.
    fn freeze_inside(self) -> Self {
        let inside = |inner: Box<Self>| Box::new(inner.freeze_inside());
        match self {
            Self::List { element, .. } => Self::List { element: inside(element), frozen: true },
            Self::Set { element, .. } => Self::Set { element: inside(element), frozen: true },
            Self::Map { key, value, .. } => {
                Self::Map { key: inside(key), value: inside(value), frozen: true }
            }
            Self::User { keyspace, name, .. } => Self::User { keyspace, name, frozen: true },
            other => other,
        }
    }

    /// The type in `keyspace`, whose user types are `types`.
    ///
    /// # Errors
    /// Unknown names, invalid nesting.
    pub(crate) fn resolve(&self, keyspace: &str, types: &UserTypes) -> Result<ResolvedType, StatementError> {
        if let Self::Custom(class) = self {
            return resolve_class(class);
        }
        let ty = self.resolve_plain(keyspace, types, &Cell::new(TYPE_NODES_MAX))?;
        Ok(ResolvedType { ty, reversed: false })
    }

    fn resolve_plain(
        &self,
        keyspace: &str,
        types: &UserTypes,
        budget: &Cell<usize>,
    ) -> Result<CqlType, StatementError> {
        spend(budget, 1)?;
        let inner = |raw: &Self| raw.resolve_plain(keyspace, types, budget);
        let ty = match self {
            Self::Native(native) => native_type(*native),
            Self::Custom(class) => resolve_class(class)?.ty,
            Self::List { element, frozen } => {
                self.check_element(element, *frozen)?;
                CqlType::List { element: Box::new(inner(element)?), frozen: *frozen }
            }
            Self::Set { element, frozen } => {
                self.check_element(element, *frozen)?;
                if element.is_duration() {
                    return Err(invalid(format!("Durations are not allowed inside sets: {self}")));
                }
                CqlType::Set { element: Box::new(inner(element)?), frozen: *frozen }
            }
            Self::Map { key, value, frozen } => {
                self.check_element(value, *frozen)?;
                if key.is_duration() {
                    return Err(invalid(format!("Durations are not allowed as map keys: {self}")));
                }
                self.check_element(key, *frozen)?;
                let (value, key) = (inner(value)?, inner(key)?);
                CqlType::Map { key: Box::new(key), value: Box::new(value), frozen: *frozen }
            }
            Self::Tuple(components) => {
                let mut resolved = Vec::with_capacity(components.len());
                for component in components {
                    if component.is_counter() {
                        return Err(invalid("Counters are not allowed inside tuples"));
                    }
                    resolved.push(inner(component)?);
                }
                CqlType::Tuple(resolved)
            }
            Self::Vector { element, dimension } => {
                // The element is frozen with the vector, but keeps the name it was given.
                let element = inner(element)?;
                let positive = u32::try_from(*dimension).ok().filter(|dimension| *dimension > 0);
                let dimension = positive.ok_or_else(|| {
                    invalid(format!("vectors may only have positive dimensions; given {dimension}"))
                })?;
                CqlType::Vector { element: Box::new(element), dimension }
            }
            Self::User { keyspace: named, name, frozen } => {
                if let Some(named) = named.as_deref().filter(|named| *named != keyspace) {
                    return Err(invalid(format!(
                        "Statement on keyspace {keyspace} cannot refer to a user type in keyspace {named}; \
                         user types can only be used in the keyspace they are defined in"
                    )));
                }
                let definition =
                    types.get(name).ok_or_else(|| invalid(format!("Unknown type {keyspace}.{name}")))?;
                spend(budget, definition.fields.iter().map(|(_, field)| nodes(field)).sum())?;
                CqlType::Udt(Box::new(UserType {
                    keyspace: keyspace.to_owned(),
                    name: name.clone(),
                    fields: definition.fields.clone(),
                    frozen: *frozen,
                }))
            }
        };
        let is_whole = matches!(
            self,
            Self::List { frozen: true, .. }
                | Self::Set { frozen: true, .. }
                | Self::Map { frozen: true, .. }
                | Self::User { frozen: true, .. }
                | Self::Tuple(_)
        );
        Ok(if is_whole { ty.freeze() } else { ty })
    }

    fn check_element(&self, element: &Self, frozen: bool) -> Result<(), StatementError> {
        if element.is_counter() {
            return Err(invalid(format!("Counters are not allowed inside collections: {self}")));
        }
        match element {
            _ if frozen => Ok(()),
            Self::List { frozen: false, .. }
            | Self::Set { frozen: false, .. }
            | Self::Map { frozen: false, .. } => {
                Err(invalid(format!("Non-frozen collections are not allowed inside collections: {self}")))
            }
            Self::User { frozen: false, .. } => {
                Err(invalid(format!("Non-frozen UDTs are not allowed inside collections: {self}")))
            }
            _ => Ok(()),
        }
    }

    /// The type as Cassandra's messages show it with a known keyspace: user types qualified.
    pub(crate) fn qualified(&self, keyspace: &str) -> String {
        let mut qualified = self.clone();
        qualified.qualify(keyspace);
        qualified.to_string()
    }

    fn qualify(&mut self, with: &str) {
        match self {
            Self::Native(_) | Self::Custom(_) => {}
            Self::List { element, .. } | Self::Set { element, .. } | Self::Vector { element, .. } => {
                element.qualify(with);
            }
            Self::Map { key, value, .. } => {
                key.qualify(with);
                value.qualify(with);
            }
            Self::Tuple(components) => components.iter_mut().for_each(|component| component.qualify(with)),
            Self::User { keyspace, .. } => *keyspace = Some(with.to_owned()),
        }
    }
}

impl fmt::Display for RawType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = match self {
            Self::List { frozen: true, .. }
            | Self::Set { frozen: true, .. }
            | Self::Map { frozen: true, .. }
            | Self::User { frozen: true, .. } => ("frozen<", ">"),
            _ => ("", ""),
        };
        f.write_str(open)?;
        match self {
            // `varchar` is `text`'s other name, and Cassandra shows it as that.
            Self::Native(NativeType::Varchar) => f.write_str("text")?,
            Self::Native(native) => f.write_str(native.name())?,
            Self::Custom(class) => write!(f, "'{class}'")?,
            Self::List { element, .. } => write!(f, "list<{element}>")?,
            Self::Set { element, .. } => write!(f, "set<{element}>")?,
            Self::Map { key, value, .. } => write!(f, "map<{key}, {value}>")?,
            Self::Tuple(components) => {
                f.write_str("tuple<")?;
                for (index, component) in components.iter().enumerate() {
                    write!(f, "{}{component}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str(">")?;
            }
            Self::Vector { element, dimension } => write!(f, "vector<{element}, {dimension}>")?,
            Self::User { keyspace: Some(keyspace), name, .. } => write!(f, "{keyspace}.{name}")?,
            Self::User { keyspace: None, name, .. } => f.write_str(name)?,
        }
        f.write_str(close)
    }
}

fn spend(budget: &Cell<usize>, nodes: usize) -> Result<(), StatementError> {
    let left = budget.get().checked_sub(nodes).ok_or_else(|| {
        invalid(format!(
            "The type is made of more than {TYPE_NODES_MAX} types, which is the most there may be"
        ))
    })?;
    budget.set(left);
    Ok(())
}

fn nodes(ty: &CqlType) -> usize {
    1 + match ty {
        CqlType::List { element, .. } | CqlType::Set { element, .. } | CqlType::Vector { element, .. } => {
            nodes(element)
        }
        CqlType::Map { key, value, .. } => nodes(key) + nodes(value),
        CqlType::Tuple(components) => components.iter().map(nodes).sum(),
        CqlType::Udt(udt) => udt.fields.iter().map(|(_, field)| nodes(field)).sum(),
        _ => 0,
    }
}

/// A class name stands for the CQL type that it serialises as. Of the other classes, the old ones for times
/// and UUIDs are accepted, and composites, whose values are bytes. All others are refused, because their
/// values could neither be ordered nor checked.
fn resolve_class(class: &str) -> Result<ResolvedType, StatementError> {
    let (ty, reversed) = model::marshal::parse_class(class).map_err(|error| no_class(class, &error))?;
    if let CqlType::Custom(text) = &ty
        && let Some(ty) = known_class(text)
    {
        return Ok(ResolvedType { ty, reversed });
    }
    if contains_custom(&ty) {
        return Err(no_class(class, &"no such class"));
    }
    Ok(ResolvedType { ty, reversed })
}

/// Classes that have parameters.
const GENERIC: [&str; 10] = [
    "CompositeType",
    "DynamicCompositeType",
    "FrozenType",
    "ListType",
    "MapType",
    "ReversedType",
    "SetType",
    "TupleType",
    "UserType",
    "VectorType",
];

/// The error for a class name; Cassandra reports no more than this about parameters.
fn no_class(class: &str, why: &dyn fmt::Display) -> StatementError {
    let outer = class.split('(').next().unwrap_or_default().trim();
    let full =
        if outer.contains('.') { outer.to_owned() } else { format!("{}{outer}", model::marshal::PACKAGE) };
    let short = outer.strip_prefix(model::marshal::PACKAGE).unwrap_or(outer);
    let why = if GENERIC.contains(&short) {
        format!("Invalid definition for comparator {full}.")
    } else if outer.is_empty() || outer != class {
        why.to_string()
    } else {
        format!("Unable to find abstract-type class '{full}'")
    };
    syntax(format!("Error setting type {class}: {why}"))
}

/// One of the classes without a CQL name that columns may have, parameters by their full names.
fn known_class(text: &str) -> Option<CqlType> {
    let short = text.strip_prefix(model::marshal::PACKAGE)?;
    let custom = |class: String| Some(CqlType::Custom(format!("{}{class}", model::marshal::PACKAGE)));
    match short {
        "LexicalUUIDType" | "LegacyTimeUUIDType" => return custom(short.to_owned()),
        // New columns of the old class for times get the class that replaced it.
        "DateType" => return Some(CqlType::Timestamp),
        _ => {}
    }
    let (name, parameters) = short.strip_suffix(')')?.split_once('(')?;
    let full = |parameter: &str| {
        let (ty, reversed) = model::marshal::parse_class(parameter.trim()).ok()?;
        (!contains_custom(&ty)).then(|| model::marshal::class_name(&ty, reversed))
    };
    let parts: Option<Vec<String>> = match name {
        "CompositeType" => top_level(parameters).map(full).collect(),
        "DynamicCompositeType" => top_level(parameters)
            .map(|parameter| {
                let (alias, class) = parameter.split_once("=>")?;
                let alias = alias.trim();
                let one = alias.len() == 1 && alias.bytes().all(|byte| byte.is_ascii_alphanumeric());
                one.then(|| full(class).map(|class| format!("{alias}=>{class}")))?
            })
            .collect(),
        _ => None,
    };
    custom(format!("{name}({})", parts.filter(|parts| !parts.is_empty())?.join(",")))
}

/// Parameters between the commas that are in no further parentheses.
pub(crate) fn top_level(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// Whether values are composites, whose order is not implemented.
pub(crate) fn is_composite(ty: &CqlType) -> bool {
    matches!(ty, CqlType::Custom(class) if class.contains("CompositeType("))
}

fn contains_custom(ty: &CqlType) -> bool {
    match ty {
        CqlType::Custom(_) => true,
        CqlType::List { element, .. } | CqlType::Set { element, .. } | CqlType::Vector { element, .. } => {
            contains_custom(element)
        }
        CqlType::Map { key, value, .. } => contains_custom(key) || contains_custom(value),
        CqlType::Tuple(components) => components.iter().any(contains_custom),
        CqlType::Udt(udt) => udt.fields.iter().any(|(_, field)| contains_custom(field)),
        _ => false,
    }
}

fn native_type(native: NativeType) -> CqlType {
    match native {
        NativeType::Ascii => CqlType::Ascii,
        NativeType::Bigint => CqlType::Bigint,
        NativeType::Blob => CqlType::Blob,
        NativeType::Boolean => CqlType::Boolean,
        NativeType::Counter => CqlType::Counter,
        NativeType::Date => CqlType::Date,
        NativeType::Decimal => CqlType::Decimal,
        NativeType::Double => CqlType::Double,
        NativeType::Duration => CqlType::Duration,
        NativeType::Float => CqlType::Float,
        NativeType::Inet => CqlType::Inet,
        NativeType::Int => CqlType::Int,
        NativeType::Smallint => CqlType::Smallint,
        NativeType::Text | NativeType::Varchar => CqlType::Text,
        NativeType::Time => CqlType::Time,
        NativeType::Timestamp => CqlType::Timestamp,
        NativeType::Timeuuid => CqlType::Timeuuid,
        NativeType::Tinyint => CqlType::Tinyint,
        NativeType::Uuid => CqlType::Uuid,
        NativeType::Varint => CqlType::Varint,
    }
}
