//! Resolves names in statements, and prepares texts, on this shard and on the others.

use std::cell::Cell;
use std::rc::Rc;

use cql::ast::{ParsedStatement, QualifiedName, Statement};
use model::{Schema, Table, TableId};
use reactor::{Group, give_way, in_slices, mesh};
use statement::StatementError;
use statement::prepare::{self, Names, Plan};
use statement::restrictions::{ALLOW_FILTERING_FORBIDDEN, ALLOW_FILTERING_NEEDED};
use statement::schema_events::SchemaEvent;
use statement::terms::MarkerOptions;

use super::{Engine, LONG_TEXT_BYTES};
use crate::counts::Counts;
use crate::prepared::Prepared;
use crate::prepared_cache::{CachedStatement, statement_id};
use crate::{ClientState, QueryError};

impl Engine {
    /// The table with that id, if it is a stored one.
    pub fn stored_table(&self, id: TableId) -> Option<Rc<Table>> {
        self.0.storage.schema().table_by_id(id).cloned()
    }

    /// Whether there is such a keyspace.
    pub fn has_keyspace(&self, keyspace: &str) -> bool {
        self.0.storage.schema().keyspace(keyspace).is_some() || self.0.virtual_tables.has_keyspace(keyspace)
    }

    /// The table that a statement of `client` names: a stored one, otherwise one of the node's own.
    ///
    /// # Errors
    /// [`QueryError::Invalid`] in Cassandra's words if there is none, or no keyspace is given.
    pub fn resolve_table(&self, client: &ClientState, name: &QualifiedName) -> Result<Rc<Table>, QueryError> {
        Ok(self.find_table(client.keyspace.as_deref(), name)?)
    }

    fn find_table(&self, keyspace: Option<&str>, name: &QualifiedName) -> Result<Rc<Table>, StatementError> {
        let keyspace = name.keyspace.as_ref().map(|keyspace| keyspace.as_str()).or(keyspace).ok_or_else(|| {
            StatementError::invalid("No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename")
        })?;
        let schema = self.0.storage.schema();
        if let Some(table) = schema.table(keyspace, name.name.as_str()) {
            return Ok(Rc::clone(table));
        }
        if let Some(table) = self.0.virtual_tables.table(keyspace, name.name.as_str()) {
            return Ok(table);
        }
        Err(StatementError::Invalid(if self.has_keyspace(keyspace) {
            format!("table {} does not exist", name.name.name)
        } else {
            format!("keyspace {keyspace} does not exist")
        }))
    }

    /// Parses and prepares a text that is neither looked up nor kept: the cost of an unprepared statement.
    ///
    /// # Errors
    /// As preparing it.
    pub fn plan(&self, keyspace: Option<&str>, text: &str) -> Result<Prepared, QueryError> {
        self.prepare_text(keyspace, text)
    }

    /// Parses and prepares a text.
    pub(crate) fn prepare_text(&self, keyspace: Option<&str>, text: &str) -> Result<Prepared, QueryError> {
        self.prepare_counted(keyspace, text, &Counts::new(&self.0.ambient))
    }

    /// As [`Self::prepare_text`], and others run in the middle of it. One long text at a time is prepared:
    /// its tree takes much more memory than the text.
    pub(crate) async fn prepare_in_slices(
        &self,
        keyspace: Option<&str>,
        text: &str,
    ) -> Result<Prepared, QueryError> {
        let turn = (text.len() > LONG_TEXT_BYTES).then(|| self.0.long_texts.acquire(1));
        let _turn = match turn {
            Some(turn) => Some(turn.await.map_err(|error| QueryError::Internal(error.to_string()))?),
            None => None,
        };
        let counts = Counts::new(&self.0.ambient);
        in_slices(&counts, || self.prepare_counted(keyspace, text, &counts)).await
    }

    fn prepare_counted(
        &self,
        keyspace: Option<&str>,
        text: &str,
        counts: &Counts<'_>,
    ) -> Result<Prepared, QueryError> {
        let held = counts.held_bytes();
        let parsed = self.parse(text)?;
        let schema = self.0.storage.schema();
        let lookup = Lookup { engine: self, keyspace, schema: &schema, leant_on_keyspace: Cell::new(false) };
        let may_filter =
            self.0.config.guardrails.allow_filtering || reads_system(&parsed.statement, keyspace);
        let prepared = prepare::prepare(parsed, &lookup, &self.0.ambient);
        let mut prepared = prepared.map_err(|error| match error {
            StatementError::Invalid(text) if !may_filter && text == ALLOW_FILTERING_NEEDED => {
                StatementError::invalid(ALLOW_FILTERING_FORBIDDEN)
            }
            error => error,
        })?;
        let names_tables =
            matches!(prepared.plan, Plan::Select(_) | Plan::Modify(_) | Plan::Batch(_) | Plan::Truncate(..));
        prepared.qualified = names_tables && !lookup.leant_on_keyspace.get();
        if !self.0.config.quick_road {
            prepared.leave_quick_road();
        }
        if text.len() > LONG_TEXT_BYTES {
            prepared.set_long();
        }
        // Preparing has freed or kept the parsed statement.
        prepared.held_bytes = usize::try_from(counts.held_bytes() - held).unwrap_or(0);
        Ok(prepared.into())
    }

