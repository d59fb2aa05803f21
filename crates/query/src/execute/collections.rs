//! Parts of serialised collections, and collections, tuples and user types put together from values.

use std::borrow::Cow;

use model::CqlType;
use model::collection::{Elements, Entries, append_element};
use model::compare::compare;
use statement::prepare::selector::Slice;
use statement::terms::{Binding, Bound, Term, append_vector_component, assemble_collection};

use crate::QueryError;

/// The value of a map at a key, or the element of a set that equals it.
pub(super) fn element<'c>(ty: &CqlType, collection: &'c [u8], key: &[u8]) -> Option<&'c [u8]> {
    match ty {
        CqlType::Map { key: ty, .. } => {
            let mut entries = Entries::parse(collection).ok()?.flatten();
            entries.find(|(k, _)| compare(ty, k, key).is_eq()).map(|(_, value)| value)
        }
        CqlType::Set { element, .. } => {
            let mut elements = Elements::parse(collection).ok()?.flatten();
            elements.find(|e| compare(element, e, key).is_eq())
        }
        _ => None,
    }
}

/// Keys of a set or map in order: of a map those of its entries.
pub(super) fn keys<'c>(ty: &CqlType, collection: &'c [u8]) -> Vec<&'c [u8]> {
    match ty {
        CqlType::Map { .. } => {
            Entries::parse(collection).map(|e| e.flatten().map(|(key, _)| key).collect()).unwrap_or_default()
        }
        _ => Elements::parse(collection).map(|e| e.flatten().collect()).unwrap_or_default(),
    }
}

/// Type of the keys of a set or map.
pub(super) fn key_type(ty: &CqlType) -> &CqlType {
    match ty {
        CqlType::Map { key: ty, .. } | CqlType::Set { element: ty, .. } => ty,
        other => other,
    }
}

/// First and last key of a slice, both included.
#[derive(Debug)]
pub(super) struct Bounds<'v> {
    from: Option<Cow<'v, [u8]>>,
    to: Option<Cow<'v, [u8]>>,
}

impl<'v> Bounds<'v> {
    /// The bounds with the values of one execution; an unset bound is no bound.
    ///
    /// # Errors
    /// [`QueryError::Invalid`] if a bound is null.
    pub(super) fn bind(slice: &'v Slice, binding: &Binding<'v>) -> Result<Self, QueryError> {
        let bound = |term: &'v Option<Term>| match term.as_ref().map(|term| term.bind(binding)).transpose()? {
            None | Some(Bound::Unset) => Ok(None),
            Some(Bound::Value(value)) => Ok(Some(value)),
            Some(Bound::Null) => {
                Err(QueryError::Invalid(format!("Invalid null value for slice selection on {}", slice.name)))
            }
        };
        Ok(Self { from: bound(&slice.from)?, to: bound(&slice.to)? })
    }

    /// Whether a key lies between them.
    pub(super) fn contain(&self, ty: &CqlType, key: &[u8]) -> bool {
        self.from.as_ref().is_none_or(|from| compare(ty, from, key).is_le())
            && self.to.as_ref().is_none_or(|to| compare(ty, key, to).is_le())
    }

    /// The part of a collection between the bounds. `None` if it is empty and the collection has a cell for
    /// each element.
    pub(super) fn cut(&self, ty: &CqlType, collection: &[u8]) -> Option<Vec<u8>> {
        let keys = key_type(ty);
        let kept: Vec<&[u8]> = match ty {
            CqlType::Map { .. } => Entries::parse(collection)
                .ok()?
                .flatten()
                .filter(|(key, _)| self.contain(keys, key))
                .flat_map(|(key, value)| [key, value])
                .collect(),
            _ => Elements::parse(collection).ok()?.flatten().filter(|e| self.contain(keys, e)).collect(),
        };
        (!kept.is_empty() || !ty.is_multi_cell()).then(|| assemble_collection(ty, kept))
    }
}

/// A value of `ty` made of its parts.
///
/// # Errors
/// [`QueryError::Invalid`] where a set, map or vector would hold a null.
pub(super) fn build(ty: &CqlType, parts: &[Option<Cow<'_, [u8]>>]) -> Result<Vec<u8>, QueryError> {
    let all = |what: &str| {
        let parts: Option<Vec<&[u8]>> = parts.iter().map(|part| part.as_deref()).collect();
        parts.ok_or_else(|| QueryError::Invalid(format!("null is not supported inside {what}")))
    };
    Ok(match ty {
        CqlType::Set { .. } | CqlType::Map { .. } => assemble_collection(ty, all("collections")?),
        CqlType::Vector { element, .. } => {
            let mut out = Vec::new();
            for part in all("vectors")? {
                append_vector_component(&mut out, element, part)?;
            }
            out
        }
        CqlType::List { .. } => {
            let count = i32::try_from(parts.len()).expect("a statement has fewer parts than 2^31");
            let mut out = count.to_be_bytes().to_vec();
            parts.iter().for_each(|part| append_element(&mut out, part.as_deref()));
            out
        }
        _ => {
            let mut out = Vec::new();
            parts.iter().for_each(|part| append_element(&mut out, part.as_deref()));
            out
        }
    })
}
