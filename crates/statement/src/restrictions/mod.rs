//! WHERE clauses: the partitions, the rows in them, and the remaining filters.
//!
//! Preparing groups the relations by their targets and refuses those that cannot be answered; executing turns
//! them into keys ([`keys`]), slices ([`slices`]) and tests of rows ([`filter`]). Rules and messages are
//! those of Cassandra 5's `StatementRestrictions`.

pub mod clause;
pub mod filter;
pub mod keys;
pub mod like;
mod relation;
pub mod slices;

use cql::ast::Relation;
use model::{Column, ColumnKind, Table};

use self::clause::{Clause, Test};
use self::filter::Filter;
use self::relation::Target;
use crate::StatementError;
use crate::terms::prepare::Context;

/// The error for a query that would need filtering.
pub const ALLOW_FILTERING_NEEDED: &str = "Cannot execute this query as it might involve data filtering and thus may \
have unpredictable performance. If you want to execute this query despite the performance unpredictability, use \
ALLOW FILTERING";
/// The error for such a query if `allow_filtering_enabled` is false.
pub const ALLOW_FILTERING_FORBIDDEN: &str = "Cannot execute this query as it might involve data filtering and thus may \
    have unpredictable performance. Executing this query despite the performance unpredictability with ALLOW FILTERING \
    has been disabled by the allow_filtering_enabled property in cassandra.yaml";

/// The statement that has the clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementKind {
    /// SELECT
    Select,
    /// INSERT: its key columns are equalities.
    Insert,
    /// UPDATE
    Update,
    /// DELETE
    Delete,
}

impl StatementKind {
    /// The word in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Select => "SELECT",
            Self::Insert => "INSERT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A prepared WHERE clause.
#[derive(Debug, Clone, Default)]
pub struct Restrictions {
    /// By partition key column; each an equality or IN unless [`Self::key_range`].
    pub partition_key: Vec<Clause>,
    /// Bounds of the token.
    pub token: Option<Clause>,
    /// The bounds of rows within a partition, in column order: equalities, then at most one slice.
    pub clustering: Vec<Clause>,
    /// Tests that have to examine rows.
    pub filters: Vec<Filter>,
    /// Number of trailing clustering columns that are null: rows of tables with COMPACT STORAGE may omit
    /// them.
    pub null_tail: usize,
    /// Whether partitions are scanned rather than named.
    pub key_range: bool,
    /// Whether any clustering column is restricted.
    pub restricts_clustering: bool,
    /// Whether any regular column is restricted.
    pub restricts_regular: bool,
    /// Whether ALLOW FILTERING is missing. Reported last, as by Cassandra: other mistakes of a SELECT come
    /// first.
    pub filters_unasked: bool,
    /// Clustering columns restricted by an equality (not by IN), for ORDER BY.
    pub clustering_equal: Vec<bool>,
}

impl Restrictions {
    /// Whether IN restricts a column of the partition key, even if other columns of it are filtered.
    pub fn partition_key_uses_in(&self) -> bool {
        self.partition_key.iter().any(|clause| matches!(clause.test, Test::In(_)))
    }

    /// Whether the product of IN lists may be many keys or rows, which take long to be put together.
    #[inline]
    pub fn may_name_many(&self) -> bool {
        self.partition_key_uses_in() || self.clustering_has_in()
    }

    /// Whether IN names several partitions.
    pub fn partition_key_has_in(&self) -> bool {
        !self.key_range && self.partition_key_uses_in()
    }

    /// Whether IN lists of clustering columns multiply.
    pub fn clustering_has_in(&self) -> bool {
        self.clustering.iter().any(|clause| matches!(clause.test, Test::In(_)))
    }

    /// Whether the clustering restrictions name whole rows, with IN among them. Ranges also make several
    /// slices, but no guardrail concerns them.
    pub fn names_rows_by_in(&self, table: &Table) -> bool {
        let named = |clause: &Clause| clause.is_equality() || matches!(clause.test, Test::In(_));
        self.clustering.iter().all(named)
            && self.clustering_has_in()
            && self.clustering.last().map_or(0, Clause::end) + self.null_tail == table.clustering().len()
    }

    /// Whether the clustering restrictions name whole rows.
    pub fn names_rows(&self, table: &Table) -> bool {
        self.clustering.iter().all(Clause::is_equality)
            && self.clustering.last().map_or(0, Clause::end) + self.null_tail == table.clustering().len()
    }

