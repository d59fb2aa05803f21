//! Schema statements applied without a node, for tests of this crate and of those above.

use cql::ast::Statement;
use model::Schema;

use crate::StatementError;
use crate::ddl::plan::{PlanContext, Planned, plan};
use crate::guardrails::Guardrails;

/// A schema that statements are applied to, one after the other.
#[derive(Debug)]
pub struct Session {
    /// The schema as it is now.
    pub schema: Schema,
    /// The keyspace of unqualified names.
    pub keyspace: Option<String>,
    /// The guardrails that are checked.
    pub guardrails: Guardrails,
    /// Warnings of the last statement.
    pub warnings: Vec<String>,
}

impl Default for Session {
    /// The schema of a node at its first start.
    fn default() -> Self {
        let mut schema = Schema::empty();
        for change in crate::system::first_changes(&Schema::empty(), 1).expect("the definitions are right") {
            schema.apply(&change).expect("the first changes of an empty schema");
        }
        Self { schema, keyspace: None, guardrails: Guardrails::default(), warnings: Vec::new() }
    }
}

impl Session {
    pub(crate) fn plan(&mut self, statement: &Statement) -> Result<Planned, StatementError> {
        self.warnings.clear();
        let context = PlanContext {
            schema: &self.schema,
            keyspace: self.keyspace.as_deref(),
            data_centers: &[("datacenter1".to_owned(), 1)],
            shards: 2,
            now_us: 1_600_000_000_000_000,
            chance: [1, self.schema.tables().count() as u64],
            user_functions: true,
            guardrails: &self.guardrails,
        };
        plan(statement, &context, &mut self.warnings)
    }

    /// Plans and applies a statement.
    ///
    /// # Errors
    /// The statement's error.
    ///
    /// # Panics
    /// If a planned change cannot be applied, or does not survive the log.
    pub fn run(&mut self, text: &str) -> Result<Planned, StatementError> {
        let parsed = cql::parse_statement(text)?;
        let planned = self.plan(&parsed.statement)?;
        if let Some(change) = &planned.change {
            let decoded = model::schema::SchemaChange::decode(&change.encode())
                .expect("a change that was just encoded");
            assert_eq!(&decoded, change, "the change survives the log: {text}");
            self.schema.apply(change).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        Ok(planned)
    }
}
