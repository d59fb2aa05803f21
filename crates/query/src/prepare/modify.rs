//! INSERT, UPDATE and DELETE, prepared: which rows, and what is written to each.
//!
//! Rules and messages as Cassandra 5's `ModificationStatement`, `Operation` and `Attributes`. Operations stand by
//! column id, the order in which a row takes cells.

use std::rc::Rc;

use cql::ast::{
    self, AssignmentOperation, DeleteSelection, IfClause, Modification, Relation, RelationTarget,
};
use model::{Column, ColumnKind, CqlType, Table};

use super::names;
use crate::QueryError;
use crate::restrictions::{self, Restrictions, StatementKind};
use crate::terms::prepare::Context;
use crate::terms::{Receiver, Term, text};

/// A prepared modification.
#[derive(Debug)]
pub struct ModifyPlan {
    /// Table written.
    pub table: Rc<Table>,
    /// Which statement it was.
    pub kind: StatementKind,
    /// Which partitions and rows.
    pub restrictions: Restrictions,
    /// What is written to each row.
    pub regulars: Vec<Operation>,
    /// What is written to each partition's static row.
    pub statics: Vec<Operation>,
    /// USING TIMESTAMP.
    pub timestamp: Option<Term>,
    /// USING TTL.
    pub time_to_live: Option<Term>,
    needs_read: bool,
}

/// One column's change.
#[derive(Debug)]
pub struct Operation {
    /// The column.
    pub column: Column,
    /// How it changes.
    pub action: Action,
}

/// How a column changes.
#[derive(Debug)]
pub enum Action {
    /// The one cell takes a value.
    Set(Term),
    /// All elements are replaced by those of a value.
    Replace(Term),
    /// The elements of a value are added; to a list at the end.
    Add(Term),
    /// The elements of a value are put before a list.
    Prepend(Term),
    /// The elements of a set are taken away; of a map those keys.
    Remove(Term),
    /// The entry of a map at a key takes a value.
    SetEntry(Term, Term),
    /// A field takes a value.
    SetField(usize, Term),
    /// The column, or all its elements, are deleted.
    Delete,
    /// The element of a set, or the entry of a map, is deleted.
    DeleteElement(Term),
    /// A field is deleted.
    DeleteField(usize),
    /// The element of a list at an index takes a value.
    SetIndex(Term, Term),
    /// The element of a list at an index is deleted.
    DeleteIndex(Term),
    /// The elements of a list that are equal to one of a value's are taken away.
    RemoveValues(Term),
}

impl ModifyPlan {
    /// Whether what was there before decides what is written.
    #[inline]
    pub fn needs_read(&self) -> bool {
        self.needs_read
    }

    /// Whether rows, rather than the static row alone, are written.
    pub fn writes_rows(&self) -> bool {
        self.table.clustering().is_empty() || self.restrictions.restricts_clustering
    }
}

/// Prepares a modification of `table`.
///
/// # Errors
/// [`QueryError::Invalid`] in Cassandra's words.
pub fn prepare(
    cx: &mut Context<'_>,
    table: &Rc<Table>,
    modification: &Modification,
) -> Result<ModifyPlan, QueryError> {
    if table.is_counter() {
        return Err(QueryError::invalid("Counter tables are not supported yet"));
    }
    match modification {
        Modification::Insert(insert) => {
            refuse_condition(insert.if_not_exists)?;
            let attributes = attributes(cx, &insert.attributes)?;
            self::insert(cx, table, insert, attributes)
        }
        Modification::InsertJson(_) => Err(QueryError::invalid("INSERT JSON is not supported yet")),
        Modification::Update(update) => {
            refuse_condition(update.condition != IfClause::None)?;
            let attributes = attributes(cx, &update.attributes)?;
            self::update(cx, table, update, attributes)
        }
        Modification::Delete(delete) => {
            refuse_condition(delete.condition != IfClause::None)?;
            let attributes = attributes(cx, &delete.attributes)?;
            self::delete(cx, table, delete, attributes)
        }
    }
}

/// The table a modification names.
pub fn table_name(modification: &Modification) -> &ast::QualifiedName {
    match modification {
        Modification::Insert(insert) => &insert.table,
        Modification::InsertJson(insert) => &insert.table,
        Modification::Update(update) => &update.table,
        Modification::Delete(delete) => &delete.table,
    }
}

fn refuse_condition(conditional: bool) -> Result<(), QueryError> {
    if conditional {
        return Err(QueryError::invalid("Conditional statements (IF) are not supported yet"));
    }
    Ok(())
}

