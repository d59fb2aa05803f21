//! `ceto stress`: cassandra-stress' command lines, against any server that speaks CQL.
//!
//! Commands, options, generated data, output and exit codes are those of cassandra-stress 5, and spellings of
//! older versions are accepted too, so that scripts continue to work and data written by one tool can be
//! checked by the other. Internally it is one shard that keeps thousands of operations in flight: the
//! original's threads are workers here, not threads.
//!
//! Map: `arguments` parses words → `options`, `settings` interpret them → `action` runs a call → `engine`
//! runs `operation`s (`predefined`, `profile`) over `pipe`s → `report` prints results. Data come from
//! `seeds`, `generate` and `distribution`.
//! Source: tools/stress of Apache Cassandra. Reference: docs/stress.md.

mod action;
mod arguments;
mod cluster;
mod console;
mod distribution;
mod engine;
mod generate;
mod operation;
mod options;
mod partition;
mod predefined;
mod profile;
mod random;
mod report;
mod seeds;
mod settings;

use std::io;
use std::process::ExitCode;

use clap::Args;
use reactor::{Config, DriverChoice};

use crate::client::ClientError;
use arguments::Arguments;
use console::tell;
use settings::{Settings, Work};

/// `ceto stress`, with a command line of cassandra-stress.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct StressCommand {
    /// A command of cassandra-stress with its options; `help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND AND OPTIONS")]
    words: Vec<String>,
}

/// Why a call ended without a result.
#[derive(Debug, thiserror::Error)]
enum StressError {
    /// A command line that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// A command line that makes no sense, with the help that concerns it.
    #[error("{message}")]
    Help {
        /// The help.
        text: String,
        /// The error.
        message: String,
    },
    /// A feature of cassandra-stress that this tool lacks.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// No connection, or no good answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A file failed.
    #[error("{what}: {source}")]
    Io {
        /// The action that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// A name without an address.
    #[error("{host}: {reason}")]
    UnknownHost {
        /// The name.
        host: String,
        /// The system's error.
        reason: String,
    },
    /// An answer of another kind than expected.
    #[error("{what}: not the answer expected")]
    Unexpected {
        /// The request.
        what: String,
    },
    /// An invalid profile.
    #[error("{path}: {reason}")]
    Profile {
        /// Its file.
        path: String,
        /// The error.
        reason: String,
    },
    /// A failed run.
    #[error("{what}")]
    Failed {
        /// Name of the run.
        what: String,
    },
}

impl StressError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

impl StressCommand {
    /// Runs the command to its end; 0 when all went well.
    pub(crate) fn run(self) -> ExitCode {
        match self.call() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(StressError::Usage(message)) => {
                tell(&format!("{message}\n{}", settings::general_help()));
                ExitCode::FAILURE
            }
            Err(StressError::Help { text, message }) => {
                tell(&format!("{text}{message}"));
                ExitCode::FAILURE
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }

    fn call(self) -> Result<bool, StressError> {
        if matches!(self.words.first().map(String::as_str), Some("-h" | "--help")) {
            tell(settings::general_help().trim_end());
            return Ok(true);
        }
        let mut arguments = Arguments::new(&self.words)?;
        if arguments.is_empty() {
            let text = format!("No command provided\n{}", settings::general_help());
            return Err(StressError::Help { text, message: String::new() });
        }
        if arguments.contains("help") || arguments.contains("-?") {
            return help(&mut arguments);
        }
        if let Some(parameters) = arguments.take(&["print"]) {
            print_distribution(&settings::print_distribution(&parameters)?.build(0));
            return Ok(true);
        }
        if arguments.contains("version") {
            tell(&format!("Version: {}", env!("CARGO_PKG_VERSION")));
            return Ok(true);
        }
        let settings = Settings::parse(arguments, &read_file)?;
        let profile = match &settings.command.work {
            Work::User { profile: path, .. } => Some(profile::Profile::parse(path, &read_file(path)?)?),
            _ => None,
        };
        let config = Config { driver: DriverChoice::Auto, name: "stress".to_owned(), ..Config::default() };
        reactor::run_one(config, action::run(settings, profile))
    }
}

fn read_file(path: &str) -> Result<String, StressError> {
    let plain = path.strip_prefix("file://").unwrap_or(path);
    std::fs::read_to_string(plain).map_err(StressError::io(path))
}

fn help(arguments: &mut Arguments) -> Result<bool, StressError> {
    let mut parameters = arguments.take(&["-?", "help"]).unwrap_or_default();
    if parameters.is_empty() {
        let others: Vec<String> = arguments.rest().map(|(name, _)| name.clone()).collect();
        match &others[..] {
            [] => {
                tell(settings::general_help().trim_end());
                return Ok(true);
            }
            [one] => parameters.push(one.clone()),
            _ => {}
        }
    }
    let [name] = &parameters[..] else {
        return Err(StressError::Usage("Invalid command/option provided to help".to_owned()));
    };
    let text = settings::help_for(name).ok_or_else(|| {
        let message = "Invalid command or option provided to command help";
        StressError::Usage(message.to_owned())
    })?;
    tell(text.trim_end_matches('\n'));
    Ok(true)
}

fn print_distribution(distribution: &distribution::Distribution) {
    tell("% of samples    Range       % of total");
    let whole = distribution.quantile(1.0) as f64 / 100.0;
    for share in [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0] {
        let end = distribution.quantile(share);
        tell(&format!("{:<16.1}{end:<12}{:12.1}", share * 100.0, end as f64 / whole));
    }
}

/// The settings of a command line, for tests.
#[cfg(test)]
fn settings_of(line: &str) -> Result<Settings, StressError> {
    Settings::parse(Arguments::new(&[line.to_owned()])?, &read_file)
}
