//! Conditional statements in the forms of drivers: prepared, with markers, in batches of the protocol, from
//! many clients at once.

use crate::support::{
    self, Bound, Options, Rows, batch_body, client, int, node, prepare, query, run, send, text,
};
use query::{ClientState, Engine, Response};
use reactor::{Group, mesh};
use wire::frame::Opcode;
use wire::reader::Reader;

/// One try to count up: whether it was applied.
async fn try_increment(engine: &Engine, key: i32) -> bool {
    let body = support::body(engine, &format!("SELECT v FROM t WHERE k = {key}")).await.unwrap();
    let before: i32 = Rows::parse(&body).rows[0].parse().unwrap();
    let update = format!("UPDATE t SET v = {} WHERE k = {key} IF v = {before}", before + 1);
    let body = support::body(engine, &update).await.unwrap();
    Rows::parse(&body).rows[0].starts_with("true")
}

const CLIENTS: usize = 12;
const INCREMENTS: usize = 15;
const KEYS: i32 = 4;

async fn many_count(engine: Engine) {
    let work = move |client: usize| async move {
        let engine = Engine::here().unwrap();
        let key = client as i32 % KEYS;
        let mut done = 0;
        while done < INCREMENTS {
            if try_increment(&engine, key).await {
                done += 1;
            }
        }
        // Modifications that do not depend on values in the client stay atomic too.
        let update = format!("UPDATE t SET w = w + 1 WHERE k = {key} IF EXISTS");
        support::body(&engine, &update).await.unwrap();
    };
    let mut tasks = Vec::new();
    for shard in 0..reactor::shard_count() {
        for client in 0..CLIENTS {
            let call = mesh::call(shard, Group::STATEMENT, move || work(client));
            tasks.push(reactor::spawn(Group::STATEMENT, call));
        }
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let each = CLIENTS * reactor::shard_count() / KEYS as usize;
    for key in 0..KEYS {
        let body = support::body(&engine, &format!("SELECT v, w FROM t WHERE k = {key}")).await.unwrap();
        assert_eq!(Rows::parse(&body).rows, [format!("{} | {each}", each * INCREMENTS)]);
    }
}

#[test]
fn no_conditional_increment_is_lost() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, |engine| async move {
            run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v int, w int)").await;
            for key in 0..KEYS {
                run(&engine, &format!("INSERT INTO t (k, v, w) VALUES ({key}, 0, 0)")).await;
            }
            many_count(engine).await;
        });
    }
}

async fn markers(engine: Engine) {
    run(&engine, "CREATE TYPE a (x int, y text)").await;
    run(&engine, "CREATE TABLE t (k int, c int, s int static, v int, l list<int>, m map<text, int>, u a, PRIMARY KEY (k, c))").await;
    let prepared = prepare(
        &engine,
        "UPDATE t SET v = ? WHERE k = ? AND c = ? IF v = ? AND l[?] > ? AND m[?] IN ? AND u.x IN (?, ?) AND s != ? AND m CONTAINS KEY ? AND l CONTAINS ? AND v IN ?",
    )
    .await
    .unwrap();
    assert_eq!(
        prepared.markers,
        [
            "v int",
            "k int",
            "c int",
            "v int",
            "idx(l) int",
            "value(l) int",
            "key(m) text",
            "in(value(m)) frozen<list<int>>",
            "u.x int",
            "u.x int",
            "s int",
            "key(m) text",
            "value(l) int",
            "in(v) frozen<list<int>>",
        ]
    );
    assert_eq!(prepared.partition_key, [1]);
    run(&engine, "INSERT INTO t (k, c, s, v, l, m, u) VALUES (1, 2, 3, 4, [5, 6], {'a': 7}, {x: 8, y: 'y'})")
        .await;
    let list = |values: &[i32]| {
        let mut out = (values.len() as i32).to_be_bytes().to_vec();
        for value in values {
            out.extend_from_slice(&4_i32.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
        Bound::Bytes(out)
    };
    let values = |v: i32| {
        vec![
            int(40),
            int(1),
            int(2),
            int(v),
            int(1),
            int(5),
            text("a"),
            list(&[6, 7]),
            Bound::Unset,
            int(8),
            int(9),
            text("a"),
            int(6),
            list(&[1, 4]),
        ]
    };
    let no = prepared.execute(&engine, &Options::values(values(5))).await.unwrap();
    let no = Rows::parse(&no);
    assert_eq!(no.names, ["[applied]", "v", "l", "m", "u", "s"]);
    assert_eq!(no.rows, ["false | 4 | [5, 6] | {'a': 7} | (8, 'y') | 3"]);
    // Clients keep no metadata of conditional statements: it is sent even if they skip metadata.
    let skipping = Options { skip_metadata: true, ..Options::values(values(4)) };
    let yes = Rows::parse(&prepared.execute(&engine, &skipping).await.unwrap());
    assert_eq!((yes.names, yes.rows), (vec!["[applied]".to_owned()], vec!["true".to_owned()]));
    for (at, value, expected) in [
        (3, Bound::Unset, "Invalid 'unset' value in condition"),
        (7, Bound::Null, "Invalid null list in IN condition"),
        (7, Bound::Unset, "Invalid 'unset' value in condition"),
        (4, Bound::Null, "Invalid null value for list element access"),
        (1, Bound::Null, "Invalid null value in condition for column k"),
    ] {
        let mut wrong = values(40);
        wrong[at] = value;
        let found = prepared.execute(&engine, &Options::values(wrong)).await.unwrap_err();
        assert_eq!(found.to_string(), expected);
    }
}

#[test]
fn conditions_take_markers() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, markers);
    }
}

