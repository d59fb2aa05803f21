//! One shard's query engine: what a connection calls, and what statements find things through.
//!
//! Requests come in with borrowed values and leave a RESULT body in the caller's buffer. The engine registers itself
//! on its shard, so that calls from other shards find it. Buffers of finished requests are kept for the next ones.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use cql::ast::QualifiedName;
use model::mutation::MutationView;
use model::{Schema, Table, TableId, Token};
use reactor::{Deadline, Group, mesh};
use replication::{BatchFailure, BatchWrite, Consistency, ReadLimits, ReplicationError, Replicator};
use smallvec::SmallVec;
use storage::{Applying, Now, PartitionRange, ReadCommand, Rest, RowConsumer, Slices, Storage};
use wire::request::{BatchKind, BatchStatementKind, BatchStatements, QueryParameters};
use wire::values::{ValueRef, Values};
use wire::version::ProtocolVersion;

use crate::ambient::Ambient;
use crate::execute::counter::Totals;
use crate::execute::disk_guard::DiskUsage;
use crate::execute::point::Point;
use crate::execute::rows::RowBuffers;
use crate::execute::update_buffer::PartitionUpdate;
use crate::execute::{self, Part, Request, consistency};
use crate::guardrails::Guardrails;
use crate::prepare::{self, Names, Prepared};
use crate::prepared_cache::{CachedStatement, PreparedCache, statement_id};
use crate::results::{MetadataId, MetadataMode, PreparedBody};
use crate::system::ClientRow;
use crate::terms::Binding;
use crate::{ClientState, QueryError, Response};

/// Settings of the query engine; the same on every shard of a node.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// `cluster_name`
    pub cluster_name: String,
    /// Data center of the node.
    pub data_center: String,
    /// Rack of the node.
    pub rack: String,
    /// Address for other nodes.
    pub listen_address: SocketAddr,
    /// Address for clients.
    pub native_address: SocketAddr,
    /// Port where connections choose their shard; `None` where there is none.
    pub shard_aware_port: Option<u16>,
    /// Shards of the node.
    pub shards: usize,
    /// Identity of the node, a UUID.
    pub host_id: [u8; 16],
    /// `read_request_timeout`
    pub read_timeout: Duration,
    /// `range_request_timeout`
    pub range_timeout: Duration,
    /// `write_request_timeout`
    pub write_timeout: Duration,
    /// `cas_contention_timeout`: how long a conditional write waits for others of its kind.
    pub cas_contention_timeout: Duration,
    /// `truncate_request_timeout`
    pub truncate_timeout: Duration,
    /// `prepared_statements_cache_size`, of each shard.
    pub prepared_bytes_max: usize,
    /// Longest text of a statement in bytes.
    pub statement_bytes_max: usize,
    /// `user_defined_functions_enabled`
    pub user_functions: bool,
    /// What operators want to be warned of or refused.
    pub guardrails: Guardrails,
    /// Names and values for `system_views.settings`, beside those that follow from the others here.
    pub settings: Vec<(String, String)>,
}

impl EngineConfig {
    /// Cassandra's defaults for one node on the loopback address.
    pub fn new(host_id: [u8; 16], shards: usize) -> Self {
        Self {
            cluster_name: "Test Cluster".to_owned(),
            data_center: "datacenter1".to_owned(),
            rack: "rack1".to_owned(),
            listen_address: SocketAddr::from(([127, 0, 0, 1], 7000)),
            native_address: SocketAddr::from(([127, 0, 0, 1], 9042)),
            shard_aware_port: None,
            shards,
            host_id,
            read_timeout: Duration::from_secs(5),
            range_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(2),
            cas_contention_timeout: Duration::from_millis(1800),
            truncate_timeout: Duration::from_secs(60),
            prepared_bytes_max: 10 << 20,
            statement_bytes_max: 16 << 20,
            user_functions: true,
            guardrails: Guardrails::default(),
            settings: Vec::new(),
        }
    }
}

