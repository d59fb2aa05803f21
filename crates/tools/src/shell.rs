//! `ceto shell`: a shell for CQL, as cqlsh is one.
//!
//! At a terminal it edits lines, completes them and keeps a history; from a pipe or a file it is a tool for
//! batches. Statements, commands, output and files are those of cqlsh of Apache Cassandra 5, wherever it has
//! the same. It is one shard that waits for one answer at a time; COPY alone has many requests in flight.
//!
//! Map: `input` reads lines → `run` cuts them into statements and carries out each (`command` reads those of
//! the shell) → `session` asks the server → `result` and `trace` print what it answers, by `table`, `value`
//! and `style`. `complete` and `schema` are behind TAB, `copy` is COPY. Invariant: no answer of a server
//! makes the shell panic, and no control character of one reaches the terminal. Reference: docs/shell.md.

mod command;
mod complete;
mod copy;
mod error;
mod help;
mod input;
mod number;
mod output;
mod result;
mod run;
mod schema;
mod session;
mod style;
mod table;
mod trace;
mod value;

use std::io::{self, BufReader, Cursor, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use reactor::{Config, DriverChoice, signal};

use crate::client::{ClientError, Options};
use error::ShellError;
use input::{Input, Terminal, TextInput};
use output::Out;
use run::Shell;
use session::Session;

/// Exit code when no connection can be made.
const UNCONNECTED: u8 = 1;
/// Exit code when a statement failed.
const FAILED: u8 = 2;
/// How long the thread that takes signals waits at a time.
const SIGNAL_WAIT: Duration = Duration::from_secs(3600);
/// Added to the number of a signal in the exit code of a process that it ends.
const ENDED_BY_SIGNAL: i32 = 128;

/// Options of `ceto shell`.
#[derive(Debug, Args)]
pub struct ShellCommand {
    /// The node: a name or an address
    #[arg(default_value = "127.0.0.1")]
    host: String,
    /// Its port for CQL clients
    #[arg(default_value_t = 9042, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Run these statements and end
    #[arg(short, long, value_name = "STATEMENTS", conflicts_with = "file")]
    execute: Option<String>,
    /// Run the statements of a file and end
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The keyspace of names without one
    #[arg(short, long, value_name = "NAME")]
    keyspace: Option<String>,
    /// The user, where the node asks for one
    #[arg(short, long, value_name = "NAME")]
    username: Option<String>,
    /// The user's password
    #[arg(short, long, value_name = "PASSWORD", requires = "username")]
    password: Option<String>,
    /// How long to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    request_timeout: f64,
    /// How long to wait for a connection
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    connect_timeout: f64,
    /// Print with colors, whatever the output is
    #[arg(short = 'C', long, overrides_with = "no_color")]
    color: bool,
    /// Print without colors [default: colors at a terminal, unless NO_COLOR is set]
    #[arg(long, overrides_with = "color")]
    no_color: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let wrong = || "expected a number of seconds from 0.001 to 1000000".to_owned();
    text.parse().ok().filter(|seconds| (0.001..=1e6).contains(seconds)).ok_or_else(wrong)
}

impl ShellCommand {
    /// Runs the shell to its end: 0 when all went well, 1 without a connection, 2 when a statement failed.
    pub(crate) fn run(self) -> ExitCode {
        let is_terminal = self.execute.is_none() && self.file.is_none() && io::stdin().is_terminal();
        if is_terminal && let Err(error) = listen_to_signals() {
            eprintln!("ceto shell: signals cannot be taken: {error}");
            return ExitCode::from(UNCONNECTED);
        }
        let config = Config { driver: DriverChoice::Poll, name: "shell".to_owned(), ..Config::default() };
        ExitCode::from(reactor::run_one(config, work(self, is_terminal)))
    }

    fn options(&self) -> Options {
        Options {
            driver: "ceto shell",
            version: None,
            compression: None,
            wants_tablets: false,
            user: self.username.clone(),
            password: self.password.clone(),
            may_be_nobody: false,
            step_time: Duration::from_secs_f64(self.connect_timeout),
        }
    }

    fn has_color(&self) -> bool {
        let is_wanted =
            || io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
        self.color || !self.no_color && is_wanted()
    }

    /// The source of the statements; the shell gives completion its names.
    fn input(&self, is_terminal: bool, shell: &Shell) -> Result<Box<dyn Input>, String> {
        if let Some(text) = &self.execute {
            return Ok(Box::new(TextInput::new(Cursor::new(text.clone().into_bytes()), None)));
        }
        if let Some(path) = &self.file {
            #[allow(clippy::disallowed_types)] // nothing else runs on the shell's thread
            let file = std::fs::File::open(path);
            let file = file.map_err(|error| format!("Can't open '{}': {error}", path.display()))?;
            return Ok(Box::new(TextInput::new(BufReader::new(file), Some(path.display().to_string()))));
        }
        if is_terminal {
            let terminal = Terminal::new(shell.schema.clone());
            return Ok(Box::new(terminal.map_err(|error| format!("no terminal: {error}"))?));
        }
        Ok(Box::new(TextInput::new(BufReader::new(io::stdin()), Some("<stdin>".to_owned()))))
    }
}

/// Has Ctrl-C end the wait for an answer. Every other signal ends the process, as it would without this.
fn listen_to_signals() -> io::Result<()> {
    let taken = signal::take()?;
    let wait = move || {
        loop {
            match taken.next(SIGNAL_WAIT) {
                Ok(Some(received)) if received.signal == signal::INTERRUPT => session::interrupt(),
                Ok(Some(received)) => signal::end_process(ENDED_BY_SIGNAL + received.signal),
                Ok(None) => {}
                Err(error) => {
                    eprintln!("ceto shell: signals cannot be waited for: {error}");
                    return;
                }
            }
        }
    };
    std::thread::Builder::new().name("shell-signals".to_owned()).spawn(wait).map(|_| ())
}

async fn work(command: ShellCommand, is_terminal: bool) -> u8 {
    let request_time = Duration::from_secs_f64(command.request_timeout);
    let (host, port) = (command.host.clone(), command.port);
    let opened = Session::open(host, port, command.options(), request_time, command.keyspace.clone()).await;
    let session = match opened {
        Ok(session) => session,
        Err(error) => {
            let (host, port) = (&command.host, command.port);
            eprintln!("ceto shell: cannot connect to {host}:{port}: {error}{}", advice(&error));
            return UNCONNECTED;
        }
    };
    if command.username.is_some() && !session.server.has_users {
        eprintln!("ceto shell: --username and --password have no effect: this server asks nobody for a user");
    }
    let mut shell = Shell::new(session, Out::new(command.has_color()), io::stdout().is_terminal());
    let mut input = match command.input(is_terminal, &shell) {
        Ok(input) => input,
        Err(error) => {
            eprintln!("ceto shell: {error}");
            return UNCONNECTED;
        }
    };
    if is_terminal {
        shell.greet();
    }
    shell.feed(&mut *input).await;
    match shell.out.failure() {
        // A reader that has seen enough, such as `head`, is no failure.
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("ceto shell: cannot print: {error}");
            FAILED
        }
        _ if shell.has_failed && !is_terminal => FAILED,
        _ => 0,
    }
}

/// Advice to somebody who gets no connection.
fn advice(error: &ShellError) -> &'static str {
    match error {
        ShellError::Client(ClientError::Io { source, .. })
            if source.kind() == io::ErrorKind::ConnectionRefused =>
        {
            "\nNothing listens there. Does the node run, and is this its address and port for CQL? `ceto server` logs both at \
             its start; they are rpc_address and native_transport_port of its configuration (--listen, --port), 127.0.0.1 and \
             9042 by default. Give others as `ceto shell HOST PORT`."
        }
        ShellError::Client(ClientError::TimedOut { .. }) => {
            "\nNothing answered. Is the address right, and does a firewall let the port pass? A node that is busy gets longer by \
             --connect-timeout SECONDS."
        }
        ShellError::Client(ClientError::Protocol(_) | ClientError::Closed { .. }) => {
            "\nSomething else than a CQL server may listen there: the port for CQL is 9042 by default, the one for REST is \
             10000, the one between nodes is 7000."
        }
        ShellError::Client(ClientError::NoUser { .. }) => "\nGive them by -u NAME -p PASSWORD.",
        _ => "",
    }
}
