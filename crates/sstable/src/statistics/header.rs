//! The encoding of a table file's rows: types, columns, and the minima that numbers are stored relative to.
//!
//! ```text
//! header  := minima key_class:sized clusterings:vint class:sized{clusterings} columns columns
//!                                                                   (static and regular columns)
//! minima  := timestamp:vint local_deletion_time:vint ttl:vint       (the first two from 2015-09-22)
//! columns := count:vint (name:sized class:sized){count}
//! ```
//! Columns are in the order that rows use: those of one cell before those of many, then by name bytes.
//! Source: Cassandra 5.0 `SerializationHeader`, `EncodingStats`.

use model::marshal::{class_name, key_class_name, parse_class};
use model::types::CqlType;
use model::{Table, vint};

use crate::error::{Malformed, Problem};
use crate::input::{Input, append_sized};

/// 2015-09-22T00:00:00Z in seconds, from which the minima are counted.
const EPOCH_SECONDS: i64 = 1_442_880_000;
const EPOCH_MICROSECONDS: i64 = EPOCH_SECONDS * 1_000_000;
/// Most bytes of a type's class name or a column's name.
const NAME_BYTES_MAX: usize = 1 << 20;

/// The numbers that timestamps, deletion times and TTLs of a file are stored relative to. Smaller numbers are
/// correct but take more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodingMinima {
    /// Smallest timestamp, microseconds.
    pub timestamp: i64,
    /// Smallest local deletion time, seconds, modulo 2^32.
    pub local_deletion_time: i32,
    /// Smallest time to live, seconds.
    pub ttl: i32,
}

impl Default for EncodingMinima {
    fn default() -> Self {
        Self { timestamp: EPOCH_MICROSECONDS, local_deletion_time: EPOCH_SECONDS as i32, ttl: 0 }
    }
}

/// A column as the file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderColumn {
    /// Name, case as stored.
    pub name: String,
    /// Type when the file was written.
    pub ty: CqlType,
}

/// The encoding of a file's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SerializationHeader {
    /// The numbers that times are stored relative to.
    pub minima: EncodingMinima,
    /// Class name of the partition key.
    pub key_class: String,
    /// Types of the clustering columns, and whether they are descending.
    pub clusterings: Vec<(CqlType, bool)>,
    /// Static columns in row order.
    pub statics: Vec<HeaderColumn>,
    /// Regular columns in row order.
    pub regulars: Vec<HeaderColumn>,
}

impl SerializationHeader {
    /// The header of a file with all columns of a table.
    pub fn of_table(table: &Table, minima: EncodingMinima) -> Self {
        let columns = |of: &[model::Column]| {
            let mut columns: Vec<HeaderColumn> =
                of.iter().map(|c| HeaderColumn { name: c.name.clone(), ty: c.ty.clone() }).collect();
            columns.sort_by(|a, b| {
                a.ty.is_multi_cell()
                    .cmp(&b.ty.is_multi_cell())
                    .then_with(|| a.name.as_bytes().cmp(b.name.as_bytes()))
            });
            columns
        };
        let key: Vec<CqlType> = table.partition_key().iter().map(|c| c.ty.clone()).collect();
        Self {
            minima,
            key_class: key_class_name(&key),
            clusterings: table.clustering().iter().map(|c| (c.ty.clone(), c.reversed)).collect(),
            statics: columns(table.statics()),
            regulars: columns(table.regulars()),
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let minima = &self.minima;
        vint::append_unsigned(out, minima.timestamp.wrapping_sub(EPOCH_MICROSECONDS) as u64);
        vint::append_unsigned(out, (i64::from(minima.local_deletion_time) - EPOCH_SECONDS) as u64);
        vint::append_unsigned(out, i64::from(minima.ttl) as u64);
        append_sized(out, self.key_class.as_bytes());
        vint::append_unsigned(out, self.clusterings.len() as u64);
        for (ty, reversed) in &self.clusterings {
            append_sized(out, class_name(ty, *reversed).as_bytes());
        }
        for columns in [&self.statics, &self.regulars] {
            vint::append_unsigned(out, columns.len() as u64);
            for column in columns {
                append_sized(out, column.name.as_bytes());
                append_sized(out, class_name(&column.ty, false).as_bytes());
            }
        }
    }

    pub(crate) fn decode(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let timestamp = (input.vint()? as i64).wrapping_add(EPOCH_MICROSECONDS);
        let at = input.offset();
        // Times are computed modulo 2^32, which is correct for signed and for unsigned ones.
        let local_deletion_time = i32::try_from(input.vint()? as i64)
            .map(|difference| difference.wrapping_add(EPOCH_SECONDS as i32))
            .map_err(|_| Malformed::invalid(at, "the smallest deletion time is out of range"))?;
        let at = input.offset();
        let ttl = i32::try_from(input.vint()? as i64)
            .map_err(|_| Malformed::invalid(at, "the smallest time to live is out of range"))?;
        let key_class = text(input)?.to_owned();
        let count = input.vint()?;
        let clusterings = (0..input.fits("number of clustering columns", count, 1)?)
            .map(|_| class(input))
            .collect::<Result<_, _>>()?;
        let minima = EncodingMinima { timestamp, local_deletion_time, ttl };
        let statics = columns(input)?;
        let regulars = columns(input)?;
        if input.remaining() != 0 {
            return Err(Malformed::invalid(input.offset(), "bytes behind the columns"));
        }
        Ok(Self { minima, key_class, clusterings, statics, regulars })
    }
}

fn columns(input: &mut Input<'_>) -> Result<Vec<HeaderColumn>, Malformed> {
    let count = input.vint()?;
    (0..input.fits("number of columns", count, 2)?)
        .map(|_| {
            let name = text(input)?.to_owned();
            Ok(HeaderColumn { name, ty: class(input)?.0 })
        })
        .collect()
}

fn text<'a>(input: &mut Input<'a>) -> Result<&'a str, Malformed> {
    let at = input.offset();
    std::str::from_utf8(input.sized("length of a name", NAME_BYTES_MAX)?)
        .map_err(|_| Malformed::invalid(at, "a name is not UTF-8"))
}

pub(super) fn class(input: &mut Input<'_>) -> Result<(CqlType, bool), Malformed> {
    let offset = input.offset();
    parse_class(text(input)?).map_err(|error| Malformed { offset, problem: Problem::Type(error) })
}