/// What the names of all keyspaces begin with that have [`VirtualTables`].
const VIRTUAL_PREFIX: &str = "system";
/// A mutation beyond this has its deadline from the clock itself: making it may have taken a good part of its time.
const LONG_MUTATION_BYTES: usize = 16 * 1024;

/// Tables made of the node's own state: looked up and read like stored ones. Their keyspaces' names begin with `system`.
pub trait VirtualTables {
    /// Whether a keyspace of that name is made here.
    fn has_keyspace(&self, keyspace: &str) -> bool;
    /// The table of that name.
    fn table(&self, keyspace: &str, name: &str) -> Option<Rc<Table>>;
    /// Feeds the consumer what the command finds, by the rules of [`Storage::read`].
    ///
    /// # Errors
    /// Any [`QueryError`].
    fn read<'a>(
        &'a self,
        engine: &'a Engine,
        command: &'a ReadCommand,
        consumer: &'a mut dyn RowConsumer,
    ) -> Pin<Box<dyn Future<Output = Result<(), QueryError>> + 'a>>;
}

/// Lists the clients connected to a shard.
pub type ClientLister = Box<dyn Fn() -> Vec<ClientRow>>;

/// The query engine of one shard.
#[derive(Clone)]
pub struct Engine(Rc<EngineInner>);

struct EngineInner {
    config: EngineConfig,
    storage: Storage,
    replicator: Replicator,
    prepared: PreparedCache,
    virtual_tables: Rc<dyn VirtualTables>,
    disk_usage: DiskUsage,
    clients: RefCell<Option<ClientLister>>,
    /// Statements executed by id, and as text.
    executed: (Cell<u64>, Cell<u64>),
    ambient: Ambient,
    #[allow(clippy::vec_box, reason = "a scratch is handed out and taken back by its pointer")]
    scratches: RefCell<Vec<Box<Scratch>>>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("config", &self.0.config).finish_non_exhaustive()
    }
}

/// Values of a request, by marker.
type BoundValues<'a> = SmallVec<[ValueRef<'a>; 32]>;

impl Engine {
    /// The engine of this shard; calls from other shards find it from now on.
    pub fn new(
        config: EngineConfig,
        storage: Storage,
        replicator: Replicator,
        virtual_tables: Rc<dyn VirtualTables>,
    ) -> Self {
        let engine = Self(Rc::new(EngineInner {
            prepared: PreparedCache::new(config.prepared_bytes_max),
            config,
            storage,
            replicator,
            virtual_tables,
            disk_usage: DiskUsage::default(),
            clients: RefCell::default(),
            executed: Default::default(),
            ambient: Ambient::new(),
            scratches: RefCell::new(Vec::new()),
        }));
        reactor::set_local(Rc::new(engine.clone()));
        engine
    }

    /// The engine of the shard this runs on.
    pub fn here() -> Option<Rc<Self>> {
        reactor::local::<Self>()
    }

    /// Settings.
    pub fn config(&self) -> &EngineConfig {
        &self.0.config
    }

    /// The shard's storage.
    pub fn storage(&self) -> &Storage {
        &self.0.storage
    }

    /// The shard's way to replicas.
    pub fn replicator(&self) -> &Replicator {
        &self.0.replicator
    }

    /// The shard's prepared statements.
    pub fn prepared(&self) -> &PreparedCache {
        &self.0.prepared
    }

    /// The shard's clock and chance.
    pub fn ambient(&self) -> &Ambient {
        &self.0.ambient
    }

    /// Has `system_views.clients` ask `lister` for the clients of this shard.
    pub fn list_clients_with(&self, lister: ClientLister) {
        *self.0.clients.borrow_mut() = Some(lister);
    }

    /// The clients of this shard.
    pub(crate) fn clients(&self) -> Vec<ClientRow> {
        self.0.clients.borrow().as_ref().map(|list| list()).unwrap_or_default()
    }

