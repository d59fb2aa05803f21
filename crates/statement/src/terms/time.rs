//! Dates, times of day and points in time as text: parsing clients' texts, formatting for casts.
//!
//! The proleptic Gregorian calendar, UTC if no offset is given. The accepted texts follow Cassandra 5's
//! `TimestampSerializer`, `SimpleDateSerializer` and `TimeSerializer`; literals and casts use this.

use std::fmt::Write;

use super::date_time;

/// Nanoseconds of a day.
pub const NANOSECONDS_PER_DAY: i64 = 86_400_000_000_000;
/// Milliseconds of a day.
pub const MILLISECONDS_PER_DAY: i64 = 86_400_000;
/// Added to days since the epoch so that dates order as unsigned numbers.
const DATE_BIAS: i64 = 1 << 31;

/// Milliseconds since the epoch.
///
/// # Errors
/// The client's error text, in Cassandra's words.
pub fn parse_timestamp(text: &str, now_ms: i64) -> Result<i64, String> {
    if text.eq_ignore_ascii_case("now") {
        return Ok(now_ms);
    }
    if is_integer(text) {
        return text.parse().map_err(|_| format!("Unable to make long (for date) from: '{text}'"));
    }
    date_time::parse(text).ok_or_else(|| format!("Unable to parse a date/time from '{text}'"))
}

/// Days since the epoch plus 2^31.
///
/// # Errors
/// As [`parse_timestamp`].
pub fn parse_date(text: &str) -> Result<u32, String> {
    if is_integer(text) {
        let days = text.parse::<i64>().ok().and_then(|days| u32::try_from(days).ok());
        return days.ok_or_else(|| format!("Unable to make unsigned int (for date) from: '{text}'"));
    }
    let wrong = || format!("Unable to coerce '{text}' to a formatted date (long)");
    let mut cursor = Cursor { rest: text.as_bytes() };
    let signed = matches!(cursor.rest.first(), Some(b'-' | b'+'));
    let negative = cursor.take(b'-');
    if !negative {
        cursor.take(b'+');
    }
    let digits_before = cursor.rest.len();
    let year = cursor.number(9).ok_or_else(wrong)?;
    let digits = digits_before - cursor.rest.len();
    if digits < 4 || (digits > 4 && !signed) || !cursor.take(b'-') {
        return Err(wrong());
    }
    let month = cursor.exactly(2).ok_or_else(wrong)?;
    if !cursor.take(b'-') {
        return Err(wrong());
    }
    let day = cursor.exactly(2).ok_or_else(wrong)?;
    let year = if negative { -year } else { year };
    if !cursor.rest.is_empty() || !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return Err(wrong());
    }
    let days = days_of(year, month, day);
    match u32::try_from(days + DATE_BIAS) {
        Ok(biased) => Ok(biased),
        Err(_) if days < 0 => {
            Err(format!("Input date {text} is less than min supported date -5877641-06-23T00:00Z"))
        }
        Err(_) => Err(format!("Input date {text} is greater than max supported date +5881580-07-11T00:00Z")),
    }
}

/// Nanoseconds since midnight.
///
/// # Errors
/// As [`parse_timestamp`].
pub fn parse_time(text: &str) -> Result<i64, String> {
    if is_integer(text) {
        return text
            .parse()
            .ok()
            .filter(|nanoseconds| (0..NANOSECONDS_PER_DAY).contains(nanoseconds))
            .ok_or_else(|| format!("Unable to make long (for time) from: '{text}'"));
    }
    clock(text.trim())
        .ok_or_else(|| format!("(TimeType) Unable to coerce '{text}' to a formatted time (long)"))
}

fn clock(text: &str) -> Option<i64> {
    let mut cursor = Cursor { rest: text.as_bytes() };
    let hour = cursor.number(9).filter(|hour| *hour < 24)?;
    cursor.expect(b':')?;
    let minute = cursor.number(9).filter(|minute| *minute < 60)?;
    cursor.expect(b':')?;
    let second = cursor.number(9).filter(|second| *second < 60)?;
    let nanoseconds = if cursor.take(b'.') { cursor.fraction(9)? } else { 0 };
    cursor.rest.is_empty().then_some((hour * 3600 + minute * 60 + second) * 1_000_000_000 + nanoseconds)
}

