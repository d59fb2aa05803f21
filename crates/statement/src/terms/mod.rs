//! Values of statements: prepared once against the receiver's type, bound for each execution.
//!
//! A term without markers and impure functions is folded to its bytes when it is prepared, so executing it
//! copies nothing; a marker gives the client's own bytes, validated. Restrictions, assignments and selections
//! all take their values from here.

mod composite;
pub mod constant;
mod date_time;
pub mod duration;
pub mod literal;
pub mod markers;
pub mod order;
pub mod prepare;
pub mod receiver;
pub mod text;
pub mod time;
mod typing;

use std::borrow::Cow;

use model::CqlType;
use model::collection::{CollectionBuilder, append_element, append_vector_element};
use model::compare::compare;
use model::validate::validate;
use wire::values::ValueRef;

use crate::StatementError;
use crate::ambient::Ambient;
use crate::functions::Function;
use crate::functions::user::calls::Calls;
use crate::steps::ShortSteps;

pub use markers::{BindSpecification, MarkerOptions, Markers};
pub use receiver::Receiver;

/// The value of a term in one execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound<'a> {
    /// Null.
    Null,
    /// The client left it unset.
    Unset,
    /// Serialised value.
    Value(Cow<'a, [u8]>),
}

impl<'a> Bound<'a> {
    /// The value; null and unset are `None`.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        if let Self::Value(value) = self { Some(value) } else { None }
    }

    /// The value, null as `None`; `unset` makes the error for an unset value.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] with the text of `unset`.
    pub fn set(self, unset: impl FnOnce() -> String) -> Result<Option<Cow<'a, [u8]>>, StatementError> {
        match self {
            Self::Null => Ok(None),
            Self::Unset => Err(StatementError::Invalid(unset())),
            Self::Value(value) => Ok(Some(value)),
        }
    }
}

/// The inputs of one execution.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    /// Values by marker index; the engine has checked that there are as many as markers, and has sorted sets
    /// and maps (`order`).
    pub values: &'a [ValueRef<'a>],
    /// The markers' receivers, for errors.
    pub markers: &'a [BindSpecification],
    /// Clock and random numbers of the shard.
    pub ambient: &'a Ambient,
    /// Calls of user-defined functions, if the statement has any.
    pub calls: Option<&'a Calls>,
}

impl Binding<'_> {
    /// Calls of user-defined functions.
    ///
    /// # Errors
    /// [`StatementError::Internal`] if the statement was prepared without calls.
    pub fn calls(&self) -> Result<&Calls, StatementError> {
        self.calls.ok_or_else(|| StatementError::Internal("a function was called out of its turn".to_owned()))
    }

    /// The error for an invalid value of its type: Cassandra's words, with the name of the receiver.
    #[cold]
    pub fn invalid(&self, index: usize, error: &model::validate::ValueError) -> StatementError {
        StatementError::Invalid(match self.markers.get(index) {
            Some(marker) => format!("{error} for \"{}\"", marker.name),
            None => error.to_string(),
        })
    }
}

/// A prepared value.
#[derive(Debug, Clone)]
pub enum Term {
    /// Constant; `None` is null.
    Constant(Option<Box<[u8]>>),
    /// The value comes with the request.
    Marker {
        /// Index among the markers.
        index: usize,
        /// Type the value must have.
        ty: CqlType,
    },
    /// A tuple, user type or vector with parts that are not constant.
    Composite(Box<Composite>),
    /// A list, set or map with parts that are not constant.
    Collection(Box<Collection>),
    /// A function of other terms.
    Call(Box<Call>),
}

/// A tuple, user type or vector under construction.
#[derive(Debug, Clone)]
pub struct Composite {
    /// Type of the whole.
    pub ty: CqlType,
    /// One for each component; a field that was not named is a null constant.
    pub components: Vec<Term>,
}

/// A list, set or map under construction.
#[derive(Debug, Clone)]
pub struct Collection {
    /// Type of the whole.
    pub ty: CqlType,
    /// Elements; of a map keys and values in turn.
    pub parts: Vec<Term>,
}

/// A function and its arguments.
#[derive(Debug, Clone)]
pub struct Call {
    /// The function.
    pub function: Function,
    /// Its arguments.
    pub arguments: Vec<Term>,
    /// For a user-defined function, its index among those of the statement: they run before the statement
    /// does.
    pub place: Option<usize>,
}

