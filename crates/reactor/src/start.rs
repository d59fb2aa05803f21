//! Starting shards: threads, pinning, choice of driver, and the common end.
//!
//! Each shard runs its own copy of `main` to its end and then continues serving its peers until every shard's
//! `main` is over. Invariant: a driver is created on the thread that uses it (io_uring requires it).

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;

use rustix::thread::CpuSet;

use crate::driver::poll::PollDriver;
use crate::driver::uring::UringDriver;
use crate::driver::{Driver, socket};
use crate::io::{DiskSpec, Disks};
use crate::mesh::{MeshEnd, MeshSeed};
use crate::sched::Group;
use crate::shard::{Parts, Shard};
use crate::stall::{StallDetector, Watch};
use crate::waker::Remote;

/// Stack of a shard's thread: a statement nested as deep as the parser allows takes about two MiB without
/// optimisation.
const STACK_BYTES: usize = 8 << 20;

/// The driver of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriverChoice {
    /// io_uring, or poll if the kernel refuses it.
    #[default]
    Auto,
    /// io_uring; otherwise the start fails.
    Uring,
    /// Readiness and helper threads.
    Poll,
}

/// How shards are started.
#[derive(Debug, Clone)]
pub struct Config {
    /// How many; at least 1.
    pub shards: usize,
    /// With which driver.
    pub driver: DriverChoice,
    /// Whether each thread stays on one of the CPUs that the process may use.
    pub pin: bool,
    /// Microseconds a shard polls for work before it sleeps.
    pub spin_us: u32,
    /// Name of the threads, followed by the shard's number.
    pub name: String,
    /// Bytes of file buffers each shard keeps for reuse.
    pub pool_bytes_max: usize,
    /// The disks with known speed; requests to others are not held back unless [`crate::io::set_model`] sets
    /// a model.
    pub disks: Vec<DiskSpec>,
    /// Whether tasks that hold the core are detected and reported.
    pub stalls: Option<StallDetector>,
    /// Whether a shard's run succeeds although a detached task of it panicked. Builds without optimisation,
    /// as in tests, default to false: there such a panic is only logged and would not be noticed.
    pub contain_panics: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            shards: 1,
            driver: DriverChoice::Auto,
            pin: false,
            spin_us: 0,
            name: "shard".to_owned(),
            pool_bytes_max: 16 << 20,
            disks: Vec::new(),
            stalls: None,
            contain_panics: !cfg!(debug_assertions),
        }
    }
}

/// Which shard of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardInfo {
    /// From 0.
    pub id: usize,
    /// How many there are.
    pub count: usize,
}

/// Why shards did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration asks for no shard at all.
    #[error("at least one shard is needed")]
    NoShards,
    /// The driver could not be created.
    #[error("shard {shard}: cannot start the {driver:?} driver: {source}")]
    Driver {
        /// On which shard.
        shard: usize,
        /// Which was asked for.
        driver: DriverChoice,
        /// Why.
        source: io::Error,
    },
    /// A disk of the configuration is not there.
    #[error("cannot look at the disk {}: {source}", mountpoint.display())]
    Disk {
        /// Its mount point.
        mountpoint: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The operating system refused a thread or a descriptor.
    #[error("shard {shard}: {source}")]
    System {
        /// For which shard.
        shard: usize,
        /// Why.
        source: io::Error,
    },
}

/// A shard's main task panicked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("shard {shard} panicked: {message}")]
pub struct ShardPanicked {
    /// Which shard; the lowest if several.
    pub shard: usize,
    /// The panic's message.
    pub message: String,
}

/// Running shards.
#[must_use = "join the shards"]
pub struct Running {
    threads: Vec<JoinHandle<Result<(), String>>>,
}

impl Running {
    /// Waits until every shard's main has ended.
    ///
    /// # Errors
    /// [`ShardPanicked`] when one of them ended by panic.
    pub fn join(self) -> Result<(), ShardPanicked> {
        let mut first = Ok(());
        for (shard, thread) in self.threads.into_iter().enumerate() {
            let outcome = thread.join().unwrap_or_else(|panic| Err(crate::task::panic_message(&*panic)));
            if let (Err(message), Ok(())) = (outcome, &first) {
                first = Err(ShardPanicked { shard, message });
            }
        }
        first
    }
}

/// State that the shards of one process share while they run.
struct Together {
    running: AtomicUsize,
    /// Whether a main has panicked: the others are asked to end.
    failed: AtomicBool,
    remotes: Vec<Arc<Remote>>,
}

impl Together {
    fn one_is_done(&self, failed: bool) {
        if failed {
            self.failed.store(true, Ordering::SeqCst);
        }
        if self.running.fetch_sub(1, Ordering::SeqCst) == 1 || failed {
            self.remotes.iter().for_each(|remote| remote.notify());
        }
    }

