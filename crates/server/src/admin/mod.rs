//! Administration over HTTP: the REST API with ScyllaDB's public paths, the console (`ui`), and metrics in
//! Prometheus' text form.
//!
//! Administration has one thread of its own, not pinned, with a small tokio runtime for sockets and HTTP; no
//! shard does this work. The thread reaches the node only through `bridge`, a bounded queue to shard 0, and
//! shard 0 calls the other shards over the mesh (`node`). The ports are bound before the shards start, and
//! requests are answered once shard 0 serves: starting the node does not wait for administration. Limited are
//! the number of connections and how long each may wait for its client (`limit`), the sizes of bodies and
//! headers, and the number of calls under way; see the constants. `guard` rejects requests of foreign web
//! pages.
#![allow(clippy::disallowed_types)] // no shard runs here: this thread has sockets of its own

mod bridge;
mod compactions;
pub(crate) mod describe;
mod error;
mod guard;
mod limit;
mod members;
mod metrics;
pub(crate) mod node;
mod node_samples;
mod params;
mod rest;
mod sampling;
mod storage_samples;
mod ui;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use tokio::sync::{mpsc, watch};

pub use bridge::Attach;
use bridge::Bridge;
use guard::Guard;
use limit::{Limited, Place, Times};

use crate::boot::BootError;
use crate::config::{Config, Port};

/// How long a stopping node waits for the responses under way.
const END_TIME: Duration = Duration::from_secs(1);

/// Bound ports that are not served yet.
pub struct Ports {
    api: Option<TcpListener>,
    prometheus: Option<TcpListener>,
    /// Names of the node besides its addresses (`api_allowed_hosts`).
    names: Vec<String>,
}

/// The administration thread.
pub struct Admin {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Ports {
    /// Binds the configured ports.
    ///
    /// # Errors
    /// [`BootError::AdminListen`] if a configured port cannot be bound. A default port that cannot be bound
    /// is left out with a warning, so that several nodes start on one machine.
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
            names: config.admin.allowed_hosts.clone(),
        })
    }

    /// The addresses of the REST API and of the metrics, if they are bound.
    pub fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let of = |listener: &Option<TcpListener>| listener.as_ref().and_then(|port| port.local_addr().ok());
        (of(&self.api), of(&self.prometheus))
    }

    /// Starts the thread; it answers requests once a shard is attached.
    ///
    /// # Errors
    /// Errors of the system on starting the thread.
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
    /// Ends the thread; responses under way have a second to be sent.
    pub fn stop(self) {
        // An error means that the thread has ended already.
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
            let advice = crate::boot::port_advice(&source, &format!("{option}, 0 for none"));
            reactor::warn!("cannot listen on {address} ({key}): {source}; this node goes on without{advice}");
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
        // `None` if the node ended before a shard was attached.
        let Some(bridge) = attached.recv().await else { return };
        let names = &ports.names;
        let router = rest::router(bridge.clone()).merge(ui::router(bridge.clone()));
        let api = serve_one(ports.api, router, names, true, stopped.clone());
        let prometheus = serve_one(ports.prometheus, metrics::router(bridge), names, false, stopped.clone());
        let mut stopped = stopped;
        let ended = async {
            // An error means that `Admin` was dropped, which ends serving too.
            let _ = stopped.wait_for(|stop| *stop).await;
            tokio::time::sleep(END_TIME).await;
        };
        tokio::select! {
            ((), ()) = async { tokio::join!(api, prometheus) } => {}
            () = ended => {}
        }
    });
}

/// Serves one port. A `strict` port, the API's, checks the name in `Host` for reads too; the other one does
/// so only on a loopback address.
async fn serve_one(
    listener: Option<TcpListener>,
    router: Router,
    names: &[String],
    strict: bool,
    mut stopped: watch::Receiver<bool>,
) {
    let stop = async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let Some(listener) = listener else { return stop.await };
    let served = async {
        let address = listener.local_addr()?.ip();
        let guard = Guard::new(address, names, strict || address.is_loopback());
        let service = guard::around(router, guard).into_make_service_with_connect_info::<Place>();
        let limited = Limited::new(tokio::net::TcpListener::from_std(listener)?, Times::default());
        axum::serve(limited, service).with_graceful_shutdown(stop).await
    };
    let served: std::io::Result<()> = served.await;
    if let Err(error) = served {
        reactor::error!("administration is not served any more: {error}");
    }
}
