//! Signals, and the forced end of a node that does not stop: one thread beside the shards.
//!
//! The thread takes all signals of the process ([`reactor::signal::take`]). SIGTERM, SIGINT and SIGQUIT drain
//! the node and end it; a second one of them, or `shutdown_timeout`, ends it at once. SIGHUP reloads the
//! settings that can change at run time. All other signals give a line in the log. While the node stops, the
//! thread asks every shard once a second what it waits for. A shard that does not answer is occupied by a
//! task; even then the thread can end the process. A service manager that waits for the node to start or to
//! end is told every few seconds that it goes on ([`ServiceManager`]).
//! Invariant: an acknowledged write was handed to the commit log's files before its answer, so ending the
//! process at once loses nothing. Shards that answer sync their commit logs first, so that a later power
//! failure loses nothing either.
#![allow(clippy::disallowed_methods)] // no shard runs here: this thread has a clock and files of its own

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use reactor::io::DiskSpec;
use reactor::signal::{self, Received, Taken};
use reactor::{Group, ShardInfo};
use tokio::sync::mpsc as questions;

use super::service_manager::ServiceManager;
use super::{BootError, Shard, disks};
use crate::cli::ServerOptions;
use crate::config::{Config, Written};

/// Exit code of a node that ended without a drain.
const ENDED_AT_ONCE: i32 = 1;
/// Interval of log lines about what a stopping node waits for.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Interval of messages to the service manager while the node starts.
const STARTING_EVERY: Duration = Duration::from_secs(5);
/// The time that the service manager is asked for with each message. A node that stands still sends none, and
/// is ended by the manager after this time.
const EXTENSION: Duration = Duration::from_secs(30);
/// How long a shard has to report what it waits for.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// How long the shards have to make their commit logs durable when the node ends at once.
const SYNC_TIME: Duration = Duration::from_secs(5);
/// How long the thread waits for a signal at a time while the node runs.
const IDLE_TIME: Duration = Duration::from_secs(3600);
/// Most questions queued for one shard; further ones count as not answered.
const QUESTIONS_MAX: usize = 8;

/// A question of the thread to a shard.
enum Question {
    /// The work that the shard still has to do before it ends.
    State(mpsc::Sender<(usize, String)>),
    /// Stop writes and sync the commit log.
    Sync(mpsc::Sender<(usize, Result<(), String>)>),
    /// Replace the models of disks. The list names its disks by mount point; the other model, if any, is that
    /// of the data directory's disk. The reply says for each disk of the list whether the node knows it.
    Disks(Vec<DiskSpec>, Option<DiskSpec>, mpsc::Sender<Vec<bool>>),
}

/// The id of a shard, and the sender of questions to it.
type Line = (usize, questions::Sender<Question>);

/// A report of the shards to the thread.
enum News {
    /// A shard has started.
    Shard(Line),
    /// The start has come to a step, named in a few words.
    Step(String),
    /// The node answers clients; the text says where.
    Serves(String),
}

/// Registers shards with the thread, and reports how the start goes.
#[derive(Clone)]
pub(super) struct Attach(mpsc::Sender<News>);

/// State of the thread.
struct Watcher {
    taken: Taken,
    options: ServerOptions,
    /// The configuration that the node runs with, and the keys of the file from which it was read.
    config: Config,
    written: Written,
    started_with_disks: bool,
    news: mpsc::Receiver<News>,
    shards: Vec<Line>,
    manager: ServiceManager,
    /// The step of the start, and when the start began; `None` once the node serves or if there is no manager
    /// to be told.
    starting: Option<(String, Instant)>,
    /// When the node was told to stop.
    ending: Option<Instant>,
}

/// Takes all signals from now on. Call before any thread is started.
///
/// # Errors
/// [`BootError::Signals`].
pub(super) fn take() -> Result<Taken, BootError> {
    signal::take().map_err(BootError::Signals)
}

