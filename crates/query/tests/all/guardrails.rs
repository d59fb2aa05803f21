//! Guardrails of reads and writes: a warning at one number, a refusal at another, in Cassandra's words.

use crate::support::{client, node_with, parameters, rows, run};
use query::guardrails::{Levels, Threshold, WriteGuardrails};
use query::{Engine, EngineConfig, Response};
use wire::consistency::Consistency;

fn adjust(config: &mut EngineConfig) {
    let threshold = Threshold { warn: Some(2), fail: Some(4) };
    config.guardrails.page_size = threshold;
    config.guardrails.partition_keys_in_select = threshold;
    config.guardrails.in_select_cartesian_product = Threshold { warn: Some(3), fail: Some(5) };
    config.guardrails.allow_filtering = false;
    config.guardrails.group_by = false;
    let strategies = &mut config.guardrails.replication_strategies;
    strategies.warned.insert("SimpleStrategy".to_owned());
    strategies.disallowed.insert("NetworkTopologyStrategy".to_owned());
}

/// The warnings of a statement, or its error.
async fn said(engine: &Engine, statement: &str, page_size: Option<u32>) -> Vec<String> {
    let mut out = Response::default();
    let parameters = wire::request::QueryParameters { page_size, ..parameters() };
    match engine.query(&client(), statement, &parameters, &mut out).await {
        Ok(()) => out.warnings,
        Err(error) => vec![format!("! {error}")],
    }
}

async fn reads(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int, a int, b int, v int, PRIMARY KEY (k, a, b))").await;
    let guardrail = |name: &str, text: &str| format!("Guardrail {name} violated: {text}");
    for (statement, page_size, expected) in [
        ("SELECT * FROM t", Some(2), None),
        (
            "SELECT * FROM t",
            Some(3),
            Some(guardrail(
                "page_size",
                "Query for table t with page size 3 exceeds warning threshold of 2.",
            )),
        ),
        (
            "SELECT * FROM t",
            Some(5),
            Some(format!(
                "! {}",
                guardrail(
                    "page_size",
                    "Aborting query for table t, page size 5 exceeds fail threshold of 4."
                )
            )),
        ),
        ("SELECT * FROM t LIMIT 5", Some(5), None),
        (
            "SELECT * FROM t LIMIT 6",
            Some(5),
            Some(format!(
                "! {}",
                guardrail(
                    "page_size",
                    "Aborting query for table t, page size 5 exceeds fail threshold of 4."
                )
            )),
        ),
        ("SELECT * FROM system.local", Some(5000), None),
        ("SELECT * FROM t WHERE k IN (1, 2)", None, None),
        (
            "SELECT * FROM t WHERE k IN (1, 2, 3)",
            None,
            Some(guardrail(
                "partition_keys_in_select",
                "Query with partition keys in IN clause on table t, with number of partition keys 3 exceeds warning threshold of 2.",
            )),
        ),
        (
            "SELECT * FROM t WHERE k IN (1, 2, 3, 4, 5)",
            None,
            Some(format!(
                "! {}",
                guardrail(
                    "partition_keys_in_select",
                    "Aborting query with partition keys in IN clause on table t, number of partition keys 5 exceeds fail threshold of 4.",
                )
            )),
        ),
        ("SELECT * FROM t WHERE k = 1 AND a IN (1, 2, 3)", None, None),
        // Ranges are not counted, however many.
        ("SELECT * FROM t WHERE k = 1 AND a IN (1, 2, 3, 4, 5, 6)", None, None),
        (
            "SELECT * FROM t WHERE k IN (1, 2, 3, 4, 5) AND a IN (1, 2) AND b IN (1, 2)",
            None,
            Some(format!(
                "! {}",
                guardrail(
                    "partition_keys_in_select",
                    "Aborting query with partition keys in IN clause on table t, number of partition keys 5 exceeds fail threshold of 4.",
                )
            )),
        ),
        (
            "SELECT * FROM t WHERE k = 1 AND a IN (1, 2) AND b IN (1, 2)",
            None,
            Some(guardrail(
                "in_select_cartesian_product",
                "The cartesian product of the IN restrictions on clustering key produces 4 values, this exceeds warning threshold of 3.",
            )),
        ),
        (
            "SELECT * FROM t WHERE k = 1 AND a IN (1, 2) AND b IN (1, 2, 3)",
            None,
            Some(format!(
                "! {}",
                guardrail(
                    "in_select_cartesian_product",
                    "Aborting query because the cartesian product of the IN restrictions on clustering key produces 6 values, this exceeds fail threshold of 5.",
                )
            )),
        ),
        (
            "SELECT * FROM t WHERE v = 1 ALLOW FILTERING",
            None,
            Some(format!(
                "! {}",
                guardrail(
                    "allow_filtering",
                    "Querying with ALLOW FILTERING is not allowed. ALLOW FILTERING can potentially visit all the data in the table and have unpredictable performance.",
                )
            )),
        ),
        (
            "SELECT * FROM t WHERE v = 1",
            None,
            Some(
                "! Cannot execute this query as it might involve data filtering and thus may have unpredictable performance. Executing this query despite the performance unpredictability with ALLOW FILTERING has been disabled by the allow_filtering_enabled property in cassandra.yaml"
                    .to_owned(),
            ),
        ),
        (
            "SELECT k, count(*) FROM t GROUP BY k",
            None,
            Some(format!("! {}", guardrail("group_by", "GROUP BY functionality is not allowed"))),
        ),
    ] {
        let expected: Vec<String> = expected.into_iter().collect();
        assert_eq!(said(&engine, statement, page_size).await, expected, "{statement}");
    }
}

