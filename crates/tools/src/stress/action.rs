//! The course of a whole call: schema, warming up, one run or several with more and more threads, and the
//! output.

mod range;
mod servers;
mod watch;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Group, now};
use wire::client::ClientConnection;

use super::StressError;
use super::cluster::{self, Cluster};
use super::console::{Console, TextFile, tell};
use super::engine::{LoadEngine, Plan, Recovery};
use super::operation::{Dialect, Operation, Permits};
use super::predefined::Predefined;
use super::profile::Profile;
use super::report::{HEADER, HistogramLog, Interval, Sample, Uncertainty, summary};
use super::seeds::SeedManager;
use super::settings::{End, Predefined as What, Settings, Threads, Truncate, Work};
use crate::client::{Client, ClientError};
use servers::Connected;

/// Operations that warm up on each server, at most.
const WARMUP_MAX: i64 = 50_000;
/// Threads that warm up, at most.
const WARMUP_THREADS: u32 = 100;
/// Time for a new schema to be known everywhere, before operations begin.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// One call of the tool.
pub(super) struct Action {
    settings: Settings,
    console: Console,
    histograms: Option<(HistogramLog, TextFile)>,
    samples: Vec<Sample>,
    results: Vec<String>,
    /// One connection to each server for requests outside of the load.
    controls: Vec<Client>,
    /// The statement that chooses the keyspace.
    use_keyspace: String,
    engine: Rc<LoadEngine>,
    dialect: Dialect,
    profile: Option<Profile>,
    random: u64,
}

/// The results of one run.
struct Outcome {
    total: Interval,
    kinds: BTreeMap<String, Interval>,
    uncertainty: Uncertainty,
    is_well: bool,
}

/// The operations of a run.
#[derive(Clone, Copy)]
enum Which {
    All,
    /// One of them, to warm up.
    Only(usize),
}

/// Runs the whole call; whether all went well.
pub(super) async fn run(settings: Settings, profile: Option<Profile>) -> Result<bool, StressError> {
    let file = match &settings.log.file {
        Some(path) => Some(TextFile::create(path).await?),
        None => None,
    };
    let mut console = Console::new(file);
    for word in &settings.mode.deprecated {
        console.line(&format!("Warning ignoring deprecated parameter: {word}"));
    }
    if !settings.log.no_settings {
        console.lines(&settings.describe());
        if let Some(profile) = &profile {
            console.lines(&profile.describe());
        }
        console.line("");
    }
    console.flush().await?;
    let histograms = match &settings.log.histogram_file {
        Some(path) => {
            let (log, opening) = HistogramLog::new(reactor::wall_clock_us());
            let mut file = TextFile::create(path).await?;
            opening.iter().for_each(|line| file.line(line));
            Some((log, file))
        }
        None => None,
    };
    let mut action = Action::connect(settings, profile, console, histograms).await?;
    let is_well = action.perform().await;
    action.engine.close();
    action.console.flush().await?;
    if let Some((_, file)) = &mut action.histograms {
        file.flush().await?;
    }
    action.write_page().await?;
    is_well
}

impl Action {
    /// Finds the servers, makes the schema, and connects.
    async fn connect(
        settings: Settings,
        mut profile: Option<Profile>,
        mut console: Console,
        histograms: Option<(HistogramLog, TextFile)>,
    ) -> Result<Self, StressError> {
        let mut control = cluster::first_client(&settings).await?;
        let cluster = Cluster::discover(&mut control, &settings).await?;
        console.lines(&cluster.describe(&settings));
        let seconds = settings.nodes.list.len() as u64;
        if let Some(profile) = &mut profile {
            profile.create_schema(&mut control, seconds).await?;
        } else if matches!(settings.command.work, Work::Single(what) if what.is_write()) {
            create_schema(&mut control, &settings).await?;
            tell(&format!("Created keyspaces. Sleeping {seconds}s for propagation."));
            reactor::sleep(Duration::from_secs(seconds)).await;
        }
        let keyspace = match &profile {
            Some(profile) => profile.keyspace().to_owned(),
            None => settings.schema.keyspace.clone().unwrap_or_default(),
        };
        let use_keyspace = format!("USE \"{keyspace}\"");
        control.execute(&use_keyspace).await?;
        if let Some(profile) = &mut profile {
            profile.load_table(&mut control).await?;
        }
        let dialect = Dialect {
            connection: ClientConnection { compression: None, ..control.connection },
            consistency: settings.command.consistency,
        };
        let Connected { controls, pipes, lanes, addresses } =
            servers::connect_all(&cluster, control, &use_keyspace, &settings).await?;
        let recovery = Recovery::new(settings.mode.clone(), use_keyspace.clone(), addresses);
        let engine =
            LoadEngine::new(cluster, lanes, pipes, recovery, settings.errors.clone(), settings.log.level);
        engine.spawn_pipes();
        Ok(Self {
            settings,
            console,
            histograms,
            samples: Vec::new(),
            results: Vec::new(),
            controls,
            use_keyspace,
            engine,
            dialect,
            profile,
            random: reactor::random_u64(),
        })
    }

