//! Prepared statements: their metadata, values by position and by name, null and unset, batches, and the
//! errors for wrong values and for statements that are not prepared any more.

use crate::support::{
    self, Bound, Options, Rows, batch_body, int, node, prepare, query, rows, run, send, text,
};
use query::{ClientState, Engine, QueryError, Response};
use wire::frame::Opcode;

async fn metadata(engine: Engine) {
    run(
        &engine,
        "CREATE TABLE t (a int, b text, c int, d bigint, v text, l list<int>, PRIMARY KEY ((a, b), c, d))",
    )
    .await;
    for (statement, markers, key) in [
        ("SELECT * FROM t WHERE b = ? AND a = ?", vec!["b text", "a int"], vec![1, 0]),
        ("SELECT * FROM t WHERE a = ? AND b = 'x' AND c > ?", vec!["a int", "c int"], vec![]),
        ("SELECT * FROM t WHERE a = ? AND b IN ?", vec!["a int", "in(b) frozen<list<text>>"], vec![]),
        (
            "SELECT * FROM t WHERE token(a, b) > ? LIMIT ?",
            vec!["partition key token bigint", "[limit] int"],
            vec![],
        ),
        (
            "SELECT * FROM t WHERE a = 1 AND b = 'x' AND (c, d) > ? PER PARTITION LIMIT ?",
            vec!["(c,d) frozen<tuple<int, bigint>>", "[per_partition_limit] int"],
            vec![],
        ),
        (
            "INSERT INTO t (a, b, c, d, v) VALUES (?, :key, ?, ?, :v) USING TTL ? AND TIMESTAMP ?",
            vec!["a int", "key text", "c int", "d bigint", "v text", "[ttl] int", "[timestamp] bigint"],
            vec![0, 1],
        ),
        (
            "UPDATE t SET l = l + ?, v = ? WHERE a = ? AND b = ? AND c = ? AND d = ?",
            vec!["l frozen<list<int>>", "v text", "a int", "b text", "c int", "d bigint"],
            vec![2, 3],
        ),
        ("DELETE l[?] FROM t WHERE a = 1 AND b = 'x' AND c = 1 AND d = 1", vec!["idx(l) int"], vec![]),
        ("SELECT cast(v as ascii) FROM t", vec![], vec![]),
        (
            "BEGIN BATCH UPDATE t USING TIMESTAMP ? SET v = ? WHERE a = ? AND b = ? AND c = 1 AND d = 1 APPLY BATCH",
            vec!["[timestamp] bigint", "v text", "a int", "b text"],
            vec![2, 3],
        ),
        // A marker of the batch itself is of no table, so the markers are not of one.
        (
            "BEGIN BATCH USING TIMESTAMP ? UPDATE t SET v = ? WHERE a = ? AND b = ? AND c = 1 AND d = 1 APPLY BATCH",
            vec!["[timestamp] bigint", "v text", "a int", "b text"],
            vec![],
        ),
    ] {
        match prepare(&engine, statement).await {
            Ok(prepared) => {
                assert_eq!(prepared.markers, markers, "{statement}");
                assert_eq!(prepared.partition_key, key, "{statement}");
            }
            Err(error) => assert_eq!(statement, "SELECT cast(v as ascii) FROM t", "{error}"),
        }
    }
}

/// The id that a text gets on a connection that uses `keyspace`.
async fn id_with(engine: &Engine, keyspace: Option<&str>, text: &str) -> Vec<u8> {
    let client = ClientState { keyspace: keyspace.map(Into::into), ..support::client() };
    let mut out = Response::default();
    engine.prepare(&client, text, None, &mut out).await.unwrap();
    // The kind of result, then the id with its length.
    out.body[6..22].to_vec()
}

