//! Collection values come back as they were built, and no bytes make a walker panic.

use proptest::prelude::*;

use super::*;

fn list(elements: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = CollectionBuilder::begin(&mut out);
    elements.iter().for_each(|element| builder.push(element));
    builder.finish();
    out
}

fn check_elements(value: &[u8], expected: &[Result<&[u8], CollectionError>]) {
    let walked: Vec<_> = match Elements::parse(value) {
        Ok(elements) => elements.collect(),
        Err(error) => vec![Err(error)],
    };
    assert_eq!(walked, expected, "{value:02x?}");
}

#[test]
fn lists_have_a_count_and_lengths() {
    assert_eq!(list(&[]), [0, 0, 0, 0]);
    assert_eq!(list(&[b"a", b""]), [0, 0, 0, 2, 0, 0, 0, 1, b'a', 0, 0, 0, 0]);
}

#[test]
fn malformed_lists_end_with_one_error() {
    use CollectionError::{LengthTruncated, NegativeCount, NullElement, Trailing, Truncated};
    check_elements(&[], &[Err(LengthTruncated { element: 0 })]);
    check_elements(&[0, 0, 0], &[Err(LengthTruncated { element: 0 })]);
    check_elements(&[0xff; 4], &[Err(NegativeCount { count: -1 })]);
    check_elements(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0], &[Err(Truncated { element: 1 })]);
    check_elements(&[0, 0, 0, 1, 0, 0, 0, 2, 7], &[Err(Truncated { element: 0 })]);
    check_elements(
        &[0, 0, 0, 2, 0, 0, 0, 3, 7, 8, 9, 0],
        &[Ok(&[7, 8, 9]), Err(LengthTruncated { element: 1 })],
    );
    check_elements(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff], &[Err(NullElement { element: 0 })]);
    check_elements(&[0, 0, 0, 0, 5], &[Err(Trailing { remaining: 1 })]);
}

#[test]
fn maps_alternate_keys_and_values() {
    let mut out = vec![9];
    let mut builder = CollectionBuilder::begin(&mut out);
    for part in [b"k1", b"v1", b"k2", b"v2"] {
        builder.push(part);
    }
    builder.finish_map();
    let entries = Entries::parse(&out[1..]).unwrap();
    assert_eq!(entries.remaining(), 2);
    assert_eq!(entries.collect::<Result<Vec<_>, _>>(), Ok(vec![(&b"k1"[..], &b"v1"[..]), (b"k2", b"v2")]));
    let cut: Vec<_> = Entries::parse(&out[1..out.len() - 1]).unwrap().collect();
    assert_eq!(cut, [Ok((&b"k1"[..], &b"v1"[..])), Err(CollectionError::Truncated { element: 3 })]);
}

#[test]
#[should_panic(expected = "a map of 1 keys and values")]
fn a_map_with_a_key_alone_is_our_own_mistake() {
    let mut out = Vec::new();
    let mut builder = CollectionBuilder::begin(&mut out);
    builder.push(b"k");
    builder.finish_map();
}

#[test]
fn tuples_have_nulls_and_may_end_early() {
    let mut out = Vec::new();
    for component in [Some(&b"a"[..]), None, Some(b"")] {
        append_element(&mut out, component);
    }
    let walked: Result<Vec<_>, _> = Components::new(&out).collect();
    assert_eq!(walked, Ok(vec![Some(&b"a"[..]), None, Some(b"")]));
    assert_eq!(Components::new(&[]).next(), None);
    let cut: Vec<_> = Components::new(&out[..4]).collect();
    assert_eq!(cut, [Err(CollectionError::Truncated { element: 0 })]);
    let cut: Vec<_> = Components::new(&out[..7]).collect();
    assert_eq!(cut, [Ok(Some(&b"a"[..])), Err(CollectionError::LengthTruncated { element: 1 })]);
}

#[test]
fn vectors_write_lengths_only_where_the_element_has_none() {
    for (element, first, second, expected) in [
        (CqlType::Smallint, &[1_u8, 2][..], &[3_u8, 4][..], &[2_u8, 1, 2, 2, 3, 4][..]),
        (CqlType::Int, &[0, 0, 0, 1], &[0, 0, 0, 2], &[0, 0, 0, 1, 0, 0, 0, 2]),
        (CqlType::Text, b"a", b"", &[1, b'a', 0]),
    ] {
        let mut out = Vec::new();
        append_vector_element(&mut out, &element, first);
        append_vector_element(&mut out, &element, second);
        assert_eq!(out, expected, "{element}");
        let walked: Result<Vec<_>, _> = VectorElements::new(&element, 2, &out).collect();
        assert_eq!(walked, Ok(vec![first, second]), "{element}");
        let longer: Vec<_> = VectorElements::new(&element, 3, &out).collect();
        assert_eq!(longer[2..], [Err(CollectionError::Truncated { element: 2 })], "{element}");
        let shorter = VectorElements::new(&element, 1, &out).last();
        assert!(matches!(shorter, Some(Err(CollectionError::Trailing { .. }))), "{element}");
    }
}

#[test]
#[should_panic(expected = "length of an element of vector<int>")]
fn a_vector_element_of_wrong_length_is_our_own_mistake() {
    append_vector_element(&mut Vec::new(), &CqlType::Int, &[0]);
}

proptest! {
    #[test]
    fn lists_round_trip(elements: Vec<Vec<u8>>) {
        let out = list(&elements.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let parsed = Elements::parse(&out).unwrap();
        prop_assert_eq!(parsed.remaining(), elements.len());
        let walked: Result<Vec<_>, _> = parsed.map(|element| element.map(<[u8]>::to_vec)).collect();
        prop_assert_eq!(walked, Ok(elements));
    }

    #[test]
    fn walking_any_bytes_ends_and_an_error_is_the_last_thing(
        value in prop::collection::vec(prop::sample::select(vec![0_u8, 0, 0, 1, 2, 4, 255]), 0..60),
        dimension in 0_u32..9,
    ) {
        fn ends<T>(walk: impl Iterator<Item = Result<T, CollectionError>>, longest: usize) -> bool {
            let walked: Vec<_> = walk.take(longest + 2).collect();
            let errors = walked.iter().filter(|item| item.is_err()).count();
            walked.len() <= longest + 1 && errors <= 1 && walked.iter().rev().skip(1).all(Result::is_ok)
        }
        prop_assert!(Elements::parse(&value).is_err() || ends(Elements::parse(&value).unwrap(), value.len()));
        prop_assert!(Entries::parse(&value).is_err() || ends(Entries::parse(&value).unwrap(), value.len()));
        prop_assert!(ends(Components::new(&value), value.len()));
        for element in [CqlType::Int, CqlType::Text, CqlType::Boolean] {
            prop_assert!(ends(VectorElements::new(&element, dimension, &value), dimension as usize));
        }
    }
}
