//! Generates statements that change the schema, USE and DESCRIBE.

use cql::ast::*;
use proptest::prelude::*;

use crate::selects::selection;
use crate::terms::*;

/// A property's map: keys unique by text.
pub(crate) fn property_map() -> BoxedStrategy<Vec<(Constant, PropertyItem)>> {
    let item = prop_oneof![
        constant().prop_map(PropertyItem::Constant),
        prop::collection::vec(constant(), 0..3).prop_map(PropertyItem::List),
    ];
    prop::collection::vec((constant(), item), 0..3)
        .prop_map(|mut entries| {
            let mut seen = Vec::new();
            entries.retain(|(key, _)| {
                let fresh = !seen.contains(&key.text);
                seen.push(key.text.clone());
                fresh
            });
            entries
        })
        .boxed()
}

/// Properties with unique names.
pub(crate) fn properties(size: std::ops::Range<usize>) -> BoxedStrategy<Vec<Property>> {
    let value = prop_oneof![
        constant().prop_map(PropertyValue::Constant),
        prop::sample::select(&["all", "KEYS", "int", "ttl"][..])
            .prop_map(|word| PropertyValue::Keyword(word.to_owned())),
        property_map().prop_map(PropertyValue::Map),
    ];
    prop::collection::vec(value, size)
        .prop_map(|values| {
            let numbered = values.into_iter().enumerate();
            numbered
                .map(|(number, value)| Property { name: Ident::new(format!("p{number}")), value })
                .collect()
        })
        .boxed()
}

fn mask() -> BoxedStrategy<ColumnMask> {
    let call = (qualified(), prop::collection::vec(term(), 0..3))
        .prop_map(|(name, arguments)| ColumnMask::Function(FunctionCall { name, arguments }));
    prop_oneof![Just(ColumnMask::Default), call].boxed()
}

fn column_definition(in_create: bool) -> BoxedStrategy<ColumnDefinition> {
    (name(), type_name(), any::<[bool; 3]>(), prop::option::of(mask()))
        .prop_map(move |(name, type_name, [is_static, expiry, key], mask)| ColumnDefinition {
            name,
            type_name,
            is_static,
            is_row_expiry: expiry && in_create,
            mask,
            is_primary_key: key && in_create,
        })
        .boxed()
}

fn primary_key() -> BoxedStrategy<PrimaryKey> {
    (names(1..3), names(0..3))
        .prop_map(|(partition, clustering)| PrimaryKey { partition, clustering })
        .boxed()
}

fn table_options() -> BoxedStrategy<Vec<TableOption>> {
    let direction = prop_oneof![Just(Direction::Ascending), Just(Direction::Descending)];
    let order = prop::collection::vec((name(), direction), 1..3).prop_map(TableOption::ClusteringOrder);
    let special = prop_oneof![Just(TableOption::CompactStorage), order];
    (properties(0..3), prop::collection::vec(special, 0..2))
        .prop_map(|(properties, special)| {
            properties.into_iter().map(TableOption::Property).chain(special).collect()
        })
        .boxed()
}

fn renamings() -> BoxedStrategy<Vec<(Ident, Ident)>> {
    prop::collection::vec((name(), name()), 1..3).boxed()
}

fn table_change() -> BoxedStrategy<AlterTableChange> {
    let timestamp = prop::option::of(any::<i64>().prop_map(|at| at.to_string()));
    prop_oneof![
        (column(), type_name())
            .prop_map(|(column, type_name)| AlterTableChange::ColumnType { column, type_name }),
        (any::<bool>(), column(), prop::option::of(mask()))
            .prop_map(|(if_exists, column, mask)| AlterTableChange::ColumnMask { if_exists, column, mask }),
        (any::<bool>(), prop::collection::vec(column_definition(false), 1..3))
            .prop_map(|(if_not_exists, columns)| AlterTableChange::Add { if_not_exists, columns }),
        (any::<bool>(), names(1..3), timestamp).prop_map(|(if_exists, columns, timestamp)| {
            AlterTableChange::Drop { if_exists, columns, timestamp }
        }),
        (any::<bool>(), renamings())
            .prop_map(|(if_exists, columns)| AlterTableChange::Rename { if_exists, columns }),
        Just(AlterTableChange::DropCompactStorage),
        properties(1..3).prop_map(AlterTableChange::Options),
        prop::option::of(name()).prop_map(AlterTableChange::RowExpiry),
    ]
    .boxed()
}

