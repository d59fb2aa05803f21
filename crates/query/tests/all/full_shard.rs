//! Writes of a shard whose memory is so full that writers are held.

use query::{AtOnce, Engine, Left, QueryError};
use wire::values::ValueRef;

use crate::support::{client, node, parameters, prepare, run};

/// Values of a row that their table does not accept; code that checks them fails.
const WRONG: [ValueRef<'_>; 2] = [ValueRef::Bytes(b"\0\0\0\x01"), ValueRef::Bytes(b"\xff")];

/// The result of [`Engine::begin_write`] for these wrong values.
fn begin(engine: &Engine, id: &[u8]) -> Result<AtOnce, QueryError> {
    let row = engine.one_row(id).expect("a write of one row");
    engine.begin_write(&client(), &row, (&parameters(), &WRONG))
}

async fn fill(engine: Engine) -> [bool; 2] {
    run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v text)").await;
    let insert = prepare(&engine, "INSERT INTO t (k, v) VALUES (?, ?)").await.unwrap();
    let refused = matches!(begin(&engine, &insert.id), Err(QueryError::Invalid(_)));
    let value = "v".repeat(100_000);
    for key in 0..10_000 {
        if engine.storage().holds_writers() {
            return [refused, matches!(begin(&engine, &insert.id), Ok(AtOnce::Left(Left::Untried)))];
        }
        run(&engine, &format!("INSERT INTO t (k, v) VALUES ({key}, '{value}')")).await;
    }
    panic!("a gigabyte does not fill a shard of 16 MiB");
}

#[test]
fn a_write_is_left_before_it_is_built_where_writers_are_held() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(node(folder.path(), 1, fill), [true, true]);
}
