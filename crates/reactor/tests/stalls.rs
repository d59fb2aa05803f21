//! The stall detector: a stall made on purpose is found, named, and distinguished from a stall in the kernel.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use reactor::metrics::Value;
use reactor::stall::{Stall, StallDetector, StallKind};
use reactor::{Config, DriverChoice, Group, run_one, spawn};

/// The detector's function has no state of its own: one test at a time.
static TURN: Mutex<()> = Mutex::new(());
static STALLS: Mutex<Vec<Stall>> = Mutex::new(Vec::new());
/// The function whose stall is waited for.
static PLANTED: Mutex<&str> = Mutex::new("nothing");
static FOUND: AtomicBool = AtomicBool::new(false);
static RELEASE: Mutex<Option<PipeWriter>> = Mutex::new(None);

/// A test that failed must not fail the others.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn keep(stall: &Stall) {
    // On a busy machine other things can take long, too, and reports of the test before may come late.
    let planted = *lock(&PLANTED);
    if !stall.trace.iter().any(|name| name.contains(planted)) {
        return;
    }
    lock(&STALLS).push(stall.clone());
    FOUND.store(true, Ordering::SeqCst);
    if let Some(mut writer) = lock(&RELEASE).take() {
        writer.write_all(b"x").unwrap();
    }
}

fn watched(driver: DriverChoice, planted: &'static str, reports_per_minute: u32) -> Config {
    *lock(&PLANTED) = planted;
    lock(&STALLS).clear();
    FOUND.store(false, Ordering::SeqCst);
    let threshold = Duration::from_millis(2);
    let stalls = Some(StallDetector { threshold, reports_per_minute, report: keep, inlined: true });
    Config { driver, stalls, ..Config::default() }
}

fn count(name: &str, label: Option<&str>) -> u64 {
    let samples = reactor::metrics::snapshot();
    let found = samples.iter().find(|sample| {
        sample.name == name && label.is_none_or(|label| sample.labels.iter().any(|(_, value)| value == label))
    });
    match found.expect("a metric of that name").value {
        Value::Counter(count) => count,
        ref other => panic!("{other:?}"),
    }
}

/// Holds the core until the stall is reported; for half a minute if it never is.
#[inline(never)]
fn planted_computation() {
    let begin = reactor::now();
    while !FOUND.load(Ordering::SeqCst) && begin.elapsed() < Duration::from_secs(30) {
        std::hint::spin_loop();
    }
}

/// Blocks in a system call that ends when the stall is reported.
#[inline(never)]
fn planted_wait(mut reader: PipeReader) {
    reader.read_exact(&mut [0]).unwrap();
}

#[test]
fn a_task_that_holds_the_core_is_found_and_named() {
    let _turn = lock(&TURN);
    for (driver, inlined) in
        [(DriverChoice::Uring, true), (DriverChoice::Poll, true), (DriverChoice::Poll, false)]
    {
        let mut config = watched(driver, "planted_computation", 1000);
        config.stalls.as_mut().expect("it has a detector").inlined = inlined;
        let (detected, reported) = run_one(config, async {
            spawn(Group::COMPACTION, async { planted_computation() }).await.unwrap();
            (
                count("reactor_stalls_total", Some("task")) + count("reactor_stalls_total", Some("kernel")),
                count("scylla_stall_detector_reported", None),
            )
        });
        assert!(detected >= 1 && reported >= 1, "{detected} detected, {reported} reported");
        let stalls = lock(&STALLS);
        let stall = stalls.first().expect("a report");
        assert_eq!((stall.shard, stall.group), (0, Some("compaction")), "{stall:?}");
        assert!(stall.held >= Duration::from_millis(2));
        assert!(stall.task.unwrap().contains("a_task_that_holds_the_core"), "{stall:?}");
        let outermost = stall.trace.last().unwrap();
        // By its path, or, if it is optimised and has none, by its file. If it is inlined, without those
        // names only the function that it calls is left.
        let named = outermost.contains("a_task_that_holds_the_core")
            || outermost.contains("tests/stalls.rs:")
            || (!inlined && outermost.contains("planted_computation"));
        assert!(named, "{:?}", stall.trace);
    }
}

#[test]
fn a_system_call_that_blocks_is_told_apart() {
    let _turn = lock(&TURN);
    run_one(watched(DriverChoice::Auto, "planted_wait", 1000), async {
        let (reader, writer) = std::io::pipe().unwrap();
        *lock(&RELEASE) = Some(writer);
        spawn(Group::STATEMENT, async move { planted_wait(reader) }).await.unwrap();
        assert!(count("reactor_stalls_total", Some("kernel")) >= 1);
    });
    let stalls = lock(&STALLS);
    let stall = stalls.first().expect("a report");
    assert_eq!((stall.kind, stall.group), (StallKind::Kernel, Some("statement")), "{stall:?}");
}

#[test]
fn a_shard_that_waits_stalls_nobody() {
    let _turn = lock(&TURN);
    for driver in [DriverChoice::Uring, DriverChoice::Poll] {
        run_one(watched(driver, "nothing", 1000), async {
            let before = count("reactor_stalls_total", Some("kernel"));
            reactor::sleep(Duration::from_millis(30)).await;
            assert_eq!(count("reactor_stalls_total", Some("kernel")), before);
        });
    }
}

#[test]
fn the_timer_stops_while_the_shard_sleeps() {
    let _turn = lock(&TURN);
    for driver in [DriverChoice::Uring, DriverChoice::Poll] {
        run_one(watched(driver, "nothing", 1000), async {
            // A timer left running would signal 50 times in each of these sleeps. A stopped one signals once,
            // and perhaps some more times if the shard is awake for long. One good sleep of many proves the
            // point.
            let mut least = u64::MAX;
            for _ in 0..20 {
                let before = count("reactor_stall_ticks_total", None);
                reactor::sleep(Duration::from_millis(50)).await;
                least = least.min(count("reactor_stall_ticks_total", None) - before);
                if least <= 2 {
                    break;
                }
            }
            assert!(least <= 2, "{least} signals in a sleep");
        });
    }
}

#[test]
fn beyond_the_rate_stalls_are_counted_but_not_reported() {
    let _turn = lock(&TURN);
    run_one(watched(DriverChoice::Auto, "nothing", 0), async {
        let begin = reactor::now();
        // Each round holds the core for longer than the threshold; one of them is seen by the timer.
        while count("reactor_stalls_total", Some("task")) == 0 && begin.elapsed() < Duration::from_secs(30) {
            let round = reactor::now();
            while round.elapsed() < Duration::from_millis(6) {
                std::hint::spin_loop();
            }
            reactor::yield_now().await;
        }
        assert!(count("reactor_stalls_total", Some("task")) >= 1);
        assert_eq!(count("scylla_stall_detector_reported", None), 0);
    });
    assert!(lock(&STALLS).is_empty());
}
