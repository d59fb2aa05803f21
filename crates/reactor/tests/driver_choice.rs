//! Checks which driver a shard gets, and that the choice makes no io_uring system call if that is forbidden.
#![allow(unsafe_code, clippy::disallowed_methods, clippy::disallowed_types)]

use reactor::{Config, DriverChoice, StartError, driver_name, run_one, start};

#[test]
fn the_driver_asked_for_is_the_driver_used() {
    for (driver, name) in [(DriverChoice::Uring, "uring"), (DriverChoice::Poll, "poll")] {
        let used = run_one(Config { driver, ..Config::default() }, async { driver_name() });
        assert_eq!(used, name);
    }
    assert_eq!(reactor::sim::run_one(1, || async { driver_name() }), "sim");
}

/// Forbids the three io_uring calls to this thread and its children, as containers' profiles do.
fn forbid_io_uring() {
    const LOAD_NUMBER: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const JUMP_IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let first = libc::SYS_io_uring_setup as u32;
    let last = libc::SYS_io_uring_register as u32;
    let mut filter = [
        step(LOAD_NUMBER, 0, 0, 0),
        step(JUMP_IF_AT_LEAST, 0, 1, first),
        step(JUMP_IF_AT_LEAST, 0, 1, last + 1),
        step(RETURN, 0, 0, 0x7fff_0000),
        step(RETURN, 0, 0, 0x0005_0000 | libc::EPERM as u32),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: plain integers.
    let no_privileges = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program and its filter live until the call is over.
    let filtered =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!((no_privileges, filtered), (0, 0));
}

#[test]
fn where_io_uring_is_forbidden_auto_falls_back_and_uring_says_why() {
    let outcome = std::thread::spawn(|| {
        forbid_io_uring();
        let running = start(Config { shards: 2, ..Config::default() }, |_| async {
            assert_eq!(driver_name(), "poll");
            let read = reactor::file::read_dir("/").await.unwrap();
            assert!(!read.is_empty());
        });
        running.unwrap().join().unwrap();
        let config = Config { driver: DriverChoice::Uring, ..Config::default() };
        start(config, |_| async {}).err()
    });
    let error = outcome.join().unwrap().expect("io_uring was asked for and is forbidden");
    match error {
        StartError::Driver { shard: 0, driver: DriverChoice::Uring, source } => {
            assert_eq!(source.raw_os_error(), Some(libc::EPERM));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn no_shards_is_an_error() {
    assert!(matches!(
        start(Config { shards: 0, ..Config::default() }, |_| async {}),
        Err(StartError::NoShards)
    ));
}

#[test]
fn more_shards_than_cpus_run_unpinned() {
    let config = Config { shards: 9, pin: true, ..Config::default() };
    let running = start(config, |info| async move {
        for shard in 0..info.count {
            let there = reactor::mesh::call(shard, reactor::Group::ADMIN, || async { reactor::shard_id() });
            assert_eq!(there.await, Ok(shard));
        }
    });
    running.unwrap().join().unwrap();
}

#[test]
fn a_signal_completes_the_future_of_the_shard_that_waits() {
    for driver in [DriverChoice::Uring, DriverChoice::Poll] {
        run_one(Config { driver, ..Config::default() }, async {
            let waiting = reactor::spawn(reactor::Group::ADMIN, reactor::signal::terminated());
            reactor::yield_now().await;
            std::thread::spawn(|| {
                let this = std::process::id() as libc::pid_t;
                // SAFETY: a plain system call; the handler is installed.
                let sent = unsafe { libc::kill(this, libc::SIGTERM) };
                assert_eq!(sent, 0);
            });
            waiting.await.unwrap().unwrap();
        });
    }
}

#[test]
fn a_waker_wakes_its_task_from_another_thread_and_is_harmless_afterwards() {
    for driver in [DriverChoice::Uring, DriverChoice::Poll] {
        let stale = run_one(Config { driver, ..Config::default() }, async {
            let mut started = false;
            let mut stale = None;
            std::future::poll_fn(|context| {
                if started {
                    return std::task::Poll::Ready(());
                }
                started = true;
                let waker = context.waker().clone();
                stale = Some(waker.clone());
                std::thread::spawn(move || waker.wake());
                std::task::Poll::Pending
            })
            .await;
            stale.expect("polled once")
        });
        stale.wake();
        run_one(Config { driver, ..Config::default() }, async { reactor::yield_now().await });
    }
}

#[test]
fn pinned_shards_sit_on_one_allowed_cpu_each() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let shards = (allowed.count() as usize).min(2);
    let config = Config { shards, pin: true, ..Config::default() };
    let running = start(config, move |info| async move {
        let cpu_here = || {
            let own = rustix::thread::sched_getaffinity(None).unwrap();
            assert_eq!(own.count(), 1);
            (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| own.is_set(*cpu)).unwrap()
        };
        let here = cpu_here();
        assert!(allowed.is_set(here));
        let other = (info.id + 1) % info.count;
        let there = reactor::mesh::call(other, reactor::Group::ADMIN, move || async move { cpu_here() });
        assert_eq!(there.await.unwrap() == here, info.count == 1);
    });
    running.unwrap().join().unwrap();
}
