//! Selection clauses: what is made of each row, or of each group of rows.
//!
//! Takes resolved expressions, settles the types that were open, and makes [`Selector`]s with the names and types that
//! the result shows. Rules and messages as Cassandra 5's `Selection` and `Selectable.newSelectorFactory`.

use cql::ast::{self, Selection as RawSelection};
use model::{Column, CqlType, Table};

use super::selectable::{self, Resolved, cannot_infer, cell_type, element_type, is_primary_key};
use super::selector::{Aggregate, Prepared, Selector, Slice};
use crate::QueryError;
use crate::functions::json::append_quoted;
use crate::terms::prepare::Context;
use crate::terms::{Receiver, Term};

/// What is made of each row.
#[derive(Debug)]
pub struct Selection {
    /// How values are made.
    pub kind: SelectionKind,
    /// Values of each row that the client sees; those behind are for sorting.
    pub shown: usize,
    /// `SELECT JSON`: the client sees the values as one text.
    pub json: Option<Box<JsonRow>>,
}

/// Keys and types of the values that become one JSON object.
#[derive(Debug)]
pub struct JsonRow {
    /// The keys as the text has them, with their quotes.
    pub keys: Vec<String>,
    /// Types of the values.
    pub types: Vec<CqlType>,
}

/// How the values of a row are made.
#[derive(Debug)]
pub enum SelectionKind {
    /// Each is a column.
    Columns(Vec<Source>),
    /// Each is an expression.
    Expressions(Vec<Selector>),
    /// The rows of a group make one.
    Groups(Groups),
}

/// Rows made of groups of rows.
#[derive(Debug)]
pub struct Groups {
    /// What is shown: aggregates by their place, all else of the group's first row.
    pub selectors: Vec<Selector>,
    /// The aggregates.
    pub aggregates: Vec<Aggregate>,
    /// Where GROUP BY ends a group; `None` where all rows are one group, also if there are none.
    pub by: Option<GroupBy>,
}

/// What the rows of a group have in common: their partition and what is named here.
#[derive(Debug, Default)]
pub struct GroupBy {
    /// How many of the leading clustering columns.
    pub clustering: usize,
    /// A function of the last of them, instead of its value.
    pub function: Option<Selector>,
}

/// A column as the place its values are taken from.
#[derive(Debug, Clone)]
pub struct Source {
    /// The column.
    pub column: Column,
    /// Whether elements are put together from several cells.
    pub multi_cell: bool,
}

impl Source {
    /// Values of a column.
    pub fn of(column: &Column) -> Self {
        Self { multi_cell: column.ty.is_multi_cell(), column: column.clone() }
    }
}

impl Selection {
    /// The aggregates, where there are any.
    pub fn aggregates(&self) -> &[Aggregate] {
        if let SelectionKind::Groups(groups) = &self.kind { &groups.aggregates } else { &[] }
    }

    /// Whether all rows make one.
    pub fn is_one_group(&self) -> bool {
        matches!(&self.kind, SelectionKind::Groups(groups) if groups.by.is_none())
    }

    /// Calls `each` for every column read.
    pub fn for_each_column(&self, each: &mut dyn FnMut(&Column)) {
        match &self.kind {
            SelectionKind::Columns(sources) => sources.iter().for_each(|source| each(&source.column)),
            SelectionKind::Expressions(selectors) => {
                selectors.iter().for_each(|selector| selector.for_each_column(&[], each));
            }
            SelectionKind::Groups(groups) => {
                groups.selectors.iter().for_each(|s| s.for_each_column(&groups.aggregates, each));
            }
        }
    }

    /// The place of a column's value in each row; it is added behind the shown ones where it is not selected.
    ///
    /// Where the shown ones become one text it is always behind that.
    pub fn place_of(&mut self, column: &Column, json: bool) -> usize {
        if json {
            let hidden = match &mut self.kind {
                SelectionKind::Columns(sources) => {
                    sources.push(Source::of(column));
                    sources.len()
                }
                SelectionKind::Expressions(selectors) | SelectionKind::Groups(Groups { selectors, .. }) => {
                    selectors.push(Selector::Column(column.clone()));
                    selectors.len()
                }
            };
            return hidden - self.shown;
        }
        let selectors = match &mut self.kind {
            SelectionKind::Columns(sources) => {
                let at = sources.iter().position(|source| source.column.id == column.id);
                return at.unwrap_or_else(|| {
                    sources.push(Source::of(column));
                    sources.len() - 1
                });
            }
            SelectionKind::Expressions(selectors) => selectors,
            SelectionKind::Groups(groups) => &mut groups.selectors,
        };
        let at = selectors.iter().position(|s| matches!(s, Selector::Column(c) if c.id == column.id));
        at.unwrap_or_else(|| {
            selectors.push(Selector::Column(column.clone()));
            selectors.len() - 1
        })
    }
}

