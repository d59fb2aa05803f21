//! Converts text to executable statements: resolves names, checks types, makes metadata.
//!
//! A [`Prepared`] never changes. It holds the tables at the revision it was prepared for; the engine drops it
//! when one of them changes.

pub mod batch;
pub mod condition;
mod expression;
mod grouping;
pub mod json;
pub mod marker_sets;
pub mod modify;
pub mod operation;
mod resolved;
pub mod select;
mod selectable;
pub mod selection;
pub mod selector;
mod sourceless;
pub mod types;

use std::rc::Rc;

use cql::ast::{BatchKind, Describe, Modification, ParsedStatement, QualifiedName, SelectSource, Statement};
use model::{Schema, Table};

use self::batch::BatchPlan;
use self::modify::ModifyPlan;
use self::select::SelectPlan;
use crate::StatementError;
use crate::ambient::Ambient;
use crate::names;
use crate::results::ResultMetadata;
use crate::steps;
use crate::terms::prepare::{Context, Progress};
use crate::terms::{BindSpecification, Call, MarkerOptions, Markers, Term, order};

/// Most markers a statement may have: their number is 16 bits on the wire.
pub const MARKERS_MAX: usize = u16::MAX as usize;

/// A statement ready to be executed.
#[derive(Debug)]
pub struct Prepared {
    /// The statement's plan.
    pub plan: Plan,
    /// Its markers.
    pub markers: Vec<BindSpecification>,
    /// For each column of the partition key the marker bound to it; empty unless all are.
    pub partition_key_indexes: Vec<u16>,
    /// Calls of user-defined functions in terms, in the order they run.
    pub calls: Vec<Call>,
    /// Whether user-defined functions are called at all.
    pub calls_user: bool,
    /// Markers whose values may have to be sorted first.
    pub ordered_markers: Box<[usize]>,
    /// Whether executing it always needs a task: it calls user-defined functions, or has ordered markers.
    pub needs_task: bool,
    /// Whether the statement names its tables with their keyspaces, so that a connection's keyspace does not
    /// affect it.
    pub qualified: bool,
    /// Bytes of memory that preparing it took and kept; 0 if the allocator does not count.
    pub held_bytes: usize,
    /// Empty metadata, for statements without a result.
    no_result: ResultMetadata,
}

/// The kinds of statement.
#[derive(Debug)]
pub enum Plan {
    /// SELECT
    Select(Box<SelectPlan>),
    /// INSERT, UPDATE, DELETE
    Modify(Box<ModifyPlan>),
    /// BEGIN BATCH
    Batch(Box<BatchPlan>),
    /// TRUNCATE, with the timeout it names.
    Truncate(Rc<Table>, Option<Term>),
    /// USE
    Use(String),
    /// CREATE, ALTER, DROP, with the keyspace there was when it was prepared.
    Schema(Box<Statement>, Option<Box<str>>),
    /// DESCRIBE
    Describe(Box<Describe>),
}

impl Prepared {
    /// A statement without markers or result.
    pub fn of(plan: Plan) -> Self {
        Self {
            plan,
            markers: Vec::new(),
            partition_key_indexes: Vec::new(),
            calls: Vec::new(),
            calls_user: false,
            ordered_markers: Box::default(),
            needs_task: false,
            qualified: false,
            held_bytes: 0,
            no_result: ResultMetadata::none(),
        }
    }

    /// Columns of the result; empty for statements without rows.
    pub fn result(&self) -> &ResultMetadata {
        match &self.plan {
            Plan::Select(plan) => &plan.metadata,
            _ => &self.no_result,
        }
    }

    /// Has every execution take the plain road: nothing is answered before a task runs, nor from memory
    /// alone.
    pub fn leave_quick_road(&mut self) {
        match &mut self.plan {
            Plan::Select(plan) => (plan.point, plan.looks_in_memory) = (false, false),
            Plan::Modify(plan) => plan.plain = false,
            _ => {}
        }
    }

    /// Has its writes made in slices, since the text is long. They take the plain road.
    pub fn set_long(&mut self) {
        let plans = match &mut self.plan {
            Plan::Modify(plan) => std::slice::from_mut(&mut **plan),
            Plan::Batch(plan) => &mut plan.statements[..],
            _ => return,
        };
        for plan in plans {
            (plan.plain, plan.long_text) = (false, true);
        }
    }

    /// Tables it was prepared for.
    pub fn tables(&self) -> Vec<&Table> {
        match &self.plan {
            Plan::Select(plan) => vec![&plan.table],
            Plan::Modify(plan) => vec![&plan.table],
            Plan::Batch(plan) => plan.statements.iter().map(|statement| &*statement.table).collect(),
            Plan::Truncate(table, _) => vec![table],
            Plan::Use(_) | Plan::Schema(..) | Plan::Describe(_) => Vec::new(),
        }
    }

