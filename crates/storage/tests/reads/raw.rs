//! A raw read against the live read, and against the raw read of a table with the same writes that was
//! flushed and compacted at other times.
#![allow(clippy::disallowed_types, reason = "proptest's macros name Arc")]

use std::cell::Cell;
use std::rc::Rc;

use model::clustering::Slice;
use model::partition_key::DecoratedKey;
use model::{Table, TableId};
use proptest::prelude::*;
use reactor::Deadline;
use reactor::sim::{DiskFaults, World};
use storage::{PartitionRange, ReadCommand, Slices, Storage, StorageConfig};

use super::heard::{Heard, Seen, join};
use super::writes::{BASE, Bound, KEYS, Kind, SPAN, Write, bound, changes, position, value, write};

/// The table that is flushed and compacted, and the one that stays in its memtable.
const IDS: [TableId; 2] = [TableId([1; 16]), TableId([2; 16])];
const STEPS_MAX: u64 = 20_000_000;

#[derive(Debug, Clone)]
enum Op {
    Write(Write),
    Flush,
    Compact,
    Read(Read),
}

#[derive(Debug, Clone)]
pub(super) struct Read {
    /// One partition, or all.
    pub(super) key: Option<u8>,
    pub(super) bounds: Vec<Bound>,
    pub(super) reversed: bool,
    pub(super) now: u32,
    pub(super) stop: Option<usize>,
}

pub(super) fn read() -> impl Strategy<Value = Read> {
    (
        proptest::option::weighted(0.7, 0..KEYS),
        prop_oneof![Just(Vec::new()), proptest::collection::vec(bound(), 2..6)],
        any::<bool>(),
        BASE..BASE + SPAN,
        proptest::option::of(1..12usize),
    )
        .prop_map(|(key, bounds, reversed, now, stop)| Read { key, bounds, reversed, now, stop })
}

fn op(write: impl Strategy<Value = Write>) -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => write.prop_map(Op::Write),
        2 => Just(Op::Flush),
        1 => Just(Op::Compact),
        6 => read().prop_map(Op::Read),
    ]
}

pub(super) fn slices(bounds: &[Bound], table: &Table) -> Slices {
    if bounds.is_empty() {
        return [Slice::all()].into_iter().collect();
    }
    let orders = table.clustering_orders();
    let mut bounds: Vec<_> = bounds.iter().map(position).collect();
    bounds.sort_by(|x, y| x.as_ref().compare(y.as_ref(), orders));
    bounds.dedup();
    bounds.chunks_exact(2).map(|pair| Slice { start: pair[0].clone(), end: pair[1].clone() }).collect()
}

pub(super) fn command(storage: &Storage, id: TableId, read: &Read) -> ReadCommand {
    let table = storage.schema().table_by_id(id).cloned().expect("the table");
    ReadCommand {
        slices: slices(&read.bounds, &table),
        range: match read.key {
            Some(key) => PartitionRange::Key(DecoratedKey::new(vec![key])),
            None => PartitionRange::all(),
        },
        table,
        reversed: read.reversed,
        now: read.now,
        bypass_cache: false,
    }
}

pub(super) async fn raw(storage: &Storage, command: &ReadCommand, stop: Option<usize>) -> Heard {
    let mut heard = Heard::new(command.now, command.reversed, stop);
    storage.read_raw(command, &mut heard).await.expect("a raw read");
    heard
}

async fn check(storage: &Storage, read: &Read) {
    let [filed, in_memory] = IDS.map(|id| command(storage, id, read));
    let (whole, same) = (raw(storage, &filed, None).await, raw(storage, &in_memory, None).await);
    assert_eq!(whole.parts, same.parts, "from files and from memory: {read:?}");
    assert!(read.key.is_none() || whole.parts.len() <= 1, "one partition was asked for");
    let mut seen = Seen::default();
    storage.read(&filed, &mut seen).await.expect("a read");
    assert_eq!(whole.live, seen.0, "the live rows of a raw read: {read:?}");
    stop_and_continue(storage, filed, read, &whole).await;
}

/// Stops a read and reads on in its last partition: both together have what one read has.
async fn stop_and_continue(storage: &Storage, mut command: ReadCommand, read: &Read, whole: &Heard) {
    let first = raw(storage, &command, read.stop).await;
    let Some((key, at, open)) = first.stopped else {
        assert_eq!(first.parts, whole.parts, "a read that is not stopped");
        return;
    };
    let (last, before) = first.parts.split_last().expect("a partition");
    assert_eq!(before, &whole.parts[..before.len()], "partitions before the last");
    let full = &whole.parts[before.len()];
    let Some(at) = at else {
        assert_eq!((last, open.is_live()), (full, true), "stopped at the end of a partition");
        return;
    };
    let table = Rc::clone(&command.table);
    let orders = table.clustering_orders();
    command.range = PartitionRange::Key(DecoratedKey::new(key));
    for slice in &mut command.slices {
        let edge = if read.reversed { &mut slice.end } else { &mut slice.start };
        let order = edge.as_ref().compare(at.as_ref(), orders);
        if if read.reversed { order.is_gt() } else { order.is_lt() } {
            *edge = at.clone();
        }
    }
    command.slices.retain(|slice| !slice.is_empty(orders));
    let rest = raw(storage, &command, None).await;
    assert!(rest.stopped.is_none() && rest.parts.len() <= 1, "{rest:?}");
    let joined = match rest.parts.first() {
        None => last.clone(),
        Some(rest) if read.reversed => join(rest, last, orders),
        Some(rest) => join(last, rest, orders),
    };
    assert_eq!(&joined, full, "stopped at {at:?} with {open:?}: {read:?}");
}

