//! The I/O scheduler under simulation, on a disk that serves one request after the other: shares, bounds,
//! latency. All times are virtual, so they are exact.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use reactor::file::{AlignedBuf, File, OpenOptions};
use reactor::io::DiskModel;
use reactor::io::measure::{self, Pattern};
use reactor::metrics::Value;
use reactor::sim::{DiskFaults, NodeId, World};
use reactor::{Group, spawn};

const MODEL: DiskModel =
    DiskModel { read_iops: 10_000, read_bandwidth: 100 << 20, write_iops: 5_000, write_bandwidth: 50 << 20 };
const SECOND: Duration = Duration::from_secs(1);
const FILE_BYTES: usize = 4 << 20;

/// A disk of `speed`, with hardly any latency besides.
fn disk(speed: DiskModel) -> DiskFaults {
    DiskFaults { speed: Some(speed), latency_ns: (1_000, 20_000), ..DiskFaults::default() }
}

async fn open(name: &str) -> File {
    let options = OpenOptions::new().read(true).write(true).create(true).direct(true);
    let file = File::open(name, options).await.unwrap();
    let (written, _) = file.write_at(0, AlignedBuf::with_len(FILE_BYTES)).await;
    written.unwrap();
    file
}

/// The completed work of one group's tasks.
#[derive(Default)]
struct Got {
    operations: Cell<u64>,
    latencies_ns: RefCell<Vec<u64>>,
}

impl Got {
    /// The latency that one in a hundred exceeds, in microseconds.
    fn p99_us(&self) -> u64 {
        let mut sorted = self.latencies_ns.borrow().clone();
        sorted.sort_unstable();
        sorted[sorted.len() * 99 / 100] / 1000
    }
}

/// Tasks of `group` that read `bytes` over and over.
fn readers(group: Group, tasks: usize, bytes: usize, file: &File) -> Rc<Got> {
    let got = Rc::new(Got::default());
    for number in 0..tasks {
        let (got, file) = (got.clone(), file.clone());
        spawn(group, async move {
            let mut offset = number * bytes;
            loop {
                let read = file.read_at((offset % FILE_BYTES) as u64, bytes).await.unwrap();
                assert_eq!(read.len(), bytes);
                got.operations.set(got.operations.get() + 1);
                offset += bytes;
            }
        })
        .detach();
    }
    got
}

/// A world of one node whose shards each do `work` on their own file and return its results.
fn world<T: 'static>(
    seed: u64,
    shards: usize,
    speed: DiskModel,
    model: Option<DiskModel>,
    work: impl Fn(&File) -> T + Clone + 'static,
) -> (World, NodeId, Rc<RefCell<Vec<T>>>) {
    let mut world = World::new(seed);
    let results: Rc<RefCell<Vec<T>>> = Rc::default();
    let place = results.clone();
    let node = world.add_node_with(shards, DiskFaults::default(), move |info| {
        let (work, place) = (work.clone(), place.clone());
        async move {
            let file = open(&format!("/file{}", info.id)).await;
            place.borrow_mut().push(work(&file));
            std::future::pending::<()>().await;
        }
    });
    let ready = results.clone();
    world.run_until(|_| ready.borrow().len() == shards).unwrap();
    world.set_disk_faults(node, disk(speed));
    if let Some(model) = model {
        world.set_disk_model(node, model);
    }
    (world, node, results)
}

