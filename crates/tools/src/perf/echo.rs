//! An echo on the reactor: answers of one size to requests of another, without any work in between.
//!
//! With the frame sizes of a CQL load it measures the cost of the reactor and the kernel on this machine; a
//! database cannot be faster.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use reactor::net::{ListenOptions, Listener, Stream};
use reactor::{Deadline, Gate, Group, run_one, spawn};

use super::closed_loop::{Answer, Exchange, Limits, run};
use super::report::{self, Subject};
use super::{BYTES_MAX, Driver, LoopOptions, PerfError, SECONDS_MAX};

/// Bytes of the frames of a prepared point read: a key of 8 bytes in, a value of 100 bytes out.
const REQUEST_BYTES_DEFAULT: u32 = 44;
const RESPONSE_BYTES_DEFAULT: u32 = 129;
/// Most responses that are answered with one send; more wait in the receive buffer.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Sizes of the echo.
#[derive(Debug, Clone, Copy, Args)]
struct Sizes {
    /// Port
    #[arg(long, value_name = "PORT", default_value_t = 7400)]
    port: u16,
    /// Bytes of a request
    #[arg(long, value_name = "BYTES", default_value_t = REQUEST_BYTES_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=BYTES_MAX))]
    request_bytes: u32,
    /// Bytes of a response
    #[arg(long, value_name = "BYTES", default_value_t = RESPONSE_BYTES_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=BYTES_MAX))]
    response_bytes: u32,
}

/// Options of `ceto perf echo-server`.
#[derive(Debug, Args)]
pub struct ServerOptions {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    #[command(flatten)]
    sizes: Sizes,
    /// Seconds until it ends, unless it is ended before
    #[arg(long, value_name = "S", default_value_t = 3600, value_parser = clap::value_parser!(u32).range(1..=SECONDS_MAX))]
    seconds: u32,
    /// How the shard talks to the kernel
    #[arg(long, value_enum, default_value_t = Driver::Auto)]
    driver: Driver,
}

/// Options of `ceto perf echo-load`.
#[derive(Debug, Args)]
pub struct LoadOptions {
    /// Address of the echo server
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    #[command(flatten)]
    sizes: Sizes,
    #[command(flatten)]
    limits: LoopOptions,
}

/// Answers until the time is up or the process is asked to end.
pub(super) fn serve(options: ServerOptions) -> Result<(), PerfError> {
    run_one(options.driver.config(), async move {
        let address = SocketAddr::new(options.host, options.sizes.port);
        let listener = Listener::bind(address, ListenOptions::default())
            .map_err(PerfError::io(format!("listening on {address}")))?;
        println!("echo ready on {}", listener.local_addr());
        let deadline = Deadline::after(Duration::from_secs(u64::from(options.seconds)));
        let sizes = options.sizes;
        let accepting = spawn(Group::STATEMENT, accept(listener, sizes));
        match reactor::timeout(deadline, reactor::signal::terminated()).await {
            Ok(asked) => asked.map_err(PerfError::io("waiting for a signal"))?,
            Err(_) => eprintln!("ceto perf: {} s are over", options.seconds),
        }
        accepting.detach();
        Ok(())
    })
}

async fn accept(listener: Listener, sizes: Sizes) {
    let gate = Gate::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(hold) = gate.enter() else { return };
                spawn(Group::STATEMENT, async move {
                    let _hold = hold;
                    answer(&stream, sizes).await;
                })
                .detach();
            }
            // Out of descriptors: connections that end give some back.
            Err(_) => reactor::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn answer(stream: &Stream, sizes: Sizes) {
    let (request, response) = (sizes.request_bytes as usize, sizes.response_bytes as usize);
    let batch_max = (BATCH_BYTES_MAX / response).max(1);
    let (mut pending, mut buffer) = (0, Vec::new());
    while let Ok(Some(chunk)) = stream.recv().await {
        pending += chunk.len();
        drop(chunk);
        // Each round answers at least one request.
        while pending >= request {
            let count = (pending / request).min(batch_max);
            pending -= count * request;
            buffer.resize(count * response, 0);
            let (sent, back) = stream.send(buffer).await;
            if sent.is_err() {
                return;
            }
            buffer = back;
        }
    }
}

