//! Texts that the parser accepts, area by area: each with its printed form.
//!
//! Printing is canonical (upper-case keywords, one space, quotes if a name needs them or is a keyword), so a
//! pair checks both that the text parses and its meaning; every printed text must parse to the same tree
//! again.

use cql::parse_statement;

#[track_caller]
fn check(text: &str, printed: &str) {
    let parsed = parse_statement(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(parsed.statement.to_string(), printed);
    assert_eq!(parse_statement(printed), Ok(parsed));
}

#[track_caller]
fn same(text: &str) {
    check(text, text);
}

#[test]
fn select_reads_every_clause() {
    check("select * from T;", "SELECT * FROM t");
    check("Select a,B as C,\"D\" From Ks.T Where K=1;;", "SELECT a, b AS c, \"D\" FROM ks.t WHERE k = 1");
    same("SELECT JSON DISTINCT k FROM t");
    same(
        "SELECT * FROM t WHERE k = 1 GROUP BY a, f(b) ORDER BY a, b DESC PER PARTITION LIMIT 2 LIMIT ? ALLOW FILTERING",
    );
    check("SELECT * FROM t ORDER BY a ASC", "SELECT * FROM t ORDER BY a");
    same("SELECT * FROM t ORDER BY v ANN OF [1.0, 2.0] LIMIT 3");
    same("SELECT * FROM t LIMIT 1 ALLOW FILTERING BYPASS CACHE USING TIMEOUT 50ms AND SERVICE LEVEL gold");
    check("SELECT * FROM t bypass cache", "SELECT * FROM t BYPASS CACHE");
    same("SELECT * FROM MUTATION_FRAGMENTS(ks.t) WHERE k = 1");
    same("SELECT * FROM mutation_fragments WHERE k = 1");
    same("SELECT a FROM t WHERE bm25(body, 'word') > 0 ORDER BY bm25(body, 'word') LIMIT 3");
}

#[test]
fn json_and_distinct_are_columns_where_no_selection_follows() {
    check("SELECT json FROM t", "SELECT \"json\" FROM t");
    check("SELECT distinct, json FROM t", "SELECT \"distinct\", \"json\" FROM t");
    check("SELECT json AS x FROM t", "SELECT \"json\" AS x FROM t");
    check("SELECT DISTINCT distinct FROM t", "SELECT DISTINCT \"distinct\" FROM t");
    check("SELECT json(a) FROM t", "SELECT JSON (a) FROM t");
}

#[test]
fn selected_expressions_nest() {
    same("SELECT count(*), count(1), sum(a + b * 2) AS s, ks.f(a, 'x'), f(), token(a, b), now() FROM t");
    same("SELECT writetime(a), ttl(b), maxwritetime(m['x']), writetime(u.f) FROM t");
    check("SELECT cast(a AS TEXT) FROM t", "SELECT CAST(a AS text) FROM t");
    check(
        "SELECT a.b.c, m['k'], m['a'..'b'], m[..'z'], m[1..2], l[1..] FROM t",
        "SELECT a.b.c, m['k'], m['a' .. 'b'], m[ .. 'z'], m[1 .. 2], l[1 .. ] FROM t",
    );
    same("SELECT [a, b], {a, b}, {a: 1, b: 2}, {}, [], (a, b), (a), {f(a): b} FROM t");
    check("SELECT -a, -(a), a-b, 1 - 5, -5, 3 .a FROM t", "SELECT - a, - (a), a - b, 1 - 5, -5, 3 .a FROM t");
    same("SELECT (a + b) * c / d % e FROM t");
    check("SELECT (int)a, (list<int>)[], (a)[0] FROM t", "SELECT (int) a, (list<int>) [], (a) [0] FROM t");
    same("SELECT (a) AS x, (\"as\") AS y FROM t");
    check("SELECT ttl, key, \"count\", as FROM t", "SELECT \"ttl\", \"key\", \"count\", \"as\" FROM t");
}

#[test]
fn literals_keep_their_text() {
    same(
        "SELECT ?, :x, null, 1.5, 1e10, -2.E-3, true, FALSE, 0xaB, 0x, NaN, -NaN, Infinity, -Infinity FROM t",
    );
    check("SELECT nan, -INFINITY FROM t", "SELECT NaN, -Infinity FROM t");
    check("SELECT 'it''s', $$a'b$$, $$$ $$ FROM t", "SELECT 'it''s', 'a''b', '$ ' FROM t");
    same(
        "SELECT 1y2mo3w4d5h6m7s8ms9us10ns, -1Y, 3µs, P1Y2M3DT4H5M6S, PT5M, -P3W, P0001-02-03T04:05:06 FROM t",
    );
    same("SELECT 550e8400-e29b-41d4-a716-446655440000, deadbeef-e29b-41d4-a716-446655440000 FROM t");
    same("SELECT - - k, - - - k.f[0] FROM t");
    check("SELECT p1y, P3, T1H FROM t", "SELECT p1y, p3, t1h FROM t");
}

#[test]
fn relations_of_every_kind() {
    same("SELECT * FROM t WHERE a = 1 AND b > 2 AND c <= 3 AND d != 4 AND e < ? AND f >= :f");
    same(
        "SELECT * FROM t WHERE a IN (1, 2) AND b IN ? AND c IN :x AND d IN () AND e NOT IN (1) AND f NOT IN ?",
    );
    same("SELECT * FROM t WHERE (a, b) > (1, 2) AND (a, b) <= ? AND (a) = :m");
    same(
        "SELECT * FROM t WHERE (a, b) IN ((1, 2), (3, 4)) AND (a, b) IN (?, :y) AND (a) IN ? AND (a) NOT IN ()",
    );
    same("SELECT * FROM t WHERE token(a, b) > token(1, 2) AND token(a) < 5");
    same("SELECT * FROM t WHERE m CONTAINS 1 AND m CONTAINS KEY 'x' AND m['a'] = 3 AND m NOT CONTAINS 2");
    same("SELECT * FROM t WHERE a LIKE '%x' AND b IS NOT NULL");
    same(
        "SELECT * FROM t WHERE a BETWEEN 1 AND 2 AND token(k) BETWEEN ? AND ? AND (a, b) BETWEEN (1, 2) AND (3, 4)",
    );
    check("SELECT * FROM t WHERE (a = 1) AND ((b = 2))", "SELECT * FROM t WHERE a = 1 AND b = 2");
    same("SELECT * FROM t WHERE expr(idx, 'abc') AND a = 1");
    same("SELECT * FROM t WHERE a = 1 + 2 * 3 - 4 / 5 % 6 AND b = - 5 AND c = -5 AND d = 1 - -5");
    same(
        "SELECT * FROM t WHERE a = {1, 2} AND b = {'a': 1} AND c = {x: 1, y: 'b'} AND d = [1, 2] AND e = (1, 'a')",
    );
    same(
        "SELECT * FROM t WHERE a = f(1, ks.g()) AND b = (int) 3 AND c = CAST((int) 1 AS text) AND d = ('x') AND e = {}",
    );
}

#[test]
fn writes_of_every_kind() {
    same("INSERT INTO ks.t (a, b) VALUES (?, :b) IF NOT EXISTS USING TTL 10 AND TIMESTAMP ? AND TIMEOUT 1s");
    check("INSERT INTO t (\"\") VALUES ($$a$$)", "INSERT INTO t (\"\") VALUES ('a')");
    same("INSERT INTO t JSON '{\"a\": 1}'");
    same("INSERT INTO t JSON ? DEFAULT UNSET IF NOT EXISTS USING TIMESTAMP 5");
    check("INSERT INTO t JSON :j DEFAULT NULL", "INSERT INTO t JSON :j");
    check(
        "UPDATE t SET a = 1, b = b + 1, c = c - {1}, d = [1] + d, e = e -3, f += 2, g -= 1 WHERE k = 1",
        "UPDATE t SET a = 1, b += 1, c -= {1}, d = [1] + d, e += -3, f += 2, g -= 1 WHERE k = 1",
    );
    same("UPDATE ks.t USING TTL 5 SET a[1] = 2, b.f = 3, c = f(x.g(1)) + 2 WHERE k = 1 AND c IN (1, 2)");
    same("UPDATE t SET a = 1 WHERE k = 1 IF EXISTS");
    check("UPDATE t SET a = 1 WHERE k = 1 IF exists = 2", "UPDATE t SET a = 1 WHERE k = 1 IF \"exists\" = 2");
    same(
        "UPDATE t SET a = 1 WHERE k = 1 IF a = 2 AND b[1] > 3 AND c.f != null AND d IN (1) AND e[1] IN ? AND c.f IN ()",
    );
    same(
        "UPDATE t SET a = 1 WHERE k = 1 IF f CONTAINS 1 AND g CONTAINS KEY 2 AND h LIKE 'x' AND i NOT IN (1)",
    );
    same("DELETE FROM t WHERE k = 1");
    same("DELETE a, b[1], c.f FROM ks.t USING TIMESTAMP 5 WHERE k = 1 AND c > 2 IF EXISTS");
    check(
        "BEGIN BATCH INSERT INTO t (a) VALUES (1) UPDATE t SET a = 1 WHERE k = 1; DELETE FROM t WHERE k = 1 APPLY BATCH",
        "BEGIN BATCH INSERT INTO t (a) VALUES (1); UPDATE t SET a = 1 WHERE k = 1; DELETE FROM t WHERE k = 1; APPLY BATCH",
    );
    same("BEGIN UNLOGGED BATCH USING TIMESTAMP 5 APPLY BATCH");
    same("BEGIN COUNTER BATCH UPDATE t SET a += 1 WHERE k = 1; APPLY BATCH");
    check("TRUNCATE TABLE ks.t USING TIMEOUT 5m", "TRUNCATE ks.t USING TIMEOUT 5m");
    same("PRUNE MATERIALIZED VIEW ks.v WHERE a = 1 USING CONCURRENCY 5 AND TIMEOUT ?");
    same("PRUNE MATERIALIZED VIEW v");
}

#[test]
fn keyspaces_and_tables() {
    same(
        "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'X', 'dc1': ['r1', 'r2']} AND durable_writes = true",
    );
    same("CREATE KEYSPACE ks WITH replication = {} AND tablets = {'enabled': false}");
    same("ALTER KEYSPACE IF EXISTS ks WITH durable_writes = false");
    same("DROP KEYSPACE IF EXISTS ks");
    same("USE \"Ks\"");
    check("CREATE COLUMNFAMILY t (a int, PRIMARY KEY (a),)", "CREATE TABLE t (a int, PRIMARY KEY (a))");
    same(
        "CREATE TABLE IF NOT EXISTS ks.t (a int, b text STATIC, c list<frozen<map<text, int>>>, PRIMARY KEY ((a, b), c)) \
         WITH CLUSTERING ORDER BY (c ASC, d DESC) AND comment = 'x' AND gc_grace_seconds = 10 AND COMPACT STORAGE",
    );
    same(
        "CREATE TABLE t (a tuple<int, text> PRIMARY KEY, b vector<float, 3>, c ks.udt, d udt, e 'x.Y', f set<uuid>) \
         WITH compaction = {'class': 'x', 'n': 1} AND caching = all",
    );
    same(
        "CREATE TABLE t (a int PRIMARY KEY, b text MASKED WITH DEFAULT, c text STATIC MASKED WITH ks.m(1, null), d int TTL)",
    );
    check(
        "CREATE TABLE t (key int PRIMARY KEY, map map)",
        "CREATE TABLE t (\"key\" int PRIMARY KEY, \"map\" \"map\")",
    );
    same("CREATE TABLE IF NOT EXISTS a LIKE ks.b WITH indexes AND comment = 'x'");
    same("ALTER TABLE IF EXISTS ks.t ADD IF NOT EXISTS (a int, b text STATIC, c int MASKED WITH DEFAULT)");
    check("ALTER TABLE t ADD (a int)", "ALTER TABLE t ADD a int");
    same("ALTER TABLE t DROP IF EXISTS (a, b) USING TIMESTAMP 5");
    check("ALTER TABLE t DROP compact", "ALTER TABLE t DROP \"compact\"");
    same("ALTER TABLE t DROP COMPACT STORAGE");
    same("ALTER TABLE t RENAME IF EXISTS a TO b AND c TO d");
    same("ALTER TABLE t ALTER a TYPE int");
    same("ALTER TABLE t ALTER IF EXISTS a DROP MASKED");
    same("ALTER TABLE t ALTER a MASKED WITH f()");
    same("ALTER TABLE t WITH comment = 'x' AND cdc = {'enabled': true}");
    same("ALTER TABLE t TTL a");
    same("ALTER TABLE t TTL NULL");
    same("DROP TABLE IF EXISTS ks.t");
}

#[test]
fn types_indexes_views_functions_and_triggers() {
    same("CREATE TYPE IF NOT EXISTS ks.u (a int, b frozen<list<int>>)");
    same("ALTER TYPE ks.u ADD IF NOT EXISTS c int");
    same("ALTER TYPE IF EXISTS u ALTER a TYPE int");
    same("ALTER TYPE u RENAME IF EXISTS a TO b AND c TO d");
    same("DROP TYPE IF EXISTS ks.u");
    same("CREATE INDEX ON t (a)");
    same(
        "CREATE CUSTOM INDEX IF NOT EXISTS i ON ks.t (KEYS(a), VALUES(b), ENTRIES(c), FULL(d)) \
         USING 'sai' WITH \"options\" = {'a': 'b'}",
    );
    check("CREATE INDEX ON t (keys, values)", "CREATE INDEX ON t (\"keys\", \"values\")");
    same("CREATE INDEX ON t ((a, b), c)");
    same("CREATE CUSTOM INDEX i ON t () USING 'x'");
    same("DROP INDEX IF EXISTS ks.i");
    same(
        "CREATE MATERIALIZED VIEW IF NOT EXISTS ks.v AS SELECT a, b FROM t WHERE a IS NOT NULL PRIMARY KEY ((a, b), c) \
         WITH CLUSTERING ORDER BY (c DESC) AND comment = 'x'",
    );
    same("CREATE MATERIALIZED VIEW v AS SELECT * FROM t PRIMARY KEY (a)");
    same("ALTER MATERIALIZED VIEW IF EXISTS v WITH comment = 'x'");
    same("DROP MATERIALIZED VIEW IF EXISTS v");
    check(
        "CREATE FUNCTION f (a int, b text) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS $$ 'x' $$",
        "CREATE FUNCTION f(a int, b text) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS ' ''x'' '",
    );
    same(
        "CREATE OR REPLACE FUNCTION IF NOT EXISTS ks.f() RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua AS ''",
    );
    same("DROP FUNCTION IF EXISTS ks.f(int, text)");
    same("DROP FUNCTION f");
    same(
        "CREATE OR REPLACE AGGREGATE IF NOT EXISTS ks.a(int) SFUNC f STYPE int REDUCEFUNC r FINALFUNC g INITCOND (0, 0)",
    );
    same("DROP AGGREGATE IF EXISTS a()");
    same("CREATE TRIGGER IF NOT EXISTS tr ON t USING 'x.y'");
    same("DROP TRIGGER IF EXISTS tr ON ks.t");
}

#[test]
fn roles_permissions_and_service_levels() {
    check(
        "CREATE ROLE IF NOT EXISTS 'R x' WITH PASSWORD = 'p'",
        "CREATE ROLE IF NOT EXISTS \"R x\" WITH PASSWORD = 'p'",
    );
    same(
        "CREATE ROLE r WITH HASHED PASSWORD = 'x' AND LOGIN = true AND SUPERUSER = false AND OPTIONS = {'a': 1} \
         AND ACCESS TO DATACENTERS {'dc1', 'dc2'} AND ACCESS FROM ALL CIDRS",
    );
    same("ALTER ROLE IF EXISTS \"R\" WITH ACCESS FROM CIDRS {'a'} AND ACCESS TO ALL DATACENTERS");
    same("DROP ROLE IF EXISTS r");
    check(
        "CREATE USER IF NOT EXISTS Bob WITH PASSWORD 'x' SUPERUSER",
        "CREATE USER IF NOT EXISTS 'Bob' WITH PASSWORD 'x' SUPERUSER",
    );
    same("ALTER USER IF EXISTS 'bob' WITH HASHED PASSWORD 'x' NOSUPERUSER");
    same("DROP USER IF EXISTS 'bob'");
    same("LIST USERS");
    same("LIST ROLES OF r NORECURSIVE");
    same("GRANT r TO s");
    same("REVOKE r FROM s");
    for empty in ["GRANT '' TO r", "CREATE ROLE ''", "LIST ROLES OF ''", "GRANT ALTER ON ROLE '' TO ''"] {
        same(empty);
    }
    check("GRANT unmask TO s", "GRANT \"unmask\" TO s");
    check("GRANT ALL PERMISSIONS ON ALL KEYSPACES TO r", "GRANT ALL ON ALL KEYSPACES TO r");
    check("GRANT SELECT PERMISSION, MODIFY ON t TO r", "GRANT SELECT, MODIFY ON TABLE t TO r");
    same("GRANT EXECUTE ON FUNCTION ks.f(int) TO r");
    same("GRANT EXECUTE ON ALL FUNCTIONS IN KEYSPACE ks TO r");
    same("GRANT CREATE, ALTER ON ALL TABLES IN KEYSPACE ks TO r");
    same("GRANT VECTOR_SEARCH_INDEXING ON ALL KEYSPACES TO r");
    same("REVOKE ALTER ON ROLE x FROM r");
    same("REVOKE ALL ON ALL ROLES FROM r");
    same("REVOKE EXECUTE ON ALL FUNCTIONS FROM r");
    same("GRANT SELECT ON MBEAN 'a:b=c' TO r");
    same("GRANT SELECT ON MBEANS 'a:*' TO r");
    same("GRANT ALL ON ALL MBEANS TO r");
    same("LIST ALL ON KEYSPACE ks OF r NORECURSIVE");
    same("LIST SELECT_MASKED, UNMASK");
    same("ADD IDENTITY IF NOT EXISTS 'spiffe://x' TO ROLE 'r'");
    same("DROP IDENTITY IF EXISTS 'spiffe://x'");
    same(
        "CREATE SERVICE LEVEL IF NOT EXISTS gold WITH shares = 1000 AND timeout = 50ms AND workload_type = 'batch'",
    );
    check("ALTER SERVICE_LEVEL gold WITH shares = 1", "ALTER SERVICE LEVEL gold WITH shares = 1");
    same("DROP SERVICE LEVEL IF EXISTS gold");
    same("ATTACH SERVICE LEVEL gold TO r");
    same("DETACH SERVICE LEVEL FROM r");
    same("LIST SERVICE LEVEL gold");
    same("LIST ALL SERVICE LEVELS");
    same("LIST ATTACHED SERVICE LEVEL OF r");
    same("LIST ALL ATTACHED SERVICE LEVELS");
    same("LIST EFFECTIVE SERVICE LEVEL OF r");
}

#[test]
fn describe_reads_every_target() {
    for target in [
        "CLUSTER",
        "SCHEMA",
        "FULL SCHEMA",
        "KEYSPACES",
        "KEYSPACE",
        "KEYSPACE ks",
        "ONLY KEYSPACE ks",
        "TABLES",
        "TABLE ks.t",
        "INDEX i",
        "MATERIALIZED VIEW v",
        "TYPES",
        "TYPE ks.u",
        "FUNCTIONS",
        "FUNCTION f",
        "AGGREGATES",
        "AGGREGATE ks.a",
        "t",
        "ks.t",
    ] {
        same(&format!("DESCRIBE {target}"));
        same(&format!("DESCRIBE {target} WITH INTERNALS"));
        check(
            &format!("desc {target} with internals and passwords;"),
            &format!("DESCRIBE {target} WITH INTERNALS AND PASSWORDS"),
        );
    }
    check("DESC type", "DESCRIBE \"type\"");
    check("DESC only", "DESCRIBE \"only\"");
}

#[test]
fn comments_are_space() {
    check("SELECT -- a\n * /* b\n * */ FROM // c\r t", "SELECT * FROM t");
}

#[test]
fn words_of_extensions_stay_names() {
    same("SELECT bypass, timeout, service, level, between FROM prune WHERE attach = 1");
    same("CREATE TABLE service (level int PRIMARY KEY, concurrency int)");
}
