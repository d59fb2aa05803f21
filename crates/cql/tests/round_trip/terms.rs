//! Generates names, types, constants, terms and WHERE clauses of the shapes the grammar has.

use cql::ast::*;
use proptest::prelude::*;

/// A name: plain, a keyword, or one that needs quotes.
pub(crate) fn name() -> BoxedStrategy<Ident> {
    prop_oneof![
        6 => "[a-z][a-z0-9_]{0,5}".prop_filter("kept by the grammar", |text| {
            !["byte", "complex", "enum", "macaddr"].contains(&text.as_str())
        }),
        1 => prop::sample::select(&["key", "select", "type", "text", "as", "token", "ttl", "expr", "json", "set"][..])
            .prop_map(str::to_owned),
        1 => "[A-Za-z0-9 \"'é$]{1,5}",
    ]
    .prop_map(Ident::new)
    .boxed()
}

/// A column's name, `""` included.
pub(crate) fn column() -> BoxedStrategy<Ident> {
    prop_oneof![20 => name(), 1 => Just(Ident::new(""))].boxed()
}

pub(crate) fn qualified() -> BoxedStrategy<QualifiedName> {
    (prop::option::of(name()), name()).prop_map(|(keyspace, name)| QualifiedName { keyspace, name }).boxed()
}

pub(crate) fn names(size: std::ops::Range<usize>) -> BoxedStrategy<Vec<Ident>> {
    prop::collection::vec(name(), size).boxed()
}

pub(crate) fn text() -> BoxedStrategy<String> {
    "[a-zA-Z0-9 '\"$\né;-]{0,6}".boxed()
}

pub(crate) fn native() -> BoxedStrategy<NativeType> {
    prop::sample::select(&NativeType::ALL[..]).boxed()
}

pub(crate) fn type_name() -> BoxedStrategy<TypeName> {
    let leaf = prop_oneof![
        5 => native().prop_map(TypeName::Native),
        1 => qualified().prop_map(TypeName::User),
        1 => text().prop_map(TypeName::Custom),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            boxed.clone().prop_map(TypeName::List),
            boxed.clone().prop_map(TypeName::Set),
            (boxed.clone(), boxed.clone()).prop_map(|(key, value)| TypeName::Map(key, value)),
            prop::collection::vec(inner, 1..3).prop_map(TypeName::Tuple),
            (boxed.clone(), any::<i32>()).prop_map(|(element, size)| TypeName::Vector(element, size)),
            boxed.prop_filter_map("only these freeze", |inner| match *inner {
                TypeName::Native(_) | TypeName::Custom(_) => None,
                _ => Some(TypeName::Frozen(inner)),
            }),
        ]
    })
    .boxed()
}

pub(crate) fn constant() -> BoxedStrategy<Constant> {
    let of = |kind: ConstantKind| move |text: String| Constant::new(kind, text);
    prop_oneof![
        text().prop_map(of(ConstantKind::String)),
        "-?[0-9]{1,12}".prop_map(of(ConstantKind::Integer)),
        "-?[0-9]{1,3}(\\.[0-9]{0,3})?[eE][+-]?[0-9]{1,2}".prop_map(of(ConstantKind::Float)),
        "-?[0-9]{1,3}\\.[0-9]{1,3}".prop_map(of(ConstantKind::Float)),
        "-?(NaN|Infinity)".prop_map(of(ConstantKind::Float)),
        "true|FALSE".prop_map(of(ConstantKind::Boolean)),
        "[0-9a-fA-F]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}".prop_map(of(ConstantKind::Uuid)),
        "0[xX][0-9a-fA-F]{0,6}".prop_map(of(ConstantKind::Hex)),
        "-?([0-9]{1,3}(y|mo|w|d|h|m|s|ms|us|µs|ns|Y)){1,3}".prop_map(of(ConstantKind::Duration)),
        "-?P[0-9]{1,2}(Y|M|D|W)".prop_map(of(ConstantKind::Duration)),
        "-?P[0-9]{1,2}Y[0-9]M[0-9]DT[0-9]H[0-9]M[0-9]S".prop_map(of(ConstantKind::Duration)),
        "-?P[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}".prop_map(of(ConstantKind::Duration)),
    ]
    .boxed()
}

pub(crate) fn constant_or_null() -> BoxedStrategy<Constant> {
    prop_oneof![10 => constant(), 1 => Just(Constant::null())].boxed()
}

pub(crate) fn marker() -> BoxedStrategy<BindMarker> {
    prop::option::of(name()).prop_map(|name| BindMarker { index: 0, name }).boxed()
}

/// An integer literal or a marker.
pub(crate) fn count() -> BoxedStrategy<Term> {
    prop_oneof![
        any::<i32>().prop_map(|n| Term::Constant(Constant::new(ConstantKind::Integer, n.to_string()))),
        marker().prop_map(Term::BindMarker),
    ]
    .boxed()
}

pub(crate) fn operator(multiplicative: bool) -> BoxedStrategy<ArithmeticOperator> {
    use ArithmeticOperator::*;
    if multiplicative {
        prop_oneof![Just(Multiply), Just(Divide), Just(Modulo)].boxed()
    } else {
        prop_oneof![Just(Add), Just(Subtract)].boxed()
    }
}

/// `first op next op next …`, grouped to the left.
fn chain(item: BoxedStrategy<Term>, multiplicative: bool) -> BoxedStrategy<Term> {
    let rest = prop::collection::vec((operator(multiplicative), item.clone()), 0..2);
    (item, rest)
        .prop_map(|(first, rest)| {
            rest.into_iter().fold(first, |left, (operator, right)| Term::Arithmetic {
                operator,
                left: Box::new(left),
                right: Box::new(right),
            })
        })
        .boxed()
}