#[test]
fn reads_are_warned_of_and_refused() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, adjust, reads);
}

fn adjust_writes(config: &mut EngineConfig) {
    let threshold = |warn, fail| Threshold { warn: Some(warn), fail: Some(fail) };
    config.guardrails.drop_truncate_table = false;
    config.guardrails.read_levels =
        Levels { warned: vec![Consistency::Two], disallowed: vec![Consistency::Quorum, Consistency::All] };
    config.guardrails.writes = Some(Box::new(WriteGuardrails {
        read_before_write_lists: false,
        column_value_bytes: threshold(20, 40),
        collection_bytes: threshold(100, 150),
        items_per_collection: threshold(2, 5),
        levels: Levels { warned: vec![Consistency::LocalOne], disallowed: vec![Consistency::LocalSerial] },
        ..WriteGuardrails::default()
    }));
}

async fn writes(engine: Engine) {
    run(
        &engine,
        "CREATE TABLE t (k int PRIMARY KEY, v text, l list<int>, m map<text, int>, f frozen<set<int>>)",
    )
    .await;
    let values = |kind: &str, items: &str| format!("INSERT INTO t (k, {kind}) VALUES (1, {items})");
    let long = |length: usize| "x".repeat(length);
    for (statement, expected) in [
        (values("v", &format!("'{}'", long(20))), None),
        (
            values("v", &format!("'{}'", long(21))),
            Some(
                "column_value_size violated: Value of column 'v' has size 21, this exceeds the warning threshold of 20.",
            ),
        ),
        (
            values("v", &format!("'{}'", long(41))),
            Some(
                "! column_value_size violated: Value of column 'v' has size 41, this exceeds the failure threshold of 40.",
            ),
        ),
        (
            values("v", &format!("'{}'", long(41))).replace("INSERT", "BEGIN BATCH INSERT") + " APPLY BATCH",
            Some(
                "! column_value_size violated: Value of column 'v' has size 41, this exceeds the failure threshold of 40.",
            ),
        ),
        (
            format!("INSERT INTO t (k, v) VALUES (9, '{}') IF NOT EXISTS", long(41)),
            Some(
                "! column_value_size violated: Value of column 'v' has size 41, this exceeds the failure threshold of 40.",
            ),
        ),
        (
            values("m", &format!("{{'{}': 1}}", long(21))),
            Some(
                "column_value_size violated: Value of column 'm' has size 21, this exceeds the warning threshold of 20.",
            ),
        ),
        (values("l", "[1, 2]"), None),
        (
            values("l", "[1, 2, 3]"),
            Some(
                "items_per_collection violated: Detected collection l with 3 items, this exceeds the warning threshold of 2.|\
                 collection_size violated: Detected collection l of size 120, this exceeds the warning threshold of 100.",
            ),
        ),
        (
            "UPDATE t SET l = l + [1, 2, 3, 4] WHERE k = 1".to_owned(),
            Some(
                "! collection_size violated: Detected collection l of size 160, this exceeds the failure threshold of 150.",
            ),
        ),
        (
            values("l", "[1, 2, 3, 4, 5, 6]"),
            Some(
                "! items_per_collection violated: Detected collection l with 6 items, this exceeds the failure threshold of 5.",
            ),
        ),
        (
            values("f", "{1, 2, 3}"),
            Some(
                "items_per_collection violated: Detected collection f with 3 items, this exceeds the warning threshold of 2.|\
                 column_value_size violated: Value of column 'f' has size 28, this exceeds the warning threshold of 20.",
            ),
        ),
        (
            "UPDATE t SET l[0] = 1 WHERE k = 1".to_owned(),
            Some(
                "! read_before_write_list_operations violated: Setting of list items by index requiring read before write is not allowed",
            ),
        ),
        (
            "DELETE l[0] FROM t WHERE k = 1".to_owned(),
            Some(
                "! read_before_write_list_operations violated: Removal of list items by index requiring read before write is not allowed",
            ),
        ),
        (
            "UPDATE t SET l = l - [1] WHERE k = 1".to_owned(),
            Some(
                "! read_before_write_list_operations violated: Removal of list items requiring read before write is not allowed",
            ),
        ),
        ("DELETE l FROM t WHERE k = 1".to_owned(), None),
        // Of elements that are set one by one only the values count.
        ("UPDATE t SET m['a'] = 1, m['b'] = 2, m['c'] = 3 WHERE k = 1".to_owned(), None),
        (
            "TRUNCATE t".to_owned(),
            Some(
                "! drop_truncate_table_enabled violated: DROP and TRUNCATE TABLE functionality is not allowed",
            ),
        ),
    ] {
        let expected: Vec<String> = expected
            .into_iter()
            .flat_map(|texts| texts.split('|'))
            .map(|text| match text.strip_prefix("! ") {
                Some(text) => format!("! Guardrail {text}"),
                None => format!("Guardrail {text}"),
            })
            .collect();
        assert_eq!(said(&engine, &statement, None).await, expected, "{statement}");
    }
    for (statement, consistency, serial, expected) in [
        ("SELECT * FROM t", Consistency::One, None, None),
        (
            "SELECT * FROM t",
            Consistency::All,
            None,
            Some(
                "! Guardrail read_consistency_levels violated: Provided values [ALL] are not allowed for read consistency levels (disallowed values are: [QUORUM, ALL])",
            ),
        ),
        (
            "INSERT INTO t (k) VALUES (1)",
            Consistency::LocalOne,
            None,
            Some(
                "Guardrail write_consistency_levels violated: Provided values [LOCAL_ONE] are not recommended for write consistency levels (warned values are: [LOCAL_ONE])",
            ),
        ),
        (
            "INSERT INTO t (k) VALUES (1)",
            Consistency::One,
            Some(Consistency::LocalSerial),
            Some(
                "! Guardrail write_consistency_levels violated: Provided values [LOCAL_SERIAL] are not allowed for write consistency levels (disallowed values are: [LOCAL_SERIAL])",
            ),
        ),
    ] {
        let mut out = Response::default();
        let parameters =
            wire::request::QueryParameters { consistency, serial_consistency: serial, ..parameters() };
        let said = match engine.query(&client(), statement, &parameters, &mut out).await {
            Ok(()) => out.warnings,
            Err(error) => vec![format!("! {error}")],
        };
        let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(said, expected, "{statement}");
    }
}

