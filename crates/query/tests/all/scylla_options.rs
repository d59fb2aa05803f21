//! Table options documented by ScyllaDB: the refused ones, the stored and shown ones, and their effects.

use crate::support::{Options, Rows, body, node, query, rows, run};
use query::{Engine, QueryError};
use reactor::{Group, mesh};

async fn table_text(engine: &Engine, table: &str) -> String {
    rows(engine, &format!("DESCRIBE TABLE {table}")).await.concat()
}

async fn refused(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int PRIMARY KEY)").await;
    for (options, expected) in [
        (
            "per_partition_rate_limit = 5",
            "Invalid value for property 'per_partition_rate_limit'. It should be a map.",
        ),
        (
            "per_partition_rate_limit = {'max_reads': 5}",
            "Unknown entry 'max_reads' of per_partition_rate_limit: there are only max_reads_per_second, \
             max_writes_per_second",
        ),
        (
            "per_partition_rate_limit = {'max_reads_per_second': -1}",
            "max_reads_per_second of per_partition_rate_limit must be a whole number from 0 to 2147483647 (got -1)",
        ),
        ("paxos_grace_seconds = -1", "paxos_grace_seconds must be greater than or equal to 0 (got -1)"),
        (
            "tombstone_gc = {'mode': 'never'}",
            "Invalid mode 'never' of tombstone_gc: only 'timeout', 'repair', 'disabled' and 'immediate' are allowed",
        ),
        (
            "tombstone_gc = {'mode': 'repair', 'propagation_delay_in_seconds': 'x'}",
            "propagation_delay_in_seconds of tombstone_gc must be a whole number from 0 to 2147483647 (got x)",
        ),
        (
            "tablets = {'min_per_shard_tablet_count': 'NaN'}",
            "min_per_shard_tablet_count of tablets must be a number of 0 or more (got NaN)",
        ),
        ("large_data_guardrails_enabled = true", "Guardrails of large data are not supported yet"),
        (
            "scylla_encryption_options = {'cipher_algorithm': 'AES/ECB/PKCS5Padding'}",
            "Table files that are encrypted are not supported yet",
        ),
        (
            "tablets = {'min_tablet_count': 64}",
            "More tablets for a table that is there are not supported yet",
        ),
    ] {
        let statement = format!("ALTER TABLE t WITH {options}");
        let error = body(&engine, &statement).await.expect_err(&statement);
        assert_eq!(error.to_string(), expected, "{statement}");
    }
    for (statement, expected) in [
        (
            "DELETE FROM t WHERE k = 1 IF EXISTS BYPASS LARGE_DATA_GUARDRAILS",
            "Guardrails of large data are not supported yet",
        ),
        (
            "ALTER KEYSPACE ks WITH storage = {'type': 'S3', 'bucket': 'b', 'endpoint': 'e'}",
            "Table files in an object store are not supported yet",
        ),
        (
            "ALTER KEYSPACE ks WITH consistency = 'local'",
            "Keyspaces with a consistency other than 'eventual' are not supported yet",
        ),
        (
            "ALTER KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': ['a', 'b']}",
            "Lists as values of 'replication' are not supported yet: give 'dc1' a number of replicas",
        ),
    ] {
        let error = body(&engine, statement).await.expect_err(statement);
        assert!(matches!(error, QueryError::Invalid(_)), "{error:?}");
        assert_eq!(error.to_string(), expected, "{statement}");
    }
    run(&engine, "ALTER KEYSPACE ks WITH storage = {'type': 'LOCAL'} AND consistency = 'eventual'").await;
    run(&engine, "ALTER TABLE t WITH large_data_guardrails_enabled = false").await;
    const KEYSPACE: &str = "ALTER KEYSPACE ks WITH tablets =";
    for (options, expected) in [
        ("{'enabled': 'perhaps'}", "enabled of tablets must be true or false (got perhaps)"),
        ("{'initial': -3}", "initial of tablets must be a whole number from 0 to 2147483647 (got -3)"),
        ("{'first': 3}", "Unknown entry 'first' of tablets: there are only enabled, initial"),
    ] {
        let error = body(&engine, &format!("{KEYSPACE} {options}")).await.expect_err(options);
        assert!(matches!(error, QueryError::Config(_)), "{error:?}");
        assert_eq!(error.to_string(), expected);
    }
}

