//! Runs seeds of the simulations and says which failed and how to see it again.

use clap::{Parser, ValueEnum};
use sim::run::Outcome;

/// What is simulated.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum World {
    /// Storage under random writes, reads, flushes and changes of its tables.
    Storage,
    /// Statements of clients that compare and set, and that count.
    Statements,
}

impl World {
    fn run(self, seed: u64, steps: u64) -> Outcome {
        match self {
            World::Storage => sim::run::run(seed, steps),
            World::Statements => sim::statements::run(seed, steps),
        }
    }

    fn name(self) -> &'static str {
        match self {
            World::Storage => "storage",
            World::Statements => "statements",
        }
    }
}

/// Simulates one node: random work, a disk that lies, crashes; checked against a model.
#[derive(Parser)]
#[command(name = "ceto-sim")]
struct Arguments {
    /// One seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Seeds A..B, B not included.
    #[arg(long, value_parser = parse_range, default_value = "0..20")]
    seeds: (u64, u64),
    /// Only this, not everything.
    #[arg(long)]
    world: Option<World>,
    /// Operations of each seed, about.
    #[arg(long, default_value_t = 300)]
    steps: u64,
}

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let (from, to) = text.split_once("..").ok_or("a range is A..B")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    Ok((number(from)?, number(to)?))
}

fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    let (from, to) = arguments.seed.map_or(arguments.seeds, |seed| (seed, seed.saturating_add(1)));
    let mut failed = 0u64;
    let both = [World::Storage, World::Statements];
    let worlds = both.into_iter().filter(|world| arguments.world.is_none_or(|only| only == *world));
    for (seed, world) in (from..to).flat_map(|seed| worlds.clone().map(move |world| (seed, world))) {
        let (outcome, name) = (world.run(seed, arguments.steps), world.name());
        match outcome.failure {
            None => {
                println!(
                    "seed {seed} {name}: ok, {} lives, trace {:016x}",
                    outcome.lives, outcome.trace_hash
                );
            }
            Some(failure) => {
                failed += 1;
                println!("seed {seed} {name}: FAILED, trace {:016x}\n{failure}", outcome.trace_hash);
                println!(
                    "again: make sim SEED={seed}   (ceto-sim --seed {seed} --world {name} --steps {})",
                    arguments.steps
                );
            }
        }
    }
    println!("{} seeds, {failed} failed", to.saturating_sub(from));
    if failed == 0 { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