    fn parse(&self, text: &str) -> Result<ParsedStatement, QueryError> {
        if text.len() > self.0.config.statement_bytes_max {
            return Err(QueryError::Invalid(format!(
                "A statement of {} bytes is longer than the maximum of {}",
                text.len(),
                self.0.config.statement_bytes_max
            )));
        }
        Ok(cql::parse_statement_as(text, self.0.config.markers.same_names, give_way)?)
    }

    /// The prepared statement of that text, if there is one. A statement that names the keyspaces of its
    /// tables has the same id for every keyspace of the connection, as in Cassandra since 4.0.2: drivers
    /// prepare again on connections with another keyspace.
    pub(super) fn find_prepared(&self, keyspace: Option<&str>, text: &str) -> Option<Rc<CachedStatement>> {
        let qualified = || self.0.prepared.get(&statement_id(None, text));
        match keyspace {
            None => qualified(),
            Some(_) => self
                .0
                .prepared
                .get(&statement_id(keyspace, text))
                .or_else(|| qualified().filter(|statement| statement.prepared.qualified)),
        }
    }

    /// Keeps a statement under its id.
    pub(super) fn keep_prepared(
        &self,
        keyspace: Option<&str>,
        text: &str,
        prepared: Prepared,
    ) -> Rc<CachedStatement> {
        let keyspace = keyspace.filter(|_| !prepared.qualified);
        self.0.statements.prepared();
        self.0.prepared.insert(statement_id(keyspace, text), keyspace, text, prepared)
    }

    /// Prepares the text on the other shards too. A shard that cannot prepare it now answers UNPREPARED
    /// later, and the client tries again.
    pub(super) async fn prepare_elsewhere(&self, keyspace: Option<&str>, text: &str) {
        for shard in (0..reactor::shard_count()).filter(|shard| *shard != reactor::shard_id()) {
            let (keyspace, text) = (keyspace.map(str::to_owned), text.to_owned());
            let call = mesh::call(shard, Group::STATEMENT, move || async move {
                if let Some(engine) = Self::here() {
                    engine.prepare_here(keyspace.as_deref(), &text).await;
                }
            });
            if let Err(error) = call.await {
                reactor::warn!("a statement could not be prepared on shard {}: {}", shard, error);
            }
        }
    }

    async fn prepare_here(&self, keyspace: Option<&str>, text: &str) {
        if self.find_prepared(keyspace, text).is_none()
            && let Ok(prepared) = self.prepare_in_slices(keyspace, text).await
        {
            self.keep_prepared(keyspace, text, prepared);
        }
    }

    /// Forgets the prepared statements that a change of the schema concerns.
    pub fn forget_statements(&self, event: &SchemaEvent) {
        let concerns = |statement: &CachedStatement| {
            statement.prepared.tables().iter().any(|of| event.touches(of.keyspace(), of.name()))
        };
        self.0.prepared.retain(|statement| !concerns(statement));
        // Statements of other keyspaces name this one where they call its functions.
        if event.touches_callers() {
            let name = event.keyspace.to_ascii_lowercase();
            self.0.prepared.retain(|statement| !statement.text.to_ascii_lowercase().contains(&name));
        }
    }
}

/// Names for one statement.
struct Lookup<'e> {
    engine: &'e Engine,
    keyspace: Option<&'e str>,
    schema: &'e Schema,
    /// Whether a name without a keyspace was looked up in `keyspace`.
    leant_on_keyspace: Cell<bool>,
}

impl Names for Lookup<'_> {
    fn schema(&self) -> &Schema {
        self.schema
    }

    fn table(&self, name: &QualifiedName) -> Result<Rc<Table>, StatementError> {
        if name.keyspace.is_none() {
            self.leant_on_keyspace.set(true);
        }
        self.engine.find_table(self.keyspace, name)
    }

    fn keyspace(&self) -> Option<&str> {
        self.leant_on_keyspace.set(true);
        self.keyspace
    }

    fn marker_options(&self) -> MarkerOptions {
        self.engine.0.config.markers
    }

    fn fragments_table(&self, table: &Table) -> Table {
        storage::fragments_table(table)
    }

    fn is_stored(&self, table: &Table) -> bool {
        self.schema.table_by_id(table.id()).is_some()
    }
}

/// Whether a statement is a SELECT of a keyspace that every node has: guardrails about filters do not apply
/// there.
fn reads_system(statement: &Statement, session: Option<&str>) -> bool {
    let Statement::Select(select) = statement else { return false };
    let Some(table) = select.source.table() else { return true };
    let keyspace = table.keyspace.as_ref().map(|keyspace| keyspace.as_str());
    keyspace.or(session).is_some_and(statement::ddl::is_system)
}