async fn keyspace_text(engine: &Engine) -> String {
    rows(engine, "DESCRIBE ONLY KEYSPACE other").await.concat()
}

async fn tablets_of_a_keyspace(engine: Engine) -> String {
    let tablets = |table: &str| engine.storage().schema().table("other", table).unwrap().tablets().count();
    const REPLICATION: &str = "replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    run(&engine, &format!("CREATE KEYSPACE other WITH {REPLICATION} AND tablets = {{'initial': 6}}")).await;
    run(&engine, "CREATE TABLE other.a (k int PRIMARY KEY)").await;
    assert!(keyspace_text(&engine).await.contains("AND durable_writes = true AND tablets = {'initial': 6};"));
    // Options that a statement does not name stay.
    run(&engine, "ALTER KEYSPACE other WITH durable_writes = false").await;
    run(&engine, "CREATE TABLE other.b (k int PRIMARY KEY) WITH tablets = {'min_tablet_count': 12}").await;
    run(&engine, "CREATE TABLE other.c LIKE other.a").await;
    assert_eq!((tablets("a"), tablets("b"), tablets("c")), (8, 16, 8));
    run(&engine, "ALTER KEYSPACE other WITH tablets = {}").await;
    assert!(keyspace_text(&engine).await.contains("AND durable_writes = false;"));
    run(&engine, "CREATE TABLE other.d (k int PRIMARY KEY)").await;
    assert_eq!((tablets("a"), tablets("d")), (8, 2));
    run(&engine, "ALTER KEYSPACE other WITH tablets = {'enabled': false, 'initial': 3}").await;
    keyspace_text(&engine).await
}

#[test]
fn tablets_of_a_keyspace_are_kept_and_are_what_tables_start_with() {
    let folder = tempfile::tempdir().unwrap();
    let text = node(folder.path(), 2, tablets_of_a_keyspace);
    assert!(text.contains("AND tablets = {'enabled': false, 'initial': 3};"), "{text}");
    assert_eq!(node(folder.path(), 2, |engine| async move { keyspace_text(&engine).await }), text);
}

#[test]
fn wrong_options_are_told() {
    node(tempfile::tempdir().unwrap().path(), 1, refused);
}

const ALL: &str = "paxos_grace_seconds = 1234
    AND per_partition_rate_limit = {'max_reads_per_second': '5', 'max_writes_per_second': '0'}
    AND tablets = {'min_tablet_count': '7'}
    AND tombstone_gc = {'mode': 'repair', 'propagation_delay_in_seconds': '60'};";

async fn make_and_describe(engine: Engine) -> String {
    run(&engine, &format!("CREATE TABLE t (k int PRIMARY KEY, v int) WITH {ALL}")).await;
    assert_eq!(engine.storage().schema().table("ks", "t").unwrap().tablets().count(), 8);
    run(&engine, "CREATE TABLE plain (k int PRIMARY KEY, v int)").await;
    run(&engine, "ALTER TABLE plain WITH tombstone_gc = {'mode': 'TIMEOUT'}").await;
    assert!(table_text(&engine, "plain").await.contains("AND tombstone_gc = {'mode': 'timeout'};"));
    run(&engine, "ALTER TABLE plain WITH tombstone_gc = {} AND per_partition_rate_limit = {}").await;
    let plain = table_text(&engine, "plain").await;
    assert!(!plain.contains("tombstone_gc") && !plain.contains("rate_limit"), "{plain}");
    described(engine).await
}

async fn described(engine: Engine) -> String {
    let extensions = rows(
        &engine,
        "SELECT extensions FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 't'",
    );
    let extensions = extensions.await.concat();
    for name in ["paxos_grace_seconds", "per_partition_rate_limit", "tablets", "tombstone_gc"] {
        assert!(extensions.contains(name), "{extensions}");
    }
    table_text(&engine, "t").await
}

#[test]
fn options_are_shown_and_outlive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let before = node(folder.path(), 2, make_and_describe);
    assert!(before.contains(ALL) && before.contains("extensions = {}"), "{before}");
    assert_eq!(node(folder.path(), 1, described), before);
}

