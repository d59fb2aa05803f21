//! What an application does through the Rust driver, seen from outside the node.
//!
//! Runs against ceto and against Apache Cassandra 5 (where the test of shards skips itself). Every test makes a
//! keyspace of its own. The tests run one at a time, in the order of their names: the restart is the last.

#![allow(clippy::disallowed_methods)] // a client of a real server: its deadlines are in real time

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use bigdecimal::BigDecimal;
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use num_bigint::BigInt;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::client::{Compression, PoolSize};
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::response::{PagingState, PagingStateResponse};
use scylla::serialize::value::SerializeValue;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::unprepared::Statement;
use scylla::value::{CqlDate, CqlDuration, CqlTime, CqlTimestamp, CqlTimeuuid, MaybeUnset};
use uuid::Uuid;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn setting(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn builder() -> SessionBuilder {
    let host = setting("CETO_HOST").unwrap_or_else(|| "127.0.0.1".into());
    let port = setting("CETO_PORT").unwrap_or_else(|| "9042".into());
    SessionBuilder::new()
        .known_node(format!("{host}:{port}"))
        .connection_timeout(Duration::from_secs(20))
        .schema_agreement_interval(Duration::from_millis(20))
}

/// A session on a keyspace of its own.
struct World {
    session: Session,
    keyspace: String,
}

impl World {
    async fn new() -> Result<World, Box<dyn std::error::Error>> {
        World::with(builder()).await
    }

    async fn with(builder: SessionBuilder) -> Result<World, Box<dyn std::error::Error>> {
        let session = builder.build().await?;
        let keyspace = format!("compat_{}", &Uuid::new_v4().simple().to_string()[..12]);
        let create = format!(
            "CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}}"
        );
        session.query_unpaged(create, ()).await?;
        session.use_keyspace(&keyspace, false).await?;
        Ok(World { session, keyspace })
    }

    async fn run(&self, cql: &str) -> Outcome {
        self.session.query_unpaged(cql, ()).await?;
        Ok(())
    }

    async fn ints(&self, cql: &str) -> Result<Vec<i32>, Box<dyn std::error::Error>> {
        let rows = self.session.query_unpaged(cql, ()).await?.into_rows_result()?;
        Ok(rows.rows::<(i32,)>()?.map(|row| row.map(|(value,)| value)).collect::<Result<_, _>>()?)
    }

    /// Table `wide`: 10 partitions of 50 rows and a static each.
    async fn wide(&self) -> Outcome {
        self.run("CREATE TABLE wide (p int, c int, s text static, v int, PRIMARY KEY (p, c))").await?;
        let insert = self.session.prepare("INSERT INTO wide (p, c, s, v) VALUES (?, ?, ?, ?)").await?;
        for p in 0..10 {
            let writes =
                (0..50).map(|c| self.session.execute_unpaged(&insert, (p, c, format!("s{p}"), p * 1000 + c)));
            for written in join_all(writes).await {
                written?;
            }
        }
        Ok(())
    }

    async fn end(self) -> Outcome {
        self.run(&format!("DROP KEYSPACE {}", self.keyspace)).await
    }
}

#[tokio::test]
async fn compression_carries_large_values() -> Outcome {
    for compression in [None, Some(Compression::Lz4), Some(Compression::Snappy)] {
        let world = World::with(builder().compression(compression)).await?;
        world.run("CREATE TABLE t (k int PRIMARY KEY, v blob)").await?;
        let mixed: Vec<u8> = (0..300_000_u32).map(|i| (i.wrapping_mul(i) >> 3) as u8).collect();
        for (k, body) in [vec![], vec![1], vec![7; 200_000], mixed].into_iter().enumerate() {
            world.session.query_unpaged("INSERT INTO t (k, v) VALUES (?, ?)", (k as i32, &body)).await?;
            let rows = world
                .session
                .query_unpaged("SELECT v FROM t WHERE k = ?", (k as i32,))
                .await?
                .into_rows_result()?;
            assert!(rows.single_row::<(Vec<u8>,)>()?.0 == body, "value {k} changed with {compression:?}");
        }
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn metadata_shows_node_keyspace_and_table() -> Outcome {
    let world = World::new().await?;
    world
        .run("CREATE TABLE described (a int, b text, c timeuuid, d int, s blob static, v decimal, PRIMARY KEY ((a, b), c, d))")
        .await?;
    world.session.refresh_metadata().await?;
    let state = world.session.get_cluster_state();
    let [node] = state.get_nodes_info() else { panic!("more than one node") };
    assert_eq!((node.datacenter.as_deref(), node.rack.as_deref()), (Some("datacenter1"), Some("rack1")));
    assert!(node.is_connected());
    let table = &state.get_keyspace(&world.keyspace).ok_or("no keyspace")?.tables["described"];
    assert_eq!(table.partition_key, ["a", "b"]);
    assert_eq!(table.clustering_key, ["c", "d"]);
    let columns: BTreeMap<_, _> =
        table.columns.iter().map(|(name, c)| (name.as_str(), format!("{:?} {:?}", c.kind, c.typ))).collect();
    let wanted = [
        ("a", "PartitionKey Native(Int)"),
        ("b", "PartitionKey Native(Text)"),
        ("c", "Clustering Native(Timeuuid)"),
        ("d", "Clustering Native(Int)"),
        ("s", "Static Native(Blob)"),
        ("v", "Regular Native(Decimal)"),
    ];
    assert_eq!(columns, wanted.map(|(name, about)| (name, about.to_owned())).into());
    world.end().await
}

/// Writes and reads every value of one type; the text forms are compared, so that NaN equals itself and -0 is not 0.
async fn round_trip<T>(world: &World, cql_type: &str, values: Vec<T>) -> Outcome
where
    T: SerializeValue + Debug + for<'f, 'm> scylla::deserialize::value::DeserializeValue<'f, 'm>,
{
    world.run(&format!("CREATE TABLE t_{cql_type} (k int PRIMARY KEY, v {cql_type})")).await?;
    let insert = world.session.prepare(format!("INSERT INTO t_{cql_type} (k, v) VALUES (?, ?)")).await?;
    let read = world.session.prepare(format!("SELECT v FROM t_{cql_type} WHERE k = ?")).await?;
    for (k, value) in values.iter().enumerate() {
        world.session.execute_unpaged(&insert, (k as i32, value)).await?;
        let rows = world.session.execute_unpaged(&read, (k as i32,)).await?.into_rows_result()?;
        let (back,) = rows.single_row::<(T,)>()?;
        assert_eq!(format!("{value:?}"), format!("{back:?}"), "{cql_type}");
    }
    world.session.execute_unpaged(&insert, (0, MaybeUnset::<T>::Unset)).await?;
    let rows = world.session.execute_unpaged(&read, (0,)).await?.into_rows_result()?;
    assert!(rows.single_row::<(Option<T>,)>()?.0.is_some(), "{cql_type}: unset must leave the value alone");
    world.session.execute_unpaged(&insert, (0, None::<T>)).await?;
    let rows = world.session.execute_unpaged(&read, (0,)).await?.into_rows_result()?;
    assert!(rows.single_row::<(Option<T>,)>()?.0.is_none(), "{cql_type}: null");
    Ok(())
}

#[tokio::test]
async fn scalars_round_trip() -> Outcome {
    let w = World::new().await?;
    let huge = BigInt::from(-3).pow(2001);
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    round_trip(&w, "ascii", texts(&["", "plain"])).await?;
    round_trip(&w, "text", texts(&["", "häß € 🐋", &"x".repeat(70_000)])).await?;
    round_trip(&w, "blob", vec![vec![], vec![0_u8, 255]]).await?;
    round_trip(&w, "boolean", vec![true, false]).await?;
    round_trip(&w, "tinyint", vec![i8::MIN, 0, i8::MAX]).await?;
    round_trip(&w, "smallint", vec![i16::MIN, i16::MAX]).await?;
    round_trip(&w, "int", vec![i32::MIN, i32::MAX]).await?;
    round_trip(&w, "bigint", vec![i64::MIN, i64::MAX]).await?;
    round_trip(&w, "varint", vec![BigInt::from(0), BigInt::from(-129), huge.clone()]).await?;
    round_trip(&w, "decimal", vec![BigDecimal::from(0), "-1.50".parse()?, BigDecimal::new(huge, 1000)])
        .await?;
    round_trip(&w, "float", vec![-0.0_f32, f32::MIN_POSITIVE, f32::MAX, f32::NEG_INFINITY, f32::NAN]).await?;
    round_trip(&w, "double", vec![-0.0_f64, 5e-324, f64::MAX, f64::INFINITY, f64::NAN]).await?;
    round_trip(&w, "uuid", vec![Uuid::nil(), Uuid::max(), Uuid::new_v4()]).await?;
    let greatest = Uuid::parse_str("ffffffff-ffff-1fff-bfff-7f7f7f7f7f7f")?;
    round_trip(&w, "timeuuid", vec![CqlTimeuuid::from(Uuid::now_v1(&[1, 2, 3, 4, 5, 6])), greatest.into()])
        .await?;
    round_trip::<std::net::IpAddr>(&w, "inet", vec!["127.0.0.1".parse()?, "2001:db8::1".parse()?]).await?;
    round_trip(&w, "timestamp", vec![CqlTimestamp(i64::MIN), CqlTimestamp(-1), CqlTimestamp(i64::MAX)])
        .await?;
    round_trip(&w, "date", vec![CqlDate(0), CqlDate(1 << 31), CqlDate(u32::MAX)]).await?;
    round_trip(&w, "time", vec![CqlTime(0), CqlTime(86_399_999_999_999)]).await?;
    let longest = CqlDuration { months: i32::MAX, days: i32::MAX, nanoseconds: i64::MAX };
    round_trip(&w, "duration", vec![CqlDuration { months: -1, days: -2, nanoseconds: -3 }, longest]).await?;
    w.end().await
}

#[tokio::test]
async fn ttl_and_timestamps() -> Outcome {
    let w = World::new().await?;
    w.run("CREATE TABLE t (k int PRIMARY KEY, a int, b int)").await?;
    let insert =
        w.session.prepare("INSERT INTO t (k, a, b) VALUES (1, 10, 10) USING TIMESTAMP ? AND TTL ?").await?;
    w.session.execute_unpaged(&insert, (1000_i64, 5000)).await?;
    w.run("UPDATE t USING TIMESTAMP 999 SET a = 9 WHERE k = 1").await?;
    w.run("UPDATE t USING TIMESTAMP 1001 SET b = 11 WHERE k = 1").await?;
    let rows = w
        .session
        .query_unpaged("SELECT a, b, ttl(a), ttl(b), writetime(b) FROM t", ())
        .await?
        .into_rows_result()?;
    let (a, b, ttl, none, at) = rows.single_row::<(i32, i32, i32, Option<i32>, i64)>()?;
    assert_eq!((a, b, none, at), (10, 11, None, 1001));
    assert!(ttl > 4900 && ttl <= 5000, "{ttl}");
    let mut stamped = Statement::new("INSERT INTO t (k, a) VALUES (2, 1)");
    stamped.set_timestamp(Some(77));
    w.session.query_unpaged(stamped, ()).await?;
    let rows =
        w.session.query_unpaged("SELECT writetime(a) FROM t WHERE k = 2", ()).await?.into_rows_result()?;
    assert_eq!(rows.single_row::<(i64,)>()?, (77,));
    w.end().await
}

#[tokio::test]
async fn paging_and_selects() -> Outcome {
    let w = World::new().await?;
    w.wide().await?;
    for size in [1, 7, 5000] {
        let one = Statement::new("SELECT c FROM wide WHERE p = 3").with_page_size(size);
        let rows: Vec<(i32,)> =
            w.session.query_iter(one, ()).await?.rows_stream::<(i32,)>()?.try_collect().await?;
        assert_eq!(rows, (0..50).map(|c| (c,)).collect::<Vec<_>>());
        let all = w.session.prepare(Statement::new("SELECT v FROM wide").with_page_size(size)).await?;
        let stream = w.session.execute_iter(all, ()).await?.rows_stream::<(i32,)>()?;
        assert_eq!(stream.map(Result::unwrap).collect::<BTreeSet<_>>().await.len(), 500);
    }
    let manual = Statement::new("SELECT c FROM wide WHERE p = 4 AND c >= 10 LIMIT 33").with_page_size(8);
    let manual = w.session.prepare(manual).await?;
    let (mut seen, mut state) = (Vec::new(), PagingState::start());
    for _ in 0..20 {
        let (page, next) = w.session.execute_single_page(&manual, (), state).await?;
        for row in page.into_rows_result()?.rows::<(i32,)>()? {
            seen.push(row?.0);
        }
        match next {
            PagingStateResponse::HasMorePages { state: more } => state = more,
            PagingStateResponse::NoMorePages => break,
        }
    }
    assert_eq!(seen, (10..43).collect::<Vec<_>>());
    assert_eq!(w.ints("SELECT c FROM wide WHERE p = 1 AND c > 3 AND c <= 6").await?, [4, 5, 6]);
    assert_eq!(w.ints("SELECT c FROM wide WHERE p = 1 ORDER BY c DESC LIMIT 3").await?, [49, 48, 47]);
    assert_eq!(w.ints("SELECT c FROM wide WHERE p = 1 AND c IN (9, 2, 70)").await?, [2, 9]);
    assert_eq!(w.ints("SELECT c FROM wide WHERE p = 1 AND v = 1030 ALLOW FILTERING").await?, [30]);
    assert_eq!(w.ints("SELECT c FROM wide WHERE p IN (1, 2, 3) PER PARTITION LIMIT 2").await?.len(), 6);
    let low = w.ints("SELECT v FROM wide WHERE token(p) < 0").await?.len();
    assert_eq!(low + w.ints("SELECT v FROM wide WHERE token(p) >= 0").await?.len(), 500);
    assert_eq!(BTreeSet::from_iter(w.ints("SELECT DISTINCT p FROM wide").await?), (0..10).collect());
    let rows = w.session.query_unpaged("SELECT count(*) FROM wide", ()).await?.into_rows_result()?;
    assert_eq!(rows.single_row::<(i64,)>()?, (500,));
    w.end().await
}

#[tokio::test]
async fn deletes_and_batches() -> Outcome {
    let w = World::new().await?;
    w.wide().await?;
    w.run("DELETE FROM wide WHERE p = 1 AND c = 0").await?;
    w.run("DELETE FROM wide WHERE p = 1 AND c >= 3 AND c < 48").await?;
    assert_eq!(w.ints("SELECT c FROM wide WHERE p = 1").await?, [1, 2, 48, 49]);
    w.run("DELETE v FROM wide WHERE p = 1 AND c = 1").await?;
    let rows = w
        .session
        .query_unpaged("SELECT v, s FROM wide WHERE p = 1 AND c = 1", ())
        .await?
        .into_rows_result()?;
    assert_eq!(rows.single_row::<(Option<i32>, &str)>()?, (None, "s1"));
    w.run("DELETE FROM wide WHERE p = 1").await?;
    assert_eq!(w.ints("SELECT c FROM wide WHERE p = 1").await?, [0_i32; 0]);
    let prepared = w.session.prepare("INSERT INTO wide (p, c, v) VALUES (:p, :c, :v)").await?;
    for (kind, from) in [(BatchType::Logged, 0), (BatchType::Unlogged, 10)] {
        let mut batch = Batch::new(kind);
        batch.append_statement(prepared.clone());
        batch.append_statement("INSERT INTO wide (p, c, v) VALUES (?, ?, ?)");
        batch.append_statement("DELETE FROM wide WHERE p = 1 AND c = 99");
        w.session.batch(&batch, ((1, from, 1), (1, from + 1, 1), ())).await?;
    }
    assert_eq!(w.ints("SELECT c FROM wide WHERE p = 1").await?, [0, 1, 10, 11]);
    w.end().await
}

#[tokio::test]
async fn prepared_statements_survive_schema_changes() -> Outcome {
    let (w, other) = (World::new().await?, builder().build().await?);
    w.run("CREATE TABLE t (k int PRIMARY KEY, a int)").await?;
    let insert = w.session.prepare("INSERT INTO t (k, a) VALUES (?, ?)").await?;
    let read = w.session.prepare("SELECT a FROM t WHERE k = ?").await?;
    w.session.execute_unpaged(&insert, (1, 2)).await?;
    for change in
        ["ALTER TABLE %.t ADD aa text", "DROP TABLE %.t", "CREATE TABLE %.t (k int PRIMARY KEY, a int)"]
    {
        other.query_unpaged(change.replace('%', &w.keyspace), ()).await?;
    }
    w.session.execute_unpaged(&insert, (3, 4)).await?; // unknown to the server by now: prepared again by the driver
    let rows = w.session.execute_unpaged(&read, (3,)).await?.into_rows_result()?;
    assert_eq!(rows.single_row::<(i32,)>()?, (4,));
    w.end().await
}

#[tokio::test]
async fn errors_have_their_kinds() -> Outcome {
    let w = World::new().await?;
    w.wide().await?;
    let refused = async |statement: Statement| match w.session.query_unpaged(statement, ()).await {
        Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _))) => error,
        other => panic!("wanted a server error, got {other:?}"),
    };
    assert!(matches!(refused("SELEC 1".into()).await, DbError::SyntaxError));
    assert!(matches!(refused("SELECT * FROM nope".into()).await, DbError::Invalid));
    assert!(matches!(refused("SELECT nope FROM wide".into()).await, DbError::Invalid));
    assert!(matches!(refused("SELECT * FROM wide WHERE v = 1".into()).await, DbError::Invalid));
    let nowhere = "CREATE KEYSPACE x4 WITH replication = {'class': 'Nope'}";
    assert!(matches!(refused(nowhere.into()).await, DbError::ConfigError));
    match refused("CREATE TABLE wide (k int PRIMARY KEY)".into()).await {
        DbError::AlreadyExists { keyspace, table } => {
            assert_eq!((keyspace, table.as_str()), (w.keyspace.clone(), "wide"))
        }
        other => panic!("{other:?}"),
    }
    let mut three = Statement::new("SELECT * FROM wide WHERE p = 1");
    three.set_consistency(Consistency::Three);
    assert!(matches!(refused(three).await, DbError::Unavailable { required: 3, alive: 1, .. }));
    w.end().await
}

