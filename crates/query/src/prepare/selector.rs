//! Selected expressions: columns, their metadata, functions of them, and aggregates, prepared for evaluation.
//!
//! Rules, result names and messages as Cassandra 5's `Selectable` and `Selection`.

use cql::ast::{self, CellFunction, Selectable};
use model::{Column, ColumnKind, CqlType};

use crate::QueryError;
use crate::functions::{self, AggregateKind, Function};
use crate::prepare::{names, types};
use crate::terms::literal::{self, Assignment};
use crate::terms::prepare::Context;
use crate::terms::{Receiver, Term};

/// A prepared expression.
#[derive(Debug, Clone)]
pub enum Selector {
    /// A column's value.
    Column(Column),
    /// When a column was written, in microseconds; of a collection a list of them.
    WriteTime {
        /// The column.
        column: Column,
        /// `MAXWRITETIME`: the latest of a collection.
        greatest: bool,
    },
    /// How many seconds a column's value has left; of a collection a list of them.
    TimeToLive(Column),
    /// A value that no row changes.
    Term(Term),
    /// A function of other expressions.
    Call(Function, Vec<Selector>),
    /// A field of a user type.
    Field(Box<Selector>, usize),
    /// The value of a map at a key, or an element of a set if it is there.
    Element {
        /// The collection.
        collection: Box<Selector>,
        /// Its type.
        ty: CqlType,
        /// Key or element.
        key: Term,
    },
    /// An aggregate, by its place among those of the selection.
    Aggregate(usize),
}

/// An aggregate of a selection.
#[derive(Debug, Clone)]
pub struct Aggregate {
    /// Which.
    pub kind: AggregateKind,
    /// Type of the argument; of `count(*)` any.
    pub ty: CqlType,
    /// The argument; `None` of `count(*)`.
    pub argument: Option<Selector>,
}

/// An expression with what the result shows of it.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// How it is evaluated.
    pub selector: Selector,
    /// Name of the result column.
    pub name: String,
    /// Type of the value.
    pub ty: CqlType,
}

impl Selector {
    /// Calls `each` for every column read.
    pub fn for_each_column(&self, aggregates: &[Aggregate], each: &mut dyn FnMut(&Column)) {
        match self {
            Self::Column(column) | Self::WriteTime { column, .. } | Self::TimeToLive(column) => each(column),
            Self::Term(_) => {}
            Self::Call(_, arguments) => arguments.iter().for_each(|a| a.for_each_column(aggregates, each)),
            Self::Field(inner, _) | Self::Element { collection: inner, .. } => {
                inner.for_each_column(aggregates, each);
            }
            Self::Aggregate(at) => {
                if let Some(argument) = aggregates.get(*at).and_then(|aggregate| aggregate.argument.as_ref())
                {
                    argument.for_each_column(aggregates, each);
                }
            }
        }
    }

    /// Whether an aggregate is anywhere in it.
    pub fn has_aggregate(&self) -> bool {
        match self {
            Self::Aggregate(_) => true,
            Self::Call(_, arguments) => arguments.iter().any(Self::has_aggregate),
            Self::Field(inner, _) | Self::Element { collection: inner, .. } => inner.has_aggregate(),
            _ => false,
        }
    }

    /// Whether a column is read outside of an aggregate.
    fn has_plain_column(&self) -> bool {
        match self {
            Self::Column(_) | Self::WriteTime { .. } | Self::TimeToLive(_) => true,
            Self::Call(_, arguments) => arguments.iter().any(Self::has_plain_column),
            Self::Field(inner, _) | Self::Element { collection: inner, .. } => inner.has_plain_column(),
            Self::Term(_) | Self::Aggregate(_) => false,
        }
    }
}

/// Prepares expressions of one selection, gathering its aggregates.
#[derive(Debug)]
pub struct Preparation<'c, 'a> {
    /// For terms and names.
    pub cx: &'c mut Context<'a>,
    /// Aggregates met so far.
    pub aggregates: Vec<Aggregate>,
    inside_aggregate: bool,
}

impl<'c, 'a> Preparation<'c, 'a> {
    /// Nothing prepared yet.
    pub fn new(cx: &'c mut Context<'a>) -> Self {
        Self { cx, aggregates: Vec::new(), inside_aggregate: false }
    }

