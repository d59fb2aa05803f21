//! Runs seeds of the storage simulation and says which failed and how to see it again.

use clap::Parser;

/// Simulates one storage node: random work, a disk that lies, crashes; checked against a model.
#[derive(Parser)]
#[command(name = "ceto-sim")]
struct Arguments {
    /// One seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Seeds A..B, B not included.
    #[arg(long, value_parser = parse_range, default_value = "0..20")]
    seeds: (u64, u64),
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
    for seed in from..to {
        let outcome = sim::run::run(seed, arguments.steps);
        match outcome.failure {
            None => println!("seed {seed}: ok, {} lives, trace {:016x}", outcome.lives, outcome.trace_hash),
            Some(failure) => {
                failed += 1;
                println!("seed {seed}: FAILED, trace {:016x}\n{failure}", outcome.trace_hash);
                println!(
                    "again: make sim SEED={seed}   (ceto-sim --seed {seed} --steps {})",
                    arguments.steps
                );
            }
        }
    }
    println!("{} seeds, {failed} failed", to.saturating_sub(from));
    if failed == 0 { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