#[test]
fn groups_share_a_saturated_disk_by_their_shares_and_none_starves() {
    for seed in 0..3 {
        let (mut world, _, got) = world(seed, 1, MODEL, Some(MODEL), |file| {
            [Group::STATEMENT, Group::MEMTABLE, Group::COMPACTION].map(|group| readers(group, 32, 4096, file))
        });
        world.run_for(SECOND / 10).unwrap();
        let before = got.borrow()[0].each_ref().map(|got| got.operations.get());
        world.run_for(SECOND).unwrap();
        let after = got.borrow()[0].each_ref().map(|got| got.operations.get());
        let [statement, memtable, compaction] = std::array::from_fn(|at| after[at] - before[at]);
        let total = statement + memtable + compaction;
        assert!((9_800..=10_050).contains(&total), "seed {seed}: {total} operations of 10,000");
        // 1000 : 400 : 200 shares.
        let expect = |got: u64, shares: u64| {
            let due = total * shares / 1600;
            assert!(got.abs_diff(due) <= due / 10, "seed {seed}: {got} for {shares} shares, {due} due");
        };
        expect(statement, 1000);
        expect(memtable, 400);
        expect(compaction, 200);
    }
}

/// Pieces of 64 KiB a flush writes in a second, one at a time with `pause` to make the next, beside a
/// foreground that never rests.
fn flushed_pieces(pause: Duration) -> u64 {
    let (mut world, _, got) = world(2, 1, MODEL, Some(MODEL), move |file| {
        let (got, file) = (Rc::new(Got::default()), file.clone());
        drop(readers(Group::STATEMENT, 32, 4096, &file));
        let place = got.clone();
        spawn(Group::MEMTABLE, async move {
            let mut buf = AlignedBuf::with_len(64 << 10);
            loop {
                let (written, back) = file.write_at(0, buf).await;
                written.unwrap();
                buf = back;
                place.operations.set(place.operations.get() + 1);
                reactor::sleep(pause).await;
            }
        })
        .detach();
        got
    });
    world.run_for(SECOND / 10).unwrap();
    let before = got.borrow()[0].operations.get();
    world.run_for(SECOND).unwrap();
    let after = got.borrow()[0].operations.get();
    after - before
}

#[test]
fn a_flush_that_writes_one_piece_at_a_time_gets_its_shares_beside_a_foreground_that_never_rests() {
    // 64 KiB take 1.25 ms: 228 in a second are 400 of 1400 shares, also when it pauses as long as it may be
    // passed.
    for pause_us in [50, 2_000] {
        let pieces = flushed_pieces(Duration::from_micros(pause_us));
        assert!((215..=240).contains(&pieces), "{pieces} pieces with pauses of {pause_us} us");
    }
}

#[test]
fn the_disk_is_given_no_more_than_a_millisecond_of_work() {
    // A disk as fast as its model, and one four times slower: completions limit the depth.
    let slow = DiskModel {
        read_iops: MODEL.read_iops / 4,
        read_bandwidth: MODEL.read_bandwidth / 4,
        write_iops: MODEL.write_iops / 4,
        write_bandwidth: MODEL.write_bandwidth / 4,
    };
    for speed in [MODEL, slow] {
        let (mut world, node, got) = world(1, 1, speed, Some(MODEL), |file| {
            (readers(Group::STATEMENT, 100, 4096, file), readers(Group::COMPACTION, 100, 4096, file))
        });
        world.run_for(SECOND / 10).unwrap();
        let (end, deepest) = (world.now() + SECOND, Cell::new(0));
        world
            .run_until(|world| {
                deepest.set(deepest.get().max(world.disk_depth(node)));
                world.now() >= end
            })
            .unwrap();
        // 100 us each: ten fill the millisecond, and one is begun before it is full.
        assert!((6..=11).contains(&deepest.get()), "{} in flight", deepest.get());
        assert!(got.borrow()[0].1.operations.get() > 100, "compaction is not starved");
    }
}

