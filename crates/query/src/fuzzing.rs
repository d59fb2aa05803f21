//! The entry point of the fuzz target that counts the work of statements.
//!
//! Not part of the interface; `make fuzz` runs it. The target counts the bytes that preparing a statement
//! allocates, functions of constants included, and bounds them by the bytes of its text.

use std::rc::Rc;

use cql::ast::QualifiedName;
use model::Schema;
use model::schema::Table;

use crate::QueryError;
use crate::ambient::Ambient;
use crate::ddl::plan::{PlanContext, plan};
use crate::guardrails::Guardrails;
use crate::prepare::{Names, prepare};
use crate::terms::MarkerOptions;

/// The tables that statements may name, in keyspace `ks`, which unqualified names are in too.
const SCHEMA: [&str; 4] = [
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE ks.u (a int, b text)",
    "CREATE TABLE ks.t (k int, c int, s int static, v int, x text, b blob, n varint, d decimal, m map<text, int>, \
     se set<decimal>, l list<frozen<list<int>>>, tu tuple<int, text>, ud u, PRIMARY KEY (k, c))",
    "CREATE TABLE ks.p (a int, b text, c int, d int, v counter, PRIMARY KEY ((a, b), c, d))",
];

/// A fixed schema, for as many statements as the fuzzer has.
#[derive(Debug, Clone)]
pub struct Statements {
    schema: Rc<Schema>,
}

impl Default for Statements {
    fn default() -> Self {
        let mut schema = Schema::empty();
        for statement in SCHEMA {
            let context = PlanContext {
                schema: &schema,
                keyspace: Some("ks"),
                data_centers: &[("datacenter1".to_owned(), 1)],
                shards: 1,
                now_us: 0,
                chance: [1, schema.tables().count() as u64],
                user_functions: true,
                guardrails: &Guardrails::default(),
            };
            let parsed = cql::parse_statement(statement).expect("the schema parses");
            let planned = plan(&parsed.statement, &context, &mut Vec::new()).expect("the schema is planned");
            schema.apply(&planned.change.expect("each statement changes it")).expect("the schema is right");
        }
        Self { schema: Rc::new(schema) }
    }
}

impl Statements {
    /// Prepares a statement; true if it can be.
    pub fn prepare(&self, text: &str) -> bool {
        let (names, text) = (self.clone(), text.to_owned());
        reactor::sim::run_one(1, move || async move {
            let Ok(parsed) = cql::parse_statement(&text) else { return false };
            prepare(parsed, &names, &Ambient::new()).is_ok()
        })
    }
}

impl Names for Statements {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn table(&self, name: &QualifiedName) -> Result<Rc<Table>, QueryError> {
        let keyspace = name.keyspace.as_ref().map_or("ks", |keyspace| keyspace.as_str());
        let table = self.schema.table(keyspace, name.name.as_str());
        table.cloned().ok_or_else(|| QueryError::invalid("there is no such table"))
    }

    fn keyspace(&self) -> Option<&str> {
        Some("ks")
    }

    fn marker_options(&self) -> MarkerOptions {
        MarkerOptions::default()
    }

    fn is_stored(&self, _: &Table) -> bool {
        true
    }
}
