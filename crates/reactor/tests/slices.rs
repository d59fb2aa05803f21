//! Guarantees of `in_slices`: plain functions give way in their middle, and end, fail and are dropped like
//! any work.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use reactor::{Config, Deadline, Group, TaskPanicked, give_way, in_slices, run_one, spawn, yield_now};

/// Works for a tenth of a millisecond at each level of a recursion; returns the sum of the levels.
fn descend(level: u64) -> u64 {
    if level == 0 {
        return 0;
    }
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_micros(100) {
        std::hint::spin_loop();
    }
    give_way();
    level + descend(level - 1)
}

#[test]
fn others_run_while_a_recursion_is_in_its_middle() {
    run_one(Config::default(), async {
        let (over, turns) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        let other = {
            let (over, turns) = (over.clone(), turns.clone());
            spawn(Group::STATEMENT, async move {
                while !over.get() {
                    turns.set(turns.get() + 1);
                    yield_now().await;
                }
            })
        };
        assert_eq!(in_slices(&(), || descend(200)).await, 20_100);
        over.set(true);
        other.await.unwrap();
        assert!(turns.get() >= 10, "20 ms of work held the core: others had {} turns", turns.get());
    });
}

#[test]
fn outside_of_slices_giving_way_does_nothing() {
    give_way();
    run_one(Config::default(), async { assert_eq!(descend(20), 210) });
}

#[test]
fn more_works_than_stacks_all_end() {
    run_one(Config::default(), async {
        let works: Vec<_> =
            (0..100).map(|n| spawn(Group::UNPREPARED, in_slices(&(), move || descend(10) + n))).collect();
        for (n, work) in works.into_iter().enumerate() {
            assert_eq!(work.await.unwrap(), 55 + n as u64);
        }
    });
}

#[test]
fn a_dropped_work_drops_what_its_stack_holds() {
    struct Noted(Rc<Cell<u32>>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            give_way(); // harmless here too
        }
    }
    run_one(Config::default(), async {
        let dropped = Rc::new(Cell::new(0));
        let held = Noted(dropped.clone());
        let endless = async move {
            in_slices(&(), move || {
                let _inner = Noted(held.0.clone());
                loop {
                    give_way();
                }
            })
            .await
        };
        assert!(reactor::timeout(Deadline::after(Duration::from_millis(20)), endless).await.is_err());
        assert_eq!(dropped.get(), 2, "the closure's value and that of its stack");
        // Neither the place nor the shard is lost.
        for _ in 0..40 {
            assert_eq!(in_slices(&(), || descend(1)).await, 1);
        }
    });
}

#[test]
fn a_panic_is_that_of_the_task() {
    run_one(Config { contain_panics: true, ..Config::default() }, async {
        let task = spawn(Group::STATEMENT, in_slices(&(), || -> u32 { panic!("level {}", descend(30)) }));
        let TaskPanicked { message } = task.await.unwrap_err();
        assert_eq!(message, "level 465");
        assert_eq!(in_slices(&(), || descend(3)).await, 6);
    });
}
