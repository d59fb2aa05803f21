//! SELECT without FROM: one row of expressions (CQL: dml/select.rst of ScyllaDB).
//!
//! It is executed as a SELECT of the one row of `system.local`. As no column determines the type of a
//! literal, it has the type it looks like: a whole number is an `int`, or the first of `bigint` and `varint`
//! that holds it.

use cql::ast::{
    ComparisonOperator, Constant, ConstantKind, Ident, NativeType, QualifiedName, Relation, RelationTarget,
    Select, Selectable, Selection, Selector, Term, TypeName, WhereClause,
};

/// The table it is read from.
pub(super) fn table() -> QualifiedName {
    QualifiedName { keyspace: Some(Ident::new("system")), name: Ident::new("local") }
}

/// The statement, rewritten as a SELECT from that table.
pub(super) fn one_row(select: Select) -> Select {
    let key = Relation::Compare {
        target: RelationTarget::Column(Ident::new("key")),
        operator: ComparisonOperator::Equal,
        value: Term::Constant(Constant::new(ConstantKind::String, "local")),
    };
    let selection = match select.selection {
        Selection::Selectors(selectors) => {
            Selection::Selectors(selectors.into_iter().map(selector).collect())
        }
        Selection::Wildcard => Selection::Wildcard,
    };
    Select { where_clause: Some(WhereClause { relations: vec![key] }), selection, ..select }
}

/// The selector with types for its literals, named as it was written.
fn selector(Selector { expression, alias }: Selector) -> Selector {
    let hinted = with_types(expression.clone());
    let alias = alias.or_else(|| (hinted != expression).then(|| Ident::new(expression.to_string())));
    Selector { expression: hinted, alias }
}

/// Gives literals a type if their context does not determine one.
fn with_types(expression: Selectable) -> Selectable {
    match expression {
        Selectable::Constant(constant) => match type_of(&constant) {
            Some(ty) => Selectable::TypeHint {
                type_name: TypeName::Native(ty),
                operand: Box::new(Selectable::Constant(constant)),
            },
            None => Selectable::Constant(constant),
        },
        Selectable::Arithmetic { operator, left, right } => Selectable::Arithmetic {
            operator,
            left: Box::new(with_types(*left)),
            right: Box::new(with_types(*right)),
        },
        Selectable::Negate(operand) => Selectable::Negate(Box::new(with_types(*operand))),
        Selectable::Cast { operand, target } => {
            Selectable::Cast { operand: Box::new(with_types(*operand)), target }
        }
        Selectable::List(parts) => Selectable::List(parts.into_iter().map(with_types).collect()),
        Selectable::Set(parts) => Selectable::Set(parts.into_iter().map(with_types).collect()),
        Selectable::Tuple(parts) => Selectable::Tuple(parts.into_iter().map(with_types).collect()),
        other => other,
    }
}

fn type_of(constant: &Constant) -> Option<NativeType> {
    Some(match constant.kind {
        ConstantKind::String => NativeType::Text,
        ConstantKind::Integer if constant.text.parse::<i32>().is_ok() => NativeType::Int,
        ConstantKind::Integer if constant.text.parse::<i64>().is_ok() => NativeType::Bigint,
        ConstantKind::Integer => NativeType::Varint,
        ConstantKind::Float => NativeType::Double,
        ConstantKind::Boolean => NativeType::Boolean,
        ConstantKind::Uuid => NativeType::Uuid,
        ConstantKind::Hex => NativeType::Blob,
        ConstantKind::Duration => NativeType::Duration,
        ConstantKind::Null => return None,
    })
}
