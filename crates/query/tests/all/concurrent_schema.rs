//! Many clients change the schema at once, on every shard: no change is lost or made twice, and all shards
//! and the next start agree on the result.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use crate::support::{body, node, rows, run};
use query::{Engine, QueryError};
use reactor::{Group, mesh};

/// Clients at once.
const CLIENTS: usize = 8;
/// Tables each of them makes.
const TABLES: usize = 2;

/// Waits for all of `tasks`, each polled whenever one of them can go on.
async fn all<T>(mut tasks: Vec<Pin<Box<dyn Future<Output = T>>>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = tasks.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (task, slot) in tasks.iter_mut().zip(&mut done) {
            if slot.is_none()
                && let Poll::Ready(value) = task.as_mut().poll(cx)
            {
                *slot = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// Sends a statement on a shard; returns false if the thing it creates exists already.
async fn ask(shard: usize, statement: String) -> bool {
    let answer = mesh::call(shard, Group::STATEMENT, move || async move {
        let engine = Engine::here().expect("the shard has an engine");
        match body(&engine, &statement).await {
            Ok(_) => Ok(true),
            Err(QueryError::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(format!("{statement}: {error}")),
        }
    });
    answer.await.unwrap().unwrap()
}

/// The actions of one client; returns how many of the contested tables it created.
async fn client(at: usize) -> usize {
    let shard = at % reactor::shard_count();
    let mut won = 0;
    for table in 0..TABLES {
        let own = format!("own_{at}_{table}");
        assert!(ask(shard, format!("CREATE TABLE {own} (k int PRIMARY KEY, v int)")).await);
        assert!(ask(shard, format!("ALTER TABLE {own} ADD w_{at} text")).await);
        assert!(ask(shard, format!("INSERT INTO {own} (k, v, w_{at}) VALUES ({at}, {table}, 'x')")).await);
        won += usize::from(ask(shard, format!("CREATE TABLE contested_{table} (k int PRIMARY KEY)")).await);
        ask(shard, "CREATE TYPE IF NOT EXISTS shared (a int)".to_owned()).await;
        ask(shard, format!("ALTER TABLE grown ADD c_{at}_{table} int")).await;
        ask(shard, "CREATE TABLE IF NOT EXISTS passing (k int PRIMARY KEY)".to_owned()).await;
        ask(shard, "DROP TABLE IF EXISTS passing".to_owned()).await;
        if table == 0 {
            assert!(ask(shard, format!("DROP TABLE {own}")).await);
        }
    }
    won
}

async fn columns_of(engine: &Engine, table: &str) -> usize {
    rows(engine, &format!("SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = '{table}'"))
        .await
        .len()
}

async fn check(engine: &Engine) {
    let tables: BTreeSet<String> =
        rows(engine, "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'ks'")
            .await
            .into_iter()
            .collect();
    let own = (0..CLIENTS).flat_map(|at| (1..TABLES).map(move |table| format!("'own_{at}_{table}'")));
    let contested = (0..TABLES).map(|table| format!("'contested_{table}'"));
    assert_eq!(tables, own.chain(contested).chain(["'grown'".to_owned()]).collect());
    assert_eq!(columns_of(engine, "grown").await, 1 + CLIENTS * TABLES, "no column is lost");
    for at in 0..CLIENTS {
        let statement = format!("SELECT k, v, w_{at} FROM own_{at}_1");
        assert_eq!(rows(engine, &statement).await, [format!("{at} | 1 | 'x'")]);
    }
    let mut versions = BTreeSet::new();
    for shard in 0..reactor::shard_count() {
        let version = mesh::call(shard, Group::STATEMENT, || async {
            let engine = Engine::here().expect("the shard has an engine");
            rows(&engine, "SELECT schema_version FROM system.local").await.join("")
        });
        versions.insert(version.await.unwrap());
    }
    assert_eq!(versions.len(), 1, "{versions:?}");
}

async fn change_at_once(engine: Engine) {
    run(&engine, "CREATE TABLE grown (k int PRIMARY KEY)").await;
    let clients = (0..CLIENTS).map(|at| Box::pin(client(at)) as Pin<Box<dyn Future<Output = usize>>>);
    let won: usize = all(clients.collect()).await.into_iter().sum();
    assert_eq!(won, TABLES, "each contested table is made once");
    check(&engine).await;
}

#[test]
fn schemas_changed_by_many_clients_at_once_are_neither_lost_nor_torn() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 2, change_at_once);
    node(folder.path(), 1, |engine| async move { check(&engine).await });
}
