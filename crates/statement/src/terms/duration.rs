//! Durations as text, in the three notations CQL has, and back.
//!
//! `1y2mo3w4d5h6m7s8ms9us10ns`, `P1Y2M3DT4H5M6S` or `P3W`, `P0001-02-03T04:05:06`; a minus before all of it.
//! Rules and words as Cassandra 5's `Duration.from`. Literals, casts and `USING TIMEOUT` use it.

use std::fmt::Write;

use model::number::Duration;

const NANOSECONDS_PER_HOUR: i64 = 3_600_000_000_000;
const NANOSECONDS_PER_MINUTE: i64 = 60_000_000_000;
const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;

/// Units in the order in which they must be written, each with its size.
const UNITS: [(&str, Part, i64, &str); 10] = [
    ("y", Part::Months, 12, "years"),
    ("mo", Part::Months, 1, "months"),
    ("w", Part::Days, 7, "weeks"),
    ("d", Part::Days, 1, "days"),
    ("h", Part::Nanoseconds, NANOSECONDS_PER_HOUR, "hours"),
    ("m", Part::Nanoseconds, NANOSECONDS_PER_MINUTE, "minutes"),
    ("s", Part::Nanoseconds, NANOSECONDS_PER_SECOND, "seconds"),
    ("ms", Part::Nanoseconds, 1_000_000, "milliseconds"),
    ("us", Part::Nanoseconds, 1000, "microseconds"),
    ("ns", Part::Nanoseconds, 1, "nanoseconds"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Months,
    Days,
    Nanoseconds,
}

/// Reads a duration.
///
/// # Errors
/// The client's text in Cassandra's words.
pub fn parse(text: &str) -> Result<Duration, String> {
    let (negative, source) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let wrong = || format!("Unable to convert '{source}' to a duration");
    let mut builder = Builder { last: None, parts: [0; 3] };
    match source.strip_prefix('P') {
        Some(iso) if iso.ends_with('W') => {
            let (number, rest) = number(iso).ok_or_else(wrong)?;
            if rest != "W" {
                return Err(wrong());
            }
            builder.add(2, number)?;
        }
        Some(iso) if iso.contains('-') => alternative(iso, &mut builder)?.ok_or_else(wrong)?,
        Some(iso) => designators(iso, &mut builder)?.ok_or_else(wrong)?,
        None => standard(source, &mut builder)?.ok_or_else(wrong)?,
    }
    builder.build(negative)
}

fn number(text: &str) -> Option<(i64, &str)> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    Some((text[..end].parse().ok()?, &text[end..]))
}

fn standard(mut rest: &str, builder: &mut Builder) -> Result<Option<()>, String> {
    if rest.is_empty() {
        return Ok(None);
    }
    while !rest.is_empty() {
        let Some((value, after)) = number(rest) else { return Ok(None) };
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let symbol = after[..end].to_lowercase().replace('µ', "u");
        let Some(unit) = UNITS.iter().position(|unit| unit.0 == symbol) else { return Ok(None) };
        builder.add(unit, value)?;
        rest = &after[end..];
    }
    Ok(Some(()))
}

fn designators(iso: &str, builder: &mut Builder) -> Result<Option<()>, String> {
    let (date, time) = match iso.split_once('T') {
        Some((date, time)) => (date, time),
        None => (iso, ""),
    };
    for (mut rest, letters) in
        [(date, [('Y', 0), ('M', 1), ('D', 3)]), (time, [('H', 4), ('M', 5), ('S', 6)])]
    {
        let mut allowed = letters.as_slice();
        while !rest.is_empty() {
            let Some((value, after)) = number(rest) else { return Ok(None) };
            let mut chars = after.chars();
            let Some(letter) = chars.next() else { return Ok(None) };
            let Some(at) = allowed.iter().position(|(l, _)| *l == letter) else { return Ok(None) };
            builder.add(allowed[at].1, value)?;
            allowed = &allowed[at + 1..];
            rest = chars.as_str();
        }
    }
    Ok(Some(()))
}

fn alternative(iso: &str, builder: &mut Builder) -> Result<Option<()>, String> {
    const SHAPE: &[u8] = b"dddd-dd-ddTdd:dd:dd";
    let fits = iso.len() == SHAPE.len()
        && iso.bytes().zip(SHAPE).all(|(byte, shape)| match shape {
            b'd' => byte.is_ascii_digit(),
            other => byte == *other,
        });
    if !fits {
        return Ok(None);
    }
    for (unit, from, to) in [(0, 0, 4), (1, 5, 7), (3, 8, 10), (4, 11, 13), (5, 14, 16), (6, 17, 19)] {
        let Some((value, _)) = number(&iso[from..to]) else { return Ok(None) };
        builder.add(unit, value)?;
    }
    Ok(Some(()))
}

