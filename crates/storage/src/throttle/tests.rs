//! Turns and credits against made-up memory.

use std::rc::Rc;
use std::time::Duration;

use memory::{Budget, Region};
use reactor::{Group, sim};

use super::*;

const LIMIT: usize = 100 << 20;
const LOG_BYTES: u64 = 1 << 30;

fn with_used(tenths: usize, test: impl FnOnce(Rc<Throttle>) + 'static) {
    sim::run_one(1, move || async move {
        let budget = Budget::new(LIMIT);
        let mut region = Region::new(budget.clone());
        let object = vec![0; 100_000];
        while budget.used() < LIMIT / 10 * tenths {
            region.alloc(&[&object]);
        }
        test(Rc::new(Throttle::new(budget, Rc::new(LogRoom::new(LOG_BYTES)))));
        drop(region);
    });
}

/// Writes of a kilobyte that get a turn within a second that begins now.
fn turns_in_a_second(throttle: &Throttle) -> u64 {
    let now = reactor::now();
    let end = now + Duration::from_secs(1);
    (0..10_000_000).take_while(|_| throttle.take_turn(1000, now) < end).count() as u64
}

#[test]
fn nobody_is_held_below_the_soft_mark() {
    with_used(3, |throttle| assert!(!throttle.holds()));
    with_used(5, |throttle| assert!(throttle.holds()));
}

#[test]
fn between_the_marks_as_much_is_admitted_as_is_flushed_and_never_nothing() {
    let held = |tenths, expected: std::ops::Range<u64>| {
        with_used(tenths, move |throttle| {
            let bytes = turns_in_a_second(&throttle) * (1000 + ROW_OVERHEAD as u64);
            let percent = bytes * 100 / RATE_AT_FIRST;
            assert!(expected.contains(&percent), "{tenths} tenths: {percent} %, expected {expected:?}");
        });
    };
    held(5, 85..110);
    held(6, 10..14);
    held(10, 10..14);
}

#[test]
fn what_is_in_the_file_is_clean_until_the_flush_ends() {
    with_used(6, |throttle| {
        let dirty = throttle.dirty();
        let spool = throttle.spool(dirty, 4);
        assert!(throttle.holds());
        assert_eq!(Group::MEMTABLE.shares() as u64, SHARES_HARD);
        for _ in 0..2 {
            spool.partition(10);
        }
        assert_eq!(throttle.dirty(), dirty - dirty / 2);
        assert!(!throttle.holds());
        // Rows of a large partition count before its end, and all together no more than the memtable.
        spool.row(dirty * 3 / 4);
        assert!(throttle.dirty() <= dirty - dirty * 3 / 4);
        spool.row(dirty * 3);
        assert_eq!(throttle.dirty(), 0);
        drop(spool);
        assert_eq!(throttle.dirty(), dirty, "the memory is given back by the memtable itself");
    });
}

#[test]
fn short_writes_do_not_wait_for_long_ones() {
    with_used(5, |throttle| {
        let now = reactor::now();
        for _ in 0..100 {
            throttle.take_turn(1 << 20, now);
        }
        let turn = (0..100).fold(now, |_, _| throttle.take_turn(200, now));
        assert!(turn.since(now) < Duration::from_millis(2), "{:?}", turn.since(now));
        let long = throttle.take_turn(1 << 20, now).since(now);
        assert!(long > Duration::from_secs(2), "{long:?}");
    });
}

#[test]
fn the_rate_is_a_mean_over_time_and_not_over_looks() {
    with_used(5, |throttle| {
        let begin = reactor::now();
        throttle.sampled_at.set(begin);
        // 50 MiB a second for two seconds, with many looks at nothing in between.
        for step in 1..=40u32 {
            throttle.sampled_bytes.set((50 << 20) / 20);
            let at = begin + Duration::from_millis(50) * step;
            throttle.sample(at);
            throttle.sample(at);
            throttle.sample(at + Duration::from_nanos(10));
        }
        let percent = throttle.rate.get() * 100 / (50 << 20);
        assert!((90..105).contains(&percent), "{percent} %");
    });
}

#[test]
fn what_is_left_of_the_log_is_spread_over_what_is_left_of_the_flush() {
    with_used(3, |throttle| {
        throttle.log.set(LOG_BYTES * 7 / 8, true);
        assert!(throttle.holds());
        let free = turns_in_a_second(&throttle);
        assert_eq!(free, 10_000_000, "no flush is at work that writers could wait for");
        // Two seconds of flush for an eighth of the log.
        let spool = throttle.spool(RATE_AT_FIRST as usize * 2, 4);
        let bytes = turns_in_a_second(&throttle) * (1000 + ROW_OVERHEAD as u64);
        let percent = bytes * 100 / (LOG_BYTES / 8 / 2);
        assert!((95..=105).contains(&percent), "{percent} % of half of the room in the first of two seconds");
        throttle.turns[0].set(reactor::now());
        throttle.log.set(LOG_BYTES, true);
        assert!(turns_in_a_second(&throttle) >= RATE_MIN / 2048, "never nothing");
        throttle.turns[0].set(reactor::now());
        spool.complete();
        assert_eq!(turns_in_a_second(&throttle), 10_000_000);
        throttle.log.set(LOG_BYTES / 2, true);
        assert!(!throttle.holds());
    });
}

#[test]
fn a_flush_is_hastened_as_the_log_fills() {
    with_used(1, |throttle| {
        let shares = [4, 6, 8].map(|eighths| {
            throttle.log.set(LOG_BYTES / 8 * eighths, true);
            let _spool = throttle.spool(1000, 1);
            u64::from(Group::MEMTABLE.shares())
        });
        assert!(
            shares[0] < SHARES_SOFT && shares[1] > shares[0] && shares[2] > SHARES_SOFT * 3,
            "{shares:?}"
        );
    });
}

#[test]
fn the_time_after_the_file_is_whole_is_not_part_of_the_rate() {
    with_used(5, |throttle| {
        let before = throttle.rate.get();
        let spool = throttle.spool(1 << 20, 1);
        spool.complete();
        let measured = throttle.rate.get();
        throttle.sampled_at.set(reactor::now());
        drop(spool);
        assert_eq!(throttle.rate.get(), measured);
        assert!(before > 0 && throttle.left.get() == 0);
    });
}
