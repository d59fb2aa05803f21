//! Keyspaces without `durable_writes`: their writes bypass the commit log, and are refused like all others
//! when the log is stopped.
#![allow(clippy::disallowed_methods)]

use model::schema::{KeyspaceOptions, SchemaChange};
use reactor::Deadline;
use storage::{CommitlogSync, FailurePolicy, Storage, StorageConfig, StorageError};

use crate::failing::{all, config, run};
use crate::table::{ID, changes, write};

/// A storage in `batch` mode, with a table in a keyspace that is durable or not.
async fn opened(mut config: StorageConfig, durable: bool) -> Storage {
    config.commitlog_sync = CommitlogSync::Batch;
    let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
    if storage.schema().table_by_id(ID).is_none() {
        let [mut keyspace, table] = changes();
        if let SchemaChange::CreateKeyspace { options, .. } = &mut keyspace {
            options.durable_writes = durable;
        }
        for change in [keyspace, table] {
            cluster::change_schema(&change).await.expect("a schema change");
        }
    }
    storage
}

async fn put(storage: &Storage, number: i64) -> Result<(), StorageError> {
    let bytes = write("key", &number.to_string(), &number.to_string(), number);
    storage.apply(&bytes, Deadline::NEVER).await
}

async fn set_durable(durable_writes: bool) {
    let options = KeyspaceOptions { replication: Default::default(), durable_writes, tablets: None };
    let change = SchemaChange::AlterKeyspace { name: "k".to_owned(), options };
    cluster::change_schema(&change).await.expect("a schema change");
}

#[test]
fn writes_that_need_not_be_durable_pass_the_log_by_until_their_keyspace_says_otherwise() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), FailurePolicy::Ignore);
    let again = config.clone();
    run(async move {
        let storage = opened(config, false).await;
        let logged = |storage: &Storage| storage.stats().commitlog.written_bytes;
        put(&storage, 0).await.expect("a write");
        storage.flush(ID).await.expect("a flush");
        let before = logged(&storage);
        put(&storage, 1).await.expect("a write");
        assert_eq!(logged(&storage), before);
        set_durable(true).await;
        put(&storage, 2).await.expect("a write");
        let with_one = logged(&storage);
        assert!(with_one > before);
        set_durable(false).await;
        put(&storage, 3).await.expect("a write");
        assert_eq!(logged(&storage), with_one);
        assert_eq!(all(&storage).await.expect("a read"), "0123");
    });
    // The flushed rows, and the rows in the log.
    run(async move { assert_eq!(all(&opened(again, false).await).await.expect("a read"), "02") });
}

#[test]
fn a_log_that_was_stopped_ends_writes_that_pass_it_by_too() {
    for durable in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path(), FailurePolicy::Ignore);
        let again = config.clone();
        run(async move {
            let storage = opened(config, durable).await;
            put(&storage, 0).await.expect("a write");
            // As the node does under `commit_failure_policy: stop_commit`.
            storage.stop_writes();
            let error = put(&storage, 1).await.expect_err("writes are stopped");
            assert!(matches!(error, StorageError::CommitlogDead { .. }), "{durable}: {error}");
            assert!(error.to_string().contains("commitlog"), "names the log: {error}");
            assert_eq!(all(&storage).await.expect("a read"), "0", "{durable}");
            storage.flush(ID).await.expect("a flush");
            put(&storage, 1).await.expect_err("writes are stopped");
        });
        run(async move {
            let storage = opened(again, durable).await;
            put(&storage, 2).await.expect("a write after a restart");
            assert_eq!(all(&storage).await.expect("a read"), "02", "{durable}");
        });
    }
}
