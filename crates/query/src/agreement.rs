//! Agreement on schema changes: one at a time on the leader's shard 0, planned against the schema of that
//! moment.
//!
//! The path of a change: any shard → shard 0 → the leader's shard 0, as text if that is another node
//! (`remote`) → `ddl::plan` → `cluster::Turn::change` (durable in group 0, then applied by every shard of
//! every node) → every engine drops the prepared statements it concerns and notifies its listeners → answer.
//! A crash before group 0 has the change leaves nothing. After that every shard has it from the next start
//! on; prepared statements and listeners do not outlive a crash. Invariant: no other change comes between
//! planning and applying, which the turn ensures.

mod remote;

use std::cell::RefCell;
use std::rc::Rc;

use cluster::group0::RequestId;
use cluster::nodes::NodeState;
use cluster::{ClusterError, ControlPlane, Nodes, SchemaNews, Turn, View};
use cql::SyntaxError;
use cql::ast::Statement;
use model::schema::{Schema, SchemaChange};
use reactor::{Group, mesh};
use statement::ddl::plan::{PlanContext, plan};
use statement::results;
use statement::schema_events::{Change, SchemaEvent, Target};

use crate::engine::Engine;
use crate::{ClientState, Response};
use crate::{QueryError, system};

/// Called on a shard after it applied a change.
pub type SchemaListener = Rc<dyn Fn(&SchemaEvent)>;

/// The listeners of one shard.
#[derive(Default)]
struct Listeners(RefCell<Vec<SchemaListener>>);

/// A statement on its way to shard 0.
#[derive(Debug)]
pub(crate) struct ChangeRequest {
    /// The statement with the change.
    pub(crate) statement: Statement,
    /// The session's keyspace.
    pub(crate) keyspace: Option<String>,
}

/// The outcome of a statement.
#[derive(Debug)]
pub(crate) struct Agreed {
    /// The change; `None` if the schema was already as the statement wants it.
    pub(crate) outcome: Result<Option<SchemaEvent>, QueryError>,
    /// Warnings for the client, also if the statement was refused.
    pub(crate) warnings: Vec<String>,
}

/// Executes a statement that changes the schema and appends SCHEMA_CHANGE, or VOID if nothing had to change.
///
/// `keyspace` is the keyspace of unqualified names, as of the time when the statement was prepared.
///
/// # Errors
/// The statement's error, in Cassandra's words; [`QueryError::Internal`] if the change could not be made
/// durable.
pub async fn execute(
    client: &ClientState,
    statement: &Statement,
    keyspace: Option<&str>,
    out: &mut Response,
) -> Result<(), QueryError> {
    if let Some(engine) = Engine::here() {
        statement::ddl::roles::refuse(statement, keyspace, &[&engine.config().data_center])?;
    }
    let keyspace = keyspace.map(str::to_owned);
    let agreed = agree(ChangeRequest { statement: statement.clone(), keyspace }).await;
    out.warnings.extend(agreed.warnings);
    match agreed.outcome? {
        Some(event) => event.append_result(&mut out.body, client.version),
        None => results::append_void(&mut out.body),
    }
    Ok(())
}

/// Why a statement failed, in a form that can be sent between shards.
#[derive(Debug)]
enum Refusal {
    Syntax(SyntaxError),
    Invalid(String),
    Guardrail(String),
    Config(String),
    Unauthorized(String),
    AlreadyExists { keyspace: String, table: String, message: String },
    NotReady(String),
    Failed(String),
}

/// Executes a schema statement on the whole node.
///
/// The outcome is the statement's error, or [`QueryError::Internal`] if the change could not be made durable
/// or a shard could not apply it (it does so at the next start).
pub(crate) async fn agree(request: ChangeRequest) -> Agreed {
    let call = mesh::call(0, Group::ADMIN, move || async move {
        let mut warnings = Vec::new();
        let outcome = match Engine::here() {
            Some(engine) => ask(&engine, request, &mut warnings).await.map_err(Refusal::from),
            None => Err(Refusal::NotReady("the node has not started yet".to_owned())),
        };
        (outcome, warnings)
    });
    match call.await {
        Ok((outcome, warnings)) => Agreed { outcome: outcome.map_err(QueryError::from), warnings },
        Err(error) => {
            let message = format!("shard 0 did not answer a schema change: {error}");
            Agreed { outcome: Err(QueryError::Internal(message)), warnings: Vec::new() }
        }
    }
}

/// Has the change planned: here, if this node leads, else by the leader.
async fn ask(
    engine: &Engine,
    request: ChangeRequest,
    warnings: &mut Vec<String>,
) -> Result<Option<SchemaEvent>, QueryError> {
    let control =
        ControlPlane::here().ok_or_else(|| QueryError::NotReady("the node has not started".to_owned()))?;
    if control.has_others() {
        return remote::ask(&control, &request, warnings).await;
    }
    let turn = ControlPlane::turn().await?;
    let (event, _) = change(engine, turn, None, &request, warnings).await?;
    Ok(event)
}

