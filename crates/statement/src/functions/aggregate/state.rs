//! The state of an aggregate as bytes that travel with a client's pages.
//!
//! ```text
//! accumulator := count:vint state
//! state       := nothing | extreme:optional | integer:i128 | sum:f64 compensation:f64 plain:f64
//!              | decimal:sized | varint:sized
//! optional    := 0:u8 | 1:u8 bytes:sized
//! ```
//! The statement determines the kind of state. A client may send any bytes, so numbers are limited to
//! possible sums.

use model::number;
use model::validate::validate;
use model::vint::{append_unsigned, read_unsigned};

use super::{Accumulator, AggregateKind, DECIMAL_SCALE_MAX, State};
use crate::sized::{read_sized, sized};

/// More rows than can exist, with room for more to be counted.
const COUNT_MAX: u64 = 1 << 62;
/// More than the sum of that many numbers of 64 bits.
const INTEGER_MAX: u128 = 1 << 126;

impl Accumulator {
    /// Appends the state. Returns false, after appending useless bytes, if the state cannot be serialised.
    pub fn append_state(&self, out: &mut Vec<u8>) -> bool {
        append_unsigned(out, self.count.unsigned_abs());
        match &self.state {
            State::Nothing => {}
            State::Extreme(best) => append_optional(out, best.as_deref()),
            State::Integer(sum) => out.extend_from_slice(&sum.to_be_bytes()),
            State::Floating { sum, compensation, plain } => {
                [sum, compensation, plain].iter().for_each(|part| out.extend_from_slice(&part.to_be_bytes()));
            }
            State::Decimal(sum) => {
                let mut bytes = Vec::new();
                if number::append_decimal(&mut bytes, sum).is_err() {
                    return false;
                }
                sized(out, &bytes);
            }
            State::Varint(sum) => {
                let mut bytes = Vec::new();
                number::append_varint(&mut bytes, sum);
                sized(out, &bytes);
            }
        }
        true
    }

    /// Reads a state that [`Self::append_state`] wrote for an aggregate of the same kind; `self` is one
    /// without rows. `None` if the bytes are invalid.
    pub fn read_state(mut self, rest: &mut &[u8]) -> Option<Self> {
        let count = read_unsigned(rest).filter(|count| *count <= COUNT_MAX)?;
        self.count = i64::try_from(count).ok()?;
        match &mut self.state {
            State::Nothing => {}
            State::Extreme(best) => {
                let value = read_optional(rest)?;
                if value.is_some_and(|value| validate(&self.ty, value).is_err()) {
                    return None;
                }
                *best = value.map(<[u8]>::to_vec);
            }
            State::Integer(sum) => {
                *sum = i128::from_be_bytes(*take(rest)?);
                if sum.unsigned_abs() > INTEGER_MAX {
                    return None;
                }
            }
            State::Floating { sum, compensation, plain } => {
                for part in [sum, compensation, plain] {
                    *part = f64::from_be_bytes(*take(rest)?);
                }
            }
            State::Decimal(sum) => {
                *sum = number::decode_decimal(read_sized(rest)?).ok()??;
                if sum.as_bigint_and_scale().1.abs() > DECIMAL_SCALE_MAX {
                    return None;
                }
            }
            State::Varint(sum) => *sum = number::decode_varint(read_sized(rest)?)?,
        }
        let counts = matches!(self.kind, AggregateKind::CountRows | AggregateKind::Count);
        (counts || count > 0 || self.is_empty()).then_some(self)
    }

    /// Whether the state is that of an aggregate without rows.
    fn is_empty(&self) -> bool {
        matches!(&self.state, State::Extreme(None))
            || self.result() == Self::new(self.kind, &self.ty).result()
    }
}

fn take<'b, const BYTES: usize>(rest: &mut &'b [u8]) -> Option<&'b [u8; BYTES]> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(bytes)
}

/// Appends optional bytes.
pub fn append_optional(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    out.push(u8::from(bytes.is_some()));
    if let Some(bytes) = bytes {
        sized(out, bytes);
    }
}

/// Reads bytes that [`append_optional`] wrote; `None` if they are invalid.
pub fn read_optional<'b>(rest: &mut &'b [u8]) -> Option<Option<&'b [u8]>> {
    match *take::<1>(rest)? {
        [0] => Some(None),
        [1] => read_sized(rest).map(Some),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::CqlType;

    #[test]
    fn aggregates_travel_and_pieces_of_them_do_not() {
        let mut decimal = Vec::new();
        number::append_decimal(&mut decimal, &"12.50".parse().unwrap()).unwrap();
        let values: [(CqlType, Vec<u8>); 7] = [
            (CqlType::Int, 7_i32.to_be_bytes().to_vec()),
            (CqlType::Bigint, i64::MIN.to_be_bytes().to_vec()),
            (CqlType::Counter, 7_i64.to_be_bytes().to_vec()),
            (CqlType::Double, 1.5_f64.to_be_bytes().to_vec()),
            (CqlType::Varint, vec![0x7f, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
            (CqlType::Decimal, decimal),
            (CqlType::Tinyint, vec![0xff]),
        ];
        use AggregateKind as K;
        for (ty, value) in values {
            for kind in [K::CountRows, K::Count, K::Min, K::Max, K::Sum, K::Average] {
                for rows in [0, 1, 3] {
                    let mut whole = Accumulator::new(kind, &ty);
                    (0..rows).for_each(|_| whole.add(Some(&value)).unwrap());
                    let mut bytes = Vec::new();
                    assert!(whole.append_state(&mut bytes));
                    for end in 0..bytes.len() {
                        assert!(
                            Accumulator::new(kind, &ty).read_state(&mut &bytes[..end]).is_none(),
                            "{kind:?} of {ty}: {end} bytes"
                        );
                    }
                    let mut rest = bytes.as_slice();
                    let mut back = Accumulator::new(kind, &ty).read_state(&mut rest).unwrap();
                    assert!(rest.is_empty());
                    whole.add(Some(&value)).unwrap();
                    back.add(Some(&value)).unwrap();
                    assert_eq!(back.result(), whole.result(), "{kind:?} of {ty} after {rows} rows");
                }
            }
        }
    }

    #[test]
    fn what_no_rows_sum_to_is_refused() {
        let read =
            |kind, ty: &CqlType, bytes: &[u8]| Accumulator::new(kind, ty).read_state(&mut &*bytes).is_some();
        let mut bytes = vec![1];
        bytes.extend_from_slice(&i128::MAX.to_be_bytes());
        assert!(!read(AggregateKind::Sum, &CqlType::Int, &bytes));
        let mut bytes = Vec::new();
        append_unsigned(&mut bytes, u64::MAX);
        assert!(!read(AggregateKind::Count, &CqlType::Int, &bytes));
        assert!(!read(AggregateKind::Max, &CqlType::Int, &[1, 1, 3, 0, 0, 0]), "three bytes are no int");
        let mut wide = i32::MAX.to_be_bytes().to_vec();
        wide.push(1);
        let mut bytes = vec![1];
        sized(&mut bytes, &wide);
        assert!(!read(AggregateKind::Sum, &CqlType::Decimal, &bytes), "a scale that would fill memory");
    }
}
