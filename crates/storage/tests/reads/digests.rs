//! Digests of raw reads: equal where the contents are, whatever compactions purged, and else not.
#![allow(clippy::disallowed_types, reason = "proptest's macros name Arc")]

use model::reconcile::DIGEST_VERSION;
use model::{Digest, TableId};
use proptest::prelude::*;
use storage::Storage;

use super::raw::{Read, apply, command, open, raw, run};
use super::writes::{Kind, SPAN, Write, write};

/// The table that is flushed and compacted, and the one that stays in its memtable.
const IDS: [TableId; 2] = [TableId([1; 16]), TableId([2; 16])];

#[derive(Debug, Clone)]
enum Op {
    Write(Write),
    Flush,
    Compact,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => write().prop_map(Op::Write),
        2 => Just(Op::Flush),
        2 => Just(Op::Compact),
    ]
}

fn clock() -> u32 {
    u32::try_from(reactor::wall_clock_us() / 1_000_000).expect("a time before 2106")
}

async fn digest(storage: &Storage, id: TableId, read: &Read, gc_before: u32) -> u128 {
    let mut digest = Digest::new(DIGEST_VERSION, gc_before, read.now).expect("the version");
    storage.read_raw(&command(storage, id, read), &mut digest).await.expect("a raw read");
    digest.finish()
}

async fn node(ops: Vec<Op>) {
    let storage = open(&IDS).await;
    // Half of what is written is past its grace period at once, or expired.
    let (base, mut later) = (clock() - SPAN / 2, 0);
    for op in ops {
        match op {
            Op::Write(mut write) => {
                write.base = base;
                write.timestamp += later;
                for id in IDS {
                    apply(&storage, id, &write).await;
                }
            }
            Op::Flush | Op::Compact => {
                storage.flush(IDS[0]).await.expect("a flush");
                if matches!(op, Op::Compact) {
                    storage.compact(IDS[0]).await.expect("a compaction");
                }
                // A write older than a tombstone that a compaction purged, also one that a flush began, would
                // come back in one table and not in the other.
                later += 100;
            }
        }
    }
    for reversed in [false, true] {
        let read = Read { key: None, bounds: Vec::new(), reversed, now: clock(), stop: None };
        let own = digest(&storage, IDS[0], &read, read.now).await;
        assert_eq!(own, digest(&storage, IDS[1], &read, read.now).await, "reversed: {reversed}");
    }
    one_cell_makes_a_difference(&storage, later).await;
}

async fn one_cell_makes_a_difference(storage: &Storage, later: i64) {
    let read = Read { key: None, bounds: Vec::new(), reversed: false, now: clock(), stop: None };
    let mut last = digest(storage, IDS[0], &read, read.now).await;
    for value in 1..5 {
        let kind = Kind::Value(1, 1, Some(value), false);
        let write = Write { key: 1, timestamp: later + 1_000, local: 0, base: 0, kind };
        apply(storage, IDS[0], &write).await;
        let now = digest(storage, IDS[0], &read, read.now).await;
        assert_ne!(last, now, "with the cell's value {value}");
        last = now;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn digests_do_not_depend_on_flushes_and_compactions(
        ops in proptest::collection::vec(op(), 1..120), seed in 0u64..1000
    ) {
        prop_assert_eq!(run(seed, || node(ops)), Ok(()));
    }
}

#[test]
fn what_was_purged_or_expired_is_in_no_digest() {
    let ran = run(1, || async {
        let storage = open(&IDS).await;
        let kinds = [
            Kind::DeletePartition,
            Kind::Value(0, 0, None, false),
            Kind::Value(0, 1, Some(1), true),
            Kind::DeleteRow(1, 1),
            Kind::DeleteRange((2, None, -1), (2, None, 1)),
            Kind::Static(None, false),
        ];
        for (kind, timestamp) in kinds.into_iter().zip(1..) {
            let base = clock() - SPAN;
            for id in IDS {
                apply(&storage, id, &Write { key: 1, timestamp, local: 0, base, kind: kind.clone() }).await;
            }
        }
        storage.flush(IDS[0]).await.expect("a flush");
        storage.compact(IDS[0]).await.expect("a compaction");
        let read = Read { key: Some(1), bounds: Vec::new(), reversed: false, now: clock(), stop: None };
        let purged = raw(&storage, &command(&storage, IDS[0], &read), None).await;
        let kept = raw(&storage, &command(&storage, IDS[1], &read), None).await;
        assert_eq!((purged.parts.len(), kept.parts.len()), (0, 1), "partitions that have anything");
        let nothing = Digest::new(DIGEST_VERSION, 0, 0).expect("the version").finish();
        assert_eq!(digest(&storage, IDS[0], &read, read.now).await, nothing);
        assert_eq!(digest(&storage, IDS[1], &read, read.now).await, nothing);
        assert_ne!(digest(&storage, IDS[1], &read, 0).await, nothing, "within the grace period");
    });
    assert_eq!(ran, Ok(()));
}
