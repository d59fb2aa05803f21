//! Statements that read and write, against real storage, compared with the answers of Cassandra 5.0.6.
//!
//! The files under `testdata/dml` have a statement on each line, and Cassandra's answer behind it: `>` a line
//! of names and then a line for each row, `!` code, text and fields of an error.
//! `tests/differential/recorded.py` describes how statements are sent, and gives the same files to a live
//! Cassandra. Every difference is printed line by line.

use std::collections::BTreeMap;

use crate::support::{Bound, Options, Rows, body, client, node_with, parameters, prepare, query};
use query::{ClientState, Engine, EngineConfig, QueryError, Response};

async fn answers(engine: Engine, script: &'static str) -> String {
    let mut out = String::new();
    for statement in script.lines().filter(|line| line.ends_with(';')) {
        out.push_str(statement);
        out.push('\n');
        match answer(&engine, statement).await {
            // A ROWS body; statements other than SELECT have one if they are conditional.
            Ok(body) if body.starts_with(&2_i32.to_be_bytes()) => {
                let rows = Rows::parse(&body);
                out.push_str(&format!("> {}\n", rows.names.join(" | ")));
                rows.rows.iter().for_each(|row| out.push_str(&format!("> {row}\n")));
            }
            Ok(_) => {}
            Err(error) => {
                let text = error_text(&error);
                // For a wrong value that was bound our message also has the marker's name.
                let named = text.rsplit_once(" for \"").filter(|_| statement.starts_with('@'));
                out.push_str(&format!("! {}\n", named.map_or(text.as_str(), |(text, _)| text)));
            }
        }
    }
    out
}

/// Sends a statement in the way that the prefix of its line sets.
async fn answer(engine: &Engine, line: &'static str) -> Result<Vec<u8>, QueryError> {
    let Some((way, rest)) = line.strip_prefix('@').and_then(|line| line.split_once(' ')) else {
        return body(engine, line).await;
    };
    let nowhere = ClientState { keyspace: None, ..client() };
    let mut out = Response::default();
    match way {
        "prepare" => return prepare(engine, rest).await.map(|_| Vec::new()),
        "bare" => {
            engine.query(&nowhere, rest, &parameters(), &mut out).await?;
            return Ok(out.body);
        }
        "bareprepare" => return engine.prepare(&nowhere, rest, None, &mut out).await.map(|()| Vec::new()),
        _ => {}
    }
    let (values, statement) = rest.split_once("| ").unwrap();
    let values = values.split(',').map(str::trim).filter(|value| !value.is_empty());
    let values = values.map(|value| match value.split_once(" = ") {
        Some((name, value)) => (Some(name), bound(value)),
        None => (None, bound(value)),
    });
    let options = Options { values: values.collect(), ..Options::default() };
    match way {
        "bind" => prepare(engine, statement).await?.execute(engine, &options).await,
        "query" | "named" => query(engine, statement, &options).await,
        other => panic!("{other}: no way to send a statement"),
    }
}

fn bound(text: &str) -> Bound {
    match text {
        "null" => Bound::Null,
        "unset" => Bound::Unset,
        text => {
            let digits = text.strip_prefix("0x").unwrap().as_bytes().chunks(2);
            Bound::Bytes(
                digits
                    .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                    .collect(),
            )
        }
    }
}