/// The error of a statement that is limited to nothing: the first of a second may still be let in.
async fn limited_to_nothing(engine: &Engine, statement: &str) -> QueryError {
    for _ in 0..TRIES_MAX {
        if let Err(error) = body(engine, statement).await {
            return error;
        }
    }
    panic!("{statement} is not limited");
}

const TRIES_MAX: usize = 1000;

/// On which shard the keys 0 to 9 are makes no difference.
async fn limited(engine: Engine) {
    const LIMIT: &str = "per_partition_rate_limit = {'max_writes_per_second': 0}";
    run(&engine, &format!("CREATE TABLE t (k int PRIMARY KEY, v int) WITH {LIMIT}")).await;
    for key in 0..10 {
        let insert = format!("INSERT INTO t (k, v) VALUES ({key}, 1)");
        let error = limited_to_nothing(&engine, &insert).await;
        assert!(matches!(error, QueryError::RateLimited { is_write: true, .. }), "{error:?}");
        rows(&engine, &format!("SELECT * FROM t WHERE k = {key}")).await;
    }
    run(&engine, "ALTER TABLE t WITH per_partition_rate_limit = {'max_reads_per_second': 0}").await;
    for key in 0..10 {
        run(&engine, &format!("INSERT INTO t (k, v) VALUES ({key}, 1)")).await;
        let error = limited_to_nothing(&engine, &format!("SELECT * FROM t WHERE k = {key}")).await;
        assert!(matches!(error, QueryError::RateLimited { is_write: false, .. }), "{error:?}");
    }
    // Reads other than point reads are not limited, nor is any read once the option is removed.
    assert_eq!(rows(&engine, "SELECT k FROM t").await.len(), 10);
    run(&engine, "ALTER TABLE t WITH per_partition_rate_limit = {}").await;
    for _ in 0..100 {
        assert_eq!(rows(&engine, "SELECT k FROM t WHERE k = 1").await.len(), 1);
    }
}

#[test]
fn rates_of_partitions_are_limited() {
    for shards in [1, 2] {
        node(tempfile::tempdir().unwrap().path(), shards, limited);
    }
}

async fn purged(engine: Engine) {
    // Without automatic compactions, so that only the requested one purges.
    const TABLE: &str = "(k int PRIMARY KEY, v int) WITH compaction = \
        {'class': 'SizeTieredCompactionStrategy', 'enabled': 'false'} AND gc_grace_seconds = ";
    run(
        &engine,
        "CREATE KEYSPACE three WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
    )
    .await;
    for (keyspace, name, grace, mode, stays) in [
        ("ks", "a", i32::MAX, "timeout", true),
        ("ks", "b", i32::MAX, "immediate", false),
        // Of one copy there is nothing to repair; of three nothing has been.
        ("ks", "c", 0, "repair", false),
        ("three", "c", 0, "repair", true),
        ("ks", "d", 0, "disabled", true),
        ("ks", "e", 0, "timeout", false),
    ] {
        let name = &format!("{keyspace}.{name}");
        let options = format!("{grace} AND tombstone_gc = {{'mode': '{mode}'}}");
        run(&engine, &format!("CREATE TABLE {name} {TABLE}{options}")).await;
        let long_ago = Options { now: Some(1000), ..Options::default() };
        for statement in ["INSERT INTO {} (k, v) VALUES (1, 1)", "DELETE FROM {} WHERE k = 1"] {
            query(&engine, &statement.replace("{}", name), &long_ago).await.unwrap();
        }
        let (_, table) = name.split_once('.').unwrap();
        let table = engine.storage().schema().table(keyspace, table).unwrap().id();
        engine.storage().flush(table).await.unwrap();
        engine.storage().compact(table).await.unwrap();
        let left = rows(&engine, &format!("SELECT * FROM MUTATION_FRAGMENTS({name}) WHERE k = 1")).await;
        assert_eq!(!left.is_empty(), stays, "{mode}: {left:?}");
    }
}

#[test]
fn tombstones_go_when_their_mode_says() {
    node(tempfile::tempdir().unwrap().path(), 1, purged);
}