    /// How many statements this shard executed by id, and as text.
    pub(crate) fn executed(&self) -> (u64, u64) {
        (self.0.executed.0.get(), self.0.executed.1.get())
    }

    /// What the shard knows of the disk.
    pub(crate) fn disk_usage(&self) -> &DiskUsage {
        &self.0.disk_usage
    }

    /// Tables made of the node's own state.
    pub fn virtual_tables(&self) -> &Rc<dyn VirtualTables> {
        &self.0.virtual_tables
    }

    /// The table with that id, where it is a stored one.
    pub fn stored_table(&self, id: TableId) -> Option<Rc<Table>> {
        self.0.storage.schema().table_by_id(id).cloned()
    }

    /// Whether there is such a keyspace.
    pub fn has_keyspace(&self, keyspace: &str) -> bool {
        self.0.storage.schema().keyspace(keyspace).is_some() || self.0.virtual_tables.has_keyspace(keyspace)
    }

    /// The table a statement of `client` means: a stored one, else one of the node's own.
    ///
    /// # Errors
    /// [`QueryError::Invalid`] in Cassandra's words where there is none, or no keyspace to look in.
    pub fn resolve_table(&self, client: &ClientState, name: &QualifiedName) -> Result<Rc<Table>, QueryError> {
        self.find_table(client.keyspace.as_deref(), name)
    }

    fn find_table(&self, keyspace: Option<&str>, name: &QualifiedName) -> Result<Rc<Table>, QueryError> {
        let keyspace = name.keyspace.as_ref().map(|keyspace| keyspace.as_str()).or(keyspace).ok_or_else(|| {
            QueryError::invalid("No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename")
        })?;
        let schema = self.0.storage.schema();
        if let Some(table) = schema.table(keyspace, name.name.as_str()) {
            return Ok(Rc::clone(table));
        }
        if let Some(table) = self.0.virtual_tables.table(keyspace, name.name.as_str()) {
            return Ok(table);
        }
        Err(QueryError::Invalid(if self.has_keyspace(keyspace) {
            format!("table {} does not exist", name.name.name)
        } else {
            format!("keyspace {keyspace} does not exist")
        }))
    }

    /// Executes a statement given as text and appends its RESULT body.
    ///
    /// # Errors
    /// Any [`QueryError`]; the response's body is then as it was.
    pub async fn query(
        &self,
        client: &ClientState,
        text: &str,
        parameters: &QueryParameters<'_>,
        out: &mut Response,
    ) -> Result<(), QueryError> {
        let keyspace = parameters.keyspace.or(client.keyspace.as_deref());
        let prepared = self.prepare_text(keyspace, text)?;
        // A long text took its time; the deadlines of what follows are not to count it.
        reactor::refresh_clock();
        let values = bind_values(&parameters.values, &prepared)
            .map_err(|_| QueryError::invalid("Invalid amount of bind variables"))?;
        self.0.executed.1.set(self.0.executed.1.get() + 1);
        let mode = MetadataMode::Full;
        match self.answer_at_once(client, &prepared, parameters, &values, mode, out)? {
            Point::Done => Ok(()),
            Point::Left(rest) => self.run(client, &prepared, parameters, (&values, rest), mode, out).await,
        }
    }