struct Builder {
    last: Option<usize>,
    parts: [i64; 3],
}

impl Builder {
    fn add(&mut self, unit: usize, value: i64) -> Result<(), String> {
        let name = UNITS[unit].3;
        match self.last {
            Some(last) if last == unit => {
                return Err(format!("Invalid duration. The {name} are specified multiple times"));
            }
            Some(last) if last > unit => {
                return Err(format!("Invalid duration. The {} should be after {name}", UNITS[last].3));
            }
            _ => self.last = Some(unit),
        }
        let (_, part, worth, _) = UNITS[unit];
        let (limit, what) = match part {
            Part::Months => (i64::from(i32::MAX), "months"),
            Part::Days => (i64::from(i32::MAX), "days"),
            Part::Nanoseconds => (i64::MAX, "nanoseconds"),
        };
        let total = &mut self.parts[part as usize];
        match value.checked_mul(worth).and_then(|added| total.checked_add(added)).filter(|sum| *sum <= limit)
        {
            Some(sum) => {
                *total = sum;
                Ok(())
            }
            None => {
                // Whatever the limit is, Cassandra names this one.
                let named = i32::MAX;
                Err(format!("Invalid duration. The total number of {what} must be less or equal to {named}"))
            }
        }
    }

    fn build(self, negative: bool) -> Result<Duration, String> {
        let sign = if negative { -1 } else { 1 };
        let [months, days, nanoseconds] = self.parts.map(|part| sign * part);
        Duration::new(months as i32, days as i32, nanoseconds).map_err(|e| e.to_string())
    }
}

/// The duration in the standard notation.
pub fn text(duration: &Duration) -> String {
    let mut text = String::new();
    if duration.months() < 0 || duration.days() < 0 || duration.nanoseconds() < 0 {
        text.push('-');
    }
    let mut append = |mut rest: u64, units: &[(u64, &str)]| {
        for (worth, symbol) in units {
            if rest >= *worth {
                write!(text, "{}{symbol}", rest / worth).expect("writing to a string");
                rest %= worth;
            }
        }
    };
    append(u64::from(duration.months().unsigned_abs()), &[(12, "y"), (1, "mo")]);
    append(u64::from(duration.days().unsigned_abs()), &[(1, "d")]);
    append(
        duration.nanoseconds().unsigned_abs(),
        &[
            (NANOSECONDS_PER_HOUR as u64, "h"),
            (NANOSECONDS_PER_MINUTE as u64, "m"),
            (NANOSECONDS_PER_SECOND as u64, "s"),
            (1_000_000, "ms"),
            (1000, "us"),
            (1, "ns"),
        ],
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_notations() {
        let check = |source: &str, expected: (i32, i32, i64)| {
            let found = parse(source).unwrap_or_else(|e| panic!("{source}: {e}"));
            assert_eq!((found.months(), found.days(), found.nanoseconds()), expected, "{source}");
        };
        check("1y2mo", (14, 0, 0));
        check("-1y2mo3w4d5h6m7s8ms9us10ns", (-14, -25, -18_367_008_009_010));
        check("10H15M", (0, 0, 36_900_000_000_000));
        check("5µs", (0, 0, 5000));
        check("P1Y2DT2M", (12, 2, 120_000_000_000));
        check("P5W", (0, 35, 0));
        check("-P0001-02-03T04:05:06", (-14, -3, -14_706_000_000_000));
        assert_eq!(text(&parse("-1y2mo3w4d5h6m7s8ms9us10ns").unwrap()), "-1y2mo25d5h6m7s8ms9us10ns");
    }

    #[test]
    fn mistakes() {
        for (source, expected) in [
            ("", "Unable to convert '' to a duration"),
            ("5", "Unable to convert '5' to a duration"),
            ("1Y3x", "Unable to convert '1Y3x' to a duration"),
            ("P2Y2", "Unable to convert 'P2Y2' to a duration"),
            ("P5W2D", "Unable to convert 'P5W2D' to a duration"),
            ("1d1d", "Invalid duration. The days are specified multiple times"),
            ("1d1y", "Invalid duration. The days should be after years"),
            (
                "999999999y",
                "Invalid duration. The total number of months must be less or equal to 2147483647",
            ),
        ] {
            assert_eq!(parse(source), Err(expected.to_owned()), "{source}");
        }
    }
}
