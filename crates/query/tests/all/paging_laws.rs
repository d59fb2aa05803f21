//! The law of pages: whatever the data and the statement, pages of any size put together are the answer
//! without pages.
//!
//! Data and statements are made from fixed seeds. Data: static rows, deleted rows, ranges and partitions,
//! cells that expire. Statements: every mix of restrictions, filters, limits, groups, orders and IN. The rows
//! are in the memory of one shard, in that of several, or in table files.

use crate::support::{Options, Rows, node_with, query, run};
use query::{Engine, EngineConfig, QueryError};
use reactor::{Group, mesh};

/// Pages one result may take before the test gives up.
const PAGES_MAX: usize = 5_000;
/// Statements of each seed.
const STATEMENTS: usize = 60;

/// A generator of numbers: xorshift64.
struct Chance(u64);

impl Chance {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.next(choices.len() as u64) as usize]
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next(n) == 0
    }
}

async fn fill(engine: &Engine, chance: &mut Chance) {
    let order = chance.of(&["ASC", "DESC"]);
    let table = format!(
        "CREATE TABLE t (k int, a int, b int, v int, w text, s int static, PRIMARY KEY (k, a, b)) \
         WITH CLUSTERING ORDER BY (a {order}, b {})",
        chance.of(&["ASC", "DESC"])
    );
    run(engine, &table).await;
    let same = "CREATE FUNCTION IF NOT EXISTS ks.same (n int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua AS 'return n'";
    run(engine, same).await;
    for written in 0..220 {
        if written == 110 {
            // Half of it lies in table files.
            for shard in 0..reactor::shard_count() {
                let flushed = mesh::call(shard, Group::ADMIN, || async {
                    Engine::here().unwrap().storage().flush_all().await.is_ok()
                });
                assert!(flushed.await.unwrap());
            }
        }
        let (k, a, b, v) = (chance.next(9), chance.next(6), chance.next(4), chance.next(3));
        let key = format!("k = {k} AND a = {a} AND b = {b}");
        let statement = match chance.next(16) {
            0..=7 => format!("INSERT INTO t (k, a, b, v, w) VALUES ({k}, {a}, {b}, {v}, 'w{v}')"),
            8 => format!("UPDATE t SET v = {v} WHERE {key}"),
            9 => format!("INSERT INTO t (k, s) VALUES ({k}, {v})"),
            10 | 11 => format!("DELETE FROM t WHERE {key}"),
            12 => format!("DELETE v FROM t WHERE {key}"),
            13 => format!("DELETE FROM t WHERE k = {k} AND a > {a} AND a <= {}", a + 2),
            14 => format!("DELETE FROM t WHERE k = {k} AND a = {a}"),
            _ if chance.one_in(3) => format!("DELETE FROM t WHERE k = {k}"),
            _ => format!("UPDATE t USING TTL 100000 SET v = {v} WHERE {key}"),
        };
        run(engine, &statement).await;
    }
}