/// Why a change was not made.
enum Failure {
    /// The statement is wrong.
    Statement(QueryError),
    /// The control plane did not take it, or not to its end.
    Cluster(ClusterError),
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        Self::Statement(error)
    }
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        Self::Cluster(error)
    }
}

impl From<Failure> for QueryError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Statement(error) => error,
            Failure::Cluster(error) => error.into(),
        }
    }
}

/// Plans a change in a turn and makes it, as the command of `id` if another node asks for it; its event, and
/// the index to wait for.
async fn change(
    engine: &Engine,
    turn: Turn,
    id: Option<RequestId>,
    request: &ChangeRequest,
    warnings: &mut Vec<String>,
) -> Result<(Option<SchemaEvent>, u64), Failure> {
    let schema = turn.schema();
    let nodes = View::here().nodes();
    let (data_centers, shards) = topology(engine, &nodes);
    let planned = plan(
        &request.statement,
        &PlanContext {
            schema: &schema,
            keyspace: request.keyspace.as_deref(),
            data_centers: &data_centers,
            shards,
            now_us: reactor::wall_clock_us(),
            chance: [reactor::random_u64(), reactor::random_u64()],
            user_functions: engine.config().user_functions,
            guardrails: &engine.config().guardrails,
        },
        warnings,
    )
    .map_err(QueryError::from)?;
    let Some(change) = planned.change else {
        return Ok((None, turn.index()));
    };
    let index = match id {
        Some(id) => turn.change_as(id, &[change]).await?,
        None => turn.change(&[change]).await?,
    };
    Ok((Some(planned.event), index))
}

/// Tablets of a new table of several nodes: enough for each token of a node to be one's last, so that drivers
/// that route by tokens find a replica.
const TABLETS_OF_SEVERAL: usize = 32;

/// The data centers with their numbers of nodes, and how many shards there are to have tablets.
fn topology(engine: &Engine, nodes: &Nodes) -> (Vec<(String, usize)>, usize) {
    let normal = || nodes.values().filter(|node| node.state == NodeState::Normal);
    if normal().count() <= 1 {
        return (vec![(engine.config().data_center.clone(), 1)], engine.config().shards);
    }
    let mut data_centers: Vec<(String, usize)> = Vec::new();
    for node in normal() {
        match data_centers.iter_mut().find(|(name, _)| *name == node.data_center) {
            Some((_, count)) => *count += 1,
            None => data_centers.push((node.data_center.clone(), 1)),
        }
    }
    let shards: usize = normal().map(|node| usize::from(node.shards)).sum();
    (data_centers, (2 * shards).max(TABLETS_OF_SEVERAL))
}

/// The events for clients of a change of the schema `before`: the thing itself; with a type, the tables that
/// use it in their columns; before a dropped keyspace, everything that was in it, as by Cassandra's
/// `SchemaChangeNotifier`.
fn events_of(event: &SchemaEvent, change: &SchemaChange, before: &Schema) -> Vec<SchemaEvent> {
    let mut events = match change {
        SchemaChange::DropKeyspace { name } => contents_dropped(name, before),
        _ => Vec::new(),
    };
    events.push(event.clone());
    if let SchemaChange::AlterType { tables, .. } = change {
        events.extend(tables.iter().map(|table| SchemaEvent {
            change: Change::Updated,
            target: Target::Table,
            keyspace: table.keyspace.clone(),
            name: table.name.clone(),
            arguments: Vec::new(),
        }));
    }
    events
}

fn contents_dropped(keyspace: &str, before: &Schema) -> Vec<SchemaEvent> {
    let Some(contents) = before.keyspace(keyspace) else { return Vec::new() };
    let dropped = |target, name: &str, arguments| SchemaEvent {
        change: Change::Dropped,
        target,
        keyspace: keyspace.to_owned(),
        name: name.to_owned(),
        arguments,
    };
    let aggregates = contents.aggregates.iter().map(|aggregate| {
        let arguments = aggregate.arguments.iter().map(ToString::to_string).collect();
        dropped(Target::Aggregate, &aggregate.name, arguments)
    });
    let functions = contents.functions.iter().map(|function| {
        let arguments = function.argument_types().map(ToString::to_string).collect();
        dropped(Target::Function, &function.name, arguments)
    });
    let tables = contents.tables.keys().map(|name| dropped(Target::Table, name, Vec::new()));
    let types = contents.types.keys().map(|name| dropped(Target::Type, name, Vec::new()));
    aggregates.chain(functions).chain(tables).chain(types).collect()
}

