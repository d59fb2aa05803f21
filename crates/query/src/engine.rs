//! One shard's query engine: the interface for connections, and the state that statements use.
//!
//! Requests come in with borrowed values and append a RESULT body to the caller's buffer. The engine
//! registers itself on its shard, so that calls from other shards find it. Buffers of finished requests are
//! kept for the next ones.

mod at_once;
mod batch;
mod config;
mod data;
mod preparation;
mod scratch;
mod values;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;

use model::Table;
use reactor::Semaphore;
use replication::Replicator;
use statement::ambient::Ambient;
use statement::prepare::{self};
use statement::results::{MetadataId, MetadataMode, PreparedBody};
use statement::terms::Binding;
use storage::{ReadCommand, RowConsumer, Storage};
use wire::request::QueryParameters;
use wire::values::ValueRef;
use wire::version::ProtocolVersion;

pub(crate) use self::values::bind_values;
use self::values::{bind_values_into, ordered, with_ordered};
use crate::answer_room::AnswerRoom;
use crate::execute::disk_guard::DiskUsage;
use crate::execute::{self, Request};
use crate::load::Loads;
use crate::prepared::Prepared;
use crate::prepared_cache::PreparedCache;
use crate::running::Running;
use crate::statements::Statements;
use crate::system::ClientRow;
use crate::watch::Watch;
use crate::{ClientState, QueryError, Response};

pub use at_once::{AtOnce, Left, OneRow};
pub use config::EngineConfig;
pub use scratch::WriteBuffers;
pub(crate) use scratch::{KeptScratch, Scratch};
pub use values::BoundValues;

/// Prefix of the names of all keyspaces that have [`VirtualTables`].
const VIRTUAL_PREFIX: &str = "system";
/// Bytes of a text from which on it is long: its tree takes up to 60 times as much memory.
const LONG_TEXT_BYTES: usize = 16 << 10;

