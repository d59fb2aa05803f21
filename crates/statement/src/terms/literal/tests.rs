//! Constants become the bytes of their type, or an error that gives the reason.

use super::*;

fn value(kind: ConstantKind, text: &str, ty: CqlType) -> Result<Vec<u8>, String> {
    let constant = Constant::new(kind, text);
    assert!(assignment(&constant, &ty).is_assignable(), "{text} for {ty}");
    let mut out = Vec::new();
    append_value(&constant, &ty, 0, &mut out).map(|()| out)
}

#[test]
fn constants_become_bytes() {
    use ConstantKind as K;
    for (kind, text, ty, expected) in [
        (K::Integer, "-2", CqlType::Int, &[0xff, 0xff, 0xff, 0xfe][..]),
        (K::Integer, "127", CqlType::Tinyint, &[127]),
        (K::Integer, "256", CqlType::Varint, &[1, 0]),
        (K::Float, "1.50", CqlType::Decimal, &[0, 0, 0, 2, 0, 150]),
        (K::Integer, "1", CqlType::Double, &[0x3f, 0xf0, 0, 0, 0, 0, 0, 0]),
        (K::Float, "-NaN", CqlType::Float, &[0x7f, 0xc0, 0, 0]),
        (K::Boolean, "TRUE", CqlType::Boolean, &[1]),
        (K::Hex, "0xCafe", CqlType::Blob, &[0xca, 0xfe]),
        (K::Hex, "0x", CqlType::Blob, &[]),
        (K::Hex, "0x7f", CqlType::Tinyint, &[0x7f]),
        (K::String, "::ffff:127.0.0.1", CqlType::Inet, &[127, 0, 0, 1]),
        (K::String, "[::1]", CqlType::Inet, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        (K::String, "", CqlType::Inet, &[]),
        (K::String, "1", CqlType::Inet, &[0, 0, 0, 1]),
        (K::String, "1.2.3", CqlType::Inet, &[1, 2, 0, 3]),
        (K::Duration, "1d", CqlType::Duration, &[0, 2, 0]),
    ] {
        assert_eq!(value(kind, text, ty.clone()).as_deref(), Ok(expected), "{text} as {ty}");
    }
}

#[test]
fn constants_that_do_not_fit_say_so() {
    use ConstantKind as K;
    for (kind, text, ty, expected) in [
        (K::Integer, "128", CqlType::Tinyint, "Unable to make byte from '128'"),
        (K::Integer, "32768", CqlType::Smallint, "Unable to make short from '32768'"),
        (K::Integer, "2147483648", CqlType::Int, "Unable to make int from '2147483648'"),
        (
            K::Integer,
            "9223372036854775808",
            CqlType::Bigint,
            "Unable to make long from '9223372036854775808'",
        ),
        (K::Hex, "0x123", CqlType::Blob, "cannot parse '123' as hex bytes"),
        (K::String, "1.2.3.256", CqlType::Inet, "Unable to make inet address from '1.2.3.256'"),
        (K::String, "[1.2.3.4]", CqlType::Inet, "Unable to make inet address from '[1.2.3.4]'"),
        (K::String, "1.256.3", CqlType::Inet, "Unable to make inet address from '1.256.3'"),
        (K::Float, "-NaN", CqlType::Decimal, "unable to make BigDecimal from 'NaN'"),
        (K::String, "localhost", CqlType::Inet, "Unable to make inet address from 'localhost'"),
        (K::Float, "NaN", CqlType::Decimal, "unable to make BigDecimal from 'NaN'"),
        (
            K::Uuid,
            "00000000-0000-4000-8000-000000000000",
            CqlType::Timeuuid,
            "TimeUUID supports only version 1 UUIDs",
        ),
    ] {
        assert_eq!(value(kind, text, ty.clone()), Err(expected.to_owned()), "{text} as {ty}");
    }
}

#[test]
fn kinds_fit_their_types_only() {
    let check = |kind, text: &str, ty, expected| {
        assert_eq!(assignment(&Constant::new(kind, text), &ty), expected, "{text} for {ty}");
    };
    check(ConstantKind::String, "abc", CqlType::Int, Assignment::No);
    check(ConstantKind::String, "abc", CqlType::Ascii, Assignment::Exact);
    check(ConstantKind::String, "abc", CqlType::Text, Assignment::Weak);
    check(ConstantKind::Integer, "1", CqlType::Int, Assignment::Exact);
    check(ConstantKind::Integer, "1", CqlType::Bigint, Assignment::Weak);
    check(ConstantKind::Integer, "1", CqlType::Text, Assignment::No);
    check(ConstantKind::Float, "1.5", CqlType::Double, Assignment::Exact);
    check(ConstantKind::Float, "1.5", CqlType::Int, Assignment::No);
    check(ConstantKind::Float, "0.1000000000000000000000001", CqlType::Decimal, Assignment::Exact);
    check(ConstantKind::Null, "null", CqlType::Int, Assignment::Weak);
    check(ConstantKind::Null, "null", CqlType::Counter, Assignment::No);
}
