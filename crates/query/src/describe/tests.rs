//! Descriptions against those of a Cassandra 5.0.6 that ran the same statements.
//!
//! `testdata/describe.txt`: `= ` sets up, `> ` describes, `< ` is a row (columns divided by ` | `, line ends
//! as `\n`), `! ` an error, `@ ` a statement of the session's.

use std::net::{IpAddr, Ipv4Addr};

use cluster::Nodes;
use cql::ast::Statement;
use statement::session::Session;

use super::{Around, Description, append_rows, describe};
use crate::QueryError;
use crate::system::{Catalog, NodeFacts};

const DESCRIPTIONS: &str = include_str!("../../testdata/describe.txt");
/// Tables of COMPACT STORAGE, in the same form.
const COMPACT: &str = include_str!("../../testdata/describe_compact.txt");

pub(crate) fn node() -> NodeFacts {
    NodeFacts {
        cluster_name: "peers".into(),
        data_center: "datacenter1".into(),
        rack: "rack1".into(),
        host_id: [7; 16],
        listen_address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 8)),
        bind_address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 8)),
        listen_port: 7000,
        rpc_address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 8)),
        rpc_port: 9042,
        generation: 1_700_000_000,
    }
}

fn run(session: &Session, catalog: &Catalog, text: &str) -> Result<Description, QueryError> {
    let parsed = cql::parse_statement(text)?;
    let Statement::Describe(statement) = &parsed.statement else { panic!("{text} is no DESCRIBE") };
    let around = Around { own: &node(), nodes: &Nodes::new() };
    describe(statement, &session.schema, catalog, around, session.keyspace.as_deref())
}

#[test]
fn descriptions_are_cassandras() {
    assert!(compare(DESCRIPTIONS) > 40);
}

#[test]
fn tables_of_compact_storage_are_described_as_cassandras() {
    assert_eq!(compare(COMPACT), 12);
}

/// Runs the statements of a file and returns how many descriptions were compared.
fn compare(descriptions: &str) -> usize {
    let catalog = Catalog::new().unwrap();
    let mut session = Session::default();
    let mut wrong = Vec::new();
    let mut found: Vec<String> = Vec::new();
    let mut statement = "";
    let mut seen = 0;
    let mut finish = |statement: &str, found: &mut Vec<String>| {
        if !found.is_empty() {
            wrong.push(format!("{statement}\n  found too: {}", found.join("\n             ")));
        }
        found.clear();
    };
    let mut differing = Vec::new();
    for line in descriptions.lines() {
        let (mark, rest) = line.split_at(2);
        match mark {
            "= " => {
                finish(statement, &mut found);
                session.run(rest).unwrap_or_else(|error| panic!("{rest}: {error}"));
            }
            "@ " => session.keyspace = rest.strip_prefix("USE ").map(str::to_owned),
            "> " => {
                finish(statement, &mut found);
                statement = rest;
                seen += 1;
                found = match run(&session, &catalog, statement) {
                    Err(QueryError::Invalid(text)) => vec![format!("! 2200 {text}")],
                    Err(error) => panic!("{statement}: {error:?}"),
                    Ok(description) => {
                        let rows = description.rows.iter().filter(|row| !of_traces(row));
                        rows.map(|row| shown(row)).collect()
                    }
                };
            }
            _ => {
                if found.first().map(String::as_str) == Some(line) {
                    found.remove(0);
                } else {
                    let first = found.first().cloned().unwrap_or_default();
                    differing.push(format!("{statement}\n  expected: {line}\n  found:    {first}"));
                    if !found.is_empty() {
                        found.remove(0);
                    }
                }
            }
        }
    }
    finish(statement, &mut found);
    wrong.append(&mut differing);
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    seen
}

/// Whether a row describes a table of `system_traces` that Cassandra does not have.
fn of_traces(row: &[Vec<u8>]) -> bool {
    let of_scylla: [&[u8]; 3] = [b"node_slow_log", b"node_slow_log_time_idx", b"sessions_time_idx"];
    matches!(row, [keyspace, _, name, ..] if keyspace == b"system_traces" && of_scylla.contains(&&name[..]))
}

