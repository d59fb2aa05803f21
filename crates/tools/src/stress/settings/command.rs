//! The command: the operations, their number or duration, and the consistency.

use std::time::Duration;

use wire::Consistency;

use crate::stress::StressError;
use crate::stress::arguments::Arguments;
use crate::stress::distribution::{Factory, number};
use crate::stress::options::{
    ANYTHING, DIGITS, Group, Opt, Pattern, distribution, flag, multi, select, simple, usage,
};

/// An operation on the tables that are made for every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stress) enum Predefined {
    Read,
    Write,
    CounterWrite,
    CounterRead,
}

impl Predefined {
    /// As it is printed.
    pub(in crate::stress) fn name(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::CounterWrite => "COUNTER_WRITE",
            Self::CounterRead => "COUNTER_READ",
        }
    }

    pub(in crate::stress) fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::CounterWrite)
    }
}

/// The operations.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::stress) enum Work {
    /// One operation, again and again.
    Single(Predefined),
    /// Several, by their shares; and how many of a kind follow each other.
    Mixed { ratios: Vec<(Predefined, f64)>, clustering: Factory, clustering_text: String },
    /// Operations of a profile.
    User { profile: String, ratios: Vec<(String, f64)>, clustering: Factory, clustering_text: String },
}

impl Work {
    /// The command's name, as it is printed.
    pub(in crate::stress) fn name(&self) -> &'static str {
        match self {
            Self::Single(operation) => operation.name(),
            Self::Mixed { .. } => "MIXED",
            Self::User { .. } => "USER",
        }
    }

    /// Whether the data may change.
    pub(in crate::stress) fn updates(&self) -> bool {
        !matches!(self, Self::Single(operation) if !operation.is_write())
    }
}

/// When a run ends.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::stress) enum End {
    /// After so many operations.
    Count(i64),
    /// After a time; its number and its unit are printed.
    Duration { time: Duration, number: u64, unit: &'static str },
    /// When the rate is known accurately enough.
    Uncertainty { target: f64, min: u32, max: u32 },
}

/// When tables are emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stress) enum Truncate {
    Never,
    Once,
    Always,
}

/// The command.
#[derive(Debug, Clone)]
pub(in crate::stress) struct Command {
    pub(in crate::stress) work: Work,
    pub(in crate::stress) end: End,
    pub(in crate::stress) no_warmup: bool,
    pub(in crate::stress) truncate: Truncate,
    pub(in crate::stress) consistency: Consistency,
    pub(in crate::stress) add: Factory,
    add_text: String,
    pub(in crate::stress) key_size: usize,
}

/// Commands by all their names, with their help texts.
pub(in crate::stress) const COMMANDS: [(&[&str], &str); 9] = [
    (&["read"], "Multiple concurrent reads - the cluster must first be populated by a write test"),
    (&["write", "insert"], "Multiple concurrent writes against the cluster"),
    (
        &["mixed"],
        "Interleaving of any basic commands, with configurable ratio and distribution - the cluster must first be \
         populated by a write test",
    ),
    (
        &["counter_write", "counterwrite", "counter_add", "counteradd"],
        "Multiple concurrent updates of counters.",
    ),
    (
        &["counter_read", "counterread", "counter_get", "counterget"],
        "Multiple concurrent reads of counters. The cluster must first be populated by a counterwrite test.",
    ),
    (&["user"], "Interleaving of user provided queries, with configurable ratio and distribution"),
    (&["help", "-?"], "Print help for a command or option"),
    (&["print"], "Inspect the output of a distribution definition"),
    (&["version"], "Print the version of cassandra stress"),
];

/// Most bytes of a generated key.
const KEY_BYTES_MAX: usize = 65_535;

