//! Collection, tuple, user-type and vector values: walking serialised ones without copying, and building
//! them.
//!
//! Lists and sets are a big-endian `i32` count and that many elements; maps alternate keys and values. An
//! element is an `i32` length (negative: null) and its bytes. Tuples and user types are elements without a
//! count, and may end early. Vectors have the number of elements of their type, bare if the element type has
//! a fixed length and otherwise each after an unsigned vint length (native_protocol_v5.spec §6.14,
//! §6.21-§6.24; vectors: Cassandra 5.0 `VectorType`).
//!
//! Every walker ends after its first error, and no declared count is trusted beyond the number that the bytes
//! can hold, so that a caller may reserve memory by it. `validate`, the literals of `query` and the cell-wise
//! storage of collections use this.

use crate::types::CqlType;
use crate::vint;

/// Errors in the bytes of a collection, tuple or vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CollectionError {
    /// The value ends inside an element, or before its declared number of elements.
    #[error("value ends inside element {element}")]
    Truncated {
        /// Index of the element that is cut; map keys and values count one each.
        element: usize,
    },
    /// The value ends inside the length of an element, or inside the count.
    #[error("value ends inside the length of element {element}")]
    LengthTruncated {
        /// Index of the element; map keys and values count one each; zero for a cut count.
        element: usize,
    },
    /// The count is below zero.
    #[error("element count is negative: {count}")]
    NegativeCount {
        /// The count found.
        count: i32,
    },
    /// An element of a list, set or map is null.
    #[error("element {element} is null")]
    NullElement {
        /// Index of the element that is null.
        element: usize,
    },
    /// Bytes are left after the last element.
    #[error("{remaining} extraneous bytes after the last element")]
    Trailing {
        /// Number of bytes left.
        remaining: usize,
    },
}

/// Walks the elements of a serialised list or set.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    rest: &'a [u8],
    index: usize,
    count: usize,
}

impl<'a> Elements<'a> {
    /// Reads the count; elements are read as the iterator moves.
    ///
    /// # Errors
    /// [`CollectionError::Truncated`] when the bytes cannot hold that many elements,
    /// [`CollectionError::LengthTruncated`], [`CollectionError::NegativeCount`].
    pub fn parse(value: &'a [u8]) -> Result<Self, CollectionError> {
        Self::with_parts_per_entry(value, 1)
    }

    fn with_parts_per_entry(value: &'a [u8], parts: usize) -> Result<Self, CollectionError> {
        let (count, rest) =
            value.split_first_chunk().ok_or(CollectionError::LengthTruncated { element: 0 })?;
        let count = i32::from_be_bytes(*count);
        let entries = usize::try_from(count).map_err(|_| CollectionError::NegativeCount { count })?;
        let count = entries.saturating_mul(parts);
        let held = rest.len() / LENGTH_BYTES;
        if count > held {
            return Err(CollectionError::Truncated { element: held });
        }
        Ok(Self { rest, index: 0, count })
    }

    /// Elements not yet walked.
    pub fn remaining(&self) -> usize {
        self.count - self.index
    }

    fn fail(&mut self, error: CollectionError) -> Option<Result<&'a [u8], CollectionError>> {
        self.rest = &[];
        self.index = self.count;
        Some(Err(error))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a [u8], CollectionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let element = self.index;
        if element == self.count {
            let remaining = self.rest.len();
            return if remaining == 0 { None } else { self.fail(CollectionError::Trailing { remaining }) };
        }
        match take_element(&mut self.rest) {
            Some(Some(bytes)) => {
                self.index += 1;
                Some(Ok(bytes))
            }
            Some(None) => self.fail(CollectionError::NullElement { element }),
            None => {
                let error = cut_element(self.rest, element);
                self.fail(error)
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // At most one error follows the elements; an error may also come instead of all of them.
        (0, Some(self.remaining() + 1))
    }
}

/// Walks the keys and values of a serialised map.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    parts: Elements<'a>,
}

impl<'a> Entries<'a> {
    /// Reads the count; entries are read as the iterator moves.
    ///
    /// # Errors
    /// As [`Elements::parse`].
    pub fn parse(value: &'a [u8]) -> Result<Self, CollectionError> {
        Elements::with_parts_per_entry(value, 2).map(|parts| Self { parts })
    }

    /// Entries not yet walked.
    pub fn remaining(&self) -> usize {
        self.parts.remaining() / 2
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), CollectionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let key = match self.parts.next()? {
            Ok(key) => key,
            Err(error) => return Some(Err(error)),
        };
        // The count of parts is even, so a value or an error follows a key.
        self.parts.next().map(|value| value.map(|value| (key, value)))
    }
}

/// Walks the components of a serialised tuple or user type; `None` is a null component.
///
/// The value may end before all components are given: the missing ones are null.
#[derive(Debug, Clone)]
pub struct Components<'a> {
    rest: &'a [u8],
    index: usize,
}

impl<'a> Components<'a> {
    /// Starts at the first component.
    pub fn new(value: &'a [u8]) -> Self {
        Self { rest: value, index: 0 }
    }
}

