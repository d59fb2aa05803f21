//! Structured log lines: a text and `key=value` pairs, one line each.
//!
//! `LEVEL time [shard N] area: text key=value ...` goes to standard error, or under simulation into the
//! trace. The levels apply to the whole process: one for all modules, and others for single modules with
//! those inside of them (`levels`). A line that may repeat quickly is written with the `_limited` macros: at
//! most one per second, place and shard, with the number of suppressed ones. Lines are objects of JSON if
//! [`set_json`] says so (`json`).

mod json;
mod levels;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::shard;
use crate::time::Instant;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Something is broken and needs attention.
    Error = 1,
    /// Something is wrong but handled.
    Warn = 2,
    /// Normal events of interest to operators.
    Info = 3,
    /// For debugging.
    Debug = 4,
}

impl Level {
    /// Upper-case name, padded to five.
    pub fn name(self) -> &'static str {
        match self {
            Level::Error => "ERROR",
            Level::Warn => "WARN ",
            Level::Info => "INFO ",
            Level::Debug => "DEBUG",
        }
    }
}

pub use levels::{enabled, level_of, set_all, set_level, set_level_of};

/// Whether lines are objects of JSON.
static IS_JSON: AtomicBool = AtomicBool::new(false);
/// Least time between two lines of one place of the `_limited` kind.
const LIMITED_EVERY: Duration = Duration::from_secs(1);
/// Places remembered per shard; beyond it all are forgotten and may log again.
const LIMITED_PLACES_MAX: usize = 4096;

/// Writes each line as an object of JSON from now on, or as plain text. Under simulation lines stay plain.
pub fn set_json(is_json: bool) {
    IS_JSON.store(is_json, Ordering::Relaxed);
}

struct Limited {
    next: Instant,
    left_out: u64,
}

pub(crate) struct LogState {
    limited: RefCell<BTreeMap<(&'static str, u32), Limited>>,
    line: RefCell<String>,
}

impl LogState {
    pub(crate) fn new() -> Self {
        Self { limited: RefCell::new(BTreeMap::new()), line: RefCell::new(String::new()) }
    }
}

/// For the `_limited` macros: whether the place may log now, and how many lines it has left out since it last
/// did.
pub fn allowed(file: &'static str, line: u32) -> Option<u64> {
    shard::try_with(|shard| {
        let now = shard.now();
        let mut limited = shard.log.limited.borrow_mut();
        if limited.len() >= LIMITED_PLACES_MAX {
            limited.clear();
        }
        let place = limited.entry((file, line)).or_insert(Limited { next: now, left_out: 0 });
        if now < place.next {
            place.left_out += 1;
            return None;
        }
        place.next = now + LIMITED_EVERY;
        Some(std::mem::take(&mut place.left_out))
    })
    .unwrap_or(Some(0))
}

/// Writes one line, unless the module's own level leaves it out; for the macros, which check first whether
/// any module writes lines of the level.
pub fn write(level: Level, module: &str, text: fmt::Arguments<'_>, fields: &[(&str, &dyn fmt::Display)]) {
    if !levels::enabled_in(module, level) {
        return;
    }
    let area = module.rsplit_once("::").map_or(module, |(outer, last)| {
        // `storage::commitlog::segment` is the area `storage::commitlog`; a crate's root module is itself.
        if outer.contains("::") {
            outer
        } else {
            let _ = last;
            module
        }
    });
    let written = shard::try_with(|shard| {
        let mut line =
            shard.log.line.try_borrow_mut().map(|mut line| std::mem::take(&mut *line)).unwrap_or_default();
        line.clear();
        let place = Place { wall_us: shard.wall_clock_us(), shard: Some(shard.id) };
        format_line(&mut line, level, &place, area, text, fields);
        if !shard.log_line(&line) {
            to_stderr(&mut line, level, &place, area, text, fields);
        }
        if let Ok(mut kept) = shard.log.line.try_borrow_mut() {
            *kept = line;
        }
    });
    if written.is_none() {
        let mut line = String::new();
        let place = Place { wall_us: crate::driver::ambient::wall_us(), shard: None };
        format_line(&mut line, level, &place, area, text, fields);
        to_stderr(&mut line, level, &place, area, text, fields);
    }
}

struct Place {
    wall_us: i64,
    shard: Option<usize>,
}

/// Writes a line that is ready as text.
fn to_stderr(
    line: &mut String,
    level: Level,
    place: &Place,
    area: &str,
    text: fmt::Arguments<'_>,
    fields: &[(&str, &dyn fmt::Display)],
) {
    if IS_JSON.load(Ordering::Relaxed) {
        line.clear();
        json::format_line(line, level, place, area, text, fields);
    }
    line.push('\n');
    // A log that cannot be written has nowhere to complain.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

fn format_line(
    line: &mut String,
    level: Level,
    place: &Place,
    area: &str,
    text: fmt::Arguments<'_>,
    fields: &[(&str, &dyn fmt::Display)],
) {
    // Writing to a string cannot fail.
    let _ = write!(line, "{} {}", level.name(), Timestamp(place.wall_us));
    if let Some(shard) = place.shard {
        let _ = write!(line, " [shard {shard}]");
    }
    let _ = write!(line, " {area}: ");
    let begin = line.len();
    let _ = write!(line, "{text}");
    one_line(line, begin);
    for (key, value) in fields {
        let _ = write!(line, " {key}=");
        let begin = line.len();
        let _ = write!(line, "{value}");
        let plain = line.len() > begin
            && line[begin..]
                .chars()
                .all(|letter| !letter.is_whitespace() && !letter.is_control() && letter != '"');
        if !plain {
            let quoted = format!("{:?}", &line[begin..]);
            line.truncate(begin);
            line.push_str(&quoted);
        }
    }
}

/// Keeps a line one line: control characters in it are escaped.
fn one_line(line: &mut String, begin: usize) {
    if line[begin..].chars().any(char::is_control) {
        let escaped: String = line[begin..]
            .chars()
            .flat_map(|letter| {
                let escape = letter.is_control().then(|| letter.escape_default());
                let plain = (!letter.is_control()).then_some(letter);
                escape.into_iter().flatten().chain(plain)
            })
            .collect();
        line.truncate(begin);
        line.push_str(&escaped);
    }
}

/// Microseconds since the epoch as UTC, `2026-11-21T01:02:03.456789Z`.
#[derive(Debug, Clone, Copy)]
pub struct Timestamp(pub i64);

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, in_day) = (self.0.div_euclid(86_400_000_000), self.0.rem_euclid(86_400_000_000));
        let (year, month, day) = civil(days);
        let (seconds, micros) = (in_day / 1_000_000, in_day % 1_000_000);
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        write!(
            formatter,
            "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{:02}.{micros:06}Z",
            seconds % 60
        )
    }
}