/// Loads an echo server and prints the results.
pub(super) fn load(options: LoadOptions) -> Result<(), PerfError> {
    options.limits.check_in_flight(options.sizes.request_bytes.max(options.sizes.response_bytes))?;
    run_one(options.limits.driver.config(), async move {
        let address = SocketAddr::new(options.host, options.sizes.port);
        let limits = &options.limits;
        let mut connections = Vec::new();
        for _ in 0..limits.connections {
            let connecting =
                reactor::timeout(Deadline::after(limits.timeout()), Stream::connect(address)).await;
            let what = || format!("connecting to {address}");
            let stream = connecting
                .map_err(|_| PerfError::TimedOut { what: what(), seconds: limits.timeout_seconds })?
                .map_err(PerfError::io(what()))?;
            connections.push((Rc::new(stream), EchoExchange::new(options.sizes, limits.depth)));
        }
        let measured = run(connections, Limits::of(limits)).await?;
        let subject = Subject {
            workload: "echo",
            connections: limits.connections as usize,
            depth: limits.depth,
            json: limits.json,
        };
        report::print(&subject, &measured)
    })
}

/// Requests without content; answers come in the order of asking, which is that of the slots, round and
/// round.
struct EchoExchange {
    request: Vec<u8>,
    response_bytes: usize,
    next: u16,
    depth: u16,
}

impl EchoExchange {
    fn new(sizes: Sizes, depth: u16) -> Self {
        let request = vec![0x5A; sizes.request_bytes as usize];
        Self { request, response_bytes: sizes.response_bytes as usize, next: 0, depth }
    }
}

impl Exchange for EchoExchange {
    #[inline]
    fn append(&mut self, out: &mut Vec<u8>, _slot: u16) -> bool {
        out.extend_from_slice(&self.request);
        true
    }

    #[inline]
    fn cut(&mut self, bytes: &[u8]) -> Result<Option<Answer>, PerfError> {
        if bytes.len() < self.response_bytes {
            return Ok(None);
        }
        let slot = self.next;
        self.next = (slot + 1) % self.depth;
        Ok(Some(Answer { bytes: self.response_bytes, slot, failure: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads an echo on a free port and returns the counts.
    fn measured(
        connections: u32,
        depth: u16,
        requests: u64,
        response_bytes: u32,
    ) -> Result<super::super::closed_loop::Measured, PerfError> {
        run_one(Driver::Auto.config(), async move {
            let sizes = Sizes { port: 0, request_bytes: 44, response_bytes };
            let listener = Listener::bind(([127, 0, 0, 1], 0).into(), ListenOptions::default()).unwrap();
            let address = listener.local_addr();
            spawn(Group::STATEMENT, accept(listener, sizes)).detach();
            let mut lanes = Vec::new();
            for _ in 0..connections {
                let stream = Stream::connect(address).await.unwrap();
                lanes.push((Rc::new(stream), EchoExchange::new(sizes, depth)));
            }
            let (warm_up, measured) = (Duration::ZERO, Duration::from_secs(300));
            run(lanes, Limits { depth, warm_up, measured, requests, timeout_seconds: 60 }).await
        })
    }

    #[test]
    fn as_many_requests_are_answered_as_were_asked_for() {
        // Responses that take several receives, and several that share one.
        for (connections, depth, response_bytes) in [(1, 1, 1), (3, 7, 129), (2, 16, 100_000)] {
            let measured = measured(connections, depth, 1000, response_bytes).unwrap();
            assert_eq!((measured.answers, measured.failed), (1000, 0), "{connections} x {depth}");
            let [p50, p99, p999, max] = measured.latency_ns;
            assert!(0 < p50 && p50 <= p99 && p99 <= p999 && p999 <= max, "{measured:?}");
        }
    }

    #[test]
    fn a_server_that_goes_away_is_an_error() {
        let result = run_one(Driver::Auto.config(), async {
            let listener = Listener::bind(([127, 0, 0, 1], 0).into(), ListenOptions::default()).unwrap();
            let stream = Stream::connect(listener.local_addr()).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            drop(accepted);
            let sizes = Sizes { port: 0, request_bytes: 44, response_bytes: 129 };
            let (warm_up, measured) = (Duration::ZERO, Duration::from_secs(300));
            let limits = Limits { depth: 4, warm_up, measured, requests: 10, timeout_seconds: 60 };
            run(vec![(Rc::new(stream), EchoExchange::new(sizes, 4))], limits).await
        });
        assert!(matches!(result, Err(PerfError::Closed { .. } | PerfError::Io { .. })), "{result:?}");
    }
}
