//! Types print and freeze, and have sizes, as in Cassandra.

use proptest::prelude::*;

use super::*;
use crate::type_parser::parse_type;

/// A UDT named `Addr` for types that need one.
pub(crate) fn address(fields: Vec<CqlType>, frozen: bool) -> CqlType {
    let fields = fields.into_iter().enumerate().map(|(index, ty)| (format!("f{index}"), ty)).collect();
    CqlType::Udt(Box::new(UserType { keyspace: "ks".into(), name: "Addr".into(), fields, frozen }))
}

/// Any type that a column can have: parts of collections, tuples and vectors are frozen.
#[allow(clippy::disallowed_types, reason = "prop_oneof! expands to std::sync::Arc")]
pub(crate) fn any_type() -> impl Strategy<Value = CqlType> {
    let scalar = prop::sample::select(vec![
        CqlType::Ascii,
        CqlType::Bigint,
        CqlType::Blob,
        CqlType::Boolean,
        CqlType::Date,
        CqlType::Decimal,
        CqlType::Double,
        CqlType::Duration,
        CqlType::Float,
        CqlType::Inet,
        CqlType::Int,
        CqlType::Smallint,
        CqlType::Text,
        CqlType::Time,
        CqlType::Timestamp,
        CqlType::Timeuuid,
        CqlType::Tinyint,
        CqlType::Uuid,
        CqlType::Varint,
        CqlType::Empty,
        CqlType::Custom(format!("{}LexicalUUIDType", marshal::PACKAGE)),
        CqlType::Custom("com.example.Thing(a=>b,(c))".into()),
    ]);
    scalar.prop_recursive(3, 12, 3, |inner| {
        let frozen = inner.prop_map(|ty| Box::new(ty.freeze()));
        let many = prop::collection::vec(frozen.clone().prop_map(|ty| *ty), 1..4);
        prop_oneof![
            (frozen.clone(), any::<bool>()).prop_map(|(element, frozen)| CqlType::List { element, frozen }),
            (frozen.clone(), any::<bool>()).prop_map(|(element, frozen)| CqlType::Set { element, frozen }),
            (frozen.clone(), frozen.clone(), any::<bool>()).prop_map(|(key, value, frozen)| CqlType::Map {
                key,
                value,
                frozen
            }),
            many.clone().prop_map(CqlType::Tuple),
            (many, any::<bool>()).prop_map(|(fields, frozen)| address(fields, frozen)),
            (frozen.prop_filter("elements with bytes", |ty| ty.fixed_value_length() != Some(0)), 1_u32..4)
                .prop_map(|(element, dimension)| CqlType::Vector { element, dimension }),
        ]
    })
}

type Golden = (&'static str, &'static str, bool, Option<usize>, bool, bool);