/// A statement, and whether its rows are of an order that pages must keep.
fn statement(chance: &mut Chance) -> String {
    let grouped = chance.one_in(4);
    let distinct = !grouped && chance.one_in(8);
    let selection = match (grouped, distinct) {
        (true, _) => chance.of(&[
            "k, a, count(*)",
            "k, s, max(v), min(b)",
            "k, a, b, sum(v)",
            "count(w), k",
            "k, max(same(v))",
        ]),
        (_, true) => chance.of(&["DISTINCT k", "DISTINCT k, s"]),
        _ => chance.of(&[
            "*",
            "k, a, b",
            "k, a, b, v, s",
            "s, w",
            "k, a, b, writetime(w)",
            "JSON k, a, b, v",
            "k, a, same(b), s",
        ]),
    };
    let mut relations = Vec::new();
    let mut filtering = false;
    let number = chance.next(9);
    let key = match chance.next(5) {
        0 => Some(format!("k = {number}")),
        1 => Some(format!("k IN ({number}, {}, {}, 77)", chance.next(9), chance.next(9))),
        2 => {
            relations.push(format!("token(k) > {}", (chance.next(8) as i64 - 4) * 2_000_000_000_000_000_000));
            None
        }
        _ => None,
    };
    let has_key = key.is_some();
    let single = key.as_ref().is_some_and(|key| key.contains('='));
    relations.extend(key);
    if !distinct && chance.one_in(2) {
        filtering |= !has_key;
        let (x, y) = (chance.next(6), chance.next(6));
        match chance.next(6) {
            0 => relations.push(format!("a = {x}")),
            1 => relations.push(format!("a > {x}")),
            2 => relations.push(format!("a <= {x}")),
            3 if has_key => relations.push(format!("a IN ({x}, {y})")),
            4 if has_key => relations.push(format!("(a, b) >= ({x}, {})", chance.next(4))),
            5 if has_key => relations.push(format!("a = {x} AND b IN (0, {}, 3)", chance.next(4))),
            _ => relations.push(format!("a >= {x} AND a < {}", x + 3)),
        }
    }
    if !distinct && chance.one_in(3) {
        filtering = true;
        relations.push(chance.of(&["v = 1", "v > 0", "w = 'w2'", "s = 1", "b = 2"]).to_owned());
        if relations.iter().filter(|relation| relation.contains("b ")).count() > 1 {
            relations.pop();
        }
    }
    let mut text = format!("SELECT {selection} FROM t");
    if !relations.is_empty() {
        text.push_str(&format!(" WHERE {}", relations.join(" AND ")));
    }
    if grouped {
        text.push_str(chance.of(&[" GROUP BY k", " GROUP BY k, a", " GROUP BY k, a, b"]));
    }
    if single && !distinct && chance.one_in(2) {
        text.push_str(chance.of(&[" ORDER BY a DESC", " ORDER BY a ASC", " ORDER BY a DESC, b DESC"]));
    }
    if !distinct && chance.one_in(3) {
        text.push_str(&format!(" PER PARTITION LIMIT {}", 1 + chance.next(4)));
    }
    if chance.one_in(3) {
        text.push_str(&format!(" LIMIT {}", 1 + chance.next(20)));
    }
    if filtering || chance.one_in(6) {
        text.push_str(" ALLOW FILTERING");
    }
    text
}

async fn pages(engine: &Engine, statement: &str, page_size: i32) -> Vec<String> {
    let (mut all, mut state) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let options = Options { page_size: Some(page_size), paging_state: state, ..Options::default() };
        let page = Rows::parse(&query(engine, statement, &options).await.unwrap());
        assert!(page.rows.len() <= page_size as usize, "{statement}: {} rows", page.rows.len());
        all.extend(page.rows);
        state = page.paging_state;
        if state.is_none() {
            return all;
        }
    }
    panic!("{statement} does not end in pages of {page_size}");
}

async fn holds(engine: Engine, seed: u64) {
    let mut chance = Chance(seed);
    fill(&engine, &mut chance).await;
    let (mut compared, mut with_rows) = (0, 0);
    for _ in 0..STATEMENTS {
        let statement = statement(&mut chance);
        let whole = match query(&engine, &statement, &Options::default()).await {
            Ok(body) => Rows::parse(&body).rows,
            Err(QueryError::Invalid(_)) => continue,
            Err(error) => panic!("seed {seed}: {statement}: {error}"),
        };
        compared += 1;
        with_rows += usize::from(!whole.is_empty());
        for page_size in [1, 2, 3, 7] {
            let paged = pages(&engine, &statement, page_size).await;
            assert_eq!(paged, whole, "seed {seed}: {statement} in pages of {page_size}");
        }
    }
    assert!(compared > STATEMENTS / 2 && with_rows > STATEMENTS / 3, "seed {seed}: {compared}, {with_rows}");
}

fn usual(_: &mut EngineConfig) {}

/// Pages that end at the third dead thing.
fn short(config: &mut EngineConfig) {
    config.guardrails.tombstones_of_page = Some(3);
}

#[test]
fn pages_put_together_are_the_answer() {
    for (shards, seed) in [(1, 11), (2, 12), (3, 13)] {
        let folder = tempfile::tempdir().unwrap();
        match seed {
            11 => node_with(folder.path(), shards, usual, |engine| holds(engine, 11)),
            12 => node_with(folder.path(), shards, usual, |engine| holds(engine, 12)),
            _ => node_with(folder.path(), shards, usual, |engine| holds(engine, 13)),
        }
    }
}

#[test]
fn pages_that_end_at_what_is_dead_are_the_answer_too() {
    for shards in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        node_with(folder.path(), shards, short, |engine| holds(engine, 21));
        let folder = tempfile::tempdir().unwrap();
        node_with(folder.path(), shards, short, |engine| holds(engine, 22));
    }
}
