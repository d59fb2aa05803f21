//! Guarantees of the executor, on a real driver: spawning, waiting, panics, timers, calls between shards.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use reactor::{Config, Deadline, DriverChoice, Group, mesh, run_one, spawn, spawn_now};

fn drivers() -> Vec<DriverChoice> {
    vec![DriverChoice::Uring, DriverChoice::Poll]
}

fn on_each_driver<T: 'static, Fut: Future<Output = T> + 'static>(body: impl Fn() -> Fut) -> Vec<T> {
    on_each_driver_with(Config::default(), body)
}

fn on_each_driver_with<T, Fut>(config: Config, body: impl Fn() -> Fut) -> Vec<T>
where
    T: 'static,
    Fut: Future<Output = T> + 'static,
{
    drivers().into_iter().map(|driver| run_one(Config { driver, ..config.clone() }, body())).collect()
}

#[test]
fn a_task_gives_its_output_to_its_handle() {
    on_each_driver(|| async {
        let handle = spawn(Group::STATEMENT, async { 6 * 7 });
        assert_eq!(handle.await.unwrap(), 42);
    });
}

#[test]
fn a_detached_task_runs_on() {
    on_each_driver(|| async {
        let done = Rc::new(Cell::new(false));
        let flag = done.clone();
        drop(spawn(Group::BACKGROUND, async move {
            reactor::yield_now().await;
            flag.set(true);
        }));
        while !done.get() {
            reactor::yield_now().await;
        }
    });
}

#[test]
fn a_task_started_now_runs_up_to_its_first_wait_in_the_group_of_its_caller() {
    // One of the tasks panics, and it is detached.
    on_each_driver_with(Config { contain_panics: true, ..Config::default() }, || async {
        let steps = Rc::new(RefCell::new(Vec::new()));
        let noting = |name: &'static str| {
            let steps = steps.clone();
            async move {
                steps.borrow_mut().push((name, 1));
                reactor::yield_now().await;
                steps.borrow_mut().push((name, 2));
            }
        };
        let (mine, others) = (noting("mine"), noting("other's"));
        let seen = steps.clone();
        let caller = spawn(Group::STATEMENT, async move {
            spawn_now(Group::STATEMENT, || async { panic!("on purpose") });
            spawn_now(Group::STATEMENT, || mine);
            assert_eq!(*seen.borrow(), [("mine", 1)]);
            spawn_now(Group::BACKGROUND, || others);
            assert_eq!(seen.borrow().len(), 1, "a task of another group waits for its group's turn");
            assert_eq!(reactor::current_group(), Group::STATEMENT);
        });
        caller.await.unwrap();
        while steps.borrow().len() < 4 {
            reactor::yield_now().await;
        }
    });
}

#[test]
fn a_panic_reaches_the_handle_and_nobody_else() {
    on_each_driver(|| async {
        let handle = spawn(Group::STATEMENT, async { panic!("on purpose {}", 1) });
        let other = spawn(Group::STATEMENT, async { 1 });
        assert_eq!(handle.await.unwrap_err().message, "on purpose 1");
        assert_eq!(other.await.unwrap(), 1);
    });
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines_and_never_early() {
    on_each_driver(|| async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let handles: Vec<_> = [3u64, 1, 2]
            .into_iter()
            .map(|ms| {
                let order = order.clone();
                spawn(Group::STATEMENT, async move {
                    let begin = reactor::now();
                    reactor::sleep(Duration::from_millis(ms)).await;
                    assert!(begin.elapsed() >= Duration::from_millis(ms));
                    order.borrow_mut().push(ms);
                })
            })
            .collect();
        for handle in handles {
            handle.await.unwrap();
        }
        assert_eq!(*order.borrow(), [1, 2, 3]);
    });
}

#[test]
fn a_timeout_drops_what_is_late() {
    on_each_driver(|| async {
        let late = std::future::pending::<()>();
        assert!(reactor::timeout(Deadline::after(Duration::from_millis(1)), late).await.is_err());
        assert_eq!(reactor::timeout(Deadline::NEVER, async { 5 }).await, Ok(5));
    });
}

#[test]
fn a_call_runs_there_and_answers_here() {
    for driver in drivers() {
        let config = Config { shards: 2, driver, ..Config::default() };
        let running =
            reactor::start(config, |info| async move {
                for round in 0..1000usize {
                    let other = 1 - info.id;
                    let answer = mesh::call(other, Group::STATEMENT, move || async move {
                        (reactor::shard_id(), round + 1)
                    });
                    assert_eq!(answer.await.unwrap(), (other, round + 1));
                }
            });
        running.unwrap().join().unwrap();
    }
}