impl Term {
    /// The null constant.
    pub const NULL: Self = Self::Constant(None);

    /// A constant value.
    pub fn value(bytes: impl Into<Box<[u8]>>) -> Self {
        Self::Constant(Some(bytes.into()))
    }

    /// Whether the value is known without a request.
    pub fn is_constant(&self) -> bool {
        matches!(self, Self::Constant(_))
    }

    /// Whether a marker is anywhere in it.
    pub fn has_marker(&self) -> bool {
        match self {
            Self::Constant(_) => false,
            Self::Marker { .. } => true,
            Self::Composite(composite) => composite.components.iter().any(Self::has_marker),
            Self::Collection(collection) => collection.parts.iter().any(Self::has_marker),
            Self::Call(call) => call.arguments.iter().any(Self::has_marker),
        }
    }

    /// The term's value with these marker values.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] for an invalid value of its type, or an unset one that must be set.
    #[inline]
    pub fn bind<'a>(&'a self, binding: &Binding<'a>) -> Result<Bound<'a>, StatementError> {
        match self {
            Self::Constant(None) => Ok(Bound::Null),
            Self::Constant(Some(value)) => Ok(Bound::Value(Cow::Borrowed(value))),
            Self::Marker { index, ty } => match binding.values[*index] {
                ValueRef::Null => Ok(Bound::Null),
                ValueRef::Unset => Ok(Bound::Unset),
                ValueRef::Bytes(bytes) => {
                    validate(ty, bytes).map_err(|error| binding.invalid(*index, &error))?;
                    Ok(Bound::Value(Cow::Borrowed(bytes)))
                }
            },
            Self::Composite(composite) => {
                composite.bind(binding).map(|value| Bound::Value(Cow::Owned(value)))
            }
            Self::Collection(collection) => {
                collection.bind(binding).map(|value| Bound::Value(Cow::Owned(value)))
            }
            Self::Call(call) => Ok(match call.bind(binding)? {
                Some(value) => Bound::Value(Cow::Owned(value)),
                None => Bound::Null,
            }),
        }
    }

    /// As [`Term::bind`], for a marker whose value is stored as sent; `None` for any other term.
    ///
    /// # Errors
    /// As [`Term::bind`].
    #[inline]
    pub fn marker<'a>(&self, binding: &Binding<'a>) -> Result<Option<ValueRef<'a>>, StatementError> {
        let Self::Marker { index, ty } = self else { return Ok(None) };
        let value = binding.values[*index];
        if let ValueRef::Bytes(bytes) = value {
            validate(ty, bytes).map_err(|error| binding.invalid(*index, &error))?;
        }
        Ok(Some(value))
    }
}

impl Composite {
    fn bind(&self, binding: &Binding<'_>) -> Result<Vec<u8>, StatementError> {
        let mut out = Vec::new();
        for (index, component) in self.components.iter().enumerate() {
            let value = match component.bind(binding)? {
                // Of a user type with a cell for each field one may be left out.
                Bound::Unset if self.ty.is_multi_cell() => None,
                bound => bound.set(|| self.unset_message(index))?,
            };
            match &self.ty {
                CqlType::Vector { element, .. } => {
                    let value = value
                        .ok_or_else(|| StatementError::invalid("null is not supported inside vectors"))?;
                    append_vector_component(&mut out, element, &value)?;
                }
                _ => append_element(&mut out, value.as_deref()),
            }
        }
        Ok(out)
    }

    fn unset_message(&self, index: usize) -> String {
        match &self.ty {
            CqlType::Udt(udt) => {
                let field = udt.fields.get(index).map_or("", |(name, _)| name);
                format!("Invalid unset value for field '{field}' of user defined type {}", udt.name)
            }
            CqlType::Vector { .. } => "null is not supported inside vectors".to_owned(),
            _ => format!("Invalid unset value for tuple field number {index}"),
        }
    }
}

/// Appends a vector element after checking that the vector can hold its length.
///
/// # Errors
/// [`StatementError::Invalid`] if an empty value would shift the elements that follow.
pub fn append_vector_component(
    out: &mut Vec<u8>,
    element: &CqlType,
    value: &[u8],
) -> Result<(), StatementError> {
    if element.fixed_value_length().is_some_and(|length| length != value.len()) {
        return Err(StatementError::invalid("Invalid empty value inside a vector"));
    }
    append_vector_element(out, element, value);
    Ok(())
}