/// USING TIMESTAMP and USING TTL.
pub type Attributes = (Option<Term>, Option<Term>);

/// Prepares a USING clause.
///
/// # Errors
/// [`QueryError::Invalid`] for what is not supported yet and for values of other types.
pub fn attributes(cx: &mut Context<'_>, raw: &[ast::Attribute]) -> Result<Attributes, QueryError> {
    let view = ast::last_of(raw);
    for (given, what) in [
        (view.timeout.is_some(), "USING TIMEOUT"),
        (view.concurrency.is_some(), "USING CONCURRENCY"),
        (view.service_level.is_some(), "USING SERVICE LEVEL"),
    ] {
        if given {
            return Err(QueryError::Invalid(format!("{what} is not supported yet")));
        }
    }
    let mut one = |term: Option<&ast::Term>, name: &str, ty: CqlType| {
        term.map(|term| cx.prepare(term, &Receiver::new(name, ty))).transpose()
    };
    Ok((one(view.timestamp, "[timestamp]", CqlType::Bigint)?, one(view.time_to_live, "[ttl]", CqlType::Int)?))
}

fn assemble(
    table: &Rc<Table>,
    kind: StatementKind,
    operations: Vec<Operation>,
    restrictions: Restrictions,
    (timestamp, time_to_live): Attributes,
) -> ModifyPlan {
    let needs_read = operations.iter().any(|operation| {
        matches!(operation.action, Action::SetIndex(..) | Action::DeleteIndex(_) | Action::RemoveValues(_))
    });
    let (mut statics, mut regulars): (Vec<_>, Vec<_>) =
        operations.into_iter().partition(|operation| operation.column.kind == ColumnKind::Static);
    // A stable sort: several operations on one column keep the order they were written in.
    statics.sort_by_key(|operation| operation.column.id);
    regulars.sort_by_key(|operation| operation.column.id);
    ModifyPlan {
        table: Rc::clone(table),
        kind,
        restrictions,
        regulars,
        statics,
        timestamp,
        time_to_live,
        needs_read,
    }
}

fn applies_only_to_statics(operations: &[Operation]) -> bool {
    !operations.is_empty() && operations.iter().all(|operation| operation.column.kind == ColumnKind::Static)
}

fn insert(
    cx: &mut Context<'_>,
    table: &Rc<Table>,
    insert: &ast::Insert,
    attributes: Attributes,
) -> Result<ModifyPlan, QueryError> {
    if insert.columns.len() != insert.values.len() {
        return Err(QueryError::invalid("Unmatched column names/values"));
    }
    for (at, name) in insert.columns.iter().enumerate() {
        if insert.columns[..at].contains(name) {
            return Err(QueryError::invalid("The column names contains duplicates"));
        }
    }
    let (mut relations, mut operations, mut has_clustering) = (Vec::new(), Vec::new(), false);
    for (name, value) in insert.columns.iter().zip(&insert.values) {
        let column = names::column(table, name)?;
        has_clustering |= column.kind == ColumnKind::Clustering;
        if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            relations.push(Relation::Compare {
                target: RelationTarget::Column(name.clone()),
                operator: ast::ComparisonOperator::Equal,
                value: value.clone(),
            });
        } else {
            operations.push(set(cx, column, value)?);
        }
    }
    let only_static = !has_clustering && applies_only_to_statics(&operations);
    let restrictions = restrictions::prepare(cx, StatementKind::Insert, &relations, only_static, false)?;
    Ok(assemble(table, StatementKind::Insert, operations, restrictions, attributes))
}

fn update(
    cx: &mut Context<'_>,
    table: &Rc<Table>,
    update: &ast::Update,
    attributes: Attributes,
) -> Result<ModifyPlan, QueryError> {
    let mut operations: Vec<Operation> = Vec::with_capacity(update.assignments.len());
    for (at, assignment) in update.assignments.iter().enumerate() {
        let column = names::column(table, &assignment.column)?;
        if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            return Err(QueryError::Invalid(format!("PRIMARY KEY part {} found in SET part", column.name)));
        }
        let clashes = update.assignments[..at].iter().any(|other| {
            other.column == assignment.column && !compatible(&other.operation, &assignment.operation)
        });
        if clashes {
            return Err(QueryError::Invalid(format!(
                "Multiple incompatible setting of column {}",
                column.name
            )));
        }
        operations.push(assign(cx, column, &assignment.operation)?);
    }
    let only_static = applies_only_to_statics(&operations);
    let relations = &update.where_clause.relations;
    let restrictions = restrictions::prepare(cx, StatementKind::Update, relations, only_static, false)?;
    Ok(assemble(table, StatementKind::Update, operations, restrictions, attributes))
}