async fn ids(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v int)").await;
    run(
        &engine,
        "CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    )
    .await;
    run(&engine, "CREATE TABLE other.t (k int PRIMARY KEY, v int)").await;
    for statement in [
        "SELECT * FROM ks.t WHERE k = ?",
        "INSERT INTO ks.t (k, v) VALUES (?, ?)",
        "UPDATE ks.t SET v = ? WHERE k = ?",
        "DELETE FROM ks.t WHERE k = ?",
        "BEGIN BATCH INSERT INTO ks.t (k, v) VALUES (?, 1) DELETE FROM other.t WHERE k = ? APPLY BATCH",
        "TRUNCATE ks.t",
    ] {
        // The id is the same whichever keyspace comes first.
        let first = id_with(&engine, Some("ks"), statement).await;
        assert_eq!(id_with(&engine, None, statement).await, first, "{statement}");
        assert_eq!(id_with(&engine, Some("other"), statement).await, first, "{statement}");
    }
    for statement in [
        "SELECT * FROM t WHERE k = ?",
        "UPDATE t SET v = ? WHERE k = ?",
        "BEGIN BATCH INSERT INTO ks.t (k, v) VALUES (?, 1) DELETE FROM t WHERE k = ? APPLY BATCH",
    ] {
        let first = id_with(&engine, Some("ks"), statement).await;
        assert_ne!(id_with(&engine, Some("other"), statement).await, first, "{statement}");
        assert_eq!(id_with(&engine, Some("ks"), statement).await, first, "{statement}");
    }
}

#[test]
fn a_statement_that_names_its_keyspaces_has_one_id_whatever_the_connection_uses() {
    node(tempfile::tempdir().unwrap().path(), 2, ids);
}

#[test]
fn markers_say_what_they_are_for() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 1, metadata);
}

async fn values(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int, c int, v text, w int, PRIMARY KEY (k, c))").await;
    let insert = prepare(&engine, "INSERT INTO t (k, c, v, w) VALUES (?, ?, ?, ?)").await.unwrap();
    for k in 0..20 {
        let values = [int(k), int(1), text("v"), int(k * 2)];
        insert.execute(&engine, &Options::values(values)).await.unwrap();
    }
    let select = prepare(&engine, "SELECT v, w FROM t WHERE k = ? AND c = ?").await.unwrap();
    for k in 0..20 {
        let body = select.execute(&engine, &Options::values([int(k), int(1)])).await.unwrap();
        let found = Rows::parse(&body);
        assert_eq!(
            (found.rows, found.names),
            (vec![format!("'v' | {}", k * 2)], vec!["v".into(), "w".into()])
        );
    }
    // Unset changes nothing, null deletes.
    insert.execute(&engine, &Options::values([int(1), int(1), Bound::Unset, Bound::Null])).await.unwrap();
    assert_eq!(rows(&engine, "SELECT v, w FROM t WHERE k = 1").await, ["'v' | null"]);
    // By name, one name for two markers.
    let named =
        prepare(&engine, "SELECT k FROM t WHERE k = :n AND c = :c AND w = :n ALLOW FILTERING").await.unwrap();
    let by_name = Options {
        values: vec![(Some("c"), int(1)), (Some("n"), int(0)), (Some("more"), int(9))],
        ..Options::default()
    };
    let found = Rows::parse(&named.execute(&engine, &by_name).await.unwrap());
    assert_eq!(found.rows, ["0"]);
    // IN by one marker.
    let several = prepare(&engine, "SELECT k FROM t WHERE k IN ? AND c IN ?").await.unwrap();
    let list = |items: &[i32]| {
        let mut out = (items.len() as i32).to_be_bytes().to_vec();
        for item in items {
            out.extend_from_slice(&4_i32.to_be_bytes());
            out.extend_from_slice(&item.to_be_bytes());
        }
        Bound::Bytes(out)
    };
    let options = Options::values([list(&[3, 1, 3, 99]), list(&[1])]);
    assert_eq!(Rows::parse(&several.execute(&engine, &options).await.unwrap()).rows, ["1", "3"]);
    // The default timestamp and the client's now.
    let old = Options { timestamp: Some(5), ..Options::values([int(50), int(1), text("old"), int(1)]) };
    insert.execute(&engine, &old).await.unwrap();
    assert_eq!(rows(&engine, "SELECT writetime(v) FROM t WHERE k = 50").await, ["5"]);
    let later = Options { now: Some(2_000_000_000), ..Options::default() };
    let expiring = Options { now: Some(1_999_999_990), ..Options::default() };
    query(&engine, "INSERT INTO t (k, c, v) VALUES (51, 1, 'soon') USING TTL 15", &expiring).await.unwrap();
    let left = query(&engine, "SELECT ttl(v) FROM t WHERE k = 51", &later).await.unwrap();
    assert_eq!(Rows::parse(&left).rows, ["5"]);
    let gone = Options { now: Some(2_000_000_005), ..Options::default() };
    let left = query(&engine, "SELECT * FROM t WHERE k = 51", &gone).await.unwrap();
    assert!(Rows::parse(&left).rows.is_empty());
}