#[test]
fn a_burst_of_calls_larger_than_the_ring_is_answered_whole() {
    for driver in drivers() {
        let config = Config { shards: 2, driver, ..Config::default() };
        let running = reactor::start(config, |info| async move {
            let calls: Vec<_> = (0..5000usize)
                .map(|number| mesh::call(1 - info.id, Group::STATEMENT, move || async move { number }))
                .collect();
            for (number, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await.unwrap(), number);
            }
        });
        running.unwrap().join().unwrap();
    }
}

#[test]
fn a_panic_in_a_call_is_the_callers_error_and_the_callee_lives() {
    for driver in drivers() {
        let config = Config { shards: 2, driver, contain_panics: true, ..Config::default() };
        let running = reactor::start(config, |info| async move {
            if info.id == 0 {
                let failed = mesh::call(1, Group::STATEMENT, || async { panic!("on purpose") });
                let failed: Result<(), _> = failed.await;
                assert_eq!(failed, Err(mesh::MeshError::Panicked { shard: 1 }));
                assert_eq!(mesh::call(1, Group::STATEMENT, || async { 3 }).await, Ok(3));
                assert_eq!(mesh::call(0, Group::STATEMENT, || async { 4 }).await, Ok(4));
                let none = mesh::call(2, Group::STATEMENT, || async {}).await;
                assert_eq!(none, Err(mesh::MeshError::NoSuchShard { shard: 2 }));
            }
        });
        running.unwrap().join().unwrap();
    }
}

#[test]
fn a_panic_that_nobody_waited_for_is_contained_or_fails_the_shard() {
    for (driver, contain_panics) in drivers().into_iter().flat_map(|driver| [(driver, true), (driver, false)])
    {
        let config = Config { driver, contain_panics, ..Config::default() };
        let running = reactor::start(config, |_| async {
            spawn(Group::STATEMENT, async { panic!("on purpose") }).detach();
            reactor::yield_now().await;
        });
        let ended = running.unwrap().join();
        if contain_panics {
            ended.unwrap();
        } else {
            assert_eq!(ended.unwrap_err().message, "on purpose");
        }
    }
}

#[test]
fn a_panicking_main_is_reported_by_join() {
    let config = Config { shards: 2, driver: DriverChoice::Poll, ..Config::default() };
    let running = reactor::start(config, |info| async move {
        assert_ne!(info.id, 1, "this shard fails");
        reactor::signal::terminated().await.unwrap(); // and this one is told
    });
    let panicked = running.unwrap().join().unwrap_err();
    assert_eq!(panicked.shard, 1);
    assert!(panicked.message.contains("this shard fails"));
}

/// The end of a shard, by a panic or not, reaches the others at every point of their loops.
#[test]
fn no_end_of_a_shard_is_missed_by_the_others() {
    for round in 0..3_000 {
        let panics = round % 2 == 0;
        let config = Config { shards: 2, driver: DriverChoice::Poll, pin: false, ..Config::default() };
        let running = reactor::start(config, move |info| async move {
            if info.id == 1 {
                // The two meet at another point of the other's loop in each round.
                (0..round % 64).for_each(|_| std::hint::spin_loop());
                assert!(!panics, "this shard fails");
            } else if panics {
                reactor::signal::terminated().await.unwrap();
            }
        })
        .unwrap();
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || ended.send(running.join().is_err()));
        let failed = end.recv_timeout(Duration::from_secs(60)).expect("a shard sleeps for ever");
        assert_eq!(failed, panics);
    }
}

/// A waker whose call panics inside the loop, outside of any task: the loop's own failure.
struct Bomb;

impl std::task::Wake for Bomb {
    fn wake(self: std::sync::Arc<Self>) {
        panic!("the loop failed on purpose");
    }
}

#[test]
fn a_shard_whose_loop_fails_is_reported_and_its_callers_are_told() {
    for driver in drivers() {
        let config = Config { shards: 3, driver, ..Config::default() };
        let running = reactor::start(config, |info| async move {
            if info.id == 1 {
                let mut sleep = Box::pin(reactor::sleep(Duration::from_millis(20)));
                let waker = std::task::Waker::from(std::sync::Arc::new(Bomb));
                std::future::poll_fn(|_| {
                    let bomb = &mut std::task::Context::from_waker(&waker);
                    sleep.as_mut().poll(bomb)
                })
                .await;
            }
            let lost = mesh::call(1, Group::STATEMENT, std::future::pending::<()>).await;
            assert_eq!(lost, Err(mesh::MeshError::Stopped { shard: 1 }));
            let later = mesh::call(1, Group::STATEMENT, || async {}).await;
            assert_eq!(later, Err(mesh::MeshError::Stopped { shard: 1 }));
            reactor::signal::terminated().await.unwrap();
        });
        let failed = running.unwrap().join().unwrap_err();
        assert_eq!((failed.shard, failed.message.as_str()), (1, "the loop failed on purpose"));
    }
}

