//! Files for packages, generated from the program's own definitions: completions, man pages, the sample of a
//! configuration file and its reference.
//!
//! Each command writes text to standard output or files to a directory, and starts no shard.

#![allow(clippy::disallowed_methods)] // no shard runs here

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command, Subcommand};
use clap_complete::Shell;

use crate::config::reference;

/// `ceto config`.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum ConfigCommand {
    /// Print a configuration file with every key, its default and what it does, all commented out
    Sample,
    /// Print the reference of all keys, in Markdown
    Reference,
}

/// `ceto completions`.
#[derive(Debug, Args)]
pub struct CompletionsCommand {
    /// The shell
    shell: Shell,
}

/// `ceto man`.
#[derive(Debug, Args)]
pub struct ManCommand {
    /// The directory, which is made if it is not there
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,
}

impl ConfigCommand {
    /// Prints the text.
    pub fn run(self) -> ExitCode {
        print(match self {
            Self::Sample => reference::sample(),
            Self::Reference => reference::markdown(),
        })
    }
}

impl CompletionsCommand {
    /// Prints the script that the shell reads. `ceto` is the command line.
    pub fn run(&self, ceto: Command) -> ExitCode {
        print(completions(self.shell, ceto))
    }
}

impl ManCommand {
    /// Writes a page for each command into the directory. `ceto` is the command line.
    pub fn run(&self, ceto: Command) -> ExitCode {
        match write_pages(&self.directory, ceto) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("ceto: cannot write man pages to {}: {error}", self.directory.display());
                ExitCode::FAILURE
            }
        }
    }
}

fn print(text: String) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that has seen enough, such as `head`, is no failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ceto: cannot print: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The command line with the verbs of `ceto ctl`, whose words `ceto` itself takes as they are.
fn with_verbs(ceto: Command) -> Command {
    let mut ctl = Some(tools::ctl::definition());
    let names: Vec<String> = ceto.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    // Replaced in place, which keeps the order of the list.
    names.iter().fold(ceto, |ceto, name| {
        ceto.mut_subcommand(name, |command| match name.as_str() {
            "ctl" => ctl.take().unwrap_or(command),
            _ => command,
        })
    })
}

pub(crate) fn completions(shell: Shell, ceto: Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut with_verbs(ceto), "ceto", &mut script);
    String::from_utf8(script).expect("scripts are text")
}

pub(crate) fn write_pages(directory: &Path, ceto: Command) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(with_verbs(ceto), directory)
}
