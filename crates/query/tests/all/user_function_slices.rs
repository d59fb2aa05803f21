//! Calls of user-defined functions in slices: other tasks run in between, and the result is not affected.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use crate::support::{self, Options, body, int, node_with, prepare, rows, run};
use crate::user_functions::patient;
use query::{Engine, QueryError};
use reactor::Group;
use statement::functions::user::calls::{PAUSED_MAX, of_shard, set_memory};

/// Turns a test waits for a call to be paused.
const TURNS_MAX: usize = 100_000;
/// More than a slice's instructions, several times.
const LONG: &str = "for n = 1, 70000 do end ";

async fn lua(engine: &Engine, name: &str, signature: &str, returns: &str, source: &str) {
    let statement = format!(
        "CREATE FUNCTION ks.{name}({signature}) CALLED ON NULL INPUT RETURNS {returns} LANGUAGE lua AS $${source}$$"
    );
    run(engine, &statement).await;
}

async fn table(engine: &Engine) {
    run(engine, "CREATE TABLE ks.t (k int, c int, v int, s int static, l list<int>, PRIMARY KEY (k, c))")
        .await;
    for k in 1..4 {
        for c in 0..4 {
            run(
                engine,
                &format!("INSERT INTO t (k, c, v, s, l) VALUES ({k}, {c}, {}, {k}, [{c}, 7])", k * 10 + c),
            )
            .await;
        }
    }
    run(engine, "INSERT INTO t (k, s) VALUES (9, 90)").await;
}

/// Polls a statement until a call of it is paused.
async fn until_paused<T>(statement: &mut Pin<Box<impl Future<Output = T>>>) {
    for _ in 0..TURNS_MAX {
        let pending = poll_fn(|context| Poll::Ready(statement.as_mut().poll(context).is_pending())).await;
        assert!(pending, "the statement ended");
        if of_shard().paused > 0 {
            return;
        }
        reactor::yield_now().await;
    }
    panic!("no call was paused");
}

const SPIN: &str = r#"CREATE FUNCTION ks.spin_wasm (a int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE wasm AS '
    (module
        (func $f (param $a i32) (result i32) (loop $l (br $l)) (i32.const 1))
        (memory 1)
        (export "memory" (memory 0))
        (export "spin_wasm" (func $f))
        (global i32 (i32.const 1024))
        (export "_scylla_abi" (global 0))
        (data (i32.const 1024) "\01"))'"#;

#[test]
fn other_statements_are_answered_while_a_function_runs() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, patient, |engine| async move {
        table(&engine).await;
        lua(&engine, "spin", "a int", "int", "while true do end").await;
        lua(&engine, "spin_state", "s int, a int", "int", "while true do end").await;
        lua(&engine, "plus", "s int, a int", "int", "return (s or 0) + (a or 0)").await;
        run(&engine, "CREATE AGGREGATE ks.spins_first(int) SFUNC spin_state STYPE int").await;
        run(&engine, "CREATE AGGREGATE ks.spins_last(int) SFUNC plus STYPE int FINALFUNC spin").await;
        run(&engine, SPIN).await;
        for statement in [
            "SELECT spin(v) FROM t WHERE k = 1 AND c = 1",
            "SELECT spin_wasm(v) FROM t WHERE k = 1",
            "SELECT JSON spin(v) FROM t",
            "SELECT spins_first(v) FROM t",
            "SELECT spins_last(v) FROM t WHERE k = 1",
            "SELECT k, sum(spin(v)) FROM t GROUP BY k",
            "SELECT DISTINCT spin(k) FROM t",
            "SELECT v FROM t WHERE k = spin(1)",
            "SELECT v FROM t WHERE v = spin(1) ALLOW FILTERING",
            "INSERT INTO t (k, c, v) VALUES (1, 1, spin(1))",
            "UPDATE t SET v = spin_wasm(2) WHERE k = 1 AND c = 1",
            "UPDATE t SET v = 1 WHERE k = 1 AND c = 1 IF v = spin(1)",
            "DELETE FROM t WHERE k = 1 AND c = spin(1)",
            "BEGIN BATCH INSERT INTO t (k, c, v) VALUES (1, 1, 5); INSERT INTO t (k, c, v) VALUES (1, 2, spin(1)); APPLY BATCH",
        ] {
            let before = of_shard();
            let of_task = engine.clone();
            let spinning = reactor::spawn(Group::STATEMENT, async move { body(&of_task, statement).await });
            let of_task = engine.clone();
            let answers = reactor::spawn(Group::STATEMENT, async move {
                let mut answers = 0;
                while !spinning.is_finished() {
                    assert_eq!(rows(&of_task, "SELECT v FROM t WHERE k = 1 AND c = 1").await, ["11"]);
                    answers += 1;
                    reactor::yield_now().await;
                }
                (answers, spinning.await.unwrap())
            });
            let (answers, spun) = answers.await.unwrap();
            match spun.unwrap_err() {
                QueryError::FunctionFailure { message, .. } => {
                    assert!(message.contains("took more than") || message.contains("fuel"), "{message}");
                }
                other => panic!("{statement}: {other}"),
            }
            let slices = of_shard().slices - before.slices;
            assert!(slices >= 50, "{statement}: {slices} slices");
            // On a machine that is busy with something else a slice may have been all of a turn.
            assert!(answers >= slices / 4, "{statement}: {answers} answers in {slices} slices");
            assert_eq!(of_shard().paused, 0, "{statement}");
        }
    });
}

