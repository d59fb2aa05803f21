//! The worst known statements, and the longest time for which each blocks its shard.
//!
//! `cargo test --release -p query --test all worst_statements -- --nocapture --ignored` prints them, the
//! longest first; `ONLY=a,b` runs those whose names contain one of the texts. The test checks no time, only
//! that each statement ends. `long_numbers` and `user_function_slices` check which of them must be refused.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use crate::support::{body, node_with, run};
use crate::user_functions::patient;
use query::Engine;

/// Time that this thread had a core.
fn core_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.try_into().unwrap_or(0))
}

/// Runs `work`; returns the core time of its longest turn, and the number of turns.
async fn longest_turn<T>(work: impl Future<Output = T>) -> (T, Duration, usize) {
    let mut work = pin!(work);
    let (mut longest, mut turns) = (Duration::ZERO, 0);
    let done = poll_fn(|context| {
        let begin = core_time();
        let polled = work.as_mut().poll(context);
        longest = longest.max(core_time() - begin);
        turns += 1;
        polled
    })
    .await;
    (done, longest, turns)
}

fn joined(count: usize, between: &str, part: impl Fn(usize) -> String) -> String {
    (0..count).map(part).collect::<Vec<_>>().join(between)
}

fn nested(depth: usize, open: &str, inner: &str, close: &str) -> String {
    format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
}

/// Tables and functions the statements are about.
async fn prepare_tables(engine: &Engine) {
    run(
        engine,
        "CREATE TABLE ks.t (k int, c int, v int, x text, b blob, n varint, d decimal, m map<int, int>, mt map<text, text>, \
         s set<int>, st set<text>, l list<int>, ll frozen<list<list<list<int>>>>, sd set<decimal>, tu tuple<int, text>, \
         PRIMARY KEY (k, c))",
    )
    .await;
    run(engine, "CREATE TABLE ks.p (a int, b int, c int, d int, v int, PRIMARY KEY ((a, b), c, d))").await;
    for c in 0..2_000 {
        let digits = "7".repeat(200);
        run(
            engine,
            &format!(
                "INSERT INTO t (k, c, v, x, n, d, l) VALUES (1, {c}, {c}, 'text {c}', {digits}, 1.{digits}, [1, 2, 3])"
            ),
        )
        .await;
    }
    let function = |name: &str, body: &str| {
        format!(
            "CREATE FUNCTION ks.{name}(a int) CALLED ON NULL INPUT RETURNS text LANGUAGE lua AS $${body}$$"
        )
    };
    for (name, source) in LUA {
        run(engine, &function(name, source)).await;
    }
}

const LUA: [(&str, &str); 12] = [
    ("spins", "while true do end"),
    ("repeats", "return string.rep('', 1e12)"),
    ("copies", "local s = ('x'):rep(4000000) for n = 1, 100 do s = s:sub(2) .. 'y' end return ''"),
    ("doubles", "local s = 'x' for n = 1, 60 do s = s .. s end return s"),
    (
        "compares",
        "local a = ('\\0'):rep(1000000) local b = a .. 'b' local n = 0 while true do if a < b then n = n + 1 end end",
    ),
    ("joins", "local a = ('x'):rep(3000000) while true do local b = a .. a end"),
    ("tables", "local t = {} for n = 1, 1000000 do t[n] = n end return ''"),
    ("shifts", "local t = {} for n = 1, 100000 do t[n] = n end while true do table.insert(t, 1, 1) end"),
    (
        "sorts",
        "local t = {} for n = 1, 100 do t[n] = ('\\0'):rep(100000) end while true do table.sort(t) end",
    ),
    ("keys", "local t = {} local s = ('x'):rep(1000000) for n = 1, 1000 do t[s .. n] = nil end return ''"),
    (
        "walks",
        "local t = {} for n = 1, 200000 do t[n] = n end for n = 1, 200000 do t[n] = nil end while true do next(t) end",
    ),
    ("reads", "local s = ('0'):rep(3000000) while true do local n = tonumber(s) end"),
];

