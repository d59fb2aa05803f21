//! Addition of durations to times, and rounding of times down to multiples of a duration.
//!
//! Times are in milliseconds since the epoch, in UTC. Months are added in the calendar, days and shorter
//! units to the time. If the resulting month lacks the day, its last day is used. Behaviour of Cassandra 5's
//! `Duration`.

use model::number::Duration;

use crate::terms::time::{MILLISECONDS_PER_DAY, civil_of, days_in_month, days_of};

const NANOSECONDS_PER_MILLISECOND: i64 = 1_000_000;

/// Adds months, days and nanoseconds to `millis`; an overflow of 64 bits wraps.
pub(super) fn add(millis: i64, months: i64, days: i64, nanoseconds: i64) -> i64 {
    let shifted = if months == 0 { millis } else { add_months(millis, months) };
    shifted
        .wrapping_add(days.wrapping_mul(MILLISECONDS_PER_DAY))
        .wrapping_add(nanoseconds / NANOSECONDS_PER_MILLISECOND)
}

fn add_months(millis: i64, months: i64) -> i64 {
    let (year, month, day) = civil_of(millis.div_euclid(MILLISECONDS_PER_DAY));
    let month = year * 12 + (month - 1) + months;
    let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
    let day = day.min(days_in_month(year, month));
    days_of(year, month, day)
        .wrapping_mul(MILLISECONDS_PER_DAY)
        .wrapping_add(millis.rem_euclid(MILLISECONDS_PER_DAY))
}

/// The greatest `start + n * duration`, for a whole `n`, that is not after `millis`. With a duration in whole
/// months the result may be after it, if `start` is late in its month.
///
/// # Errors
/// In Cassandra's words: the start is after the time, or the duration is negative.
pub(super) fn floor(millis: i64, duration: &Duration, start: i64) -> Result<i64, String> {
    if start > millis {
        return Err("The floor function starting time is greater than the provided time".to_owned());
    }
    check_sign(duration)?;
    let (months, days) = (i64::from(duration.months()), i64::from(duration.days()));
    let rest = days * MILLISECONDS_PER_DAY + duration.nanoseconds() / NANOSECONDS_PER_MILLISECOND;
    if months == 0 {
        return Ok(if rest == 0 { millis } else { millis - (millis.wrapping_sub(start)) % rest });
    }
    let month_of = |millis: i64| {
        let (year, month, _) = civil_of(millis.div_euclid(MILLISECONDS_PER_DAY));
        year * 12 + month
    };
    let count_max = (month_of(millis) - month_of(start)) / months;
    if rest == 0 {
        // Only calendar months are counted, so the day within the month may be later than that of `millis`.
        return Ok(add(start, months * count_max, 0, 0));
    }
    let step = |count: i64| {
        add_months(start, months.saturating_mul(count)).saturating_add(rest.saturating_mul(count))
    };
    // The days may have been too much. Steps end later the higher `n` is, so bisection finds the last one
    // that fits.
    let (mut fits, mut beyond) = (0, count_max + 1);
    while beyond - fits > 1 {
        let middle = fits + (beyond - fits) / 2;
        if step(middle) <= millis {
            fits = middle;
        } else {
            beyond = middle;
        }
    }
    Ok(step(fits).max(start))
}

/// Nanoseconds of a day, rounded down to a multiple of a duration of at most a day.
///
/// # Errors
/// In Cassandra's words: the duration is negative, or longer than a day.
pub(super) fn floor_time(nanoseconds: i64, duration: &Duration) -> Result<i64, String> {
    check_sign(duration)?;
    if duration.months() != 0
        || duration.days() != 0
        || duration.nanoseconds() > crate::terms::time::NANOSECONDS_PER_DAY
    {
        return Err(
            "For time values, the floor can only be computed for durations smaller that a day".to_owned()
        );
    }
    Ok(match duration.nanoseconds() {
        0 => nanoseconds,
        step => nanoseconds - nanoseconds % step,
    })
}

fn check_sign(duration: &Duration) -> Result<(), String> {
    if duration.months() < 0 || duration.days() < 0 || duration.nanoseconds() < 0 {
        return Err("Negative durations are not supported by the floor function".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::time::{parse_timestamp, timestamp_text};

    #[test]
    fn months_end_where_the_month_ends() {
        let check = |from: &str, months, days, expected: &str| {
            let millis = add(parse_timestamp(from, 0).unwrap(), months, days, 0);
            assert_eq!(timestamp_text(millis), expected, "{from}");
        };
        check("2016-01-31T10:00Z", 1, 0, "2016-02-29T10:00:00.000Z");
        check("2016-03-31", -1, -1, "2016-02-28T00:00:00.000Z");
        check("2016-10-04", 5, 0, "2017-03-04T00:00:00.000Z");
        check("1969-12-31T23:00Z", 0, -1, "1969-12-30T23:00:00.000Z");
    }

    #[test]
    fn time_is_rounded_down() {
        let check = |time: &str, step: &str, start: &str, expected: &str| {
            let duration = crate::terms::duration::parse(step).unwrap();
            let at = |text| parse_timestamp(text, 0).unwrap();
            assert_eq!(
                timestamp_text(floor(at(time), &duration, at(start)).unwrap()),
                expected,
                "{time} {step}"
            );
        };
        check("2016-09-27T16:12:11", "1h", "0", "2016-09-27T16:00:00.000Z");
        check("2016-09-27T16:12:11", "6h", "2016-09-27", "2016-09-27T12:00:00.000Z");
        check("2016-09-27T16:12:11", "1mo", "0", "2016-09-01T00:00:00.000Z");
        check("2016-09-27T16:12:11", "1y", "0", "2016-01-01T00:00:00.000Z");
        check("2016-09-27T16:12:11", "1mo1d", "2016-01-31", "2016-09-07T00:00:00.000Z");
        check("2016-02-28T00:00:00", "1mo", "2016-01-31", "2016-02-29T00:00:00.000Z");
        let long = crate::terms::duration::parse("1mo").unwrap();
        assert!(floor(i64::MAX, &long, 0).is_ok());
        assert!(floor(0, &long, 1).is_err());
        assert!(floor_time(5, &long).is_err());
    }
}
