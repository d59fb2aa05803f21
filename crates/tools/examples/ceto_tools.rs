//! The tools as a program of their own, to try them without building the server.

use std::process::ExitCode;

use clap::Parser;

/// The tools of `ceto`.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    tool: tools::Tool,
}

fn main() -> ExitCode {
    Cli::parse().tool.run()
}
