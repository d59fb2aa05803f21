//! User-defined functions: created, called, limited, described, dropped, and present after a restart.

use std::time::Duration;

use crate::support::{Options, body, int, node, node_with, prepare, query_body, rows, run, send};
use model::CqlType;
use model::schema::{FunctionDefinition, SchemaChange};
use query::{CallTimes, Engine, EngineConfig, QueryError, Response};
use wire::frame::Opcode;

async fn error(engine: &Engine, statement: &str) -> String {
    match body(engine, statement).await {
        Ok(_) => panic!("{statement} was not refused"),
        Err(error) => error.to_string(),
    }
}

async fn lua(engine: &Engine, name: &str, signature: &str, returns: &str, source: &str) {
    let statement = format!(
        "CREATE FUNCTION ks.{name}({signature}) CALLED ON NULL INPUT RETURNS {returns} LANGUAGE lua AS $${source}$$"
    );
    run(engine, &statement).await;
}

async fn one(engine: &Engine, expression: &str) -> String {
    rows(engine, &format!("SELECT {expression} FROM t WHERE k = 1")).await.join("; ")
}

/// A limit on time that a slow machine does not reach, so that a call is ended only by the resources it uses.
pub(crate) fn patient(config: &mut EngineConfig) {
    config.user_function_times = CallTimes { warn: Duration::ZERO, fail: Duration::from_secs(60) };
}

async fn warnings(engine: &Engine, statement: &str) -> Vec<String> {
    let mut out = Response::default();
    send(engine, Opcode::Query, &query_body(statement, &Options::default()), &mut out).await.unwrap();
    out.warnings
}

async fn table(engine: &Engine) {
    run(engine, "CREATE TYPE ks.point (x int, y int)").await;
    run(
        engine,
        "CREATE TABLE ks.t (k int PRIMARY KEY, i int, b bigint, d double, de decimal, vi varint, t text, bl blob, \
         da date, ts timestamp, du duration, u uuid, l list<int>, s set<text>, m map<text, int>, p frozen<point>, \
         tup frozen<tuple<int, text>>, v vector<float, 2>, bo boolean)",
    )
    .await;
    run(
        engine,
        "INSERT INTO ks.t (k, i, b, d, de, vi, t, bl, da, ts, du, u, l, s, m, p, tup, v, bo) VALUES (1, 7, 8, 1.5, 1.25, \
         100000000000000000000, 'abc', 0xcafe, '2020-02-29', 1000, 1mo2d3ns, 6bddc89a-5644-41e4-97fc-56847afe9799, \
         [3, 1], {'b', 'a'}, {'x': 1}, {x: 1, y: 2}, (1, 'z'), [1, 2], true)",
    )
    .await;
}

#[test]
fn an_overload_that_cannot_be_compiled_does_not_stand_in_the_way_of_the_others() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 1, |engine| async move {
        table(&engine).await;
        lua(&engine, "twice", "v int", "int", "return 2 * v").await;
        // As a node has it that was built with another language.
        let foreign = FunctionDefinition {
            keyspace: "ks".to_owned(),
            name: "twice".to_owned(),
            arguments: vec![("v".to_owned(), CqlType::Text)],
            returns: CqlType::Text,
            called_on_null_input: false,
            language: "java".to_owned(),
            body: "return v + v;".to_owned(),
        };
        let change = SchemaChange::CreateFunction(Box::new(foreign));
        cluster::change_schema(&change).await.expect("a function");
        assert_eq!(one(&engine, "ks.twice(i)").await, "14");
        let told = error(&engine, "SELECT ks.twice(t) FROM t WHERE k = 1").await;
        assert!(told.contains("Invalid language 'java' for function 'ks.twice'"), "{told}");
    });
}