fn table() -> BoxedStrategy<Statement> {
    let element = prop_oneof![
        4 => column_definition(true).prop_map(TableElement::Column),
        1 => primary_key().prop_map(TableElement::PrimaryKey),
    ];
    let copied = (properties(0..2), names(0..2)).prop_map(|(properties, words)| {
        let words = words.into_iter().map(CopyOption::Include);
        words.chain(properties.into_iter().map(CopyOption::Property)).collect()
    });
    prop_oneof![
        (any::<bool>(), qualified(), prop::collection::vec(element, 1..4), table_options()).prop_map(
            |(if_not_exists, name, elements, options)| {
                Statement::CreateTable(CreateTable { if_not_exists, name, elements, options })
            }
        ),
        (any::<bool>(), qualified(), qualified(), copied).prop_map(
            |(if_not_exists, name, source, options)| {
                Statement::CreateTableLike(CreateTableLike { if_not_exists, name, source, options })
            }
        ),
        (any::<bool>(), qualified(), table_change()).prop_map(|(if_exists, name, change)| {
            Statement::AlterTable(AlterTable { if_exists, name, change })
        }),
        (any::<bool>(), qualified())
            .prop_map(|(if_exists, name)| Statement::DropTable(DropTable { if_exists, name })),
    ]
    .boxed()
}

fn view() -> BoxedStrategy<Statement> {
    let create = (
        (any::<bool>(), qualified(), selection(), qualified()),
        (prop::option::of(where_clause()), primary_key(), table_options()),
    );
    prop_oneof![
        create.prop_map(
            |((if_not_exists, name, selection, base_table), (where_clause, primary_key, options))| {
                Statement::CreateMaterializedView(CreateMaterializedView {
                    if_not_exists,
                    name,
                    selection,
                    base_table,
                    where_clause,
                    primary_key,
                    options,
                })
            }
        ),
        (any::<bool>(), qualified(), properties(1..3)).prop_map(|(if_exists, name, properties)| {
            Statement::AlterMaterializedView(AlterMaterializedView { if_exists, name, properties })
        }),
        (any::<bool>(), qualified()).prop_map(|(if_exists, name)| {
            Statement::DropMaterializedView(DropMaterializedView { if_exists, name })
        }),
    ]
    .boxed()
}

fn keyspace() -> BoxedStrategy<Statement> {
    prop_oneof![
        (any::<bool>(), name(), properties(1..3)).prop_map(|(if_not_exists, name, properties)| {
            Statement::CreateKeyspace(CreateKeyspace { if_not_exists, name, properties })
        }),
        (any::<bool>(), name(), properties(1..3)).prop_map(|(if_exists, name, properties)| {
            Statement::AlterKeyspace(AlterKeyspace { if_exists, name, properties })
        }),
        (any::<bool>(), name())
            .prop_map(|(if_exists, name)| Statement::DropKeyspace(DropKeyspace { if_exists, name })),
        name().prop_map(|keyspace| Statement::Use(Use { keyspace })),
    ]
    .boxed()
}

fn user_type() -> BoxedStrategy<Statement> {
    let change = prop_oneof![
        (name(), type_name()).prop_map(|(field, type_name)| AlterTypeChange::FieldType { field, type_name }),
        (any::<bool>(), name(), type_name()).prop_map(|(if_not_exists, field, type_name)| {
            AlterTypeChange::Add { if_not_exists, field, type_name }
        }),
        (any::<bool>(), renamings())
            .prop_map(|(if_exists, fields)| AlterTypeChange::Rename { if_exists, fields }),
    ];
    prop_oneof![
        (any::<bool>(), qualified(), prop::collection::vec((name(), type_name()), 1..3)).prop_map(
            |(if_not_exists, name, fields)| Statement::CreateType(CreateType { if_not_exists, name, fields })
        ),
        (any::<bool>(), qualified(), change).prop_map(|(if_exists, name, change)| Statement::AlterType(
            AlterType { if_exists, name, change }
        )),
        (any::<bool>(), qualified())
            .prop_map(|(if_exists, name)| Statement::DropType(DropType { if_exists, name })),
    ]
    .boxed()
}

