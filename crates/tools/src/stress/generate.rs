//! Values as functions of a seed, column by column.
//!
//! A writer and a checker of data need only the same seed: the algorithms are those of cassandra-stress,
//! value for value, so that data written by one tool is read and checked by the other. Values are serialised
//! at once, in the form of CQL (native_protocol_v5.spec §6). Invariant: after [`Generator::set_seed`] the
//! same values come in the same order.

use model::CqlType;
use model::token::murmur3_hash128;

use super::distribution::{Distribution, Factory};
use super::random::FastRandom;

/// Kinds of generated values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes that are digits and letters, sixteen from a number: partition keys of the predefined commands.
    HexBytes,
    Bytes,
    Text,
    BigInt,
    Boolean,
    Decimal,
    Double,
    Float,
    Inet,
    Int,
    VarInt,
    Timestamp,
    Uuid,
    TimeUuid,
    TinyInt,
    SmallInt,
    Time,
    Date,
    Set,
    List,
}

/// The distribution of a column's values; omitted parts have the kind's defaults.
#[derive(Debug, Clone, Default)]
pub(super) struct Spread {
    /// The values.
    pub(super) population: Option<Factory>,
    /// How long they are.
    pub(super) size: Option<Factory>,
    /// How many there are in a partition, for clustering columns.
    pub(super) cluster: Option<Factory>,
}

/// Generates the values of one column.
#[derive(Debug, Clone)]
pub(super) struct Generator {
    kind: Kind,
    salt: i64,
    population: Distribution,
    size: Distribution,
    pub(super) cluster: Distribution,
    bytes: FastRandom,
    element: Option<Box<Generator>>,
}

/// Milliseconds of fifty years: the dates that are generated.
const DATE_MS_MAX: i64 = 50 * 365 * 24 * 60 * 60 * 1000;
/// Milliseconds from the beginning of the Gregorian calendar, the origin of version 1 UUIDs, to 1970.
const GREGORIAN_MS: i64 = 12_219_292_800_000;
/// Longest generated value in bytes.
const VALUE_BYTES_MAX: i64 = 128 << 20;

impl Kind {
    /// The kind for a column's type, with the kind of its elements; `None` if the type is not supported.
    pub(super) fn of(ty: &CqlType) -> Option<(Self, Option<Self>)> {
        let kind = match ty {
            CqlType::Ascii | CqlType::Text => Self::Text,
            CqlType::Bigint | CqlType::Counter => Self::BigInt,
            CqlType::Blob => Self::Bytes,
            CqlType::Boolean => Self::Boolean,
            CqlType::Decimal => Self::Decimal,
            CqlType::Double => Self::Double,
            CqlType::Float => Self::Float,
            CqlType::Inet => Self::Inet,
            CqlType::Int => Self::Int,
            CqlType::Varint => Self::VarInt,
            CqlType::Timestamp => Self::Timestamp,
            CqlType::Uuid => Self::Uuid,
            CqlType::Timeuuid => Self::TimeUuid,
            CqlType::Tinyint => Self::TinyInt,
            CqlType::Smallint => Self::SmallInt,
            CqlType::Time => Self::Time,
            CqlType::Date => Self::Date,
            CqlType::Set { element, .. } => return Some((Self::Set, Some(Self::of(element)?.0))),
            CqlType::List { element, .. } => return Some((Self::List, Some(Self::of(element)?.0))),
            _ => return None,
        };
        Some((kind, None))
    }

    fn population(self) -> Factory {
        match self {
            Self::Timestamp | Self::TimeUuid => Factory::uniform(1, DATE_MS_MAX),
            _ => Factory::uniform(1, 100_000_000_000),
        }
    }
}

impl Generator {
    /// The generator of a column; `name` distinguishes its values from those of other columns.
    pub(super) fn new(kind: Kind, element: Option<Kind>, name: &str, spread: &Spread) -> Self {
        let factory = |given: &Option<Factory>, own: Factory| given.clone().unwrap_or(own).build(0);
        let element = element.map(|kind| Box::new(Self::new(kind, None, name, spread)));
        Self {
            kind,
            salt: murmur3_hash128(name.as_bytes(), 0)[0],
            population: factory(&spread.population, kind.population()),
            size: factory(&spread.size, Factory::uniform(4, 8)),
            cluster: factory(&spread.cluster, Factory::fixed(1)),
            bytes: FastRandom::new(),
            element,
        }
    }

    /// Determines the values that follow.
    #[inline]
    pub(super) fn set_seed(&mut self, seed: i64) {
        self.population.set_seed(seed ^ self.salt);
        self.cluster.set_seed(seed ^ !self.salt);
        if let Some(element) = &mut self.element {
            self.size.set_seed(seed ^ self.salt);
            element.set_seed(seed.wrapping_mul(31));
        }
    }

    fn length(&mut self, seed: i64) -> usize {
        self.size.set_seed(seed);
        self.size.next().clamp(0, VALUE_BYTES_MAX) as usize
    }