#[tokio::test]
async fn tracing_flag_returns_an_id() -> Outcome {
    let w = World::new().await?;
    let mut traced = Statement::new("SELECT key FROM system.local");
    assert!(w.session.query_unpaged(traced.clone(), ()).await?.tracing_id().is_none());
    traced.set_tracing(true);
    assert!(w.session.query_unpaged(traced, ()).await?.tracing_id().is_some());
    w.end().await
}

#[tokio::test]
async fn many_requests_on_one_connection_get_their_own_answers() -> Outcome {
    let one = std::num::NonZeroUsize::MIN;
    let w = World::with(builder().pool_size(PoolSize::PerHost(one)).disallow_shard_aware_port(true)).await?;
    w.wide().await?;
    let read = w.session.prepare("SELECT v FROM wide WHERE p = ? AND c = ?").await?;
    let points = (0..1500).map(async |i| {
        let rows =
            w.session.execute_unpaged(&read, (i % 10, i % 50)).await.unwrap().into_rows_result().unwrap();
        assert_eq!(rows.single_row::<(i32,)>().unwrap(), ((i % 10) * 1000 + i % 50,));
    });
    let scans = (0..20).map(async |_| {
        let rows = w
            .session
            .query_unpaged("SELECT count(*) FROM wide", ())
            .await
            .unwrap()
            .into_rows_result()
            .unwrap();
        assert_eq!(rows.single_row::<(i64,)>().unwrap(), (500,));
    });
    futures::join!(join_all(scans), join_all(points));
    w.end().await
}