/// Statements that a client may send, by name.
fn statements() -> Vec<(String, String)> {
    let number = |digits: usize| "7".repeat(digits);
    let ints = |count| joined(count, ", ", |n| (n * 7919 % count).to_string());
    let pairs = |count| joined(count, ", ", |n| format!("{}: {n}", n * 7919 % count));
    let texts = |count| joined(count, ", ", |n| format!("'text {n}'"));
    let mut all: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, text: String| all.push((name.to_owned(), text));
    let insert = |column: &str, value: &str| format!("INSERT INTO t (k, c, {column}) VALUES (9, 9, {value})");
    for count in [1_000, 20_000] {
        add(&format!("map literal of {count}"), insert("m", &format!("{{{}}}", pairs(count))));
        let of_texts = joined(count, ", ", |n| format!("'key {n}': 'value {n}'"));
        add(&format!("map literal of {count} texts"), insert("mt", &format!("{{{of_texts}}}")));
        add(&format!("set literal of {count}"), insert("s", &format!("{{{}}}", ints(count))));
        add(&format!("set literal of {count} texts"), insert("st", &format!("{{{}}}", texts(count))));
        add(&format!("list literal of {count}"), insert("l", &format!("[{}]", ints(count))));
        let decimals = joined(count, ", ", |n| format!("{n}.5e{}", n % 300));
        add(&format!("set literal of {count} decimals"), insert("sd", &format!("{{{decimals}}}")));
        let lists = joined(count, ", ", |n| format!("[[{n}], [{n}, 2]]"));
        add(&format!("list of {count} lists"), insert("ll", &format!("[{lists}]")));
        add(
            &format!("UPDATE that appends {count}"),
            format!("UPDATE t SET l = l + [{}] WHERE k = 9 AND c = 8", ints(count)),
        );
        // After the UPDATE that appends to it.
        let set = |n: usize| format!("l[{}] = {n}", n * 7919 % 1_000);
        add(
            &format!("UPDATE of {count} elements of a list"),
            format!("UPDATE t SET {} WHERE k = 9 AND c = 8", joined(count, ", ", set)),
        );
        add(
            &format!("UPDATE that takes {count} away"),
            format!("UPDATE t SET s = s - {{{}}} WHERE k = 9 AND c = 8", ints(count)),
        );
        let json = joined(count, ", ", |n| format!("\"{n}\": {n}"));
        add(
            &format!("JSON map of {count}"),
            format!("INSERT INTO t JSON '{{\"k\": 9, \"c\": 7, \"m\": {{{json}}}}}'"),
        );
        add(
            &format!("JSON list of {count}"),
            format!("INSERT INTO t JSON '{{\"k\": 9, \"c\": 7, \"l\": [{}]}}'", ints(count)),
        );
        add(&format!("from_json of {count}"), insert("l", &format!("from_json('[{}]')", ints(count))));
        add(&format!("WHERE k IN of {count}"), format!("SELECT v FROM t WHERE k IN ({})", ints(count)));
        add(
            &format!("WHERE c IN of {count}"),
            format!("SELECT v FROM t WHERE k = 1 AND c IN ({})", ints(count)),
        );
        add(
            &format!("v IN of {count}, filtered"),
            format!("SELECT v FROM t WHERE k = 1 AND v IN ({}) ALLOW FILTERING", ints(count)),
        );
        add(
            &format!("selection of {count}"),
            format!("SELECT {} FROM t WHERE k = 1 LIMIT 1", vec!["v"; count].join(", ")),
        );
        add(
            &format!("calls of {count}"),
            format!("SELECT {} FROM t WHERE k = 1 LIMIT 1", vec!["to_json(x)"; count].join(", ")),
        );
        add(&format!("batch of {count}"), {
            let one = |n| format!("INSERT INTO t (k, c, v) VALUES (9, {n}, {n});");
            format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", joined(count, " ", one))
        });
        add(
            &format!("{count} columns to delete"),
            format!("DELETE {} FROM t WHERE k = 9 AND c = 1", joined(count, ", ", |n| format!("m[{n}]"))),
        );
        add(
            &format!("{count} conditions"),
            format!(
                "UPDATE t SET v = 1 WHERE k = 9 AND c = 1 IF {}",
                joined(count, " AND ", |n| format!("m[{n}] = 1"))
            ),
        );
        add(
            &format!("{count} tuples in IN"),
            format!(
                "SELECT v FROM p WHERE a = 1 AND b = 1 AND (c, d) IN ({})",
                joined(count, ", ", |n| format!("({n}, {n})"))
            ),
        );
    }
    let side = |count| ints(count);
    for count in [50, 140, 1_000] {
        add(
            &format!("IN times IN of {count}"),
            format!("SELECT v FROM p WHERE a IN ({}) AND b IN ({})", side(count), side(count)),
        );
        add(&format!("IN times IN times IN of {count}"), {
            format!(
                "SELECT v FROM p WHERE a = 1 AND b IN ({}) AND c IN ({}) AND d IN ({})",
                side(count),
                side(count),
                side(count)
            )
        });
        add(
            &format!("DELETE of IN times IN of {count}"),
            format!(
                "DELETE FROM p WHERE a = 1 AND b = 1 AND c IN ({}) AND d IN ({})",
                side(count),
                side(count)
            ),
        );
    }
    for digits in [1_000, 20_000, 3_000_000] {
        add(&format!("varint of {digits} digits"), insert("n", &number(digits)));
        add(&format!("decimal of {digits} digits"), insert("d", &format!("0.{}", number(digits))));
        add(&format!("int of {digits} digits"), insert("v", &number(digits)));
        add(
            &format!("JSON number of {digits} digits"),
            format!("INSERT INTO t JSON '{{\"k\": 9, \"c\": 7, \"n\": {}}}'", number(digits)),
        );
        add(
            &format!("JSON decimal of {digits} digits"),
            format!("INSERT INTO t JSON '{{\"k\": 9, \"c\": 7, \"d\": \"{}.5\"}}'", number(digits)),
        );
        add(
            &format!("selected number of {digits} digits"),
            format!("SELECT {} FROM t WHERE k = 1 LIMIT 1", number(digits)),
        );
        add(&format!("text of {digits}"), insert("x", &format!("'{}'", number(digits))));
        add(&format!("text of {digits} quotes"), insert("x", &format!("'{}'", "''".repeat(digits))));
        add(
            &format!("JSON text of {digits} escapes"),
            format!(
                "INSERT INTO t JSON '{{\"k\": 9, \"c\": 7, \"x\": \"{}\"}}'",
                "\\u0041".repeat(digits / 6)
            ),
        );
        add(&format!("blob of {digits}"), insert("b", &format!("0x{}", number(digits & !1))));
        add(
            &format!("{digits} blanks"),
            format!("SELECT v FROM t WHERE k = 1{} LIMIT 1", " ".repeat(digits)),
        );
        add(
            &format!("comment of {digits}"),
            format!("SELECT v FROM t /*{}*/ WHERE k = 1 LIMIT 1", "*".repeat(digits)),
        );
        add(&format!("name of {digits}"), format!("SELECT {} FROM t WHERE k = 1", "n".repeat(digits)));
    }
    add("20 numbers of 20,000 digits", insert("l", &format!("[{}]", vec![number(20_000); 20].join(", "))));
    for chain in ["n * n", "d * d", "d / 3", "n + n", "v + v"] {
        let (first, rest) = chain.split_once(' ').unwrap();
        add(
            &format!("{chain}, 900 times"),
            format!("SELECT {first} {} FROM t WHERE k = 1", vec![rest; 900].join(" ")),
        );
        add(&format!("{chain} over rows"), format!("SELECT sum({chain}) FROM t WHERE k = 1"));
    }
    add("exp of 200 digits over rows", "SELECT exp(d) FROM t WHERE k = 1".to_owned());
    add("log of 200 digits over rows", "SELECT log(d) FROM t WHERE k = 1".to_owned());
    add("a chain of 900 in a term", insert("v", &vec!["1"; 900].join(" + ")));
    add("minus signs", format!("SELECT {}v FROM t WHERE k = 1 LIMIT 1", "- ".repeat(250)));
    add("parentheses", format!("SELECT {} FROM t WHERE k = 1 LIMIT 1", nested(250, "(", "v", ")")));
    add(
        "calls inside calls",
        format!("SELECT {} FROM t WHERE k = 1 LIMIT 1", nested(130, "to_json(", "v", ")")),
    );
    add("calls inside calls in a term", insert("x", &nested(130, "to_json(", "(int) 1", ")")));
    add(
        "sets of tuples inside each other",
        insert("x", &format!("to_json({})", nested(60, "({", "((int) 1, (int) 2)", "}, (int) 3)"))),
    );
    add("lists inside each other", insert("x", &format!("to_json({})", nested(130, "[", "(int) 1", "]"))));
    add("a set of unlike literals", insert("x", &format!("to_json({{{}, 'x'}})", ints(20_000))));
    add("JSON inside JSON", insert("l", &format!("from_json('{}')", nested(250, "[", "1", "]"))));
    add(
        "types inside each other",
        format!("CREATE TABLE ks.deep (k int PRIMARY KEY, v {})", nested(130, "frozen<list<", "int", ">>")),
    );
    add(
        "a table of 5,000 columns",
        format!("CREATE TABLE ks.wide (k int PRIMARY KEY, {})", joined(5_000, ", ", |n| format!("c{n} int"))),
    );
    add(
        "a type of 5,000 fields",
        format!("CREATE TYPE ks.wide ({})", joined(5_000, ", ", |n| format!("f{n} int"))),
    );
    add("ORDER BY in memory", "SELECT c, v FROM t WHERE k IN (1, 2, 3) ORDER BY c DESC".to_owned());
    add("GROUP BY", "SELECT c, count(*), sum(v), avg(d), max(x) FROM t WHERE k = 1 GROUP BY k, c".to_owned());
    add("all as JSON", "SELECT JSON * FROM t WHERE k = 1".to_owned());
    add("the whole table", "SELECT * FROM t".to_owned());
    add("a filter over the whole table", "SELECT c FROM t WHERE x = 'text 7' ALLOW FILTERING".to_owned());
    for (name, _) in LUA {
        add(&format!("Lua {name}"), format!("SELECT {name}(v) FROM t WHERE k = 1 LIMIT 1"));
    }
    all
}

