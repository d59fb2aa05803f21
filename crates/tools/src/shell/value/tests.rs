//! Values of each type as tables and files show them.

use model::types::UserType;

use super::*;

fn check(ty: &CqlType, value: &[u8], table: &str, file: &str) {
    let file_printer = Printer::file(String::new(), ["True".to_owned(), "False".to_owned()]);
    let found = [Printer::table(false), file_printer].map(|printer| printer.print(ty, Some(value)).text);
    assert_eq!(found, [table, file], "{ty} {}", model::hex::blob(value));
}

fn boxed(ty: CqlType) -> Box<CqlType> {
    Box::new(ty)
}

#[test]
fn scalars() {
    let same = |ty: CqlType, value: &[u8], text: &str| check(&ty, value, text, text);
    same(CqlType::Int, &(-5i32).to_be_bytes(), "-5");
    same(CqlType::Tinyint, &[0x80], "-128");
    same(CqlType::Counter, &3i64.to_be_bytes(), "3");
    same(CqlType::Varint, &[0xff], "-1");
    same(CqlType::Decimal, &[0, 0, 0, 2, 0xff, 0x6a], "-1.50");
    same(CqlType::Boolean, &[1], "True");
    same(CqlType::Boolean, &[0], "False");
    same(CqlType::Blob, b"\x01\xff", "0x01ff");
    same(CqlType::Inet, &[127, 0, 0, 1], "127.0.0.1");
    same(CqlType::Inet, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], "::1");
    same(CqlType::Date, &0x8000_0000u32.to_be_bytes(), "1970-01-01");
    same(CqlType::Time, &3_661_000_000_005i64.to_be_bytes(), "01:01:01.000000005");
    same(CqlType::Duration, &[4, 2, 2], "2mo1d1ns");
    check(&CqlType::Double, &(1.0f64 / 3.0).to_be_bytes(), "0.333333", "0.3333333333333333");
    check(&CqlType::Float, &0.1f32.to_be_bytes(), "0.1", "0.1");
    check(&CqlType::Float, &f32::INFINITY.to_be_bytes(), "Infinity", "Infinity");
    check(&CqlType::Double, &1e300f64.to_be_bytes(), "1e+300", "1e300");
    check(
        &CqlType::Timestamp,
        &(-999i64).to_be_bytes(),
        "1969-12-31 23:59:59.001000+0000",
        "1969-12-31 23:59:59.001+0000",
    );
    same(CqlType::Timestamp, &i64::MAX.to_be_bytes(), "9223372036854775807");
    check(&CqlType::Date, &u32::MAX.to_be_bytes(), "2147483647", "4294967295");
}

#[test]
fn null_empty_and_what_is_no_value() {
    assert_eq!(Printer::table(false).print(&CqlType::Int, None).text, "null");
    check(&CqlType::Int, b"", "", "");
    check(&CqlType::Blob, b"", "0x", "0x");
    check(&CqlType::Int, &[1, 2], "0x0102", "0x0102");
    check(&CqlType::Text, &[0xff], "0xff", "0xff");
    let list = CqlType::List { element: boxed(CqlType::Int), frozen: true };
    check(&list, &[0, 0, 0, 9], "0x00000009", "0x00000009");
    check(&CqlType::Tuple(vec![CqlType::Int]), &[0, 0, 0, 9, 1], "0x0000000901", "0x0000000901");
}

#[test]
fn values_inside_of_values() {
    let element = || boxed(CqlType::Text);
    let texts = [0, 0, 0, 2, 0, 0, 0, 3, b'i', b'\'', b's', 0, 0, 0, 1, b'\n'];
    check(&CqlType::Set { element: element(), frozen: true }, &texts, "{'i''s', '\\n'}", "{'i''s', '\n'}");
    check(&CqlType::List { element: element(), frozen: true }, &[0, 0, 0, 0], "[]", "[]");
    let map = CqlType::Map { key: boxed(CqlType::Timestamp), value: boxed(CqlType::Date), frozen: true };
    let mut value = vec![0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 4];
    value.extend_from_slice(&0x8000_0000u32.to_be_bytes());
    check(
        &map,
        &value,
        "{'1970-01-01 00:00:00.005000+0000': 1970-01-01}",
        "{'1970-01-01 00:00:00.005+0000': 1970-01-01}",
    );
    let tuple = [0, 0, 0, 4, 0, 0, 0, 7, 255, 255, 255, 255];
    check(&CqlType::Tuple(vec![CqlType::Int, CqlType::Text]), &tuple, "(7, null)", "(7, )");
    let udt = UserType {
        keyspace: "k".to_owned(),
        name: "t".to_owned(),
        fields: vec![("Zip".to_owned(), CqlType::Int), ("a b".to_owned(), CqlType::Text)],
        frozen: true,
    };
    check(&CqlType::Udt(Box::new(udt)), &tuple, "{Zip: 7, a b: null}", "{Zip: 7, 'a b': }");
    let vector = CqlType::Vector { element: boxed(CqlType::Int), dimension: 2 };
    check(&vector, &[0, 0, 0, 1, 0, 0, 0, 2], "[1, 2]", "[1, 2]");
}

#[test]
fn colors_are_those_of_cqlsh() {
    let list = CqlType::List { element: boxed(CqlType::Int), frozen: true };
    let text = Printer::table(true).print(&list, Some(&[0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 7]));
    assert_eq!(text.text, "\x1b[0;1;34m[\x1b[0m\x1b[0;1;32m7\x1b[0m\x1b[0;1;34m]\x1b[0m");
    assert_eq!(text.width, 3);
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..40), which in 0usize..29) {
        use CqlType as T;
        let inner = || boxed(T::Text);
        let fields = vec![("a".to_owned(), T::Timestamp), ("b".to_owned(), T::Varint)];
        let udt = UserType { keyspace: "k".to_owned(), name: "t".to_owned(), fields, frozen: true };
        let types = [
            T::Ascii, T::Bigint, T::Blob, T::Boolean, T::Counter, T::Date, T::Decimal, T::Double, T::Duration, T::Float,
            T::Inet, T::Int, T::Smallint, T::Text, T::Time, T::Timestamp, T::Timeuuid, T::Tinyint, T::Uuid, T::Varint,
            T::Empty,
            T::List { element: boxed(T::Decimal), frozen: true },
            T::Set { element: inner(), frozen: true },
            T::Map { key: inner(), value: boxed(T::Date), frozen: true },
            T::Tuple(vec![T::Int, T::Duration]),
            T::Udt(Box::new(udt)),
            T::Vector { element: boxed(T::Float), dimension: u32::MAX },
            T::Vector { element: inner(), dimension: 3 },
            T::Custom("x".to_owned()),
        ];
        for printer in [Printer::table(true), Printer::file(String::new(), Default::default())] {
            let text = printer.print(&types[which], Some(&bytes));
            proptest::prop_assert!(text.text.len() < 4096);
        }
    }
}
