//! Class names compared with those that Cassandra writes.

use proptest::prelude::*;

use super::*;
use crate::types::tests::{GOLDEN, any_type};

fn long(class: &str) -> String {
    class.replace('~', PACKAGE)
}

#[test]
fn classes_are_written_as_cassandra_writes_them_after_being_read() {
    for (class, ..) in GOLDEN {
        let class = long(class);
        if class.contains("marshal.CompositeType(") {
            assert_eq!(key_class_name(&parse_key_class(&class).unwrap()), class);
        } else {
            let (ty, reversed) = parse_class(&class).unwrap();
            assert_eq!(class_name(&ty, reversed), class);
        }
    }
}

#[test]
fn partition_keys_are_one_class_or_a_composite() {
    for (class, columns) in [
        ("~Int32Type", vec![CqlType::Int]),
        ("~CompositeType(~Int32Type,~UTF8Type)", vec![CqlType::Int, CqlType::Text]),
    ] {
        assert_eq!(parse_key_class(&long(class)), Ok(columns.clone()));
        assert_eq!(key_class_name(&columns), long(class));
    }
    assert_eq!(parse_key_class("CompositeType(Int32Type , UTF8Type)"), Ok(vec![CqlType::Int, CqlType::Text]));
    assert!(parse_key_class("CompositeType()").is_err());
}

#[test]
fn short_names_blanks_and_unknown_classes_are_read() {
    let list = CqlType::List { element: Box::new(CqlType::Int), frozen: false };
    for (text, ty, reversed) in [
        ("UTF8Type", CqlType::Text, false),
        (" ListType( Int32Type )", list, false),
        ("ReversedType(TimeUUIDType)", CqlType::Timeuuid, true),
        ("TupleType()", CqlType::Tuple(vec![]), false),
        ("GeoType", CqlType::Custom(long("~GeoType")), false),
        ("com.example.Geo(a=>x,(b))", CqlType::Custom("com.example.Geo(a=>x,(b))".into()), false),
        (
            "VectorType(FloatType,2)",
            CqlType::Vector { element: Box::new(CqlType::Float), dimension: 2 },
            false,
        ),
    ] {
        assert_eq!(parse_class(text), Ok((ty.clone(), reversed)), "{text}");
        assert_eq!(parse_class(&class_name(&ty, reversed)), Ok((ty, reversed)), "{text}");
    }
}

#[test]
fn what_is_not_understood_is_refused_with_its_place() {
    let deep = "ListType(".repeat(NESTING_MAX + 1);
    for (text, at, problem) in [
        ("", 0, MarshalProblem::Expected("a class name")),
        ("ListType", 8, MarshalProblem::Expected("`(`")),
        ("ListType(", 9, MarshalProblem::Expected("a class name")),
        ("ListType(Int32Type", 18, MarshalProblem::Expected("a class name")),
        ("ListType()", 10, MarshalProblem::Expected("exactly one type")),
        ("ListType(Int32Type,Int32Type)", 29, MarshalProblem::Expected("exactly one type")),
        ("MapType(Int32Type)", 18, MarshalProblem::Expected("a key type and a value type")),
        ("Int32Type)", 9, MarshalProblem::Expected("the end")),
        ("UserType(ks,6z)", 12, MarshalProblem::Hex),
        ("UserType(ks,616)", 12, MarshalProblem::Hex),
        ("UserType(ks,ff)", 12, MarshalProblem::Hex),
        ("UserType(ks,61,62Int32Type)", 15, MarshalProblem::Hex),
        ("UserType(ks,61,62)", 17, MarshalProblem::Expected("`:`")),
        ("VectorType(FloatType , 0)", 23, MarshalProblem::Expected("a vector dimension above zero")),
        ("VectorType(FloatType , 2147483648)", 23, MarshalProblem::Expected("a vector dimension above zero")),
        (
            "VectorType(EmptyType , 2)",
            20,
            MarshalProblem::Expected("an element type whose values have bytes"),
        ),
        ("com.example.X(", 14, MarshalProblem::Expected("`)`")),
        (&deep, 9 * NESTING_MAX, MarshalProblem::TooDeep),
    ] {
        let error = parse_class(text).unwrap_err();
        assert_eq!((error.at, error.problem), (at, problem), "{text}");
    }
    let error = parse_class("ListType(é)").unwrap_err();
    assert_eq!(error.to_string(), "type class `ListType(é)`, byte 9: expected a class name");
}

#[test]
fn exact_names_say_what_is_frozen_in_vectors() {
    let list = |element, frozen| CqlType::List { element: Box::new(element), frozen };
    let vector = |element| CqlType::Vector { element: Box::new(element), dimension: 2 };
    for ty in [
        vector(list(CqlType::Int, false)),
        vector(list(CqlType::Int, true)),
        list(vector(list(CqlType::Int, false)), true),
        list(vector(list(CqlType::Int, true)), true),
        list(vector(vector(list(CqlType::Int, false))), false),
        CqlType::Tuple(vec![vector(list(CqlType::Int, false)), vector(list(CqlType::Int, true))]),
        list(CqlType::Int, true),
    ] {
        let name = exact_name(&ty);
        assert_eq!(parse_exact(&name), Ok(ty), "{name}");
    }
    // A type whose class name is exact already keeps that name.
    let plain = vector(list(CqlType::Int, true));
    assert_eq!(exact_name(&plain), class_name(&plain, false));
    assert!(
        parse_exact("=ListType(").is_err()
            && parse_class(&exact_name(&vector(list(CqlType::Int, false)))).is_err()
    );
}

proptest! {
    #[test]
    fn round_trips(ty in any_type(), reversed: bool) {
        let frozen = ty.freeze();
        prop_assert_eq!(parse_class(&class_name(&frozen, reversed)), Ok((frozen, reversed)));
    }

    #[test]
    fn multi_cell_types_round_trip(ty in any_type()) {
        prop_assert_eq!(parse_class(&class_name(&ty, false)), Ok((ty, false)));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(ListType|UserType|VectorType|MapType|[(),:é a-f0-9]|x\\(){0,12}") {
        let _ = parse_class(&text);
        let _ = parse_key_class(&text);
    }

    #[test]
    fn cut_or_changed_class_names_never_panic(ty in any_type(), at: prop::sample::Index, with in "[ -~é]?") {
        let name = class_name(&ty, false);
        let at = at.index(name.len());
        let _ = parse_class(&name[..at]);
        let _ = parse_class(&format!("{}{with}{}", &name[..at], &name[at + 1..]));
    }
}