/// All end: the test does.
#[test]
#[ignore = "it prints times, which are read by people: see the top of the file"]
fn the_longest_turns_of_the_worst_statements() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, patient, |engine| async move {
        prepare_tables(&engine).await;
        let mut found = Vec::new();
        let only = std::env::var("ONLY").unwrap_or_default();
        let wanted = |name: &str| only.split(',').any(|part| name.contains(part));
        for (name, text) in statements().into_iter().filter(|(name, _)| wanted(name)) {
            // The last name is the statement that does not end.
            eprintln!("{name}");
            let (done, longest, turns) = longest_turn(body(&engine, &text)).await;
            let outcome = match done {
                Ok(answer) => format!("{} bytes", answer.len()),
                Err(error) => error.to_string().chars().take(60).collect(),
            };
            found.push((longest, name, text.len(), turns, outcome));
        }
        found.sort_by_key(|(longest, ..)| std::cmp::Reverse(*longest));
        println!("{} statements\n{:>10} {:>7} {:>9}  statement", found.len(), "ms", "turns", "bytes");
        for (longest, name, bytes, turns, outcome) in found {
            println!("{:>10.3} {turns:>7} {bytes:>9}  {name}: {outcome}", longest.as_secs_f64() * 1e3);
        }
    });
}

/// Each of these takes 20 ms or more in one go, and has no place where it would wait.
#[test]
fn statements_that_take_long_give_way_in_their_middle() {
    const LONG: [&str; 8] = [
        "UPDATE that appends 20000",
        "UPDATE of 20000 elements of a list",
        "DELETE of IN times IN of 20000",
        "set literal of 20000 decimals",
        "calls inside calls",
        "a chain of 900 in a term",
        "calls of 20000",
        "batch of 20000",
    ];
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, patient, |engine| async move {
        prepare_tables(&engine).await;
        for (name, text) in statements().into_iter().filter(|(name, _)| LONG.contains(&&**name)) {
            let (_, _, turns) = longest_turn(body(&engine, &text)).await;
            assert!(turns >= 10, "{name}: {turns} turns");
        }
    });
}
