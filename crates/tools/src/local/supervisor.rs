//! The supervisor: one thread that starts the nodes, waits until they agree, and lives until they have ended.
//!
//! It waits for one event at a time and for the next moment at which something is due. `looks` asks the
//! nodes, `requests` answers other terminals, `ending` stops the nodes one after the other. Invariant: no
//! step waits for a node; a node that never answers or never ends holds up nobody.

mod ending;
mod looks;
mod requests;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use reactor::signal::{self, Received, Taken};
use rustix::process::Signal;

use self::ending::Ending;
use self::looks::TELL_EVERY;
use self::requests::Waiting;
use super::agreement::list;
use super::console::{complain, tell};
use super::control::{self, Asker};
use super::directory::Directory;
use super::event::{EVENTS_MAX, Event};
use super::options::StartOptions;
use super::plan::{self, Node};
use super::watch::Answer;
use super::{LocalError, memory, process};

/// Longest wait for an event while nothing is due.
const IDLE: Duration = Duration::from_secs(3600);
/// How long the ports of an earlier cluster, which may have been killed just now, are waited for.
const PORTS_TIME: Duration = Duration::from_secs(2);
const PORTS_RETRY: Duration = Duration::from_millis(50);

/// A node and its process.
#[derive(Debug)]
struct Member {
    node: Node,
    life: Life,
}

/// Whether a node runs.
#[derive(Debug)]
enum Life {
    Runs(Running),
    Ended {
        /// How, for people.
        how: String,
        /// Whether a request of another terminal ended it.
        was_asked: bool,
        /// Whether it drained, or was to be killed.
        is_clean: bool,
    },
}

/// A node that runs.
#[derive(Debug)]
struct Running {
    child: Child,
    since: Instant,
    /// Whether it has answered in this life.
    has_answered: bool,
    is_paused: bool,
    /// The signal it was sent to end, if any.
    asked_to_end: Option<Signal>,
}

pub(super) struct Supervisor {
    program: PathBuf,
    directory: PathBuf,
    events: SyncSender<Event>,
    began: Instant,
    members: Vec<Member>,
    /// Whether all nodes agreed once.
    is_ready: bool,
    missing: Vec<String>,
    told_missing: Instant,
    /// The last answer of each node that runs.
    answers: BTreeMap<usize, Answer>,
    is_looking: bool,
    next_look: Instant,
    /// Status requests that the look under way will answer, and those for the one after it.
    asked_for_look: Vec<Asker>,
    asked_for_next: Vec<Asker>,
    waiting: Vec<Waiting>,
    ending: Option<Ending>,
}

/// Starts the cluster of a directory and runs it until it is told to end.
///
/// # Errors
/// [`LocalError`] of a start that was refused; nothing runs then.
pub(super) fn run(directory: &Path, options: &StartOptions) -> Result<ExitCode, LocalError> {
    let began = Instant::now();
    let locked = Directory::take(directory)?;
    let known = locked.description()?;
    let description = plan::describe(directory, options, known.as_ref())?;
    let count = description.data_centers.len();
    let nodes = plan::nodes(directory, options, &description, memory::share(count))?;
    check_ports(&nodes)?;
    let program = std::env::current_exe().map_err(LocalError::system("find this program"))?;
    // Before any thread starts, so that every signal comes to the one that waits for it.
    let taken = signal::take().map_err(LocalError::system("take signals"))?;
    locked.keep(&description)?;
    if let Some(known) = known
        && known.data_centers.len() < count
    {
        let added: Vec<usize> = (known.data_centers.len() + 1..=count).collect();
        let verb = if added.len() == 1 { "is" } else { "are" };
        tell(&format!("{} {verb} added to {}", list("node", &added), directory.display()));
    }
    let (events, received) = sync_channel(EVENTS_MAX);
    control::serve(directory, events.clone())?;
    listen_to_signals(taken, events.clone())?;
    let mut supervisor = Supervisor::new(program, directory, began, events);
    supervisor.start_all(nodes);
    let code = supervisor.live(&received);
    // The directory's lock goes with the process: the next supervisor removes a socket that is left.
    let _ = control::remove(directory);
    Ok(code)
}

/// Checks that every port of every node can be listened on.
fn check_ports(nodes: &[Node]) -> Result<(), LocalError> {
    let began = Instant::now();
    for node in nodes {
        for port in &node.ports {
            let address = SocketAddr::new(node.ip(), *port);
            while let Err(source) = TcpListener::bind(address) {
                if source.kind() != std::io::ErrorKind::AddrInUse || began.elapsed() >= PORTS_TIME {
                    return Err(LocalError::Address { node: node.number, address, source });
                }
                std::thread::sleep(PORTS_RETRY);
            }
        }
    }
    Ok(())
}