/// Starts the thread; it ends with the process.
///
/// # Errors
/// [`BootError::Signals`] if the system refuses a thread.
pub(super) fn watch(
    taken: Taken,
    options: ServerOptions,
    config: Config,
    started_with_disks: bool,
) -> Result<Attach, BootError> {
    let (attach, news) = mpsc::channel();
    let written = Written::of(options.config.as_deref()).unwrap_or_default();
    let manager = ServiceManager::from_environment();
    let starting = manager.is_there().then(|| ("starts its shards".to_owned(), Instant::now()));
    let shards = Vec::new();
    let watcher = Watcher {
        taken,
        options,
        config,
        written,
        started_with_disks,
        news,
        shards,
        manager,
        starting,
        ending: None,
    };
    let thread = std::thread::Builder::new().name("ceto-signals".to_owned());
    thread.spawn(move || watcher.run()).map_err(BootError::Signals)?;
    Ok(Attach(attach))
}

impl Attach {
    /// Lets this shard answer the thread's questions until the process ends.
    pub(super) fn shard(&self, shard: ShardInfo) {
        let (line, mut questions) = questions::channel(QUESTIONS_MAX);
        // An error means that the thread has ended, and then no questions come.
        let _ = self.0.send(News::Shard((shard.id, line)));
        reactor::spawn(Group::ADMIN, async move {
            while let Some(question) = questions.recv().await {
                answer(shard.id, question).await;
            }
        })
        .detach();
    }

    /// Notes the step that the start has come to, and tells the service manager at once.
    pub(super) fn step(&self, step: &str) {
        let _ = self.0.send(News::Step(step.to_owned()));
        ServiceManager::from_environment().status(&starts(step));
    }

    /// Notes that the node serves. The service manager has the message when this returns.
    pub(super) fn serves(&self, addresses: &str) {
        let status = format!("Answers clients on {addresses}");
        let _ = self.0.send(News::Serves(status.clone()));
        ServiceManager::from_environment().ready(&status);
    }
}

/// Answers a question on the shard. The thread may have given up waiting, so errors of sending are ignored.
async fn answer(id: usize, question: Question) {
    let shard = reactor::local::<Shard>();
    match question {
        Question::State(to) => {
            let state = shard.map_or_else(|| "opens its data".to_owned(), |shard| state_of(&shard));
            let _ = to.send((id, state));
        }
        Question::Sync(to) => {
            let synced = match shard {
                Some(shard) => {
                    shard.storage().stop_writes();
                    shard.storage().sync_commitlog().await.map_err(|error| error.to_string())
                }
                None => Ok(()),
            };
            let _ = to.send((id, synced));
        }
        Question::Disks(disks, own, to) => {
            let name = |disk: &DiskSpec| disk.mountpoint.display().to_string();
            let replace = |disk: &DiskSpec| reactor::io::replace_model(&name(disk), disk.model);
            if let Some(own) = own {
                reactor::io::set_model(&name(&own), own.model);
            }
            let _ = to.send(disks.iter().map(replace).collect());
        }
    }
}

/// The status of a node that starts.
fn starts(step: &str) -> String {
    format!("Starts: {step}")
}

/// Bytes of the files in the folder of commit logs, in folders of shards included; 0 if it cannot be read.
fn commitlog_bytes(folder: &Path) -> u64 {
    let files = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_file() => found.blocks() * 512,
        _ => 0,
    };
    files(folder)
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path()).map(bytes).sum(),
            _ => bytes(entry),
        })
        .sum()
}

fn state_of(shard: &Shard) -> String {
    let (connections, requests) = shard.native.open_now();
    let (memtables, bytes) = shard.storage().unflushed();
    let mut parts = Vec::new();
    if connections > 0 {
        parts.push(format!("{connections} connections with {requests} requests in flight"));
    }
    if memtables > 0 {
        parts.push(format!("{memtables} memtables to flush ({} KiB)", bytes.div_ceil(1024)));
    }
    if parts.is_empty() { "closes its files".to_owned() } else { parts.join(", ") }
}

