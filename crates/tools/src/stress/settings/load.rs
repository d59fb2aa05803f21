//! The rate, the partitions, and the handling of errors: `-rate`, `-pop`, `-insert`, `-errors`,
//! `-tokenrange`.

use super::command::{Command, Predefined, Work};
use super::groups_or_help;
use crate::stress::StressError;
use crate::stress::arguments::Arguments;
use crate::stress::distribution::{Factory, RatioFactory, bounds, number};
use crate::stress::options::{DIGITS, Group, Pattern, distribution, flag, ratio, simple};

/// Most operations in flight.
const THREADS_MAX: u32 = 32_000;

/// How many operations are in flight, and how many begin in a second.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::stress) struct Rate {
    /// Whether the number of threads grows until throughput does not.
    pub(in crate::stress) auto: bool,
    pub(in crate::stress) threads: Threads,
    /// Operations that begin per second; 0 without a limit.
    pub(in crate::stress) per_second: u32,
    /// Whether latency is measured from the scheduled begin.
    pub(in crate::stress) is_fixed: bool,
}

/// Operations in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stress) enum Threads {
    Count(u32),
    /// One run after the other, with ever more.
    Range {
        min: u32,
        max: u32,
    },
}

const PER_SECOND: Pattern = Pattern {
    text: "[0-9]+/s",
    accepts: |text| text.strip_suffix("/s").is_some_and(crate::stress::options::is_digits),
};

pub(super) fn rate_groups() -> Vec<Group> {
    vec![
        Group::new(vec![
            simple("threads=", DIGITS, None, "run this many clients concurrently").required(),
            simple(
                "throttle=",
                PER_SECOND,
                Some("0/s"),
                "throttle operations per second across all clients to a maximum rate (or less) with no implied \
                 schedule",
            )
            .also(&["limit="]),
            simple(
                "fixed=",
                PER_SECOND,
                Some("0/s"),
                "expect fixed rate of operations per second across all clients with implied schedule",
            ),
        ]),
        Group::new(vec![
            simple("threads>=", DIGITS, Some("4"), "run at least this many clients concurrently"),
            simple("threads<=", DIGITS, Some("1000"), "run at most this many clients concurrently"),
            flag("auto", "stop increasing threads once throughput saturates"),
        ]),
    ]
}

impl Rate {
    pub(super) fn take(arguments: &mut Arguments, command: &Command) -> Result<Self, StressError> {
        let Some(parameters) = arguments.take(&["-rate"]) else {
            let is_write = matches!(command.work, Work::Single(operation) if operation.is_write());
            return Ok(if is_write && command.count().is_some_and(|count| count > 0) {
                Self { auto: false, threads: Threads::Count(200), per_second: 0, is_fixed: true }
            } else {
                let threads = Threads::Range { min: 4, max: 1000 };
                Self { auto: true, threads, per_second: 0, is_fixed: false }
            });
        };
        let mut groups = rate_groups();
        groups.reverse();
        let group = groups_or_help("-rate", &parameters, groups, &rate_groups())?;
        let too_many = || StressError::Usage(format!("at most {THREADS_MAX} threads"));
        if !group.declares("threads=") {
            let (min, max) = (group.integer("threads>=")?, group.integer("threads<=")?);
            if min == 0 || max > THREADS_MAX {
                return Err(too_many());
            }
            let threads = Threads::Range { min, max };
            return Ok(Self { auto: group.is_set("auto"), threads, per_second: 0, is_fixed: false });
        }
        let per_second = |prefix: &str| {
            let text = group.value(prefix).unwrap_or("0/s").trim_end_matches("/s");
            text.parse::<u32>().map_err(|_| StressError::Usage(format!("For input string: \"{text}\"")))
        };
        let (throttle, fixed) = (per_second("throttle=")?, per_second("fixed=")?);
        if throttle != 0 && fixed != 0 {
            let message = "can't have both fixed and throttle set, choose one.";
            return Err(StressError::Usage(message.to_owned()));
        }
        let threads = group.integer("threads=")?;
        if !(1..=THREADS_MAX).contains(&threads) {
            return Err(too_many());
        }
        let per_second = throttle.max(fixed);
        let threads = Threads::Count(threads);
        Ok(Self { auto: false, threads, per_second, is_fixed: per_second == fixed })
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        lines.push("Rate:".to_owned());
        lines.push(format!("  Auto: {}", self.auto));
        match self.threads {
            Threads::Range { min, max } if self.auto => {
                lines.push(format!("  Min Threads: {min}"));
                lines.push(format!("  Max Threads: {max}"));
            }
            threads => {
                let count = if let Threads::Count(count) = threads { i64::from(count) } else { -1 };
                lines.push(format!("  Thread Count: {count}"));
                lines.push(format!("  OpsPer Sec: {}", self.per_second));
            }
        }
    }
}

/// In which order the rows of a partition are generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stress) enum Order {
    Arbitrary,
    Shuffled,
    Sorted,
}