    /// Whether the statement reads before it writes; drivers send such statements to the same replica first
    /// (the LWT mark).
    pub fn is_conditional(&self) -> bool {
        match &self.plan {
            Plan::Modify(plan) => plan.condition.is_some(),
            Plan::Batch(plan) => plan.statements.iter().any(|statement| statement.condition.is_some()),
            _ => false,
        }
    }

    /// The modification, if it is one that batches can contain.
    pub fn modification(&self) -> Option<&ModifyPlan> {
        if let Plan::Modify(plan) = &self.plan { Some(plan) } else { None }
    }
}

/// The interface by which names are looked up.
pub trait Names {
    /// The schema, for user types.
    fn schema(&self) -> &Schema;
    /// The table with that name.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] if there is none, or no keyspace is given.
    fn table(&self, name: &QualifiedName) -> Result<Rc<Table>, StatementError>;
    /// The keyspace of unqualified names.
    fn keyspace(&self) -> Option<&str>;
    /// How markers are named and identified.
    fn marker_options(&self) -> MarkerOptions;
    /// The table that `SELECT ... FROM MUTATION_FRAGMENTS` reads of another.
    fn fragments_table(&self, table: &Table) -> Table;
    /// Whether a table can be written.
    fn is_stored(&self, table: &Table) -> bool;
}

/// Prepares a parsed statement.
///
/// # Errors
/// [`StatementError::Invalid`] in Cassandra's words.
pub fn prepare(
    parsed: ParsedStatement,
    names: &dyn Names,
    ambient: &Ambient,
) -> Result<Prepared, StatementError> {
    if parsed.markers.len() > MARKERS_MAX {
        return Err(StatementError::Invalid(format!(
            "Too many markers(?). {} markers exceed the allowed maximum of {MARKERS_MAX}",
            parsed.markers.len()
        )));
    }
    let mut markers = Markers::new(&parsed.markers, names.marker_options());
    let schema = names.schema();
    let plan = match parsed.statement {
        Statement::Select(statement) => {
            let (statement, named) = match statement.source.table() {
                Some(name) => {
                    let named = names.table(name)?;
                    (statement, named)
                }
                None => (sourceless::one_row(statement), names.table(&sourceless::table())?),
            };
            let (table, fragments_of) = match &statement.source {
                SelectSource::MutationFragments(_) => {
                    if !names.is_stored(&named) {
                        return Err(StatementError::Invalid(format!(
                            "{}.{} is made of the node's own state and has no mutation fragments",
                            named.keyspace(),
                            named.name()
                        )));
                    }
                    (Rc::new(names.fragments_table(&named)), Some(named))
                }
                SelectSource::Table(_) | SelectSource::Nothing => (named, None),
            };
            markers.enter(table.keyspace(), table.name());
            let mut cx = Context {
                schema,
                table: &table,
                ambient,
                markers: &mut markers,
                progress: Progress::default(),
            };
            let mut plan = select::prepare(&mut cx, &table, &statement)?;
            plan.looks_in_memory &= fragments_of.is_none();
            plan.fragments_of = fragments_of;
            let indexes = markers.partition_key_indexes(&table);
            return finish(Plan::Select(Box::new(plan)), markers, indexes);
        }
        Statement::Insert(insert) => {
            return modification(Modification::Insert(insert), names, ambient, markers);
        }
        Statement::InsertJson(insert) => {
            return modification(Modification::InsertJson(insert), names, ambient, markers);
        }
        Statement::Update(update) => {
            return modification(Modification::Update(update), names, ambient, markers);
        }
        Statement::Delete(delete) if delete.bypass_guardrails => {
            return Err(StatementError::invalid("Guardrails of large data are not supported yet"));
        }
        Statement::Delete(delete) => {
            return modification(Modification::Delete(delete), names, ambient, markers);
        }
        Statement::Batch(statement) => return prepare_batch(&statement, names, ambient, markers),
        Statement::Truncate(truncate) => {
            let table = names.table(&truncate.table)?;
            let mut cx = Context {
                schema: names.schema(),
                table: &table,
                ambient,
                markers: &mut markers,
                progress: Progress::default(),
            };
            let timeout = modify::attributes(&mut cx, &truncate.attributes)?.timeout;
            Plan::Truncate(table, timeout)
        }
        Statement::Use(statement) => Plan::Use(statement.keyspace.name),
        Statement::Describe(describe) => Plan::Describe(Box::new(describe)),
        statement => match unsupported(&statement) {
            Some(what) => return Err(StatementError::Invalid(format!("{what} are not supported yet"))),
            None => {
                crate::ddl::plan::check(&statement, names.keyspace())?;
                let plan = Plan::Schema(Box::new(statement), names.keyspace().map(Into::into));
                // Markers can be in the arguments of masks alone, which are refused when the statement is
                // carried out.
                return finish(plan, Markers::new(&[], MarkerOptions::default()), Vec::new());
            }
        },
    };
    finish(plan, markers, Vec::new())
}

