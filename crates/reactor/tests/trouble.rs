//! What befalls simulated nodes from outside: one-way partitions, slow links, drifting clocks, pauses.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use reactor::net::{ListenOptions, Listener, Stream};
use reactor::sim::{Link, NodeId, World};
use reactor::{Deadline, Group, spawn};

const MS: Duration = Duration::from_millis(1);

/// What one end has received, with the virtual time.
type Received = Rc<RefCell<Vec<(Duration, u8)>>>;

/// Two nodes with one connection, over which each sends a byte every millisecond for a second.
fn two(seed: u64) -> (World, [NodeId; 2], [Received; 2]) {
    let mut world = World::new(seed);
    let received: [Received; 2] = Default::default();
    let of_server = received[0].clone();
    let server = world.add_node(1, move |_| {
        let received = of_server.clone();
        async move {
            let listener = Listener::bind("0.0.0.0:7000".parse().unwrap(), ListenOptions::default()).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            exchange(stream, received).await;
        }
    });
    let address = SocketAddr::new(server.ip(), 7000);
    let of_client = received[1].clone();
    let client = world.add_node(1, move |_| {
        let received = of_client.clone();
        async move {
            reactor::sleep(MS).await;
            exchange(Stream::connect(address).await.unwrap(), received).await;
        }
    });
    (world, [server, client], received)
}

async fn exchange(stream: Stream, received: Received) {
    let stream = Rc::new(stream);
    let sender = stream.clone();
    let sending = spawn(Group::STATEMENT, async move {
        for number in 0..200u8 {
            sender.send(vec![number]).await.0.unwrap();
            reactor::sleep(5 * MS).await;
        }
    });
    while received.borrow().len() < 200 {
        let chunk = stream.recv().await.unwrap().expect("more is to come");
        let now = Duration::from_nanos(reactor::now().as_nanos());
        received.borrow_mut().extend(chunk.iter().map(|byte| (now, *byte)));
    }
    sending.await.unwrap();
}

fn lengths(received: &[Received; 2]) -> [usize; 2] {
    [received[0].borrow().len(), received[1].borrow().len()]
}

fn check_all_came(received: &[Received; 2]) {
    for end in received {
        assert!(end.borrow().iter().map(|(_, byte)| *byte).eq(0..200));
    }
}

#[test]
fn a_one_way_partition_holds_back_one_direction_only() {
    for seed in 0..20 {
        let (mut world, [server, client], received) = two(seed);
        world.run_for(200 * MS).unwrap();
        world.part_one_way(client, server);
        let before = lengths(&received);
        assert!(before[0] > 10 && before[1] > 10);
        world.run_for(200 * MS).unwrap();
        let after = lengths(&received);
        assert_eq!(after[0], before[0], "seed {seed}");
        assert!(after[1] > before[1] + 10, "seed {seed}");
        world.heal(server, client);
        world.run().unwrap();
        check_all_came(&received);
    }
}

#[test]
fn a_connection_is_not_made_while_either_way_is_cut() {
    for from_client in [true, false] {
        let mut world = World::new(3);
        let server = world.add_node(1, |_| async {
            let listener = Listener::bind("0.0.0.0:7000".parse().unwrap(), ListenOptions::default()).unwrap();
            reactor::sleep(60_000 * MS).await;
            drop(listener);
        });
        let address = SocketAddr::new(server.ip(), 7000);
        let client = world.add_node(1, move |_| async move {
            let patience = Deadline::after(1000 * MS);
            assert!(reactor::timeout(patience, Stream::connect(address)).await.is_err());
        });
        let (from, to) = if from_client { (client, server) } else { (server, client) };
        world.part_one_way(from, to);
        world.run_until(|world| world.is_ended(client)).unwrap();
        assert_eq!(world.outcome(client), Some(Ok(())));
    }
}

