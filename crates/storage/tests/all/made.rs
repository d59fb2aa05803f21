//! Writes that were just made of a table, begun without a second look (`Storage::begin_made`).

use model::mutation::MutationBuilder;
use model::{DeletionTime, Liveness, RowBuilder, Table};
use reactor::{Deadline, Group, ShardInfo, mesh};
use storage::{PartitionRange, Storage, StorageConfig, StorageError};

use crate::table::{ID, changes, values, write};

fn token(key: &str) -> model::Token {
    model::token::murmur3_token(key.as_bytes())
}

/// Mutation bytes of an empty row that has no clustering, where the table wants one.
fn write_without_clustering(key: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let live = DeletionTime::LIVE;
    let builder = MutationBuilder::new(&mut out, ID, token(key), key.as_bytes(), live, |_| ());
    let mut rows = builder.rows();
    rows.row(&[], |out| {
        RowBuilder::new(out, Liveness { timestamp: 1, ..Liveness::NONE }, live).finish();
    });
    rows.finish();
    out
}

#[test]
fn a_write_made_of_a_table_is_looked_at_where_the_table_is_another_now() {
    let directory = tempfile::tempdir().unwrap();
    let config = StorageConfig::new(directory.path(), 8 << 20);
    reactor::run_one(reactor::Config::default(), async move {
        let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
        for change in changes() {
            cluster::change_schema(&change).await.expect("a schema change");
        }
        let now = storage.schema().table_by_id(ID).cloned().expect("the table");
        let altered = Table::clone(&now);
        for (table, value) in [(&*now, "first"), (&altered, "second")] {
            let timestamp = value.len() as i64;
            let bytes = write("key", "c", value, timestamp);
            let begun = storage.begin_made(&bytes, table, token("key"), Deadline::NEVER).expect("a write");
            begun.expect("nothing to wait for").finish(&bytes).await.expect("a write");
            let all = values(&storage, PartitionRange::all()).await.expect("a read");
            assert_eq!(all, [(b"key".to_vec(), value.as_bytes().to_vec())]);
        }
        let bytes = write_without_clustering("key");
        let begun = storage.begin_made(&bytes, &altered, token("key"), Deadline::NEVER);
        assert!(matches!(begun, Err(StorageError::MutationMisfit { table: ID })), "{begun:?}");
        storage.drain().await.expect("a drain");
    });
}

/// Begins writes of twenty keys on one of two shards; only those whose partition this shard owns begin.
async fn only_own_begin(config: StorageConfig, shard: usize) {
    let _storage = cluster::open_storage(config, shard, 2).await.expect("an open storage");
    if shard == 0 {
        for change in changes() {
            cluster::change_schema(&change).await.expect("a schema change");
        }
        mesh::call(1, Group::ADMIN, begin_twenty).await.expect("the other shard");
        begin_twenty().await;
    }
}

async fn begin_twenty() {
    let storage = reactor::local::<Storage>().expect("an open storage");
    let table = storage.schema().table_by_id(ID).cloned().expect("the table");
    let tablets = table.tablets();
    let mut begun_here = 0;
    for key in (0..20).map(|key| format!("key{key}")) {
        let (bytes, token) = (write(&key, "c", "v", 1), token(&key));
        let begun = storage.begin_made(&bytes, &table, token, Deadline::NEVER).expect("a write or nothing");
        let is_own = tablets.shard_of(tablets.tablet_of(token), 2) == reactor::shard_id();
        assert_eq!(begun.is_some(), is_own, "{key}");
        if let Some(begun) = begun {
            begun.finish(&bytes).await.expect("a write");
            begun_here += 1;
        }
    }
    assert!(0 < begun_here && begun_here < 20, "{begun_here} of 20");
}

#[test]
fn a_write_of_another_shards_partition_is_not_begun() {
    let directory = tempfile::tempdir().unwrap();
    let config = StorageConfig::new(directory.path(), 8 << 20);
    let two = reactor::Config { shards: 2, driver: reactor::DriverChoice::Poll, ..Default::default() };
    let running = reactor::start(two, move |shard: ShardInfo| only_own_begin(config.clone(), shard.id));
    running.expect("two shards").join().expect("no panic");
}
