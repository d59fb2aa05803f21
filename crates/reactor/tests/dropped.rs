//! Operations dropped in flight, slow readers, sleeping shards: nothing is lost, nothing leaks, on both
//! drivers.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use reactor::file::{AlignedBuf, File, OpenOptions};
use reactor::metrics::{Value, snapshot};
use reactor::net::{ListenOptions, Listener, Stream};
use reactor::{Config, Deadline, DriverChoice, Group, mesh, run_one, sim, spawn, yield_now};

const DRIVERS: [DriverChoice; 2] = [DriverChoice::Uring, DriverChoice::Poll];

fn on_each_driver<Fut: Future<Output = ()> + 'static>(body: impl Fn() -> Fut + Clone + 'static) {
    for driver in DRIVERS {
        run_one(Config { driver, ..Config::default() }, body());
    }
    for seed in 0..5 {
        let body = body.clone();
        sim::run_one(seed, body);
    }
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn gauge(name: &str) -> i64 {
    match snapshot().into_iter().find(|sample| sample.name == name).map(|sample| sample.value) {
        Some(Value::Gauge(value)) => value,
        other => panic!("{name}: {other:?}"),
    }
}

/// Waits until the driver has given back every operation, orphans included.
async fn settled() {
    while gauge("reactor_operations") > 0 {
        reactor::sleep(Duration::from_micros(100)).await;
    }
    assert_eq!(gauge("reactor_orphans"), 0);
}

/// Polls a future once and drops it.
async fn start_and_drop<F: Future>(future: F) {
    let mut future = Box::pin(future);
    std::future::poll_fn(|context| {
        let _ = future.as_mut().poll(context).is_ready();
        std::task::Poll::Ready(())
    })
    .await;
}

#[test]
fn dropped_operations_of_every_kind_are_given_back_and_the_rest_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let simulated = std::path::PathBuf::from("/file");
    on_each_driver(move || {
        let path = path.clone();
        let simulated = simulated.clone();
        async move {
            let path = if reactor::driver_name() == "sim" { simulated } else { path };
            let options = OpenOptions::new().read(true).write(true).create(true);
            let file = File::open(&path, options).await.unwrap();
            file.write_at(0, AlignedBuf::zeroed(1 << 20)).await.0.unwrap();
            let listener = Listener::bind(any(), ListenOptions::default()).unwrap();
            let address = listener.local_addr();
            for _ in 0..20 {
                start_and_drop(listener.accept()).await;
                start_and_drop(file.read_at(0, 1 << 20)).await;
                start_and_drop(file.write_at(0, AlignedBuf::zeroed(1 << 16))).await;
                start_and_drop(file.fdatasync()).await;
                start_and_drop(File::open(&path, options)).await;
                start_and_drop(Stream::connect(address)).await;
            }
            settled().await;
            // Connections that were asked for and dropped may be in the backlog; the last one is ours.
            let client = Stream::connect(address).await.unwrap();
            let served = loop {
                let (stream, peer) = listener.accept().await.unwrap();
                if peer == client.local_addr() {
                    break stream;
                }
            };
            start_and_drop(served.recv()).await;
            client.send(vec![5; 100]).await.0.unwrap();
            let mut received = 0;
            while received < 100 {
                start_and_drop(std::future::ready(())).await;
                received += served.recv().await.unwrap().unwrap().len();
            }
            drop((client, served, listener, file));
            settled().await;
        }
    });
}

#[test]
fn a_send_nobody_reads_can_be_dropped() {
    on_each_driver(|| async {
        let listener = Listener::bind(any(), ListenOptions::default()).unwrap();
        let client = Stream::connect(listener.local_addr()).await.unwrap();
        let (served, _) = listener.accept().await.unwrap();
        let soon = Deadline::after(Duration::from_millis(5));
        assert!(
            reactor::timeout(soon, client.send(vec![1; 64 << 20])).await.is_err(),
            "no window is that large"
        );
        client.shutdown();
        drop(client);
        settled().await;
        let mut received = 0;
        while let Ok(Some(chunk)) = served.recv().await {
            assert!(chunk.iter().all(|byte| *byte == 1));
            received += chunk.len();
        }
        assert!(received < 64 << 20);
    });
}