    /// Prepares one expression; `expected` is what a function around it asks for.
    ///
    /// # Errors
    /// [`QueryError::Invalid`] in Cassandra's words.
    pub fn prepare(
        &mut self,
        expression: &Selectable,
        expected: Option<&CqlType>,
    ) -> Result<Prepared, QueryError> {
        let prepared = self.expression(expression, expected)?;
        if prepared.selector.has_aggregate() && prepared.selector.has_plain_column() {
            return Err(QueryError::Invalid(format!(
                "Mixing aggregates and columns in one expression is not supported yet ({})",
                prepared.name
            )));
        }
        Ok(prepared)
    }

    fn expression(
        &mut self,
        expression: &Selectable,
        expected: Option<&CqlType>,
    ) -> Result<Prepared, QueryError> {
        match expression {
            Selectable::Column(name) => {
                let column = names::column(self.cx.table, name)?.clone();
                Ok(Prepared {
                    name: column.name.clone(),
                    ty: column.ty.clone(),
                    selector: Selector::Column(column),
                })
            }
            Selectable::Constant(constant) => {
                self.term(&ast::Term::Constant(constant.clone()), &constant_text(constant), expected)
            }
            Selectable::BindMarker(marker) => {
                let text = marker.name.as_ref().map_or("?".to_owned(), |name| format!(":{}", name.name));
                self.term(&ast::Term::BindMarker(marker.clone()), &text, expected)
            }
            Selectable::CountRows => {
                Ok(self.aggregate(AggregateKind::CountRows, CqlType::Int, None, "count".to_owned()))
            }
            Selectable::Cell { function, operand } => self.cell(*function, operand),
            Selectable::Cast { operand, target } => {
                let to = types::resolve(
                    &ast::TypeName::Native(*target),
                    self.cx.table.keyspace(),
                    self.cx.schema,
                )?;
                let inner = self.expression(operand, None)?;
                if inner.ty == to {
                    // Left out altogether, also from the name of the result column.
                    return Ok(inner);
                }
                let function = Function::cast(&inner.ty, &to)
                    .ok_or_else(|| QueryError::Invalid(format!("{} cannot be cast to {to}", inner.name)))?;
                let name = format!("cast({} as {to})", inner.name);
                Ok(Prepared { selector: Selector::Call(function, vec![inner.selector]), name, ty: to })
            }
            Selectable::Function { name, arguments } => self.function(name, arguments, expected),
            Selectable::Field { receiver, field } => {
                let inner = self.expression(receiver, None)?;
                let CqlType::Udt(udt) = &inner.ty else {
                    return Err(QueryError::Invalid(format!(
                        "Invalid field selection: {} of type {} is not a user type",
                        inner.name, inner.ty
                    )));
                };
                let at = udt.fields.iter().position(|(name, _)| *name == field.name).ok_or_else(|| {
                    QueryError::Invalid(format!(
                        "{} of type {} has no field {}",
                        inner.name, inner.ty, field.name
                    ))
                })?;
                let name = format!("{}.{}", inner.name, field.name);
                let ty = udt.fields[at].1.clone();
                Ok(Prepared { selector: Selector::Field(Box::new(inner.selector), at), name, ty })
            }
            Selectable::Element { receiver, key } => self.element(receiver, key),
            Selectable::TypeHint { type_name, operand } => {
                let ty = types::resolve(type_name, self.cx.table.keyspace(), self.cx.schema)?;
                let inner = self.expression(operand, Some(&ty))?;
                if !functions::type_assignment(&inner.ty, &ty).is_assignable() {
                    return Err(QueryError::Invalid(format!(
                        "Cannot cast value {} to type {ty}",
                        inner.name
                    )));
                }
                Ok(Prepared { name: format!("({}){}", types::text(type_name), inner.name), ty, ..inner })
            }
            Selectable::Tuple(parts) if parts.len() == 1 => {
                let inner = self.expression(&parts[0], expected)?;
                Ok(Prepared { name: format!("({})", inner.name), ..inner })
            }
            Selectable::Slice { .. } => Err(unsupported("Slices of collections")),
            Selectable::Arithmetic { .. } | Selectable::Negate(_) => Err(unsupported("Arithmetic")),
            Selectable::List(_)
            | Selectable::Set(_)
            | Selectable::MapOrUserType(_)
            | Selectable::Tuple(_) => Err(unsupported("Building collections and tuples")),
        }
    }