impl Collection {
    fn bind(&self, binding: &Binding<'_>) -> Result<Vec<u8>, StatementError> {
        let mut values = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let value = part
                .bind(binding)?
                .set(|| "unset value is not supported inside collections".to_owned())?
                .ok_or_else(|| StatementError::invalid("null is not supported inside collections"))?;
            values.push(value);
        }
        Ok(assemble_collection(&self.ty, values))
    }
}

/// The serialised collection of these parts: sets and maps sorted, of equal elements one, of equal keys the
/// last.
pub fn assemble_collection<B: AsRef<[u8]>>(ty: &CqlType, parts: Vec<B>) -> Vec<u8> {
    let steps = ShortSteps::default();
    let compare = |ty: &CqlType, a: &[u8], b: &[u8]| {
        steps.step();
        compare(ty, a, b)
    };
    let mut out = Vec::new();
    let mut builder = CollectionBuilder::begin(&mut out);
    match ty {
        CqlType::Map { key, .. } => {
            let mut entries: Vec<&[B]> = parts.chunks(2).collect();
            entries.sort_by(|a, b| compare(key, a[0].as_ref(), b[0].as_ref()));
            for (at, entry) in entries.iter().enumerate() {
                let superseded = entries
                    .get(at + 1)
                    .is_some_and(|next| compare(key, entry[0].as_ref(), next[0].as_ref()).is_eq());
                if !superseded {
                    builder.push(entry[0].as_ref());
                    builder.push(entry[1].as_ref());
                }
            }
            builder.finish_map();
        }
        CqlType::Set { element, .. } => {
            let mut elements: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
            elements.sort_by(|a, b| compare(element, a, b));
            elements.dedup_by(|a, b| compare(element, a, b).is_eq());
            elements.iter().for_each(|element| builder.push(element));
            builder.finish();
        }
        _ => {
            parts.iter().for_each(|part| builder.push(part.as_ref()));
            builder.finish();
        }
    }
    out
}

impl Call {
    fn bind(&self, binding: &Binding<'_>) -> Result<Option<Vec<u8>>, StatementError> {
        let Some(place) = self.place else { return self.compute(binding) };
        let known = binding.calls()?.term(place);
        known.ok_or_else(|| StatementError::Internal("a function was called out of its turn".to_owned()))
    }

    /// Calls the function. One of the user's may be paused.
    ///
    /// # Errors
    /// As [`Term::bind`]; as [`Calls::call`] for one of the user's.
    pub fn compute(&self, binding: &Binding<'_>) -> Result<Option<Vec<u8>>, StatementError> {
        let mut arguments = smallvec::SmallVec::<[Option<Cow<'_, [u8]>>; 4]>::new();
        for argument in &self.arguments {
            arguments.push(argument.bind(binding)?.set(|| self.function.unset_argument())?);
        }
        let arguments: smallvec::SmallVec<[Option<&[u8]>; 4]> =
            arguments.iter().map(|argument| argument.as_deref()).collect();
        reactor::give_way();
        match self.function.user() {
            Some(function) => binding.calls()?.call(function, &arguments),
            None => self.function.call(&arguments, binding.ambient),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_names_what_it_is_bound_to() {
        let ambient = reactor::run_one(reactor::Config::default(), async { Ambient::new() });
        let values = [ValueRef::Bytes(b"abc"), ValueRef::Bytes(b"abcd")];
        let marker = |name: &str| BindSpecification {
            keyspace: "ks".into(),
            table: "t".into(),
            name: name.into(),
            ty: CqlType::Int,
        };
        let markers = [marker("a"), marker("b")];
        let binding = Binding { values: &values, markers: &markers, ambient: &ambient, calls: None };
        let terms = [0, 1].map(|index| Term::Marker { index, ty: CqlType::Int });
        let bind = |index: usize| terms[index].bind(&binding).map_err(|e| e.to_string());
        assert_eq!(bind(0), Err("Expected 4 or 0 byte int (3) for \"a\"".to_owned()));
        assert_eq!(bind(1), Ok(Bound::Value(Cow::Borrowed(b"abcd"))));
    }
}