#[test]
fn a_link_has_a_latency_and_a_bandwidth_of_its_own() {
    let (mut world, [server, client], received) = two(4);
    let latency_ns = Some((300_000_000, 300_000_000));
    world.set_link(server, client, Link { latency_ns, bytes_per_second: None });
    world.run().unwrap();
    check_all_came(&received);
    let first = |end: &Received| end.borrow()[0].0;
    assert!(first(&received[1]) > first(&received[0]) + 290 * MS);

    let (mut world, [server, client], received) = two(4);
    // Two hundred bytes take two seconds.
    world.set_link(server, client, Link { latency_ns: None, bytes_per_second: Some(100) });
    world.run().unwrap();
    check_all_came(&received);
    let last = |end: &Received| end.borrow().last().unwrap().0;
    assert!(last(&received[0]) < 1100 * MS && last(&received[1]) > 2000 * MS);
}

#[test]
fn a_clock_drifts_and_keeps_what_it_gained() {
    let mut world = World::new(5);
    let clocks: Rc<RefCell<Vec<i64>>> = Rc::default();
    let of_node = clocks.clone();
    let node = world.add_node(1, move |_| {
        let clocks = of_node.clone();
        async move {
            for _ in 0..3 {
                clocks.borrow_mut().push(reactor::wall_clock_us());
                reactor::sleep(100_000 * MS).await;
            }
        }
    });
    world.drift_clock(node, 10_000);
    world.run_for(150_000 * MS).unwrap();
    world.drift_clock(node, 0);
    world.run().unwrap();
    let clocks = clocks.borrow();
    let near = |value: i64, expected: i64| (value - expected).abs() < 1000;
    assert!(near(clocks[1] - clocks[0], 101_000_000), "{clocks:?}");
    assert!(near(clocks[2] - clocks[1], 100_500_000), "{clocks:?}");
}

#[test]
fn a_paused_node_does_nothing_while_the_world_goes_on() {
    let mut world = World::new(6);
    let ticks: Rc<[Cell<u64>; 2]> = Rc::default();
    let nodes = [0, 1].map(|at: usize| {
        let ticks = ticks.clone();
        world.add_node(2, move |info| {
            let ticks = ticks.clone();
            async move {
                if info.id != 0 {
                    return;
                }
                loop {
                    ticks[at].set(ticks[at].get() + 1);
                    reactor::sleep(10 * MS).await;
                }
            }
        })
    });
    world.run_for(1000 * MS).unwrap();
    world.pause(nodes[0], 1000 * MS);
    let before = [ticks[0].get(), ticks[1].get()];
    world.run_for(900 * MS).unwrap();
    assert_eq!(ticks[0].get(), before[0]);
    assert!(ticks[1].get() > before[1] + 80);
    world.run_for(1000 * MS).unwrap();
    assert!(ticks[0].get() > before[0] + 80);
}

#[test]
fn bytes_for_a_paused_node_are_there_when_it_goes_on() {
    let (mut world, [server, client], received) = two(7);
    world.run_for(100 * MS).unwrap();
    world.pause(server, 5000 * MS);
    world.run_for(4000 * MS).unwrap();
    let before = lengths(&received);
    assert!(before[0] < 200);
    world.run_until(|world| world.is_ended(client) && world.is_ended(server)).unwrap();
    assert!(world.now() > 5000 * MS);
    check_all_came(&received);
}

#[test]
fn troubles_are_part_of_the_trace() {
    let run = |trouble: fn(&mut World, [NodeId; 2])| {
        let (mut world, nodes, _) = two(8);
        trouble(&mut world, nodes);
        world.run().unwrap();
        world.trace_hash()
    };
    let plain = run(|_, _| {});
    assert_eq!(run(|_, _| {}), plain);
    let troubles: [fn(&mut World, [NodeId; 2]); 4] = [
        |world, [server, client]| {
            world.part_one_way(server, client);
            world.heal(server, client);
        },
        |world, [server, client]| {
            world.set_link(server, client, Link { bytes_per_second: Some(9), ..Link::default() })
        },
        |world, [server, _]| world.drift_clock(server, 5),
        |world, [server, _]| world.pause(server, MS),
    ];
    let mut traces: Vec<u64> = troubles.iter().map(|trouble| run(*trouble)).collect();
    traces.push(plain);
    let again: Vec<u64> = troubles.iter().map(|trouble| run(*trouble)).collect();
    assert_eq!(again, traces[..4]);
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 5);
}
