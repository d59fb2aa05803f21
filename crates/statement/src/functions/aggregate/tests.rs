//! Aggregates over values and nulls of several types.

use super::*;

fn over(kind: AggregateKind, ty: CqlType, values: &[Option<&[u8]>]) -> Option<Vec<u8>> {
    let mut accumulator = Accumulator::new(kind, &ty);
    values.iter().for_each(|value| accumulator.add(*value).unwrap());
    accumulator.result()
}

#[test]
fn counters_are_ordered_as_numbers() {
    let values: Vec<[u8; 8]> = [3_i64, -2].iter().map(|v| v.to_be_bytes()).collect();
    let rows: Vec<Option<&[u8]>> = values.iter().map(|v| Some(v.as_slice())).collect();
    for (kind, expected) in [(AggregateKind::Min, -2_i64), (AggregateKind::Max, 3), (AggregateKind::Sum, 1)] {
        assert_eq!(over(kind, CqlType::Counter, &rows), Some(expected.to_be_bytes().to_vec()), "{kind:?}");
    }
}

#[test]
fn aggregates_over_ints() {
    let values: Vec<[u8; 4]> = [3_i32, -5, 9].iter().map(|v| v.to_be_bytes()).collect();
    let mut rows: Vec<Option<&[u8]>> = values.iter().map(|v| Some(v.as_slice())).collect();
    rows.push(None);
    let check = |kind, expected: Vec<u8>| assert_eq!(over(kind, CqlType::Int, &rows), Some(expected));
    check(AggregateKind::CountRows, 4_i64.to_be_bytes().to_vec());
    check(AggregateKind::Count, 3_i64.to_be_bytes().to_vec());
    check(AggregateKind::Min, (-5_i32).to_be_bytes().to_vec());
    check(AggregateKind::Max, 9_i32.to_be_bytes().to_vec());
    check(AggregateKind::Sum, 7_i32.to_be_bytes().to_vec());
    check(AggregateKind::Average, 2_i32.to_be_bytes().to_vec());
}

#[test]
fn parts_make_the_whole() {
    let values: Vec<[u8; 4]> = [3_i32, -5, 9, 4, i32::MAX, 7].iter().map(|v| v.to_be_bytes()).collect();
    for kind in [
        AggregateKind::CountRows,
        AggregateKind::Count,
        AggregateKind::Min,
        AggregateKind::Max,
        AggregateKind::Sum,
        AggregateKind::Average,
    ] {
        let of = |values: &[[u8; 4]]| {
            let mut accumulator = Accumulator::new(kind, &CqlType::Int);
            values.iter().for_each(|value| accumulator.add(Some(value)).unwrap());
            accumulator
        };
        for cut in 0..=values.len() {
            let mut first = of(&values[..cut]);
            first.merge(of(&values[cut..])).unwrap();
            assert_eq!(first.result(), of(&values).result(), "{kind:?} cut at {cut}");
        }
    }
    let mean = || Accumulator::new(AggregateKind::Average, &CqlType::Decimal);
    assert!(mean().merge(mean()).is_err());
}

#[test]
fn over_nothing() {
    assert_eq!(over(AggregateKind::Count, CqlType::Int, &[]), Some(vec![0; 8]));
    assert_eq!(over(AggregateKind::Min, CqlType::Int, &[]), None);
    assert_eq!(over(AggregateKind::Average, CqlType::Int, &[]), Some(vec![0; 4]));
    assert_eq!(over(AggregateKind::Sum, CqlType::Double, &[]), Some(vec![0; 8]));
}

#[test]
fn sums_wrap_and_averages_do_not() {
    let big = i32::MAX.to_be_bytes();
    let rows = [Some(big.as_slice()), Some(big.as_slice())];
    assert_eq!(over(AggregateKind::Sum, CqlType::Int, &rows), Some((-2_i32).to_be_bytes().to_vec()));
    assert_eq!(over(AggregateKind::Average, CqlType::Int, &rows), Some(big.to_vec()));
}