#[test]
fn results_are_those_of_a_function_that_never_stops() {
    for shards in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        node_with(folder.path(), shards, patient, |engine| async move {
            table(&engine).await;
            for (name, work) in [("quick", ""), ("long", LONG)] {
                lua(&engine, &format!("{name}_f"), "a int", "int", &format!("{work} return (a or 0) + 1"))
                    .await;
                lua(
                    &engine,
                    &format!("{name}_state"),
                    "s int, a int",
                    "int",
                    &format!("{work} return (s or 0) * 3 % 1000 + (a or 0)"),
                )
                .await;
                lua(
                    &engine,
                    &format!("{name}_sum"),
                    "s int, a int",
                    "int",
                    &format!("{work} return (s or 0) + (a or 0)"),
                )
                .await;
                run(
                    &engine,
                    &format!(
                        "CREATE AGGREGATE ks.{name}_a(int) SFUNC {name}_state STYPE int FINALFUNC {name}_f"
                    ),
                )
                .await;
                run(
                    &engine,
                    &format!(
                        "CREATE AGGREGATE ks.{name}_r(int) SFUNC {name}_sum STYPE int REDUCEFUNC {name}_sum FINALFUNC {name}_f"
                    ),
                )
                .await;
            }
            let before = of_shard().slices;
            for (selected, rest) in [
                ("k, F_f(v)", ""),
                ("F_f(F_f(v)) + F_f(c)", "WHERE k = 2"),
                ("F_f(v)", "WHERE k = 2 ORDER BY c DESC"),
                ("F_f(s)", "PER PARTITION LIMIT 1"),
                ("F_f(v)", "WHERE k IN (3, 1) LIMIT 5"),
                ("c, F_f(v)", "WHERE k IN (3, 1) ORDER BY c"),
                ("DISTINCT F_f(k), F_f(s)", ""),
                ("DISTINCT k, F_f(s)", "GROUP BY k"),
                ("JSON F_f(v) AS f, l", "WHERE k = 3"),
                ("F_a(v)", "WHERE k = 1"),
                ("F_a(F_f(v)), F_a(c), count(*), sum(F_f(c)), F_f(k)", ""),
                ("k, F_a(v), F_f(max(v)), F_f(s)", "GROUP BY k"),
                ("k, c, F_a(v)", "GROUP BY k, c LIMIT 7"),
                ("F_r(v), F_r(c), min(F_f(v))", ""),
                ("F_f(F_r(v))", ""),
                ("v", "WHERE k = F_f(1) AND c > F_f(0)"),
                ("F_f(v)", "WHERE v = F_f(20) ALLOW FILTERING"),
            ] {
                for page in [None, Some(1), Some(3)] {
                    let mut found = Vec::new();
                    for name in ["quick", "long"] {
                        let text =
                            format!("SELECT {selected} FROM t {rest}").replace("F_", &format!("{name}_"));
                        found.push(pages(&engine, &text, page).await);
                    }
                    assert!(found[0].is_ok() || page.is_some(), "{selected} {rest}: {:?}", found[0]);
                    assert_eq!(found[0], found[1], "{selected} {rest}, pages of {page:?}");
                }
            }
            for text in [
                "SELECT key, ks.F_f(listen_port) FROM system.local",
                "SELECT ks.F_f(peer_port) FROM system.peers_v2",
                "SELECT table_name, ks.F_f(gc_grace_seconds) FROM system_schema.tables WHERE keyspace_name = 'ks'",
            ] {
                let quick = rows(&engine, &text.replace("F_", "quick_")).await;
                assert_eq!(rows(&engine, &text.replace("F_", "long_")).await, quick, "{text}");
            }
            assert!(of_shard().slices > before + 100, "the long ones are longer than a slice");
            assert_eq!(of_shard().paused, 0);
        });
    }
}