#[test]
fn states_of_shards_become_one_by_reducefunc() {
    for shards in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, |engine| async move {
            run(&engine, "CREATE TABLE ks.n (k int PRIMARY KEY, v int)").await;
            lua(&engine, "count_up", "s bigint, v int", "bigint", "return s + (v or 0)").await;
            lua(&engine, "join", "a bigint, b bigint", "bigint", "return a + b").await;
            lua(
                &engine,
                "broken",
                "s bigint, v int",
                "bigint",
                "if v == 77 then error('no 77') end return s",
            )
            .await;
            run(
                &engine,
                "CREATE AGGREGATE ks.total(int) SFUNC count_up STYPE bigint REDUCEFUNC join INITCOND 0",
            )
            .await;
            run(
                &engine,
                "CREATE AGGREGATE ks.fails(int) SFUNC broken STYPE bigint REDUCEFUNC join INITCOND 0",
            )
            .await;
            lua(&engine, "plain_sum", "s bigint, v int", "bigint", "return s").await;
            run(&engine, "CREATE AGGREGATE ks.plain(int) SFUNC plain_sum STYPE bigint INITCOND 0").await;
            assert_eq!(
                rows(&engine, "SELECT * FROM system_schema.scylla_aggregates").await,
                [
                    "'ks' | 'fails' | ['int'] | 'join' | 'bigint'",
                    "'ks' | 'total' | ['int'] | 'join' | 'bigint'"
                ]
            );
            // Without rows there is the initial state.
            assert_eq!(rows(&engine, "SELECT total(v), count(*) FROM n").await, ["0 | 0"]);
            for k in 0..100 {
                run(&engine, &format!("INSERT INTO n (k, v) VALUES ({k}, {k})")).await;
            }
            assert_eq!(rows(&engine, "SELECT total(v), max(v) FROM n").await, ["4950 | 99"]);
            // On whichever shard a function fails, the client gets its name.
            match body(&engine, "SELECT fails(v) FROM n").await {
                Err(QueryError::FunctionFailure { keyspace, function, arguments, message }) => {
                    assert_eq!((keyspace.as_str(), function.as_str()), ("ks", "broken"));
                    assert_eq!(arguments, ["bigint", "int"]);
                    assert!(message.contains("no 77"), "{message}");
                }
                other => panic!("{other:?}"),
            }
        });
    }
}

#[test]
fn lua_takes_and_gives_values_of_every_type() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 2, |engine| async move {
        table(&engine).await;
        for (column, ty) in [
            ("i", "int"),
            ("b", "bigint"),
            ("d", "double"),
            ("de", "decimal"),
            ("vi", "varint"),
            ("t", "text"),
            ("bl", "blob"),
            ("da", "date"),
            ("ts", "timestamp"),
            ("du", "duration"),
            ("u", "uuid"),
            ("l", "list<int>"),
            ("s", "set<text>"),
            ("m", "map<text, int>"),
            ("p", "point"),
            ("tup", "tuple<int, text>"),
            ("v", "vector<float, 2>"),
            ("bo", "boolean"),
        ] {
            lua(&engine, &format!("same_{column}"), &format!("x {ty}"), ty, "return x").await;
            assert_eq!(
                one(&engine, &format!("to_json(ks.same_{column}({column}))")).await,
                one(&engine, &format!("to_json({column})")).await,
                "{ty}"
            );
            assert_eq!(
                rows(&engine, &format!("SELECT same_{column}({column}) FROM t WHERE k = 2")).await,
                Vec::<String>::new()
            );
        }
        lua(&engine, "sum2", "a int, b int", "int", "return (a or 100) + (b or 0)").await;
        assert_eq!(one(&engine, "sum2(i, 5)").await, "12");
        assert_eq!(one(&engine, "sum2(null, i)").await, "107");
        lua(
            &engine,
            "total",
            "l list<int>",
            "bigint",
            "local s = 0; for _, v in ipairs(l) do s = s + v end return s",
        )
        .await;
        assert_eq!(one(&engine, "total(l)").await, "4");
        lua(&engine, "shift", "p point", "point", "return { x = p.x + 1, y = p.y }").await;
        assert_eq!(one(&engine, "to_json(shift(p))").await, "'{\"x\": 2, \"y\": 2}'");
        run(&engine, "INSERT INTO t (k, i) VALUES (2, sum2(1, 2))").await;
        assert_eq!(rows(&engine, "SELECT i FROM t WHERE k = sum2(1, 1)").await, ["3"]);
        let prepared = prepare(&engine, "UPDATE t SET i = ks.sum2(?, 1) WHERE k = 2").await.unwrap();
        assert_eq!(prepared.markers, ["arg0(ks.sum2) int"]);
        prepared.execute(&engine, &Options::values([int(41)])).await.unwrap();
        assert_eq!(rows(&engine, "SELECT i FROM t WHERE k = 2").await, ["42"]);
    });
}

