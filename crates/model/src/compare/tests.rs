//! The order of each type: total on any bytes, and Cassandra's on golden values.

use proptest::prelude::*;

use super::*;
use crate::type_parser::parse_type;
use crate::types::tests::any_type;

/// A type and values of it in ascending order, equal ones in one group, as Apache Cassandra 5.0.6 sorts them
/// (`AbstractType.compare`).
const GOLDEN: [(&str, &[&[&str]]); 27] = [
    ("tinyint", &[&["80"], &["fe"], &["ff"], &["00"], &["01"], &["7f"]]),
    (
        "smallint",
        &[&["8000"], &["bba3"], &["bf02"], &["ff00"], &["ffff"], &["0000"], &["0001"], &["00ff"], &["7fff"]],
    ),
    (
        "int",
        &[
            &[""],
            &["80000000"],
            &["b5915af3"],
            &["ff000000"],
            &["ffffffff"],
            &["00000000"],
            &["00000001"],
            &["000000ff"],
            &["1e40d9b2"],
            &["597de5be"],
            &["7fffffff"],
        ],
    ),
    (
        "bigint",
        &[
            &[""],
            &["8000000000000000"],
            &["96b279974199619f"],
            &["ffffffffffffffff"],
            &["0000000000000000"],
            &["00000000000000ff"],
            &["15afed1ba41dc8bd"],
            &["7fffffffffffffff"],
        ],
    ),
    (
        "timestamp",
        &[
            &[""],
            &["8000000000000000"],
            &["c59f38b650d7ddaf"],
            &["ffffffffffffffff"],
            &["0000000000000000"],
            &["7fffffffffffffff"],
        ],
    ),
    ("boolean", &[&[""], &["00"], &["01", "ff", "80"]]),
    (
        "float",
        &[
            &[""],
            &["ff800000"],
            &["e0ad78ec"],
            &["bf800000"],
            &["80000001"],
            &["80000000"],
            &["00000000"],
            &["00000001"],
            &["3f800000"],
            &["40600000"],
            &["7f7fffff"],
            &["7f800000"],
            &["7fc00000", "ffc00001", "7f800001"],
        ],
    ),
    (
        "double",
        &[
            &[""],
            &["fff0000000000000"],
            &["e974e718d7d7625a"],
            &["bff0000000000000"],
            &["8000000000000001"],
            &["8000000000000000"],
            &["0000000000000000"],
            &["0000000000000001"],
            &["3ff0000000000000"],
            &["400c000000000000"],
            &["7fefffffffffffff"],
            &["7ff0000000000000"],
            &["7ff8000000000000", "fff8000000000001"],
        ],
    ),
    (
        "decimal",
        &[
            &[""],
            &["80000001ff"],
            &["00000000fe7116f0093c8c1f11b1c0f52e"],
            &["00000002fec6"],
            &["00000000ff", "00000001f6"],
            &["7fffffffff"],
            &["0000000000", "0000000200", "fffffff600", "8000000100"],
            &["7fffffff01"],
            &["000000160c"],
            &["0000002800ab54a98ceb1f0ad2"],
            &["0000000209"],
            &["0000000101"],
            &["00000014056bc75e2d630fffff"],
            &["0000000001", "000000010a", "000000050186a0", "0000000200000064"],
            &["0000000203e7"],
            &["000000000a", "ffffffff01"],
            &["000000007fffffffffffffff"],
            &["00000000008000000000000000"],
            &["ffffffed01"],
            &["ffffffec01"],
            &["00000000018ee90ff6c373e0ee4e3f0ad2"],
            &["000000010f951a9fa3a286c94f0e766c35"],
            &["8000000101"],
        ],
    ),
    (
        "varint",
        &[
            &[""],
            &["fe7116f0093c8c1f11b1c0f52e"],
            &["ff7fffffffffffffff"],
            &["8000000000000000"],
            &["feff"],
            &["ff00"],
            &["ff7f"],
            &["80", "ff80"],
            &["ffff", "ff"],
            &["00", "0000"],
            &["01"],
            &["007f", "7f"],
            &["0080"],
            &["00ff"],
            &["0100"],
            &["00ff80"],
            &["7fffffffffffffff"],
            &["008000000000000000"],
            &["018ee90ff6c373e0ee4e3f0ad2"],
        ],
    ),
    (
        "uuid",
        &[
            &[""],
            &["138140001dd211b20000000000000000"],
            &["138140001dd211b200ff000000000000"],
            &["138140001dd211b27f7f7f7f7f7f7f7f"],
            &["138140001dd211b28080808080808080"],
            &["1a9539b47be413d1ca36c72934cb2e71"],
            &["c76b6d72645414c09f17464cb51401d2"],
            &["69c8ff6ed37e14f0d85c113ca2e7d115"],
            &["6e84f9d57c081649687a32aa855a9e86"],
            &["5c0779d4cce817bbbe6f9889f075a9e7"],
            &["1c564deab9531adc51f9bd63c1d62210"],
            &["1af9704785981aee9816bf0064c6d5dc"],
            &["76c57273e9f41ca99aec32bd9be99c0b"],
            &["4e2be2f46708478c09c6643362926a83"],
            &["ae8c5c4fa4c34b1684cd10cea2fa8f0c"],
            &["ba27547e5e4f4571f0188435653799a6"],
            &["c37a7dbc4d3d4a6d2e2f216958ccc793"],
            &["57ee41855725924169fd316ab3fed2d8"],
            &["c7020afc8152ef5a5a5cf77e7112c130"],
        ],
    ),
    (
        "'org.apache.cassandra.db.marshal.LexicalUUIDType'",
        &[
            &[""],
            &["ae8c5c4fa4c34b1684cd10cea2fa8f0c"],
            &["ba27547e5e4f4571f0188435653799a6"],
            &["c37a7dbc4d3d4a6d2e2f216958ccc793"],
            &["c7020afc8152ef5a5a5cf77e7112c130"],
            &["c76b6d72645414c09f17464cb51401d2"],
            &["138140001dd211b28080808080808080"],
            &["138140001dd211b20000000000000000"],
            &["138140001dd211b200ff000000000000"],
            &["138140001dd211b27f7f7f7f7f7f7f7f"],
            &["1a9539b47be413d1ca36c72934cb2e71"],
            &["1af9704785981aee9816bf0064c6d5dc"],
            &["1c564deab9531adc51f9bd63c1d62210"],
            &["4e2be2f46708478c09c6643362926a83"],
            &["57ee41855725924169fd316ab3fed2d8"],
            &["5c0779d4cce817bbbe6f9889f075a9e7"],
            &["69c8ff6ed37e14f0d85c113ca2e7d115"],
            &["6e84f9d57c081649687a32aa855a9e86"],
            &["76c57273e9f41ca99aec32bd9be99c0b"],
        ],
    ),
    (
        "timeuuid",
        &[
            &[""],
            &["138140001dd211b28080808080808080"],
            &["138140001dd211b200ff000000000000"],
            &["138140001dd211b20000000000000000"],
            &["138140001dd211b27f7f7f7f7f7f7f7f"],
            &["1a9539b47be413d1ca36c72934cb2e71"],
            &["c76b6d72645414c09f17464cb51401d2"],
            &["69c8ff6ed37e14f0d85c113ca2e7d115"],
            &["6e84f9d57c081649687a32aa855a9e86"],
            &["5c0779d4cce817bbbe6f9889f075a9e7"],
            &["1c564deab9531adc51f9bd63c1d62210"],
            &["1af9704785981aee9816bf0064c6d5dc"],
            &["76c57273e9f41ca99aec32bd9be99c0b"],
        ],
    ),
    (
        "'org.apache.cassandra.db.marshal.LegacyTimeUUIDType'",
        &[
            &[""],
            &["138140001dd211b28080808080808080"],
            &["138140001dd211b200ff000000000000"],
            &["138140001dd211b20000000000000000"],
            &["138140001dd211b27f7f7f7f7f7f7f7f"],
            &["1a9539b47be413d1ca36c72934cb2e71"],
            &["c76b6d72645414c09f17464cb51401d2"],
            &["69c8ff6ed37e14f0d85c113ca2e7d115"],
            &["6e84f9d57c081649687a32aa855a9e86"],
            &["5c0779d4cce817bbbe6f9889f075a9e7"],
            &["1c564deab9531adc51f9bd63c1d62210"],
            &["1af9704785981aee9816bf0064c6d5dc"],
            &["76c57273e9f41ca99aec32bd9be99c0b"],
        ],
    ),
    ("date", &[&["00000000"], &["7fffffff"], &["80000000"], &["ffffffff"]]),
    ("time", &[&["0000000000000000"], &["0000000100000000"], &["00004e94914effff"]]),
    (
        "inet",
        &[
            &[""],
            &["00000000000000000000000000000001"],
            &["0a000001"],
            &["7f000001"],
            &["80000001"],
            &["fe800000000000000000000000000001"],
        ],
    ),
    ("blob", &[&[""], &["00"], &["0000"], &["7f"], &["80"], &["ff"], &["ff00"]]),
    ("text", &[&[""], &["61"], &["6161"], &["62"], &["7a"], &["c3a9"], &["f09f9880"]]),
    ("duration", &[&["000000"], &["010101"], &["020000"], &["0204c04000"]]),
    (
        "frozen<list<int>>",
        &[
            &[""],
            &["00000000"],
            &["0000000100000000"],
            &["0000000100000004ffffffff"],
            &["000000010000000400000001"],
            &["00000002000000040000000100000000"],
            &["0000000200000004000000010000000400000002"],
            &["000000010000000400000002"],
        ],
    ),
    (
        "frozen<set<text>>",
        &[
            &[""],
            &["00000000"],
            &["0000000100000000"],
            &["000000010000000161"],
            &["0000000200000001610000000162"],
            &["000000010000000162"],
        ],
    ),
    (
        "frozen<map<int, text>>",
        &[
            &[""],
            &["00000000"],
            &["0000000100000004ffffffff000000017a"],
            &["0000000100000004000000010000000161"],
            &["0000000200000004000000010000000161000000040000000200000000"],
            &["0000000100000004000000010000000162"],
            &["0000000100000004000000020000000161"],
        ],
    ),
    (
        "frozen<tuple<int, text, frozen<list<int>>>>",
        &[
            &[""],
            &["ffffffff", "ffffffffffffffffffffffff"],
            &["ffffffff0000000161"],
            &["00000004ffffffff000000017a"],
            &["0000000400000001", "0000000400000001ffffffff", "0000000400000001ffffffffffffffff"],
            &["000000040000000100000000"],
            &["00000004000000010000000161"],
            &["000000040000000100000001610000000400000000"],
            &["000000040000000100000001610000000c0000000100000004fffffffb"],
            &["000000040000000100000001610000000c000000010000000400000005"],
        ],
    ),
    (
        "vector<float, 2>",
        &[
            &["bf80000040000000"],
            &["8000000000000000"],
            &["0000000000000000"],
            &["3f800000c0000000"],
            &["3f80000040000000"],
        ],
    ),
    ("vector<text, 2>", &[&["0000"], &["000162"], &["016100"], &["01610162"], &["0261610161"], &["016200"]]),
    (
        "vector<int, 2>",
        &[&["ffffffff00000002"], &["0000000000000000"], &["00000001fffffffe"], &["0000000100000002"]],
    ),
];

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn values_sort_as_in_cassandra() {
    for (text, groups) in GOLDEN {
        let ty = parse_type(text, &|_| None).unwrap();
        let comparator = Comparator::of(&ty);
        let reversed = Comparator::of_clustering(&ty, true);
        let ranked: Vec<(usize, Vec<u8>)> = groups
            .iter()
            .enumerate()
            .flat_map(|(rank, group)| group.iter().map(move |hex| (rank, bytes(hex))))
            .collect();
        for (rank_a, a) in &ranked {
            for (rank_b, b) in &ranked {
                let expected = rank_a.cmp(rank_b);
                assert_eq!(compare(&ty, a, b), expected, "{text} {a:02x?} {b:02x?}");
                assert_eq!(comparator.compare(a, b), expected, "{text} {a:02x?} {b:02x?}");
                assert_eq!(reversed.compare(a, b), expected.reverse(), "{text} {a:02x?} {b:02x?}");
            }
        }
    }
}