fn compatible(a: &AssignmentOperation, b: &AssignmentOperation) -> bool {
    match (a, b) {
        (AssignmentOperation::Set(_), _) | (_, AssignmentOperation::Set(_)) => false,
        (AssignmentOperation::SetField { field: a, .. }, AssignmentOperation::SetField { field: b, .. }) => {
            a != b
        }
        _ => true,
    }
}

fn delete(
    cx: &mut Context<'_>,
    table: &Rc<Table>,
    delete: &ast::Delete,
    attributes: Attributes,
) -> Result<ModifyPlan, QueryError> {
    if attributes.1.is_some() {
        return Err(QueryError::invalid("Invalid attribute TTL for DELETE statement"));
    }
    let operations = delete
        .selections
        .iter()
        .map(|selection| deletion(cx, table, selection))
        .collect::<Result<Vec<_>, _>>()?;
    let only_static = applies_only_to_statics(&operations);
    let relations = &delete.where_clause.relations;
    let restrictions = restrictions::prepare(cx, StatementKind::Delete, relations, only_static, false)?;
    let plan = assemble(table, StatementKind::Delete, operations, restrictions, attributes);
    let names_rows = plan.restrictions.names_rows(table);
    if !plan.regulars.is_empty() && !names_rows {
        return Err(QueryError::invalid("Range deletions are not supported for specific columns"));
    }
    Ok(plan)
}

fn set(cx: &mut Context<'_>, column: &Column, value: &ast::Term) -> Result<Operation, QueryError> {
    let term = cx.prepare(value, &Receiver::column(cx.table, column))?;
    let action = if column.ty.is_multi_cell() { Action::Replace(term) } else { Action::Set(term) };
    Ok(Operation { column: column.clone(), action })
}

/// An operation as messages show it.
fn shown(column: &Column, operation: &AssignmentOperation) -> String {
    let name = &column.name;
    match operation {
        AssignmentOperation::Set(value) => format!("{name} = {}", text::of_term(value)),
        // Cassandra shows a minus here too.
        AssignmentOperation::Prepend(value) => format!("{name} = {} - {name}", text::of_term(value)),
        AssignmentOperation::Add(value) => format!("{name} = {name} + {}", text::of_term(value)),
        AssignmentOperation::Subtract(value) => format!("{name} = {name} - {}", text::of_term(value)),
        AssignmentOperation::SetElement { key, value } => {
            format!("{name}[{}] = {}", text::of_term(key), text::of_term(value))
        }
        AssignmentOperation::SetField { field, value } => {
            format!("{name}.{} = {}", field.name, text::of_term(value))
        }
    }
}