async fn protocol_batches(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int, c int, s int static, v int, PRIMARY KEY (k, c))").await;
    let insert = prepare(&engine, "INSERT INTO t (k, c, v) VALUES (?, ?, ?) IF NOT EXISTS").await.unwrap();
    let part = |k, c, v| (Err(insert.id.clone()), vec![int(k), int(c), int(v)]);
    for (parts, expected) in [
        (
            vec![part(1, 1, 1), part(1, 2, 2), (Ok("UPDATE t SET s = 5 WHERE k = 1"), vec![])],
            Ok(vec!["true"]),
        ),
        (vec![part(1, 3, 1), part(1, 2, 3)], Ok(vec!["false | 1 | 2 | null | 2"])),
        (vec![part(1, 1, 1), part(2, 2, 3)], Err("Batch with conditions cannot span multiple partitions")),
        (
            vec![
                (Ok("DELETE FROM t WHERE k = ? AND c > ? "), vec![int(1), int(1)]),
                (Ok("UPDATE t SET s = 6 WHERE k = 1 IF s = 5"), vec![]),
            ],
            Ok(vec!["true"]),
        ),
    ] {
        let mut out = Response::default();
        let sent = send(&engine, Opcode::Batch, &batch_body(0, &parts, &Options::default()), &mut out).await;
        match expected {
            Ok(rows) => {
                sent.unwrap();
                assert_eq!(Rows::parse(&out.body).rows, rows);
            }
            Err(message) => assert_eq!(sent.unwrap_err().to_string(), message),
        }
    }
    let body = support::body(&engine, "SELECT * FROM t").await.unwrap();
    assert_eq!(Rows::parse(&body).rows, ["1 | 1 | 6 | 1"]);
}

#[test]
fn batches_of_the_protocol_may_be_conditional() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, protocol_batches);
    }
}

async fn levels(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v int)").await;
    let insert = "INSERT INTO t (k, v) VALUES (1, 1) IF NOT EXISTS";
    let with =
        |consistency, serial| Options { consistency, serial_consistency: serial, ..Options::default() };
    // Numbers as in native_protocol_v5.spec §3: ONE 1, QUORUM 4, SERIAL 8, LOCAL_SERIAL 9.
    for (options, expected) in [
        (
            with(8, None),
            "SERIAL is not supported as conditional update commit consistency. Use ANY if you mean \"make sure it is accepted but I don't care how many replicas commit it for non-SERIAL reads\"",
        ),
        (
            with(1, Some(4)),
            "Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL",
        ),
    ] {
        assert_eq!(query(&engine, insert, &options).await.unwrap_err().to_string(), expected);
    }
    for (options, expected) in [(with(0, Some(9)), "true"), (with(4, Some(8)), "false | 1 | 1")] {
        assert_eq!(Rows::parse(&query(&engine, insert, &options).await.unwrap()).rows, [expected]);
    }
    let plain = query(&engine, "INSERT INTO t (k, v) VALUES (1, 1)", &with(9, None)).await.unwrap_err();
    assert_eq!(plain.to_string(), "You must use conditional updates for serializable writes");
    for serial in [8, 9] {
        let read = query(&engine, "SELECT v FROM t WHERE k = 1", &with(serial, None)).await.unwrap();
        assert_eq!(Rows::parse(&read).rows, ["1"]);
    }
}

#[test]
fn serial_levels_are_for_conditional_writes_and_for_reads() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, levels);
    }
}

#[test]
fn prepared_conditional_statements_are_marked_for_clients_that_ask() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 1, |engine| async move {
        run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v int)").await;
        for (lwt_mark, statement, marked) in [
            (true, "UPDATE t SET v = ? WHERE k = ? IF v = ?", true),
            (true, "INSERT INTO t (k) VALUES (?) IF NOT EXISTS", true),
            (true, "BEGIN BATCH UPDATE t SET v = ? WHERE k = 1 IF EXISTS APPLY BATCH", true),
            (true, "UPDATE t SET v = ? WHERE k = ?", false),
            (false, "UPDATE t SET v = ? WHERE k = ? IF v = ?", false),
        ] {
            let client = ClientState { lwt_mark, ..client() };
            let mut out = Response::default();
            engine.prepare(&client, statement, None, &mut out).await.unwrap();
            let mut reader = Reader::new(&out.body);
            reader.int().unwrap();
            reader.short_bytes().unwrap();
            reader.short_bytes().unwrap();
            assert_eq!(reader.int().unwrap() < 0, marked, "{statement}");
        }
    });
}

