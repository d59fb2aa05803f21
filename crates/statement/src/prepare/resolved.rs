//! Selected expressions with resolved names, before a type is required of them.
//!
//! The value of a literal or marker stays open until `prepare::selection` determines the required type. This
//! file has what is known before: its own type, how well it fits another, and its form in messages.

use std::rc::Rc;

use cql::ast::{self, CellFunction};
use model::types::UserType;
use model::{Column, ColumnKind, CqlType};

use crate::StatementError;
use crate::functions::user::UserAggregate;
use crate::functions::{AggregateKind, Function, type_assignment};
use crate::terms::literal::{self, Assignment};
use crate::terms::text;

/// An expression with resolved names.
#[derive(Debug)]
pub(super) enum Resolved<'e> {
    /// A column.
    Column(&'e Column),
    /// A literal.
    Constant(&'e ast::Constant),
    /// `?` or `:name`
    Marker(&'e ast::BindMarker),
    /// `writetime`, `maxwritetime` or `ttl` of a column or a part of it.
    Cell { function: CellFunction, column: &'e Column, operand: Box<Resolved<'e>> },
    /// `cast(operand as target)`
    Cast { operand: Box<Resolved<'e>>, target: CqlType },
    /// A scalar function.
    Call { function: Function, arguments: Vec<Resolved<'e>> },
    /// An aggregate over values of `ty`; `count(*)` has no argument.
    Aggregate { kind: AggregateKind, ty: CqlType, argument: Option<Box<Resolved<'e>>> },
    /// One of the user's aggregates.
    UserAggregate { aggregate: Rc<UserAggregate>, arguments: Vec<Resolved<'e>> },
    /// `receiver.field`
    Field { receiver: Box<Resolved<'e>>, field: &'e ast::Ident },
    /// `receiver[key]`
    Element { receiver: Box<Resolved<'e>>, key: &'e ast::Term },
    /// `receiver[from..to]`
    Slice { receiver: Box<Resolved<'e>>, from: Option<&'e ast::Term>, to: Option<&'e ast::Term> },
    /// `(type) operand`
    Hint { shown: String, ty: CqlType, operand: Box<Resolved<'e>> },
    /// `[a, b]`: a list or vector.
    List(Vec<Resolved<'e>>),
    /// `{a, b}`: a set.
    Set(Vec<Resolved<'e>>),
    /// `{k: v}`: a map or user type.
    Entries(Vec<Entry<'e>>),
    /// `(a, b)`: a tuple, or of one element an expression in parentheses.
    Tuple(Vec<Resolved<'e>>),
}

/// An entry of a map, or a field of a user type: only the required type decides.
#[derive(Debug)]
pub(super) struct Entry<'e> {
    /// The field's name; `None` if the key is not a name.
    pub(super) field: Option<&'e ast::Ident>,
    /// The key of a map; an error if it is a name that no column has.
    pub(super) key: Result<Resolved<'e>, StatementError>,
    /// The value.
    pub(super) value: Resolved<'e>,
}

impl<'e> Entry<'e> {
    /// The index of the field among those of a user type, and its name.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] if the key is not a name, or not that of a field.
    pub(super) fn place_in(&self, udt: &UserType) -> Result<(usize, &'e str), StatementError> {
        let Some(field) = self.field else {
            let key = self.key.as_ref().map(Resolved::text).unwrap_or_default();
            // The blank before the end is also in Cassandra's text.
            return Err(StatementError::Invalid(format!(
                "{key} is not a valid field identifier of type {} ",
                udt.name
            )));
        };
        match udt.fields.iter().position(|(name, _)| *name == field.name) {
            Some(at) => Ok((at, &field.name)),
            None => Err(StatementError::Invalid(format!(
                "Unknown field '{}' in value of user defined type {}",
                field.name, udt.name
            ))),
        }
    }
}

/// The client's error for a type that cannot be inferred.
pub(super) fn cannot_infer(text: &str) -> StatementError {
    StatementError::Invalid(format!(
        "Cannot infer type for term {text} in selection clause (try using a cast to force a type)"
    ))
}

/// The word for a function over cells in results.
pub(super) fn cell_word(function: CellFunction) -> &'static str {
    match function {
        CellFunction::WriteTime => "writetime",
        CellFunction::MaxWriteTime => "maxwritetime",
        CellFunction::TimeToLive => "ttl",
    }
}

/// Type of a function over cells.
pub(super) fn cell_type(function: CellFunction, multi_cell: bool) -> CqlType {
    let one = if function == CellFunction::TimeToLive { CqlType::Int } else { CqlType::Bigint };
    if multi_cell && function != CellFunction::MaxWriteTime {
        return CqlType::List { element: Box::new(one), frozen: true };
    }
    one
}

/// Type of the part of a collection that a key selects.
pub(super) fn element_type(collection: &CqlType) -> Option<CqlType> {
    match collection {
        CqlType::Map { value, .. } => Some((**value).clone()),
        CqlType::Set { element, .. } => Some((**element).clone()),
        _ => None,
    }
}

impl<'e> Resolved<'e> {
    /// The column that a part is selected of, through fields, elements and slices.
    pub(super) fn base_column(&self) -> Option<&'e Column> {
        match self {
            Self::Column(column) => Some(column),
            Self::Field { receiver, .. } | Self::Element { receiver, .. } | Self::Slice { receiver, .. } => {
                receiver.base_column()
            }
            _ => None,
        }
    }

    /// Whether an aggregate is anywhere in it.
    pub(super) fn has_aggregate(&self) -> bool {
        match self {
            Self::Aggregate { .. } | Self::UserAggregate { .. } => true,
            Self::Column(_) | Self::Constant(_) | Self::Marker(_) | Self::Cell { .. } => false,
            Self::Cast { operand: inner, .. }
            | Self::Hint { operand: inner, .. }
            | Self::Field { receiver: inner, .. }
            | Self::Element { receiver: inner, .. }
            | Self::Slice { receiver: inner, .. } => inner.has_aggregate(),
            Self::Call { arguments: parts, .. }
            | Self::List(parts)
            | Self::Set(parts)
            | Self::Tuple(parts) => parts.iter().any(Self::has_aggregate),
            Self::Entries(entries) => entries.iter().any(|entry| {
                entry.key.as_ref().is_ok_and(Self::has_aggregate) || entry.value.has_aggregate()
            }),
        }
    }

    /// The type it has whatever is asked for.
    pub(super) fn exact_type(&self) -> Option<CqlType> {
        self.known_type(&Self::exact_type)
    }

    /// Its type if the context requires none; literals have one too.
    pub(super) fn compatible_type(&self) -> Option<CqlType> {
        if let Self::Constant(constant) = self {
            return literal::preferred_type(constant);
        }
        self.known_type(&Self::compatible_type)
    }

    fn known_type(&self, of: &dyn Fn(&Self) -> Option<CqlType>) -> Option<CqlType> {
        let first = |parts: &[Self]| parts.iter().find_map(of).map(Box::new);
        match self {
            Self::Column(column) => Some(column.ty.clone()),
            Self::Constant(_) | Self::Marker(_) | Self::Entries(_) => None,
            // A field or an element has one stamp, whatever its column has.
            Self::Cell { function, column, operand } => {
                let multi_cell =
                    operand.exact_type().map_or(column.ty.is_multi_cell(), |ty| ty.is_multi_cell());
                Some(cell_type(*function, multi_cell))
            }
            Self::Cast { target, .. } => Some(target.clone()),
            Self::Call { function, .. } => Some(function.result().clone()),
            Self::Aggregate { kind, ty, .. } => kind.result(ty),
            Self::UserAggregate { aggregate, .. } => Some(aggregate.result().clone()),
            Self::Field { receiver, field } => match receiver.exact_type()? {
                CqlType::Udt(udt) => {
                    udt.fields.iter().find(|(name, _)| *name == field.name).map(|(_, ty)| ty.clone())
                }
                _ => None,
            },
            Self::Element { receiver, .. } => match receiver.exact_type()? {
                // Refused when it is prepared; until then it has a type, as in Cassandra.
                CqlType::List { .. } => Some(CqlType::Timeuuid),
                other => element_type(&other),
            },
            Self::Slice { receiver, .. } => receiver.exact_type().filter(CqlType::is_collection),
            Self::Hint { ty, .. } => Some(ty.clone()),
            Self::List(parts) => Some(CqlType::List { element: first(parts)?, frozen: true }),
            Self::Set(parts) => Some(CqlType::Set { element: first(parts)?, frozen: true }),
            Self::Tuple(parts) if parts.len() == 1 => None,
            Self::Tuple(parts) => parts.iter().map(of).collect::<Option<Vec<_>>>().map(CqlType::Tuple),
        }
    }

    /// How well it fits a required type.
    pub(super) fn assignment(&self, want: &CqlType) -> Assignment {
        let each = |parts: &mut dyn Iterator<Item = (&Self, &CqlType)>| {
            parts.map(|(part, ty)| part.assignment(ty)).min().unwrap_or(Assignment::Weak)
        };
        match self {
            Self::Constant(constant) => literal::assignment(constant, want),
            Self::Marker(_) => Assignment::Weak,
            Self::List(parts) => match want {
                CqlType::List { element, .. } => each(&mut parts.iter().map(|part| (part, &**element))),
                CqlType::Vector { element, dimension } if *dimension as usize == parts.len() => {
                    each(&mut parts.iter().map(|part| (part, &**element)))
                }
                _ => Assignment::No,
            },
            Self::Set(parts) => match want {
                CqlType::Set { element, .. } => each(&mut parts.iter().map(|part| (part, &**element))),
                CqlType::Map { .. } if parts.is_empty() => Assignment::Weak,
                _ => Assignment::No,
            },
            Self::Tuple(parts) => match want {
                CqlType::Tuple(types) if parts.len() <= types.len() => {
                    each(&mut parts.iter().zip(types)).min(Assignment::Weak)
                }
                CqlType::Tuple(_) => Assignment::No,
                want if parts.len() == 1 => parts[0].assignment(want),
                _ => Assignment::No,
            },
            Self::Entries(entries) => match want {
                CqlType::Map { key, value, .. } => {
                    let of = |entry: &Entry<'_>| {
                        let key = entry.key.as_ref().map_or(Assignment::No, |k| k.assignment(key));
                        key.min(entry.value.assignment(value))
                    };
                    entries.iter().map(of).min().unwrap_or(Assignment::Weak)
                }
                CqlType::Udt(udt) => {
                    let field = |entry: &Entry<'_>| {
                        let name = &entry.field?.name;
                        let (_, ty) = udt.fields.iter().find(|(field, _)| field == name)?;
                        Some(entry.value.assignment(ty).min(Assignment::Weak))
                    };
                    let fields = entries.iter().map(|entry| field(entry).unwrap_or(Assignment::No));
                    fields.min().unwrap_or(Assignment::Weak)
                }
                _ => Assignment::No,
            },
            typed => match typed.exact_type() {
                Some(have) => type_assignment(&have, want),
                None => Assignment::No,
            },
        }
    }

    /// The expression as messages show it.
    pub(super) fn text(&self) -> String {
        let joined = |parts: &[Self]| parts.iter().map(Self::text).collect::<Vec<_>>().join(", ");
        match self {
            Self::Column(column) => column.name.clone(),
            Self::Constant(constant) => text::of_term(&ast::Term::Constant((*constant).clone())),
            Self::Marker(marker) => text::of_term(&ast::Term::BindMarker((*marker).clone())),
            Self::Cell { function, operand, .. } => format!("{}({})", cell_word(*function), operand.text()),
            Self::Cast { operand, target, .. } => format!("cast({} as {target})", operand.text()),
            Self::Call { function, arguments } => {
                function.column_name(&arguments.iter().map(Self::text).collect::<Vec<_>>())
            }
            Self::Aggregate { kind, argument, .. } => {
                kind.column_name(argument.as_ref().map(|argument| argument.text()).as_deref())
            }
            Self::UserAggregate { aggregate, arguments } => {
                format!("{}({})", aggregate.full_name(), joined(arguments))
            }
            Self::Field { receiver, field } => format!("{}.{}", receiver.text(), field.name),
            Self::Element { receiver, key } => format!("{}[{}]", receiver.text(), text::of_term(key)),
            Self::Slice { receiver, from, to } => {
                let bound = |term: &Option<&ast::Term>| term.map(text::of_term).unwrap_or_default();
                format!("{}[{}..{}]", receiver.text(), bound(from), bound(to))
            }
            Self::Hint { shown, operand, .. } => format!("({shown}){}", operand.text()),
            Self::List(parts) => format!("[{}]", joined(parts)),
            Self::Set(parts) => format!("{{{}}}", joined(parts)),
            Self::Tuple(parts) => format!("({})", joined(parts)),
            Self::Entries(entries) => {
                let entry = |entry: &Entry<'_>| {
                    let key = match (entry.field, &entry.key) {
                        (Some(field), _) => field.name.clone(),
                        (None, Ok(key)) => key.text(),
                        (None, Err(_)) => String::new(),
                    };
                    format!("{key}: {}", entry.value.text())
                };
                format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Whether a column is a part of the primary key.
pub(super) fn is_primary_key(column: &Column) -> bool {
    matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering)
}
