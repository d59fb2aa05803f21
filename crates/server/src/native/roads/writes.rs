//! INSERT, UPDATE and DELETE of one row, and what the table has afterwards.

use query::Engine;
use wire::client::{Parameters, RequestOptions};
use wire::consistency::Consistency;
use wire::version::ProtocolVersion;

use super::client::{Client, Clients, Value, int, text};
use super::reads::{TABLES, Table, counted, tables, wrong};
use super::{Answers, SHARDS};

/// The statements, with the values of their markers before and behind those of the primary key. `$` stands
/// for the table, `#` for the restrictions, `!` for the names of an INSERT, `?#` for its markers.
const WRITES: [(&str, Values, Values); 9] = [
    ("INSERT INTO $ (!, v, w) VALUES (?#, ?, ?) USING TIMESTAMP 10", none, || vec![int(1), text("one")]),
    ("INSERT INTO $ (!, w) VALUES (?#, ?)", none, || vec![text("two")]),
    ("INSERT INTO $ (!) VALUES (?#)", none, none),
    ("UPDATE $ USING TIMESTAMP 30 SET v = ?, w = ? WHERE #", || vec![int(3), text("three")], none),
    ("UPDATE $ USING TTL ? AND TIMESTAMP ? SET v = ? WHERE #", || vec![int(600), long(40), int(4)], none),
    ("UPDATE $ USING TIMEOUT 5m AND TIMESTAMP 50 SET w = ? WHERE #", || vec![text("five")], none),
    ("DELETE v FROM $ USING TIMESTAMP ? WHERE #", || vec![long(60)], none),
    ("DELETE FROM $ USING TIMESTAMP 5 WHERE #", none, none),
    ("UPDATE $ USING TIMESTAMP 70 SET v = 7 WHERE #", none, none),
];

/// Values of some markers of a statement.
type Values = fn() -> Vec<Value>;

fn none() -> Vec<Value> {
    Vec::new()
}

/// A bigint.
fn long(value: i64) -> Value {
    Value::Bytes(value.to_be_bytes().to_vec())
}

/// Every write with right values and with wrong ones, and the rows behind each.
pub(super) async fn all(mut clients: Clients, engine: Engine) -> Answers {
    let keys = tables(clients.latest(), &engine).await;
    let mut answers = Answers::new();
    for (table, keys) in TABLES.iter().zip(&keys) {
        for (statement, before, behind) in WRITES {
            let statement = filled(table, statement);
            for client in &mut clients.0 {
                let parts = (&statement[..], before(), behind());
                each_write(client, (table, keys), parts, &mut answers).await;
            }
            rows(clients.latest(), table, &mut answers).await;
        }
        answers.extend(counted(clients.latest(), "write", table).await);
    }
    answers
}

fn filled(table: &Table, statement: &str) -> String {
    let columns = table.columns().join(", ");
    let marks = vec!["?"; table.columns().len()].join(", ");
    table.fill(&statement.replace("?#", &marks).replace('!', &columns))
}

/// One statement, by one client.
async fn each_write(
    client: &mut Client,
    (table, keys): (&Table, &[Vec<i32>; SHARDS]),
    (statement, before, behind): (&str, Vec<Value>, Vec<Value>),
    answers: &mut Answers,
) {
    let (id, metadata_id) = client.prepare(statement).await;
    let latest = client.version() >= ProtocolVersion::V5;
    let now_in_seconds = latest.then_some(1_000_000);
    let stamped =
        Parameters { default_timestamp_us: Some(20), now_in_seconds, ..Parameters::at(Consistency::One) };
    let (ids, options) = ((&id[..], &metadata_id[..]), RequestOptions::default());
    for (shard, keys) in keys.iter().enumerate() {
        let values = |kind| [before.clone(), table.row(keys, kind), behind.clone()].concat();
        let name = client.name;
        let asked = |detail: &str| format!("{name}: {statement}, shard {shard}, {detail}");
        for level in Consistency::ALL {
            for serial_consistency in [None, Some(Consistency::Serial), Some(Consistency::One)] {
                if !latest && serial_consistency.is_some() {
                    continue;
                }
                let parameters = Parameters { consistency: level, serial_consistency, ..stamped };
                let answer = client.execute(ids, &values(0), &parameters, &options).await;
                let detail = format!("{level:?}, {serial_consistency:?}");
                answers.push((asked(&detail), answer));
            }
        }
        for (detail, values) in wrong(&values(1)).into_iter().chain(if latest {
            numbers(&values(2), before.len())
        } else {
            Vec::new()
        }) {
            let answer = client.execute(ids, &values, &stamped, &options).await;
            answers.push((asked(&detail), answer));
        }
        let paged = Parameters { page_size: Some(1), skip_metadata: true, ..stamped };
        let answer = client.execute(ids, &values(3), &paged, &options).await;
        answers.push((asked("in pages"), answer));
        let answer = client.query(statement, &values(4), &stamped).await;
        answers.push((asked("as text"), answer));
        if client.version() >= ProtocolVersion::V4 {
            let options = RequestOptions { custom_payload: &[("a", None)], ..options };
            let answer = client.execute(ids, &values(5), &stamped, &options).await;
            answers.push((asked("a payload"), answer));
        }
    }
}

/// Values of which one of the first is a number that may be none of a timestamp or of a time to live.
fn numbers(right: &[Value], first: usize) -> Vec<(String, Vec<Value>)> {
    let mut all = Vec::new();
    for at in 0..first {
        for number in [-1, 0, 630_720_000, 630_720_001, i32::MAX, i32::MIN] {
            for value in [int(number), long(i64::from(number)), long(i64::MIN), long(i64::MAX)] {
                let mut values = right.to_vec();
                values[at] = value.clone();
                all.push((format!("value {at} is {value:?}"), values));
            }
        }
    }
    all
}

/// What the table has.
async fn rows(client: &mut Client, table: &Table, answers: &mut Answers) {
    let statement = format!(
        "SELECT {}, v, w, writetime(v), writetime(w) FROM ks.{}",
        table.columns().join(", "),
        table.name
    );
    let parameters = Parameters { now_in_seconds: Some(1_000_100), ..Parameters::at(Consistency::One) };
    let answer = client.query(&statement, &[], &parameters).await;
    answers.push((statement, answer));
}