impl<'a> Iterator for Components<'a> {
    type Item = Result<Option<&'a [u8]>, CollectionError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let element = self.index;
        self.index += 1;
        Some(take_element(&mut self.rest).ok_or_else(|| cut_element(std::mem::take(&mut self.rest), element)))
    }
}

/// Walks the elements of a serialised vector.
#[derive(Debug, Clone)]
pub struct VectorElements<'a> {
    rest: &'a [u8],
    fixed_length: Option<usize>,
    index: usize,
    dimension: usize,
}

impl<'a> VectorElements<'a> {
    /// Starts at the first of `dimension` elements of type `element`.
    pub fn new(element: &CqlType, dimension: u32, value: &'a [u8]) -> Self {
        let dimension = dimension as usize;
        Self { rest: value, fixed_length: element.fixed_value_length(), index: 0, dimension }
    }

    fn fail(&mut self, error: CollectionError) -> Option<Result<&'a [u8], CollectionError>> {
        self.rest = &[];
        self.index = self.dimension;
        Some(Err(error))
    }
}

impl<'a> Iterator for VectorElements<'a> {
    type Item = Result<&'a [u8], CollectionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let element = self.index;
        if element == self.dimension {
            let remaining = self.rest.len();
            return if remaining == 0 { None } else { self.fail(CollectionError::Trailing { remaining }) };
        }
        match take_vector_element(&mut self.rest, self.fixed_length) {
            Some(bytes) => {
                self.index += 1;
                Some(Ok(bytes))
            }
            None => self.fail(CollectionError::Truncated { element }),
        }
    }
}

/// Builds a list, set or map into a buffer that may already hold other bytes.
///
/// Elements go in by [`push`](Self::push) (for a map: key, value, key, ...); [`finish`](Self::finish) writes
/// the count.
#[derive(Debug)]
pub struct CollectionBuilder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    parts: u32,
}

impl<'a> CollectionBuilder<'a> {
    /// Starts a value at the end of `out`.
    pub fn begin(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; LENGTH_BYTES]);
        Self { out, start, parts: 0 }
    }

    /// Appends one element, or one key or value of a map.
    pub fn push(&mut self, element: &[u8]) {
        append_element(self.out, Some(element));
        self.parts += 1;
    }

    /// Completes a list or set.
    pub fn finish(self) {
        let count = self.parts;
        self.write_count(count);
    }

    /// Completes a map; every key must have been followed by its value.
    pub fn finish_map(self) {
        assert!(self.parts.is_multiple_of(2), "a map of {} keys and values", self.parts);
        let count = self.parts / 2;
        self.write_count(count);
    }

    fn write_count(self, count: u32) {
        self.out[self.start..self.start + LENGTH_BYTES].copy_from_slice(&count.to_be_bytes());
    }
}

/// Appends one element as lists, sets, maps, tuples and user types hold it: an `i32` length (-1 for null) and
/// bytes.
///
/// # Panics
/// When the element is longer than `i32::MAX` bytes; every value that enters the system is bounded far below.
pub fn append_element(out: &mut Vec<u8>, element: Option<&[u8]>) {
    match element {
        None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
        Some(bytes) => {
            let length = i32::try_from(bytes.len()).expect("an element's length fits an i32");
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(bytes);
        }
    }
}

/// Appends one element of a vector whose elements have type `element_type`.
///
/// A value of another length than the type's fixed length would shift all following elements, so callers
/// validate first.
pub fn append_vector_element(out: &mut Vec<u8>, element_type: &CqlType, element: &[u8]) {
    match element_type.fixed_value_length() {
        Some(length) => assert_eq!(element.len(), length, "length of an element of vector<{element_type}>"),
        None => vint::append_unsigned(out, element.len() as u64),
    }
    out.extend_from_slice(element);
}

/// Bytes of a count or of an element's length.
pub(crate) const LENGTH_BYTES: usize = 4;

/// Takes one element off `rest`: `Some(None)` for null; `None`, with `rest` unchanged, if it is cut.
pub(crate) fn take_element<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (length, after) = rest.split_first_chunk()?;
    let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
        *rest = after;
        return Some(None);
    };
    let (bytes, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(Some(bytes))
}

/// The error for an element that [`take_element`] could not take off `rest`.
fn cut_element(rest: &[u8], element: usize) -> CollectionError {
    if rest.len() < LENGTH_BYTES {
        CollectionError::LengthTruncated { element }
    } else {
        CollectionError::Truncated { element }
    }
}

/// Takes one vector element off `rest`; `None`, with `rest` unchanged, if it is cut.
pub(crate) fn take_vector_element<'a>(rest: &mut &'a [u8], fixed_length: Option<usize>) -> Option<&'a [u8]> {
    let mut after = *rest;
    let length = match fixed_length {
        Some(length) => length,
        None => usize::try_from(vint::read_unsigned(&mut after)?).ok()?,
    };
    let (bytes, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

#[cfg(test)]
mod tests;