    /// Answers what need not wait, a point read.
    #[inline]
    fn answer_at_once(
        &self,
        client: &ClientState,
        prepared: &Prepared,
        parameters: &QueryParameters<'_>,
        values: &[ValueRef<'_>],
        mode: MetadataMode,
        out: &mut Response,
    ) -> Result<Point, QueryError> {
        let prepare::Plan::Select(plan) = &prepared.plan else { return Ok(Point::Left(None)) };
        let binding = Binding { values, markers: &prepared.markers, ambient: &self.0.ambient };
        let now = parameters.now_in_seconds.unwrap_or_else(|| self.0.ambient.now_seconds());
        let request = Request { client, parameters, binding: &binding, now };
        let start = out.body.len();
        let answered = execute::point::execute(self, &request, plan, mode, out);
        if answered.is_err() {
            out.body.truncate(start);
        }
        answered
    }

    /// Prepares a statement on every shard and appends the PREPARED body.
    ///
    /// # Errors
    /// [`QueryError`] of the statement.
    pub async fn prepare(
        &self,
        client: &ClientState,
        text: &str,
        keyspace: Option<&str>,
        out: &mut Response,
    ) -> Result<(), QueryError> {
        let keyspace = keyspace.or(client.keyspace.as_deref());
        let id = statement_id(keyspace, text);
        let statement = match self.0.prepared.get(&id) {
            Some(statement) => statement,
            None => {
                let prepared = self.prepare_text(keyspace, text)?;
                if let prepare::Plan::Schema(statement, _) = &prepared.plan {
                    crate::ddl::roles::validate(statement, &[&self.0.config.data_center])?;
                }
                let statement = self.0.prepared.insert(id, keyspace, text, prepared);
                self.prepare_elsewhere(keyspace, text).await;
                statement
            }
        };
        let body = PreparedBody {
            id: &statement.id,
            markers: &statement.prepared.markers,
            partition_key_indexes: &statement.prepared.partition_key_indexes,
            result: statement.prepared.result(),
            with_metadata_id: client.version >= ProtocolVersion::V5 || client.metadata_id,
            lwt_mark: client.lwt_mark && statement.prepared.is_conditional(),
        };
        body.append(&mut out.body, client.version);
        Ok(())
    }

    /// Executes a prepared statement and appends its RESULT body.
    ///
    /// # Errors
    /// [`QueryError::Unprepared`] for an id this shard does not know; otherwise as [`Self::query`].
    #[inline]
    pub async fn execute(
        &self,
        client: &ClientState,
        id: &[u8],
        result_metadata_id: Option<&[u8]>,
        parameters: &QueryParameters<'_>,
        out: &mut Response,
    ) -> Result<(), QueryError> {
        let statement = self.0.prepared.get(id).ok_or_else(|| QueryError::Unprepared { id: id.to_vec() })?;
        self.0.executed.0.set(self.0.executed.0.get() + 1);
        let prepared = &statement.prepared;
        let mut values = BoundValues::new();
        bind_values_into(&parameters.values, prepared, &mut values)?;
        let mode = metadata_mode(prepared.result().id(), result_metadata_id, parameters.skip_metadata);
        let rest = match self.answer_at_once(client, prepared, parameters, &values, mode, out)? {
            Point::Done => return Ok(()),
            Point::Left(rest) => rest,
        };
        reactor::in_place!(self.run(client, prepared, parameters, (&values, rest), mode, out))
    }

    /// Executes a batch of statements and appends VOID, or the rows of a conditional one.
    ///
    /// # Errors
    /// As [`Self::execute`]; [`QueryError::Invalid`] for statements that write nothing.
    pub async fn batch(
        &self,
        client: &ClientState,
        kind: BatchKind,
        statements: BatchStatements<'_>,
        parameters: &QueryParameters<'_>,
        out: &mut Response,
    ) -> Result<(), QueryError> {
        let keyspace = parameters.keyspace.or(client.keyspace.as_deref());
        let mut held = Vec::with_capacity(statements.len());
        for statement in statements.iter() {
            let prepared = match statement.statement {
                BatchStatementKind::Prepared(id) => Held::Cached(
                    self.0.prepared.get(id).ok_or_else(|| QueryError::Unprepared { id: id.to_vec() })?,
                ),
                BatchStatementKind::Text(text) => Held::Fresh(Box::new(self.prepare_text(keyspace, text)?)),
            };
            let markers = prepared.get().markers.len();
            if prepared.get().modification().is_none() {
                return Err(QueryError::invalid(
                    "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.",
                ));
            }
            let values = bind_values(&statement.values, prepared.get()).map_err(|_| {
                QueryError::Invalid(format!(
                    "There were {markers} markers(?) in CQL but {} bound variables",
                    statement.values.len()
                ))
            })?;
            held.push((prepared, values));
            reactor::maybe_yield().await;
        }
        let parts: Vec<Part<'_>> = held
            .iter()
            .filter_map(|(prepared, values)| {
                let Prepared { markers, .. } = prepared.get();
                let binding = Binding { values, markers, ambient: &self.0.ambient };
                prepared.get().modification().map(|plan| Part { plan, binding })
            })
            .collect();
        prepare::batch::check(kind, false, parts.iter().map(|part| part.plan))?;
        let binding = Binding { values: &[], markers: &[], ambient: &self.0.ambient };
        let now = parameters.now_in_seconds.unwrap_or_else(|| self.0.ambient.now_seconds());
        let request = Request { client, parameters, binding: &binding, now };
        let start = out.body.len();
        let done = execute::batch::parts(self, &request, kind, (None, None), &parts, out).await;
        if done.is_err() {
            out.body.truncate(start);
        }
        done
    }

    #[inline]
    async fn run(
        &self,
        client: &ClientState,
        prepared: &Prepared,
        parameters: &QueryParameters<'_>,
        (values, rest): (&[ValueRef<'_>], Option<Box<Rest>>),
        mode: MetadataMode,
        out: &mut Response,
    ) -> Result<(), QueryError> {
        let binding = Binding { values, markers: &prepared.markers, ambient: &self.0.ambient };
        let now = parameters.now_in_seconds.unwrap_or_else(|| self.0.ambient.now_seconds());
        let request = Request { client, parameters, binding: &binding, now };
        let start = out.body.len();
        let done = reactor::in_place!(execute::statement(self, &request, prepared, mode, rest, out));
        if done.is_err() {
            out.body.truncate(start);
        }
        done
    }

    /// Parses and prepares a text that is neither looked up nor kept: what a statement nobody prepared costs.
    ///
    /// # Errors
    /// As preparing it.
    pub fn plan(&self, keyspace: Option<&str>, text: &str) -> Result<Prepared, QueryError> {
        self.prepare_text(keyspace, text)
    }

    /// Parses and prepares a text.
    pub(crate) fn prepare_text(&self, keyspace: Option<&str>, text: &str) -> Result<Prepared, QueryError> {
        if text.len() > self.0.config.statement_bytes_max {
            return Err(QueryError::Invalid(format!(
                "A statement of {} bytes is longer than the maximum of {}",
                text.len(),
                self.0.config.statement_bytes_max
            )));
        }
        let parsed = cql::parse_statement(text)?;
        let schema = self.0.storage.schema();
        let lookup = Lookup { engine: self, keyspace, schema: &schema };
        prepare::prepare(parsed, &lookup, &self.0.ambient)
    }

    /// Other shards prepare the text too. One that cannot, now, answers UNPREPARED later, and the client tries again.
    async fn prepare_elsewhere(&self, keyspace: Option<&str>, text: &str) {
        for shard in (0..reactor::shard_count()).filter(|shard| *shard != reactor::shard_id()) {
            let (keyspace, text) = (keyspace.map(str::to_owned), text.to_owned());
            let call = mesh::call(shard, Group::STATEMENT, move || async move {
                if let Some(engine) = Self::here() {
                    engine.prepare_here(keyspace.as_deref(), &text);
                }
            });
            if let Err(error) = call.await {
                reactor::warn!("a statement could not be prepared on shard {}: {}", shard, error);
            }
        }
    }

    fn prepare_here(&self, keyspace: Option<&str>, text: &str) {
        let id = statement_id(keyspace, text);
        if self.0.prepared.get(&id).is_none()
            && let Ok(prepared) = self.prepare_text(keyspace, text)
        {
            self.0.prepared.insert(id, keyspace, text, prepared);
        }
    }

    /// Forgets the prepared statements of a table, or of all tables of a keyspace: the schema changed.
    pub fn forget_statements(&self, keyspace: &str, table: Option<&str>) {
        let concerns = |statement: &CachedStatement| {
            statement
                .prepared
                .tables()
                .iter()
                .any(|of| of.keyspace() == keyspace && table.is_none_or(|table| table == of.name()))
        };
        self.0.prepared.retain(|statement| !concerns(statement));
    }

    /// Writes one mutation.
    #[inline]
    pub(crate) async fn write(
        &self,
        table: &Table,
        mutation: &[u8],
        level: Consistency,
        write_type: &'static str,
        timeout: Option<Duration>,
    ) -> Result<(), QueryError> {
        let timeout = timeout.unwrap_or(self.0.config.write_timeout);
        // What is long took its time in this slice already.
        let is_long = mutation.len() > LONG_MUTATION_BYTES;
        let deadline = if is_long { Deadline::after(timeout) } else { Deadline::about(timeout) };
        let written = reactor::in_place!(self.0.replicator.write(table, mutation, level, deadline));
        written.map_err(|error| Self::write_failed(error, table, mutation, level, write_type))
    }

    /// Begins [`Self::write`] where nothing has to be waited for before the commit log has the mutation; `None` where
    /// something has, and nothing was begun. [`Self::write_failed`] is for the errors of what is returned.
    #[inline]
    pub(crate) fn begin_write<'s, 'm>(
        &'s self,
        table: &Table,
        mutation: &'m [u8],
        level: Consistency,
        timeout: Option<Duration>,
    ) -> Result<Option<Applying<'s, 'm>>, ReplicationError> {
        if mutation.len() > LONG_MUTATION_BYTES {
            return Ok(None);
        }
        let deadline = Deadline::about(timeout.unwrap_or(self.0.config.write_timeout));
        self.0.replicator.begin_write(table, mutation, level, deadline)
    }

    /// What a client is told of a write that failed.
    #[cold]
    pub(crate) fn write_failed(
        error: ReplicationError,
        table: &Table,
        mutation: &[u8],
        level: Consistency,
        write_type: &'static str,
    ) -> QueryError {
        let key = MutationView::trusted(mutation).map_or(&[][..], |view| view.key);
        consistency::write_error(error, level, write_type, table, key)
    }

    /// Writes to several partitions, all or none of them.
    pub(crate) async fn write_batch(
        &self,
        writes: Vec<BatchWrite>,
        level: Consistency,
    ) -> Result<(), QueryError> {
        let deadline = Deadline::after(self.0.config.write_timeout);
        let id = self.ambient().timeuuid();
        // What the error tells of the write that failed.
        let named: Vec<_> = writes.iter().map(|write| Rc::clone(&write.table)).collect();
        let keys: Vec<_> = writes.iter().map(|write| consistency::mutation_key(&write.mutation)).collect();
        let written = self.0.replicator.write_batch(*id.as_bytes(), writes, level, deadline).await;
        written.map_err(|failure| match failure {
            BatchFailure::Log(error) => consistency::batch_log_error(error, id),
            BatchFailure::Write { at, error } => {
                consistency::write_error(error, level, "BATCH", &named[at], &keys[at])
            }
        })
    }

    /// Counts what one mutation of a table of counters says.
    pub(crate) async fn count(
        &self,
        table: &Table,
        mutation: &[u8],
        level: Consistency,
        timeout: Option<Duration>,
    ) -> Result<(), QueryError> {
        let deadline = Deadline::after(timeout.unwrap_or(self.0.config.write_timeout));
        let node = self.0.config.host_id;
        let counted = self.0.replicator.count(table, mutation, node, level, deadline).await;
        counted.map_err(|error| {
            let key = MutationView::trusted(mutation).map_or(&[][..], |view| view.key);
            consistency::write_error(error, level, "COUNTER", table, key)
        })
    }

    /// Feeds the consumer what a command finds in a stored table or in one of the node's own.
    #[inline]
    pub(crate) async fn read(
        &self,
        command: &ReadCommand,
        limits: ReadLimits,
        level: Consistency,
        timeout: Option<Duration>,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), QueryError> {
        let table = &command.table;
        // A look at the name before the look-up: users' keyspaces seldom begin so.
        if table.keyspace().starts_with(VIRTUAL_PREFIX)
            && self.0.virtual_tables.table(table.keyspace(), table.name()).is_some()
        {
            return self.0.virtual_tables.read(self, command, consumer).await;
        }
        let timeout = timeout.unwrap_or(match command.range {
            PartitionRange::Key(_) => self.0.config.read_timeout,
            PartitionRange::Between { .. } => self.0.config.range_timeout,
        });
        let deadline = Deadline::about(timeout);
        let read = if table.is_counter() {
            // Rare: boxed, so that other reads do not carry its space.
            Box::pin(self.read_counters(command, limits, level, deadline, consumer)).await
        } else {
            reactor::in_place!(self.0.replicator.read(command, limits, level, deadline, consumer))
        };
        read.map_err(|error| consistency::read_error(error, level))
    }

    /// As [`Self::read`], where nothing has to be waited for; see [`Now`].
    #[inline]
    pub(crate) fn read_now(
        &self,
        command: &ReadCommand,
        level: Consistency,
        consumer: &mut dyn RowConsumer,
    ) -> Result<Now, QueryError> {
        let table = &command.table;
        if table.is_counter() || table.keyspace().starts_with(VIRTUAL_PREFIX) {
            return Ok(Now::NotBegun);
        }
        let read = self.0.replicator.read_now(command, level, consumer);
        read.map_err(|error| consistency::read_error(error, level))
    }

    /// Goes on where [`Self::read_now`] has left something.
    pub(crate) async fn read_rest(
        &self,
        command: &ReadCommand,
        rest: Box<Rest>,
        level: Consistency,
        timeout: Option<Duration>,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), QueryError> {
        let deadline = Deadline::about(timeout.unwrap_or(self.0.config.read_timeout));
        let read = self.0.replicator.read_rest(command, rest, level, deadline, consumer).await;
        read.map_err(|error| consistency::read_error(error, level))
    }

    async fn read_counters(
        &self,
        command: &ReadCommand,
        limits: ReadLimits,
        level: Consistency,
        deadline: Deadline,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), ReplicationError> {
        let mut totals = Totals::new(consumer);
        self.0.replicator.read(command, limits, level, deadline, &mut totals).await
    }

    /// Buffers for one request on `table`.
    #[inline]
    pub(crate) fn scratch(&self, table: &Rc<Table>) -> ScratchGuard<'_> {
        let scratch = match self.0.scratches.borrow_mut().pop() {
            Some(mut scratch) => {
                scratch.read.table = Rc::clone(table);
                scratch
            }
            None => Box::new(Scratch::new(table)),
        };
        ScratchGuard { engine: self, scratch: Some(scratch) }
    }
}

/// A statement of a batch, for as long as the batch runs.
enum Held {
    Cached(Rc<CachedStatement>),
    Fresh(Box<Prepared>),
}

impl Held {
    fn get(&self) -> &Prepared {
        match self {
            Self::Cached(statement) => &statement.prepared,
            Self::Fresh(prepared) => prepared,
        }
    }
}

/// How the metadata of a prepared statement's rows is sent (native_protocol_v5.spec §4.2.5.2).
fn metadata_mode(current: &MetadataId, known: Option<&[u8]>, skip: bool) -> MetadataMode {
    match known {
        Some(known) if known != current => MetadataMode::Changed,
        _ if skip => MetadataMode::Skip,
        _ => MetadataMode::Full,
    }
}

/// The request's values in the order of the markers.
fn bind_values<'a>(values: &Values<'a>, prepared: &Prepared) -> Result<BoundValues<'a>, QueryError> {
    let mut bound = BoundValues::new();
    bind_values_into(values, prepared, &mut bound)?;
    Ok(bound)
}

