//! Selection clauses: the values computed for each row, or for each group of rows.
//!
//! Takes resolved expressions, determines open types, and makes [`Selector`]s with the names and types of the
//! result. Rules and messages are those of Cassandra 5's `Selection` and `Selectable.newSelectorFactory`.

use cql::ast::Selection as RawSelection;
use model::{Column, ColumnKind, CqlType, Table};

use super::expression::Preparation;
use super::resolved::Resolved;
use super::selectable;
use super::selector::{Aggregate, Selector};
use crate::StatementError;
use crate::functions::json::append_quoted;
use crate::terms::prepare::Context;

/// The values computed for each row.
#[derive(Debug)]
pub struct Selection {
    /// How values are computed.
    pub kind: SelectionKind,
    /// Number of values of each row that the client sees; those behind are for sorting.
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
    /// The shown values: aggregates by their index, all others of the group's first row.
    pub selectors: Vec<Selector>,
    /// The aggregates.
    pub aggregates: Vec<Aggregate>,
    /// The definition of groups by GROUP BY; `None` if all rows are one group, even if there are none.
    pub by: Option<GroupBy>,
}

/// The common values of a group's rows: their partition, and the following.
#[derive(Debug, Default)]
pub struct GroupBy {
    /// Number of leading clustering columns.
    pub clustering: usize,
    /// A function of the last of them, used instead of its value.
    pub function: Option<Selector>,
}

impl GroupBy {
    /// Result type of the function, if there is one.
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
    /// The aggregates, if there are any.
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

    /// Calls of functions and operators for each row.
    pub fn calls(&self) -> usize {
        match &self.kind {
            SelectionKind::Columns(_) => 0,
            SelectionKind::Expressions(selectors) => selectors.iter().map(|one| one.calls(&[])).sum(),
            SelectionKind::Groups(groups) => {
                groups.selectors.iter().map(|one| one.calls(&groups.aggregates)).sum()
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

    /// The index of a column's value in each row; if the column is not selected it is added behind the shown
    /// ones.
    ///
    /// If the shown values become one text, the column is always added behind that.
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
    /// Combines the shown values into one JSON text; returns its column.
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

/// Prepares a selection clause; `grouped` says that GROUP BY defines groups. `already` has expressions that
/// were resolved before.
///
/// One selector after another, so that the first one's mistake is reported, as in Cassandra.
///
/// # Errors
/// [`StatementError::Invalid`] in Cassandra's words.
pub(super) fn prepare(
    cx: &mut Context<'_>,
    table: &Table,
    raw: &RawSelection,
    already: Vec<Option<Resolved<'_>>>,
    grouped: bool,
) -> Result<(Selection, ResultColumns), StatementError> {
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

/// The columns of `*`: the key, then static and regular columns, each by name regardless of their cells.
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
