//! Sorts the elements of bound sets and maps: clients send them in any order, and may send some twice.
//!
//! Stored values must be sorted at every depth, otherwise one value has several tokens and cannot be found.
//! As in Cassandra, sets and maps inside lists, sets, maps and vectors are sorted too; those inside tuples
//! and user types stay as they were sent. The engine does this to a request's values before the statement
//! runs, so that terms, restrictions and conditions only see sorted values. The markers that need it are
//! determined when a statement is prepared (`Prepared::ordered_markers`), and statements without such markers
//! do nothing here.
//!
//! Large values are sorted in slices between which other tasks run. The time is n log n of their length.

use std::cmp::Ordering;
use std::ops::Range;

use model::CqlType;
use model::collection::{
    CollectionError, Elements, Entries, VectorElements, append_element, append_vector_element,
};
use model::compare::compare;
use model::validate::validate;
use reactor::in_slices;

use crate::steps::ShortSteps;

/// Values up to this length are put in order in one go: less than half a millisecond of work.
const AT_ONCE_BYTES: usize = 16 << 10;

/// Whether a value bound to a marker of this type may have to be sorted.
pub fn is_ordered(ty: &CqlType) -> bool {
    // A vector or tuple that is bound by itself is stored as it was sent.
    ty.is_collection() && holds_order(ty)
}

/// Whether a set or map is reached from the type through lists, sets, maps and vectors alone.
fn holds_order(ty: &CqlType) -> bool {
    match ty {
        CqlType::Set { .. } | CqlType::Map { .. } => true,
        CqlType::List { element, .. } | CqlType::Vector { element, .. } => holds_order(element),
        _ => false,
    }
}

/// The value with the elements of its sets and maps sorted; `None` if they are already, or if the bytes are
/// not a value of the type, which binding will report.
pub async fn in_order(ty: &CqlType, value: &[u8]) -> Option<Vec<u8>> {
    if value.len() <= AT_ONCE_BYTES {
        return in_order_at_once(ty, value);
    }
    in_slices(&(), || in_order_at_once(ty, value)).await
}

fn in_order_at_once(ty: &CqlType, value: &[u8]) -> Option<Vec<u8>> {
    if check(ty, value).ok()? {
        return None;
    }
    validate(ty, value).ok()?;
    let mut out = Vec::with_capacity(value.len());
    append(ty, value, &mut out).ok()?;
    Some(out)
}