/// Tables computed from the node's own state: looked up and read like stored ones. The names of their
/// keyspaces begin with `system`.
pub trait VirtualTables {
    /// Whether this has a keyspace of that name.
    fn has_keyspace(&self, keyspace: &str) -> bool;
    /// The table of that name.
    fn table(&self, keyspace: &str, name: &str) -> Option<Rc<Table>>;
    /// Hands the rows that the command selects to the consumer, by the rules of [`Storage::read`].
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

/// Part of the memory for answers that sandboxes of the user's functions may have beside it, between their
/// slices.
const SANDBOXES_PART: usize = 4;

/// Lists the clients connected to a shard, some at a time.
pub type ClientLister = Rc<dyn Fn() -> Pin<Box<dyn Future<Output = Vec<ClientRow>>>>>;

/// The query engine of one shard.
#[derive(Clone)]
pub struct Engine(Rc<EngineInner>);

struct EngineInner {
    config: EngineConfig,
    storage: Storage,
    replicator: Replicator,
    prepared: PreparedCache,
    answers: Rc<AnswerRoom>,
    virtual_tables: Rc<dyn VirtualTables>,
    disk_usage: DiskUsage,
    clients: RefCell<Option<ClientLister>>,
    /// Statements executed by id, and as text.
    executed: (Cell<u64>, Cell<u64>),
    ambient: Ambient,
    loads: Loads,
    statements: Statements,
    running: Running,
    watch: Watch,
    /// The turn to prepare a long text.
    long_texts: Semaphore,
    #[allow(clippy::vec_box, reason = "a scratch is handed out and taken back by its pointer")]
    scratches: RefCell<Vec<Box<Scratch>>>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Engine {
    /// The engine of this shard; calls from other shards find it from now on.
    pub fn new(
        config: EngineConfig,
        storage: Storage,
        replicator: Replicator,
        virtual_tables: Rc<dyn VirtualTables>,
    ) -> Self {
        config.user_function_times.set();
        statement::functions::user::calls::set_memory(config.answers_bytes_max / SANDBOXES_PART);
        let engine = Self(Rc::new(EngineInner {
            prepared: PreparedCache::new(config.prepared_bytes_max),
            answers: Rc::new(AnswerRoom::new(config.answers_bytes_max)),
            watch: Watch::new(config.slow_query_log_timeout),
            config,
            storage,
            replicator,
            virtual_tables,
            disk_usage: DiskUsage::default(),
            clients: RefCell::default(),
            executed: Default::default(),
            ambient: Ambient::new(),
            loads: Loads::new(),
            statements: Statements::new(),
            running: Running::default(),
            long_texts: Semaphore::new(1),
            scratches: RefCell::new(Vec::new()),
        }));
        reactor::set_local(Rc::new(engine.clone()));
        engine
    }

    /// The memory that this shard has for large answers.
    pub fn answers(&self) -> Rc<AnswerRoom> {
        Rc::clone(&self.0.answers)
    }

    /// Whether the memory for answers has room for `bytes`.
    #[cold]
    pub(crate) fn has_room_for_answer(&self, bytes: usize) -> bool {
        self.0.answers.has(bytes)
    }

    /// The engine of the shard this runs on.
    pub fn here() -> Option<Rc<Self>> {
        reactor::local::<Self>()
    }

    /// Settings.
    pub fn config(&self) -> &EngineConfig {
        &self.0.config
    }

    /// Names and values of the configuration, with the present value of what changes while the node runs.
    pub(crate) fn settings(&self) -> Vec<(String, String)> {
        let mut settings = self.0.config.settings.clone();
        if let Some((_, level)) = settings.iter_mut().find(|(name, _)| name == "default_log_level") {
            *level = reactor::log::level_of(None).name().trim_end().to_lowercase();
        }
        settings
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
    pub(crate) async fn clients(&self) -> Vec<ClientRow> {
        let lister = self.0.clients.borrow().clone();
        match lister {
            Some(list) => list().await,
            None => Vec::new(),
        }
    }

    /// How many statements this shard executed by id, and as text.
    pub(crate) fn executed(&self) -> (u64, u64) {
        (self.0.executed.0.get(), self.0.executed.1.get())
    }

    /// Publishes figures that are kept for other purposes too.
    pub(crate) fn settle_statements(&self) {
        let (by_id, as_text) = self.executed();
        let cache = &self.0.prepared;
        self.0.statements.settle(by_id + as_text, (cache.evicted(), cache.len(), cache.bytes()));
    }

    /// Counts of statements.
    #[inline]
    pub(crate) fn statements(&self) -> &Statements {
        &self.0.statements
    }

    /// Request statistics of the shard's tables.
    pub(crate) fn loads(&self) -> &Loads {
        &self.0.loads
    }

    /// Requests that run on the shard.
    pub(crate) fn running(&self) -> &Running {
        &self.0.running
    }

    /// Says which requests are traced, and which ones are slow.
    #[inline]
    pub fn watch(&self) -> &Watch {
        &self.0.watch
    }

    /// The shard's last measurement of disk usage.
    pub(crate) fn disk_usage(&self) -> &DiskUsage {
        &self.0.disk_usage
    }

    /// Tables computed from the node's own state.
    pub fn virtual_tables(&self) -> &Rc<dyn VirtualTables> {
        &self.0.virtual_tables
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
        let prepared = self.prepare_in_slices(keyspace, text).await?;
        // Parsing a long text takes time that later deadlines must not include.
        reactor::refresh_clock();
        let values = bind_values(&parameters.values, &prepared)
            .map_err(|_| QueryError::invalid("Invalid amount of bind variables"))?;
        self.0.executed.1.set(self.0.executed.1.get() + 1);
        let mode = MetadataMode::Full;
        if prepared.ordered_markers.is_empty() {
            self.carry_out(client, &prepared, parameters, &values, mode, out).await
        } else {
            self.carry_out_in_order(client, &prepared, parameters, &values, mode, out).await
        }
    }

    /// Executes a statement; sets and maps among its values may have to be sorted first.
    #[cold]
    fn carry_out_in_order<'a>(
        &'a self,
        client: &'a ClientState,
        prepared: &'a Prepared,
        parameters: &'a QueryParameters<'_>,
        values: &'a [ValueRef<'_>],
        mode: MetadataMode,
        out: &'a mut Response,
    ) -> Pin<Box<dyn Future<Output = Result<(), QueryError>> + 'a>> {
        Box::pin(async move {
            let ordered = ordered(prepared, values).await;
            let values = with_ordered(values, &ordered);
            self.carry_out(client, prepared, parameters, &values, mode, out).await
        })
    }

