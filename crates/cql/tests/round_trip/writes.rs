//! Generates INSERT, UPDATE, DELETE, BATCH, TRUNCATE and PRUNE.

use cql::ast::*;
use proptest::prelude::*;

use crate::terms::*;

fn write_attributes() -> BoxedStrategy<Vec<Attribute>> {
    let attribute = prop_oneof![
        count().prop_map(Attribute::Timestamp),
        count().prop_map(Attribute::TimeToLive),
        timeout(),
    ];
    prop::collection::vec(attribute, 0..3).boxed()
}

fn condition() -> BoxedStrategy<Condition> {
    let target = prop_oneof![
        column().prop_map(ConditionTarget::Column),
        (column(), term()).prop_map(|(column, key)| ConditionTarget::Element { column, key }),
        (column(), name()).prop_map(|(column, field)| ConditionTarget::Field { column, field }),
    ];
    let test = prop_oneof![
        (comparison(), term()).prop_map(|(operator, value)| ConditionTest::Compare { operator, value }),
        (any::<bool>(), in_values()).prop_map(|(negated, values)| ConditionTest::In { negated, values }),
    ];
    let column_test = prop_oneof![
        (any::<bool>(), term()).prop_map(|(key, value)| ConditionTest::Contains { key, value }),
        term().prop_map(|pattern| ConditionTest::Like { pattern }),
    ];
    prop_oneof![
        3 => (target, test).prop_map(|(target, test)| Condition { target, test }),
        1 => (column(), column_test)
            .prop_map(|(column, test)| Condition { target: ConditionTarget::Column(column), test }),
    ]
    .boxed()
}

fn if_clause() -> BoxedStrategy<IfClause> {
    prop_oneof![
        Just(IfClause::None),
        Just(IfClause::Exists),
        prop::collection::vec(condition(), 1..3).prop_map(IfClause::Conditions),
    ]
    .boxed()
}

fn insert() -> BoxedStrategy<Insert> {
    (
        qualified(),
        prop::collection::vec(column(), 1..3),
        prop::collection::vec(term(), 1..3),
        any::<bool>(),
        write_attributes(),
    )
        .prop_map(|(table, columns, values, if_not_exists, attributes)| Insert {
            table,
            columns,
            values,
            if_not_exists,
            attributes,
        })
        .boxed()
}

fn insert_json() -> BoxedStrategy<InsertJson> {
    let value = prop_oneof![
        text().prop_map(|text| Term::Constant(Constant::new(ConstantKind::String, text))),
        marker().prop_map(Term::BindMarker),
    ];
    let default = prop_oneof![Just(JsonDefault::Null), Just(JsonDefault::Unset)];
    (qualified(), value, default, any::<bool>(), write_attributes())
        .prop_map(|(table, value, default, if_not_exists, attributes)| InsertJson {
            table,
            value,
            default,
            if_not_exists,
            attributes,
        })
        .boxed()
}

fn operation() -> BoxedStrategy<AssignmentOperation> {
    prop_oneof![
        term().prop_map(AssignmentOperation::Set),
        term().prop_map(AssignmentOperation::Prepend),
        term().prop_map(AssignmentOperation::Add),
        term().prop_map(AssignmentOperation::Subtract),
        (term(), term()).prop_map(|(key, value)| AssignmentOperation::SetElement { key, value }),
        (name(), term()).prop_map(|(field, value)| AssignmentOperation::SetField { field, value }),
    ]
    .boxed()
}

fn update() -> BoxedStrategy<Update> {
    let assignments = prop::collection::vec(operation(), 1..4).prop_map(|operations| {
        let assign = |(number, operation)| Assignment { column: Ident::new(format!("c{number}")), operation };
        operations.into_iter().enumerate().map(assign).collect()
    });
    (qualified(), write_attributes(), assignments, where_clause(), if_clause())
        .prop_map(|(table, attributes, assignments, where_clause, condition)| Update {
            table,
            attributes,
            assignments,
            where_clause,
            condition,
        })
        .boxed()
}

fn delete() -> BoxedStrategy<Delete> {
    let selection = prop_oneof![
        column().prop_map(DeleteSelection::Column),
        (column(), term()).prop_map(|(column, key)| DeleteSelection::Element { column, key }),
        (column(), name()).prop_map(|(column, field)| DeleteSelection::Field { column, field }),
    ];
    let attribute = prop_oneof![count().prop_map(Attribute::Timestamp), timeout()];
    (
        prop::collection::vec(selection, 0..3),
        qualified(),
        prop::collection::vec(attribute, 0..3),
        where_clause(),
        if_clause(),
    )
        .prop_map(|(selections, table, attributes, where_clause, condition)| Delete {
            selections,
            table,
            attributes,
            where_clause,
            condition,
            bypass_guardrails: false,
        })
        .boxed()
}

/// DELETE as a statement of its own.
fn delete_statement() -> BoxedStrategy<Delete> {
    (delete(), any::<bool>())
        .prop_map(|(delete, bypass_guardrails)| Delete { bypass_guardrails, ..delete })
        .boxed()
}

fn modification() -> BoxedStrategy<Modification> {
    prop_oneof![
        insert().prop_map(Modification::Insert),
        insert_json().prop_map(Modification::InsertJson),
        update().prop_map(Modification::Update),
        delete().prop_map(Modification::Delete),
    ]
    .boxed()
}

pub(crate) fn write() -> BoxedStrategy<Statement> {
    let kind = prop_oneof![Just(BatchKind::Logged), Just(BatchKind::Unlogged), Just(BatchKind::Counter)];
    let batch = (kind, write_attributes(), prop::collection::vec(modification(), 0..3))
        .prop_map(|(kind, attributes, statements)| Batch { kind, attributes, statements });
    let truncate = (qualified(), prop::collection::vec(timeout(), 0..2))
        .prop_map(|(table, attributes)| Truncate { table, attributes });
    let concurrency = prop_oneof![count().prop_map(Attribute::Concurrency), timeout()];
    let prune =
        (qualified(), prop::option::of(where_clause()), prop::collection::vec(concurrency, 0..2)).prop_map(
            |(view, where_clause, attributes)| PruneMaterializedView { view, where_clause, attributes },
        );
    prop_oneof![
        7 => modification().prop_map(Statement::from),
        1 => delete_statement().prop_map(Statement::Delete),
        2 => batch.prop_map(Statement::Batch),
        1 => truncate.prop_map(Statement::Truncate),
        1 => prune.prop_map(Statement::PruneMaterializedView),
    ]
    .boxed()
}