/// As [`bind_values`], into an empty list where it stands: a list by value would be moved there.
#[inline]
fn bind_values_into<'a>(
    values: &Values<'a>,
    prepared: &Prepared,
    bound: &mut BoundValues<'a>,
) -> Result<(), QueryError> {
    let markers = &prepared.markers;
    if values.is_named() {
        for marker in markers {
            match values.by_name(&marker.name) {
                Some(value) => bound.push(value),
                None => break,
            }
        }
    } else {
        values.for_each(|value| bound.push(value));
    }
    if bound.len() == markers.len() { Ok(()) } else { Err(wrong_count(markers.len(), bound.len())) }
}

#[cold]
fn wrong_count(markers: usize, bound: usize) -> QueryError {
    QueryError::Invalid(format!("there were {markers} markers(?) in CQL but {bound} bound variables"))
}

/// Names for one statement.
struct Lookup<'e> {
    engine: &'e Engine,
    keyspace: Option<&'e str>,
    schema: &'e Schema,
}

impl Names for Lookup<'_> {
    fn schema(&self) -> &Schema {
        self.schema
    }

    fn table(&self, name: &QualifiedName) -> Result<Rc<Table>, QueryError> {
        self.engine.find_table(self.keyspace, name)
    }

    fn keyspace(&self) -> Option<&str> {
        self.keyspace
    }

    fn is_stored(&self, table: &Table) -> bool {
        self.schema.table_by_id(table.id()).is_some()
    }
}