#[test]
fn a_conditional_batch_deletes_ranges_before_and_rows_after_what_it_writes() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 1, |engine| async move {
        run(&engine, "CREATE TABLE t (k int, c int, v int, l list<int>, PRIMARY KEY (k, c))").await;
        run(&engine, "INSERT INTO t (k, c, v, l) VALUES (1, 1, 1, [1])").await;
        run(&engine, "INSERT INTO t (k, c, v) VALUES (1, 2, 2)").await;
        let batch = "BEGIN BATCH DELETE FROM t WHERE k = 1 AND c = 1 IF v = 1 UPDATE t SET v = 5 WHERE k = 1 AND c = 1 \
                     DELETE l FROM t WHERE k = 1 AND c = 1 UPDATE t SET l = l + [7] WHERE k = 1 AND c = 1 \
                     DELETE FROM t WHERE k = 1 AND c > 1 INSERT INTO t (k, c, v) VALUES (1, 3, 3) APPLY BATCH";
        run(&engine, batch).await;
        let rows = support::rows(&engine, "SELECT c, v, l FROM t WHERE k = 1").await;
        // Cassandra's answer: a row that is deleted and written is gone, one written into a range that is
        // deleted is not.
        assert_eq!(rows, ["3 | 3 | null"]);
    });
}

async fn like(engine: Engine) {
    run(&engine, "CREATE TYPE named (n text, x int)").await;
    run(&engine, "CREATE TABLE w (k int PRIMARY KEY, t text, a ascii, i int, m map<text, text>, u named)")
        .await;
    run(&engine, "INSERT INTO w (k, t, a, m, u) VALUES (1, 'apple', 'pear', {'x': 'plum'}, {n: 'fig'})")
        .await;
    for (condition, applied) in [
        ("t LIKE 'app%'", true),
        ("t LIKE 'pp%'", false),
        ("a LIKE '_ear' AND t LIKE '%e'", true),
        ("m['x'] LIKE 'pl%'", true),
        ("m['y'] LIKE '%'", false),
        ("u.n LIKE 'f_g'", true),
        ("t LIKE null", false),
    ] {
        let statement = format!("UPDATE w SET i = 1 WHERE k = 1 IF {condition}");
        let found = Rows::parse(&run(&engine, &statement).await).rows;
        assert!(found[0].starts_with(if applied { "true" } else { "false" }), "{condition}: {found:?}");
    }
    let refused = support::body(&engine, "UPDATE w SET i = 1 WHERE k = 1 IF i LIKE '1'").await.unwrap_err();
    let message = "LIKE is allowed only on string types, which i is not: it is of type int";
    assert_eq!(refused.to_string(), message);
}

#[test]
fn like_is_a_condition_on_texts() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 1, like);
}

async fn serial_reads(engine: Engine) {
    run(&engine, "CREATE TABLE r (k int PRIMARY KEY, v int)").await;
    run(&engine, "INSERT INTO r (k, v) VALUES (1, 2) IF NOT EXISTS").await;
    let read = |statement: &'static str, page_size| {
        let engine = engine.clone();
        async move {
            let mut out = Response::default();
            let consistency = wire::consistency::Consistency::Serial;
            let parameters =
                wire::request::QueryParameters { consistency, page_size, ..support::parameters() };
            let read = engine.query(&client(), statement, &parameters, &mut out).await;
            read.map(|()| Rows::parse(&out.body).rows.len()).map_err(|error| error.to_string())
        }
    };
    assert_eq!(read("SELECT * FROM r WHERE k = 1", None).await, Ok(1));
    assert_eq!(read("SELECT * FROM r", None).await, Ok(1));
    let refused = "SERIAL/LOCAL_SERIAL consistency may only be requested for one partition at a time";
    assert_eq!(read("SELECT * FROM r WHERE k IN (1, 2)", None).await, Err(refused.to_owned()));
    assert_eq!(read("SELECT * FROM r WHERE k IN (1, 1)", None).await, Ok(1));
    assert_eq!(read("SELECT * FROM r WHERE k IN (1, 2) LIMIT 5", Some(10)).await, Err(refused.to_owned()));
    // In pages Cassandra reads one partition after the other.
    assert_eq!(read("SELECT * FROM r WHERE k IN (1, 2)", Some(10)).await, Ok(1));
}

#[test]
fn serial_reads_are_of_one_partition() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 2, serial_reads);
}