/// Events of one schema that took the place of another as a whole: this node was away for long.
fn events_between(before: &Schema, after: &Schema) -> Vec<SchemaEvent> {
    let mut events = Vec::new();
    for keyspace in before.keyspaces() {
        let name = keyspace.name.clone();
        let change = match after.keyspace(&name) {
            Some(_) => SchemaChange::AlterKeyspace { name, options: keyspace.options.clone() },
            None => SchemaChange::DropKeyspace { name },
        };
        events.extend(events_of(&SchemaEvent::of(&change), &change, before));
    }
    let new = after.keyspaces().filter(|keyspace| before.keyspace(&keyspace.name).is_none());
    events.extend(new.map(|keyspace| {
        let (name, options) = (keyspace.name.clone(), keyspace.options.clone());
        SchemaEvent::of(&SchemaChange::CreateKeyspace { name, options })
    }));
    events
}

/// Has this node's part in agreement begin: it plans for other nodes, and tells its listeners of every
/// change. On shard 0.
pub(crate) fn take_part() {
    let control = ControlPlane::here().expect("shard 0 has opened its control plane");
    control.plan_with(Rc::new(|turn, id, request| Box::pin(remote::plan(turn, id, request))));
    control.sync_with(Rc::new(|slice| Box::pin(replication::read::sync_slice(slice))));
    control.on_schema(Rc::new(|news| {
        Box::pin(async move {
            let SchemaNews { before, changes, replaced } = news;
            if let Some(after) = replaced {
                return tell_all(events_between(&before, &after)).await;
            }
            let mut schema = (*before).clone();
            for change in &changes {
                let events = events_of(&SchemaEvent::of(change), change, &schema);
                // A change that does not follow was not applied, and is told by those who were to apply it.
                if schema.apply(change).is_ok() {
                    tell_all(events).await;
                }
            }
        })
    }));
}

async fn tell_all(events: Vec<SchemaEvent>) {
    for shard in 0..reactor::shard_count() {
        let events = events.clone();
        let call = mesh::call(shard, Group::ADMIN, move || async move {
            if let Some(engine) = Engine::here() {
                events.iter().for_each(|event| engine.schema_changed(event));
            }
        });
        if let Err(error) = call.await {
            reactor::warn!("shard {} was not told of a schema change: {}", shard, error);
        }
    }
}

fn listeners() -> Rc<Listeners> {
    reactor::local::<Listeners>().unwrap_or_else(|| {
        let listeners = Rc::new(Listeners::default());
        reactor::set_local(Rc::clone(&listeners));
        listeners
    })
}

/// Creates the stored system keyspaces that the schema lacks. For shard 0, before the node serves.
///
/// # Errors
/// [`QueryError::Storage`] when group 0 cannot make them durable.
pub(crate) async fn make_system_tables() -> Result<(), QueryError> {
    // Of a cluster the leader makes them.
    if ControlPlane::here().is_none_or(|control| !control.may_plan()) {
        return Ok(());
    }
    let turn = ControlPlane::turn().await?;
    let changes = system::first_changes(&turn.schema(), reactor::shard_count())?;
    if !changes.is_empty() {
        turn.change(&changes).await?;
    }
    Ok(())
}

impl Engine {
    /// Has `listener` called on this shard after each change of the schema that the shard applied.
    pub fn on_schema_change(&self, listener: SchemaListener) {
        listeners().0.borrow_mut().push(listener);
    }

    /// Drops the statements that were prepared for the old schema, and notifies the shard's listeners.
    pub fn schema_changed(&self, event: &SchemaEvent) {
        self.forget_statements(event);
        let listeners: Vec<SchemaListener> = listeners().0.borrow().clone();
        listeners.iter().for_each(|listener| listener(event));
    }
}

impl From<QueryError> for Refusal {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Syntax(error) => Self::Syntax(error),
            QueryError::Invalid(message) => Self::Invalid(message),
            QueryError::Guardrail(message) => Self::Guardrail(message),
            QueryError::Config(message) => Self::Config(message),
            QueryError::Unauthorized(message) => Self::Unauthorized(message),
            QueryError::AlreadyExists { keyspace, table, message } => {
                Self::AlreadyExists { keyspace, table, message }
            }
            QueryError::NotReady(message) | QueryError::Overloaded(message) => Self::NotReady(message),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<Refusal> for QueryError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Syntax(error) => Self::Syntax(error),
            Refusal::Invalid(message) => Self::Invalid(message),
            Refusal::Guardrail(message) => Self::Guardrail(message),
            Refusal::Config(message) => Self::Config(message),
            Refusal::Unauthorized(message) => Self::Unauthorized(message),
            Refusal::AlreadyExists { keyspace, table, message } => {
                Self::AlreadyExists { keyspace, table, message }
            }
            Refusal::NotReady(message) => Self::Overloaded(message),
            Refusal::Failed(message) => Self::Internal(message),
        }
    }
}