fn assign(
    cx: &mut Context<'_>,
    column: &Column,
    operation: &AssignmentOperation,
) -> Result<Operation, QueryError> {
    let wrong = |what: &str| {
        QueryError::Invalid(format!(
            "Invalid operation ({}) for {what} column {}",
            shown(column, operation),
            column.name
        ))
    };
    let whole = Receiver::column(cx.table, column);
    let action = match operation {
        AssignmentOperation::Set(value) => return set(cx, column, value),
        AssignmentOperation::Prepend(value) => match &column.ty {
            CqlType::List { frozen: false, .. } => Action::Prepend(cx.prepare(value, &whole)?),
            CqlType::List { .. } => return Err(wrong("frozen list")),
            CqlType::Set { .. } | CqlType::Map { .. } => return Err(wrong("non list")),
            _ => return Err(wrong("non list")),
        },
        AssignmentOperation::Add(value) => match &column.ty {
            ty if ty.is_collection() && !ty.is_multi_cell() => return Err(wrong("frozen collection")),
            CqlType::Map { .. } => Action::Add(cx.prepare(value, &whole).map_err(|_| {
                QueryError::Invalid(format!(
                    "Value for a map addition has to be a map, but was: '{}'",
                    text::of_term(value)
                ))
            })?),
            ty if ty.is_collection() => Action::Add(cx.prepare(value, &whole)?),
            CqlType::Tuple(_) | CqlType::Udt(_) => return Err(wrong("tuple")),
            _ => return Err(wrong("non counter")),
        },
        AssignmentOperation::Subtract(value) => match &column.ty {
            ty if ty.is_collection() && !ty.is_multi_cell() => return Err(wrong("frozen collection")),
            CqlType::Map { key, .. } => {
                let keys = CqlType::Set { element: key.clone(), frozen: false };
                Action::Remove(cx.prepare(value, &Receiver::new(&column.name, keys)).map_err(|_| {
                    QueryError::Invalid(format!(
                        "Value for a map substraction has to be a set, but was: '{}'",
                        text::of_term(value)
                    ))
                })?)
            }
            CqlType::Set { .. } => Action::Remove(cx.prepare(value, &whole)?),
            CqlType::List { .. } => Action::RemoveValues(cx.prepare(value, &whole)?),
            _ => return Err(wrong("non counter")),
        },
        AssignmentOperation::SetElement { key, value } => match &column.ty {
            ty if !ty.is_collection() => return Err(wrong("non collection")),
            ty if !ty.is_multi_cell() => return Err(wrong("frozen collection")),
            CqlType::Map { key: key_type, value: value_type, .. } => {
                let key = cx.prepare(key, &Receiver::key_of(&column.name, (**key_type).clone()))?;
                let value = cx.prepare(value, &Receiver::value_of(&column.name, (**value_type).clone()))?;
                Action::SetEntry(key, value)
            }
            CqlType::Set { .. } => return Err(wrong("set")),
            CqlType::List { element, .. } => {
                let index = cx.prepare(key, &Receiver::index_of(&column.name))?;
                let value = cx.prepare(value, &Receiver::value_of(&column.name, (**element).clone()))?;
                Action::SetIndex(index, value)
            }
            _ => return Err(wrong("non collection")),
        },
        AssignmentOperation::SetField { field, value } => {
            let CqlType::Udt(udt) = &column.ty else { return Err(wrong("non-UDT")) };
            if udt.frozen {
                return Err(wrong("frozen UDT"));
            }
            let at = field_place(column, &field.name)?;
            let receiver = Receiver::new(format!("{}.{}", column.name, field.name), udt.fields[at].1.clone());
            Action::SetField(at, cx.prepare(value, &receiver)?)
        }
    };
    Ok(Operation { column: column.clone(), action })
}

fn field_place(column: &Column, field: &str) -> Result<usize, QueryError> {
    let fields = if let CqlType::Udt(udt) = &column.ty { &udt.fields[..] } else { &[] };
    fields.iter().position(|(name, _)| name == field).ok_or_else(|| {
        QueryError::Invalid(format!("UDT column {} does not have a field named {field}", column.name))
    })
}

fn deletion(
    cx: &mut Context<'_>,
    table: &Table,
    selection: &DeleteSelection,
) -> Result<Operation, QueryError> {
    let name = match selection {
        DeleteSelection::Column(name)
        | DeleteSelection::Element { column: name, .. }
        | DeleteSelection::Field { column: name, .. } => name,
    };
    let column = names::column(table, name)?;
    if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
        return Err(QueryError::Invalid(format!(
            "Invalid identifier {} for deletion (should not be a PRIMARY KEY part)",
            column.name
        )));
    }
    let invalid = |text: String| Err(QueryError::Invalid(text));
    let action = match selection {
        DeleteSelection::Column(_) => Action::Delete,
        DeleteSelection::Element { key, .. } => match &column.ty {
            ty if !ty.is_collection() => {
                return invalid(format!(
                    "Invalid deletion operation for non collection column {}",
                    column.name
                ));
            }
            ty if !ty.is_multi_cell() => {
                return invalid(format!(
                    "Invalid deletion operation for frozen collection column {}",
                    column.name
                ));
            }
            CqlType::Map { key: ty, .. } => {
                Action::DeleteElement(cx.prepare(key, &Receiver::key_of(&column.name, (**ty).clone()))?)
            }
            CqlType::Set { element, .. } => Action::DeleteElement(
                cx.prepare(key, &Receiver::value_of(&column.name, (**element).clone()))?,
            ),
            _ => Action::DeleteIndex(cx.prepare(key, &Receiver::index_of(&column.name))?),
        },
        DeleteSelection::Field { field, .. } => {
            let CqlType::Udt(udt) = &column.ty else {
                return invalid(format!(
                    "Invalid field deletion operation for non-UDT column {}",
                    column.name
                ));
            };
            if udt.frozen {
                return invalid(format!(
                    "Frozen UDT column {} does not support field deletions",
                    column.name
                ));
            }
            Action::DeleteField(field_place(column, &field.name)?)
        }
    };
    Ok(Operation { column: column.clone(), action })
}