/// The source of partitions' seeds.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::stress) enum Seeds {
    Distribution(Factory),
    Sequence { first: i64, last: i64, wrap: bool, lookback: Option<Factory> },
}

/// The partitions.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::stress) struct Population {
    pub(in crate::stress) seeds: Seeds,
    pub(in crate::stress) order: Order,
}

const SEQUENCE: Pattern =
    Pattern { text: "[0-9]+[MBK]?\\.\\.+[0-9]+[MBK]?", accepts: |text| text.contains("..") };
const CONTENTS: Pattern = Pattern {
    text: "(sorted|shuffled)",
    accepts: |text| text.eq_ignore_ascii_case("sorted") || text.eq_ignore_ascii_case("shuffled"),
};

pub(super) fn population_groups() -> Vec<Group> {
    let contents = || {
        simple(
            "contents=",
            CONTENTS,
            None,
            "SORTED or SHUFFLED (intra-)partition order; if not specified, will be consistent but arbitrary order",
        )
    };
    let lookback = "Select read seeds from the recently visited write seeds";
    let no_wrap = "Terminate the stress test once all seeds in the range have been visited";
    vec![
        Group::new(vec![
            simple("seq=", SEQUENCE, None, "Generate all seeds in sequence").required(),
            flag("no-wrap", no_wrap),
            distribution("read-lookback=", None, lookback),
            contents(),
        ]),
        Group::new(vec![
            distribution("dist=", None, "Seeds are selected from this distribution"),
            contents(),
        ]),
    ]
}

impl Population {
    pub(super) fn take(arguments: &mut Arguments, command: &Command) -> Result<Self, StressError> {
        let limit = command.count().filter(|count| *count > 0).unwrap_or(1_000_000);
        let all = Seeds::Sequence { first: 1, last: limit, wrap: true, lookback: None };
        let Some(parameters) = arguments.take(&["-pop"]) else {
            let is_sequence = match &command.work {
                Work::Single(operation) => matches!(operation, Predefined::Write | Predefined::CounterWrite),
                Work::User { ratios, .. } => ratios.len() == 1 && ratios[0].0 == "insert",
                Work::Mixed { .. } => false,
            };
            let seeds = if is_sequence { all } else { Seeds::Distribution(around(limit)?) };
            return Ok(Self { seeds, order: Order::Arbitrary });
        };
        let group = groups_or_help("-pop", &parameters, population_groups(), &population_groups())?;
        let order = match group.value("contents=") {
            Some(text) if text.eq_ignore_ascii_case("sorted") => Order::Sorted,
            Some(_) => Order::Shuffled,
            None => Order::Arbitrary,
        };
        let seeds = if group.declares("seq=") {
            let text = group.value("seq=").unwrap_or_default();
            let (first, last) = bounds(text)
                .ok_or_else(|| StressError::Usage(format!("Invalid value {text}; no range of seeds")))?;
            let lookback = group.distribution("read-lookback=")?;
            Seeds::Sequence { first, last, wrap: !group.is_set("no-wrap"), lookback }
        } else {
            Seeds::Distribution(match group.distribution("dist=")? {
                Some(distribution) => distribution,
                None => around(limit)?,
            })
        };
        Ok(Self { seeds, order })
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        lines.push("Population:".to_owned());
        let wraps = match &self.seeds {
            Seeds::Distribution(distribution) => {
                lines.push(format!("  Distribution: {}", distribution.describe()));
                false
            }
            Seeds::Sequence { first, last, wrap, lookback } => {
                lines.push(format!("  Sequence: {first}..{last}"));
                if let Some(lookback) = lookback {
                    lines.push(format!("  Read Look Back: {}", lookback.describe()));
                }
                *wrap
            }
        };
        let order = match self.order {
            Order::Arbitrary => "ARBITRARY",
            Order::Shuffled => "SHUFFLED",
            Order::Sorted => "SORTED",
        };
        lines.push(format!("  Order: {order}"));
        lines.push(format!("  Wrap: {wraps}"));
    }
}

fn around(limit: i64) -> Result<Factory, StressError> {
    Factory::parse(&format!("gaussian(1..{limit})"))
}

/// How writes are put together.
#[derive(Debug, Clone)]
pub(in crate::stress) struct Insert {
    pub(in crate::stress) visits: Factory,
    pub(in crate::stress) revisit: Factory,
    pub(in crate::stress) partitions: Option<Factory>,
    pub(in crate::stress) batch_type: Option<String>,
    pub(in crate::stress) select: Option<RatioFactory>,
    pub(in crate::stress) row_population: Option<RatioFactory>,
}

const BATCH_TYPE: Pattern = Pattern {
    text: "unlogged|logged|counter",
    accepts: |text| ["unlogged", "logged", "counter"].contains(&&*text.to_lowercase()),
};