    async fn perform(&mut self) -> Result<bool, StressError> {
        if self.settings.command.count() == Some(0) {
            self.console.line("N=0: SCHEMA CREATED, NOTHING ELSE DONE.");
            return Ok(true);
        }
        self.console.line("Sleeping 2s...");
        reactor::sleep(SETTLE_TIME).await;
        if !self.settings.command.no_warmup {
            self.warm_up().await?;
        }
        let is_range = matches!(self.settings.rate.threads, Threads::Range { .. });
        let truncate = self.settings.command.truncate;
        if truncate == Truncate::Once || (truncate == Truncate::Always && !is_range) {
            self.truncate().await?;
        }
        let is_well = match self.settings.rate.threads {
            Threads::Count(threads) => {
                let end = self.settings.command.end.clone();
                self.run_once(Which::All, threads, &end, false).await?.is_well
            }
            Threads::Range { min, max } => {
                self.console.line("Thread count was not specified");
                self.run_range(min, max).await?
            }
        };
        self.console.line(if is_well { "END" } else { "FAILURE" });
        if !is_well {
            eprintln!("java.lang.RuntimeException: Failed to execute stress action");
        }
        Ok(is_well)
    }

    /// The names of the operations: of each, and of all together.
    fn names(&self) -> (Vec<String>, String) {
        match &self.settings.command.work {
            Work::Single(what) => (vec![what.name().to_owned()], what.name().to_owned()),
            Work::Mixed { ratios, .. } => {
                let names: Vec<_> = ratios.iter().map(|(what, _)| what.name().to_owned()).collect();
                let all = format!("[{}]", names.join(", "));
                (names, all)
            }
            Work::User { ratios, .. } => {
                let names: Vec<_> = ratios.iter().map(|(name, _)| name.clone()).collect();
                let all = format!("[{}]", names.join(", "));
                (names, all)
            }
        }
    }