/// Code, text and fields, as the files have them.
fn error_text(error: &QueryError) -> String {
    let (code, fields) = match error {
        QueryError::Internal(_) => ("0000", Vec::new()),
        QueryError::Protocol(_) => ("000a", Vec::new()),
        QueryError::Syntax(_) => ("2000", Vec::new()),
        QueryError::Unauthorized(_) => ("2100", Vec::new()),
        QueryError::Invalid(_) => ("2200", Vec::new()),
        QueryError::Config(_) => ("2300", Vec::new()),
        QueryError::AlreadyExists { keyspace, table, .. } => ("2400", vec![keyspace.clone(), table.clone()]),
        QueryError::FunctionFailure { keyspace, function, arguments, .. } => {
            ("1400", [vec![keyspace.clone(), function.clone()], arguments.clone()].concat())
        }
        other => panic!("{other:?} has no place in these files"),
    };
    let fields = if fields.is_empty() { String::new() } else { format!(" {{{}}}", fields.join(", ")) };
    format!("{code} {}{fields}", error.to_string().replace('\n', "\\n"))
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
        script!($name, $file, |_| {});
    };
    ($name:ident, $file:literal, $adjust:expr) => {
        #[test]
        fn $name() {
            const SCRIPT: &str = include_str!(concat!("../../testdata/dml/", $file));
            for shards in [1, 2] {
                let folder = tempfile::tempdir().unwrap();
                let adjust: fn(&mut EngineConfig) = $adjust;
                let found = node_with(folder.path(), shards, adjust, |engine| answers(engine, SCRIPT));
                let differences = differences(SCRIPT, &found);
                assert!(differences.is_empty(), "with {shards} shards:\n{}", differences.join("\n"));
            }
        }
    };
}

script!(rows_are_selected_written_and_deleted, "rows.cql");
script!(bound_sets_and_maps_are_put_in_order_at_every_depth, "bound_order.cql");
script!(partitions_without_rows_are_sorted_as_in_cassandra, "order_statics.cql");
script!(arguments_and_times_of_functions_are_cassandras, "function_names.cql");
script!(conditional_statements_are_decided_by_what_is_there, "conditional.cql");
script!(counters_count, "counters.cql");
script!(inserts_as_json_and_mistakes, "inserts.cql");
script!(updates_deletes_and_batches_with_their_mistakes, "updates.cql");
script!(clustering_restrictions_become_slices, "clustering.cql");
script!(collections_keep_their_elements_apart, "collections.cql");
script!(timestamps_decide_and_functions_compute, "times.cql");
script!(every_scalar_type_takes_its_literals, "types.cql");
script!(functions_and_operators_compute, "functions.cql");
script!(literals_that_are_no_values_say_why, "literal_mistakes.cql");
script!(selections_show_what_cassandra_shows, "select_selections.cql");
script!(restrictions_choose_or_refuse_as_cassandra_does, "select_restrictions.cql");
script!(arithmetic_is_selected_and_groups_are_cut_by_functions, "select_arithmetic.cql");
script!(rows_are_selected_as_json, "select_json.cql");
script!(what_cassandra_has_not_is_there_too, "select_extensions.cql");
script!(mistakes_are_answered_in_cassandras_words, "mistakes.cql");
script!(tables_of_compact_storage_are_cassandras, "compact.cql");
script!(compact_storage_is_dropped_and_what_it_hid_is_shown, "compact_dropped.cql", |config| {
    config.guardrails.drop_compact_storage = true;
});
script!(bound_values_are_checked_as_cassandra_does, "bound_mistakes.cql");
script!(schema_statements_are_refused_as_cassandra_does, "mistakes_schema.cql");
script!(statements_are_refused_as_cassandra_does, "mistakes_statements.cql");
script!(nobody_manages_roles_without_having_logged_in, "roles.cql");
script!(conditions_hold_or_not_as_in_cassandra, "conformance_conditions.cql");
script!(decimals_compute_as_in_cassandra, "conformance_decimals.cql");
script!(conditions_on_static_columns_are_cassandras, "conformance_statics.cql");
script!(elements_of_collections_are_read_and_written_as_in_cassandra, "conformance_elements.cql");
script!(types_are_made_altered_and_dropped_as_in_cassandra, "conformance_types.cql");
script!(schemas_are_altered_and_refused_as_in_cassandra, "conformance_schema.cql");
script!(bound_values_are_told_in_the_order_of_cassandra, "conformance_bound.cql");
script!(relations_choose_rows_or_are_refused_as_in_cassandra, "conformance_relations.cql");
script!(literals_of_times_addresses_and_durations_are_cassandras, "conformance_literals.cql");
script!(numbers_and_json_of_every_type_are_cassandras, "conformance_numbers.cql");
script!(signs_before_values_are_cassandras, "conformance_signs.cql");
script!(deletions_within_conditional_batches_are_cassandras, "conformance_batches.cql");
script!(of_two_mistakes_the_first_is_told, "conformance_first_mistakes.cql");
script!(selects_answer_as_cassandras, "conformance_selects.cql");
script!(collections_are_cassandras, "conformance_collections.cql");
script!(lists_bound_for_one_column_in_parentheses_hold_tuples, "writing_tuples.cql");
script!(what_is_removed_from_lists_has_the_same_bytes, "writing_lists.cql");
script!(no_table_has_a_trigger, "writing_triggers.cql");
script!(dropped_columns_come_back_with_types_that_read_their_values, "writing_added_again.cql");
script!(user_types_tuples_and_vectors_are_cassandras, "conformance_composites.cql");
script!(json_comes_and_goes_as_in_cassandra, "conformance_json.cql");
script!(writes_and_deletions_are_cassandras, "conformance_writes.cql");
script!(functions_casts_and_operators_are_cassandras, "conformance_functions.cql");
script!(values_left_out_of_conditions_are_cassandras, "reading_conditions.cql");
script!(relations_that_cannot_stand_together_are_refused, "reading_relations.cql");
script!(virtual_tables_refuse_what_cassandras_refuse, "reading_virtual.cql");
script!(tuples_with_fewer_components_are_cassandras, "rest_tuples.cql");
script!(texts_of_tuples_and_empty_texts_in_json_are_cassandras, "rest_texts.cql");
script!(masks_of_every_type_are_cassandras, "rest_masks.cql");
script!(one_column_in_parentheses_is_that_column, "rest_relations.cql");
script!(masked_columns_and_unknown_functions_are_refused_as_by_cassandra, "rest_ddl.cql");
script!(unified_compaction_and_the_least_of_empty_values_are_cassandras, "rest_options.cql");

