//! The connections of a run: made before it, and looked at between its parts, when a server may have gone.
//!
//! A server that cannot be reached is left out as long as there is another one, as drivers do: its part of
//! the load goes to the others.

use std::net::SocketAddr;
use std::rc::Rc;

use super::super::StressError;
use super::super::cluster::{self, Cluster, Host, Lanes};
use super::super::console::tell;
use super::super::settings::{Mode, Settings};
use crate::client::pipe::Pipe;
use crate::client::{Client, ClientError, Landed};

/// Connections to all servers that can be reached.
pub(super) struct Connected {
    /// One to each server for requests outside of the load.
    pub(super) controls: Vec<Client>,
    pub(super) pipes: Vec<Rc<Pipe>>,
    /// Of each server its connections; none of one that was left out.
    pub(super) lanes: Vec<Lanes>,
    /// The server of each connection.
    pub(super) addresses: Vec<SocketAddr>,
}

/// Connects to all servers. `control` is connected to the first; `keyspace` is the statement that chooses it.
pub(super) async fn connect_all(
    cluster: &Cluster,
    control: Client,
    keyspace: &str,
    settings: &Settings,
) -> Result<Connected, StressError> {
    let mut all =
        Connected { controls: vec![control], pipes: Vec::new(), lanes: Vec::new(), addresses: Vec::new() };
    let mut last = None;
    for (index, host) in cluster.hosts.iter().enumerate() {
        let landed = match connect(host, index > 0, keyspace, settings).await {
            Ok((control, clients)) => {
                all.controls.extend(control);
                let (clients, landed): (Vec<Client>, Vec<_>) = clients.into_iter().unzip();
                let lanes = cluster::lanes(&landed, all.pipes.len());
                for client in clients {
                    all.pipes.push(Rc::new(Pipe::new(&client, settings.mode.requests_per_connection)));
                    all.addresses.push(host.address);
                }
                lanes
            }
            // What one server refuses is refused by the others.
            Err(error @ StressError::Client(ClientError::Server { .. })) => return Err(error),
            Err(error) => {
                tell(&format!("Left out: {error}"));
                last = Some(error);
                cluster::lanes(&[], all.pipes.len())
            }
        };
        all.lanes.push(landed);
    }
    match last {
        Some(error) if all.pipes.is_empty() => Err(error),
        _ => Ok(all),
    }
}

type Connections = (Option<Client>, Vec<(Client, Option<Landed>)>);

/// The connections to one server; among them one for control if `controls`.
async fn connect(
    host: &Host,
    controls: bool,
    keyspace: &str,
    settings: &Settings,
) -> Result<Connections, StressError> {
    let control = match controls {
        true => Some(open(host.address, keyspace, &settings.mode).await?),
        false => None,
    };
    let mut clients = cluster::connect(host, settings.mode.connections_per_host, settings).await?;
    for (client, _) in &mut clients {
        client.execute(keyspace).await?;
    }
    Ok((control, clients))
}

async fn open(address: SocketAddr, keyspace: &str, mode: &Mode) -> Result<Client, StressError> {
    let (mut client, _) = Client::open(address, &mode.client()).await?;
    client.execute(keyspace).await?;
    Ok(client)
}

/// Replaces connections for control that a server has closed; those of servers that are gone are given up.
///
/// # Errors
/// That of the last server, if none is left.
pub(super) async fn revive(
    controls: &mut Vec<Client>,
    keyspace: &str,
    mode: &Mode,
) -> Result<(), StressError> {
    let mut last = None;
    let mut alive = Vec::with_capacity(controls.len());
    for mut control in controls.drain(..) {
        if control.execute(keyspace).await.is_ok() {
            alive.push(control);
            continue;
        }
        match open(control.address, keyspace, mode).await {
            Ok(again) => alive.push(again),
            Err(error) => last = Some(error),
        }
    }
    *controls = alive;
    match last {
        Some(error) if controls.is_empty() => Err(error),
        _ => Ok(()),
    }
}