/// A value with operators around values without.
fn sum(simple: BoxedStrategy<Term>) -> BoxedStrategy<Term> {
    let negated = simple.clone().prop_map(|operand| Term::Negate(Box::new(operand)));
    let group = prop_oneof![8 => simple, 1 => negated].boxed();
    chain(chain(group, true), false)
}

pub(crate) fn simple_term() -> BoxedStrategy<Term> {
    let leaf = prop_oneof![
        4 => constant_or_null().prop_map(Term::Constant),
        1 => marker().prop_map(Term::BindMarker),
    ];
    leaf.prop_recursive(2, 8, 2, |simple| {
        let item = sum(simple.clone().boxed());
        let boxed = simple.prop_map(Box::new);
        prop_oneof![
            prop::collection::vec(item.clone(), 0..3).prop_map(Term::List),
            prop::collection::vec(item.clone(), 0..3).prop_map(Term::Set),
            prop::collection::vec((item.clone(), item.clone()), 1..3).prop_map(Term::Map),
            prop::collection::vec(item.clone(), 1..3).prop_map(Term::Tuple),
            prop::collection::vec((name(), item.clone()), 1..3).prop_map(Term::UserType),
            (qualified(), prop::collection::vec(item, 0..3))
                .prop_map(|(name, arguments)| Term::Function(FunctionCall { name, arguments })),
            (type_name(), boxed.clone())
                .prop_map(|(type_name, operand)| Term::TypeHint { type_name, operand }),
            (boxed, native()).prop_map(|(operand, target)| Term::Cast { operand, target }),
        ]
    })
    .boxed()
}

pub(crate) fn term() -> BoxedStrategy<Term> {
    sum(simple_term())
}

pub(crate) fn comparison() -> BoxedStrategy<ComparisonOperator> {
    use ComparisonOperator::*;
    prop::sample::select(&[Equal, Less, LessOrEqual, Greater, GreaterOrEqual, NotEqual][..]).boxed()
}

pub(crate) fn in_values() -> BoxedStrategy<InValues> {
    prop_oneof![
        marker().prop_map(InValues::Marker),
        prop::collection::vec(term(), 0..3).prop_map(InValues::List),
    ]
    .boxed()
}

fn tuple() -> BoxedStrategy<Term> {
    prop::collection::vec(term(), 1..3).prop_map(Term::Tuple).boxed()
}

pub(crate) fn column_function() -> BoxedStrategy<ColumnFunction> {
    (name(), name(), prop::collection::vec(term(), 0..2))
        .prop_map(|(name, column, arguments)| ColumnFunction {
            name: QualifiedName::bare(name),
            column,
            arguments,
        })
        .boxed()
}

fn relation() -> BoxedStrategy<Relation> {
    let element = (column(), term()).prop_map(|(column, key)| RelationTarget::Element { column, key });
    let columns = || prop::collection::vec(column(), 1..3).prop_map(RelationTarget::Columns);
    let token = || prop::collection::vec(column(), 1..3).prop_map(RelationTarget::Token);
    let one = || column().prop_map(RelationTarget::Column);
    let scored = column_function().prop_map(|function| {
        let name = QualifiedName::bare(Ident::new("bm25"));
        RelationTarget::Function(ColumnFunction { name, ..function })
    });
    let compared = prop_oneof![one(), token(), element.clone(), scored];
    let between = prop_oneof![one(), token(), element, columns()];
    let tuple_or_marker = prop_oneof![tuple(), marker().prop_map(Term::BindMarker)];
    let tuple_in = prop_oneof![
        marker().prop_map(InValues::Marker),
        prop::collection::vec(tuple(), 0..3).prop_map(InValues::List),
        prop::collection::vec(marker().prop_map(Term::BindMarker), 1..3).prop_map(InValues::List),
    ];
    prop_oneof![
        4 => (compared, comparison(), term())
            .prop_map(|(target, operator, value)| Relation::Compare { target, operator, value }),
        1 => (columns(), comparison(), tuple_or_marker)
            .prop_map(|(target, operator, value)| Relation::Compare { target, operator, value }),
        1 => (one(), any::<bool>(), in_values())
            .prop_map(|(target, negated, values)| Relation::In { target, negated, values }),
        1 => (columns(), any::<bool>(), tuple_in)
            .prop_map(|(target, negated, values)| Relation::In { target, negated, values }),
        1 => (between, term(), term()).prop_map(|(target, low, high)| Relation::Between { target, low, high }),
        1 => (column(), any::<bool>(), any::<bool>(), term())
            .prop_map(|(column, negated, key, value)| Relation::Contains { column, negated, key, value }),
        1 => (column(), term()).prop_map(|(column, pattern)| Relation::Like { column, pattern }),
        1 => column().prop_map(|column| Relation::IsNotNull { column }),
        1 => (name(), term()).prop_map(|(index, value)| Relation::CustomIndex { index, value }),
    ]
    .boxed()
}

pub(crate) fn where_clause() -> BoxedStrategy<WhereClause> {
    prop::collection::vec(relation(), 1..3).prop_map(|relations| WhereClause { relations }).boxed()
}

/// A duration literal or a marker.
pub(crate) fn timeout() -> BoxedStrategy<Attribute> {
    prop_oneof![
        Just(Term::Constant(Constant::new(ConstantKind::Duration, "50ms"))),
        marker().prop_map(Term::BindMarker),
    ]
    .prop_map(Attribute::Timeout)
    .boxed()
}