const COUNT: Pattern = Pattern { text: "[0-9]+[bmk]?", accepts: |text| number(text).is_some_and(|n| n >= 0) };
const DURATION: Pattern = Pattern { text: "[0-9]+[smh]", accepts: |text| duration(text).is_some() };
const TRUNCATE: Pattern = Pattern {
    text: "never|once|always",
    accepts: |text| ["never", "once", "always"].contains(&&*text.to_lowercase()),
};
const CONSISTENCY: Pattern = Pattern {
    text: "ONE|QUORUM|LOCAL_QUORUM|EACH_QUORUM|ALL|ANY|TWO|THREE|LOCAL_ONE|SERIAL|LOCAL_SERIAL",
    accepts: |text| consistency(text).is_some(),
};
const FRACTION: Pattern = Pattern {
    text: "0\\.[0-9]+",
    accepts: |text| text.strip_prefix("0.").is_some_and(crate::stress::options::is_digits),
};
const SHARE: Pattern = Pattern {
    text: "[0-9]+(\\.[0-9]+)?",
    accepts: |text| text.parse::<f64>().is_ok_and(|share| share.is_finite() && share >= 0.0),
};

fn consistency(text: &str) -> Option<Consistency> {
    let text = text.to_uppercase();
    Consistency::ALL.into_iter().find(|level| level.name() == text && text != "NODE_LOCAL")
}

/// A number and a unit: `15m`, and as other versions write it `15min`, `90sec`, `1hour`.
fn duration(text: &str) -> Option<(u64, &'static str, u64)> {
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let (unit, seconds) = match &*text[digits..].to_lowercase() {
        "s" | "sec" | "second" | "seconds" => ("SECONDS", 1),
        "m" | "min" | "minute" | "minutes" => ("MINUTES", 60),
        "h" | "hr" | "hour" | "hours" => ("HOURS", 3600),
        _ => return None,
    };
    let number: u64 = text[..digits].parse().ok()?;
    Some((number, unit, number.checked_mul(seconds)?))
}

/// How it may end, and the suboptions of each way.
fn ends() -> [Vec<Opt>; 3] {
    [
        vec![
            simple(
                "err<",
                FRACTION,
                Some("0.02"),
                "Run until the standard error of the mean is below this fraction",
            ),
            simple(
                "n>",
                DIGITS,
                Some("30"),
                "Run at least this many iterations before accepting uncertainty convergence",
            ),
            simple(
                "n<",
                DIGITS,
                Some("200"),
                "Run at most this many iterations before accepting uncertainty convergence",
            ),
        ],
        vec![simple("n=", COUNT, None, "Number of operations to perform").required()],
        vec![simple("duration=", DURATION, None, "Time to run in (in seconds, minutes or hours)").required()],
    ]
}

fn common() -> Vec<Opt> {
    vec![
        flag("no-warmup", "Do not warmup the process"),
        simple(
            "truncate=",
            TRUNCATE,
            Some("never"),
            "Truncate the table: never, before performing any work, or before each iteration",
        ),
        simple("cl=", CONSISTENCY, Some("LOCAL_ONE"), "Consistency level to use"),
    ]
}

fn groups_of(name: &str) -> Vec<Group> {
    let own = || {
        match name {
        "mixed" => vec![
            distribution(
                "clustering=",
                Some("GAUSSIAN(1..10)"),
                "Distribution clustering runs of operations of the same kind",
            ),
            multi(
                "ratio",
                RATIO_NAMES
                    .iter()
                    .map(|(prefix, description, _)| simple(prefix, SHARE, None, description))
                    .collect(),
                false,
                "Specify the ratios for operations to perform; e.g. (read=2,write=1) will perform 2 reads for each \
                 write",
            ),
        ],
        "user" => vec![
            simple("profile=", ANYTHING, None, "Specify the path to a yaml cql3 profile").required(),
            multi(
                "ops",
                Vec::new(),
                true,
                "Specify the ratios for inserts/queries to perform; e.g. ops(insert=2,<query1>=1) will perform 2 \
                 inserts for each query1",
            )
            .required(),
            distribution(
                "clustering=",
                Some("gaussian(1..10)"),
                "Distribution clustering runs of operations of the same kind",
            ),
        ],
        _ => Vec::new(),
    }
    };
    let data = || match name {
        "user" => Vec::new(),
        _ => vec![
            distribution("add=", Some("fixed(1)"), "Distribution of value of counter increments"),
            simple("keysize=", DIGITS, Some("10"), "Key size in bytes"),
        ],
    };
    let group = |end: Vec<Opt>| Group::new([end, own(), common(), data()].into_iter().flatten().collect());
    ends().into_iter().map(group).collect()
}