#[test]
fn a_slow_reader_holds_few_buffers_and_gets_every_byte() {
    on_each_driver(|| async {
        let listener = Listener::bind(any(), ListenOptions::default()).unwrap();
        let client = Rc::new(Stream::connect(listener.local_addr()).await.unwrap());
        let (served, _) = listener.accept().await.unwrap();
        const TOTAL: usize = 4 << 20;
        let sender = client.clone();
        let sending = spawn(Group::STATEMENT, async move {
            let bytes = (0..TOTAL).map(|at| (at % 253) as u8).collect();
            sender.send(bytes).await.0
        });
        let (mut at, mut held) = (0, Vec::new());
        while at < TOTAL {
            let chunk = served.recv().await.unwrap().unwrap();
            assert!(chunk.iter().enumerate().all(|(ahead, byte)| *byte == ((at + ahead) % 253) as u8));
            at += chunk.len();
            // Holds on to more chunks than the pool has buffers, then lets go of all.
            held.push(chunk);
            if held.len() > 300 {
                held.clear();
                for _ in 0..20 {
                    yield_now().await;
                }
            }
        }
        sending.await.unwrap().unwrap();
    });
}

#[test]
fn sleeping_shards_are_woken_by_calls_again_and_again() {
    for driver in DRIVERS {
        for spin_us in [0, 50] {
            let config = Config { shards: 3, driver, spin_us, ..Config::default() };
            let running = reactor::start(config, |info| async move {
                if info.id != 0 {
                    return; // these sleep, and serve
                }
                for round in 0..300u64 {
                    let shard = 1 + (round % 2) as usize;
                    let there = mesh::call(shard, Group::STATEMENT, move || async move {
                        reactor::sleep(Duration::from_micros(round % 50)).await;
                        mesh::call(3 - shard, Group::STATEMENT, move || async move { round }).await
                    });
                    assert_eq!(there.await, Ok(Ok(round)));
                    if round % 10 == 0 {
                        reactor::sleep(Duration::from_millis(1)).await;
                    }
                }
            });
            running.unwrap().join().unwrap();
        }
    }
}

#[test]
fn abandoned_calls_run_to_their_end_and_give_their_credit_back() {
    for driver in DRIVERS {
        let config = Config { shards: 2, driver, ..Config::default() };
        let running = reactor::start(config, |info| async move {
            if info.id != 0 {
                return;
            }
            for _ in 0..5000 {
                drop(mesh::call(1, Group::STATEMENT, || async {
                    let count = reactor::local::<Cell<u32>>().unwrap_or_else(|| {
                        let fresh = Rc::new(Cell::new(0));
                        reactor::set_local(fresh.clone());
                        fresh
                    });
                    count.set(count.get() + 1);
                }));
                yield_now().await;
            }
            // A dropped call that had no credit yet was never sent; all others ran before this one, in order.
            let ran = mesh::call(1, Group::STATEMENT, || async {
                reactor::local::<Cell<u32>>().map_or(0, |count| count.get())
            });
            let ran = ran.await.unwrap();
            assert!((1..=5000).contains(&ran), "{ran}");
        });
        running.unwrap().join().unwrap();
    }
}

#[test]
fn background_work_gives_way_within_its_slice() {
    on_each_driver(|| async {
        let stop = Rc::new(Cell::new(false));
        let flag = stop.clone();
        let hog = spawn(Group::COMPACTION, async move {
            let mut yields = 0u64;
            while !flag.get() {
                if reactor::need_preempt() {
                    yields += 1;
                    yield_now().await;
                }
            }
            yields
        });
        for _ in 0..20 {
            reactor::sleep(Duration::from_micros(300)).await;
        }
        stop.set(true);
        assert!(hog.await.unwrap() > 0);
    });
}

#[test]
fn connects_dropped_and_begun_in_a_row_do_not_take_each_others_sockets() {
    on_each_driver(|| async {
        let listener = Listener::bind(any(), ListenOptions::default()).unwrap();
        let address = listener.local_addr();
        for _ in 0..200 {
            start_and_drop(Stream::connect(address)).await;
            let patience = Deadline::after(Duration::from_secs(20));
            let client =
                reactor::timeout(patience, Stream::connect(address)).await.expect("connected").unwrap();
            loop {
                let (served, peer) = listener.accept().await.unwrap();
                if peer == client.local_addr() {
                    served.send(vec![1]).await.0.unwrap();
                    break;
                }
            }
            assert_eq!(client.recv().await.unwrap().map(|chunk| chunk.len()), Some(1));
        }
    });
}

/// A shard ends when its last operation has: a wait that nothing ends takes five seconds.
#[test]
fn a_shard_that_ends_waits_for_its_operations_and_no_longer() {
    let directory = tempfile::tempdir().unwrap();
    for driver in DRIVERS {
        for _ in 0..100 {
            let folder = directory.path().to_owned();
            let begin = std::time::Instant::now();
            run_one(Config { driver, ..Config::default() }, async move {
                for _ in 0..8 {
                    start_and_drop(reactor::file::read_dir(&folder)).await;
                }
            });
            assert!(begin.elapsed() < Duration::from_secs(5), "{driver:?}");
        }
    }
}