fn listen_to_signals(taken: Taken, events: SyncSender<Event>) -> Result<(), LocalError> {
    let wait = move || {
        loop {
            match taken.next(IDLE) {
                Ok(Some(received)) if events.send(Event::Signal(received)).is_err() => return,
                Ok(_) => {}
                Err(error) => {
                    complain(&format!(
                        "signals cannot be waited for: {error}; end this process with kill -9, its nodes end with it"
                    ));
                    return;
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("local-signals".to_owned()).spawn(wait);
    thread.map(|_| ()).map_err(LocalError::system("start a thread"))
}

impl Supervisor {
    fn new(program: PathBuf, directory: &Path, began: Instant, events: SyncSender<Event>) -> Self {
        Self {
            program,
            directory: directory.to_owned(),
            events,
            began,
            members: Vec::new(),
            is_ready: false,
            missing: Vec::new(),
            told_missing: began,
            answers: BTreeMap::new(),
            is_looking: false,
            next_look: began,
            asked_for_look: Vec::new(),
            asked_for_next: Vec::new(),
            waiting: Vec::new(),
            ending: None,
        }
    }

    fn start_all(&mut self, nodes: Vec<Node>) {
        for node in nodes {
            let number = node.number;
            assert_eq!(number, self.members.len() + 1, "nodes are numbered in order");
            let how = "not started".to_owned();
            self.members.push(Member { node, life: Life::Ended { how, was_asked: false, is_clean: false } });
            match self.start(number) {
                Ok(pid) => {
                    let address = self.member(number).node.address;
                    tell(&format!("starts node {number} on {address} as process {pid}"));
                }
                Err(error) => complain(&error.to_string()),
            }
        }
    }

    fn member(&mut self, number: usize) -> &mut Member {
        &mut self.members[number - 1]
    }

    /// Starts a node that does not run; the number of its process.
    fn start(&mut self, number: usize) -> Result<u32, LocalError> {
        let (program, events) = (self.program.clone(), self.events.clone());
        let member = self.member(number);
        assert!(matches!(member.life, Life::Ended { .. }), "node {number} runs already");
        let child = process::start(&program, &member.node, events)?;
        let pid = child.id();
        member.life = Life::Runs(Running {
            child,
            since: Instant::now(),
            has_answered: false,
            is_paused: false,
            asked_to_end: None,
        });
        self.answers.remove(&number);
        Ok(pid)
    }

    /// Handles events until every node has ended and nobody may start one again.
    fn live(&mut self, received: &Receiver<Event>) -> ExitCode {
        loop {
            match received.recv_timeout(self.until_due()) {
                Ok(Event::Signal(signal)) => self.signalled(signal),
                Ok(Event::Exited { number, last_lines }) => self.exited(number, &last_lines),
                Ok(Event::Asked(request, asker)) => self.asked(request, asker),
                Ok(Event::Looked { began, answers }) => self.looked(began, answers),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("the supervisor keeps a sender itself"),
            }
            if let Some(code) = self.ended() {
                return code;
            }
            self.give_up_waits();
            self.advance_ending();
            self.look_if_due();
            self.tell_what_is_missing();
        }
    }

    /// Time until something is due without an event.
    fn until_due(&self) -> Duration {
        let look = (self.wants_look() && !self.is_looking).then_some(self.next_look);
        let tell = self.is_starting().then(|| self.told_missing + TELL_EVERY);
        let waits = self.waiting.iter().map(|waiting| waiting.deadline);
        let ending = self.ending.as_ref().map(|ending| ending.deadline);
        let next = waits.chain(look).chain(tell).chain(ending).min();
        next.map_or(IDLE, |next| next.saturating_duration_since(Instant::now()))
    }

    fn signalled(&mut self, received: Received) {
        match received.signal {
            signal::HANGUP
            | signal::INTERRUPT
            | signal::QUIT
            | signal::TERMINATE
            | signal::POWER
            | signal::PROCESSOR_TIME => self.end(&received.to_string()),
            _ => tell(&format!("{received} is ignored: SIGTERM ends the nodes in order")),
        }
    }

    /// Takes note of the end of a node's process.
    fn exited(&mut self, number: usize, last_lines: &[String]) {
        let is_ending = self.ending.is_some();
        let directory = self.hint();
        self.answers.remove(&number);
        let member = self.member(number);
        let Life::Runs(running) = &mut member.life else {
            unreachable!("node {number} ended twice");
        };
        let status = running.child.wait();
        let was_clean = status.as_ref().is_ok_and(|status| status.success());
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let ran = running.since.elapsed().as_secs_f64();
        let asked = running.asked_to_end;
        let how = match asked {
            Some(Signal::KILL) => "killed".to_owned(),
            Some(_) => format!("stopped ({status})"),
            None => format!("ended by itself ({status})"),
        };
        let is_clean = was_clean || asked == Some(Signal::KILL);
        member.life = Life::Ended { how: how.clone(), was_asked: asked.is_some(), is_clean };
        if asked.is_none() {
            complain(&format!("node {number} {how} after {ran:.1} s; its last lines:"));
            last_lines.iter().for_each(|line| complain(&format!("    {line}")));
            if !is_ending {
                complain(&format!("start it again with `ceto local start {number}{directory}`"));
            }
        } else {
            tell(&format!("node {number}: {how} after {ran:.1} s"));
        }
        self.answer_ended(number, &how);
    }

    /// The exit code, once every node has ended and none can be started again.
    fn ended(&self) -> Option<ExitCode> {
        let runs = |member: &Member| matches!(member.life, Life::Runs(_));
        if self.members.iter().any(runs) {
            return None;
        }
        if let Some(ending) = &self.ending {
            let is_clean = |member: &Member| matches!(member.life, Life::Ended { is_clean: true, .. });
            let all_clean = !ending.is_at_once && self.members.iter().all(is_clean);
            tell("all nodes have ended");
            return Some(if all_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        // A start that has failed for all nodes is not waited for.
        let by_itself = |member: &Member| matches!(member.life, Life::Ended { was_asked: false, .. });
        if self.is_ready || !self.members.iter().all(by_itself) {
            return None;
        }
        complain("every node ended by itself before they agreed");
        Some(ExitCode::FAILURE)
    }

    /// The option that names the directory, for commands that are shown.
    fn hint(&self) -> String {
        match self.directory.to_str() {
            Some("ceto-local") => String::new(),
            _ => format!(" --dir {}", self.directory.display()),
        }
    }
}