/// A class name, where `~` stands for the package; the CQL text; whether multi-cell; length if fixed; whether
/// the empty value is allowed; whether it means nothing. Printed by Apache Cassandra 5.0.6 (`AbstractType`).
pub(crate) const GOLDEN: [Golden; 49] = [
    ("~AsciiType", "ascii", false, None, true, false),
    ("~LongType", "bigint", false, Some(8), true, true),
    ("~BytesType", "blob", false, None, true, false),
    ("~BooleanType", "boolean", false, Some(1), true, true),
    ("~CounterColumnType", "counter", false, None, true, true),
    ("~SimpleDateType", "date", false, None, false, false),
    ("~DecimalType", "decimal", false, None, true, true),
    ("~DoubleType", "double", false, Some(8), true, true),
    ("~DurationType", "duration", false, None, false, false),
    ("~EmptyType", "empty", false, Some(0), false, false),
    ("~FloatType", "float", false, Some(4), true, true),
    ("~InetAddressType", "inet", false, None, true, true),
    ("~Int32Type", "int", false, Some(4), true, true),
    ("~ShortType", "smallint", false, None, false, false),
    ("~UTF8Type", "text", false, None, true, false),
    ("~TimeType", "time", false, None, false, false),
    ("~TimestampType", "timestamp", false, Some(8), true, true),
    ("~TimeUUIDType", "timeuuid", false, Some(16), true, true),
    ("~ByteType", "tinyint", false, None, false, false),
    ("~UUIDType", "uuid", false, Some(16), true, true),
    ("~IntegerType", "varint", false, None, true, true),
    ("~ListType(~Int32Type)", "list<int>", true, None, false, false),
    ("~FrozenType(~ListType(~Int32Type))", "frozen<list<int>>", false, None, false, false),
    ("~SetType(~UUIDType)", "set<uuid>", true, None, false, false),
    ("~FrozenType(~SetType(~UUIDType))", "frozen<set<uuid>>", false, None, false, false),
    (
        "~MapType(~UTF8Type,~FrozenType(~ListType(~Int32Type)))",
        "map<text, frozen<list<int>>>",
        true,
        None,
        false,
        false,
    ),
    (
        "~FrozenType(~MapType(~UTF8Type,~ListType(~Int32Type)))",
        "frozen<map<text, frozen<list<int>>>>",
        false,
        None,
        false,
        false,
    ),
    (
        "~ListType(~FrozenType(~SetType(~MapType(~UTF8Type,~ListType(~Int32Type)))))",
        "list<frozen<set<frozen<map<text, frozen<list<int>>>>>>>",
        true,
        None,
        false,
        false,
    ),
    ("~TupleType(~Int32Type,~UTF8Type)", "frozen<tuple<int, text>>", false, None, true, false),
    (
        "~TupleType(~ListType(~Int32Type),~MapType(~UTF8Type,~DoubleType))",
        "frozen<tuple<frozen<list<int>>, frozen<map<text, double>>>>",
        false,
        None,
        true,
        false,
    ),
    (
        "~ListType(~TupleType(~ListType(~Int32Type),~LongType))",
        "list<frozen<tuple<frozen<list<int>>, bigint>>>",
        true,
        None,
        false,
        false,
    ),
    (
        "~UserType(ks,41646472,6630:~Int32Type,6631:~FrozenType(~ListType(~Int32Type)),6632:~UTF8Type)",
        "\"Addr\"",
        true,
        None,
        true,
        false,
    ),
    (
        "~FrozenType(~UserType(ks,41646472,6630:~Int32Type,6631:~ListType(~Int32Type)))",
        "frozen<\"Addr\">",
        false,
        None,
        true,
        false,
    ),
    (
        "~MapType(~Int32Type,~FrozenType(~UserType(ks,41646472,6630:~Int32Type,6631:~ListType(~Int32Type))))",
        "map<int, frozen<\"Addr\">>",
        true,
        None,
        false,
        false,
    ),
    (
        "~TupleType(~UserType(ks,41646472,6630:~Int32Type,6631:~ListType(~Int32Type)))",
        "frozen<tuple<frozen<\"Addr\">>>",
        false,
        None,
        true,
        false,
    ),
    (
        "~UserType(ks,41646472,6630:~FrozenType(~UserType(ks,41646472,6630:~Int32Type)))",
        "\"Addr\"",
        true,
        None,
        true,
        false,
    ),
    ("~VectorType(~FloatType , 3)", "vector<float, 3>", false, Some(12), false, false),
    ("~VectorType(~UTF8Type , 2)", "vector<text, 2>", false, None, false, false),
    (
        "~VectorType(~FrozenType(~ListType(~Int32Type)) , 2)",
        "vector<frozen<list<int>>, 2>",
        false,
        None,
        false,
        false,
    ),
    (
        "~VectorType(~VectorType(~UUIDType , 2) , 3)",
        "vector<vector<uuid, 2>, 3>",
        false,
        Some(96),
        false,
        false,
    ),
    ("~VectorType(~ByteType , 2)", "vector<tinyint, 2>", false, None, false, false),
    (
        "~ListType(~VectorType(~FrozenType(~ListType(~Int32Type)) , 2))",
        "list<vector<frozen<list<int>>, 2>>",
        true,
        None,
        false,
        false,
    ),
    (
        "~FrozenType(~ListType(~VectorType(~ListType(~Int32Type) , 2)))",
        "frozen<list<vector<frozen<list<int>>, 2>>>",
        false,
        None,
        false,
        false,
    ),
    ("~LexicalUUIDType", "'~LexicalUUIDType'", false, Some(16), true, true),
    (
        "~DynamicCompositeType(a=>~UTF8Type)",
        "'~DynamicCompositeType(a=>~UTF8Type)'",
        false,
        None,
        true,
        false,
    ),
    ("~ReversedType(~Int32Type)", "int", false, Some(4), true, true),
    ("~ReversedType(~FrozenType(~ListType(~Int32Type)))", "frozen<list<int>>", false, None, false, false),
    (
        "~ReversedType(~TupleType(~ListType(~Int32Type)))",
        "frozen<tuple<frozen<list<int>>>>",
        false,
        None,
        true,
        false,
    ),
    (
        "~CompositeType(~Int32Type,~FrozenType(~ListType(~Int32Type)))",
        "'~CompositeType(~Int32Type,~FrozenType(~ListType(~Int32Type)))'",
        false,
        None,
        true,
        false,
    ),
];