pub(super) async fn open(ids: &[TableId]) -> Storage {
    let mut config = StorageConfig::new("/ceto", 1 << 20);
    config.segment_bytes = 64 << 10;
    config.commitlog_bytes_max = 1 << 20;
    let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
    for change in changes(ids) {
        cluster::change_schema(&change).await.expect("a schema change");
    }
    storage
}

pub(super) async fn apply(storage: &Storage, id: TableId, write: &Write) {
    let table = storage.schema().table_by_id(id).cloned().expect("the table");
    storage.apply(&write.mutation(&table), Deadline::NEVER).await.expect("a write");
}

async fn node(ops: Vec<Op>) {
    let storage = open(&IDS).await;
    for op in &ops {
        match op {
            Op::Write(write) => {
                for id in IDS {
                    apply(&storage, id, write).await;
                }
            }
            Op::Flush => storage.flush(IDS[0]).await.expect("a flush"),
            Op::Compact => storage.compact(IDS[0]).await.expect("a compaction"),
            Op::Read(read) => check(&storage, read).await,
        }
    }
}

/// Runs one node until its work is done.
pub(super) fn run<F: Future<Output = ()> + 'static>(
    seed: u64,
    work: impl FnOnce() -> F + 'static,
) -> Result<(), String> {
    let mut world = World::new(seed);
    let (done, work) = (Rc::new(Cell::new(false)), Cell::new(Some(work)));
    let of_node = Rc::clone(&done);
    let faults = DiskFaults { lose_unsynced: false, ..DiskFaults::default() };
    let id = world.add_node_with(1, faults, move |_| {
        let (done, work) = (Rc::clone(&of_node), work.take().expect("a node that starts once"));
        async move {
            work().await;
            done.set(true);
        }
    });
    let ended = world.run_steps(STEPS_MAX, |world| done.get() || world.outcome(id).is_some());
    match world.outcome(id) {
        Some(Err(problem)) => Err(problem),
        _ if done.get() => Ok(()),
        _ => Err(format!("it does not end: {ended:?}")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn raw_reads_have_what_live_reads_have_and_do_not_tell_files_from_memory(
        ops in proptest::collection::vec(op(write()), 1..160), seed in 0u64..1000
    ) {
        prop_assert_eq!(run(seed, || node(ops)), Ok(()));
    }

    #[test]
    fn a_scan_of_files_without_deletions_has_what_their_merge_has(
        ops in proptest::collection::vec(op(value()), 1..120), seed in 0u64..1000
    ) {
        prop_assert_eq!(run(seed, || node(ops)), Ok(()));
    }
}

#[test]
fn deletions_and_expired_cells_are_handed_over() {
    let kinds = [
        (2, Kind::DeletePartition),
        (3, Kind::Insert(0, 0, 1, true)),
        (3, Kind::Value(0, 1, None, false)),
        (3, Kind::DeleteRow(0, 2)),
        (3, Kind::Insert(2, 0, 1, false)),
        (4, Kind::DeleteRange((1, None, -1), (2, None, 1))),
        (5, Kind::Static(None, false)),
        (1, Kind::Insert(0, 1, 1, false)),
    ];
    let expected = "partition deleted at 2, static cells [Tombstone { local_time: 2000000000 }]
row [0, 2] deleted at 3, marker none, cells []
row [0, 1] marker none, cells [Tombstone { local_time: 2000000000 }]
row [0, 0] marker at 3, cells [Expiring { value: [1], ttl: 7, expires_at: 2000000000 }]
range from [1] -1 to [2] 1 deleted at 4
";
    let ran = run(1, move || async move {
        let storage = open(&IDS).await;
        for (timestamp, kind) in kinds {
            let local = 0;
            for id in IDS {
                apply(&storage, id, &Write { key: 1, timestamp, local, base: BASE, kind: kind.clone() })
                    .await;
            }
            storage.flush(IDS[0]).await.expect("a flush");
        }
        for (id, reversed) in [(IDS[0], false), (IDS[0], true), (IDS[1], false), (IDS[1], true)] {
            let read = Read { key: Some(1), bounds: Vec::new(), reversed, now: BASE + SPAN, stop: None };
            let heard = raw(&storage, &command(&storage, id, &read), None).await;
            assert_eq!(heard.parts.len(), 1);
            assert_eq!(heard.parts[0].to_string(), expected, "{id:?}, reversed: {reversed}");
            let missing = Read { key: Some(7), ..read };
            let heard = raw(&storage, &command(&storage, id, &missing), None).await;
            assert_eq!(heard.parts, [], "a partition that does not exist");
        }
    });
    assert_eq!(ran, Ok(()));
}