#[test]
fn user_types_order_as_tuples() {
    let udt = crate::types::tests::address(vec![CqlType::Int, CqlType::Text], true);
    let tuple = CqlType::Tuple(vec![CqlType::Int, CqlType::Text]);
    let values =
        ["", "00000004ffffffff", "0000000400000001", "ffffffff", "0000000400000001ffffffff"].map(bytes);
    for a in &values {
        for b in &values {
            assert_eq!(compare(&udt, a, b), compare(&tuple, a, b), "{a:02x?} {b:02x?}");
        }
    }
}

#[test]
fn byte_order_is_known_where_it_holds() {
    for (ty, expected) in [(CqlType::Text, true), (CqlType::Date, true), (CqlType::Int, false)] {
        assert_eq!(Comparator::of(&ty).is_byte_order(), expected, "{ty}");
    }
}

/// Bytes that often have the shape of a value: lengths and counts are small, versions are 1.
#[allow(clippy::disallowed_types, reason = "prop_oneof! expands to std::sync::Arc")]
fn any_value() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => prop::sample::select(vec![0_u8, 0, 0, 1, 2, 4, 8, 0x10, 0x7f, 0x80, 0xff]),
        1 => any::<u8>(),
    ];
    let number = prop_oneof![-1_i32..4, Just(0), Just(i32::MIN), Just(8), Just(16)]
        .prop_map(|n| n.to_be_bytes().to_vec());
    let piece = prop_oneof![number, prop::collection::vec(byte.clone(), 0..5)];
    prop_oneof![
        prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat()),
        prop::collection::vec(byte.clone(), 8),
        prop::collection::vec(byte, 16),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_order_is_total_on_any_bytes(ty in any_type(), values in prop::collection::vec(any_value(), 3)) {
        let comparator = Comparator::of(&ty);
        let order = |a: usize, b: usize| compare(&ty, &values[a], &values[b]);
        for a in 0..3 {
            prop_assert_eq!(order(a, a), Ordering::Equal);
            for b in 0..3 {
                prop_assert_eq!(order(a, b), order(b, a).reverse());
                prop_assert_eq!(comparator.compare(&values[a], &values[b]), order(a, b));
                for c in 0..3 {
                    if order(a, b).is_le() && order(b, c).is_le() {
                        prop_assert!(order(a, c).is_le());
                        if order(a, b).is_lt() || order(b, c).is_lt() {
                            prop_assert!(order(a, c).is_lt());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_empty_value_comes_first(ty in any_type(), value in any_value()) {
        prop_assert!(compare(&ty, &[], &value).is_le());
    }

    #[test]
    fn integers_order_by_value(a: i64, b: i64, shift in 0_u32..64) {
        let (a, b) = (a >> shift, b >> shift);
        prop_assert_eq!(compare(&CqlType::Bigint, &a.to_be_bytes(), &b.to_be_bytes()), a.cmp(&b));
        let (a, b) = (a as i32, b as i32);
        prop_assert_eq!(compare(&CqlType::Int, &a.to_be_bytes(), &b.to_be_bytes()), a.cmp(&b));
        let (a, b) = (a as i16, b as i16);
        prop_assert_eq!(compare(&CqlType::Smallint, &a.to_be_bytes(), &b.to_be_bytes()), a.cmp(&b));
    }

    #[test]
    fn floats_order_by_value(a: f64, b: f64) {
        let expected = a.partial_cmp(&b);
        if let Some(expected) = expected.filter(|order| order.is_ne()) {
            prop_assert_eq!(compare(&CqlType::Double, &a.to_be_bytes(), &b.to_be_bytes()), expected);
        }
    }
}