const RATIO_NAMES: [(&str, &str, Predefined); 4] = [
    ("read=", "Performs this many READ operations out of total", Predefined::Read),
    ("write=", "Performs this many WRITE operations out of total", Predefined::Write),
    ("counter_write=", "Performs this many COUNTER_WRITE operations out of total", Predefined::CounterWrite),
    ("counter_read=", "Performs this many COUNTER_READ operations out of total", Predefined::CounterRead),
];

/// How a command is used.
pub(in crate::stress) fn help(name: &str) -> String {
    usage(name, &groups_of(name))
}

impl Command {
    /// Takes the command from the command line.
    ///
    /// # Errors
    /// [`StressError`] if there is none, or an invalid one.
    pub(in crate::stress) fn take(arguments: &mut Arguments) -> Result<Self, StressError> {
        let found = COMMANDS[..6].iter().find_map(|(names, _)| Some((names[0], arguments.take(names)?)));
        let (name, parameters) =
            found.ok_or_else(|| StressError::Usage("No command specified".to_owned()))?;
        let Some(group) = select(&parameters, groups_of(name))? else {
            let message =
                format!("Invalid {} options provided, see output for valid options", name.to_uppercase());
            return Err(StressError::Help { text: help(name), message });
        };
        let work = match name {
            "read" => Work::Single(Predefined::Read),
            "write" => Work::Single(Predefined::Write),
            "counter_write" => Work::Single(Predefined::CounterWrite),
            "counter_read" => Work::Single(Predefined::CounterRead),
            "mixed" => mixed(&group)?,
            _ => user(&group)?,
        };
        let is_user = matches!(work, Work::User { .. });
        let add_text = if is_user { "fixed(1)" } else { group.value("add=").unwrap_or_default() };
        let key_size = if is_user { 10 } else { group.integer("keysize=")? };
        if !(1..=KEY_BYTES_MAX).contains(&key_size) {
            return Err(StressError::Usage(format!("keysize must be between 1 and {KEY_BYTES_MAX}")));
        }
        Ok(Self {
            end: end(&group)?,
            no_warmup: group.is_set("no-warmup"),
            truncate: match &*group.value("truncate=").unwrap_or_default().to_lowercase() {
                "once" => Truncate::Once,
                "always" => Truncate::Always,
                _ => Truncate::Never,
            },
            consistency: group.value("cl=").and_then(consistency).unwrap_or(Consistency::LocalOne),
            add: Factory::parse(add_text)?,
            add_text: add_text.to_owned(),
            key_size,
            work,
        })
    }

    /// The number of operations; `None` without a limit.
    pub(in crate::stress) fn count(&self) -> Option<i64> {
        match self.end {
            End::Count(count) => Some(count),
            _ => None,
        }
    }

    /// The lines of the settings.
    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        lines.push("Command:".to_owned());
        lines.push(format!("  Type: {}", self.work.name().to_lowercase()));
        lines.push(format!("  Count: {}", crate::stress::report::grouped(self.count().unwrap_or(-1))));
        if let End::Duration { number, unit, .. } = self.end {
            lines.push(format!("  Duration: {} {unit}", crate::stress::report::grouped(number as i64)));
        }
        lines.push(format!("  No Warmup: {}", self.no_warmup));
        lines.push(format!("  Consistency Level: {}", self.consistency.name()));
        match self.end {
            End::Uncertainty { target, min, max } => {
                lines.push(format!("  Target Uncertainty: {target:.3}"));
                lines.push(format!("  Minimum Uncertainty Measurements: {min}"));
                lines.push(format!("  Maximum Uncertainty Measurements: {max}"));
            }
            _ => lines.push("  Target Uncertainty: not applicable".to_owned()),
        }
        let ratios = |shares: Vec<String>| format!("  Command Ratios: {{{}}}", shares.join(", "));
        let share = |share: f64| if share.fract() == 0.0 { format!("{share:.1}") } else { share.to_string() };
        if let Work::User { profile, ratios: of, clustering_text, .. } = &self.work {
            lines.push(ratios(of.iter().map(|(name, part)| format!("{name}={}", share(*part))).collect()));
            lines.push(format!("  Command Clustering Distribution: clustering={clustering_text}"));
            lines.push(format!("  Profile File: {profile}"));
            return;
        }
        lines.push(format!("  Key Size (bytes): {}", self.key_size));
        lines.push(format!("  Counter Increment Distibution: add={}", self.add_text));
        if let Work::Mixed { ratios: of, clustering_text, .. } = &self.work {
            let of = of.iter().map(|(kind, part)| format!("{}={}", kind.name(), share(*part)));
            lines.push(ratios(of.collect()));
            lines.push(format!("  Command Clustering Distribution: clustering={clustering_text}"));
        }
    }
}