impl Selection {
    /// Makes one JSON text of what is shown, and tells its column.
    pub fn become_json(&mut self, columns: &[(String, CqlType)]) -> ResultColumns {
        if let SelectionKind::Columns(sources) = &self.kind {
            let selectors = sources.iter().map(|source| Selector::Column(source.column.clone())).collect();
            self.kind = SelectionKind::Expressions(selectors);
        }
        let key = |name: &str| {
            let mut key = String::from("\"");
            if name.to_lowercase() == name {
                append_quoted(name, &mut key);
            } else {
                append_quoted(&format!("\"{name}\""), &mut key);
            }
            key.push('"');
            key
        };
        let (keys, types) = columns.iter().map(|(name, ty)| (key(name), ty.clone())).unzip();
        self.json = Some(Box::new(JsonRow { keys, types }));
        self.shown = 1;
        vec![("[json]".to_owned(), CqlType::Text)]
    }
}

/// Name and type of each value of a row.
pub type ResultColumns = Vec<(String, CqlType)>;

/// Prepares a selection clause; `grouped` says that GROUP BY will cut the rows.
///
/// # Errors
/// [`QueryError::Invalid`] in Cassandra's words.
pub fn prepare(
    cx: &mut Context<'_>,
    table: &Table,
    raw: &RawSelection,
    grouped: bool,
) -> Result<(Selection, ResultColumns), QueryError> {
    let by = grouped.then(GroupBy::default);
    let RawSelection::Selectors(raw) = raw else {
        let all = all_columns(table);
        let columns = all.iter().map(|column| (column.name.clone(), column.ty.clone())).collect();
        let shown = all.len();
        let kind = match by {
            None => SelectionKind::Columns(all.into_iter().map(Source::of).collect()),
            Some(_) => SelectionKind::Groups(Groups {
                selectors: all.into_iter().cloned().map(Selector::Column).collect(),
                aggregates: Vec::new(),
                by,
            }),
        };
        return Ok((Selection { kind, shown, json: None }, columns));
    };
    let resolved = raw
        .iter()
        .map(|selector| selectable::resolve(cx, &selector.expression))
        .collect::<Result<Vec<_>, _>>()?;
    let mut preparation = Preparation { cx, aggregates: Vec::new() };
    let (mut selectors, mut columns) = (Vec::with_capacity(raw.len()), Vec::with_capacity(raw.len()));
    for (selector, resolved) in raw.iter().zip(&resolved) {
        let prepared = preparation.expression(resolved, None)?;
        let name = selector.alias.as_ref().map_or(prepared.name, |alias| alias.name.clone());
        columns.push((name, prepared.ty));
        selectors.push(prepared.selector);
    }
    let shown = selectors.len();
    let aggregates = preparation.aggregates;
    let sources: Option<Vec<Source>> = selectors
        .iter()
        .map(|selector| if let Selector::Column(column) = selector { Some(Source::of(column)) } else { None })
        .collect();
    let kind = match sources {
        _ if !aggregates.is_empty() || by.is_some() => {
            SelectionKind::Groups(Groups { selectors, aggregates, by })
        }
        Some(sources) => SelectionKind::Columns(sources),
        None => SelectionKind::Expressions(selectors),
    };
    Ok((Selection { kind, shown, json: None }, columns))
}

/// The columns `*` stands for: the key, then static and regular columns, each by name whatever their cells are like.
pub fn all_columns(table: &Table) -> Vec<&Column> {
    let mut columns: Vec<&Column> = table.partition_key().iter().chain(table.clustering()).collect();
    for others in [table.statics(), table.regulars()] {
        let from = columns.len();
        columns.extend(others);
        columns[from..].sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    }
    columns
}

/// Prepares an expression that is no aggregate, as GROUP BY has it.
///
/// # Errors
/// [`QueryError::Invalid`] in Cassandra's words.
pub(super) fn single(cx: &mut Context<'_>, resolved: &Resolved<'_>) -> Result<Selector, QueryError> {
    Preparation { cx, aggregates: Vec::new() }.expression(resolved, None).map(|prepared| prepared.selector)
}

/// Prepares expressions of one selection, gathering its aggregates.
struct Preparation<'c, 'a> {
    cx: &'c mut Context<'a>,
    aggregates: Vec<Aggregate>,
}

