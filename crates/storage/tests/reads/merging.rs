//! Raw answers of replicas that got different writes merge to the answer of one that got them all, and each
//! replica becomes that one by the writes that it lacks.
#![allow(clippy::disallowed_types, reason = "proptest's macros name Arc")]

use model::mutation::MutationView;
use model::partition_key::DecoratedKey;
use model::{PartitionContents, Table, TableId, diff};
use proptest::prelude::*;
use reactor::Deadline;
use storage::Storage;

use super::raw::{Read, apply, command, open, raw, read, run};
use super::writes::{KEYS, Write, write};

/// The table that gets all writes, and the replicas.
const WHOLE: TableId = TableId([1; 16]);
const REPLICAS: [TableId; 3] = [TableId([2; 16]), TableId([3; 16]), TableId([4; 16])];

#[derive(Debug, Clone)]
enum Op {
    /// The write reaches the replicas whose bits are set.
    Write(Write, u8),
    Flush(TableId),
    Compact(TableId),
}

fn op() -> impl Strategy<Value = Op> {
    let table = || prop_oneof![Just(WHOLE), Just(REPLICAS[0]), Just(REPLICAS[1]), Just(REPLICAS[2])];
    prop_oneof![
        12 => (write(), 1..8u8).prop_map(|(write, replicas)| Op::Write(write, replicas)),
        2 => table().prop_map(Op::Flush),
        1 => table().prop_map(Op::Compact),
    ]
}

fn merge(table: &Table, answers: &[Vec<u8>]) -> PartitionContents {
    let views: Vec<_> = answers.iter().map(|bytes| MutationView::parse(bytes).expect("a mutation")).collect();
    assert!(views.iter().all(|view| view.fits(table)));
    PartitionContents::merge(table, &views)
}

/// The answer of one table as a mutation, if it has the partition.
async fn answer(storage: &Storage, id: TableId, read: &Read) -> Option<Vec<u8>> {
    let heard = raw(storage, &command(storage, id, read), None).await;
    assert!(heard.parts.len() <= 1, "one partition was asked for");
    heard.parts.first().map(|part| part.mutation(id))
}

async fn node(ops: Vec<Op>, read: Read) {
    let storage = open(&[WHOLE, REPLICAS[0], REPLICAS[1], REPLICAS[2]]).await;
    let table = storage.schema().table_by_id(WHOLE).cloned().expect("the table");
    for op in &ops {
        match op {
            Op::Write(write, replicas) => {
                apply(&storage, WHOLE, write).await;
                for (at, id) in REPLICAS.into_iter().enumerate() {
                    if replicas & (1 << at) != 0 {
                        apply(&storage, id, write).await;
                    }
                }
            }
            Op::Flush(id) => storage.flush(*id).await.expect("a flush"),
            Op::Compact(id) => storage.compact(*id).await.expect("a compaction"),
        }
    }
    for key in 0..KEYS {
        let part = Read { key: Some(key), ..read.clone() };
        merges_to_the_whole(&storage, &table, &part).await;
        let all = Read { bounds: Vec::new(), ..part };
        let writes = ops.iter().filter_map(|op| match op {
            Op::Write(write, _) if write.key == key => Some(write.mutation(&table)),
            _ => None,
        });
        let merged = merges_to_the_whole(&storage, &table, &all).await;
        assert_eq!(merged, merge(&table, &writes.collect::<Vec<_>>()), "the writes themselves");
        repaired(&storage, &table, &all, &merged).await;
    }
}

async fn merges_to_the_whole(storage: &Storage, table: &Table, read: &Read) -> PartitionContents {
    let whole: Vec<_> = answer(storage, WHOLE, read).await.into_iter().collect();
    let whole = merge(table, &whole);
    let mut answers = Vec::new();
    for id in REPLICAS {
        answers.extend(answer(storage, id, read).await);
    }
    assert_eq!(merge(table, &answers), whole, "{read:?}");
    whole
}

/// Writes to each replica what it lacks; then it answers as the whole does.
async fn repaired(storage: &Storage, table: &Table, read: &Read, merged: &PartitionContents) {
    let key = DecoratedKey::new(read.key.into_iter().collect());
    for id in REPLICAS {
        let stored: Vec<_> = answer(storage, id, read).await.into_iter().collect();
        let stored = merge(table, &stored);
        let lacking = diff(table, merged, &stored);
        assert_eq!(lacking.is_empty(), stored == *merged, "{lacking:?}");
        if lacking.is_empty() {
            continue;
        }
        let mut bytes = Vec::new();
        lacking.append_mutation(&mut bytes, id, key.token, &key.key);
        storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
        let now: Vec<_> = answer(storage, id, read).await.into_iter().collect();
        assert_eq!(&merge(table, &now), merged, "a repaired replica");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn raw_answers_merge_to_the_whole_and_repair_each_replica(
        ops in proptest::collection::vec(op(), 1..120), read in read(), seed in 0u64..1000
    ) {
        prop_assert_eq!(run(seed, || node(ops, read)), Ok(()));
    }
}
