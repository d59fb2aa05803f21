//! The entry points of fuzz targets for what clients send and this crate decodes.
//!
//! Not part of the interface; `make fuzz` runs them. One target counts the bytes that preparing a statement
//! allocates, functions of constants included, and bounds them by the bytes of its text. The others hand
//! JSON and literals to their decoders: whatever is accepted must be valid where it is used.

use std::rc::Rc;

use cql::ast::QualifiedName;
use model::schema::Table;
use model::{Column, CqlType, Schema};

use crate::StatementError;
use crate::ambient::Ambient;
use crate::ddl::plan::{PlanContext, plan};
use crate::functions::json;
use crate::guardrails::Guardrails;
use crate::prepare::{Names, prepare};
use crate::terms::{MarkerOptions, literal};

/// The tables that statements may name, in keyspace `ks`, which unqualified names are in too.
const SCHEMA: [&str; 5] = [
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE ks.u (a int, b text)",
    "CREATE TABLE ks.t (k int, c int, s int static, v int, x text, b blob, n varint, d decimal, m map<text, int>, \
     se set<decimal>, l list<frozen<list<int>>>, tu tuple<int, text>, ud u, PRIMARY KEY (k, c))",
    "CREATE TABLE ks.p (a int, b text, c int, d int, v counter, PRIMARY KEY ((a, b), c, d))",
    "CREATE TABLE ks.s (k int PRIMARY KEY, a ascii, b bigint, o boolean, da date, db double, du duration, f float, i inet, \
     sm smallint, t time, ts timestamp, tu timeuuid, ti tinyint, u uuid, ve vector<float, 2>)",
];

/// Longest text that is written of a value.
const JSON_BYTES_MAX: usize = 1 << 20;

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
    /// The columns of all tables, without the primary keys of the last two.
    fn columns(&self) -> impl Iterator<Item = (&str, &Column)> {
        let tables = ["t", "s"].into_iter().filter_map(|name| Some((name, self.schema.table("ks", name)?)));
        tables.flat_map(|(name, table)| table.columns().map(move |column| (name, column)))
    }

    /// Prepares an INSERT of the literal `text` into a column.
    pub fn literal(&self, column: u8, text: &str) {
        let columns: Vec<_> = self.columns().collect();
        let (table, column) = columns[usize::from(column) % columns.len()];
        self.prepare(&format!("INSERT INTO ks.{table} ({}) VALUES ({text})", column.name));
    }

    /// Reads a text as the value of each type, as a literal and as JSON. A value that comes out has to be
    /// valid, and what is written of it as JSON has to be JSON.
    pub fn values(&self, text: &str) {
        let json = json::parse(text);
        for (_, column) in self.columns() {
            let ty = &column.ty;
            let mut value = Vec::new();
            if literal::append_inner_text(text, ty, 0, &mut value).is_ok() {
                assert_valid(ty, &value);
            }
            value.clear();
            // The bytes of a collection, given as digits, are looked at by those who take them.
            if literal::append_text(text, ty, 0, &mut value).is_ok() && !ty.is_collection() {
                assert_valid(ty, &value);
            }
            let read = json.as_ref().ok().and_then(|json| json::value(ty, json, 0).ok().flatten());
            if let Some(value) = read {
                assert_valid(ty, &value);
                let mut written = String::new();
                if json::append(ty, Some(&value), &mut written, JSON_BYTES_MAX).is_ok() {
                    assert!(json::parse(&written).is_ok(), "{ty}: {written}");
                }
            }
        }
    }

    /// Prepares a statement; true if it can be.
    pub fn prepare(&self, text: &str) -> bool {
        let (names, text) = (self.clone(), text.to_owned());
        reactor::sim::run_one(1, move || async move {
            let Ok(parsed) = cql::parse_statement(&text) else { return false };
            prepare(parsed, &names, &Ambient::new()).is_ok()
        })
    }
}

fn assert_valid(ty: &CqlType, value: &[u8]) {
    assert!(model::validate::validate(ty, value).is_ok(), "{ty}: {value:?}");
}

impl Names for Statements {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn table(&self, name: &QualifiedName) -> Result<Rc<Table>, StatementError> {
        let keyspace = name.keyspace.as_ref().map_or("ks", |keyspace| keyspace.as_str());
        let table = self.schema.table(keyspace, name.name.as_str());
        table.cloned().ok_or_else(|| StatementError::invalid("there is no such table"))
    }

    fn keyspace(&self) -> Option<&str> {
        Some("ks")
    }

    fn marker_options(&self) -> MarkerOptions {
        MarkerOptions::default()
    }

    fn fragments_table(&self, table: &Table) -> Table {
        table.clone()
    }

    fn is_stored(&self, _: &Table) -> bool {
        true
    }
}