#[tokio::test]
async fn tokens_agree_and_requests_go_to_the_shard_that_owns_them() -> Outcome {
    let w = World::new().await?;
    w.run("CREATE TABLE keys (k text PRIMARY KEY, v int)").await?;
    w.session.refresh_metadata().await?;
    let insert = w.session.prepare("INSERT INTO keys (k, v) VALUES (?, ?)").await?;
    let read = w.session.prepare("SELECT token(k), v FROM keys WHERE k = ?").await?;
    let shards =
        w.session.get_cluster_state().get_nodes_info()[0].sharder().map(|sharder| sharder.nr_shards.get());
    if let (Some(wanted), Some(shards)) = (setting("CETO_SHARDS"), shards) {
        assert_eq!(wanted, shards.to_string());
    }
    assert!(setting("CETO_SHARDS").is_none() || shards.is_some(), "the node announced no shards");
    let mut reached = BTreeSet::new();
    for pass in 0..2 {
        for i in 0..300 {
            let key = format!("key {i}");
            w.session.execute_unpaged(&insert, (&key, i)).await?;
            let answer = w.session.execute_unpaged(&read, (&key,)).await?;
            let shard = answer.request_coordinator().shard();
            let rows = answer.into_rows_result()?;
            let (token, value) = rows.single_row::<(i64, i32)>()?;
            let computed = read.calculate_token(&(&key,))?.ok_or("no token")?;
            assert_eq!((token, value), (computed.value(), i));
            let Some(shards) = shards else { continue };
            let shard = shard.ok_or("no shard")?;
            assert!(u32::from(shards) > shard);
            reached.insert(shard);
            // By the second pass the driver knows every tablet it was told of, and every shard has a connection. With one
            // shard no request is on the wrong one, so it is told of none.
            let state = w.session.get_cluster_state();
            let owners = state.get_token_endpoints(&w.keyspace, "keys", computed);
            if pass == 1 && shards > 1 {
                assert!(
                    owners.iter().any(|(_, owner)| *owner == shard),
                    "{key}: shard {shard}, owners {owners:?}"
                );
            }
        }
    }
    match shards {
        Some(shards) => assert_eq!(reached, (0..u32::from(shards)).collect()),
        None => println!("SKIPPED PART: the server announces no shards"),
    }
    w.end().await
}

#[tokio::test]
async fn zz_reconnects_after_a_restart_and_finds_its_data() -> Outcome {
    let Some(command) = setting("CETO_RESTART_CMD") else {
        println!("SKIPPED PART: CETO_RESTART_CMD is not set");
        return Ok(());
    };
    let w = World::new().await?;
    w.wide().await?;
    let read = w.session.prepare("SELECT v FROM wide WHERE p = ?").await?;
    let restart = tokio::process::Command::new("bash").args(["-c", &command]).output().await?;
    assert!(restart.status.success(), "{}", String::from_utf8_lossy(&restart.stderr));
    let deadline = Instant::now() + Duration::from_secs(60);
    let rows = loop {
        match w.session.execute_unpaged(&read, (3,)).await {
            Ok(answer) => break answer.into_rows_result()?,
            Err(away) => assert!(Instant::now() < deadline, "not reachable again: {away}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let values = rows.rows::<(i32,)>()?.map(|row| row.unwrap().0).collect::<Vec<_>>();
    assert_eq!(values, (3000..3050).collect::<Vec<_>>());
    w.run("INSERT INTO wide (p, c, v) VALUES (100, 1, 1)").await?;
    w.end().await
}
