//! Logs and reports: `-log`, `-graph`, `-reporting`.

use std::time::Duration;

use super::command::Command;
use super::groups_or_help;
use crate::stress::StressError;
use crate::stress::arguments::Arguments;
use crate::stress::options::{ANYTHING, Group, Pattern, flag, is_digits, simple};

/// How much is printed about errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::stress) enum Level {
    Minimal,
    Normal,
    Verbose,
}

/// Settings of the log.
#[derive(Debug, Clone)]
pub(in crate::stress) struct Log {
    pub(in crate::stress) no_summary: bool,
    pub(in crate::stress) no_settings: bool,
    pub(in crate::stress) file: Option<String>,
    pub(in crate::stress) histogram_file: Option<String>,
    pub(in crate::stress) interval: Duration,
    pub(in crate::stress) level: Level,
}

const INTERVAL: Pattern = Pattern { text: "[0-9]+(ms|s|)", accepts: |text| interval(text).is_some() };
const LEVEL: Pattern = Pattern {
    text: "(minimal|normal|verbose)",
    accepts: |text| ["minimal", "normal", "verbose"].contains(&&*text.to_lowercase()),
};

fn interval(text: &str) -> Option<Duration> {
    let text = text.to_lowercase();
    let (digits, unit_ms) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(digits), _) => (digits, 1),
        (None, Some(digits)) => (digits, 1000),
        (None, None) => (&*text, 1000),
    };
    is_digits(digits).then_some(())?;
    Some(Duration::from_millis(digits.parse::<u64>().ok()?.checked_mul(unit_ms)?))
}

pub(super) fn log_groups() -> Vec<Group> {
    vec![Group::new(vec![
        simple("level=", LEVEL, Some("normal"), "Logging level (minimal, normal or verbose)"),
        flag("no-summary", "Disable printing of aggregate statistics at the end of a test"),
        simple("file=", ANYTHING, None, "Log to a file"),
        simple("hdrfile=", ANYTHING, None, "Log to a file"),
        simple("interval=", INTERVAL, Some("1s"), "Log progress every <value> seconds or milliseconds"),
        flag("no-settings", "Disable printing of settings values at start of test"),
    ])]
}

impl Log {
    pub(super) fn take(arguments: &mut Arguments) -> Result<Self, StressError> {
        let parameters = arguments.take(&["-log"]).unwrap_or_default();
        let group = groups_or_help("-log", &parameters, log_groups(), &log_groups())?;
        let interval = group.value("interval=").and_then(interval).unwrap_or(Duration::from_secs(1));
        if interval.is_zero() {
            return Err(StressError::Usage("Log interval must be greater than zero".to_owned()));
        }
        Ok(Self {
            no_summary: group.is_set("no-summary"),
            no_settings: group.is_set("no-settings"),
            file: group.value("file=").map(str::to_owned),
            histogram_file: group.value("hdrfile=").map(str::to_owned),
            interval,
            level: match &*group.value("level=").unwrap_or_default().to_lowercase() {
                "minimal" => Level::Minimal,
                "verbose" => Level::Verbose,
                _ => Level::Normal,
            },
        })
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        let level = match self.level {
            Level::Minimal => "MINIMAL",
            Level::Normal => "NORMAL",
            Level::Verbose => "VERBOSE",
        };
        lines.push("Log:".to_owned());
        lines.push(format!("  No Summary: {}", self.no_summary));
        lines.push(format!("  No Settings: {}", self.no_settings));
        lines.push(format!("  File: {}", self.file.as_deref().unwrap_or("null")));
        lines.push(format!("  Interval Millis: {}", self.interval.as_millis()));
        lines.push(format!("  Level: {level}"));
    }
}

/// A page that shows the run.
#[derive(Debug, Clone)]
pub(in crate::stress) struct Graph {
    pub(in crate::stress) file: Option<String>,
    pub(in crate::stress) revision: String,
    pub(in crate::stress) title: Option<String>,
    pub(in crate::stress) operation: String,
}