/// Whether the value is in order already.
fn check(ty: &CqlType, value: &[u8]) -> Result<bool, CollectionError> {
    let mut previous: Option<&[u8]> = None;
    let steps = ShortSteps::default();
    let parts = PartTypes::of(ty);
    for (at, part) in Parts::of(ty, value)?.enumerate() {
        let part = part?;
        steps.step();
        let part_type = parts.at(at);
        if holds_order(part_type) && !check(part_type, part)? {
            return Ok(false);
        }
        if parts.has_keys && at.is_multiple_of(parts.in_entry) {
            let last = previous.replace(part);
            if last.is_some_and(|last| compare(part_type, last, part).is_ge()) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Appends the value in order.
fn append(ty: &CqlType, value: &[u8], out: &mut Vec<u8>) -> Result<(), CollectionError> {
    let mut collected = Collected::new(ty, value, out);
    let steps = ShortSteps::default();
    for part in Parts::of(ty, value)? {
        let part = part?;
        steps.step();
        let part_type = collected.begin_part();
        if holds_order(part_type) {
            append(part_type, part, collected.part())?;
        } else {
            collected.part().extend_from_slice(part);
        }
        collected.end_part();
    }
    if collected.types.has_keys {
        let Collected { entries, bytes, .. } = &mut collected;
        entries.sort_by(|a, b| {
            steps.step();
            a.compare(b, ty, bytes)
        });
    }
    let start = collected.begin(out);
    let (mut at, mut entries) = (0, 0_usize);
    while at < collected.entries.len() {
        steps.step();
        at = collected.keep_one(at, out);
        entries += 1;
    }
    collected.end(out, start, entries);
    Ok(())
}

/// The parts of a value under construction: its elements; of a map keys and values in turn.
struct Collected<'t> {
    types: PartTypes<'t>,
    ty: &'t CqlType,
    /// Position of each entry and its key in `bytes`; only if entries are sorted.
    entries: Vec<Entry>,
    /// The parts in their stored form.
    bytes: Vec<u8>,
    /// The part that is being made.
    part: Vec<u8>,
    parts: usize,
}

/// An element of a set, or a key and its value.
#[derive(Debug, Clone, Copy)]
struct Entry {
    start: u32,
    key_end: u32,
    end: u32,
}

impl Entry {
    fn key(self) -> Range<usize> {
        // Each part is behind the four bytes of its length.
        self.start as usize + 4..self.key_end as usize
    }

    fn compare(self, other: &Self, ty: &CqlType, bytes: &[u8]) -> Ordering {
        compare(PartTypes::of(ty).at(0), &bytes[self.key()], &bytes[other.key()])
    }
}

impl<'t> Collected<'t> {
    fn new(ty: &'t CqlType, value: &[u8], out: &mut Vec<u8>) -> Self {
        out.reserve(value.len());
        let bytes = Vec::with_capacity(value.len());
        Self { types: PartTypes::of(ty), ty, entries: Vec::new(), bytes, part: Vec::new(), parts: 0 }
    }

    /// Begins a part and returns its type.
    fn begin_part(&mut self) -> &'t CqlType {
        self.part.clear();
        self.types.at(self.parts)
    }

    fn part(&mut self) -> &mut Vec<u8> {
        &mut self.part
    }

    fn end_part(&mut self) {
        let begins = self.parts.is_multiple_of(self.types.in_entry);
        // A frame, and so a value, is shorter than 2^31 bytes.
        let here = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a value shorter than 4 GiB");
        let start = here(&self.bytes);
        match self.ty {
            CqlType::Vector { element, .. } => append_vector_element(&mut self.bytes, element, &self.part),
            _ => append_element(&mut self.bytes, Some(&self.part)),
        }
        let end = here(&self.bytes);
        if self.types.has_keys {
            match self.entries.last_mut() {
                Some(entry) if !begins => entry.end = end,
                _ => self.entries.push(Entry { start, key_end: end, end }),
            }
        }
        self.parts += 1;
    }

    /// Appends the value up to its first entry, or all of it if entries keep their places. Returns where it
    /// begins.
    fn begin(&self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        if !matches!(self.ty, CqlType::Vector { .. }) {
            append_count(out, if self.types.has_keys { 0 } else { self.parts });
        }
        if !self.types.has_keys {
            out.extend_from_slice(&self.bytes);
        }
        start
    }

    /// Appends one of the equal entries that begin at `at`: of elements the first, of keys the last. Returns
    /// the index of the next entries.
    fn keep_one(&self, at: usize, out: &mut Vec<u8>) -> usize {
        let is_equal = |pair: &[Entry]| pair[0].compare(&pair[1], self.ty, &self.bytes).is_eq();
        let more = self.entries[at..].windows(2).take_while(|pair| is_equal(pair)).count();
        let kept = self.entries[if self.types.in_entry == 2 { at + more } else { at }];
        out.extend_from_slice(&self.bytes[kept.start as usize..kept.end as usize]);
        at + more + 1
    }

    /// Puts the number of entries in its place.
    fn end(&self, out: &mut [u8], start: usize, entries: usize) {
        if self.types.has_keys {
            let mut count = Vec::with_capacity(4);
            append_count(&mut count, entries);
            out[start..start + 4].copy_from_slice(&count);
        }
    }
}

fn append_count(out: &mut Vec<u8>, count: usize) {
    let count = i32::try_from(count).expect("fewer elements than the value has bytes");
    out.extend_from_slice(&count.to_be_bytes());
}

/// The types of a value's parts.
#[derive(Clone, Copy)]
struct PartTypes<'t> {
    first: &'t CqlType,
    second: &'t CqlType,
    in_entry: usize,
    /// Whether the first part of each entry decides on the order of entries.
    has_keys: bool,
}

impl<'t> PartTypes<'t> {
    fn of(ty: &'t CqlType) -> Self {
        match ty {
            CqlType::Map { key, value, .. } => {
                Self { first: key, second: value, in_entry: 2, has_keys: true }
            }
            CqlType::Set { element, .. } => {
                Self { first: element, second: element, in_entry: 1, has_keys: true }
            }
            CqlType::List { element, .. } | CqlType::Vector { element, .. } => {
                Self { first: element, second: element, in_entry: 1, has_keys: false }
            }
            other => Self { first: other, second: other, in_entry: 1, has_keys: false },
        }
    }

    fn at(&self, part: usize) -> &'t CqlType {
        if part.is_multiple_of(self.in_entry) { self.first } else { self.second }
    }
}

/// Walks the parts of a value.
enum Parts<'v> {
    Elements(Elements<'v>),
    Entries(Entries<'v>, Option<&'v [u8]>),
    Vector(VectorElements<'v>),
}

impl<'v> Parts<'v> {
    fn of(ty: &CqlType, value: &'v [u8]) -> Result<Self, CollectionError> {
        Ok(match ty {
            CqlType::Map { .. } => Self::Entries(Entries::parse(value)?, None),
            CqlType::Vector { element, dimension } => {
                Self::Vector(VectorElements::new(element, *dimension, value))
            }
            _ => Self::Elements(Elements::parse(value)?),
        })
    }
}

impl<'v> Iterator for Parts<'v> {
    type Item = Result<&'v [u8], CollectionError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Elements(elements) => elements.next(),
            Self::Vector(elements) => elements.next(),
            Self::Entries(entries, second) => match second.take() {
                Some(value) => Some(Ok(value)),
                None => Some(entries.next()?.map(|(key, value)| {
                    *second = Some(value);
                    key
                })),
            },
        }
    }
}

#[cfg(test)]
mod tests;
