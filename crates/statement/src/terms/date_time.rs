//! Points in time as clients write them: a date, or a date and a time of day, and an offset from UTC.
//!
//! The accepted texts are those that the formatters of Cassandra 5's `TimestampSerializer` accept one after
//! another, with their peculiarities: a date alone has all its digits and may lie before the year 1, one with
//! a time of day may be short (`2020-1-1 0:0`) and may not; a day that its month does not have is the last of
//! the month. The zones `UTC`, `GMT` and `UT` are supported, with or without an offset behind them: other
//! names would need tables that change. Used by `time`.

use super::time::{Cursor, MILLISECONDS_PER_DAY, days_in_month, days_of};

/// Most digits of a number.
const DIGITS_MAX: usize = 19;
/// Greatest year, in both directions.
const YEAR_MAX: i64 = 999_999_999;
/// Most seconds of an offset, in both directions.
const OFFSET_SECONDS_MAX: i64 = 18 * 3600;

/// Milliseconds since the epoch; `None` for a text that is not a point in time or is beyond the range of a
/// timestamp.
pub(super) fn parse(text: &str) -> Option<i64> {
    with_time(text).or_else(|| date_alone(text))
}

/// `y-M-d('T'|' ')H:m[:s[.fraction]][offset]`
fn with_time(text: &str) -> Option<i64> {
    let mut cursor = Cursor { rest: text.as_bytes() };
    let year = cursor.number(DIGITS_MAX).filter(|year| (1..=YEAR_MAX).contains(year))?;
    cursor.expect(b'-')?;
    let month = cursor.number(DIGITS_MAX)?;
    cursor.expect(b'-')?;
    let day = cursor.number(DIGITS_MAX)?;
    if !cursor.take(b'T') {
        cursor.expect(b' ')?;
    }
    let hour = cursor.number(DIGITS_MAX)?;
    cursor.expect(b':')?;
    let minute = cursor.number(DIGITS_MAX).filter(|minute| *minute < 60)?;
    let (mut second, mut fraction) = (0, 0);
    if cursor.take(b':') {
        second = cursor.number(DIGITS_MAX).filter(|second| *second < 60)?;
        if cursor.take(b'.') && cursor.rest.first().is_some_and(u8::is_ascii_digit) {
            fraction = cursor.fraction(9)? / 1_000_000;
        }
    }
    // The end of a day is the beginning of the next.
    if hour > 23 && (hour, minute, second, fraction) != (24, 0, 0, 0) {
        return None;
    }
    let offset = match cursor.rest {
        [] => 0,
        [b' ', zone @ ..] => {
            hours_offset(zone).or_else(|| clock_offset(zone, true)).or_else(|| zone_of(zone))?
        }
        zone => hours_offset(zone).or_else(|| clock_offset(zone, false))?,
    };
    point(year, month, day, (hour * 3600 + minute * 60 + second) * 1000 + fraction, offset)
}

/// `[+-]yyyy-MM-dd[offset]`
fn date_alone(text: &str) -> Option<i64> {
    let mut cursor = Cursor { rest: text.as_bytes() };
    let (minus, plus) = (cursor.take(b'-'), cursor.take(b'+'));
    let (year, digits) = cursor.digits(DIGITS_MAX)?;
    // A sign marks a year of more than four digits, and such a year needs one.
    if digits < 4 || (minus && plus) || year > YEAR_MAX || (plus != (digits > 4) && !minus) {
        return None;
    }
    let year = if minus { -year } else { year };
    cursor.expect(b'-')?;
    let month = cursor.exactly(2)?;
    cursor.expect(b'-')?;
    let day = cursor.exactly(2)?;
    // The formatters with other offsets than ISO's have no years before the first.
    let of_era = year > 0;
    let offset = match cursor.rest {
        [] | b"z" => 0,
        [b' ', zone @ ..] if of_era => {
            hours_offset(zone).or_else(|| clock_offset(zone, true)).or_else(|| zone_of(zone))?
        }
        zone => clock_offset(zone, true).or_else(|| hours_offset(zone).filter(|_| of_era))?,
    };
    point(year, month, day, 0, offset)
}

fn point(year: i64, month: i64, day: i64, milliseconds: i64, offset_seconds: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = days_of(year, month, day.min(days_in_month(year, month)));
    // Both parts may exceed the range even if their sum does not.
    let sum = i128::from(days) * i128::from(MILLISECONDS_PER_DAY) + i128::from(milliseconds)
        - i128::from(offset_seconds) * 1000;
    i64::try_from(sum).ok()
}

/// `Z`, `+hh` or `+hhmm`, in seconds.
fn hours_offset(zone: &[u8]) -> Option<i64> {
    if zone == b"Z" {
        return Some(0);
    }
    signed(zone, |cursor| {
        let hours = cursor.exactly(2)?;
        let minutes = if cursor.rest.is_empty() { 0 } else { cursor.exactly(2)? };
        Some((hours, minutes, 0))
    })
}

/// `Z` or `+hh:mm`, with `seconds` also `+hh:mm:ss`, in seconds.
fn clock_offset(zone: &[u8], seconds: bool) -> Option<i64> {
    if zone == b"Z" {
        return Some(0);
    }
    signed(zone, |cursor| {
        let hours = cursor.exactly(2)?;
        cursor.expect(b':')?;
        let minutes = cursor.exactly(2)?;
        let second = if seconds && cursor.take(b':') { cursor.exactly(2)? } else { 0 };
        Some((hours, minutes, second))
    })
}

fn signed(zone: &[u8], parts: impl FnOnce(&mut Cursor<'_>) -> Option<(i64, i64, i64)>) -> Option<i64> {
    let mut cursor = Cursor { rest: zone };
    let sign = if cursor.take(b'+') {
        1
    } else {
        cursor.expect(b'-')?;
        -1
    };
    let (hours, minutes, seconds) = parts(&mut cursor)?;
    let total = hours * 3600 + minutes * 60 + seconds;
    let is_one = cursor.rest.is_empty() && minutes < 60 && seconds < 60 && total <= OFFSET_SECONDS_MAX;
    is_one.then_some(sign * total)
}

fn zone_of(zone: &[u8]) -> Option<i64> {
    let rest = [&b"UTC"[..], b"GMT", b"UT"].iter().find_map(|name| zone.strip_prefix(*name))?;
    if rest.is_empty() { Some(0) } else { clock_offset(rest, true).filter(|_| rest != b"Z") }
}