async fn ask_as_drivers_do(engine: Engine) {
    let keyspace = "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} AND tablets =";
    run(&engine, &format!("CREATE KEYSPACE many {keyspace} {{'initial': 4}}")).await;
    run(&engine, &format!("CREATE KEYSPACE off {keyspace} {{'enabled': false}}")).await;
    run(&engine, "CREATE TABLE off.t (k int PRIMARY KEY)").await;
    for (keyspace, initial, found) in [("ks", 0, 1), ("many", 4, 1), ("off", 0, 0)] {
        let select = format!(
            "SELECT keyspace_name FROM system_schema.scylla_keyspaces \
             WHERE keyspace_name = '{keyspace}' AND initial_tablets = {initial} ALLOW FILTERING"
        );
        assert_eq!(rows(&engine, &select).await.len(), found, "{select}");
    }
    let tables = rows(
        &engine,
        "SELECT table_name FROM system_schema.scylla_tables WHERE keyspace_name = 'off' AND table_name = 't'",
    );
    assert_eq!(tables.await.len(), 1);
}

#[test]
fn drivers_are_told_which_keyspaces_have_tablets() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 1, ask_as_drivers_do);
}

async fn expire_everywhere(shards: usize) {
    for shard in 0..shards {
        let there = mesh::call(shard, Group::ADMIN, || async { Engine::here().unwrap().expire_rows().await });
        there.await.unwrap();
    }
}

async fn expired(engine: Engine) -> String {
    let past = "'2020-01-01 00:00:00Z'";
    run(&engine, "CREATE TABLE plain (k int PRIMARY KEY, e bigint TTL)").await;
    run(&engine, "CREATE TABLE wide (k text, \"C c\" int, s text static, v int, PRIMARY KEY (k, \"C c\"))")
        .await;
    run(&engine, "ALTER TABLE wide ADD e timestamp").await;
    run(&engine, "ALTER TABLE wide TTL e").await;
    for k in 0..50 {
        run(
            &engine,
            &format!("INSERT INTO plain (k, e) VALUES ({k}, {})", if k % 2 == 0 { 1 } else { i64::MAX }),
        )
        .await;
    }
    run(&engine, "INSERT INTO plain (k) VALUES (50)").await;
    run(&engine, "UPDATE wide SET s = 'stays' WHERE k = 'a'").await;
    for c in 0..2500 {
        run(&engine, &format!("INSERT INTO wide (k, \"C c\", v, e) VALUES ('a', {c}, {c}, {past})")).await;
    }
    run(&engine, "INSERT INTO wide (k, \"C c\", v, e) VALUES ('a', 2500, 1, '2999-01-01')").await;
    // Extended before the next pass.
    run(&engine, "UPDATE wide SET e = null WHERE k = 'a' AND \"C c\" = 7").await;
    expire_everywhere(reactor::shard_count()).await;
    let left = rows(&engine, "SELECT k, \"C c\", s, v FROM wide").await;
    assert_eq!(left, ["'a' | 7 | 'stays' | 7", "'a' | 2500 | 'stays' | 1"]);
    let left = rows(&engine, "SELECT count(*), min(k), max(k) FROM plain").await;
    assert_eq!(left, ["26 | 1 | 50"]);
    // No longer.
    run(&engine, "ALTER TABLE plain TTL NULL").await;
    run(&engine, "INSERT INTO plain (k, e) VALUES (50, 1)").await;
    expire_everywhere(reactor::shard_count()).await;
    assert_eq!(rows(&engine, "SELECT count(*) FROM plain").await, ["26"]);
    table_text(&engine, "wide").await
}

#[test]
fn rows_go_when_their_ttl_column_says_so() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let text = node(folder.path(), shards, expired);
        assert!(text.contains("    e timestamp TTL,\n") && text.contains("extensions = {}"), "{text}");
        assert_eq!(node(folder.path(), 1, |engine| async move { table_text(&engine, "wide").await }), text);
    }
}