#[test]
fn writes_are_warned_of_and_refused() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, adjust_writes, writes);
}

fn adjust_timestamps(config: &mut EngineConfig) {
    let day = 24 * 3600 * 1_000_000;
    let threshold = Threshold { warn: Some(day), fail: Some(10 * day) };
    config.guardrails.writes = Some(Box::new(WriteGuardrails {
        maximum_timestamp_us: threshold,
        minimum_timestamp_us: threshold,
        ..WriteGuardrails::default()
    }));
}

async fn timestamps(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v int)").await;
    let now = engine.ambient().now_ms() * 1000;
    let day = 24 * 3600 * 1_000_000_i64;
    for (days, expected) in [
        (0, None),
        (2, Some("Guardrail maximum_timestamp violated: The modification to table t has a timestamp ")),
        (11, Some("! Guardrail maximum_timestamp violated: The modification to table t has a timestamp ")),
        (-2, Some("Guardrail minimum_timestamp violated: The modification to table t has a timestamp ")),
        (-11, Some("! Guardrail minimum_timestamp violated: The modification to table t has a timestamp ")),
    ] {
        let statement = format!("UPDATE t USING TIMESTAMP {} SET v = 1 WHERE k = 1", now + days * day);
        let said = said(&engine, &statement, None).await;
        match expected {
            None => assert_eq!(said, [""; 0]),
            Some(expected) => {
                assert_eq!(said.len(), 1, "{said:?}");
                assert!(said[0].starts_with(expected), "{said:?}");
                let side = if days > 0 { "after the maximum" } else { "before the minimum" };
                let which = if days.abs() > 10 { "failure" } else { "warning" };
                assert!(said[0].contains(&format!("{side} allowable {which} threshold ")), "{said:?}");
            }
        }
    }
}