/// Scratches a shard keeps: as many requests as it is likely to have under way at once.
const SCRATCHES_MAX: usize = 256;
/// A buffer that grew beyond this is given back.
const SCRATCH_BYTES_MAX: usize = 64 * 1024;

/// Buffers of one request.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// The read, its slices also for writes.
    pub(crate) read: ReadCommand,
    /// For rows on their way out.
    pub(crate) rows: RowBuffers,
    /// For writes.
    pub(crate) write: WriteBuffers,
}

/// Buffers of a write.
#[derive(Debug, Default)]
pub struct WriteBuffers {
    /// Stored key.
    pub key: Vec<u8>,
    /// Partitions written; those beyond the ones in use are old.
    pub updates: Vec<PartitionUpdate>,
    /// The mutation.
    pub mutation: Vec<u8>,
}

impl Scratch {
    fn new(table: &Rc<Table>) -> Self {
        let read = ReadCommand {
            table: Rc::clone(table),
            range: PartitionRange::Key(model::partition_key::DecoratedKey {
                token: Token::MINIMUM,
                key: Vec::new(),
            }),
            slices: Slices::new(),
            reversed: false,
            now: 0,
            bypass_cache: false,
        };
        Self { read, rows: RowBuffers::default(), write: WriteBuffers::default() }
    }

