//! Administration over HTTP: the REST API with ScyllaDB's public paths, and metrics in Prometheus' text form.
//!
//! One thread of its own, not pinned, runs a small tokio runtime for sockets and HTTP; no shard ever does. It talks to the
//! node through `bridge` alone, a bounded queue to shard 0, which asks the other shards over the mesh (`node`).
//! The ports are bound before the shards start and answered once shard 0 serves, so that a start waits for nothing.
//! Bounds: connections, body and header sizes, calls on their way; see the constants.
#![allow(clippy::disallowed_types)] // no shard runs here: this thread has sockets of its own

mod bridge;
mod compactions;
pub(crate) mod describe;
mod error;
mod limit;
mod metrics;
pub(crate) mod node;
mod params;
mod rest;
mod storage_samples;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use tokio::sync::{mpsc, watch};

pub use bridge::Attach;
use bridge::Bridge;
use limit::Limited;

use crate::boot::BootError;
use crate::config::{Config, Port};

/// How long a node that ends waits for administration's answers to leave.
const END_TIME: Duration = Duration::from_secs(1);

/// Ports that listen, nobody answering yet.
pub struct Ports {
    api: Option<TcpListener>,
    prometheus: Option<TcpListener>,
}

/// The administration thread.
pub struct Admin {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Ports {
    /// Binds what the configuration names.
    ///
    /// # Errors
    /// [`BootError::AdminListen`] for a port that was asked for; one that is taken and was only the default is left
    /// out with a warning, so that several nodes start on one machine.
    pub fn bind(config: &Config) -> Result<Self, BootError> {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let default_address = if config.rpc_address.is_loopback() { config.rpc_address } else { loopback };
        let api = config.admin.api_address.unwrap_or(default_address);
        let prometheus = config.admin.prometheus_address.unwrap_or(default_address);
        Ok(Self {
            api: bind("api_port", "--api-port", api, config.admin.api_port)?,
            prometheus: bind(
                "prometheus_port",
                "--prometheus-port",
                prometheus,
                config.admin.prometheus_port,
            )?,
        })
    }

    /// Starts answering, as soon as a shard is attached.
    ///
    /// # Errors
    /// When the system refuses a thread or a descriptor.
    pub fn serve(self) -> std::io::Result<(Admin, Attach)> {
        let (attach, attached) = bridge::new();
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::Builder::new()
            .name("ceto-admin".to_owned())
            .spawn(move || run(self, attached, stopped))?;
        Ok((Admin { stop, thread }, attach))
    }
}

impl Admin {
    /// Ends the thread; answers on their way have a second to leave.
    pub fn stop(self) {
        // A thread that is gone needs no word.
        let _ = self.stop.send(true);
        if self.thread.join().is_err() {
            reactor::error!("the administration thread broke");
        }
    }
}

fn bind(
    key: &'static str,
    option: &'static str,
    address: IpAddr,
    port: Port,
) -> Result<Option<TcpListener>, BootError> {
    let number = port.number();
    if number == 0 {
        return Ok(None);
    }
    let address = SocketAddr::new(address, number);
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    match (bound, port) {
        (Ok(listener), _) => Ok(Some(listener)),
        (Err(source), Port::Given(_)) => Err(BootError::AdminListen { key, option, address, source }),
        (Err(source), Port::Default(_)) => {
            reactor::warn!(
                "cannot listen on {address} ({key}): {source}; this node goes on without: choose another with {option}, 0 for none"
            );
            Ok(None)
        }
    }
}

fn run(ports: Ports, mut attached: mpsc::Receiver<Bridge>, stopped: watch::Receiver<bool>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            reactor::error!("administration cannot be served: {error}");
            return;
        }
    };
    runtime.block_on(async {
        // None when the node did not get as far as a shard.
        let Some(bridge) = attached.recv().await else { return };
        let api = serve_one(ports.api, rest::router(bridge.clone()), stopped.clone());
        let prometheus = serve_one(ports.prometheus, metrics::router(bridge), stopped.clone());
        let mut stopped = stopped;
        let ended = async {
            // An error is the end of the node too.
            let _ = stopped.wait_for(|stop| *stop).await;
            tokio::time::sleep(END_TIME).await;
        };
        tokio::select! {
            ((), ()) = async { tokio::join!(api, prometheus) } => {}
            () = ended => {}
        }
    });
}

async fn serve_one(listener: Option<TcpListener>, router: Router, mut stopped: watch::Receiver<bool>) {
    let stop = async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let Some(listener) = listener else { return stop.await };
    let served = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => axum::serve(Limited::new(listener), router).with_graceful_shutdown(stop).await,
        Err(error) => Err(error),
    };
    if let Err(error) = served {
        reactor::error!("administration is not served any more: {error}");
    }
}