#[test]
fn values_are_bound_by_position_and_by_name() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, values);
    }
}

async fn mistakes(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int, c int, v text, m map<int, int>, u uuid, PRIMARY KEY (k, c))").await;
    let bytes = |bytes: &[u8]| Bound::Bytes(bytes.to_vec());
    let select = "SELECT * FROM t WHERE k = ? AND c = ?";
    let insert = "INSERT INTO t (k, c, v) VALUES (?, ?, ?)";
    for (statement, values, expected) in [
        (select, vec![int(1)], "there were 2 markers(?) in CQL but 1 bound variables"),
        (select, vec![int(1), int(1), int(1)], "there were 2 markers(?) in CQL but 3 bound variables"),
        (select, vec![bytes(&[0; 5]), int(1)], "Expected 4 or 0 byte int (5) for \"k\""),
        (select, vec![int(1), bytes(&[1])], "Expected 4 or 0 byte int (1) for \"c\""),
        (select, vec![bytes(&[]), int(1)], "Key may not be empty"),
        (select, vec![Bound::Null, int(1)], "Invalid null value in condition for column k"),
        (select, vec![Bound::Unset, int(1)], "Invalid unset value for column k"),
        (select, vec![int(1), Bound::Null], "Invalid null value in condition for column c"),
        (select, vec![int(1), Bound::Unset], "Invalid unset value for column c"),
        ("SELECT * FROM t WHERE k IN ?", vec![Bound::Null], "Invalid null value for column k"),
        ("SELECT * FROM t WHERE k IN ?", vec![bytes(&[0, 0, 0, 9])], "Not enough bytes to read a list"),
        ("SELECT * FROM t LIMIT ?", vec![int(0)], "LIMIT must be strictly positive"),
        ("SELECT * FROM t LIMIT ?", vec![Bound::Null], "Invalid null value of limit"),
        ("SELECT * FROM t WHERE token(k) > ?", vec![Bound::Null], "Invalid null token value"),
        (insert, vec![int(1), int(1), bytes(&[0xff])], "String didn't validate. for \"v\""),
        (insert, vec![Bound::Unset, int(1), text("x")], "Invalid unset value for column k"),
        (
            "INSERT INTO t (k, c, u) VALUES (1, 1, ?)",
            vec![bytes(&[1])],
            "UUID should be 16 or 0 bytes (1) for \"u\"",
        ),
        ("UPDATE t SET m[?] = 1 WHERE k = 1 AND c = 1", vec![Bound::Null], "Invalid null map key"),
        ("UPDATE t SET m[?] = 1 WHERE k = 1 AND c = 1", vec![Bound::Unset], "Invalid unset map key"),
        (
            "INSERT INTO t (k, c) VALUES (1, 1) USING TTL ?",
            vec![int(-1)],
            "A TTL must be greater or equal to 0, but was -1",
        ),
        (
            "INSERT INTO t (k, c) VALUES (1, 1) USING TIMESTAMP ?",
            vec![Bound::Null],
            "Invalid null value of timestamp",
        ),
    ] {
        let prepared = prepare(&engine, statement).await.unwrap();
        let found = prepared.execute(&engine, &Options::values(values.clone())).await;
        assert_eq!(found.map_err(|e| e.to_string()), Err(expected.to_owned()), "{statement} with {values:?}");
    }
    let unprepared = query(&engine, select, &Options::values([int(1)])).await.unwrap_err();
    assert_eq!(unprepared.to_string(), "Invalid amount of bind variables");
    for (level, statement, expected) in [
        (5, "SELECT * FROM t", Ok(())),
        (2, "SELECT * FROM t", Err("Cannot achieve consistency level TWO")),
        (2, "INSERT INTO t (k, c) VALUES (1, 1)", Err("Cannot achieve consistency level TWO")),
        (
            8,
            "INSERT INTO t (k, c) VALUES (1, 1)",
            Err("You must use conditional updates for serializable writes"),
        ),
    ] {
        let options = Options { consistency: level, ..Options::default() };
        let found = query(&engine, statement, &options).await.map(drop).map_err(|e| e.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{statement} at {level}");
    }
}

#[test]
fn wrong_values_are_answered_in_cassandras_words() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 1, mistakes);
}