    /// Executes a statement and appends its RESULT body.
    async fn carry_out(
        &self,
        client: &ClientState,
        prepared: &Prepared,
        parameters: &QueryParameters<'_>,
        values: &[ValueRef<'_>],
        mode: MetadataMode,
        out: &mut Response,
    ) -> Result<(), QueryError> {
        match self.answer_at_once(client, prepared, parameters, values, mode, out)? {
            AtOnce::Done => Ok(()),
            AtOnce::Writing(writing) => {
                let timed = self.time_write(prepared);
                let done = writing.await;
                timed.end();
                Self::written(done, out)
            }
            AtOnce::Left(left) => self.run(client, prepared, parameters, (values, left), mode, out).await,
        }
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
        let statement = match self.find_prepared(keyspace, text) {
            Some(statement) => statement,
            None => {
                let prepared = self.prepare_in_slices(keyspace, text).await?;
                if let prepare::Plan::Schema(statement, _) = &prepared.plan {
                    statement::ddl::roles::validate(statement, &[&self.0.config.data_center])?;
                }
                let statement = self.keep_prepared(keyspace, text, prepared);
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
    /// [`QueryError::Unprepared`] for an id that is not prepared on this shard; otherwise as [`Self::query`].
    #[inline]
    pub async fn execute(
        &self,
        client: &ClientState,
        id: &[u8],
        result_metadata_id: Option<&[u8]>,
        parameters: &QueryParameters<'_>,
        out: &mut Response,
    ) -> Result<(), QueryError> {
        reactor::in_place!(self.execute_left(client, id, result_metadata_id, parameters, Left::Untried, out))
    }

    /// As [`Self::execute`], from where an attempt to answer the same request at once ended. Precondition:
    /// nothing was waited for since.
    ///
    /// # Errors
    /// As [`Self::execute`].
    #[inline]
    pub async fn execute_left(
        &self,
        client: &ClientState,
        id: &[u8],
        result_metadata_id: Option<&[u8]>,
        parameters: &QueryParameters<'_>,
        left: Left,
        out: &mut Response,
    ) -> Result<(), QueryError> {
        let statement = self.0.prepared.get(id).ok_or_else(|| QueryError::Unprepared { id: id.to_vec() })?;
        self.0.executed.0.set(self.0.executed.0.get() + 1);
        let prepared = &statement.prepared;
        let mut values = BoundValues::new();
        bind_values_into(&parameters.values, prepared, &mut values)?;
        let mode = metadata_mode(prepared.result().id(), result_metadata_id, parameters.skip_metadata);
        if !prepared.ordered_markers.is_empty() {
            return self.carry_out_in_order(client, prepared, parameters, &values, mode, out).await;
        }
        let left = match left {
            Left::Untried => match self.answer_at_once(client, prepared, parameters, &values, mode, out)? {
                AtOnce::Done => return Ok(()),
                AtOnce::Writing(writing) => {
                    let timed = self.time_write(prepared);
                    let done = reactor::in_place!(writing);
                    timed.end();
                    return Self::written(done, out);
                }
                AtOnce::Left(left) => left,
            },
            tried => tried,
        };
        reactor::in_place!(self.run(client, prepared, parameters, (&values, left), mode, out))
    }

    #[inline]
    async fn run(
        &self,
        client: &ClientState,
        prepared: &Prepared,
        parameters: &QueryParameters<'_>,
        (values, left): (&[ValueRef<'_>], Left),
        mode: MetadataMode,
        out: &mut Response,
    ) -> Result<(), QueryError> {
        let binding = Binding { values, markers: &prepared.markers, ambient: &self.0.ambient, calls: None };
        let now = parameters.now_in_seconds.unwrap_or_else(|| self.0.ambient.now_seconds());
        let request = Request { client, parameters, binding: &binding, now };
        let start = out.body.len();
        self.0.statements.begin(&prepared.plan, parameters);
        let done = reactor::in_place!(execute::statement(self, &request, prepared, mode, left, out));
        if done.is_err() {
            out.body.truncate(start);
            out.tablet_payload = None;
        }
        done
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