impl Preparation<'_, '_> {
    /// Prepares one expression; `expected` is what surrounds it asks for.
    fn expression(
        &mut self,
        expression: &Resolved<'_>,
        expected: Option<&CqlType>,
    ) -> Result<Prepared, QueryError> {
        match expression {
            Resolved::Column(column) => Ok(Prepared {
                name: column.name.clone(),
                ty: column.ty.clone(),
                selector: Selector::Column(column.clone()),
            }),
            Resolved::Constant(constant) => {
                self.term(&ast::Term::Constant((*constant).clone()), expression, expected)
            }
            Resolved::Marker(marker) => {
                self.term(&ast::Term::BindMarker((*marker).clone()), expression, expected)
            }
            Resolved::Cell { function, column, operand } => {
                let word = selectable::cell_word(*function);
                if is_primary_key(column) {
                    return Err(QueryError::Invalid(format!(
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
            Resolved::Cast { operand, target, function } => {
                let inner = self.expression(operand, None)?;
                // A cast to the type that is there already is left out, also from the name of the result column.
                let Some(function) = function else { return Ok(inner) };
                let name = format!("cast({} as {target})", inner.name);
                let selector = Selector::Call(function.clone(), vec![inner.selector]);
                Ok(Prepared { selector, name, ty: target.clone() })
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
                self.aggregates.push(Aggregate { kind: *kind, ty: ty.clone(), argument });
                Ok(Prepared { selector: Selector::Aggregate(self.aggregates.len() - 1), name, ty: result })
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
                    return Err(QueryError::Invalid(format!(
                        "Cannot assign value {text} to {text} of type {ty}"
                    )));
                }
                let inner = self.expression(operand, Some(ty))?;
                Ok(Prepared { name: format!("({shown}){}", inner.name), ty: ty.clone(), ..inner })
            }
            Resolved::List(parts) => match expected {
                Some(vector @ CqlType::Vector { element, dimension }) => {
                    if *dimension as usize != parts.len() {
                        return Err(QueryError::Invalid(format!(
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
                        return Err(QueryError::Invalid(format!(
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
    ) -> Result<Prepared, QueryError> {
        let ty = expected.ok_or_else(|| open(expression))?;
        let prepared = self.cx.prepare(term, &Receiver::new("[selection]", ty.clone()))?;
        Ok(Prepared { selector: Selector::Term(prepared), name: expression.text(), ty: ty.clone() })
    }

    /// Parts with what each is asked for: how they are evaluated, and their names.
    fn parts<'r, 'e: 'r>(
        &mut self,
        parts: impl Iterator<Item = (&'r Resolved<'e>, &'r CqlType)>,
    ) -> Result<(Vec<Selector>, Vec<String>), QueryError> {
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
    ) -> Result<Prepared, QueryError> {
        let (parts, names) = self.parts(parts)?;
        let name = format!("{open}{}{close}", names.join(", "));
        Ok(Prepared { selector: Selector::Build { ty: ty.clone(), parts }, name, ty })
    }

    fn map(
        &mut self,
        entries: &[selectable::Entry<'_>],
        expected: Option<&CqlType>,
        key_type: &CqlType,
        value_type: &CqlType,
    ) -> Result<Prepared, QueryError> {
        let ty = expected.cloned().unwrap_or(CqlType::Blob);
        if *key_type == CqlType::Duration {
            return Err(QueryError::Invalid(format!("Durations are not allowed as map keys: {ty}")));
        }
        let (mut parts, mut names) = (Vec::new(), Vec::new());
        for entry in entries {
            let key = entry.key.as_ref().map_err(|error| QueryError::Invalid(error.to_string()))?;
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
        entries: &[selectable::Entry<'_>],
        expected: Option<CqlType>,
    ) -> Result<Prepared, QueryError> {
        let Some(CqlType::Udt(udt)) = expected else {
            return Err(QueryError::Internal("a user type that is none".to_owned()));
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

    fn field(&mut self, receiver: &Resolved<'_>, field: &ast::Ident) -> Result<Prepared, QueryError> {
        let within = match receiver {
            Resolved::Tuple(parts) => parts.first().and_then(Resolved::exact_type),
            _ => None,
        };
        let inner = self.expression(receiver, within.as_ref())?;
        let CqlType::Udt(udt) = &inner.ty else {
            return Err(QueryError::Invalid(format!(
                "Invalid field selection: {} of type {} is not a user type",
                receiver.text(),
                inner.ty
            )));
        };
        let at = udt.fields.iter().position(|(name, _)| *name == field.name).ok_or_else(|| {
            QueryError::Invalid(format!(
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

    /// Where the keys of a set or map go, for an element or a slice of it.
    fn key_receiver(&self, what: &str, inner: &Prepared, shown: &str) -> Result<Receiver, QueryError> {
        match &inner.ty {
            CqlType::Map { key, .. } => Ok(Receiver::key_of(&inner.name, (**key).clone())),
            CqlType::Set { element, .. } => Ok(Receiver::value_of(&inner.name, (**element).clone())),
            CqlType::List { .. } => Err(QueryError::Invalid(format!(
                "{what} selection is only allowed on sets and maps, but {shown} is a list"
            ))),
            other if what == "Slice" => Err(QueryError::Invalid(format!(
                "Invalid slice selection: {shown} of type {other} is not a collection"
            ))),
            other => Err(QueryError::Invalid(format!(
                "Invalid element selection: {shown} is of type {other} is not a collection"
            ))),
        }
    }

    fn element(&mut self, receiver: &Resolved<'_>, key: &ast::Term) -> Result<Prepared, QueryError> {
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
    ) -> Result<Prepared, QueryError> {
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

fn open(expression: &Resolved<'_>) -> QueryError {
    cannot_infer(&expression.text())
}
