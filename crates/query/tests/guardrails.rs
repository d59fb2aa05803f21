//! Guardrails of reads: warned of at one number, refused at another, in Cassandra's words.

mod support;

use query::guardrails::Threshold;
use query::{Engine, EngineConfig, Response};
use support::{client, node_with, parameters, run};

fn adjust(config: &mut EngineConfig) {
    let threshold = Threshold { warn: Some(2), fail: Some(4) };
    config.guardrails.page_size = threshold;
    config.guardrails.partition_keys_in_select = threshold;
    config.guardrails.in_select_cartesian_product = Threshold { warn: Some(3), fail: Some(5) };
    config.guardrails.allow_filtering = false;
    config.guardrails.group_by = false;
}

/// What a statement is warned of or refused with.
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
