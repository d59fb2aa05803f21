//! A bare server and its load generator: they measure the cost of the reactor and the kernel without any
//! database.
//!
//! `echo serve --port 7000 [--shards N] [--driver uring|poll] [--request 69] [--response 129] [--spin-us N]
//! [--requests-max N] [--hogs N]` answers every `request` bytes with `response` bytes. With `--requests-max`
//! it ends by itself after that many requests, which tools like callgrind need. `--hogs` adds tasks that
//! always compute in a background group. `echo load --port 7000 [--connections 64] [--depth 1] [--requests
//! 200000] ...` measures the server and prints requests per second and latencies.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use reactor::metrics::Histogram;
use reactor::net::{ListenOptions, Listener, Stream};
use reactor::{Config, DriverChoice, Event, Group, spawn};

#[derive(Clone)]
struct Arguments {
    port: u16,
    shards: usize,
    driver: DriverChoice,
    request: usize,
    response: usize,
    spin_us: u32,
    requests_max: u64,
    hogs: usize,
    connections: usize,
    depth: usize,
    requests: u64,
}

fn parse() -> Result<(String, Arguments), String> {
    let mut words = std::env::args().skip(1);
    let mode = words.next().ok_or("serve or load?")?;
    let mut arguments = Arguments {
        port: 7000,
        shards: 1,
        driver: DriverChoice::Auto,
        request: 69,
        response: 129,
        spin_us: 0,
        requests_max: u64::MAX,
        hogs: 0,
        connections: 64,
        depth: 1,
        requests: 200_000,
    };
    while let Some(name) = words.next() {
        let value = words.next().ok_or(format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name}: {value} is not a number"));
        match name.as_str() {
            "--port" => arguments.port = value.parse().map_err(|_| format!("no port: {value}"))?,
            "--shards" => arguments.shards = number()? as usize,
            "--driver" => {
                arguments.driver = match value.as_str() {
                    "uring" => DriverChoice::Uring,
                    "poll" => DriverChoice::Poll,
                    other => return Err(format!("no such driver: {other}")),
                }
            }
            "--request" => arguments.request = number()?.max(1) as usize,
            "--response" => arguments.response = number()? as usize,
            "--spin-us" => arguments.spin_us = number()? as u32,
            "--requests-max" => arguments.requests_max = number()?,
            "--hogs" => arguments.hogs = number()? as usize,
            "--connections" => arguments.connections = number()?.max(1) as usize,
            "--depth" => arguments.depth = number()?.max(1) as usize,
            "--requests" => arguments.requests = number()?.max(1),
            other => return Err(format!("no such option: {other}")),
        }
    }
    Ok((mode, arguments))
}

async fn answer(stream: Stream, arguments: Arguments, served: Rc<Cell<u64>>, full: Rc<Event>) {
    let mut pending = 0;
    let mut buffer = Vec::new();
    while let Ok(Some(chunk)) = stream.recv().await {
        pending += chunk.len();
        drop(chunk);
        let count = pending / arguments.request;
        pending %= arguments.request;
        if count == 0 {
            continue;
        }
        buffer.resize(count * arguments.response, 0);
        let (sent, back) = stream.send(buffer).await;
        if sent.is_err() {
            return;
        }
        buffer = back;
        served.set(served.get() + count as u64);
        if served.get() >= arguments.requests_max {
            full.notify_all();
        }
    }
}

async fn serve(arguments: Arguments) {
    let address: SocketAddr = ([127, 0, 0, 1], arguments.port).into();
    let options = ListenOptions { reuse_port: true, ..ListenOptions::default() };
    let listener = Listener::bind(address, options).expect("the port is free");
    let (served, full) = (Rc::new(Cell::new(0)), Rc::new(Event::new()));
    for _ in 0..arguments.hogs {
        drop(spawn(Group::COMPACTION, async {
            loop {
                reactor::maybe_yield().await;
            }
        }));
    }
    let (all, enough, limit) = (served.clone(), full.clone(), arguments.requests_max);
    drop(spawn(Group::STATEMENT, async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(spawn(Group::STATEMENT, answer(stream, arguments.clone(), served.clone(), full.clone())));
        }
    }));
    enough.wait_until(|| all.get() >= limit).await;
}

struct Load {
    left: Cell<u64>,
    latency_ns: Histogram,
}

async fn client(arguments: Arguments, load: Rc<Load>) {
    let address: SocketAddr = ([127, 0, 0, 1], arguments.port).into();
    let stream = Stream::connect(address).await.expect("a server listens");
    let mut buffer = Vec::new();
    while load.left.get() > 0 {
        let depth = (arguments.depth as u64).min(load.left.get());
        load.left.set(load.left.get() - depth);
        let begin = reactor::now();
        buffer.clear();
        buffer.resize(depth as usize * arguments.request, 0);
        let (sent, back) = stream.send(buffer).await;
        sent.expect("the server reads");
        buffer = back;
        let (mut received, mut answered) = (0, 0);
        while answered < depth {
            let chunk = stream.recv().await.expect("the server answers").expect("the server stays");
            received += chunk.len();
            let now = (received / arguments.response) as u64;
            for _ in answered..now {
                load.latency_ns.record(begin.elapsed().as_nanos() as u64);
            }
            answered = now;
        }
    }
}

async fn measure(arguments: Arguments) {
    let load = Rc::new(Load { left: Cell::new(arguments.requests), latency_ns: Histogram::default() });
    let begin = reactor::now();
    let clients: Vec<_> = (0..arguments.connections)
        .map(|_| spawn(Group::STATEMENT, client(arguments.clone(), load.clone())))
        .collect();
    let failed = RefCell::new(None);
    for client in clients {
        if let Err(panicked) = client.await {
            failed.replace(Some(panicked));
        }
    }
    if let Some(panicked) = failed.take() {
        panic!("{panicked}");
    }
    let seconds = begin.elapsed().as_secs_f64();
    let latency = load.latency_ns.snapshot();
    let us = |quantile: f64| latency.quantile(quantile) as f64 / 1000.0;
    println!(
        "connections {} depth {}: {:.0} requests/s, latency us p50 {:.1} p99 {:.1} p99.9 {:.1}",
        arguments.connections,
        arguments.depth,
        latency.count as f64 / seconds,
        us(0.5),
        us(0.99),
        us(0.999),
    );
}

fn main() {
    let (mode, arguments) = match parse() {
        Ok(parsed) => parsed,
        Err(message) => {
            eprintln!("{message}");
            std::process::exit(2);
        }
    };
    let config = Config {
        shards: if mode == "load" { 1 } else { arguments.shards },
        driver: arguments.driver,
        spin_us: arguments.spin_us,
        name: mode.clone(),
        ..Config::default()
    };
    let load = mode == "load";
    let running = reactor::start(config, move |_| {
        let arguments = arguments.clone();
        async move { if load { measure(arguments).await } else { serve(arguments).await } }
    });
    match running {
        Ok(running) => {
            if let Err(panicked) = running.join() {
                eprintln!("{panicked}");
                std::process::exit(1);
            }
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}