fn index() -> BoxedStrategy<Statement> {
    let target = prop_oneof![
        column().prop_map(IndexTarget::Column),
        column().prop_map(IndexTarget::Values),
        column().prop_map(IndexTarget::Keys),
        column().prop_map(IndexTarget::Entries),
        column().prop_map(IndexTarget::Full),
    ];
    let local = prop::option::of(prop::collection::vec(column(), 1..3).prop_map(IndexTarget::PartitionKey));
    let targets = (local, prop::collection::vec(target, 0..3))
        .prop_map(|(local, targets)| local.into_iter().chain(targets).collect());
    let head = (any::<bool>(), any::<bool>(), prop::option::of(name()), qualified());
    prop_oneof![
        (head, targets, prop::option::of(text()), properties(0..3)).prop_map(
            |((custom, if_not_exists, name, table), targets, class, properties)| {
                Statement::CreateIndex(CreateIndex {
                    custom,
                    if_not_exists,
                    name,
                    table,
                    targets,
                    class,
                    properties,
                })
            }
        ),
        (any::<bool>(), qualified())
            .prop_map(|(if_exists, name)| Statement::DropIndex(DropIndex { if_exists, name })),
    ]
    .boxed()
}

fn function() -> BoxedStrategy<Statement> {
    let types = || prop::collection::vec(type_name(), 0..3);
    let create_function = (
        any::<[bool; 3]>(),
        qualified(),
        prop::collection::vec((name(), type_name()), 0..3),
        type_name(),
        text(),
    );
    let create_aggregate = (
        (any::<bool>(), any::<bool>(), qualified(), types(), name(), type_name()),
        (prop::option::of(name()), prop::option::of(name()), prop::option::of(term())),
    );
    prop_oneof![
        create_function.prop_map(|([or_replace, if_not_exists, called], name, arguments, returns, body)| {
            Statement::CreateFunction(CreateFunction {
                or_replace,
                if_not_exists,
                name,
                arguments,
                called_on_null_input: called,
                returns,
                language: Ident::new("lua"),
                body,
            })
        }),
        create_aggregate.prop_map(
            |((or_replace, if_not_exists, name, argument_types, state_function, state_type), rest)| {
                let (reduce_function, final_function, initial_condition) = rest;
                Statement::CreateAggregate(CreateAggregate {
                    or_replace,
                    if_not_exists,
                    name,
                    argument_types,
                    state_function,
                    state_type,
                    reduce_function,
                    final_function,
                    initial_condition,
                })
            }
        ),
        (any::<bool>(), qualified(), prop::option::of(types())).prop_map(
            |(if_exists, name, argument_types)| {
                Statement::DropFunction(DropFunction { if_exists, name, argument_types })
            }
        ),
        (any::<bool>(), qualified(), prop::option::of(types())).prop_map(
            |(if_exists, name, argument_types)| {
                Statement::DropAggregate(DropAggregate { if_exists, name, argument_types })
            }
        ),
        (any::<bool>(), name(), qualified(), text()).prop_map(|(if_not_exists, name, table, class)| {
            Statement::CreateTrigger(CreateTrigger { if_not_exists, name, table, class })
        }),
        (any::<bool>(), name(), qualified()).prop_map(|(if_exists, name, table)| Statement::DropTrigger(
            DropTrigger { if_exists, name, table }
        )),
    ]
    .boxed()
}

fn describe() -> BoxedStrategy<Statement> {
    use DescribeTarget::*;
    let target = prop_oneof![
        4 => prop::sample::select(vec![Cluster, Keyspaces, Tables, Types, Functions, Aggregates]),
        1 => any::<bool>().prop_map(|full| Schema { full }),
        1 => (any::<bool>(), prop::option::of(name())).prop_map(|(only, name)| Keyspace { only, name }),
        1 => qualified().prop_map(Table),
        1 => qualified().prop_map(Index),
        1 => qualified().prop_map(MaterializedView),
        1 => qualified().prop_map(Type),
        1 => qualified().prop_map(Function),
        1 => qualified().prop_map(Aggregate),
        1 => qualified().prop_map(Anything),
    ];
    (target, any::<bool>(), any::<bool>())
        .prop_map(|(target, internals, passwords)| {
            Statement::Describe(Describe { target, internals, passwords: internals && passwords })
        })
        .boxed()
}

pub(crate) fn schema_change() -> BoxedStrategy<Statement> {
    prop_oneof![table(), view(), keyspace(), user_type(), index(), function(), describe()].boxed()
}
