//! Compares schema statements with the answers of Cassandra 5.0.6.
//!
//! `testdata/ddl_mistakes.txt`: `= ` sets up, `> ` is a statement, `< ` its answer (`OK`, or code and
//! message; for code 2400 the name of what exists). After each statement that succeeds, what it made under
//! the name `x` is dropped.

use super::plan::Planned;
use crate::StatementError;
use crate::guardrails::{Guardrails, Threshold};
use crate::schema_events::Change;
use crate::session::Session;

const MISTAKES: &str = include_str!("../../testdata/ddl_mistakes.txt");
/// Tables and types of random shape, in the same form.
const RANDOM: &str = include_str!("../../testdata/ddl_random.txt");

/// Statements with a different answer on purpose: Cassandra fails internally, accepts a table that this
/// version does not support, or mentions its own limits.
const OTHERWISE: [(&str, &str); 5] = [
    // Up to Cassandra 4, and in ScyllaDB, the class has this name.
    (
        "CREATE TABLE ks.x (k int PRIMARY KEY) WITH compression = {'sstable_compression': 'LZ4Compressor'}",
        "OK",
    ),
    (
        "ALTER TABLE ks.t DROP v USING TIMESTAMP 99999999999999999999",
        "2000 Invalid timestamp 99999999999999999999",
    ),
    ("CREATE KEYSPACE x WITH replication = {}", "2300 Missing replication strategy class"),
    (
        "CREATE TABLE ks.x (k int PRIMARY KEY) WITH read_repair = 'x'",
        "2300 Invalid value x for option 'read_repair'",
    ),
    (
        "CREATE TABLE ks.x (k int PRIMARY KEY) WITH compression = {'class': 'ZstdCompressor', 'compression_level': 100}",
        "2300 ZstdCompressor.create() threw an error: java.lang.IllegalArgumentException compression_level=100 is invalid",
    ),
];

/// An error as code and text.
fn answer(error: &StatementError) -> String {
    let code = match error {
        StatementError::Syntax(_) => "2000",
        StatementError::Unauthorized(_) => "2100",
        StatementError::Invalid(_) | StatementError::Guardrail(_) => "2200",
        StatementError::Config(_) => "2300",
        StatementError::AlreadyExists { keyspace, table, .. } if table.is_empty() => {
            return format!("2400 {keyspace}");
        }
        StatementError::AlreadyExists { keyspace, table, .. } => return format!("2400 {keyspace}.{table}"),
        other => panic!("a schema statement ended in {other:?}"),
    };
    format!("{code} {error}")
}

#[test]
fn statements_are_answered_as_cassandra_answers_them() {
    assert!(compare(MISTAKES) > 150);
}

#[test]
fn random_tables_and_types_are_answered_as_cassandra_answers_them() {
    assert!(compare(RANDOM) > 200);
}

