//! All signals of a process, taken by one thread. A process of its own: signals that were taken stay taken.
#![allow(unsafe_code, clippy::disallowed_methods)]

use std::time::Duration;

use reactor::signal;

/// Long enough for any machine; the tests wait for the signal, not for the time.
const LONG: Duration = Duration::from_secs(60);

fn send(signal: i32) {
    // SAFETY: a plain system call to this process.
    assert_eq!(unsafe { libc::kill(std::process::id() as libc::pid_t, signal) }, 0);
}

// The harness runs a test on a thread of its own, and the main thread would take a signal that is not blocked
// in it. So this file has a main of its own.
fn main() {
    let taken = signal::take().unwrap();
    every_signal_that_would_end_the_process_is_handed_out(&taken);
    an_end_that_was_asked_for_before_the_shards_are_there_reaches_them();
    a_write_beyond_a_limit_fails_and_ends_nothing(&taken);
    println!("test result: ok. signals are taken");
}

fn every_signal_that_would_end_the_process_is_handed_out(taken: &signal::Taken) {
    let real_time = (libc::SIGRTMIN()..=libc::SIGRTMAX()).filter(|signal| *signal != libc::SIGRTMIN() + 3);
    let faults = [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGSEGV,
        libc::SIGSYS,
    ];
    for number in (1..=31).filter(|number| !faults.contains(number)).chain(real_time) {
        let silent = [
            libc::SIGPIPE,
            libc::SIGXFSZ,
            libc::SIGCHLD,
            libc::SIGCONT,
            libc::SIGTSTP,
            libc::SIGTTIN,
            libc::SIGTTOU,
            libc::SIGURG,
            libc::SIGWINCH,
        ];
        if [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&number) {
            continue; // a shell's: they stop and do not end
        }
        send(number);
        if silent.contains(&number) {
            continue;
        }
        let received = taken.next(LONG).unwrap().unwrap_or_else(|| panic!("signal {number} was lost"));
        assert_eq!((received.signal, received.sender), (number, Some(std::process::id())));
    }
    assert_eq!(taken.next(Duration::ZERO).unwrap(), None, "the silent ones leave nothing behind");
    let received = signal::Received { signal: signal::HANGUP, sender: Some(7) };
    assert_eq!(received.to_string(), "SIGHUP of process 7");
}

fn an_end_that_was_asked_for_before_the_shards_are_there_reaches_them() {
    signal::terminate();
    let config =
        reactor::Config { shards: 2, driver: reactor::DriverChoice::Poll, ..reactor::Config::default() };
    let running = reactor::start(config, |shard| async move {
        if shard.id == 0 {
            signal::terminated().await.unwrap();
        }
    });
    running.unwrap().join().unwrap();
}

fn a_write_beyond_a_limit_fails_and_ends_nothing(taken: &signal::Taken) {
    let set_limit = |bytes: libc::rlim_t| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is to a local.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) }, 0);
        limit.rlim_cur = bytes.min(limit.rlim_max);
        // SAFETY: the pointer is to a local.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    };
    set_limit(10);
    let path = std::env::temp_dir().join(format!("ceto-signals-{}", std::process::id()));
    let written = std::fs::write(&path, [0; 20]).map_err(|error| error.raw_os_error());
    let again = std::fs::OpenOptions::new().append(true).open(&path);
    let again = again.and_then(|mut file| std::io::Write::write_all(&mut file, &[0; 20]));
    // The outcome of this test may go to a file.
    set_limit(libc::RLIM_INFINITY);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(written, Err(Some(libc::EFBIG)));
    assert_eq!(again.map_err(|error| error.raw_os_error()), Err(Some(libc::EFBIG)));
    assert_eq!(taken.next(Duration::ZERO).unwrap(), None);
}
