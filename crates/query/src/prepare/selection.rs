//! Selection clauses: what is made of each row, or of each group of rows.
//!
//! Takes resolved expressions, settles the types that were open, and makes [`Selector`]s with the names and types that
//! the result shows. Rules and messages as Cassandra 5's `Selection` and `Selectable.newSelectorFactory`.

use cql::ast::Selection as RawSelection;
use model::{Column, ColumnKind, CqlType, Table};

use super::expression::Preparation;
use super::resolved::Resolved;
use super::selectable;
use super::selector::{Aggregate, Selector};
use crate::QueryError;
use crate::functions::json::append_quoted;
use crate::terms::prepare::Context;

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

impl GroupBy {
    /// Type of what the function gives, where there is one.
    pub fn output_type(&self) -> Option<&CqlType> {
        match &self.function {
            Some(Selector::Call(function, _)) => Some(function.result()),
            _ => None,
        }
    }
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
    /// Whether its column is no part of a key.
    #[inline]
    pub fn is_of_row(&self) -> bool {
        matches!(self.column.kind, ColumnKind::Static | ColumnKind::Regular)
    }

    /// Values of a column.
    pub fn of(column: &Column) -> Self {
        Self::from(column.clone())
    }
}

impl From<Column> for Source {
    fn from(column: Column) -> Self {
        Self { multi_cell: column.ty.is_multi_cell(), column }
    }
}

impl Selection {
    /// The aggregates, where there are any.
    pub fn aggregates(&self) -> &[Aggregate] {
        if let SelectionKind::Groups(groups) = &self.kind { &groups.aggregates } else { &[] }
    }

    /// Whether one of the user's functions runs for each row.
    pub fn calls_user(&self) -> bool {
        match &self.kind {
            SelectionKind::Columns(_) => false,
            SelectionKind::Expressions(selectors) => selectors.iter().any(|one| one.calls_user(&[])),
            SelectionKind::Groups(groups) => {
                let function = groups.by.as_ref().and_then(|by| by.function.as_ref());
                let selectors = groups.selectors.iter().chain(function);
                selectors.into_iter().any(|one| one.calls_user(&groups.aggregates))
            }
        }
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

/// Prepares a selection clause; `grouped` says that GROUP BY will cut the rows. What was resolved before is in `already`.
///
/// One selector after another, so that the first one's mistake is told, as in Cassandra.
///
/// # Errors
/// [`QueryError::Invalid`] in Cassandra's words.
pub(super) fn prepare(
    cx: &mut Context<'_>,
    table: &Table,
    raw: &RawSelection,
    already: Vec<Option<Resolved<'_>>>,
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
    let mut preparation = Preparation::new(cx);
    let (mut selectors, mut columns) = (Vec::with_capacity(raw.len()), Vec::with_capacity(raw.len()));
    for (selector, resolved) in raw.iter().zip(already) {
        let resolved = match resolved {
            Some(resolved) => resolved,
            None => selectable::resolve(preparation.cx, &selector.expression)?,
        };
        let prepared = preparation.expression(&resolved, None)?;
        let name = selector.alias.as_ref().map_or(prepared.name, |alias| alias.name.clone());
        columns.push((name, prepared.ty));
        selectors.push(prepared.selector);
    }
    let shown = selectors.len();
    let aggregates = preparation.aggregates;
    let column =
        |selector| if let Selector::Column(column) = selector { Some(Source::from(column)) } else { None };
    let kind = if !aggregates.is_empty() || by.is_some() {
        SelectionKind::Groups(Groups { selectors, aggregates, by })
    } else if selectors.iter().all(|selector| matches!(selector, Selector::Column(_))) {
        SelectionKind::Columns(selectors.into_iter().filter_map(column).collect())
    } else {
        SelectionKind::Expressions(selectors)
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
    columns.retain(|column| !table.hides(column));
    columns
}
