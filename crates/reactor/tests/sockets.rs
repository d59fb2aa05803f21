//! Connections over loopback on real drivers.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use reactor::net::{ListenOptions, Listener, Stream};
use reactor::{Config, Deadline, DriverChoice, Group, run_one, spawn};

fn drivers() -> Vec<DriverChoice> {
    vec![DriverChoice::Uring, DriverChoice::Poll]
}

fn on_each_driver<Fut: Future<Output = ()> + 'static>(body: impl Fn() -> Fut) {
    for driver in drivers() {
        run_one(Config { driver, ..Config::default() }, body());
    }
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

async fn echo(stream: Stream) {
    while let Ok(Some(chunk)) = stream.recv().await {
        let bytes = chunk.to_vec();
        drop(chunk);
        if stream.send(bytes).await.0.is_err() {
            return;
        }
    }
}

fn serve_echo() -> SocketAddr {
    let listener = Listener::bind(any(), ListenOptions::default()).unwrap();
    let address = listener.local_addr();
    drop(spawn(Group::STATEMENT, async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(spawn(Group::STATEMENT, echo(stream)));
        }
    }));
    address
}

async fn exchange(address: SocketAddr, len: usize, rounds: usize) {
    let stream = Rc::new(Stream::connect(address).await.unwrap());
    let sent: Vec<u8> = (0..len).map(|at| (at * 7 % 253) as u8).collect();
    for _ in 0..rounds {
        let (sender, bytes) = (stream.clone(), sent.clone());
        let sending = spawn(Group::STATEMENT, async move { sender.send(bytes).await.0 });
        let mut received = Vec::new();
        while received.len() < len {
            received.extend_from_slice(&stream.recv().await.unwrap().expect("more is to come"));
        }
        sending.await.unwrap().unwrap();
        assert_eq!(received, sent);
    }
}

#[test]
fn echoes_come_back_whole_small_and_large() {
    on_each_driver(|| async {
        let address = serve_echo();
        exchange(address, 1, 100).await;
        exchange(address, 100_000, 5).await;
        exchange(address, 9_000_000, 1).await;
    });
}

#[test]
fn more_connections_than_receive_buffers_are_served() {
    on_each_driver(|| async {
        let address = serve_echo();
        let clients: Vec<_> =
            (0..300).map(|_| spawn(Group::STATEMENT, exchange(address, 30_000, 2))).collect();
        for client in clients {
            client.await.unwrap();
        }
    });
}

#[test]
fn a_dropped_recv_loses_no_bytes() {
    on_each_driver(|| async {
        let address = serve_echo();
        let stream = Stream::connect(address).await.unwrap();
        for round in 0..20u8 {
            let late = reactor::timeout(Deadline::after(Duration::from_micros(50)), stream.recv()).await;
            assert!(late.is_err(), "nothing was sent yet");
            stream.send(vec![round; 10]).await.0.unwrap();
            let mut received = Vec::new();
            while received.len() < 10 {
                received.extend_from_slice(&stream.recv().await.unwrap().unwrap());
            }
            assert_eq!(received, [round; 10]);
        }
    });
}