/// Counts the mistakes in the files above, and in those of the schema statements, by kind of statement.
#[test]
fn mistakes_are_recorded_of_every_kind_of_statement() {
    const FILES: [&str; 12] = [
        include_str!("../../testdata/dml/bound_mistakes.cql"),
        include_str!("../../testdata/dml/compact.cql"),
        include_str!("../../testdata/dml/conditional.cql"),
        include_str!("../../testdata/dml/counters.cql"),
        include_str!("../../testdata/dml/inserts.cql"),
        include_str!("../../testdata/dml/literal_mistakes.cql"),
        include_str!("../../testdata/dml/mistakes.cql"),
        include_str!("../../testdata/dml/mistakes_schema.cql"),
        include_str!("../../testdata/dml/mistakes_statements.cql"),
        include_str!("../../testdata/dml/select_restrictions.cql"),
        include_str!("../../testdata/dml/select_selections.cql"),
        include_str!("../../testdata/dml/updates.cql"),
    ];
    let mut counts = BTreeMap::<String, usize>::new();
    let mut count = |statement: &str| {
        let mut words = statement.split(' ').filter(|word| !word.starts_with('@'));
        let word = words.next().unwrap_or_default().to_uppercase();
        *counts.entry(word.trim_end_matches(';').to_owned()).or_default() += 1;
    };
    for file in FILES {
        let mut statement = "";
        for line in file.lines() {
            match line.strip_prefix('!') {
                Some(_) => count(statement),
                None => {
                    statement =
                        line.split_once("| ").filter(|_| line.starts_with('@')).map_or(line, |(_, s)| s)
                }
            }
        }
    }
    let mut statement = "";
    for line in include_str!("../../../statement/testdata/ddl_mistakes.txt").lines() {
        match line.split_at(line.len().min(2)) {
            ("> ", text) => statement = text,
            ("< ", answer) if !answer.starts_with("OK") => count(statement),
            _ => {}
        }
    }
    let total: usize = counts.values().sum();
    println!("{total} mistakes: {counts:?}");
    assert!(total > 2000, "{total}: {counts:?}");
    for kind in
        ["SELECT", "INSERT", "UPDATE", "DELETE", "BEGIN", "CREATE", "ALTER", "DROP", "DESCRIBE", "USE"]
    {
        assert!(counts.get(kind).is_some_and(|count| *count > 1), "{kind}: {counts:?}");
    }
}