    fn term(
        &mut self,
        term: &ast::Term,
        text: &str,
        expected: Option<&CqlType>,
    ) -> Result<Prepared, QueryError> {
        let ty = expected.ok_or_else(|| {
            QueryError::Invalid(format!(
                "Cannot infer type for term {text} in selection clause (try using a cast to force a type)"
            ))
        })?;
        let prepared = self.cx.prepare(term, &Receiver::new("[selection]", ty.clone()))?;
        Ok(Prepared { selector: Selector::Term(prepared), name: text.to_owned(), ty: ty.clone() })
    }

    fn aggregate(
        &mut self,
        kind: AggregateKind,
        ty: CqlType,
        argument: Option<Selector>,
        name: String,
    ) -> Prepared {
        let result = kind.result(&ty).unwrap_or(CqlType::Bigint);
        self.aggregates.push(Aggregate { kind, ty, argument });
        Prepared { selector: Selector::Aggregate(self.aggregates.len() - 1), name, ty: result }
    }

    fn cell(&mut self, function: CellFunction, operand: &Selectable) -> Result<Prepared, QueryError> {
        let word = match function {
            CellFunction::WriteTime => "writetime",
            CellFunction::MaxWriteTime => "maxwritetime",
            CellFunction::TimeToLive => "ttl",
        };
        let Selectable::Column(name) = operand else {
            return Err(QueryError::Invalid(format!("{word} of a part of a column is not supported yet")));
        };
        let column = names::column(self.cx.table, name)?.clone();
        if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            return Err(QueryError::Invalid(format!(
                "Cannot use selection function {word} on PRIMARY KEY part {}",
                column.name
            )));
        }
        let one = if function == CellFunction::TimeToLive { CqlType::Int } else { CqlType::Bigint };
        let ty = if column.ty.is_multi_cell() && function != CellFunction::MaxWriteTime {
            CqlType::List { element: Box::new(one), frozen: false }
        } else {
            one
        };
        let name = format!("{word}({})", column.name);
        let selector = match function {
            CellFunction::TimeToLive => Selector::TimeToLive(column),
            _ => Selector::WriteTime { column, greatest: function == CellFunction::MaxWriteTime },
        };
        Ok(Prepared { selector, name, ty })
    }

    fn element(&mut self, receiver: &Selectable, key: &ast::Term) -> Result<Prepared, QueryError> {
        let inner = self.expression(receiver, None)?;
        let (key_type, value_type) = match &inner.ty {
            CqlType::Map { key, value, .. } => ((**key).clone(), (**value).clone()),
            CqlType::Set { element, .. } => ((**element).clone(), (**element).clone()),
            CqlType::List { .. } => {
                return Err(QueryError::Invalid(format!(
                    "Element selection is only allowed on sets and maps, but {} is a list",
                    inner.name
                )));
            }
            other => {
                return Err(QueryError::Invalid(format!(
                    "Invalid element selection: {} is of type {other} is not a collection",
                    inner.name
                )));
            }
        };
        let name = format!("{}[{}]", inner.name, crate::terms::text::of_term(key));
        let key = self.cx.prepare(key, &Receiver::key_of(&inner.name, key_type))?;
        let selector = Selector::Element { collection: Box::new(inner.selector), ty: inner.ty, key };
        Ok(Prepared { selector, name, ty: value_type })
    }

    fn function(
        &mut self,
        name: &ast::QualifiedName,
        arguments: &[Selectable],
        expected: Option<&CqlType>,
    ) -> Result<Prepared, QueryError> {
        let lower = name.name.name.to_lowercase();
        let native = name.keyspace.as_ref().is_none_or(|keyspace| keyspace.name == "system");
        if native && let Some(kind) = AggregateKind::of_name(&lower) {
            return self.aggregate_call(kind, arguments);
        }
        let unknown = || {
            let keyspace = name.keyspace.as_ref().map(|k| format!("{}.", k.name)).unwrap_or_default();
            QueryError::Invalid(format!("Unknown function '{keyspace}{}'", name.name.name))
        };
        if !native {
            return Err(unknown());
        }
        let shapes: Vec<Shape<'_>> = arguments.iter().map(|argument| self.shape(argument)).collect();
        let site = functions::CallSite {
            keyspace: name.keyspace.as_ref().map(|keyspace| keyspace.name.as_str()),
            name: &name.name.name,
            table: self.cx.table,
            schema: self.cx.schema,
            receiver: expected,
        };
        let function = functions::resolve(&site, &shapes.as_slice())?.ok_or_else(unknown)?;
        let mut selectors = Vec::with_capacity(arguments.len());
        let mut shown = Vec::with_capacity(arguments.len());
        for (argument, ty) in arguments.iter().zip(function.arguments().to_vec()) {
            let prepared = self.expression(argument, Some(&ty))?;
            selectors.push(prepared.selector);
            shown.push(prepared.name);
        }
        let name = function.column_name(&shown);
        let ty = function.result().clone();
        Ok(Prepared { selector: Selector::Call(function, selectors), name, ty })
    }

    fn aggregate_call(
        &mut self,
        kind: AggregateKind,
        arguments: &[Selectable],
    ) -> Result<Prepared, QueryError> {
        if self.inside_aggregate {
            return Err(QueryError::invalid(
                "aggregate functions cannot be used as arguments of aggregate functions",
            ));
        }
        let [argument] = arguments else {
            return Err(QueryError::Invalid(format!(
                "Invalid number of arguments in call to function system.{}: 1 required but {} provided",
                kind.name(),
                arguments.len()
            )));
        };
        if kind == AggregateKind::Count && matches!(argument, Selectable::Constant(_)) {
            return Ok(self.aggregate(AggregateKind::CountRows, CqlType::Int, None, "count".to_owned()));
        }
        self.inside_aggregate = true;
        let inner = self.expression(argument, None);
        self.inside_aggregate = false;
        let inner = inner?;
        if kind.result(&inner.ty).is_none() {
            return Err(QueryError::Invalid(format!(
                "Invalid call to function system.{0}, none of its type signatures match (there is no {0} of {1})",
                kind.name(),
                inner.ty
            )));
        }
        let name = format!("system.{}({})", kind.name(), inner.name);
        Ok(self.aggregate(kind, inner.ty, Some(inner.selector), name))
    }

    /// What is known of an argument before its overload is chosen.
    fn shape<'e>(&mut self, argument: &'e Selectable) -> Shape<'e> {
        match argument {
            Selectable::Constant(constant) => Shape::Constant(constant),
            Selectable::BindMarker(_) => Shape::Marker,
            other => {
                // Tried out only for its type: what it would gather is taken back.
                let gathered = self.aggregates.len();
                let typed = self.expression(other, None);
                self.aggregates.truncate(gathered);
                match typed {
                    Ok(prepared) => Shape::Typed(prepared.ty, prepared.name),
                    Err(_) => Shape::Marker,
                }
            }
        }
    }
}

