//! Boot: from the command line to a node that answers, and back to a clean stop.
//!
//! Phases, each with its own error: configuration → lock on the work directory → shards → storage on every
//! shard → engines → listeners on shard 0 → `ceto ready`. The ports of administration are bound once the lock
//! is held, before any data is opened, and served by a thread of its own (`admin`). On SIGINT or SIGTERM the
//! listeners close, requests in flight end, memtables are flushed, and the process exits with 0; another
//! thread (`signals`) ensures that the process ends in any case. A failure before `ceto ready` ends the
//! process with exit code 1 and one line of advice.

mod advice;
mod announcement;
mod disks;
pub mod doctor;
mod lock;
mod memory;
mod probe;
mod service_manager;
mod shard;
mod signals;
mod trouble;

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::task::Poll;

use reactor::mesh::{self, MeshError};
use reactor::stall::StallDetector;
use reactor::{Group, ShardInfo};
use storage::Identity;

use crate::admin::node::{self, Mode, NodeState};
use crate::admin::{Admin, Ports};
use crate::cli::ServerOptions;
use crate::config::{Config, ConfigError, Driver};
pub(crate) use shard::Shard;
use signals::Attach;

/// Why a node did not start, or did not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The work directory cannot be used.
    #[error("cannot use the work directory {}: {source}{}", path.display(), advice::work_directory(source))]
    Workdir {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// More shards than processors that this process may use.
    #[error(
        "{shards} shards need as many processors, and this process may use {processors}: take fewer with --smp, or let shards share \
         processors with --overprovisioned"
    )]
    TooManyShards {
        /// `smp`.
        shards: usize,
        /// Processors of its affinity mask and cgroup.
        processors: usize,
    },
    /// More memory than the machine or its cgroup has.
    #[error(
        "--memory of {asked_mib} MiB is more than the {available_mib} MiB that this process may use ({}): give less with --memory or \
         memory, or raise that limit", source_file.display()
    )]
    TooMuchMemory {
        /// `memory`, in MiB.
        asked_mib: u64,
        /// The limit, in MiB.
        available_mib: u64,
        /// The file that states the limit.
        source_file: PathBuf,
    },
    /// A port cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}{}",
        advice::port(source, "--listen, --port or --shard-aware-port")
    )]
    Listen {
        /// Address and port.
        address: std::net::SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// A port of administration cannot be listened on.
    #[error("cannot listen on {address} ({key}): {source}{}", advice::port(source, &format!("{option} or {key}, 0 for none")))]
    AdminListen {
        /// The port's key in the configuration.
        key: &'static str,
        /// The port's option on the command line.
        option: &'static str,
        /// Address and port.
        address: std::net::SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The thread of administration could not be started.
    #[error("cannot serve administration: {}{}", .0, advice::system(.0))]
    Administration(std::io::Error),
    /// Signals could not be taken over, or the thread that handles them could not be started.
    #[error("cannot take signals: {}{}", .0, advice::system(.0))]
    Signals(std::io::Error),
    /// The thread that returns memory could not be started.
    #[error("cannot start a thread: {}{}", .0, advice::system(.0))]
    Pages(std::io::Error),
    /// The shards could not be started.
    #[error("{}{}", .0, start_advice(.0))]
    Start(reactor::StartError),
    /// Storage did not open.
    #[error(transparent)]
    Storage(#[from] storage::StorageError),
    /// The system schema could not be created.
    #[error("cannot make the system schema: {0}")]
    Schema(query::QueryError),
    /// A shard failed to start; its log has the cause.
    #[error("shard {shard} did not start: {reason}")]
    Shard {
        /// The number of the shard.
        shard: usize,
        /// The shard's error.
        reason: String,
    },
    /// A shard could not flush everything at the end; the commit log has the rest.
    #[error("shard {shard} did not close cleanly, the next start recovers from the commit log: {reason}")]
    Closing {
        /// The number of the shard.
        shard: usize,
        /// The shard's error.
        reason: String,
    },
}

pub(crate) use advice::port as port_advice;

/// Advice for shards that did not start.
fn start_advice(error: &reactor::StartError) -> String {
    use reactor::{DriverChoice, StartError};
    match error {
        StartError::NoShards => String::new(),
        StartError::Driver { driver: DriverChoice::Uring, source, .. }
            if source.kind() != std::io::ErrorKind::OutOfMemory =>
        {
            "; the kernel or its container does not allow io_uring: use --driver auto or poll".to_owned()
        }
        StartError::Disk { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            "; measure the disks there are with `ceto io-setup`, or remove it from io_properties.yaml"
                .to_owned()
        }
        StartError::Driver { source, .. }
        | StartError::Disk { source, .. }
        | StartError::System { source, .. } => advice::system(source),
    }
}

/// With less memory, reports of stalls name no inlined functions: that would take more than all else may
/// beside `--memory`.
const INLINED_BYTES_MIN: u64 = 512 << 20;

/// How memory that the allocator keeps goes back to the system. A shard has it as a local value if its memory
/// is to be returned.
#[derive(Debug, Clone, Copy)]
pub struct Pages {
    /// Marks what the calling thread does not use as free.
    pub tidy: fn(),
    /// Returns what is free to the system, on a thread of its own: the calls take as long as the machine is
    /// busy.
    pub returner: fn() -> !,
}

/// Runs a node until it is told to stop.
pub fn main(options: &ServerOptions, pages: Pages) -> ExitCode {
    match run(options, pages) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ceto: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The part of the configuration that concerns each shard.
fn reactor_config(config: &Config) -> reactor::Config {
    reactor::Config {
        driver: match config.driver {
            Driver::Auto => reactor::DriverChoice::Auto,
            Driver::Uring => reactor::DriverChoice::Uring,
            Driver::Poll => reactor::DriverChoice::Poll,
        },
        spin_us: config.spin_us,
        name: "ceto".into(),
        stalls: (!config.blocked_reactor_notify.is_zero()).then(|| StallDetector {
            threshold: config.blocked_reactor_notify,
            reports_per_minute: config.blocked_reactor_reports_per_minute,
            inlined: memory::node_bytes(config.memory_bytes) >= INLINED_BYTES_MIN,
            ..StallDetector::default()
        }),
        ..reactor::Config::default()
    }
}

fn run(options: &ServerOptions, pages: Pages) -> Result<(), Box<dyn std::error::Error>> {
    // Signals are taken first: an earlier one would end the process without a line in the log.
    let taken = signals::take()?;
    let (config, remarks) = options.configuration()?;
    reactor::log::set_level(config.log_level);
    reactor::log::set_json(config.admin.log_is_json);
    announcement::tell(&remarks);
    let shares_processors = config.developer_mode || config.overprovisioned;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let shards = config.shards.unwrap_or(processors);
    if shards > processors && !shares_processors {
        return Err(BootError::TooManyShards { shards, processors }.into());
    }
    memory::check(config.memory_bytes, config.developer_mode)?;
    let disks = disks::configured(&config)?;
    let has_disks = disks.is_some();
    let probes = !has_disks && !config.developer_mode;
    let disks = disks.unwrap_or_default();
    let reactor_config =
        reactor::Config { shards, pin: !shares_processors, disks, ..reactor_config(&config) };
    // The error that ends the node, as text, for the exit code; and the administration thread, which ends
    // after all shards.
    let (failed, failure) = std::sync::mpsc::channel::<String>();
    let (administered, administration) = std::sync::mpsc::channel::<Admin>();
    let attach = signals::watch(taken, options.clone(), config.clone(), has_disks)?;
    // It ends with the process.
    let returner = std::thread::Builder::new().name("ceto-pages".to_owned());
    returner.spawn(pages.returner).map_err(BootError::Pages)?;
    let file = options.config.clone();
    let running = reactor::start(reactor_config, move |shard: ShardInfo| {
        let file = file.clone();
        let (config, failed, administered) = (config.clone(), failed.clone(), administered.clone());
        let attach = attach.clone();
        async move {
            attach.shard(shard);
            reactor::set_local(Rc::new(pages));
            if shard.id == 0
                && let Err(error) = lead(config, file, shard, probes, administered, attach).await
            {
                // The receiver outlives every shard.
                let _ = failed.send(error.to_string());
            }
        }
    })
    .map_err(BootError::Start)?;
    let joined = running.join();
    if let Ok(admin) = administration.try_recv() {
        admin.stop();
    }
    joined?;
    match failure.try_recv() {
        Ok(message) => Err(message.into()),
        Err(_) => {
            reactor::info!("stopped");
            Ok(())
        }
    }
}

/// The work of shard 0: opens every shard, serves, and closes every shard.
async fn lead(
    config: Config,
    file: Option<PathBuf>,
    info: ShardInfo,
    probes: bool,
    administered: Sender<Admin>,
    watcher: Attach,
) -> Result<(), BootError> {
    let started = reactor::now();
    watcher.step("takes its directory and ports");
    // The lock is held until the process ends, so the next process finds the ports free.
    std::mem::forget(lock::take(&config.workdir).await?);
    let ports = Ports::bind(&config)?;
    announcement::announce(&config, file.as_deref(), info.count, ports.addresses());
    let (admin, attach) = ports.serve().map_err(BootError::Administration)?;
    // The receiver outlives every shard.
    let _ = administered.send(admin);
    reactor::spawn(Group::ADMIN, attach.calls().serve()).detach();
    let stop = reactor::spawn(Group::ADMIN, reactor::signal::terminated());

    let mut stop = stop;
    watcher.step(if config.seeds().is_empty() {
        "opens table files and replays the commit log"
    } else {
        "opens table files, replays the commit log and meets the other nodes"
    });
    let opened = unless_stopped(open_node(&config, info.count), &mut stop).await;
    let served = match opened {
        Some(Ok(())) => serve(&config, started, stop, probes, &watcher).await,
        Some(Err(error)) => Err(error),
        None => {
            reactor::info!("told to stop before the node was open");
            return Ok(());
        }
    };
    let closed = close_all(info.count).await;
    served.and(closed)
}

/// The output of `work`, unless the node is told to stop first: the way into a cluster may take for ever.
async fn unless_stopped<T>(
    work: impl Future<Output = T>,
    stop: &mut reactor::JoinHandle<std::io::Result<()>>,
) -> Option<T> {
    let (mut work, mut stop) = (std::pin::pin!(work), std::pin::Pin::new(stop));
    std::future::poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => stop.as_mut().poll(context).map(|_| None),
    })
    .await
}

/// Reads the node's identity, then opens the node.
pub(crate) async fn open_node(config: &Config, shards: usize) -> Result<(), BootError> {
    let identity = Identity::open(&config.workdir, &config.cluster_name, &shard::places(config, 0)).await?;
    open_all(config, &identity, shards).await
}

/// Opens storage and an engine on all shards at the same time, because recovery crosses shards.
async fn open_all(config: &Config, identity: &Identity, shards: usize) -> Result<(), BootError> {
    let openings: Vec<_> = (0..shards)
        .map(|shard| {
            let (config, identity) = (config.clone(), identity.clone());
            mesh::call(shard, Group::ADMIN, move || async move {
                let opened = Rc::new(Shard::open(&config, &identity).await.map_err(|e| e.to_string())?);
                trouble::watch(&opened);
                reactor::set_local(opened);
                Ok(())
            })
        })
        .collect();
    let mut first_error = None;
    for (shard, opening) in openings.into_iter().enumerate() {
        let error = match opening.await {
            Ok(Ok(())) => continue,
            Ok(Err(reason)) => BootError::Shard { shard, reason },
            Err(error) => broken(shard, &error),
        };
        first_error.get_or_insert(error);
    }
    first_error.map_or(Ok(()), Err)
}

fn broken(shard: usize, error: &MeshError) -> BootError {
    BootError::Shard { shard, reason: error.to_string() }
}

/// Opens the ports, reports that the node is ready, and waits until it is told to stop.
async fn serve(
    config: &Config,
    started: reactor::Instant,
    stop: reactor::JoinHandle<std::io::Result<()>>,
    probes: bool,
    watcher: &Attach,
) -> Result<(), BootError> {
    let shard = reactor::local::<Shard>().expect("shard 0 opened");
    let listeners = shard.native.listen(config)?;
    let addresses: Vec<String> = listeners.iter().map(|listener| listener.description()).collect();
    let node = Rc::new(NodeState::new(config, started, listeners));
    reactor::set_local(Rc::clone(&node));
    node::tell_others();
    // No task runs between the opening of the ports and this: the manager knows before the first answer.
    watcher.serves(&addresses.join(" and "));
    let elapsed_ms = started.elapsed().as_millis();
    println!(
        "ceto ready on {} with {} shard(s) after {elapsed_ms} ms, {}",
        addresses.join(" and "),
        reactor::shard_count(),
        reactor::log::Timestamp(reactor::wall_clock_us())
    );
    println!("connect with: cqlsh {} {}", config.rpc_address, config.native_port);
    if probes {
        probe::begin(config);
    }
    match stop.await {
        Ok(Ok(())) => {
            lock::say_ending(&config.workdir).await;
            reactor::info!("told to stop: draining");
        }
        Ok(Err(error)) => reactor::error!("cannot wait for signals: {error}"),
        Err(_) => reactor::error!("the task that waits for signals broke"),
    }
    node.mode.set(Mode::Draining);
    node::serves_clients(false);
    // A change of the transport under way completes first; a later one sees the mode set above.
    let turn = node.changing.acquire(1).await;
    for listener in node.listeners.take() {
        listener.close().await;
    }
    drop(turn);
    Ok(())
}

/// Closes every shard: first the connections of all shards, then their storage.
pub(crate) async fn close_all(shards: usize) -> Result<(), BootError> {
    let each = async |phase: fn(Rc<Shard>) -> shard::Closing| {
        let calls: Vec<_> = (0..shards)
            .map(|shard| {
                mesh::call(shard, Group::ADMIN, move || async move {
                    match reactor::local::<Shard>() {
                        Some(opened) => phase(opened).await,
                        None => Ok(()),
                    }
                })
            })
            .collect();
        let mut result = Ok(());
        for (shard, call) in calls.into_iter().enumerate() {
            let outcome = match call.await {
                Ok(outcome) => outcome.map_err(|reason| BootError::Closing { shard, reason }),
                Err(error) => Err(BootError::Closing { shard, reason: error.to_string() }),
            };
            result = result.and(outcome);
        }
        result
    };
    let connections = each(Shard::close_connections).await;
    let left = each(Shard::leave).await;
    let storage = each(Shard::close_storage).await;
    connections.and(left).and(storage)
}
