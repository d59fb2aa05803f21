//! Numbers come back through their bytes.

use std::str::FromStr;

use proptest::prelude::*;

use super::*;

fn decimal(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    append_decimal(&mut out, &BigDecimal::from_str(text).unwrap()).unwrap();
    out
}

/// A decimal of any scale, however absurd.
fn raw_decimal(scale: i32, unscaled: &[u8]) -> Vec<u8> {
    [&scale.to_be_bytes()[..], unscaled].concat()
}

#[test]
fn decimals_are_a_scale_and_a_varint() {
    for (text, expected) in [
        ("0", &[0, 0, 0, 0, 0][..]),
        ("1.00", &[0, 0, 0, 2, 100]),
        ("-1.5", &[0, 0, 0, 1, 0xf1]),
        ("128", &[0, 0, 0, 0, 0, 0x80]),
        ("1e5", &[0xff, 0xff, 0xff, 0xfb, 1]),
    ] {
        assert_eq!(decimal(text), expected, "{text}");
        let read = decode_decimal(expected).unwrap().unwrap();
        assert_eq!(read.as_bigint_and_scale(), BigDecimal::from_str(text).unwrap().as_bigint_and_scale());
    }
    assert_eq!(decode_decimal(&[]), Ok(None));
    assert!(decode_decimal(&[0, 0, 0, 1]).is_err());
    let mut out = Vec::new();
    let too_far = BigDecimal::new(BigInt::from(1), 1 << 31);
    assert_eq!(append_decimal(&mut out, &too_far), Err(ValueError::DecimalScale { scale: 1 << 31 }));
    assert!(out.is_empty());
}

#[test]
fn decimals_with_absurd_scales_compare_without_being_expanded() {
    let tiny = raw_decimal(i32::MAX, &[1]);
    let huge = raw_decimal(i32::MIN, &[1]);
    let long = raw_decimal(0, &[0x7f; 4096]);
    for (a, b) in [(&tiny, &huge), (&tiny, &long), (&long, &huge)] {
        assert_eq!(compare_decimal(a, b), Ordering::Less);
        assert_eq!(compare_decimal(b, a), Ordering::Greater);
    }
    let minus_huge = raw_decimal(i32::MIN, &[0xff]);
    assert_eq!(compare_decimal(&minus_huge, &long), Ordering::Less);
    assert_eq!(compare_decimal(&minus_huge, &raw_decimal(0, &[0x81; 4096])), Ordering::Less);
    assert_eq!(
        compare_decimal(&raw_decimal(i32::MAX, &[0, 0]), &raw_decimal(i32::MIN, &[0])),
        Ordering::Equal
    );
}

/// The way without allocating against the one for numbers of any length, at all scales about those that
/// decide.
#[test]
fn short_decimals_compare_as_long_ones_do() {
    let unscaled = [1, 9, 10, 99, 100, 12_345, 1_000_000_007, i64::MAX / 10, i64::MAX - 1, i64::MAX];
    let scales = [-300, -19, -18, -1, 0, 1, 2, 9, 18, 19, 300];
    let all: Vec<(i64, i32)> =
        unscaled.iter().flat_map(|value| scales.map(|scale| (*value, scale))).collect();
    for (a, scale_a) in &all {
        for (b, scale_b) in &all {
            let magnitudes = compare_magnitudes(
                &num_bigint::BigUint::from(a.unsigned_abs()),
                i64::from(*scale_a),
                &num_bigint::BigUint::from(b.unsigned_abs()),
                i64::from(*scale_b),
            );
            let of = |value: i64, scale| raw_decimal(scale, &value.to_be_bytes());
            assert_eq!(
                compare_decimal(&of(*a, *scale_a), &of(*b, *scale_b)),
                magnitudes,
                "{a} {scale_a} {b} {scale_b}"
            );
            let reversed = compare_decimal(&of(-a, *scale_a), &of(-b, *scale_b));
            assert_eq!(reversed, magnitudes.reverse(), "-{a} {scale_a} -{b} {scale_b}");
        }
    }
    let least = raw_decimal(0, &i64::MIN.to_be_bytes());
    assert_eq!(compare_decimal(&least, &raw_decimal(1, &i64::MIN.to_be_bytes())), Ordering::Less);
}

#[test]
fn malformed_decimals_stand_between_the_empty_value_and_all_numbers() {
    let order = [&[][..], &[0], &[0, 0, 0, 9], &[0xff], &decimal("-1e1000")];
    for pair in order.windows(2) {
        assert_eq!(compare_decimal(pair[0], pair[1]), Ordering::Less, "{pair:02x?}");
    }
}

