//! Runs seeds of the simulations and says which failed and how to see it again.

use std::num::NonZero;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use sim::removal::Removals;
use sim::run::Outcome;

/// The simulated world.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum World {
    /// Storage under random writes, reads, flushes and changes of its tables.
    Storage,
    /// Statements of clients that compare and set, and that count.
    Statements,
    /// Several nodes under crashes, partitions and the like, and clients of all of them.
    Cluster,
}

impl World {
    const ALL: [Self; 3] = [Self::Storage, Self::Statements, Self::Cluster];

    fn run(self, seed: u64, steps: u64, lines: usize) -> Outcome {
        match self {
            World::Storage => sim::run::run(seed, steps),
            World::Statements => sim::statements::run(seed, steps),
            World::Cluster => sim::cluster::run(seed, steps, lines),
        }
    }

    fn name(self) -> &'static str {
        match self {
            World::Storage => "storage",
            World::Statements => "statements",
            World::Cluster => "cluster",
        }
    }
}

/// Simulates nodes: random work, disks that lie, crashes, broken networks; checked against models.
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
    /// How many of the last lines that clients and nodes wrote are shown of a cluster that failed.
    #[arg(long, default_value_t = 60)]
    lines: usize,
    /// Seeds at once; as many as there are processors where it is not given.
    #[arg(long)]
    jobs: Option<NonZero<usize>>,
}

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let (from, to) = text.split_once("..").ok_or("a range is A..B")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    Ok((number(from)?, number(to)?))
}

/// How the seeds of a worker went, all together.
#[derive(Default)]
struct Total {
    failed: u64,
    lives: u64,
    removals: Removals,
    /// Virtual time of each world, and how long it took.
    times: [(Duration, Duration); World::ALL.len()],
}

impl Total {
    fn add(mut self, other: Self) -> Self {
        self.failed += other.failed;
        self.lives += other.lives;
        self.removals += other.removals;
        for (time, other) in self.times.iter_mut().zip(other.times) {
            *time = (time.0 + other.0, time.1 + other.1);
        }
        self
    }
}

/// The real time, which the simulated nodes never see.
#[allow(clippy::disallowed_methods, reason = "how fast a simulation runs is measured outside of it")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Runs a seed in the worlds that are asked for, and says how it went.
fn run(arguments: &Arguments, seed: u64) -> Total {
    let mut total = Total::default();
    for (at, world) in World::ALL.into_iter().enumerate() {
        if arguments.world.is_some_and(|only| only != world) {
            continue;
        }
        let began = now();
        let (outcome, name) = (world.run(seed, arguments.steps, arguments.lines), world.name());
        total.times[at] = (outcome.passed, began.elapsed());
        let (lives, trace) = (outcome.lives, outcome.trace_hash);
        total.lives += lives;
        total.removals += outcome.removals;
        let taken_away: String =
            outcome.taken_away.iter().map(|told| format!("\n  without {told}")).collect();
        match outcome.failure {
            None => println!("seed {seed} {name}: ok, {lives} lives, trace {trace:016x}{taken_away}"),
            Some(failure) => {
                total.failed += 1;
                println!(
                    "seed {seed} {name}: FAILED, trace {trace:016x}{taken_away}\n{failure}\n\
                     again: make sim SEED={seed}   (ceto-sim --seed {seed} --world {name} --steps {})",
                    arguments.steps
                );
            }
        }
    }
    total
}

fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    let (from, to) = arguments.seed.map_or(arguments.seeds, |seed| (seed, seed.saturating_add(1)));
    let jobs = arguments.jobs.map_or_else(std::thread::available_parallelism, Ok).map_or(1, NonZero::get);
    let arguments = &arguments;
    // A seed knows nothing of the others: each worker takes every `jobs`th.
    let total = std::thread::scope(|scope| {
        let worker = |first| {
            move || {
                let seeds = (first..to).step_by(jobs);
                seeds.map(|seed| run(arguments, seed)).fold(Total::default(), Total::add)
            }
        };
        let workers: Vec<_> = (from..to).take(jobs).map(|first| scope.spawn(worker(first))).collect();
        let broken = || Total { failed: 1, ..Total::default() };
        let totals = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| broken()));
        totals.fold(Total::default(), Total::add)
    });
    for (world, (passed, took)) in World::ALL.iter().zip(total.times) {
        if !took.is_zero() {
            let (passed, took) = (passed.as_secs_f64(), took.as_secs_f64());
            let (name, speed) = (world.name(), passed / took);
            println!("{name}: {passed:.1} virtual seconds in {took:.1} s of one core, {speed:.1} a second");
        }
    }
    let Removals { taken, refused, reads_refused, went_on } = total.removals;
    println!(
        "{} seeds, {} failed; {} lives; {taken} names taken away between lives: {refused} starts and {reads_refused} times \
         reads refused until it was back, {went_on} starts went on with all there",
        to.saturating_sub(from),
        total.failed,
        total.lives
    );
    if total.failed == 0 { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