    /// Whether the clustering restrictions name one row of each partition.
    pub fn names_one_row(&self, table: &Table) -> bool {
        self.names_rows(table) && !self.clustering_has_in()
    }

    /// Whether a key column has one value, not one of several.
    pub fn is_equal(&self, column: &Column) -> bool {
        match column.kind {
            ColumnKind::PartitionKey => self.partition_key.iter().any(|clause| {
                clause.first == usize::from(column.position) && matches!(clause.test, Test::Equal(_))
            }),
            ColumnKind::Clustering => {
                self.clustering_equal.get(usize::from(column.position)).copied().unwrap_or(false)
            }
            ColumnKind::Static | ColumnKind::Regular => false,
        }
    }

    /// Whether a partition without rows is shown by its static row.
    pub fn shows_static_only(&self) -> bool {
        !self.restricts_clustering && !self.restricts_regular
    }
}

/// Prepares a WHERE clause. `only_static` says that the statement reads or writes only static columns.
///
/// # Errors
/// [`StatementError::Invalid`] in Cassandra's words.
pub fn prepare(
    cx: &mut Context<'_>,
    kind: StatementKind,
    relations: &[Relation],
    only_static: bool,
    allow_filtering: bool,
) -> Result<Restrictions, StatementError> {
    let mut sets = Sets::default();
    for relation in relations {
        if let Relation::Contains { key, .. } = relation
            && matches!(kind, StatementKind::Update | StatementKind::Delete)
        {
            let operator = if *key { "CONTAINS KEY" } else { "CONTAINS" };
            return Err(StatementError::Invalid(format!("Cannot use {} with {operator}", kind.name())));
        }
        for prepared in relation::prepare(cx, relation, allow_filtering)? {
            sets.add(prepared.target, prepared.clause, allow_filtering)?;
        }
    }
    let table = cx.table;
    let mut out =
        Restrictions { clustering_equal: vec![false; table.clustering().len()], ..Restrictions::default() };
    partitions(table, kind, &mut sets, allow_filtering, &mut out)?;
    rows(table, kind, sets.clustering, only_static, allow_filtering, &mut out)?;
    others(table, kind, sets.statics, sets.regulars, allow_filtering, &mut out)?;
    looked(table, kind, sets.looked, allow_filtering, &mut out)?;
    // Clustering restrictions bound rows of named partitions; over a range of partitions they filter.
    out.filters_unasked =
        out.key_range && out.restricts_clustering && !allow_filtering && !filters_freely(table);
    Ok(out)
}

/// Clauses by their targets, each set in column order.
#[derive(Debug, Default)]
struct Sets {
    partition_key: Vec<Clause>,
    token: Option<Clause>,
    clustering: Vec<Clause>,
    statics: Vec<Clause>,
    regulars: Vec<Clause>,
    /// Tests that have to examine rows, in the order written.
    looked: Vec<(ColumnKind, Clause)>,
}

impl Sets {
    fn add(&mut self, target: Target, clause: Clause, allow_filtering: bool) -> Result<(), StatementError> {
        match target {
            Target::Columns(kind) if matches!(clause.test, Test::Looked(_)) => {
                self.looked.push((kind, clause));
                Ok(())
            }
            Target::Token => match &mut self.token {
                Some(token) => token.merge(clause).map_err(|error| token_message(error, &token.names)),
                None => {
                    self.token = Some(clause);
                    Ok(())
                }
            },
            Target::Columns(ColumnKind::PartitionKey) => insert(&mut self.partition_key, clause),
            Target::Columns(ColumnKind::Static) => insert(&mut self.statics, clause),
            Target::Columns(ColumnKind::Regular) => insert(&mut self.regulars, clause),
            Target::Columns(ColumnKind::Clustering) => {
                let (first, slice) = (clause.first, clause.is_slice());
                let was_empty = self.clustering.is_empty();
                insert(&mut self.clustering, clause)?;
                if was_empty || allow_filtering {
                    return Ok(());
                }
                let last = self.clustering.last().expect("one was added");
                // The last clause may be the one just added: then the one before it decides.
                let before = self.clustering.iter().rev().find(|clause| clause.first < first);
                if let Some(before) = before.filter(|before| before.is_slice() && before.end() <= first) {
                    return Err(StatementError::Invalid(format!(
                        "Clustering column \"{}\" cannot be restricted (preceding column \"{}\" is restricted by a non-EQ relation)",
                        self.name_at(first),
                        before.names[0]
                    )));
                }
                if first < last.first && slice {
                    let next =
                        self.clustering.iter().find(|clause| clause.first > first).expect("the last one");
                    return Err(StatementError::Invalid(format!(
                        "PRIMARY KEY column \"{}\" cannot be restricted (preceding column \"{}\" is restricted by a non-EQ relation)",
                        next.names[0],
                        self.name_at(first)
                    )));
                }
                Ok(())
            }
        }
    }