async fn batches(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int, c int, v text, s text static, PRIMARY KEY (k, c))").await;
    let insert = prepare(&engine, "INSERT INTO t (k, c, v) VALUES (?, ?, ?)").await.unwrap();
    for kind in [0, 1] {
        let parts = [
            (Err(insert.id.clone()), vec![int(1), int(1), text("one")]),
            (Ok("INSERT INTO t (k, c, v) VALUES (?, 2, 'two')"), vec![int(1)]),
            (Ok("INSERT INTO t (k, s) VALUES (1, 'static')"), vec![]),
            (Ok("UPDATE t SET s = 'other' WHERE k = 2"), vec![]),
            (Err(insert.id.clone()), vec![int(2), int(1), text("three")]),
            (Ok("DELETE FROM t WHERE k = 1 AND c = 7"), vec![]),
        ];
        let mut out = Response::default();
        let body = batch_body(kind, &parts, &Options { timestamp: Some(10), ..Options::default() });
        send(&engine, Opcode::Batch, &body, &mut out).await.unwrap();
        assert_eq!(out.body, [0, 0, 0, 1]);
        assert_eq!(
            rows(&engine, "SELECT k, c, s, v FROM t WHERE k IN (1, 2)").await,
            ["1 | 1 | 'static' | 'one'", "1 | 2 | 'static' | 'two'", "2 | 1 | 'other' | 'three'"]
        );
        assert_eq!(rows(&engine, "SELECT writetime(v) FROM t WHERE k = 1 AND c = 1").await, ["10"]);
    }
    let select = prepare(&engine, "SELECT * FROM t").await.unwrap();
    for (kind, part, expected) in [
        (
            0,
            (Err(select.id), vec![]),
            "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.",
        ),
        (
            0,
            (Ok("SELECT * FROM t"), vec![]),
            "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.",
        ),
        (0, (Err(insert.id), vec![int(1)]), "There were 3 markers(?) in CQL but 1 bound variables"),
        (
            2,
            (Ok("INSERT INTO t (k, c) VALUES (1, 1)"), vec![]),
            "Cannot include non-counter statement in a counter batch",
        ),
    ] {
        let mut out = Response::default();
        let body = batch_body(kind, &[part], &Options::default());
        let found = send(&engine, Opcode::Batch, &body, &mut out).await.unwrap_err();
        assert_eq!(found.to_string(), expected);
    }
}

#[test]
fn batches_mix_texts_and_prepared_statements() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, batches);
    }
}

async fn changes(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v int)").await;
    run(&engine, "INSERT INTO t (k, v) VALUES (1, 2)").await;
    let all = prepare(&engine, "SELECT * FROM t WHERE k = ?").await.unwrap();
    let skip = Options { skip_metadata: true, ..Options::values([int(1)]) };
    let found = Rows::parse(&all.execute(&engine, &skip).await.unwrap());
    assert_eq!((found.names.len(), found.rows), (0, vec!["0x00000001 | 0x00000002".to_owned()]));

    // On every shard the statement is known.
    let id = all.id.clone();
    for shard in 0..reactor::shard_count() {
        let id = id.clone();
        let known = reactor::mesh::call(shard, reactor::Group::ADMIN, move || async move {
            Engine::here().unwrap().prepared().get(&id).is_some()
        });
        assert!(known.await.unwrap(), "shard {shard}");
    }

    run(&engine, "ALTER KEYSPACE ks WITH durable_writes = false").await;
    all.execute(&engine, &skip).await.expect("the options of a keyspace are no part of a statement");
    run(&engine, "ALTER TABLE t ADD w int").await;
    let forgotten = all.execute(&engine, &skip).await.unwrap_err();
    assert!(matches!(&forgotten, QueryError::Unprepared { id } if *id == all.id), "{forgotten}");
    let again = prepare(&engine, "SELECT * FROM t WHERE k = ?").await.unwrap();
    assert_eq!(again.id, all.id, "the same text has the same id");
    assert_ne!(again.metadata_id, all.metadata_id);
    // A client with the old metadata gets the new one, although it skips metadata.
    let stale = support::Prepared { metadata_id: all.metadata_id.clone(), ..again };
    let found = Rows::parse(&stale.execute(&engine, &skip).await.unwrap());
    assert_eq!(found.names, ["k", "v", "w"]);
    assert_eq!(found.rows, ["1 | 2 | null"]);
    assert_ne!(found.new_metadata_id, Some(all.metadata_id));
    assert!(found.new_metadata_id.is_some());
}

