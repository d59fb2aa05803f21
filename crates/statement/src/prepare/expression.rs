//! Converts resolved expressions to [`Selector`]s; open types are determined by the context.
//!
//! It collects the aggregates of a selection, and gives each expression the name of its result column. Rules
//! and messages are those of Cassandra 5's `Selectable.newSelectorFactory`.

use cql::ast;
use model::CqlType;

use super::resolved::{Entry, Resolved, cannot_infer, cell_type, cell_word, element_type, is_primary_key};
use super::selector::{Aggregate, Prepared, Selector, Slice};
use crate::StatementError;
use crate::functions::Function;
use crate::terms::prepare::Context;
use crate::terms::{Receiver, Term};

/// Prepares an expression that is no aggregate, as GROUP BY has it.
///
/// # Errors
/// [`StatementError::Invalid`] in Cassandra's words.
pub(super) fn single(cx: &mut Context<'_>, resolved: &Resolved<'_>) -> Result<Selector, StatementError> {
    Preparation::new(cx).expression(resolved, None).map(|prepared| prepared.selector)
}

/// Prepares expressions of one selection, gathering its aggregates.
pub(super) struct Preparation<'c, 'a> {
    pub(super) cx: &'c mut Context<'a>,
    /// Aggregates found so far.
    pub(super) aggregates: Vec<Aggregate>,
}

impl<'c, 'a> Preparation<'c, 'a> {
    /// Nothing prepared yet.
    pub(super) fn new(cx: &'c mut Context<'a>) -> Self {
        Self { cx, aggregates: Vec::new() }
    }

    /// Prepares one expression; `expected` is the type that the context requires.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] in Cassandra's words.
    pub(super) fn expression(
        &mut self,
        expression: &Resolved<'_>,
        expected: Option<&CqlType>,
    ) -> Result<Prepared, StatementError> {
        reactor::give_way();
        match expression {
            Resolved::Column(column) => Ok(Prepared {
                name: column.name.clone(),
                ty: column.ty.clone(),
                selector: Selector::Column((*column).clone()),
            }),
            Resolved::Constant(constant) => {
                self.term(&ast::Term::Constant((*constant).clone()), expression, expected)
            }
            Resolved::Marker(marker) => {
                self.term(&ast::Term::BindMarker((*marker).clone()), expression, expected)
            }
            Resolved::Cell { function, column, operand } => {
                let word = cell_word(*function);
                if is_primary_key(column) {
                    return Err(StatementError::Invalid(format!(
                        "Cannot use selection function {word} on PRIMARY KEY part {}",
                        column.name
                    )));
                }
                let inner = self.expression(operand, None)?;
                let multi_cell = inner.ty.is_multi_cell();
                let operand = Box::new(inner.selector);
                Ok(Prepared {
                    selector: Selector::Cell { function: *function, operand, multi_cell },
                    name: format!("{word}({})", inner.name),
                    ty: cell_type(*function, multi_cell),
                })
            }
            Resolved::Cast { operand, target } => {
                let inner = self.expression(operand, None)?;
                if inner.ty == *target {
                    // Left out altogether, also from the name of the result column.
                    return Ok(inner);
                }
                let function = Function::cast_of(&inner.ty, &inner.name, target)?;
                let name = format!("cast({} as {target})", inner.name);
                Ok(Prepared {
                    selector: Selector::Call(function, vec![inner.selector]),
                    name,
                    ty: target.clone(),
                })
            }
            Resolved::Call { function, arguments } => {
                let types = function.arguments().to_vec();
                let (selectors, names) = self.parts(arguments.iter().zip(&types))?;
                Ok(Prepared {
                    name: function.column_name(&names),
                    ty: function.result().clone(),
                    selector: Selector::Call(function.clone(), selectors),
                })
            }
            Resolved::Aggregate { kind, ty, argument } => {
                let inner =
                    argument.as_ref().map(|argument| self.expression(argument, Some(ty))).transpose()?;
                let name = kind.column_name(inner.as_ref().map(|inner| inner.name.as_str()));
                let result = kind.result(ty).unwrap_or(CqlType::Bigint);
                let argument = inner.map(|inner| inner.selector);
                self.aggregates.push(Aggregate::Native { kind: *kind, ty: ty.clone(), argument });
                Ok(Prepared { selector: Selector::Aggregate(self.aggregates.len() - 1), name, ty: result })
            }
            Resolved::UserAggregate { aggregate, arguments } => {
                let types = aggregate.arguments().to_vec();
                let (selectors, names) = self.parts(arguments.iter().zip(&types))?;
                let name = format!("{}({})", aggregate.full_name(), names.join(", "));
                let (aggregate, ty) = (aggregate.clone(), aggregate.result().clone());
                self.aggregates.push(Aggregate::User { aggregate, arguments: selectors });
                Ok(Prepared { selector: Selector::Aggregate(self.aggregates.len() - 1), name, ty })
            }
            Resolved::Field { receiver, field } => self.field(receiver, field),
            Resolved::Element { receiver, key } => self.element(receiver, key),
            Resolved::Slice { receiver, from, to } => self.slice(expression, receiver, *from, *to, expected),
            Resolved::Hint { shown, ty, operand } => {
                if let (CqlType::Udt(udt), Resolved::Entries(entries)) = (ty, &**operand) {
                    entries.iter().try_for_each(|entry| entry.place_in(udt).map(drop))?;
                }
                if !operand.assignment(ty).is_assignable() {
                    let text = expression.text();
                    return Err(StatementError::Invalid(format!(
                        "Cannot assign value {text} to {text} of type {ty}"
                    )));
                }
                let inner = self.expression(operand, Some(ty))?;
                Ok(Prepared { name: format!("({shown}){}", inner.name), ty: ty.clone(), ..inner })
            }
            Resolved::List(parts) => match expected {
                Some(vector @ CqlType::Vector { element, dimension }) => {
                    if *dimension as usize != parts.len() {
                        return Err(StatementError::Invalid(format!(
                            "Unable to create a vector selector of type {vector} from {} elements",
                            parts.len()
                        )));
                    }
                    self.build(vector.clone(), parts.iter().map(|part| (part, &**element)), ("[", "]"))
                }
                _ => match expression.exact_type().or_else(|| expected.cloned()) {
                    Some(ty @ CqlType::List { .. }) => {
                        let CqlType::List { element, .. } = ty.clone() else { return Err(open(expression)) };
                        self.build(ty, parts.iter().map(|part| (part, &*element)), ("[", "]"))
                    }
                    _ => Err(open(expression)),
                },
            },
            Resolved::Set(parts) => match expression.exact_type().or_else(|| expected.cloned()) {
                Some(ty @ CqlType::Map { .. }) if parts.is_empty() => {
                    self.build(ty, std::iter::empty(), ("{", "}"))
                }
                Some(ty @ CqlType::Set { .. }) => {
                    let CqlType::Set { element, .. } = ty.clone() else { return Err(open(expression)) };
                    if *element == CqlType::Duration {
                        return Err(StatementError::Invalid(format!(
                            "Durations are not allowed inside sets: {ty}"
                        )));
                    }
                    self.build(ty, parts.iter().map(|part| (part, &*element)), ("{", "}"))
                }
                _ => Err(open(expression)),
            },
            Resolved::Tuple(parts) => match expression.exact_type().or_else(|| expected.cloned()) {
                Some(CqlType::Tuple(types)) => {
                    let ty = CqlType::Tuple(types.clone());
                    self.build(ty, parts.iter().zip(&types), ("(", ")"))
                }
                Some(_) if parts.len() == 1 => {
                    let inner = self.expression(&parts[0], expected)?;
                    Ok(Prepared { name: format!("({})", inner.name), ..inner })
                }
                _ => Err(open(expression)),
            },
            Resolved::Entries(entries) => match expected {
                Some(CqlType::Udt(_)) => self.user_type(entries, expected.cloned()),
                Some(CqlType::Map { key, value, .. }) => self.map(entries, expected, key, value),
                _ => Err(open(expression)),
            },
        }
    }