#[test]
fn a_function_that_fails_or_runs_too_long_says_so_and_nothing_else_happens() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, patient, |engine| async move {
        table(&engine).await;
        lua(&engine, "fails", "a int", "int", "error('no ' .. a)").await;
        match body(&engine, "SELECT fails(i) FROM t").await.unwrap_err() {
            QueryError::FunctionFailure { keyspace, function, arguments, message } => {
                assert_eq!((keyspace.as_str(), function.as_str()), ("ks", "fails"));
                assert_eq!(arguments, ["int"]);
                assert!(message.starts_with("execution of 'ks.fails[int]' failed: "), "{message}");
                assert!(message.contains("no 7"), "{message}");
            }
            other => panic!("{other}"),
        }
        for (name, source, problem) in [
            ("spins", "while true do end", "took more than"),
            ("fills", "local t = {} while true do t[#t + 1] = ('x'):rep(10000) .. #t end", "memory"),
            ("opens", "return io.open('/etc/passwd')", "io"),
            ("loads", "return load('return 1')()", "load"),
            ("hides", "while true do pcall(function() while true do end end) end", "took more than"),
            (
                "hoards",
                "local t = {} while true do pcall(function() t[#t + 1] = ('x'):rep(1000) .. #t end) end",
                // Out of memory, or of instructions with the collector, or of time: "memory", "more",
                // "longer".
                "o",
            ),
            ("shifts", "local t = {} for n = 1, 1000000 do table.insert(t, 1, n) end", "took more than"),
            ("repeats", "local s for n = 1, 100000 do s = ('x'):rep(1000000) end", "took more than"),
            (
                "sorts",
                "local t = {} for n = 1, 200000 do t[n] = -n end for n = 1, 1000 do table.sort(t) end",
                "took more than",
            ),
            (
                "formats",
                "local s = ('x'):rep(1000000) for n = 1, 1000000 do local _ = s:upper() end",
                "took more than",
            ),
            ("recurses", "local function f(n) return 1 + f(n + 1) end return f(1)", "memory"),
            ("nests", "local function f() return pcall(f) end return f() and 1 or 0", ""),
            ("wraps", "return 1 << 40", "Unable to make int from '1099511627776'"),
            ("texts", "return {}", "a Lua table was returned where a int is declared"),
        ] {
            lua(&engine, name, "a int", "int", source).await;
            if problem.is_empty() {
                // However it ends, it ends.
                let _ = body(&engine, &format!("SELECT {name}(i) FROM t")).await;
                continue;
            }
            let found = error(&engine, &format!("SELECT {name}(i) FROM t")).await;
            assert!(found.contains(problem), "{name}: {found}");
        }
        lua(
            &engine,
            "catches",
            "a int",
            "text",
            "local ok, why = pcall(error, 'my ' .. a, 0) return tostring(ok) .. ' ' .. why",
        )
        .await;
        assert_eq!(one(&engine, "catches(i)").await, "'false my 7'");
        lua(
            &engine,
            "passes",
            "a int",
            "int",
            "local ok, x, y = pcall(function(n) return n, 1 end, a) return x + y",
        )
        .await;
        assert_eq!(one(&engine, "passes(i)").await, "8");
        lua(&engine, "counts", "a int", "int", "seen = (seen or 0) + 1; math.x = seen; return seen").await;
        assert_eq!(one(&engine, "counts(i)").await, "1");
        assert_eq!(one(&engine, "counts(i)").await, "1");
        let refused = error(
            &engine,
            "CREATE FUNCTION ks.bad(a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return )'",
        )
        .await;
        assert!(refused.starts_with("Could not compile function 'ks.bad' from lua source: "), "{refused}");
    });
}

const FIB: &str = r#"CREATE FUNCTION ks.fib (input bigint) RETURNS NULL ON NULL INPUT RETURNS bigint LANGUAGE wasm AS '
    (module
        (func $fib (param $n i64) (result i64)
            (if (i64.lt_s (local.get $n) (i64.const 2)) (then (return (local.get $n))))
            (i64.add
                (call $fib (i64.sub (local.get $n) (i64.const 1)))
                (call $fib (i64.sub (local.get $n) (i64.const 2)))))
        (memory 2)
        (export "memory" (memory 0))
        (export "fib" (func $fib))
        (global i32 (i32.const 1024))
        (export "_scylla_abi" (global 0))
        (data (i32.const 1024) "\01"))'"#;

