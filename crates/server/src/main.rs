//! The `ceto` binary: one program, its parts as subcommands.

use std::process::ExitCode;

use clap::Parser;
use server::cli::{Cli, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Server(options) => server::boot::main(&options),
    }
}