    fn term(
        &mut self,
        term: &ast::Term,
        expression: &Resolved<'_>,
        expected: Option<&CqlType>,
    ) -> Result<Prepared, StatementError> {
        let ty = expected.ok_or_else(|| open(expression))?;
        let prepared = self.cx.prepare(term, &Receiver::new("[selection]", ty.clone()))?;
        Ok(Prepared { selector: Selector::Term(prepared), name: expression.text(), ty: ty.clone() })
    }

    /// Prepares parts with the types required of them; returns their selectors and names.
    fn parts<'r, 'e: 'r>(
        &mut self,
        parts: impl Iterator<Item = (&'r Resolved<'e>, &'r CqlType)>,
    ) -> Result<(Vec<Selector>, Vec<String>), StatementError> {
        let (mut selectors, mut names) = (Vec::new(), Vec::new());
        for (part, ty) in parts {
            let prepared = self.expression(part, Some(ty))?;
            selectors.push(prepared.selector);
            names.push(prepared.name);
        }
        Ok((selectors, names))
    }

    fn build<'r, 'e: 'r>(
        &mut self,
        ty: CqlType,
        parts: impl Iterator<Item = (&'r Resolved<'e>, &'r CqlType)>,
        (open, close): (&str, &str),
    ) -> Result<Prepared, StatementError> {
        let (parts, names) = self.parts(parts)?;
        let name = format!("{open}{}{close}", names.join(", "));
        Ok(Prepared { selector: Selector::Build { ty: ty.clone(), parts }, name, ty })
    }

