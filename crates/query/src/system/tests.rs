//! Compares virtual tables with those of a Cassandra 5.0.6 for the same schema.
//!
//! `testdata/system_schema.txt`: `= table`, then the lines of `SELECT JSON * FROM table`.

use std::rc::Rc;

use model::collection::{Elements, Entries};
use model::partition_key::{self, DecoratedKey};
use model::{Clustering, ColumnKind, CqlType, RowView, Table, Token};
use statement::functions::number_text;
use statement::session::Session;
use storage::{Flow, PartitionBound, PartitionRange, ReadCommand, RowConsumer, Slices};

use super::{Catalog, World};
use crate::describe::tests::node;

const SCHEMA_ROWS: &str = include_str!("../../testdata/system_schema.txt");
const STATEMENTS: &str = include_str!("../../testdata/describe.txt");

/// Rows as JSON, like the result of `SELECT JSON *`.
struct Json<'t> {
    table: &'t Table,
    key: Vec<u8>,
    lines: Vec<String>,
    at_most: usize,
}

impl RowConsumer for Json<'_> {
    fn partition(&mut self, key: &[u8], _: Token, static_row: Option<RowView<'_>>) -> Flow {
        assert!(static_row.is_none());
        self.key = key.to_vec();
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        RowView::parse(row.as_bytes()).expect("a row that parses");
        let keys: Vec<&[u8]> =
            partition_key::components(&self.key, self.table.partition_key().len()).collect();
        let clusterings: Vec<Option<&[u8]>> = Clustering(clustering).components().collect();
        let values = self.table.columns().map(|column| {
            let position = usize::from(column.position);
            let value = match column.kind {
                ColumnKind::PartitionKey => json(&column.ty, keys[position]),
                ColumnKind::Clustering => json(&column.ty, clusterings[position].unwrap()),
                _ if column.ty.is_multi_cell() => {
                    let cells = row.cells().filter(|cell| cell.column == column.id);
                    let paths: Vec<String> =
                        cells.map(|cell| json(&CqlType::Text, cell.path.unwrap())).collect();
                    if paths.is_empty() { "null".to_owned() } else { format!("[{}]", paths.join(", ")) }
                }
                _ => match row.cell(column.id) {
                    None => "null".to_owned(),
                    Some(cell) => json(&column.ty, cell.value().unwrap()),
                },
            };
            format!("\"{}\": {value}", column.name)
        });
        self.lines.push(format!("{{{}}}", values.collect::<Vec<_>>().join(", ")));
        if self.lines.len() == self.at_most { Flow::Stop } else { Flow::Continue }
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

fn json(ty: &CqlType, value: &[u8]) -> String {
    model::validate::validate(ty, value).unwrap_or_else(|error| panic!("{ty}: {error}"));
    let text = |value: &[u8]| {
        let text = std::str::from_utf8(value).unwrap();
        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
    };
    let hex = |value: &[u8]| value.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match ty {
        CqlType::Text => text(value),
        CqlType::Int => i32::from_be_bytes(value.try_into().unwrap()).to_string(),
        CqlType::Double => number_text::double(f64::from_be_bytes(value.try_into().unwrap())),
        CqlType::Boolean => (value == [1]).to_string(),
        CqlType::Blob => format!("\"0x{}\"", hex(value)),
        CqlType::Uuid => format!("\"{}\"", uuid::Uuid::from_slice(value).unwrap()),
        CqlType::Inet => format!("\"{}\"", value.iter().map(u8::to_string).collect::<Vec<_>>().join(".")),
        CqlType::Timestamp => {
            let ms = i64::from_be_bytes(value.try_into().unwrap());
            let time = jiff::Timestamp::from_millisecond(ms).unwrap();
            format!("\"{}\"", time.strftime("%Y-%m-%d %H:%M:%S%.3fZ"))
        }
        CqlType::Set { element, .. } | CqlType::List { element, .. } => {
            let elements = Elements::parse(value).unwrap();
            let elements: Vec<String> = elements.map(|value| json(element, value.unwrap())).collect();
            format!("[{}]", elements.join(", "))
        }
        CqlType::Map { key, value: of, .. } => {
            let entries = Entries::parse(value).unwrap().map(|entry| {
                let (name, value) = entry.unwrap();
                format!("{}: {}", json(key, name), json(of, value))
            });
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        other => panic!("no made-up table shows a value of type {other}"),
    }
}

fn session() -> Session {
    let mut session = Session::default();
    for text in STATEMENTS.lines().filter_map(|line| line.strip_prefix("= ")) {
        session.run(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    session
}

fn command(table: &Rc<Table>) -> ReadCommand {
    ReadCommand {
        table: Rc::clone(table),
        range: PartitionRange::all(),
        slices: Slices::from_iter([model::clustering::Slice::all()]),
        reversed: false,
        now: 1_700_000_000,
        bypass_cache: false,
    }
}

fn read(session: &Session, command: &ReadCommand, at_most: usize) -> Vec<String> {
    let (command, world) = (
        command.clone(),
        World {
            schema: Rc::new(session.schema.clone()),
            node: node(),
            nodes: Rc::default(),
            compactions: Vec::new(),
            views: super::Views::default(),
        },
    );
    let config = reactor::Config { driver: reactor::DriverChoice::Poll, ..reactor::Config::default() };
    reactor::run_one(config, async move {
        let catalog = Catalog::new().unwrap();
        let mut consumer = Json { table: &command.table, key: Vec::new(), lines: Vec::new(), at_most };
        super::read::read_world(&catalog, &world, &command, &mut consumer).await;
        consumer.lines
    })
}

fn table(keyspace: &str, name: &str) -> Rc<Table> {
    Catalog::new().unwrap().table(keyspace, name).unwrap()
}

#[test]
fn the_schema_shows_as_cassandra_shows_it() {
    let session = session();
    let mut sections = 0;
    for section in SCHEMA_ROWS.split("= system_").skip(1) {
        let (name, rows) = section.split_once('\n').unwrap();
        let (keyspace, name) = name.split_once('.').unwrap();
        let keyspace = format!("system_{keyspace}");
        let of_cassandra_alone = |line: &&str| {
            line.contains("\"thrift_version\"") && name == "dropped_columns"
                || line.contains("PaxosUncommittedIndex")
        };
        let mut expected: Vec<&str> = rows.lines().filter(|line| !of_cassandra_alone(line)).collect();
        let mut found = read(&session, &command(&table(&keyspace, name)), usize::MAX);
        let ours = |line: &String| {
            let of_system = [
                "versions\"",
                "large_",
                "clients\"",
                "config\"",
                "protocol_servers\"",
                "runtime_info\"",
                "snapshots\"",
                "tablets\"",
                "token_ring\"",
            ];
            let names = |name: &&str| line.contains(&format!("\"table_name\": \"{name}"));
            let of_system = of_system.iter().any(names) && line.contains("\"keyspace_name\": \"system\"");
            let of_traces = ["node_slow_log", "sessions_time_idx"].iter().any(names);
            of_system || names(&"scylla_") || of_traces
        };
        found.retain(|line| !ours(line));
        if keyspace == "system_virtual_schema" {
            // Cassandra sorts these by name, not by token.
            expected.sort_unstable();
            found.sort_unstable();
        }
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!(expected, found, "{keyspace}.{name}");
        }
        assert_eq!(expected.len(), found.len(), "{keyspace}.{name}");
        sections += 1;
    }
    assert_eq!(sections, 14);
}

#[test]
fn every_made_up_table_can_be_read() {
    let session = session();
    let catalog = Catalog::new().unwrap();
    let mut tables = 0;
    for keyspace in catalog.keyspaces() {
        for table in keyspace.tables.values() {
            read(&session, &command(table), usize::MAX);
            tables += 1;
        }
    }
    assert!(tables > 70, "{tables}");
}

#[test]
fn the_node_shows_itself() {
    let session = session();
    let rows = read(&session, &command(&table("system", "local")), usize::MAX);
    assert_eq!(rows.len(), 1);
    let version = uuid::Uuid::from_bytes(session.schema.version()).to_string();
    for part in [
        "\"key\": \"local\", \"bootstrapped\": \"COMPLETED\", \"broadcast_address\": \"127.0.0.8\", \
         \"broadcast_port\": 7000, \"cluster_name\": \"peers\", \"cql_version\": \"3.4.7\", \
         \"data_center\": \"datacenter1\", \"gossip_generation\": 1700000000",
        "\"native_protocol_version\": \"5\", \"partitioner\": \"org.apache.cassandra.dht.Murmur3Partitioner\"",
        "\"release_version\": \"5.0.6\", \"rpc_address\": \"127.0.0.8\", \"rpc_port\": 9042",
        version.as_str(),
        "\"truncated_at\": null",
        "\"9223372036854775807\"",
    ] {
        assert!(rows[0].contains(part), "{part} is not in {}", rows[0]);
    }
}

#[test]
fn ranges_slices_and_order_are_kept() {
    let session = session();
    let columns = table("system_schema", "columns");
    let all = read(&session, &command(&columns), usize::MAX);
    let of_shapes: Vec<&String> =
        all.iter().filter(|line| line.starts_with("{\"keyspace_name\": \"shapes\"")).collect();

    let key = DecoratedKey::new(b"shapes".to_vec());
    let mut one = command(&columns);
    one.range = PartitionRange::Key(key.clone());
    assert_eq!(read(&session, &one, usize::MAX).iter().collect::<Vec<_>>(), of_shapes);

    let mut prefix = Vec::new();
    model::clustering::append_component(&mut prefix, Some(b"keys"));
    one.slices = Slices::from_iter([model::clustering::Slice::prefix(&prefix)]);
    one.reversed = true;
    let mut keys: Vec<&String> =
        of_shapes.into_iter().filter(|line| line.contains("\"table_name\": \"keys\"")).collect();
    keys.reverse();
    assert_eq!(keys.len(), 7);
    assert_eq!(read(&session, &one, usize::MAX).iter().collect::<Vec<_>>(), keys);
    assert_eq!(read(&session, &one, 2).iter().collect::<Vec<_>>(), keys[..2]);

    let bound = |inclusive| PartitionBound { token: key.token, key: Some(key.key.clone()), inclusive };
    let mut ranged = command(&columns);
    let mut counts = Vec::new();
    for inclusive in [true, false] {
        let start = PartitionBound { token: Token::MINIMUM, key: None, inclusive: true };
        ranged.range = PartitionRange::Between { from: start, to: bound(inclusive) };
        counts.push(read(&session, &ranged, usize::MAX).len());
        let end = PartitionBound { token: Token::MAXIMUM, key: None, inclusive: true };
        ranged.range = PartitionRange::Between { from: bound(!inclusive), to: end };
        counts.push(read(&session, &ranged, usize::MAX).len());
    }
    assert_eq!(counts[0] + counts[1], all.len());
    assert_eq!(counts[2] + counts[3], all.len());
    assert!(counts[0] > counts[2]);
}

#[test]
fn a_first_start_makes_what_is_missing_and_no_more() {
    let mut schema = model::Schema::empty();
    let changes = super::first_changes(&schema, 4).unwrap();
    assert_eq!(changes.len(), 3 + 8 + 4 + 5);
    for change in &changes {
        schema.apply(change).unwrap();
    }
    assert_eq!(super::first_changes(&schema, 4).unwrap(), []);
    let events = schema.table("system_traces", "events").unwrap();
    assert_eq!(events.tablets().count(), 4);
    let drop = model::schema::SchemaChange::DropTable {
        keyspace: "system_traces".into(),
        name: "events".into(),
        id: events.id(),
    };
    schema.apply(&drop).unwrap();
    assert_eq!(super::first_changes(&schema, 4).unwrap().len(), 1);
}