fn modification(
    modification: Modification,
    names: &dyn Names,
    ambient: &Ambient,
    mut markers: Markers,
) -> Result<Prepared, StatementError> {
    let planned = modify_plan(&modification, names, ambient, &mut markers, None);
    steps::drop_values(modification);
    let (plan, table) = planned?;
    let indexes = markers.partition_key_indexes(&table);
    finish(Plan::Modify(Box::new(plan)), markers, indexes)
}

fn modify_plan(
    modification: &Modification,
    names: &dyn Names,
    ambient: &Ambient,
    markers: &mut Markers,
    batch: Option<BatchKind>,
) -> Result<(ModifyPlan, Rc<Table>), StatementError> {
    let table = names.table(modify::table_name(modification))?;
    let is_virtual = crate::system::is_virtual(table.keyspace());
    if !names.is_stored(&table) && !is_virtual {
        return Err(StatementError::Invalid(format!(
            "{} keyspace is not user-modifiable.",
            table.keyspace()
        )));
    }
    markers.enter(table.keyspace(), table.name());
    let mut cx =
        Context { schema: names.schema(), table: &table, ambient, markers, progress: Progress::default() };
    let plan = modify::prepare(&mut cx, &table, modification)?;
    if is_virtual {
        return Err(not_written(&plan, batch));
    }
    Ok((plan, table))
}

/// The error for writing a virtual table: mistakes that concern all virtual tables come first, as in
/// Cassandra.
fn not_written(plan: &ModifyPlan, batch: Option<BatchKind>) -> StatementError {
    StatementError::invalid(if plan.timestamp.is_some() {
        "Custom timestamp is not supported by virtual tables"
    } else if plan.time_to_live.is_some() {
        "Expiring columns are not supported by virtual tables"
    } else if batch == Some(BatchKind::Counter) {
        "Cannot include non-counter statement in a counter batch"
    } else if batch == Some(BatchKind::Logged) {
        "Cannot include a virtual table statement in a logged batch"
    } else if plan.condition.is_some() && batch.is_some() {
        "Conditional BATCH statements cannot include mutations for virtual tables"
    } else if plan.condition.is_some() {
        "Conditional updates are not supported by virtual tables"
    } else {
        return StatementError::Invalid(format!(
            "Modification is not supported by table {}",
            names::qualified(&plan.table)
        ));
    })
}

fn prepare_batch(
    batch: &cql::ast::Batch,
    names: &dyn Names,
    ambient: &Ambient,
    mut markers: Markers,
) -> Result<Prepared, StatementError> {
    let mut statements = Vec::with_capacity(batch.statements.len());
    let mut tables: Vec<Rc<Table>> = Vec::new();
    for statement in &batch.statements {
        reactor::give_way();
        let (plan, table) = modify_plan(statement, names, ambient, &mut markers, Some(batch.kind))?;
        statements.push(plan);
        tables.push(table);
    }
    let Some(first) = tables.first().cloned() else {
        let plan = BatchPlan::new(batch::kind(batch.kind), modify::Attributes::default(), Vec::new())?;
        return finish(Plan::Batch(Box::new(plan)), markers, Vec::new());
    };
    let attributes = {
        // Markers of the batch itself belong to no table: this is Cassandra's name for it.
        markers.enter("[batch]", "[batch]");
        let mut cx = Context {
            schema: names.schema(),
            table: &first,
            ambient,
            markers: &mut markers,
            progress: Progress::default(),
        };
        modify::attributes(&mut cx, &batch.attributes)?
    };
    let one_table = tables.iter().all(|table| table.id() == first.id());
    let indexes = if one_table { markers.partition_key_indexes(&first) } else { Vec::new() };
    let plan = BatchPlan::new(batch::kind(batch.kind), attributes, statements)?;
    finish(Plan::Batch(Box::new(plan)), markers, indexes)
}

fn finish(
    plan: Plan,
    mut markers: Markers,
    partition_key_indexes: Vec<u16>,
) -> Result<Prepared, StatementError> {
    let calls = markers.take_calls();
    let of_rows = matches!(&plan, Plan::Select(plan) if plan.calls_user);
    let markers = markers.finish()?;
    let is_ordered = |(at, marker): (usize, &BindSpecification)| order::is_ordered(&marker.ty).then_some(at);
    let ordered_markers: Box<[usize]> = markers.iter().enumerate().filter_map(is_ordered).collect();
    let calls_user = of_rows || !calls.is_empty();
    Ok(Prepared {
        needs_task: calls_user || !ordered_markers.is_empty(),
        calls_user,
        calls,
        markers,
        ordered_markers,
        partition_key_indexes,
        ..Prepared::of(plan)
    })
}

/// The unsupported feature that a statement uses; `None` for schema statements.
fn unsupported(statement: &Statement) -> Option<&'static str> {
    Some(match statement {
        Statement::PruneMaterializedView(_) => "Materialized views",
        Statement::CreateServiceLevel(_)
        | Statement::AlterServiceLevel(_)
        | Statement::DropServiceLevel(_)
        | Statement::AttachServiceLevel(_)
        | Statement::DetachServiceLevel(_)
        | Statement::ListServiceLevel(_) => "Service levels",
        _ => return None,
    })
}