    /// Whether keeping it costs little.
    fn is_small(&self) -> bool {
        let WriteBuffers { mutation, updates, .. } = &self.write;
        mutation.capacity() <= SCRATCH_BYTES_MAX
            && updates.len() <= 4
            && updates.iter().all(|update| update.len() <= SCRATCH_BYTES_MAX)
            && self.read.slices.len() <= 16
            && self.rows.is_small()
    }
}

/// A scratch in use; goes back to its shard when dropped.
pub(crate) struct ScratchGuard<'e> {
    engine: &'e Engine,
    scratch: Option<Box<Scratch>>,
}

impl Deref for ScratchGuard<'_> {
    type Target = Scratch;

    fn deref(&self) -> &Scratch {
        self.scratch.as_ref().expect("taken only by drop")
    }
}

impl DerefMut for ScratchGuard<'_> {
    fn deref_mut(&mut self) -> &mut Scratch {
        self.scratch.as_mut().expect("taken only by drop")
    }
}

impl Drop for ScratchGuard<'_> {
    fn drop(&mut self) {
        let Some(scratch) = self.scratch.take() else { return };
        let mut scratches = self.engine.0.scratches.borrow_mut();
        if scratches.len() < SCRATCHES_MAX && scratch.is_small() {
            scratches.push(scratch);
        }
    }
}