fn shown(row: &[Vec<u8>]) -> String {
    let values: Vec<String> =
        row.iter().map(|value| String::from_utf8_lossy(value).replace('\n', "\\n")).collect();
    format!("< {}", values.join(" | "))
}

#[test]
fn a_cluster_shows_who_owns_which_range_of_a_users_keyspace() {
    let catalog = Catalog::new().unwrap();
    let mut session = Session::default();
    session.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy'}").unwrap();
    session.keyspace = Some("ks".into());
    let description = run(&session, &catalog, "DESCRIBE CLUSTER").unwrap();
    assert_eq!(description.columns.last(), Some(&"range_ownership"));
    let map = model::collection::Entries::parse(&description.rows[0][3]).unwrap();
    assert_eq!(map.count(), 16);
    session.keyspace = Some("system_traces".into());
    assert_eq!(run(&session, &catalog, "DESCRIBE CLUSTER").unwrap().columns.len(), 3);
}

#[test]
fn pages_follow_each_other_and_end_when_the_schema_changes() {
    let catalog = Catalog::new().unwrap();
    let mut session = Session::default();
    let description = run(&session, &catalog, "DESCRIBE KEYSPACES").unwrap();
    let total = description.rows.len();
    let version = session.schema.version();
    let mut state: Option<Vec<u8>> = None;
    let mut given = 0;
    for _ in 0..total {
        let mut out = Vec::new();
        append_rows(&description, version, Some(3), state.as_deref(), &mut out).unwrap();
        let int = |at: usize| i32::from_be_bytes(out[at..at + 4].try_into().unwrap());
        assert_eq!((int(0), int(8)), (2, 3));
        given += 3.min(total - given);
        if int(4) & 2 == 0 {
            break;
        }
        let length = usize::try_from(int(12)).unwrap();
        state = Some(out[16..16 + length].to_vec());
    }
    assert_eq!(given, total);
    session.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy'}").unwrap();
    let error = |state: &[u8]| {
        let out = &mut Vec::new();
        append_rows(&description, session.schema.version(), Some(3), Some(state), out)
            .unwrap_err()
            .to_string()
    };
    assert!(error(&state.unwrap()).starts_with("The schema has changed"));
    assert_eq!(error(b"short"), "Invalid paging state.");
    assert_eq!(error(&[9; 25]), "Incompatible paging state");
}

#[test]
fn definitions_of_system_tables_are_cassandras() {
    let catalog = Catalog::new().unwrap();
    let session = Session::default();
    for (keyspace, text) in [
        ("system", include_str!("../../testdata/describe_system.txt")),
        ("system_schema", include_str!("../../testdata/describe_system_schema.txt")),
        ("system_auth", include_str!("../../testdata/describe_system_auth.txt")),
        ("system_distributed", include_str!("../../testdata/describe_system_distributed.txt")),
        ("system_traces", include_str!("../../testdata/describe_system_traces.txt")),
        ("system_views", include_str!("../../testdata/describe_system_views.txt")),
        ("system_virtual_schema", include_str!("../../testdata/describe_system_virtual_schema.txt")),
    ] {
        let description =
            run(&session, &catalog, &format!("DESCRIBE KEYSPACE {keyspace} WITH INTERNALS")).unwrap();
        let mut expected = text.split("### ").skip(1);
        for row in &description.rows {
            let name = String::from_utf8_lossy(&row[2]);
            // Tables that Cassandra does not have.
            let of_system = [
                "versions",
                "clients",
                "config",
                "protocol_servers",
                "runtime_info",
                "snapshots",
                "tablets",
                "token_ring",
            ];
            if keyspace == "system" && of_system.contains(&&*name)
                || name.starts_with("scylla_")
                || name.starts_with("large_")
                || of_traces(row)
            {
                continue;
            }
            let (head, body) =
                expected.next().expect("no more elements than Cassandra has").split_once('\n').unwrap();
            assert_eq!(head, format!("{keyspace} {} {name}", String::from_utf8_lossy(&row[1])));
            assert_eq!(String::from_utf8_lossy(&row[3]), body.trim_end(), "{head}");
        }
        assert_eq!(expected.next(), None);
    }
}
