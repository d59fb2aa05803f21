//! Orders of sets and maps at every depth, and values that stay as they were sent.

use super::*;

fn set(element: CqlType) -> CqlType {
    CqlType::Set { element: Box::new(element), frozen: true }
}

fn list(element: CqlType) -> CqlType {
    CqlType::List { element: Box::new(element), frozen: true }
}

fn map(key: CqlType, value: CqlType) -> CqlType {
    CqlType::Map { key: Box::new(key), value: Box::new(value), frozen: true }
}

fn vector(element: CqlType) -> CqlType {
    CqlType::Vector { element: Box::new(element), dimension: 2 }
}

fn int(value: i32) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

/// A collection of these parts, in the order given; of a map half as many entries.
fn of<P: AsRef<[u8]>>(parts: &[P], in_entry: usize) -> Vec<u8> {
    let mut out = Vec::new();
    append_count(&mut out, parts.len() / in_entry);
    parts.iter().for_each(|part| append_element(&mut out, Some(part.as_ref())));
    out
}

fn ints(values: &[i32]) -> Vec<u8> {
    of(&values.iter().copied().map(int).collect::<Vec<_>>(), 1)
}

#[track_caller]
fn check_value(ty: &CqlType, sent: &[u8], stored: &[u8]) {
    let ty = ty.clone();
    let (sent, stored) = (sent.to_vec(), stored.to_vec());
    reactor::run_one(reactor::Config::default(), async move {
        let expected = (sent != stored).then_some(&stored);
        assert_eq!(in_order_at_once(&ty, &sent).as_ref(), expected, "{ty} at once");
        let in_slices = in_slices(&(), || in_order_at_once(&ty, &sent)).await;
        assert_eq!(in_slices.as_ref(), expected, "{ty} in slices");
        assert_eq!(in_order(&ty, &stored).await, None, "what is in order stays: {ty}");
    });
}

#[test]
fn sets_and_maps_are_put_in_order_without_doubles() {
    check_value(&set(CqlType::Int), &ints(&[3, -1, 3]), &ints(&[-1, 3]));
    check_value(&set(CqlType::Int), &ints(&[-1, 3]), &ints(&[-1, 3]));
    check_value(&set(CqlType::Int), &ints(&[]), &ints(&[]));
    let entries = |values: &[i32]| of(&values.iter().copied().map(int).collect::<Vec<_>>(), 2);
    let ty = map(CqlType::Int, CqlType::Int);
    check_value(&ty, &entries(&[2, 20, 1, 10, 2, 21]), &entries(&[1, 10, 2, 21]));
    check_value(&list(CqlType::Int), &ints(&[2, 1, 2]), &ints(&[2, 1, 2]));
}

#[test]
fn what_lies_inside_is_put_in_order_before_what_holds_it() {
    let (sent, stored) = (ints(&[2, 1, 3, 1]), ints(&[1, 2, 3]));
    let small = ints(&[0]);
    let sets = set(set(CqlType::Int));
    check_value(&sets, &of(&[&sent, &small, &stored], 1), &of(&[&small, &stored], 1));
    check_value(&list(set(CqlType::Int)), &of(&[&sent, &small], 1), &of(&[&stored, &small], 1));
    let key = map(set(CqlType::Int), CqlType::Int);
    check_value(
        &key,
        &of(&[&sent, &int(7), &small, &int(5), &stored, &int(8)], 2),
        &of(&[&small, &int(5), &stored, &int(8)], 2),
    );
    let value = map(CqlType::Int, list(set(CqlType::Int)));
    check_value(&value, &of(&[int(1), of(&[&sent], 1)], 2), &of(&[int(1), of(&[&stored], 1)], 2));
    let mut vectors = [Vec::new(), Vec::new()];
    for (out, element) in vectors.iter_mut().zip([&sent, &stored]) {
        append_vector_element(out, &set(CqlType::Int), element);
        append_vector_element(out, &set(CqlType::Int), &small);
    }
    let [of_sent, of_stored] = vectors;
    check_value(&list(vector(set(CqlType::Int))), &of(&[of_sent], 1), &of(&[of_stored], 1));
}

#[test]
fn tuples_and_what_is_no_value_stay() {
    let tuple = CqlType::Tuple(vec![set(CqlType::Int)]);
    let mut sent = Vec::new();
    append_element(&mut sent, Some(&ints(&[2, 1])));
    check_value(&list(tuple.clone()), &of(&[&sent], 1), &of(&[&sent], 1));
    for (ty, ordered) in [
        (CqlType::Int, false),
        (tuple.clone(), false),
        (list(tuple), false),
        (list(CqlType::Text), false),
        (vector(set(CqlType::Int)), false),
        (list(vector(set(CqlType::Int))), true),
        (set(CqlType::Int), true),
        (map(CqlType::Int, CqlType::Int), true),
    ] {
        assert_eq!(is_ordered(&ty), ordered, "{ty}");
    }
    let wrong = of(&[vec![1, 2, 3], vec![0], int(1)], 1);
    for value in [&b""[..], b"\xff\xff\xff\xff", b"\0\0\0\x02\0\0\0\0", &wrong[..]] {
        assert_eq!(in_order_at_once(&set(CqlType::Int), value), None);
    }
}

/// A sequence that jumps about.
fn scrambled(count: i32) -> Vec<i32> {
    (0..count).map(|at| (i64::from(at) * 7_919 % i64::from(count)) as i32 - count / 2).collect()
}

#[test]
fn large_values_are_put_in_order_as_small_ones_are() {
    let numbers = scrambled(20_011);
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    check_value(&set(CqlType::Int), &ints(&numbers), &ints(&sorted));
    let doubled = [numbers.clone(), numbers.clone()].concat();
    check_value(&set(CqlType::Int), &ints(&doubled), &ints(&sorted));
    let inner = ints(&numbers);
    check_value(
        &list(set(CqlType::Int)),
        &of(&[&inner, &inner], 1),
        &of(&[&ints(&sorted), &ints(&sorted)], 1),
    );
    // Of equal keys the last one's value stays, wherever it was sent.
    let parts = |values: &mut dyn Iterator<Item = (i32, i32)>| {
        of(&values.flat_map(|(key, value)| [int(key), int(value)]).collect::<Vec<_>>(), 2)
    };
    let sent = parts(&mut doubled.iter().enumerate().map(|(at, key)| (*key, at as i32)));
    let place = |key: i32| numbers.iter().position(|other| *other == key).unwrap_or_default();
    let few: Vec<i32> = sorted.iter().copied().step_by(997).collect();
    let stored = reactor::run_one(reactor::Config::default(), async move {
        in_order(&map(CqlType::Int, CqlType::Int), &sent).await.unwrap()
    });
    let entries: Vec<(&[u8], &[u8])> = Entries::parse(&stored).unwrap().map(Result::unwrap).collect();
    assert_eq!(entries.len(), sorted.len());
    assert!(entries.windows(2).all(|pair| compare(&CqlType::Int, pair[0].0, pair[1].0).is_lt()));
    for key in few {
        let at = entries.iter().find(|(stored, _)| *stored == int(key)).map(|(_, value)| value.to_vec());
        assert_eq!(at, Some(int((place(key) + numbers.len()) as i32)), "{key}");
    }
}