pub(super) fn insert_groups() -> Vec<Group> {
    vec![Group::new(vec![
        distribution(
            "revisit=",
            Some("uniform(1..1M)"),
            "The distribution with which we revisit partial writes (see visits); implicitly defines size of revisit \
             collection",
        ),
        distribution(
            "visits=",
            Some("fixed(1)"),
            "The target number of inserts to split a partition into; if more than one, the partition will be placed \
             in the revisit set",
        ),
        distribution("partitions=", None, "The number of partitions to update in a single batch"),
        simple(
            "batchtype=",
            BATCH_TYPE,
            None,
            "Specify the type of batch statement (LOGGED, UNLOGGED or COUNTER)",
        ),
        ratio(
            "select-ratio=",
            None,
            "The uniform probability of visiting any CQL row in the generated partition",
        ),
        ratio("row-population-ratio=", None, "The percent of a given rows columns to populate"),
    ])]
}

impl Insert {
    pub(super) fn take(arguments: &mut Arguments) -> Result<Self, StressError> {
        let parameters = arguments.take(&["-insert"]).unwrap_or_default();
        let group = groups_or_help("-insert", &parameters, insert_groups(), &insert_groups())?;
        Ok(Self {
            visits: group.distribution("visits=")?.unwrap_or_else(|| Factory::fixed(1)),
            revisit: group.distribution("revisit=")?.unwrap_or_else(|| Factory::uniform(1, 1_000_000)),
            partitions: group.distribution("partitions=")?,
            batch_type: group.value("batchtype=").map(str::to_uppercase),
            select: group.ratio("select-ratio=")?,
            row_population: group.ratio("row-population-ratio=")?,
        })
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        lines.push("Insert:".to_owned());
        lines.push(format!("  Revisits: {}", self.revisit.describe()));
        lines.push(format!("  Visits: {}", self.visits.describe()));
        if let Some(partitions) = &self.partitions {
            lines.push(format!("  Batchsize: {}", partitions.describe()));
        }
        if let Some(select) = &self.select {
            lines.push(format!("  Select Ratio: {}", select.describe()));
        }
        let population = self.row_population.as_ref().map(RatioFactory::describe);
        let whole = || "Ratio: divisor=1.000000;delegate=Fixed:  key=1".to_owned();
        lines.push(format!("  Row Population Ratio: {}", population.unwrap_or_else(whole)));
        let batch_type = self.batch_type.as_deref().unwrap_or("not batching");
        lines.push(format!("  Batch Type: {batch_type}"));
    }
}

/// The handling of failed operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stress) struct Errors {
    pub(in crate::stress) ignore: bool,
    pub(in crate::stress) tries: u32,
    pub(in crate::stress) skip_read_validation: bool,
}

pub(super) fn errors_groups() -> Vec<Group> {
    vec![Group::new(vec![
        simple("retries=", DIGITS, Some("9"), "Number of tries to perform for each operation before failing"),
        flag("ignore", "Do not fail on errors"),
        flag("skip-read-validation", "Skip read validation and message output"),
    ])]
}

impl Errors {
    pub(super) fn take(arguments: &mut Arguments) -> Result<Self, StressError> {
        let parameters = arguments.take(&["-errors"]).unwrap_or_default();
        let group = groups_or_help("-errors", &parameters, errors_groups(), &errors_groups())?;
        Ok(Self {
            ignore: group.is_set("ignore"),
            tries: group.integer::<u32>("retries=")?.saturating_add(1),
            skip_read_validation: group.is_set("skip-read-validation"),
        })
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        lines.push("Errors:".to_owned());
        lines.push(format!("  Ignore: {}", self.ignore));
        lines.push(format!("  Tries: {}", self.tries));
    }
}

/// How ranges of tokens are cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stress) struct TokenRanges {
    pub(in crate::stress) wrap: bool,
    pub(in crate::stress) split_factor: u32,
}

const FACTOR: Pattern = Pattern {
    text: "[0-9]+[bmk]?",
    accepts: |text| number(text).is_some_and(|n| (1..=1_000_000).contains(&n)),
};

pub(super) fn token_range_groups() -> Vec<Group> {
    vec![Group::new(vec![
        flag("wrap", "Re-use token ranges in order to terminate stress iterations"),
        simple("split-factor=", FACTOR, Some("1"), "Split every token range by this factor"),
    ])]
}

impl TokenRanges {
    pub(super) fn take(arguments: &mut Arguments) -> Result<Self, StressError> {
        let parameters = arguments.take(&["-tokenrange"]).unwrap_or_default();
        let group = groups_or_help("-tokenrange", &parameters, token_range_groups(), &token_range_groups())?;
        let split_factor = group.value("split-factor=").and_then(number).unwrap_or(1) as u32;
        Ok(Self { wrap: group.is_set("wrap"), split_factor })
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        lines.push("TokenRange:".to_owned());
        lines.push(format!("  Wrap: {}", self.wrap));
        lines.push(format!("  Split Factor: {}", self.split_factor));
    }
}