/// Year, month and day of a day number since 1970-01-01, proleptic Gregorian.
fn civil(days: i64) -> (i64, i64, i64) {
    // Years counted from March, so that the leap day is a year's last; 146097 days are 400 years.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// One line: `line!(level, "text {}", argument; key = value, ...)`.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_line {
    ($level:expr, $format:literal $(, $argument:expr)* $(,)?) => {
        if $crate::log::enabled($level) {
            $crate::log::write($level, module_path!(), format_args!($format $(, $argument)*), &[]);
        }
    };
    ($level:expr, $format:literal $(, $argument:expr)* ; $($key:ident = $value:expr),+ $(,)?) => {
        if $crate::log::enabled($level) {
            $crate::log::write(
                $level,
                module_path!(),
                format_args!($format $(, $argument)*),
                &[$((stringify!($key), &$value as &dyn ::core::fmt::Display)),+],
            );
        }
    };
}

/// Logs at level ERROR: `error!("text {}", argument; key = value)`.
#[macro_export]
macro_rules! error {
    ($($line:tt)+) => { $crate::__log_line!($crate::log::Level::Error, $($line)+) };
}

/// Logs at level WARN: `warn!("text {}", argument; key = value)`.
#[macro_export]
macro_rules! warn {
    ($($line:tt)+) => { $crate::__log_line!($crate::log::Level::Warn, $($line)+) };
}

/// Logs at level INFO: `info!("text {}", argument; key = value)`.
#[macro_export]
macro_rules! info {
    ($($line:tt)+) => { $crate::__log_line!($crate::log::Level::Info, $($line)+) };
}

/// Logs at level DEBUG: `debug!("text {}", argument; key = value)`.
#[macro_export]
macro_rules! debug {
    ($($line:tt)+) => { $crate::__log_line!($crate::log::Level::Debug, $($line)+) };
}

/// As `warn!`, at most once per second from one place on one shard.
#[macro_export]
macro_rules! warn_limited {
    ($($line:tt)+) => {
        if let Some(left_out) = $crate::log::allowed(file!(), line!()) {
            if left_out > 0 {
                $crate::warn!("lines left out before the next one"; count = left_out);
            }
            $crate::warn!($($line)+);
        }
    };
}

/// As `info!`, at most once per second from one place on one shard.
#[macro_export]
macro_rules! info_limited {
    ($($line:tt)+) => {
        if $crate::log::enabled($crate::log::Level::Info)
            && let Some(left_out) = $crate::log::allowed(file!(), line!())
        {
            if left_out > 0 {
                $crate::info!("lines left out before the next one"; count = left_out);
            }
            $crate::info!($($line)+);
        }
    };
}

/// As `error!`, at most once per second from one place on one shard.
#[macro_export]
macro_rules! error_limited {
    ($($line:tt)+) => {
        if let Some(left_out) = $crate::log::allowed(file!(), line!()) {
            if left_out > 0 {
                $crate::error!("lines left out before the next one"; count = left_out);
            }
            $crate::error!($($line)+);
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: fmt::Arguments<'_>, fields: &[(&str, &dyn fmt::Display)], expected: &str) {
        let mut line = String::new();
        let place = Place { wall_us: 951_782_400_000_001, shard: Some(3) };
        format_line(&mut line, Level::Warn, &place, "area", text, fields);
        assert_eq!(line, expected);
    }

    #[test]
    fn a_line_holds_level_time_shard_area_text_and_fields() {
        let head = "WARN  2000-02-29T00:00:00.000001Z [shard 3] area: ";
        check(format_args!("plain"), &[], &format!("{head}plain"));
        check(format_args!("two\nlines"), &[("n", &7)], &format!("{head}two\\nlines n=7"));
        check(
            format_args!("t"),
            &[("a", &"x y"), ("b", &""), ("c", &"q\"r")],
            &format!("{head}t a=\"x y\" b=\"\" c=\"q\\\"r\""),
        );
    }

    #[test]
    fn days_become_dates() {
        let expected =
            [(0, (1970, 1, 1)), (-1, (1969, 12, 31)), (11_016, (2000, 2, 29)), (20_778, (2026, 11, 21))];
        for (days, date) in expected {
            assert_eq!(civil(days), date);
        }
    }
}