impl Watcher {
    fn run(mut self) {
        let mut next_line = Instant::now() + STARTING_EVERY;
        loop {
            let time = if self.ending.is_some() || self.starting.is_some() {
                self.left().min(next_line.saturating_duration_since(Instant::now()))
            } else {
                IDLE_TIME
            };
            match self.taken.next(time) {
                Ok(Some(received)) => {
                    let ended_before = self.ending.is_some();
                    self.receive(received);
                    if !ended_before {
                        next_line = Instant::now() + LINE_EVERY;
                    }
                }
                Ok(None) if self.ending.is_none() => {
                    self.say_how_the_start_goes();
                    next_line = Instant::now() + STARTING_EVERY;
                }
                Ok(None) if self.left().is_zero() => {
                    let limit = self.config.shutdown_timeout.as_secs_f64();
                    self.end_at_once(&format!("the node did not end within {limit} s (shutdown_timeout)"));
                }
                Ok(None) => {
                    self.say_what_it_waits_for();
                    next_line = Instant::now() + LINE_EVERY;
                }
                Err(error) => {
                    reactor::error!("signals cannot be waited for: end the node with `kill -9`, which loses nothing"; error = error);
                    return;
                }
            }
        }
    }

    /// Time until the node is ended by force.
    fn left(&self) -> Duration {
        match self.ending {
            Some(since) if !self.config.shutdown_timeout.is_zero() => {
                self.config.shutdown_timeout.saturating_sub(since.elapsed())
            }
            _ => Duration::MAX,
        }
    }

    fn receive(&mut self, received: Received) {
        match (received.signal, self.ending) {
            (signal::TERMINATE | signal::INTERRUPT | signal::QUIT, Some(_)) => {
                self.end_at_once(&format!("{received} came while the node was ending"));
            }
            (
                signal::TERMINATE | signal::INTERRUPT | signal::QUIT | signal::POWER | signal::PROCESSOR_TIME,
                None,
            ) => {
                let limit = match self.config.shutdown_timeout {
                    Duration::ZERO => "a second one ends it at once".to_owned(),
                    limit => format!(
                        "a second one ends it at once, as does shutdown_timeout ({} s)",
                        limit.as_secs_f64()
                    ),
                };
                reactor::info!("{received}: the node drains and ends; {limit}");
                self.ending = Some(Instant::now());
                self.manager.stopping(EXTENSION, "Drains: no new requests are taken");
                signal::terminate();
            }
            (signal::HANGUP, _) => self.reload(received),
            _ => reactor::info!(
                "{received} is ignored: SIGTERM drains and ends the node, SIGHUP reads the configuration again"
            ),
        }
    }

    /// The shards that have registered so far. Takes in all other news too.
    fn shards(&mut self) -> &[Line] {
        for news in self.news.try_iter() {
            match news {
                News::Shard(line) => self.shards.push(line),
                News::Step(step) => {
                    if let Some((known, _)) = &mut self.starting {
                        *known = step;
                    }
                }
                News::Serves(status) => {
                    if self.starting.take().is_some() && self.ending.is_none() {
                        // A message about the start may have overtaken the shard's own.
                        self.manager.status(&status);
                    }
                }
            }
        }
        &self.shards
    }