#[test]
fn a_changed_table_changes_the_metadata() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, changes);
    }
}

/// Unset values and nulls: those that Cassandra 5.0.6 accepts and those that it refuses.
async fn left_out(engine: Engine) {
    run(&engine, "CREATE TYPE a (x int, y text)").await;
    run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v int, l list<int>, s set<int>, m map<text, int>, u a)")
        .await;
    run(&engine, "INSERT INTO t (k, v, l, s, m, u) VALUES (1, 1, [1, 2], {1}, {'a': 1}, {x: 1, y: 'y'})")
        .await;
    let before = "1 | [1, 2] | {1} | {'a': 1} | (1, 'y')";
    for (statement, value, expected) in [
        ("UPDATE t SET v = ? WHERE k = 1", Bound::Unset, Ok(before)),
        ("UPDATE t SET l = ? WHERE k = 1", Bound::Unset, Ok(before)),
        ("UPDATE t SET l = l - ? WHERE k = 1", Bound::Unset, Ok(before)),
        ("UPDATE t SET l = ? + l WHERE k = 1", Bound::Unset, Ok(before)),
        ("UPDATE t SET l[?] = 5 WHERE k = 1", Bound::Unset, Err("Invalid unset value for list index")),
        ("UPDATE t SET l[0] = ? WHERE k = 1", Bound::Unset, Ok(before)),
        ("UPDATE t SET s = s + ? WHERE k = 1", Bound::Unset, Ok(before)),
        ("UPDATE t SET s = s - ? WHERE k = 1", Bound::Unset, Ok(before)),
        ("UPDATE t SET m = m + ? WHERE k = 1", Bound::Unset, Ok(before)),
        ("UPDATE t SET m[?] = 5 WHERE k = 1", Bound::Unset, Err("Invalid unset map key")),
        ("UPDATE t SET m['a'] = ? WHERE k = 1", Bound::Unset, Ok(before)),
        ("UPDATE t SET m = m - ? WHERE k = 1", Bound::Unset, Ok(before)),
        ("UPDATE t SET u = ? WHERE k = 1", Bound::Unset, Ok(before)),
        ("UPDATE t SET u.x = ? WHERE k = 1", Bound::Unset, Ok(before)),
        ("UPDATE t SET l = l + ? WHERE k = 1", Bound::Null, Ok(before)),
        ("UPDATE t SET s = s - ? WHERE k = 1", Bound::Null, Ok(before)),
        ("UPDATE t SET m = m + ? WHERE k = 1", Bound::Null, Ok(before)),
        ("DELETE l[?] FROM t WHERE k = 1", Bound::Unset, Ok(before)),
        ("DELETE s[?] FROM t WHERE k = 1", Bound::Unset, Ok(before)),
        ("DELETE m[?] FROM t WHERE k = 1", Bound::Unset, Err("Invalid unset map key")),
        (
            "UPDATE t USING TIMESTAMP ? SET v = 8 WHERE k = 1",
            Bound::Null,
            Err("Invalid null value of timestamp"),
        ),
        (
            "UPDATE t USING TTL ? SET v = 8 WHERE k = 1",
            int(-1),
            Err("A TTL must be greater or equal to 0, but was -1"),
        ),
        ("INSERT INTO t JSON ?", Bound::Null, Err("Got null for INSERT JSON values")),
        (
            "INSERT INTO t JSON ? DEFAULT UNSET",
            text("{\"k\": 1, \"v\": 7}"),
            Ok("7 | [1, 2] | {1} | {'a': 1} | (1, 'y')"),
        ),
        (
            "UPDATE t SET u = {x: ?, y: 'z'} WHERE k = 1",
            Bound::Unset,
            Ok("7 | [1, 2] | {1} | {'a': 1} | (null, 'z')"),
        ),
        ("UPDATE t SET l[0] = ? WHERE k = 1", Bound::Null, Ok("7 | [2] | {1} | {'a': 1} | (null, 'z')")),
    ] {
        let prepared = prepare(&engine, statement).await.unwrap();
        let done = prepared.execute(&engine, &Options::values([value])).await;
        match expected {
            Ok(row) => {
                done.unwrap();
                assert_eq!(
                    rows(&engine, "SELECT v, l, s, m, u FROM t WHERE k = 1").await,
                    [row],
                    "{statement}"
                );
            }
            Err(message) => assert_eq!(done.unwrap_err().to_string(), message, "{statement}"),
        }
    }
    let json = prepare(&engine, "INSERT INTO t JSON :j USING TTL :t AND TIMESTAMP ?").await.unwrap();
    assert_eq!(json.markers, ["j text", "t int", "[timestamp] bigint"]);
    assert!(json.partition_key.is_empty());
}