enum Shape<'e> {
    Constant(&'e ast::Constant),
    Marker,
    Typed(CqlType, String),
}

impl functions::CallArguments for &[Shape<'_>] {
    fn count(&self) -> usize {
        self.len()
    }

    fn fits(&self, at: usize, ty: &CqlType) -> Assignment {
        self[at].fits(ty)
    }

    fn compatible_type(&self, at: usize) -> Option<CqlType> {
        match &self[at] {
            Shape::Constant(constant) => literal::preferred_type(constant),
            Shape::Marker => None,
            Shape::Typed(ty, _) => Some(ty.clone()),
        }
    }

    fn is_marker(&self, at: usize) -> bool {
        matches!(self[at], Shape::Marker)
    }

    fn text(&self, at: usize) -> String {
        self[at].text()
    }
}

impl Shape<'_> {
    fn fits(&self, want: &CqlType) -> Assignment {
        match self {
            Self::Constant(constant) => literal::assignment(constant, want),
            Self::Marker => Assignment::Weak,
            Self::Typed(have, _) => functions::type_assignment(have, want),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Constant(constant) => constant_text(constant),
            Self::Marker => "?".to_owned(),
            Self::Typed(_, name) => name.clone(),
        }
    }
}

fn constant_text(constant: &ast::Constant) -> String {
    crate::terms::text::of_term(&ast::Term::Constant(constant.clone()))
}

fn unsupported(what: &str) -> QueryError {
    QueryError::Invalid(format!("{what} in the selection clause is not supported yet"))
}