pub(super) fn graph_groups() -> Vec<Group> {
    vec![Group::new(vec![
        simple("file=", ANYTHING, None, "HTML file to create or append to").required(),
        simple(
            "revision=",
            ANYTHING,
            Some("unknown"),
            "Unique name to assign to the current configuration being stressed",
        ),
        simple("title=", ANYTHING, None, "Title for chart (current date by default)"),
        simple(
            "op=",
            ANYTHING,
            None,
            "Alternative name for current operation (stress op name used by default)",
        ),
    ])]
}

impl Graph {
    pub(super) fn take(arguments: &mut Arguments, command: &Command) -> Result<Self, StressError> {
        let name = command.work.name().to_owned();
        let Some(parameters) = arguments.take(&["-graph"]) else {
            return Ok(Self { file: None, revision: "unknown".to_owned(), title: None, operation: name });
        };
        // Titles have spaces, which split them into parameters.
        let mut joined: Vec<String> = Vec::new();
        for word in parameters {
            let begins =
                ["file=", "revision=", "title=", "op="].iter().any(|prefix| word.starts_with(prefix));
            match joined.last_mut() {
                Some(last) if !begins && last.starts_with("title=") => last.push_str(&format!(" {word}")),
                _ => joined.push(word),
            }
        }
        let group = groups_or_help("-graph", &joined, graph_groups(), &graph_groups())?;
        Ok(Self {
            file: group.value("file=").map(str::to_owned),
            revision: group.value("revision=").unwrap_or_default().to_owned(),
            title: group.value("title=").map(str::to_owned),
            operation: group.value("op=").map_or(name, str::to_owned),
        })
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        lines.push("Graph:".to_owned());
        lines.push(format!("  File: {}", self.file.as_deref().unwrap_or("null")));
        lines.push(format!("  Revision: {}", self.revision));
        lines.push(format!("  Title: {}", self.title.as_deref().unwrap_or("null")));
        lines.push(format!("  Operation: {}", self.operation));
    }
}

/// How often lines are printed.
#[derive(Debug, Clone)]
pub(in crate::stress) struct Reporting {
    output: (String, u32),
    header: Option<(String, u32)>,
}

const FREQUENCY: Pattern = Pattern { text: ".*", accepts: |text| frequency(text).is_some() };

/// A number of seconds, with a unit.
fn frequency(text: &str) -> Option<u32> {
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let unit = match &text[digits..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    text[..digits].parse::<u32>().ok()?.checked_mul(unit)
}

pub(super) fn reporting_groups() -> Vec<Group> {
    vec![Group::new(vec![
        simple(
            "output-frequency=",
            FREQUENCY,
            Some("1s"),
            "Frequency each line of output will be printed out when running a stress test, defaults to '1s'.",
        ),
        simple(
            "header-frequency=",
            FREQUENCY,
            None,
            "Frequency the header for the statistics will be printed out. If not specified, the header will be \
             printed at the beginning of the test only.",
        ),
    ])]
}

impl Reporting {
    pub(super) fn take(arguments: &mut Arguments) -> Result<Self, StressError> {
        let parameters = arguments.take(&["-reporting"]).unwrap_or_default();
        let group = groups_or_help("-reporting", &parameters, reporting_groups(), &reporting_groups())?;
        let read =
            |prefix: &str| group.value(prefix).map(|text| (text.to_owned(), frequency(text).unwrap_or(0)));
        Ok(Self {
            output: read("output-frequency=").unwrap_or(("1s".to_owned(), 1)),
            header: read("header-frequency="),
        })
    }

    /// One total in so many intervals is printed; 0 for every one.
    pub(in crate::stress) fn output_every(&self) -> u32 {
        self.output.1
    }

    /// The header is printed again after so many intervals; 0 for never.
    pub(in crate::stress) fn header_every(&self) -> u32 {
        self.header.as_ref().map_or(0, |(_, every)| *every)
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        lines.push("Reporting:".to_owned());
        lines.push(format!("  Output frequency: {}", self.output.0));
        let header = self.header.as_ref().map_or("*not set*", |(text, _)| text);
        lines.push(format!("  Header frequency: {header}"));
    }
}