#[test]
fn varints_are_shortest_and_the_empty_value_is_no_number() {
    for (value, expected) in [
        (0, &[0][..]),
        (-1, &[0xff]),
        (127, &[0x7f]),
        (128, &[0, 0x80]),
        (-128, &[0x80]),
        (-129, &[0xff, 0x7f]),
    ] {
        let (mut big, mut small) = (Vec::new(), Vec::new());
        append_varint(&mut big, &BigInt::from(value));
        append_varint_i64(&mut small, value);
        assert_eq!((&big[..], &small[..]), (expected, expected), "{value}");
    }
    assert_eq!(decode_varint(&[]), None);
}

#[test]
fn durations_are_three_vints_of_one_sign() {
    let duration = Duration::new(1, 2, 3).unwrap();
    let mut out = Vec::new();
    duration.append(&mut out);
    assert_eq!(out, [2, 4, 6]);
    assert_eq!(Duration::decode(&out), Ok(duration));
    assert_eq!((duration.months(), duration.days(), duration.nanoseconds()), (1, 2, 3));
    assert_eq!(
        Duration::new(1, -1, 0),
        Err(ValueError::DurationSigns { months: 1, days: -1, nanoseconds: 0 })
    );
}

proptest! {
    #[test]
    fn varints_order_and_round_trip_by_value(a: Vec<u8>, b: Vec<u8>, padding in 0_usize..3) {
        prop_assume!(!a.is_empty() && !b.is_empty());
        let (x, y) = (decode_varint(&a).unwrap(), decode_varint(&b).unwrap());
        prop_assert_eq!(compare_varint(&a, &b), x.cmp(&y));
        let fill = if a[0] >= 0x80 { 0xff } else { 0 };
        let padded = [&vec![fill; padding][..], &a[..]].concat();
        prop_assert_eq!(compare_varint(&a, &padded), Ordering::Equal);
        let mut out = Vec::new();
        append_varint(&mut out, &x);
        prop_assert_eq!(&out[..], shortest(&a));
    }

    #[test]
    fn small_varints_are_written_as_large_ones(value: i64, shift in 0_u32..64) {
        let value = value >> shift;
        let (mut big, mut small) = (Vec::new(), Vec::new());
        append_varint(&mut big, &BigInt::from(value));
        append_varint_i64(&mut small, value);
        prop_assert_eq!(&big, &small);
        prop_assert_eq!(to_i64(&small), Some(value));
    }

    #[test]
    fn decimals_order_by_value(
        a in prop::collection::vec(any::<u8>(), 1..24),
        scale_a in -60_i32..60,
        b in prop::collection::vec(any::<u8>(), 1..24),
        scale_b in -60_i32..60,
    ) {
        let (a, b) = (raw_decimal(scale_a, &a), raw_decimal(scale_b, &b));
        let (x, y) = (decode_decimal(&a).unwrap().unwrap(), decode_decimal(&b).unwrap().unwrap());
        prop_assert_eq!(compare_decimal(&a, &b), x.cmp(&y));
    }

    #[test]
    fn a_decimal_equals_itself_at_another_scale(
        unscaled in prop::collection::vec(any::<u8>(), 1..24),
        scale in -60_i32..60,
        zeros in 0_u32..50,
    ) {
        let value = BigInt::from_signed_bytes_be(&unscaled);
        let shifted = value.clone() * BigInt::from(10).pow(zeros);
        let a = raw_decimal(scale, &unscaled);
        let b = raw_decimal(scale + zeros as i32, &shifted.to_signed_bytes_be());
        prop_assert_eq!(compare_decimal(&a, &b), Ordering::Equal);
        let above = raw_decimal(scale + zeros as i32, &(shifted + BigInt::from(1)).to_signed_bytes_be());
        prop_assert_eq!(compare_decimal(&a, &above), Ordering::Less);
    }

    #[test]
    fn durations_round_trip(months: u32, days: u32, nanoseconds: u64, negative: bool) {
        let sign = if negative { -1 } else { 1 };
        let (months, days) = ((months >> 1) as i32 * sign, (days >> 1) as i32 * sign);
        let duration = Duration::new(months, days, (nanoseconds >> 1) as i64 * i64::from(sign)).unwrap();
        let mut out = Vec::new();
        duration.append(&mut out);
        prop_assert_eq!(Duration::decode(&out), Ok(duration));
    }
}