    fn map(
        &mut self,
        entries: &[Entry<'_>],
        expected: Option<&CqlType>,
        key_type: &CqlType,
        value_type: &CqlType,
    ) -> Result<Prepared, StatementError> {
        let ty = expected.cloned().unwrap_or(CqlType::Blob);
        if *key_type == CqlType::Duration {
            return Err(StatementError::Invalid(format!("Durations are not allowed as map keys: {ty}")));
        }
        let (mut parts, mut names) = (Vec::new(), Vec::new());
        for entry in entries {
            let key = entry.key.as_ref().map_err(|error| StatementError::Invalid(error.to_string()))?;
            let key = self.expression(key, Some(key_type))?;
            let value = self.expression(&entry.value, Some(value_type))?;
            names.push(format!("{}: {}", key.name, value.name));
            parts.extend([key.selector, value.selector]);
        }
        Ok(Prepared {
            selector: Selector::Build { ty: ty.clone(), parts },
            name: format!("{{{}}}", names.join(", ")),
            ty,
        })
    }

    fn user_type(
        &mut self,
        entries: &[Entry<'_>],
        expected: Option<CqlType>,
    ) -> Result<Prepared, StatementError> {
        let Some(CqlType::Udt(udt)) = expected else {
            return Err(StatementError::Internal("a user type that is none".to_owned()));
        };
        let mut parts = vec![Selector::Term(Term::NULL); udt.fields.len()];
        let mut names = Vec::with_capacity(entries.len());
        for entry in entries {
            let (at, field) = entry.place_in(&udt)?;
            let value = self.expression(&entry.value, Some(&udt.fields[at].1))?;
            names.push(format!("{field}: {}", value.name));
            parts[at] = value.selector;
        }
        let ty = CqlType::Udt(udt);
        Ok(Prepared {
            selector: Selector::Build { ty: ty.clone(), parts },
            name: format!("{{{}}}", names.join(", ")),
            ty,
        })
    }

    fn field(&mut self, receiver: &Resolved<'_>, field: &ast::Ident) -> Result<Prepared, StatementError> {
        let within = match receiver {
            Resolved::Tuple(parts) => parts.first().and_then(Resolved::exact_type),
            _ => None,
        };
        let inner = self.expression(receiver, within.as_ref())?;
        let CqlType::Udt(udt) = &inner.ty else {
            return Err(StatementError::Invalid(format!(
                "Invalid field selection: {} of type {} is not a user type",
                receiver.text(),
                inner.ty
            )));
        };
        let at = udt.fields.iter().position(|(name, _)| *name == field.name).ok_or_else(|| {
            StatementError::Invalid(format!(
                "{} of type {} has no field {}",
                receiver.text(),
                inner.ty,
                field.name
            ))
        })?;
        let name = format!("{}.{}", inner.name, field.name);
        let ty = udt.fields[at].1.clone();
        Ok(Prepared { selector: Selector::Field(Box::new(inner.selector), at), name, ty })
    }

    /// The receiver of keys of a set or map, for an element or a slice of it.
    fn key_receiver(&self, what: &str, inner: &Prepared, shown: &str) -> Result<Receiver, StatementError> {
        match &inner.ty {
            CqlType::Map { key, .. } => Ok(Receiver::key_of(&inner.name, (**key).clone())),
            CqlType::Set { element, .. } => Ok(Receiver::value_of(&inner.name, (**element).clone())),
            CqlType::List { .. } => Err(StatementError::Invalid(format!(
                "{what} selection is only allowed on sets and maps, but {shown} is a list"
            ))),
            other if what == "Slice" => Err(StatementError::Invalid(format!(
                "Invalid slice selection: {shown} of type {other} is not a collection"
            ))),
            other => Err(StatementError::Invalid(format!(
                "Invalid element selection: {shown} is of type {other} is not a collection"
            ))),
        }
    }

    fn element(&mut self, receiver: &Resolved<'_>, key: &ast::Term) -> Result<Prepared, StatementError> {
        let inner = self.expression(receiver, None)?;
        let shown = receiver.text();
        let key_receiver = self.key_receiver("Element", &inner, &shown)?;
        let name = format!("{shown}[{}]", crate::terms::text::of_term(key));
        let key = self.cx.prepare(key, &key_receiver)?;
        let ty = element_type(&inner.ty).unwrap_or(CqlType::Blob);
        let collection = Box::new(inner.selector);
        let selector = Selector::Element { collection, ty: inner.ty, key, name: inner.name };
        Ok(Prepared { selector, name, ty })
    }

    fn slice(
        &mut self,
        expression: &Resolved<'_>,
        receiver: &Resolved<'_>,
        from: Option<&ast::Term>,
        to: Option<&ast::Term>,
        expected: Option<&CqlType>,
    ) -> Result<Prepared, StatementError> {
        let inner = self.expression(receiver, expected)?;
        let key_receiver = self.key_receiver("Slice", &inner, &receiver.text())?;
        let mut bound =
            |term: Option<&ast::Term>| term.map(|term| self.cx.prepare(term, &key_receiver)).transpose();
        let (from, to) = (bound(from)?, bound(to)?);
        let ty = inner.ty.clone();
        let slice = Slice { collection: inner.selector, ty: inner.ty, from, to, name: inner.name };
        Ok(Prepared { selector: Selector::Slice(Box::new(slice)), name: expression.text(), ty })
    }
}

fn open(expression: &Resolved<'_>) -> StatementError {
    cannot_infer(&expression.text())
}