    fn random(&mut self) -> i64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random as i64
    }

    /// The operations of a run, with their shares.
    async fn operations(&mut self, which: Which) -> Result<Vec<(Box<dyn Operation>, f64)>, StressError> {
        let seed = self.random();
        let mut operations: Vec<(Box<dyn Operation>, f64)> = Vec::new();
        if let (Work::User { ratios, .. }, Some(profile)) = (&self.settings.command.work, &mut self.profile) {
            for (index, (name, share)) in ratios.iter().enumerate() {
                if matches!(which, Which::Only(only) if only != index) {
                    continue;
                }
                let made = profile
                    .operations(
                        name,
                        &self.settings,
                        &mut self.controls,
                        &self.dialect,
                        &self.engine.cluster().range_ends(),
                        seed,
                    )
                    .await?;
                let count = made.len().max(1) as f64;
                operations.extend(made.into_iter().map(|operation| (operation, share / count)));
            }
            return Ok(operations);
        }
        let kinds = match &self.settings.command.work {
            Work::Mixed { ratios, .. } => ratios.clone(),
            Work::Single(what) => vec![(*what, 1.0)],
            Work::User { .. } => Vec::new(),
        };
        for (index, (what, share)) in kinds.into_iter().enumerate() {
            if matches!(which, Which::Only(only) if only != index) {
                continue;
            }
            let mut clients: Vec<&mut Client> = self.controls.iter_mut().collect();
            let made = Predefined::prepare(what, &self.settings, &mut clients, &self.dialect, seed).await?;
            operations.push((Box::new(made), share));
        }
        Ok(operations)
    }

    async fn warm_up(&mut self) -> Result<(), StressError> {
        let each = match self.settings.command.count() {
            Some(count) => WARMUP_MAX.min((count as f64 * 0.25) as i64),
            None => WARMUP_MAX,
        };
        let iterations = each * self.settings.nodes.list.len() as i64;
        if iterations <= 0 {
            return Ok(());
        }
        let threads = match self.settings.rate.threads {
            Threads::Count(threads) => threads.min(WARMUP_THREADS),
            Threads::Range { max, .. } => max.min(WARMUP_THREADS),
        };
        for (index, name) in self.names().0.into_iter().enumerate() {
            self.console.line(&format!("Warming up {name} with {iterations} iterations..."));
            self.console.is_quiet = true;
            let outcome = self.run_once(Which::Only(index), threads, &End::Count(iterations), true).await;
            self.console.is_quiet = false;
            if !outcome?.is_well {
                return Err(StressError::Failed { what: "Failed to execute warmup".to_owned() });
            }
        }
        Ok(())
    }

    async fn truncate(&mut self) -> Result<(), StressError> {
        let seconds = self.settings.nodes.list.len() as u64;
        let control = self.controls.first_mut().expect("there is a first server");
        if let Some(profile) = &self.profile {
            profile.truncate(control).await?;
            tell(&format!("Truncated {}. Sleeping {seconds}s for propagation.", profile.table_name()));
        } else {
            let keyspace = self.settings.schema.keyspace.clone().unwrap_or_default();
            for table in ["standard1", "counter1"] {
                control.execute(&format!("TRUNCATE \"{keyspace}\".{table}")).await?;
            }
            tell(&format!(
                "Truncated {keyspace}.[standard1, counter1]. Sleeping {seconds}s for propagation."
            ));
        }
        reactor::sleep(Duration::from_secs(seconds)).await;
        Ok(())
    }

    async fn run_once(
        &mut self,
        which: Which,
        threads: u32,
        end: &End,
        is_warm_up: bool,
    ) -> Result<Outcome, StressError> {
        let (names, all) = self.names();
        let name = match which {
            Which::All => all,
            Which::Only(index) => names[index].clone(),
        };
        let until = match end {
            End::Duration { number, unit, .. } => format!("{number} {}", unit.to_lowercase()),
            End::Count(count) => format!("for {count} iteration"),
            End::Uncertainty { target, .. } => format!("until stderr of mean < {target}"),
        };
        self.console.line(&format!("Running {name} with {threads} threads {until}"));
        self.console.line(HEADER);
        servers::revive(&mut self.controls, &self.use_keyspace, &self.settings.mode).await?;
        let operations = self.operations(which).await?;
        let prepared = self.controls.iter_mut().flat_map(|control| std::mem::take(&mut control.statements));
        self.engine.remember(prepared);
        let random_seed = self.random();
        let clustering = match &self.settings.command.work {
            Work::Mixed { clustering, .. } | Work::User { clustering, .. } if operations.len() > 1 => {
                Some(clustering.build(random_seed))
            }
            _ => None,
        };
        let rate = &self.settings.rate;
        let plan = Plan {
            operations,
            clustering,
            seeds: SeedManager::new(&self.settings, random_seed)?,
            permits: Permits::new(if let End::Count(count) = end { Some(*count) } else { None }),
            threads,
            per_second: if is_warm_up { 0 } else { rate.per_second },
            is_fixed: rate.is_fixed && !is_warm_up,
            random_seed,
        };
        let is_fixed = plan.is_fixed;
        let begin = now();
        self.engine.start(plan);
        let pacing = {
            let engine = self.engine.clone();
            reactor::spawn(Group::STATEMENT, async move { engine.keep_pace().await })
        };
        let outcome = self.watch(begin, end, is_fixed, is_warm_up).await;
        pacing.await.map_err(|error| StressError::Failed { what: error.to_string() })?;
        let outcome = outcome?;
        if outcome.is_well && !self.settings.log.no_summary {
            let lines = summary(&outcome.total, &outcome.kinds);
            if !is_warm_up {
                self.results.clone_from(&lines);
            }
            self.console.lines(&lines);
        }
        self.console.flush().await?;
        Ok(outcome)
    }
}

/// Creates keyspace and tables, if they are missing.
///
/// A server without counters suffices for writes of blobs: then the creation of the counter table may fail.
async fn create_schema(control: &mut Client, settings: &Settings) -> Result<(), StressError> {
    let keyspace = settings.schema.keyspace.clone().unwrap_or_default();
    let columns = &settings.columns.names;
    execute_once(control, &settings.schema.create_keyspace()).await?;
    control.execute(&format!("USE \"{keyspace}\"")).await?;
    execute_once(control, &settings.schema.create_standard(columns)).await?;
    match execute_once(control, &settings.schema.create_counter(columns)).await {
        Err(StressError::Client(ClientError::Server { message, .. }))
            if settings.command.work == Work::Single(What::Write) =>
        {
            eprintln!("counter1 was not created: {message}");
            Ok(())
        }
        other => other,
    }
}

/// Executes a statement that makes something, which may be there already.
pub(super) async fn execute_once(control: &mut Client, statement: &str) -> Result<(), StressError> {
    match control.execute(statement).await {
        // ALREADY_EXISTS
        Err(ClientError::Server { code: 0x2400, .. }) => Ok(()),
        other => Ok(other?),
    }
}