/// Runs the statements of a file and returns how many mistakes were among them.
fn compare(golden: &str) -> usize {
    let mut session = Session::default();
    let mut wrong = Vec::new();
    let mut statement = "";
    let mut mistakes = 0;
    for line in golden.lines() {
        if let Some(setup) = line.strip_prefix("= ") {
            session.run(setup).unwrap_or_else(|error| panic!("{setup}: {error}"));
        } else if let Some(text) = line.strip_prefix("> ") {
            statement = text;
        } else if let Some(expected) = line.strip_prefix("< ") {
            let before = session.schema.clone();
            let found = match session.run(statement) {
                Ok(planned) => {
                    if planned.event.change == Change::Created
                        && (planned.event.name == "x" || planned.event.keyspace == "x")
                    {
                        session.schema = before;
                    }
                    let warnings: String =
                        session.warnings.iter().map(|warning| format!(" warning: {warning}")).collect();
                    format!("OK{warnings}")
                }
                Err(error) => answer(&error),
            };
            let otherwise = OTHERWISE.iter().find(|(text, _)| *text == statement).map(|(_, answer)| *answer);
            let expected = otherwise.unwrap_or(expected);
            mistakes += usize::from(expected.starts_with('2'));
            if found != expected {
                wrong.push(format!("{statement}\n  expected: {expected}\n  found:    {found}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    mistakes
}

/// Runs `ddl` statements, the last of which must answer `expected`: `OK`, `NOTHING`, or code and message.
#[track_caller]
fn check(ddl: &[&str], expected: &str) {
    let mut session = Session::default();
    session.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy'}").unwrap();
    session.keyspace = Some("ks".to_owned());
    let (last, setup) = ddl.split_last().unwrap();
    for text in setup {
        session.run(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    let found = match session.run(last) {
        Ok(Planned { change: None, .. }) => "NOTHING".to_owned(),
        Ok(_) => "OK".to_owned(),
        Err(error) => answer(&error),
    };
    assert_eq!(found, expected, "{last}");
}

#[test]
fn what_is_already_so_changes_nothing() {
    let table = "CREATE TABLE t (k int PRIMARY KEY, v int)";
    check(&[table, "CREATE TABLE IF NOT EXISTS t (other text PRIMARY KEY)"], "NOTHING");
    check(&[table, "ALTER TABLE t WITH gc_grace_seconds = 864000"], "NOTHING");
    check(&[table, "ALTER TABLE t ADD IF NOT EXISTS v text"], "NOTHING");
    check(&["ALTER KEYSPACE ks WITH durable_writes = true"], "NOTHING");
    check(&["DROP TYPE IF EXISTS nope"], "NOTHING");
    check(&["CREATE TYPE u (a int)", "ALTER TYPE u RENAME a TO a"], "NOTHING");
}

#[test]
fn what_this_version_has_not_got_says_so() {
    let table = "CREATE TABLE t (k int PRIMARY KEY, v int)";
    for (statement, what) in [
        ("CREATE INDEX ON t (v)", "Secondary indexes are"),
        ("DROP INDEX i", "Secondary indexes are"),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)",
            "Materialized views are",
        ),
        ("CREATE SERVICE LEVEL s", "Service levels are"),
        ("ALTER TABLE t WITH cdc = {'enabled': 'true', 'preimage': 'true'}", "Logs of changes (cdc) are"),
    ] {
        check(&[table, statement], &format!("2200 {what} not supported yet"));
    }
}

#[test]
fn no_class_of_a_trigger_can_be_loaded() {
    let table = "CREATE TABLE t (k int PRIMARY KEY, v int)";
    for (statement, expected) in [
        ("CREATE TRIGGER IF NOT EXISTS g ON t USING 'x'", "2200 Trigger class 'x' couldn't be loaded"),
        ("CREATE TRIGGER g ON nope USING 'x'", "2200 Table 'nope' doesn't exist"),
        ("CREATE TRIGGER g ON nope.t USING 'x'", "2200 Keyspace 'nope' doesn't exist"),
        ("DROP TRIGGER g ON t", "2200 Trigger 'g' on 'ks.t' doesn't exist"),
        ("DROP TRIGGER IF EXISTS g ON nope.t", "NOTHING"),
    ] {
        check(&[table, statement], expected);
    }
}

#[test]
fn compression_goes_by_all_its_names() {
    let with = |options: &str, expected: &str| {
        let table = format!("CREATE TABLE ks.t (k int PRIMARY KEY) WITH compression = {options}");
        check(&[&table], expected);
    };
    for options in [
        "{'class': 'DeflateCompressor'}",
        "{'class': 'NoopCompressor', 'chunk_length_in_kb': 4}",
        "{'class': 'ZstdCompressor', 'compression_level': -7, 'min_compress_ratio': 1.1}",
        "{'class': 'org.apache.cassandra.io.compress.ZstdWithDictsCompressor', 'compression_level': 5}",
        "{'sstable_compression': 'LZ4WithDictsCompressor', 'chunk_length_kb': 4, 'crc_check_chance': 0.5}",
        "{'sstable_compression': ''}",
    ] {
        with(options, "OK");
    }
    for (options, expected) in [
        (
            "{'class': 'LZ4Compressor', 'sstable_compression': 'SnappyCompressor'}",
            "2300 Unknown compression options sstable_compression",
        ),
        (
            "{'class': 'LZ4Compressor', 'chunk_length_kb': 4, 'chunk_length_in_kb': 4}",
            "2300 Unknown compression options chunk_length_kb",
        ),
        (
            "{'class': 'ZstdCompressor', 'compression_level': 'x'}",
            "2300 ZstdCompressor.create() threw an error: java.lang.NumberFormatException For input string: \"x\"",
        ),
        (
            "{'class': 'DeflateCompressor', 'compression_level': 3}",
            "2300 Unknown compression options compression_level",
        ),
        (
            "{'class': 'LZ4Compressor', 'crc_check_chance': 2}",
            "2300 crc_check_chance should be between 0.0 and 1.0",
        ),
        (
            "{'sstable_compression': '', 'x': 1}",
            "2300 Unknown compression options ([x]) since no compression class found",
        ),
    ] {
        with(options, expected);
    }
}

#[test]
fn an_id_belongs_to_one_table() {
    let id = "00000000-0000-1000-8000-000000000001";
    let first = format!("CREATE TABLE a (k int PRIMARY KEY) WITH id = {id}");
    let second = format!("CREATE TABLE b (k int PRIMARY KEY) WITH id = {id}");
    check(&[&first, &second], &format!("2300 The table id {id} belongs to ks.a"));
}

#[test]
fn types_that_grow_by_doubling_are_stopped() {
    let mut ddl = vec!["CREATE TYPE t0 (a int)".to_owned()];
    ddl.extend((1..=12).map(|n| format!("CREATE TYPE t{n} (a frozen<t{0}>, b frozen<t{0}>)", n - 1)));
    ddl.push("CREATE TYPE t13 (a frozen<t12>, b frozen<t12>, c frozen<t12>)".to_owned());
    let ddl: Vec<&str> = ddl.iter().map(String::as_str).collect();
    check(&ddl, "OK");
    let mut more = ddl.clone();
    more.push("CREATE TABLE t (k int PRIMARY KEY, v frozen<t13>)");
    check(&more, "2200 The type is made of more than 16384 types, which is the most there may be");
}

#[test]
fn altering_a_type_reaches_types_and_tables_that_hold_it() {
    let mut session = Session::default();
    for text in [
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy'}",
        "CREATE TYPE ks.inner (a int)",
        "CREATE TYPE ks.outer (i frozen<inner>)",
        "CREATE TABLE ks.t (k int PRIMARY KEY, v list<frozen<outer>>, w inner)",
        "ALTER TYPE ks.inner ADD b list<text>",
    ] {
        let done = session.run(text);
        if text.starts_with("ALTER") {
            assert_eq!(
                answer(&done.unwrap_err()),
                "2200 Non-frozen UDTs with nested non-frozen collections are not supported for column w"
            );
        }
    }
    session.run("ALTER TYPE ks.inner ADD b text").unwrap();
    let table = session.schema.table("ks", "t").unwrap();
    assert_eq!(table.definition().revision, 1);
    let class = |column: &str| model::marshal::class_name(&table.column(column).unwrap().ty, false);
    assert!(class("w").contains("62:org.apache.cassandra.db.marshal.UTF8Type"), "{}", class("w"));
    assert!(class("v").contains("62:org.apache.cassandra.db.marshal.UTF8Type"), "{}", class("v"));
    let outer = &session.schema.keyspace("ks").unwrap().types["outer"];
    assert!(model::marshal::class_name(&outer.fields[0].1, false).contains("62:"));
}

#[test]
fn a_column_that_returns_has_its_id_and_the_time_it_went() {
    let mut session = Session::default();
    for text in [
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy'}",
        "CREATE TABLE ks.t (k int PRIMARY KEY, v int, w int)",
        "ALTER TABLE ks.t DROP v USING TIMESTAMP 7",
        "ALTER TABLE ks.t ADD v int",
    ] {
        session.run(text).unwrap();
    }
    let table = session.schema.table("ks", "t").unwrap();
    assert_eq!(table.column("v").unwrap().id.0, 1);
    let dropped = &table.definition().dropped["v"];
    assert_eq!((dropped.column.id.0, dropped.dropped_at_us), (1, 7));
    // The next column gets an id that was never used.
    session.run("ALTER TABLE ks.t ADD x int").unwrap();
    assert_eq!(session.schema.table("ks", "t").unwrap().column("x").unwrap().id.0, 3);
}

#[test]
fn a_new_table_has_a_tablet_for_each_shard_and_an_id_of_its_own() {
    let mut session = Session::default();
    session.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy'}").unwrap();
    session.run("CREATE TABLE ks.t (k int PRIMARY KEY)").unwrap();
    let table = session.schema.table("ks", "t").unwrap();
    assert_eq!(table.tablets().count(), 2);
    assert_eq!(table.id().to_string(), "00000000-0000-4001-8000-000000000011");
}

#[test]
fn factors_that_cannot_be_met_are_kept_with_a_warning() {
    let mut session = Session::default();
    session
        .run("CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 3}")
        .unwrap();
    assert_eq!(
        session.warnings,
        [
            "Your replication factor 3 for keyspace ks is higher than the number of nodes 1 for datacenter datacenter1"
        ]
    );
    assert_eq!(session.schema.keyspace("ks").unwrap().options.replication["datacenter1"], "3");
    session
        .run("ALTER KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': '5'}")
        .unwrap();
    assert_eq!(session.warnings.len(), 2);
}

#[test]
fn guardrails_warn_and_refuse() {
    let mut session = Session::default();
    let both = |warn, fail| Threshold { warn: Some(warn), fail: Some(fail) };
    session.guardrails = Guardrails {
        keyspaces: both(1, 2),
        tables: both(1, 2),
        columns_per_table: both(2, 3),
        fields_per_udt: both(1, 2),
        vector_dimensions: both(2, 4),
        minimum_replication_factor: Threshold { warn: None, fail: Some(1) },
        maximum_replication_factor: both(1, 3),
        drop_keyspace: false,
        drop_truncate_table: false,
        alter_table: false,
        ..Guardrails::default()
    };
    session.guardrails.table_properties.ignored.insert("comment".to_owned());
    session.guardrails.table_properties.disallowed.insert("cdc".to_owned());
    let create = |name: &str, factor: u32| {
        format!(
            "CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {factor}}}"
        )
    };
    let mut check = |statement: &str, expected: &[&str]| {
        let refusal = session.run(statement).err().map(|error| format!("! {error}"));
        let found: Vec<String> = session.warnings.drain(..).chain(refusal).collect();
        assert_eq!(found, expected, "{statement}");
    };
    check(&create("a", 1), &[]);
    check(
        &create("b", 2),
        &[
            "Guardrail keyspaces violated: Creating keyspace b, current number of keyspaces 2 exceeds warning threshold \
             of 1.",
            "Guardrail maximum_replication_factor violated: The keyspace b has a replication factor of 2, above the \
             warning threshold of 1.",
            "Your replication factor 2 for keyspace b is higher than the number of nodes 1",
        ],
    );
    check(
        &create("c", 1),
        &[
            "! Guardrail keyspaces violated: Cannot have more than 2 keyspaces, aborting the creation of keyspace c",
        ],
    );
    check(
        "ALTER KEYSPACE a WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 0}",
        &[
            "! Guardrail minimum_replication_factor violated: The keyspace a has a replication factor of 0, below the \
           failure threshold of 1.",
        ],
    );
    check("CREATE TABLE a.t (k int PRIMARY KEY, v int)", &[]);
    check(
        "CREATE TABLE a.u (k int PRIMARY KEY, v int, w vector<float, 3>) WITH comment = 'x'",
        &[
            "Guardrail table_properties violated: Ignoring provided values [comment] as they are not supported for Table \
             Properties (ignored values are: [comment])",
            "Guardrail columns_per_table violated: The table u has 3 columns, this exceeds the warning threshold of 2.",
            "Guardrail tables violated: Creating table u, current number of tables 2 exceeds warning threshold of 1.",
            "Guardrail vector_dimensions violated: Column w has a vector of 3 dimensions, this exceeds the warning threshold of \
             2.",
        ],
    );
    check(
        "CREATE TABLE a.w (k int PRIMARY KEY)",
        &["! Guardrail tables violated: Cannot have more than 2 tables, aborting the creation of table w"],
    );
    // Warnings before the refusal are returned with it.
    check(
        "CREATE TABLE a.w (k int PRIMARY KEY, v int) WITH comment = 'x'",
        &[
            "Guardrail table_properties violated: Ignoring provided values [comment] as they are not supported for Table \
             Properties (ignored values are: [comment])",
            "! Guardrail tables violated: Cannot have more than 2 tables, aborting the creation of table w",
        ],
    );
    check(
        "ALTER TABLE a.t WITH cdc = true",
        &[
            "! Guardrail table_properties violated: Provided values [cdc] are not allowed for Table Properties (disallowed \
           values are: [cdc])",
        ],
    );
    check(
        "ALTER TABLE a.t DROP v",
        &["! Guardrail alter_table violated: ALTER TABLE changing columns is not allowed"],
    );
    check(
        "ALTER TABLE a.t WITH compaction = {'class': 'TimeWindowCompactionStrategy'}",
        &[
            "Guardrail zero_ttl_on_twcs violated: 0 default_time_to_live on a table with TimeWindowCompactionStrategy \
             compaction strategy is not recommended. It is suspicious to use default_time_to_live set to 0 with such \
             compaction strategy. Please keep in mind that data will not start to automatically expire after they are \
             older than a respective compaction window unit of a certain size. Please set TTL for your INSERT or UPDATE \
             statements if you expect data to be expired as table settings will not do it. ",
        ],
    );
    check(
        "CREATE TYPE a.y (a int, b int, c int)",
        &[
            "! Guardrail fields_per_udt violated: User types cannot have more than 2 columns, but 3 provided for user type \
           y.",
        ],
    );
    check(
        "ALTER TABLE a.t WITH comment = 'z'",
        &[
            "Guardrail table_properties violated: Ignoring provided values [comment] as they are not supported for Table \
             Properties (ignored values are: [comment])",
        ],
    );
    // Options that the statement does not name are not checked.
    check("ALTER TABLE a.t WITH default_time_to_live = 0", &[]);
    check("CREATE TYPE a.z (a int)", &[]);
    check(
        "ALTER TYPE a.z ADD v list<vector<float, 3>>",
        &[
            "Guardrail fields_per_udt violated: The user type z has 2 columns, this exceeds the warning threshold of 1.",
            "Guardrail vector_dimensions violated: Field v has a vector of 3 dimensions, this exceeds the warning \
             threshold of 2.",
        ],
    );
    check(
        "DROP TABLE a.t",
        &[
            "! Guardrail drop_truncate_table_enabled violated: DROP and TRUNCATE TABLE functionality is not allowed",
        ],
    );
    check(
        "DROP KEYSPACE a",
        &["! Guardrail drop_keyspace_enabled violated: DROP KEYSPACE functionality is not allowed"],
    );
}

#[test]
fn a_table_like_another_has_its_columns_and_options() {
    let mut session = Session::default();
    for statement in [
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TYPE ks.p (x int)",
        "CREATE TABLE ks.t (k int, c text, s int static, v list<int>, gone int, PRIMARY KEY (k, c)) \
         WITH CLUSTERING ORDER BY (c DESC) AND comment = 'one' AND gc_grace_seconds = 7",
        "ALTER TABLE ks.t DROP gone",
        "CREATE TABLE ks.u (k int PRIMARY KEY, p p)",
        "CREATE TABLE IF NOT EXISTS other.copy LIKE ks.t WITH comment = 'two'",
        "CREATE TABLE IF NOT EXISTS other.copy LIKE ks.t",
        "CREATE TABLE ks.w LIKE ks.u",
    ] {
        session.run(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    let (source, copy) =
        (session.schema.table("ks", "t").unwrap(), session.schema.table("other", "copy").unwrap());
    assert_ne!(source.id(), copy.id());
    let shape = |table: &model::Table| {
        table.columns().map(|c| (c.name.clone(), c.ty.clone(), c.kind, c.reversed)).collect::<Vec<_>>()
    };
    assert_eq!(shape(source), shape(copy));
    assert!(copy.definition().dropped.is_empty());
    assert_eq!(copy.options().comment, "two");
    assert_eq!(copy.options().gc_grace_seconds, 7);
    for (statement, expected) in [
        ("CREATE TABLE ks.x LIKE ks.nope", "2200 Souce Table 'ks.nope' doesn't exist"),
        ("CREATE TABLE nope.x LIKE ks.t", "2200 Keyspace 'nope' doesn't exist"),
        ("CREATE TABLE ks.u LIKE ks.t", "2400 ks.u"),
        ("CREATE TABLE other.x LIKE ks.u", "2200 UDTs p do not exist in target keyspace 'other'."),
        ("CREATE TABLE ks.x LIKE ks.t WITH id = 5", "2300 Cannot alter table id."),
        ("CREATE TABLE ks.x LIKE ks.t WITH INDEXES", "2200 Secondary indexes are not supported yet"),
    ] {
        assert_eq!(answer(&session.run(statement).unwrap_err()), expected, "{statement}");
    }
}

#[test]
fn columns_may_have_classes_that_no_type_stands_for() {
    let mut session = Session::default();
    for statement in [
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE ks.t (k int PRIMARY KEY, v 'Int32Type', w 'LexicalUUIDType', x 'DateType', \
         y 'DynamicCompositeType(a=>Int32Type)', z 'CompositeType(Int32Type, MapType(UTF8Type,Int32Type))')",
    ] {
        session.run(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    let types: Vec<String> = session
        .schema
        .table("ks", "t")
        .unwrap()
        .columns()
        .map(|column| column.ty.to_string().replace("org.apache.cassandra.db.marshal.", ""))
        .collect();
    assert_eq!(
        types,
        [
            "int",
            "int",
            "'LexicalUUIDType'",
            "timestamp",
            "'DynamicCompositeType(a=>Int32Type)'",
            "'CompositeType(Int32Type,MapType(UTF8Type,Int32Type))'"
        ]
    );
    for (class, expected) in [
        (
            "NoSuchType",
            "2000 Error setting type NoSuchType: Unable to find abstract-type class \
             'org.apache.cassandra.db.marshal.NoSuchType'",
        ),
        (
            "CompositeType(NoSuchType)",
            "2000 Error setting type CompositeType(NoSuchType): Invalid definition for comparator \
             org.apache.cassandra.db.marshal.CompositeType.",
        ),
    ] {
        let statement = format!("CREATE TABLE ks.u (k int PRIMARY KEY, v '{class}')");
        assert_eq!(answer(&session.run(&statement).unwrap_err()), expected);
    }
    let error = session.run("CREATE TABLE ks.u (k 'CompositeType(Int32Type)' PRIMARY KEY)").unwrap_err();
    assert!(answer(&error).ends_with("type is not supported for PRIMARY KEY column 'k'"), "{error}");
}