/// `2011-02-03T04:05:06.789Z`
pub fn timestamp_text(milliseconds: i64) -> String {
    let (days, rest) =
        (milliseconds.div_euclid(MILLISECONDS_PER_DAY), milliseconds.rem_euclid(MILLISECONDS_PER_DAY));
    let mut text = String::new();
    write_date(&mut text, days);
    let (seconds, fraction) = (rest / 1000, rest % 1000);
    write!(text, "T{:02}:{:02}:{:02}.{fraction:03}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
        .expect("writing to a string");
    text
}

/// `2011-02-03 04:05:06.789Z`, the shape JSON has.
pub fn json_timestamp_text(milliseconds: i64) -> String {
    timestamp_text(milliseconds).replacen('T', " ", 1)
}

/// `2011-02-03`
pub fn date_text(biased_days: u32) -> String {
    let mut text = String::new();
    write_date(&mut text, i64::from(biased_days) - DATE_BIAS);
    text
}

/// `04:05:06.789012345`
pub fn time_text(nanoseconds: i64) -> String {
    let (seconds, fraction) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    format!("{:02}:{:02}:{:02}.{fraction:09}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The date, as stored, of a point in time: of whole seconds before 1970 the day that follows, as Cassandra
/// has it.
pub fn date_of_millis(milliseconds: i64) -> u32 {
    (milliseconds.div_euclid(1000) / (MILLISECONDS_PER_DAY / 1000) + DATE_BIAS) as u32
}

/// Midnight UTC of a stored date, in milliseconds since the epoch.
pub fn millis_of_date(biased_days: u32) -> i64 {
    (i64::from(biased_days) - DATE_BIAS) * MILLISECONDS_PER_DAY
}

fn write_date(text: &mut String, days: i64) {
    let (year, month, day) = civil_of(days);
    let sign = if year < 0 {
        "-"
    } else if year > 9999 {
        "+"
    } else {
        ""
    };
    write!(text, "{sign}{:04}-{month:02}-{day:02}", year.abs()).expect("writing to a string");
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

pub(crate) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01; years start in March so that the leap day is the last.
pub(crate) fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
pub(crate) fn civil_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Bytes that are still to be read.
pub(super) struct Cursor<'a> {
    pub(super) rest: &'a [u8],
}

impl Cursor<'_> {
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let there = self.rest.first() == Some(&byte);
        if there {
            self.rest = &self.rest[1..];
        }
        there
    }

    pub(super) fn expect(&mut self, byte: u8) -> Option<()> {
        self.take(byte).then_some(())
    }

    pub(super) fn digits(&mut self, at_most: usize) -> Option<(i64, usize)> {
        let count = self.rest.iter().take(at_most).take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        // Nineteen digits may exceed the range: then the result is the greatest number, which no field
        // accepts.
        let value = digits
            .iter()
            .fold(0_i64, |value, digit| value.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
        (count > 0).then_some((value, count))
    }

    /// One to `at_most` digits, and no digit behind them.
    pub(super) fn number(&mut self, at_most: usize) -> Option<i64> {
        let (value, _) = self.digits(at_most)?;
        (!self.rest.first().is_some_and(u8::is_ascii_digit)).then_some(value)
    }

    pub(super) fn exactly(&mut self, count: usize) -> Option<i64> {
        self.digits(count).filter(|(_, found)| *found == count).map(|(value, _)| value)
    }

    /// Digits behind the point, in units of 10^-9.
    pub(super) fn fraction(&mut self, at_most: usize) -> Option<i64> {
        let (value, count) = self.digits(at_most)?;
        if self.rest.first().is_some_and(u8::is_ascii_digit) {
            return None;
        }
        Some(value * 10_i64.pow(9 - count as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_time_as_cassandra_reads_them() {
        for (text, expected) in [
            ("2011-02-03 04:05+0000", Ok(1_296_705_900_000)),
            ("2011-02-03 04:05:00+0000", Ok(1_296_705_900_000)),
            ("2011-02-03T04:05:06.789Z", Ok(1_296_705_906_789)),
            ("2011-02-03T04:05:06.7891+01:30", Ok(1_296_700_506_789)),
            ("2011-02-03 04:05:06 UTC", Ok(1_296_705_906_000)),
            ("2011-2-3 4:5", Ok(1_296_705_900_000)),
            ("2011-02-03", Ok(1_296_691_200_000)),
            ("2011-02-03+02:00", Ok(1_296_684_000_000)),
            ("2011-02-31", Ok(1_298_851_200_000)),
            ("-0001-01-01", Ok(-62_198_755_200_000)),
            ("0000-01-01", Ok(-62_167_219_200_000)),
            ("+12345-01-01", Ok(327_403_382_400_000)),
            ("12345-1-1T0:0Z", Ok(327_403_382_400_000)),
            ("2011-02-03 24:00", Ok(1_296_777_600_000)),
            ("2011-02-03z", Ok(1_296_691_200_000)),
            ("2011-02-03T04:05:00.", Ok(1_296_705_900_000)),
            ("2011-02-03 04:05 GMT+01:30", Ok(1_296_700_500_000)),
            ("2011-2-3", Err("Unable to parse a date/time from '2011-2-3'")),
            ("12345-01-01", Err("Unable to parse a date/time from '12345-01-01'")),
            ("0000-01-01 00:00", Err("Unable to parse a date/time from '0000-01-01 00:00'")),
            ("2011-02-03 04:05.5", Err("Unable to parse a date/time from '2011-02-03 04:05.5'")),
            ("+292278995-08-17", Err("Unable to parse a date/time from '+292278995-08-17'")),
            ("-5", Ok(-5)),
            ("NOW", Ok(77)),
            ("99999999999999999999", Err("Unable to make long (for date) from: '99999999999999999999'")),
            ("2011-13-03", Err("Unable to parse a date/time from '2011-13-03'")),
            ("2011-02-03 24:05", Err("Unable to parse a date/time from '2011-02-03 24:05'")),
            ("yesterday", Err("Unable to parse a date/time from 'yesterday'")),
            ("", Err("Unable to parse a date/time from ''")),
        ] {
            assert_eq!(parse_timestamp(text, 77), expected.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn dates_and_times_of_day() {
        assert_eq!(parse_date("1970-01-01"), Ok(1 << 31));
        assert_eq!(parse_date("1969-12-31"), Ok((1 << 31) - 1));
        assert_eq!(parse_date("-5877641-06-23"), Ok(0));
        assert_eq!(parse_date("+5881580-07-11"), Ok(u32::MAX));
        assert_eq!(parse_date("12"), Ok(12));
        assert_eq!(parse_date("-0"), Ok(0));
        for text in ["2015-02-30", "2015-2-3", "12345-01-01", "x", "", "+5881580-07-12", "-1"] {
            assert!(parse_date(text).is_err(), "{text}");
        }
        assert_eq!(parse_time("08:12:54.123456789"), Ok(29_574_123_456_789));
        assert_eq!(parse_time("08:12:54.1"), Ok(29_574_100_000_000));
        assert_eq!(parse_time("29574123456789"), Ok(29_574_123_456_789));
        for text in ["24:00:00", "08:60:00", "08:12", "08:12:54.", "86400000000000", "-1", ""] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn text_of_what_was_read_is_what_was_written() {
        for days in (-800_000..800_000).step_by(37) {
            let biased = (days + DATE_BIAS) as u32;
            assert_eq!(parse_date(&date_text(biased)), Ok(biased));
        }
        assert_eq!(timestamp_text(1_296_705_906_789), "2011-02-03T04:05:06.789Z");
        assert_eq!(timestamp_text(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(time_text(29_574_123_456_789), "08:12:54.123456789");
    }
}