fn end(group: &Group) -> Result<End, StressError> {
    let declares = |prefix: &str| group.declares(prefix);
    if declares("n=") {
        let count = group.value("n=").and_then(number).unwrap_or_default();
        Ok(End::Count(count))
    } else if declares("duration=") {
        let (number, unit, seconds) =
            group.value("duration=").and_then(duration).unwrap_or((0, "SECONDS", 0));
        Ok(End::Duration { time: Duration::from_secs(seconds), number, unit })
    } else {
        let target = group.value("err<").and_then(|text| text.parse().ok()).unwrap_or(0.02);
        Ok(End::Uncertainty { target, min: group.integer("n>")?, max: group.integer("n<")? })
    }
}

fn clustering(group: &Group) -> Result<(Factory, String), StressError> {
    let text = group.value("clustering=").unwrap_or_default().to_owned();
    Ok((Factory::parse(&text)?, text))
}

const NO_RATIO: &str = "Must specify at least one command with a non-zero ratio";

fn mixed(group: &Group) -> Result<Work, StressError> {
    let (clustering, clustering_text) = clustering(group)?;
    let (inner, _) = group.multi("ratio");
    let mut ratios = Vec::new();
    for (prefix, _, operation) in RATIO_NAMES {
        if let Some(share) = inner.value(prefix).and_then(|text| text.parse::<f64>().ok()) {
            ratios.push((operation, share));
        }
    }
    if !group.is_set("ratio") {
        ratios = vec![(Predefined::Read, 1.0), (Predefined::Write, 1.0)];
    }
    if ratios.iter().all(|(_, share)| *share == 0.0) {
        return Err(StressError::Usage(NO_RATIO.to_owned()));
    }
    Ok(Work::Mixed { ratios, clustering, clustering_text })
}

fn user(group: &Group) -> Result<Work, StressError> {
    let (clustering, clustering_text) = clustering(group)?;
    let mut ratios = Vec::new();
    for (name, text) in group.multi("ops").1 {
        let share = text.parse::<f64>().ok().filter(|share| share.is_finite() && *share >= 0.0);
        let share = share.ok_or_else(|| StressError::Usage(format!("For input string: \"{text}\"")))?;
        ratios.push((name.to_lowercase(), share));
    }
    if ratios.iter().all(|(_, share)| *share == 0.0) {
        return Err(StressError::Usage(NO_RATIO.to_owned()));
    }
    let profile = group.value("profile=").unwrap_or_default().to_owned();
    Ok(Work::User { profile, ratios, clustering, clustering_text })
}

/// The distribution that `print` is to show.
///
/// # Errors
/// [`StressError`] if there is none.
pub(in crate::stress) fn print_distribution(parameters: &[String]) -> Result<Factory, StressError> {
    let groups =
        || vec![Group::new(vec![distribution("dist=", None, "A mathematical distribution").required()])];
    match select(parameters, groups())? {
        Some(group) => Ok(group.distribution("dist=")?.unwrap_or_else(|| Factory::fixed(0))),
        None => Err(StressError::Help {
            text: usage("print", &groups()),
            message: "Invalid print options provided, see output for valid options".to_owned(),
        }),
    }
}

/// How `print` is used.
pub(in crate::stress) fn print_help() -> String {
    usage("print", &[Group::new(vec![distribution("dist=", None, "A mathematical distribution")])])
}