#[test]
fn timestamps_are_warned_of_and_refused() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, adjust_timestamps, timestamps);
}

fn full_disk(config: &mut EngineConfig) {
    // Any table file or memtable is more than a byte.
    let writes = config.guardrails.writes.get_or_insert_default();
    writes.disk_percent = Threshold { warn: Some(50), fail: None };
    writes.disk_bytes_max = Some(1);
    config.guardrails.use_statements = false;
}

fn fuller_disk(config: &mut EngineConfig) {
    full_disk(config);
    config.guardrails.writes.get_or_insert_default().disk_percent.fail = Some(90);
}

async fn writes_to_a_full_disk(engine: Engine) -> Vec<String> {
    let mut all = said(&engine, "INSERT INTO t (k, v) VALUES (1, 1)", None).await;
    const BATCH: &str =
        "BEGIN BATCH INSERT INTO t (k, v) VALUES (2, 1) INSERT INTO t (k, v) VALUES (3, 1) APPLY BATCH";
    all.extend(said(&engine, BATCH, None).await);
    assert_eq!(said(&engine, "SELECT * FROM t", None).await, [""; 0]);
    all.extend(said(&engine, "USE ks", None).await);
    all
}

#[test]
fn writes_are_warned_of_and_refused_as_the_disk_fills() {
    let folder = tempfile::tempdir().unwrap();
    let warned = "Guardrail replica_disk_usage violated: Replica disk usage exceeds warning threshold";
    let refused = "! Guardrail replica_disk_usage violated: Write request failed because disk usage exceeds failure \
                   threshold";
    let no_use = "! USE statements prohibited. (see use_statements_enabled in cassandra.yaml)";
    // Something has to be there: a measure is good for a while.
    node_with(
        folder.path(),
        2,
        |_| {},
        |engine| async move {
            run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v int)").await;
            run(&engine, "INSERT INTO t (k, v) VALUES (1, 1)").await;
        },
    );
    assert_eq!(node_with(folder.path(), 2, full_disk, writes_to_a_full_disk), [warned, warned, no_use]);
    assert_eq!(node_with(folder.path(), 2, fuller_disk, writes_to_a_full_disk), [refused, refused, no_use]);
}

#[test]
fn a_keyspace_that_names_no_factor_has_the_configured_one() {
    let directory = tempfile::tempdir().unwrap();
    node_with(
        directory.path(),
        1,
        |config| config.guardrails.default_keyspace_rf = 3,
        |engine| async move {
            run(&engine, "CREATE KEYSPACE f WITH replication = {'class': 'SimpleStrategy'}").await;
            run(&engine, "CREATE KEYSPACE g WITH replication = {'class': 'NetworkTopologyStrategy'}").await;
            for keyspace in ["f", "g"] {
                let statement = format!(
                    "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{keyspace}'"
                );
                let found = rows(&engine, &statement).await;
                assert!(found[0].contains("'3'"), "{found:?}");
            }
        },
    );
}

async fn strategies(engine: Engine) {
    let warned = "Using SimpleStrategy replication class for keyspace a is not recommended (see \
        replication_strategy_warn_list)";
    let refused = "! NetworkTopologyStrategy replication class is not allowed for keyspace a (see \
        replication_strategy_fail_list)";
    const SIMPLE: &str = "{'class': 'org.apache.cassandra.locator.SimpleStrategy', 'replication_factor': 1}";
    const TOPOLOGY: &str = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}";
    let warnings = said(&engine, &format!("CREATE KEYSPACE a WITH replication = {SIMPLE}"), None).await;
    assert_eq!(warnings, [warned]);
    let refusal = said(&engine, &format!("ALTER KEYSPACE a WITH replication = {TOPOLOGY}"), None).await;
    assert_eq!(refusal, [refused]);
    assert!(said(&engine, "ALTER KEYSPACE a WITH durable_writes = false", None).await.is_empty());
}

#[test]
fn replication_strategies_are_warned_of_or_refused() {
    node_with(tempfile::tempdir().unwrap().path(), 1, adjust, strategies);
}