#[test]
fn properties_are_cassandras() {
    for (class, text, multi_cell, fixed_length, allows_empty, empty_meaningless) in GOLDEN {
        let class = class.replace('~', marshal::PACKAGE);
        if class.contains("marshal.CompositeType(") {
            continue; // A key of several columns, not a type of ours.
        }
        let (ty, _) = marshal::parse_class(&class).unwrap();
        assert_eq!(ty.to_string(), text.replace('~', marshal::PACKAGE), "{class}");
        assert_eq!(ty.is_multi_cell(), multi_cell, "{class}");
        assert_eq!(ty.fixed_value_length(), fixed_length, "{class}");
        assert_eq!(ty.allows_empty(), allows_empty, "{class}");
        assert_eq!(ty.is_empty_value_meaningless(), empty_meaningless, "{class}");
    }
}

#[test]
fn cells_of_multi_cell_columns_have_paths_and_values() {
    let list = |frozen| CqlType::List { element: Box::new(CqlType::Int), frozen };
    let set = CqlType::Set { element: Box::new(CqlType::Text), frozen: false };
    let map = CqlType::Map { key: Box::new(CqlType::Int), value: Box::new(CqlType::Text), frozen: false };
    let udt = address(vec![CqlType::Int, CqlType::Text], false);
    for (ty, path_type, path, value_type) in [
        (&CqlType::Int, None, &[][..], Some(&CqlType::Int)),
        (&list(true), None, &[], Some(&list(true))),
        (&list(false), Some(&CqlType::Timeuuid), &[], Some(&CqlType::Int)),
        (&set, Some(&CqlType::Text), b"x", Some(&CqlType::Empty)),
        (&map, Some(&CqlType::Int), &[0, 0, 0, 1], Some(&CqlType::Text)),
        (&udt, Some(&CqlType::Smallint), &[0, 1], Some(&CqlType::Text)),
        (&udt, Some(&CqlType::Smallint), &[0, 2], None),
        (&udt, Some(&CqlType::Smallint), &[0xff, 0xff], None),
        (&udt, Some(&CqlType::Smallint), &[1], None),
    ] {
        assert_eq!(ty.cell_path_type(), path_type, "{ty}");
        assert_eq!(ty.cell_value_type(path), value_type, "{ty}");
    }
}

#[test]
fn references_are_found_at_any_depth() {
    let inner = address(vec![CqlType::Duration], true);
    let ty = CqlType::Map {
        key: Box::new(CqlType::Int),
        value: Box::new(CqlType::Tuple(vec![CqlType::Vector { element: Box::new(inner), dimension: 2 }])),
        frozen: false,
    };
    assert!(ty.references_udt("ks", "Addr") && ty.references_duration());
    assert!(!ty.references_udt("ks", "addr") && !ty.references_udt("other", "Addr"));
    assert!(!CqlType::Int.references_duration());
    assert!(CqlType::Counter.is_counter() && !CqlType::Bigint.is_counter());
    assert!(ty.is_collection() && !CqlType::Tuple(vec![]).is_collection());
}

proptest! {
    #[test]
    fn frozen_types_are_single_cells_and_freezing_again_changes_nothing(ty in any_type()) {
        let frozen = ty.clone().freeze();
        prop_assert!(!frozen.is_multi_cell());
        prop_assert_eq!(frozen.clone().freeze(), frozen);
    }

    #[test]
    fn printed_types_parse_back(ty in any_type()) {
        let text = ty.to_string();
        // Several user types of one name may occur in one type here; the text cannot distinguish them.
        prop_assume!(text.matches("Addr").count() <= 1);
        let found = std::cell::RefCell::new(None);
        ty.any(&|part| {
            if let CqlType::Udt(udt) = part {
                found.borrow_mut().get_or_insert_with(|| (**udt).clone());
            }
            false
        });
        let udt = found.into_inner();
        prop_assert_eq!(parse_type(&text, &|name| udt.clone().filter(|udt| udt.name == name)), Ok(ty));
    }
}