    fn name_at(&self, first: usize) -> String {
        let clause = self.clustering.iter().find(|clause| clause.first == first);
        clause.map(|clause| clause.names[0].clone()).unwrap_or_default()
    }
}

fn token_message(error: StatementError, names: &[String]) -> StatementError {
    let text = error.to_string().replace(" ,", ", ");
    if text.ends_with("by both an equality and an inequality relation") {
        return StatementError::Invalid(format!(
            "Columns \"{}\" cannot be restricted by both an equality and an inequality relation",
            names.join(", ")
        ));
    }
    StatementError::Invalid(text)
}

/// Adds a clause to a set, merging it with a clause that it overlaps. If it overlaps two it excludes at least
/// one of them; merging with each reports the error.
fn insert(set: &mut Vec<Clause>, clause: Clause) -> Result<(), StatementError> {
    let (first, end) = (clause.first, clause.end());
    let mut overlapping = set.iter_mut().filter(|have| have.first < end && first < have.end()).peekable();
    while let Some(have) = overlapping.next() {
        if overlapping.peek().is_none() {
            return have.merge(clause);
        }
        have.merge(clause.clone())?;
    }
    let at = set.partition_point(|have| have.first < first);
    set.insert(at, clause);
    Ok(())
}

fn partitions(
    table: &Table,
    kind: StatementKind,
    sets: &mut Sets,
    allow_filtering: bool,
    out: &mut Restrictions,
) -> Result<(), StatementError> {
    let clauses = std::mem::take(&mut sets.partition_key);
    let has_slice = clauses.iter().any(Clause::is_slice);
    let missing: Vec<&str> = table
        .partition_key()
        .iter()
        .enumerate()
        .filter(|(at, _)| !clauses.iter().any(|clause| clause.first == *at))
        .map(|(_, column)| column.name.as_str())
        .collect();
    if kind != StatementKind::Select {
        if sets.token.is_some() {
            return Err(StatementError::Invalid(format!(
                "The token function cannot be used in WHERE clauses for {} statements",
                kind.name()
            )));
        }
        if !missing.is_empty() {
            return Err(StatementError::Invalid(format!(
                "Some partition key parts are missing: {}",
                missing.join(", ")
            )));
        }
        if has_slice {
            return Err(StatementError::Invalid(format!(
                "Only EQ and IN relation are supported on the partition key (unless you use the token() function) for {} statements",
                kind.name()
            )));
        }
    }
    let has_contains = clauses.iter().any(Clause::is_contains);
    let need_filtering = !clauses.is_empty() && (!missing.is_empty() || has_slice || has_contains);
    if need_filtering {
        if !allow_filtering && !filters_freely(table) {
            return Err(StatementError::invalid(ALLOW_FILTERING_NEEDED));
        }
        filter::from_clauses(table.partition_key(), ColumnKind::PartitionKey, &clauses, &mut out.filters)?;
    }
    out.key_range = need_filtering || clauses.is_empty();
    out.partition_key = clauses;
    out.token = sets.token.take();
    Ok(())
}

fn rows(
    table: &Table,
    kind: StatementKind,
    clauses: Vec<Clause>,
    only_static: bool,
    allow_filtering: bool,
    out: &mut Restrictions,
) -> Result<(), StatementError> {
    out.restricts_clustering = !clauses.is_empty();
    if only_static && !clauses.is_empty() {
        match kind {
            StatementKind::Update | StatementKind::Delete => {
                return Err(StatementError::Invalid(format!(
                    "Invalid restrictions on clustering columns since the {} statement modifies only static columns",
                    kind.name()
                )));
            }
            StatementKind::Select => {
                return Err(StatementError::invalid(
                    "Cannot restrict clustering columns when selecting only static columns",
                ));
            }
            StatementKind::Insert => {}
        }
    }
    let restricted = |at: usize| clauses.iter().any(|clause| (clause.first..clause.end()).contains(&at));
    if matches!(kind, StatementKind::Insert | StatementKind::Update) {
        if clauses.iter().any(Clause::is_slice) {
            return Err(StatementError::Invalid(format!(
                "Slice restrictions are not supported on the clustering columns in {} statements",
                kind.name()
            )));
        }
        let missing: Vec<&str> = table
            .clustering()
            .iter()
            .enumerate()
            .filter(|(at, _)| !restricted(*at))
            .map(|(_, column)| column.name.as_str())
            .collect();
        if table.compact().is_some() && !clauses.is_empty() {
            check_gaps(table, &clauses, allow_filtering)?;
            out.null_tail = missing.len();
        } else if !only_static && !missing.is_empty() {
            return Err(StatementError::Invalid(format!(
                "Some clustering keys are missing: {}",
                missing.join(", ")
            )));
        }
    } else {
        check_gaps(table, &clauses, allow_filtering)?;
    }
    let mut position = 0;
    for clause in clauses {
        if matches!(clause.test, Test::Equal(_)) {
            out.clustering_equal[clause.first..clause.end()].fill(true);
        }
        if clause.is_contains() || clause.first != position {
            filter::from_clauses(table.clustering(), ColumnKind::Clustering, &[clause], &mut out.filters)?;
            continue;
        }
        if clause.is_equality() {
            position = clause.end();
        }
        out.clustering.push(clause);
    }
    Ok(())
}

fn check_gaps(table: &Table, clauses: &[Clause], allow_filtering: bool) -> Result<(), StatementError> {
    if allow_filtering {
        return Ok(());
    }
    if clauses.iter().any(Clause::is_contains) {
        return Err(StatementError::invalid(
            "Clustering columns can only be restricted with CONTAINS with a secondary index or filtering",
        ));
    }
    let mut expected = 0;
    for clause in clauses {
        if clause.first != expected {
            return Err(StatementError::Invalid(format!(
                "PRIMARY KEY column \"{}\" cannot be restricted as preceding column \"{}\" is not restricted",
                clause.names[0],
                table.clustering()[expected].name
            )));
        }
        expected = clause.end();
    }
    Ok(())
}

fn others(
    table: &Table,
    kind: StatementKind,
    statics: Vec<Clause>,
    regulars: Vec<Clause>,
    allow_filtering: bool,
    out: &mut Restrictions,
) -> Result<(), StatementError> {
    if statics.is_empty() && regulars.is_empty() {
        return Ok(());
    }
    if kind != StatementKind::Select {
        let names: Vec<&str> =
            statics.iter().chain(&regulars).map(|clause| clause.names[0].as_str()).collect();
        // The blank before the end is Cassandra's.
        return Err(StatementError::Invalid(format!(
            "Non PRIMARY KEY columns found in where clause: {} ",
            names.join(", ")
        )));
    }
    if !allow_filtering && !filters_freely(table) {
        return Err(StatementError::invalid(ALLOW_FILTERING_NEEDED));
    }
    out.restricts_regular = !regulars.is_empty();
    filter::from_clauses(table.statics(), ColumnKind::Static, &statics, &mut out.filters)?;
    filter::from_clauses(table.regulars(), ColumnKind::Regular, &regulars, &mut out.filters)
}

fn looked(
    table: &Table,
    kind: StatementKind,
    looked: Vec<(ColumnKind, Clause)>,
    allow_filtering: bool,
    out: &mut Restrictions,
) -> Result<(), StatementError> {
    if looked.is_empty() {
        return Ok(());
    }
    if kind != StatementKind::Select {
        return Err(StatementError::Invalid(format!(
            "Only EQ and IN relations can name the rows of {} statements",
            kind.name()
        )));
    }
    if !allow_filtering && !filters_freely(table) {
        return Err(StatementError::invalid(ALLOW_FILTERING_NEEDED));
    }
    for (column_kind, clause) in &looked {
        out.restricts_clustering |= *column_kind == ColumnKind::Clustering;
        out.restricts_regular |= *column_kind == ColumnKind::Regular;
        let columns = table.columns_of(*column_kind);
        filter::from_clauses(columns, *column_kind, std::slice::from_ref(clause), &mut out.filters)?;
    }
    Ok(())
}

/// Whether a table is small and made in memory, so that filtering it needs no permission.
fn filters_freely(table: &Table) -> bool {
    matches!(table.keyspace(), "system_views" | "system_virtual_schema")
}
