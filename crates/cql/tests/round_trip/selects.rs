//! Generates SELECT statements of the shapes the grammar has.

use cql::ast::*;
use proptest::prelude::*;

use crate::terms::*;

#[derive(Clone, Debug)]
enum Access {
    Field(Ident),
    Element(Term),
    Slice(Option<Term>, Option<Term>),
}

fn accesses() -> BoxedStrategy<Vec<Access>> {
    let access = prop_oneof![
        name().prop_map(Access::Field),
        term().prop_map(Access::Element),
        term().prop_map(|from| Access::Slice(Some(from), None)),
        term().prop_map(|to| Access::Slice(None, Some(to))),
        (term(), term()).prop_map(|(from, to)| Access::Slice(Some(from), Some(to))),
    ];
    prop_oneof![3 => Just(()).prop_map(|()| Vec::new()), 1 => prop::collection::vec(access.boxed(), 1..3)]
        .boxed()
}

fn accessed(receiver: Selectable, accesses: Vec<Access>) -> Selectable {
    accesses.into_iter().fold(receiver, |receiver, access| {
        let receiver = Box::new(receiver);
        match access {
            Access::Field(field) => Selectable::Field { receiver, field },
            Access::Element(key) => Selectable::Element { receiver, key },
            Access::Slice(from, to) => Selectable::Slice { receiver, from, to },
        }
    })
}

fn chain(item: BoxedStrategy<Selectable>, multiplicative: bool) -> BoxedStrategy<Selectable> {
    let rest = prop::collection::vec((operator(multiplicative), item.clone()), 0..2);
    (item, rest)
        .prop_map(|(first, rest)| {
            rest.into_iter().fold(first, |left, (operator, right)| Selectable::Arithmetic {
                operator,
                left: Box::new(left),
                right: Box::new(right),
            })
        })
        .boxed()
}

/// An expression with operators and accesses around those without. An expression that ends in a parenthesis
/// that could be a type hint gets no accesses: `(a)[0]` is the list `[0]` with the type hint `a`.
fn sum(simple: BoxedStrategy<Selectable>) -> BoxedStrategy<Selectable> {
    let group = (simple, accesses()).prop_map(|(receiver, accesses)| match receiver {
        Selectable::Tuple(_) | Selectable::TypeHint { .. } => receiver,
        _ => accessed(receiver, accesses),
    });
    let group = group.boxed();
    let negated = (group.clone(), 1..4_usize).prop_map(|(operand, times)| {
        (0..times).fold(operand, |operand, _| Selectable::Negate(Box::new(operand)))
    });
    chain(chain(prop_oneof![8 => group, 1 => negated].boxed(), true), false)
}

fn selectable() -> BoxedStrategy<Selectable> {
    use CellFunction::*;
    let cell = prop::sample::select(&[WriteTime, MaxWriteTime, TimeToLive][..]);
    let leaf = prop_oneof![
        6 => name().prop_map(Selectable::Column),
        2 => constant_or_null().prop_map(Selectable::Constant),
        1 => marker().prop_map(Selectable::BindMarker),
        1 => Just(Selectable::CountRows),
        1 => (cell, name(), accesses()).prop_map(|(function, column, accesses)| Selectable::Cell {
            function,
            operand: Box::new(accessed(Selectable::Column(column), accesses)),
        }),
    ];
    let simple = leaf.prop_recursive(2, 8, 2, |simple| {
        let item = sum(simple.clone().boxed());
        prop_oneof![
            (item.clone(), native())
                .prop_map(|(operand, target)| Selectable::Cast { operand: Box::new(operand), target }),
            (qualified(), prop::collection::vec(item.clone(), 0..3))
                .prop_map(|(name, arguments)| Selectable::Function { name, arguments }),
            (type_name(), simple).prop_map(|(type_name, operand)| Selectable::TypeHint {
                type_name,
                operand: Box::new(operand)
            }),
            prop::collection::vec(item.clone(), 0..3).prop_map(Selectable::List),
            prop::collection::vec(item.clone(), 1..3).prop_map(Selectable::Set),
            prop::collection::vec((map_key(), item.clone()), 0..3).prop_map(Selectable::MapOrUserType),
            prop::collection::vec(item, 1..3).prop_map(Selectable::Tuple),
        ]
    });
    sum(simple.boxed())
}

/// A map's key: nothing in parentheses, for `{(a): b}` holds the marker `:b` taken for an `a`.
fn map_key() -> BoxedStrategy<Selectable> {
    prop_oneof![name().prop_map(Selectable::Column), constant_or_null().prop_map(Selectable::Constant)]
        .boxed()
}

pub(crate) fn selection() -> BoxedStrategy<Selection> {
    let selector = (selectable(), prop::option::of(name()))
        .prop_map(|(expression, alias)| Selector { expression, alias });
    prop_oneof![
        1 => Just(Selection::Wildcard),
        4 => prop::collection::vec(selector, 1..3).prop_map(Selection::Selectors),
    ]
    .boxed()
}

fn direction() -> BoxedStrategy<Direction> {
    prop_oneof![Just(Direction::Ascending), Just(Direction::Descending)].boxed()
}

fn ordering() -> BoxedStrategy<Ordering> {
    let by = prop_oneof![
        column().prop_map(OrderingExpression::Column),
        (column(), term()).prop_map(|(column, target)| OrderingExpression::Ann { column, target }),
        column_function().prop_map(OrderingExpression::Function),
    ];
    (by, direction()).prop_map(|(by, direction)| Ordering { by, direction }).boxed()
}

pub(crate) fn select() -> BoxedStrategy<Select> {
    let source = prop_oneof![
        4 => qualified().prop_map(SelectSource::Table),
        1 => qualified().prop_map(SelectSource::MutationFragments),
    ];
    let attribute = prop_oneof![timeout(), name().prop_map(Attribute::ServiceLevel)];
    let head = (any::<bool>(), any::<bool>(), selection(), source, prop::option::of(where_clause()));
    let order = (prop::collection::vec(selectable(), 0..2), prop::collection::vec(ordering(), 0..3));
    let limits = (prop::option::of(count()), prop::option::of(count()), any::<bool>(), any::<bool>());
    let with_source = (head, order, limits, prop::collection::vec(attribute, 0..2)).prop_map(
        |((json, distinct, selection, source, where_clause), (group_by, order_by), limits, attributes)| {
            let (per_partition_limit, limit, allow_filtering, bypass_cache) = limits;
            Select {
                json,
                distinct,
                selection,
                source,
                where_clause,
                group_by,
                order_by,
                per_partition_limit,
                limit,
                allow_filtering,
                bypass_cache,
                attributes,
            }
        },
    );
    (with_source, any::<bool>())
        .prop_map(|(select, without)| if without { without_source(select) } else { select })
        .boxed()
}

/// The same selection without a table, if it names no column.
fn without_source(select: Select) -> Select {
    let Selection::Selectors(selectors) = &select.selection else { return select };
    if selectors.iter().any(|selector| selector.expression.names_column()) {
        return select;
    }
    Select {
        source: SelectSource::Nothing,
        where_clause: None,
        group_by: Vec::new(),
        order_by: Vec::new(),
        per_partition_limit: None,
        limit: None,
        allow_filtering: false,
        bypass_cache: false,
        attributes: Vec::new(),
        ..select
    }
}
