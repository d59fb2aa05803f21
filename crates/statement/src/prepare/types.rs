//! Type names of casts and hints, resolved against a keyspace.

use cql::ast::TypeName;
use model::types::UserType;
use model::{CqlType, Schema, marshal, type_parser};

use crate::StatementError;

/// The type as the text has it.
pub fn text(name: &TypeName) -> String {
    shown(name, None)
}

/// The type as the text has it, user types with their keyspace, as results show it in the names of their
/// columns.
pub fn qualified_text(name: &TypeName, keyspace: &str) -> String {
    shown(name, Some(keyspace))
}

fn shown(name: &TypeName, keyspace: Option<&str>) -> String {
    let text = |name: &TypeName| shown(name, keyspace);
    match name {
        TypeName::Native(native) => native.name().to_owned(),
        TypeName::List(element) => format!("list<{}>", text(element)),
        TypeName::Set(element) => format!("set<{}>", text(element)),
        TypeName::Map(key, value) => format!("map<{}, {}>", text(key), text(value)),
        TypeName::Tuple(components) => {
            let components: Vec<String> = components.iter().map(text).collect();
            format!("tuple<{}>", components.join(", "))
        }
        TypeName::Vector(element, dimension) => format!("vector<{}, {dimension}>", text(element)),
        // A tuple is always frozen, so the text omits `frozen`.
        TypeName::Frozen(inner) if matches!(**inner, TypeName::Tuple(_)) => text(inner),
        TypeName::Frozen(inner) => format!("frozen<{}>", text(inner)),
        TypeName::User(name) => match (name.keyspace.as_ref().map(|owner| owner.as_str()), keyspace) {
            (Some(owner), Some(_)) | (None, Some(owner)) => format!("{owner}.{}", name.name.name),
            (_, None) => name.name.name.clone(),
        },
        TypeName::Custom(class) => format!("'{class}'"),
    }
}

/// The type a cast or hint names, frozen: it is never a column's own.
///
/// # Errors
/// [`StatementError::Invalid`] where a user type is not there, or a dimension is none.
pub fn resolve(name: &TypeName, keyspace: &str, schema: &Schema) -> Result<CqlType, StatementError> {
    let inner = |name: &TypeName| resolve(name, keyspace, schema).map(Box::new);
    Ok(match name {
        TypeName::Native(native) => type_parser::native_type(native.name())
            .ok_or_else(|| StatementError::Invalid(format!("Unknown type {}", native.name())))?,
        TypeName::List(element) => CqlType::List { element: inner(element)?, frozen: true },
        TypeName::Set(element) => CqlType::Set { element: inner(element)?, frozen: true },
        TypeName::Map(key, value) => CqlType::Map { key: inner(key)?, value: inner(value)?, frozen: true },
        TypeName::Tuple(components) => CqlType::Tuple(
            components
                .iter()
                .map(|component| resolve(component, keyspace, schema))
                .collect::<Result<_, _>>()?,
        ),
        TypeName::Vector(element, dimension) => match u32::try_from(*dimension) {
            Ok(dimension) if dimension > 0 => CqlType::Vector { element: inner(element)?, dimension },
            _ => {
                return Err(StatementError::Invalid(format!(
                    "vectors may only have positive dimensions; given {dimension}"
                )));
            }
        },
        TypeName::Frozen(frozen) => resolve(frozen, keyspace, schema)?.freeze(),
        TypeName::User(user) => {
            let owner = user.keyspace.as_ref().map_or(keyspace, |keyspace| keyspace.as_str());
            let definition = schema
                .keyspace(owner)
                .and_then(|keyspace| keyspace.types.get(user.name.as_str()))
                .ok_or_else(|| StatementError::Invalid(format!("Unknown type {owner}.{}", user.name.name)))?;
            CqlType::Udt(Box::new(UserType {
                keyspace: owner.to_owned(),
                name: definition.name.clone(),
                fields: definition.fields.clone(),
                frozen: true,
            }))
            .freeze()
        }
        TypeName::Custom(class) => {
            marshal::parse_class(class).map_err(|e| StatementError::Invalid(e.to_string()))?.0.freeze()
        }
    })
}