/// All rows of a SELECT, in pages.
async fn pages(engine: &Engine, text: &str, page: Option<i32>) -> Result<Vec<String>, String> {
    let prepared = prepare(engine, text).await.map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    let mut options = Options { page_size: page, ..Options::default() };
    loop {
        let rows = prepared.execute(engine, &options).await.map_err(|error| error.to_string())?;
        let rows = support::Rows::parse(&rows);
        all.extend(rows.rows);
        assert!(all.len() < 1000, "{text}");
        match rows.paging_state {
            Some(state) => options.paging_state = Some(state),
            None => return Ok(all),
        }
    }
}

#[test]
fn what_is_written_is_what_functions_give_in_slices() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 2, patient, |engine| async move {
        table(&engine).await;
        lua(&engine, "long", "a int", "int", &format!("{LONG} return a + 1")).await;
        run(&engine, "INSERT INTO t (k, c, v, l) VALUES (long(4), long(long(0)), 5, [long(1), long(2)])")
            .await;
        assert_eq!(rows(&engine, "SELECT k, c, v, l FROM t WHERE k = 5").await, ["5 | 2 | 5 | [2, 3]"]);
        run(&engine, "UPDATE t SET v = long(6), l = l + [long(8)] WHERE k = 5 AND c IN (long(1), long(2))")
            .await;
        assert_eq!(
            rows(&engine, "SELECT c, v, l FROM t WHERE k = 5").await,
            ["2 | 7 | [2, 3, 9]", "3 | 7 | [9]"]
        );
        run(
            &engine,
            "BEGIN BATCH UPDATE t SET v = long(1) WHERE k = 6 AND c = 1; UPDATE t SET v = long(2) WHERE k = 6 AND c = 2; \
             APPLY BATCH",
        )
        .await;
        assert_eq!(rows(&engine, "SELECT c, v FROM t WHERE k = 6").await, ["1 | 2", "2 | 3"]);
        run(&engine, "UPDATE t SET v = long(10) WHERE k = 6 AND c = 1 IF v = long(1)").await;
        run(&engine, "DELETE FROM t WHERE k = 6 AND c = long(1)").await;
        assert_eq!(rows(&engine, "SELECT c, v FROM t WHERE k = 6").await, ["1 | 11"]);
        let prepared = prepare(&engine, "INSERT INTO t (k, c, v) VALUES (?, 0, long(?))").await.unwrap();
        for (k, v) in [(20, 1), (21, 2)] {
            prepared.execute(&engine, &Options::values([int(k), int(v)])).await.unwrap();
        }
        assert_eq!(rows(&engine, "SELECT v FROM t WHERE k IN (20, 21)").await, ["2", "3"]);
        // The usual point read, by id, is one that waits here.
        let point = prepare(&engine, "SELECT v FROM t WHERE k = long(?) AND c = long(-1)").await.unwrap();
        let found = point.execute(&engine, &Options::values([int(20)])).await.unwrap();
        assert_eq!(support::Rows::parse(&found).rows, ["3"]);
        // Markers are not taken inside of literals, inside of a call neither.
        let refused = prepare(&engine, "INSERT INTO t (k, c, l) VALUES (1, 1, [long(?)])").await.unwrap_err();
        assert!(refused.to_string().contains("bind variables are not supported"), "{refused}");
        assert_eq!(of_shard().paused, 0);
    });
}

