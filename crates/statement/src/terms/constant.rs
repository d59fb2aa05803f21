//! Literals outside of statements: the first state of an aggregate, and the text of a literal for a value.

use std::fmt::Write;

use cql::ast::{ConstantKind, Term};
use model::CqlType;
use model::collection::{Components, Elements, Entries, VectorElements, append_element};

use super::{append_vector_component, assemble_collection, literal, text};
use crate::StatementError;
use crate::functions::cast;
use crate::functions::json;

/// The value a literal has as a `ty`, without functions and markers; null is `None`.
///
/// # Errors
/// [`StatementError::Invalid`] where the literal is no such value.
pub fn value(term: &Term, ty: &CqlType) -> Result<Option<Vec<u8>>, StatementError> {
    let wrong = || StatementError::Invalid(format!("Invalid value {} for type {ty}", text::of_term(term)));
    let present = |term: &Term, ty: &CqlType| {
        value(term, ty)?.ok_or_else(|| StatementError::invalid("null is not supported inside collections"))
    };
    Ok(Some(match (term, ty) {
        (Term::Constant(constant), _) => {
            if constant.kind == ConstantKind::Null {
                return Ok(None);
            }
            if !literal::assignment(constant, ty).is_assignable() {
                return Err(StatementError::Invalid(format!(
                    "Invalid {} constant ({}) for \"(dummy)\" of type {ty}",
                    literal::kind_name(constant.kind),
                    literal::shown(constant),
                )));
            }
            let mut out = Vec::new();
            literal::append_value(constant, ty, 0, &mut out).map_err(StatementError::Invalid)?;
            out
        }
        (Term::List(parts), CqlType::List { element, .. })
        | (Term::Set(parts), CqlType::Set { element, .. }) => {
            let parts = parts.iter().map(|part| present(part, element)).collect::<Result<Vec<_>, _>>()?;
            assemble_collection(ty, parts)
        }
        (Term::Set(parts), CqlType::Map { .. }) if parts.is_empty() => {
            assemble_collection::<Vec<u8>>(ty, Vec::new())
        }
        (Term::Map(entries), CqlType::Map { key, value: of, .. }) => {
            let mut parts = Vec::with_capacity(entries.len() * 2);
            for (name, value) in entries {
                parts.push(present(name, key)?);
                parts.push(present(value, of)?);
            }
            assemble_collection(ty, parts)
        }
        (Term::List(parts), CqlType::Vector { element, dimension }) if parts.len() == *dimension as usize => {
            let mut out = Vec::new();
            for part in parts {
                append_vector_component(&mut out, element, &present(part, element)?)?;
            }
            out
        }
        (Term::Tuple(parts), CqlType::Tuple(types)) if parts.len() <= types.len() => {
            let mut out = Vec::new();
            for (part, ty) in parts.iter().zip(types) {
                append_element(&mut out, value(part, ty)?.as_deref());
            }
            out
        }
        (Term::UserType(fields), CqlType::Udt(udt)) => {
            if fields.iter().any(|(name, _)| !udt.fields.iter().any(|(field, _)| *field == name.name)) {
                return Err(wrong());
            }
            let mut out = Vec::new();
            for (field, ty) in &udt.fields {
                let given = fields.iter().rfind(|(name, _)| name.name == *field);
                let given = given.map(|(_, part)| value(part, ty)).transpose()?.flatten();
                append_element(&mut out, given.as_deref());
            }
            out
        }
        _ => return Err(wrong()),
    }))
}

/// The literal that stands for a value.
pub fn literal_text(ty: &CqlType, value: Option<&[u8]>) -> String {
    let mut out = String::new();
    append(ty, value, &mut out);
    out
}

fn append(ty: &CqlType, value: Option<&[u8]>, out: &mut String) {
    let Some(value) = value else { return out.push_str("null") };
    let mut components = Components::new(value);
    match ty {
        CqlType::Ascii | CqlType::Text => {
            let _ = write!(out, "'{}'", String::from_utf8_lossy(value).replace('\'', "''"));
        }
        CqlType::Blob | CqlType::Custom(_) => {
            out.push_str("0x");
            model::hex::append(value, out);
        }
        CqlType::List { element, .. } => {
            sequence(element, Elements::parse(value).into_iter().flatten().flatten(), ["[", "]"], out);
        }
        CqlType::Set { element, .. } => {
            sequence(element, Elements::parse(value).into_iter().flatten().flatten(), ["{", "}"], out);
        }
        CqlType::Vector { element, dimension } => {
            sequence(element, VectorElements::new(element, *dimension, value).flatten(), ["[", "]"], out);
        }
        CqlType::Map { key, value: of, .. } => {
            out.push('{');
            for (at, (name, part)) in Entries::parse(value).into_iter().flatten().flatten().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                append(key, Some(name), out);
                out.push_str(": ");
                append(of, Some(part), out);
            }
            out.push('}');
        }
        CqlType::Tuple(types) => {
            out.push('(');
            for (at, ty) in types.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                append(ty, components.next().and_then(Result::ok).flatten(), out);
            }
            out.push(')');
        }
        CqlType::Udt(udt) => {
            out.push('{');
            for (at, (name, ty)) in udt.fields.iter().enumerate() {
                let _ = write!(
                    out,
                    "{}{}: ",
                    if at == 0 { "" } else { ", " },
                    model::type_parser::quote_identifier(name)
                );
                append(ty, components.next().and_then(Result::ok).flatten(), out);
            }
            out.push('}');
        }
        CqlType::Timestamp | CqlType::Date | CqlType::Time | CqlType::Inet => {
            let mut shown = String::new();
            // A date, a time or an address is short.
            let _ = json::append(ty, Some(value), &mut shown, json::TEXT_BYTES_MAX);
            let _ = write!(out, "'{}'", shown.trim_matches('"'));
        }
        scalar => match cast::text(scalar, value) {
            Ok(text) if !value.is_empty() => out.push_str(&text),
            _ => out.push_str("null"),
        },
    }
}

fn sequence<'v>(ty: &CqlType, parts: impl Iterator<Item = &'v [u8]>, around: [&str; 2], out: &mut String) {
    out.push_str(around[0]);
    for (at, part) in parts.enumerate() {
        out.push_str(if at == 0 { "" } else { ", " });
        append(ty, Some(part), out);
    }
    out.push_str(around[1]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_become_values_and_literals_again() {
        let tuple = CqlType::Tuple(vec![
            CqlType::Int,
            CqlType::List { element: Box::new(CqlType::Text), frozen: true },
            CqlType::Duration,
        ]);
        let term = Term::Tuple(vec![
            Term::Constant(cql::ast::Constant::new(ConstantKind::Integer, "7")),
            Term::List(vec![Term::Constant(cql::ast::Constant::new(ConstantKind::String, "it's"))]),
            Term::Constant(cql::ast::Constant::new(ConstantKind::Duration, "1h30m")),
        ]);
        let bytes = value(&term, &tuple).unwrap();
        assert_eq!(literal_text(&tuple, bytes.as_deref()), "(7, ['it''s'], 1h30m)");
        assert_eq!(value(&Term::null(), &tuple).unwrap(), None);
        assert!(value(&Term::List(Vec::new()), &CqlType::Int).is_err());
    }
}