async fn ttl_columns_refused(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int, c timestamp, s timestamp static, e int, x text, n bigint, PRIMARY KEY (k, c))")
        .await;
    let cannot = "for the TTL of rows:";
    for (statement, expected) in [
        ("ALTER TABLE t TTL NULL", "Table ks.t has no TTL column".to_owned()),
        ("ALTER TABLE t TTL nothing", "Column nothing was not found in table 'ks.t'".to_owned()),
        (
            "ALTER TABLE t TTL c",
            format!("Cannot use column c {cannot} it must be neither static nor of the primary key"),
        ),
        (
            "ALTER TABLE t TTL s",
            format!("Cannot use column s {cannot} it must be neither static nor of the primary key"),
        ),
        (
            "ALTER TABLE t TTL x",
            format!("Cannot use column x {cannot} its type must be timestamp, bigint or int (got text)"),
        ),
        (
            "CREATE TABLE u (k int PRIMARY KEY, a int TTL, b int TTL)",
            format!(
                "Cannot use column b {cannot} column a is used already; ALTER TABLE … TTL NULL ends that"
            ),
        ),
        ("TRUNCATE t USING TIMEOUT 1mo", "Timeout values cannot be expressed in days/months".to_owned()),
    ] {
        let error = body(&engine, statement).await.expect_err(statement);
        assert_eq!(error.to_string(), expected, "{statement}");
    }
    run(&engine, "ALTER TABLE t TTL e").await;
    for statement in ["ALTER TABLE t TTL n", "ALTER TABLE t DROP e"] {
        body(&engine, statement).await.expect_err(statement);
    }
    run(&engine, "INSERT INTO t (k, c) VALUES (1, 1)").await;
    run(&engine, "TRUNCATE TABLE t USING TIMEOUT 5m").await;
    assert!(rows(&engine, "SELECT k FROM t").await.is_empty());
}

#[test]
fn wrong_ttl_columns_are_told() {
    node(tempfile::tempdir().unwrap().path(), 1, ttl_columns_refused);
}

async fn local_storage(engine: Engine) {
    let replication = "replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    for (name, storage, expected) in [
        ("a", "{'type': 'LOCAL'}", None),
        ("b", "{}", None),
        (
            "c",
            "{'type': 'local', 'bucket': 'x', 'superfluous': 'y'}",
            Some("Storage of type LOCAL has no option bucket, superfluous: leave it out"),
        ),
    ] {
        for statement in [
            format!("CREATE KEYSPACE {name} WITH {replication} AND storage = {storage}"),
            format!("ALTER KEYSPACE ks WITH {replication} AND storage = {storage}"),
        ] {
            let found = body(&engine, &statement).await.err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), expected, "{statement}");
        }
    }
}

#[test]
fn local_storage_has_no_options() {
    node(tempfile::tempdir().unwrap().path(), 1, local_storage);
}

async fn without_from(engine: Engine) {
    for (statement, names, values) in [
        ("SELECT 1", "1", "1"),
        ("SELECT 1 + 2 AS three, 'a', -1.5, true;", "three, 'a', -1.5, true", "3 | 'a' | -1.5 | true"),
        (
            "SELECT 3000000000, 99999999999999999999",
            "3000000000, 99999999999999999999",
            "3000000000 | 99999999999999999999",
        ),
        ("SELECT intAsBlob(4), count(*)", "system.intasblob(4), count", "0x00000004 | 1"),
        ("SELECT CAST(7 AS text)", "CAST(7 AS text)", "'7'"),
        ("SELECT JSON 1 AS one", "[json]", "'{\"one\": 1}'"),
    ] {
        let found = Rows::parse(&run(&engine, statement).await);
        assert_eq!(
            (found.names.join(", ").as_str(), found.rows.join(", ").as_str()),
            (names, values),
            "{statement}"
        );
    }
    assert_eq!(rows(&engine, "SELECT now(), uuid(), toTimestamp(now())").await.len(), 1);
    for statement in ["SELECT a", "SELECT *", "SELECT 1 LIMIT 1", "SELECT writetime(a)", "SELECT 1 + a;"] {
        let error = body(&engine, statement).await.expect_err(statement);
        assert!(matches!(error, QueryError::Syntax(_)), "{statement}: {error}");
    }
}

#[test]
fn expressions_are_selected_without_a_table() {
    node(tempfile::tempdir().unwrap().path(), 1, without_from);
}