#[test]
fn an_abandoned_statement_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, patient, |engine| async move {
        table(&engine).await;
        lua(&engine, "spin", "a int", "int", "while true do end").await;
        run(&engine, SPIN).await;
        for statement in [
            "SELECT spin(v) FROM t WHERE k = 1",
            "SELECT spin_wasm(v) FROM t WHERE k = 1",
            "INSERT INTO t (k, c, v) VALUES (1, 1, spin(1))",
        ] {
            let mut given_up = Box::pin(body(&engine, statement));
            until_paused(&mut given_up).await;
            assert_eq!(of_shard().paused, 1, "{statement}");
            drop(given_up);
            assert_eq!(of_shard().paused, 0, "{statement}");
        }
        let late = body(&engine, "SELECT spin(v) FROM t WHERE k = 1 USING TIMEOUT 1ms").await.unwrap_err();
        assert!(matches!(late, QueryError::ReadTimeout { required: 1, .. }), "{late}");
        let late = body(&engine, "SELECT spin(v) FROM t USING TIMEOUT 1ms").await.unwrap_err();
        assert!(matches!(late, QueryError::ReadTimeout { required: 1, .. }), "{late}");
        let late = body(&engine, "UPDATE t USING TIMEOUT 1ms SET v = spin(1) WHERE k = 1 AND c = 1")
            .await
            .unwrap_err();
        assert!(
            matches!(
                late,
                QueryError::WriteTimeout { required: 1, write_type: wire::error::WriteType::Simple, .. }
            ),
            "{late}"
        );
        assert_eq!(of_shard().paused, 0);
        assert_eq!(rows(&engine, "SELECT v FROM t WHERE k = 1 AND c = 1").await, ["11"]);
    });
}

#[test]
fn a_function_that_is_dropped_goes_on_for_those_who_called_it() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, patient, |engine| async move {
        table(&engine).await;
        lua(&engine, "long", "a int", "int", &format!("{LONG} return a + 1")).await;
        let mut called = Box::pin(rows(&engine, "SELECT long(v), c FROM t WHERE k = 1"));
        until_paused(&mut called).await;
        run(&engine, "DROP FUNCTION long").await;
        lua(&engine, "long", "a int", "int", "return 0").await;
        assert_eq!(rows(&engine, "SELECT long(v) FROM t WHERE k = 1 LIMIT 1").await, ["0"]);
        assert_eq!(
            called.await,
            ["12 | 0", "13 | 1", "14 | 2", "15 | 3"].map(|row| {
                let (v, c) = row.split_once(" | ").unwrap();
                format!("{} | {c}", v.parse::<i32>().unwrap() - 1)
            })
        );
    });
}

#[test]
fn few_calls_hold_memory_at_once_and_the_others_wait() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, patient, |engine| async move {
        table(&engine).await;
        lua(&engine, "long", "a int", "int", &format!("{LONG} return a + 1")).await;
        let tasks: Vec<_> = (0..3 * PAUSED_MAX)
            .map(|_| {
                let engine = engine.clone();
                reactor::spawn(Group::STATEMENT, async move {
                    rows(&engine, "SELECT long(v) FROM t WHERE k = 1 AND c = 1").await
                })
            })
            .collect();
        let tasks = Rc::new(tasks);
        let mut most = 0;
        while !tasks.iter().all(|task| task.is_finished()) {
            most = most.max(of_shard().paused);
            reactor::yield_now().await;
        }
        assert_eq!(most, PAUSED_MAX);
        for task in Rc::into_inner(tasks).unwrap() {
            assert_eq!(task.await.unwrap(), ["12"]);
        }
        assert_eq!(of_shard().paused, 0);
    });
}