/// Returns its argument, including null.
const SAME: &str = r#"CREATE FUNCTION ks.same (input text) CALLED ON NULL INPUT RETURNS text LANGUAGE wasm AS '
    (module
        (func $same (param i64) (result i64) (local.get 0))
        (func $malloc (param i32) (result i32) (i32.const 2048))
        (func $free (param i32))
        (memory 1)
        (export "memory" (memory 0))
        (export "same" (func $same))
        (export "_scylla_malloc" (func $malloc))
        (export "_scylla_free" (func $free))
        (global i32 (i32.const 1024))
        (export "_scylla_abi" (global 0))
        (data (i32.const 1024) "\02"))'"#;

#[test]
fn webassembly_computes_within_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, patient, |engine| async move {
        table(&engine).await;
        run(&engine, FIB).await;
        assert_eq!(one(&engine, "fib(b)").await, "21");
        run(&engine, SAME).await;
        assert_eq!(one(&engine, "same(t)").await, "'abc'");
        assert_eq!(one(&engine, "same(null)").await, "null");
        run(&engine, "UPDATE t SET b = 60 WHERE k = 1").await;
        let found = error(&engine, "SELECT fib(b) FROM t").await;
        assert!(found.contains("fuel"), "{found}");
        let other = FIB.replace("ks.fib (input bigint)", "ks.fib (input int)");
        let found = error(&engine, &other).await;
        assert!(found.contains("its declaration asks for"), "{found}");
        let found =
            error(&engine, &FIB.replace("\"_scylla_abi\"", "\"abi\"").replace("ks.fib", "ks.gib")).await;
        assert!(found.contains("exports no function gib"), "{found}");
    });
}

/// Functions of numbers alone, as in ScyllaDB's documentation: an `if` in the older syntax, and a mark that
/// is not at its address, as in AssemblyScript's output.
#[test]
fn documented_modules_of_numbers_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, patient, |engine| async move {
        table(&engine).await;
        let older = FIB.replace("(then (return (local.get $n)))", "(return (local.get $n))");
        assert_ne!(older, FIB);
        run(&engine, &older).await;
        assert_eq!(one(&engine, "fib(b)").await, "21");
        let elsewhere =
            FIB.replace("\"\\01\"", "\"\\20\\04\\00\\00\"").replace("CREATE", "CREATE OR REPLACE");
        assert_ne!(elsewhere, FIB);
        run(&engine, &elsewhere).await;
        assert_eq!(one(&engine, "fib(b)").await, "21");
        // Functions with values in memory have to declare their calling convention.
        let serialised = SAME.replace("\"\\02\"", "\"\\03\"");
        let found = error(&engine, &serialised).await;
        assert!(found.contains("version 3 of the calling convention"), "{found}");
        let unmarked =
            FIB.replace("(export \"_scylla_abi\" (global 0))", "").replace("CREATE", "CREATE OR REPLACE");
        let found = error(&engine, &unmarked).await;
        assert!(found.contains("no global _scylla_abi"), "{found}");
    });
}

/// A module with one function `f(i32) -> i32` with that body, and further items.
fn module(more: &str, instructions: &str) -> String {
    format!(
        r#"CREATE OR REPLACE FUNCTION ks.f (a int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE wasm AS '
        (module {more}
            (func $f (param $a i32) (result i32) {instructions})
            (memory 1)
            (export "memory" (memory 0))
            (export "f" (func $f))
            (global i32 (i32.const 1024))
            (export "_scylla_abi" (global 0))
            (data (i32.const 1024) "\01"))'"#
    )
}

