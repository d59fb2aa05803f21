//! Statements that read and write, against real storage, held to what Cassandra 5.0.6 answered.
//!
//! The files under `testdata/dml` hold a statement on each line, behind it what Cassandra said: `>` a line of names and
//! then a line for each row, `!` the text of an error. Whatever differs is shown line by line.

mod support;

use query::Engine;
use support::{Rows, body, node};

async fn answers(engine: Engine, script: &'static str) -> String {
    let mut out = String::new();
    for statement in script.lines().filter(|line| line.ends_with(';')) {
        out.push_str(statement);
        out.push('\n');
        match body(&engine, statement).await {
            // A ROWS body; other statements than SELECT have one where they are conditional.
            Ok(body) if body.starts_with(&2_i32.to_be_bytes()) => {
                let rows = Rows::parse(&body);
                out.push_str(&format!("> {}\n", rows.names.join(" | ")));
                rows.rows.iter().for_each(|row| out.push_str(&format!("> {row}\n")));
            }
            Ok(_) => {}
            Err(error) => out.push_str(&format!("! {error}\n")),
        }
    }
    out
}

/// The statements whose answers differ, with both.
fn differences(expected: &str, found: &str) -> Vec<String> {
    let split = |text: &str| {
        let mut blocks: Vec<String> = Vec::new();
        for line in text.lines() {
            match blocks.last_mut() {
                Some(block) if !line.ends_with(';') => *block += &format!("\n{line}"),
                _ => blocks.push(line.to_owned()),
            }
        }
        blocks
    };
    let (expected, found) = (split(expected), split(found));
    assert_eq!(expected.len(), found.len(), "the same statements");
    expected
        .iter()
        .zip(&found)
        .filter(|(expected, found)| expected != found)
        .map(|(expected, found)| format!("expected {expected}\nfound {found}\n"))
        .collect()
}

macro_rules! script {
    ($name:ident, $file:literal) => {
        #[test]
        fn $name() {
            const SCRIPT: &str = include_str!(concat!("../testdata/dml/", $file));
            for shards in [1, 2] {
                let folder = tempfile::tempdir().unwrap();
                let found = node(folder.path(), shards, |engine| answers(engine, SCRIPT));
                let differences = differences(SCRIPT, &found);
                assert!(differences.is_empty(), "with {shards} shards:\n{}", differences.join("\n"));
            }
        }
    };
}

script!(rows_are_selected_written_and_deleted, "rows.cql");
script!(conditional_statements_are_decided_by_what_is_there, "conditional.cql");
script!(clustering_restrictions_become_slices, "clustering.cql");
script!(collections_keep_their_elements_apart, "collections.cql");
script!(timestamps_decide_and_functions_compute, "times.cql");
script!(every_scalar_type_takes_its_literals, "types.cql");
script!(functions_and_operators_compute, "functions.cql");
script!(mistakes_are_answered_in_cassandras_words, "mistakes.cql");
