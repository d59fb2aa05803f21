//! The `ceto` binary: one program, its parts as subcommands.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use server::boot::Pages;
use server::cli::{Cli, Command};

#[global_allocator]
static ALLOCATOR: memory::Counting<mimalloc::MiMalloc> = memory::Counting(mimalloc::MiMalloc);

fn main() -> ExitCode {
    memory::keep_pages_briefly(&ALLOCATOR);
    match Cli::parse().command {
        Command::Server(options) => server::boot::main(
            &options,
            Pages { tidy: || memory::tidy_pages(&ALLOCATOR), returner: || memory::returner(&ALLOCATOR) },
        ),
        Command::Perf(command) => command.run(),
        Command::Doctor(command) => server::boot::doctor::run(&command),
        Command::Config(command) => command.run(),
        Command::Completions(command) => command.run(Cli::command()),
        Command::Man(command) => command.run(Cli::command()),
        Command::Tool(tool) => tool.run(),
    }
}
