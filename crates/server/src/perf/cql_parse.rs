//! `ceto perf cql-parse`: parses statements into syntax trees, one after the other.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};

use super::PerfError;
use super::meter::Meter;
use super::run::{self, Bench, RunOptions, Slice, Until};

/// Largest file of statements.
const FILE_BYTES_MAX: usize = 16 << 20;

/// The most common statements of clients, and some rare ones.
const STATEMENTS: [&str; 8] = [
    "SELECT c0, c1, c2, c3, c4 FROM ks.cf WHERE key = ?",
    "INSERT INTO ks.cf (key, c0, c1, c2, c3, c4) VALUES (?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?",
    "UPDATE ks.users SET name = 'Ada', emails = emails + {'ada@example.com'}, logins[?] = 7 WHERE id = ? IF EXISTS",
    "DELETE tags['old'], note FROM ks.users WHERE id = 123e4567-e89b-12d3-a456-426614174000 AND at >= 1700000000000",
    "SELECT writetime(name), toJson(emails), count(*) FROM ks.users WHERE id IN (1, 2, 3) AND (a, b) > (?, 'x') ORDER BY a DESC LIMIT 10 ALLOW FILTERING",
    "BEGIN UNLOGGED BATCH INSERT INTO ks.a (k, v) VALUES (1, 0xcafe); UPDATE ks.b SET n = n + 1 WHERE k = 2; APPLY BATCH",
    "CREATE TABLE ks.t (k text, c timeuuid, v frozen<map<text, list<int>>>, s int STATIC, PRIMARY KEY ((k), c)) WITH CLUSTERING ORDER BY (c DESC) AND comment = 'x' AND compaction = {'class': 'LeveledCompactionStrategy'}",
    "ALTER KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3} AND durable_writes = true",
];

/// Options of `ceto perf cql-parse`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Statements to parse in turn, one on each line; without it a mix of the usual ones
    #[arg(long, value_name = "FILE")]
    statements: Option<PathBuf>,
    #[command(flatten)]
    run: RunOptions,
}

pub(super) fn run(options: Options) -> Result<(), PerfError> {
    let reactor = reactor::Config { name: "perf".into(), ..reactor::Config::default() };
    reactor::run_one(reactor, async move {
        let statements = match &options.statements {
            Some(path) => read(path).await?,
            None => STATEMENTS.map(str::to_owned).to_vec(),
        };
        for statement in &statements {
            cql::parse_statement(statement).map_err(|error| PerfError::Syntax {
                statement: statement.clone(),
                reason: error.to_string(),
            })?;
        }
        let from = options.statements.as_ref().map(|path| path.display().to_string());
        run::run(&mut CqlParse { statements, from, meter: Meter::new() }, &options.run).await
    })
}

async fn read(path: &Path) -> Result<Vec<String>, PerfError> {
    let bytes = reactor::file::read_all(path, FILE_BYTES_MAX).await;
    let bytes = bytes.map_err(PerfError::io(format!("read {}", path.display())))?;
    let text = String::from_utf8_lossy(&bytes);
    let statements: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if statements.is_empty() {
        let (what, answer) = (path.display().to_string(), "no statement".to_owned());
        return Err(PerfError::Unexpected { what, answer });
    }
    Ok(statements)
}

struct CqlParse {
    statements: Vec<String>,
    from: Option<String>,
    meter: Meter,
}

impl Bench for CqlParse {
    const NAME: &'static str = "cql-parse";

    fn operation(&self) -> String {
        let bytes: usize = self.statements.iter().map(String::len).sum();
        let (count, mean) = (self.statements.len(), bytes / self.statements.len());
        format!("one of {count} statements of {mean} bytes on average")
    }

    fn parameters(&self) -> Map<String, Value> {
        let parameters = json!({ "statements": self.from, "count": self.statements.len() });
        parameters.as_object().cloned().unwrap_or_default()
    }

    async fn slice(&mut self, until: Until) -> Result<Slice, PerfError> {
        let began = reactor::now();
        let statements = &self.statements;
        let (operations, used) = self
            .meter
            .measure(async {
                let mut operations = 0;
                while until.goes_on(operations) {
                    for statement in statements {
                        let parsed = cql::parse_statement(std::hint::black_box(statement));
                        assert!(std::hint::black_box(parsed).is_ok(), "{statement} was parsed before");
                    }
                    operations += statements.len() as u64;
                    reactor::maybe_yield().await;
                }
                operations
            })
            .await;
        let elapsed_ns = began.elapsed().as_nanos() as u64;
        Ok(Slice { operations, errors: 0, elapsed_ns, used })
    }
}