/// 99th percentile of single point reads, in microseconds, beside as much background work as is given.
fn point_read_p99_us(background: bool, model: Option<DiskModel>) -> u64 {
    let (mut world, _, got) = world(7, 1, MODEL, model, move |file| {
        if background {
            drop(readers(Group::COMPACTION, 8, 1 << 20, file));
            for _ in 0..4 {
                let file = file.clone();
                spawn(Group::MEMTABLE, async move {
                    let mut buf = AlignedBuf::with_len(1 << 20);
                    loop {
                        let (written, back) = file.write_at(0, buf).await;
                        written.unwrap();
                        buf = back;
                    }
                })
                .detach();
            }
        }
        let (got, file) = (Rc::new(Got::default()), file.clone());
        let place = got.clone();
        spawn(Group::STATEMENT, async move {
            loop {
                reactor::sleep(Duration::from_millis(2)).await;
                let begin = reactor::now();
                file.read_at(4096, 4096).await.unwrap();
                place.latencies_ns.borrow_mut().push(begin.elapsed().as_nanos() as u64);
            }
        })
        .detach();
        got
    });
    world.run_for(SECOND / 2).unwrap();
    got.borrow()[0].latencies_ns.borrow_mut().clear();
    world.run_for(4 * SECOND).unwrap();
    let got = got.borrow();
    assert!(got[0].latencies_ns.borrow().len() > 20);
    got[0].p99_us()
}

#[test]
fn compaction_and_flush_delay_a_point_read_by_a_bounded_device_time() {
    let alone = point_read_p99_us(false, Some(MODEL));
    let scheduled = point_read_p99_us(true, Some(MODEL));
    let unscheduled = point_read_p99_us(true, None);
    println!("p99 of a point read: {alone} us alone, {scheduled} scheduled, {unscheduled} not");
    assert!(alone <= 150, "{alone} us alone");
    // Half a millisecond of background work may be ahead, and a piece that was begun: 64 KiB written in 1.25
    // ms.
    assert!(
        scheduled <= alone + 500 + 1_250 + 100,
        "{scheduled} us beside background work, {alone} us alone"
    );
    assert!(unscheduled > 50_000, "{unscheduled} us without a scheduler: this test would show nothing");
}

#[test]
fn shards_share_the_disk_and_each_gets_its_part() {
    let (mut world, _, got) =
        world(3, 4, MODEL, Some(MODEL), |file| readers(Group::STATEMENT, 32, 4096, file));
    world.run_for(SECOND / 10).unwrap();
    let count = |got: &RefCell<Vec<Rc<Got>>>| -> Vec<u64> {
        got.borrow().iter().map(|got| got.operations.get()).collect()
    };
    let before = count(&got);
    world.run_for(SECOND).unwrap();
    let each: Vec<u64> = count(&got).iter().zip(&before).map(|(after, before)| after - before).collect();
    let total: u64 = each.iter().sum();
    assert!((9_800..=10_100).contains(&total), "{each:?}");
    assert!(each.iter().all(|count| *count >= 2_000), "{each:?}");
}

#[test]
fn one_busy_shard_of_four_may_have_the_whole_disk() {
    let (mut world, _, got) = world(3, 4, MODEL, Some(MODEL), |file| {
        (reactor::shard_id() == 2).then(|| readers(Group::COMPACTION, 32, 4096, file))
    });
    world.run_for(SECOND).unwrap();
    let total: u64 = got.borrow().iter().flatten().map(|got| got.operations.get()).sum();
    assert!(total >= 9_500, "{total} of 10,000");
}