    fn all_are_done(&self) -> bool {
        self.running.load(Ordering::SeqCst) == 0
    }
}

/// Lets the process have as many descriptors as it is allowed to: a connection each, and table files.
fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // If this is refused the limit stays as it is, and accepting connections fails when it is reached.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Descriptors the process may have, as its limit is now.
pub fn descriptors_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Starts one thread per shard, each running its own future of `main`.
///
/// A shard's tasks may use its peers until every shard's main has ended; tasks that still run then are
/// dropped. When a main panics the others are asked to end, as by SIGTERM ([`crate::signal::terminated`]).
///
/// # Errors
/// [`StartError`] if a thread or a driver could not be created; then no main has begun.
pub fn start<F, Fut>(config: Config, main: F) -> Result<Running, StartError>
where
    F: Fn(ShardInfo) -> Fut + Send + Clone + 'static,
    Fut: Future<Output = ()> + 'static,
{
    if config.shards == 0 {
        return Err(StartError::NoShards);
    }
    allowed();
    raise_descriptors();
    let disks = disks(&config)?;
    let remotes = remotes(config.shards)?;
    let together = Arc::new(Together {
        running: AtomicUsize::new(config.shards),
        failed: AtomicBool::new(false),
        remotes: remotes.clone(),
    });
    let cpus = if config.pin { cpus_for(config.shards) } else { None };
    let (ready, readiness) = mpsc::channel();
    let mut gates = Vec::new();
    let mut threads = Vec::new();
    for (id, seed) in MeshEnd::full(&remotes).into_iter().enumerate() {
        let (go, wait) = mpsc::channel::<()>();
        let (config, main, together, ready) = (config.clone(), main.clone(), together.clone(), ready.clone());
        let disks = disks.clone();
        let cpu = cpus.as_ref().map(|cpus| cpus[id]);
        let name = format!("{}-{id}", config.name);
        let body = move || {
            if let Some(cpu) = cpu {
                pin_to(cpu);
            }
            let shard = match build(&config, id, seed, together.remotes[id].clone(), disks) {
                Ok(shard) => shard,
                Err(error) => {
                    // The starter listens until it has heard from every shard.
                    let _ = ready.send(Err(error));
                    return Ok(());
                }
            };
            let _ = ready.send(Ok(()));
            drop(ready);
            if wait.recv().is_err() {
                return Ok(()); // another shard could not start
            }
            let info = ShardInfo { id, count: config.shards };
            drive(&shard, async move { main(info).await }, &together, &config).map(drop)
        };
        match std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(body) {
            Ok(thread) => threads.push(thread),
            Err(source) => return Err(StartError::System { shard: id, source }),
        }
        gates.push(go);
    }
    drop(ready);
    for outcome in readiness.iter().take(config.shards) {
        outcome?;
    }
    for gate in gates {
        // A thread that is gone has panicked; `join` reports it.
        let _ = gate.send(());
    }
    Ok(Running { threads })
}

/// Runs `future` on its own shard on the calling thread, not pinned, and returns its output: for tests and
/// tools.
///
/// # Panics
/// If the shard cannot be started, or the future panics.
pub fn run_one<T, Fut>(config: Config, future: Fut) -> T
where
    T: 'static,
    Fut: Future<Output = T> + 'static,
{
    let remotes = remotes(1).unwrap_or_else(|error| panic!("{error}"));
    let together =
        Together { running: AtomicUsize::new(1), failed: AtomicBool::new(false), remotes: remotes.clone() };
    let seed = MeshEnd::full(&remotes).pop().expect("a mesh of one");
    let config = Config { shards: 1, ..config };
    let disks = disks(&config).unwrap_or_else(|error| panic!("{error}"));
    let shard = build(&config, 0, seed, remotes[0].clone(), disks).unwrap_or_else(|error| panic!("{error}"));
    match drive(&shard, future, &together, &config) {
        Ok(output) => output,
        Err(message) => panic!("{message}"),
    }
}

/// Removes a shard from the count of running ones, also if its loop ends by a panic of this crate.
struct Departure<'together> {
    together: &'together Together,
    told: bool,
}

impl Departure<'_> {
    fn tell(&mut self, failed: bool) {
        self.told = true;
        self.together.one_is_done(failed);
    }
}

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        if !self.told {
            self.together.one_is_done(true);
        }
    }
}