#[test]
fn values_may_be_left_out_where_cassandra_lets_them() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, left_out);
    }
}

/// As ScyllaDB documents it: markers of one name are one marker, and the list of IN is named in capitals.
async fn one_marker_for_a_name(engine: Engine) {
    run(&engine, "CREATE TABLE t (a int, b int, c int, v int, w text, PRIMARY KEY ((a, b), c))").await;
    for (statement, markers, key) in [
        ("INSERT INTO t (a, b, c, v) VALUES (:x, :x, :y, :x)", vec!["x int", "y int"], vec![0, 0]),
        ("SELECT * FROM t WHERE a = ? AND b = ? AND c = :c", vec!["a int", "b int", "c int"], vec![0, 1]),
        ("SELECT * FROM t WHERE b = :k AND a = 1 AND c = :k", vec!["k int"], vec![]),
        ("SELECT * FROM t WHERE a IN ? AND b = 1", vec!["IN(a) frozen<list<int>>"], vec![]),
        (
            "SELECT * FROM t WHERE a = 1 AND b = 1 AND (c) IN ? LIMIT :n PER PARTITION LIMIT :n",
            vec![],
            vec![],
        ),
        ("SELECT * FROM t WHERE v NOT IN ? ALLOW FILTERING", vec!["NOT IN(v) frozen<list<int>>"], vec![]),
        (
            "UPDATE t SET v = 1 WHERE a = 1 AND b = 1 AND c = 1 IF v IN ?",
            vec!["IN(v) frozen<list<int>>"],
            vec![],
        ),
    ] {
        match prepare(&engine, statement).await {
            Ok(prepared) => {
                assert_eq!(prepared.markers, markers, "{statement}");
                assert_eq!(prepared.partition_key, key, "{statement}");
            }
            Err(error) => assert!(statement.contains("LIMIT"), "{statement}: {error}"),
        }
    }
    let error = prepare(&engine, "INSERT INTO t (a, b, c, w) VALUES (:x, 1, 1, :x)").await.unwrap_err();
    assert_eq!(error.to_string(), "Bind variable :x is used with two types, text and int");
    let insert = prepare(&engine, "INSERT INTO t (a, b, c, v) VALUES (:x, :x, :y, :x)").await.unwrap();
    insert.execute(&engine, &Options::values([int(4), int(5)])).await.unwrap();
    let named = Options { values: vec![(Some("y"), int(8)), (Some("x"), int(7))], ..Options::default() };
    insert.execute(&engine, &named).await.unwrap();
    assert_eq!(rows(&engine, "SELECT a, b, c, v FROM t WHERE a = 4 AND b = 4").await, ["4 | 4 | 5 | 4"]);
    assert_eq!(rows(&engine, "SELECT a, b, c, v FROM t WHERE a = 7 AND b = 7").await, ["7 | 7 | 8 | 7"]);
    // An expression that parses as a tuple first and turns out to be a type counts its markers once.
    let cast = prepare(&engine, "SELECT (int):x AS n FROM t WHERE a = 1 AND b = :x").await.unwrap();
    assert_eq!(cast.markers, ["x int"]);
    let batch = "BEGIN BATCH INSERT INTO t (a, b, c, v) VALUES (:p, 2, 3, :n); \
                 UPDATE t SET v = :n WHERE a = :p AND b = 2 AND c = 4 APPLY BATCH";
    let batch = prepare(&engine, batch).await.unwrap();
    assert_eq!(batch.markers, ["p int", "n int"]);
    batch.execute(&engine, &Options::values([int(1), int(9)])).await.unwrap();
    assert_eq!(rows(&engine, "SELECT c, v FROM t WHERE a = 1 AND b = 2").await, ["3 | 9", "4 | 9"]);
}

#[test]
fn markers_of_one_name_may_be_one() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let adjust = |config: &mut query::EngineConfig| {
            config.markers = query::MarkerOptions { same_names: cql::SameNames::One, uppercase_in: true };
        };
        support::node_with(folder.path(), shards, adjust, one_marker_for_a_name);
    }
}