#[test]
fn hostile_modules_are_refused_or_end() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, patient, |engine| async move {
        table(&engine).await;
        // Errors while it runs.
        for (what, more, instructions, problem) in [
            ("an endless loop", "", "(loop $l (br $l)) (i32.const 1)", "fuel"),
            (
                "memory without end",
                "",
                "(loop $l (drop (memory.grow (i32.const 1))) (br $l)) (i32.const 1)",
                "fuel",
            ),
            ("deep recursion", "", "(call $f (local.get $a))", ""),
            ("a place outside of memory", "", "(i32.load (i32.const 99999999))", "out of bounds"),
            ("a division by zero", "", "(i32.div_s (local.get $a) (i32.const 0))", "divi"),
            ("unreachable", "", "(unreachable)", "unreachable"),
            (
                "an import",
                r#"(import "wasi" "clock" (func $clock (result i32)))"#,
                "(call $clock)",
                "the function called wasi.clock, which is not there",
            ),
            (
                "large fills",
                "",
                "(drop (memory.grow (i32.const 200))) (loop $l (memory.fill (i32.const 0) (i32.const 1) (i32.const 13000000)) (br $l)) (i32.const 1)",
                "fuel",
            ),
        ] {
            run(&engine, &module(more, instructions)).await;
            let found = error(&engine, "SELECT f(i) FROM t").await;
            assert!(found.contains(problem), "{what}: {found}");
        }
        // The module is informed when memory is refused.
        run(&engine, &module("", "(memory.grow (i32.const 60000))")).await;
        assert_eq!(one(&engine, "f(i)").await, "-1");
        // Errors of the module itself.
        for (what, more) in [
            ("a start function that never ends", "(start $s) (func $s (loop $l (br $l)))"),
            ("a huge table", "(table 100000000 funcref)"),
            ("an imported memory", r#"(import "a" "b" (global i32))"#),
            ("data outside of memory", r#"(data (i32.const 70000) "x")"#),
            ("an unknown section", "(nothing)"),
        ] {
            let found = error(&engine, &module(more, "(local.get $a)")).await;
            assert!(
                found.starts_with("Could not compile function 'ks.f' from wasm source: "),
                "{what}: {found}"
            );
        }
        // Large numbers of items that each call would have to create.
        for (what, count, more, problem) in [
            ("imports", 200, r#"(import "a" "b" (func))"#, "imports 200 things"),
            ("globals", 2000, "(global i32 (i32.const 0))", "global"),
            ("segments of data", 2000, r#"(data (i32.const 0) "x")"#, "data"),
            (
                "functions",
                12_000,
                "(func (nop) (nop) (nop) (nop) (nop) (nop) (nop) (nop) (nop) (nop))",
                "function",
            ),
        ] {
            let found = error(&engine, &module(&more.repeat(count), "(local.get $a)")).await;
            assert!(found.starts_with("Could not compile function 'ks.f'"), "{what}: {found}");
            assert!(found.contains(problem), "{what}: {found}");
        }
        let huge = module("", "(local.get $a)").replace("(memory 1)", "(memory 60000)");
        assert!(error(&engine, &huge).await.contains("Could not compile"), "a huge memory");
        let deep = format!("{}(local.get $a){}", "(i32.add (i32.const 1) ".repeat(3000), ")".repeat(3000));
        // It may be refused or computed, but the node stays.
        let _ = body(&engine, &module("", &deep)).await;
        assert_eq!(one(&engine, "i").await, "7");
    });
}

#[test]
fn functions_and_aggregates_are_part_of_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    let workdir = folder.path().to_owned();
    node(&workdir, 2, |engine| async move {
        let create = "FUNCTION ks.f(a int, b list<text>) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua AS 'return a'";
        run(&engine, &format!("CREATE {create}")).await;
        assert_eq!(error(&engine, &format!("CREATE {create}")).await, "Function 'f' already exists");
        run(&engine, &format!("CREATE OR REPLACE {}", create.replace("return a", "return a + 1"))).await;
        run(&engine, &create.replace("FUNCTION", "CREATE FUNCTION IF NOT EXISTS")).await;
        for (statement, expected) in [
            (
                "CREATE OR REPLACE FUNCTION IF NOT EXISTS f(a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS ''",
                "Cannot use both 'OR REPLACE' and 'IF NOT EXISTS' directives",
            ),
            (
                "CREATE OR REPLACE FUNCTION f(a int, b list<text>) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS ''",
                "Function 'f' must have CALLED ON NULL INPUT directive",
            ),
            (
                "CREATE OR REPLACE FUNCTION f(a int, b list<text>) RETURNS NULL ON NULL INPUT RETURNS text LANGUAGE lua AS ''",
                "Cannot replace function 'f', the new return type text is not compatible with the return type int of existing function",
            ),
            (
                "CREATE FUNCTION g(a frozen<list<int>>) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS ''",
                "Argument 'frozen<list<int>>' cannot be frozen; remove frozen<> modifier from 'frozen<list<int>>'",
            ),
            (
                "CREATE FUNCTION g(a int, a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS ''",
                "Duplicate argument names for given function g with argument names [a, a]",
            ),
            (
                "CREATE FUNCTION g(a int) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS 'return a;'",
                "Invalid language 'java' for function 'ks.g': functions may be written in lua or wasm",
            ),
            ("DROP FUNCTION g", "Function 'ks.g' doesn't exist"),
            ("DROP FUNCTION f(int)", "Function 'ks.f(int)' doesn't exist"),
            ("DROP AGGREGATE g", "Aggregate 'ks.g' doesn't exist"),
            (
                "CREATE AGGREGATE a(int) SFUNC nope STYPE int",
                "State function ks.nope(int, int) doesn't exist",
            ),
        ] {
            assert_eq!(error(&engine, statement).await, expected);
        }
        run(
            &engine,
            "CREATE FUNCTION plus(s int, v int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua AS 'return s + v'",
        )
        .await;
        run(
            &engine,
            "CREATE FUNCTION show(s int) CALLED ON NULL INPUT RETURNS text LANGUAGE lua AS 'return tostring(s)'",
        )
        .await;
        assert_eq!(
            error(&engine, "CREATE AGGREGATE total(int) SFUNC plus STYPE int").await,
            "Cannot create aggregate 'total' without INITCOND because state function ks.plus does not accept 'null' \
             arguments"
        );
        run(
            &engine,
            "CREATE AGGREGATE total(int) SFUNC plus STYPE int REDUCEFUNC plus FINALFUNC show INITCOND 10",
        )
        .await;
        assert_eq!(
            error(&engine, "DROP FUNCTION plus").await,
            "Function 'ks.plus' is still referenced by aggregates ks.total"
        );
        run(&engine, "CREATE TABLE t (k int PRIMARY KEY, i int)").await;
        for (statement, expected) in [
            (
                "CREATE AGGREGATE a(int) SFUNC plus STYPE int INITCOND 'ten'",
                "Invalid STRING constant (ten) for \"(dummy)\" of type int",
            ),
            (
                "CREATE AGGREGATE a(int) SFUNC plus STYPE int INITCOND 1.5",
                "Invalid FLOAT constant (1.5) for \"(dummy)\" of type int",
            ),
            (
                "SELECT k FROM t WHERE k = total(1)",
                "Aggregation function are not supported in the where clause",
            ),
            (
                "INSERT INTO t (k, i) VALUES (1, ks.total(1))",
                "Aggregation function are not supported in the where clause",
            ),
        ] {
            assert_eq!(error(&engine, statement).await, expected, "{statement}");
        }
    });
    node(&workdir, 2, |engine| async move {
        let described = rows(&engine, "DESCRIBE FUNCTION ks.f").await;
        assert_eq!(
            described,
            [
                "'ks' | 'function' | 'f(int, list<text>)' | 'CREATE FUNCTION ks.f(a int, b list<text>)\n    RETURNS NULL ON \
              NULL INPUT\n    RETURNS int\n    LANGUAGE lua\n    AS $$return a + 1$$;'"
            ]
        );
        let described = rows(&engine, "DESCRIBE AGGREGATE ks.total").await;
        assert_eq!(
            described,
            [
                "'ks' | 'aggregate' | 'total(int)' | 'CREATE AGGREGATE ks.total(int)\n    SFUNC plus\n    STYPE int\n    \
              REDUCEFUNC plus\n    FINALFUNC show\n    INITCOND 10;'"
            ]
        );
        assert_eq!(
            rows(&engine, "SELECT aggregate_name, argument_types, initcond, return_type, state_func FROM system_schema.aggregates").await,
            ["'total' | ['int'] | '10' | 'text' | 'plus'"]
        );
        assert_eq!(
            rows(&engine, "SELECT function_name, argument_types, argument_names, called_on_null_input, language, return_type \
                           FROM system_schema.functions WHERE keyspace_name = 'ks' AND function_name = 'f'").await,
            ["'f' | ['int', 'list<text>'] | ['a', 'b'] | false | 'lua' | 'int'"]
        );
        run(&engine, "CREATE TABLE n (k int, c int, v int, PRIMARY KEY (k, c))").await;
        for (k, c, v) in [(1, 1, "5"), (1, 2, "null"), (1, 3, "7"), (2, 1, "1")] {
            run(&engine, &format!("INSERT INTO n (k, c, v) VALUES ({k}, {c}, {v})")).await;
        }
        assert_eq!(rows(&engine, "SELECT total(v), ks.total(c), count(v) FROM n").await, ["'23' | '17' | 3"]);
        assert_eq!(rows(&engine, "SELECT k, total(v) FROM n GROUP BY k").await, ["1 | '22'", "2 | '11'"]);
        assert_eq!(rows(&engine, "SELECT total(plus(v, 1)) FROM n WHERE k = 1").await, ["'24'"]);
        assert_eq!(
            error(&engine, "SELECT total(max(v)) FROM n").await,
            "aggregate functions cannot be used as arguments of aggregate functions"
        );
        assert_eq!(
            error(&engine, "SELECT total(v, v) FROM n").await,
            "Invalid number of arguments in call to function ks.total: 1 required but 2 provided"
        );
        run(&engine, "DROP AGGREGATE total").await;
        run(&engine, "DROP FUNCTION plus").await;
        run(&engine, "DROP FUNCTION IF EXISTS plus").await;
        run(&engine, "DROP FUNCTION f(int, list<text>)").await;
        assert_eq!(rows(&engine, "DESCRIBE FUNCTIONS").await, ["'ks' | 'function' | 'show(int)'"]);
    });
}

/// A statement that calls a function of another keyspace is prepared again after the function changed.
#[test]
fn prepared_statements_forget_functions_of_other_keyspaces() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 2, |engine| async move {
        const STATEMENT: &str = "SELECT k, Other.twice((text)?) FROM t";
        let make = |engine: Engine, signature: &'static str| async move {
            run(
                &engine,
                &format!(
                    "CREATE FUNCTION other.twice({signature}) CALLED ON NULL INPUT RETURNS text LANGUAGE lua AS \
                     'return a .. a'"
                ),
            )
            .await;
        };
        run(
            &engine,
            "CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        )
        .await;
        run(&engine, "CREATE TABLE t (k int PRIMARY KEY)").await;
        make(engine.clone(), "a text").await;
        make(engine.clone(), "a int").await;
        prepare(&engine, STATEMENT).await.unwrap();
        prepare(&engine, "SELECT k FROM t").await.unwrap();
        run(&engine, "DROP FUNCTION other.twice(text)").await;
        let refused = prepare(&engine, STATEMENT).await.map(|prepared| prepared.markers);
        assert_eq!(
            refused.unwrap_err().to_string(),
            "Type error: (text)? cannot be passed as argument 0 of function other.twice of type int"
        );
        run(&engine, "DROP KEYSPACE other").await;
        assert!(prepare(&engine, STATEMENT).await.is_err());
    });
}