/// Turns the shard's loop until every shard's main is over; this one's output.
fn drive<T: 'static>(
    shard: &Rc<Shard>,
    main: impl Future<Output = T> + 'static,
    together: &Together,
    config: &Config,
) -> Result<T, String> {
    let _entered = shard.enter();
    let _watch = config.stalls.and_then(|detector| match Watch::start(shard.pulse.clone(), detector) {
        Ok(watch) => Some(watch),
        Err(error) => {
            crate::warn!("stalls cannot be detected here: {}", error);
            None
        }
    });
    let outcome: Rc<RefCell<Option<Result<T, String>>>> = Rc::default();
    let task = shard.spawn(Group::ADMIN, main);
    let place = outcome.clone();
    let waiter = shard.spawn(Group::ADMIN, async move {
        let result = task.await.map_err(|panicked| panicked.message);
        place.replace(Some(result));
    });
    drop(waiter);
    let (mut departure, mut asked) = (Departure { together, told: false }, false);
    loop {
        // A turn handles calls of others before it checks: their reports here must be examined after that,
        // otherwise they are lost and the shard sleeps for ever.
        shard.turn(|| {
            let news = (!asked && together.failed.load(Ordering::SeqCst)) || together.all_are_done();
            !news && (departure.told || outcome.borrow().is_none())
        });
        let ended = outcome.borrow().as_ref().map(Result::is_err);
        if let Some(failed) = ended
            && !departure.told
        {
            departure.tell(failed);
        }
        if !asked && together.failed.load(Ordering::SeqCst) {
            asked = true;
            shard.signals.deliver();
        }
        if departure.told && together.all_are_done() {
            break;
        }
    }
    shard.tear_down();
    let outcome = outcome.take().unwrap_or_else(|| Err("the main task was lost".to_owned()));
    match shard.lost_panic().filter(|_| !config.contain_panics) {
        Some(message) => outcome.and(Err(message)),
        None => outcome,
    }
}

fn remotes(count: usize) -> Result<Vec<Arc<Remote>>, StartError> {
    (0..count)
        .map(|shard| {
            let eventfd = socket::eventfd().map_err(|source| StartError::System { shard, source })?;
            Ok(Remote::new(Some(eventfd)))
        })
        .collect()
}

/// The disks of the configuration, found by their devices.
fn disks(config: &Config) -> Result<Disks, StartError> {
    let mut found = Vec::new();
    for spec in &config.disks {
        let metadata = std::fs::metadata(&spec.mountpoint)
            .map_err(|source| StartError::Disk { mountpoint: spec.mountpoint.clone(), source })?;
        found.push((spec.clone(), metadata.dev()));
    }
    Ok(Disks::new(found, config.shards))
}

fn build(
    config: &Config,
    id: usize,
    seed: MeshSeed,
    remote: Arc<Remote>,
    disks: Disks,
) -> Result<Rc<Shard>, StartError> {
    let driver = create_driver(config, id, &remote).map_err(|source| StartError::Driver {
        shard: id,
        driver: config.driver,
        source,
    })?;
    Ok(Shard::new(Parts {
        id,
        count: config.shards,
        driver,
        remote,
        mesh: seed.plant(),
        pool_bytes_max: config.pool_bytes_max,
        spin_us: config.spin_us,
        disks,
    }))
}

fn create_driver(config: &Config, id: usize, remote: &Arc<Remote>) -> io::Result<Box<dyn Driver>> {
    let name = format!("{}-{id}", config.name);
    if config.driver != DriverChoice::Poll {
        match UringDriver::new(name.clone(), remote.clone()) {
            Ok(driver) => return Ok(Box::new(driver)),
            Err(error) if config.driver == DriverChoice::Uring => return Err(error),
            Err(error) if id == 0 => {
                crate::info!("no io_uring here, using readiness and file threads"; reason = error);
            }
            Err(_) => {}
        }
    }
    Ok(Box::new(PollDriver::new(name, remote.clone())?))
}

static ALLOWED: OnceLock<Option<CpuSet>> = OnceLock::new();

/// The CPUs the process was allowed before any thread was pinned.
fn allowed() -> Option<CpuSet> {
    *ALLOWED.get_or_init(|| rustix::thread::sched_getaffinity(None).ok())
}

/// As [`allowed`], in the form that the kernel's calls take.
pub(crate) fn allowed_cpus() -> Option<libc::cpu_set_t> {
    let allowed = allowed()?;
    // SAFETY: all zeros is the empty set.
    let mut cpus: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)) {
        // SAFETY: the number is below the set's size.
        unsafe { libc::CPU_SET(cpu, &mut cpus) };
    }
    Some(cpus)
}

/// For helper threads, which inherit the pinning of the shard that starts them.
pub(crate) fn unpin() {
    if let Some(cpus) = allowed() {
        // A helper on its shard's core is slower, not wrong.
        let _ = rustix::thread::sched_setaffinity(None, &cpus);
    }
}

/// One CPU per shard of those the process may use; `None`, with a log line, if there are too few.
fn cpus_for(shards: usize) -> Option<Vec<usize>> {
    let allowed = allowed()?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).take(shards).collect();
    if cpus.len() < shards {
        crate::info!("more shards than CPUs, threads are not pinned"; shards = shards, cpus = cpus.len());
        return None;
    }
    Some(cpus)
}

fn pin_to(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        crate::warn!("cannot pin the thread: {}", error; cpu = cpu);
    }
}