fn metric(name: &str, group: Group) -> u64 {
    let label = [("group".to_owned(), group.name().to_owned())];
    let found = reactor::metrics::snapshot()
        .into_iter()
        .find(|sample| sample.name == name && sample.labels == label)
        .unwrap_or_else(|| panic!("no metric {name}"));
    match found.value {
        reactor::metrics::Value::Counter(count) => count,
        reactor::metrics::Value::Gauge(level) => level as u64,
        other => panic!("{name} is {other:?}"),
    }
}

/// Holds the core for `time`, without checking whether others wait.
fn hold(time: Duration) {
    let begin = reactor::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn who_holds_the_core_beyond_the_quota_is_counted() {
    on_each_driver(|| async {
        let held = spawn(Group::COMPACTION, async { hold(Duration::from_millis(5)) });
        // A second task of the foreground starves meanwhile.
        let starved = spawn(Group::CONTROL, async {});
        held.await.unwrap();
        starved.await.unwrap();
        assert!(metric("reactor_task_quota_violations_total", Group::COMPACTION) >= 1);
        assert!(metric("scylla_scheduler_time_spent_on_task_quota_violations_ms", Group::COMPACTION) >= 4);
        assert!(metric("reactor_longest_hold_us", Group::COMPACTION) >= 5000);
        assert!(metric("scylla_scheduler_runtime_ms", Group::COMPACTION) >= 5);
        assert!(metric("scylla_scheduler_tasks_processed", Group::COMPACTION) >= 1);
        assert_eq!(metric("scylla_scheduler_queue_length", Group::COMPACTION), 0);
        assert_eq!(metric("scylla_scheduler_shares", Group::COMPACTION), 200);
    });
}

#[test]
fn a_group_that_waits_for_the_core_starves_and_one_without_tasks_waits() {
    on_each_driver(|| async {
        let starving = spawn(Group::BACKGROUND, async { reactor::now() });
        // The main task's group holds the core while the other group's task is queued.
        hold(Duration::from_millis(3));
        starving.await.unwrap();
        reactor::sleep(Duration::from_millis(3)).await;
        assert!(metric("scylla_scheduler_starvetime_ms", Group::BACKGROUND) >= 2);
        assert!(metric("scylla_scheduler_waittime_ms", Group::BACKGROUND) >= 2);
    });
}

#[test]
fn a_task_that_moves_is_of_its_new_group_from_then_on() {
    on_each_driver(|| async {
        let moved = spawn(Group::STATEMENT, async {
            let before = reactor::current_group();
            reactor::move_to(Group::SCAN).await;
            let after = reactor::current_group();
            reactor::yield_now().await;
            reactor::move_to(Group::SCAN).await;
            (before, after, reactor::current_group())
        });
        assert_eq!(moved.await.unwrap(), (Group::STATEMENT, Group::SCAN, Group::SCAN));
    });
}

#[test]
fn a_task_that_was_begun_inside_another_moves_alone() {
    on_each_driver(|| async {
        let outer = spawn(Group::STATEMENT, async {
            let inner = Rc::new(Cell::new(None));
            let told = Rc::clone(&inner);
            spawn_now(Group::STATEMENT, move || async move {
                reactor::move_to(Group::UNPREPARED).await;
                told.set(Some(reactor::current_group()));
            });
            let own = reactor::current_group();
            while inner.get().is_none() {
                reactor::yield_now().await;
            }
            (own, inner.get(), reactor::current_group())
        });
        let expected = (Group::STATEMENT, Some(Group::UNPREPARED), Group::STATEMENT);
        assert_eq!(outer.await.unwrap(), expected);
    });
}

#[test]
fn what_is_dropped_in_steps_is_dropped_once_and_not_at_once() {
    struct Part(Rc<Cell<usize>>);
    impl Drop for Part {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let parts =
        |dropped: &Rc<Cell<usize>>, count| (0..count).map(|_| Part(Rc::clone(dropped))).collect::<Vec<_>>();
    let dropped = Rc::new(Cell::new(0));
    reactor::drop_in_steps(parts(&dropped, 100));
    assert_eq!(dropped.get(), 100, "outside of a shard there is nobody to do it later");
    on_each_driver(move || async move {
        let dropped = Rc::new(Cell::new(0));
        reactor::drop_in_steps(parts(&dropped, 3));
        assert_eq!(dropped.get(), 3, "few are not worth a task");
        reactor::drop_in_steps(parts(&dropped, 1000));
        assert_eq!(dropped.get(), 3);
        while dropped.get() < 1003 {
            reactor::yield_now().await;
        }
    });
}