#[test]
fn lua_stops_inside_of_what_calls_functions() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, patient, |engine| async move {
        table(&engine).await;
        for (name, source, expected) in [
            (
                "protected",
                "local ok, why = pcall(function() for n = 1, 70000 do end error('so', 0) end) \
                 return tostring(ok) .. ' ' .. why",
                "'false so'",
            ),
            (
                "nested",
                "local ok, a, b = pcall(pcall, function() for n = 1, 70000 do end return 3 end) \
                 return tostring(ok) .. ' ' .. tostring(a) .. ' ' .. b",
                "'true true 3'",
            ),
            (
                "sorted",
                "local t = {} for n = 1, 3000 do t[n] = n * 7919 % 3001 end table.sort(t, function(a, b) return a > b end) \
                 for n = 1, 3000 do if t[n] ~= 3001 - n then return 'wrong at ' .. n end end return 'sorted'",
                "'sorted'",
            ),
            (
                "sorted_by_itself",
                "local t = {} for n = 1, 5000 do t[n] = n * 7919 % 5003 end table.sort(t) \
                 for n = 2, 5000 do if t[n - 1] > t[n] then return 'wrong at ' .. n end end return 'sorted'",
                "'sorted'",
            ),
            (
                "iterated",
                "local t, s = {}, 0 for n = 1, 30000 do t[n] = 1 end for _, v in pairs(t) do s = s + v end \
                 for _, v in ipairs(t) do s = s + v end return tostring(s)",
                "'60000'",
            ),
        ] {
            lua(&engine, name, "a int", "text", source).await;
            let before = of_shard().slices;
            assert_eq!(
                rows(&engine, &format!("SELECT {name}(v) FROM t WHERE k = 1 AND c = 1")).await,
                [expected]
            );
            let slices = of_shard().slices - before;
            assert!(slices >= 3, "{name}: {slices} slices");
        }
        for (name, source, problem) in [
            ("sorts_nothing", "table.sort(nil) return ''", "table expected"),
            ("sorts_by_text", "table.sort({1, 2}, 'x') return ''", "function expected"),
            (
                "sorts_unlike",
                "local t = {} for n = 1, 500 do t[n] = n % 2 == 0 and n or {} end table.sort(t)",
                "compare",
            ),
        ] {
            lua(&engine, name, "a int", "text", source).await;
            let error =
                body(&engine, &format!("SELECT {name}(v) FROM t WHERE k = 1")).await.unwrap_err().to_string();
            assert!(error.contains(problem), "{name}: {error}");
        }
    });
}