#[test]
fn an_orderly_end_is_none_and_a_refused_connection_an_error() {
    on_each_driver(|| async {
        let listener = Listener::bind(any(), ListenOptions::default()).unwrap();
        let address = listener.local_addr();
        let client = spawn(Group::STATEMENT, async move {
            let stream = Stream::connect(address).await.unwrap();
            assert_eq!(stream.peer_addr(), address);
            drop(stream);
        });
        let (stream, _) = listener.accept().await.unwrap();
        client.await.unwrap();
        assert!(stream.recv().await.unwrap().is_none());
        drop(listener);
        drop(stream);
        let refused = loop {
            match Stream::connect(address).await {
                Err(error) if error.kind() != ErrorKind::ConnectionReset => break error,
                _ => reactor::yield_now().await, // the listener is still being closed
            }
        };
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn shutdown_ends_a_pending_recv() {
    on_each_driver(|| async {
        let address = serve_echo();
        let stream = Rc::new(Stream::connect(address).await.unwrap());
        let waiting = stream.clone();
        let receiver =
            spawn(Group::STATEMENT, async move { waiting.recv().await.map(|chunk| chunk.is_some()) });
        reactor::yield_now().await;
        stream.shutdown();
        assert!(!receiver.await.unwrap().unwrap_or(false));
    });
}

#[test]
fn a_connection_moves_to_another_shard() {
    for driver in drivers() {
        let config = Config { shards: 2, driver, ..Config::default() };
        let running = reactor::start(config, |info| async move {
            if info.id == 1 {
                return;
            }
            let listener = Listener::bind(any(), ListenOptions::default()).unwrap();
            let address = listener.local_addr();
            let client = spawn(Group::STATEMENT, exchange(address, 1000, 3));
            let (stream, _) = listener.accept().await.unwrap();
            let detached = stream.detach();
            let served = reactor::mesh::call(1, Group::STATEMENT, move || async move {
                assert_eq!(reactor::shard_id(), 1);
                echo(detached.attach().unwrap()).await;
            });
            client.await.unwrap();
            served.await.unwrap();
        });
        running.unwrap().join().unwrap();
    }
}

#[test]
fn a_silent_connection_moves_to_another_shard_after_it_has_received() {
    for driver in drivers() {
        let config = Config { driver, shards: 2, ..Config::default() };
        let running = reactor::start(config, |info| async move {
            if info.id != 0 {
                return;
            }
            let listener = Listener::bind(any(), ListenOptions::default()).unwrap();
            let client = Stream::connect(listener.local_addr()).await.unwrap();
            let (server, _) = listener.accept().await.unwrap();
            client.send(b"first".to_vec()).await.0.unwrap();
            assert_eq!(&*server.recv().await.unwrap().expect("bytes"), b"first");
            let detached = server.detach_silent();
            let moved = reactor::mesh::call(1, Group::STATEMENT, move || async move {
                let stream = detached.attach().unwrap();
                stream.send(b"go on".to_vec()).await.0.unwrap();
                let mut received = Vec::new();
                while received.len() < 50_000 {
                    received.extend_from_slice(&stream.recv().await.unwrap().expect("more is to come"));
                }
                received
            });
            let moved = spawn(Group::STATEMENT, moved);
            assert_eq!(&*client.recv().await.unwrap().expect("bytes"), b"go on");
            client.send(vec![7; 50_000]).await.0.unwrap();
            assert_eq!(moved.await.unwrap().unwrap(), vec![7; 50_000]);
        });
        running.unwrap().join().unwrap();
    }
}

#[test]
fn a_connection_comes_from_the_address_it_was_bound_to() {
    on_each_driver(|| async {
        let listener = Listener::bind(any(), ListenOptions::default()).unwrap();
        let from = "127.0.0.9".parse().unwrap();
        let client = Stream::connect_from(Some(from), listener.local_addr()).await.unwrap();
        let (server, peer) = listener.accept().await.unwrap();
        assert_eq!((client.local_addr().ip(), server.peer_addr(), peer.ip()), (from, peer, from));
        // An address of documentation is none of this machine's.
        let elsewhere = Some("192.0.2.1".parse().unwrap());
        let error = Stream::connect_from(elsewhere, listener.local_addr()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    });
}

#[test]
fn two_listeners_of_one_port_need_reuse_port() {
    on_each_driver(|| async {
        let shared = ListenOptions { reuse_port: true, ..ListenOptions::default() };
        let first = Listener::bind(any(), shared).unwrap();
        let second = Listener::bind(first.local_addr(), shared).unwrap();
        assert_eq!(first.local_addr(), second.local_addr());
        let third = Listener::bind(first.local_addr(), ListenOptions::default()).err().unwrap();
        assert_eq!(third.kind(), ErrorKind::AddrInUse);
    });
}

#[test]
fn a_second_receiver_or_sender_is_refused_and_the_first_goes_on() {
    on_each_driver(|| async {
        const LONG: usize = 16 << 20;
        let listener = Listener::bind(any(), ListenOptions::default()).unwrap();
        let client = Rc::new(Stream::connect(listener.local_addr()).await.unwrap());
        let (served, _) = listener.accept().await.unwrap();
        let receiver = client.clone();
        let receiving = spawn(Group::STATEMENT, async move {
            receiver.recv().await.map(|chunk| chunk.map(|chunk| chunk.to_vec()))
        });
        let sender = client.clone();
        let sending = spawn(Group::STATEMENT, async move { sender.send(vec![1; LONG]).await.0 });
        reactor::sleep(Duration::from_millis(5)).await;
        assert_eq!(client.recv().await.unwrap_err().kind(), ErrorKind::ResourceBusy);
        let (refused, back) = client.send(vec![2]).await;
        assert_eq!((refused.unwrap_err().kind(), back), (ErrorKind::ResourceBusy, vec![2]));
        served.send(vec![3]).await.0.unwrap();
        assert_eq!(receiving.await.unwrap().unwrap(), Some(vec![3]));
        let mut received = 0;
        while received < LONG {
            let chunk = served.recv().await.unwrap().expect("more is to come");
            assert!(chunk.iter().all(|byte| *byte == 1));
            received += chunk.len();
        }
        sending.await.unwrap().unwrap();
        client.send(vec![4]).await.0.unwrap();
        assert_eq!(&*served.recv().await.unwrap().unwrap(), [4]);
    });
}