fn metric(samples: &[reactor::metrics::Sample], name: &str, group: Group) -> u64 {
    let found = samples.iter().find(|sample| {
        sample.name == name
            && sample.labels.iter().any(|(name, value)| name == "class" && value == group.name())
    });
    match found.unwrap_or_else(|| panic!("no {name}")).value {
        Value::Counter(count) => count,
        Value::Gauge(level) => level as u64,
        Value::Seconds(time) => time.as_nanos() as u64,
        ref other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn long_transfers_go_in_pieces_and_come_back_whole() {
    let mut world = World::new(5);
    let node = world.add_node(1, |_| async {
        spawn(Group::MEMTABLE, async {
            let options = OpenOptions::new().read(true).write(true).create(true).direct(true);
            let file = File::open("/long", options).await.unwrap();
            let mut buf = AlignedBuf::with_len(1 << 20);
            for (number, byte) in buf.iter_mut().enumerate() {
                *byte = (number / 4096) as u8;
            }
            let (written, back) = file.write_at(0, buf).await;
            written.unwrap();
            assert_eq!(back.len(), 1 << 20);
            let read = file.read_at(0, 2 << 20).await.unwrap();
            assert!(read[..] == back[..]);
        })
        .await
        .unwrap();
        let samples = reactor::metrics::snapshot();
        assert_eq!(metric(&samples, "scylla_io_queue_total_write_ops", Group::MEMTABLE), 16);
        assert_eq!(metric(&samples, "scylla_io_queue_total_write_bytes", Group::MEMTABLE), 1 << 20);
        assert!(metric(&samples, "scylla_io_queue_total_read_ops", Group::MEMTABLE) >= 16);
        // 16 pieces of 64 KiB written at 50 MiB/s, 20 ms, and as many read at twice that.
        assert!(metric(&samples, "scylla_io_queue_consumption", Group::MEMTABLE) >= 30_000_000);
        assert!(metric(&samples, "scylla_io_queue_total_delay_sec", Group::MEMTABLE) > 0);
        assert!(metric(&samples, "scylla_io_queue_total_exec_sec", Group::MEMTABLE) > 0);
        assert_eq!(metric(&samples, "scylla_io_queue_queue_length", Group::MEMTABLE), 0);
        assert_eq!(metric(&samples, "scylla_io_queue_disk_queue_length", Group::MEMTABLE), 0);
        assert_eq!(metric(&samples, "scylla_io_queue_shares", Group::MEMTABLE), 400);
    });
    world.set_disk_model(node, MODEL);
    world.run().unwrap();
    assert_eq!(world.outcome(node), Some(Ok(())));
}

#[test]
fn who_gives_up_waiting_leaves_nothing_behind() {
    let mut world = World::new(9);
    let node = world.add_node_with(1, disk(MODEL), |_| async {
        let file = open("/file").await;
        let late = Rc::new(Cell::new(0));
        for number in 0..2000u64 {
            let (file, late) = (file.clone(), late.clone());
            spawn(Group::COMPACTION, async move {
                let soon = reactor::Deadline::after(Duration::from_millis(number % 50));
                if reactor::timeout(soon, file.read_at(number % 1000 * 4096, 4096)).await.is_err() {
                    late.set(late.get() + 1);
                }
            })
            .detach();
        }
        reactor::sleep(Duration::from_secs(2)).await;
        assert!((1000..2000).contains(&late.get()), "{} gave up", late.get());
        let samples = reactor::metrics::snapshot();
        for (name, group) in [
            ("scylla_io_queue_queue_length", Group::COMPACTION),
            ("scylla_io_queue_disk_queue_length", Group::COMPACTION),
        ] {
            assert_eq!(metric(&samples, name, group), 0);
        }
        let operations = samples.iter().find(|sample| sample.name == "reactor_operations").unwrap();
        assert_eq!(operations.value, Value::Gauge(0));
        file.read_at(0, 4096).await.unwrap();
    });
    world.set_disk_model(node, MODEL);
    world.run().unwrap();
    assert_eq!(world.outcome(node), Some(Ok(())));
}

#[test]
fn a_write_that_waits_when_its_task_ends_still_happens() {
    let mut world = World::new(11);
    let node = world.add_node_with(1, disk(MODEL), |_| async {
        let file = open("/file").await;
        for number in 0..40u64 {
            let file = file.clone();
            spawn(Group::BACKGROUND, async move {
                let mut buf = AlignedBuf::with_len(4096);
                buf.fill(7);
                let _ = file.write_at(number * 4096, buf).await;
            })
            .detach();
        }
        reactor::yield_now().await;
        // Enough turns for all of them to have asked; the disk serves five in a millisecond.
        reactor::sleep(Duration::from_millis(1)).await;
    });
    world.set_disk_model(node, MODEL);
    world.run().unwrap();
    assert_eq!(world.outcome(node), Some(Ok(())));
    let content = world.read_file(node, "/file").unwrap();
    assert!(content[..40 * 4096].iter().all(|byte| *byte == 7));
}

#[test]
fn a_crash_while_requests_wait_leaves_a_node_that_starts_again() {
    let mut world = World::new(13);
    let node = world.add_node_with(2, disk(MODEL), |info| async move {
        let file = open(&format!("/file{}", info.id)).await;
        drop(readers(Group::COMPACTION, 64, 64 << 10, &file));
        for _ in 0..8 {
            let file = file.clone();
            spawn(Group::MEMTABLE, async move {
                while file.write_at(0, AlignedBuf::with_len(1 << 20)).await.0.is_ok() {}
            })
            .detach();
        }
        std::future::pending::<()>().await;
    });
    world.set_disk_model(node, MODEL);
    for _ in 0..5 {
        world.run_for(SECOND / 5).unwrap();
        assert!(world.disk_depth(node) > 0);
        world.crash(node);
        world.restart(node);
    }
}

#[test]
fn measuring_finds_what_the_disk_can_do_and_leaves_nothing() {
    let mut world = World::new(17);
    let node = world.add_node_with(1, disk(MODEL), |_| async {
        reactor::file::create_dir_all("/data").await.unwrap();
        let file = measure::scratch("/data".as_ref()).await.unwrap();
        file.fallocate(0, FILE_BYTES as u64).await.unwrap();
        let rate = async |read: bool, random: bool, bytes: usize| {
            let pattern = Pattern { read, random, bytes, depth: 16 };
            measure::run(&file, FILE_BYTES as u64, pattern, SECOND / 2).await.unwrap()
        };
        let near = |seen: f64, truth: u64| {
            assert!((seen - truth as f64).abs() < truth as f64 * 0.03, "{seen} measured, {truth} is true");
        };
        near(rate(true, true, 4096).await.iops(), MODEL.read_iops);
        near(rate(false, true, 4096).await.iops(), MODEL.write_iops);
        near(rate(true, false, 256 << 10).await.bandwidth(), MODEL.read_bandwidth);
        near(rate(false, false, 256 << 10).await.bandwidth(), MODEL.write_bandwidth);
        // A probe is generous, and takes some 20 ms.
        let begin = reactor::now();
        let model = measure::probe("/data".as_ref()).await.unwrap();
        assert!(begin.elapsed() < Duration::from_millis(60), "{:?}", begin.elapsed());
        assert!((MODEL.read_iops..=3 * MODEL.read_iops).contains(&model.read_iops), "{model:?}");
        assert!(model.write_bandwidth >= MODEL.write_bandwidth, "{model:?}");
        assert!(reactor::file::read_dir("/data").await.unwrap().is_empty());
        // Every shard follows a model that is set, under its name.
        reactor::io::set_model("/data", model);
        assert_eq!(reactor::io::model("/data"), Some(model));
    });
    world.run().unwrap();
    assert_eq!(world.outcome(node), Some(Ok(())));
}

#[test]
fn measuring_a_broken_disk_is_an_error() {
    let mut world = World::new(19);
    let broken = DiskFaults { write_error: 1.0, ..disk(MODEL) };
    let node = world.add_node_with(1, broken, |_| async {
        let error = measure::probe("/".as_ref()).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5));
    });
    world.run().unwrap();
    assert_eq!(world.outcome(node), Some(Ok(())));
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = |seed| {
        let (mut world, _, _) = world(seed, 3, MODEL, Some(MODEL), |file| {
            (readers(Group::STATEMENT, 8, 4096, file), readers(Group::COMPACTION, 4, 1 << 20, file))
        });
        world.run_for(SECOND / 4).unwrap();
        world.trace_hash()
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}