/// Library functions that would run for ever, or for seconds, without a pause: each ends at a limit, and
/// quickly.
#[test]
fn no_library_function_of_lua_is_asked_for_more_than_a_piece_of_work() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, patient, |engine| async move {
        table(&engine).await;
        let zeros = "local s = ('0'):rep(2000) ";
        for (source, problem) in [
            ("return string.rep('x', 1e12)", "asked for too much at once"),
            ("return string.rep('x', '1000000000000')", "asked for too much at once"),
            ("return string.rep('', 0x7fffffffffffffff, 'y')", "asked for too much at once"),
            ("return string.rep('x', 10, ('y'):rep(1000000))", "asked for too much at once"),
            ("return string.rep('x', 4000000, ('y'):rep(10))", "asked for too much at once"),
            ("return ({table.unpack({}, 1, 900000)})[1]", "asked for too much at once"),
            ("local s = ('x'):rep(900000) return (string.byte(s, 1, -1))", "asked for too much at once"),
            ("local s = ('x'):rep(900000) return (utf8.codepoint(s, 1, -1))", "asked for too much at once"),
            ("return string.pack('c900000000', '')", "asked for too much at once"),
            ("return string.pack(('c9000000'):rep(3), '', '', '')", "asked for too much at once"),
            ("local s = ('x'):rep(4000000) return s:upper()", "asked for too much at once"),
            (
                "local t = {} for n = 1, 200000 do t[n] = 1 end table.insert(t, 1, 1) return ''",
                "asked for too much at once",
            ),
            (
                "local s, t = ('x'):rep(2000000), {} for n = 1, 9 do t[n] = s end return table.concat(t)",
                "asked for too much at once",
            ),
            ("ZEROS return tostring(s + 1)", "a text of 2000 bytes is no number"),
            ("ZEROS return tostring(1 // s)", "a text of 2000 bytes is no number"),
            ("ZEROS return tostring(-s)", "a text of 2000 bytes is no number"),
            ("ZEROS return tostring(math.floor(s))", "a text of 2000 bytes is no number"),
            ("ZEROS return tostring(math.max(1, 2, 3, s))", "a text of 2000 bytes is no number"),
            ("ZEROS return ('x'):rep(s)", "a text of 2000 bytes is no number"),
            ("ZEROS return ('x'):sub(s)", "a text of 2000 bytes is no number"),
            ("ZEROS return select(s, 1)", "a text of 2000 bytes is no number"),
            ("ZEROS return table.concat({1}, '', s)", "a text of 2000 bytes is no number"),
            ("local s = 'x' for n = 1, 60 do s = s .. s end return s", "not enough memory"),
        ] {
            let source = source.replace("ZEROS ", zeros);
            lua(&engine, "asks", "a int", "text", &source).await;
            let error =
                body(&engine, "SELECT asks(v) FROM t WHERE k = 1 AND c = 1").await.unwrap_err().to_string();
            assert!(error.contains(problem), "{source}: {error}");
            run(&engine, "DROP FUNCTION asks").await;
        }
        for (source, expected) in [
            ("return ('ab'):rep(3, '-')", "'ab-ab-ab'"),
            ("return ('ab'):rep('2') .. ('').rep('', 1e12) .. string.rep('', '1000000000000')", "'abab'"),
            ("return ('').rep('', 0x7fffffffffffffff) .. string.rep(7, 3) .. ('x'):rep(2, 1)", "'777x1x'"),
            (
                "local n = 0 for _, k in ipairs({1, 63, 64, 65, 1000, 65535, 65536, 70001}) do \
                 local s, t = ('ab'):rep(k), ('a'):rep(k, '-') n = n + #s + #t \
                 if s:sub(-2) ~= 'ab' or t:sub(-1) ~= 'a' or (k > 1 and t:sub(1, 3) ~= 'a-a') then return 'wrong' end end \
                 return tostring(n == 4 * (1 + 63 + 64 + 65 + 1000 + 65535 + 65536 + 70001) - 8)",
                "'true'",
            ),
            ("return ('ab'):rep(-1) .. ('ab'):rep(0) .. ('ab'):rep(2.0)", "'abab'"),
            ("return ('abcdef'):sub(2, -2) .. ('abc'):sub(-2) .. ('abc'):sub(9)", "'bcdebc'"),
            ("return table.concat({1, 'b', 2.5}, ', ')", "'1, b, 2.5'"),
            ("return table.concat({1, 2, 3}, '-', 2) .. table.concat({})", "'2-3'"),
            (
                "local t = {1, 2, 3} table.insert(t, 1, 0) table.insert(t, 4) table.remove(t, 2) table.remove(t) \
                 return table.concat(t, ' ')",
                "'0 2 3'",
            ),
            ("return string.format('%5.1f|%s|%q|%d', 2.25, 'x', 'a', '7')", "'  2.2|x|\"a\"|7'"),
            ("return tostring('10' + 1) .. tostring(2 * '3') .. tostring(-'2')", "'116-2'"),
            ("return tostring(math.max(1, 7, 3)) .. tostring(math.floor('3.7')) .. math.min(4, 2)", "'732'"),
            (
                "return tostring(tonumber('  12 ')) .. tostring(tonumber('ff', 16)) .. tostring(tonumber('x'))",
                "'12255nil'",
            ),
            ("return tostring(tonumber(('0'):rep(2000)))", "'nil'"),
            (
                "local a, b = ('xyz'):byte(1, 2) return a .. ' ' .. b .. ' ' .. utf8.codepoint('\u{e9}')",
                "'120 121 233'",
            ),
            ("return tostring(select('#', table.unpack({1, 2, 3}))) .. (select(2, 'a', 'b'))", "'3b'"),
            ("local t = {'c', 'a', 'b'} table.sort(t) return table.concat(t)", "'abc'"),
            ("local t = {3, 1, 2} table.sort(t) return table.concat(t)", "'123'"),
            (
                "return string.pack('>I2', 258) .. string.unpack('s1', string.char(3) .. 'abc')",
                "'\u{1}\u{2}abc'",
            ),
            ("return ('x'):rep(2000000):sub(1, 3) .. #(('y'):rep(3000000))", "'xxx3000000'"),
            (
                "local t = {} for n = 1, 20000 do t[n] = ('k'):rep(50) end return tostring(#table.concat(t, ','))",
                "'1019999'",
            ),
        ] {
            lua(&engine, "gives", "a int", "text", source).await;
            assert_eq!(
                rows(&engine, "SELECT gives(v) FROM t WHERE k = 1 AND c = 1").await,
                [expected],
                "{source}"
            );
            run(&engine, "DROP FUNCTION gives").await;
        }
        assert_eq!(of_shard().paused, 0);
    });
}