#[test]
fn a_type_that_functions_take_stays_and_says_which() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 1, |engine| async move {
        run(&engine, "CREATE TYPE pair (a int, b int)").await;
        lua(&engine, "first", "p pair", "int", "return p.a").await;
        assert_eq!(
            error(&engine, "DROP TYPE pair").await,
            "Cannot drop user type 'ks.pair' as it is still used by functions ks.first"
        );
    });
}

#[test]
fn slow_functions_are_told_of_and_those_beyond_their_time_end() {
    const SPINS: &str = "local n = 0 for i = 1, 200000 do n = n + i % 3 end return n";
    let folder = tempfile::tempdir().unwrap();
    // Any call takes longer than a nanosecond, and the time of a call in several slices is checked between
    // them.
    let soon: fn(&mut EngineConfig) = |config| {
        config.user_function_times =
            CallTimes { warn: Duration::from_nanos(1), fail: Duration::from_secs(60) };
    };
    node_with(folder.path(), 1, soon, |engine| async move {
        table(&engine).await;
        lua(&engine, "spins", "a int", "int", SPINS).await;
        let warning = "User defined function ks.spins : (int) -> int ran longer than 0ms";
        for statement in [
            "SELECT spins(i) FROM t WHERE k = 1",
            "SELECT k, spins(i), spins(k) FROM t WHERE k = 1",
            "UPDATE t SET i = spins((int)2) WHERE k = 1",
        ] {
            assert_eq!(warnings(&engine, statement).await, [warning], "{statement}");
        }
        // Over the whole table the shards warn.
        assert_eq!(
            warnings(&engine, "SELECT max(spins(i)) FROM t").await,
            ["Aggregation query used without partition key", warning]
        );
    });
    let never: fn(&mut EngineConfig) = |config| {
        config.user_function_times = CallTimes { warn: Duration::ZERO, fail: Duration::from_nanos(1) };
    };
    node_with(folder.path(), 1, never, |engine| async move {
        assert_eq!(
            error(&engine, "SELECT spins(i) FROM t WHERE k = 1").await,
            "execution of 'ks.spins[int]' failed: User defined function ks.spins : (int) -> int ran longer than 0ms"
        );
    });
}
