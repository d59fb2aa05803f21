//! Counters under many hands, across restarts, and through table files.

use crate::support::{self, Options, batch_body, int, node, prepare, query, rows, run, send};
use query::{Engine, Response};
use reactor::{Group, mesh};
use wire::frame::Opcode;

const CLIENTS: usize = 16;
const UPDATES: usize = 20;

async fn many_count(engine: Engine) {
    let mut tasks = Vec::new();
    for shard in 0..reactor::shard_count() {
        for client in 0..CLIENTS {
            let work = move || async move {
                let engine = Engine::here().unwrap();
                for _ in 0..UPDATES {
                    let key = client % 3;
                    run(&engine, &format!("UPDATE t SET c = c + 2, s = s - 1 WHERE k = {key} AND r = 1"))
                        .await;
                }
            };
            tasks.push(reactor::spawn(Group::STATEMENT, mesh::call(shard, Group::STATEMENT, work)));
        }
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let sum = (CLIENTS * UPDATES * reactor::shard_count()) as i64;
    assert_eq!(rows(&engine, "SELECT sum(c), sum(s) FROM t").await, [format!("{} | {}", 2 * sum, -sum)]);
}

#[test]
fn no_increment_is_lost() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, |engine| async move {
            run(&engine, "CREATE TABLE t (k int, r int, s counter static, c counter, PRIMARY KEY (k, r))")
                .await;
            many_count(engine).await;
        });
    }
}

#[test]
fn counters_survive_restarts_flushes_and_another_number_of_shards() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 1, |engine| async move {
        run(&engine, "CREATE TABLE t (k int PRIMARY KEY, c counter, d counter)").await;
        for key in 0..20 {
            run(&engine, &format!("UPDATE t SET c = c + {key}, d = d + 1 WHERE k = {key}")).await;
        }
        // Part of it in table files, part in the log alone.
        engine.storage().flush_all().await.unwrap();
        run(&engine, "UPDATE t SET c = c + 100 WHERE k = 3").await;
        run(&engine, "DELETE FROM t WHERE k = 4").await;
    });
    node(folder.path(), 2, |engine| async move {
        assert_eq!(rows(&engine, "SELECT c, d FROM t WHERE k = 3").await, ["103 | 1"]);
        assert_eq!(rows(&engine, "SELECT c, d FROM t WHERE k = 4").await, Vec::<String>::new());
        for key in 0..20 {
            run(&engine, &format!("UPDATE t SET c = c + 1 WHERE k = {key}")).await;
        }
        assert_eq!(rows(&engine, "SELECT c, d FROM t WHERE k = 3").await, ["104 | 1"]);
        assert_eq!(rows(&engine, "SELECT c, d FROM t WHERE k = 4").await, ["1 | null"]);
        assert_eq!(rows(&engine, "SELECT c, d FROM t WHERE k = 19").await, ["20 | 1"]);
    });
}

async fn bound(engine: Engine) {
    run(&engine, "CREATE TABLE t (k blob PRIMARY KEY, \"C0\" counter, \"C1\" counter)").await;
    // The statements of `cassandra-stress counter_write` and `counter_read`.
    let add = prepare(&engine, "UPDATE t SET \"C0\"=\"C0\"+?,\"C1\"=\"C1\"+? WHERE k=?").await.unwrap();
    assert_eq!(add.markers, ["C0 counter", "C1 counter", "k blob"]);
    let read = prepare(&engine, "SELECT * FROM t WHERE k=?").await.unwrap();
    let long = |value: i64| support::Bound::Bytes(value.to_be_bytes().to_vec());
    let key = || support::text("key");
    for (a, b) in [(long(3), long(-4)), (long(5), support::Bound::Unset)] {
        add.execute(&engine, &Options::values([a, b, key()])).await.unwrap();
    }
    let body = read.execute(&engine, &Options::values([key()])).await.unwrap();
    assert_eq!(support::Rows::parse(&body).rows, ["0x6b6579 | 8 | -4"]);
    let null =
        add.execute(&engine, &Options::values([support::Bound::Null, long(1), key()])).await.unwrap_err();
    assert_eq!(null.to_string(), "Invalid null value for counter increment");
    // A client's own timestamp is no USING TIMESTAMP.
    let stamped = Options { timestamp: Some(5), ..Options::default() };
    query(&engine, "UPDATE t SET \"C0\" = \"C0\" + 1 WHERE k = 0x00", &stamped).await.unwrap();
    for (level, expected) in
        [(0, None), (10, None), (8, Some("Counter operations are inherently non-serializable"))]
    {
        let options = Options { consistency: level, ..Options::default() };
        let found = query(&engine, "UPDATE t SET \"C0\" = \"C0\" + 1 WHERE k = 0x00", &options).await;
        assert_eq!(found.err().map(|error| error.to_string()).as_deref(), expected);
    }
}

#[test]
fn counters_take_bound_values() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, bound);
    }
}

#[test]
fn counter_batches_of_the_protocol_count() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, |engine| async move {
            run(&engine, "CREATE TABLE t (k int PRIMARY KEY, c counter)").await;
            let part = |k| (Ok("UPDATE t SET c = c + 1 WHERE k = ?"), vec![int(k)]);
            for (kind, expected) in [
                (2, Ok(())),
                (1, Ok(())),
                (0, Err("Cannot include a counter statement in a logged batch".to_owned())),
            ] {
                let body = batch_body(kind, &[part(1), part(2), part(1)], &Options::default());
                let sent = send(&engine, Opcode::Batch, &body, &mut Response::default()).await;
                assert_eq!(sent.map_err(|error| error.to_string()), expected);
            }
            assert_eq!(rows(&engine, "SELECT k, c FROM t WHERE k IN (1, 2)").await, ["1 | 4", "2 | 2"]);
        });
    }
}