/// One instruction may work on all the memory of a call, so the more memory a call holds, the shorter its
/// slices are.
#[test]
fn a_call_that_holds_much_is_looked_at_more_often() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, patient, |engine| async move {
        table(&engine).await;
        let source = |bytes: usize| {
            format!(
                "local a, b = ('x'):rep({bytes}) .. 'a', ('x'):rep({bytes}) .. 'b' local n = 0 \
                 for i = 1, 300 do if a < b then n = n + #(a .. b) // #a end end return tostring(n)"
            )
        };
        let mut slices = Vec::new();
        for bytes in [100, 100_000, 2_000_000] {
            lua(&engine, "compares", "a int", "text", &source(bytes)).await;
            let before = of_shard().slices;
            assert_eq!(rows(&engine, "SELECT compares(v) FROM t WHERE k = 1 AND c = 1").await, ["'600'"]);
            slices.push(of_shard().slices - before);
            run(&engine, "DROP FUNCTION compares").await;
        }
        // Texts that are longer than the first slice has room for are made in another.
        assert!(slices[2] > slices[0], "{slices:?}");
    });
}

#[test]
fn sandboxes_hold_no_more_memory_together_than_the_shard_has_for_them() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, patient, |engine| async move {
        const MEMORY_BYTES: usize = 4 << 20;
        set_memory(MEMORY_BYTES);
        table(&engine).await;
        // Each holds a little more than 1 MiB for many slices: three of them have room.
        let hungry = "local text = string.rep('x', 1 << 20) for n = 1, 200000 do end return a + #text";
        lua(&engine, "hungry", "a int", "int", hungry).await;
        // One that holds more than all there is stands still alone.
        let greedy = "local text = string.rep('x', 6 << 20) for n = 1, 100000 do end return a + #text";
        lua(&engine, "greedy", "a int", "int", greedy).await;
        let tasks: Vec<_> = (0..12)
            .map(|at| {
                let engine = engine.clone();
                let function = if at % 6 == 5 { "greedy" } else { "hungry" };
                reactor::spawn(Group::STATEMENT, async move {
                    rows(&engine, &format!("SELECT {function}(c) FROM t WHERE k = 1 AND c = 1")).await
                })
            })
            .collect();
        let (mut most, mut most_paused) = (0, 0);
        while !tasks.iter().all(|task| task.is_finished()) {
            let shard = of_shard();
            assert!(shard.held_bytes <= MEMORY_BYTES, "{shard:?}");
            assert!(shard.held_bytes > 0 || shard.paused == 0, "who stands still holds memory: {shard:?}");
            (most, most_paused) = (most.max(shard.held_bytes), most_paused.max(shard.paused));
            reactor::yield_now().await;
        }
        for (at, task) in tasks.into_iter().enumerate() {
            let expected = if at % 6 == 5 { 1 + (6 << 20) } else { 1 + (1 << 20) };
            assert_eq!(task.await.unwrap(), [expected.to_string()], "call {at}");
        }
        assert!(most > 0 && most_paused > 0, "no look met a call that stood still");
        let after = of_shard();
        assert_eq!((after.paused, after.held_bytes), (0, 0));
    });
}