    /// Appends the next value, serialised.
    #[inline]
    pub(super) fn append(&mut self, out: &mut Vec<u8>) {
        match self.kind {
            Kind::Bytes => {
                let seed = self.population.next();
                let length = self.length(seed);
                self.bytes.set_seed(!seed);
                let end = out.len() + length;
                while out.len() < end {
                    let chunk = self.bytes.next_i64().to_le_bytes();
                    let wanted = (end - out.len()).min(chunk.len());
                    out.extend_from_slice(&chunk[..wanted]);
                }
            }
            Kind::HexBytes => {
                let seed = self.population.next();
                let end = out.len() + self.length(seed);
                while out.len() < end {
                    let mut number = self.population.next();
                    for _ in 0..(end - out.len()).min(16) {
                        let digit = (number & 15) as u8;
                        out.push(if digit < 10 { b'0' + digit } else { b'A' + digit });
                        number = (number as u64 >> 4) as i64;
                    }
                }
            }
            Kind::Text => {
                let seed = self.population.next();
                let length = self.length(seed);
                self.bytes.set_seed(!seed);
                let end = out.len() + length;
                while out.len() < end {
                    let chunk = self.bytes.next_i64().to_le_bytes();
                    let wanted = (end - out.len()).min(chunk.len());
                    out.extend(chunk[..wanted].iter().map(|byte| ((byte & 127) + 32) & 127));
                }
            }
            Kind::BigInt | Kind::Time | Kind::Timestamp => {
                out.extend_from_slice(&self.population.next().to_be_bytes());
            }
            // The original asks whether a whole number is divisible by one.
            Kind::Boolean => {
                self.population.next();
                out.push(1);
            }
            Kind::Decimal => {
                out.extend_from_slice(&0_i32.to_be_bytes());
                append_var_int(out, self.population.next());
            }
            Kind::VarInt => append_var_int(out, self.population.next()),
            Kind::Double => out.extend_from_slice(&self.population.next_f64().to_be_bytes()),
            Kind::Float => out.extend_from_slice(&(self.population.next_f64() as f32).to_be_bytes()),
            Kind::Int | Kind::Inet => out.extend_from_slice(&(self.population.next() as i32).to_be_bytes()),
            // Days from 1970 on, around the middle of the range of 32 bits.
            Kind::Date => {
                let days = self.population.next() as i32;
                out.extend_from_slice(&(days as u32 ^ 1 << 31).to_be_bytes());
            }
            Kind::SmallInt => out.extend_from_slice(&(self.population.next() as i16).to_be_bytes()),
            Kind::TinyInt => out.extend_from_slice(&(self.population.next() as i8).to_be_bytes()),
            Kind::Uuid => {
                let half = self.population.next().to_be_bytes();
                out.extend_from_slice(&half);
                out.extend_from_slice(&half);
            }
            Kind::TimeUuid => {
                let ticks = (self.population.next().wrapping_add(GREGORIAN_MS)).wrapping_mul(10_000) as u64;
                let version_and_high = 1 << 12 | (ticks >> 48) & 0x0fff;
                let most = ticks << 32 | (ticks >> 32 & 0xffff) << 16 | version_and_high;
                out.extend_from_slice(&most.to_be_bytes());
                out.extend_from_slice(&self.salt.to_be_bytes());
            }
            Kind::Set | Kind::List => self.append_collection(out),
        }
    }

    fn append_collection(&mut self, out: &mut Vec<u8>) {
        let count = self.size.next().clamp(0, i64::from(u16::MAX)) as usize;
        let Some(element) = &mut self.element else { return };
        let mut elements: Vec<Vec<u8>> = Vec::with_capacity(count);
        for _ in 0..count {
            let mut bytes = Vec::new();
            element.append(&mut bytes);
            elements.push(bytes);
        }
        if self.kind == Kind::Set {
            elements.sort_unstable();
            elements.dedup();
        }
        out.extend_from_slice(&(elements.len() as i32).to_be_bytes());
        for bytes in elements {
            out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
            out.extend_from_slice(&bytes);
        }
    }

    /// The seed for the level below `value`, from the seed of the level of `value`.
    #[inline]
    pub(super) fn child_seed(&self, value: &[u8], seed: i64) -> i64 {
        let with = |number: i64| seed.wrapping_mul(31).wrapping_add(number);
        let eight = |at: usize| -> i64 {
            let bytes = value.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            i64::from_be_bytes(bytes.unwrap_or_default())
        };
        let four = || i32::from_be_bytes(value.try_into().unwrap_or_default());
        match self.kind {
            Kind::BigInt | Kind::Time => with(eight(0)),
            Kind::Int => with(i64::from(four())),
            Kind::Date => with(i64::from((four() as u32 ^ 1 << 31) as i32)),
            Kind::SmallInt => with(i64::from(i16::from_be_bytes(value.try_into().unwrap_or_default()))),
            Kind::TinyInt => with(i64::from(value.first().copied().unwrap_or_default() as i8)),
            Kind::Double => with(f64::from_bits(eight(0) as u64) as i64),
            Kind::Float => with(f32::from_bits(four() as u32) as i64),
            Kind::VarInt => with(read_var_int(value)),
            Kind::Decimal => with(read_var_int(value.get(4..).unwrap_or_default())),
            Kind::Uuid | Kind::TimeUuid => with(eight(0) ^ eight(8)),
            _ => value
                .iter()
                .fold(seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(i64::from(*byte as i8))),
        }
    }
}

/// Two's complement in as few bytes as there may be.
fn append_var_int(out: &mut Vec<u8>, number: i64) {
    let bytes = number.to_be_bytes();
    let is_spare = |at: usize| {
        let fill = if number < 0 { 0xff } else { 0 };
        bytes[at] == fill && (bytes[at + 1] ^ fill) & 0x80 == 0
    };
    let first = (0..7).find(|at| !is_spare(*at)).unwrap_or(7);
    out.extend_from_slice(&bytes[first..]);
}

/// The lowest 64 bits of a number that [`append_var_int`] wrote.
fn read_var_int(bytes: &[u8]) -> i64 {
    let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    bytes.iter().fold(if negative { -1 } else { 0 }, |number, byte| number << 8 | i64::from(*byte))
}

#[cfg(test)]
mod tests;