    /// Sends a question to every shard. Returns the answers that came in time, and the shards that did not
    /// answer.
    fn ask<T>(
        &mut self,
        time: Duration,
        question: impl Fn(mpsc::Sender<(usize, T)>) -> Question,
    ) -> (Vec<(usize, T)>, Vec<usize>) {
        let (to, answers) = mpsc::channel();
        let mut silent: Vec<usize> = Vec::new();
        for (id, line) in self.shards() {
            // A shard that has ended, or still has a full queue of questions, does not answer.
            let _ = line.try_send(question(to.clone()));
            silent.push(*id);
        }
        drop(to);
        let until = Instant::now() + time;
        let mut answered = Vec::new();
        while !silent.is_empty()
            && let Ok((id, answer)) = answers.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            silent.retain(|shard| *shard != id);
            answered.push((id, answer));
        }
        (answered, silent)
    }

    /// Asks the service manager for more time while the node starts and its shards answer.
    fn say_how_the_start_goes(&mut self) {
        let (_, silent) = self.ask(ANSWER_TIME, Question::State);
        let Some((step, began)) = &self.starting else { return };
        if !silent.is_empty() {
            return;
        }
        let folder = super::shard::places(&self.config, 0).commitlog_dir;
        let (seconds, log_mib) = (began.elapsed().as_secs(), commitlog_bytes(&folder).div_ceil(1 << 20));
        let status = format!("for {seconds} s, {step}; {log_mib} MiB of commit log on disk");
        self.manager.extend(EXTENSION, &starts(&status));
    }

    fn say_what_it_waits_for(&mut self) {
        let (mut states, silent) = self.ask(ANSWER_TIME, Question::State);
        states.extend(silent.into_iter().map(|id| (id, "does not answer: a task holds its core".to_owned())));
        states.sort();
        let states: Vec<String> =
            states.into_iter().map(|(id, state)| format!("shard {id} {state}")).collect();
        let seconds = self.ending.map_or(0, |since| since.elapsed().as_secs());
        let states = states.join("; ");
        self.manager.extend(EXTENSION, &format!("Drains for {seconds} s: {states}"));
        reactor::info!("ending for {seconds} s: {states}");
    }

    /// Ends the process without a drain.
    fn end_at_once(&mut self, why: &str) -> ! {
        reactor::warn!("{why}: it ends at once, and the next start recovers from the commit log");
        self.manager.extend(EXTENSION, "Ends without a drain");
        let (answers, silent) = self.ask(SYNC_TIME, Question::Sync);
        for (id, synced) in answers {
            if let Err(error) = synced {
                reactor::error!("shard {id} could not make its commit log durable"; error = error);
            }
        }
        for id in silent {
            reactor::warn!(
                "shard {id} does not answer: its commit log is written, but a power failure in this moment could lose the end of it"
            );
        }
        signal::end_process(ENDED_AT_ONCE)
    }

    /// Reloads the configuration and applies the settings that can change at run time.
    fn reload(&mut self, received: Received) {
        let read = self.options.configuration().and_then(|(config, _)| {
            Ok((Written::of(self.options.config.as_deref())?, disks::configured(&config)?, config))
        });
        let (written, disks, config) = match read {
            Ok(read) => read,
            Err(error) => {
                reactor::error!("{received}: the configuration cannot be read and stays as it was: {error}");
                return;
            }
        };
        reactor::log::set_level(config.log_level);
        self.config.log_level = config.log_level;
        self.config.shutdown_timeout = config.shutdown_timeout;
        let mut followed =
            vec![format!("default_log_level {}", config.log_level.name().trim().to_lowercase())];
        followed.push(format!("shutdown_timeout {} s", config.shutdown_timeout.as_secs_f64()));
        let mut waits = written.changed(&self.written);
        if let Some(disks) = disks {
            let unknown = self.set_disks(disks);
            match unknown {
                Some(unknown) if unknown.is_empty() => followed.push("io_properties".to_owned()),
                Some(unknown) => waits.push(format!("io_properties of {}", unknown.join(", "))),
                None => waits.push("io_properties (shard 0 does not answer)".to_owned()),
            }
        }
        // Logged as a warning, because the log level may hide lines of information.
        let waits = if waits.is_empty() { "nothing".to_owned() } else { waits.join(", ") };
        reactor::warn!(
            "{received}: read again: {}; changed and in need of a restart: {waits}",
            followed.join(", ")
        );
    }

    /// Changes the models of disks. Returns the disks that the node does not know, or `None` if shard 0 does
    /// not answer.
    fn set_disks(&mut self, disks: Vec<DiskSpec>) -> Option<Vec<String>> {
        let device = |path: &Path| std::fs::metadata(path).ok().map(|found| found.dev());
        // A node that started without a file has one disk, named after its data directory.
        let data = disks::data_directory(&self.config).to_owned();
        let of_data = device(&data).filter(|_| !self.started_with_disks);
        let is_own = |disk: &DiskSpec| of_data.is_some() && device(&disk.mountpoint) == of_data;
        let own = disks.iter().find(|disk| is_own(disk));
        let own = own.map(|own| DiskSpec { mountpoint: data, model: own.model });
        let shard = self.shards().iter().find(|(id, _)| *id == 0)?.1.clone();
        let (to, answer) = mpsc::channel();
        shard.try_send(Question::Disks(disks.clone(), own, to)).ok()?;
        let known = answer.recv_timeout(SYNC_TIME).ok()?;
        let unknown = disks.iter().zip(known).filter(|(disk, known)| !known && !is_own(disk));
        Some(unknown.map(|(disk, _)| disk.mountpoint.display().to_string()).collect())
    }
}
